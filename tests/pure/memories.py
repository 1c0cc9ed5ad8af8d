"""Memories for the tests of reflection, with vectors of known cosines, and memories as recalls find them."""

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from remembrancer.actors.consolidator.clusters import Vectors
from remembrancer.protocol.consolidation import Material
from remembrancer.protocol.reads import RecalledMemory, Scores
from remembrancer.protocol.writes import EntityRef, SourceRef


def memory(place: int, content: str = "", *, entities: Sequence[str] = (), **changes: Any) -> Material:
    """A memory of the time `place`, whose id sorts like its time."""
    created_at = changes.get("created_at", float(place))
    given: dict[str, Any] = {
        "number": place + 1,
        "id": f"memory:{place:04}",
        "content": content or f"Note number {place}",
        "kind": "observation",
        "type": "episodic",
        "scope": "project",
        "session_id": "session:1",
        "version": 1,
        "created_at": created_at,
        "updated_at": created_at,
        "last_accessed_at": created_at,
        "entities": tuple(EntityRef(name, "concept", "about") for name in entities),
    }
    return Material(**{**given, **changes})


def rows(topics: Sequence[int], cosine: float = 0.8) -> Vectors:
    """Unit vectors: two of one topic have this cosine, two of different topics none. A topic below 0 has no vector."""
    count = len(topics)
    vectors = np.zeros((count, count + max([*topics, 0]) + 1), dtype=np.float32)
    for place, topic in enumerate(topics):
        if topic >= 0:
            vectors[place, place] = np.sqrt(1 - cosine)
            vectors[place, count + topic] = np.sqrt(cosine)
    return vectors


def with_vectors(memories: Sequence[Material], vectors: Vectors) -> list[Material]:
    """The memories with these rows as their vectors; a row of zeros is none."""
    return [
        msgspec.structs.replace(each, vector=row.astype("<f4").tobytes() if row.any() else b"")
        for each, row in zip(memories, vectors, strict=True)
    ]


def recalled(content: str = "", number: int = 0, *, cosine: float | None = None, **fields: Any) -> RecalledMemory:
    """A memory as a recall finds it, of a project, whose scores are all 0.5, unless `fields` say otherwise."""
    known: dict[str, Any] = {
        "id": f"memory:{number}",
        "type": "semantic",
        "scope": "project",
        "created_at": 0.0,
        "source": SourceRef(),
        "scores": Scores(0.5, 0.5, cosine=cosine),
    }
    return RecalledMemory(content=content, **known | fields)
