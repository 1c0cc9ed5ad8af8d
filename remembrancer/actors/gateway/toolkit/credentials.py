"""Content that looks like a credential: it is stored only when the caller says that it shall be."""

from __future__ import annotations

from typing import Final

import anyio.to_thread

from remembrancer.actors.gateway.toolkit.credential_shapes import find_credential
from remembrancer.protocol.errors import InvalidInput

LONG: Final = 20_000
"""Characters from which on a text is looked at in a thread: a quarter of a megabyte takes some tens of ms."""


async def refuse_credentials(text: str, *, field: str, allowed: bool) -> None:
    """Refuse a text that looks like it holds a credential, unless that is `allowed`.

    Raises:
        InvalidInput: it does; the message says of what sort, and what to do.
    """
    if allowed:
        return
    found = find_credential(text) if len(text) < LONG else await anyio.to_thread.run_sync(find_credential, text)
    if found is not None:
        raise InvalidInput(
            f"{field} looks like it holds a credential ({found}), which everybody who recalls it would see: store "
            "where the secret is kept instead of the secret, or pass allow_secrets: true if it is none or must be kept",
            field=field,
        )
