"""Memories and vectors for the tests of reflection. Vectors are made by hand, so that their cosines are known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from remembrancer.actors.consolidator.reflection.facts import MemoryFacts, Vectors


def memory(place: int, content: str = "", **changes: Any) -> MemoryFacts:
    """A memory of the time `place`, whose id sorts like its time."""
    given: dict[str, Any] = {
        "id": f"memory:{place:04}",
        "content": content or f"Note number {place}",
        "kind": "observation",
        "type": "episodic",
        "scope": "project",
        "session_id": "session:1",
        "created_at": float(place),
    }
    return MemoryFacts(**{**given, **changes})


def rows(topics: Sequence[int], cosine: float = 0.8) -> Vectors:
    """Unit vectors: two of one topic have this cosine, two of different topics none. A topic below 0 has no vector."""
    count = len(topics)
    vectors = np.zeros((count, count + max([*topics, 0]) + 1), dtype=np.float32)
    for place, topic in enumerate(topics):
        if topic >= 0:
            vectors[place, place] = np.sqrt(1 - cosine)
            vectors[place, count + topic] = np.sqrt(cosine)
    return vectors
