"""The write queue: keeps acknowledged writes, durably and in order, while the store is away.

One thread owns the file; waiting appends are committed together. A bounded part of the queue is also mirrored in
memory, in case the file is removed or damaged. The drain empties it into the store.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import anyio
import msgspec

from remembrancer.actors.migrations import Schema, Step, drop_copies
from remembrancer.protocol.errors import (
    UNREADABLE,
    InternalError,
    MemoryUnavailable,
    QueueFull,
    RemembrancerError,
    StorageFull,
    disk_full,
)
from remembrancer.protocol.paths import database_files, delete_database, look_at, look_at_database, set_aside
from remembrancer.protocol.runs import ApplyRun, UndoRun
from remembrancer.protocol.store_client import AWAY, StoreClient
from remembrancer.protocol.writes import (
    ForgetMemory,
    InvalidateMemory,
    Operation,
    Rejected,
    RestoreMemory,
    StoreMemory,
    Submit,
    SubmitBatch,
    TagMemory,
    UpdateMemory,
    WriteNote,
    memory_id_of,
    needs_room,
)

MAX_GROUP: Final = 512
"""The most appends in one transaction."""
MIRROR_OPERATIONS: Final = 2000
MIRROR_BYTES: Final = 8 * 1024 * 1024
LOCKED_S: Final = 0.5
"""The time limit for another program's lock: a client waits for the queued write."""
MAX_SALVAGED: Final = 1_000_000
"""The most rows that are searched for in a damaged file."""

T = TypeVar("T")
logger = logging.getLogger(__name__)

_ROW: Final = "operation_id TEXT NOT NULL UNIQUE, operation BLOB NOT NULL, lane TEXT NOT NULL, memory_id TEXT NOT NULL"
SCHEMA: Final = Schema(
    Step(
        "0.2.0",
        f"""
    CREATE TABLE queued (sequence INTEGER PRIMARY KEY AUTOINCREMENT, {_ROW}, queued_at REAL NOT NULL);
    CREATE TABLE rejected (
        {_ROW}, queued_at REAL NOT NULL, rejected_at REAL NOT NULL, code TEXT NOT NULL, message TEXT NOT NULL
    );
    """,
    )
)
_QUEUED: Final = "operation_id, operation, lane, memory_id, queued_at"
_COLUMNS: Final = {"queued": _QUEUED, "rejected": f"{_QUEUED}, rejected_at, code, message"}
"""The tables and their columns, without the row number."""
NO_SPACE: Final = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_SHMSIZE)
USER_LANE: Final = "user"
NOTES: Final = ".notes"
"""The suffix of the lane of a project's notes."""
UNREADABLE_OPERATION: Final = "unreadable"
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Operation)


class Waiting(NamedTuple):
    """An operation in the queue: its lane, and the id of its memory (or empty)."""

    lane: str
    memory_id: str


class QueuedRow(NamedTuple):
    """A row of `queued`, without its number."""

    operation_id: str
    operation: bytes
    lane: str
    memory_id: str
    queued_at: float


class Append(NamedTuple):
    """A row to be written; `done` is set when it is durable."""

    row: QueuedRow
    waiting: Waiting
    operation: Operation
    done: asyncio.Future[None]


class Mirrored(NamedTuple):
    """A queued operation that is also kept in memory."""

    operation: Operation
    lane: str
    size_bytes: int


class QueueFile:
    """The open file. Synchronous, for one thread.

    No acknowledged write is lost silently: an operation leaves when the store has it, and one that the store can never
    apply moves to a table of its own, with the reason. A damaged file is set aside, and its readable rows are copied to
    a new one; `damage` says so. The same happens when the open file is removed.

    Raises:
        SchemaTooNew, SchemaTooOld: it was written by another release.
        MemoryUnavailable: it cannot be opened.
    """

    def __init__(self, path: Path, mirrored: Callable[[], Sequence[Mirrored]] = tuple) -> None:
        self._path = path
        self._mirrored = mirrored
        self.damage: str | None = None
        self._rescued: tuple[list[Any], list[Any]] = [], []
        """The rows of a removed file, until they are in a new one."""
        try:
            self._database = self._open_file()
            self._identity = self._identity_on_disk()
            """None when the file has to be reopened."""
        except (sqlite3.Error, OSError) as error:
            raise self._explain(error) from error

    def do(self, work: Callable[[QueueFile], T]) -> T:
        """Run an action on the file, after checking that the file still exists; once more if it turns out to be
        damaged.

        Raises:
            StorageFull: the disk has no room.
            MemoryUnavailable: another program has locked the file, or it cannot be read or written now.
        """
        try:
            try:
                if self._identity is None or self._identity_on_disk() != self._identity:
                    self._carry_over()
                return work(self)
            except sqlite3.DatabaseError as error:
                if not _is_damage(error):
                    raise
                self._database.close()
                self._identity = None
                self._database = self._begin_anew(error)
                self._identity = self._identity_on_disk()
                return work(self)
        except (sqlite3.Error, OSError) as error:
            raise self._explain(error) from error

    def _explain(self, error: sqlite3.Error | OSError) -> RemembrancerError:
        code = getattr(error, "sqlite_errorcode", None)
        if code in NO_SPACE:
            return disk_full("the disk has no room for the write queue: nothing was stored", self._path)
        if code == sqlite3.SQLITE_BUSY:
            return MemoryUnavailable(f"another program has locked {self._path}")
        return MemoryUnavailable(f"the write queue {self._path} cannot be used: {error}")

    def _identity_on_disk(self) -> tuple[int, int] | None:
        """The device and inode of the file; None if it is missing or empty."""
        try:
            about = os.stat(self._path)  # noqa: PTH116 - before each append: a Path takes three times as long
        except FileNotFoundError:
            return None
        return (about.st_dev, about.st_ino) if about.st_size else None

    def _open_file(self) -> sqlite3.Connection:
        path = self._path
        look = look_at_database(path)
        if look.problem is not None:
            raise MemoryUnavailable(f"the write queue cannot be used: {look.problem}")
        try:
            if not path.exists():
                self._make_file()[0].rename(path)
            elif path.stat().st_size == 0:
                raise sqlite3.DatabaseError("it was cut to nothing")
            return _open(path)
        except sqlite3.DatabaseError as error:
            if isinstance(error, sqlite3.OperationalError) and not _is_damage(error):
                raise
            return self._begin_anew(error)

    def _make_file(self, *rows: Sequence[tuple[Any, ...]]) -> tuple[Path, int]:
        """Make a file with these rows beside our path, to be moved there as a whole: an empty file at the path counts
        as damaged. Returns its path, and the number of its queued writes."""
        made = self._path.with_suffix(".new")
        if look_at(made).problem is not None:
            set_aside(made)
        delete_database(made)
        with closing(_open(made)) as database:
            return made, self._put(database, *rows)

    def _carry_over(self) -> None:
        """Continue in a new file when ours was deleted, replaced or truncated: writes to the old one would be lost."""
        for rows, (table, columns) in zip(self._rescued, _COLUMNS.items(), strict=True):
            with suppress(sqlite3.Error):
                rows += self._database.execute(f"SELECT {columns} FROM {table} ORDER BY rowid").fetchall()  # noqa: S608
        self._database.close()  # before another is opened: SQLite deletes the log beside it by its name
        self._identity = None
        self._database = self._open_file()
        kept = self._put(self._database, *self._rescued)
        self._identity = self._identity_on_disk()
        self._rescued = [], []
        self.damage = f"the write queue {self._path} was taken away while it was open: {kept} writes were kept"
        logger.error("the write queue was taken away while it was open", extra={"kept": kept})

    def _put(
        self,
        database: sqlite3.Connection,
        queued: Sequence[tuple[Any, ...]] = (),
        rejected: Sequence[tuple[Any, ...]] = (),
    ) -> int:
        """Insert the rows of another file and those only in memory. Returns the number of queued writes."""
        mirrored = [queued_row(operation, lane, time.time()) for operation, lane, _ in self._mirrored()]
        with _transaction(database):
            for (table, columns), more in zip(_COLUMNS.items(), ([*queued, *mirrored], rejected), strict=True):
                places = ", ".join("?" * len(columns.split(",")))
                database.executemany(f"INSERT OR IGNORE INTO {table} ({columns}) VALUES ({places})", more)  # noqa: S608
            (count,) = database.execute("SELECT count(*) FROM queued").fetchone()
        return int(count)

    def _begin_anew(self, error: sqlite3.DatabaseError) -> sqlite3.Connection:
        aside = self._path.with_suffix(f".damaged-{int(time.time())}")
        queued, rejected, lost = _salvage(self._path)
        made, kept = self._make_file(queued, rejected)
        for old, new in zip(database_files(self._path), database_files(aside), strict=True):
            if old.exists():
                old.rename(new)
        made.rename(self._path)
        read = f"{kept} queued writes were kept and are applied" if kept else "no write could be read from it"
        more = "; others that it held are lost" if lost else ""
        self.damage = f"the write queue was damaged ({error}): {read}{more}. It is kept as {aside.name}"
        logger.error("the write queue was damaged and is set aside", extra={"reason": self.damage})
        return _open(self._path)

    def close(self) -> None:
        """Close the file. May be called twice."""
        self._database.close()

    def makes(self, memory_id: str, viewer: Operation) -> bool:
        """True if a write that creates a memory is queued or set aside, and the session of another operation may see
        that memory."""
        for table in _COLUMNS:
            rows = self._database.execute(
                f"SELECT operation FROM {table} WHERE memory_id = ? AND lane IN (?, ?)",  # noqa: S608 - our names
                (memory_id, *_lanes_of(viewer)),
            )
            for (blob,) in rows:
                with suppress(msgspec.DecodeError):
                    operation = _decoder.decode(blob)
                    is_own = operation.session_id == viewer.session_id
                    if isinstance(operation.change, StoreMemory) and (is_own or operation.change.scope != "session"):
                        return True
        return False

    def erase(self, memory_ids: Sequence[str], viewer: Operation) -> tuple[list[Waiting], list[str]]:
        """Delete for good all queued and set-aside operations about memories, in the lanes that the session of another
        operation can write to. Returns the operations that left the queue, and the ids of all deleted ones."""
        queued: list[Waiting] = []
        found: list[str] = []
        self._database.execute("PRAGMA secure_delete = ON")
        with _transaction(self._database):
            for table, memory_id in product(_COLUMNS, memory_ids):
                delete = f"DELETE FROM {table} WHERE memory_id = ? AND lane IN (?, ?) RETURNING operation_id, lane"  # noqa: S608
                gone = self._database.execute(delete, (memory_id, *_lanes_of(viewer))).fetchall()
                found += [operation_id for operation_id, _ in gone]
                queued += [Waiting(lane, memory_id) for _, lane in gone if table == "queued"]
        if found:
            self._database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        drop_copies(self._path, *memory_ids)
        return queued, found

    def waiting(self) -> tuple[list[Waiting], int]:
        """The queued operations, oldest first, and the number of rejected ones."""
        found = self._database.execute("SELECT lane, memory_id FROM queued ORDER BY sequence").fetchall()
        (rejected,) = self._database.execute("SELECT count(*) FROM rejected").fetchone()
        return [Waiting(*row) for row in found], rejected

    def take_back(self, operation_ids: Sequence[str], now: float, *, deletes: bool) -> tuple[list[Waiting], int]:
        """Move set-aside operations to the end of the queue again, or delete them for good. Returns those that wait
        now, and the number of operations that are no longer set aside."""
        queued: list[Waiting] = []
        count = 0
        with _transaction(self._database):
            for operation_id in operation_ids:
                if not deletes:
                    again = self._database.execute(
                        f"INSERT OR IGNORE INTO queued ({_QUEUED})"  # noqa: S608 - our names
                        " SELECT operation_id, operation, lane, memory_id, ? FROM rejected WHERE operation_id = ?"
                        " RETURNING lane, memory_id",
                        (now, operation_id),
                    )
                    queued += [Waiting(*row) for row in again.fetchall()]
                count += self._database.execute("DELETE FROM rejected WHERE operation_id = ?", (operation_id,)).rowcount
        return queued, count

    def append(self, rows: Sequence[QueuedRow]) -> list[bool]:
        """Append rows durably, in one transaction. Returns for each whether it is new."""
        insert = f"INSERT OR IGNORE INTO queued ({_QUEUED}) VALUES (?, ?, ?, ?, ?)"  # noqa: S608 - our names
        with _transaction(self._database):
            return [self._database.execute(insert, row).rowcount == 1 for row in rows]

    def head(self, count: int, size_bytes: int, lane: str | None) -> tuple[list[Operation], list[Rejected]]:
        """The oldest operations of a lane (None: of all): at most `count`, and about `size_bytes`, but at least one.

        Also returns the undecodable operations (of a newer release) among them.
        """
        found: list[Operation] = []
        unreadable: list[Rejected] = []
        total = 0
        query = "SELECT operation_id, operation FROM queued WHERE ?1 IS NULL OR lane = ?1 ORDER BY sequence"
        with closing(self._database.execute(query, (lane,))) as rows:
            for operation_id, blob in rows:
                try:
                    operation = _decoder.decode(blob)
                except msgspec.DecodeError as error:
                    unreadable.append(Rejected(operation_id, UNREADABLE_OPERATION, str(error)))
                    continue
                total += len(blob)
                if found and (len(found) == count or total > size_bytes):
                    break
                found.append(operation)
        return found, unreadable

    def settle(self, applied: Sequence[str], rejected: Sequence[Rejected], now: float) -> tuple[list[Waiting], int]:
        """Remove applied operations, and set rejected ones aside. Returns the operations that left the queue, and the
        number now set aside."""
        left: list[Waiting] = []
        with _transaction(self._database):
            self._database.executemany(
                "INSERT OR REPLACE INTO rejected SELECT operation_id, operation, lane, memory_id, queued_at, ?, ?, ?"
                " FROM queued WHERE operation_id = ?",
                [(now, each.code, each.message, each.operation_id) for each in rejected],
            )
            for operation_id in (*applied, *(each.operation_id for each in rejected)):
                gone = self._database.execute(
                    "DELETE FROM queued WHERE operation_id = ? RETURNING lane, memory_id", (operation_id,)
                )
                left += [Waiting(*row) for row in gone.fetchall()]
            (set_aside,) = self._database.execute("SELECT count(*) FROM rejected").fetchone()
        return left, set_aside


@contextmanager
def _transaction(database: sqlite3.Connection) -> Iterator[None]:
    with database:
        database.execute("BEGIN IMMEDIATE")
        yield


def queued_row(operation: Operation, lane: str, now: float) -> QueuedRow:
    """The row of `queued` for an operation."""
    memory_id = memory_id_of(operation.change) or ""
    return QueuedRow(operation.operation_id, _encoder.encode(operation), lane, memory_id, now)


def _open(path: Path) -> sqlite3.Connection:
    SCHEMA.check(path, LOCKED_S)
    database = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=LOCKED_S)
    try:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = FULL")
        (verdict,) = database.execute("PRAGMA quick_check(1)").fetchone()
        if verdict != "ok":
            raise sqlite3.DatabaseError(verdict)
        SCHEMA.migrate(database, path)
        database.execute("SELECT operation_id, lane, memory_id FROM queued LIMIT 1").fetchall()
    except BaseException:
        database.close()
        raise
    return database


def _lanes_of(viewer: Operation) -> tuple[str, str]:
    """The lanes of the memories that the session of an operation may change: not every session has access to the
    user's."""
    return viewer.project.id, USER_LANE if viewer.project.sees_user else viewer.project.id


def _is_damage(error: sqlite3.Error) -> bool:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB) or "no such" in str(error)


def _salvage(path: Path) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]], bool]:
    """The readable rows of a damaged file, queued and rejected, and whether there were more."""
    found: list[list[tuple[Any, ...]]] = [[], []]
    lost = True
    with suppress(sqlite3.Error), closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
        for rows, (table, columns) in zip(found, _COLUMNS.items(), strict=True):
            # Row by row: an unreadable page must not cost the rows behind it.
            last = _last_row(database, table)
            lost = False if table == "queued" else lost
            for number in range(1, min(last, MAX_SALVAGED) + 1):
                try:
                    rows += database.execute(f"SELECT {columns} FROM {table} WHERE rowid = ?", (number,)).fetchall()  # noqa: S608
                except sqlite3.Error:
                    lost = True
    return found[0], found[1], lost


def _last_row(database: sqlite3.Connection, table: str) -> int:
    try:
        (last,) = database.execute(f"SELECT max(rowid) FROM {table}").fetchone()  # noqa: S608 - our own names
    except sqlite3.DatabaseError:
        (last,) = database.execute("SELECT max(seq) FROM sqlite_sequence").fetchone()
    return int(last or 0)


class WriteQueue:
    """The queue for asynchronous use. Use inside a running event loop. An operation counts as waiting from before its
    append until after its removal.

    Order matters only within a file: operations for one file do not block those for another. A `lane` is the id of a
    project, the id with `NOTES` appended, or `USER_LANE`.
    """

    def __init__(self, path: Path, limit: int) -> None:
        self._path = path
        self._limit = limit
        self._thread = ThreadPoolExecutor(1, "write-queue")
        self._file: QueueFile | None = None
        self._appending: list[Append] = []
        """Appends that the thread has not finished yet, in order."""
        self._flushing: asyncio.Task[None] | None = None
        self._mirror: dict[str, Mirrored] = {}
        """Mirrored operations by id."""
        self._mirror_bytes = 0
        self._changed = anyio.Event()
        self._memories: Counter[Waiting] = Counter()
        self.depths: Counter[str] = Counter()
        """The number of waiting operations in each lane."""
        self.rejected = 0
        self.stuck: dict[str, str] = {}
        """The lanes whose oldest operation the store refuses at the moment, with the reason."""
        self.full: dict[str, StorageFull] = {}
        """The lanes whose file is full as the store last reported: writes that need room there are not queued."""
        self._counted_after: str | None = None
        """The damage after which the file's content was last counted."""
        self.problem: str | None = None
        """Why the file cannot be opened: until it can, nothing is queued, and only the store takes writes."""

    async def open(self) -> None:
        """Open the file and count its content. If it cannot be opened, it is left as it is, and `problem` says why."""
        try:
            self._file = await self._in_thread(partial(QueueFile, self._path, self._mirrored))
        except RemembrancerError as error:
            if self.problem != error.message:
                logger.error("the write queue cannot be used", extra={"code": error.code, "reason": error.message})
            self.problem = error.message
            return
        self.problem = None
        await self._count()
        for operation in await self.head(MIRROR_OPERATIONS, MIRROR_BYTES):
            self._remember(Mirrored(operation, self.lane_of(operation), len(_encoder.encode(operation))))

    async def take_back(self, operation_ids: Sequence[str], *, deletes: bool) -> int:
        """Requeue operations that the store has refused, or delete them for good. Returns their number."""
        queued, count = await self._do(lambda file: file.take_back(operation_ids, time.time(), deletes=deletes))
        for each in queued:
            self._add(each, 1)
        self.rejected -= count
        self._announce()
        return count

    async def makes(self, memory_id: str, viewer: Operation) -> bool:
        """True if a queued or set-aside write creates a memory that the session of another operation may see."""
        return await self._do(lambda file: file.makes(memory_id, viewer))

    async def erase(self, memory_ids: Sequence[str], viewer: Operation) -> None:
        """Delete all queued and set-aside operations about memories, in the lanes that the session of another operation
        can write to."""
        queued, found = await self._do(lambda file: file.erase(memory_ids, viewer))
        for operation_id in found:
            self._forget(operation_id)
        for each in queued:
            self._add(each, -1)
        self.rejected -= len(found) - len(queued)
        self._announce()

    async def aclose(self) -> None:
        """Finish the work in progress and close the file. May be called twice."""
        with anyio.CancelScope(shield=True):
            if self._flushing is not None:
                await self._flushing
            if self._file is not None:
                with suppress(RemembrancerError):
                    await self._do(lambda _: None)  # a removed file exists again
                file, self._file = self._file, None
                await self._in_thread(file.close)
        self._thread.shutdown(wait=False)

    @property
    def damage(self) -> str | None:
        """The damage that was found in the file, and its outcome."""
        return None if self._file is None else self._file.damage

    @property
    def depth(self) -> int:
        """The number of waiting operations."""
        return self.depths.total()

    def waits(self, project_id: str) -> int:
        """The number of waiting operations that a session of a project may have made, or may see the outcome of."""
        return sum(self.depths[lane] for lane in (project_id, USER_LANE, project_id + NOTES))

    def lane_of(self, operation: Operation) -> str:
        """The lane of an operation, as far as it is known here: the lane of its memory, if that waits as well."""
        if isinstance(operation.change, WriteNote):  # its disk may hang, and holds no memories
            return operation.project.id + NOTES
        memory_id = memory_id_of(operation.change) or ""
        for lane in (USER_LANE, operation.project.id):
            if memory_id and self._memories[Waiting(lane, memory_id)] > 0:
                return lane
        change = operation.change
        is_users = (isinstance(change, StoreMemory) and change.scope == "user") or (
            isinstance(change, ApplyRun | UndoRun) and change.place == "user"
        )
        return USER_LANE if is_users else operation.project.id

    def is_next(self, operation: Operation) -> bool:
        """True if no waiting operation has to go first: order matters for one memory, and for memories that may link to
        it.

        So a change of a memory that no queued operation is about overtakes a stuck lane.
        """
        lane, change = self.lane_of(operation), operation.change
        has_links = isinstance(change, UpdateMemory) and bool(change.add_links or change.remove_links)
        has_links = has_links or (isinstance(change, InvalidateMemory) and change.replaced_by is not None)
        alone = ForgetMemory | TagMemory | UpdateMemory | RestoreMemory | InvalidateMemory
        if isinstance(change, alone) and not has_links:
            return self._memories[Waiting(lane, change.memory_id)] <= 0
        return self.depths[lane] <= 0

    def note_room(self, lane: str, operation: Operation) -> None:
        """Note that the store took the operation: if it needed room, the file is not full."""
        if needs_room(operation.change):
            self.full.pop(lane, None)

    async def append(self, operation: Operation) -> None:
        """Queue an operation; it is durable when this returns. An operation that is already queued is not added again.

        Raises:
            QueueFull: it is full.
            StorageFull: the disk has no room.
            MemoryUnavailable: the file cannot be written.
        """
        if self._file is None:
            raise self._closed()
        if self.depth >= self._limit:
            raise QueueFull(f"the store is away and {self.depth} writes wait for it already: try again later")
        waiting = Waiting(self.lane_of(operation), memory_id_of(operation.change) or "")
        row = queued_row(operation, waiting.lane, time.time())
        append = Append(row, waiting, operation, asyncio.get_running_loop().create_future())
        self._add(waiting, 1)
        self._appending.append(append)
        if self._flushing is None or self._flushing.done():
            self._flushing = asyncio.create_task(self._flush())
        await asyncio.shield(append.done)

    async def _flush(self) -> None:
        """Write all waiting appends together."""
        while self._appending:
            group = self._appending[:MAX_GROUP]
            rows = [each.row for each in group]
            results: Sequence[bool | Exception]
            try:
                results = await self._do(partial(QueueFile.append, rows=rows))
            except Exception as error:  # noqa: BLE001 - handed to whoever awaits the appends
                results = [error] * len(group)
            del self._appending[: len(group)]
            for append, result in zip(group, results, strict=True):
                if result is True:
                    self._remember(Mirrored(append.operation, append.row.lane, len(append.row.operation)))
                else:
                    self._add(append.waiting, -1)
            with suppress(RemembrancerError):  # the next round of the drain retries it
                await self.refresh()
            for append, result in zip(group, results, strict=True):
                if isinstance(result, Exception):
                    append.done.set_exception(result)
                else:
                    append.done.set_result(None)
            self._announce()

    def _add(self, waiting: Waiting, count: int) -> None:
        self.depths[waiting.lane] += count
        self._memories[waiting] += count
        for counter, key in ((self.depths, waiting.lane), (self._memories, waiting)):
            if counter[key] <= 0:  # type: ignore[index]
                del counter[key]

    async def head(self, count: int, size_bytes: int, lane: str | None = None) -> list[Operation]:
        """The oldest operations of a lane (None: of all): at most `count`, about `size_bytes` of them."""
        found, unreadable = await self._do(lambda file: file.head(count, size_bytes, lane))
        if unreadable:
            logger.error("queued writes cannot be read and are set aside", extra={"count": len(unreadable)})
            await self.settle((), unreadable)
        return found

    async def settle(self, applied: Sequence[str], rejected: Sequence[Rejected]) -> None:
        """Remove operations that the store has applied or will never apply, and drop their mirrors."""
        for operation_id in (*applied, *(each.operation_id for each in rejected)):
            self._forget(operation_id)
        left, self.rejected = await self._do(lambda file: file.settle(applied, rejected, time.time()))
        for each in left:
            self._add(each, -1)
        self._announce()

    async def wait_changed(self) -> None:
        """Wait until something is appended or leaves."""
        await self._changed.wait()

    async def wait_empty(self, project_id: str) -> None:
        """Wait until no operation is queued whose outcome a session of a project may see, apart from refused ones."""
        while any(self.depths[lane] > 0 and lane not in self.stuck for lane in (project_id, USER_LANE)):
            await self._changed.wait()

    def _announce(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()

    def _remember(self, queued: Mirrored) -> None:
        if len(self._mirror) < MIRROR_OPERATIONS and self._mirror_bytes + queued.size_bytes <= MIRROR_BYTES:
            self._mirror[queued.operation.operation_id] = queued
            self._mirror_bytes += queued.size_bytes

    def _forget(self, operation_id: str) -> None:
        mirrored = self._mirror.pop(operation_id, None)
        self._mirror_bytes -= mirrored.size_bytes if mirrored is not None else 0

    async def _do(self, work: Callable[[QueueFile], T]) -> T:
        """Run an action on the file in its thread. Raises the errors of `QueueFile.do`."""
        file = self._file
        if file is None:
            raise self._closed()
        return await self._in_thread(lambda: file.do(work))

    async def refresh(self) -> None:
        """Count the file's content again if part of it may be lost."""
        if self.damage != self._counted_after:
            await self._count()
            self._announce()

    async def _count(self) -> None:
        damage = self.damage
        waiting, self.rejected = await self._do(QueueFile.waiting)
        waiting += [each.waiting for each in self._appending]
        self.depths = Counter(each.lane for each in waiting)
        self._memories = Counter(waiting)
        self._counted_after = damage

    def _mirrored(self) -> list[Mirrored]:
        return list(self._mirror.values())

    def _closed(self) -> MemoryUnavailable:
        return MemoryUnavailable(self.problem or "the write queue is closed")

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)


BATCH_OPERATIONS: Final = 200
BATCH_BYTES: Final = 4 * 1024 * 1024
BATCH_TIMEOUT_S: Final = 10.0
STUCK_PAUSES_S: Final = (1.0, 2.0, 5.0, 15.0)
"""The pauses before a lane is retried whose oldest operation the store refuses for now (a full disk, say); the last one
repeats."""
REOPEN_S: Final = 2.0
"""The time between two attempts to open an unusable file."""
INTERNAL_TRIES: Final = 5
"""An operation that makes the store fail is set aside after this many attempts, so that the others can proceed."""


class Drain:
    """Empties the queue into the store. Run `run` as a task.

    Each lane is drained in order, in batches, independently of the others: a lane whose file is full, damaged or of a
    newer release waits and is retried. Operations leave the queue only after the store has confirmed them. `on_refused`
    is called with an operation that the store will never take, and the reason.
    """

    def __init__(
        self,
        queue: WriteQueue,
        store: StoreClient,
        on_applied: Callable[[Operation], None],
        on_refused: Callable[[Operation, Rejected], None],
    ) -> None:
        self._queue = queue
        self._store = store
        self._on_applied = on_applied
        self._on_refused = on_refused
        self._internal_failures: Counter[str] = Counter()
        self._tries: Counter[str] = Counter()
        self._again_at: dict[str, float] = {}

    async def run(self) -> None:
        """Drain whenever there are operations and a store, until cancelled."""
        while True:
            try:
                await self._round()
            except RemembrancerError as error:
                logger.warning("the write queue cannot be drained now", extra={"reason": error.message})
                await anyio.sleep(REOPEN_S)

    async def _round(self) -> None:
        """Send a batch of each lane that is due, or wait until one is. Lanes that failed come last."""
        await (self._queue.refresh() if self._queue.problem is None else self._queue.open())
        now = time.monotonic()
        due = [lane for lane in self._queue.depths if self._again_at.get(lane, 0.0) <= now]
        if not due:
            times = [self._again_at[lane] - now for lane in self._queue.depths if lane in self._again_at]
            times += [REOPEN_S] if self._queue.problem is not None else []
            with anyio.move_on_after(max(0.05, min(times, default=math.inf))):
                await self._queue.wait_changed()
            return
        await self._store.wait_answering()
        for lane in sorted(due, key=self._tries.__getitem__):
            batch = await self._queue.head(BATCH_OPERATIONS, BATCH_BYTES, lane)
            if not batch:  # an append is being written, or counted rows have been lost
                self._again_at[lane] = time.monotonic() + 0.05
                continue
            try:
                await self._send(lane, batch)
            except AWAY as error:
                logger.info("draining stopped", extra={"code": error.code, "depth": self._queue.depth})
                self._postpone(lane)
                return

    async def _send(self, lane: str, batch: list[Operation]) -> None:
        """Send a batch. Operations that the store did not attempt stay, and are sent again."""
        try:
            reply = await self._store.request(SubmitBatch(tuple(batch)), BATCH_TIMEOUT_S)
        except AWAY:
            raise
        except RemembrancerError:
            await self._send_oldest(lane, batch[0])
            return
        if not reply.applied and not reply.rejected:
            await self._send_oldest(lane, batch[0])
            return
        done = set(reply.applied)
        refused = {each.operation_id: each for each in reply.rejected}
        for operation in batch:
            if operation.operation_id in done:
                self._queue.note_room(lane, operation)
        await self._settle(
            [operation for operation in batch if operation.operation_id in done],
            [(operation, refused[operation.operation_id]) for operation in batch if operation.operation_id in refused],
        )
        self._go_on(lane)
        logger.info("drained", extra={"applied": len(reply.applied), "depth": self._queue.depth})

    async def _send_oldest(self, lane: str, operation: Operation) -> None:
        """Ask the store about the oldest operation alone, whose refusal has a reason, after it refused the whole
        batch."""
        try:
            await self._store.request(Submit(operation), BATCH_TIMEOUT_S)
        except AWAY:
            raise
        except RemembrancerError as error:
            if not self._is_final(operation.operation_id, error):
                if self._queue.stuck.get(lane) != error.message:
                    logger.warning(
                        "queued writes have to wait", extra={"lane": lane, "code": error.code, "reason": error.message}
                    )
                self._queue.stuck[lane] = error.message
                if isinstance(error, StorageFull):
                    self._queue.full[lane] = error
                self._postpone(lane)
                return
            await self._settle((), [(operation, Rejected(operation.operation_id, error.code, error.message))])
        else:
            await self._settle((operation,), ())
            self._queue.note_room(lane, operation)
        self._go_on(lane)
        del self._internal_failures[operation.operation_id]

    def _postpone(self, lane: str) -> None:
        """Retry a lane after a pause, or as soon as the store is back, if it is away."""
        pause_s = STUCK_PAUSES_S[min(self._tries[lane], len(STUCK_PAUSES_S) - 1)] if self._store.health.usable else 0.0
        self._tries[lane] += 1
        self._again_at[lane] = time.monotonic() + pause_s

    def _go_on(self, lane: str) -> None:
        self._queue.stuck.pop(lane, None)
        self._again_at.pop(lane, None)
        del self._tries[lane]

    async def _settle(self, applied: Sequence[Operation], rejected: Sequence[tuple[Operation, Rejected]]) -> None:
        await self._queue.settle([operation.operation_id for operation in applied], [each for _, each in rejected])
        for operation in applied:
            self._on_applied(operation)
        for operation, why in rejected:
            logger.error(
                "a queued write was rejected and is kept aside",
                extra={"operation_id": why.operation_id, "code": why.code, "reason": why.message},
            )
            self._on_refused(operation, why)

    def _is_final(self, operation_id: str, error: RemembrancerError) -> bool:
        if not isinstance(error, InternalError):
            return not error.retry_possible and error.code not in UNREADABLE
        self._internal_failures[operation_id] += 1
        return self._internal_failures[operation_id] >= INTERNAL_TRIES
