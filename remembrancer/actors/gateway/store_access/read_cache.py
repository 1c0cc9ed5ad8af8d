"""What a read without the store can be answered from: recent answers, and the writes that are still queued.

Pure. Answers are kept for one project and one session together, and are looked at for those alone: nobody sees
through the cache what the store would not have shown. Changes that came later, applied or queued, are laid over what is
kept: a forgotten memory does not come back, and an updated one is shown as it is now.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from remembrancer.actors.gateway.store_access.last_answers import KeptAnswer, LastAnswers, RecentChanges
from remembrancer.actors.gateway.store_access.overlay import Followed, Overlay, Viewer, as_recalled
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
from remembrancer.protocol.wire import GatewayRequest, ToGateway
from remembrancer.protocol.writes import Operation, PortableMemory

_KEPT: Final = (Recall, DescribeStore, DescribeSession, GatherContext, GetMemory, SearchGraph, Suggest)
"""The questions whose answers are kept."""
_WORD: Final = re.compile(r"\w+")
_STEM: Final = 4
"""Words match when one begins the other and the shorter has so many letters: a poor man's stemming."""


class ReadCache:
    """The answers last given, and what has changed since."""

    def __init__(self) -> None:
        self._answers = LastAnswers()
        self._changes = RecentChanges()

    @property
    def mark(self) -> int:
        """To be taken before a question is sent, and given with its answer."""
        return self._changes.next_number

    def note(self, operation: Operation) -> None:
        """The store has applied a change. (Not for a replay, whose turn was earlier.)"""
        self._changes.note(operation)

    def put(self, request: GatewayRequest, answer: ToGateway, mark: int, at: float) -> None:
        """Keep an answer of the store that came at `at`, to a question that was sent at `mark`."""
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
        viewer = (request.project.id, request.session_id)
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
        return Overlay(self._changes.numbered(), queued)

    def _kept(self, request: GatewayRequest) -> KeptAnswer | None:
        kept = self._answers.get(request)
        return kept if kept is not None and self._changes.knows_all_since(kept.since) else None

    def _for(self, viewer: Viewer) -> Iterator[KeptAnswer]:
        for request, kept in self._answers.newest_first():
            if viewer_of(request) == viewer and self._changes.knows_all_since(kept.since):
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
    return (request.project.id, request.session_id) if isinstance(request, _KEPT) else None


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
    """Whether a memory passes the filters of a request (scope, type, kind, tags, importance, time)."""
    return (
        (not request.scopes or memory.scope in request.scopes)
        and (not request.types or memory.type in request.types)
        and (not request.kinds or memory.kind in request.kinds)
        and (not request.tags or not set(request.tags).isdisjoint(memory.tags))
        and memory.importance >= request.min_importance
        and (request.after is None or happened_at(memory) >= request.after)
        and (request.before is None or happened_at(memory) <= request.before)
        and (request.include_forgotten or not memory.forgotten)
    )


def happened_at(memory: RecalledMemory) -> float:
    """The time that filters go by, in seconds since the epoch: when it happened, or else when it was stored."""
    return memory.created_at if memory.occurred_at is None else memory.occurred_at


def word_match(query: str, content: str) -> float:
    """The part of the query's words that the content has, 0 to 1."""
    wanted = set(_WORD.findall(query.casefold()))
    if not wanted:
        return 0.0
    words = set(_WORD.findall(content.casefold()))
    return sum(any(_alike(one, other) for other in words) for one in wanted) / len(wanted)


def _alike(one: str, other: str) -> bool:
    if one == other:
        return True
    short, long = sorted((one, other), key=len)
    return len(short) >= _STEM and long.startswith(short)


def rescored(memory: RecalledMemory, query: str) -> RecalledMemory | None:
    """With the composite score, its relevance being the share of the query's words; None for none."""
    relevance = word_match(query, memory.content)
    if relevance == 0.0:
        return None
    recency = memory.scores.recency
    final = relevance * 0.6 + memory.importance * 0.2 + recency * 0.2
    scores = Scores(final=final, relevance=relevance, importance=memory.importance, recency=recency, keyword=relevance)
    return msgspec.structs.replace(memory, scores=scores, near_duplicates=())
