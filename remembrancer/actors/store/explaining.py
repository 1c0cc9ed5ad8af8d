"""Explains in sentences why a memory is in its scope and in its state. Pure; the clock is passed in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress

from remembrancer.actors.store.records.memory_rows import archived_since
from remembrancer.actors.store.records.types import Surroundings
from remembrancer.memory.decay import DELETE_AFTER_S
from remembrancer.memory.limits import moment
from remembrancer.memory.promotion import (
    AT_ONCE_SCORE,
    SESSION_END_SCORE,
    named_kind,
    promotion_score,
    shown,
)
from remembrancer.memory.replacement import PROBABLE
from remembrancer.memory.text import counted
from remembrancer.protocol.kinds import SESSION_KINDS, Scope, kind_of_type
from remembrancer.protocol.reads import Proposal
from remembrancer.protocol.runs import ChainLink
from remembrancer.protocol.writes import MemoryLink, PortableMemory


def explain(memory: PortableMemory, around: Surroundings, now: float, *, is_embedded: bool) -> tuple[str, ...]:
    """Explain in sentences how the memory came to its scope and its state, and what keeps it there."""
    return (*_origin(memory), *_standing(memory, around, now), *_outlook(memory, around.proposal, is_embedded))


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


def _standing(memory: PortableMemory, around: Surroundings, now: float) -> Iterator[str]:
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


def _outlook(memory: PortableMemory, proposal: Proposal | None, is_embedded: bool) -> Iterator[str]:
    """Yield the sentence on what keeps an active memory from a broader scope."""
    if memory.forgotten_at is not None or memory.status != "active":
        return
    if memory.scope == "session":
        yield _to_project(memory, is_embedded)
    elif memory.scope == "project" and proposal is not None:
        yield _to_user(memory, proposal)


def _to_project(memory: PortableMemory, is_embedded: bool) -> str:
    kind = memory.kind or kind_of_type(memory.type)
    if kind in SESSION_KINDS:
        return f"Not promoted: {named_kind(kind)} is for its session alone."
    score = promotion_score(memory.importance, memory.confidence, len(memory.accessed_in), kind, is_embedded)
    return (
        f"Its score is {shown(score, 2)}: from {SESSION_END_SCORE:g} on it is promoted to the project at its session's "
        f"end, from {AT_ONCE_SCORE:g} on at once."
    )


def _to_user(memory: PortableMemory, proposal: Proposal) -> str:
    if proposal.refused_at is None:
        reason = proposal.reason.rstrip(".")
        return f"Proposed to the user on {_day(proposal.proposed_at)}: {reason}. promote_memory accepts or refuses it."
    if any(entry.change == "taken back" for entry in memory.history):
        return f"Not proposed to the user any more: it was taken back from there on {_day(proposal.refused_at)}."
    return f"Not proposed to the user any more: that was refused on {_day(proposal.refused_at)}."


def _ids(links: Sequence[MemoryLink], relation: str) -> str:
    return ", ".join(link.target for link in links if link.relation == relation)


def _day(seconds: float) -> str:
    at = moment(seconds)
    with suppress(OverflowError):  # at the ends of the calendar
        at = at.astimezone()
    return at.date().isoformat()
