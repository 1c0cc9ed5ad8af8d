"""The tool `memory_status`."""

from remembrancer.protocol.files import DescribeFiles, SourceCounts
from remembrancer.toolsets.files.memory_search import SOURCES, workspace_of
from remembrancer.toolsets.memory.answers import iso
from remembrancer.toolsets.tools import Answer, Call, non_empty, tool


@tool("State of the index of notes.", read_only=True)
async def memory_status(call: Call) -> Answer:
    """The state of the index for the session's workspace, and the skipped files with reasons."""
    found = await call.ask(DescribeFiles(workspace_of(call)))
    answer: Answer = {
        "provider": found.embedding.engine,
        "model": found.embedding.model,
        "totalChunks": sum(counts.chunks for counts in found.sources.values()),
        "totalFiles": sum(counts.files for counts in found.sources.values()),
        "sources": {
            name: {"files": counts.files, "chunks": counts.chunks}
            for name, source in SOURCES.items()
            for counts in [found.sources.get(source, SourceCounts(0, 0))]
        },
        "lastSync": None if found.synced_at is None else iso(found.synced_at),
        "staleFiles": found.stale,
        "dbSize": f"{found.bytes / 1e6:.1f} MB",
    }
    return answer | non_empty(
        pendingChunks=found.pending or None,
        skipped=[{"path": path, "reason": reason} for path, reason in found.skipped.items()],
    )
