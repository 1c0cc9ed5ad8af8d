"""The fields of a memory as clients give them: the arguments that several tools take, checked and cleaned."""

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from types import MappingProxyType
from typing import Annotated, Any, Final, TypeVar

import msgspec
from msgspec import Meta

from remembrancer.memory.fields import FIELDS, Field
from remembrancer.memory.limits import MAX_ENTITIES, MAX_NAME, MAX_REASON, MAX_TAG, MAX_TAGS, check_count, check_length
from remembrancer.memory.text import MAX_EXACT, clean_name, clean_object, shown
from remembrancer.protocol.errors import InvalidInput
from remembrancer.protocol.writes import EntityRef

T = TypeVar("T")
D = TypeVar("D")
Version = Annotated[int, Meta(ge=1, le=MAX_EXACT)]
Offset = Annotated[int, Meta(ge=0, le=1_000_000)]


class RelatedEntity(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    type: str
    relationship: str
    subject: str | None = None


def given(value: T | None, default: D) -> T | D:
    """The value of an optional argument, or `default` if it was left out."""
    return default if value is None else value


def clean_tags(tags: Sequence[str], *, field: str = "tags") -> tuple[str, ...]:
    """Validated tags without duplicates, in the given order.

    Raises:
        InvalidInput: there are too many, or one is not a valid name.
    """
    return clean_names(tags, field=field, most=MAX_TAGS, longest=MAX_TAG)


def clean_names(names: Sequence[str], *, field: str, most: int, longest: int) -> tuple[str, ...]:
    """Names without duplicates, in the given order. Raises `InvalidInput` if there are too many, or one is invalid."""
    check_count(names, field=field, most=most)
    return tuple(
        dict.fromkeys(clean_name(name, field=f"{field}[{place}]", longest=longest) for place, name in enumerate(names))
    )


def clean_tag_changes(
    add: Sequence[str], remove: Sequence[str], prefix: str = ""
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The tags to add and to remove. Raises `InvalidInput` as `clean_tags` does, or if a tag is in both lists."""
    added = clean_tags(add, field=f"{prefix}add")
    removed = clean_tags(remove, field=f"{prefix}remove")
    both = [tag for tag in added if tag in removed]
    if both:
        message = f"{prefix}add and {prefix}remove both name {shown(both[0])}: it can be the one or the other"
        raise InvalidInput(message, field=f"{prefix}add")
    return added, removed


def clean_entities(entities: Sequence[RelatedEntity], *, field: str) -> tuple[EntityRef, ...]:
    """Validated entities without duplicates, in the given order; well-known types are normalized.

    Raises:
        InvalidInput: there are too many, or one of the names is invalid.
    """
    check_count(entities, field=field, most=MAX_ENTITIES)
    cleaned_entities: dict[EntityRef, None] = {}
    for place, entity in enumerate(entities):
        at = f"{field}[{place}]"
        name = clean_name(entity.name, field=f"{at}.name", longest=MAX_NAME)
        kind = clean_name(entity.type, field=f"{at}.type", longest=MAX_NAME)
        relationship = clean_name(entity.relationship, field=f"{at}.relationship", longest=MAX_NAME)
        subject = "" if entity.subject is None else clean_name(entity.subject, field=f"{at}.subject", longest=MAX_NAME)
        cleaned_entities[EntityRef(name, kind, relationship, subject)] = None
    return tuple(cleaned_entities)


def clean_line(text: str, *, field: str, longest: int) -> str:
    """A short text, cleaned. Raises `InvalidInput` if it is blank or too long."""
    check_length(text, field=field, longest=longest)
    return text.strip()


def clean_reason(reason: str | None) -> str | None:
    """A reason, cleaned; None if none was given. Raises `InvalidInput` if it is blank or too long."""
    if reason is None:
        return None
    check_length(reason, field="reason", longest=MAX_REASON)
    return reason


def seconds_of(text: str | None, field: str) -> float | None:
    """Convert an ISO 8601 date or time to seconds since the epoch; without an offset it is UTC. None if none was given.

    Raises:
        InvalidInput: the text is not a date or time.
    """
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text.strip())
        seconds = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC).timestamp()
    except (ValueError, OverflowError) as error:
        message = f"{field} must be an ISO 8601 date or time such as 2026-02-20T14:30:00Z, not {shown(text)}"
        raise InvalidInput(message, field=field) from error
    assert math.isfinite(seconds)
    return seconds


class GivenFields(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The arguments for the fields of a memory that can be given both on storing and on changing it."""

    importance: Annotated[float, Meta(ge=0, le=1)] | None = None
    confidence: Annotated[float, Meta(ge=0, le=1)] | None = None
    summary: str | None = None
    domain: str | None = None
    structured: dict[str, Any] | None = None
    metadata: dict[str, Any] | None = None
    valid_from: str | None = None
    valid_until: str | None = None
    allow_secrets: bool | None = None


UNLISTED: Final = GivenFields.__struct_fields__
"""The list of tools leaves these arguments out."""
Rule = Callable[..., Any]
"""Cleans a given value; takes the name of the field as `field`. Raises `InvalidInput`."""


def cleaned(arguments: msgspec.Struct, rules: Mapping[str, Rule] = MappingProxyType({}), *but: str) -> dict[str, Any]:
    """The given fields of a memory by name, cleaned by their type or by the field's rule.

    The fields named in `but` are left out.

    Raises:
        InvalidInput: a value is not allowed, or `valid_until` is not after `valid_from`.
    """
    fields: dict[str, Any] = {}
    for name, rule in {**_RULES, **rules}.items():
        value = getattr(arguments, name, None)
        if value is None or name in but:
            continue
        cleaned_value = rule(value, field=name)
        if cleaned_value is not None:
            fields[name] = cleaned_value
    if "valid_until" in fields and fields.get("valid_from", -math.inf) >= fields["valid_until"]:
        raise InvalidInput("valid_until must be later than valid_from", field="valid_until")
    return fields


def _rule_of(row: Field) -> Rule | None:
    match row.sort:
        case "share" | "flag":
            return lambda value, field: value  # the type is check enough
        case "time":
            return seconds_of
        case "object":
            return clean_object
        case "line":
            return partial(clean_line, longest=row.longest)
        case "name":
            return partial(clean_name, longest=row.longest)
    return None


_RULES: Final = {row.name: rule for row in FIELDS if (rule := _rule_of(row)) is not None}
