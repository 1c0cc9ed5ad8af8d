"""Runs of the consolidator: carried out in one transaction, with what undoing them needs. Inside the caller's
transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Final, assert_never

import msgspec

from remembrancer.actors.store.records.background import prune
from remembrancer.actors.store.records.memory_rows import Done, MemoryRow, insert_memory, read_memory, revise
from remembrancer.actors.store.records.promotion_rows import log_promotion, note_pattern
from remembrancer.actors.store.records.run_undo import Added, Deed, Linked, Observed, Revised, note_deed
from remembrancer.actors.store.records.sessions import close_session
from remembrancer.actors.store.records.sqlite_file import encode_json
from remembrancer.memory.changes import BREADTH
from remembrancer.memory.limits import MAX_TAGS
from remembrancer.protocol.kinds import type_of_kind
from remembrancer.protocol.runs import (
    AddLink,
    AddMemory,
    ApplyRun,
    CloseRequest,
    CloseSession,
    DropOrphans,
    Edit,
    LogPromotion,
    NewMemory,
    NotePattern,
    Prune,
    ReviseMemory,
    RunResult,
    SaveTopics,
    Skipped,
)
from remembrancer.protocol.writes import EntityRef, Operation, Snapshot

UNDONE: Final = "the run was undone"


def apply_run(connection: sqlite3.Connection, operation: Operation, change: ApplyRun, now: float) -> Done:
    """Carry out a run's edits in their order. What is passed over is named in the result.

    Of a run that was undone meanwhile only what closes its session or its request is carried out: its job is over.
    """
    run = _Run(connection, operation, change, now)
    connection.execute(
        "INSERT OR IGNORE INTO runs (run_id, kind, session_id, began_at) VALUES (?, ?, ?, ?)",
        (change.run_id, change.kind, change.session_id, now),
    )
    ((undone_at,),) = connection.execute("SELECT undone_at FROM runs WHERE run_id = ?", (change.run_id,)).fetchall()
    for edit in change.edits:
        if undone_at is None or isinstance(edit, (CloseSession, CloseRequest)):
            run.carry_out(edit)
        else:
            run.pass_over(edit, UNDONE)
    source_ids, result_ids = run.done(change.source_ids), run.done(change.result_ids)
    if source_ids and undone_at is None and (result_ids or not change.result_ids):
        connection.execute(
            """INSERT INTO consolidation_log
                   (run_id, method, source_count, result_count, source_ids, result_ids, consolidated_at)
               VALUES (?, ?, ?, ?, ?, ?, ?)""",
            (
                change.run_id,
                change.method,
                len(source_ids),
                len(result_ids),
                encode_json(source_ids).decode(),
                encode_json(result_ids).decode(),
                now,
            ),
        )
    result = RunResult(change.run_id, run.edits, tuple(run.skipped), run.orphans, run.pruned)
    return Done(result, also_to_embed=tuple(run.to_embed))


class _Run:
    """A run while it is carried out."""

    def __init__(self, connection: sqlite3.Connection, operation: Operation, change: ApplyRun, now: float) -> None:
        self._connection = connection
        self._operation = operation
        self._change = change
        self._now = now
        self._passed_over: set[str] = set()
        self.edits = 0
        self.orphans = 0
        self.pruned = 0
        self.skipped: list[Skipped] = []
        self.to_embed: list[int] = []

    def carry_out(self, edit: Edit) -> None:
        obstacle = self._carry_out(edit)
        if obstacle is None:
            self.edits += 1
        else:
            self.pass_over(edit, obstacle)

    def pass_over(self, edit: Edit, reason: str) -> None:
        """Name what is not carried out. What later edits say of a memory that was not made or revised is moot."""
        subject = _subject_of(edit)
        if isinstance(edit, (AddMemory, ReviseMemory)):
            self._passed_over.add(subject)
        self.skipped.append(Skipped(subject, reason, type(edit).__name__))

    def done(self, memory_ids: Sequence[str]) -> tuple[str, ...]:
        """Those of the memories that were not passed over."""
        return tuple(each for each in memory_ids if each not in self._passed_over)

    def _carry_out(self, edit: Edit) -> str | None:
        """Why an edit is passed over; None when it is carried out."""
        match edit:
            case AddMemory():
                return self._outlived(edit.made_of) or self._add(edit.memory)
            case ReviseMemory():
                return self._dropped(edit.only_with) or self._revise(edit)
            case AddLink():
                return self._dropped(edit.source, edit.target) or self._link(edit)
            case LogPromotion():
                return self._dropped(edit.memory_id, edit.merged_into) or self._log(edit)
            case NotePattern():
                return self._dropped(edit.memory_id) or self._observe(edit)
            case DropOrphans(before=before):
                self.orphans += self._connection.execute(
                    """DELETE FROM entities WHERE created_at < ?
                       AND NOT EXISTS (SELECT 1 FROM memory_entities WHERE entity = number)""",
                    (before,),
                ).rowcount
                return None
            case Prune():
                self.pruned += prune(self._connection, edit)
                return None
            case SaveTopics():
                return self._save_topics(edit)
            case CloseSession():
                closed = close_session(self._connection, edit)
                return None if closed else "the session has begun again since, or was closed before"
            case CloseRequest():
                return self._close_request(edit)
        assert_never(edit)

    def _dropped(self, *memory_ids: str | None) -> str | None:
        for memory_id in memory_ids:
            if memory_id in self._passed_over:
                return f"{memory_id} was passed over"
        return None

    def _outlived(self, made_of: Sequence[tuple[str, int]]) -> str | None:
        """What of the memories that another is to be made of is not any more what it was made of."""
        for memory_id, version in made_of:
            memory = self._read(memory_id)
            if memory is None or memory.now.forgotten:
                return f"{memory_id}, which it is made of, is forgotten or gone"
            if memory.version != version and not self._made_version(memory_id, version, memory.version):
                return f"{memory_id}, which it is made of, has been changed since"
        return None

    def _made_version(self, memory_id: str, before: int, after: int) -> bool:
        """Whether it was this run that made a version out of another."""
        made = self._connection.execute(
            "SELECT 1 FROM run_changes WHERE run_id = ? AND memory_id = ? AND version_before = ? AND version_after = ?",
            (self._change.run_id, memory_id, before, after),
        )
        return made.fetchone() is not None

    def _add(self, memory: NewMemory) -> str | None:
        if self._read(memory.id) is not None:
            return "there is a memory with this id already"
        first = Snapshot(
            content=memory.content,
            type=type_of_kind(memory.kind),
            scope=memory.scope,
            session_id=memory.session_id,
            importance=memory.importance,
            tags=tuple(dict.fromkeys(memory.tags)),
            related_entities=tuple(dict.fromkeys(EntityRef(*entity) for entity in memory.entities)),
            metadata=memory.metadata,
            occurred_at=memory.occurred_at,
            kind=memory.kind,
            summary=memory.summary,
            confidence=memory.confidence,
            domain=memory.domain,
        )
        number, _ = insert_memory(
            self._connection, self._operation, memory.id, first, self._now, {"run": self._change.run_id}
        )
        self.to_embed.append(number)
        self._note(memory.id, Added())
        return None

    def _revise(self, edit: ReviseMemory) -> str | None:
        memory = self._read(edit.memory_id)
        if memory is None:
            return "it is not here any more"
        if memory.now.forgotten:
            return "it is forgotten"
        if edit.expected_version not in (None, memory.version):
            return f"it has been changed since: its version is {memory.version}, not {edit.expected_version}"
        if edit.scope is not None and BREADTH[edit.scope] <= BREADTH[memory.now.scope]:
            return f"its scope is {memory.now.scope} already"
        made = revise(
            self._connection,
            self._operation,
            memory,
            revised(memory.now, edit),
            edit.change,
            self._now,
            chain=None if edit.chain is None else (*memory.promotion_chain, edit.chain),
            run=self._change.run_id,
            reason=edit.reason,
            score=None if edit.chain is None else edit.chain.score,
            previous_scope=None if edit.scope is None else memory.now.scope,
        )
        if edit.accessed:
            self._connection.execute(
                "UPDATE memories SET access_count = access_count + 1, last_accessed_at = ? WHERE number = ?",
                (self._now, memory.number),
            )
        if made.version != memory.version or edit.accessed:
            accessed_at = self._now if edit.accessed else None
            deed = Revised(memory.version, made.version, edit.chain, accessed_at, memory.last_accessed_at)
            self._note(memory.id, deed)
        return None

    def _link(self, edit: AddLink) -> str | None:
        if edit.source == edit.target:
            return "a memory is not linked to itself"
        made = self._connection.execute(
            """INSERT OR IGNORE INTO memory_links
               SELECT source.number, target.number, ?, ?, ? FROM memories AS source, memories AS target
               WHERE source.id = ? AND target.id = ?""",
            (edit.relation, edit.strength, self._now, edit.source, edit.target),
        )
        if not made.rowcount:
            return f"it is linked to {edit.target} already, or one of them is gone"
        self._note(edit.source, Linked(edit.target, edit.relation, self._now))
        return None

    def _log(self, edit: LogPromotion) -> str | None:
        log_promotion(self._connection, edit, self._change.run_id, self._now)
        return None

    def _observe(self, edit: NotePattern) -> str | None:
        memory = self._read(edit.memory_id)
        if memory is None or memory.now.forgotten:
            return "it is not here any more, or forgotten"
        is_new = note_pattern(self._connection, edit, self._now)
        self._note(edit.memory_id, Observed(edit.project_id, is_new))
        return None

    def _save_topics(self, edit: SaveTopics) -> str | None:
        self._connection.execute("DELETE FROM topics")
        self._connection.executemany(
            "INSERT INTO topics (label, entities, found_at) VALUES (?, ?, ?)",
            [(topic.label, encode_json(topic.entities).decode(), self._now) for topic in edit.topics],
        )
        return None

    def _close_request(self, edit: CloseRequest) -> str | None:
        closed = self._connection.execute(
            """UPDATE consolidation_requests SET status = ?, completed_at = ?
               WHERE number = ? AND status IN ('pending', 'in_progress')""",
            (edit.status, self._now, edit.request_id),
        )
        return None if closed.rowcount else "the request was closed before"

    def _note(self, memory_id: str, deed: Deed) -> None:
        note_deed(self._connection, self._change.run_id, memory_id, deed)

    def _read(self, memory_id: str) -> MemoryRow | None:
        return read_memory(lambda query, values: self._connection.execute(query, values).fetchall(), memory_id)


def revised(before: Snapshot, edit: ReviseMemory) -> Snapshot:
    """What an edit makes of a memory. Tags beyond those that a memory may have are left out. Pure."""
    new_tags = [tag for tag in dict.fromkeys(edit.tags) if tag not in before.tags]
    given = {
        "status": edit.status,
        "scope": edit.scope,
        "kind": edit.kind,
        "type": None if edit.kind is None else type_of_kind(edit.kind),
        "summary": edit.summary,
        "importance": edit.importance,
        "confidence": edit.confidence,
        "valid_until": edit.valid_until,
        "forgotten_reason": edit.forget,
    }
    changed = {name: value for name, value in given.items() if value is not None}
    return msgspec.structs.replace(
        before,
        **changed,
        tags=(*before.tags, *new_tags[: max(0, MAX_TAGS - len(before.tags))]),
        forgotten=edit.forget is not None,
    )


def _subject_of(edit: Edit) -> str:
    """The memory that an edit is about, or what else it names."""
    match edit:
        case AddMemory(memory=memory):
            return memory.id
        case ReviseMemory() | LogPromotion() | NotePattern():
            return edit.memory_id
        case AddLink(source=source):
            return source
        case CloseSession(session_id=session_id):
            return session_id
        case CloseRequest(request_id=request_id):
            return str(request_id)
        case DropOrphans() | Prune() | SaveTopics():
            return ""
