"""The answers to reads without the store: recent answers, and the writes that are still queued. Pure.

Answers are kept for one project and one session together, and are looked at for those alone: nobody sees
through the cache what the store would not have shown. Changes that came later, applied or queued, are laid over what is
kept: a forgotten memory does not come back, and an updated one is shown as it is now.
"""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import msgspec

from remembrancer.actors.gateway.overlay import Followed, Overlay, Viewer, as_recalled, passes, viewer_in
from remembrancer.actors.gateway.recent_writes import RecentWrites
from remembrancer.memory.decay import has_ended
from remembrancer.memory.text import word_match
from remembrancer.protocol.reads import (
    ContextGathered,
    DescribeSession,
    DescribeStore,
    FollowLinks,
    GatherContext,
    GetMemory,
    GraphFound,
    LinksFound,
    MemoryShown,
    Recall,
    Recalled,
    RecalledMemory,
    Scores,
    SearchGraph,
    Suggest,
)
from remembrancer.protocol.session_life import EndSession, RecordEvents, StartSession
from remembrancer.protocol.wire import GatewayRequest, ToGateway
from remembrancer.protocol.writes import Operation, PortableMemory, StoreMemory, WriteNote

MAX_ANSWERS: Final = 512
MAX_ANSWER_BYTES: Final = 8_000_000
MATCHED_CHARACTERS: Final = 5_000
"""Of a memory: every session waits while words are looked for here."""


class KeptAnswer(msgspec.Struct, frozen=True):
    """An answer, how large it is as a message, and when it came: by the number of the next write, and by the clock."""

    reply: ToGateway
    size_bytes: int
    since: int
    at: float


class LastAnswers:
    """The answers last given, the oldest going first when there is no more room."""

    def __init__(self) -> None:
        self.kept: OrderedDict[GatewayRequest, KeptAnswer] = OrderedDict()
        self._bytes = 0

    def put(self, request: GatewayRequest, kept: KeptAnswer) -> None:
        """Keep an answer of the store in place of an earlier one to the same question."""
        self._drop(request)
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


_KEPT: Final = (Recall, DescribeStore, DescribeSession, GatherContext, GetMemory, SearchGraph, Suggest)
"""The questions whose answers are kept."""


class ReadCache:
    """The answers last given, and the writes since."""

    def __init__(self, writes: RecentWrites) -> None:
        self._answers = LastAnswers()
        self._writes = writes

    def erase(self, memory_id: str) -> None:
        """Forget a memory that was deleted for good, and every answer: it may be in any of them."""
        self._answers = LastAnswers()
        self._writes.erase(memory_id)

    def put(self, request: GatewayRequest, answer: ToGateway, mark: int, at: float, size_bytes: int) -> None:
        """Keep an answer of the store that came at `at`, to a question that was sent before the write `mark`."""
        if isinstance(request, _KEPT):
            self._answers.put(request, KeptAnswer(answer, size_bytes, mark, at))

    def last(self, request: GatewayRequest, queued: Iterable[Operation]) -> tuple[ToGateway, float] | None:
        """The last answer to this very question as it is after all that changed since, and when it came."""
        kept = self._kept(request)
        viewer = viewer_of(request)
        if kept is None or viewer is None:
            return None
        return _overlaid(request, kept, self._overlay(queued), viewer), kept.at

    def laid_over(self, request: GatewayRequest, reply: ToGateway, mark: int, queued: Iterable[Operation]) -> ToGateway:
        """The store's answer to a question that was sent before the write `mark`, as it is after what is queued."""
        if not isinstance(request, Recall | SearchGraph | GatherContext | GetMemory | FollowLinks):
            return reply
        viewer = viewer_in(request.project, request.session_id)
        return _overlaid(request, KeptAnswer(reply, 0, mark, 0.0), self._overlay(queued), viewer)

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
        return found.memory if found is not None and found.first_unknown is None else None

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
        return Overlay(self._writes.changes(), queued)

    def _kept(self, request: GatewayRequest) -> KeptAnswer | None:
        kept = self._answers.kept.get(request)
        return kept if kept is not None and self._writes.knows_all_since(kept.since) else None

    def _for(self, viewer: Viewer) -> Iterator[KeptAnswer]:
        for request, kept in self._answers.newest_first():
            if viewer_of(request) == viewer and self._writes.knows_all_since(kept.since):
                yield kept

    def _shown(self, viewer: Viewer, overlay: Overlay) -> Iterator[RecalledMemory]:
        """The memories of earlier answers as they are now: each once, as it was shown last."""
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
            return msgspec.structs.replace(reply, memories=present(memories), left_out=present(reply.left_out))
        case GraphFound(memories=memories):
            return msgspec.structs.replace(reply, memories=present(memories))
        case LinksFound(memories=linked):
            followed = (overlay.follow(memory, viewer, kept.since).memory for memory in linked)
            return msgspec.structs.replace(reply, memories=tuple(each for each in followed if not each.forgotten))
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
    """True if a memory that has changed still belongs into the answer that it was in."""
    if not isinstance(request, Recall):
        return not new.forgotten
    if not _answers(new, request):
        return False
    return new.content == old.content or word_match(request.query, new.content) > 0.0


def _matching(memories: Iterable[RecalledMemory], request: Recall) -> list[RecalledMemory]:
    """Those that pass the filters and have a word of the query, the best first, and what is archived last."""
    found = (rescored(memory, request.query) for memory in memories if _answers(memory, request))
    return sorted(
        (memory for memory in found if memory is not None),
        key=lambda memory: (memory.status == "archived", -memory.scores.final),
    )


def _answers(memory: RecalledMemory, request: Recall) -> bool:
    """True if a memory passes the filters of a request."""
    is_over = memory.expired or has_ended(memory.valid_until, time.time())
    return passes(memory, request) and not (request.valid_only and is_over)


def rescored(memory: RecalledMemory, query: str) -> RecalledMemory | None:
    """With the composite score, its relevance being the share of the query's words; None for none."""
    relevance = word_match(query, memory.content[:MATCHED_CHARACTERS])
    if relevance == 0.0:
        return None
    recency = memory.scores.recency
    final = relevance * 0.6 + memory.importance * 0.2 + recency * 0.2
    scores = Scores(final=final, relevance=relevance, importance=memory.importance, recency=recency)
    return msgspec.structs.replace(memory, scores=scores, near_duplicates=())


HOLDS_S: Final = 15.0
"""A session's first question comes right after its start, or may as well be asked of the store."""


@dataclass(slots=True, eq=False)
class Ticket:
    """A question that is being asked ahead, or was. `since` is the number of the next write when it was asked."""

    request: GatherContext
    since: int
    ready_at: float | None = None


class PreparedAnswers:
    """The questions whose answers were fetched before anybody asked, and which of these answers still hold.

    The answers themselves are in the read cache. One holds for a short time, until it has been given, and only as long
    as nobody writes what may belong into it. Times are seconds on one clock.
    """

    def __init__(self, writes: RecentWrites) -> None:
        self._writes = writes
        self._tickets: dict[GatherContext, Ticket] = {}

    def __len__(self) -> int:
        """The number of questions that are being asked ahead or have their answer ready."""
        return len(self._tickets)

    def is_ready(self, request: GatherContext, now: float) -> bool:
        """True if there is an answer to this question that is as good as a new one."""
        ticket = self._tickets.get(request)
        return ticket is not None and ticket.ready_at is not None and self._holds(ticket, now)

    def begin(self, request: GatherContext, now: float) -> Ticket:
        """To be called before the question is sent. What is too old by now is let go."""
        self._tickets = {asked: ticket for asked, ticket in self._tickets.items() if self._holds(ticket, now)}
        ticket = self._tickets[request] = Ticket(request, self._writes.next_number)
        return ticket

    def finish(self, ticket: Ticket, now: float, *, is_whole: bool) -> None:
        """The question was answered, wholly or not (or in vain)."""
        if self._tickets.get(ticket.request) is not ticket:
            return
        if is_whole:
            ticket.ready_at = now
        else:
            del self._tickets[ticket.request]

    def take(self, request: GatherContext, now: float) -> bool:
        """True if the kept answer to this question is as good as a new one. It is so once only: it has been shown
        then, which counts."""
        is_ready = self.is_ready(request, now)
        ticket = self._tickets.get(request)
        if ticket is not None and ticket.ready_at is not None:
            del self._tickets[request]
        return is_ready

    def _holds(self, ticket: Ticket, now: float) -> bool:
        writes = self._writes.since(ticket.since)
        if writes is None or any(may_change(each.operation, ticket.request.project.id) for each in writes):
            return False
        return ticket.ready_at is None or 0 <= now - ticket.ready_at <= HOLDS_S


def may_change(operation: Operation, project_id: str) -> bool:
    """True if an operation may change what is known in a project. False only where that is certain."""
    match operation.change:
        case StartSession() | EndSession() | RecordEvents() | WriteNote():
            return False
        case StoreMemory(scope=scope) if scope != "user":
            return operation.project.id == project_id
        case _:  # what is changed may be the user's
            return True
