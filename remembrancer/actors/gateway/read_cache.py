"""What a read without the store can be answered from: recent answers, and the writes that are still queued.

Pure. Answers are kept for one project and one session together, and are looked at for those alone: nobody sees
through the cache what the store would not have shown.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterable
from typing import Final

from remembrancer.protocol.reads import Recall, Recalled, RecalledMemory, Scores, StoreDescription
from remembrancer.protocol.writes import Operation

MAX_ANSWERS: Final = 512
MAX_CHARACTERS: Final = 8_000_000
MAX_DESCRIPTIONS: Final = 256
_WORD: Final = re.compile(r"\w+")
_STEM: Final = 4
"""Words match when one begins the other and the shorter has so many letters: a poor man's stemming."""

Viewer = tuple[str, str]
"""Whose answer it is: the project's id and the session's."""


class ReadCache:
    """The answers last given, the oldest going first when there is no more room."""

    def __init__(self) -> None:
        self._answers: OrderedDict[Recall, Recalled] = OrderedDict()
        self._characters = 0
        self._descriptions: OrderedDict[Viewer, StoreDescription] = OrderedDict()

    def put(self, request: Recall, answer: Recalled) -> None:
        """Keep an answer of the store."""
        self._drop(request)
        self._answers[request] = answer
        self._characters += _size(answer)
        while self._answers and (len(self._answers) > MAX_ANSWERS or self._characters > MAX_CHARACTERS):
            self._drop(next(iter(self._answers)))

    def put_description(self, viewer: Viewer, description: StoreDescription) -> None:
        """Keep what the store said of itself."""
        self._descriptions[viewer] = description
        self._descriptions.move_to_end(viewer)
        if len(self._descriptions) > MAX_DESCRIPTIONS:
            self._descriptions.popitem(last=False)

    def description(self, viewer: Viewer) -> StoreDescription | None:
        """What the store last said of itself to this viewer."""
        return self._descriptions.get(viewer)

    def answer(self, request: Recall, queued: Iterable[Operation]) -> list[RecalledMemory]:
        """The best that can be said without the store: the answer to the very same question if there was one, else
        what this viewer was shown before and matches; and before these the queued writes that match."""
        fresh = [memory for memory in (as_recalled(operation, request) for operation in queued) if memory]
        exact = self._answers.get(request)
        known = list(exact.memories) if exact is not None else self._matches(request)
        best: dict[str, RecalledMemory] = {}
        for memory in sorted(fresh, key=_by_score) + known:
            best.setdefault(memory.id, memory)
        return list(best.values())[: request.limit]

    def _matches(self, request: Recall) -> list[RecalledMemory]:
        viewer = (request.project.id, request.session_id)
        seen: dict[str, RecalledMemory] = {}
        for asked, answer in reversed(self._answers.items()):
            if (asked.project.id, asked.session_id) == viewer:
                for memory in answer.memories:
                    seen.setdefault(memory.id, memory)
        found = [_rescored(memory, request) for memory in seen.values() if passes(memory, request)]
        return sorted((memory for memory in found if memory is not None), key=_by_score)

    def _drop(self, request: Recall) -> None:
        answer = self._answers.pop(request, None)
        if answer is not None:
            self._characters -= _size(answer)


def as_recalled(operation: Operation, request: Recall) -> RecalledMemory | None:
    """A queued write as an answer to `request`, if whoever asks may see it and it matches in filters and words."""
    change = operation.change
    if change.scope == "project" and operation.project.id != request.project.id:
        return None
    if change.scope == "session" and (
        operation.project.id != request.project.id or change.session_id != request.session_id
    ):
        return None
    memory = RecalledMemory(
        id=change.memory_id,
        content=change.content,
        type=change.type,
        scope=change.scope,
        importance=change.importance,
        scores=Scores(final=0.0, relevance=0.0, importance=change.importance, recency=1.0),
        tags=change.tags,
        created_at=operation.requested_at,
        access_count=0,
        source=change.source,
        occurred_at=change.occurred_at,
    )
    return _rescored(memory, request) if passes(memory, request) else None


def passes(memory: RecalledMemory, request: Recall) -> bool:
    """Whether a memory passes the filters of a request (scope, type, tags, importance, time)."""
    return (
        (not request.scopes or memory.scope in request.scopes)
        and (not request.types or memory.type in request.types)
        and (not request.tags or not set(request.tags).isdisjoint(memory.tags))
        and memory.importance >= request.min_importance
        and (request.after is None or memory.created_at >= request.after)
        and (request.before is None or memory.created_at <= request.before)
        and (request.include_forgotten or not memory.forgotten)
    )


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


def _rescored(memory: RecalledMemory, request: Recall) -> RecalledMemory | None:
    """With the composite score of the first seed, its relevance being the share of the query's words."""
    relevance = word_match(request.query, memory.content)
    if relevance == 0.0:
        return None
    recency = memory.scores.recency
    final = relevance * 0.6 + memory.importance * 0.2 + recency * 0.2
    scores = Scores(final=final, relevance=relevance, importance=memory.importance, recency=recency, keyword=relevance)
    return RecalledMemory(
        id=memory.id,
        content=memory.content,
        type=memory.type,
        scope=memory.scope,
        importance=memory.importance,
        scores=scores,
        tags=memory.tags,
        created_at=memory.created_at,
        access_count=memory.access_count,
        source=memory.source,
        version=memory.version,
        occurred_at=memory.occurred_at,
        forgotten=memory.forgotten,
    )


def _by_score(memory: RecalledMemory) -> float:
    return -memory.scores.final


def _size(answer: Recalled) -> int:
    return sum(len(memory.content) for memory in answer.memories)
