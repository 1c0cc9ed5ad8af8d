"""The tool `memory_sync`."""

from typing import Annotated, Final

from msgspec import Meta

from remembrancer.protocol.files import SyncFiles
from remembrancer.toolsets.files.memory_search import SOURCES, Source, workspace_of
from remembrancer.toolsets.tools import Answer, Call, non_empty, tool

TIMEOUT_S: Final = 30.0
"""The time that a caller waits for the files to be read; reading continues after it."""


@tool("Read changed notes now.")
async def memory_sync(
    call: Call,
    force: Annotated[bool, Meta(description="Also what looks unchanged")] = False,
    source: Source | None = None,
) -> Answer:
    """Read the files, and report the changes of the index. Vectors may take longer: see `memory_status`."""
    request = SyncFiles(workspace_of(call), force, None if source is None else SOURCES[source])
    done = await call.service.require(request, TIMEOUT_S)
    answer: Answer = {
        "filesScanned": done.scanned,
        "chunksUpdated": done.updated,
        "chunksAdded": done.added,
        "chunksRemoved": done.removed,
        "duration": f"{done.duration_s:.1f}s",
    }
    return answer | non_empty(skipped=[{"path": path, "reason": reason} for path, reason in done.skipped.items()])
