"""Memories that say the same in nearly the same words: one of them is enough in an answer. Pure.

Vectors alone do not tell "the threshold is 5" from "the threshold is 7": they say which texts are worth comparing, and
the words decide.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from remembrancer.actors.store.records.contract import Vectors
from remembrancer.memory.decay import DAY_S
from remembrancer.memory.wording import normalised, same_in_words
from remembrancer.protocol.kinds import Scope
from remembrancer.protocol.writes import MemoryType

NEAR_COSINE: Final = 0.95
"""Two memories of one scope that are not nearer than this are not compared word by word."""
COMPARED_CHARACTERS: Final = 2000
"""A longer text says more than one thing: it is the same as another one when they are equal, and not otherwise."""
SAME_EVENT_S: Final = DAY_S
"""What happens again on another day is another event, in whatever words it is told."""


@dataclass(frozen=True, slots=True)
class Said:
    """What a memory says. `vector` is the mean of its passages, of unit length; None where there is none.

    `happened_at` is seconds since the epoch; `sources` are the ids of the memories that it was derived from.
    """

    id: str
    scope: Scope
    type: MemoryType
    content: str
    happened_at: float
    vector: Vectors | None = None
    sources: Collection[str] = ()


def repetitions(memories: Sequence[Said | None]) -> list[tuple[int, int]]:
    """The pairs of places, the smaller first, of memories of one scope that say the same. None says nothing.

    A memory and what it was derived from are never such a pair: which of these is shown is decided elsewhere.
    """
    pairs = {pair for pair in _equal(memories) if _are_of_one_thing(memories, *pair)}
    for one, other, cosine in _near(memories):
        a, b = memories[one], memories[other]
        assert a is not None
        assert b is not None
        if (one, other) not in pairs and _are_of_one_thing(memories, one, other) and same_when_near(a, b, cosine):
            pairs.add((one, other))
    return sorted(pairs)


def same_when_near(one: Said, other: Said, cosine: float) -> bool:
    """Whether two memories whose vectors have this cosine say the same, going by their words."""
    if max(len(one.content), len(other.content)) > COMPARED_CHARACTERS:
        return one.content == other.content
    return same_in_words(one.content, other.content, cosine)


def _equal(memories: Sequence[Said | None]) -> Iterator[tuple[int, int]]:
    """Those with one text; case, blanks and marks at the end make no difference to a short one."""
    places_of: dict[str, list[int]] = {}
    for place, memory in enumerate(memories):
        if memory is not None:
            text = memory.content if len(memory.content) > COMPARED_CHARACTERS else normalised(memory.content)
            before = places_of.setdefault(text, [])
            yield from ((other, place) for other in before)
            before.append(place)


def _near(memories: Sequence[Said | None]) -> Iterator[tuple[int, int, float]]:
    """Those whose vectors are near, with their cosine."""
    places = [place for place, each in enumerate(memories) if each is not None and each.vector is not None]
    if len(places) < 2:
        return
    matrix = np.stack([each.vector for each in memories if each is not None and each.vector is not None])
    cosines = matrix @ matrix.T
    for later, earlier in np.argwhere(cosines > NEAR_COSINE).tolist():
        if earlier < later:
            yield places[earlier], places[later], float(cosines[later, earlier])


def _are_of_one_thing(memories: Sequence[Said | None], one: int, other: int) -> bool:
    """Whether two memories are in one scope, and not two events, nor one of them made of the other."""
    a, b = memories[one], memories[other]
    if a is None or b is None or a.scope != b.scope or a.id in b.sources or b.id in a.sources:
        return False
    is_event = "episodic" in (a.type, b.type)
    return not is_event or abs(a.happened_at - b.happened_at) < SAME_EVENT_S
