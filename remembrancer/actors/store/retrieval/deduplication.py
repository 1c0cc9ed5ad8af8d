"""What is said alike is said once. Pure.

Across scopes by fixed rules; within one by pairs that are given (see `repetition`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from remembrancer.protocol.kinds import SCOPES, Scope

SAME_COSINE: Final = 0.90
"""Two memories of different scopes that are nearer to each other than this say the same."""
STRONGER: Final = 2.0
"""A narrower scope's memory stands for both when it is more than so many times as strong."""

_RANK: Final[dict[Scope, int]] = {scope: rank for rank, scope in enumerate(SCOPES)}


@dataclass(frozen=True, slots=True)
class ScopedMemory:
    """A memory as one scope has it. `strength` is its `memory_strength` now, `updated_at` seconds since the epoch."""

    id: str
    scope: Scope
    strength: float
    updated_at: float
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class KeptMemory:
    """A memory that stands for itself and for others that say the same.

    `place` is its own in the list that was given, `best_place` that of the first of them all, whose rank they have.
    `tags` are its own, then the others'; `found_in` the scopes that had one of them, the narrowest first (its own alone
    when there was no other); `stands_for` the others' ids.
    """

    memory: ScopedMemory
    place: int
    best_place: int
    tags: tuple[str, ...]
    found_in: tuple[Scope, ...]
    stands_for: tuple[str, ...] = ()


def winner(a: ScopedMemory, b: ScopedMemory) -> ScopedMemory:
    """Which of two that say the same is kept: the seed's `dedup_winner`.

    The broader scope's, unless the other is more than twice as strong; in one scope the stronger, and `a` when they are
    equally strong.
    """
    if a.scope == b.scope:
        return a if a.strength >= b.strength else b
    broader, narrower = (a, b) if _RANK[a.scope] > _RANK[b.scope] else (b, a)
    return narrower if narrower.strength > broader.strength * STRONGER else broader


def later_or_broader(a: ScopedMemory, b: ScopedMemory) -> ScopedMemory:
    """Which of two records of one id is kept: the broader scope's, unless the other was updated later."""
    broader, narrower = (a, b) if _RANK[a.scope] >= _RANK[b.scope] else (b, a)
    return narrower if narrower.updated_at > broader.updated_at else broader


def deduplicate(
    ranked: Sequence[ScopedMemory],
    vectors: Sequence[NDArray[np.float32] | None],
    threshold: float = SAME_COSINE,
    repeated: Iterable[tuple[int, int]] = (),
    is_same: Callable[[int, int, float], bool] | None = None,
) -> list[KeptMemory]:
    """A ranked list in which no two memories have one id, or are of different scopes and nearer than `threshold`.

    `is_same` says of two places, the smaller first, and the cosine between them whether what is that near says the same
    (None: always). `repeated` are the places, the smaller first, of two of one scope that say the same: the first of
    them is kept.

    `vectors` has a unit vector of one model for each memory, or None where there is none: such a memory is known by its
    id alone. The list is gone through in its order; a memory that is kept instead of one before it takes that one's
    rank. Other memories of one scope are left as they are, however near.
    """
    alike = _pairs_alike(ranked, vectors, threshold, is_same)
    for earlier, later in repeated:
        alike.setdefault(later, set()).add(earlier)
    if not alike:
        return [KeptMemory(each, place, place, each.tags, (each.scope,)) for place, each in enumerate(ranked)]
    kept: dict[int, _Group] = {}
    for place in range(len(ranked)):
        rivals = sorted((other for other in alike.get(place, ()) if other in kept), key=lambda each: kept[each].rank)
        better = next((each for each in rivals if _kept_of(ranked, each, place) == each), None)
        if better is not None:
            kept[better].members.append(place)
            continue
        group = _Group(rank=min((kept[each].rank for each in rivals), default=place), members=[place])
        for each in rivals:
            group.members.extend(kept.pop(each).members)
        kept[place] = group
    in_order = sorted(kept.items(), key=lambda item: item[1].rank)
    return [_described(ranked, place, group) for place, group in in_order]


@dataclass(slots=True)
class _Group:
    """What one memory stands for: places in the list, and the place at which the group is ranked."""

    rank: int
    members: list[int] = field(default_factory=list)


def _pairs_alike(
    ranked: Sequence[ScopedMemory],
    vectors: Sequence[NDArray[np.float32] | None],
    threshold: float,
    is_same: Callable[[int, int, float], bool] | None,
) -> dict[int, set[int]]:
    """For each memory the places of those before it that say the same."""
    alike: dict[int, set[int]] = {}
    places_of: dict[str, list[int]] = {}
    for place, memory in enumerate(ranked):
        same = places_of.setdefault(memory.id, [])
        if same:
            alike[place] = set(same)
        same.append(place)
    with_vectors = [(place, vector) for place, vector in enumerate(vectors) if vector is not None]
    if len({ranked[place].scope for place, _ in with_vectors}) < 2:
        return alike
    matrix = np.stack([vector for _, vector in with_vectors])
    scopes = np.array([_RANK[ranked[place].scope] for place, _ in with_vectors])
    cosines = matrix @ matrix.T
    near = (cosines > threshold) & (scopes[:, None] != scopes[None, :])
    for later, earlier in np.argwhere(np.tril(near)).tolist():
        one, other = with_vectors[earlier][0], with_vectors[later][0]
        if is_same is None or is_same(one, other, float(cosines[later, earlier])):
            alike.setdefault(other, set()).add(one)
    return alike


def _kept_of(ranked: Sequence[ScopedMemory], earlier: int, later: int) -> int:
    a, b = ranked[earlier], ranked[later]
    if a.id != b.id and a.scope == b.scope:
        return earlier
    return earlier if (later_or_broader(a, b) if a.id == b.id else winner(a, b)) is a else later


def _described(ranked: Sequence[ScopedMemory], place: int, group: _Group) -> KeptMemory:
    memory = ranked[place]
    others = [ranked[each] for each in sorted(group.members) if each != place]
    tags = dict.fromkeys(tag for each in (memory, *others) for tag in each.tags)
    scopes = {each.scope for each in (memory, *others)}
    stands_for = dict.fromkeys(each.id for each in others if each.id != memory.id)
    return KeptMemory(
        memory, place, group.rank, tuple(tags), tuple(scope for scope in SCOPES if scope in scopes), tuple(stands_for)
    )
