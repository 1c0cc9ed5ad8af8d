"""Writes notes: Markdown files in a project's working tree, which people and other programs edit as well.

A note is edited from its current content on disk and replaced as a whole: a temporary file in the same directory,
`fsync`, rename, `fsync` of the directory. Meanwhile the directory is locked (`flock`) against other stores. Editors
take no lock, so a note that was saved after it was read is read again. A save in the microseconds between the last
check and the rename is lost, as between any two editors.

A write happens exactly once, even through `kill -9`, although a file and a database share no transaction:

1. the temporary file, whose name is derived from the operation's id, is complete and durable;
2. the records mark the operation as begun, with its result;
3. the temporary file is renamed to the note;
4. the records mark the operation as applied, and delete the record of its beginning.

Between 2 and 4 only the rename removes the temporary file (a second version of it is written over the first). So after
a crash the file tells the outcome of a begun operation: if it exists, the note is unchanged, and the operation is
dropped and starts over when it is requested again; if not, the note has been written, and step 4 is completed.
Nothing is begun before 2, and a leftover temporary file is overwritten or deleted by the next attempt.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import hashlib
import logging
import os
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple, Protocol, TypeVar

import msgspec

from remembrancer.actors.store.records.moves import decode_operation, encode_operation
from remembrancer.actors.store.records.rows import NoteWrite
from remembrancer.actors.store.records.sqlite_records import Records
from remembrancer.actors.store.records.types import Outcome
from remembrancer.actors.store.records.writer import Writer
from remembrancer.memory.notes import MAX_FILE_BYTES, edited
from remembrancer.memory.text import shown
from remembrancer.protocol.errors import (
    DiskUnavailable,
    InternalError,
    InvalidInput,
    MemoryUnavailable,
    RemembrancerError,
    StorageFull,
)
from remembrancer.protocol.writes import NoteWritten, Operation, WriteNote
from remembrancer.toolsets.files.workspace_files import RealNote, open_directory, open_note, real_note

ATTEMPTS: Final = 20
"""The number of times that a note is read again after somebody else saved it."""
WRITE_S: Final = 5.0
"""The time that a write may take: the disk may hang, or be unreachable over the network."""
LOCK_S: Final = 1.0
"""The time that another store may hold the directory."""
NO_SPACE: Final = (errno.ENOSPC, errno.EDQUOT)

T = TypeVar("T")
_encode_result: Final = msgspec.msgpack.Encoder().encode
_decode_result: Final = msgspec.msgpack.Decoder(NoteWritten).decode
logger = logging.getLogger(__name__)


class RunInRecords(Protocol):
    """Runs work on the records' thread and waits for it."""

    def __call__(self, work: Callable[[], T], /) -> T: ...


def _at_once(work: Callable[[], T], /) -> T:
    return work()


class NoteFiles:
    """Writes the notes of one project, on its own thread, so that nothing else waits for their disk."""

    def __init__(self, records: Records, in_records: RunInRecords = _at_once) -> None:
        self._records = records
        self._in_records = in_records
        self._thread = ThreadPoolExecutor(1, "notes")

    async def write(self, operations: Sequence[Operation]) -> list[Outcome]:
        """Like `apply`, on the thread. A write that takes too long gets an error, and may still happen, once."""
        work = asyncio.get_running_loop().run_in_executor(self._thread, self.apply, operations)
        done, _ = await asyncio.wait([work], timeout=WRITE_S)
        error: RemembrancerError
        if not done:
            work.cancel()  # if it has not started
            message = f"the disk with the notes has not answered for {WRITE_S:.0f} s: the note is written when it does"
            error = DiskUnavailable(message)
        elif (failure := work.exception()) is not None:
            logger.error("notes could not be written", exc_info=failure)
            error = InternalError("the store failed on this note: see store.log")
        else:
            return work.result()
        return [Outcome(error)] * len(operations)

    def settle_soon(self) -> None:
        """Like `settle`, on the thread."""
        self._thread.submit(self.settle)

    def close(self) -> None:
        """Start no more writes. May be called twice."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def apply(self, operations: Sequence[Operation]) -> list[Outcome]:
        """Write the notes durably and in order, and return an outcome for each operation."""
        return [self._apply(operation) for operation in operations]

    def _apply(self, operation: Operation) -> Outcome:
        change = _change(operation)
        try:
            self.settle()
            earlier = self._in_records(partial(self._records.outcome_of, operation.operation_id))
            return Outcome(earlier) if earlier is not None else self._write(operation, change)
        except RemembrancerError as error:
            return Outcome(error)
        except OSError as error:
            if error.errno in NO_SPACE:
                return Outcome(StorageFull(f"there is no space for {change.path}: {error.strerror}"))
            reason = error.strerror or str(error)
            return Outcome(InvalidInput(f"{change.path} cannot be written: {reason}", field="path"))

    def settle(self) -> None:
        """Finish or drop the writes that were under way when a process died."""
        for row in self._in_records(self._records.unfinished_notes):
            operation, result = decode_operation(row.operation), _decode_result(row.result)
            try:
                note = _real_note(_change(operation))
                directory = open_directory(note)
            except (RemembrancerError, OSError):  # the workspace is not there now, so the outcome is unknown
                continue
            try:
                names = os.listdir(directory)  # noqa: PTH208 - a descriptor
                if _temporary(operation) in names:
                    self._in_records(partial(self._records.drop_note, operation.operation_id))
                    os.unlink(_temporary(operation), dir_fd=directory)
                elif note.name in names:
                    self._in_records(partial(self._records.complete, operation, partial(_end, result=result)))
            finally:
                os.close(directory)

    def _write(self, operation: Operation, change: WriteNote) -> Outcome:
        real = _real_note(change)
        ignored = _ignore(Path(change.root), change.ignore)
        made: list[NoteWritten] = []
        with _locked(real) as directory:
            note = _NoteFile(directory, real.name, _temporary(operation))

            def edit(text: str) -> str:
                if change.expected and hashlib.sha256(text.encode()).hexdigest() != change.expected:
                    message = f"{change.path} was saved by somebody else meanwhile: nothing is changed"
                    raise InvalidInput(message, field="expected")
                done = edited(text, change.content, change.mode, change.heading)
                made.append(NoteWritten(change.path, done.lines, done.replaced, ignored))
                return done.text

            def begin() -> None:
                write = NoteWrite(operation.operation_id, encode_operation(operation), _encode_result(made[-1]))
                self._in_records(partial(self._records.begin_note, write))

            drop = partial(self._records.drop_note, operation.operation_id)
            note.replace(edit, begin, partial(self._in_records, drop))
        return self._in_records(partial(self._records.complete, operation, partial(_end, result=made[-1])))


def _end(writer: Writer, result: NoteWritten) -> NoteWritten:
    """Record that the note is written, and that its session is active."""
    writer.space.remove(NoteWrite, "operation_id", writer.operation.operation_id)
    writer.note_active()
    return result


def _change(operation: Operation) -> WriteNote:
    assert isinstance(operation.change, WriteNote)
    return operation.change


def _temporary(operation: Operation) -> str:
    """Return the name of an operation's temporary file: hidden and not Markdown, so that nobody takes it for a note."""
    return f".note-{hashlib.sha256(operation.operation_id.encode()).hexdigest()[:16]}.tmp"


def _real_note(change: WriteNote) -> RealNote:
    """Return the file of a note. Raises `InvalidInput` if links lead out of the workspace, or not to a note."""
    if not Path(change.root).is_dir():
        raise InvalidInput(f"the workspace {shown(change.root)} is not there", field="path")
    return real_note(change.path, change.root, change.places)


@contextlib.contextmanager
def _locked(note: RealNote) -> Iterator[int]:
    """Open and lock a note's directory, making it if needed, and yield its descriptor.

    The lock ends with the process.
    """
    descriptor = open_directory(note, make=True)
    try:
        until = time.monotonic() + LOCK_S
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > until:
                    raise MemoryUnavailable(f"another process is writing beside {note.name}: try again") from None
                time.sleep(0.01)
            except OSError:  # a file system without locks
                break
        yield descriptor
    finally:
        os.close(descriptor)


class _Version(NamedTuple):
    """The content and mode of a file at one moment; the mode is None if there is no file."""

    data: bytes
    mode: int | None


def _read(directory: int, name: str) -> _Version:
    """Read the note's current version. Raises `InvalidInput` if it is not a regular file or is too large."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # do not block on a pipe
    try:
        descriptor = os.open(name, flags, dir_fd=directory)
    except FileNotFoundError:
        return _Version(b"", None)
    with os.fdopen(descriptor, "rb") as file:
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode):
            raise InvalidInput(f"{name} is not a file", field="path")
        if about.st_size > MAX_FILE_BYTES:
            raise InvalidInput(f"{name} has more than {MAX_FILE_BYTES} bytes: begin another note", field="path")
        return _Version(file.read(), stat.S_IMODE(about.st_mode))


class _NoteFile:
    """A note in an open directory, and the temporary file that replaces it."""

    def __init__(self, directory: int, name: str, temporary: str) -> None:
        self._directory = directory
        self._name = name
        self._temporary = temporary

    def replace(
        self, edit: Callable[[str], str], begin: Callable[[], object], drop: Callable[[], object] = lambda: None
    ) -> None:
        """Replace the note with the result of `edit`. `begin` is called once the temporary file is durable. Both are
        called again if the note has changed meanwhile. `drop` is called if it is not replaced after that."""
        has_begun = False
        try:
            for _ in range(ATTEMPTS):
                before = _read(self._directory, self._name)
                self._prepare(_edited_bytes(before.data, edit, self._name), before.mode)
                has_begun = True
                begin()
                if _read(self._directory, self._name) == before:
                    os.rename(self._temporary, self._name, src_dir_fd=self._directory, dst_dir_fd=self._directory)
                    break
            else:
                raise MemoryUnavailable(f"{self._name} is saved by somebody else all the time: try again")
        except BaseException:
            if has_begun:  # before the file is deleted, since its absence means that the note is written
                drop()
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._temporary, dir_fd=self._directory)
            raise
        os.fsync(self._directory)

    def _prepare(self, data: bytes, mode: int | None) -> None:
        """Write the temporary file durably. An existing one is never missing in between."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        descriptor = os.open(self._temporary, flags, 0o666, dir_fd=self._directory)
        try:
            if mode is not None:
                os.fchmod(descriptor, mode)
            view = memoryview(data)
            while view:
                view = view[os.write(descriptor, view) :]
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.fsync(self._directory)


BOM: Final = b"\xef\xbb\xbf"


def _edited_bytes(data: bytes, edit: Callable[[str], str], name: str) -> bytes:
    mark = BOM if data.startswith(BOM) else b""
    try:
        text = data[len(mark) :].decode()
    except UnicodeDecodeError as error:
        message = f"{name} is not UTF-8 (byte {error.start}): it is not changed, for what it says would be lost"
        raise InvalidInput(message, field="path") from error
    return mark + edit(text).encode()


def _ignore(root: Path, directories: Sequence[str]) -> tuple[str, ...]:
    """Have git ignore directories that hold no note yet. Returns the directories added; none if the file cannot be
    written.

    Directories that the file already mentions are left as they are, even if it excludes them from being ignored.
    """
    if not os.path.lexists(root / ".git"):
        return ()
    own = [each for each in directories if not (root / each.rstrip("/")).is_symlink()]
    new = [each for each in own if not any((root / each).rglob("*.md"))]
    if not new:
        return ()
    file = RealNote(Path(os.path.realpath(root)), (".gitignore",))
    try:
        with os.fdopen(open_note(file), "rb") as there:
            text = there.read(MAX_FILE_BYTES).decode(errors="replace")
    except FileNotFoundError:
        text = ""
    except OSError as error:
        logger.warning("git was not told to ignore notes", extra={"reason": str(error)})
        return ()
    said = {line.strip().strip("!/") for line in text.splitlines()}
    missing = tuple(each for each in new if each.strip("/") not in said)
    if missing:

        def edit(text: str) -> str:
            ends = not text or text.endswith("\n")
            return text + ("" if ends else "\n") + "".join(f"/{each.strip('/')}/\n" for each in missing)

        try:
            with _locked(file) as directory:
                _NoteFile(directory, file.name, ".gitignore.note.tmp").replace(edit, lambda: None)
        except (OSError, RemembrancerError) as error:
            logger.warning("git was not told to ignore notes", extra={"reason": str(error)})
            return ()
    return missing
