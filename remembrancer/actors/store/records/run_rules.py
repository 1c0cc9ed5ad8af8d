"""The rules for applying and undoing consolidation runs."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, assert_never

import msgspec

from remembrancer.actors.store.records.background import prune
from remembrancer.actors.store.records.memory_rows import OF_RUN, of_import
from remembrancer.actors.store.records.moves import note_pattern, propose
from remembrancer.actors.store.records.sqlite_file import as_json
from remembrancer.actors.store.records.writer import Writer
from remembrancer.memory.changes import BREADTH, UNDONE, is_visible, revised, standing, taken_back
from remembrancer.memory.fields import FIELDS
from remembrancer.protocol.errors import NotFound
from remembrancer.protocol.kinds import type_of_kind
from remembrancer.protocol.runs import (
    IMPORT_UNDONE,
    IMPORTS,
    AddLink,
    AddMemory,
    ApplyRun,
    CloseRequest,
    CloseSession,
    DropOrphans,
    LogPromotion,
    NewMemory,
    NoteMaintenance,
    NotePattern,
    ProposeMemory,
    Prune,
    RequestConsolidation,
    ReviseMemory,
    RunResult,
    SaveTopics,
    Skipped,
    UndoneResult,
    UndoRun,
)
from remembrancer.protocol.runs import Edit as RunEdit
from remembrancer.protocol.session_life import BROWSER_SESSION, SHELL_SESSION
from remembrancer.protocol.writes import EntityRef, HistoryEntry, MemoryVersion

RUN_UNDONE: Final = "the run was undone"
MADE_BY_UNDONE: Final = "the run that made it was undone"
CHANGED_SINCE: Final = "has been changed since"
_UNDONE_AT: Final = "SELECT undone_at FROM runs WHERE space = @SPACE AND run_id = ?"
_UNDO: Final = "UPDATE runs SET undone_at = ? WHERE space = @SPACE AND run_id = ?"


def apply_run(writer: Writer, change: ApplyRun) -> RunResult:
    """Apply the edits of a run in order. The result lists the skipped edits. If the run was undone meanwhile, only the
    edit that closes its session is applied, since its job is done."""
    part = _Part(writer, change.run_id)
    begin_run(writer, change.run_id, change.kind, change.session_id)
    ((undone_at,),) = writer.space.query(_UNDONE_AT, (change.run_id,))
    skipped: list[Skipped] = []
    passed_over: set[str] = set()
    for edit in change.edits:
        missing = next((each for each in _prerequisites_of(edit) if each in passed_over), None)
        if undone_at is not None and not isinstance(edit, CloseSession):
            obstacle: str | None = RUN_UNDONE
        else:
            obstacle = part.carry_out(edit) if missing is None else f"{missing} was skipped"
        if obstacle is not None:
            subject = _subject_of(edit)
            skipped.append(Skipped(subject, obstacle, type(edit).__name__))
            passed_over |= {subject} if isinstance(edit, (AddMemory, ReviseMemory)) else set()
    return RunResult(len(change.edits) - len(skipped), tuple(skipped), part.pruned)


def begin_run(writer: Writer, run_id: str, kind: str, session_id: str) -> None:
    """Record a run in the space, with its first part."""
    writer.space.execute(
        "INSERT OR IGNORE INTO runs (space, run_id, kind, session_id, began_at) VALUES (@SPACE, ?, ?, ?, ?)",
        (run_id, kind, session_id, writer.at),
    )


@dataclass
class _Part:
    """A part of a run while it is being applied. `pruned` counts the deleted rows."""

    writer: Writer
    run_id: str
    pruned: int = 0

    def carry_out(self, edit: RunEdit) -> str | None:
        """Apply an edit. Returns the reason if it is skipped."""
        match edit:
            case AddMemory():
                return self._outlived(edit.made_of) or self._add(edit.memory)
            case ReviseMemory():
                return self._revise(edit)
            case AddLink():
                return self._link(edit)
            case LogPromotion():
                self.writer.log_promotion(edit, self.run_id)
            case NotePattern():
                memory = self.writer.space.memory(edit.memory_id)
                if memory is None or memory.now.forgotten:
                    return "it is gone or forgotten"
                note_pattern(self.writer, edit)
            case ProposeMemory():
                if not propose(self.writer, edit):
                    return "it was proposed before, or no longer belongs to the project"
            case Prune():
                self.pruned += prune(self.writer.space.execute, edit)
            case SaveTopics():
                space = self.writer.space
                space.execute("DELETE FROM topics WHERE space = @SPACE")
                rows = [(topic.label, as_json(topic.entities), space.now) for topic in edit.topics]
                insert = "INSERT INTO topics (space, label, entities, found_at) VALUES (@SPACE, ?, ?, ?)"
                space.executemany(insert, rows)
            case CloseSession():
                return self._close_session(edit)
            case NoteMaintenance():
                self.writer.space.execute(
                    """INSERT INTO maintenance (space, what, done_at) VALUES (@SPACE, 'maintenance', ?)
                       ON CONFLICT DO UPDATE SET done_at = excluded.done_at""",
                    (self.writer.space.now,),
                )
            case CloseRequest() | RequestConsolidation() | DropOrphans():
                return "it is of release 0.2.0, and has no effect"
            case _:
                assert_never(edit)
        return None

    def _outlived(self, made_of: Sequence[tuple[str, int]]) -> str | None:
        """The reason why a memory can no longer be derived from these versions, or None."""
        for memory_id, version in made_of:
            memory = self.writer.space.memory(memory_id)
            if memory is None or memory.now.forgotten:
                return f"{memory_id}, its source, is forgotten or gone"
            if memory.version != version and not self._made_version(memory_id, version, memory.version):
                return f"{memory_id}, its source, has been changed since"
        return None

    def _made_version(self, memory_id: str, before: int, after: int) -> bool:
        """True if this run made one version from the other."""
        made = {entry.version: entry.details.get("run") for entry in self.writer.space.history(memory_id)}
        return after == before + 1 and made.get(after) == self.run_id

    def _add(self, memory: NewMemory) -> str | None:
        if self.writer.space.memory(memory.id) is not None:
            return "a memory with this id already exists"
        given = {each.name: getattr(memory, each.name) for each in FIELDS if hasattr(memory, each.name)}
        tags = tuple(dict.fromkeys(memory.tags))
        entities = tuple(dict.fromkeys(EntityRef(*entity) for entity in memory.entities))
        values = given | {"type": type_of_kind(memory.kind), "tags": tags, "related_entities": entities}
        first = MemoryVersion(**values)
        self.writer.insert(memory.id, first, run=self.run_id)
        return None

    def _revise(self, edit: ReviseMemory) -> str | None:
        memory = self.writer.space.memory(edit.memory_id)
        if memory is None:
            return "it is gone"
        if memory.now.forgotten:
            return "it is forgotten"
        if edit.expected_version not in (None, memory.version):
            return f"it has been changed since: its version is {memory.version}, not {edit.expected_version}"
        if edit.scope is not None and BREADTH[edit.scope] <= BREADTH[memory.now.scope]:
            return f"its scope is already {memory.now.scope}"
        chain = None
        if edit.chain is not None:
            chain = (*memory.promotion_chain, msgspec.structs.replace(edit.chain, run_id=self.run_id))
        self.writer.revise(
            memory,
            revised(memory.now, edit),
            edit.change,
            chain=chain,
            run=self.run_id,
            reason=edit.reason,
            score=None if edit.chain is None else edit.chain.score,
            previous_scope=None if edit.scope is None else memory.now.scope,
        )
        if edit.accessed:
            self.writer.space.count_accesses([memory.number], self.writer.at)
        return None

    def _link(self, edit: AddLink) -> str | None:
        if edit.source == edit.target:
            return "a memory cannot link to itself"
        ends = [self.writer.space.memory(memory_id) for memory_id in (edit.source, edit.target)]
        is_here = [end.id for end in ends if end is not None] == [edit.source, edit.target]
        if not is_here or self.writer.link(edit.source, edit.target, edit.relation) is not None:
            return f"it is already linked to {edit.target}, or one of them is gone"
        self.writer.space.put_link(edit.source, edit.target, edit.relation, edit.strength, self.writer.at)
        return None

    def _close_session(self, edit: CloseSession) -> str | None:
        """Close a session, if it was not reopened since the end that the run processed."""
        closed = self.writer.space.execute(
            """UPDATE sessions SET status = ?1, memories_promoted = max(memories_promoted, (
                   SELECT count(*) FROM promotion_log
                   WHERE space = @SPACE AND source_session = ?2 AND from_scope = 'session'))
               WHERE space = @SPACE AND session_id = ?2 AND status = 'active' AND ended_at = ?3""",
            (edit.status, edit.session_id, edit.ended_at),
        )
        if not closed.rowcount:
            return "the session has continued since, or was already closed"
        self.writer.write_record(edit.session_id)
        return None


def _subject_of(edit: RunEdit) -> str:
    """The id of the memory or session of an edit; empty if there is none."""
    if isinstance(edit, AddMemory):
        return edit.memory.id
    names = ("memory_id", "source", "session_id")
    return next((getattr(edit, name) for name in names if hasattr(edit, name)), "")


def _prerequisites_of(edit: RunEdit) -> tuple[str | None, ...]:
    """The memories on which an edit depends: if one is skipped, so is the edit."""
    match edit:
        case ReviseMemory(only_with=other):
            return (other,)
        case AddLink():
            return (edit.source, edit.target)
        case LogPromotion():
            return (edit.memory_id, edit.merged_into)
        case NotePattern():
            return (edit.memory_id,)
        case _:
            return ()


# --- Undoing.


def undo_run(writer: Writer, change: UndoRun) -> UndoneResult:
    """Undo all parts of a run: return each memory to the version before the run, or forget it if the run made it.
    Memories that have changed since are left alone, and listed. Counts of accesses and observations stay.

    Raises `NotFound` if there is no such run here, or it changed a memory that the operation's session may not see, or
    one of the user's for another project.
    """
    if change.run_id.startswith(IMPORTS):
        return _undo_import(writer, change)
    run = writer.space.query(_UNDONE_AT, (change.run_id,))
    made_last_first = f"SELECT memory_id {OF_RUN} ? GROUP BY 1 ORDER BY min(version) DESC, 1"
    memory_ids = [memory_id for (memory_id,) in writer.space.query(made_last_first, (change.run_id,))]
    found = [memory for memory in map(writer.space.memory, memory_ids) if memory is not None]
    memories = {memory.id: memory for memory in found if memory.id in memory_ids}  # an id may be an alias by now
    steps = [step for memory in memories.values() for step in memory.promotion_chain if step.run_id == change.run_id]
    session_id, project_id = writer.operation.session_id or None, writer.operation.project.id
    is_seen = all(is_visible(each.now, session_id) for each in memories.values())
    is_of_another = change.place == "user" and any(step.source_project not in (None, project_id) for step in steps)
    if not run or not is_seen or is_of_another:
        return _unknown(change)
    if run[0][0] is not None:
        return UndoneResult(already=True)
    undone: list[str] = []
    skipped: list[Skipped] = []
    for memory_id in memory_ids:
        obstacle = _undo(writer, change.run_id, memory_id) if memory_id in memories else "it is gone"
        if obstacle is None:
            undone.append(memory_id)
        elif obstacle:
            skipped.append(Skipped(memory_id, obstacle))
    writer.space.execute("DELETE FROM promotion_log WHERE space = @SPACE AND run_id = ?", (change.run_id,))
    writer.space.execute(_UNDO, (writer.at, change.run_id))
    return UndoneResult(tuple(undone), tuple(skipped))


def _unknown(change: UndoRun) -> UndoneResult:
    if change.if_there:
        return UndoneResult(found=False)
    raise NotFound(
        f"there is no run with the id {change.run_id} (runs older than 90 days can no longer be undone)", field="run_id"
    )


def _undo_import(writer: Writer, change: UndoRun) -> UndoneResult:
    """Forget the memories that an import brought, except those that a session has changed since."""
    imported = f"SELECT DISTINCT memory_id {of_import('?')} ORDER BY 1"
    memory_ids = [each for (each,) in writer.space.query(imported, (change.run_id,))]
    if not memory_ids or writer.operation.session_id not in (SHELL_SESSION, BROWSER_SESSION):
        return _unknown(change)
    undone: list[str] = []
    skipped: list[Skipped] = []
    for memory_id in memory_ids:
        memory = writer.space.memory(memory_id)
        if memory is None or memory.id != memory_id:
            skipped.append(Skipped(memory_id, "it is gone"))
        elif not memory.now.forgotten:
            history = writer.space.history(memory_id)
            brought = max(each.version for each in history if each.details.get("imported") == change.run_id)
            later = [each for each in standing(history) if each.version > brought]
            if any(each.session_id or "imported" in each.details for each in later):
                skipped.append(Skipped(memory_id, f"it {CHANGED_SINCE}"))
            else:  # later versions are background work
                after = msgspec.structs.replace(memory.now, forgotten=True, forgotten_reason=IMPORT_UNDONE)
                writer.revise(memory, after, "forgotten", reason=IMPORT_UNDONE, as_of=0)
                undone.append(memory_id)
    writer.space.execute(_UNDO, (writer.at, change.run_id))
    return UndoneResult(tuple(undone), tuple(skipped), already=not undone and not skipped)


def _undo(writer: Writer, run_id: str, memory_id: str) -> str | None:
    """Undo the versions that a run made of a memory, with its links. Returns the reason if that is skipped; it is empty
    if somebody else has forgotten the memory that the run made."""
    memory = writer.space.memory(memory_id)
    assert memory is not None, "it was here before others were undone"
    history = writer.space.history(memory.id)
    made = {entry.version for entry in history if entry.details.get("run") == run_id}
    if memory.now.forgotten and 1 in made:
        return ""
    changes, undone = standing(history), list[HistoryEntry]()
    while changes and changes[-1].version in made:
        undone.append(changes.pop())
    before = {entry.version: entry.record for entry in history}
    version = undone[-1].version - 1 if undone else 0
    if len(undone) < len(made) or (version and version not in before):
        return f"it {CHANGED_SINCE}"
    after = taken_back(memory.now, before.get(version), MADE_BY_UNDONE)
    chain = tuple(step for step in memory.promotion_chain if step.run_id != run_id)
    writer.revise(
        memory,
        after,
        UNDONE,
        chain=chain if chain != memory.promotion_chain else None,
        run=run_id,
        undid=undone[0].change,
        as_of=version or None,
    )
    times = {each.changed_at for each in undone}
    for link in writer.space.links(memory.id):
        if link.source == memory.id and link.created_at in times:
            writer.space.unlink(link)
    return None
