"""Recurring themes: what comes up in different sessions again, and whether it says how to do something. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from remembrancer.actors.consolidator.clusters import central_memory, cluster_memories
from remembrancer.memory.project_specifics import is_project_specific
from remembrancer.protocol.consolidation import Material
from remembrancer.protocol.kinds import Scope

THEME_COSINE: Final = 0.45
LEAST_SESSIONS: Final = 3
MOST_MEMBERS: Final = 60
PROCEDURE_KINDS: Final = frozenset({"procedure", "error_fix"})


@dataclass(frozen=True, slots=True)
class Theme:
    """A theme. `picked` is the member that represents it, `frequency` the number of sessions that it came up in.

    `members` are in the order of their times. `as_procedure`: it is about how something is done, as are the kinds of
    most of its members.
    """

    picked: Material
    frequency: int
    members: tuple[Material, ...]
    suggested_scope: Scope
    as_procedure: bool


def find_themes(memories: Sequence[Material], project_name: str) -> list[Theme]:
    """The themes, the most frequent first. No memory is in two; scopes and types make no difference here."""
    themes = [
        _theme(members, project_name)
        for members in cluster_memories(memories, THEME_COSINE, least=2, most=MOST_MEMBERS)
        if len({member.session_id for member in members}) >= LEAST_SESSIONS
    ]
    return sorted(themes, key=lambda each: (-each.frequency, -len(each.members), each.members[0].id))


def _theme(members: Sequence[Material], project_name: str) -> Theme:
    picked = central_memory(members)
    is_personal = _is_personal(picked, project_name) and _mostly(_is_personal(each, project_name) for each in members)
    return Theme(
        picked=picked,
        frequency=len({member.session_id for member in members}),
        members=tuple(members),
        suggested_scope="user" if is_personal else "project",
        as_procedure=_mostly(member.kind in PROCEDURE_KINDS for member in members),
    )


def _is_personal(memory: Material, project_name: str) -> bool:
    """True if it is a preference, or holds in any project."""
    entities = [(entity.name, entity.type) for entity in memory.entities]
    return memory.kind == "preference" or is_project_specific(memory.content, entities, project_name) is None


def _mostly(answers: Iterable[bool]) -> bool:
    given = list(answers)
    return sum(given) > len(given) / 2
