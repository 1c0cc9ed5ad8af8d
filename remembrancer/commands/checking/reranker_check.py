"""What the doctor makes of the reranker: whether there is one, whether it can work, and what it costs. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from remembrancer.commands.checking.checks import Check
from remembrancer.protocol.control import RerankerFigures, RuntimeStatus

ORDER_STAYS: Final = "until it is mended, recalls keep the order of the search alone"


@dataclass(frozen=True, slots=True)
class RerankerFacts:
    """What the settings ask for, and what the running system says (None: nothing runs, or it has none).

    `error` says why the model cannot be loaded, so far as that is seen without loading it.
    """

    kind: str
    model: str
    sampling: bool
    error: str | None = None
    figures: RerankerFigures | None = None


def check_reranker(facts: RerankerFacts) -> Check:
    """Whether the reranker that is asked for can work, with its cost."""
    if facts.kind == "off":
        return Check("reranker", "ok", "none is asked for")
    if facts.kind == "client" and not facts.sampling:
        advice = "set REMEMBRANCER_SAMPLING=1 as well, or REMEMBRANCER_RERANKER=off"
        return Check("reranker", "problem", "the client's model may not be asked: sampling is off", advice)
    error = facts.error or (facts.figures.error if facts.figures else None)
    if error is not None:
        return Check("reranker", "problem", error, ORDER_STAYS)
    if facts.figures is None:
        what = "the client's own model" if facts.kind == "client" else f"the cross-encoder in {facts.model}"
        return Check("reranker", "ok", f"{what} is asked for; its cost is seen while a runtime is up")
    return Check("reranker", "ok", cost_of(facts.figures))


def cost_of(figures: RerankerFigures) -> str:
    """A line for a person: what reranks, how it is, and what it costs a recall."""
    what = figures.model or ("the client's own model" if figures.kind == "client" else "cross-encoder")
    if figures.state != "ready":
        return f"{what} is {figures.state}{f': {figures.error}' if figures.error else ''}"
    if figures.last_ms is None or figures.median_ms is None:
        cost = "no recall was reranked yet"
    else:
        cost = f"the last recall waited {figures.last_ms:.0f} ms for it, the median is {figures.median_ms:.0f} ms"
    failed = f"; {figures.failed} of {figures.asked} kept their order" if figures.failed else ""
    return f"{what} reads the first {figures.candidates} candidates of each recall: {cost}{failed}"


def reranker_figures(status: RuntimeStatus) -> RerankerFigures | None:
    """The figures of the store's reranker, or of the gateway's; None where there is neither."""
    of_store = status.store.reranker if status.store else None
    return of_store or (status.gateway.reranker if status.gateway else None)
