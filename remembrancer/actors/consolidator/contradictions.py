"""The rules by which a newer memory contradicts an older one, and by which one can stand for another. Pure.

A contradiction is proposed to a person where two facts are near, have the same names, and do not say the same: the rule
by which a recall marks what is older. What happened at its own time contradicts nothing. To be merged is the opposite
question, and there the doubt counts: the words must say the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from remembrancer.memory.names import is_same_subject
from remembrancer.memory.wording import normalised, same_in_words
from remembrancer.protocol.consolidation import Material
from remembrancer.protocol.kinds import SESSION_KINDS


class Contradiction(NamedTuple):
    """Ids of two memories. `strength` in [0, 1] is how near they are."""

    older: str
    newer: str
    strength: float


def still_holds(memory: Material, now: float) -> bool:
    """True if a memory has not been superseded."""
    return memory.valid_until is None or memory.valid_until > now


def says_the_same(
    memory: Material, near: Sequence[tuple[Material, float]], now: float, min_cosine: float
) -> tuple[Material, float] | None:
    """The nearest of these that a memory may be merged into, the nearest being given first.

    What says something else is as near as what says the same: merging into that would hide what is new. So would
    merging into what was made of others, which may be made of this one.
    """
    for other, cosine in near:
        if cosine <= min_cosine or other.is_derived or not still_holds(other, now) or _is_made_of(memory, other):
            continue
        if same_in_words(memory.content, other.content, cosine):
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


def contradictions_with(memory: Material, near: Sequence[tuple[Material, float]], now: float) -> list[Contradiction]:
    """The contradictions between a memory and these, in either direction. The older one of each pair still holds."""
    found = []
    for other, cosine in near:
        verdict = contradiction(memory, other, cosine)
        if verdict is not None and still_holds(other if verdict.older == other.id else memory, now):
            found.append(verdict)
    return found


def contradiction(one: Material, other: Material, cosine: float) -> Contradiction | None:
    """The contradiction between two memories, in whatever order they are given; None where there is none."""
    older, newer = sorted((one, other), key=lambda each: (each.happened_at, each.id))
    if any(each.kind in SESSION_KINDS or each.type == "episodic" for each in (older, newer)):
        return None
    if not is_same_subject(older.content, newer.content, cosine) or same_in_words(older.content, newer.content, cosine):
        return None
    return Contradiction(older.id, newer.id, min(1.0, cosine))


def other_words(memory: Material, into: Material) -> str | None:
    """A memory's content, if it differs from the other in more than blanks, case or marks at the end; None when nothing
    gets lost."""
    return memory.content if normalised(memory.content) != normalised(into.content) else None


def _is_made_of(one: Material, other: Material) -> bool:
    """True if one of two memories was derived from the other."""
    return one.id in other.derived_from or other.id in one.derived_from
