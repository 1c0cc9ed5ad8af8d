"""The rules of operations: the changes that each operation makes in one space, and its result.

They depend only on the space and the operation, not on clocks or settings, so the same operations produce the same
space on every host of a shared lane. An operation that is refused writes nothing.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import Any, Final, NamedTuple, get_type_hints

import msgspec

from remembrancer.actors.store.records.memory_rows import RELATED, read_copies
from remembrancer.actors.store.records.moves import (
    join_promoted,
    log_step,
    propose_again,
    refuse_proposal,
    snapshot_of,
)
from remembrancer.actors.store.records.run_rules import CHANGED_SINCE, apply_run, begin_run, undo_run
from remembrancer.actors.store.records.sessions import session_record_of
from remembrancer.actors.store.records.sqlite_edits import SIMILAR, SqliteEdits
from remembrancer.actors.store.records.types import Link, Memory
from remembrancer.actors.store.records.writer import LinkBefore, Writer, restating
from remembrancer.memory.changes import (
    RESTORED,
    UNDONE,
    before_change,
    changed_line,
    check_broader,
    check_remembered,
    continuing,
    differences,
    invalidated,
    is_version_visible,
    is_visible,
    joined,
    reverted,
    spans_of,
    standing,
    tagged,
    texts_of,
    updated,
)
from remembrancer.memory.decay import has_ended
from remembrancer.memory.sentences import first_words, quotable
from remembrancer.protocol.errors import InvalidInput, NotFound
from remembrancer.protocol.kinds import kind_of_type
from remembrancer.protocol.runs import IMPORT, IMPORT_UNDONE
from remembrancer.protocol.session_life import SHELL_SESSION, EndSession, RecordEvents, SessionResult, StartSession
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
    PromotedResult,
    PromoteMemory,
    RestoredResult,
    RestoreMemory,
    Result,
    Scope,
    StoredResult,
    StoreMemory,
    TaggedResult,
    TagMemory,
    TextEdit,
    UndoChange,
    UpdatedResult,
    UpdateMemory,
)

SUPERSEDES: Final = "supersedes"
CONTRADICTS: Final = "contradicts"
SUPERSEDED: Final = "superseded"
INVALIDATED: Final = "invalidated"
"""`SUPERSEDED` and `INVALIDATED` are the changes that end a memory's validity."""
SUPERSEDING: Final = "superseding"
"""The name of the undone change by which a memory had replaced another."""
SUPERSEDING_UNDONE: Final = "superseding_undone"
BOTH_HOLD: Final = "both hold"
LINKED: Final = "linked"
FORMER_WORDS: Final = 8
"""The number of words that an answer quotes from a text that was replaced completely."""

Targets = list[tuple[LinkRef, Memory]]


def apply_rule(writer: Writer) -> Result:
    """Apply an operation. If it is refused, raises `InvalidInput` or `NotFound` before anything is written."""
    change = writer.operation.change
    if type(change) not in RULES:
        raise InvalidInput(f"a {type(change).__name__} does not change records")
    result = RULES[type(change)](writer, change)
    used = _used_by(change)
    if used is not None:
        writer.note_active()
        writer.space.note_use(used, writer.operation.session_id)
    return result


def _used_by(change: Change) -> tuple[str, ...] | None:
    """The memories that a session uses through a change: the changed memory, and those linked by the change. Hiding
    does not count. None if the change does not make the operation's session (perhaps not the memory's own) active."""
    match change:
        case StoreMemory():
            return change.related
        case UpdateMemory():
            return (change.memory_id, *(link.target for link in change.add_links), *(change.related or ()))
        case TagMemory() | RestoreMemory() | UndoChange():
            return (change.memory_id,)
        case InvalidateMemory(replaced_by=newer):
            return () if newer is None else (newer,)
        case ForgetMemory() | PromoteMemory():
            return ()
        case _:
            return None


# --- Storing memories.


def _store(writer: Writer, change: StoreMemory) -> Result:
    """Store a memory, which may supersede another. If an old memory has the same text, the new fields are merged into
    it, unless a later memory may have replaced it: in that case, the new memory supersedes the old one."""
    if writer.space.erased_at(change.memory_id) is not None:
        raise InvalidInput(f"{change.memory_id} was erased for good and cannot be stored again", field="memory_id")
    replaced = (change.supersedes,) if isinstance(change.supersedes, str) else change.supersedes or ()
    wanted = [LinkRef(SUPERSEDES, memory_id) for memory_id in replaced]
    links = _targets(writer, change.memory_id, wanted, "supersedes", change.scope)
    known = writer.known_as(change)
    doubts = [] if known is None else _doubts_about(writer, known)
    if known is not None and not doubts:
        result = _store_again(writer, change, known)
    else:
        if writer.session_limit is not None:
            check_session_limit(writer, change, writer.session_limit)
        fields = change.fields() | {
            "related_entities": tuple(dict.fromkeys(change.related_entities)),
            "kind": change.kind or kind_of_type(change.type),
        }
        first = MemoryVersion(**fields)
        if known is not None:
            links.append((LinkRef(SUPERSEDES, known.id), known))
            own = {name: getattr(first, name) for name in ("session_id", "occurred_at", "status")}
            first = msgspec.structs.replace(joined(known.now, change), **own)
        for _, target in links:
            first = continuing(first, writer.at, target.now)
        writer.insert(change.memory_id, first)
        for strength, other in doubts:  # the repeated text is now the newer of the pair
            writer.space.put_link(change.memory_id, other.id, CONTRADICTS, strength, writer.at)
        moved_to = first.due if first.due != change.due else None
        result = StoredResult(change.memory_id, change.scope, len(first.related_entities), moved_to=moved_to)
    if links or change.related:
        made = writer.memory(result.memory_id)
        _add_links(writer, made, [link for link in links if link[1].id != made.id])
        _, missing = _relate(writer, made, change.related)
        result = msgspec.structs.replace(result, missing=missing)
    return result


def check_session_limit(writer: Writer, change: StoreMemory, limit: int) -> None:
    """Raises `InvalidInput` if a session has already stored `limit` memories, not counting derived ones."""
    ((stored,),) = writer.space.query(
        """SELECT count(*) FROM memories
           WHERE space = @SPACE AND session_id = ? AND forgotten_at IS NULL AND NOT EXISTS (
               SELECT 1 FROM memory_links WHERE source = number AND relation = 'derived_from')""",
        (change.session_id,),
    )
    if stored >= limit:
        raise InvalidInput(
            f"this session has stored {stored} memories, and the setting max_memories_per_session allows "
            f"{limit}; forget what is not needed, or update a memory instead"
        )


def _store_again(writer: Writer, change: StoreMemory, known: Memory) -> StoredResult:
    revised = writer.revise(known, joined(known.now, change), "stored again")
    writer.space.add_alias(change.memory_id, known.id)
    writer.space.count_accesses([known.number], writer.at)
    writer.space.note_use((known.id,), writer.operation.session_id)
    had = known.now.related_entities
    edges = len({*had, *change.related_entities}) - len(had)
    return StoredResult(known.id, known.now.scope, edges, already_known=True, updated_fields=revised.fields)


def _import(writer: Writer, change: ImportMemory) -> Result:
    """Import a memory unchanged. An existing memory changes only if undoing an import had forgotten it."""
    memory = change.memory
    if writer.space.erased_at(memory.id) is not None:
        raise InvalidInput(f"{memory.id} was erased for good and cannot be imported again", field="id")
    present = writer.space.memory(memory.id)
    if present is not None and present.id == memory.id:
        is_undone = present.now.forgotten_reason == IMPORT_UNDONE and memory.forgotten_at is None
        if change.run_id is not None and is_undone:
            after = msgspec.structs.replace(present.now, forgotten=False, forgotten_reason=None)
            writer.revise(present, after, RESTORED, imported=change.run_id)
            begin_run(writer, change.run_id, IMPORT, SHELL_SESSION)
        return ImportedResult(memory.id)
    if change.joins_same and memory.forgotten_at is None:
        again = restating(memory.id, memory, memory.created_at, memory.scope)
        if (known := writer.known_as(again, "")) is not None:
            writer.revise(known, joined(known.now, again), "stored again")
            if present is None:
                writer.space.add_alias(memory.id, known.id)
            return ImportedResult(known.id)
    history = memory.history
    if all(entry.version != memory.version for entry in history):
        history = (*history, writer.entry(memory.version, "imported", snapshot_of(memory), writer.at))
    if change.run_id is not None:
        details = {**history[-1].details, "imported": change.run_id}
        history = (*history[:-1], msgspec.structs.replace(history[-1], details=details))
        begin_run(writer, change.run_id, IMPORT, SHELL_SESSION)
    writer.space.insert(msgspec.structs.replace(memory, history=history), writer.at, comes_whole=True)
    return ImportedResult(memory.id)


# --- Changing memories.


def _update(writer: Writer, change: UpdateMemory) -> UpdatedResult:
    """A change of links makes a version of its own; in a shared lane, links that each host makes for itself do not."""
    memory = writer.memory(change.memory_id)
    check_remembered(memory.id, memory.now)
    after = updated(memory.now, change, writer.at)
    to_add = _targets(writer, memory.id, change.add_links, "add_links", memory.now.scope)
    to_remove = _targets(writer, memory.id, change.remove_links, "remove_links")
    is_closed = change.done and not (memory.now.done or after.done)  # its kind has changed, too
    name, links = "closed" if is_closed else "updated", _valid_again(writer, memory, after)
    writer.revise(memory, after, name, reason=change.reason, links=links)
    unlinked = [link for link, target in to_remove if _remove_link(writer, memory.id, target.id, link.relation)]
    relinked = _add_links(writer, memory, to_add, change.reason)
    missing: tuple[str, ...] = ()
    if change.related is not None:
        related, missing = _relate(writer, memory, change.related, alone=True)
        relinked = relinked or related
    if any(writer.member is None or relation not in (SIMILAR, CONTRADICTS) for _, _, relation, _ in writer.links):
        one = writer.memory(memory.id)
        writer.revise(one, one.now, LINKED, chain=one.promotion_chain, reason=change.reason, links=writer.links)
    now = writer.memory(memory.id)
    fields = (*differences(memory.now, now.now), *(["links"] if unlinked or relinked else []))
    line = ""
    if isinstance(change.content, TextEdit):
        line = changed_line(memory.now.content, change.content)
    elif "content" in fields:
        line = first_words(memory.now.content, FORMER_WORDS)
    return UpdatedResult(memory.id, fields, now.version, missing, line)


def _tag(writer: Writer, change: TagMemory) -> TaggedResult:
    memory = writer.memory(change.memory_id)
    check_remembered(memory.id, memory.now)
    after = tagged(memory.now, change)
    made = writer.revise(memory, after, "tagged")
    return TaggedResult(memory.id, after.tags, bool(made.fields))


def _forget(writer: Writer, change: ForgetMemory) -> ForgottenResult:
    memory = writer.memory(change.memory_id)
    if memory.now.forgotten:
        return ForgottenResult(memory.id, memory.now.forgotten_reason, already=True)
    after = msgspec.structs.replace(memory.now, forgotten=True, forgotten_reason=change.reason)
    writer.revise(memory, after, "forgotten", reason=change.reason)
    return ForgottenResult(memory.id, change.reason)


def _restore(writer: Writer, change: RestoreMemory) -> RestoredResult:
    """Restore a forgotten memory, or return to an earlier version. If the memory is neither forgotten nor invalidated,
    undo its replacement by another memory, and renew a refused proposal to promote it to the user."""
    memory = writer.memory(change.memory_id)
    if change.version is None and memory.now.forgotten:
        after = msgspec.structs.replace(memory.now, forgotten=False, forgotten_reason=None)
    elif change.version is None and memory.now.invalid_reason is not None:
        until = _valid_until_before(writer, memory.id)
        after = msgspec.structs.replace(memory.now, valid_until=until, invalid_reason=None)
    elif change.version is None and (result := _hold_again(writer, memory)) is not None:
        return result
    elif change.version is None and (until := _valid_until_before(writer, memory.id)) != memory.now.valid_until:
        after = msgspec.structs.replace(memory.now, valid_until=until)  # the memory that replaced it was erased
    else:
        after = reverted(memory.now, _earlier(writer, memory, change.version))
    links, version = _valid_again(writer, memory, after), change.version
    made = writer.revise(memory, after, RESTORED, reason=change.reason, restored_version=version, links=links)
    return RestoredResult(memory.id, made.version, made.fields)


def _hold_again(writer: Writer, memory: Memory) -> RestoredResult | None:
    """Undo the replacement of a memory, and renew its refused proposal. None if there is neither."""
    replacing = _replacing(writer, memory)
    is_replaced = any(link.relation == SUPERSEDES for link, _ in replacing)
    for _, newer in replacing:
        _remove_link(writer, newer.id, memory.id, SUPERSEDES)
        if not is_replaced:  # if it is, nobody has decided about the doubtful pair
            _add_links(writer, newer, [(LinkRef(RELATED, memory.id), memory)])
    proposed_again = propose_again(writer, memory.id)
    if not (replacing or proposed_again):
        return None
    held = writer.memory(memory.id)
    fields = ("valid_until",) if held.now.valid_until != memory.now.valid_until else ()
    return RestoredResult(memory.id, held.version, fields, proposed_again=proposed_again)


def _replacing(writer: Writer, memory: Memory) -> list[tuple[Link, Memory]]:
    """The memories visible to the session that replace this one (`supersedes`) or probably do (`contradicts`)."""
    return [
        (link, other)
        for link in writer.space.links(memory.id)
        if link.relation == CONTRADICTS or (link.relation == SUPERSEDES and link.target == memory.id)
        if (other := writer.space.memory(link.source if link.target == memory.id else link.target)) is not None
        if writer.sees(other) and (link.relation == SUPERSEDES or other.age_key > memory.age_key)
    ]


def _doubts_about(writer: Writer, memory: Memory) -> list[tuple[float, Memory]]:
    """The later, valid memories that may replace this one, with their probabilities; none in a shared lane."""
    later = [] if writer.member is not None else _replacing(writer, memory)
    valid = ((link, other) for link, other in later if not (other.now.forgotten or other.now.valid_until))
    return [(link.strength, other) for link, other in valid if link.relation == CONTRADICTS]


class Undo(NamedTuple):
    """The changes to undo, latest first: those of the last operation in effect on `memory`, which becomes `after`."""

    memory: Memory
    changes: Sequence[HistoryEntry]
    after: MemoryVersion


def next_undos(
    space: SqliteEdits, memory: Memory, history: Sequence[HistoryEntry], session_id: str | None
) -> list[Undo]:
    """The changes to a memory that an undo would revert: those of the last operation in which it changed, replaced
    another memory, was kept beside another, or stopped replacing another. Memories that the session cannot see are not
    changed.

    Raises `InvalidInput` if there is no change, or it can no longer be undone.
    """
    changes = standing(history)
    if not changes:
        raise InvalidInput(f"there is nothing more to undo: {memory.id} is forgotten", remedy="restore_memory")
    since = changes[-1].changed_at
    of_others = []
    for other in map(space.memory, space.named_with(memory.id, since)):
        if other is None or not is_visible(other.now, session_id):
            continue
        others = space.history(other.id)
        naming = [each for each in standing(others) if memory.id in _named_in(each)]
        if naming and naming[-1].changed_at >= since:
            undo = _undo_of(other, others)
            if naming[-1].change != LINKED or naming[-1] in undo.changes:
                of_others.append((naming[-1], undo))
    last = max((each for each, _ in of_others), key=lambda each: each.changed_at, default=changes[-1])
    undos = []
    for change, undo in of_others:
        if change.operation_id == last.operation_id:
            if change not in undo.changes:
                done = "was kept along with" if change.change == BOTH_HOLD else "replaced"
                raise InvalidInput(f"it {done} {undo.memory.id}, which {CHANGED_SINCE}; undo that first")
            undos.append(undo)
    return undos if last.operation_id != changes[-1].operation_id else [_undo_of(memory, history), *undos]


def _named_in(entry: HistoryEntry) -> tuple[str, ...]:
    """The memories that replace the changed memory, were replaced by it, are kept beside it, or were linked with it."""
    details = entry.details
    linked = (end for link in details.get("links", ()) for end in link[:2])
    return (details.get("by"), details.get("other"), *linked)


def _undo_of(memory: Memory, history: Sequence[HistoryEntry]) -> Undo:
    """The undo of the last operation in effect in a history. A memory without an earlier version will be forgotten."""
    latest_first = reversed(standing(history))
    of_last = next(groupby(latest_first, lambda each: (each.operation_id, each.changed_at, each.version > 1)))
    changes = tuple(of_last[1])
    version = changes[-1].version - 1
    before = {entry.version: entry.record for entry in history if entry.version <= version}
    if before and version not in before:
        raise InvalidInput(f"version {version} of {memory.id} is no longer kept", remedy="restore_memory")
    return Undo(memory, changes, before_change(memory.now, before.get(version), "the change that stored it was undone"))


def _undo_change(writer: Writer, change: UndoChange) -> RestoredResult:
    """Undo the last change that affects a memory (see `next_undos`). Always makes a version."""
    asked = writer.memory(change.memory_id)
    if change.version not in (None, asked.version):
        raise InvalidInput(f"{asked.id} {CHANGED_SINCE}", field="version")
    history = writer.space.history(asked.id)
    undos = next_undos(writer.space, asked, history, writer.operation.session_id)
    if undos[0].memory.id != asked.id:
        # A new version, so that a second click is refused.
        named = undos[0].changes[-1].change
        undid = SUPERSEDING if named in (SUPERSEDED, INVALIDATED) else named
        undone: dict[str, Any] = {"undid": undid, "other": undos[0].memory.id}
        writer.revise(asked, asked.now, UNDONE, chain=asked.promotion_chain, as_of=asked.version, **undone)
    result, *_ = [_take_back(writer, undo) for undo in undos]
    valid_again = tuple(
        each.memory.id for each in undos[1:] if not each.after.valid_until and each.memory.now.valid_until
    )
    return msgspec.structs.replace(result, valid_again=valid_again)


def _take_back(writer: Writer, undo: Undo) -> RestoredResult:
    """Undo changes. Raises `InvalidInput` if they include a move that cannot be undone here."""
    memory, changes, after = undo
    first = changes[-1]
    scope = first.details.get("previous_scope", after.scope)
    if scope != memory.now.scope:
        raise InvalidInput(f"{memory.id} was moved from a {scope}, which cannot be undone here", remedy="forget_memory")
    name, chain = "forgotten" if after.forgotten and not memory.now.forgotten else UNDONE, memory.promotion_chain
    made = writer.revise(memory, after, name, chain=chain, undid=first.change, as_of=first.version - 1)
    for each in changes:
        details = each.details
        if each.change in (SUPERSEDED, INVALIDATED) and "by" in details and "had_link" not in details:
            writer.space.unlink(details["by"], memory.id, SUPERSEDES)
        for source, target, relation, strength in reversed(details.get("links", ())):
            writer.space.unlink(source, target, relation)
            if strength is not None:
                writer.space.put_link(source, target, relation, strength, writer.at)
    return RestoredResult(memory.id, made.version, made.fields, undone=first.change)


def _valid_until_before(writer: Writer, memory_id: str) -> float | None:
    history = writer.space.history(memory_id)
    if not _is_replaced(writer, memory_id):
        return _own_end(standing(history))
    valid = [entry.record for entry in history if entry.record.invalid_reason is None]
    return valid[-1].valid_until if valid else None


def _earlier(writer: Writer, memory: Memory, version: int | None) -> MemoryVersion:
    """An earlier version of a memory. Raises `InvalidInput` if `version` is None, or the session may not see it."""
    operation, scope, source = writer.operation, memory.now.scope, memory.source_project
    known = {
        entry.version: entry.record
        for entry in writer.space.history(memory.id)
        if is_version_visible(entry.record, scope, source, operation.session_id, operation.project.id)
    }
    if version is not None and version in known:
        return known[version]
    if version is not None:
        raise InvalidInput(f"{memory.id} has no version {version}, only {spans_of(known)}", field="version")
    earlier = spans_of(each for each in known if each < memory.version)
    ways = f"; name the version to return to ({earlier})" if earlier else ", and it has no earlier version"
    raise InvalidInput(f"{memory.id} is neither forgotten nor replaced{ways}", field="version")


def _invalidate(writer: Writer, change: InvalidateMemory) -> InvalidatedResult:
    memory = writer.memory(change.memory_id)
    check_remembered(memory.id, memory.now)
    wanted = [] if change.replaced_by is None else [LinkRef(SUPERSEDES, change.replaced_by)]
    replacing = _targets(writer, memory.id, wanted, "replaced_by")
    for _, newer in replacing:
        _check_may_supersede(newer.id, newer.now.scope, memory, "replaced_by")
    after = invalidated(memory.now, change.reason, writer.at if change.at is None else change.at)
    by = replacing[0][1].id if replacing else None
    had_link = (by is not None and writer.space.strength(by, memory.id, SUPERSEDES) is not None) or None
    chain = None if by is None or had_link else memory.promotion_chain  # a new link alone can be undone
    made = writer.revise(memory, after, INVALIDATED, chain=chain, reason=change.reason, by=by, had_link=had_link)
    for link, newer in replacing:
        writer.space.put_link(newer.id, memory.id, link.relation, link.strength, writer.at)
    assert after.valid_until is not None
    assert after.invalid_reason is not None
    already = memory.now.invalid_reason is not None
    return InvalidatedResult(memory.id, after.valid_until, after.invalid_reason, made.version, already)


def _valid_again(writer: Writer, memory: Memory, after: MemoryVersion) -> list[LinkBefore] | None:
    """If a change makes a memory valid again, remove the links that supersede it. Returns them like `_take_links`."""
    if not has_ended(memory.now.valid_until, writer.at) or has_ended(after.valid_until, writer.at):
        return None
    newer = [link.source for link in writer.space.links(memory.id) if link.relation == SUPERSEDES]
    return _take_links(writer, SUPERSEDES, *((each, memory.id) for each in newer)) or None


def _promote(writer: Writer, change: PromoteMemory) -> PromotedResult:
    """Promote a session's memory to its project, or reject the proposal to promote a project's memory to the user."""
    memory = writer.memory(change.memory_id)
    check_remembered(memory.id, memory.now)
    if memory.now.scope == change.target_scope and refuse_proposal(writer, memory.id, change.reason):
        return PromotedResult(memory.id, "project")
    check_broader(memory.now.scope, change.target_scope)
    before = memory.now.scope
    again = restating(memory.id, memory.now, memory.created_at, change.target_scope)
    if (known := writer.known_as(again)) is not None:
        reason = f"merged into {known.id}, which says the same"
        hidden = msgspec.structs.replace(memory.now, status="promoted")
        writer.revise(memory, hidden, "promoted", reason=change.reason or reason)
        join_promoted(writer, known, again, memory.now)
        writer.space.put_link(memory.id, known.id, "supports", 1.0, writer.at)
        return PromotedResult(memory.id, before, known.id)
    after = msgspec.structs.replace(memory.now, scope=change.target_scope)
    chain = (*memory.promotion_chain, log_step(writer, memory.id, memory.now))
    about: dict[str, Any] = {"reason": change.reason, "previous_scope": before, "score": change.score}
    writer.revise(memory, after, "promoted", chain=chain, **about)
    return PromotedResult(memory.id, before)


# --- Links.


def _targets(
    writer: Writer, source_id: str, links: Iterable[LinkRef], field: str, scope: Scope | None = None
) -> Targets:
    """The targets of links. `field` is the argument that contained them; `scope` is the scope of their source, if they
    are to be added. Raises `InvalidInput` if a target is not another memory, or may not be linked."""
    targets: Targets = []
    for link in dict.fromkeys(links):
        try:
            target = writer.memory(link.target)
        except NotFound as error:
            raise InvalidInput(
                f"there is no memory {link.target} that this one can link to: both must belong to one project (or its "
                "sessions), or both to the user, so promote the project's memory to the user first",
                field=field,
                remedy="promote_memory",
            ) from error
        if target.id == source_id:
            raise InvalidInput("a memory cannot link to itself; give the id of another one", field=field)
        if scope is not None and link.relation == SUPERSEDES:
            _check_may_supersede(source_id, scope, target, field)
        targets.append((link, target))
    return targets


def _check_may_supersede(source_id: str, scope: Scope, target: Memory, field: str) -> None:
    """Raises `InvalidInput` if a session's private memory would end the validity of one that other sessions can see."""
    if scope == "session" and target.now.scope != "session":
        raise InvalidInput(
            f"{source_id} belongs to this session only and cannot supersede {target.id}, which other sessions see; "
            "promote it to the project first",
            field=field,
            remedy="promote_memory",
        )


def _add_links(writer: Writer, source: Memory, links: Targets, reason: str | None = None) -> bool:
    """Add links; True if any is new or has a different strength. A superseding link makes a new version of its target,
    with the reason and, if it had none, an end of validity. The source gets a new version only if the link decides that
    both memories of an undecided pair are valid, and never in a shared lane, where each host has its own pairs."""
    changed = False
    for link, target in links:
        before = writer.space.strength(source.id, target.id, link.relation)
        if before is not None and (before == link.strength or link.relation == SIMILAR):
            continue
        changed = True
        ends = ((source.id, target.id), (target.id, source.id))
        writer.space.put_link(source.id, target.id, link.relation, link.strength, writer.at)
        if before is None and link.relation == SUPERSEDES:
            for newer_id in _replacing_through(writer, source, target):  # until now, it was the other way round
                _remove_link(writer, newer_id, source.id, SUPERSEDES)
            replaced = writer.memory(target.id)  # with the effects of earlier links
            # If the older memory is valid, it no longer counts as possibly replaced.
            doubts = _take_links(writer, CONTRADICTS, *ends) if target.age_key > source.age_key else []
            until = writer.at if replaced.now.valid_until is None else replaced.now.valid_until
            after, chain = msgspec.structs.replace(replaced.now, valid_until=until), replaced.promotion_chain
            writer.revise(replaced, after, SUPERSEDED, chain=chain, by=source.id, reason=reason, links=doubts or None)
            newer = writer.memory(source.id)
            after = continuing(newer.now, newer.created_at, replaced.now)
            writer.revise(newer, after, "updated", reason=reason, other=target.id)
        else:
            are_valid = link.relation not in (SIMILAR, CONTRADICTS)
            doubts = _take_links(writer, CONTRADICTS, *ends) if are_valid else []
            is_doubted = doubts or any(writer.space.strength(*each, SIMILAR) for each in ends)
            were = [*doubts, (*ends[0], link.relation, before)]
            if before is None and link.relation == RELATED and is_doubted and writer.member is None:
                one = writer.memory(source.id)
                settled: dict[str, Any] = {"other": target.id, "links": were}
                writer.revise(one, one.now, BOTH_HOLD, chain=one.promotion_chain, reason=reason, **settled)
            else:
                writer.links += were
    return changed


def _replacing_through(writer: Writer, older: Memory, last: Memory) -> list[str]:
    """The memories replacing `older` that are `last` itself or were replaced by it, directly or indirectly."""
    rows = writer.space.query(
        """WITH RECURSIVE before(number) AS (VALUES (?1) UNION SELECT target FROM before
               JOIN memory_links ON source = number AND relation = 'supersedes')
           SELECT m.id FROM before JOIN memories AS m USING (number)
           JOIN memory_links AS l ON l.source = m.number AND relation = 'supersedes' AND target = ?2""",
        (last.number, older.number),
    )
    return [memory_id for (memory_id,) in rows]


def _take_links(writer: Writer, relation: str, *pairs: tuple[str, str]) -> list[LinkBefore]:
    """Remove the links of a relation between pairs. Returns them for the history, so that an undo can restore them."""
    removed: list[LinkBefore] = [(*pair, relation, writer.space.unlink(*pair, relation)) for pair in pairs]
    return [each for each in removed if each[-1] is not None]


def _remove_link(writer: Writer, source_id: str, target_id: str, relation: str) -> bool:
    """Remove a link; True if it existed. Removing a `supersedes` link makes a new version of its target. If it was the
    last of them, the target gets back its own end of validity, unless it was invalidated for another reason."""
    removed, target = _take_links(writer, relation, (source_id, target_id)), writer.space.memory(target_id)
    if not removed or relation != SUPERSEDES or target is None:
        writer.links += removed
        return bool(removed)
    after, changes = target.now, standing(writer.space.history(target_id))
    invalidations = [each for each in changes if each.change == INVALIDATED]
    is_invalid = target.now.invalid_reason is not None and not any("by" in each.details for each in invalidations[-1:])
    if not (is_invalid or _is_replaced(writer, target_id)):
        after = msgspec.structs.replace(after, valid_until=_own_end(changes), invalid_reason=None)
    writer.revise(target, after, SUPERSEDING_UNDONE, chain=target.promotion_chain, by=source_id, links=removed)
    return True


def _is_replaced(writer: Writer, memory_id: str) -> bool:
    links = writer.space.links(memory_id)
    return any((link.target, link.relation) == (memory_id, SUPERSEDES) for link in links)


def _own_end(changes: Iterable[HistoryEntry]) -> float | None:
    """The end of a memory's validity, apart from replacements and invalidations."""
    own: float | None = None
    last: float | None = None
    for entry in changes:
        until = entry.record.valid_until
        is_return = entry.change == RESTORED and "restored_version" not in entry.details
        if until != last and not is_return and entry.change not in (SUPERSEDED, INVALIDATED, SUPERSEDING_UNDONE):
            own = until
        last = until
    return own


def _relate(writer: Writer, memory: Memory, ids: Sequence[str], *, alone: bool = False) -> tuple[bool, tuple[str, ...]]:
    """Relate a memory to others, and with `alone` to no others. Returns whether anything changed, and unknown ids."""
    wanted: dict[str, Memory] = {}
    missing: list[str] = []
    for memory_id in dict.fromkeys(ids):
        target = writer.space.memory(memory_id)
        if target is None or not writer.sees(target) or target.now.forgotten:
            missing.append(memory_id)
        elif target.id != memory.id:
            wanted[target.id] = target
    links = [link for link in writer.space.links(memory.id) if link.relation == RELATED]
    others = {link: link.target if link.source == memory.id else link.source for link in links}
    new = [(LinkRef(RELATED, target), wanted[target]) for target in wanted if target not in others.values()]
    changed = _add_links(writer, memory, new)
    for link, other in others.items() if alone else ():
        related = writer.space.memory(other)
        if other not in wanted and related is not None and writer.sees(related) and not related.now.forgotten:
            changed |= _remove_link(writer, link.source, link.target, RELATED)
    return changed, tuple(missing)


# --- Deleting memories for good.


def _erase(writer: Writer, change: EraseMemory) -> ErasedResult:
    """Delete a memory for good, with its history. Its id is remembered as erased."""
    space = writer.space
    try:
        memory = writer.memory(change.memory_id)
    except NotFound:
        if (erased_at := space.erased_at(change.memory_id)) is None:
            raise
        together = space.query(  # for a caller whose first attempt was interrupted
            "SELECT memory_id FROM erased WHERE space = @SPACE AND erased_at = ? AND memory_id != ? ORDER BY memory_id",
            (erased_at, change.memory_id),
        )
        return ErasedResult(change.memory_id, already=True, also_erased=tuple(gone for (gone,) in together))
    links, content = space.links(memory.id), memory.now.content
    derived = writer.derived_from(memory.id, links)
    alike = [each.source if each.target == memory.id else each.target for each in links if each.relation == SIMILAR]
    alike += read_copies(space.query, memory.id, content, writer.operation.session_id, with_forgotten=True)
    texts = texts_of(memory.now, space.history(memory.id))
    quotes = (*(text.strip() for text in texts), *quotable(texts))  # to look for in derived memories
    also = [  # only memories that a run made
        made
        for made in derived
        if any(entry.version == 1 and entry.details.get("run") for entry in space.history(made.id))
        and _says_any(space, made, quotes)
    ]
    record = session_record_of(space.query, memory.now.session_id)
    quoting = list(also)
    if record is not None and record.id != memory.id and _says_any(space, record, quotes):
        quoting.append(record)
    for gone in (*quoting, memory):
        if not gone.now.forgotten:  # its sources become active, its summaries are forgotten
            writer.revise(gone, msgspec.structs.replace(gone.now, forgotten=True), "forgotten")
        space.delete(gone.id)
        space.erase_traces(gone.id)
    also_erased = tuple(made.id for made in also)
    for memory_id in dict.fromkeys((memory.id, change.memory_id, *also_erased)):
        space.note_erased(memory_id, writer.at)
    repeating = (*(made for made in derived if made != record), *filter(None, map(space.memory, alike)))
    said_by = dict.fromkeys(each.id for each in repeating if each not in also and writer.sees(each))
    return ErasedResult(memory.id, said_by=tuple(said_by), also_erased=also_erased, file=memory.now.source.file)


def _says_any(space: SqliteEdits, memory: Memory, quotes: Sequence[str]) -> bool:
    return any(quote in text for text in texts_of(memory.now, space.history(memory.id)) for quote in quotes)


# --- Sessions.


def _start_session(writer: Writer, change: StartSession) -> SessionResult:
    writer.note_active(change.session_id, change)
    return SessionResult()


def _end_session(writer: Writer, change: EndSession) -> SessionResult:
    """Unknown and ended sessions stay unchanged. A completed session that only continues is not abandoned later."""
    ended = writer.space.execute(
        """UPDATE sessions SET ended_at = ?, ending = iif(? = 'abandoned', coalesce(ending, 'abandoned'), 'completed')
           WHERE space = @SPACE AND session_id = ? AND status = 'active' AND ended_at IS NULL""",
        (writer.at, change.how, change.session_id),
    )
    if ended.rowcount:
        writer.write_record(change.session_id)
    return SessionResult()


def _record_events(writer: Writer, change: RecordEvents) -> SessionResult:
    writer.note_active(change.session_id)
    writer.space.record_events(change)
    return SessionResult()


RULES: Final[dict[type[Any], Callable[[Writer, Any], Result]]] = {
    get_type_hints(rule)["change"]: rule
    for rule in (
        *(_store, _import, _update, _tag, _forget, _restore, _undo_change, _invalidate, _promote, _erase),
        *(_start_session, _end_session, _record_events, apply_run, undo_run),
    )
}
