"""What maintenance changes: archived, let go, copies linked to the one that stays, contradictions proposed. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from remembrancer.actors.consolidator.maintenance import (
    MaintenanceRules,
    MemoryFacts,
    should_archive,
    should_delete,
)
from remembrancer.actors.consolidator.reflection.contradictions import ContradictionRules
from remembrancer.actors.consolidator.reflection.duplicates import find_copies
from remembrancer.actors.consolidator.work.agreement import contradictions_with, still_holds
from remembrancer.actors.consolidator.work.facts import facts_of, strength_of
from remembrancer.actors.consolidator.work.writing import Group
from remembrancer.protocol.consolidation import Material
from remembrancer.protocol.dynamics import DAY_S
from remembrancer.protocol.runs import AddLink, ReviseMemory
from remembrancer.protocol.wording.normalising import normalised


@dataclass(frozen=True, slots=True)
class Change:
    """What is done about one memory."""

    memory_id: str
    group: Group


def plan_archiving(
    memories: Iterable[Material], now: float, rules: MaintenanceRules
) -> tuple[list[Change], list[Change]]:
    """What is archived, and what is forgotten because it was archived long ago."""
    archived, deleted = [], []
    for memory in memories:
        strength = strength_of(memory, now)
        facts = MemoryFacts(
            memory.scope,
            memory.status,
            strength,
            memory.created_at,
            memory.updated_at,
            memory.access_count,
            memory.archived_at,
        )
        if memory.undone in ("archived", "forgotten"):
            continue  # somebody wanted it back
        if should_archive(facts, now, rules):
            reason = f"weak ({strength:g}), old and hardly used"
            revision = ReviseMemory(
                memory.id, "archived", expected_version=memory.version, status="archived", reason=reason
            )
            archived.append(Change(memory.id, (revision,)))
        elif should_delete(facts, now, rules):
            reason = f"maintenance: archived for {rules.delete_after_s / DAY_S:g} days"
            revision = ReviseMemory(
                memory.id, "forgotten", expected_version=memory.version, forget=reason, reason=reason
            )
            deleted.append(Change(memory.id, (revision,)))
    return archived, deleted


def plan_notes(memories: Iterable[Material], now: float, rules: MaintenanceRules) -> list[Change]:
    """What is forgotten of what closed sessions noted for themselves alone: what is old itself."""
    kept_s = rules.session_details_kept_s
    reason = f"maintenance: its session has been closed for {kept_s / DAY_S:g} days"
    return [
        Change(
            memory.id,
            (ReviseMemory(memory.id, "forgotten", expected_version=memory.version, forget=reason, reason=reason),),
        )
        for memory in memories
        if memory.updated_at < now - kept_s and not memory.undone
    ]


@dataclass(slots=True)
class CopyFinder:
    """Finds which of very many memories could be copies, and holds some 100 bytes for each.

    The text itself is compared afterwards, of those few alone.
    """

    _first: dict[bytes, str] = field(default_factory=dict)
    _groups: dict[bytes, list[str]] = field(default_factory=dict)

    def add(self, memory: Material) -> None:
        """Look at one more."""
        text = normalised(memory.content)
        if not text:
            return
        digest = hashlib.blake2b(f"{memory.scope}\0{text}".encode(), digest_size=16).digest()
        first = self._first.setdefault(digest, memory.id)
        if first != memory.id:
            self._groups.setdefault(digest, [first]).append(memory.id)

    def groups(self) -> list[list[str]]:
        """Ids of memories that say the same."""
        return list(self._groups.values())


def plan_copies(memories: Sequence[Material], now: float) -> list[Change]:
    """Of copies one stays as it is; each of the others points at it, and stands behind it.

    A copy for which that was undone is none any more.
    """
    by_id = {memory.id: memory for memory in memories if memory.undone != "deduplicated"}
    changes = []
    for copies in find_copies(facts_of(memory, now) for memory in by_id.values()):
        for copy in copies.rest:
            revision = ReviseMemory(
                copy,
                "deduplicated",
                expected_version=by_id[copy].version,
                status="consolidated",
                reason=f"{copies.kept} says the same in the same words",
            )
            changes.append(Change(copy, (revision, AddLink(copy, copies.kept, "similar_to"))))
    return changes


def plan_contradictions(
    newer: Iterable[Material],
    near: Mapping[str, Sequence[tuple[Material, float]]],
    now: float,
    rules: ContradictionRules,
) -> list[Change]:
    """Links from memories to older ones that they contradict. Nothing else changes: a person has to judge that."""
    changes = []
    for memory in newer:
        if not still_holds(memory, now):
            continue
        others = [(other, cosine) for other, cosine in near.get(memory.id, ()) if other.type == "semantic"]
        for found in contradictions_with(memory, others, now, rules):
            if found.newer == memory.id:
                link = AddLink(found.newer, found.older, "contradicts", found.strength)
                changes.append(Change(memory.id, (link,)))
    return changes
