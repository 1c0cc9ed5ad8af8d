"""The rules shared by all operations: which memory may be changed, and what follows from a new version.

The only clock is the time of the operation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

import msgspec

from remembrancer.actors.store.records.memory_rows import SAYS_IT, read_copies
from remembrancer.actors.store.records.sessions import files_worked_on, session_record_of
from remembrancer.actors.store.records.sqlite_edits import SIMILAR, SqliteEdits
from remembrancer.actors.store.records.types import Link, Memory, Outcome
from remembrancer.memory.changes import RELEASED, REVIVED, differences, is_visible, says_the_same, unknown_memory
from remembrancer.memory.limits import moment
from remembrancer.protocol.errors import InvalidInput, NotFound
from remembrancer.protocol.ids import derive_memory_id
from remembrancer.protocol.kinds import SESSION_RECORD, type_of_kind
from remembrancer.protocol.runs import ChainLink, LogPromotion
from remembrancer.protocol.session_life import SHELL_SESSION, StartSession
from remembrancer.protocol.writes import (
    Applied,
    HistoryEntry,
    MemoryFields,
    MemoryVersion,
    Operation,
    PortableMemory,
    Result,
    Scope,
    StoreMemory,
)

DERIVED: Final = "derived_from"
_SUMMED_UP_IN: Final = f"""SELECT 1 FROM memories AS m JOIN memory_links AS l ON l.target = m.number
    JOIN memories AS o ON o.number = l.source
    WHERE m.space = @SPACE AND m.id = ? AND l.relation = 'derived_from' AND {SAYS_IT} LIMIT 1"""  # noqa: S608 - fixed
"""Finds a derived memory that repeats its source's text, or the text of a memory that its source supports. Forgotten
memories do not count, nor do a session's private memories that stand for memories visible to others."""
RECORD_IMPORTANCE: Final = 0.6
RECORD_CONFIDENCE: Final = 0.8
MAX_COMPARED: Final = 5
"""The number of memories with the same text that are compared with a new one, oldest first."""
LinkBefore = tuple[str, str, str, float | None]
"""A link before a change: its source, target, relation and strength (None: the link did not exist)."""
NAMED_FILES: Final = 8
"""The number of files named in the text of a session's record. The others are in its structured part."""


class Revision(NamedTuple):
    """A memory's version after a change, and the changed fields. If no field changed, this is the version before it."""

    version: int
    fields: tuple[str, ...]


def restating(memory_id: str, memory: MemoryFields, created_at: float, scope: Scope) -> StoreMemory:
    """The change that would store a memory now in that scope. An event keeps its time."""
    again = StoreMemory(memory_id=memory_id, **memory.fields() | {"scope": scope})
    if again.type == "episodic" and again.occurred_at is None:
        return msgspec.structs.replace(again, occurred_at=created_at)
    return again


class Writer:
    """One operation on a space. `member` is the member of a shared lane that requested it; None in any other space.
    `session_limit` is the number of memories that a session may store on this host."""

    def __init__(
        self, operation: Operation, space: SqliteEdits, member: str | None = None, *, session_limit: int | None = None
    ) -> None:
        self.operation = operation
        self.space = space
        self.member = member
        self.session_limit = session_limit
        self.at = operation.requested_at
        self.links: list[LinkBefore] = []
        """The links that the operation has changed, except those whose change made a version."""

    def carry_out(self, step: Callable[[Writer], Result]) -> Outcome:
        """Carry out the operation, or a step of it, and record its result. If it is refused, nothing is written, and
        the outcome says so. After an SQLite error, the caller must roll back."""
        try:
            result = step(self)
        except (InvalidInput, NotFound) as refusal:
            return refusal
        self.space.record_result(self.operation, result)
        return Applied(self.operation.operation_id, result)

    def memory(self, memory_id: str) -> Memory:
        """The memory that the operation changes. Raises `NotFound` if the operation's session cannot see it."""
        memory = self.space.memory(memory_id)
        if memory is None or not self.sees(memory):
            raise unknown_memory(memory_id)
        return memory

    def known_as(self, change: StoreMemory, session_id: str | None = None) -> Memory | None:
        """The memory that says the same as a new memory in the same scope and that the session (by default the
        operation's) can see, if any. If their metadata, which may name a file, differ, the texts must be equal."""
        session_id = self.operation.session_id if session_id is None else session_id
        for memory_id, scope in read_copies(self.space.query, "", change.content, session_id, MAX_COMPARED).items():
            if scope == change.scope and (scope != "session" or session_id == change.session_id):
                memory = self.space.memory(memory_id)
                if memory is None or not says_the_same(memory.now, memory.created_at, change, self.at):
                    continue
                if change.content == memory.now.content or change.metadata == memory.now.metadata:
                    return memory
        return None

    def sees(self, memory: Memory) -> bool:
        return is_visible(memory.now, self.operation.session_id)

    def entry(self, version: int, change: str, after: MemoryVersion, at: float, /, **details: object) -> HistoryEntry:
        """A history entry. Details that are None are omitted."""
        known = {name: value for name, value in {**details, "member": self.member}.items() if value is not None}
        by = self.operation
        return HistoryEntry(version, change, at, by.session_id, by.operation_id, after, known)

    def insert(self, memory_id: str, first: MemoryVersion, **details: object) -> None:
        at, history = self.at, (self.entry(1, "stored", first, self.at, **details),)
        memory = PortableMemory(**first.recorded(), id=memory_id, created_at=at, updated_at=at, history=history)
        self.space.insert(memory, at)

    def revise(
        self,
        memory: Memory,
        after: MemoryVersion,
        change: str,
        *,
        chain: tuple[ChainLink, ...] | None = None,
        **about: object,
    ) -> Revision:
        """Make `after` the next version of a memory, unless nothing has changed.

        A new promotion `chain` alone makes a version. If the text changes, the summaries and session records that
        repeat the old text are forgotten, unless somebody has reworded them, and the memories that this one stood for
        become active again. A version is never older than the previous one.
        """
        fields = differences(memory.now, after)
        if not fields and chain is None:
            return Revision(memory.version, ())
        is_another = "content" in fields or after.forgotten
        is_over = is_another or ("valid_until" in fields and after.valid_until is not None)
        is_summed_up = is_over and memory.now.status == "consolidated"
        is_taken_back = after.scope == "session" and "scope" in fields
        links = self.space.links(memory.id) if is_over or is_taken_back else []
        stale = [
            each
            for each in self.derived_from(memory.id, links)
            if (
                (is_summed_up and each.now.type == "semantic" and memory.now.content in each.now.content)
                or ((is_another or is_taken_back) and each.now.kind == SESSION_RECORD)
            )
            and not each.now.forgotten
            and all(entry.change != "updated" for entry in self.space.history(each.id))
        ]
        at = max(self.at, memory.updated_at, memory.forgotten_at or 0.0)
        entry = self.entry(memory.version + 1, change, after, at, **about, fields=fields)
        self.space.revise(memory, entry, fields, chain)
        for summary in stale:
            reason = f"its source {memory.id} was changed, superseded or forgotten"
            gone = msgspec.structs.replace(summary.now, forgotten=True, forgotten_reason=reason)
            self.revise(summary, gone, "forgotten", reason=reason)
        if is_another:
            self._release(memory.id, links)
        return Revision(entry.version, fields)

    def derived_from(self, memory_id: str, links: Sequence[Link]) -> list[Memory]:
        sources = [link.source for link in links if link.target == memory_id and link.relation == DERIVED]
        memories = map(self.space.memory, sources)
        return [memory for memory in memories if memory is not None]

    def _release(self, memory_id: str, links: Sequence[Link]) -> None:
        """Reactivate the memories that this one stood for, unless another one does. `links` are its former links."""
        behind = []
        for link in links:
            if link.source == memory_id and link.relation == DERIVED:
                behind.append(link.target)
            elif link.target == memory_id and link.relation == SIMILAR:
                behind.append(link.source)
        for hidden_id in dict.fromkeys(behind):
            hidden = self.space.memory(hidden_id)
            if hidden is None or hidden.now.forgotten or hidden.now.status != "consolidated":
                continue
            if not self.space.query(_SUMMED_UP_IN, (hidden_id,)):
                reason = "the memory that represented it no longer contains its text"
                make_active(self.space, hidden, RELEASED, reason, self.at)

    def note_active(self, session_id: str | None = None, start: StartSession | None = None) -> None:
        """Register or reopen a session (by default the operation's). Keeps its last `ending` unless it starts again."""
        session_id = self.operation.session_id if session_id is None else session_id
        if session_id not in ("", SHELL_SESSION):
            self.space.execute(
                """INSERT INTO sessions (space, session_id, started_at, last_active_at, client)
                   VALUES (@SPACE, ?1, ?2, ?2, ?3)
                   ON CONFLICT DO UPDATE SET status = 'active', ended_at = NULL, ending = iif(?4, NULL, ending),
                   last_active_at = max(last_active_at, excluded.last_active_at),
                   client = coalesce(excluded.client, client)""",
                (session_id, self.at, (start and start.client) or None, start is not None),
            )

    def log_promotion(self, entry: LogPromotion, run_id: str | None = None) -> None:
        row = msgspec.structs.asdict(entry) | {"run_id": run_id, "promoted_at": self.at}
        self.space.execute(
            f"""INSERT INTO promotion_log (space, {", ".join(row)})
                VALUES (@SPACE, {", ".join("?" * len(row))})""",  # noqa: S608 - our names
            tuple(row.values()),
        )

    def write_record(self, session_id: str) -> None:
        """Write the record of an ended session, unless it worked on no files. An earlier record is replaced."""
        query, its = self.space.query, "WHERE space = @SPACE AND session_id = ?"
        files = files_worked_on(query, session_id, self.operation.project.path)
        ended = query(f"SELECT ended_at FROM sessions {its} AND ended_at IS NOT NULL", (session_id,))  # noqa: S608
        if not files or not ended:
            return
        ((prompts,),) = query(f"SELECT count(*) FROM turns {its} AND role = 'user'", (session_id,))  # noqa: S608
        ((tool_calls,),) = query(f"SELECT count(*) FROM tool_calls {its}", (session_id,))  # noqa: S608
        ((ended_at,),) = ended
        more = f" and {len(files) - NAMED_FILES} more" if len(files) > NAMED_FILES else ""
        first = MemoryVersion(
            content=f"The session of {moment(ended_at):%Y-%m-%d %H:%M} UTC worked on "
            f"{', '.join(files[:NAMED_FILES])}{more}.",
            type=type_of_kind(SESSION_RECORD),
            scope="project",
            session_id=session_id,
            importance=RECORD_IMPORTANCE,
            occurred_at=ended_at,
            kind=SESSION_RECORD,
            confidence=RECORD_CONFIDENCE,
            structured={"prompts": prompts, "tool_calls": tool_calls, "files": list(files)},
        )
        before = session_record_of(query, session_id)
        if before is None:
            self.insert(derive_memory_id(f"record\n{session_id}", ended_at), first)
        else:
            self.revise(before, first, "recorded")


def make_active(space: SqliteEdits, memory: Memory, change: str, reason: str, at: float) -> None:
    """Reactivate a memory. The new version is no older than the previous one, and belongs to no operation."""
    after = msgspec.structs.replace(memory.now, status="active")
    details = {"reason": reason, "fields": ("status",)}
    entry = HistoryEntry(memory.version + 1, change, max(at, memory.updated_at), "", "", after, details)
    space.revise(memory, entry, ("status",))


def revive(space: SqliteEdits, memory_ids: Iterable[str], at: float) -> None:
    for memory in map(space.memory, memory_ids):
        if memory is not None and memory.now.status == "archived" and not memory.now.forgotten:
            make_active(space, memory, REVIVED, "it was used again", at)
