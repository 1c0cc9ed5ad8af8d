"""Explains in sentences why a memory is in its scope, and what would move it. Pure; the clock is passed in.

It uses the consolidator's own rules, so the explanation matches the behaviour.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from remembrancer.actors.store.records.memory_rows import archived_since
from remembrancer.memory.decay import DELETE_AFTER_S, archive_rule, falls_below_at
from remembrancer.memory.limits import moment
from remembrancer.memory.promotion import (
    AT_ONCE_SCORE,
    SESSION_END_LIMIT,
    SESSION_END_SCORE,
    SPEAKING_KINDS,
    USER_KINDS,
    USER_MIN_IMPORTANCE,
    USER_MIN_SESSIONS,
    USER_SCORE,
    named_kind,
    promotion_score,
    shown,
)
from remembrancer.memory.replacement import PROBABLE
from remembrancer.memory.text import counted
from remembrancer.protocol.kinds import SESSION_KINDS, STANDING, Kind, Scope, kind_of_type
from remembrancer.protocol.reads import Promotion, Proposal
from remembrancer.protocol.runs import ChainLink
from remembrancer.protocol.session_life import SessionEntry
from remembrancer.protocol.writes import MemoryLink, PortableMemory


@dataclass(frozen=True, slots=True)
class Circumstances:
    """The facts besides the memory itself that decide its place. `session` stored the memory (None: unknown)."""

    embedded: bool
    incoming: Sequence[MemoryLink] = ()
    promotions: Sequence[Promotion] = ()
    session: SessionEntry | None = None
    summed_up_in: Sequence[str] = ()
    proposal: Proposal | None = None


def explain(memory: PortableMemory, around: Circumstances, now: float) -> tuple[str, ...]:
    """Explain in sentences how the memory came to its scope, its state, and its next step."""
    return (
        *_origin(memory),
        *_standing(memory, around, now),
        *_outlook(memory, around, now),
    )


def _origin(memory: PortableMemory) -> Iterator[str]:
    steps = [step for step in memory.promotion_chain if step.action == "promoted"]
    first: Scope = steps[0].scope if steps else memory.scope
    sources = sum(link.relation == "derived_from" for link in memory.links)
    whose = {"session": "", "project": " for the project", "user": " for the user"}[first]
    if sources:
        yield f"Derived from {counted(sources, 'memory', 'memories')}{whose} on {_day(memory.created_at)}."
    else:
        yield f"Stored{whose} by session {memory.session_id} on {_day(memory.created_at)}."
    targets = [step.scope for step in steps[1:]] + [memory.scope]
    ends = iter(targets)
    for step in memory.promotion_chain:
        yield _promoted(step, next(ends)) if step.action == "promoted" else _merged(step)


def _promoted(step: ChainLink, target: Scope) -> str:
    score = "" if step.score is None else f" with the score {shown(step.score, 2)}"
    reason = f": {step.reason.rstrip('.')}" if step.reason else ""
    return f"Promoted from the {step.scope} to the {target} on {_day(step.promoted_at)}{score}{reason}."


def _merged(step: ChainLink) -> str:
    return f"{step.memory_id} of the {step.scope} says the same and was merged into it on {_day(step.promoted_at)}."


def _standing(memory: PortableMemory, around: Circumstances, now: float) -> Iterator[str]:
    if memory.forgotten_at is not None:
        reason = f" ({memory.forgotten_reason})" if memory.forgotten_reason else ""
        yield f"Forgotten on {_day(memory.forgotten_at)}{reason}: recall leaves it out, and it can be restored."
        return
    match memory.status:
        case "consolidated":
            summaries = ", ".join(around.summed_up_in)
            stands = f": {summaries} stands for it" if summaries else _copied(memory)
            yield f"Consolidated{stands}. It is still found, ranked a little lower."
        case "promoted":
            merged = dict.fromkeys(
                promotion.merged_into
                for promotion in around.promotions
                if promotion.memory_id == memory.id and promotion.merged_into
            )
            into = f" into {', '.join(merged)}" if merged else ""
            yield f"Merged{into}, which says the same in a broader scope. It is still found, ranked lower."
        case "archived":
            yield "Archived, since it is weak and nobody uses it. It is still found, ranked a little lower."
            if memory.scope == "project":
                since = archived_since(memory) or memory.updated_at
                until = _day(max(now, since + DELETE_AFTER_S))
                yield (
                    "Whenever it is found or looked at, it is active again. If nobody does that, it is forgotten "
                    f"around {until}; it can be restored then, too."
                )
            else:
                yield "Whenever it is found or looked at, it is active again."
        case "active":
            pass
    newer = [link.target for link in around.incoming if link.relation == "supersedes"]
    if newer:
        yield f"Superseded by {', '.join(newer)}."
    probable = [link for link in around.incoming if link.target not in newer and link.strength >= PROBABLE]
    doubting = _ids(probable, "contradicts")
    if doubting:
        yield f"Possibly superseded by {doubting}."
    if memory.valid_until is not None:
        ended = memory.valid_until <= now
        why = f": {memory.invalid_reason}" if memory.invalid_reason else ""
        yield f"{'No longer valid since' if ended else 'Valid until'} {_day(memory.valid_until)}{why}."


def _copied(memory: PortableMemory) -> str:
    """Name the memory that a copy was merged into, if this is a copy."""
    reasons = [entry.details.get("reason") for entry in memory.history if entry.change == "deduplicated"]
    return f": {reasons[-1]}" if reasons and reasons[-1] else ""


def _outlook(memory: PortableMemory, around: Circumstances, now: float) -> Iterator[str]:
    """Yield the sentences on an active memory's next step."""
    if memory.forgotten_at is not None or memory.status != "active":
        return
    kind = memory.kind or kind_of_type(memory.type)
    score = promotion_score(memory.importance, memory.confidence, len(memory.accessed_in), kind, around.embedded)
    if memory.scope == "session" and _undone(memory) == "promoted":
        yield "Not promoted: its promotion was undone, and it is left alone until something else changes it."
        return
    if memory.scope == "session":
        yield _to_project(kind, score, around.session)
        return
    if memory.scope == "project":
        yield _to_user(memory, kind, score, around.proposal)
    yield _archiving(memory, now)


def _to_project(kind: Kind, score: float, session: SessionEntry | None) -> str:
    if kind in SESSION_KINDS:
        return f"Not promoted: {named_kind(kind)} is for its session alone."
    if score < SESSION_END_SCORE:
        return f"Not promoted to the project: its score {shown(score, 2)} is below {SESSION_END_SCORE:g}."
    if session is not None and session.status != "active":
        reached = f"Its score {shown(score, 2)} reaches {SESSION_END_SCORE:g}"
        if session.memories_promoted >= SESSION_END_LIMIT:
            return f"{reached}, but its session's end promotes the {SESSION_END_LIMIT} strongest memories alone."
        return f"{reached} now; when its session's end was dealt with, it did not."
    return (
        f"Promoted to the project at its session's end: its score {shown(score, 2)} reaches "
        f"{SESSION_END_SCORE:g} (at once from {AT_ONCE_SCORE:g})."
    )


def _to_user(memory: PortableMemory, kind: Kind, score: float, proposal: Proposal | None) -> str:
    if proposal is not None and proposal.refused_at is not None:
        if any(entry.change == "taken back" for entry in memory.history):
            return f"Not proposed to the user any more: it was taken back from there on {_day(proposal.refused_at)}."
        return f"Not proposed to the user any more: that was refused on {_day(proposal.refused_at)}."
    if proposal is not None:
        reason = proposal.reason.rstrip(".")
        return f"Proposed to the user on {_day(proposal.proposed_at)}: {reason}. promote_memory accepts or refuses it."
    sessions = len(memory.accessed_in)
    if kind not in USER_KINDS:
        return f"Not proposed to the user: {named_kind(kind)} stays in its project."
    if kind in SPEAKING_KINDS:
        return "Proposed to the user at the end of a session, unless it names something of this project."
    if memory.importance < USER_MIN_IMPORTANCE:
        least = f"{USER_MIN_IMPORTANCE:g}"
        return f"Not proposed to the user: its importance {shown(memory.importance, 2)} is below {least}."
    if sessions < USER_MIN_SESSIONS:
        used = counted(sessions, "session", "sessions")
        return f"Not proposed to the user: it was used in {used}, and {USER_MIN_SESSIONS} are needed."
    if score < USER_SCORE:
        return f"Not proposed to the user: its score {shown(score, 2)} is below {USER_SCORE:g}."
    return (
        "Proposed to the user at the end of a session, unless it names something of this project: "
        f"its score {shown(score, 2)} reaches {USER_SCORE:g}."
    )


def _archiving(memory: PortableMemory, now: float) -> str:
    if _undone(memory) in ("archived", "forgotten"):
        return "Not archived: that was undone, and it is left alone until something else changes it."
    if memory.is_open:
        return "Not archived: it is not done."
    if memory.kind in STANDING:
        return f"Not archived: {named_kind(memory.kind)} does not fade."
    rule = archive_rule(memory.scope)
    if memory.access_count >= rule.accessed_below:
        return f"Not archived: it was accessed {counted(memory.access_count, 'time', 'times')}."
    at = falls_below_at(
        rule.strength_below,
        memory.importance,
        memory.confidence,
        memory.access_count,
        memory.created_at if memory.last_accessed_at is None else memory.last_accessed_at,
        memory.scope,
    )
    if at is None:
        return "Not archived: its strength does not sink so far."
    around = max(now, at, memory.created_at + rule.older_than_s)
    below = f"its strength falls below {rule.strength_below:g}"
    return f"Archived around {_day(around)}, when {below}, unless it is used before."


def _undone(memory: PortableMemory) -> str | None:
    """Return the change that was undone, if that was the memory's last change."""
    if not memory.history or memory.history[-1].change != "undone":
        return None
    told = memory.history[-1].details.get("undid")
    before = memory.history[-2].change if len(memory.history) > 1 else None
    return told if isinstance(told, str) else before


def _ids(links: Sequence[MemoryLink], relation: str) -> str:
    return ", ".join(link.target for link in links if link.relation == relation)


def _day(seconds: float) -> str:
    return moment(seconds).date().isoformat()
