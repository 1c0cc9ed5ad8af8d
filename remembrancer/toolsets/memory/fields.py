"""The fields of a memory as clients give them: the arguments that several tools take, checked and cleaned."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, TypeVar

import msgspec
from msgspec import UNSET, Meta, UnsetType

from remembrancer.memory.limits import (
    MAX_ENTITIES,
    MAX_NAME,
    MAX_REASON,
    MAX_SUMMARY,
    MAX_TAG,
    MAX_TAGS,
    check_count,
    check_length,
)
from remembrancer.memory.text import MAX_EXACT, clean_name, shown
from remembrancer.protocol.errors import InvalidInput
from remembrancer.protocol.kinds import KINDS, Kind
from remembrancer.protocol.writes import EntityRef

T = TypeVar("T")
D = TypeVar("D")
AllowSecrets = Annotated[bool, Meta(description="Allow credentials")]
Version = Annotated[int, Meta(ge=1)]
Offset = Annotated[int, Meta(ge=0, le=1_000_000)]


class RelatedEntity(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    type: Annotated[str, Meta(description="component, file, person, library …")]
    relationship: Annotated[str, Meta(description="uses, depends_on …")]
    subject: Annotated[str, Meta(description="Where it starts, if at an entity")] | UnsetType = UNSET


def given(value: T | UnsetType, default: D) -> T | D:
    """An optional argument, or what stands for it where it was left out."""
    return default if value is UNSET else value


def clean_tags(tags: list[str] | UnsetType, *, field: str = "tags") -> tuple[str, ...]:
    """Tags as they are kept: each a name, none twice, in the order given.

    Raises:
        InvalidInput: there are too many, or one is no name.
    """
    return _clean_names(tags, field=field, most=MAX_TAGS, longest=MAX_TAG)


def clean_tag_changes(
    add: list[str] | UnsetType, remove: list[str] | UnsetType, prefix: str = ""
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Tags to add and to remove. Raises `InvalidInput`: as `clean_tags`, or one is to be both."""
    added = clean_tags(add, field=f"{prefix}add")
    removed = clean_tags(remove, field=f"{prefix}remove")
    both = [tag for tag in added if tag in removed]
    if both:
        message = f"{prefix}add and {prefix}remove both name {shown(both[0])}: it can be the one or the other"
        raise InvalidInput(message, field=f"{prefix}add")
    return added, removed


def clean_entity_names(names: list[str] | UnsetType, *, field: str) -> tuple[str, ...]:
    """Names of entities, none twice. Raises `InvalidInput` for too many, or for one that is no name."""
    return _clean_names(names, field=field, most=MAX_ENTITIES, longest=MAX_NAME)


def _clean_names(names: list[str] | UnsetType, *, field: str, most: int, longest: int) -> tuple[str, ...]:
    listed = given(names, ())
    check_count(listed, field=field, most=most)
    return tuple(
        dict.fromkeys(clean_name(name, field=f"{field}[{place}]", longest=longest) for place, name in enumerate(listed))
    )


def clean_entities(
    entities: Sequence[RelatedEntity] | UnsetType, *, field: str = "related_entities"
) -> tuple[EntityRef, ...]:
    """Entities as they are kept: each with three names, none twice, in the order given; well-known types as one name.

    Raises:
        InvalidInput: there are too many, or one of the names is none.
    """
    listed = given(entities, ())
    check_count(listed, field=field, most=MAX_ENTITIES)
    found: dict[EntityRef, None] = {}
    for place, entity in enumerate(listed):
        at = f"{field}[{place}]"
        name = clean_name(entity.name, field=f"{at}.name", longest=MAX_NAME)
        kind = clean_name(entity.type, field=f"{at}.type", longest=MAX_NAME)
        relationship = clean_name(entity.relationship, field=f"{at}.relationship", longest=MAX_NAME)
        subject = "" if entity.subject is UNSET else clean_name(entity.subject, field=f"{at}.subject", longest=MAX_NAME)
        found[EntityRef(name, kind, relationship, subject)] = None
    return tuple(found)


def clean_kind(kind: str, *, field: str = "kind") -> Kind:
    """One of the kinds. Raises `InvalidInput` for any other word."""
    for known in KINDS:
        if kind == known:
            return known
    raise InvalidInput(f"{field} must be one of {', '.join(KINDS)}, not {shown(kind)}", field=field)


def clean_summary(summary: str | UnsetType) -> str | None:
    """A summary as it is kept; None when none was given. Raises `InvalidInput` when it is blank or too long."""
    text = _clean_text(summary, field="summary", longest=MAX_SUMMARY)
    return None if text is None else text.strip()


def clean_reason(reason: str | UnsetType) -> str | None:
    """A reason as it is kept; None when none was given. Raises `InvalidInput` when it is blank or too long."""
    return _clean_text(reason, field="reason", longest=MAX_REASON)


def _clean_text(text: str | UnsetType, *, field: str, longest: int) -> str | None:
    if text is UNSET:
        return None
    check_length(text, field=field, longest=longest)
    return text


def clean_domain(domain: str | UnsetType) -> str | None:
    """A domain as it is kept; None when none was given. Raises `InvalidInput` when it is no name."""
    return None if domain is UNSET else clean_name(domain, field="domain", longest=MAX_NAME)


def clean_version(version: int | UnsetType) -> int | None:
    """A version as it can be sent. Raises `InvalidInput` when no memory has so many."""
    if version is UNSET:
        return None
    if version > MAX_EXACT:
        raise InvalidInput(f"version must be an integer from 1 to {MAX_EXACT}, not {shown(version)}", field="version")
    return version


def validity(valid_from: str | UnsetType, valid_until: str | UnsetType) -> tuple[float | None, float | None]:
    """The time in which a memory is true, in seconds since the epoch; None where nothing was given.

    Raises:
        InvalidInput: one is no date or time, or the end is not after the beginning.
    """
    start, end = seconds_of(valid_from, "valid_from"), seconds_of(valid_until, "valid_until")
    if start is not None and end is not None and start >= end:
        raise InvalidInput("valid_until must be later than valid_from", field="valid_until")
    return start, end


def seconds_of(text: str | UnsetType, field: str) -> float | None:
    """Seconds since the epoch of an ISO 8601 date or time; without an offset it is in UTC. None when none was given.

    Raises:
        InvalidInput: it is no date or time.
    """
    if text is UNSET:
        return None
    try:
        moment = datetime.fromisoformat(text.strip())
        seconds = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC).timestamp()
    except (ValueError, OverflowError) as error:
        message = f"{field} must be an ISO 8601 date or time such as 2026-02-20T14:30:00Z, not {shown(text)}"
        raise InvalidInput(message, field=field) from error
    assert math.isfinite(seconds)
    return seconds
