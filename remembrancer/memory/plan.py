"""The plan of an operation: its edits in one space, and its result.

Pure: a plan depends only on the space and the operation, not on clocks or settings, so the same operations produce the
same space on every host. An operation is refused before its first edit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any, Final, TypeVar

import msgspec

from remembrancer.memory.changes import (
    changed_line,
    check_broader,
    check_remembered,
    invalidated,
    is_version_visible,
    joined,
    removed_words,
    reverted,
    spans_of,
    tagged,
    updated,
)
from remembrancer.memory.decay import has_ended
from remembrancer.memory.edits import (
    AddAlias,
    CountAccess,
    Delete,
    Edits,
    Erased,
    EraseTraces,
    Insert,
    Memory,
    NoteUse,
    Put,
    PutLink,
    Reader,
    RowEdit,
    Unlink,
)
from remembrancer.memory.found_names import tickets_in
from remembrancer.memory.moves import join_promoted, log_entry, propose_again, refuse_proposal, snapshot_of, step_of
from remembrancer.memory.planner import SIMILAR, Planner, restating
from remembrancer.memory.run_plan import apply_run, undo_run
from remembrancer.memory.sentences import first_words, quotable
from remembrancer.protocol.errors import InvalidInput, NotFound
from remembrancer.protocol.kinds import kind_of_type
from remembrancer.protocol.runs import ApplyRun, UndoRun
from remembrancer.protocol.session_life import EndSession, RecordEvents, SessionEntry, SessionResult, StartSession
from remembrancer.protocol.writes import (
    Change,
    ErasedResult,
    EraseMemory,
    ForgetMemory,
    ForgottenResult,
    HistoryEntry,
    ImportedResult,
    ImportMemory,
    InvalidatedResult,
    InvalidateMemory,
    LinkRef,
    MemoryVersion,
    Operation,
    PromotedResult,
    PromoteMemory,
    RecordedFields,
    RestoredResult,
    RestoreMemory,
    Result,
    Scope,
    StoredResult,
    StoreMemory,
    TaggedResult,
    TagMemory,
    TextEdit,
    UpdatedResult,
    UpdateMemory,
)

SUPERSEDES: Final = "supersedes"
OPEN_ENDS: Final = 50
"""The number of open ends that are compared with a new memory."""
TOUCHED: Final = 2
CONTRADICTS: Final = "contradicts"
SUPERSEDED: Final = "superseded"
INVALIDATED: Final = "invalidated"
"""The names of changes in the history that end a validity."""
RELATED: Final = "related_to"
"""The undirected relation: a link of one memory is a link of the other as well."""

T = TypeVar("T")
Targets = list[tuple[LinkRef, Memory]]
"""Requested links, each with its target."""


def plan(operation: Operation, known: Reader, member: str | None = None) -> Edits[Result]:
    """The edits of an operation on a space, each to be applied before the next is requested; the result comes last. In
    a shared lane, `member` requested the operation.

    Raises:
        InvalidInput, NotFound: the operation is refused; nothing has been yielded.
    """
    change, planner = operation.change, Planner(operation, known, member)
    if type(change) not in RULES:
        raise InvalidInput(f"a {type(change).__name__} is no change of records")
    result: Result = yield from RULES[type(change)](planner, change)
    if isinstance(change, BY_A_SESSION):
        yield from planner.note_active()
        if used := used_by(change):
            yield NoteUse(used, operation.session_id)
    return result


def carry_out(edits: Edits[T], apply: Callable[[RowEdit], int]) -> T:
    """Apply the edits of a plan in order, and return its result."""
    try:
        edit = next(edits)
        while True:
            edit = edits.send(apply(edit))
    except StopIteration as end:
        result: T = end.value
        return result


def used_by(change: Change) -> tuple[str, ...]:
    """The memories that a change uses: the changed one, and those that it links. Hiding a memory does not count as
    use."""
    match change:
        case UpdateMemory():
            return (change.memory_id, *(link.target for link in change.add_links), *(change.related or ()))
        case TagMemory() | RestoreMemory():
            return (change.memory_id,)
        case InvalidateMemory(replaced_by=str(newer)):
            return (newer,)
        case _:
            return ()


# --- Storing memories.


def _store(planner: Planner, change: StoreMemory) -> Edits[Result]:
    """Store a memory, which may supersede another. If the text exists already, its memory is merged with the new
    fields."""
    if planner.row(Erased, change.memory_id):
        raise InvalidInput(f"{change.memory_id} was erased for good: it is not stored again", field="memory_id")
    replaced = (change.supersedes,) if isinstance(change.supersedes, str) else change.supersedes or ()
    wanted = [LinkRef(SUPERSEDES, memory_id) for memory_id in replaced]
    links = _targets(planner, change.memory_id, wanted, "supersedes")
    _check_may_supersede(change.memory_id, change.scope, links, "supersedes")
    yield from planner.note_active()  # the session of the operation, which may differ from the memory's
    same = planner.known.same_content(change.content, planner.operation.session_id)
    known = planner.known_as(change, same)
    if known is None:
        fields = change.fields() | {
            "related_entities": tuple(dict.fromkeys(change.related_entities)),
            "kind": change.kind or kind_of_type(change.type),
        }
        first = MemoryVersion(**fields)
        yield from planner.insert(change.memory_id, first)
        duplicates = tuple(memory_id for memory_id, _, _ in same)
        touches = _touched(planner, change.content)
        edges = len(first.related_entities)
        result = StoredResult(change.memory_id, change.type, change.scope, edges, duplicates, touches=touches)
    else:
        others = tuple(memory_id for memory_id, _, _ in same if memory_id != known.id)
        result = yield from _store_again(planner, change, known, others)
    if links or change.related:
        made = planner.memory(result.memory_id)
        yield from _add_links(planner, made, [link for link in links if link[1].id != made.id])
        yield NoteUse(change.related, planner.operation.session_id)
        _, missing = yield from _relate(planner, made, change.related)
        result = msgspec.structs.replace(result, missing=missing)
    return result


def _touched(planner: Planner, content: str) -> tuple[tuple[str, str], ...]:
    """The newest open ends of earlier sessions that name a ticket of this text, with their first words: what is said of
    the ticket probably changes or closes them."""
    tickets = tickets_in(content)
    ends = planner.known.open_ends(planner.operation.session_id, OPEN_ENDS) if tickets else []
    naming = ((memory_id, first_words(text, 10)) for memory_id, text in ends if tickets & tickets_in(text))
    return tuple(islice(naming, TOUCHED))


def check_session_limit(operation: Operation, known: Reader, stored: int, limit: int) -> None:
    """Raises `InvalidInput` if a change would store a memory in a session that has already stored `limit` of them.

    The limit is a setting of one host, so it is not part of a plan, but checked before it.
    """
    change = operation.change
    if stored < limit or not isinstance(change, StoreMemory):
        return
    if Planner(operation, known).known_as(change) is None:
        raise InvalidInput(
            f"this session has stored {stored} memories, and the setting max_memories_per_session allows "
            f"{limit}: forget what is not needed, or update a memory instead"
        )


def _store_again(planner: Planner, change: StoreMemory, known: Memory, others: tuple[str, ...]) -> Edits[StoredResult]:
    """Merge a restated text into the memory that has it, and make the new id an alias of it."""
    revised = yield from planner.revise(known, joined(known.now, change), "stored again")
    yield AddAlias(change.memory_id, known.id)
    yield CountAccess(known.id, known.access_count + 1, planner.at)
    yield NoteUse((known.id,), planner.operation.session_id)
    had = known.now.related_entities
    edges = len({*had, *change.related_entities}) - len(had)
    return StoredResult(
        known.id, known.now.type, known.now.scope, edges, others, already_known=True, updated_fields=revised.fields
    )


def _import(planner: Planner, change: ImportMemory) -> Edits[Result]:
    """Import a memory unchanged. Does nothing if its id exists already."""
    memory = change.memory
    if planner.row(Erased, memory.id):
        raise InvalidInput(f"{memory.id} was erased for good: it is not imported again", field="id")
    present = planner.known.memory(memory.id)
    if present is not None and present.id == memory.id:
        return ImportedResult(memory.id, "present")
    if change.joins_same and memory.forgotten_at is None:
        again = restating(memory.id, memory, memory.created_at, memory.scope)
        known = planner.known_as(again, planner.known.same_content(memory.content, ""))
        if known is not None:
            yield from planner.revise(known, joined(known.now, again), "stored again")
            if present is None:
                yield AddAlias(memory.id, known.id)
            return ImportedResult(known.id, "present")
    history = memory.history
    if all(entry.version != memory.version for entry in history):
        history = (*history, planner.entry(memory.version, "imported", snapshot_of(memory), planner.at))
    yield Insert(msgspec.structs.replace(memory, history=history), planner.at, comes_whole=True)
    return ImportedResult(memory.id, "imported")


# --- Changing memories.


def _update(planner: Planner, change: UpdateMemory) -> Edits[UpdatedResult]:
    """Change the given fields. Links alone do not make a new version."""
    memory = planner.memory(change.memory_id)
    check_remembered(memory.id, memory.now)
    after = updated(memory.now, change)
    to_add = _targets(planner, memory.id, change.add_links, "add_links")
    _check_may_supersede(memory.id, memory.now.scope, to_add, "add_links")
    to_remove = _targets(planner, memory.id, change.remove_links, "remove_links")
    made = yield from planner.revise(memory, after, "updated", reason=change.reason)
    yield from _valid_again(planner, memory, after)
    unlinked = yield from _remove_links(planner, memory, to_remove)
    relinked = yield from _add_links(planner, memory, to_add, change.reason)
    missing: tuple[str, ...] = ()
    if change.related is not None:
        related, missing = yield from _relate(planner, memory, change.related, alone=True)
        relinked = relinked or related
    fields = (*made.fields, "links") if unlinked or relinked else made.fields
    line = changed_line(memory.now.content, change.content) if isinstance(change.content, TextEdit) else ""
    was = removed_words(memory.now.content, change.content) if isinstance(change.content, str) else ""
    return UpdatedResult(memory.id, fields, "content" in fields, made.version, missing, line, was)


def _tag(planner: Planner, change: TagMemory) -> Edits[TaggedResult]:
    """Add and remove tags."""
    memory = planner.memory(change.memory_id)
    check_remembered(memory.id, memory.now)
    after = tagged(memory.now, change)
    made = yield from planner.revise(memory, after, "tagged")
    return TaggedResult(memory.id, after.tags, made.version)


def _forget(planner: Planner, change: ForgetMemory) -> Edits[ForgottenResult]:
    """Hide a memory. If it is already forgotten, the first reason stays."""
    memory = planner.memory(change.memory_id)
    if memory.now.forgotten:
        return ForgottenResult(memory.id, memory.now.forgotten_reason, already=True)
    after = msgspec.structs.replace(memory.now, forgotten=True, forgotten_reason=change.reason)
    yield from planner.revise(memory, after, "forgotten", reason=change.reason)
    return ForgottenResult(memory.id, change.reason)


def _restore(planner: Planner, change: RestoreMemory) -> Edits[RestoredResult]:
    """Restore a forgotten memory, or return to an earlier version. If the memory is neither forgotten nor invalidated,
    renew a refused proposal to promote it to the user."""
    memory = planner.memory(change.memory_id)
    is_whole = not memory.now.forgotten and memory.now.invalid_reason is None
    if change.version is None and is_whole and (yield from propose_again(planner, memory.id)):
        return RestoredResult(memory.id, memory.version, (), False)
    if change.version is None and memory.now.forgotten:
        after = msgspec.structs.replace(memory.now, forgotten=False, forgotten_reason=None)
    elif change.version is None and memory.now.invalid_reason is not None:
        after = msgspec.structs.replace(
            memory.now, valid_until=_valid_until_before(planner, memory.id), invalid_reason=None
        )
    else:
        after = reverted(memory.now, _earlier(planner, memory, change.version))
    made = yield from planner.revise(memory, after, "restored", reason=change.reason, restored_version=change.version)
    yield from _valid_again(planner, memory, after)
    return RestoredResult(memory.id, made.version, made.fields, "content" in made.fields)


def _valid_until_before(planner: Planner, memory_id: str) -> float | None:
    """The end of the validity in the last version before the invalidation."""
    valid = [entry.record for entry in planner.known.history(memory_id) if entry.record.invalid_reason is None]
    return valid[-1].valid_until if valid else None


def _earlier(planner: Planner, memory: Memory, version: int | None) -> MemoryVersion:
    """An earlier version of a memory. Versions that the session may not see count as missing.

    Raises:
        InvalidInput: there is no such version, or none was given.
    """
    operation, scope, source = planner.operation, memory.now.scope, memory.source_project
    known = {
        entry.version: entry.record
        for entry in planner.known.history(memory.id)
        if is_version_visible(entry.record, scope, source, operation.session_id, operation.project.id)
    }
    if version is not None and version in known:
        return known[version]
    if version is None:
        message = f"{memory.id} is not forgotten: name the version to return to, one of {spans_of(known)}"
    else:
        message = f"{memory.id} has no version {version}: known are {spans_of(known)}"
    raise InvalidInput(message, field="version")


def _invalidate(planner: Planner, change: InvalidateMemory) -> Edits[InvalidatedResult]:
    """End the validity of a memory. If it was already invalidated, the new reason replaces the old one."""
    memory = planner.memory(change.memory_id)
    check_remembered(memory.id, memory.now)
    wanted = [] if change.replaced_by is None else [LinkRef(SUPERSEDES, change.replaced_by)]
    replacing = _targets(planner, memory.id, wanted, "replaced_by")
    for link, newer in replacing:
        _check_may_supersede(newer.id, newer.now.scope, [(link, memory)], "replaced_by")
    after = invalidated(memory.now, change.reason, planner.at if change.at is None else change.at)
    by = replacing[0][1].id if replacing else None
    made = yield from planner.revise(memory, after, INVALIDATED, reason=change.reason, by=by)
    for link, newer in replacing:
        if planner.link(newer.id, memory.id, link.relation) is None:
            yield PutLink(newer.id, memory.id, link.relation, link.strength, planner.at)
    assert after.valid_until is not None
    assert after.invalid_reason is not None
    already = memory.now.invalid_reason is not None
    return InvalidatedResult(memory.id, after.valid_until, after.invalid_reason, made.version, already)


def _valid_again(planner: Planner, memory: Memory, after: MemoryVersion) -> Edits[None]:
    """Remove the links that supersede a memory if a change makes it valid again."""
    if has_ended(memory.now.valid_until, planner.at) and not has_ended(after.valid_until, planner.at):
        for link in planner.known.links(memory.id):
            if link.target == memory.id and link.relation == SUPERSEDES:
                yield Unlink(link.source, link.target, SUPERSEDES)


def _promote(planner: Planner, change: PromoteMemory) -> Edits[PromotedResult]:
    """Promote a session's memory to its project, in the same space. The session is recorded as its origin.

    Promoting a project's memory to the project refuses the proposal to promote it to the user.
    """
    memory = planner.memory(change.memory_id)
    check_remembered(memory.id, memory.now)
    if memory.now.scope == change.target_scope:
        refused = yield from refuse_proposal(planner, memory.id, change.reason)
        if refused:
            return PromotedResult(memory.id, "project", "project", memory.version, change.reason)
    check_broader(memory.now.scope, change.target_scope)
    before = memory.now.scope
    again = restating(memory.id, memory.now, memory.created_at, change.target_scope)
    if (known := planner.known_as(again)) is not None:
        reason = f"merged into {known.id}, which says the same"
        hidden = msgspec.structs.replace(memory.now, status="promoted")
        made = yield from planner.revise(memory, hidden, "promoted", reason=change.reason or reason)
        yield from join_promoted(planner, known, again, memory.now, change, None)
        yield PutLink(memory.id, known.id, "supports", 1.0, planner.at)
        return PromotedResult(memory.id, before, change.target_scope, made.version, change.reason, known.id)
    made = yield from planner.revise(
        memory,
        msgspec.structs.replace(memory.now, scope=change.target_scope),
        "promoted",
        chain=(*memory.promotion_chain, step_of(memory.id, memory.now, change, planner.at, None)),
        reason=change.reason,
        previous_scope=before,
        score=change.score,
    )
    yield from planner.log_promotion(log_entry(memory.id, memory.now, change))
    return PromotedResult(memory.id, before, change.target_scope, made.version, change.reason)


# --- Links.


def _targets(planner: Planner, source_id: str, links: Iterable[LinkRef], field: str) -> Targets:
    """The targets of links. `field` is the argument that had them.

    Raises:
        InvalidInput: a target is the memory itself, or not a memory in the same space that the session can see.
    """
    targets: Targets = []
    for link in dict.fromkeys(links):
        try:
            target = planner.memory(link.target)
        except NotFound as error:
            raise InvalidInput(
                f"there is no memory with the id {link.target} to link to: "
                "both must be of one project (or its sessions), or both the user's",
                field=field,
            ) from error
        if target.id == source_id:
            raise InvalidInput("a memory cannot be linked to itself", field=field)
        targets.append((link, target))
    return targets


def _check_may_supersede(source_id: str, scope: Scope, links: Targets, field: str) -> None:
    """Raises `InvalidInput` if a session's private memory would end the validity of one that other sessions see."""
    for link, target in links:
        if link.relation == SUPERSEDES and scope == "session" and target.now.scope != "session":
            raise InvalidInput(
                f"{source_id} is this session's alone and cannot supersede {target.id}, which other sessions see: "
                "promote it to the project first",
                field=field,
                remedy="promote_memory",
            )


def _add_links(planner: Planner, source: Memory, links: Targets, reason: str | None = None) -> Edits[bool]:
    """Add links; True if one is new or has another strength. A superseding link ends the validity of its target, if
    that is open.

    This makes a version of the target, with the reason; the link itself does not make a version of its source.
    """
    changed = False
    for link, target in links:
        present = planner.link(source.id, target.id, link.relation)
        if present is None:
            yield PutLink(source.id, target.id, link.relation, link.strength, planner.at)
            if link.relation not in (SIMILAR, CONTRADICTS, SUPERSEDES):  # then both are valid
                for one, other in ((source.id, target.id), (target.id, source.id)):
                    if planner.link(one, other, CONTRADICTS) is not None:
                        yield Unlink(one, other, CONTRADICTS)
            if link.relation == SUPERSEDES:
                yield from _end_validity(planner, source.id, target.id, reason)
        elif present.strength != link.strength and link.relation != SIMILAR:
            yield msgspec.structs.replace(present, strength=link.strength)
        else:
            continue
        changed = True
    return changed


def _remove_links(planner: Planner, source: Memory, links: Targets) -> Edits[bool]:
    """Remove links; True if one existed. An end of validity that a link had set is removed with it."""
    changed = False
    for link, target in links:
        if planner.link(source.id, target.id, link.relation) is not None:
            changed = True
            yield Unlink(source.id, target.id, link.relation)
            if link.relation == SUPERSEDES:
                yield from _restore_validity(planner, source.id, target.id)
    return changed


def _end_validity(planner: Planner, source_id: str, target_id: str, reason: str | None) -> Edits[None]:
    target = planner.memory(target_id)
    if target.now.valid_until is None:
        after = msgspec.structs.replace(target.now, valid_until=planner.at)
        yield from planner.revise(target, after, SUPERSEDED, by=source_id, reason=reason)


def _restore_validity(planner: Planner, source_id: str, target_id: str) -> Edits[None]:
    """Restore from the history the validity that a link ended, unless another change has set it since."""
    target = planner.memory(target_id)
    ended = [
        entry
        for entry in planner.known.history(target.id)
        if entry.change in (SUPERSEDED, INVALIDATED) and entry.details.get("by") == source_id
    ]
    if ended and target.now.valid_until is not None and ended[-1].record.valid_until == target.now.valid_until:
        until = None if target.now.invalid_reason is None else _valid_until_before(planner, target.id)
        after = msgspec.structs.replace(target.now, valid_until=until, invalid_reason=None)
        yield from planner.revise(target, after, "superseding_undone", by=source_id)


def _relate(
    planner: Planner, memory: Memory, ids: Sequence[str], *, alone: bool = False
) -> Edits[tuple[bool, tuple[str, ...]]]:
    """Relate a memory to others; with `alone`, all links to other memories are removed, in either direction.

    Returns whether anything has changed, and the unknown ids.
    """
    wanted: dict[str, Memory] = {}
    missing: list[str] = []
    for memory_id in dict.fromkeys(ids):
        try:
            target = planner.memory(memory_id)
            check_remembered(target.id, target.now)
        except (NotFound, InvalidInput):
            missing.append(memory_id)
            continue
        if target.id != memory.id:
            wanted[target.id] = target
    links = [link for link in planner.known.links(memory.id) if link.relation == RELATED]
    others = {link: link.target if link.source == memory.id else link.source for link in links}
    new: Targets = [(LinkRef(RELATED, target), wanted[target]) for target in wanted if target not in others.values()]
    changed = yield from _add_links(planner, memory, new)
    for link, other in others.items() if alone else ():
        related = planner.known.memory(other)
        if other not in wanted and related is not None and planner.sees(related) and not related.now.forgotten:
            yield Unlink(link.source, link.target, RELATED)
            changed = True
    return changed, tuple(missing)


# --- Deleting memories for good.


def _erase(planner: Planner, change: EraseMemory) -> Edits[ErasedResult]:
    """Delete a memory for good, with its history. Its id remains known as erased."""
    known = planner.known
    try:
        memory = planner.memory(change.memory_id)
    except NotFound:
        was_erased = planner.row(Erased, change.memory_id) is not None
        if not was_erased:
            if not change.was_queued:
                raise
            yield Put(Erased(change.memory_id, planner.at))
        return ErasedResult(change.memory_id, already=was_erased)
    derived = planner.derived_from(memory.id, known.links(memory.id))
    texts = _all_texts(known, memory)
    quotes = (*(text.strip() for text in texts), *quotable(texts))  # in memories derived from it
    also = [made for made in derived if _is_made_by_run(known, made.id) and _says_any(known, made, quotes)]
    record = known.session_record(memory.now.session_id)
    quoting = list(also)
    if record is not None and record.id != memory.id and _says_any(known, record, quotes):
        quoting.append(record)
    for gone in (*quoting, memory):
        if not gone.now.forgotten:  # activates the memories that it stood for, and forgets its summaries
            yield from planner.revise(gone, msgspec.structs.replace(gone.now, forgotten=True), "forgotten")
        yield Delete(gone.id)
        yield EraseTraces(gone.id)
    also_erased = tuple(made.id for made in also)
    for memory_id in dict.fromkeys((memory.id, change.memory_id, *also_erased)):
        yield Put(Erased(memory_id, planner.at))
    said_by = tuple(made.id for made in derived if made not in also and made != record)
    return ErasedResult(memory.id, said_by=said_by, also_erased=also_erased)


def texts_of(now: RecordedFields, history: Iterable[HistoryEntry]) -> tuple[str, ...]:
    """The contents and summaries of all versions of a memory."""
    versions = [*(entry.record for entry in history), now]
    return tuple(dict.fromkeys(text for version in versions for text in (version.content, version.summary) if text))


def _all_texts(known: Reader, memory: Memory) -> tuple[str, ...]:
    return texts_of(memory.now, known.history(memory.id))


def _is_made_by_run(known: Reader, memory_id: str) -> bool:
    """True if a memory was derived in the background, and never stored by anybody."""
    return any(entry.version == 1 and entry.details.get("run") is not None for entry in known.history(memory_id))


def _says_any(known: Reader, memory: Memory, quotes: Sequence[str]) -> bool:
    """True if any version of a memory contains one of these quotations."""
    return any(quote in text for text in _all_texts(known, memory) for quote in quotes)


# --- Sessions.


def _start_session(planner: Planner, change: StartSession) -> Edits[SessionResult]:
    """Register a session, or reopen it."""
    before = planner.row(SessionEntry, change.session_id)
    if before is None:
        entry = SessionEntry(change.session_id, planner.at, planner.at, client=change.client)
    else:
        entry = msgspec.structs.replace(
            before,
            last_active_at=max(before.last_active_at, planner.at),
            status="active",
            ended_at=None,
            ending=None,
            client=change.client or before.client,
        )
    yield Put(entry)
    return _result(planner, change.session_id)


def _end_session(planner: Planner, change: EndSession) -> Edits[SessionResult]:
    """Record the end of a session and write its record; the rest is done later. Unknown and ended sessions stay as they
    are.

    A session that ended once, and continues without a second end, does not count as abandoned.
    """
    before = planner.row(SessionEntry, change.session_id)
    if before is not None and before.status == "active" and before.ended_at is None:
        ending = (before.ending or "abandoned") if change.how == "abandoned" else "completed"
        yield Put(msgspec.structs.replace(before, ended_at=planner.at, ending=ending))
        yield from planner.write_record(change.session_id)
    return _result(planner, change.session_id)


def _record_events(planner: Planner, change: RecordEvents) -> Edits[SessionResult]:
    """Record turns and tool calls of a session."""
    yield from planner.note_active(change.session_id)
    yield change
    return SessionResult(change.session_id, "active", planner.known.turns(change.session_id))


def _result(planner: Planner, session_id: str) -> SessionResult:
    entry = planner.row(SessionEntry, session_id)
    return SessionResult(session_id, "abandoned" if entry is None else entry.status, planner.known.turns(session_id))


RULES: Final[dict[type[Any], Callable[[Planner, Any], Edits[Any]]]] = {
    StoreMemory: _store,
    ImportMemory: _import,
    UpdateMemory: _update,
    TagMemory: _tag,
    ForgetMemory: _forget,
    RestoreMemory: _restore,
    InvalidateMemory: _invalidate,
    PromoteMemory: _promote,
    EraseMemory: _erase,
    StartSession: _start_session,
    EndSession: _end_session,
    RecordEvents: _record_events,
    ApplyRun: apply_run,
    UndoRun: undo_run,
}
"""The rule for each change."""
BY_A_SESSION: Final = (UpdateMemory, TagMemory, ForgetMemory, RestoreMemory, InvalidateMemory, PromoteMemory)
"""The changes that record their session as active; stores do so in their own rule."""
