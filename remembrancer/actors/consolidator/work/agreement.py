"""Whether two memories that are near each other say the same, or contradict each other. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from remembrancer.actors.consolidator.reflection.contradictions import (
    Contradiction,
    ContradictionRules,
    contradiction,
    differs,
)
from remembrancer.actors.consolidator.work.facts import facts_of
from remembrancer.protocol.consolidation import Material
from remembrancer.protocol.wording.normalising import normalised
from remembrancer.protocol.wording.sameness import same_in_words


def still_holds(memory: Material, now: float) -> bool:
    """Whether a memory has not been superseded."""
    return memory.valid_until is None or memory.valid_until > now


def differing(
    one: Material, other: Material, cosine: float, now: float, rules: ContradictionRules
) -> Contradiction | None:
    """What one memory says against another."""
    return contradiction(facts_of(one, now), facts_of(other, now), cosine, rules)


def says_the_same(
    memory: Material,
    near: Sequence[tuple[Material, float]],
    now: float,
    min_cosine: float,
    rules: ContradictionRules,
) -> tuple[Material, float] | None:
    """The nearest of these that a memory may be merged into, the nearest being given first.

    What says something else is as near as what says the same: merging into that would hide what is new. So would
    merging into what was made of others, which may be made of this one.
    """
    for other, cosine in near:
        if cosine <= min_cosine or other.is_derived or not still_holds(other, now) or _is_made_of(memory, other):
            continue
        if not same_in_words(memory.content, other.content, cosine):
            continue
        if not differs(facts_of(memory, now), facts_of(other, now), rules):
            return other, cosine
    return None


def alike(
    memory: Material, near: Sequence[tuple[Material, float]], now: float, min_cosine: float
) -> list[tuple[Material, float]]:
    """Those of these that are so near a memory that a person may want to see both."""
    return [
        (other, cosine)
        for other, cosine in near
        if cosine > min_cosine and still_holds(other, now) and not _is_made_of(memory, other)
    ]


def contradictions_with(
    memory: Material, near: Sequence[tuple[Material, float]], now: float, rules: ContradictionRules
) -> list[Contradiction]:
    """What a memory contradicts among these, and what contradicts it. The older one of each pair still holds."""
    found = []
    for other, cosine in near:
        verdict = differing(memory, other, cosine, now, rules)
        if verdict is not None and still_holds(other if verdict.older == other.id else memory, now):
            found.append(verdict)
    return found


def other_words(memory: Material, into: Material) -> str | None:
    """What a memory says, if that is more than other blanks, case or marks at the end; None when nothing gets lost."""
    return memory.content if normalised(memory.content) != normalised(into.content) else None


def _is_made_of(one: Material, other: Material) -> bool:
    """Whether one of two memories was derived from the other."""
    return one.id in other.derived_from or other.id in one.derived_from
