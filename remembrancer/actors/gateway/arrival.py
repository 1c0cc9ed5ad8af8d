"""What travels beside a request from its connection to its handler."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mcp.server.context import ServerRequestContext

from remembrancer.protocol.tracing import NO_TRACE, Trace

if TYPE_CHECKING:
    from remembrancer.actors.gateway.session import Session


@dataclass(frozen=True, slots=True)
class Arrival:
    """Whose a request is, and when the client sent it (seconds since the epoch). `trace`: where its time goes."""

    session: Session
    received_at: float
    trace: Trace = NO_TRACE


def arrival_of(ctx: ServerRequestContext[Any, Any]) -> Arrival:
    """The arrival of the request that a handler answers: every one has it as its transport's context."""
    assert isinstance(ctx.request, Arrival)
    return ctx.request
