"""The fields of a memory, one row each: the type of its value, its limit, and its treatment in changes.

All code that iterates over fields derives from these rows: comparing versions, merging a restated text, undoing a run,
checking imported memories, the searched words, and the arguments and answers of tools.

A new field needs a line in `MemoryFields` and in `UpdateMemory` of `protocol/writes.py`, a row here, a column (a step
of `MEMORY` in `actors/store/records/schema.py`), and an argument (`GivenFields` in `toolsets/memory/fields.py`).
"""

import math
from collections.abc import Callable
from typing import Any, Final, Literal, NamedTuple

import msgspec

from remembrancer.memory.limits import (
    MAX_ENTITIES,
    MAX_KEPT_LINKS,
    MAX_NAME,
    MAX_PATH,
    MAX_REASON,
    MAX_SESSION_ID,
    MAX_SUMMARY,
    MAX_TAG,
    MAX_TAGS,
    MAX_TURN,
    check_count,
    check_length,
    check_time,
)
from remembrancer.memory.text import MAX_EXACT, MAX_OBJECT_BYTES, check_text, clean_name, clean_object
from remembrancer.protocol.errors import InvalidInput
from remembrancer.protocol.writes import EntityRef, PortableMemory, RecordedFields, SourceRef

Sort = Literal[
    "content", "word", "share", "tags", "object", "entities", "source", "line", "name", "session", "time", "flag"
]
"""The type of a value. A `word` is one of a fixed set, a `share` is in [0, 1], a `line` is a short text."""
Join = Callable[[Any, Any], Any]
"""Merges a field's value with the value given when the same text is stored again."""

encode_object: Final = msgspec.json.Encoder(order="deterministic").encode


def _first(known: Any, again: Any) -> Any:
    return known or again


def _last(known: Any, again: Any) -> Any:
    return known if again is None else again


def _union(most: int) -> Join:
    """All items of both, up to the limit for a memory."""
    return lambda known, again: tuple(dict.fromkeys((*known, *again)))[: max(most, len(known))]


def _fitting(both: dict[str, Any], known: dict[str, Any]) -> dict[str, Any]:
    return both if len(encode_object(both)) <= MAX_OBJECT_BYTES else known


def _labels(known: SourceRef, again: SourceRef) -> SourceRef:
    """A source to which the other's label is added, as far as it fits."""
    before = known.label or ""
    both = "; ".join(label for label in (before, again.label) if label)
    if not again.label or again.label in before.split("; ") or len(both) > MAX_NAME:
        return known
    return msgspec.structs.replace(known, label=both)


class Field(NamedTuple):
    """A field of a memory.

    `longest` is in characters. Without a `join`, storing the text again leaves the field as it is. A `clearable` field
    can be reset to unknown. A consolidation run may change fields that are `by_run`; fields that `stay` are not
    restored with an earlier version. A `detail` is shown where it is not empty.
    """

    name: str
    sort: Sort
    longest: int = 0
    join: Join | None = None
    is_compared: bool = True
    is_searched: bool = False
    is_clearable: bool = False
    by_run: bool = False
    stays: bool = False
    is_detail: bool = False


FIELDS: Final = (
    Field("content", "content", is_searched=True),
    Field("importance", "share", join=max, by_run=True),
    Field("tags", "tags", join=_union(MAX_TAGS), is_searched=True, by_run=True),
    Field("metadata", "object", join=lambda known, again: _fitting({**known, **again}, known)),
    Field("related_entities", "entities", join=_union(MAX_ENTITIES)),
    Field("source", "source", join=_labels),
    Field("type", "word", by_run=True),
    Field("kind", "word", by_run=True, is_detail=True),
    Field("summary", "line", MAX_SUMMARY, _first, is_searched=True, is_clearable=True, by_run=True, is_detail=True),
    Field("structured", "object", join=lambda known, again: _fitting({**again, **known}, known), is_detail=True),
    Field("confidence", "share", join=max, by_run=True),
    Field("domain", "name", MAX_NAME, _first, is_clearable=True, is_detail=True),
    Field("valid_from", "time", is_clearable=True, is_detail=True),
    Field("valid_until", "time", is_clearable=True, by_run=True, is_detail=True),
    Field("invalid_reason", "line", MAX_REASON, is_detail=True),
    Field("pinned", "flag", join=_first),
    Field("due", "time", join=_last, is_clearable=True),
    Field("done", "flag"),
    Field("scope", "word", by_run=True, stays=True),
    Field("status", "word", by_run=True),
    # `status` represents these two when versions are compared.
    Field("forgotten", "flag", is_compared=False, by_run=True),
    Field("forgotten_reason", "line", MAX_REASON, is_compared=False, by_run=True),
    # Only a session's record gets other values, when the session ends again.
    Field("session_id", "session", MAX_SESSION_ID, is_compared=False, stays=True),
    Field("occurred_at", "time", is_compared=False, stays=True, is_detail=True),
)
"""In the order in which answers list changed fields."""
DETAILS: Final = tuple(field.name for field in FIELDS if field.is_detail)
SEARCHED: Final = tuple(field.name for field in FIELDS if field.is_searched)
"""The fields whose words are searched."""


def check_memory(memory: PortableMemory, content_limit_bytes: int) -> None:
    """Refuse an imported memory if no tool would have stored it, or one of its versions, in this form.

    Raises:
        InvalidInput: the message names the field and the limit.
    """
    if not 1 <= memory.version <= MAX_EXACT or not 0 <= memory.access_count <= MAX_EXACT:
        raise InvalidInput("version must be 1 or more, and access_count 0 or more, and both at most 2**53")
    _check_fields(memory, content_limit_bytes)
    for name in ("created_at", "updated_at", "last_accessed_at", "forgotten_at"):
        check_time(getattr(memory, name), name)
    versions = [entry.version for entry in memory.history]
    if versions != sorted(versions) or any(not 1 <= version <= MAX_EXACT for version in versions):
        raise InvalidInput("history must be in ascending order of versions, from 1 to 2**53")
    for place, entry in enumerate(memory.history):
        try:
            clean_name(entry.change, field="change", longest=MAX_NAME)
            check_time(entry.changed_at, "changed_at")
            clean_object(entry.details, field="details")
            _check_fields(entry.record, content_limit_bytes)
        except InvalidInput as error:
            raise InvalidInput(f"history[{place}].{error.message}", field=f"history[{place}].{error.field}") from error
    check_count(memory.links, field="links", most=MAX_KEPT_LINKS)
    for link in memory.links:
        clean_name(link.relation, field="links.relation", longest=MAX_NAME)
        check_time(link.created_at, "links.created_at")
        if not math.isfinite(link.strength):
            raise InvalidInput("links.strength must be a finite number", field="links.strength")
    check_count(memory.accessed_in, field="accessed_in", most=MAX_KEPT_LINKS)
    check_count(memory.promotion_chain, field="promotion_chain", most=MAX_KEPT_LINKS)


def _check_fields(memory: RecordedFields, content_limit_bytes: int) -> None:
    check_text(memory.content, field="content", longest_bytes=content_limit_bytes)
    for field in FIELDS:
        check, value = _CHECKS.get(field.sort), getattr(memory, field.name, None)
        if check is not None and value is not None:
            check(value, field)
    try:
        msgspec.msgpack.encode(memory)
    except (OverflowError, RecursionError) as error:
        raise InvalidInput(f"a number in it is too large, or it is nested too deeply: {error}") from error


def _check_share(value: float, field: Field) -> None:
    if not 0.0 <= value <= 1.0:
        raise InvalidInput(f"{field.name} must be between 0 and 1, not {value}", field=field.name)


def _check_tags(tags: tuple[str, ...], field: Field) -> None:
    check_count(tags, field=field.name, most=MAX_TAGS)
    for tag in tags:
        clean_name(tag, field=field.name, longest=MAX_TAG)


def _check_entities(entities: tuple[EntityRef, ...], field: Field) -> None:
    check_count(entities, field=field.name, most=MAX_ENTITIES)
    for entity in entities:
        for name in (entity.name, entity.type, entity.relationship, entity.subject or entity.name):
            clean_name(name, field=field.name, longest=MAX_NAME)


def _check_source(source: SourceRef, field: Field) -> None:
    for part, longest in (("tool", MAX_NAME), ("file", MAX_PATH), ("label", MAX_NAME)):
        if (text := getattr(source, part)) is not None:
            clean_name(text, field=f"{field.name}.{part}", longest=longest)
    if not 0 <= (source.conversation_turn or 0) <= MAX_TURN:
        raise InvalidInput(f"source.conversation_turn must be an integer from 0 to {MAX_TURN}", field=field.name)


def _check_line(value: str, field: Field) -> None:
    if value:
        check_length(value, field=field.name, longest=field.longest)


_CHECKS: Final[dict[Sort, Callable[[Any, Field], object]]] = {
    "share": _check_share,
    "tags": _check_tags,
    "object": lambda value, field: clean_object(value, field=field.name),
    "entities": _check_entities,
    "source": _check_source,
    "line": _check_line,
    "session": lambda value, field: not value or clean_name(value, field=field.name, longest=field.longest),
    "name": lambda value, field: clean_name(value, field=field.name, longest=field.longest),
    "time": lambda value, field: check_time(value, field.name),
}
"""The checks of values that a type alone cannot express. Each raises `InvalidInput`."""
