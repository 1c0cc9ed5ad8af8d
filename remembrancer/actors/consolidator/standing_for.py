"""The rules by which one memory can stand for another: the words must say the same, and where there is doubt two stay
two. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from remembrancer.memory.wording import normalised, same_in_words
from remembrancer.protocol.consolidation import Material


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
        if same_in_words(memory.content, other.content):
            return other, cosine
    return None


def alike(
    memory: Material, near: Sequence[tuple[Material, float]], now: float, min_cosine: float
) -> list[tuple[Material, float]]:
    """The memories of these that are so near another one that a person may want to see both."""
    return [
        (other, cosine)
        for other, cosine in near
        if cosine > min_cosine and still_holds(other, now) and not _is_made_of(memory, other)
    ]


def other_words(memory: Material, into: Material) -> str | None:
    """A memory's content, if it differs from the other in more than blanks, case or marks at the end; None when nothing
    gets lost."""
    return memory.content if normalised(memory.content) != normalised(into.content) else None


def _is_made_of(one: Material, other: Material) -> bool:
    """True if one of two memories was derived from the other."""
    return one.id in other.derived_from or other.id in one.derived_from
