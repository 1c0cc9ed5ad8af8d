"""The arguments of the `memory` toolset, checked and made into messages."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from remembrancer.actors.gateway.memory_toolset.json_objects import clean_object
from remembrancer.actors.gateway.toolkit.text import check_text, clean_name, shown
from remembrancer.protocol.errors import InvalidInput
from remembrancer.protocol.kinds import KINDS, MEMORY_TYPES, SESSION_KINDS, Kind, entity_type, type_of_kind
from remembrancer.protocol.reads import ProfileName, Recall, Strategy
from remembrancer.protocol.writes import EntityRef, MemoryType, ProjectRef, Scope, SourceRef, StoreMemory

MAX_TAGS: Final = 100
MAX_TAG: Final = 100
MAX_ENTITIES: Final = 100
MAX_NAME: Final = 200
MAX_PATH: Final = 4096
MAX_SESSION_ID: Final = 200
MAX_QUERY_BYTES: Final = 16_384
MAX_SUMMARY: Final = 2000
LEAST_RECALL_TOKENS: Final = 64
"""An answer without memories has fewer, as long as nothing has to be warned of."""
MOST_RECALL_TOKENS: Final = 100_000
MAX_TURN: Final = 2**53 - 1
"""What JSON carries exactly."""

AllowSecrets = Annotated[bool, Meta(description="Store what looks like a credential")]


class Source(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    tool: str | UnsetType = UNSET
    file: str | UnsetType = UNSET
    conversation_turn: int | UnsetType = UNSET


class RelatedEntity(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    type: Annotated[str, Meta(description="component, file, person, library …")]
    relationship: Annotated[str, Meta(description="uses, depends_on, authored_by …")]


class StoreMemoryArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `store_memory` takes."""

    content: Annotated[str, Meta(description="One fact, event or procedure that makes sense on its own")]
    scope: Annotated[Scope, Meta(description="session: this conversation; project: this codebase; user: everywhere")]
    type: Annotated[MemoryType, Meta(description="event, fact, how-to; or give kind")] | UnsetType = UNSET
    kind: Kind | UnsetType = UNSET
    importance: Annotated[float, Meta(ge=0, le=1, extra_json_schema={"default": 0.5})] | UnsetType = UNSET
    confidence: Annotated[float, Meta(ge=0, le=1)] | UnsetType = UNSET
    tags: list[str] | UnsetType = UNSET
    source: Source | UnsetType = UNSET
    related_entities: list[RelatedEntity] | UnsetType = UNSET
    session_id: str | UnsetType = UNSET
    wait_for_embedding: bool | UnsetType = UNSET
    allow_secrets: AllowSecrets | UnsetType = UNSET
    summary: Annotated[str, Meta(description="In a line")] | UnsetType = UNSET
    domain: Annotated[str, Meta(description="auth, testing …")] | UnsetType = UNSET
    structured: dict[str, Any] | UnsetType = UNSET
    occurred_at: Annotated[str, Meta(description="ISO 8601; default now")] | UnsetType = UNSET
    valid_from: Annotated[str, Meta(description="ISO 8601")] | UnsetType = UNSET
    valid_until: str | UnsetType = UNSET


class TimeRange(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    after: Annotated[str, Meta(extra_json_schema={"format": "date-time"})] | UnsetType = UNSET
    before: Annotated[str, Meta(extra_json_schema={"format": "date-time"})] | UnsetType = UNSET


class RecallMemoriesArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `recall_memories` takes."""

    query: str
    scope: list[Scope] | UnsetType = UNSET
    type: list[MemoryType] | UnsetType = UNSET
    kind: list[str] | UnsetType = UNSET
    strategy: (
        Annotated[
            Literal["vector", "keyword", "hybrid", "graph"],
            Meta(description="graph: around entities", extra_json_schema={"default": "hybrid"}),
        ]
        | UnsetType
    ) = UNSET
    limit: Annotated[int, Meta(ge=1, le=50, extra_json_schema={"default": 10})] | UnsetType = UNSET
    min_importance: Annotated[float, Meta(ge=0, le=1, extra_json_schema={"default": 0})] | UnsetType = UNSET
    tags: Annotated[list[str], Meta(description="Any of these")] | UnsetType = UNSET
    time_range: TimeRange | UnsetType = UNSET
    include_forgotten: Annotated[bool, Meta(extra_json_schema={"default": False})] | UnsetType = UNSET
    profile: ProfileName | UnsetType = UNSET
    reference_time: Annotated[str, Meta(description='ISO 8601: "yesterday" counts from it')] | UnsetType = UNSET
    max_tokens: (
        Annotated[int, Meta(description="Of the answer", ge=LEAST_RECALL_TOKENS, le=MOST_RECALL_TOKENS)] | UnsetType
    ) = UNSET
    scores: Annotated[bool, Meta(description="Show each signal")] | UnsetType = UNSET


class GetMemoryStatusArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `get_memory_status` takes: nothing."""


def to_change(
    arguments: StoreMemoryArguments, session_id: str, content_limit_bytes: int
) -> Callable[[str], StoreMemory]:
    """The change that a call asks for, once it is told its memory id.

    Raises:
        InvalidInput: a field is not what is allowed.
    """
    check_text(arguments.content, field="content", longest_bytes=content_limit_bytes)
    memory_type, kind = _type_and_kind(arguments)
    importance = 0.5 if arguments.importance is UNSET else arguments.importance
    confidence = 0.5 if arguments.confidence is UNSET else arguments.confidence
    occurred_at = _seconds(arguments.occurred_at, "occurred_at")
    valid_from, valid_until = validity(arguments.valid_from, arguments.valid_until)
    summary = clean_summary(arguments.summary)
    domain = clean_domain(arguments.domain)
    structured = clean_object(arguments.structured, field="structured") or {}
    tags = clean_tags(arguments.tags)
    source = _source(arguments.source)
    entities = clean_entities(arguments.related_entities)
    session_id = _origin(arguments, session_id)

    def change(memory_id: str) -> StoreMemory:
        return StoreMemory(
            memory_id=memory_id,
            content=arguments.content,
            type=memory_type,
            scope=arguments.scope,
            session_id=session_id,
            importance=importance,
            tags=tags,
            source=source,
            related_entities=entities,
            kind=kind,
            summary=summary,
            structured=structured,
            confidence=confidence,
            domain=domain,
            occurred_at=occurred_at,
            valid_from=valid_from,
            valid_until=valid_until,
        )

    return change


def _origin(arguments: StoreMemoryArguments, own: str) -> str:
    """The session that a memory comes from. Another one than the calling one may be named, for a memory that it does
    not own.

    Raises:
        InvalidInput: it is no name, or the memory would be in the midst of another session's own.
    """
    if arguments.session_id is UNSET or arguments.session_id == own:
        return own
    named = clean_name(arguments.session_id, field="session_id", longest=MAX_SESSION_ID)
    if arguments.scope == "session" and named != own:
        message = (
            f"session_id must be the current session's ({own}) or left out, not {shown(arguments.session_id)}: "
            "a session's memories are its own. With the scope project or user it says where the memory comes from"
        )
        raise InvalidInput(message, field="session_id")
    return named


def _type_and_kind(arguments: StoreMemoryArguments) -> tuple[MemoryType, Kind | None]:
    """The type, and the kind if one was given, which implies the type.

    Raises:
        InvalidInput: neither is given, they contradict each other, or the kind is for a session's memories alone.
    """
    if arguments.kind is UNSET:
        if arguments.type is not UNSET:
            return arguments.type, None
        message = (
            f"type is missing: give type (one of {', '.join(MEMORY_TYPES)}) or kind (one of {', '.join(KINDS)}), "
            "which implies it"
        )
        raise InvalidInput(message, field="type")
    kind, implied = arguments.kind, type_of_kind(arguments.kind)
    if arguments.type is not UNSET and arguments.type != implied:
        message = f"type {arguments.type} and kind {kind} contradict each other: {kind} is {implied}"
        raise InvalidInput(message, field="type")
    if kind in SESSION_KINDS and arguments.scope != "session":
        message = f"kind {kind} is for a session alone: give it the scope session, not {arguments.scope}"
        raise InvalidInput(message, field="kind")
    return implied, kind


def clean_summary(summary: str | UnsetType) -> str | None:
    """A summary as it is kept; None when none was given.

    Raises:
        InvalidInput: it is blank, too long, or holds what no text may hold.
    """
    if summary is UNSET:
        return None
    check_text(summary, field="summary", longest_bytes=4 * MAX_SUMMARY)
    if len(summary) > MAX_SUMMARY:
        message = f"summary may have {MAX_SUMMARY} characters at most, and has {len(summary)}"
        raise InvalidInput(message, field="summary")
    return summary.strip()


def clean_domain(domain: str | UnsetType) -> str | None:
    """A domain as it is kept; None when none was given.

    Raises:
        InvalidInput: it is no name.
    """
    return None if domain is UNSET else clean_name(domain, field="domain", longest=MAX_NAME)


def validity(valid_from: str | UnsetType, valid_until: str | UnsetType) -> tuple[float | None, float | None]:
    """The time in which a memory is true, in seconds since the epoch; None where nothing was given.

    Raises:
        InvalidInput: one is no date or time, or the end is not after the beginning.
    """
    start, end = _seconds(valid_from, "valid_from"), _seconds(valid_until, "valid_until")
    if start is not None and end is not None and start >= end:
        raise InvalidInput("valid_until must be later than valid_from", field="valid_until")
    return start, end


def to_recall(arguments: RecallMemoriesArguments, project: ProjectRef, session_id: str) -> Recall:
    """The question that a call asks.

    Raises:
        InvalidInput: a field is not what is allowed.
    """
    check_text(arguments.query, field="query", longest_bytes=MAX_QUERY_BYTES)
    after, before = _time_range(arguments.time_range)
    strategy: Strategy = "hybrid" if arguments.strategy is UNSET else arguments.strategy
    return Recall(
        project=project,
        session_id=session_id,
        query=arguments.query,
        strategy=strategy,
        limit=10 if arguments.limit is UNSET else arguments.limit,
        scopes=() if arguments.scope is UNSET else tuple(dict.fromkeys(arguments.scope)),
        types=() if arguments.type is UNSET else tuple(dict.fromkeys(arguments.type)),
        kinds=_kinds(arguments.kind),
        tags=clean_tags(arguments.tags),
        min_importance=0.0 if arguments.min_importance is UNSET else arguments.min_importance,
        after=after,
        before=before,
        include_forgotten=arguments.include_forgotten is True,
        profile=None if arguments.profile is UNSET else arguments.profile,
        reference_time=_seconds(arguments.reference_time, "reference_time"),
        utc_offset_s=_utc_offset_s(arguments.reference_time),
        with_passages=arguments.max_tokens is not UNSET,
        counts_accesses=arguments.max_tokens is UNSET,  # what is left out was not shown to anybody
    )


def _kinds(given: list[str] | UnsetType) -> tuple[Kind, ...]:
    """The kinds asked for, each once. The schema does not list them a second time: every session pays for it."""
    known: dict[str, Kind] = {kind: kind for kind in KINDS}
    wanted = dict.fromkeys(() if given is UNSET else given)
    for place, kind in enumerate(wanted):
        if kind not in known:
            message = f"kind[{place}] must be one of {', '.join(KINDS)}, not {shown(kind)}"
            raise InvalidInput(message, field=f"kind[{place}]")
    return tuple(known[kind] for kind in wanted)


def clean_tags(tags: list[str] | UnsetType, *, field: str = "tags") -> tuple[str, ...]:
    """Tags as they are kept: each a name, none twice, in the order given.

    Raises:
        InvalidInput: there are too many, or one is no name.
    """
    if tags is UNSET:
        return ()
    if len(tags) > MAX_TAGS:
        raise InvalidInput(f"{field} may have {MAX_TAGS} items at most, and has {len(tags)}", field=field)
    return tuple(
        dict.fromkeys(clean_name(tag, field=f"{field}[{place}]", longest=MAX_TAG) for place, tag in enumerate(tags))
    )


def _source(source: Source | UnsetType) -> SourceRef:
    if source is UNSET:
        return SourceRef()
    turn = None if source.conversation_turn is UNSET else source.conversation_turn
    if turn is not None and not 0 <= turn <= MAX_TURN:
        message = f"source.conversation_turn must be an integer from 0 to {MAX_TURN}, not {shown(turn)}"
        raise InvalidInput(message, field="source.conversation_turn")
    return SourceRef(
        tool=None if source.tool is UNSET else clean_name(source.tool, field="source.tool", longest=MAX_NAME),
        file=None if source.file is UNSET else clean_name(source.file, field="source.file", longest=MAX_PATH),
        conversation_turn=turn,
    )


def clean_entities(
    entities: Sequence[RelatedEntity] | UnsetType, *, field: str = "related_entities"
) -> tuple[EntityRef, ...]:
    """Entities as they are kept: each with three names, none twice, in the order given; well-known types as one name.

    Raises:
        InvalidInput: there are too many, or one of the names is none.
    """
    if entities is UNSET:
        return ()
    if len(entities) > MAX_ENTITIES:
        raise InvalidInput(f"{field} may have {MAX_ENTITIES} items at most, and has {len(entities)}", field=field)
    found: dict[EntityRef, None] = {}
    for place, entity in enumerate(entities):
        at = f"{field}[{place}]"
        name = clean_name(entity.name, field=f"{at}.name", longest=MAX_NAME)
        kind = clean_name(entity.type, field=f"{at}.type", longest=MAX_NAME)
        relationship = clean_name(entity.relationship, field=f"{at}.relationship", longest=MAX_NAME)
        found[EntityRef(name, entity_type(kind), relationship)] = None
    return tuple(found)


def _time_range(time_range: TimeRange | UnsetType) -> tuple[float | None, float | None]:
    if time_range is UNSET:
        return None, None
    after = _seconds(time_range.after, "time_range.after")
    before = _seconds(time_range.before, "time_range.before")
    if after is not None and before is not None and after > before:
        raise InvalidInput("time_range.after must not be later than time_range.before", field="time_range.after")
    return after, before


def _utc_offset_s(moment: str | UnsetType) -> float | None:
    """What an ISO 8601 time, which `_seconds` could read, says of its zone: seconds east of UTC; None if nothing."""
    offset = None if moment is UNSET else datetime.fromisoformat(moment.strip()).utcoffset()
    return None if offset is None else offset.total_seconds()


def _seconds(text: str | UnsetType, field: str) -> float | None:
    """Seconds since the epoch of an ISO 8601 date or time; without an offset it is in UTC."""
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
