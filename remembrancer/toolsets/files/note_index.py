"""Tools for the index of notes: its search, its state, and reading changed files."""

import time
from pathlib import Path
from typing import Annotated, Final, Literal

import anyio.to_thread
import msgspec
from msgspec import Meta

from remembrancer.config.project import workspace_root
from remembrancer.memory.limits import MAX_QUERY_BYTES
from remembrancer.memory.text import check_text
from remembrancer.protocol.files import DescribeFiles, SearchFiles, SourceCounts, SyncFiles, Workspace
from remembrancer.protocol.kinds import FileSource
from remembrancer.toolsets.files.workspace_files import has_files
from remembrancer.toolsets.memory.answers import iso
from remembrancer.toolsets.memory.fields import given
from remembrancer.toolsets.tools import Answer, Call, non_empty, tool

Source = Literal["memory", "sessions"]
SOURCES: Final[dict[Source, FileSource]] = {"memory": "notes", "sessions": "sessions"}
"""The index's name for each source of this toolset."""
NAMES: Final = {source: name for name, source in SOURCES.items()}
TIMEOUT_S: Final = 30.0
"""The time that a caller waits for the files to be read; reading continues after it."""
UNITS: Final = (("d", 86_400.0), ("h", 3600.0), ("m", 60.0))


@tool(
    "Search the project's notes (MEMORY.md, memory/) by meaning and words, best first.", read_only=True, rename="camel"
)
async def memory_search(
    call: Call,
    query: str,
    max_results: Annotated[int, Meta(ge=1, le=100, extra_json_schema={"default": 8})] | None = None,
    min_score: Annotated[float, Meta(ge=0, le=1, extra_json_schema={"default": 0.3})] | None = None,
    sources: tuple[Source, ...] = (),
    path: Annotated[str, Meta(description="A file or a directory")] = "",
) -> Answer:
    """The best chunks with their lines, what was not searched, and the age of the index."""
    check_text(query, field="query", longest_bytes=MAX_QUERY_BYTES)
    workspace, settings = workspace_of(call), call.service.settings
    request = SearchFiles(
        workspace,
        query,
        limit=given(max_results, settings.search_max_results),
        min_score=given(min_score, settings.search_min_score),
        sources=tuple(dict.fromkeys(SOURCES[name] for name in sources)),
        path=path,
    )
    found = await call.ask(request)
    if found.synced_at is None and await anyio.to_thread.run_sync(has_files, Path(workspace.root), settings):
        call.warn("partial_results", "The notes are being read for the first time: search again in a moment.")
    return {
        "results": [
            msgspec.to_builtins(chunk) | {"score": round(chunk.score, 3), "source": NAMES[chunk.source]}
            for chunk in found.chunks
        ],
        "searchMode": found.mode,
        "indexAge": age_of(found.synced_at, time.time()),
    }


def workspace_of(call: Call) -> Workspace:
    """The directory of a session's notes."""
    return Workspace(call.caller.project, workspace_root(call.caller.directory, call.service.settings))


def age_of(at: float | None, now: float) -> str:
    """The age of a time in its largest unit: `2m ago`; `never` without one."""
    if at is None:
        return "never"
    age_s = max(0.0, now - at)
    for unit, seconds in UNITS:
        if age_s >= seconds:
            return f"{int(age_s // seconds)}{unit} ago"
    return f"{int(age_s)}s ago"


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


@tool("Read changed notes now.")
async def memory_sync(
    call: Call,
    force: Annotated[bool, Meta(description="Unchanged files too")] = False,
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
