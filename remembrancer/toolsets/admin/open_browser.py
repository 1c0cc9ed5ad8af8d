"""The tool `open_browser`."""

from remembrancer.toolsets.tools import Answer, Call, tool


@tool("Open the memory browser; its address.", marks_data=False)
async def open_browser(call: Call) -> Answer:
    """The address of the memory browser. Raises `MemoryUnavailable` if HTTP cannot be served."""
    return {"url": await call.service.open_browser()}
