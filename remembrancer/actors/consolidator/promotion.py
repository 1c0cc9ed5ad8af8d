"""Which memories move to a broader scope: score and thresholds. Pure.

Where 5a speaks of importance (0.6 at a session's end, 0.8 at once) and 5c of the score (0.6 and 0.85), the score
counts: 5c defines it for this very purpose. What somebody asks to be promoted always is, and needs no verdict.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Literal

from remembrancer.actors.consolidator.specifics import is_project_specific as is_project_specific
from remembrancer.protocol.dynamics import DEFAULT_DECAY, Decay, memory_strength
from remembrancer.protocol.kinds import Kind, Scope, Status
from remembrancer.protocol.rules import DEFAULT_PROMOTION, DIGITS
from remembrancer.protocol.rules import PromotionRules as PromotionRules
from remembrancer.protocol.rules import promotion_score as promotion_score

DEFAULT_RULES: Final = DEFAULT_PROMOTION


@dataclass(frozen=True, slots=True)
class Candidate:
    """A memory that may be promoted. `entities` are names with their types; `last_accessed_at` is as in `dynamics`."""

    id: str
    kind: Kind
    content: str
    scope: Scope
    last_accessed_at: float
    summary: str | None = None
    importance: float = 0.5
    confidence: float = 0.5
    access_count: int = 0
    sessions_accessed: int = 0
    """In how many different sessions it was accessed."""
    has_vectors: bool = False
    status: Status = "active"
    entities: tuple[tuple[str, str], ...] = ()
    undone: bool = False
    """Whether it had been promoted, and that was undone: it stays then, until it is changed again."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a memory is promoted, its score in [0, 1], and for a person why, or why not."""

    promote: bool
    score: float
    reason: str


def at_session_end(candidate: Candidate, rules: PromotionRules = DEFAULT_RULES) -> Verdict:
    """Whether a session's memory outlives its session, in the project."""
    return _to_project(candidate, rules, rules.session_end_score)


def at_once(candidate: Candidate, rules: PromotionRules = DEFAULT_RULES) -> Verdict:
    """Whether a running session's memory goes into the project now."""
    return _to_project(candidate, rules, rules.at_once_score)


def to_user(candidate: Candidate, rules: PromotionRules = DEFAULT_RULES, *, project_name: str = "") -> Verdict:
    """Whether a project's memory is of use in every project. `project_name` is what its own project is called."""
    score = _score(candidate)
    obstacle = _standing(candidate, "project")
    if obstacle is None and candidate.kind not in rules.user_kinds:
        obstacle = f"{_named(candidate.kind)} stays in its project"
    if obstacle is None and candidate.importance < rules.user_min_importance:
        obstacle = f"its importance {_shown(candidate.importance)} is below {rules.user_min_importance:g}"
    if obstacle is None and candidate.sessions_accessed < rules.user_min_sessions:
        obstacle = (
            f"it was accessed in {_counted(candidate.sessions_accessed, 'session')}, "
            f"and {rules.user_min_sessions} are needed"
        )
    if obstacle is None and (sign := is_project_specific(candidate.content, candidate.entities, project_name)):
        obstacle = f"it is of use in its project alone: {sign}"
    if obstacle is not None:
        return Verdict(False, score, obstacle)
    reached = _threshold(score, rules.user_score)
    if not reached.promote:
        return reached
    return Verdict(
        True, score, f"{reached.reason}, and it was accessed in {_counted(candidate.sessions_accessed, 'session')}"
    )


def promoted_at_session_end(
    candidates: Iterable[Candidate],
    now: float,
    rules: PromotionRules = DEFAULT_RULES,
    decay: Decay = DEFAULT_DECAY,
) -> list[tuple[Candidate, Verdict]]:
    """The memories of one session that go into the project: the strongest first, up to the limit."""
    return _strongest(candidates, lambda each: at_session_end(each, rules), rules.session_end_limit, now, decay)


def promoted_to_user(
    candidates: Iterable[Candidate],
    now: float,
    rules: PromotionRules = DEFAULT_RULES,
    decay: Decay = DEFAULT_DECAY,
    *,
    project_name: str = "",
) -> list[tuple[Candidate, Verdict]]:
    """The memories of one project that go to the user: the strongest first, up to the limit.

    The limit counts those that are promoted, where the seed's counts those that are considered: else twenty strong
    memories that can never leave their project would keep all others there as well.
    """
    return _strongest(
        candidates, lambda each: to_user(each, rules, project_name=project_name), rules.user_limit, now, decay
    )


def merged_importance(existing: float, arriving: float) -> float:
    """The importance of a memory that another one was merged into."""
    return max(existing, arriving)


def merged_confidence(
    existing: float, target: Literal["project", "user"], rules: PromotionRules = DEFAULT_RULES
) -> float:
    """The confidence, at most 1, of a memory in the target scope that another one was merged into: said twice."""
    gain = rules.user_confidence_gain if target == "user" else rules.project_confidence_gain
    return min(round(existing + gain, DIGITS), 1.0)


def _to_project(candidate: Candidate, rules: PromotionRules, least: float) -> Verdict:
    score = _score(candidate)
    obstacle = _standing(candidate, "session")
    if obstacle is None and candidate.kind in rules.session_kinds:
        obstacle = f"{_named(candidate.kind)} is for its session alone"
    return _threshold(score, least) if obstacle is None else Verdict(False, score, obstacle)


def _standing(candidate: Candidate, scope: Scope) -> str | None:
    """What about a memory's place or status keeps it from being promoted out of a scope.

    A session's memory that was summed up goes its own way all the same: the summary does not say all that it said.
    """
    if candidate.scope != scope:
        return f"its scope is {candidate.scope}, not {scope}"
    if candidate.undone:
        return "its promotion was undone"
    if candidate.status == "active" or (scope == "session" and candidate.status == "consolidated"):
        return None
    return f"it is {candidate.status}"


def _threshold(score: float, least: float) -> Verdict:
    if score >= least:
        return Verdict(True, score, f"its score {_shown(score)} reaches {least:g}")
    return Verdict(False, score, f"its score {_shown(score)} is below {least:g}")


def _score(candidate: Candidate) -> float:
    return promotion_score(
        candidate.importance, candidate.confidence, candidate.access_count, candidate.kind, candidate.has_vectors
    )


def _strongest(
    candidates: Iterable[Candidate], decide: Callable[[Candidate], Verdict], limit: int, now: float, decay: Decay
) -> list[tuple[Candidate, Verdict]]:
    promoted = [(each, verdict) for each in candidates if (verdict := decide(each)).promote]

    def rank(pair: tuple[Candidate, Verdict]) -> tuple[float, str]:
        each = pair[0]
        strength = memory_strength(
            each.importance, each.confidence, each.access_count, each.last_accessed_at, each.scope, now, decay
        )
        return -strength, each.id

    return sorted(promoted, key=rank)[:limit]


def _shown(value: float) -> str:
    """Three digits, cut off and not rounded: what is below a threshold looks it."""
    return f"{math.floor(value * 1000 + 1e-6) / 1000:g}"


def _named(kind: Kind) -> str:
    words = kind.replace("_", " ")
    return f"an {words}" if words[0] in "aeiou" else f"a {words}"


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
