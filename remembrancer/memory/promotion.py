"""Decides which memories to promote to a broader scope. The consolidator acts on the decisions, and the store explains
them. Explicit requests for promotion are always carried out. Pure."""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Literal

from remembrancer.memory.decay import strength_of
from remembrancer.memory.limits import moment
from remembrancer.memory.project_specifics import is_project_specific
from remembrancer.memory.stop_words import stop_words_of
from remembrancer.memory.text import count
from remembrancer.protocol.consolidation import Material
from remembrancer.protocol.kinds import SESSION_KINDS, Kind, Scope
from remembrancer.protocol.reads import Proposal, RecalledMemory
from remembrancer.protocol.writes import PortableMemory

IMPORTANCE_SHARE: Final = 0.4
CONFIDENCE_SHARE: Final = 0.3
MOST_FOR_USE: Final = 0.2
FOR_VECTORS: Final = 0.05
FOR_KIND: Final[dict[Kind, float]] = {
    **dict.fromkeys(("pattern", "convention", "procedure"), 0.1),
    **dict.fromkeys(("decision", "error_fix", "architecture"), 0.08),
    **dict.fromkeys(("preference", "fact"), 0.06),
}
DIGITS: Final = 9
"""Sums are rounded to this many digits, so that 0.4 + 0.3 + 0.1 + 0.05 reaches a threshold of 0.85."""
MAX_BONUS: Final = max(FOR_KIND.values()) + FOR_VECTORS
"""The most that the kind and the vectors can add to a memory's score."""
SPEAKING_KINDS: Final[tuple[Kind, ...]] = ("preference",)
"""The kinds that are about the user."""
_ADVERB: Final = r"(?:(?!(?-i:Emily|Lily|[A-Z]h?[aeio]lly)\b)\w+ly|also|always|never|still|now|often|please)"
_WISH: Final = re.compile(
    rf"""(?:\b(?!(?:{_ADVERB}|and|but|or)\ )(?P<subject>\w+)(?:['’]d)?
    (?:,[^,.;:]{{1,60}},|\ \([^()]{{1,60}}\)|[.*”"]+(?=\ (?-i:[a-z])))?\ )?
    \b(?:(?:{_ADVERB}|do(?:n['’]t|\ not)?|(?P<third>does|would|can)(?:n?['’]t|\ ?not)?)\ ){{0,3}}
    (?P<verb>(?:prefer|like|want|love|dislike|hate)s?|(?:adore|detest|enjoy|insist)s|(?(third)(?:rather|stand)|(?!)))\b
    | \b(?:(?P<owner>\w+)['’]s|his|her|their)\ favou?rite\b""",
    re.IGNORECASE | re.VERBOSE,
)
_USER: Final = re.compile(r"\busers?\b", re.IGNORECASE)
_OWN: Final = frozenset(("i", "we", "you", "everyone", "everybody", "someone", "nobody", "style", "guide", "editor"))
_OF_ANOTHER: Final = re.compile(r"\W*(?:our|the|an?|his|her|their|contact)\b", re.IGNORECASE)
"""The beginning of a text that may introduce somebody else as the subject of a wish."""
USED_AMONG: Final = 3
USED_ABOVE: Final = 0.5
"""A memory counts as used if it is among the first few in an answer and its probability is above this."""
SESSION_END_SCORE: Final = 0.6
AT_ONCE_SCORE: Final = 0.85
USER_SCORE: Final = 0.7
USER_MIN_SESSIONS: Final = 3
USER_MIN_IMPORTANCE: Final = 0.7
USER_KINDS: Final[frozenset[Kind]] = frozenset({"pattern", "convention", "preference", "procedure", "fact"})
SESSION_END_LIMIT: Final = 50
USER_LIMIT: Final = 20
MERGE_COSINE: Final = 0.85
PROJECT_CONFIDENCE_GAIN: Final = 0.05
USER_CONFIDENCE_GAIN: Final = 0.1


@dataclass(frozen=True, slots=True)
class Verdict:
    promote: bool
    score: float
    reason: str


def promotion_score(memory: Material) -> float:
    base = memory.importance * IMPORTANCE_SHARE + memory.confidence * CONFIDENCE_SHARE
    for_use = min(math.log10(memory.sessions_used + 1) / 2.0, MOST_FOR_USE)
    for_vectors = FOR_VECTORS if memory.vector else 0.0
    return min(round(base + for_use + FOR_KIND.get(memory.kind, 0.0) + for_vectors, DIGITS), 1.0)


def to_project(memory: Material, *, least: float) -> Verdict:
    """`least` is `AT_ONCE_SCORE` while the session is running, and `SESSION_END_SCORE` at its end."""
    score = promotion_score(memory)
    obstacle = _standing(memory, "session")
    if obstacle is None and memory.kind in SESSION_KINDS:
        obstacle = f"{named_kind(memory.kind)} belongs only to its session"
    return _threshold(score, least) if obstacle is None else Verdict(False, score, obstacle)


def to_user(memory: Material, *, project_name: str = "") -> Verdict:
    """The user's own preferences are proposed at once, and other memories after use in several sessions."""
    score = promotion_score(memory)
    speaks = speaks_of_user(memory)
    obstacle = _standing(memory, "project")
    if obstacle is None and (memory.is_replaced or memory.valid_until is not None):
        obstacle = "it is no longer valid, at least probably"
    if obstacle is None and (person := wishing_person(memory.content)):
        obstacle = f"it is about {person}, not about the user"
    if obstacle is None and memory.kind not in USER_KINDS:
        obstacle = f"{named_kind(memory.kind)} stays in its project"
    if obstacle is None and not speaks and memory.importance < USER_MIN_IMPORTANCE:
        obstacle = f"its importance {truncated(memory.importance)} is below {USER_MIN_IMPORTANCE:g}"
    if obstacle is None and not speaks and memory.sessions_used < USER_MIN_SESSIONS:
        used = count(memory.sessions_used, "session")
        obstacle = f"it was used in {used}, and {USER_MIN_SESSIONS} are needed"
    if obstacle is None:
        entities = [(entity.name, entity.type) for entity in memory.entities]
        if sign := is_project_specific(memory.content, entities, project_name):
            obstacle = f"it is useful only in its project: {sign}"
    if obstacle is not None:
        return Verdict(False, score, obstacle)
    if speaks:
        return Verdict(True, score, "it is a preference that is not only about this project")
    reached = _threshold(score, USER_SCORE)
    if not reached.promote:
        return reached
    reason = f"{reached.reason}, and it was used in {count(memory.sessions_used, 'session')}"
    return Verdict(True, score, reason)


def wishing_person(content: str) -> str:
    wish = _WISH.search(content)
    subject = "" if wish is None else wish["subject"] or wish["owner"] or ""
    is_name = subject[:1].isupper() and not subject.isupper() and subject.lower() not in stop_words_of(content)
    return subject if is_name and is_others_wish(content) else ""


def is_others_wish(content: str) -> bool:
    """True if the subject of the first wish is neither the user nor the team, whose preferences the user shares."""
    wish = _WISH.search(content)
    if wish is None or _USER.search(content, 0, wish.end()):
        return False
    subject, verb = (wish["subject"] or "").lower(), (wish["verb"] or "").lower()
    if subject in _OWN or (subject == "team" and verb != "wants"):
        return False
    if verb and not subject:
        return wish.start() > 0 and _OF_ANOTHER.match(content) is not None
    if verb.endswith("s") or not verb or wish["third"] or subject in ("they", "who"):
        return True
    return wish.start() == 0 and verb != "like"  # but not "In tests prefer …" or "Tools like …"


def speaks_of_user(memory: Material) -> bool:
    """True for a preference that is not somebody else's. It is promoted automatically once two projects have it."""
    return memory.kind in SPEAKING_KINDS and not is_others_wish(memory.content)


def used_in(memories: Sequence[RecalledMemory]) -> list[str]:
    """The ids of the memories that an answer counts as used. Being shown is not enough."""
    first = [memory for memory in memories if memory.origin is None][:USED_AMONG]
    return [each.id for each in first if each.scores.relevance > USED_ABOVE]


def strongest(
    memories: Iterable[Material], decide: Callable[[Material], Verdict], now: float, limit: int | None = None
) -> list[tuple[Material, Verdict]]:
    promoted = [(memory, verdict) for memory in memories if (verdict := decide(memory)).promote]
    return sorted(promoted, key=lambda pair: (-strength_of(pair[0], now), pair[0].id))[:limit]


def merged_confidence(existing: float, target: Literal["project", "user"]) -> float:
    gain = USER_CONFIDENCE_GAIN if target == "user" else PROJECT_CONFIDENCE_GAIN
    return min(round(existing + gain, DIGITS), 1.0)


def named_kind(kind: Kind) -> str:
    words = kind.replace("_", " ")
    return f"an {words}" if words[0] in "aeiou" else f"a {words}"


def truncated(value: float) -> str:
    """Truncate to three digits, so that a value just below a threshold does not look equal to it."""
    return f"{math.floor(value * 1000 + 1e-6) / 1000:g}"


def _standing(memory: Material, scope: Scope) -> str | None:
    """A summarized session memory is still promoted, because the summary does not contain all of it."""
    if memory.scope != scope:
        return f"its scope is {memory.scope}, not {scope}"
    if memory.undone == "promoted":
        return "its promotion was undone"
    if memory.pinned:
        return "it is pinned"
    if memory.status == "active" or (scope == "session" and memory.status == "consolidated"):
        return None
    return f"it is {memory.status}"


def _threshold(score: float, least: float) -> Verdict:
    is_enough = score >= least
    return Verdict(is_enough, score, f"its score {truncated(score)} {'reaches' if is_enough else 'is below'} {least:g}")


def explain(memory: PortableMemory, proposal: Proposal | None) -> Iterator[str]:
    """Yield sentences about a memory's origin, its promotions and its state."""
    steps = [step for step in memory.promotion_chain if step.action == "promoted"]
    first: Scope = steps[0].scope if steps else memory.scope
    sources = sum(link.relation == "derived_from" for link in memory.links)
    whose = {"session": "", "project": " for the project", "user": " for the user"}[first]
    if sources:
        yield f"Derived from {count(sources, 'memory')}{whose} on {_day(memory.created_at)}."
    else:
        yield f"Stored{whose} by session {memory.session_id} on {_day(memory.created_at)}."
    targets = iter([*(step.scope for step in steps[1:]), memory.scope])
    for step in memory.promotion_chain:
        at, reason = _day(step.promoted_at), f": {step.reason.rstrip('.')}" if step.reason else ""
        if step.action == "promoted":
            yield f"Promoted from the {step.scope} to the {next(targets)} on {at}{reason}."
        else:
            yield f"{step.memory_id} of the {step.scope} says the same and was merged into it on {at}."
    if memory.forgotten_at is not None:
        reason = f" ({memory.forgotten_reason})" if memory.forgotten_reason else ""
        yield f"Forgotten on {_day(memory.forgotten_at)}{reason}: recall leaves it out, and it can be restored."
    elif memory.status == "active" and memory.scope == "project" and proposal is not None:
        on, reason = _day(proposal.proposed_at), proposal.reason.rstrip(".")
        yield (
            f"Proposed to the user on {on}: {reason}. promote_memory accepts or refuses it."
            if proposal.refused_at is None
            else f"Kept in the project on {_day(proposal.refused_at)}: it is not proposed for all projects."
        )


def _day(seconds: float) -> str:
    at = moment(seconds)
    with suppress(OverflowError):  # at either end of the calendar
        at = at.astimezone()
    return at.date().isoformat()
