"""Tools that search, read and write notes, and report the state of their index."""

import itertools
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final, Literal

import anyio
import anyio.to_thread
from msgspec import Meta

from remembrancer.code.words import terms_in
from remembrancer.config.project import workspace_root
from remembrancer.config.settings import Settings
from remembrancer.memory.chunks import line_starts
from remembrancer.memory.credentials import masked
from remembrancer.memory.limits import MAX_QUERY_BYTES
from remembrancer.memory.notes import MAX_FILE_BYTES, MAX_NOTE_BYTES, clean_note_path, daily_note, edited
from remembrancer.memory.sentences import split_sentences
from remembrancer.memory.text import check_text, quote
from remembrancer.memory.tokens import whole_characters
from remembrancer.memory.transcripts import read_turns
from remembrancer.protocol.errors import DeadlineExceeded, InvalidInput, NotFound, RemembrancerError
from remembrancer.protocol.files import DescribeFiles, SourceCounts, SyncFiles
from remembrancer.protocol.kinds import FileSource
from remembrancer.protocol.reads import Recall, RecalledMemory
from remembrancer.protocol.system import real_path
from remembrancer.protocol.writes import NoteWritten, ProjectRef, WriteNote
from remembrancer.toolsets.files.workspace_files import (
    MAX_TRANSCRIPT_BYTES,
    RealNote,
    find_note,
    has_files,
    is_of_workspace,
    native_places,
    open_note,
    real_note,
    transcript_paths,
)
from remembrancer.toolsets.memory.answers import iso
from remembrancer.toolsets.memory.fields import given
from remembrancer.toolsets.tools import Answer, Call, non_empty, tool

Source = Literal["memory", "sessions"]
SOURCES: Final[dict[Source, FileSource]] = {"memory": "notes", "sessions": "sessions"}
NAMES: Final = {source: name for name, source in SOURCES.items()}
SCALE: Final = 0.4
"""Turns a probability into a score: a sixtieth of the relevant chunks and half of the others score below 0.3."""
SNIPPET: Final = 700
"""The maximum number of characters shown from a chunk."""
TIMEOUT_S: Final = 30.0
"""The time that `memory_sync` waits. Reading continues afterwards."""
UNITS: Final = (("d", 86_400.0), ("h", 3600.0), ("m", 60.0), ("s", 1.0))
LINES: Final = 50
MAX_PATH_BYTES: Final = 4096
MAX_CHARACTERS: Final = 40_000
"""The maximum in one answer. A client continues with the line after the last line of the answer."""
INDEXED_WITHIN_S: Final = 0.5
"""The time to wait until a new note can be found by its words."""


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
    check_text(query, field="query", longest_bytes=MAX_QUERY_BYTES)
    project, root, settings = call.caller.project, root_of(call), call.service.settings
    request = Recall(
        project=project,
        session_id="",
        query=query,
        limit=given(max_results, settings.search_max_results),
        is_task=True,
        sources=tuple(dict.fromkeys(SOURCES[name] for name in sources or SOURCES)),
        root=root,
        path=path,
    )
    found = await call.ask(request, is_search=True)
    scored = [(round(chunk.scores.relevance**SCALE, 3), chunk) for chunk in found.memories]
    least, terms = given(min_score, settings.search_min_score), frozenset(terms_in(query))
    answer: Answer = {
        "results": [_result(chunk, score, terms) for score, chunk in scored if score >= least],
        "searchMode": "keyword" if found.strategy_used == "keyword" else "hybrid",
    }
    if call.is_old:  # no time is left for another request
        return answer
    try:
        about = (await call.service.ask(DescribeFiles(project, root), call.received_at)).reply
    except RemembrancerError:
        return answer
    if about.synced_at is None and await anyio.to_thread.run_sync(has_files, Path(root), settings):
        call.warn("partial_results", "The notes are being read for the first time; search again in a moment.")
    if not about.sources:  # nothing was searched
        answer["searchMode"] = "keyword"
    return answer | {"indexAge": age_of(about.synced_at, time.time())}


def _result(chunk: RecalledMemory, score: float, terms: frozenset[str]) -> Answer:
    assert chunk.lines is not None
    assert chunk.origin is not None
    first, last = chunk.lines
    place = {"path": chunk.source.file, "source": NAMES[chunk.origin], "startLine": first, "endLine": last}
    return {**place, "score": score, "snippet": snippet_of(chunk.content.strip(), terms)}


def snippet_of(text: str, terms: frozenset[str]) -> str:
    """The excerpt from a long text begins at or shortly before the sentence with the most terms."""
    if len(text) <= SNIPPET:
        return text
    best = max(split_sentences(text), key=lambda each: len(terms.intersection(terms_in(each))))
    start = min(text.find(best), len(text) - SNIPPET)
    while start and not text[start - 1].isspace():
        start -= 1
    end = start + SNIPPET
    return f"{'… ' if start else ''}{text[start:end].strip()}{' …' if end < len(text) else ''}"


def root_of(call: Call) -> str:
    return workspace_root(call.caller.directory, call.service.settings)


def age_of(at: float | None, now: float) -> str:
    """A readable age, such as `2m ago`; `never` without a time."""
    if at is None:
        return "never"
    age_s = max(0.0, now - at)
    unit, seconds = next((each for each in UNITS if age_s >= each[1]), UNITS[-1])
    return f"{int(age_s // seconds)}{unit} ago"


@tool("Read lines of a note.", read_only=True, rename="camel")
async def memory_read(
    call: Call,
    path: str,
    from_line: Annotated[int, Meta(ge=1)] | None = None,
    lines: Annotated[int, Meta(ge=1, le=5000)] | None = None,
) -> Answer:
    """Lines of a note as it is on disk, indexed or not, or turns of a transcript."""
    settings = call.service.settings
    project, root = call.caller.project, root_of(call)
    first, count = from_line or 1, lines or LINES

    def read() -> Answer:
        if settings.transcripts and path.endswith(".jsonl"):
            return _shown(_turns_of(path, Path(root), settings), path, first, count)
        text = masked(read_note(path, project, root, settings))
        starts = line_starts(text) if text else [0]
        all_lines = [text[start:end] for start, end in itertools.pairwise(starts)]
        return _shown(all_lines, path, first, count)

    with anyio.move_on_after(settings.read_budget_s):  # on a thread, since a disk may hang
        return await anyio.to_thread.run_sync(read, abandon_on_cancel=True)
    raise DeadlineExceeded(f"{quote(path)} could not be read in time; try again")


def read_note(path: str, project: ProjectRef, root: str, settings: Settings) -> str:
    """Notes outside the workspace belong to the user. Raises `NotFound` or `InvalidInput`."""
    check_text(path, field="path", longest_bytes=MAX_PATH_BYTES)
    native = native_places(Path(root)) if settings.native_memories else ()
    note = find_note(path, root, (*settings.notes_extra_paths, *native))
    is_users = isinstance(note, RealNote) and not note.directory.is_relative_to(real_path(root))
    if not isinstance(note, RealNote) or (is_users and not project.sees_user):
        note = real_note(clean_note_path(path, root, settings.notes_paths), root, settings.notes_paths)
    try:
        descriptor = open_note(note)
    except FileNotFoundError:
        raise NotFound(f"there is no note {quote(path)}", field="path", remedy="memory_search") from None
    except OSError as error:
        raise InvalidInput(f"{quote(path)} cannot be read: {error.strerror}", field="path") from error
    with os.fdopen(descriptor, "rb") as file:
        data = file.read(MAX_FILE_BYTES + 1)
    if len(data) > MAX_FILE_BYTES:
        raise InvalidInput(f"{quote(path)} is too large for a note: it exceeds {MAX_FILE_BYTES} bytes", field="path")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{quote(path)} is not UTF-8 (byte {error.start})", field="path") from error


def _turns_of(path: str, root: Path, settings: Settings) -> list[str]:
    """The turns of a transcript, numbered like lines in search results."""
    unknown = NotFound(f"there is no transcript {quote(path)} of a session in this project", field="path")
    file = next((each for each in transcript_paths(root, settings) if str(each) == path), None)
    if file is None:
        raise unknown
    try:
        with file.open("rb") as transcript:
            turns, directory = read_turns(transcript.read(MAX_TRANSCRIPT_BYTES))
    except OSError as error:
        raise InvalidInput(f"{quote(path)} cannot be read: {error.strerror}", field="path") from error
    if not is_of_workspace(directory, file, root):
        raise unknown
    return [f"{turn.role.capitalize()}: {turn.text}\n\n" for turn in turns]


def _shown(lines: Sequence[str], path: str, first: int, count: int) -> Answer:
    total = len(lines)
    if first > max(1, total):
        raise InvalidInput(f"{quote(path)} has {total} lines, and fromLine is {first}", field="fromLine")
    asked = lines[first - 1 : first - 1 + count]
    sizes = itertools.accumulate(map(len, asked))
    fit = max(1, sum(size <= MAX_CHARACTERS for size in sizes))
    content = "".join(asked[:fit])
    end = whole_characters(content, min(len(content), MAX_CHARACTERS))
    answer: Answer = {"path": path, "content": content[:end].rstrip("\r\n")}
    answer |= {"fromLine": first, "toLine": min(total, first - 1 + fit), "totalLines": total}
    return answer | non_empty(cut=end < len(content))


@tool("Write into the project's notes. Appends unless told to replace.", destructive=True, unlisted=("expected",))
async def memory_store(
    call: Call,
    content: Annotated[str, Meta(description="Markdown")],
    mode: Literal["append", "replace"] | None = None,
    path: Annotated[str, Meta(description="Today's memory/YYYY-MM-DD.md if left out")] = "",
    heading: Annotated[str, Meta(description="Append under it, or replace its section")] | None = None,
    expected: str = "",
) -> Answer:
    """Change a note exactly once, even on a retry. The answer contains any replaced text."""
    settings = call.service.settings
    if not settings.notes:
        raise InvalidInput("notes are switched off here: the setting notes is false")
    check_text(content, field="content", longest_bytes=MAX_NOTE_BYTES)
    root = root_of(call)
    path = path or daily_note(call.received_at, settings.notes_paths)
    change = WriteNote(
        root,
        clean_note_path(path, root, settings.notes_paths),
        content,
        mode or "append",
        heading,
        places=settings.notes_paths,
        expected=expected,
    )
    result = await call.submit(change)
    if result is None:  # queued
        lines = edited("", content, "append", heading).lines
        return {"path": change.path, "linesWritten": lines, "indexed": False}
    assert isinstance(result, NoteWritten)
    try:
        await call.service.require(SyncFiles(call.caller.project, root, source="notes"), INDEXED_WITHIN_S)
        indexed = True
    except RemembrancerError:  # it is being indexed
        indexed = False
    answer: Answer = {"path": change.path, "linesWritten": result.lines, "indexed": indexed}
    return answer | non_empty(replaced=masked(result.replaced), addedToGitignore=list(result.ignored))


@tool("State of the index of notes.", read_only=True)
async def memory_status(call: Call) -> Answer:
    found = await call.ask(DescribeFiles(call.caller.project, root_of(call)))
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
    call: Call, force: Annotated[bool, Meta(description="Unchanged files too")] = False, source: Source | None = None
) -> Answer:
    """Vectors may take longer: see `memory_status`."""
    wanted = None if source is None else SOURCES[source]
    request = SyncFiles(call.caller.project, root_of(call), force, wanted)
    done = await call.service.require(request, TIMEOUT_S)
    answer: Answer = {
        "filesScanned": done.scanned,
        "chunksUpdated": done.updated,
        "chunksAdded": done.added,
        "chunksRemoved": done.removed,
        "duration": f"{done.duration_s:.1f}s",
    }
    return answer | non_empty(skipped=[{"path": path, "reason": reason} for path, reason in done.skipped.items()])
