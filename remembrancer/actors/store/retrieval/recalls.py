"""How a recall is answered: the scopes side by side, fusion, ranking, and a plain word about what is missing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from remembrancer.actors.store.graph.graph_search import connections
from remembrancer.actors.store.graph.joined_graph import JoinedGraph
from remembrancer.actors.store.records.contract import Filters, Vectors
from remembrancer.actors.store.records.search import padded
from remembrancer.actors.store.retrieval.best_passages import passages_of
from remembrancer.actors.store.retrieval.candidates import (
    Found,
    Passages,
    Question,
    Source,
    WordsFound,
    find_candidates,
    find_words,
    searched_once,
)
from remembrancer.actors.store.retrieval.happenings import what_happened
from remembrancer.actors.store.retrieval.keywords import expressions_of, match_expression
from remembrancer.actors.store.retrieval.neighbours import first_of, lent, together
from remembrancer.actors.store.retrieval.profiles import PROFILES, choose_profile
from remembrancer.actors.store.retrieval.ranking import (
    ANSWERABLE_COSINE,
    DEFAULT_WEIGHTS,
    Signals,
    Weights,
    answerable_cosine,
    best_passages,
    is_unlikely,
    noise,
    recency,
    relevances,
    scope_factors,
    score,
    side_by_side,
    standing,
    timely,
    words_tell,
)
from remembrancer.actors.store.retrieval.reranking import Reranking
from remembrancer.actors.store.retrieval.shortlist import Entry, Place, shortlist
from remembrancer.actors.store.retrieval.shown import as_recalled
from remembrancer.actors.store.retrieval.when import TimeWindow, nearness, time_windows, zone_of
from remembrancer.protocol.errors import EmbeddingUnavailable
from remembrancer.protocol.kinds import SCOPES
from remembrancer.protocol.reads import Notice, ProfileName, Recall, Recalled, RecalledMemory, Scores, Strategy
from remembrancer.protocol.tracing import current, working_on

WORTH_A_THREAD: Final = 2000
"""Memories of a file that is searched beside the first one; a smaller one is sooner done after it.

With a few memories in the user's file a second thread made a recall a fifth slower; with 10,000 it takes 24 ms
and not 29.
"""

__all__ = ["Passages", "Source", "recall", "searched_once"]


async def recall(
    request: Recall,
    sources: Sequence[Source],
    embed: Callable[[str], Awaitable[Vectors]],
    threads: Executor,
    now: float,
    weights: Weights = DEFAULT_WEIGHTS,
    reranking: Reranking | None = None,
) -> tuple[Recalled, dict[int, list[int]]]:
    """The answer, and the numbers of the memories in it by their source's place (their accesses are to be counted).

    `embed` makes the query's vector, and raises `EmbeddingUnavailable` when it cannot.
    Where the vectors cannot be searched the words are, also when vectors alone were asked for.
    `reranking` orders the first candidates anew; the threads are free while it is waited for.
    """
    started = time.perf_counter()
    loop = asyncio.get_running_loop()
    filters = request.filters
    notices: list[Notice] = []
    match = match_expression(request.query)
    trace = current()

    def find_all_words() -> list[WordsFound]:
        began = time.monotonic()
        found = [find_words(source.records, match, request.strategy, filters) for source in sources]
        trace.part("words searched", began)
        return found

    query: Vectors | None = None
    words: Sequence[WordsFound | None] = [None] * len(sources)
    if request.strategy != "keyword":
        asking = _query_vector(request.query, embed, notices)
        query, words = await _beside(asking, threads, find_all_words)
    question = Question(request.strategy, match, query)

    def rank() -> Ranking:
        with working_on(trace):
            trace.mark("thread began")
            found = _find_all(sources, question, filters, words, threads)
            trace.mark("candidates found")
            ranking = _ranking(request, sources, question, found, filters, notices, now, weights)
            trace.mark("ranked")
            return ranking

    def at_once() -> tuple[Recalled, dict[int, list[int]]]:
        ranking = rank()
        answered = _answer(request, sources, ranking, filters, notices, now)
        trace.mark("shortlist loaded")
        return answered

    if reranking is None:  # one turn on the threads, not three
        answer, seen = await loop.run_in_executor(threads, at_once)
        trace.mark("back on the loop")
    else:
        ranking = await loop.run_in_executor(threads, rank)
        anew = await reranking.reranked(
            request.query, ranking.vector, sources, ranking.ranked, filters, threads, notices
        )
        ranking = replace(ranking, ranked=anew)
        answer, seen = await loop.run_in_executor(threads, _answer, request, sources, ranking, filters, notices, now)
    return msgspec.structs.replace(answer, query_time_ms=(time.perf_counter() - started) * 1000), seen


async def _beside(
    asking: Coroutine[None, None, Vectors | None], threads: Executor, find_all_words: Callable[[], list[WordsFound]]
) -> tuple[Vectors | None, list[WordsFound]]:
    """The question's vector, and the words that are searched while a worker makes it."""
    vector = asyncio.create_task(asking)
    try:
        await asyncio.sleep(0)  # the worker is asked first
        words = await asyncio.get_running_loop().run_in_executor(threads, find_all_words)
        return await vector, words
    finally:  # nobody waits for the vector where a file cannot be read
        vector.cancel()


def _find_all(
    sources: Sequence[Source],
    question: Question,
    filters: Filters,
    words: Sequence[WordsFound | None],
    threads: Executor,
) -> list[Found]:
    """Each file's candidates. From one of the threads.

    A large file is searched beside the first one: most of the work is SQLite's and the index's, which let others run.
    """
    begun = {
        place: threads.submit(find_candidates, source, question, filters, words[place])
        for place, source in enumerate(sources[1:], 1)
        if sum(source.records.sizes().values()) > WORTH_A_THREAD
    }
    found: list[Found] = []
    for place, source in enumerate(sources):
        search = begun.get(place)
        # What no thread has begun is done here: nobody waits for a thread that waits itself.
        if search is None or search.cancel():
            found.append(find_candidates(source, question, filters, words[place]))
        else:
            found.append(search.result())
    return found


@dataclass(frozen=True, slots=True)
class Ranking:
    """The candidates of a recall, best first, and how they came to be that."""

    ranked: Sequence[tuple[Place, Scores]]
    below: int
    strategy: Strategy
    profile: ProfileName | None
    vector: Vectors | None
    """The query's."""


def _ranking(
    request: Recall,
    sources: Sequence[Source],
    question: Question,
    found: list[Found],
    filters: Filters,
    notices: list[Notice],
    now: float,
    weights: Weights,
) -> Ranking:
    query = question.vector
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
    profile = _profile(request, found)
    now = now if request.reference_time is None else request.reference_time
    windows = time_windows(request.query, now, zone_of(request.reference_time, request.utc_offset_s))
    answerable = answerable_cosine(sum(source.records.last_passage() for source in sources))
    then = what_happened(request, sources, query, windows, filters)
    if then is not None:
        ranked, below = _rank(strategy, then, now, weights, profile, windows, by_time=True)
    else:
        by_words = _words_tell(request, sources, found, answerable)
        ranked, below = _rank(strategy, found, now, weights, profile, windows, by_words=by_words, answerable=answerable)
    return Ranking(ranked, below, strategy, profile, query)


def _answer(
    request: Recall,
    sources: Sequence[Source],
    ranking: Ranking,
    filters: Filters,
    notices: list[Notice],
    now: float,
) -> tuple[Recalled, dict[int, list[int]]]:
    """What is answered with a ranking."""
    ranked = ranking.ranked
    entries, left_out = shortlist(sources, ranked, filters, request.limit, now)
    passages = passages_of(request.query, ranking.vector, sources, entries) if request.with_passages else {}
    seen: dict[int, list[int]] = {}
    for entry in entries:
        seen.setdefault(entry.place[0], []).append(entry.place[1])
    answer = Recalled(
        memories=tuple(_shown(entry, passages.get(entry.place, ())) for entry in entries),
        total_matched=len(ranked) - left_out,
        below_threshold=ranking.below,
        strategy_used=ranking.strategy,
        query_time_ms=0.0,
        notices=tuple(notices),
        profile=ranking.profile,
    )
    return answer, seen


def _profile(request: Recall, found: Sequence[Found]) -> ProfileName | None:
    """The profile that was asked for, or else the one that suits the question; None where there is but one scope."""
    if len(set(request.scopes or SCOPES)) < 2:
        return None
    if request.profile is not None:
        return request.profile
    return choose_profile(request.query, sum(each.sizes.get("project", 0) for each in found))


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
            known = source.records.memory_vectors(source.passages.model, padded(unseen))
            cosines = best_passages(known.memories, known.vectors, query)
        signals: dict[int, Signals] = {}
        for number, (_, near) in named.items():
            seen = each.signals.get(number) or Signals(cosines.get(number), None)
            signals[number] = msgspec.structs.replace(seen, graph=near)
        facts = {number: known_facts for number, (known_facts, _) in named.items()}
        connected.append(Found(each.by_meaning, signals, facts, each.sizes))
    return connected


def _rank(
    strategy: Strategy,
    found: Sequence[Found],
    now: float,
    weights: Weights,
    profile: ProfileName | None,
    windows: Sequence[TimeWindow] = (),
    *,
    by_words: bool = True,
    answerable: float = ANSWERABLE_COSINE,
    by_time: bool = False,
) -> tuple[list[tuple[Place, Scores]], int]:
    """All candidates that are not noise, best first, and how many were noise.

    `by_time`: the candidates are relevant for their time, and their meaning decides between them; none is noise.
    """
    signals = side_by_side(
        [{number: each.signals[number] for number in each.facts} for each in found], [each.size for each in found]
    )
    facts = {(place, number): fact for place, each in enumerate(found) for number, fact in each.facts.items()}
    unfit = set() if by_time else noise(signals, by_words=by_words, answerable=answerable)
    for key in unfit:
        del signals[key]
    weights = weights.asked()
    own = relevances(signals, strategy)
    long = {key for key, signal in signals.items() if signal.head is not None}
    gained = lent(own, _told(found), long) if strategy == "hybrid" else {}
    near = {key: nearness(facts[key].happened_at, windows) for key in signals} if windows else {}
    relevance = {key: (1.0 + own[key]) / 2.0 for key in signals} if by_time else timely(together(own, gained), near)
    best_bm25 = max((signal.bm25 or 0.0 for signal in signals.values()), default=0.0)
    scopes = {facts[key].scope for key in signals}
    factors = {} if profile is None else scope_factors(PROFILES[profile], scopes)
    ranked = [
        (
            key,
            score(
                msgspec.structs.replace(signal, neighbour=gained.get(key), time=near.get(key)),
                relevance[key],
                best_bm25,
                facts[key].importance,
                recency(facts[key].happened_at, now),
                weights,
                scope=factors.get(facts[key].scope),
                stands=standing(facts[key].status, facts[key].valid_until, now),
            ),
        )
        for key, signal in signals.items()
    ]
    ranked.sort(key=lambda item: (-item[1].final, item[0]))
    return ranked, len(unfit)


def _words_tell(request: Recall, sources: Sequence[Source], found: Sequence[Found], answerable: float) -> bool:
    """Whether words may speak for candidates: where nothing answers by meaning, one of them must have most of them."""
    signals = {(place, number): each.signals[number] for place, each in enumerate(found) for number in each.facts}
    if not is_unlikely(signals, answerable):
        return True
    expressions = expressions_of(request.query)
    for place, each in enumerate(found):
        hits = {number: each.signals[number].bm25 or 0.0 for number in each.facts if each.signals[number].bm25}
        if hits:
            matched = sources[place].records.words_in(expressions, padded(first_of(hits)))
            if any(words_tell(count, len(expressions)) for count in matched.values()):
                return True
    return False


def _told(found: Sequence[Found]) -> Iterator[tuple[Place, dict[Place, int]]]:
    """What was told around the best candidates, by their places among several files."""
    for place, each in enumerate(found):
        for number, others in each.told.items():
            yield (place, number), {(place, other): steps for other, steps in others.items()}


def _shown(entry: Entry, passages: tuple[tuple[int, int], ...]) -> RecalledMemory:
    return msgspec.structs.replace(
        as_recalled(entry.record, entry.scores),
        tags=entry.tags,
        strength=entry.strength,
        found_in=entry.found_in,
        stands_for=entry.stands_for,
        passages=passages,
    )
