"""What the reflection has to know of a memory. Its vector travels beside it, in a row of a matrix."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from remembrancer.protocol.kinds import Kind, MemoryType, Scope

Vectors = NDArray[np.float32]
"""Shape (memories, dimensions), rows of length 1. A memory without a vector has a row of zeros: it is near to none."""


@dataclass(frozen=True, slots=True)
class MemoryFacts:
    """One memory. Times are seconds since the epoch; the first of `entities` is the subject that it is about.

    `project_specific`: what it says holds in its project alone, as the rules of promotion judge that.
    """

    id: str
    content: str
    kind: Kind
    type: MemoryType
    scope: Scope
    session_id: str
    created_at: float
    occurred_at: float | None = None
    importance: float = 0.5
    strength: float = 0.5
    entities: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    project_specific: bool = False

    @property
    def when(self) -> float:
        """When what it tells happened, as far as that is known."""
        return self.created_at if self.occurred_at is None else self.occurred_at


def chronological(memories: Sequence[MemoryFacts]) -> list[int]:
    """The positions of the memories in the order of their times; ids decide between equal times."""
    return sorted(range(len(memories)), key=lambda place: (memories[place].when, memories[place].id))


def require_rows(memories: Sequence[MemoryFacts], vectors: Vectors) -> None:
    """Raises:
    ValueError: there is not one row for each memory.
    """
    if vectors.ndim != 2 or len(vectors) != len(memories):
        raise ValueError(f"{len(memories)} memories need as many rows of vectors, not {vectors.shape}")
