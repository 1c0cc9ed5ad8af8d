"""The fields of a memory, one row each, with the type of the value, its limit, and how changes treat it. All code that
iterates over fields uses these rows.

A new field needs a line in `OptionalFields` of `protocol/writes.py`, a row here, a column (a step of `MEMORY` in
`actors/store/records/schema.py`), and an argument (`GivenFields` in `toolsets/memory/fields.py`).
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, Literal, NamedTuple, TypedDict

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
    check_count,
    check_time,
)
from remembrancer.memory.text import MAX_EXACT, MAX_OBJECT_BYTES, check_text, clean_name, clean_object, types_in_words
from remembrancer.protocol.errors import InvalidInput
from remembrancer.protocol.writes import EntityRef, PortableMemory, RecordedFields, Scope, SourceRef

Sort = Literal["content", "word", "share", "tags", "object", "entities", "source", "line", "name", "time", "flag"]
"""A `word` is one of a fixed set, a `share` is in [0, 1], and a `line` is a short text."""
Join = Callable[[Any, Any], Any]
"""Merges a field's current value with the new one when the same text is stored again."""

encode_object: Final = msgspec.json.Encoder(order="deterministic").encode


def _first(known: Any, again: Any) -> Any:
    return known or again


def _union(most: int) -> Join:
    return lambda known, again: tuple(dict.fromkeys((*known, *again)))[: max(most, len(known))]


def _fitting(both: dict[str, Any], known: dict[str, Any]) -> dict[str, Any]:
    return both if len(encode_object(both)) <= MAX_OBJECT_BYTES else known


class Field(NamedTuple):
    """`longest` is in characters. Without a `join`, storing the same text again does not change the field. A clearable
    field can be reset to unknown. A field that `stays` keeps its value when an earlier version is restored. A detail is
    shown unless it is empty."""

    name: str
    sort: Sort
    longest: int = 0
    join: Join | None = None
    is_compared: bool = True
    is_searched: bool = False
    is_clearable: bool = False
    stays: bool = False
    is_detail: bool = False


FIELDS: Final = (
    Field("content", "content", is_searched=True),
    Field("importance", "share", join=max),
    Field("tags", "tags", join=_union(MAX_TAGS), is_searched=True),
    Field("metadata", "object", join=lambda known, again: _fitting({**known, **again}, known)),
    Field("related_entities", "entities", join=_union(MAX_ENTITIES)),
    Field("source", "source"),
    Field("type", "word"),
    Field("kind", "word", is_detail=True),
    Field("summary", "line", MAX_SUMMARY, _first, is_searched=True, is_clearable=True, is_detail=True),
    Field("structured", "object", join=lambda known, again: _fitting({**again, **known}, known), is_detail=True),
    Field("confidence", "share", join=max),
    Field("domain", "name", MAX_NAME, _first, is_clearable=True, is_detail=True),
    Field("valid_from", "time", is_clearable=True, is_detail=True),
    Field("valid_until", "time", is_clearable=True, is_detail=True),
    Field("invalid_reason", "line", MAX_REASON, is_detail=True),
    Field("pinned", "flag", join=_first),
    Field("occurred_at", "time", is_clearable=True, is_detail=True),
    Field("due", "time", join=lambda known, again: known if again is None else again, is_clearable=True),
    Field("done", "flag"),
    Field("scope", "word", stays=True),
    Field("status", "word"),
    # Versions are compared by `status` instead of these two.
    Field("forgotten", "flag", is_compared=False),
    Field("forgotten_reason", "line", MAX_REASON, is_compared=False),
    # This changes only in a session's record, when the session ends again.
    Field("session_id", "name", MAX_SESSION_ID, is_compared=False, stays=True),
)
"""Answers list changed fields in this order."""
DETAILS: Final = tuple(field.name for field in FIELDS if field.is_detail)
SEARCHED: Final = tuple(field.name for field in FIELDS if field.is_searched)


class DetailsRead(TypedDict, total=False):
    """The details of a history entry that the rules read."""

    fields: tuple[str, ...]
    by: str
    other: str
    links: tuple[tuple[str, str, str, float | None], ...]
    as_of: int
    previous_scope: Scope


def check_memory(memory: PortableMemory, content_limit_bytes: int) -> None:
    """Raises `InvalidInput` if an imported memory, or one of its versions, breaks a rule that the tools enforce."""
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
            msgspec.convert(entry.details, DetailsRead)
            _check_fields(entry.record, content_limit_bytes)
        except InvalidInput as error:
            raise InvalidInput(f"history[{place}].{error.message}", field=f"history[{place}].{error.field}") from error
        except msgspec.ValidationError as error:
            raise InvalidInput(f"history[{place}].details: {types_in_words(str(error))}", field="history") from error
    for name in ("links", "accessed_in", "promotion_chain"):
        check_count(getattr(memory, name), field=name, most=MAX_KEPT_LINKS)
    for link in memory.links:
        clean_name(link.relation, field="links.relation", longest=MAX_NAME)
        check_time(link.created_at, "links.created_at")


def _check_fields(memory: RecordedFields, content_limit_bytes: int) -> None:
    check_text(memory.content, field="content", longest_bytes=content_limit_bytes)
    for row in FIELDS:
        if rule := RULES.get(row.sort):
            value = getattr(memory, row.name, None)
            if value is not None and value != "":
                rule(value, row)


def clean_tags(tags: Sequence[str], *, field: str = "tags") -> tuple[str, ...]:
    """Validated tags without duplicates or a leading #. Raises `InvalidInput`."""
    return clean_names([tag.lstrip("# ") for tag in tags], field=field, most=MAX_TAGS, longest=MAX_TAG)


def tags_named(tags: Sequence[str], *, field: str = "tags") -> tuple[str, ...]:
    """The tags to search for: cleaned, and as given, since 0.2.0 kept a leading #."""
    given = clean_names(tags, field=field, most=MAX_TAGS, longest=MAX_TAG)
    return tuple(dict.fromkeys((*clean_tags(tags, field=field), *given)))


def clean_names(names: Sequence[str], *, field: str, most: int, longest: int) -> tuple[str, ...]:
    """Names without duplicates. Raises `InvalidInput`."""
    check_count(names, field=field, most=most)
    return tuple(
        dict.fromkeys(clean_name(name, field=f"{field}[{place}]", longest=longest) for place, name in enumerate(names))
    )


def clean_entities(entities: Sequence[EntityRef], *, field: str) -> tuple[EntityRef, ...]:
    """Entities without duplicates. Raises `InvalidInput`."""
    check_count(entities, field=field, most=MAX_ENTITIES)
    cleaned: dict[EntityRef, None] = {}
    for place, entity in enumerate(entities):
        given = {
            name: clean_name(text, field=f"{field}[{place}].{name}", longest=MAX_NAME)
            for name, text in msgspec.structs.asdict(entity).items()
            if text or name != "subject"
        }
        cleaned[EntityRef(**given)] = None
    return tuple(cleaned)


def clean_source(source: SourceRef, *, field: str) -> SourceRef:
    names = {
        name: clean_name(text, field=f"{field}.{name}", longest=longest)
        for name, longest in (("tool", MAX_NAME), ("file", MAX_PATH), ("label", MAX_NAME))
        if (text := getattr(source, name)) is not None
    }
    return msgspec.structs.replace(source, **names)


def clean_line(text: str, *, field: str, longest: int) -> str:
    """A stripped text of at most `longest` characters. Raises `InvalidInput`."""
    check_text(text, field=field, longest_bytes=4 * longest)
    if len(text) > longest:
        raise InvalidInput(f"{field} may have at most {longest} characters, but has {len(text)}", field=field)
    return text.strip()


def _clean_share(value: float, row: Field) -> float:
    if not 0.0 <= value <= 1.0:
        raise InvalidInput(f"{row.name} must be between 0 and 1, not {value}", field=row.name)
    return value


Rule = Callable[[Any, Field], Any]
RULES: Final[dict[Sort, Rule]] = {
    "share": _clean_share,
    "flag": lambda value, row: value,
    "tags": lambda value, row: clean_tags(value, field=row.name),
    "object": lambda value, row: clean_object(value, field=row.name),
    "entities": lambda value, row: clean_entities(value, field=row.name),
    "source": lambda value, row: clean_source(value, field=row.name),
    "line": lambda value, row: clean_line(value, field=row.name, longest=row.longest),
    "name": lambda value, row: clean_name(value, field=row.name, longest=row.longest),
    "time": lambda value, row: check_time(value, row.name),
}
"""Functions that clean values from callers and check imported ones. They raise `InvalidInput`."""
