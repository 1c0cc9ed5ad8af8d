"""Which memories move to a broader scope: the score of a memory, the thresholds, and the reasons. Pure.

The consolidator decides by these rules, and the store explains by them. What somebody asks to be promoted always is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Literal

from remembrancer.memory.decay import strength_of
from remembrancer.memory.project_specifics import is_project_specific
from remembrancer.protocol.consolidation import Material
from remembrancer.protocol.kinds import SESSION_KINDS, Kind, Scope

IMPORTANCE_SHARE: Final = 0.4
CONFIDENCE_SHARE: Final = 0.3
MOST_FOR_USE: Final = 0.2
FOR_VECTORS: Final = 0.05
FOR_KIND: Final[dict[Kind, float]] = {
    "pattern": 0.1,
    "convention": 0.1,
    "procedure": 0.1,
    "decision": 0.08,
    "error_fix": 0.08,
    "architecture": 0.08,
    "preference": 0.06,
    "fact": 0.06,
}
DIGITS: Final = 9
"""Sums are rounded to so many digits, so that 0.4 + 0.3 + 0.1 + 0.05 reaches a threshold of 0.85."""
MOST_BESIDE: Final = MOST_FOR_USE + max(FOR_KIND.values()) + FOR_VECTORS
"""What use, kind and vectors add to a score at the most."""
COUNTED_ACCESSES: Final = math.ceil(10 ** (2 * MOST_FOR_USE)) - 1
"""Accesses that count in a score: with more it is no higher."""


@dataclass(frozen=True, slots=True)
class PromotionRules:
    """The thresholds of promotion."""

    session_end_score: float = 0.6
    at_once_score: float = 0.85
    user_score: float = 0.7
    user_min_sessions: int = 3
    user_min_importance: float = 0.7
    user_kinds: frozenset[Kind] = frozenset({"pattern", "convention", "preference", "procedure", "fact"})
    session_kinds: frozenset[Kind] = SESSION_KINDS
    """What belongs to its session alone."""
    session_end_limit: int = 50
    user_limit: int = 20
    merge_cosine: float = 0.85
    project_confidence_gain: float = 0.05
    user_confidence_gain: float = 0.1


DEFAULT_PROMOTION: Final = PromotionRules()


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a memory is promoted, its score in [0, 1], and for a person why, or why not."""

    promote: bool
    score: float
    reason: str


def promotion_score(importance: float, confidence: float, access_count: int, kind: Kind, has_vectors: bool) -> float:
    """What a memory is worth to a broader scope, in [0, 1]."""
    base = importance * IMPORTANCE_SHARE + confidence * CONFIDENCE_SHARE
    for_use = min(math.log10(access_count + 1) / 2.0, MOST_FOR_USE)
    for_vectors = FOR_VECTORS if has_vectors else 0.0
    return min(round(base + for_use + FOR_KIND.get(kind, 0.0) + for_vectors, DIGITS), 1.0)


def at_session_end(memory: Material, rules: PromotionRules = DEFAULT_PROMOTION) -> Verdict:
    """Whether a session's memory outlives its session, in the project."""
    return _to_project(memory, rules, rules.session_end_score)


def at_once(memory: Material, rules: PromotionRules = DEFAULT_PROMOTION) -> Verdict:
    """Whether a running session's memory goes into the project now."""
    return _to_project(memory, rules, rules.at_once_score)


def to_user(memory: Material, rules: PromotionRules = DEFAULT_PROMOTION, *, project_name: str = "") -> Verdict:
    """Whether a project's memory is of use in every project. `project_name` is what its own project is called."""
    score = _score(memory)
    obstacle = _standing(memory, "project")
    if obstacle is None and memory.kind not in rules.user_kinds:
        obstacle = f"{named_kind(memory.kind)} stays in its project"
    if obstacle is None and memory.importance < rules.user_min_importance:
        obstacle = f"its importance {shown(memory.importance, 3)} is below {rules.user_min_importance:g}"
    if obstacle is None and memory.sessions_accessed < rules.user_min_sessions:
        obstacle = (
            f"it was accessed in {_counted(memory.sessions_accessed, 'session')}, "
            f"and {rules.user_min_sessions} are needed"
        )
    if obstacle is None:
        entities = [(entity.name, entity.type) for entity in memory.entities]
        if sign := is_project_specific(memory.content, entities, project_name):
            obstacle = f"it is of use in its project alone: {sign}"
    if obstacle is not None:
        return Verdict(False, score, obstacle)
    reached = _threshold(score, rules.user_score)
    if not reached.promote:
        return reached
    reason = f"{reached.reason}, and it was accessed in {_counted(memory.sessions_accessed, 'session')}"
    return Verdict(True, score, reason)


def promoted_at_session_end(
    memories: Iterable[Material], now: float, rules: PromotionRules = DEFAULT_PROMOTION
) -> list[tuple[Material, Verdict]]:
    """The memories of one session that go into the project: the strongest first, up to the limit."""
    return _strongest(memories, lambda each: at_session_end(each, rules), rules.session_end_limit, now)


def promoted_to_user(
    memories: Iterable[Material], now: float, rules: PromotionRules = DEFAULT_PROMOTION, *, project_name: str = ""
) -> list[tuple[Material, Verdict]]:
    """The memories of one project that go to the user: the strongest first, up to the limit.

    The limit counts those that are promoted: else strong memories that can never leave their project would keep all
    others there as well.
    """
    return _strongest(memories, lambda each: to_user(each, rules, project_name=project_name), rules.user_limit, now)


def merged_confidence(
    existing: float, target: Literal["project", "user"], rules: PromotionRules = DEFAULT_PROMOTION
) -> float:
    """The confidence, at most 1, of a memory in the target scope that another one was merged into: said twice."""
    gain = rules.user_confidence_gain if target == "user" else rules.project_confidence_gain
    return min(round(existing + gain, DIGITS), 1.0)


def named_kind(kind: Kind) -> str:
    """A kind with its article, for a sentence."""
    words = kind.replace("_", " ")
    return f"an {words}" if words[0] in "aeiou" else f"a {words}"


def shown(value: float, digits: int) -> str:
    """A share for a person, cut off and not rounded: what is below a threshold looks it."""
    return f"{math.floor(value * 10**digits + 1e-6) / 10**digits:g}"


def _to_project(memory: Material, rules: PromotionRules, least: float) -> Verdict:
    score = _score(memory)
    obstacle = _standing(memory, "session")
    if obstacle is None and memory.kind in rules.session_kinds:
        obstacle = f"{named_kind(memory.kind)} is for its session alone"
    return _threshold(score, least) if obstacle is None else Verdict(False, score, obstacle)


def _standing(memory: Material, scope: Scope) -> str | None:
    """What about a memory's place or status keeps it from being promoted out of a scope.

    A session's memory that was summed up is promoted all the same: the summary does not say all that it said.
    """
    if memory.scope != scope:
        return f"its scope is {memory.scope}, not {scope}"
    if memory.undone == "promoted":
        return "its promotion was undone"
    if memory.pinned:
        return "it is pinned to its place"
    if memory.status == "active" or (scope == "session" and memory.status == "consolidated"):
        return None
    return f"it is {memory.status}"


def _threshold(score: float, least: float) -> Verdict:
    if score >= least:
        return Verdict(True, score, f"its score {shown(score, 3)} reaches {least:g}")
    return Verdict(False, score, f"its score {shown(score, 3)} is below {least:g}")


def _score(memory: Material) -> float:
    return promotion_score(memory.importance, memory.confidence, memory.access_count, memory.kind, bool(memory.vector))


def _strongest(
    memories: Iterable[Material], decide: Callable[[Material], Verdict], limit: int, now: float
) -> list[tuple[Material, Verdict]]:
    promoted = [(each, verdict) for each in memories if (verdict := decide(each)).promote]
    return sorted(promoted, key=lambda pair: (-strength_of(pair[0], now), pair[0].id))[:limit]


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
