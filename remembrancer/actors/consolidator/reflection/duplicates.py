"""Copies: memories that say the same in the same words."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass

from remembrancer.actors.consolidator.reflection.facts import MemoryFacts
from remembrancer.protocol.wording.normalising import normalised


@dataclass(frozen=True, slots=True)
class Copies:
    """Ids of memories with one text: the one that stays, and the rest, the oldest first."""

    kept: str
    rest: tuple[str, ...]


def find_copies(memories: Iterable[MemoryFacts]) -> list[Copies]:
    """Groups of two or more that have one normalised text, in the order of the ids that stay.

    The strongest stays; of equally strong ones the oldest, and of those the one with the lowest id. Memories of two
    scopes, or of two sessions in the session scope, are no copies of each other: not everybody sees both.
    """
    groups: dict[Hashable, list[MemoryFacts]] = {}
    for memory in memories:
        text = normalised(memory.content)
        if text:
            owner = memory.session_id if memory.scope == "session" else ""
            groups.setdefault((memory.scope, owner, text), []).append(memory)
    found: list[Copies] = []
    for group in groups.values():
        kept = min(group, key=lambda each: (-each.strength, each.created_at, each.id))
        rest = sorted((each for each in group if each.id != kept.id), key=lambda each: (each.created_at, each.id))
        if rest:
            found.append(Copies(kept.id, tuple(each.id for each in rest)))
    return sorted(found, key=lambda each: each.kept)
