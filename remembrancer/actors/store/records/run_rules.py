"""The rules for applying and undoing consolidation runs."""

import math
from collections.abc import Sequence
from typing import Any, Final, assert_never

import msgspec

from remembrancer.actors.sqlite_file import as_json
from remembrancer.actors.store.records.background import prune
from remembrancer.actors.store.records.memory_rows import OF_RUN, of_import
from remembrancer.actors.store.records.moves import note_pattern, propose
from remembrancer.actors.store.records.types import Memory
from remembrancer.actors.store.records.writer import Writer
from remembrancer.memory.changes import BREADTH, RESTORED, UNDONE, before_change, is_visible, revised, standing
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

CHANGED_SINCE: Final = "has been changed since"
REPLACED_SINCE: Final = "it has replaced another memory since"
_PREREQUISITES: Final[dict[type, tuple[str, ...]]] = {
    ReviseMemory: ("only_with",),
    AddLink: ("source", "target"),
    LogPromotion: ("memory_id", "merged_into"),
    NotePattern: ("memory_id",),
}
"""The memories on which an edit depends. If one of them is skipped, so is the edit."""
_RUN: Final = "SELECT undone_at, began_at FROM runs WHERE space = @SPACE AND run_id = ?"


def apply_run(writer: Writer, change: ApplyRun) -> RunResult:
    """Apply the edits of a run. If the run has been undone since, apply only the edit that closes its session."""
    begin_run(writer, change.run_id, change.kind, change.session_id)
    ((undone_at, _),) = writer.space.query(_RUN, (change.run_id,))
    skipped: list[Skipped] = []
    passed_over: set[str] = set()
    pruned = 0
    for edit in change.edits:
        needed = (getattr(edit, name) for name in _PREREQUISITES.get(type(edit), ()))
        missing = next((each for each in needed if each in passed_over), None)
        obstacle: str | None = None
        if undone_at is not None and not isinstance(edit, CloseSession):
            obstacle = "the run was undone"
        elif missing is not None:
            obstacle = f"{missing} was skipped"
        elif isinstance(edit, Prune):
            pruned += prune(writer.space.execute, edit)
        else:
            obstacle = _carry_out(writer, change.run_id, edit)
        if obstacle is not None:
            subject = _subject_of(edit)
            skipped.append(Skipped(subject, obstacle, type(edit).__name__))
            passed_over |= {subject} if isinstance(edit, (AddMemory, ReviseMemory)) else set()
    return RunResult(len(change.edits) - len(skipped), tuple(skipped), pruned)


def begin_run(writer: Writer, run_id: str, kind: str, session_id: str) -> None:
    writer.space.execute(
        "INSERT OR IGNORE INTO runs (space, run_id, kind, session_id, began_at) VALUES (@SPACE, ?, ?, ?, ?)",
        (run_id, kind, session_id, writer.at),
    )


def _carry_out(writer: Writer, run_id: str, edit: RunEdit) -> str | None:
    """Apply an edit other than a `Prune`. Returns the reason if the edit is skipped."""
    space = writer.space
    match edit:
        case AddMemory():
            return _outlived(writer, run_id, edit.made_of) or _add(writer, run_id, edit.memory)
        case ReviseMemory():
            return _revise(writer, run_id, edit)
        case AddLink():
            return _link(writer, edit)
        case LogPromotion():
            writer.log_promotion(edit, run_id)
        case NotePattern():
            memory = space.memory(edit.memory_id)
            if memory is None or memory.now.forgotten:
                return "it is gone or forgotten"
            note_pattern(writer, edit)
        case ProposeMemory():
            if not propose(writer, edit):
                return "it was proposed before, or no longer belongs to the project"
        case SaveTopics():
            space.execute("DELETE FROM topics WHERE space = @SPACE")
            rows = [(topic.label, as_json(topic.entities), space.now) for topic in edit.topics]
            space.executemany("INSERT INTO topics (space, label, entities, found_at) VALUES (@SPACE, ?, ?, ?)", rows)
        case CloseSession():
            return _close_session(writer, edit)
        case NoteMaintenance():
            space.execute(
                """INSERT INTO maintenance (space, what, done_at) VALUES (@SPACE, 'maintenance', ?)
                   ON CONFLICT DO UPDATE SET done_at = excluded.done_at""",
                (space.now,),
            )
        case CloseRequest() | RequestConsolidation() | DropOrphans():
            return "it is from release 0.2.0 and has no effect"
        case _:
            assert not isinstance(edit, Prune)
            assert_never(edit)
    return None


def _outlived(writer: Writer, run_id: str, made_of: Sequence[tuple[str, int]]) -> str | None:
    """The reason why a memory can no longer be derived from these versions. The run itself may change a source."""
    for memory_id, version in made_of:
        memory = writer.space.memory(memory_id)
        if memory is None or memory.now.forgotten:
            return f"its source {memory_id} is forgotten or gone"
        made = {entry.version for entry in writer.space.history(memory_id) if entry.details.get("run") == run_id}
        if memory.version != version and not (memory.version == version + 1 and memory.version in made):
            return f"its source {memory_id} has been changed since"
    return None


def _add(writer: Writer, run_id: str, memory: NewMemory) -> str | None:
    if writer.space.memory(memory.id) is not None:
        return "a memory with this id already exists"
    given = {each.name: getattr(memory, each.name) for each in FIELDS if hasattr(memory, each.name)}
    tags = tuple(dict.fromkeys(memory.tags))
    entities = tuple(dict.fromkeys(EntityRef(*entity) for entity in memory.entities))
    values = given | {"type": type_of_kind(memory.kind), "tags": tags, "related_entities": entities}
    writer.insert(memory.id, MemoryVersion(**values), run=run_id)
    return None


def _revise(writer: Writer, run_id: str, edit: ReviseMemory) -> str | None:
    memory = writer.space.memory(edit.memory_id)
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
        chain = (*memory.promotion_chain, msgspec.structs.replace(edit.chain, run_id=run_id))
    score = None if edit.chain is None else edit.chain.score
    about: dict[str, Any] = {"run": run_id, "reason": edit.reason, "score": score}
    about["previous_scope"] = None if edit.scope is None else memory.now.scope
    writer.revise(memory, revised(memory.now, edit), edit.change, chain=chain, **about)
    if edit.accessed:
        writer.space.count_accesses([memory.number], writer.at)
    return None


def _link(writer: Writer, edit: AddLink) -> str | None:
    if edit.source == edit.target:
        return "a memory cannot link to itself"
    ends = [writer.space.memory(memory_id) for memory_id in (edit.source, edit.target)]
    is_here = [end.id for end in ends if end is not None] == [edit.source, edit.target]
    if not is_here or writer.space.strength(edit.source, edit.target, edit.relation) is not None:
        return f"it is already linked to {edit.target}, or one of them is gone"
    writer.space.put_link(edit.source, edit.target, edit.relation, edit.strength, writer.at)
    return None


def _close_session(writer: Writer, edit: CloseSession) -> str | None:
    closed = writer.space.execute(
        """UPDATE sessions SET status = ?1, memories_promoted = max(memories_promoted, (
               SELECT count(*) FROM promotion_log
               WHERE space = @SPACE AND source_session = ?2 AND from_scope = 'session'))
           WHERE space = @SPACE AND session_id = ?2 AND status = 'active' AND ended_at = ?3""",
        (edit.status, edit.session_id, edit.ended_at),
    )
    if not closed.rowcount:
        return "the session has continued since, or was already closed"
    writer.write_record(edit.session_id)
    return None


def _subject_of(edit: RunEdit) -> str:
    if isinstance(edit, AddMemory):
        return edit.memory.id
    names = ("memory_id", "source", "session_id")
    return next((getattr(edit, name) for name in names if hasattr(edit, name)), "")


# --- Undoing.


def undo_run(writer: Writer, change: UndoRun) -> UndoneResult:
    """Undo all parts of a run or an import: return each memory to the version before the run, or forget it if the run
    made or imported it. Memories that have changed since are left alone and listed, and so are memories to be forgotten
    that have replaced another since. Counts of accesses and observations are kept.

    Raises `NotFound` if there is no such run here, or the operation's session may not undo it: it changed a memory that
    the session may not see, or one from another project, or it is an import and the session is not a person's.
    """
    run_id, is_import = change.run_id, change.run_id.startswith(IMPORTS)
    made = of_import("?") if is_import else f"{OF_RUN} ?"
    made_last_first = f"SELECT memory_id {made} GROUP BY 1 ORDER BY min(version) DESC, 1"
    memory_ids = [memory_id for (memory_id,) in writer.space.query(made_last_first, (run_id,))]
    run = writer.space.query(_RUN, (run_id,))
    if is_import:
        may_undo = bool(memory_ids) and writer.operation.session_id in (SHELL_SESSION, BROWSER_SESSION)
    else:
        may_undo = bool(run) and _is_own(writer, change, memory_ids)
    if not may_undo and change.if_there:
        return UndoneResult(found=False)
    if not may_undo:
        raise NotFound(
            f"there is no run with the id {run_id} (runs older than 90 days can no longer be undone)", field="run_id"
        )
    if not is_import and run[0][0] is not None:
        return UndoneResult(already=True)
    take_back = _forget_imported if is_import else _undo
    undone: list[str] = []
    skipped: list[Skipped] = []
    for memory_id in memory_ids:
        memory = _memory_of(writer, memory_id)
        obstacle = "it is gone" if memory is None else take_back(writer, run_id, memory, run[0][1] if run else math.inf)
        if obstacle is None:
            undone.append(memory_id)
        elif obstacle:
            skipped.append(Skipped(memory_id, obstacle))
    writer.space.execute("DELETE FROM promotion_log WHERE space = @SPACE AND run_id = ?", (run_id,))
    writer.space.execute("UPDATE runs SET undone_at = ? WHERE space = @SPACE AND run_id = ?", (writer.at, run_id))
    return UndoneResult(tuple(undone), tuple(skipped), already=is_import and not undone and not skipped)


def _memory_of(writer: Writer, memory_id: str) -> Memory | None:
    """The memory with this id; None if the id has become an alias."""
    memory = writer.space.memory(memory_id)
    return memory if memory is not None and memory.id == memory_id else None


def _is_own(writer: Writer, change: UndoRun, memory_ids: Sequence[str]) -> bool:
    """True if the session may see all memories that a run changed, and none came to the user from another project."""
    memories = [memory for each in memory_ids if (memory := _memory_of(writer, each)) is not None]
    steps = [step for each in memories for step in each.promotion_chain if step.run_id == change.run_id]
    projects = (None, writer.operation.project.id)
    is_of_another = change.place == "user" and any(step.source_project not in projects for step in steps)
    return not is_of_another and all(is_visible(each.now, writer.operation.session_id or None) for each in memories)


def _has_replaced(writer: Writer, memory: Memory, since: float) -> bool:
    """True if a memory has replaced another since that time. If it were forgotten, the other would remain replaced."""
    links = writer.space.links(memory.id)
    return any((each.source, each.relation) == (memory.id, "supersedes") and each.created_at > since for each in links)


def _forget_imported(writer: Writer, run_id: str, memory: Memory, began_at: float) -> str | None:
    """Forget a memory that an import added, unless a session has changed it since. Returns the same as `_undo`."""
    if memory.now.forgotten:
        return ""
    history = writer.space.history(memory.id)
    brought = [each for each in history if each.details.get("imported") == run_id][-1]
    later = [each for each in standing(history) if each.version > brought.version]  # possibly by background work
    if any(each.session_id or "imported" in each.details for each in later):
        return f"it {CHANGED_SINCE}"
    if _has_replaced(writer, memory, began_at):
        return REPLACED_SINCE
    after = msgspec.structs.replace(memory.now, forgotten=True, forgotten_reason=IMPORT_UNDONE)
    as_of = brought.version - 1 if brought.change == RESTORED else 0
    writer.revise(memory, after, "forgotten", reason=IMPORT_UNDONE, as_of=as_of)
    return None


def _undo(writer: Writer, run_id: str, memory: Memory, began_at: float) -> str | None:
    """Undo a run's versions of a memory, and its links. Returns the reason if it is skipped; empty if forgotten."""
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
    if not version and _has_replaced(writer, memory, began_at):
        return REPLACED_SINCE
    left = tuple(step for step in memory.promotion_chain if step.run_id != run_id)
    chain = left if left != memory.promotion_chain else None
    after = before_change(memory.now, before.get(version), "the run that made it was undone")
    writer.revise(memory, after, UNDONE, chain=chain, run=run_id, undid=undone[0].change, as_of=version or None)
    times = {each.changed_at for each in undone}
    for link in writer.space.links(memory.id):
        if link.source == memory.id and link.created_at in times:
            writer.space.unlink(link.source, link.target, link.relation)
    return None
