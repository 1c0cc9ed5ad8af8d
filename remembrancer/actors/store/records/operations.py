"""How an operation changes a file of records: once. Each function runs inside a transaction that its caller owns.

What is refused (`InvalidInput`, `NotFound`) is refused before anything is written.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import msgspec

from remembrancer.actors.store.records.contract import Outcome
from remembrancer.actors.store.records.memory_rows import (
    RELATED,
    Done,
    MemoryRow,
    delete_memory,
    erase_traces,
    is_erased,
    mark_erased,
    memory_to_change,
    read_history,
    register_session,
    related_to,
    revise,
    store_memory,
)
from remembrancer.actors.store.records.promotion_rows import log_entry, log_promotion, step_of
from remembrancer.actors.store.records.run_rows import apply_run
from remembrancer.actors.store.records.run_undo import undo_run
from remembrancer.actors.store.records.sessions import end_session, record_events, start_session
from remembrancer.actors.store.records.sqlite_file import Query, query_of
from remembrancer.actors.store.records.transfer import import_memory
from remembrancer.memory.changes import (
    check_broader,
    check_remembered,
    invalidated,
    is_version_visible,
    reverted,
    spans_of,
    tagged,
    updated,
)
from remembrancer.memory.ranking import has_ended
from remembrancer.protocol.errors import InvalidInput, NotFound
from remembrancer.protocol.runs import ApplyRun, UndoRun
from remembrancer.protocol.session_life import EndSession, RecordEvents, StartSession
from remembrancer.protocol.writes import (
    Applied,
    ErasedResult,
    EraseMemory,
    ForgetMemory,
    ForgottenResult,
    ImportMemory,
    InvalidatedResult,
    InvalidateMemory,
    LinkRef,
    NoteWritten,
    Operation,
    PromotedResult,
    PromoteMemory,
    RestoredResult,
    RestoreMemory,
    Result,
    Scope,
    Snapshot,
    StoredResult,
    StoreMemory,
    TaggedResult,
    TagMemory,
    UpdatedResult,
    UpdateMemory,
)

SUPERSEDED: Final = "superseded"
INVALIDATED: Final = "invalidated"
"""What the history calls it when a memory is no longer valid."""

Links = list[tuple[LinkRef, MemoryRow]]


def find_targets(
    connection: sqlite3.Connection, operation: Operation, source_id: str, links: Sequence[LinkRef], field: str
) -> Links:
    """The memories that links lead to. `field` is what they were given in.

    Raises:
        InvalidInput: a target is the memory itself, or none that the session sees in the same file.
    """
    found: Links = []
    for link in dict.fromkeys(links):
        try:
            target = memory_to_change(connection, operation, link.target)
        except NotFound as error:
            raise InvalidInput(
                f"there is no memory with the id {link.target} to link to: "
                "both must be of one project (or its sessions), or both the user's",
                field=field,
            ) from error
        if target.id == source_id:
            raise InvalidInput("a memory cannot be linked to itself", field=field)
        found.append((link, target))
    return found


def check_may_supersede(source_id: str, scope: Scope, links: Links, field: str) -> None:
    """Raises `InvalidInput` if a memory of one session alone would end what other sessions see."""
    for link, target in links:
        if link.relation == "supersedes" and scope == "session" and target.now.scope != "session":
            raise InvalidInput(
                f"{source_id} is this session's alone and cannot supersede {target.id}, which other sessions see: "
                "promote it to the project first (promote_memory)",
                field=field,
            )


def add_links(
    connection: sqlite3.Connection, operation: Operation, source: MemoryRow, links: Links, now: float
) -> bool:
    """Make links; whether any is new. One that supersedes ends the time in which its target is valid, if it has no end.

    That is a version of the target; the link itself is none of its source.
    """
    changed = False
    for link, target in links:
        made = connection.execute(
            "INSERT OR IGNORE INTO memory_links VALUES (?, ?, ?, ?, ?)",
            (source.number, target.number, link.relation, link.strength, now),
        )
        reweighed = connection.execute(
            """UPDATE memory_links SET strength = ?4
               WHERE source = ?1 AND target = ?2 AND relation = ?3 AND strength != ?4 AND relation != 'similar_to'""",
            (source.number, target.number, link.relation, link.strength),
        )
        changed = changed or made.rowcount + reweighed.rowcount > 0
        if made.rowcount and link.relation == "supersedes":
            _end_validity(connection, operation, source.id, target.id, now)
    return changed


def remove_links(
    connection: sqlite3.Connection, operation: Operation, source: MemoryRow, links: Links, now: float
) -> bool:
    """Remove links; whether any was there. The end of validity that a link had set goes with it."""
    changed = False
    for link, target in links:
        gone = connection.execute(
            "DELETE FROM memory_links WHERE source = ? AND target = ? AND relation = ?",
            (source.number, target.number, link.relation),
        )
        changed = changed or gone.rowcount > 0
        if gone.rowcount and link.relation == "supersedes":
            _restore_validity(connection, operation, source.id, target.id, now)
    return changed


def _end_validity(
    connection: sqlite3.Connection, operation: Operation, source_id: str, target_id: str, now: float
) -> None:
    target = memory_to_change(connection, operation, target_id)
    if target.now.valid_until is None:
        after = msgspec.structs.replace(target.now, valid_until=now)
        revise(connection, operation, target, after, SUPERSEDED, now, by=source_id)


def _restore_validity(
    connection: sqlite3.Connection, operation: Operation, source_id: str, target_id: str, now: float
) -> None:
    """What the history says that this link set, unless something else has set it since."""
    target = memory_to_change(connection, operation, target_id)
    history = read_history(query_of(connection), target.id)
    ended = [
        entry for entry in history if entry.change in (SUPERSEDED, INVALIDATED) and entry.details.get("by") == source_id
    ]
    if ended and target.now.valid_until is not None and ended[-1].record.valid_until == target.now.valid_until:
        after = msgspec.structs.replace(target.now, valid_until=None, invalid_reason=None)
        revise(connection, operation, target, after, "superseding_undone", now, by=source_id)


def _store(
    connection: sqlite3.Connection, operation: Operation, change: StoreMemory, now: float, session_limit: int | None
) -> Done:
    """Store a memory, in the place of another where it names one."""
    links: Links = []
    if change.supersedes is not None:
        wanted = [LinkRef("supersedes", change.supersedes)]
        links = find_targets(connection, operation, change.memory_id, wanted, "supersedes")
        check_may_supersede(change.memory_id, change.scope, links, "supersedes")
    done = store_memory(connection, operation, change, now, session_limit)
    if not (links or change.related):
        return done
    assert isinstance(done.result, StoredResult)
    made = memory_to_change(connection, operation, done.result.memory_id)
    add_links(connection, operation, made, [each for each in links if each[1].id != made.id], now)
    _, missing = relate(connection, operation, made, change.related, now)
    return replace(done, result=msgspec.structs.replace(done.result, missing=missing))


def relate(
    connection: sqlite3.Connection,
    operation: Operation,
    memory: MemoryRow,
    ids: Sequence[str],
    now: float,
    *,
    alone: bool = False,
) -> tuple[bool, tuple[str, ...]]:
    """Relate a memory to others, `alone` to these: such a link is one of both, whichever of them it begins at.

    Whether anything has changed, and what is not there.
    """
    present, wanted, missing = related_to(connection, memory.number, operation.session_id), {}, []
    for memory_id in dict.fromkeys(ids):
        try:
            target = memory_to_change(connection, operation, memory_id)
            check_remembered(target.id, target.now)
        except (NotFound, InvalidInput):
            missing.append(memory_id)
            continue
        if target.number != memory.number:
            wanted[target.number] = target
    links = [(LinkRef(RELATED, each.id), each) for number, each in wanted.items() if number not in present]
    changed = add_links(connection, operation, memory, links, now)
    for number in present - wanted.keys() if alone else ():
        connection.execute(
            """DELETE FROM memory_links WHERE relation = ?3
               AND (source = ?1 AND target = ?2 OR source = ?2 AND target = ?1)""",
            (memory.number, number, RELATED),
        )
        changed = True
    return changed, tuple(missing)


def update_memory(connection: sqlite3.Connection, operation: Operation, change: UpdateMemory, now: float) -> Done:
    """Change what the change names. Links alone make no new version."""
    memory = memory_to_change(connection, operation, change.memory_id)
    check_remembered(memory.id, memory.now)
    after = updated(memory.now, change)
    to_add = find_targets(connection, operation, memory.id, change.add_links, "add_links")
    check_may_supersede(memory.id, memory.now.scope, to_add, "add_links")
    to_remove = find_targets(connection, operation, memory.id, change.remove_links, "remove_links")
    made = revise(connection, operation, memory, after, "updated", now)
    _valid_again(connection, memory, after, now)
    relinked = [
        remove_links(connection, operation, memory, to_remove, now),
        add_links(connection, operation, memory, to_add, now),
    ]
    missing: tuple[str, ...] = ()
    if change.related is not None:
        changed, missing = relate(connection, operation, memory, change.related, now, alone=True)
        relinked.append(changed)
    fields = (*made.fields, "links") if any(relinked) else made.fields
    result = UpdatedResult(memory.id, fields, "content" in fields, made.version, missing)
    return Done(result, made.to_embed, made.removed_passages)


def tag_memory(connection: sqlite3.Connection, operation: Operation, change: TagMemory, now: float) -> Done:
    """Add tags and take tags away."""
    memory = memory_to_change(connection, operation, change.memory_id)
    check_remembered(memory.id, memory.now)
    after = tagged(memory.now, change)
    made = revise(connection, operation, memory, after, "tagged", now)
    return Done(TaggedResult(memory.id, after.tags, made.version))


def forget_memory(connection: sqlite3.Connection, operation: Operation, change: ForgetMemory, now: float) -> Done:
    """Hide a memory. For one that is forgotten already, the first reason stands."""
    memory = memory_to_change(connection, operation, change.memory_id)
    if memory.now.forgotten:
        return Done(ForgottenResult(memory.id, memory.now.forgotten_reason, already=True))
    after = msgspec.structs.replace(memory.now, forgotten=True, forgotten_reason=change.reason)
    revise(connection, operation, memory, after, "forgotten", now, reason=change.reason)
    return Done(ForgottenResult(memory.id, change.reason))


def invalidate_memory(
    connection: sqlite3.Connection, operation: Operation, change: InvalidateMemory, now: float
) -> Done:
    """End the time in which a memory is valid when somebody says so. If it is said again, another reason counts."""
    memory = memory_to_change(connection, operation, change.memory_id)
    check_remembered(memory.id, memory.now)
    wanted = [] if change.replaced_by is None else [LinkRef("supersedes", change.replaced_by)]
    replacing = find_targets(connection, operation, memory.id, wanted, "replaced_by")
    for link, newer in replacing:
        check_may_supersede(newer.id, newer.now.scope, [(link, memory)], "replaced_by")
    after = invalidated(memory.now, change.reason, operation.requested_at)
    by = replacing[0][1].id if replacing else None
    made = revise(connection, operation, memory, after, INVALIDATED, now, reason=change.reason, by=by)
    for link, newer in replacing:
        connection.execute(
            "INSERT OR IGNORE INTO memory_links VALUES (?, ?, ?, ?, ?)",
            (newer.number, memory.number, link.relation, link.strength, now),
        )
    assert after.valid_until is not None
    assert after.invalid_reason is not None
    return Done(
        InvalidatedResult(
            memory.id, after.valid_until, after.invalid_reason, made.version, memory.now.invalid_reason is not None
        )
    )


def _valid_again(connection: sqlite3.Connection, memory: MemoryRow, after: Snapshot, now: float) -> None:
    """What has not ended any more has not been replaced either."""
    if has_ended(memory.now.valid_until, now) and not has_ended(after.valid_until, now):
        connection.execute("DELETE FROM memory_links WHERE target = ? AND relation = 'supersedes'", (memory.number,))


def erase_memory(connection: sqlite3.Connection, operation: Operation, change: EraseMemory, now: float) -> Done:
    """Delete a memory for good, with its history; its id stays known as that of an erased one."""
    try:
        memory = memory_to_change(connection, operation, change.memory_id)
    except NotFound:
        was_erased = is_erased(connection, change.memory_id)
        if not was_erased and not change.was_queued:
            raise
        mark_erased(connection, change.memory_id, now)
        return Done(ErasedResult(change.memory_id, already=was_erased))
    said_by = connection.execute(
        """SELECT DISTINCT m.id FROM memory_links AS l JOIN memories AS m ON m.number = l.source
           WHERE l.target = ? AND l.relation = 'derived_from'""",
        (memory.number,),
    ).fetchall()
    if not memory.now.forgotten:  # what it stood for is active again, and no summary says any more what it said
        revise(connection, operation, memory, msgspec.structs.replace(memory.now, forgotten=True), "forgotten", now)
    removed = delete_memory(connection, memory.number)
    erase_traces(connection, memory.id, now)
    for known in {memory.id, change.memory_id}:
        mark_erased(connection, known, now)
    return Done(ErasedResult(memory.id, said_by=tuple(row[0] for row in said_by)), removed_passages=removed)


def restore_memory(connection: sqlite3.Connection, operation: Operation, change: RestoreMemory, now: float) -> Done:
    """Show a forgotten memory again, or make it what it was in an earlier version."""
    memory = memory_to_change(connection, operation, change.memory_id)
    if change.version is None and memory.now.forgotten:
        after = msgspec.structs.replace(memory.now, forgotten=False, forgotten_reason=None)
    elif change.version is None and memory.now.invalid_reason is not None:
        until: float | None = None
        for entry in read_history(query_of(connection), memory.id):
            if entry.record.invalid_reason is not None:
                break
            until = entry.record.valid_until
        after = msgspec.structs.replace(memory.now, valid_until=until, invalid_reason=None)
    else:
        after = reverted(memory.now, _earlier(connection, operation, memory, change.version))
    made = revise(
        connection, operation, memory, after, "restored", now, reason=change.reason, restored_version=change.version
    )
    _valid_again(connection, memory, after, now)
    result = RestoredResult(memory.id, made.version, made.fields, "content" in made.fields)
    return Done(result, made.to_embed, made.removed_passages)


def _earlier(connection: sqlite3.Connection, operation: Operation, memory: MemoryRow, version: int | None) -> Snapshot:
    """What a memory was in a version. One that the session may not see is as unknown to it as one that never was.

    Raises:
        InvalidInput: there is no such version, or none is named.
    """
    known = {
        entry.version: entry.record
        for entry in read_history(query_of(connection), memory.id)
        if is_version_visible(
            entry.record, memory.now.scope, memory.source_project, operation.session_id, operation.project.id
        )
    }
    if version is not None and version in known:
        return known[version]
    if version is None:
        message = f"{memory.id} is not forgotten: name the version to return to, one of {spans_of(known)}"
    else:
        message = f"{memory.id} has no version {version}: known are {spans_of(known)}"
    raise InvalidInput(message, field="version")


def promote_memory(connection: sqlite3.Connection, operation: Operation, change: PromoteMemory, now: float) -> Done:
    """Give a session's memory to its project, in the same file. The session stays known as where it came from."""
    memory = memory_to_change(connection, operation, change.memory_id)
    check_remembered(memory.id, memory.now)
    check_broader(memory.now.scope, change.target_scope)
    before = memory.now.scope
    made = revise(
        connection,
        operation,
        memory,
        msgspec.structs.replace(memory.now, scope=change.target_scope),
        "promoted",
        now,
        chain=(*memory.promotion_chain, step_of(memory.id, memory.now, change, now, None)),
        reason=change.reason,
        previous_scope=before,
        score=change.score,
    )
    log_promotion(connection, log_entry(memory.id, memory.now, change), None, now)
    return Done(PromotedResult(memory.id, before, change.target_scope, made.version, change.reason))


_encode_result: Final = msgspec.msgpack.Encoder().encode
_decode_result: Final = msgspec.msgpack.Decoder(Result).decode
_decode_operation: Final = msgspec.msgpack.Decoder(Operation).decode


def apply_operation(
    connection: sqlite3.Connection, operation: Operation, now: float, session_limit: int | None = None
) -> Outcome:
    """Apply once: a second call with the same operation id changes nothing and answers as the first did.

    A refusal is an outcome, and has written nothing. What SQLite raises leaves the transaction to be rolled back.
    """
    earlier = read_applied(query_of(connection), operation.operation_id)
    if earlier is not None:
        return Outcome(earlier)
    try:
        done = _carry_out(connection, operation, now, session_limit)
    except (InvalidInput, NotFound) as refusal:
        return Outcome(refusal)
    return record_done(connection, operation, done, now)


def read_applied(query: Query, operation_id: str) -> Applied | None:
    """The answer to an operation that was applied; None when it has not been. Raises `ValueError` for a damaged one."""
    rows = query("SELECT result FROM applied_operations WHERE operation_id = ?", (operation_id,))
    return Applied(operation_id, _decode_result(rows[0][0]), replayed=True) if rows else None


def record_done(connection: sqlite3.Connection, operation: Operation, done: Done, now: float) -> Outcome:
    """Note what came of an operation, from which its repetition will be answered."""
    connection.execute(
        "INSERT INTO applied_operations VALUES (?, ?, ?)", (operation.operation_id, _encode_result(done.result), now)
    )
    reply = Applied(operation.operation_id, done.result)
    return Outcome(reply, done.to_embed, done.removed_passages, done.also_to_embed)


def begin_note(connection: sqlite3.Connection, operation: Operation, result: NoteWritten) -> None:
    """Note that a note is about to be written."""
    connection.execute(
        "INSERT OR REPLACE INTO note_writes VALUES (?, ?, ?)",
        (operation.operation_id, _encode_result(operation), _encode_result(result)),
    )


def forget_note(connection: sqlite3.Connection, operation: Operation) -> None:
    """Note that it has not been written."""
    connection.execute("DELETE FROM note_writes WHERE operation_id = ?", (operation.operation_id,))


def end_note(connection: sqlite3.Connection, operation: Operation, result: NoteWritten, now: float) -> Outcome:
    """Note that it is written, and so the operation applied."""
    forget_note(connection, operation)
    register_session(connection, operation.session_id, now)
    return record_done(connection, operation, Done(result), now)


def notes_begun(query: Query) -> list[tuple[Operation, NoteWritten]]:
    """The notes that were begun and not ended."""
    found = []
    for operation, result in query("SELECT operation, result FROM note_writes ORDER BY operation_id", ()):
        written = _decode_result(result)
        assert isinstance(written, NoteWritten)
        found.append((_decode_operation(operation), written))
    return found


def _carry_out(connection: sqlite3.Connection, operation: Operation, now: float, session_limit: int | None) -> Done:
    match operation.change:
        case StoreMemory(memory_id=memory_id) if is_erased(connection, memory_id):
            raise InvalidInput(f"{memory_id} was erased for good: it is not stored again", field="memory_id")
        case StoreMemory() as change:
            return _store(connection, operation, change, now, session_limit)
        case ImportMemory() as change:
            return import_memory(connection, operation, change, now)
        case UpdateMemory() as change:
            done = update_memory(connection, operation, change, now)
        case TagMemory() as change:
            done = tag_memory(connection, operation, change, now)
        case ForgetMemory() as change:
            done = forget_memory(connection, operation, change, now)
        case EraseMemory() as change:
            return erase_memory(connection, operation, change, now)
        case RestoreMemory() as change:
            done = restore_memory(connection, operation, change, now)
        case InvalidateMemory() as change:
            done = invalidate_memory(connection, operation, change, now)
        case PromoteMemory() as change:
            done = promote_memory(connection, operation, change, now)
        case StartSession() as change:
            return start_session(connection, change, now)
        case EndSession() as change:
            return end_session(connection, change, now)
        case RecordEvents() as change:
            return record_events(connection, change, now)
        case ApplyRun() as change:
            return apply_run(connection, operation, change, now)
        case UndoRun() as change:
            return undo_run(connection, operation, change, now)
    register_session(connection, operation.session_id, now)
    return done
