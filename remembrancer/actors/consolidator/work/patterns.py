"""Themes that recur in several sessions: said to whoever asks, and kept as a procedure where they say how. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Final

from remembrancer.actors.consolidator.reflection.summaries import Source, summarise
from remembrancer.actors.consolidator.reflection.themes import Theme, ThemeRules, find_themes
from remembrancer.actors.consolidator.specifics import is_project_specific
from remembrancer.actors.consolidator.work.agreement import still_holds
from remembrancer.actors.consolidator.work.facts import facts_of, vectors_of
from remembrancer.actors.consolidator.work.summing_up import LEFT_ALONE, Derived, adding, derived_id, links_to, made_of
from remembrancer.protocol.consolidation import Material, Pattern
from remembrancer.protocol.writes import ProjectRef

MOST_PATTERNS: Final = 20


@dataclass(frozen=True, slots=True)
class PatternPlan:
    """A theme, and the memory that is to be made of it, if one is."""

    pattern: Pattern
    derived: Derived | None = None


def plan_patterns(memories: Sequence[Material], now: float, rules: ThemeRules, project_name: str) -> list[PatternPlan]:
    """The themes of the memories, the most frequent first. A theme that a procedure was made of before has its id.

    A procedure belongs to the session, if anything that it was made of does.
    """
    usable = [memory for memory in memories if _can_show_a_theme(memory, now)]
    by_id = {memory.id: memory for memory in usable}
    facts = []
    for memory in usable:
        names = tuple((entity.name, entity.type) for entity in memory.entities)
        specific = is_project_specific(memory.content, names, project_name) is not None
        facts.append(facts_of(memory, now, project_specific=specific))
    themes = find_themes(facts, vectors_of(usable), rules)
    return [_plan(theme, [by_id[member] for member in theme.members]) for theme in themes[:MOST_PATTERNS]]


def name_of(project: ProjectRef) -> str:
    """What people call a project: its directory's name. Its path may be that of a git directory."""
    path = PurePath(project.path)
    return path.parent.name if path.name == ".git" else path.name.removesuffix(".git")


def _can_show_a_theme(memory: Material, now: float) -> bool:
    """What was made of others repeats them; only a procedure is kept in view, so that it is not made twice."""
    if memory.kind in LEFT_ALONE or not memory.vector or not still_holds(memory, now):
        return False
    return memory.type == "procedural" or not memory.is_derived


def _plan(theme: Theme, members: Sequence[Material]) -> PatternPlan:
    known = next((each for each in members if each.is_derived), None)
    sources = tuple(each for each in members if not each.is_derived)
    pattern = Pattern(
        theme.pattern,
        theme.frequency,
        theme.suggested_scope,
        None if known is None else known.id,
        tuple(each.id for each in sources),
    )
    if known is not None or not theme.as_procedure:
        return PatternPlan(pattern)
    content = summarise([Source(each.content, each.importance) for each in sources]).text
    if not content:
        return PatternPlan(pattern)
    memory = made_of(derived_id("pattern", sources), "procedure", content, sources)
    derived = Derived(memory, sources, (adding(memory, sources), *links_to(memory.id, sources)))
    return PatternPlan(
        Pattern(pattern.pattern, pattern.frequency, pattern.suggested_scope, memory.id, pattern.derived_from), derived
    )
