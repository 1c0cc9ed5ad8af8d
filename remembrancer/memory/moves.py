"""The rules of promotion: a memory's way to its project and to the user, and back; proposals, observations and the log.

A move has steps in two spaces: the one notes it and gives the memory; the other takes it in, and with it the operation;
the first one lets it go. Each step is a plan of its own.
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
from remembrancer.memory.edits import Move as MoveRow
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
    """The part of a memory that its versions differ in."""
    fields = memory.recorded() | {"kind": memory.kind or kind_of_type(memory.type)}
    return MemoryVersion(**fields, forgotten=memory.forgotten_at is not None)


def step_of(memory_id: str, before: MemoryVersion, change: PromoteMemory, at: float, project: str | None) -> ChainLink:
    """The step in a memory's promotion chain that a promotion makes. `project`: the one that it leaves."""
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
    """A promotion chain from which each of the steps is taken off once, from its end."""
    left = list(reversed(chain))
    for step in steps:
        if step in left:
            left.remove(step)
    return tuple(reversed(left))


def log_entry(memory_id: str, before: MemoryVersion, change: PromoteMemory) -> LogPromotion:
    """The log's entry of a promotion."""
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
    """Join a memory that is promoted into the one of the broader scope that says the same. `project`: the one that it
    leaves."""
    step = msgspec.structs.replace(step_of(again.memory_id, before, change, planner.at, project), action="merged")
    chain = (*known.promotion_chain, step)
    reason = f"{again.memory_id} was merged into it"
    yield from planner.revise(known, joined(known.now, again), "merged", chain=chain, reason=reason)
    entry = log_entry(again.memory_id, before, change)
    yield from planner.log_promotion(msgspec.structs.replace(entry, merged_into=known.id))


# --- Proposals and observations.


def propose(planner: Planner, edit: ProposeMemory) -> Edits[bool]:
    """Propose that a memory goes to the user. False: it is proposed already, was refused, or is not the project's."""
    memory = planner.known.memory(edit.memory_id)
    if memory is None or memory.id != edit.memory_id or memory.now.scope != "project" or memory.now.forgotten:
        return False
    if planner.row(Proposed, memory.id) is not None:
        return False
    yield Put(Proposed(memory.id, edit.reason, edit.score, planner.at))
    return True


def refuse_proposal(planner: Planner, memory_id: str, reason: str | None) -> Edits[bool]:
    """Note that a memory does not go to the user, until somebody takes that back. False: it was not proposed."""
    proposed = planner.row(Proposed, memory_id)
    if proposed is None:
        return False
    at = planner.at if proposed.refused_at is None else proposed.refused_at
    yield Put(msgspec.structs.replace(proposed, refused_at=at, reason=reason or proposed.reason))
    return True


def propose_again(planner: Planner, memory_id: str) -> Edits[bool]:
    """Take back that a memory does not go to the user. False: nobody has refused that."""
    proposed = planner.row(Proposed, memory_id)
    if proposed is None or proposed.refused_at is None:
        return False
    yield Put(msgspec.structs.replace(proposed, refused_at=None))
    return True


def note_pattern(planner: Planner, edit: NotePattern) -> Edits[bool]:
    """Count an observation of a pattern. Whether it is the first one in that project."""
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
    """Take back an observation, and with it the project when it was the first one there."""
    before = planner.row(PatternRow, edit.memory_id)
    if before is None:
        return
    if before.observation_count <= 1:
        yield Remove(PatternRow, "memory_id", edit.memory_id)
        return
    left = tuple(project for project in before.source_projects if not was_new or project != edit.project_id)
    yield Put(msgspec.structs.replace(before, source_projects=left, observation_count=before.observation_count - 1))


# --- Moves between two lanes.


def begin_move(planner: Planner) -> Edits[PortableMemory]:
    """In the lane where it is: note that the memory is on its way, and give it as it is there.

    What it was in its session does not go into a project's lane, which others may read: that stays in the session's.

    Raises:
        NotFound: the session sees no such memory.
        InvalidInput: it is forgotten, or its scope is not narrower than the target, or it never came from the project
            that it is to go back to.
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
    if planner.row(MoveRow, operation.operation_id) is None:
        yield Put(MoveRow(operation.operation_id, encode_operation(operation), planner.at))
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
    """In the lane that the user shares: let a memory go that its project has taken back, with its history, which went
    along: if the project erases it, nothing of it is to be on other machines.

    Raises `NotFound` if it is gone.
    """
    change = _promotion(planner)
    memory = planner.memory(change.memory_id)
    yield Delete(memory.id)
    yield EraseTraces(memory.id)
    yield from _forget_promotion(memory.id)
    return PromotedResult(memory.id, "user", "project", memory.version + 1, change.reason)


def begin_return(planner: Planner, memory: PortableMemory) -> Edits[PortableMemory]:
    """In the project that takes a memory back out of the lane that the user shares: note that it is on its way. Raises
    `InvalidInput` as `begin_move`."""
    operation = planner.operation
    _check_return(memory.id, snapshot_of(memory), memory.source_project, operation.project.id)
    if planner.row(MoveRow, operation.operation_id) is None:
        yield Put(MoveRow(operation.operation_id, encode_operation(operation), planner.at))
    return memory


def receive_return(planner: Planner, memory: PortableMemory) -> Edits[PromotedResult]:
    """In that project, when the lane lets the memory go: as `receive_move`, and the move is over."""
    yield from cancel_move(planner)
    return (yield from receive_move(planner, memory))


def receive_move(planner: Planner, memory: PortableMemory) -> Edits[PromotedResult]:
    """In the lane where it goes: take the memory in, as a new version of it.

    The user's notes that it was observed in its project; a project's, if it was the user's, that it is not to go there
    again.

    Raises:
        InvalidInput: there is a memory with its id already.
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
    """In the lane where it was: let the memory go, but for its history; what is taken back was never promoted."""
    change = _promotion(planner)
    yield Delete(result.memory_id)
    if change.run_id is not None:
        # The session has ended, and its run may not have written yet.
        if planner.row(Run, change.run_id) is None:
            yield Put(Run(change.run_id, "session_end", "", planner.at))
        yield Put(RunChange(change.run_id, result.memory_id, Left()))
    if result.previous_scope == "user":
        yield from _forget_promotion(result.memory_id)
    yield Remove(MoveRow, "operation_id", planner.operation.operation_id)
    return result


def _forget_promotion(memory_id: str) -> Edits[None]:
    yield Remove(LoggedPromotion, "memory_id", memory_id)
    yield Remove(LoggedPromotion, "merged_into", memory_id)
    yield Remove(PatternRow, "memory_id", memory_id)


def let_go(planner: Planner, memory_id: str) -> Edits[ImportedResult]:
    """In the lane where it was: delete a memory that another lane has taken in. Of its history stays what it was in its
    session: the rest went along, and goes on there."""
    yield Delete(memory_id, with_history=True)
    return ImportedResult(memory_id, "present")


def cancel_move(planner: Planner) -> Edits[None]:
    """In the lane where it was: the memory stays."""
    yield Remove(MoveRow, "operation_id", planner.operation.operation_id)


def _promotion(planner: Planner) -> PromoteMemory:
    change = planner.operation.change
    assert isinstance(change, PromoteMemory)
    return change
