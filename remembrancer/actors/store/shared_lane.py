"""A shared lane: records that several hosts keep identical, because each applies the entries of one journal in order.

An entry's effect depends only on the lane, the entry itself and the time assigned by the journal. A host appends its
operations, reads the journal up to them, and applies them and everything that other hosts appended before, in one
transaction with the new mark. Only then are their outcomes known. Each host has its own data derived from memories
(vectors, entity names), access counts, and limits, which are checked before an operation is appended.
"""

import hashlib
import logging
import secrets
import sqlite3
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from remembrancer.actors.sqlite_file import SqliteFile
from remembrancer.actors.store.records.moves import (
    delete_handed_over,
    end_move,
    is_unchanged,
    memory_to_move,
    receive_move,
    return_move,
)
from remembrancer.actors.store.records.rules import apply_rule, check_session_limit
from remembrancer.actors.store.records.schema import MEMORY
from remembrancer.actors.store.records.space import SpaceConnection, empty_space
from remembrancer.actors.store.records.space_copies import take_in, write_space
from remembrancer.actors.store.records.sqlite_edits import LOGS, SqliteEdits, merge, read_applied
from remembrancer.actors.store.records.sqlite_records import NO_LIMITS, Limits, Records, apply_alone
from remembrancer.actors.store.records.types import USER, Clock, Outcome
from remembrancer.actors.store.records.writer import Writer, revive
from remembrancer.journal.contract import (
    MAX_APPEND_BYTES,
    MAX_ENTRY_BYTES,
    Entry,
    EntryPage,
    Journal,
    LaneMark,
    NewEntry,
    Trimmed,
)
from remembrancer.protocol.errors import (
    EntryDamaged,
    EntryTooLarge,
    InvalidInput,
    JournalAway,
    JournalChanged,
    KeyMissing,
    RemembrancerError,
    SchemaTooNew,
    SchemaTooOld,
    StorageFull,
    size_in_words,
)
from remembrancer.protocol.runs import ApplyRun
from remembrancer.protocol.writes import (
    Applied,
    ErasedResult,
    EraseMemory,
    ImportMemory,
    Operation,
    PortableMemory,
    ProjectRef,
    PromotedResult,
    PromoteMemory,
    Result,
    StoreMemory,
    memory_id_of,
    needs_room,
)

FORMAT: Final = 7
"""Increased by every release that changes entries or the rules for applying them. Release 0.2.0 has format 3."""
MAX_SNAPSHOT_BYTES: Final = 1 << 30
"""There are about three copies of a snapshot in memory, and a seal has at most 2 GiB."""
STOPS: Final = (JournalChanged, EntryDamaged, SchemaTooNew)
"""Errors that stop applying and appending until somebody resolves them. (A missing key may still arrive.)"""
_MARK: Final = "SELECT journal, position, entry_id, applied_at FROM lane WHERE space = @SPACE"
_ERASED: Final = "SELECT memory_id FROM erased WHERE space = @SPACE"
_NAMED: Final = """UPDATE lane_erasures SET position = ? WHERE space = @SPACE
    AND instr(?, CAST(memory_id AS BLOB)) > 0"""
_TAKE_VECTORS: Final = """INSERT OR IGNORE INTO passages (space, memory, model, ordinal, start, "end", vector)
    SELECT m.space, m.number, p.model, p.ordinal, p.start, p."end", p.vector FROM memories AS m
    JOIN memories AS o ON o.id = m.id AND o.space != m.space AND o.content_digest = m.content_digest
    JOIN passages AS p ON p.memory = o.number WHERE m.space = @SPACE AND m.id = ? ORDER BY p.number"""
NEWER: Final = (
    "another member of this shared lane runs a newer release, whose entries this release cannot read; upgrade this "
    "machine, too. Earlier changes can still be read"
)
T = TypeVar("T")
Ask = Callable[[Coroutine[Any, Any, Any]], Any]
"""Runs a request to the journal on its event loop. Raises `JournalAway` if it takes too long."""
logger = logging.getLogger(__name__)


class Submitted(msgspec.Struct, frozen=True, omit_defaults=True, tag="operation", tag_field="entry"):
    """A member's operation. `memory` is the memory that a promotion moves into the lane."""

    operation: Operation
    by: str
    memory: PortableMemory | None = None
    format: int = 1


class Accesses(msgspec.Struct, frozen=True, tag="accesses", tag_field="entry"):
    """Memories that answers have shown: archived ones become active. Only release 0.2.0 used the counts."""

    shown: dict[str, int]
    format: int = FORMAT


class Nothing(msgspec.Struct, frozen=True, tag="token", tag_field="entry"):
    """An entry without effect, appended so that readers receive its key. Release 0.2.0 announced tokens with it."""

    format: int = FORMAT


class ProjectRenamed(msgspec.Struct, frozen=True, tag="project", tag_field="entry"):
    """The new id of a project that some of the user's memories came from."""

    old: str
    new: str
    format: int = FORMAT


class SessionMark(msgspec.Struct, frozen=True, tag="session", tag_field="entry"):
    """An entry without effect. Release 0.2.0 used it to announce HTTP sessions that no host continued."""

    format: int = FORMAT


class _Header(msgspec.Struct, frozen=True):
    format: int = 1


LaneEntry = Submitted | Accesses | Nothing | SessionMark | ProjectRenamed
_decode: Final = msgspec.msgpack.Decoder(LaneEntry).decode
_decode_header: Final = msgspec.msgpack.Decoder(_Header).decode


def decode_entry(body: bytes) -> LaneEntry:
    """Decode a journal entry. Raises `SchemaTooNew` if a newer release wrote it, `EntryDamaged` if it is invalid."""
    try:
        if _decode_header(body).format > FORMAT:
            raise SchemaTooNew(NEWER)
        entry: LaneEntry = _decode(body)
    except msgspec.DecodeError as error:
        raise EntryDamaged(f"an entry of the journal was not written by a member: {error}") from error
    return entry


class SharedLane(Records):
    """`Records` that are written through a journal: a project's, or (`is_users`) the user's on all of the user's
    machines. Writing methods must run on the lane's thread, and so does `on_others`, which is called with the
    operations of other hosts when they are applied. `member` is this host's name in the lane."""

    is_shared = True
    links_duplicates = False
    """Links between near-duplicates determine what a change reactivates, so no host may add one on its own."""

    def __init__(
        self,
        database: SqliteFile,
        name: str,
        clock: Clock,
        journal: Journal,
        member: str,
        ask: Ask,
        on_others: Callable[[Sequence[Operation]], object] = lambda _: None,
        *,
        is_users: bool = False,
        limits: Limits = NO_LIMITS,
    ) -> None:
        super().__init__(database, name, clock, limits, is_users=is_users)
        if not self._file.read(_MARK):
            with self._file.transaction() as connection:
                connection.execute("INSERT INTO lane VALUES (@SPACE, '', 0, '', 0)")
        self.journal = journal
        self.member = member
        self._ask_journal = ask
        self._on_others = on_others
        self._is_current = False
        """False after a failed exchange. The journal may have accepted an entry, so it is read first."""
        self.erased: set[str] = set()
        """The memories erased by other hosts whose remains still have to be scrubbed here."""
        self.wrote_last = False
        """True if this host wrote the newest operation since the lane was opened, not counting background work."""
        self.problem: RemembrancerError | None = None
        self.silent: tuple[float, RemembrancerError] | None = None
        """The time since which the journal cannot be read, and the reason. Until it can, writes are refused."""
        ((*mark, self._applied_at),) = self._file.read(_MARK)
        self.mark = LaneMark(*mark)

    # Writing.

    def apply(self, operations: Sequence[Operation]) -> list[Outcome]:
        """Like `Target.apply`, through the journal; every error is an outcome. A promotion may move a memory here from
        a local space, or back to it. Both spaces change when the entry is applied, perhaps after an error."""
        outcomes: dict[str, Outcome] = {}
        try:
            if self.silent is not None and isinstance(self.silent[1], JournalAway):  # do not wait again
                raise self.silent[1]
            if not self._is_current:
                self.catch_up()
            bodies = self._bodies_of(operations, outcomes)
            while bodies:
                outcomes = self._exchange(_first_append(bodies)) | outcomes
        except RemembrancerError as caught:
            error = caught
            if isinstance(error, Trimmed):  # until the snapshot is loaded
                error = JournalAway("changes by other machines are being read from a snapshot; try again in a moment")
            if isinstance(error, KeyMissing) and self.problem is None:
                error = JournalAway(f"changes by other machines cannot be read yet: {error.message}")
            remaining = [each for each in operations if each.operation_id not in outcomes]
            for operation_id in self._bodies_of(remaining, outcomes):  # operations refused here need not wait
                outcomes[operation_id] = error
        return [outcomes[operation.operation_id] for operation in operations]

    def _bodies_of(self, operations: Sequence[Operation], outcomes: dict[str, Outcome]) -> dict[str, bytes]:
        """Return the entries of operations. Operations that were applied before, or are refused, go to `outcomes`."""
        bodies: dict[str, bytes] = {}
        full = self._limit_error()
        for operation in operations:
            try:
                earlier = self.outcome_of(operation.operation_id)
                if earlier is None:
                    bodies[operation.operation_id] = self._body_of(operation, full)
                else:
                    outcomes[operation.operation_id] = earlier
            except RemembrancerError as refusal:
                outcomes[operation.operation_id] = refusal
        return bodies

    def _body_of(self, operation: Operation, full: StorageFull | None) -> bytes:
        """Return the entry of an operation, without the project's directory, which differs from host to host. A user's
        memory keeps the id of its project, which can take it back. Raises `RemembrancerError` if it is refused here."""
        change = operation.change
        if full is not None and needs_room(change):
            raise full
        if self._limits.session is not None and isinstance(change, StoreMemory):
            with self._edits() as edits:
                if (writer := Writer(operation, edits)).known_as(change) is None:
                    check_session_limit(writer, change, self._limits.session)
        memory = self._brought_in_by(operation)
        project = ProjectRef(operation.project.id if self.is_users else self.name, "")
        operation = msgspec.structs.replace(operation, project=project)
        body = msgspec.msgpack.encode(Submitted(operation, self.member, memory, FORMAT))
        if len(body) > MAX_ENTRY_BYTES:
            words = f"{size_in_words(len(body))}; the limit for an entry is {size_in_words(MAX_ENTRY_BYTES)}"
            raise EntryTooLarge(f"this is too large to be shared: {words}")
        return body

    def _brought_in_by(self, operation: Operation) -> PortableMemory | None:
        """Return the memory that a promotion moves into the lane. Raises the same errors as `memory_to_move`."""
        change = operation.change
        if not isinstance(change, PromoteMemory):
            return None
        with self._edits() as here:
            local = self._local(here, operation)
            if self._takes_back(operation):
                memory_to_move(Writer(operation, here))
                return None
            if local is None or here.memory(change.memory_id) is not None:
                return None
            return memory_to_move(Writer(operation, local))

    def rename_project(self, old: str, new: str) -> None:
        self._announce("project", ProjectRenamed(old, new))

    def announce_key(self) -> None:
        """Append an entry without effect, so that readers receive its key."""
        self._announce("key", Nothing())

    def _announce(self, about: str, entry: LaneEntry) -> None:
        self.catch_up()  # raises an error if nothing may be appended
        self._exchange({about: _new_entry(about, msgspec.msgpack.encode(entry))})

    def _revive(self, archived: Sequence[str], at: float) -> None:
        """Append an entry that makes these memories active. If this fails, the next access tries again."""
        if self.silent is None:
            self._announce("accesses", Accesses(dict.fromkeys(archived, 1)))

    # The journal.

    def rejoin(self, journal: Journal, member: str) -> None:
        self.journal, self.member = journal, member
        self.problem = None

    @property
    def obstacle(self) -> RemembrancerError | None:
        return self.problem or (None if self.silent is None else self.silent[1])

    @property
    def works_here(self) -> bool:
        return self.obstacle is None and self.wrote_last

    @property
    def time(self) -> float:
        return float(self._applied_at)

    def catch_up(self) -> None:
        """Apply the entries that other hosts have appended. Raises `JournalAway` or `JournalRefused` if the journal
        cannot be read now, `KeyMissing` until a new key has reached this host, one of `STOPS` if the lane has stopped
        (see `problem`), and `Trimmed` if this host must load a snapshot (`take_in`), since entries were deleted."""
        self._exchange({})

    # Snapshots: the state of a lane at a mark, without the data that each host derives on its own.

    @property
    def erased_at(self) -> int:
        """The position of the newest entry that erased a memory or quotes an erased one; 0 if there is none."""
        ((position,),) = self._file.read("SELECT coalesce(max(position), 0) FROM lane_erasures WHERE space = @SPACE")
        return int(position)

    def snapshot(self) -> tuple[LaneMark, bytes]:
        """Return the lane's mark and state, as a database. Raises `EntryTooLarge` if the state is too large."""
        with closing(sqlite3.connect(":memory:", isolation_level=None)) as copy:
            with self._file.reading() as query:
                write_space(query, copy, self.name)
            (mark,) = copy.execute("SELECT journal, position, entry_id FROM lane").fetchall()
            content = copy.serialize()
        if len(content) > MAX_SNAPSHOT_BYTES:
            raise EntryTooLarge(f"{size_in_words(len(content))} is too large for a snapshot of the shared memories")
        return LaneMark(*mark), content

    def take_in(self, content: bytes, mark: LaneMark) -> None:
        """Atomically replace everything here with a snapshot taken at that mark. Raises `EntryDamaged` if it is damaged
        or has a different mark, `SchemaTooNew` if a newer release wrote it."""
        known = set(self._file.read(_ERASED))
        with closing(sqlite3.connect(":memory:")) as source:
            _load(source, content, mark)
            with self._file.transaction() as connection:
                empty_space(connection)
                take_in(connection.connection, source, self.name)
        self._file.file.empty_log()
        ((*_, self._applied_at),) = self._file.read(_MARK)
        self.mark = mark
        self.erased.update(memory_id for (memory_id,) in set(self._file.read(_ERASED)) - known)

    def leave(self, own: Records) -> None:
        """Atomically move everything shared, with the outcomes of operations, into a space of this host, and delete the
        lane here. A memory that the space already has is not changed."""
        with self._edits() as edits:
            edits.execute("DELETE FROM shares WHERE lane = ?", (self.name,))
            merge(edits, own.space, LOGS)  # without the sessions, which belong to all machines
        own.note_commit()
        self.problem = JournalAway("this machine no longer shares these memories: changes only affect its own copy")

    def _exchange(self, own: Mapping[str, NewEntry]) -> dict[str, Outcome]:
        """Append this host's entries, by the ids of their operations, and apply all entries up to them. Returns the
        outcomes of all applied operations. Raises the same errors as `catch_up`."""
        if self.problem is not None:
            raise self.problem
        self._is_current = False
        position = 0
        if own:
            position = self._ask(self.journal.append(self.name, list(own.values()), behind=self.mark)).position
        outcomes: dict[str, Outcome] = {}
        is_last = False
        try:
            while not is_last or self.mark.position < position:
                page = self._ask(self.journal.read(self.name, after=self.mark))
                outcomes = self._apply_page(page, own) | outcomes
                is_last = page.is_last
        except STOPS as error:
            if own:
                words = f"the other machines have this change, but it cannot be applied here: {error.message}"
                raise JournalAway(words) from error
            raise
        self._is_current, self.silent = True, None
        return outcomes

    def _ask(self, question: Coroutine[Any, Any, T]) -> T:
        try:
            answer: T = self._ask_journal(question)
            return answer
        except STOPS as error:
            self._stop(error)
            raise

    def _stop(self, error: RemembrancerError) -> None:
        if self.problem is None:
            logger.error("a shared lane has stopped", extra={"lane": self.name, "reason": error.message})
        self.problem = error

    # Applying.

    def _local(self, connection: SpaceConnection, operation: Operation) -> SqliteEdits | None:
        """Return this host's space at the other end of a move, if it is here: the space that shares the lane; for a
        promotion to the user's lane, the memory's project; for a memory that a project takes back, the user's."""
        change = operation.change
        if not isinstance(change, PromoteMemory | ImportMemory):
            return None
        names = [name for (name,) in connection.query("SELECT name FROM shares WHERE lane = ?", (self.name,))]
        if isinstance(change, PromoteMemory):
            names = [operation.project.id] if self.is_users else [*names, USER]
        rows = [row for name in names for row in connection.query("SELECT number FROM spaces WHERE name = ?", (name,))]
        spaces = [SqliteEdits(connection.connection, row[0], self._clock()) for row in rows]
        memory_id = memory_id_of(change) or ""
        return next((each for each in spaces if each.memory(memory_id) is not None), spaces[0] if spaces else None)

    def _apply_page(self, page: EntryPage, own: Collection[str]) -> dict[str, Outcome]:
        """Apply the entries of a page and store the mark that follows them, in one transaction. Returns the outcomes of
        the operations; applied operations that are not `own` are passed on. A damaged entry is skipped: every host
        finds it damaged. If a newer release wrote one, raises `SchemaTooNew` after applying those before it."""
        mark, newer = self.mark, None
        with self._file.transaction() as connection:
            at = self._applied_at
            applied: list[tuple[Submitted, Outcome]] = []
            for stored in page.entries:
                try:
                    entry = decode_entry(stored.body)
                except EntryDamaged:
                    logger.error("a damaged entry was skipped", extra={"lane": self.name, "position": stored.position})
                    continue
                except SchemaTooNew as error:
                    newer = error
                    break
                mark = LaneMark(page.mark.journal, stored.position, stored.id)
                at = max(at, stored.at)
                edits = SqliteEdits(connection.connection, self.space, at)
                apply = partial(self._apply_entry, edits, entry, stored)
                outcome = apply_alone(edits.connection, f"{self.name} {mark.position}", apply)
                if isinstance(entry, Submitted):
                    applied.append((entry, outcome))
            mark = page.mark if newer is None else mark
            connection.execute(
                "UPDATE lane SET journal = ?, position = ?, entry_id = ?, applied_at = ? WHERE space = @SPACE",
                (mark.journal, mark.position, mark.entry_id, at),
            )
        self.mark, self._applied_at = mark, at
        others: list[Operation] = []
        for entry, outcome in applied:
            change = entry.operation.change
            if not isinstance(change, ApplyRun):
                self.wrote_last = entry.by == self.member
            if entry.operation.operation_id not in own and isinstance(outcome, Applied):
                others.append(entry.operation)
                if isinstance(change, EraseMemory) and isinstance(outcome.result, ErasedResult):
                    self.erased.update((change.memory_id, *outcome.result.gone))
        if others:
            self._on_others(others)
        if newer is not None:
            self._stop(newer)
            raise newer
        return {entry.operation.operation_id: outcome for entry, outcome in reversed(applied)}

    def _apply_entry(self, edits: SqliteEdits, entry: LaneEntry, stored: Entry) -> Outcome:
        """An entry that names an erased memory may quote it, because its author did not know of the erasure."""
        edits.execute(_NAMED, (stored.position, stored.body))
        if isinstance(entry, Submitted):
            return self._apply_operation(edits, entry, stored.position)
        if isinstance(entry, Accesses):
            revive(edits, entry.shown, edits.now)
        elif isinstance(entry, ProjectRenamed):
            edits.rename_project(entry.old, entry.new)
        return InvalidInput("this entry is not an operation")

    def _apply_operation(self, edits: SqliteEdits, entry: Submitted, position: int) -> Outcome:
        """Apply an operation, also in this host's local space if it moves a memory. If the memory was changed there
        after the entry was appended, it also stays there, so that no acknowledged change is lost."""
        operation, memory_id = entry.operation, memory_id_of(entry.operation.change) or ""
        local = self._local(edits, operation) if entry.by == self.member else None
        taken_back = edits.portable(memory_id) if local is not None and self._takes_back(operation) else None
        outcome = self._applied(edits, entry, position)
        if local is None or not isinstance(outcome, Applied):
            return outcome
        edits.execute(_TAKE_VECTORS, (memory_id,))
        writer, result = Writer(operation, local), outcome.result
        if taken_back is not None:
            writer.carry_out(partial(receive_move, memory=taken_back))
        elif isinstance(operation.change, ImportMemory):
            writer.carry_out(partial(delete_handed_over, memory=operation.change.memory))
        elif entry.memory is not None and isinstance(result, PromotedResult) and is_unchanged(writer, entry.memory):
            writer.carry_out(partial(end_move, result=result))
        return outcome

    def _applied(self, edits: SqliteEdits, entry: Submitted, position: int) -> Outcome:
        """Apply an operation in the lane at the time of its request, but no later than the lane's time."""
        operation = msgspec.structs.replace(entry.operation, requested_at=min(edits.now, entry.operation.requested_at))
        if (earlier := read_applied(edits.query, operation.operation_id)) is not None:
            return earlier
        is_taken_back = self._takes_back(operation)
        step: Callable[[Writer], Result] = return_move if is_taken_back else apply_rule
        if entry.memory is not None:
            step = partial(receive_move, memory=entry.memory)
        outcome = Writer(operation, edits, entry.by).carry_out(step)
        if isinstance(outcome, Applied) and (is_taken_back or isinstance(operation.change, EraseMemory)):
            result = outcome.result
            also_gone = result.gone if isinstance(result, ErasedResult) else ()
            gone = {getattr(result, "memory_id", None), memory_id_of(operation.change), *also_gone} - {None}
            rows = [(each, position) for each in gone]
            edits.executemany("INSERT OR REPLACE INTO lane_erasures VALUES (@SPACE, ?, ?)", rows)
        return outcome

    def _takes_back(self, operation: Operation) -> bool:
        change = operation.change
        return self.is_users and isinstance(change, PromoteMemory) and change.target_scope == "project"


def _load(source: sqlite3.Connection, content: bytes, mark: LaneMark) -> None:
    """Raises the same errors as `SharedLane.take_in`."""
    try:
        source.deserialize(content)
        ((version,),) = source.execute("PRAGMA user_version").fetchall()
        MEMORY.refuse(Path(), version)
        ((found,),) = source.execute("PRAGMA quick_check(1)").fetchall()
        ((*its,),) = source.execute("SELECT journal, position, entry_id FROM lane").fetchall()
    except SchemaTooNew as error:
        raise SchemaTooNew(NEWER) from error
    except (SchemaTooOld, sqlite3.Error, ValueError, MemoryError) as error:
        raise EntryDamaged(f"a snapshot of the shared lane is damaged ({error})") from error
    if found != "ok" or LaneMark(*its) != mark:
        raise EntryDamaged(
            f"a snapshot of the shared lane at {mark.position} is damaged, or from a different position ({found})"
        )


def _first_append(bodies: dict[str, bytes]) -> dict[str, NewEntry]:
    """Remove as many entries as fit into one append, and return them."""
    some: dict[str, NewEntry] = {}
    room = MAX_APPEND_BYTES
    while bodies and len(next(iter(bodies.values()))) <= room:
        operation_id = next(iter(bodies))
        some[operation_id] = _new_entry(operation_id, bodies[operation_id])
        room -= len(bodies.pop(operation_id))
    return some


def _new_entry(about: str, body: bytes) -> NewEntry:
    """Each attempt gets a new id that hides the operation's id, since a refused operation may be requested again."""
    return NewEntry(f"{hashlib.sha256(about.encode()).hexdigest()[:16]}.{secrets.token_hex(8)}", body)
