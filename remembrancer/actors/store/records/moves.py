"""The rules of promotion: moving a memory to its project, to the user and back; proposals, observations and the log.

A move is one transaction over two spaces: the source hands over the memory, the target stores it together with the
operation, and the source deletes it.
"""

from collections.abc import Sequence

import msgspec

from remembrancer.actors.store.records.sqlite_edits import SqliteEdits
from remembrancer.actors.store.records.types import Memory
from remembrancer.actors.store.records.writer import Writer, restating
from remembrancer.memory.changes import MOVE_UNDONE, check_broader, check_remembered, joined, standing
from remembrancer.protocol.errors import InvalidInput
from remembrancer.protocol.kinds import SESSION_RECORD, kind_of_type
from remembrancer.protocol.runs import ChainLink, LogPromotion, NotePattern, ProposeMemory
from remembrancer.protocol.writes import (
    ImportedResult,
    MemoryVersion,
    PortableMemory,
    PromotedResult,
    PromoteMemory,
    StoreMemory,
)


def snapshot_of(memory: PortableMemory) -> MemoryVersion:
    fields = memory.recorded() | {"kind": memory.kind or kind_of_type(memory.type)}
    return MemoryVersion(**fields, forgotten=memory.forgotten_at is not None)


def log_step(
    writer: Writer, memory_id: str, before: MemoryVersion, project: str | None = None, merged_into: str | None = None
) -> ChainLink:
    """Log a promotion, and return its step in the promotion chain. `project` is the project that the memory leaves."""
    change, kind = _promotion(writer), before.kind or kind_of_type(before.type)
    to = (change.target_scope, change.why, before.session_id, change.score, merged_into)
    logged = LogPromotion(memory_id, kind, before.scope, *to)
    writer.log_promotion(logged)
    return logged.step(writer.at, change.reason, project)


def join_promoted(
    writer: Writer, known: Memory, again: StoreMemory, before: MemoryVersion, project: str | None = None
) -> None:
    """Merge a promoted memory into `known`, which has the same text. `project` is the project that it leaves."""
    chain = (*known.promotion_chain, log_step(writer, again.memory_id, before, project, known.id))
    reason = f"{again.memory_id} was merged into it"
    writer.revise(known, joined(known.now, again), "merged", chain=chain, reason=reason)


# --- Proposals and observations.


def propose(writer: Writer, edit: ProposeMemory) -> bool:
    """Propose a memory for promotion to the user. False if it was proposed before, or is not in the project's scope."""
    memory = writer.space.memory(edit.memory_id)
    if memory is None or memory.id != edit.memory_id or memory.now.scope != "project" or memory.now.forgotten:
        return False
    insert = "INSERT OR IGNORE INTO proposals VALUES (@SPACE, ?, ?, ?, ?, NULL)"
    return writer.space.execute(insert, (memory.id, edit.reason, edit.score, writer.at)).rowcount > 0


def refuse_proposal(writer: Writer, memory_id: str, reason: str | None) -> bool:
    """Record that a memory must not be promoted to the user until this is revoked. False if it was not proposed."""
    refuse = """UPDATE proposals SET refused_at = coalesce(refused_at, ?), reason = coalesce(?, reason)
                WHERE space = @SPACE AND memory_id = ?"""
    return writer.space.execute(refuse, (writer.at, reason or None, memory_id)).rowcount > 0


def propose_again(writer: Writer, memory_id: str) -> bool:
    """Revoke the refusal to promote a memory to the user. False if there was no refusal."""
    revoke = """UPDATE proposals SET refused_at = NULL
                WHERE space = @SPACE AND memory_id = ? AND refused_at IS NOT NULL"""
    return writer.space.execute(revoke, (memory_id,)).rowcount > 0


def note_pattern(writer: Writer, edit: NotePattern) -> None:
    writer.space.execute(
        """INSERT INTO cross_project_patterns AS p VALUES (@SPACE, ?1, json_array(?2), 1, ?3, ?3)
           ON CONFLICT DO UPDATE SET observation_count = observation_count + 1,
           last_observed = max(last_observed, excluded.last_observed),
           source_projects = iif(?2 IN (SELECT value FROM json_each(p.source_projects)), p.source_projects,
               json_insert(p.source_projects, '$[#]', ?2))""",
        (edit.memory_id, edit.project_id, writer.at),
    )


def proposal_of(space: SqliteEdits, memory_id: str) -> tuple[object, ...] | None:
    rows = space.query(
        "SELECT reason, score, proposed_at, refused_at FROM proposals WHERE space = @SPACE AND memory_id = ?",
        (memory_id,),
    )
    return rows[0] if rows else None


def _propose_as_before(writer: Writer, memory: PortableMemory, change: PromoteMemory) -> None:
    """Renew the proposal of a memory that returns from the user, but refuse it unless a session undoes its own move."""
    moves = [each for each in standing(memory.history) if each.change == "promoted" and each.record.scope == "user"]
    proposal = moves[-1].details.get("proposal") if moves else None
    is_refused = change.reason != MOVE_UNDONE or not (moves and moves[-1].session_id)
    if proposal is not None:
        writer.space.execute("INSERT INTO proposals VALUES (@SPACE, ?, ?, ?, ?, ?)", (memory.id, *proposal))
    elif is_refused:
        propose(writer, ProposeMemory(memory.id, change.reason or "it was moved back from the user"))
    if is_refused:
        refuse_proposal(writer, memory.id, None)


# --- Moves between two lanes.


def memory_to_move(writer: Writer) -> PortableMemory:
    """In the source lane: return the memory. Versions from its time in a session are not copied into a project's lane,
    which others may read. Raises `NotFound` if the session cannot see it, `InvalidInput` if it may not be moved."""
    operation, change = writer.operation, _promotion(writer)
    memory = writer.memory(change.memory_id)
    is_taken_back = memory.now.scope == "user" and change.target_scope == "project"
    check_remembered(memory.id, memory.now)
    if not is_taken_back:
        check_broader(memory.now.scope, change.target_scope)
        if memory.now.kind == SESSION_RECORD:
            raise InvalidInput(f"{memory.id} is the record of a session, and stays in its project", field="memory_id")
    elif memory.source_project not in (None, operation.project.id):
        source = memory.source_project
        came = f"came from the project {source}, and can only be moved back there (in a shell: --project {source})"
        raise InvalidInput(f"{memory.id} is one of the user's memories: it {came}", field="target_scope")
    portable = writer.space.portable(memory.id)
    assert portable is not None
    if is_taken_back or change.target_scope == "user":
        return portable
    history = tuple(entry for entry in portable.history if entry.record.scope != "session")
    return msgspec.structs.replace(portable, history=history)


def return_move(writer: Writer) -> PromotedResult:
    """In the user's lane: delete a memory that its project has taken back. Raises `NotFound` if the memory is gone."""
    change = _promotion(writer)
    memory = writer.memory(change.memory_id)
    writer.space.delete(memory.id)
    writer.space.erase_traces(memory.id)
    return PromotedResult(memory.id, "user")


def receive_move(writer: Writer, memory: PortableMemory, proposal: Sequence[object] | None = None) -> PromotedResult:
    """In the target lane: store the memory as a new version, and keep its `proposal`. A memory taken back from the user
    must not be promoted again, unless this undoes the session's own move. Raises `InvalidInput` if its id exists."""
    change, present = _promotion(writer), writer.space.memory(memory.id)
    if present is not None and present.id == memory.id:
        raise InvalidInput(f"a memory with the id {memory.id} already exists", field="memory_id")
    before, is_taken_back = snapshot_of(memory), memory.scope == "user"
    came_from = writer.operation.project.id if change.target_scope == "user" else None
    again = restating(memory.id, memory, memory.created_at, change.target_scope)
    known = writer.known_as(again) if present is None and not is_taken_back else None
    if came_from is not None:
        note_pattern(writer, NotePattern(memory.id if known is None else known.id, came_from))
    if known is not None:
        join_promoted(writer, known, again, before, came_from)
        writer.space.add_alias(memory.id, known.id)
        return PromotedResult(memory.id, memory.scope, known.id)
    if is_taken_back:
        chain = memory.promotion_chain
        steps = [place for place, step in enumerate(chain) if (step.action, step.scope) == ("promoted", "project")]
        chain = tuple(step for place, step in enumerate(chain) if place not in steps[-1:])
    else:
        chain = (*memory.promotion_chain, log_step(writer, memory.id, before, came_from))
    moved = msgspec.structs.replace(
        memory,
        scope=change.target_scope,
        version=memory.version + 1,
        updated_at=max(writer.at, memory.updated_at),
        links=(),
        promotion_chain=chain,
        source_project=came_from,
    )
    name, score = ("taken back", None) if is_taken_back else ("promoted", change.score)
    about: dict[str, object] = {"fields": ("scope",), "previous_scope": memory.scope, "reason": change.reason}
    about |= {"score": score, "proposal": proposal}
    entry = writer.entry(moved.version, name, snapshot_of(moved), moved.updated_at, **about)
    moved = msgspec.structs.replace(moved, history=(*memory.history, entry))
    writer.space.insert(moved, moved.updated_at, comes_whole=True)
    if is_taken_back:
        _propose_as_before(writer, memory, change)
    writer.note_active()
    return PromotedResult(moved.id, memory.scope)


def end_move(writer: Writer, result: PromotedResult) -> PromotedResult:
    """In the source lane: delete the memory, but keep its history. The promotion of a memory taken back is not kept."""
    writer.space.delete(result.memory_id)
    if result.previous_scope == "user":
        writer.space.forget_promotion(result.memory_id)
    return result


def delete_handed_over(writer: Writer, memory: PortableMemory) -> ImportedResult:
    """In the source lane: delete a memory that another lane has stored, and the history that was moved with it."""
    if is_unchanged(writer, memory):
        writer.space.delete(memory.id)
        writer.space.drop_history(memory.id)
    return ImportedResult(memory.id)


def is_unchanged(writer: Writer, memory: PortableMemory) -> bool:
    here = writer.space.memory(memory.id)
    given = (memory.id, memory.version, memory.updated_at)
    return here is not None and (here.id, here.version, here.updated_at) == given


def _promotion(writer: Writer) -> PromoteMemory:
    change = writer.operation.change
    assert isinstance(change, PromoteMemory)
    return change
