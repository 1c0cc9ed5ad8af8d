"""The tool `index_project`."""

from pathlib import Path
from typing import Annotated, Final

from msgspec import Meta

from remembrancer.memory.text import check_text
from remembrancer.protocol.code import IndexCode
from remembrancer.toolsets.code.get_index_status import described
from remembrancer.toolsets.tools import Answer, Call, tool

TIMEOUT_S: Final = 10.0
MAX_PATH_BYTES: Final = 4096


@tool("Index a repository's code for search_code, in the background; again: read what has changed.", marks_data=False)
async def index_project(
    call: Call, path: str, watch: Annotated[bool, Meta(description="Follow changes")] = True
) -> Answer:
    """The tree's id and the progress of its index. A relative path is resolved against the session's working tree."""
    check_text(path, field="path", longest_bytes=MAX_PATH_BYTES)
    path = path if path.startswith("~") else str(Path(call.caller.directory, path))
    request = IndexCode(call.caller.project, path, watch)
    done = await call.service.require(request, TIMEOUT_S)
    return described(done[0])
