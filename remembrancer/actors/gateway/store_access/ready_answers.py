"""Answers that were fetched before anybody asked: which of them still hold. Pure, but for being told the time.

The answers themselves are in the read cache. One holds for a short time (what is written past this gateway is not
heard of here), until it has been given, and only as long as nobody writes what may belong into it.
"""

from __future__ import annotations

from typing import Final

from remembrancer.protocol.reads import GatherContext
from remembrancer.protocol.session_life import EndSession, RecordEvents, StartSession
from remembrancer.protocol.writes import Operation, StoreMemory

HOLDS_S: Final = 15.0
"""A session's first question comes right after its start, or may as well be asked of the store."""


class Ticket:
    """A question that is being asked ahead. `spoilt`: something was written since, and the answer may lack it."""

    __slots__ = ("ready_at", "request", "spoilt")

    def __init__(self, request: GatherContext) -> None:
        self.request = request
        self.ready_at: float | None = None
        self.spoilt = False


class ReadyAnswers:
    """The questions whose answers are ready. Times are seconds on one clock."""

    def __init__(self) -> None:
        self._tickets: dict[GatherContext, Ticket] = {}

    def __len__(self) -> int:
        """How many questions are being asked ahead or have their answer ready."""
        return len(self._tickets)

    def is_ready(self, request: GatherContext) -> bool:
        """Whether there is an answer to this question."""
        ticket = self._tickets.get(request)
        return ticket is not None and ticket.ready_at is not None

    def begin(self, request: GatherContext, now: float) -> Ticket:
        """To be called before the question is sent. What is too old by now is let go."""
        for ticket in list(self._tickets.values()):
            if not _holds(ticket, now):
                self._drop(ticket)
        ticket = self._tickets[request] = Ticket(request)
        return ticket

    def finish(self, ticket: Ticket, now: float, *, is_whole: bool) -> None:
        """The question was answered, wholly or not (or in vain)."""
        if is_whole and not ticket.spoilt:
            ticket.ready_at = now
        else:
            self._drop(ticket)

    def take(self, request: GatherContext, now: float) -> bool:
        """Whether the kept answer to this question is as good as a new one. It is so once only: it has been shown
        then, which counts."""
        ticket = self._tickets.get(request)
        if ticket is None or ticket.ready_at is None:
            return False
        self._drop(ticket)
        return _holds(ticket, now)

    def heard_write(self, operation: Operation, _: bool) -> None:
        """Somebody has written something, or it waits in the queue."""
        for ticket in list(self._tickets.values()):
            if may_change(operation, ticket.request.project.id):
                ticket.spoilt = True
                self._drop(ticket)

    def _drop(self, ticket: Ticket) -> None:
        if self._tickets.get(ticket.request) is ticket:
            del self._tickets[ticket.request]


def may_change(operation: Operation, project_id: str) -> bool:
    """Whether an operation may change what is known in a project. False only where that is certain."""
    match operation.change:
        case StartSession() | EndSession() | RecordEvents():
            return False
        case StoreMemory(scope=scope) if scope != "user":
            return operation.project.id == project_id
        case _:  # what is changed may be the user's
            return True


def _holds(ticket: Ticket, now: float) -> bool:
    return ticket.ready_at is None or 0 <= now - ticket.ready_at <= HOLDS_S
