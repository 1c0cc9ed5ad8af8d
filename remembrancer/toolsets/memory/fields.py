"""The arguments for a memory's fields that several tools share, and the functions that check and clean them."""

import math
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Final, TypeVar

import msgspec
from msgspec import Meta

from remembrancer.memory.decay import DAY_S
from remembrancer.memory.fields import FIELDS, RULES, clean_line, clean_tags, tags_named
from remembrancer.memory.limits import MAX_REASON
from remembrancer.memory.text import MAX_EXACT, quote
from remembrancer.protocol.errors import InvalidInput
from remembrancer.protocol.kinds import Kind
from remembrancer.protocol.writes import MemoryType, Scope

T = TypeVar("T")
D = TypeVar("D")
Version = Annotated[int, Meta(ge=1, le=MAX_EXACT)]
NOT_PAST: Final = "{day} is not a past day; give today, or a day such as Tuesday or 2026-11-17"
Offset = Annotated[int, Meta(ge=0, le=1_000_000)]


def given(value: T | None, default: D) -> T | D:
    return default if value is None else value


def clean_tag_changes(
    add: Sequence[str], remove: Sequence[str], prefix: str = ""
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    added = clean_tags(add, field=f"{prefix}add")
    removed = tags_named(remove, field=f"{prefix}remove")
    both = [tag for tag in added if tag in removed and f"#{tag}" not in removed]
    if both:
        raise InvalidInput(f"{quote(both[0])} cannot be both added and removed", field=f"{prefix}add")
    return added, removed


def clean_reason(reason: str | None) -> str | None:
    return None if reason is None else clean_line(reason, field="reason", longest=MAX_REASON)


def seconds_of(text: str | None, field: str) -> float | None:
    """Convert an ISO 8601 date or time to epoch seconds, in UTC unless it has an offset. Raises `InvalidInput`."""
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text.strip())
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC).timestamp()
    except (ValueError, OverflowError) as error:
        message = f"{field} must be an ISO 8601 date or time such as 2026-02-20T14:30:00Z, not {quote(text)}"
        raise InvalidInput(message, field=field) from error


class GivenFilters(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    scope: list[Scope] = []
    type: list[MemoryType] = []
    kind: list[Kind] = []
    domain: list[str] = []
    tags: list[str] = []
    min_importance: Annotated[float, Meta(ge=0, le=1)] = 0.0
    include_forgotten: bool = False

    def for_request(self) -> dict[str, Any]:
        return {
            "scopes": tuple(dict.fromkeys(self.scope)),
            "types": tuple(dict.fromkeys(self.type)),
            "kinds": tuple(dict.fromkeys(self.kind)),
            "domains": tags_named(self.domain, field="domain"),
            "tags": tags_named(self.tags),
            "min_importance": self.min_importance,
            "include_forgotten": self.include_forgotten,
        }


class GivenFields(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The arguments for fields of a memory that can be given both when storing and when changing it."""

    importance: Annotated[float, Meta(ge=0, le=1)] | None = None
    confidence: Annotated[float, Meta(ge=0, le=1)] | None = None
    summary: str | None = None
    domain: str | None = None
    structured: dict[str, Any] | None = None
    metadata: dict[str, Any] | None = None
    valid_from: str | None = None
    valid_until: str | None = None
    occurred_at: str | None = None
    allow_secrets: bool | None = None


UNLISTED: Final = GivenFields.__struct_fields__


def cleaned(arguments: msgspec.Struct, *but: str) -> dict[str, Any]:
    """The given fields of a memory, cleaned by type, except those in `but`. Raises `InvalidInput`."""
    fields: dict[str, Any] = {}
    today = (time.time() + max(0, time.localtime().tm_gmtoff)) // DAY_S  # the later of the days here and in UTC
    for row in FIELDS:
        value, rule = getattr(arguments, row.name, None), RULES.get(row.sort)
        if value is None or rule is None or row.name in but:
            continue
        cleaned_value = seconds_of(value, row.name) if row.sort == "time" else rule(value, row)
        if row.name == "occurred_at" and (cleaned_value or 0) // DAY_S > today:
            raise InvalidInput(
                f"{NOT_PAST.format(day=quote(value))}; for a coming event, give a due date", field=row.name
            )
        if cleaned_value is not None:
            fields[row.name] = cleaned_value
    if "valid_until" in fields and fields.get("valid_from", -math.inf) >= fields["valid_until"]:
        raise InvalidInput("valid_until must be later than valid_from", field="valid_until")
    return fields
