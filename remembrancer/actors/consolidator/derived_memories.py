"""Memories derived from other memories: summaries, and procedures that several sessions follow. Pure."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import accumulate, groupby
from operator import itemgetter
from pathlib import PurePath
from typing import Final

import msgspec

from remembrancer.actors.consolidator.clusters import central_memory, cluster_memories
from remembrancer.memory.decay import has_ended, is_event
from remembrancer.memory.project_specifics import is_project_specific
from remembrancer.memory.replacement import frame_of
from remembrancer.memory.text import count
from remembrancer.protocol.consolidation import SMALLEST_CLUSTER, Material, Pattern
from remembrancer.protocol.ids import derive_id, derive_memory_id
from remembrancer.protocol.kinds import OPEN_END, SESSION_RECORD, Kind, Scope
from remembrancer.protocol.runs import AddLink, AddMemory, Edit, NewMemory, ReviseMemory
from remembrancer.protocol.writes import ProjectRef

NOT_SUMMARISED: Final[frozenset[Kind]] = frozenset({"scratchpad", OPEN_END, SESSION_RECORD})
THEME_COSINE: Final = 0.45
THEME_SESSIONS: Final = 3
MOST_OF_A_THEME: Final = 60
PROCEDURE_KINDS: Final = frozenset({"procedure", "error_fix"})
MOST_PATTERNS: Final = 20
MOST_TAGS: Final = 10
MOST_ENTITIES: Final = 20
CONFIDENCE_GAIN: Final = 0.05
"""Added because several memories together are a little more certain than one."""
DIGITS: Final = 9
SUMMARY_CHARACTERS: Final = 600
LONGEST_SOURCE: Final = SUMMARY_CHARACTERS // SMALLEST_CLUSTER
"""The longest memory that is summarised: repeating a longer one in a summary would save nothing."""

Derived = tuple[AddMemory, *tuple[Edit, ...]]


PatternPlan = tuple[Pattern, Derived | None]


def plan_summaries(memories: Iterable[Material], now: float, *, again: bool = False) -> list[Derived]:
    """The summaries of related memories that are active, valid, about events and not derived. A memory whose summary
    was undone is not summarised again, unless `again` is set, for an explicit request."""
    owners: dict[tuple[str, str], list[Material]] = {}
    for memory in memories:
        is_fresh = memory.status == "active" and not memory.is_derived and (again or memory.undone != "consolidated")
        if is_event(memory) and is_fresh and not memory.pinned and _is_usable(memory, now):
            owner = memory.session_id if memory.scope == "session" else ""
            owners.setdefault((memory.scope, owner), []).append(memory)
    clusters = [cluster for _, group in sorted(owners.items()) for cluster in cluster_memories(group)]
    return [_sum_up(portion) for cluster in clusters for portion in _portions(cluster)]


def plan_patterns(memories: Sequence[Material], now: float, project_name: str) -> list[PatternPlan]:
    """The themes that occur in several sessions, the most frequent first. A theme that already has a procedure carries
    the procedure's id. Derived memories repeat their sources, so only derived procedures are read."""
    usable = [
        memory
        for memory in memories
        if _is_usable(memory, now)
        and len(memory.content) <= SUMMARY_CHARACTERS  # a longer text covers several themes
        and (memory.type == "procedural" or not memory.is_derived)
    ]
    themes = [
        (len(sessions), members)
        for members in cluster_memories(usable, THEME_COSINE, least=2, most=MOST_OF_A_THEME)
        if len(sessions := {member.session_id for member in members if not member.is_derived}) >= THEME_SESSIONS
    ]
    themes.sort(key=lambda theme: (-theme[0], -len(theme[1]), theme[1][0].id))
    return [_plan(members, frequency, project_name) for frequency, members in themes[:MOST_PATTERNS]]


def by_id(made: Iterable[Derived]) -> dict[str, Derived]:
    return {each[0].memory.id: each for each in made}


def name_of(project: ProjectRef) -> str:
    """A project's display name: the name of its directory. The path may be a git directory's."""
    path = PurePath(project.path)
    return path.parent.name if path.name == ".git" else path.name.removesuffix(".git")


def _is_usable(memory: Material, now: float) -> bool:
    is_comparable = memory.kind not in NOT_SUMMARISED and bool(memory.vector) and not memory.is_replaced
    return is_comparable and not has_ended(memory.valid_until, now)


def _portions(cluster: Sequence[Material]) -> Iterator[list[Material]]:
    """The memories of a cluster in order, in parts that each fit into a summary verbatim. Long memories are left out,
    as are memories in a series, which differ only in their numbers or names."""
    alike = Counter(frame_of(content) for content in {each.content for each in cluster})
    short = [each for each in cluster if len(each.content) <= LONGEST_SOURCE and alike[frame_of(each.content)] == 1]
    *begins, length = accumulate((len(each.content) for each in short), initial=0)
    count_of_parts = math.ceil(length / SUMMARY_CHARACTERS)
    numbered = zip((begin * count_of_parts // length for begin in begins), short, strict=True)
    for _, part in groupby(numbered, key=itemgetter(0)):
        portion = [memory for _, memory in part]
        if len(portion) >= SMALLEST_CLUSTER:
            yield portion


def _sum_up(sources: Sequence[Material]) -> Derived:
    """A summary with a line for each source: the day (in UTC, so that all hosts of a lane agree) and the source's own
    words. Nothing is lost, and comparing words shows whether the summary covers a source."""
    content = "\n".join(
        f"{datetime.fromtimestamp(source.happened_at, UTC):%Y-%m-%d}: {source.content}" for source in sources
    )
    adding, *derivations = _derive("summary", "fact", sources, content)
    made = adding.memory.id
    reason = f"{made} summarises it together with {count(len(sources) - 1, 'other')}"
    marks = tuple(
        ReviseMemory(each.id, "consolidated", each.version, status="consolidated", reason=reason, only_with=made)
        for each in sources
    )
    edits: tuple[Edit, ...] = (*marks, *derivations)
    return (adding, *edits)


def _plan(members: Sequence[Material], frequency: int, project_name: str) -> PatternPlan:
    """The plan for a theme, whose members are ordered by time. The theme becomes a procedure if most members are
    procedures or fixes, and belongs to the user if most members are preferences or not specific to a project."""
    procedure = next((member for member in members if member.is_derived), None)
    sources = [member for member in members if not member.is_derived]
    picked = central_memory(sources)
    is_personal = _is_personal(picked, project_name) and _mostly(_is_personal(each, project_name) for each in sources)
    scope: Scope = "user" if is_personal else "project"
    made = None if procedure is None else procedure.id
    pattern = Pattern(picked.content, frequency, scope, made, tuple(source.id for source in sources))
    if procedure is not None or not _mostly(member.kind in PROCEDURE_KINDS for member in members):
        return pattern, None
    derived = _derive("pattern", "procedure", sources, picked.content)
    return msgspec.structs.replace(pattern, memory_id=derived[0].memory.id), derived


def _is_personal(memory: Material, project_name: str) -> bool:
    entities = [(entity.name, entity.type) for entity in memory.entities]
    is_specific = is_event(memory) or is_project_specific(memory.content, entities, project_name) is not None
    return memory.kind == "preference" or not is_specific


def _mostly(answers: Iterable[bool]) -> bool:
    given = list(answers)
    return sum(given) > len(given) / 2


def _derive(what: str, kind: Kind, sources: Sequence[Material], content: str) -> Derived:
    """A memory derived from sources in chronological order. Its id depends only on the sources' ids and versions."""
    origin = sorted((source.id, source.version) for source in sources)
    memory_id = derive_memory_id(derive_id(what, origin), max(source.created_at for source in sources))
    latest = max(sources, key=lambda each: (each.happened_at, each.id))
    confidence = sum(source.confidence for source in sources) / len(sources)
    domains = {source.domain for source in sources}
    tagged = Counter(tag for source in sources for tag in dict.fromkeys(source.tags))
    common = sorted((tag for tag in tagged if tagged[tag] * 2 >= len(sources)), key=lambda tag: (-tagged[tag], tag))
    memory = NewMemory(
        id=memory_id,
        content=content,
        kind=kind,
        scope="session" if any(source.scope == "session" for source in sources) else latest.scope,
        session_id=next((source.session_id for source in sources if source.scope == "session"), latest.session_id),
        importance=max(source.importance for source in sources),
        confidence=min(1.0, round(confidence + CONFIDENCE_GAIN, DIGITS)),
        domain=domains.pop() if len(domains) == 1 else None,
        tags=tuple(common[:MOST_TAGS]),
        entities=_entities(sources),
        occurred_at=latest.happened_at,
    )
    # Skipped if a source has changed, because the derived memory would keep the old text.
    adding = AddMemory(memory, tuple((source.id, source.version) for source in sources))
    return (adding, *(AddLink(memory_id, source.id, "derived_from") for source in sources))


def _entities(sources: Sequence[Material]) -> tuple[tuple[str, str, str], ...]:
    entities = [entity for source in sources for entity in source.entities]
    counts = Counter(entity.name for entity in entities)
    first = {entity.name: (entity.name, entity.type, entity.relationship) for entity in reversed(entities)}
    return tuple(first[name] for name in sorted(first, key=lambda name: (-counts[name], name))[:MOST_ENTITIES])
