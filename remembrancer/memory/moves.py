"""The rules of promotion: moving a memory to its project, to the user and back; proposals, observations and the log.

A move has steps in two spaces, in one transaction: one hands over the memory, the other stores it together with the
operation, and the first deletes it. Each step is a separate plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from remembrancer.memory.changes import check_broader, check_remembered, joined
from remembrancer.memory.edits import (
    AddAlias,
    Delete,
    Edits,
    EraseTraces,
    Insert,
    Left,
    LoggedPromotion,
    Memory,
    PatternRow,
    Proposed,
    Put,
    Remove,
    Run,
    RunChange,
)
from remembrancer.memory.planner import Planner, restating
from remembrancer.protocol.errors import InvalidInput
from remembrancer.protocol.kinds import SESSION_RECORD, kind_of_type
from remembrancer.protocol.runs import ChainLink, LogPromotion, NotePattern, ProposeMemory
from remembrancer.protocol.writes import (
    ImportedResult,
    MemoryVersion,
    Operation,
    PortableMemory,
    PromotedResult,
    PromoteMemory,
    StoreMemory,
)

encode_operation: Final = msgspec.msgpack.Encoder().encode
decode_operation: Final = msgspec.msgpack.Decoder(Operation).decode


def snapshot_of(memory: PortableMemory) -> MemoryVersion:
    """The versioned part of a memory."""
    fields = memory.recorded() | {"kind": memory.kind or kind_of_type(memory.type)}
    return MemoryVersion(**fields, forgotten=memory.forgotten_at is not None)


def step_of(memory_id: str, before: MemoryVersion, change: PromoteMemory, at: float, project: str | None) -> ChainLink:
    """The entry that a promotion adds to a memory's promotion chain. `project` is the one that it leaves."""
    return ChainLink(
        scope=before.scope,
        memory_id=memory_id,
        promoted_at=at,
        session_id=before.session_id or None,
        source_project=project,
        score=change.score,
        reason=change.reason,
    )


def without_steps(chain: tuple[ChainLink, ...], steps: Sequence[ChainLink]) -> tuple[ChainLink, ...]:
    """A promotion chain without one occurrence of each of the steps, removed from its end."""
    remaining = list(reversed(chain))
    for step in steps:
        if step in remaining:
            remaining.remove(step)
    return tuple(reversed(remaining))


def log_entry(memory_id: str, before: MemoryVersion, change: PromoteMemory) -> LogPromotion:
    """The log entry of a promotion."""
    return LogPromotion(
        memory_id=memory_id,
        kind=before.kind or kind_of_type(before.type),
        from_scope=before.scope,
        to_scope=change.target_scope,
        reason=change.why,
        source_session=before.session_id,
        score=change.score,
    )


def join_promoted(
    planner: Planner,
    known: Memory,
    again: StoreMemory,
    before: MemoryVersion,
    change: PromoteMemory,
    project: str | None,
) -> Edits[None]:
    """Merge a promoted memory into the one with the same text in the broader scope. `project` is the one that it
    leaves."""
    step = msgspec.structs.replace(step_of(again.memory_id, before, change, planner.at, project), action="merged")
    chain = (*known.promotion_chain, step)
    reason = f"{again.memory_id} was merged into it"
    yield from planner.revise(known, joined(known.now, again), "merged", chain=chain, reason=reason)
    entry = log_entry(again.memory_id, before, change)
    yield from planner.log_promotion(msgspec.structs.replace(entry, merged_into=known.id))


# --- Proposals and observations.


def propose(planner: Planner, edit: ProposeMemory) -> Edits[bool]:
    """Propose a memory for promotion to the user. False if it was already proposed or refused, or is not the
    project's."""
    memory = planner.known.memory(edit.memory_id)
    if memory is None or memory.id != edit.memory_id or memory.now.scope != "project" or memory.now.forgotten:
        return False
    if planner.row(Proposed, memory.id) is not None:
        return False
    yield Put(Proposed(memory.id, edit.reason, edit.score, planner.at))
    return True


def refuse_proposal(planner: Planner, memory_id: str, reason: str | None) -> Edits[bool]:
    """Record that a memory is not to be promoted to the user, until that is revoked. False if it was not proposed."""
    proposed = planner.row(Proposed, memory_id)
    if proposed is None:
        return False
    at = planner.at if proposed.refused_at is None else proposed.refused_at
    yield Put(msgspec.structs.replace(proposed, refused_at=at, reason=reason or proposed.reason))
    return True


def propose_again(planner: Planner, memory_id: str) -> Edits[bool]:
    """Revoke the refusal of a memory's promotion to the user. False if there is none."""
    proposed = planner.row(Proposed, memory_id)
    if proposed is None or proposed.refused_at is None:
        return False
    yield Put(msgspec.structs.replace(proposed, refused_at=None))
    return True


def note_pattern(planner: Planner, edit: NotePattern) -> Edits[bool]:
    """Count an observation of a pattern. True if it is the first one in that project."""
    before = planner.row(PatternRow, edit.memory_id) or PatternRow(edit.memory_id, (), 0, planner.at, planner.at)
    is_new = edit.project_id not in before.source_projects
    yield Put(
        msgspec.structs.replace(
            before,
            source_projects=(*before.source_projects, *([edit.project_id] if is_new else [])),
            observation_count=before.observation_count + 1,
            last_observed=max(before.last_observed, planner.at),
        )
    )
    return is_new


def unnote_pattern(planner: Planner, edit: NotePattern, *, was_new: bool) -> Edits[None]:
    """Take back an observation, together with the project if it was the first one there."""
    before = planner.row(PatternRow, edit.memory_id)
    if before is None:
        return
    if before.observation_count <= 1:
        yield Remove(PatternRow, "memory_id", edit.memory_id)
        return
    projects = tuple(project for project in before.source_projects if not was_new or project != edit.project_id)
    yield Put(msgspec.structs.replace(before, source_projects=projects, observation_count=before.observation_count - 1))


# --- Moves between two lanes.


def memory_to_move(planner: Planner) -> PortableMemory:
    """In the source lane: return the memory.

    Its versions from its session are not copied into a project's lane, which others may read: they stay in the
    session's.

    Raises:
        NotFound: the session sees no such memory.
        InvalidInput: it is forgotten, or its scope is not narrower than the target, or it did not come from the project
            that it is to return to.
    """
    operation, change = planner.operation, _promotion(planner)
    memory = planner.memory(change.memory_id)
    is_taken_back = memory.now.scope == "user" and change.target_scope == "project"
    if is_taken_back:
        _check_return(memory.id, memory.now, memory.source_project, operation.project.id)
    else:
        check_remembered(memory.id, memory.now)
        check_broader(memory.now.scope, change.target_scope)
        if memory.now.kind == SESSION_RECORD:
            raise InvalidInput(f"{memory.id} is the record of a session in its project", field="memory_id")
    portable = planner.known.portable(memory.id)
    assert portable is not None
    if is_taken_back or change.target_scope == "user":
        return portable
    history = tuple(entry for entry in portable.history if entry.record.scope != "session")
    return msgspec.structs.replace(portable, history=history)


def _check_return(memory_id: str, now: MemoryVersion, source_project: str | None, project_id: str) -> None:
    """Raises `InvalidInput` if a memory of the user cannot be taken back into a project."""
    check_remembered(memory_id, now)
    if source_project != project_id:
        came = "came from another project: take it back there" if source_project else "never was a project's"
        raise InvalidInput(f"{memory_id} is the user's and {came}", field="target_scope")


def return_move(planner: Planner) -> Edits[PromotedResult]:
    """In the user's shared lane: delete a memory that its project has taken back, with its history, which moved along.
    So if the project erases it, other machines keep nothing of it.

    Raises `NotFound` if it is gone.
    """
    change = _promotion(planner)
    memory = planner.memory(change.memory_id)
    yield Delete(memory.id)
    yield EraseTraces(memory.id)
    yield from _forget_promotion(memory.id)
    return PromotedResult(memory.id, "user", "project", memory.version + 1, change.reason)


def receive_move(planner: Planner, memory: PortableMemory) -> Edits[PromotedResult]:
    """In the target lane: store the memory as a new version.

    The user's lane records that it was observed in its project; a project's lane, if it was the user's, that it is not
    to be promoted again.

    Raises:
        InvalidInput: a memory with its id already exists.
    """
    change, present = _promotion(planner), planner.known.memory(memory.id)
    if present is not None and present.id == memory.id:
        raise InvalidInput(f"there is a memory with the id {memory.id} already", field="memory_id")
    before, project = snapshot_of(memory), planner.operation.project.id
    is_taken_back = memory.scope == "user"
    came_from = project if change.target_scope == "user" else None
    again = restating(memory.id, memory, memory.created_at, change.target_scope)
    if present is None and not is_taken_back and (known := planner.known_as(again)) is not None:
        yield from join_promoted(planner, known, again, before, change, came_from)
        yield AddAlias(memory.id, known.id)
        if came_from is not None:
            yield from note_pattern(planner, NotePattern(known.id, project))
        return PromotedResult(memory.id, memory.scope, change.target_scope, memory.version, change.reason, known.id)
    if is_taken_back:
        steps = [step for step in memory.promotion_chain if step.action == "promoted" and step.scope == "project"]
        chain = without_steps(memory.promotion_chain, steps[-1:])
    else:
        chain = (*memory.promotion_chain, step_of(memory.id, before, change, planner.at, came_from))
    at = max(planner.at, memory.updated_at)
    moved = msgspec.structs.replace(
        memory,
        scope=change.target_scope,
        version=memory.version + 1,
        updated_at=at,
        links=(),
        promotion_chain=chain,
        source_project=came_from,
    )
    entry = planner.entry(
        moved.version,
        "taken back" if is_taken_back else "promoted",
        snapshot_of(moved),
        at,
        fields=("scope",),
        previous_scope=memory.scope,
        reason=change.reason,
        score=None if is_taken_back else change.score,
    )
    yield Insert(msgspec.structs.replace(moved, history=(*memory.history, entry)), planner.at, comes_whole=True)
    if is_taken_back:
        reason = change.reason or "it was taken back from the user"
        yield from propose(planner, ProposeMemory(moved.id, reason))
        yield from refuse_proposal(planner, moved.id, None)
    else:
        yield from planner.log_promotion(log_entry(memory.id, before, change))
    if came_from is not None:
        yield from note_pattern(planner, NotePattern(memory.id, project))
    yield from planner.note_active()
    return PromotedResult(moved.id, memory.scope, change.target_scope, moved.version, change.reason)


def end_move(planner: Planner, result: PromotedResult) -> Edits[PromotedResult]:
    """In the source lane: delete the memory except its history. A memory that is taken back leaves no promotion in the
    log."""
    change = _promotion(planner)
    yield Delete(result.memory_id)
    if change.run_id is not None:
        # The session has ended, and its run may not have been recorded yet.
        if planner.row(Run, change.run_id) is None:
            yield Put(Run(change.run_id, "session_end", "", planner.at))
        yield Put(RunChange(change.run_id, result.memory_id, Left()))
    if result.previous_scope == "user":
        yield from _forget_promotion(result.memory_id)
    return result


def _forget_promotion(memory_id: str) -> Edits[None]:
    yield Remove(LoggedPromotion, "memory_id", memory_id)
    yield Remove(LoggedPromotion, "merged_into", memory_id)
    yield Remove(PatternRow, "memory_id", memory_id)


def let_go(planner: Planner, memory: PortableMemory) -> Edits[ImportedResult]:
    """In the source lane: delete a memory that another lane has stored, unless it was changed here since. Only the
    versions from its session stay in the history: the others moved along, and continue there."""
    if is_unchanged(planner, memory):
        yield Delete(memory.id, with_history=True)
    return ImportedResult(memory.id, "present")


def is_unchanged(planner: Planner, memory: PortableMemory) -> bool:
    """True if a memory is still here as it was given to another lane."""
    here = planner.known.memory(memory.id)
    return here is not None and (here.id, here.version, here.updated_at) == (
        memory.id,
        memory.version,
        memory.updated_at,
    )


def _promotion(planner: Planner) -> PromoteMemory:
    change = planner.operation.change
    assert isinstance(change, PromoteMemory)
    return change
