"""The card in a conversation: the memories that a tool just stored or found, with *undo*, *correct* and *why*.

It is a resource of the extension MCP Apps (https://github.com/modelcontextprotocol/ext-apps, 2026-01-26): one HTML page
that loads nothing from the network. A client that declares the extension shows it in a frame.
"""

import functools
from typing import Any, Final

from markupsafe import Markup

from remembrancer.browser.rendering import HERE, SCOPES, environment


@functools.cache
def card_page() -> str:
    """The page. It is the same for every answer; the client passes it the data of the call."""
    assets = HERE / "assets"
    values: Final[dict[str, Any]] = {
        "style": Markup((assets / "browser.css").read_text(encoding="utf-8")),  # noqa: S704 - ours
        "script": Markup((assets / "card.js").read_text(encoding="utf-8")),  # noqa: S704 - ours
        "scopes": SCOPES,
    }
    return environment().get_template("card.html").render(values)
