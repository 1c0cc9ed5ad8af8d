"""The bounds of a memory, whichever door it comes in by: tools, hooks and imports share them.

A tool's arguments are cleaned field by field (`toolsets/memory/fields.py`); a memory that comes whole is held to the
same bounds here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Final, TypeVar

import msgspec

from remembrancer.memory.text import MAX_EXACT, check_text, clean_name, clean_object
from remembrancer.protocol.errors import InvalidInput
from remembrancer.protocol.writes import PortableMemory, RecordedFields, ShownFields

MAX_ANSWER_BYTES: Final = 1_000_000
"""Of one answer to a client, so that many at once keep nobody waiting; a single memory is always whole."""
LISTED_BYTES: Final = MAX_ANSWER_BYTES * 4 // 5
"""Of the memories of one page: the rest of an answer is for what stands around them."""
MAX_TAGS: Final = 100
MAX_TAG: Final = 100
MAX_ENTITIES: Final = 100
MAX_LINKS: Final = 100
MAX_NAME: Final = 200
MAX_SESSION_ID: Final = 200
MAX_PATH: Final = 4096
MAX_SUMMARY: Final = 2000
MAX_REASON: Final = 2000
MAX_TURN: Final = 2**53 - 1
"""The largest whole number that JSON carries exactly."""
MAX_KEPT_LINKS: Final = 10_000
"""Of a memory that comes whole: near-duplicates are among its links."""
EARLIEST_S: Final = datetime.min.replace(tzinfo=UTC).timestamp()
LATEST_S: Final = datetime.max.replace(tzinfo=UTC, microsecond=0).timestamp()
"""The first and the last second that a calendar has, in seconds since the epoch."""

Shown = TypeVar("Shown", bound=ShownFields)


def first_that_fit(memories: Iterable[Shown]) -> tuple[tuple[Shown, ...], bool]:
    """The first of a list, as many as an answer holds, and one at least; and whether that is not all of them."""
    page: list[Shown] = []
    room = LISTED_BYTES
    for memory in memories:
        room -= len(memory.content.encode()) + len(memory.summary or "")
        if page and room < 0:
            return tuple(page), True
        page.append(memory)
    return tuple(page), False


def moment(seconds: float) -> datetime:
    """A time (seconds since the epoch) in UTC. One that no calendar has is shown as the nearest that one has."""
    return datetime.fromtimestamp(min(max(seconds, EARLIEST_S), LATEST_S) if seconds == seconds else 0.0, UTC)


def check_count(items: Sequence[object], *, field: str, most: int) -> None:
    """Raises `InvalidInput` for more items than a list may have."""
    if len(items) > most:
        raise InvalidInput(f"{field} may have {most} items at most, and has {len(items)}", field=field)


def check_length(text: str, *, field: str, longest: int) -> None:
    """Refuse a text of more than `longest` characters, or one that `check_text` refuses. Raises `InvalidInput`."""
    check_text(text, field=field, longest_bytes=4 * longest)
    if len(text) > longest:
        raise InvalidInput(f"{field} may have {longest} characters at most, and has {len(text)}", field=field)


def check_time(seconds: float | None, field: str) -> None:
    """Raises `InvalidInput` for a time that is outside of the calendar: one in milliseconds, say."""
    if seconds is not None and not EARLIEST_S <= seconds <= LATEST_S:
        raise InvalidInput(f"{field} must be a time of the years 1 to 9999 in seconds, not {seconds:g}", field=field)


def check_memory(memory: PortableMemory, content_limit_bytes: int) -> None:
    """Refuse a memory that comes whole if no tool would have stored it so, now or in one of its versions.

    Raises:
        InvalidInput: the message names the field and what is allowed.
    """
    if not 1 <= memory.version <= MAX_EXACT or not 0 <= memory.access_count <= MAX_EXACT:
        raise InvalidInput("version must be 1 or more, and access_count 0 or more, and both at most 2**53")
    _check_fields(memory, content_limit_bytes)
    for name in ("created_at", "updated_at", "last_accessed_at", "forgotten_at"):
        check_time(getattr(memory, name), name)
    versions = [entry.version for entry in memory.history]
    if versions != sorted(versions) or any(not 1 <= version <= MAX_EXACT for version in versions):
        raise InvalidInput("history must be in the order of its versions, from 1 to 2**53")
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
    for name in ("importance", "confidence"):
        if not 0.0 <= getattr(memory, name) <= 1.0:
            raise InvalidInput(f"{name} must be between 0 and 1, not {getattr(memory, name)}", field=name)
    clean_name(memory.session_id or "none", field="session_id", longest=MAX_SESSION_ID)
    check_count(memory.tags, field="tags", most=MAX_TAGS)
    for tag in memory.tags:
        clean_name(tag, field="tags", longest=MAX_TAG)
    check_count(memory.related_entities, field="related_entities", most=MAX_ENTITIES)
    for entity in memory.related_entities:
        for name in (entity.name, entity.type, entity.relationship, entity.subject or entity.name):
            clean_name(name, field="related_entities", longest=MAX_NAME)
    for field, text, longest in (
        ("source.tool", memory.source.tool, MAX_NAME),
        ("source.file", memory.source.file, MAX_PATH),
        ("source.label", memory.source.label, MAX_NAME),
        ("domain", memory.domain, MAX_NAME),
    ):
        if text is not None:
            clean_name(text, field=field, longest=longest)
    if not 0 <= (memory.source.conversation_turn or 0) <= MAX_TURN:
        raise InvalidInput(f"source.conversation_turn must be an integer from 0 to {MAX_TURN}", field="source")
    for field, text, longest in (
        ("summary", memory.summary, MAX_SUMMARY),
        ("forgotten_reason", memory.forgotten_reason, MAX_REASON),
        ("invalid_reason", memory.invalid_reason, MAX_REASON),
    ):
        if text:
            check_length(text, field=field, longest=longest)
    for name in ("occurred_at", "valid_from", "valid_until", "due"):
        check_time(getattr(memory, name), name)
    for name in ("metadata", "structured"):
        clean_object(getattr(memory, name), field=name)
    try:
        msgspec.msgpack.encode(memory)
    except (OverflowError, RecursionError) as error:
        raise InvalidInput(f"it has a number that is too large, or is nested too deeply: {error}") from error
