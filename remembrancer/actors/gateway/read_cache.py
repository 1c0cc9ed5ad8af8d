"""What a read without the store can be answered from: recent answers, and the writes that are still queued. Pure.

Answers are kept for one project and one session together, and are looked at for those alone: nobody sees
through the cache what the store would not have shown. Changes that came later, applied or queued, are laid over what is
kept: a forgotten memory does not come back, and an updated one is shown as it is now.
"""

from __future__ import annotations

import math
import time
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import msgspec

from remembrancer.actors.gateway.overlay import Followed, Overlay, Viewer, as_recalled, viewer_in
from remembrancer.memory.ranking import has_ended
from remembrancer.memory.text import word_match
from remembrancer.protocol.reads import (
    ContextGathered,
    DescribeSession,
    DescribeStore,
    GatherContext,
    GetMemory,
    GraphFound,
    MemoryShown,
    Recall,
    Recalled,
    RecalledMemory,
    Scores,
    SearchGraph,
    Suggest,
)
from remembrancer.protocol.session_life import EndSession, RecordEvents, StartSession
from remembrancer.protocol.wire import GatewayRequest, ToGateway, encoder
from remembrancer.protocol.writes import ImportMemory, Operation, PortableMemory, StoreMemory, WriteNote, memory_id_of

MAX_ANSWERS: Final = 512
MAX_ANSWER_BYTES: Final = 8_000_000
MAX_CHANGES: Final = 1000
MAX_CHANGE_BYTES: Final = 2_000_000


class KeptAnswer(msgspec.Struct, frozen=True):
    """An answer, how large it is encoded, and when it came: by the number of the next change, and by the clock."""

    reply: ToGateway
    size_bytes: int
    since: int
    at: float


class LastAnswers:
    """The answers last given, the oldest going first when there is no more room."""

    def __init__(self) -> None:
        self.kept: OrderedDict[GatewayRequest, KeptAnswer] = OrderedDict()
        self._bytes = 0

    def put(self, request: GatewayRequest, reply: ToGateway, since: int, at: float) -> None:
        """Keep an answer of the store in place of an earlier one to the same question."""
        self._drop(request)
        kept = KeptAnswer(reply, len(encoder.encode(reply)), since, at)
        self.kept[request] = kept
        self._bytes += kept.size_bytes
        while self.kept and (len(self.kept) > MAX_ANSWERS or self._bytes > MAX_ANSWER_BYTES):
            self._drop(next(iter(self.kept)))

    def newest_first(self) -> Iterator[tuple[GatewayRequest, KeptAnswer]]:
        """All of them with their questions."""
        return reversed(self.kept.items())

    def _drop(self, request: GatewayRequest) -> None:
        kept = self.kept.pop(request, None)
        if kept is not None:
            self._bytes -= kept.size_bytes


class _Log:
    """Operations with their numbers, the oldest going first when there is no more room."""

    def __init__(self) -> None:
        self.kept: deque[tuple[int, Operation, int]] = deque()
        self.known_since = 0
        """Every operation with this number, or a higher one, is here."""
        self._bytes = 0

    def add(self, number: int, operation: Operation) -> None:
        size = len(encoder.encode(operation))
        self.kept.append((number, operation, size))
        self._bytes += size
        while len(self.kept) > MAX_CHANGES or self._bytes > MAX_CHANGE_BYTES:
            gone, _, gone_bytes = self.kept.popleft()
            self._bytes -= gone_bytes
            self.known_since = gone + 1


class RecentChanges:
    """The changes that the store applied last, each with a number. What is older than the oldest is not known any more.

    New memories have a log of their own: they change no answer that was given before, so many of them must not cost
    the changes their room.
    """

    def __init__(self) -> None:
        self._changes = _Log()
        self._made = _Log()
        self.next_number = 0

    def note(self, operation: Operation) -> None:
        """The store has applied this now, after all that were noted before."""
        log = self._made if isinstance(operation.change, StoreMemory | ImportMemory) else self._changes
        log.add(self.next_number, operation)
        self.next_number += 1

    def erase(self, memory_id: str) -> None:
        """Forget what was done to a memory."""
        for log in (self._changes, self._made):
            log.kept = deque(each for each in log.kept if memory_id_of(each[1].change) != memory_id)

    def knows_all_since(self, number: int) -> bool:
        """Whether every change of a memory that was there from that number on is still here."""
        return number >= self._changes.known_since

    def numbered(self) -> Iterator[tuple[int, Operation]]:
        """The new memories of which is known what they are now, then the changes: each oldest first."""
        for number, operation, _ in (*self._made.kept, *self._changes.kept):
            if self.knows_all_since(number):
                yield number, operation


_KEPT: Final = (Recall, DescribeStore, DescribeSession, GatherContext, GetMemory, SearchGraph, Suggest)
"""The questions whose answers are kept."""


class ReadCache:
    """The answers last given, and what has changed since."""

    def __init__(self) -> None:
        self._answers = LastAnswers()
        self.changes = RecentChanges()
        """What the store has applied. Not a replay, whose turn was earlier."""

    def erase(self, memory_id: str) -> None:
        """Forget a memory that was deleted for good, and every answer: it may be in any of them."""
        self._answers = LastAnswers()
        self.changes.erase(memory_id)

    def put(self, request: GatewayRequest, answer: ToGateway, mark: int, at: float) -> None:
        """Keep an answer of the store that came at `at`, to a question that was sent before the change `mark`."""
        if isinstance(request, _KEPT):
            self._answers.put(request, answer, mark, at)

    def last(self, request: GatewayRequest, queued: Iterable[Operation]) -> tuple[ToGateway, float] | None:
        """The last answer to this very question as it is after all that changed since, and when it came."""
        kept = self._kept(request)
        viewer = viewer_of(request)
        if kept is None or viewer is None:
            return None
        return _overlaid(request, kept, self._overlay(queued), viewer), kept.at

    def answer(self, request: Recall, queued: Iterable[Operation]) -> list[RecalledMemory]:
        """The best that can be said without the store: the answer to the very same question if there was one, else
        what this viewer was shown or stored before and matches; and before these the later writes that match."""
        overlay = self._overlay(queued)
        viewer = viewer_in(request.project, request.session_id)
        kept = self._kept(request)
        exact = None if kept is None else _overlaid(request, kept, overlay, viewer)
        if kept is not None and isinstance(exact, Recalled):
            fresh = overlay.made(viewer, kept.since)
            had = {memory.id for memory in exact.memories}
            shown = list(exact.memories)
            fresh = [memory for memory in fresh if memory.id not in had]
        else:
            fresh = overlay.made(viewer, math.inf)
            earlier = (as_recalled(memory) for memory in overlay.made(viewer))
            shown = _matching(_once((*self._shown(viewer, overlay), *earlier)), request)
        return _once((*_matching(map(as_recalled, fresh), request), *shown))[: request.limit]

    def known(self, viewer: Viewer, queued: Iterable[Operation]) -> list[RecalledMemory]:
        """Everything that is known here and `viewer` may see, without the forgotten: recent and queued writes, the last
        first, then what was shown last. Their scores are as they were then."""
        overlay = self._overlay(queued)
        shown = {memory.id: memory for memory in self._shown(viewer, overlay)}
        made = (shown.get(memory.id) or as_recalled(memory) for memory in reversed(overlay.made(viewer)))
        return [memory for memory in _once((*made, *shown.values())) if not memory.forgotten]

    def made(self, viewer: Viewer, queued: Iterable[Operation]) -> list[PortableMemory]:
        """The memories that recent and queued writes made, whole, without the forgotten, oldest first."""
        return [memory for memory in self._overlay(queued).made(viewer) if memory.forgotten_at is None]

    def find(
        self, viewer: Viewer, memory_id: str, queued: Iterable[Operation]
    ) -> PortableMemory | RecalledMemory | None:
        """One memory as it is now so far as it is known here, forgotten or not: whole if `viewer` was shown it whole or
        it was written lately, else as an answer had it."""
        found = self.follow(viewer, memory_id, queued)
        return found.memory if found is not None and found.unknown_from is None else None

    def follow(
        self, viewer: Viewer, memory_id: str, queued: Iterable[Operation]
    ) -> Followed[PortableMemory] | Followed[RecalledMemory] | None:
        """As `find`, but a memory of which only is known what it was before one of its changes is shown as it was."""
        overlay = self._overlay(queued)
        part: Followed[RecalledMemory] | None = None
        for kept in self._for(viewer):
            if isinstance(kept.reply, MemoryShown) and kept.reply.memory.id == memory_id:
                return overlay.follow(kept.reply.memory, viewer, kept.since)
            for memory in memories_of(kept.reply):
                if part is None and memory.id == memory_id:
                    part = overlay.follow(memory, viewer, kept.since)
        return overlay.follow_made(memory_id, viewer) or part

    def _overlay(self, queued: Iterable[Operation]) -> Overlay:
        return Overlay(self.changes.numbered(), queued)

    def _kept(self, request: GatewayRequest) -> KeptAnswer | None:
        kept = self._answers.kept.get(request)
        return kept if kept is not None and self.changes.knows_all_since(kept.since) else None

    def _for(self, viewer: Viewer) -> Iterator[KeptAnswer]:
        for request, kept in self._answers.newest_first():
            if viewer_of(request) == viewer and self.changes.knows_all_since(kept.since):
                yield kept

    def _shown(self, viewer: Viewer, overlay: Overlay) -> Iterator[RecalledMemory]:
        """What answers had, as it is now: each memory once, as it was shown last."""
        seen: set[str] = set()
        for kept in self._for(viewer):
            for memory in memories_of(kept.reply):
                if memory.id not in seen:
                    seen.add(memory.id)
                    changed = overlay.on(memory, viewer, kept.since)
                    if changed is not None:
                        yield changed


def viewer_of(request: GatewayRequest) -> Viewer | None:
    """For whom a question is asked; None when its answer is not to be kept."""
    return viewer_in(request.project, request.session_id) if isinstance(request, _KEPT) else None


def memories_of(reply: ToGateway) -> tuple[RecalledMemory, ...]:
    """The memories that an answer shows."""
    match reply:
        case Recalled(memories=memories) | GraphFound(memories=memories):
            return memories
        case ContextGathered(sections=sections):
            return tuple(memory for section in sections for memory in section.memories)
        case MemoryShown(memory=memory):
            return (as_recalled(memory),)
        case _:
            return ()


def _overlaid(request: GatewayRequest, kept: KeptAnswer, overlay: Overlay, viewer: Viewer) -> ToGateway:
    """A kept answer after the changes since; a memory shown whole as far as these can be followed."""
    reply = kept.reply

    def present(memories: tuple[RecalledMemory, ...]) -> tuple[RecalledMemory, ...]:
        changed = ((memory, overlay.on(memory, viewer, kept.since)) for memory in memories)
        return tuple(new for old, new in changed if new is not None and (new is old or _still_fits(old, new, request)))

    match reply:
        case Recalled(memories=memories):
            return msgspec.structs.replace(reply, memories=present(memories))
        case GraphFound(memories=memories):
            return msgspec.structs.replace(reply, memories=present(memories))
        case ContextGathered(sections=sections):
            kept_sections = [
                msgspec.structs.replace(section, memories=present(section.memories)) for section in sections
            ]
            return msgspec.structs.replace(reply, sections=tuple(kept_sections))
        case MemoryShown(memory=memory):
            whole = overlay.follow(memory, viewer, kept.since).memory
            return msgspec.structs.replace(reply, memory=whole)
        case _:
            return reply


def _once(memories: Iterable[RecalledMemory]) -> list[RecalledMemory]:
    """Each memory once, where and as it comes first."""
    best: dict[str, RecalledMemory] = {}
    for memory in memories:
        best.setdefault(memory.id, memory)
    return list(best.values())


def _still_fits(old: RecalledMemory, new: RecalledMemory, request: GatewayRequest) -> bool:
    """Whether a memory that has changed still belongs into the answer that it was in."""
    if not isinstance(request, Recall):
        return not new.forgotten
    if not passes(new, request):
        return False
    return new.content == old.content or word_match(request.query, new.content) > 0.0


def _matching(memories: Iterable[RecalledMemory], request: Recall) -> list[RecalledMemory]:
    """Those that pass the filters and have a word of the query, the best first, and what is archived last."""
    found = (rescored(memory, request.query) for memory in memories if passes(memory, request))
    return sorted(
        (memory for memory in found if memory is not None),
        key=lambda memory: (memory.status == "archived", -memory.scores.final),
    )


def passes(memory: RecalledMemory, request: Recall) -> bool:
    """Whether a memory passes the filters of a request (scope, type, kind, domain, tags, importance, time)."""
    return (
        (not request.scopes or memory.scope in request.scopes)
        and (not request.types or memory.type in request.types)
        and (not request.kinds or memory.kind in request.kinds)
        and (not request.domains or memory.domain in request.domains)
        and (not request.tags or not set(request.tags).isdisjoint(memory.tags))
        and memory.importance >= request.min_importance
        and (request.after is None or memory.happened_at >= request.after)
        and (request.before is None or memory.happened_at <= request.before)
        and (request.include_forgotten or not memory.forgotten)
        and not (request.valid_only and (memory.expired or has_ended(memory.valid_until, time.time())))
    )


def rescored(memory: RecalledMemory, query: str) -> RecalledMemory | None:
    """With the composite score, its relevance being the share of the query's words; None for none."""
    relevance = word_match(query, memory.content)
    if relevance == 0.0:
        return None
    recency = memory.scores.recency
    final = relevance * 0.6 + memory.importance * 0.2 + recency * 0.2
    scores = Scores(final=final, relevance=relevance, importance=memory.importance, recency=recency, keyword=relevance)
    return msgspec.structs.replace(memory, scores=scores, near_duplicates=())


HOLDS_S: Final = 15.0
"""A session's first question comes right after its start, or may as well be asked of the store."""


@dataclass(slots=True, eq=False)
class Ticket:
    """A question that is being asked ahead, or was."""

    request: GatherContext
    ready_at: float | None = None


class PreparedAnswers:
    """The questions whose answers were fetched before anybody asked, and which of these answers still hold.

    The answers themselves are in the read cache. One holds for a short time, until it has been given, and only as long
    as nobody writes what may belong into it. Times are seconds on one clock.
    """

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
        if is_whole and self._tickets.get(ticket.request) is ticket:
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
                self._drop(ticket)

    def _drop(self, ticket: Ticket) -> None:
        if self._tickets.get(ticket.request) is ticket:
            del self._tickets[ticket.request]


def may_change(operation: Operation, project_id: str) -> bool:
    """Whether an operation may change what is known in a project. False only where that is certain."""
    match operation.change:
        case StartSession() | EndSession() | RecordEvents() | WriteNote():
            return False
        case StoreMemory(scope=scope) if scope != "user":
            return operation.project.id == project_id
        case _:  # what is changed may be the user's
            return True


def _holds(ticket: Ticket, now: float) -> bool:
    return ticket.ready_at is None or 0 <= now - ticket.ready_at <= HOLDS_S
