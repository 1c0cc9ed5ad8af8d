"""Explains in sentences why a memory is in its scope. Pure."""

from collections.abc import Iterator
from contextlib import suppress

from remembrancer.memory.limits import moment
from remembrancer.memory.promotion import shown
from remembrancer.memory.text import count
from remembrancer.protocol.kinds import Scope
from remembrancer.protocol.reads import Proposal
from remembrancer.protocol.runs import ChainLink
from remembrancer.protocol.writes import PortableMemory


def explain(memory: PortableMemory, proposal: Proposal | None) -> tuple[str, ...]:
    """Explain in sentences how the memory came to its scope, and its proposal to the user."""
    return (*_origin(memory), *_outlook(memory, proposal))


def _origin(memory: PortableMemory) -> Iterator[str]:
    steps = [step for step in memory.promotion_chain if step.action == "promoted"]
    first: Scope = steps[0].scope if steps else memory.scope
    sources = sum(link.relation == "derived_from" for link in memory.links)
    whose = {"session": "", "project": " for the project", "user": " for the user"}[first]
    if sources:
        yield f"Derived from {count(sources, 'memory')}{whose} on {_day(memory.created_at)}."
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


def _outlook(memory: PortableMemory, proposal: Proposal | None) -> Iterator[str]:
    if memory.forgotten_at is not None:
        reason = f" ({memory.forgotten_reason})" if memory.forgotten_reason else ""
        yield f"Forgotten on {_day(memory.forgotten_at)}{reason}: recall leaves it out, and it can be restored."
    elif memory.status == "active" and memory.scope == "project" and proposal is not None:
        yield _to_user(memory, proposal)


def _to_user(memory: PortableMemory, proposal: Proposal) -> str:
    if proposal.refused_at is None:
        reason = proposal.reason.rstrip(".")
        return f"Proposed to the user on {_day(proposal.proposed_at)}: {reason}. promote_memory accepts or refuses it."
    if any(entry.change == "taken back" for entry in memory.history):
        return f"Not proposed to the user any more: it was taken back from there on {_day(proposal.refused_at)}."
    return f"Not proposed to the user any more: that was refused on {_day(proposal.refused_at)}."


def _day(seconds: float) -> str:
    at = moment(seconds)
    with suppress(OverflowError):  # at the ends of the calendar
        at = at.astimezone()
    return at.date().isoformat()
