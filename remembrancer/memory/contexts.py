"""Chooses memories for a context: all if they fit, otherwise those for every task before those for this task. Pure."""

import math
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

import msgspec

from remembrancer.memory.replacement import replaced_among
from remembrancer.memory.tokens import CHARACTERS_A_TOKEN, estimate_tokens, truncate
from remembrancer.protocol.reads import ListedMemory, RecalledMemory, Section

STANDING_SHARE: Final = 0.35
ENDS_SHARE: Final = 0.1
"""The maximum shares of the budget for standing memories and for open ends when not all memories fit."""
LEAST_FOR_ENDS: Final = 80
"""The tokens reserved for the most urgent open ends, even in a small budget."""
AROUND, DATED = 6, 8
HEADINGS: Final = 50
INDEX_SHARE, INDEX = 1 / 6, 150
"""The tokens reserved for the index when not all memories fit: a share of the budget, up to a maximum."""
LONGEST_SHARE, LEAST_LONGEST = 1 / 6, 64
"""The maximum tokens per memory when not all memories fit: a share of the budget, but at least the second value."""
CUT: Final = "… (get_memory has the rest)"

M = TypeVar("M", bound=ListedMemory)


@dataclass(frozen=True, slots=True)
class Chosen:
    """`left_out` tells whether any memory was not chosen. Chosen memories probably replace those in `replaced`."""

    given: tuple[RecalledMemory, ...]
    left_out: bool
    replaced: tuple[RecalledMemory, ...] = ()


def section_of(memory: ListedMemory, sections: Sequence[Section]) -> Section | None:
    places: list[Section] = ["open_ends"] if memory.is_open else []
    if memory.scope == "session":
        places.append("session_history")
    else:
        places += ["relevant_procedures"] if memory.type == "procedural" else []
        places.append("preferences" if memory.scope == "user" else "project_context")
    return next((place for place in places if place in sections), None)


def in_sections(memories: Iterable[M], sections: Sequence[Section]) -> tuple[M, ...]:
    """The memories of the requested sections, in the order of the sections. Open ends are sorted by urgency."""
    named: dict[Section, list[M]] = {name: [] for name in sections}
    for memory in memories:
        if (name := section_of(memory, sections)) is not None:
            named[name].append(memory)
    named.get("open_ends", []).sort(key=lambda each: each.urgency, reverse=True)
    return tuple(memory for own in named.values() for memory in own)


def longest_within(tokens: int) -> float:
    return max(LEAST_LONGEST, LONGEST_SHARE * tokens)


def choose(
    tokens: int,
    rest: Sequence[RecalledMemory],
    standing: Sequence[RecalledMemory] = (),
    ends: Sequence[RecalledMemory] = (),
    found: Container[str] = (),
    *,
    is_part: bool = False,
    longest: float = math.inf,
) -> Chosen:
    """Choose the memories that fit into a budget of tokens. Each list is sorted best first; `standing` memories apply
    to every task, and `found` holds the ids that a search for the task returned. `is_part` means that more memories
    exist. Texts longer than `longest` tokens are cut."""
    given: dict[str, RecalledMemory] = {}
    room = tokens - HEADINGS - is_part * min(INDEX, INDEX_SHARE * tokens)
    if is_part:
        longest = min(longest_within(tokens), max(0, room - AROUND))

    def take(memories: Iterable[RecalledMemory], most: float) -> None:
        nonlocal room
        available = min(room, most)
        for memory in memories:
            least = AROUND + min(len(memory.content) / CHARACTERS_A_TOKEN, longest)
            if memory.id in given or least > available:  # cheaper than counting tokens
                continue
            tokens_of = estimate_tokens(memory.content)
            if tokens_of > longest:
                read = memory.content[: int(longest) * CHARACTERS_A_TOKEN]
                shortened = f"{truncate(read, int(longest) - estimate_tokens(CUT))}{CUT}"
                memory, tokens_of = msgspec.structs.replace(memory, content=shortened), estimate_tokens(shortened)
            is_dated = memory.version > 1 or memory.due is not None or memory.occurred_at is not None
            cost = tokens_of + AROUND + DATED * is_dated
            if cost <= available:
                given[memory.id] = memory
                available, room = available - cost, room - cost

    replacing = {newer for memory in standing for newer in memory.possibly_superseded_by}

    def weight_of(memory: RecalledMemory) -> tuple[bool, bool, float, float]:
        changed_at = memory.updated_at or memory.created_at
        return memory.id in found, memory.id in replacing, memory.importance, changed_at

    ranked = sorted(standing, key=weight_of, reverse=True)
    reserved = room - STANDING_SHARE * tokens
    take((each for each in ranked if each.scope != "user"), (room - reserved) / 2)  # the user may have many memories
    take(ranked, room - reserved)
    take(ends, max(LEAST_FOR_ENDS, ENDS_SHARE * tokens))
    take(rest, room)
    take(standing, room)
    take(ends, room)
    left_out = is_part or len(given) < len({each.id for each in rest})
    replaced = replaced_among(given.values())
    present = tuple(each for key, each in given.items() if key not in replaced)
    return Chosen(present, left_out, tuple(each for key, each in given.items() if key in replaced))
