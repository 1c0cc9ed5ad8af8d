"""The tool `memory_read`."""

import itertools
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final

import anyio
import anyio.to_thread
from msgspec import Meta

from remembrancer.config.settings import Settings
from remembrancer.memory.chunks import line_starts
from remembrancer.memory.credentials import masked
from remembrancer.memory.notes import MAX_FILE_BYTES, clean_note_path
from remembrancer.memory.text import check_text, shown
from remembrancer.memory.tokens import whole_characters
from remembrancer.memory.transcripts import read_turns
from remembrancer.protocol.errors import DeadlineExceeded, InvalidInput, NotFound
from remembrancer.toolsets.files.note_index import workspace_of
from remembrancer.toolsets.files.workspace_files import (
    MAX_TRANSCRIPT_BYTES,
    RealNote,
    find_note,
    is_of_workspace,
    open_note,
    real_note,
    transcript_paths,
)
from remembrancer.toolsets.tools import Answer, Call, tool

LINES: Final = 50
MAX_PATH_BYTES: Final = 4096
MAX_CHARACTERS: Final = 40_000
"""The limit of one answer. A client continues from the line after its last one."""


@tool("Read lines of a note.", read_only=True, rename="camel")
async def memory_read(
    call: Call,
    path: str,
    from_line: Annotated[int, Meta(ge=1)] | None = None,
    lines: Annotated[int, Meta(ge=1, le=5000)] | None = None,
) -> Answer:
    """Lines of a note as it is on disk now, indexed or not; or turns of a transcript."""
    settings = call.service.settings
    root = workspace_of(call).root
    first, count = from_line or 1, lines or LINES

    def read() -> Answer:
        if settings.transcripts and path.endswith(".jsonl"):
            return _shown(_turns_of(path, Path(root), settings), path, first, count)
        text = masked(read_note(path, root, settings))
        starts = line_starts(text) if text else [0]
        all_lines = [text[start:end] for start, end in itertools.pairwise(starts)]
        return _shown(all_lines, path, first, count)

    with anyio.move_on_after(settings.read_budget_s):  # on a thread of its own: a disk may hang
        return await anyio.to_thread.run_sync(read, abandon_on_cancel=True)
    raise DeadlineExceeded(f"{shown(path)} could not be read in time: try again")


def read_note(path: str, root: str, settings: Settings) -> str:
    """The text on disk of the note at a path from a search result.

    Raises:
        NotFound: there is no such note.
        InvalidInput: the path is not a note's, or cannot be read.
    """
    check_text(path, field="path", longest_bytes=MAX_PATH_BYTES)
    note = find_note(path, root, settings.notes_extra_paths)
    if not isinstance(note, RealNote):
        note = real_note(clean_note_path(path, root, settings.notes_paths), root, settings.notes_paths)
    try:
        descriptor = open_note(note)
    except FileNotFoundError:
        raise NotFound(f"there is no note {shown(path)}", field="path", remedy="memory_search") from None
    except OSError as error:
        raise InvalidInput(f"{shown(path)} cannot be read: {error.strerror}", field="path") from error
    with os.fdopen(descriptor, "rb") as file:
        data = file.read(MAX_FILE_BYTES + 1)
    if len(data) > MAX_FILE_BYTES:
        raise InvalidInput(
            f"{shown(path)} is too large to be a note: it has more than {MAX_FILE_BYTES} bytes", field="path"
        )
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{shown(path)} is not UTF-8 (byte {error.start})", field="path") from error


def _turns_of(path: str, root: Path, settings: Settings) -> list[str]:
    """The turns of a transcript, which correspond to a note's lines: the lines of a search result are their numbers."""
    unknown = NotFound(f"there is no transcript {shown(path)} of a session in this project", field="path")
    file = next((each for each in transcript_paths(root, settings) if str(each) == path), None)
    if file is None:
        raise unknown
    try:
        with file.open("rb") as transcript:
            turns, directory = read_turns(transcript.read(MAX_TRANSCRIPT_BYTES))
    except OSError as error:
        raise InvalidInput(f"{shown(path)} cannot be read: {error.strerror}", field="path") from error
    if not is_of_workspace(directory, file, root):
        raise unknown
    return [f"{turn.role.capitalize()}: {turn.text}\n\n" for turn in turns]


def _shown(lines: Sequence[str], path: str, first: int, count: int) -> Answer:
    total = len(lines)
    if first > max(1, total):
        raise InvalidInput(f"{shown(path)} has {total} lines, and fromLine is {first}", field="fromLine")
    asked = lines[first - 1 : first - 1 + count]
    sizes = itertools.accumulate(map(len, asked))
    fit = max(1, sum(size <= MAX_CHARACTERS for size in sizes))
    content = "".join(asked[:fit])
    end = whole_characters(content, min(len(content), MAX_CHARACTERS))
    answer: Answer = {"path": path, "content": content[:end].rstrip("\r\n")}
    answer |= {"fromLine": first, "toLine": min(total, first - 1 + fit), "totalLines": total}
    if end < len(content):
        answer["cut"] = True
    return answer
