"""What a file has that is to be imported. Every line is looked at before anything is done with one of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import IO, Final

import msgspec

from remembrancer.commands.portability.export_format import (
    MAX_LINE_BYTES,
    EndLine,
    Header,
    MemoryLine,
    ProjectLine,
    SessionLine,
    decode_header,
    decode_line,
)
from remembrancer.protocol.errors import InvalidInput
from remembrancer.protocol.session_life import SessionEntry
from remembrancer.protocol.writes import PortableMemory, ProjectRef

MAX_NAMED: Final = 100
"""Bad lines and refused memories that a report names; the others are only counted."""

Placed = tuple[ProjectRef | None, PortableMemory | SessionEntry]
"""What a line has, and the project that it goes to (None: the user's)."""


class BadLine(msgspec.Struct, frozen=True):
    """A line that cannot be imported; the first line of a file has the number 1."""

    line: int
    reason: str


class Checked(msgspec.Struct):
    """What a file has, after all of it was looked at."""

    header: Header
    projects: dict[str, ProjectRef] = {}
    memories: int = 0
    sessions: int = 0
    bad: int = 0
    first_bad: list[BadLine] = []

    def note_bad(self, line: int, reason: str) -> None:
        """Count a line that cannot be imported."""
        self.bad += 1
        if len(self.first_bad) < MAX_NAMED:
            self.first_bad.append(BadLine(line, reason))


def check(file: IO[bytes]) -> Checked:
    """Look at every line of a file, from its beginning.

    Raises:
        FileUnusable: it is no export.
        SchemaTooNew: a newer release wrote it.
    """
    checked = Checked(decode_header(file.readline(MAX_LINE_BYTES + 1)))
    end: EndLine | None = None
    number = 1
    for number, line in _sound_lines(file, checked.projects, checked.note_bad):
        if end is not None:
            checked.note_bad(number, "a line after the last one")
        match line:
            case EndLine():
                end = line
            case MemoryLine():
                checked.memories += 1
            case SessionLine():
                checked.sessions += 1
    if end is None:
        checked.note_bad(number, "after this, the file was cut off: the line that counts the others is missing")
    elif not checked.bad and (checked.memories, checked.sessions) != (end.memories, end.sessions):
        checked.note_bad(number, f"{end.memories} memories are announced, and {checked.memories} are there")
    return checked


def placed_lines(file: IO[bytes], targets: Mapping[str, ProjectRef]) -> Iterator[Placed]:
    """Every sound line of a file that `check` has seen, from its beginning, with the project that it goes to.

    `targets` gives that for the projects of the file.
    """
    file.seek(0)
    file.readline()
    for _, line in _sound_lines(file, {}, lambda _line, _reason: None):
        match line:
            case MemoryLine(memory=content) | SessionLine(session=content):
                yield None if line.project is None else targets[line.project], content


def _sound_lines(
    file: IO[bytes], projects: dict[str, ProjectRef], note_bad: Callable[[int, str], None]
) -> Iterator[tuple[int, ProjectLine | MemoryLine | SessionLine | EndLine]]:
    """The lines after the header that can be imported, with their numbers. `projects` is filled."""
    number = 1
    while raw := file.readline(MAX_LINE_BYTES + 1):
        number += 1
        if len(raw) > MAX_LINE_BYTES:
            while raw and not raw.endswith(b"\n"):
                raw = file.readline(MAX_LINE_BYTES)
            note_bad(number, f"a line may have {MAX_LINE_BYTES} bytes at most")
            continue
        try:
            line = decode_line(raw)
        except InvalidInput as error:
            note_bad(number, error.message)
            continue
        match line:
            case ProjectLine():
                projects[line.id] = ProjectRef(line.id, line.path)
            case MemoryLine(project=str(named)) | SessionLine(project=str(named)) if named not in projects:
                note_bad(number, f"no line before this one names the project {named[:60]!r}")
                continue
        yield number, line
