"""The rules for changes. Each function rejects a change before anything is written, or returns the changed memory."""

from collections.abc import Iterable, Mapping
from datetime import UTC
from itertools import groupby
from typing import Any, Final

import msgspec

from remembrancer.memory.decay import DAY_S, has_ended
from remembrancer.memory.fields import FIELDS, Field, encode_object
from remembrancer.memory.limits import MAX_ENTITIES, MAX_TAGS
from remembrancer.memory.names import name_key
from remembrancer.memory.open_ends import due_of_open_end, moved_to, says_done
from remembrancer.memory.sentences import cut_at_word, excerpt
from remembrancer.memory.text import MAX_OBJECT_BYTES, quote
from remembrancer.protocol.errors import InvalidInput, NotFound
from remembrancer.protocol.kinds import OPEN_END, SESSION_KINDS, Kind, kind_of_type, type_of_kind
from remembrancer.protocol.runs import ReviseMemory
from remembrancer.protocol.writes import (
    MENTIONED_WITH,
    EntityRef,
    HistoryEntry,
    MemoryVersion,
    RecordedFields,
    Scope,
    StoreMemory,
    TagMemory,
    TextEdit,
    UpdateMemory,
)

UNDONE: Final = "undone"
"""The name in the history for a change that undoes other changes."""
RESTORED: Final = "restored"
MOVE_UNDONE: Final = "the move was undone"
"""The reason recorded when a move between lanes is undone."""
RELEASED: Final = "released"
"""The name in the history for reactivating a memory that no other memory represents any more."""
REVIVED: Final = "revived"
"""The name in the history for reactivating an archived memory because it was used."""
BREADTH: Final[dict[Scope, int]] = {"session": 0, "project": 1, "user": 2}


def unknown_memory(memory_id: str) -> NotFound:
    """The error is the same for a missing memory and for one that the caller may not see."""
    return NotFound(f"there is no memory with the id {memory_id}", field="memory_id")


def is_visible(memory: MemoryVersion, session_id: str | None) -> bool:
    return session_id is None or memory.scope != "session" or memory.session_id == session_id


def is_version_visible(
    version: MemoryVersion, now: Scope, source_project: str | None, session_id: str | None, project_id: str | None
) -> bool:
    """Promoting a memory does not expose its drafts: session versions stay visible only to their session, and once the
    user owns the memory, project versions only to their project. Without a session, all versions are visible."""
    if session_id is not None and now == "user" and version.scope != "user" and project_id != source_project:
        return False
    return is_visible(version, session_id)


def differences(before: MemoryVersion, after: MemoryVersion) -> tuple[str, ...]:
    """The fields in which two versions differ. Forgetting and restoring change `status`."""

    def value_of(version: MemoryVersion, row: Field) -> Any:
        match row.name:
            case "kind":
                return kind_of(version)
            case "status":
                return version.status, version.forgotten
        value = getattr(version, row.name)
        return encode_object(value) if row.sort == "object" else value  # 1 equals True in Python

    return tuple(row.name for row in FIELDS if row.is_compared and value_of(before, row) != value_of(after, row))


def changed(before: MemoryVersion, values: Mapping[str, Any]) -> MemoryVersion:
    """A new kind also sets the type, and new content reactivates the memory."""
    values = dict(values)
    if "related_entities" in values:
        values["related_entities"] = with_subjects(tuple(dict.fromkeys(values["related_entities"])))
    if "kind" in values:
        values.setdefault("type", type_of_kind(values["kind"]))
    if values.get("content", before.content) != before.content:
        values.setdefault("status", "active")
    return msgspec.structs.replace(before, **values)


def updated(before: MemoryVersion, change: UpdateMemory, at: float) -> MemoryVersion:
    """Apply an update, except for its links. A fact that is given a due date becomes an open end. If new text for an
    open end names a due date that the old text did not, that date is set. Raises `InvalidInput`."""
    if change.due is not None and change.kind is None and kind_of(before) == "fact":
        change = msgspec.structs.replace(change, kind=OPEN_END)
    closes = bool(change.done) and kind_of(before) == OPEN_END  # closing it may turn it into a fact
    sets_state = change.due is not None or (change.done is not None and not closes)
    if sets_state and (change.kind or kind_of(before)) != OPEN_END:
        name, can = ("done", "be done") if change.due is None else ("due", "have a due date")
        raise InvalidInput(f"only an open end can {can}", field=name, remedy=f"kind: {OPEN_END}")
    after = changed(before, _values_of(before, change))
    if kind_of(after) == OPEN_END and change.due is None and "due" not in change.cleared:
        due = due_of_open_end(after.content, at, UTC)
        if kind_of(before) != OPEN_END or due != due_of_open_end(before.content, at, UTC):
            after = msgspec.structs.replace(after, due=due or after.due)
    _check_tags(before, after, "tags")
    if after.scope != "session" and change.kind in SESSION_KINDS:
        raise InvalidInput(
            f"a {change.kind} belongs to its session, and this memory has the scope {after.scope}", field="kind"
        )
    if len(after.related_entities) > max(MAX_ENTITIES, len(before.related_entities)):
        raise InvalidInput(f"a memory may name at most {MAX_ENTITIES} entities", field="related_entities")
    start, end = after.valid_from, after.valid_until
    is_changed = change.valid_from is not None or change.valid_until is not None
    if is_changed and start is not None and end is not None and start >= end:
        message = "valid_until must be later than valid_from; give both if the memory already has the other"
        raise InvalidInput(message, field="valid_until" if change.valid_from is None else "valid_from")
    return after


def _values_of(before: MemoryVersion, change: UpdateMemory) -> dict[str, Any]:
    values: dict[str, Any] = dict.fromkeys(change.cleared)
    for each in FIELDS:
        value = getattr(change, each.name, None)
        if value is None:
            continue
        if each.sort == "object":
            value = _merged(getattr(before, each.name), value, each.name)
        elif isinstance(value, TextEdit):
            value = _with_passage(before.content, value)
        values[each.name] = None if value == "" and each.is_clearable else value
    if change.add_tags or change.remove_tags:
        values["tags"] = _with_items(values.get("tags", before.tags), change.add_tags, change.remove_tags)
    if change.add_entities or change.remove_entities:
        entities = _with_items(before.related_entities, change.add_entities, change.remove_entities)
        values["related_entities"] = entities
    if "valid_until" in values:
        values["invalid_reason"] = None
    if values.get("kind", OPEN_END) != OPEN_END:
        values |= {"due": None, "done": False}
    return values


def tagged(before: MemoryVersion, change: TagMemory) -> MemoryVersion:
    after = changed(before, {"tags": _with_items(before.tags, change.add, change.remove)})
    _check_tags(before, after, "add")
    return after


def revised(before: MemoryVersion, edit: ReviseMemory) -> MemoryVersion:
    """Apply an edit made by a run. Tags above the limit are dropped."""
    values = {each.name: value for each in FIELDS if (value := getattr(edit, each.name, None)) is not None}
    values["tags"] = tuple(dict.fromkeys((*before.tags, *values["tags"])))[: max(MAX_TAGS, len(before.tags))]
    if edit.forget is not None:
        values |= {"forgotten": True, "forgotten_reason": edit.forget}
    return changed(before, values)


def reverted(before: MemoryVersion, old: MemoryVersion) -> MemoryVersion:
    values = {each.name: getattr(old, each.name) for each in FIELDS if not each.stays}
    status = old.status if old.scope == before.scope else "active"
    values |= {"kind": kind_of(old), "status": status, "forgotten": False, "forgotten_reason": None}
    return changed(before, values)


def undoing(history: Iterable[HistoryEntry]) -> tuple[list[HistoryEntry], set[int]]:
    """Return a memory's effective changes, oldest first, and the versions of its undone changes. A move between lanes
    is undone by a second move, and the undo of a memory's creation by a restore."""
    changes: list[HistoryEntry] = []
    undone = set[int]()
    standing_at: dict[int, list[HistoryEntry]] = {}
    taken_back_whole: list[HistoryEntry] = []
    for entry in history:
        if entry.change == UNDONE or "as_of" in entry.details:
            as_of = entry.details.get("as_of", 0)
            kept = standing_at.get(as_of, [each for each in changes if each.version <= as_of])
            taken_back_whole = [] if kept else changes
        elif entry.change == RESTORED and taken_back_whole:
            kept, taken_back_whole = [*taken_back_whole, *changes, entry], []
            undone -= {each.version for each in kept}
        elif entry.change in ("promoted", "taken back") and entry.details.get("reason") == MOVE_UNDONE:
            kept = changes[:-1]
        else:
            kept = changes if entry.change in (RELEASED, REVIVED) else [*changes, entry]
        undone |= {each.version for each in changes} - {each.version for each in kept}
        standing_at[entry.version] = changes = kept
    return changes, undone


def standing(history: Iterable[HistoryEntry]) -> list[HistoryEntry]:
    return undoing(history)[0]


def before_change(now: MemoryVersion, before: MemoryVersion | None, reason: str) -> MemoryVersion:
    """Return a memory as it was before a change, or as forgotten if the change created it."""
    if before is None:
        return msgspec.structs.replace(now, forgotten=True, forgotten_reason=reason)
    return msgspec.structs.replace(before, kind=kind_of(before))


SAME_EVENT_S: Final = DAY_S
"""Event memories with the same words describe one event if they are less than this far apart."""


def says_the_same(known: MemoryVersion, created_at: float, again: StoreMemory, now: float) -> bool:
    """True if `again`, which has the same text and scope, repeats a memory that is still valid."""
    if known.forgotten or has_ended(known.valid_until, now):
        return False
    for before, after in ((known.valid_from, again.valid_from), (known.valid_until, again.valid_until)):
        if after is not None and after != before:
            return False
    if OPEN_END in (kind_of(known), again.kind):
        return kind_of(known) == again.kind and not known.done
    if again.type == "episodic" or again.occurred_at is not None:
        apart_s = (now if again.occurred_at is None else again.occurred_at) - (known.occurred_at or created_at)
        return abs(apart_s) < SAME_EVENT_S
    return True


def joined(known: MemoryVersion, again: StoreMemory) -> MemoryVersion:
    values = {
        each.name: each.join(getattr(known, each.name), getattr(again, each.name)) for each in FIELDS if each.join
    }
    if known.status in ("archived", "consolidated"):
        values["status"] = "active"
    return changed(known, values)


def invalidated(before: MemoryVersion, reason: str | None, at: float) -> MemoryVersion:
    """End a memory's validity at `at`, unless it ended earlier."""
    ends = at if before.valid_from is None else max(at, before.valid_from)
    if before.valid_until is not None:
        ends = min(ends, before.valid_until)
    reason = reason or before.invalid_reason or "invalidated"
    return msgspec.structs.replace(before, valid_until=ends, invalid_reason=reason)


def continuing(newer: MemoryVersion, created_at: float, older: MemoryVersion) -> MemoryVersion:
    """A fact that moves an open end to a different day becomes the open end itself."""
    if kind_of(older) != OPEN_END or older.done or newer.due is not None or kind_of(newer) not in ("fact", OPEN_END):
        return newer
    due = None if says_done(newer.content, older.content) else moved_to(newer.content, created_at, older.due)
    return newer if due is None else changed(newer, {"kind": OPEN_END, "due": due})


def kind_of(snapshot: MemoryVersion) -> Kind:
    return snapshot.kind or kind_of_type(snapshot.type)


def check_broader(scope: Scope, target: Scope) -> None:
    if BREADTH[target] <= BREADTH[scope]:
        broader = f"this memory has the scope {scope}: only the project that it came from, if any, can take it back"
        raise InvalidInput(
            f"this memory already belongs to the {scope}" if scope == target else broader, field="target_scope"
        )


def check_remembered(memory_id: str, snapshot: MemoryVersion) -> None:
    if snapshot.forgotten:
        raise InvalidInput(f"{memory_id} is forgotten; restore it first", field="memory_id", remedy="restore_memory")


def _check_tags(before: MemoryVersion, after: MemoryVersion, argument: str) -> None:
    if len(after.tags) > max(MAX_TAGS, len(before.tags)):
        raise InvalidInput(f"a memory may have at most {MAX_TAGS} tags", field=argument)


def _with_passage(text: str, change: TextEdit) -> str:
    start = text.find(change.old)
    if start < 0 or text.find(change.old, start + 1) >= 0:
        several = f"contains {quote(change.old)} several times; quote more of the text around it"
        none = f"does not contain {quote(change.old)}; quote a passage exactly"
        raise InvalidInput(f"the memory {none if start < 0 else several}", field="old")
    replaced = text.replace(change.old, change.new)
    if not replaced.strip():
        message = "the memory would be empty; forget it instead"
        raise InvalidInput(message, field="new", remedy="forget_memory")
    return replaced


AROUND: Final = 40
"""The number of characters shown on each side of a new passage."""


def changed_line(before: str, passage: TextEdit) -> str:
    above, below = before.split(passage.old)
    start, end = above.rpartition("\n")[2], below.partition("\n")[0]
    left = start if len(start) <= AROUND else f"…{cut_at_word(start[::-1], AROUND)[::-1]}"
    right = end if len(end) <= AROUND else f"{cut_at_word(end, AROUND)}…"
    return f"{left}{excerpt(passage.new, 3 * AROUND)}{right}"


def _merged(present: dict[str, Any], changes: dict[str, Any], name: str) -> dict[str, Any]:
    merged = {key: value for key, value in (present | changes).items() if value is not None or key not in changes}
    size = len(encode_object(merged))
    if size > max(MAX_OBJECT_BYTES, len(encode_object(present))):
        message = f"the {name} of a memory may have at most {MAX_OBJECT_BYTES} bytes as JSON, and this would be {size}"
        raise InvalidInput(message, field=name)
    return merged


def _with_items(present: tuple[Any, ...], add: Iterable[Any], remove: Iterable[str]) -> tuple[Any, ...]:
    """Remove entities by name, or else by key. A present tag that is both added and removed is removed."""
    remaining = list(present)
    for name in remove:
        gone = [each for each in present if getattr(each, "name", each) == name]
        gone = gone or [
            each for each in present if isinstance(each, EntityRef) and name_key(each.name) == name_key(name)
        ]
        remaining = [each for each in remaining if each not in gone]
    new = (each for each in add if isinstance(each, EntityRef) or each not in present)
    return tuple(dict.fromkeys((*remaining, *new)))


def with_subjects(entities: tuple[EntityRef, ...]) -> tuple[EntityRef, ...]:
    named = {name_key(entity.name) for entity in entities}
    missing = (entity.subject for entity in entities if entity.subject and name_key(entity.subject) not in named)
    return (*entities, *(EntityRef(name, "concept", MENTIONED_WITH) for name in dict.fromkeys(missing)))


def spans_of(versions: Iterable[int]) -> str:
    """Format ascending version numbers as ranges: `1 to 4, 7`."""
    runs = ([each for _, each in run] for _, run in groupby(enumerate(versions), lambda item: item[1] - item[0]))
    return ", ".join(f"{run[0]} to {run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)


def texts_of(now: RecordedFields, history: Iterable[HistoryEntry]) -> tuple[str, ...]:
    versions = [*(entry.record for entry in history), now]
    return tuple(dict.fromkeys(text for version in versions for text in (version.content, version.summary) if text))
