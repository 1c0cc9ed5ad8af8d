"""The tool `memory_search`."""

import time
from typing import Annotated, Final, Literal

from msgspec import Meta

from remembrancer.config.project import workspace_root
from remembrancer.memory.text import check_text
from remembrancer.protocol.files import SearchFiles, Workspace
from remembrancer.protocol.kinds import FileSource
from remembrancer.toolsets.memory.fields import given
from remembrancer.toolsets.memory.recall_memories import MAX_QUERY_BYTES
from remembrancer.toolsets.tools import Answer, Call, tool

Source = Literal["memory", "sessions"]
SOURCES: Final[dict[Source, FileSource]] = {"memory": "notes", "sessions": "sessions"}
"""The index's name for each source of this toolset."""
NAMES: Final = {source: name for name, source in SOURCES.items()}
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
    request = SearchFiles(
        workspace_of(call),
        query,
        limit=given(max_results, call.service.settings.search_max_results),
        min_score=given(min_score, call.service.settings.search_min_score),
        sources=tuple(dict.fromkeys(SOURCES[name] for name in sources)),
        path=path,
    )
    found = await call.ask(request)
    return {
        "results": [
            {
                "path": chunk.path,
                "startLine": chunk.start_line,
                "endLine": chunk.end_line,
                "score": round(chunk.score, 3),
                "snippet": chunk.snippet,
                "source": NAMES[chunk.source],
            }
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
