"""Clusters of related episodic memories become one semantic memory each, made of their own sentences. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from remembrancer.actors.consolidator.reflection.clusters import ClusterRules, cluster_memories
from remembrancer.actors.consolidator.reflection.summaries import Source, one_line, summarise
from remembrancer.actors.consolidator.work.agreement import still_holds
from remembrancer.actors.consolidator.work.facts import facts_of, vectors_of
from remembrancer.actors.consolidator.work.writing import Group, derive
from remembrancer.protocol.consolidation import Material
from remembrancer.protocol.ids import derive_memory_id
from remembrancer.protocol.kinds import Kind
from remembrancer.protocol.runs import AddLink, AddMemory, NewMemory, ReviseMemory

LEFT_ALONE: Final[frozenset[Kind]] = frozenset({"scratchpad"})
"""What was noted for the moment is no knowledge that is worth being summed up."""
MOST_TAGS: Final = 10
MOST_ENTITIES: Final = 20
CONFIDENCE_GAIN: Final = 0.05
"""What several memories say is a little surer than what each of them says."""
DIGITS: Final = 9


@dataclass(frozen=True, slots=True)
class Derived:
    """A memory that is made of others, and the edits that make it."""

    memory: NewMemory
    sources: tuple[Material, ...]
    group: Group


def plan_summaries(
    memories: Iterable[Material],
    now: float,
    rules: ClusterRules,
    *,
    again: bool = False,
) -> list[Derived]:
    """What the memories can be summed up in.

    Only active episodic memories that hold, have their vectors and were made of no others are looked at, and what was
    summed up before only if that was not undone (or `again`, because somebody asks). What is made of a session's
    memories belongs to that session, and what is made of a project's to that project.
    """
    owners: dict[tuple[str, str], list[Material]] = {}
    for memory in memories:
        if _can_be_summed_up(memory, now) and (again or memory.undone != "consolidated"):
            owner = memory.session_id if memory.scope == "session" else ""
            owners.setdefault((memory.scope, owner), []).append(memory)
    made: list[Derived] = []
    for _, group in sorted(owners.items()):
        facts = [facts_of(memory, now) for memory in group]
        for cluster in cluster_memories(facts, vectors_of(group), rules):
            derived = _sum_up([group[place] for place in cluster.members])
            if derived is not None:
                made.append(derived)
    return made


def derived_id(what: str, sources: Sequence[Material]) -> str:
    """The id of a memory that is made of these as they are now: the same whoever makes it, and when."""
    origin = sorted((memory.id, memory.version) for memory in sources)
    return derive_memory_id(derive(what, origin), max(memory.created_at for memory in sources))


def made_of(memory_id: str, kind: Kind, content: str, sources: Sequence[Material]) -> NewMemory:
    """A memory that stands for others, which are given in the order of their times."""
    latest = max(sources, key=lambda each: (each.happened_at, each.id))
    confidence = sum(each.confidence for each in sources) / len(sources)
    scope = "session" if any(each.scope == "session" for each in sources) else latest.scope
    return NewMemory(
        id=memory_id,
        content=content,
        kind=kind,
        scope=scope,
        session_id=next((each.session_id for each in sources if each.scope == "session"), latest.session_id),
        summary=one_line(content) or None,
        importance=max(each.importance for each in sources),
        confidence=min(1.0, round(confidence + CONFIDENCE_GAIN, DIGITS)),
        domain=_common_domain(sources),
        tags=_common_tags(sources),
        entities=_entities(sources),
        occurred_at=latest.happened_at,
    )


def adding(memory: NewMemory, sources: Iterable[Material]) -> AddMemory:
    """The edit that makes a memory, if what it is made of is then as it was looked at: else it would outlive that."""
    return AddMemory(memory, tuple((each.id, each.version) for each in sources))


def links_to(memory_id: str, sources: Iterable[Material]) -> tuple[AddLink, ...]:
    """The links from a memory to what it was made of."""
    return tuple(AddLink(memory_id, each.id, "derived_from") for each in sources)


def _can_be_summed_up(memory: Material, now: float) -> bool:
    return (
        memory.type == "episodic"
        and memory.status == "active"
        and memory.kind not in LEFT_ALONE
        and not memory.is_derived
        and bool(memory.vector)
        and still_holds(memory, now)
    )


def _sum_up(sources: Sequence[Material]) -> Derived | None:
    memory_id = derived_id("summary", sources)
    content = summarise([Source(each.content, each.importance) for each in sources]).text
    if not content:
        return None
    memory = made_of(memory_id, "fact", content, sources)
    reason = f"{memory_id} sums it up with {len(sources) - 1} others"
    marks = tuple(
        ReviseMemory(
            each.id,
            "consolidated",
            expected_version=each.version,
            status="consolidated",
            reason=reason,
            only_with=memory_id,
        )
        for each in sources
    )
    return Derived(memory, tuple(sources), (adding(memory, sources), *marks, *links_to(memory_id, sources)))


def _common_tags(sources: Sequence[Material]) -> tuple[str, ...]:
    """The tags that at least half of the sources have, the commonest first."""
    counts = Counter(tag for each in sources for tag in dict.fromkeys(each.tags))
    common = [tag for tag, count in counts.items() if count * 2 >= len(sources)]
    return tuple(sorted(common, key=lambda tag: (-counts[tag], tag))[:MOST_TAGS])


def _entities(sources: Sequence[Material]) -> tuple[tuple[str, str, str], ...]:
    """All entities of the sources, the commonest first; a name comes once."""
    counts = Counter(entity.name for each in sources for entity in each.entities)
    first: dict[str, tuple[str, str, str]] = {}
    for each in sources:
        for entity in each.entities:
            first.setdefault(entity.name, (entity.name, entity.type, entity.relationship))
    return tuple(first[name] for name in sorted(first, key=lambda name: (-counts[name], name))[:MOST_ENTITIES])


def _common_domain(sources: Sequence[Material]) -> str | None:
    domains = {each.domain for each in sources}
    return domains.pop() if len(domains) == 1 else None
