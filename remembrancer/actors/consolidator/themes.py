"""Recurring themes: what comes up again and again in different sessions, and whether it says how to do something. Pure.

The words by which an order or steps are known are English.
"""

from __future__ import annotations

import re
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
# Verbs that begin an order. Those that are nouns as well (test, log, build, change) are left out.
_ORDER_TEXT: Final = """
    add always apply ask avoid be bump check clean clear close configure create define delete deploy disable do don't
    enable ensure fix generate give go handle include increase inspect install keep kill make measure migrate move never
    open pass pin prefer pull put raise read rebase rebuild remember remove rename replace reproduce reset restart retry
    rotate run save send set show specify split squash start stop switch try turn update upgrade use validate verify
    wait write
"""
_ORDER: Final = re.compile(
    rf"(?:please\s+|first,?\s+)?(?:{'|'.join(_ORDER_TEXT.split())})\b(?![’'-]?s\b)", re.IGNORECASE
)
_STEPS: Final = re.compile(
    r"\bstep \d|\bfirst\b.{1,200}\bthen\b|\bhow to\b|\bby \w{2,}ing\b|\bmake sure\b"
    r"|\b(?:must|should|ha[sd] to|have to|needs? to) be \w+"
    r"|\b(?:asked|reminded|told|wants|wanted) (?:me |us |you |them )?to \w+|\b(?:before|after) (?:every|each|any)\b"
    r"|\b(?:before|after|when|whenever) \w{2,}ing\b|^to \w+[^.]{1,80}, |(?:^|\n)\s*\d[.)] .{1,400}\n\s*\d[.)] ",
    re.IGNORECASE | re.DOTALL,
)
_ASKING: Final = re.compile(
    r"\b(?:asks?|asked|asking|questions?|wonders?|unclear)\b.{0,60}\b(?:how|about|whether|what|why)\b", re.I
)
_LOOKED_AT: Final = 2_000
"""Characters in which steps are looked for."""


@dataclass(frozen=True, slots=True)
class Theme:
    """A theme. `picked` is the member that represents it, `frequency` the number of sessions that it came up in.

    `members` are in the order of their times. `as_procedure`: it is about how something is done, as most of its members
    or the one that represents them say.
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


def is_about_procedure(memories: Sequence[Material]) -> bool:
    """True if most of the memories say how something is done: by their kinds, or as orders and steps."""
    return _mostly(memory.kind in PROCEDURE_KINDS or says_how(memory.content) for memory in memories)


def says_how(content: str) -> bool:
    """True if it begins with an order, or has the marks of steps ("first … then", "before doing", numbers).

    To ask how is not to say how.
    """
    head = content[:_LOOKED_AT].strip()
    if _ASKING.search(head):
        return False
    return _ORDER.match(head) is not None or _STEPS.search(head) is not None


def _theme(members: Sequence[Material], project_name: str) -> Theme:
    picked = central_memory(members)
    is_personal = _is_personal(picked, project_name) and _mostly(_is_personal(each, project_name) for each in members)
    return Theme(
        picked=picked,
        frequency=len({member.session_id for member in members}),
        members=tuple(members),
        suggested_scope="user" if is_personal else "project",
        as_procedure=says_how(picked.content) or is_about_procedure(members),
    )


def _is_personal(memory: Material, project_name: str) -> bool:
    """True if it is a preference, or holds in any project."""
    entities = [(entity.name, entity.type) for entity in memory.entities]
    return memory.kind == "preference" or is_project_specific(memory.content, entities, project_name) is None


def _mostly(answers: Iterable[bool]) -> bool:
    given = list(answers)
    return sum(given) > len(given) / 2
