"""The tool `store_memory`."""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec
from msgspec import UNSET, Meta, UnsetType

from remembrancer.memory.text import check_text, clean_name, clean_object, shown
from remembrancer.protocol.errors import InvalidInput
from remembrancer.protocol.ids import derive_memory_id, parse_memory_id
from remembrancer.protocol.kinds import KINDS, MEMORY_TYPES, SESSION_KINDS, Kind, type_of_kind
from remembrancer.protocol.reads import EmbeddingState
from remembrancer.protocol.writes import MemoryType, Scope, SourceRef, StoredResult, StoreMemory
from remembrancer.toolsets.memory.answers import not_embedded
from remembrancer.toolsets.memory.fields import (
    MAX_NAME,
    MAX_PATH,
    AllowSecrets,
    RelatedEntity,
    clean_domain,
    clean_entities,
    clean_summary,
    clean_tags,
    given,
    seconds_of,
    validity,
)
from remembrancer.toolsets.tools import Answer, Call, tool, with_caveats

MAX_SESSION_ID: Final = 200
MAX_TURN: Final = 2**53 - 1
"""What JSON carries exactly."""


class Source(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    tool: str | UnsetType = UNSET
    file: str | UnsetType = UNSET
    conversation_turn: int | UnsetType = UNSET


class StoreMemoryArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    content: Annotated[str, Meta(description="One fact, event or how-to that makes sense alone")]
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
    summary: str | UnsetType = UNSET
    domain: str | UnsetType = UNSET
    structured: dict[str, Any] | UnsetType = UNSET
    occurred_at: Annotated[str, Meta(description="ISO 8601; default now")] | UnsetType = UNSET
    valid_from: str | UnsetType = UNSET
    valid_until: str | UnsetType = UNSET
    supersedes: Annotated[str, Meta(description="Id of what this replaces")] | UnsetType = UNSET


@tool("Remember something for later sessions, durably.")
async def store_memory(call: Call, arguments: StoreMemoryArguments) -> Answer:
    """Answers when the memory is durable; a retry of the same request is the same memory."""
    change = to_change(arguments, call.caller.session_id, call.service.settings.content_limit_bytes)
    memory_id = derive_memory_id(call.operation_id(), call.received_at)
    change = msgspec.structs.replace(change, memory_id=memory_id)
    written = await call.submit(change, allow_secrets=arguments.allow_secrets is True)
    # A queued one is going to come to this.
    queued = StoredResult(memory_id, change.type, change.scope, len(set(change.related_entities)))
    result = written.result or queued
    assert isinstance(result, StoredResult)
    embedding = EmbeddingState(memory_id, embedded=False)
    notices = list(written.notices)
    if arguments.wait_for_embedding is True and written.result is not None:
        embedding = await call.service.await_embedding(call.caller, memory_id, call.received_at)
        if not embedding.embedded:
            notices.append(not_embedded(embedding.error or written.embedding_error))
    elif written.embedding_error is not None:
        notices.append(not_embedded(written.embedding_error))
    answer: Answer = {
        "memory_id": memory_id,
        "embedding_generated": embedding.embedded,
        "embedding": "ready" if embedding.embedded else "pending",
        "graph_edges_created": result.graph_edges_created,
        "scope": result.scope,
        "type": result.type,
    }
    if arguments.kind is not UNSET:
        answer["kind"] = arguments.kind
    if result.duplicates:
        answer["duplicates"] = list(result.duplicates)
    if embedding.near_duplicates:
        answer["near_duplicates"] = list(embedding.near_duplicates)
    if any(notice.code == "embedding_failed" for notice in notices):
        answer["searchable_by"] = "keyword_only"
    return with_caveats(answer, notices, degraded=written.degraded)


def to_change(arguments: StoreMemoryArguments, session_id: str, content_limit_bytes: int) -> StoreMemory:
    """The change that a call asks for, without the memory's id.

    Raises:
        InvalidInput: a field is not what is allowed.
    """
    check_text(arguments.content, field="content", longest_bytes=content_limit_bytes)
    memory_type, kind = _type_and_kind(arguments)
    valid_from, valid_until = validity(arguments.valid_from, arguments.valid_until)
    return StoreMemory(
        memory_id="",
        content=arguments.content,
        type=memory_type,
        scope=arguments.scope,
        session_id=_origin(arguments, session_id),
        importance=given(arguments.importance, 0.5),
        tags=clean_tags(arguments.tags),
        source=_source(given(arguments.source, Source())),
        related_entities=clean_entities(arguments.related_entities),
        kind=kind,
        summary=clean_summary(arguments.summary),
        structured=clean_object(arguments.structured, field="structured") or {},
        confidence=given(arguments.confidence, 0.5),
        domain=clean_domain(arguments.domain),
        occurred_at=seconds_of(arguments.occurred_at, "occurred_at"),
        valid_from=valid_from,
        valid_until=valid_until,
        supersedes=None if arguments.supersedes is UNSET else parse_memory_id(arguments.supersedes, field="supersedes"),
    )


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


def _source(source: Source) -> SourceRef:
    turn = given(source.conversation_turn, None)
    if turn is not None and not 0 <= turn <= MAX_TURN:
        message = f"source.conversation_turn must be an integer from 0 to {MAX_TURN}, not {shown(turn)}"
        raise InvalidInput(message, field="source.conversation_turn")
    return SourceRef(
        tool=None if source.tool is UNSET else clean_name(source.tool, field="source.tool", longest=MAX_NAME),
        file=None if source.file is UNSET else clean_name(source.file, field="source.file", longest=MAX_PATH),
        conversation_turn=turn,
    )
