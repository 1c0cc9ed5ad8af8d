"""What becomes of a session's memories that are promoted: each one goes into the project, or is merged into a memory
that says the same there. Pure; the clock is passed in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from remembrancer.actors.consolidator.promotion import (
    PromotionRules,
    Verdict,
    merged_confidence,
    merged_importance,
)
from remembrancer.actors.consolidator.reflection.contradictions import Contradiction, ContradictionRules
from remembrancer.actors.consolidator.work.agreement import alike, contradictions_with, other_words, says_the_same
from remembrancer.actors.consolidator.work.facts import vectors_of
from remembrancer.actors.consolidator.work.writing import Group
from remembrancer.protocol.consolidation import Material
from remembrancer.protocol.runs import AddLink, ChainLink, LogPromotion, ReviseMemory

Near = Mapping[str, Sequence[tuple[Material, float]]]
"""By the id of a memory: those of the target scope that are near it with their cosines, the nearest first."""


@dataclass(frozen=True, slots=True)
class Promoted:
    """A memory that is promoted, and why."""

    memory: Material
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class PromotionPlan:
    """The edits, a group for each memory that is promoted, and all the memories that they change."""

    groups: tuple[Group, ...] = ()
    moved: tuple[str, ...] = ()
    """Ids of the memories that go into the project themselves."""
    changed: frozenset[str] = frozenset()


@dataclass
class _Target:
    """A memory that others are merged into, as it is after the edits so far."""

    memory: Material
    importance: float
    confidence: float
    version: int


@dataclass
class _Plan:
    """A plan while it is made."""

    now: float
    promotion: PromotionRules
    targets: dict[str, _Target] = field(default_factory=dict)
    groups: list[Group] = field(default_factory=list)

    def promote(
        self, promoted: Promoted, contradictions: Sequence[Contradiction], near: Sequence[tuple[Material, float]]
    ) -> None:
        memory, verdict = promoted.memory, promoted.verdict
        chain = ChainLink(
            "session",
            memory.id,
            self.now,
            session_id=memory.session_id,
            score=verdict.score,
            reason=verdict.reason,
        )
        revision = ReviseMemory(
            memory.id,
            "promoted",
            expected_version=memory.version,
            scope="project",
            chain=chain,
            reason=verdict.reason,
        )
        log = LogPromotion(memory.id, memory.kind, "session", "project", "importance", memory.session_id, verdict.score)
        links = [AddLink(each.newer, each.older, "contradicts", each.strength) for each in contradictions]
        contrary = {each.newer for each in contradictions} | {each.older for each in contradictions}
        links += [
            AddLink(memory.id, other.id, "similar_to", min(1.0, cosine))
            for other, cosine in near
            if other.id not in contrary
        ]
        self.groups.append((revision, log, *links))
        self.targets[memory.id] = _Target(memory, memory.importance, memory.confidence, memory.version + 1)

    def merge(self, promoted: Promoted, into: Material, cosine: float) -> None:
        memory, verdict = promoted.memory, promoted.verdict
        target = self.targets.setdefault(into.id, _Target(into, into.importance, into.confidence, into.version))
        target.importance = merged_importance(target.importance, memory.importance)
        target.confidence = merged_confidence(target.confidence, "project", self.promotion)
        chain = ChainLink(
            "session",
            memory.id,
            self.now,
            action="merged",
            session_id=memory.session_id,
            score=verdict.score,
            reason=verdict.reason,
            content=other_words(memory, into),
        )
        reason = f"merged into {into.id}, which says the same (cosine {cosine:.3f}); {verdict.reason}"
        source = ReviseMemory(memory.id, "promoted", expected_version=memory.version, status="promoted", reason=reason)
        merging = ReviseMemory(
            into.id,
            "merged",
            expected_version=target.version,
            importance=target.importance,
            confidence=target.confidence,
            tags=memory.tags,
            accessed=True,
            chain=chain,
            reason=f"{memory.id} was merged into it (cosine {cosine:.3f})",
            only_with=memory.id,
        )
        link = AddLink(memory.id, into.id, "supports", min(1.0, cosine))
        log = LogPromotion(
            memory.id, memory.kind, "session", "project", "importance", memory.session_id, verdict.score, into.id
        )
        self.groups.append((source, merging, link, log))
        target.version += 1


def plan_promotions(
    promoted: Sequence[Promoted],
    near: Near,
    now: float,
    rules: PromotionRules,
    contradictions: ContradictionRules,
) -> PromotionPlan:
    """What is done about memories that are promoted, the strongest first, given what is near them in the project.

    Of several that say the same and are promoted together, the strongest goes into the project, and the others are
    merged into it. What is near but may say something else is not merged: it is promoted, and linked to what it is
    near, or contradicts.
    """
    plan = _Plan(now, rules)
    rows = vectors_of([each.memory for each in promoted])
    cosines = rows @ rows.T
    moved: list[int] = []
    for place, each in enumerate(promoted):
        siblings = [(promoted[other].memory, float(cosines[place, other])) for other in moved]
        others = sorted(
            (*near.get(each.memory.id, ()), *(pair for pair in siblings if pair[1] > 0)),
            key=lambda pair: (-pair[1], pair[0].id),
        )
        target = says_the_same(each.memory, others, now, rules.merge_cosine, contradictions)
        if target is None:
            against = contradictions_with(each.memory, others, now, contradictions)
            plan.promote(each, against, alike(each.memory, others, now, rules.merge_cosine))
            moved.append(place)
        else:
            plan.merge(each, *target)
    changed = frozenset(plan.targets) | {each.memory.id for each in promoted}
    return PromotionPlan(tuple(plan.groups), tuple(promoted[place].memory.id for place in moved), changed)
