"""How a recall is answered: searches side by side, fusion, ranking, and a plain word about what is missing."""

from __future__ import annotations

import asyncio
import logging
import math
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Final, Protocol

import msgspec

from remembrancer.actors.store.graph.graph_files import JoinedGraph
from remembrancer.actors.store.graph.graph_recall import connections
from remembrancer.actors.store.records.contract import Filters, MemoryRecord, RankingFacts, Records, Vectors
from remembrancer.actors.store.retrieval.keywords import match_expression
from remembrancer.actors.store.retrieval.ranking import (
    DEFAULT_WEIGHTS,
    Signals,
    Weights,
    best_passages,
    noise,
    recency,
    relevances,
    score,
    side_by_side,
)
from remembrancer.actors.store.vectors.passage_index import PassageHit
from remembrancer.actors.store.vectors.vector_index import IndexLost
from remembrancer.protocol.errors import EmbeddingUnavailable
from remembrancer.protocol.reads import Notice, Recall, Recalled, RecalledMemory, Scores, Strategy

CANDIDATES: Final = 50
"""Memories that each search brings to the fusion."""
DEEPEST_SEARCH: Final = 3200
"""Passages looked at when the filters turn most of the nearest away."""
SPARE_SHARE: Final = 1.25
"""How much more is looked at than what has passed so far promises: farther away, filters may turn more away."""
FEW: Final = 1000
"""Memories that pass the filters and are compared one by one, when a first search has not found enough of them."""
EXACT_LIMIT: Final = 5000
"""Memories that pass the filters and are compared one by one, when a deep search has not found enough of them."""
SPARE: Final = 3
"""Memories loaded beyond the limit: for a moment, one that is being promoted is in two files."""

logger = logging.getLogger(__name__)

Place = tuple[int, int]
"""A candidate among several files: the file's place in the list of sources, the memory's number in it."""


class Passages(Protocol):
    """What can be searched by meaning: a `PassageIndex`, or what stands before one."""

    @property
    def model(self) -> str: ...

    def search(self, query: Vectors, limit: int) -> list[PassageHit]:
        """The nearest passages to `query` (dimensions,), nearest first, each once. Raises `IndexLost`."""


@dataclass(frozen=True, slots=True)
class Source:
    """A file to search: its records, and its passages when they can be searched (None: not now)."""

    records: Records
    passages: Passages | None


class _SearchedOnce:
    """Passages for several recalls with one vector, side by side: what one has searched the others need not."""

    def __init__(self, passages: Passages) -> None:
        self._passages = passages
        self._hits: dict[int, list[PassageHit]] = {}
        self._lock = threading.Lock()

    @property
    def model(self) -> str:
        return self._passages.model

    def search(self, query: Vectors, limit: int) -> list[PassageHit]:
        with self._lock:
            deeper = min((known for known in self._hits if known >= limit), default=None)
            if deeper is None:
                deeper = limit
                self._hits[limit] = self._passages.search(query, limit)
            return self._hits[deeper][:limit]


def searched_once(source: Source) -> Source:
    """The file for several recalls with one and the same vector."""
    return source if source.passages is None else Source(source.records, _SearchedOnce(source.passages))


@dataclass(frozen=True, slots=True)
class Found:
    """A file's candidates: what the searches said, and what ranks them. `by_meaning`: its vectors were searched."""

    by_meaning: bool
    signals: dict[int, Signals]
    facts: dict[int, RankingFacts]


def filters_of(request: Recall) -> Filters:
    """The filters that a request asks for."""
    return Filters(
        session_id=request.session_id,
        scopes=request.scopes,
        types=request.types,
        tags=request.tags,
        min_importance=request.min_importance,
        after=request.after,
        before=request.before,
        include_forgotten=request.include_forgotten,
    )


async def recall(
    request: Recall,
    sources: Sequence[Source],
    embed: Callable[[str], Awaitable[Vectors]],
    threads: Executor,
    now: float,
    weights: Weights = DEFAULT_WEIGHTS,
) -> tuple[Recalled, dict[int, list[int]]]:
    """The answer, and the numbers of the memories in it by their source's place (their accesses are to be counted).

    `embed` makes the query's vector, and raises `EmbeddingUnavailable` when it cannot.
    Where the vectors cannot be searched the words are, also when vectors alone were asked for.
    """
    started = time.perf_counter()
    loop = asyncio.get_running_loop()
    filters = filters_of(request)
    notices: list[Notice] = []
    query = None if request.strategy == "keyword" else await _query_vector(request.query, embed, notices)
    # One piece of work for one thread, after the vector: the parts are too short to be handed around, and a keyword
    # search beside the model's threads slows these down by more than it saves on a machine with few cores.
    answer, seen = await loop.run_in_executor(
        threads, lambda: _answer(request, sources, query, filters, notices, now, weights)
    )
    return msgspec.structs.replace(answer, query_time_ms=(time.perf_counter() - started) * 1000), seen


def _answer(
    request: Recall,
    sources: Sequence[Source],
    query: Vectors | None,
    filters: Filters,
    notices: list[Notice],
    now: float,
    weights: Weights,
) -> tuple[Recalled, dict[int, list[int]]]:
    match = match_expression(request.query)
    found = [_candidates(source, request.strategy, match, query, filters) for source in sources]
    if query is not None and not all(each.by_meaning for each in found):
        notices.append(
            Notice("partial_results", "The vector index is still being opened: words alone were searched in part.")
        )
    strategy = request.strategy
    connected = _connected(request, sources, found, query, filters) if strategy == "graph" else None
    if connected is not None:
        found = connected
    else:
        if strategy == "graph":
            notices.append(Notice("no_entity", "The query names no known entity: meaning and words were searched."))
            strategy = "hybrid"
        strategy = _strategy_used(strategy, query, found)
    ranked, below = _rank(strategy, found, now, weights)
    memories = _load(sources, ranked[: request.limit + SPARE], filters)[: request.limit]
    answer = Recalled(
        memories=tuple(as_recalled(record, scores) for _, record, scores in memories),
        total_matched=len(ranked),
        below_threshold=below,
        strategy_used=strategy,
        query_time_ms=0.0,
        notices=tuple(notices),
    )
    return answer, dict(_by_source([place for place, _, _ in memories]))


def _load(
    sources: Sequence[Source], ranked: Sequence[tuple[Place, Scores]], filters: Filters
) -> list[tuple[Place, MemoryRecord, Scores]]:
    """The memories of ranked candidates. Of one that is on its way to the user's file, what is there counts."""
    records = {
        (place, number): record
        for place, numbers in _by_source([place for place, _ in ranked])
        for number, record in sources[place].records.load(numbers, filters).items()
    }
    memories: dict[str, tuple[Place, MemoryRecord, Scores]] = {}
    for place, scores in ranked:
        record = records.get(place)
        if record is not None and (record.id not in memories or record.scope == "user"):
            memories[record.id] = (place, record, scores)
    return list(memories.values())


async def _query_vector(text: str, embed: Callable[[str], Awaitable[Vectors]], notices: list[Notice]) -> Vectors | None:
    try:
        return await embed(text)
    except EmbeddingUnavailable as error:
        notices.append(
            Notice("embedding_failed", f"Only words were searched, not meaning: {error.message}. (keyword_only)")
        )
        return None


def _strategy_used(asked: Strategy, query: Vectors | None, found: Sequence[Found]) -> Strategy:
    """What was searched in the end: words alone, if nothing could be searched by meaning."""
    searched = [each.by_meaning for each in found]
    if query is None or (searched and not any(searched)):
        return "keyword"
    return asked if all(searched) else "hybrid"


def _candidates(
    source: Source, strategy: Strategy, match: str | None, query: Vectors | None, filters: Filters
) -> Found:
    """Both searches' candidates in one file that pass the filters, each with both signals where it has them.

    Where vectors alone were asked for, the words are searched only if the vectors cannot be.
    """
    nearest: dict[int, float] | None = None
    if query is not None and source.passages is not None:
        try:
            nearest = _nearest(source.records, source.passages, query, filters)
        except IndexLost:
            logger.warning("an index cannot be searched", exc_info=True)
    words_count = strategy != "vector" or nearest is None
    hits = source.records.keyword_hits(match, filters, CANDIDATES) if words_count and match is not None else []
    bm25 = {hit.number: hit.bm25 for hit in hits}
    cosines = nearest or {}
    if query is not None and source.passages is not None:
        unseen = [number for number in bm25 if number not in cosines]
        if unseen:
            known = source.records.memory_vectors(source.passages.model, unseen)
            cosines |= best_passages(known.memories, known.vectors, query)
    numbers = list({**bm25, **cosines})
    signals = {number: Signals(cosines.get(number), bm25.get(number)) for number in numbers}
    return Found(nearest is not None, signals, source.records.ranking_facts(numbers, filters))


def _connected(
    request: Recall, sources: Sequence[Source], found: Sequence[Found], query: Vectors | None, filters: Filters
) -> list[Found] | None:
    """Of each file the memories that are connected with an entity that the query names, with all their signals.

    None: it names none.
    """
    graph = JoinedGraph([source.records.graph for source in sources], request.session_id)
    links = connections(graph, request.query, filters, [each.facts for each in found])
    if links is None:
        return None
    connected: list[Found] = []
    for source, each, named in zip(sources, found, links, strict=True):
        unseen = [number for number in named if number not in each.facts]
        cosines: dict[int, float] = {}
        if query is not None and source.passages is not None and unseen:
            known = source.records.memory_vectors(source.passages.model, unseen)
            cosines = best_passages(known.memories, known.vectors, query)
        signals: dict[int, Signals] = {}
        for number, (_, nearness) in named.items():
            seen = each.signals.get(number) or Signals(cosines.get(number), None)
            signals[number] = Signals(seen.cosine, seen.bm25, nearness)
        connected.append(Found(each.by_meaning, signals, {number: facts for number, (facts, _) in named.items()}))
    return connected


def _nearest(records: Records, passages: Passages, query: Vectors, filters: Filters) -> dict[int, float]:
    """The cosines of the `CANDIDATES` nearest memories that pass the filters.

    The index knows nothing of filters. Where these turn too many away, the few memories that pass them are compared one
    by one; if they are not few the search goes deeper. The index may also run out: among hundreds of equal vectors
    HNSW does not reach everything that it holds.
    """
    limit = CANDIDATES
    few: Sequence[int] | None = None
    while True:
        best: dict[int, float] = {}
        hits = passages.search(query, limit)
        for hit in hits:
            best.setdefault(hit.memory, hit.cosine)
        allowed = records.ranking_facts(list(best), filters)
        passing = {number: cosine for number, cosine in best.items() if number in allowed}
        if len(passing) >= CANDIDATES:
            break
        if limit == CANDIDATES:
            few = records.matching(filters, FEW)
        if few is not None or len(hits) < limit or limit >= DEEPEST_SEARCH:
            numbers = records.matching(filters, EXACT_LIMIT) or () if few is None else few
            unseen = [number for number in numbers if number not in best]
            known = records.memory_vectors(passages.model, unseen)
            passing |= best_passages(known.memories, known.vectors, query)
            break
        limit = _deeper(limit, len(passing))
    return dict(sorted(passing.items(), key=lambda item: -item[1])[:CANDIDATES])


def _deeper(limit: int, passing: int) -> int:
    """How many passages to look at next, when `limit` gave only so many memories that pass the filters.

    Twice as many, or four, eight times …, so that recalls side by side ask for the same.
    """
    times = CANDIDATES / passing * SPARE_SHARE if passing else 4.0
    return min(DEEPEST_SEARCH, limit << max(1, math.ceil(math.log2(times))))


def _rank(
    strategy: Strategy, found: Sequence[Found], now: float, weights: Weights
) -> tuple[list[tuple[Place, Scores]], int]:
    """All candidates that are not noise, best first, and how many were noise."""
    signals = side_by_side([{number: each.signals[number] for number in each.facts} for each in found])
    facts = {(place, number): fact for place, each in enumerate(found) for number, fact in each.facts.items()}
    unfit = noise(signals)
    for key in unfit:
        del signals[key]
    relevance = relevances(signals, strategy)
    best_bm25 = max((signal.bm25 or 0.0 for signal in signals.values()), default=0.0)
    ranked = [
        (
            key,
            score(
                signal,
                relevance[key],
                best_bm25,
                facts[key].importance,
                recency(facts[key].happened_at, now),
                weights,
            ),
        )
        for key, signal in signals.items()
    ]
    ranked.sort(key=lambda item: (-item[1].final, item[0]))
    return ranked, len(unfit)


def _by_source(places: Sequence[Place]) -> list[tuple[int, list[int]]]:
    numbers: dict[int, list[int]] = {}
    for source, number in places:
        numbers.setdefault(source, []).append(number)
    return list(numbers.items())


def as_recalled(record: MemoryRecord, scores: Scores) -> RecalledMemory:
    """A record as an answer shows it."""
    return RecalledMemory(
        id=record.id,
        content=record.content,
        type=record.type,
        scope=record.scope,
        importance=record.importance,
        scores=scores,
        tags=record.tags,
        created_at=record.created_at,
        access_count=record.access_count,
        source=record.source,
        version=record.version,
        occurred_at=record.occurred_at,
        forgotten=record.forgotten,
        near_duplicates=record.near_duplicates,
        forgotten_at=record.forgotten_at,
        forgotten_reason=record.forgotten_reason,
    )
