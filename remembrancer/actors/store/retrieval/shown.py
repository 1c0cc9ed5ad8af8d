"""A memory as an answer shows it."""

from __future__ import annotations

from remembrancer.actors.store.records.contract import MemoryRecord
from remembrancer.actors.store.retrieval.shortlist import strength_of
from remembrancer.protocol.reads import RecalledMemory, Scores


def as_recalled(record: MemoryRecord, scores: Scores, now: float | None = None) -> RecalledMemory:
    """A record as an answer shows it; with how strong it is `now`, if that is given."""
    return RecalledMemory(
        id=record.id,
        content=record.content,
        type=record.type,
        scope=record.scope,
        importance=record.importance,
        scores=scores,
        tags=record.tags,
        created_at=record.created_at,
        access_count=record.access_count,
        source=record.source,
        version=record.version,
        occurred_at=record.occurred_at,
        forgotten=record.forgotten,
        near_duplicates=record.near_duplicates,
        forgotten_at=record.forgotten_at,
        forgotten_reason=record.forgotten_reason,
        kind=record.kind,
        summary=record.summary,
        confidence=record.confidence,
        status=record.status,
        strength=None if now is None else strength_of(record, now),
        valid_until=record.valid_until,
        derived_from=record.derived_from,
        possibly_superseded_by=record.possibly_superseded_by,
    )
