"""The write queue: keeps acknowledged writes, durably and in order, while the store is unavailable."""

import logging
import math
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

import anyio
import anyio.to_thread
import msgspec

from remembrancer.actors.migrations import Schema, Step, damage_in, drop_copies
from remembrancer.actors.repair import rebuild
from remembrancer.actors.snapshots import snapshot_of
from remembrancer.actors.sqlite_file import SqliteFile
from remembrancer.protocol.errors import (
    UNREADABLE,
    Failure,
    FileLocked,
    InternalError,
    MemoryUnavailable,
    QueueFull,
    RecordsUnusable,
    RemembrancerError,
)
from remembrancer.protocol.paths import database_files, problem_of
from remembrancer.protocol.runs import ApplyRun, UndoRun
from remembrancer.protocol.store_client import AWAY, StoreClient
from remembrancer.protocol.writes import BatchApplied, Operation, StoreMemory, SubmitBatch, WriteNote, memory_id_of

LOCKED_S: Final = 0.5
"""The maximum wait for a locked file: short, because a client waits for the queued write."""
REJECTED_KEPT_S: Final = 90 * 86_400.0

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
USER_LANE: Final = "user"
NOTES: Final = ".notes"
UNREADABLE_OPERATION: Final = "unreadable"
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Operation)


class QueuedRow(NamedTuple):
    """A write that is waiting, or was refused with this `code` and `message`. `operation` is encoded."""

    operation_id: str
    operation: bytes
    lane: str
    memory_id: str
    queued_at: float
    code: str | None = None
    message: str | None = None


class QueueFile:
    """The open file, for one thread. Refused operations move to a separate table, with the reason. Opening a damaged
    file sets it aside, and copies its readable rows to a new one; `damage` says so."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.damage: str | None = None
        with self._explained():
            try:
                self._file = _opened(path)
            except RecordsUnusable as error:
                if problem_of(path) is not None:
                    raise
                self._renew(error.__cause__ or error)
                self._file = _opened(path)
        with suppress(RemembrancerError), self._action() as database:
            database.execute("DELETE FROM rejected WHERE rejected_at < ?", (time.time() - REJECTED_KEPT_S,))

    @contextmanager
    def _action(self, *, reads: bool = False) -> Iterator[sqlite3.Connection]:
        with self._explained(), self._file.reading() if reads else self._file.transaction() as database:
            yield database

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except (FileLocked, RecordsUnusable, InternalError, sqlite3.Error, OSError) as error:
            raise MemoryUnavailable(f"the write queue {self._path} cannot be used: {error}") from error

    def _renew(self, why: BaseException) -> None:
        """Set the file aside, and put a new one with its readable rows in its place."""
        fresh = self._path.with_suffix(".new")
        repaired = rebuild(self._path, None, fresh, partial(SCHEMA.migrate, path=None), lambda _: None)
        lost = [row for row in repaired.lost if row.table == "queued"]
        aside = self._path.with_suffix(f".damaged-{int(time.time())}")
        for old, new in zip(database_files(self._path), database_files(aside), strict=True):
            if old.exists():
                old.rename(new)
        self.damage = (
            f"the write queue's file was damaged ({why}). Queued writes lost: "
            f"{'unknown' if 'queued' in repaired.incomplete else len(lost)}; the others will be applied. The old file "
            f"is kept as {aside.name}"
        )
        fresh.rename(self._path)
        logger.error("the write queue was recreated", extra={"reason": self.damage})

    def erase(self, memory_id: str) -> int:
        """Returns the number of operations set aside. Raises `MemoryUnavailable` if the file is being read, because its
        log may then still contain the memory."""
        with self._action() as database:
            for table in ("queued", "rejected"):
                database.execute(f"DELETE FROM {table} WHERE memory_id = ?", (memory_id,))  # noqa: S608 - our names
            rejected = _rejected_in(database)
        with self._explained():
            if not self._file.empty_log():
                raise FileLocked("another program is reading it, and its log may still contain the memory")
        drop_copies(self._path)
        return rejected

    def waiting(self) -> tuple[list[tuple[str, str, str]], int]:
        """The waiting operations, oldest first (lane, id and memory of each), and the number of rejected ones."""
        with self._action(reads=True) as database:
            rows = database.execute("SELECT lane, operation_id, memory_id FROM queued ORDER BY sequence").fetchall()
            return rows, _rejected_in(database)

    def append(self, row: QueuedRow) -> None:
        with self._action() as database:
            database.execute(
                f"""INSERT OR IGNORE INTO queued ({_QUEUED})
                    VALUES (:operation_id, :operation, :lane, :memory_id, :queued_at)""",  # noqa: S608 - our names
                row._asdict(),
            )

    def head(self, lane: str, count: int, size_bytes: int) -> tuple[list[Operation], dict[str, Failure]]:
        """The oldest operations of a lane: at most `count`, and about `size_bytes`, but at least one. Also the errors
        for operations that cannot be decoded (from a newer release), by id."""
        oldest: list[Operation] = []
        unreadable: dict[str, Failure] = {}
        total = 0
        query = "SELECT operation_id, operation FROM queued WHERE lane = ? ORDER BY sequence"
        with self._action(reads=True) as database, closing(database.execute(query, (lane,))) as rows:
            for operation_id, blob in rows:
                try:
                    operation = _decoder.decode(blob)
                except msgspec.DecodeError as error:
                    unreadable[operation_id] = Failure(UNREADABLE_OPERATION, str(error))
                    continue
                total += len(blob)
                if oldest and (len(oldest) == count or total > size_bytes):
                    break
                oldest.append(operation)
        return oldest, unreadable

    def settle(self, applied: Sequence[str], rejected: Mapping[str, Failure], now: float) -> int:
        """Remove applied and rejected operations. Returns the number of all operations set aside."""
        with self._action() as database:
            database.executemany(
                "INSERT OR REPLACE INTO rejected SELECT operation_id, operation, lane, memory_id, queued_at, ?, ?, ?"
                " FROM queued WHERE operation_id = ?",
                [(now, error.code, error.message, operation_id) for operation_id, error in rejected.items()],
            )
            removed = [(operation_id,) for operation_id in (*applied, *rejected)]
            database.executemany("DELETE FROM queued WHERE operation_id = ?", removed)
            return _rejected_in(database)

    def close(self) -> None:
        self._file.close()


def _rejected_in(database: sqlite3.Connection) -> int:
    return int(database.execute("SELECT count(*) FROM rejected").fetchone()[0])


def _opened(path: Path) -> SqliteFile:
    if path.exists() and problem_of(path) is None and not path.stat().st_size:
        raise RecordsUnusable("it is empty")
    file = SqliteFile(path, SCHEMA, wait_s=LOCKED_S)
    try:
        if (found := damage_in(file.writer)) is not None:
            raise RecordsUnusable(found)
    except BaseException:
        file.close()
        raise
    return file


def queued_row(operation: Operation, lane: str, now: float) -> QueuedRow:
    memory_id = memory_id_of(operation.change) or ""
    return QueuedRow(operation.operation_id, _encoder.encode(operation), lane, memory_id, now)


def read_queue(path: Path) -> tuple[list[QueuedRow], list[QueuedRow]]:
    """The waiting and the refused writes, oldest first, from any process. Raises the errors of `snapshot_of`."""
    with snapshot_of(path, SCHEMA, leaves_no_log=True) as file:
        if file is None:
            return [], []
        queued = file.rows(f"SELECT {_QUEUED} FROM queued ORDER BY sequence")  # noqa: S608 - our names
        refused = file.rows(f"SELECT {_QUEUED}, code, message FROM rejected ORDER BY rowid")  # noqa: S608
    return [QueuedRow(*row) for row in queued], [QueuedRow(*row) for row in refused]


@dataclass
class Lane:
    waiting: dict[str, str] = field(default_factory=dict)
    """The memory ids (or empty strings) of the waiting operations, by operation id, oldest first."""
    refusal: str | None = None
    """Why the store refuses the oldest operation for now."""
    refused_at: str = ""
    """The path of the oldest operation's project."""
    again_at: float = 0.0
    """The time of the next attempt, on the monotonic clock."""
    failures: int = 0
    """The number of internal errors. After one, operations are sent one by one, to find the cause."""


class WriteQueue:
    """The asynchronous queue. An operation counts as waiting from before it is appended until after it is removed. A
    lane is the id of a project, the id with `NOTES` appended, or `USER_LANE`; order matters only within a lane."""

    def __init__(self, path: Path, limit: int) -> None:
        self._path = path
        self._limit = limit
        self._thread = anyio.CapacityLimiter(1)
        self._lock = threading.Lock()
        self._file: QueueFile | None = None
        self.lanes: dict[str, Lane] = {}
        self.rejected = 0
        self.changed = anyio.Event()
        """Set when an operation is added or removed; then a new event takes its place."""
        self.problem: str | None = None
        """The reason why the file cannot be opened; until it can, nothing is queued."""
        self.damage: str | None = None

    async def open(self) -> None:
        """If the file cannot be opened, it stays unchanged, and `problem` gives the reason."""
        await self.aclose()
        try:
            file = self._file = await self._in_thread(partial(QueueFile, self._path))
            rows, self.rejected = await self._in_thread(file.waiting)
        except RemembrancerError as error:
            self._note_problem(error)
            return
        self.problem, self.damage = None, file.damage or self.damage
        for lane in self.lanes.values():
            lane.waiting.clear()
        for row in rows:
            self._add(*row)
        self._remove(())

    def _note_problem(self, error: RemembrancerError) -> None:
        if self.problem != error.message:
            logger.error("the write queue cannot be used", extra={"code": error.code, "reason": error.message})
        self.problem = error.message

    async def aclose(self) -> None:
        """May be called twice."""
        with anyio.CancelScope(shield=True):
            if self._file is not None:
                file, self._file = self._file, None
                await self._in_thread(file.close)

    @property
    def depth(self) -> int:
        return self.waits(*self.lanes)

    @property
    def stuck(self) -> dict[str, str]:
        """The lanes whose oldest operation the store refuses for now, with the reasons."""
        return {name: lane.refusal for name, lane in self.lanes.items() if lane.refusal is not None}

    def waits(self, *lanes: str) -> int:
        return sum(len(self.lanes[name].waiting) for name in lanes if name in self.lanes)

    def lane_of(self, operation: Operation) -> str:
        """The lane of a waiting operation on the same memory, or else the operation's own lane."""
        change, project_id = operation.change, operation.project.id
        if isinstance(change, WriteNote):  # a separate lane, since the disk with the notes may hang
            return project_id + NOTES
        memory_id = memory_id_of(change) if self.lanes else None
        for name in (USER_LANE, project_id):
            if memory_id and name in self.lanes and memory_id in self.lanes[name].waiting.values():
                return name
        is_users = (isinstance(change, StoreMemory) and change.scope == "user") or (
            isinstance(change, ApplyRun | UndoRun) and change.place == "user"
        )
        return USER_LANE if is_users else project_id

    async def append(self, operation: Operation) -> None:
        """Queue an operation durably. Raises `QueueFull`, `StorageFull` or `MemoryUnavailable`."""
        operation_id = operation.operation_id
        queued_in = next((name for name, lane in self.lanes.items() if operation_id in lane.waiting), None)
        if queued_in is None and self.depth >= self._limit:
            raise QueueFull(f"the store is unavailable, and {self.depth} writes are already waiting; try again later")
        row = queued_row(operation, queued_in or self.lane_of(operation), time.time())
        self._add(row.lane, operation_id, row.memory_id)
        try:
            with anyio.CancelScope(shield=True):
                await self._do(lambda file: file.append(row))
        except RemembrancerError:
            if queued_in is None:
                self._remove([operation_id])  # reads may be waiting for it
            raise
        self.announce()

    def _add(self, lane: str, operation_id: str, memory_id: str) -> None:
        self.lanes.setdefault(lane, Lane()).waiting[operation_id] = memory_id

    def _remove(self, operation_ids: Iterable[str]) -> None:
        for operation_id in operation_ids:
            for lane in self.lanes.values():
                lane.waiting.pop(operation_id, None)
        self.lanes = {name: lane for name, lane in self.lanes.items() if lane.waiting}
        self.announce()

    async def head(self, lane: str, count: int, size_bytes: int) -> list[Operation]:
        oldest, unreadable = await self._do(lambda file: file.head(lane, count, size_bytes))
        if unreadable:
            logger.error("queued writes cannot be read and are set aside", extra={"count": len(unreadable)})
            await self.settle((), unreadable)
        return oldest

    async def settle(self, applied: Sequence[str], rejected: Mapping[str, Failure]) -> None:
        self.rejected = await self._do(lambda file: file.settle(applied, rejected, time.time()))
        self._remove((*applied, *rejected))

    async def erase(self, memory_id: str) -> None:
        self.rejected = await self._do(lambda file: file.erase(memory_id))
        waiting = [item for lane in self.lanes.values() for item in lane.waiting.items()]
        self._remove(operation_id for operation_id, about in waiting if about == memory_id)

    async def wait_empty(self, *lanes: str) -> None:
        """Wait until no operation is queued in these lanes. Lanes that are stuck are ignored."""
        while any(name in self.lanes and name not in self.stuck for name in lanes):
            await self.changed.wait()

    def announce(self) -> None:
        self.changed.set()
        self.changed = anyio.Event()

    async def _do(self, work: Callable[[QueueFile], T]) -> T:
        file = self._file
        if file is None:
            raise MemoryUnavailable(self.problem or "the write queue is closed")
        try:
            return await self._in_thread(lambda: work(file))
        except MemoryUnavailable as error:
            self._note_problem(error)  # `Drain` opens the file again
            raise

    async def _in_thread(self, work: Callable[[], T]) -> T:
        def alone() -> T:
            with self._lock:  # the thread of a cancelled task may still be running
                return work()

        return await anyio.to_thread.run_sync(alone, limiter=self._thread)


BATCH_OPERATIONS: Final = 200
BATCH_BYTES: Final = 4 * 1024 * 1024
BATCH_TIMEOUT_S: Final = 10.0
RETRY_S: Final = 2.0
"""The pause before retrying a refused lane (for example, on a full disk) or opening an unusable file again."""
INTERNAL_TRIES: Final = 5
"""An operation that makes the store fail is set aside after this many attempts, so that others can proceed."""


class Drain:
    """Empties the queue into the store, each lane in order. An operation leaves the queue only after the store has
    confirmed it. `on_refused` is called with an operation that the store will never accept, and the reason."""

    def __init__(
        self,
        queue: WriteQueue,
        store: StoreClient,
        on_applied: Callable[[Operation], None],
        on_refused: Callable[[Operation, Failure], None],
    ) -> None:
        self._queue = queue
        self._store = store
        self._on_applied = on_applied
        self._on_refused = on_refused

    async def run(self) -> None:
        while True:
            changed = self._queue.changed
            try:
                is_done = await self._round()
            except RemembrancerError as error:
                logger.warning("the write queue cannot be drained now", extra={"reason": error.message})
                is_done, changed = True, self._queue.changed
            if is_done:
                with anyio.move_on_after(RETRY_S if self._queue.depth or self._queue.problem else None):
                    await changed.wait()

    async def _round(self) -> bool:
        """Send a batch from each lane that is due, failed lanes last. Returns True if there was nothing to send."""
        if self._queue.problem is not None:
            await self._queue.open()
        now = time.monotonic()
        due = [(name, lane) for name, lane in self._queue.lanes.items() if lane.again_at <= now]
        if due and not await self._store.wait_usable(math.inf):
            return True
        is_done = True
        for name, lane in sorted(due, key=lambda each: each[1].again_at):
            count = 1 if lane.failures else BATCH_OPERATIONS
            batch = await self._queue.head(name, count, BATCH_BYTES)
            if batch:  # if empty, an append is still in progress
                is_done = False
                try:
                    await self._send(lane, batch)
                except AWAY as error:
                    logger.info("draining stopped", extra={"code": error.code, "depth": self._queue.depth})
                    lane.again_at = time.monotonic() + (RETRY_S if self._store.health.usable else 0.0)
                    break
        return is_done

    async def _send(self, lane: Lane, batch: list[Operation]) -> None:
        """Operations that the store did not attempt stay queued and are sent again."""
        lane.again_at = time.monotonic() + RETRY_S  # in case this attempt fails
        try:
            reply = await self._store.request(SubmitBatch(tuple(batch)), BATCH_TIMEOUT_S)
        except AWAY:
            raise
        except RemembrancerError as error:
            await self._note_refusal(lane, batch, error)
            return
        await self._settle(lane, batch, reply)
        logger.info("drained", extra={"applied": len(reply.applied), "depth": self._queue.depth})

    async def _note_refusal(self, lane: Lane, batch: list[Operation], error: RemembrancerError) -> None:
        """Leave the oldest operation waiting or, if the refusal is final, set it aside."""
        is_final = not error.retry_possible and error.code not in UNREADABLE
        if isinstance(error, InternalError):
            lane.failures += 1
            is_final = lane.failures >= INTERNAL_TRIES
        if isinstance(error, InternalError) and len(batch) > 1:
            lane.again_at = 0.0
        elif is_final:
            await self._settle(lane, batch, BatchApplied((), {batch[0].operation_id: error.to_failure()}))
        else:
            if lane.refusal != error.message:
                about = {"code": error.code, "reason": error.message, "path": batch[0].project.path}
                logger.warning("queued writes have to wait", extra=about)
            lane.refusal, lane.refused_at = error.message, batch[0].project.path
            self._queue.announce()  # reads no longer wait for it

    async def _settle(self, lane: Lane, batch: list[Operation], reply: BatchApplied) -> None:
        await self._queue.settle(reply.applied, reply.rejected)
        lane.refusal, lane.again_at, lane.failures = None, 0.0, 0
        for operation in batch:
            error = reply.rejected.get(operation.operation_id)
            if operation.operation_id in reply.applied:
                self._on_applied(operation)
            elif error is not None:
                logger.error(
                    "a queued write was rejected and set aside",
                    extra={"operation_id": operation.operation_id, "code": error.code, "reason": error.message},
                )
                self._on_refused(operation, error)
