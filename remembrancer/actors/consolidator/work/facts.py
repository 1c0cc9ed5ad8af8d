"""What the rules have to know of a memory, from the material that the store gives."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from remembrancer.actors.consolidator.promotion import Candidate
from remembrancer.actors.consolidator.reflection.facts import MemoryFacts, Vectors
from remembrancer.protocol.consolidation import Material
from remembrancer.protocol.dynamics import memory_strength


def candidate_of(memory: Material) -> Candidate:
    """A memory as the rules of promotion see it."""
    return Candidate(
        id=memory.id,
        kind=memory.kind,
        content=memory.content,
        scope=memory.scope,
        last_accessed_at=memory.last_accessed_at,
        summary=memory.summary,
        importance=memory.importance,
        confidence=memory.confidence,
        access_count=memory.access_count,
        sessions_accessed=memory.sessions_accessed,
        has_vectors=bool(memory.vector),
        status=memory.status,
        undone=memory.undone == "promoted",
        entities=tuple((entity.name, entity.type) for entity in memory.entities),
    )


def strength_of(memory: Material, now: float) -> float:
    """`memory_strength` of a memory."""
    return memory_strength(
        memory.importance, memory.confidence, memory.access_count, memory.last_accessed_at, memory.scope, now
    )


def facts_of(memory: Material, now: float, *, project_specific: bool = False) -> MemoryFacts:
    """A memory as the reflection sees it."""
    return MemoryFacts(
        id=memory.id,
        content=memory.content,
        kind=memory.kind,
        type=memory.type,
        scope=memory.scope,
        session_id=memory.session_id,
        created_at=memory.created_at,
        occurred_at=memory.happened_at,
        importance=memory.importance,
        strength=strength_of(memory, now),
        entities=tuple(dict.fromkeys(entity.name for entity in memory.entities)),
        tags=memory.tags,
        project_specific=project_specific,
    )


def vectors_of(memories: Sequence[Material]) -> Vectors:
    """A row for each memory, zeros for one without a vector. The vectors that are there are of one model."""
    width = max((len(memory.vector) for memory in memories), default=0) // 4
    rows = np.zeros((len(memories), width), dtype=np.float32)
    for row, memory in zip(rows, memories, strict=True):
        if len(memory.vector) == width * 4:
            row[:] = np.frombuffer(memory.vector, dtype="<f4")
    return rows
