"""The rules by which one memory can stand for another: the words must say the same, and where there is doubt two stay
two. Pure."""

from collections.abc import Sequence

from remembrancer.memory.decay import has_ended
from remembrancer.memory.wording import normalised, same_in_words
from remembrancer.protocol.consolidation import Material


def says_the_same(
    memory: Material, near: Sequence[tuple[Material, float]], now: float, min_cosine: float
) -> tuple[Material, float] | None:
    """The nearest of these that a memory may be merged into, the nearest being given first.

    What says something else is as near as what says the same: merging into that would hide what is new. So would
    merging into what was made of others, which may be made of this one.
    """
    for other, cosine in alike(memory, near, now, min_cosine):
        if not other.is_derived and same_in_words(memory.content, other.content):
            return other, cosine
    return None


def alike(
    memory: Material, near: Sequence[tuple[Material, float]], now: float, min_cosine: float
) -> list[tuple[Material, float]]:
    """The memories of these that are so near another one that a person may want to see both."""
    return [
        (other, cosine)
        for other, cosine in near
        if cosine > min_cosine
        and not has_ended(other.valid_until, now)
        and other.id not in memory.derived_from
        and memory.id not in other.derived_from
    ]


def other_words(memory: Material, into: Material) -> str | None:
    """A memory's content, if it differs from the other in more than blanks, case or marks at the end; None when nothing
    gets lost."""
    return memory.content if normalised(memory.content) != normalised(into.content) else None
