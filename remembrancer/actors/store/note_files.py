"""Writes notes: Markdown files in a project's working tree, which people and other programs edit as well.

A note is read, edited and replaced durably and atomically; if another program saves it meanwhile, this starts over. A
save in the microseconds between the last check and the rename is lost, as between any two editors.

An operation is recorded after its note is written. After a crash in between, the repeated operation finds the text in
the note and does not write it again, unless somebody has added text below it.
"""

import asyncio
import contextlib
import hashlib
import logging
import os
import stat
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from remembrancer.actors.migrations import NO_SPACE
from remembrancer.actors.store.records.sqlite_records import Records
from remembrancer.actors.store.records.types import Outcome
from remembrancer.actors.store.records.writer import Writer
from remembrancer.memory.notes import MAX_FILE_BYTES, Edited, directories_of, edited
from remembrancer.memory.text import quote
from remembrancer.protocol.errors import (
    DiskUnavailable,
    InvalidInput,
    MemoryUnavailable,
    RemembrancerError,
    StorageFull,
)
from remembrancer.protocol.writes import NoteWritten, Operation, WriteNote
from remembrancer.toolsets.files.workspace_files import RealNote, open_directory, open_ordinary, real_note

BOM: Final = b"\xef\xbb\xbf"
ATTEMPTS: Final = 20
"""The maximum number of times a note is read again because another program saved it."""
WRITE_S: Final = 5.0
"""The time limit for a write: the disk may hang, or be on an unreachable network."""
REPEATED_S: Final = 30.0
"""A note counts as already written by a request if it ends with the same text and was saved at most this long before
the request, since a request repeated over HTTP does not show when it was first sent."""

logger = logging.getLogger(__name__)


async def write_note(
    records: Records, run: Callable[[str, Callable[[], Any]], Awaitable[Any]], operation: Operation
) -> Outcome:
    """Write a note durably. A write that takes too long raises an error but may still happen, once. `run` runs work on
    a named thread: one for each project's notes, so that only these notes wait for their disk."""
    work = asyncio.ensure_future(run(f"{records.name}.notes", partial(_written, records, operation)))
    done, _ = await asyncio.wait([work], timeout=WRITE_S)
    if not done:
        message = f"the disk with the notes did not respond for {WRITE_S:.0f} s: the note will be written when it does"
        raise DiskUnavailable(message)
    result: NoteWritten = work.result()

    def end(writer: Writer) -> NoteWritten:
        writer.note_active()
        return result

    outcome: Outcome = await run(records.name, partial(records.complete, operation, end))
    return outcome


def _written(records: Records, operation: Operation) -> NoteWritten:
    change = operation.change
    assert isinstance(change, WriteNote)
    earlier = records.outcome_of(operation.operation_id)
    if earlier is not None:
        assert isinstance(earlier.result, NoteWritten)
        return earlier.result
    try:
        return _write(operation, change)
    except OSError as error:
        if error.errno in NO_SPACE:
            raise StorageFull(f"there is no room for {change.path}: {error.strerror}") from error
        reason = error.strerror or str(error)
        raise InvalidInput(f"{change.path} cannot be written: {reason}", field="path") from error


def _write(operation: Operation, change: WriteNote) -> NoteWritten:
    if not Path(change.root).is_dir():
        raise InvalidInput(f"the workspace {quote(change.root)} does not exist", field="path")
    real = real_note(change.path, change.root, change.places)
    directories = directories_of(change.places)
    ignored = _ignore(Path(change.root), [each for each in directories if Path(change.path).is_relative_to(each)])

    def edit(text: str, saved_at: float) -> Edited:
        done = edited(text, change.content, change.mode, change.heading)
        if done.was_there and saved_at > operation.requested_at - REPEATED_S:  # written but not recorded
            return done._replace(text=text, replaced="")
        if change.expected and hashlib.sha256(text.encode()).hexdigest() != change.expected:
            message = f"{change.path} was saved by another program in the meantime: nothing was changed"
            raise InvalidInput(message, field="expected")
        return done

    done = _replace(real, edit)
    return NoteWritten(done.lines, done.replaced, ignored)


class _Version(NamedTuple):
    """`mode` is None if there is no file."""

    data: bytes
    mode: int | None
    saved_at: float


def _read(directory: int, name: str) -> _Version:
    """Raises `OSError` if the note is not a regular file, `InvalidInput` if it is too large."""
    try:
        descriptor = open_ordinary(name, directory)
    except FileNotFoundError:
        return _Version(b"", None, 0.0)
    with os.fdopen(descriptor, "rb") as file:
        about = os.fstat(descriptor)
        if about.st_size > MAX_FILE_BYTES:
            raise InvalidInput(f"{name} would have more than {MAX_FILE_BYTES} bytes; start another note", field="path")
        return _Version(file.read(), stat.S_IMODE(about.st_mode), about.st_mtime)


def _replace(note: RealNote, edit: Callable[[str, float], Edited]) -> Edited:
    """Atomically replace a file with `edit(text, saved_at)`. If the file changes meanwhile, `edit` is called again."""
    directory, name = open_directory(note, make=True), note.name
    temporary = f".note-{name}.tmp"  # hidden and not Markdown, so that nothing reads it as a note
    try:
        for _ in range(ATTEMPTS):
            before = _read(directory, name)
            mark = BOM if before.data.startswith(BOM) else b""
            try:
                text = before.data[len(mark) :].decode()
            except UnicodeDecodeError as error:
                message = f"{name} is not UTF-8 (byte {error.start}): it was not changed, since its text would be lost"
                raise InvalidInput(message, field="path") from error
            done = edit(text, before.saved_at)
            data = mark + done.text.encode()
            if data == before.data:
                return done
            _write_durably(directory, temporary, data, before.mode)
            if _read(directory, name) == before:
                os.rename(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
                os.fsync(directory)
                return done
        raise MemoryUnavailable(f"{name} keeps being saved by another program; try again")
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=directory)
        raise
    finally:
        os.close(directory)


def _write_durably(directory: int, name: str, data: bytes, mode: int | None) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    with os.fdopen(os.open(name, flags, 0o666, dir_fd=directory), "wb") as file:
        if mode is not None:
            os.fchmod(file.fileno(), mode)
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.fsync(directory)


def _ignore(root: Path, directories: Sequence[str]) -> tuple[str, ...]:
    """Have git ignore directories without notes, unless `.gitignore` names them. Returns the newly ignored ones."""
    if not os.path.lexists(root / ".git"):
        return ()
    own = [each for each in directories if not (root / each.rstrip("/")).is_symlink()]
    new = [each for each in own if not any((root / each).rglob("*.md"))]
    if not new:
        return ()
    missing: tuple[str, ...] = ()

    def edit(text: str, _: float) -> Edited:
        nonlocal missing
        ignored = {line.strip().strip("!/") for line in text.splitlines()}
        missing = tuple(each for each in new if each.strip("/") not in ignored)
        ends = not missing or not text or text.endswith("\n")
        return Edited(text + ("" if ends else "\n") + "".join(f"/{each.strip('/')}/\n" for each in missing), "", 0)

    try:
        _replace(RealNote(Path(os.path.realpath(root)), (".gitignore",)), edit)
    except (OSError, RemembrancerError) as error:
        logger.warning("git was not told to ignore notes", extra={"reason": str(error)})
        return ()
    return missing
