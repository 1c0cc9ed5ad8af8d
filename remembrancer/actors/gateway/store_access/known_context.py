"""A context without the store: what is known here, put into the sections. Pure.

The rules are the store's, with words for meaning: see `actors/store/retrieval/context.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from remembrancer.actors.gateway.store_access.read_cache import happened_at
from remembrancer.protocol.reads import ContextSection, GatherContext, RecalledMemory, Section

LEAST_LETTERS: Final = 4
"""Shorter words ("the", "for") speak for nothing; not so in scripts whose words are short."""
STEM: Final = 6
"""Words that begin with the same so many letters count as one."""
SEARCHED_CHARACTERS: Final = 5000
_WORD: Final = re.compile(r"\w+")


def known_sections(
    request: GatherContext, earlier: Sequence[ContextSection], known: Iterable[RecalledMemory]
) -> tuple[ContextSection, ...]:
    """The sections asked for: what an earlier answer had, then what else is known here and belongs there."""
    had = {section.name: section for section in earlier}
    placed = {memory.id for section in earlier for memory in section.memories}
    task = _stems(request.task)
    more: dict[Section, list[tuple[float, RecalledMemory]]] = {name: [] for name in request.sections}
    for memory in known:
        match = len(task & _stems(memory.content)) / len(task) if task else 0.0
        name = _section_of(memory, match, request)
        if name is not None and memory.id not in placed:
            placed.add(memory.id)
            more[name].append((match, memory))
    return tuple(_joined(name, had.get(name), more[name], request.limit) for name in request.sections)


def _joined(
    name: Section, had: ContextSection | None, more: list[tuple[float, RecalledMemory]], limit: int
) -> ContextSection:
    more.sort(key=_latest if name == "session_history" else _useful, reverse=True)
    memories = (*(had.memories if had is not None else ()), *(memory for _, memory in more))
    is_more = had is not None and had.more
    return ContextSection(name, memories[:limit], more=is_more or len(memories) > limit)


def _section_of(memory: RecalledMemory, match: float, request: GatherContext) -> Section | None:
    """Where a memory belongs, among the sections that are asked for; None where nothing speaks for it."""
    wanted = request.sections
    if memory.status == "archived":
        return None
    if memory.scope == "session":
        return "session_history" if "session_history" in wanted else None
    if memory.type == "procedural" and "relevant_procedures" in wanted:
        is_left_to_preferences = memory.scope == "user" and "preferences" in wanted
        if match > 0.0 or (not request.task and not is_left_to_preferences):
            return "relevant_procedures"
    if memory.scope == "user":
        return "preferences" if memory.type != "episodic" and "preferences" in wanted else None
    return "project_context" if "project_context" in wanted and (match > 0.0 or not request.task) else None


def _useful(found: tuple[float, RecalledMemory]) -> tuple[float, float]:
    match, memory = found
    return match + memory.importance, happened_at(memory)


def _latest(found: tuple[float, RecalledMemory]) -> tuple[bool, float]:
    _, memory = found
    return memory.type == "episodic", happened_at(memory)


def _stems(text: str) -> set[str]:
    words = _WORD.findall(text[:SEARCHED_CHARACTERS].casefold())
    return {word[:STEM] for word in words if len(word) >= LEAST_LETTERS or not word.isascii()}
