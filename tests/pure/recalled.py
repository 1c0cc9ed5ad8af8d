"""A memory as a recall finds it, for the tests of what shows it."""

from __future__ import annotations

from typing import Any

from remembrancer.protocol.reads import RecalledMemory, Scores
from remembrancer.protocol.writes import SourceRef


def recalled(content: str = "", number: int = 0, *, cosine: float | None = None, **fields: Any) -> RecalledMemory:
    """A memory of a project whose scores are all 0.5, unless `fields` say otherwise."""
    known: dict[str, Any] = {
        "id": f"memory:{number}",
        "type": "semantic",
        "scope": "project",
        "created_at": 0.0,
        "source": SourceRef(),
        "scores": Scores(0.5, 0.5, 0.5, 0.5, cosine=cosine),
    }
    return RecalledMemory(content=content, **known | fields)
