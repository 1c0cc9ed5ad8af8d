"""The change rules: what a change makes of a memory. Pure: from what the memory is to what it will be.

The records apply these; an answer without the store must come to the same. A change that is refused is refused here,
before anything is written.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from remembrancer.memory.limits import MAX_ENTITIES, MAX_NAME, MAX_TAGS
from remembrancer.memory.names import name_key
from remembrancer.memory.text import shown
from remembrancer.protocol.errors import InvalidInput, NotFound
from remembrancer.protocol.kinds import OPEN_END, SESSION_KINDS, Kind, kind_of_type, type_of_kind
from remembrancer.protocol.writes import (
    MENTIONED_WITH,
    EntityRef,
    MemoryVersion,
    Scope,
    SourceRef,
    StoreMemory,
    TagMemory,
    TextEdit,
    UpdateMemory,
)

MAX_METADATA_BYTES: Final = 64 * 1024
"""All of a memory's metadata as JSON."""
BREADTH: Final[dict[Scope, int]] = {"session": 0, "project": 1, "user": 2}

_canonical = msgspec.json.Encoder(order="deterministic")


def unknown_memory(memory_id: str) -> NotFound:
    """The error for an id that names nothing which the caller may see: one text, whatever the reason is."""
    return NotFound(f"there is no memory with the id {memory_id}", field="memory_id")


def is_visible(scope: Scope, owner: str, session_id: str | None) -> bool:
    """True if a session may see a memory of `owner`'s (None: everybody's are seen)."""
    return session_id is None or scope != "session" or owner == session_id


def is_version_visible(
    version: MemoryVersion, now: Scope, source_project: str | None, session_id: str | None, project_id: str | None
) -> bool:
    """True if a session of a project may see what a memory was in one of its versions; the memory it may see as it is.

    A memory's drafts are not given away with it: what it was in its session is that session's, and of what is the
    user's (`now`) what it was in a project is that project's, where it came from. For no session (None) all are seen.
    """
    if session_id is not None and now == "user" and version.scope != "user" and project_id != source_project:
        return False
    return is_visible(version.scope, version.session_id, session_id)


COMPARED: Final = (
    *("content", "importance", "tags", "metadata", "related_entities", "source", "type", "kind", "summary"),
    *(
        "structured",
        "confidence",
        "domain",
        "valid_from",
        "valid_until",
        "invalid_reason",
        "pinned",
        "due",
        "done",
        "scope",
        "status",
    ),
)
"""The fields in which versions differ, in the order of an answer."""


def differences(before: MemoryVersion, after: MemoryVersion) -> tuple[str, ...]:
    """The fields in which two versions differ. `status` is also forgotten or not."""

    def said(version: MemoryVersion, name: str) -> Any:
        match name:
            case "kind":
                return kind_of(version)
            case "status":
                return version.status, version.forgotten
            case "metadata" | "structured":
                return _canonical.encode(getattr(version, name))
        return getattr(version, name)

    return tuple(name for name in COMPARED if said(before, name) != said(after, name))


def updated(before: MemoryVersion, change: UpdateMemory) -> MemoryVersion:
    """Raises `InvalidInput` for a passage that is not in the text exactly once, more tags, entities or metadata than a
    memory may have, a kind of another scope, or a validity that would end before it begins."""
    times = change.times_asked()
    kind = change.kind or kind_of(before)
    if kind != OPEN_END and (change.due is not None or change.done is not None):
        field = "done" if change.due is None else "due"
        raise InvalidInput(f"only an open end can have {field}: set its kind to {OPEN_END} as well", field=field)
    after = msgspec.structs.replace(
        before,
        content=_with_passage(before.content, change.content),
        importance=before.importance if change.importance is None else change.importance,
        tags=_with_tags(
            before.tags if change.tags is None else change.tags, change.add_tags, change.remove_tags, "tags"
        ),
        metadata=_merged(before.metadata, change.metadata or {}, "metadata"),
        related_entities=with_subjects(
            _with_entities(before.related_entities, change.add_entities, change.remove_entities)
        ),
        kind=kind,
        type=before.type if change.kind is None else type_of_kind(change.kind),
        summary=_said(before.summary, change.summary),
        structured=_merged(before.structured, change.structured or {}, "structured"),
        confidence=before.confidence if change.confidence is None else change.confidence,
        domain=_said(before.domain, change.domain),
        valid_from=change.valid_from if "valid_from" in times else before.valid_from,
        valid_until=change.valid_until if "valid_until" in times else before.valid_until,
        invalid_reason=None if "valid_until" in times else before.invalid_reason,
        due=None if kind != OPEN_END else change.due if "due" in times else before.due,
        done=kind == OPEN_END and (before.done if change.done is None else change.done),
    )
    if after.content != before.content:  # nothing stands for what is said now
        after = msgspec.structs.replace(after, status="active")
    if after.scope != "session" and change.kind in SESSION_KINDS:
        raise InvalidInput(
            f"a {change.kind} belongs to its session, and this memory has the scope {after.scope}", field="kind"
        )
    if len(after.related_entities) > max(MAX_ENTITIES, len(before.related_entities)):
        raise InvalidInput(f"a memory may name at most {MAX_ENTITIES} entities", field="related_entities")
    if change.valid_from is not None or change.valid_until is not None:
        _check_validity(after, "valid_until" if change.valid_from is None else "valid_from")
    return after


SAME_EVENT_S: Final = 86_400.0
"""Within so long, the same words about an event are about the same event."""


def says_the_same(known: MemoryVersion, created_at: float, again: StoreMemory, now: float) -> bool:
    """True if a memory of the same text and scope is the one that `again` states: true still, and of the same time."""
    if known.forgotten or (known.valid_until is not None and known.valid_until <= now):
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
    """A memory after its very text was stored once more: with what was said of it then and now."""
    return msgspec.structs.replace(
        known,
        importance=max(known.importance, again.importance),
        confidence=max(known.confidence, again.confidence),
        tags=tuple(dict.fromkeys((*known.tags, *again.tags)))[: max(MAX_TAGS, len(known.tags))],
        related_entities=tuple(dict.fromkeys((*known.related_entities, *again.related_entities)))[
            : max(MAX_ENTITIES, len(known.related_entities))
        ],
        structured=_both_objects(known.structured, {**again.structured, **known.structured}),
        metadata=_both_objects(known.metadata, {**known.metadata, **again.metadata}),
        source=_both_sources(known.source, again.source),
        pinned=known.pinned or again.pinned,
        summary=known.summary or again.summary,
        domain=known.domain or again.domain,
        due=known.due if again.due is None else again.due,
        status="active" if known.status in ("archived", "consolidated") else known.status,
    )


def _both_objects(known: dict[str, Any], both: dict[str, Any]) -> dict[str, Any]:
    """An object with what is said beside it when its memory's text is stored again, if that fits."""
    return both if len(_canonical.encode(both)) <= MAX_METADATA_BYTES else known


def _both_sources(known: SourceRef, again: SourceRef) -> SourceRef:
    """A memory's source, with the one that its text is said to have when it is stored again, as far as it fits."""
    before = known.label or ""
    both = "; ".join(label for label in (before, again.label) if label)
    if not again.label or again.label in before.split("; ") or len(both) > MAX_NAME:
        return known
    return msgspec.structs.replace(known, label=both)


def tagged(before: MemoryVersion, change: TagMemory) -> MemoryVersion:
    """Raises `InvalidInput` for more tags than a memory may have."""
    return msgspec.structs.replace(before, tags=_with_tags(before.tags, change.add, change.remove, "add"))


INVALIDATED: Final = "invalidated"
"""The reason where none is given."""


def invalidated(before: MemoryVersion, reason: str | None, at: float) -> MemoryVersion:
    """A memory that is no longer true from `at` on. What has ended already, or has yet to begin, does not become true
    by it."""
    ends = at if before.valid_from is None else max(at, before.valid_from)
    if before.valid_until is not None:
        ends = min(ends, before.valid_until)
    return msgspec.structs.replace(
        before, valid_until=ends, invalid_reason=reason or before.invalid_reason or INVALIDATED
    )


def reverted(before: MemoryVersion, old: MemoryVersion) -> MemoryVersion:
    """A memory as it was in `old`, in the scope that it has now, and not forgotten."""
    return msgspec.structs.replace(
        old,
        scope=before.scope,
        session_id=before.session_id,
        occurred_at=before.occurred_at,
        related_entities=tuple(dict.fromkeys(old.related_entities)),
        kind=kind_of(old),
        status=old.status if old.scope == before.scope else "active",
        forgotten=False,
        forgotten_reason=None,
    )


def kind_of(snapshot: MemoryVersion) -> Kind:
    """The kind of a memory; in history from before there were kinds it follows from the type."""
    return snapshot.kind or kind_of_type(snapshot.type)


def check_broader(scope: Scope, target: Scope) -> None:
    """Raises `InvalidInput` when the target is not broader than the scope that a memory has."""
    if BREADTH[target] <= BREADTH[scope]:
        broader = f"this memory has the scope {scope}, and can only be promoted to a broader one"
        raise InvalidInput(
            f"this memory has the scope {scope} already" if scope == target else broader, field="target_scope"
        )


def check_remembered(memory_id: str, snapshot: MemoryVersion) -> None:
    """Raises `InvalidInput` for a memory that is forgotten."""
    if snapshot.forgotten:
        raise InvalidInput(f"{memory_id} is forgotten: restore it first (restore_memory)", field="memory_id")


def _check_validity(after: MemoryVersion, field: str) -> None:
    if after.valid_from is not None and after.valid_until is not None and after.valid_from >= after.valid_until:
        message = "valid_until must be later than valid_from, also where the memory has the other already: give both"
        raise InvalidInput(message, field=field)


def _with_tags(present: tuple[str, ...], add: Iterable[str], remove: Iterable[str], field: str) -> tuple[str, ...]:
    taken = set(remove)
    tags = (*(tag for tag in present if tag not in taken), *dict.fromkeys(tag for tag in add if tag not in present))
    if len(tags) > max(MAX_TAGS, len(present)):
        raise InvalidInput(f"a memory may have at most {MAX_TAGS} tags", field=field)
    return tags


def _with_passage(text: str, change: str | TextEdit | None) -> str:
    if not isinstance(change, TextEdit):
        return text if change is None else change
    start = text.find(change.old)
    if start < 0:
        message = f"the memory does not say {shown(change.old)}: give a passage as it stands there"
        raise InvalidInput(message, field="old")
    if text.find(change.old, start + 1) >= 0:
        message = f"the memory says {shown(change.old)} several times: give more of the text around the one to replace"
        raise InvalidInput(message, field="old")
    replaced = text.replace(change.old, change.new)
    if not replaced.strip():
        raise InvalidInput("nothing of the memory would be left: forget it instead (forget_memory)", field="new")
    return replaced


LINE_AROUND: Final = 120
"""Characters of a long line that are shown on each side of a change."""


def changed_line(before: str, passage: TextEdit) -> str:
    """The line of a new text in which a passage was replaced; of a long one the part around the change."""
    start = before.index(passage.old)
    end = start + min(len(passage.new), 2 * LINE_AROUND)
    after = before.replace(passage.old, passage.new)
    first, last = after.rfind("\n", 0, start) + 1, after.find("\n", end)
    last = len(after) if last < 0 else last
    begins, ends = max(first, start - LINE_AROUND), min(last, end + LINE_AROUND)
    return f"{'…' * (begins > first)}{after[begins:ends]}{'…' * (ends < last)}"


def _said(present: str | None, change: str | None) -> str | None:
    """A text that an empty one takes away."""
    return present if change is None else change or None


def _merged(present: dict[str, Any], changes: dict[str, Any], field: str) -> dict[str, Any]:
    if not changes:
        return present
    merged = {key: value for key, value in (present | changes).items() if value is not None or key not in changes}
    try:
        size = len(_canonical.encode(merged))
    except TypeError as error:
        raise InvalidInput(f"{field} must be what JSON can say: {error}", field=field) from error
    if size > max(MAX_METADATA_BYTES, len(_canonical.encode(present))):
        raise InvalidInput(
            f"the {field} of a memory may have at most {MAX_METADATA_BYTES} bytes as JSON, and this would be {size}",
            field=field,
        )
    return merged


def _with_entities(
    present: tuple[EntityRef, ...], add: tuple[EntityRef, ...], remove: tuple[str, ...]
) -> tuple[EntityRef, ...]:
    """Without those that are named exactly, or (where none is) by the same key; the new ones come last."""
    left = list(present)
    for name in remove:
        named = [entity for entity in present if entity.name == name]
        named = named or [entity for entity in present if name_key(entity.name) == name_key(name)]
        left = [entity for entity in left if entity not in named]
    return tuple(dict.fromkeys((*left, *add)))


def with_subjects(entities: tuple[EntityRef, ...]) -> tuple[EntityRef, ...]:
    """The entities of a memory, with those that a relationship starts from and that are not among them yet."""
    named = {name_key(entity.name) for entity in entities}
    missing = (entity.subject for entity in entities if entity.subject and name_key(entity.subject) not in named)
    return (*entities, *(EntityRef(name, "concept", MENTIONED_WITH) for name in dict.fromkeys(missing)))


def spans_of(versions: Iterable[int]) -> str:
    """Versions in their order, for a person: `1 to 4, 7`."""
    spans: list[list[int]] = []
    for version in versions:
        if spans and spans[-1][1] == version - 1:
            spans[-1][1] = version
        else:
            spans.append([version, version])
    return ", ".join(str(first) if first == last else f"{first} to {last}" for first, last in spans)
