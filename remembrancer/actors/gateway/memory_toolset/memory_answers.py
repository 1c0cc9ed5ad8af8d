"""What the `memory` tools answer: the promised fields, and others only where they say something. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

from remembrancer import __version__
from remembrancer.actors.gateway.toolkit.tools import Answer, Caller, warnings_of
from remembrancer.protocol.kinds import Kind
from remembrancer.protocol.reads import EmbeddingState, Notice, Recalled, RecalledMemory, StoreDescription
from remembrancer.protocol.writes import SourceRef, StoredResult

_ROUNDED = 4
SIGNALS: Final = ("vector", "head", "keyword", "graph", "time", "neighbour", "reranker", "recency", "scope")
"""What is shown of `Scores` under `scores`, beside `score` and `relevance_score`."""
MODES: Final = {"embedded-file": "file-backed", "embedded-memory": "in-memory"}
"""How a deployment mode is called where it is shown."""


def stored(
    result: StoredResult, kind: Kind | None, embedding: EmbeddingState | None, notices: Sequence[Notice]
) -> Answer:
    """The answer of `store_memory`. `kind` is None when none was given, `embedding` when nobody asked for it."""
    is_ready = embedding is not None and embedding.embedded
    answer: Answer = {
        "memory_id": result.memory_id,
        "embedding_generated": is_ready,
        "embedding": "ready" if is_ready else "pending",
        "graph_edges_created": result.graph_edges_created,
        "scope": result.scope,
        "type": result.type,
    }
    if kind is not None:
        answer["kind"] = kind
    if result.duplicates:
        answer["duplicates"] = list(result.duplicates)
    if embedding is not None and embedding.near_duplicates:
        answer["near_duplicates"] = list(embedding.near_duplicates)
    if any(notice.code == "embedding_failed" for notice in notices):
        answer["searchable_by"] = "keyword_only"
    if notices:
        answer["warnings"] = warnings_of(notices)
    return answer


def recalled(
    found: Recalled, *, degraded: bool, query_time_ms: float, with_scores: bool = False, hint: str | None = None
) -> Answer:
    """The answer of `recall_memories`. `hint` is what to do about an empty one."""
    answer: Answer = {
        "memories": [memory_of(memory, with_scores=with_scores) for memory in found.memories],
        "total_matched": found.total_matched,
        "strategy_used": found.strategy_used,
        "query_time_ms": round(query_time_ms, 1),
    }
    if found.profile is not None:
        answer["profile"] = found.profile
    if found.below_threshold or not found.memories:
        answer["below_threshold"] = found.below_threshold
    if hint is not None:
        answer["hint"] = hint
    if degraded:
        answer["degraded"] = True
    if found.notices:
        answer["warnings"] = warnings_of(found.notices)
    return answer


def memory_of(memory: RecalledMemory, *, with_scores: bool = False) -> dict[str, Any]:
    """A memory as answers that found it show it; with each signal that had a say in its score, or without."""
    scores = memory.scores
    shown: dict[str, Any] = {
        "id": memory.id,
        "content": memory.content,
        "type": memory.type,
        "scope": memory.scope,
        "importance": memory.importance,
        "relevance_score": round(scores.relevance, _ROUNDED),
        "score": round(scores.final, _ROUNDED),
        "tags": list(memory.tags),
        "created_at": iso(memory.created_at),
        "access_count": memory.access_count,
        "source": source_of(memory.source),
    }
    if with_scores:
        signals = ((name, getattr(scores, name)) for name in SIGNALS)
        shown["scores"] = {name: round(value, _ROUNDED) for name, value in signals if value is not None}
    if memory.occurred_at is not None:
        shown["occurred_at"] = iso(memory.occurred_at)
    if memory.forgotten:
        shown["forgotten"] = True
        if memory.forgotten_at is not None:
            shown["forgotten_at"] = iso(memory.forgotten_at)
        if memory.forgotten_reason is not None:
            shown["forgotten_reason"] = memory.forgotten_reason
    return shown | _of_the_model(memory)


def _of_the_model(memory: RecalledMemory) -> dict[str, Any]:
    """What a memory is in the model of three scopes, and how it stands to others: what there is to say of it."""
    said: dict[str, Any] = {}
    if memory.kind is not None:
        said["kind"] = memory.kind
    if memory.status != "active":
        said["status"] = memory.status
    if memory.summary is not None:
        said["summary"] = memory.summary
    if memory.strength is not None:
        said["strength"] = round(memory.strength, 3)
    if memory.valid_until is not None:
        said["valid_until"] = iso(memory.valid_until)
    for name, found in (
        ("found_in", memory.found_in),
        ("stands_for", memory.stands_for),
        ("derived_from", memory.derived_from),
        ("possibly_superseded_by", memory.possibly_superseded_by),
        ("near_duplicates", memory.near_duplicates),
    ):
        if found:
            said[name] = list(found)
    return said


def source_of(source: SourceRef) -> dict[str, Any]:
    """Where a memory came from, as answers have it."""
    fields = {"tool": source.tool, "file": source.file, "conversation_turn": source.conversation_turn}
    return {name: value for name, value in fields.items() if value is not None}


def connected() -> dict[str, Any]:
    """How a store that answers is shown."""
    return {"status": "connected"}


def disconnected(*, reconnecting: bool, attempts: int, next_attempt_s: float | None) -> dict[str, Any]:
    """How a store that does not answer is shown: what is being done about it."""
    return {
        "status": "reconnecting" if reconnecting else "degraded",
        "attempts": attempts,
        "next_attempt_seconds": round(next_attempt_s or 0.0, 1),
    }


def status(
    caller: Caller,
    description: StoreDescription | None,
    *,
    connection: dict[str, Any],
    mode: str,
    home: str,
    queue: dict[str, Any],
    notices: Sequence[Notice],
) -> Answer:
    """The answer of `get_memory_status`. Without a store the last known figures stand, or none.

    `connection` is what `connected` or `disconnected` says, `mode` is the setting `deployment_mode`.
    """
    connected = connection["status"] == "connected"
    answer: Answer = {
        "connection": {
            **connection,
            "mode": MODES[mode],
            "path": description.database_path if description else home,
            "uptime_seconds": int(description.uptime_s) if description and connected else 0,
            "version": __version__,
        }
    }
    started_at = caller.started_at
    if description is not None:
        counts, embedding = description.counts, description.embedding
        answer["counts"] = {
            "total": counts.total,
            "by_scope": {scope: counts.by_scope.get(scope, 0) for scope in ("session", "project", "user")},
            "by_type": {kind: counts.by_type.get(kind, 0) for kind in ("episodic", "semantic", "procedural")},
            "forgotten": counts.forgotten,
            "entities": counts.entities,
            "relationships": counts.relationships,
        }
        answer["storage"] = {
            "database_size_bytes": description.database_bytes,
            "embedding_dimensions": embedding.dimensions,
            "embedding_model": embedding.model,
        }
        answer["embedding"] = {"engine": embedding.engine, "pending": embedding.pending, "workers": embedding.workers}
        if embedding.error is not None:
            answer["embedding"]["error"] = embedding.error
        started_at = description.session_started_at or started_at
    answer["current_session"] = {
        "session_id": caller.session_id,
        "memories_this_session": description.memories_this_session if description else 0,
        "started_at": iso(started_at),
    }
    answer["write_queue"] = queue
    if not connected or notices:
        answer["degraded"] = not connected
        answer["warnings"] = warnings_of(notices)
    return answer


def iso(seconds: float) -> str:
    """Seconds since the epoch as ISO 8601 in UTC, to the second."""
    whole = datetime.fromtimestamp(seconds, UTC).replace(microsecond=0, tzinfo=None)
    return f"{whole.isoformat()}Z"  # strftime gives the year 33 two digits
