"""The tool `open_browser`."""

from __future__ import annotations

import msgspec

from remembrancer.toolsets.tools import Answer, Call, tool


class OpenBrowserArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pass


@tool("Open the memory browser; its address.", marks_data=False)
async def open_browser(call: Call, arguments: OpenBrowserArguments) -> Answer:
    """The address of the memory browser. Raises `MemoryUnavailable` if HTTP cannot be served."""
    return {"url": await call.service.browser_url()}
