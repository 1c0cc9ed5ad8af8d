"""Answers a recall: parses the question, finds candidates, ranks them, and returns the best."""

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Executor
from dataclasses import replace
from functools import partial
from typing import Final

import numpy as np
from numpy.typing import NDArray

from remembrancer.actors.store.records.types import RankingFacts, Vectors
from remembrancer.actors.store.retrieval.candidates import Rows, Search, describe, find_candidates, find_words
from remembrancer.actors.store.retrieval.deduplication import Ranking, show
from remembrancer.actors.store.retrieval.graph import Graph
from remembrancer.actors.store.retrieval.graph_search import connections
from remembrancer.actors.store.retrieval.question import Question, read_question
from remembrancer.actors.store.retrieval.view import Ref, View
from remembrancer.memory.features import ANSWERING_COSINE, COSINE_FLOOR, NAMES, RULES, Column
from remembrancer.memory.ranking import (
    COMPOSITE,
    CONNECTED,
    PAGERANK,
    PROFILES,
    Weighed,
    fitted_for,
    scope_shares,
    weigh,
)
from remembrancer.memory.text import count
from remembrancer.protocol.errors import EmbeddingUnavailable
from remembrancer.protocol.kinds import OPEN_END, SESSION_RECORD
from remembrancer.protocol.reads import Recall, Recalled, Scores, Strategy
from remembrancer.protocol.wire import Notice

MAX_OF_PERIOD: Final = 200
"""The number of memories ranked for a question about everything in a period, most important first."""
ANSWERS_BY_TIME: Final = 0.9
"""The probability that a memory of the requested kind and time answers the question."""
PAGERANK_CANDIDATES: Final = 10
DECIMALS: Final = 9
"""Further decimals of a score are rounding errors, and would separate equal scores."""
FORMULAS: Final = {"pagerank": PAGERANK, "composite": COMPOSITE}
TRUSTED_SIZE: Final = 10
"""In a space of this size, BM25 is scaled half by the best score of all spaces, and half by the space's own best."""


async def recall(
    request: Recall, view: View, embed: Callable[[str], Awaitable[Vectors]], threads: Executor, now: float
) -> Recalled:
    """`embed` returns the query's vector, or raises `EmbeddingUnavailable`. Without a vector, words are searched, even
    if only vectors were requested."""

    async def make_vector() -> Vectors | None:
        try:
            return None if request.strategy == "keyword" else await embed(request.query)
        except EmbeddingUnavailable as error:
            view.notices.append(Notice(error.code, error.effect))
            return None

    if not view.sources:  # there are no memories yet
        return Recalled((), 0, 0, request.strategy)
    in_thread = partial(asyncio.get_running_loop().run_in_executor, threads)
    embedding = asyncio.create_task(make_vector())
    try:
        await asyncio.sleep(0)  # the embedding request is sent first, and runs while the words are searched
        search = await in_thread(lambda: find_words(view, read_question(request, now)))
        search = search._replace(vector=await embedding)
    finally:  # if the memories cannot be read, the vector is not needed
        embedding.cancel()

    def answer() -> Recalled:
        missing = 0 if search.vector is None else sum(each.missing(view.model) for each in view.records)
        if missing:
            text = f"Still being indexed, so only searched by words: {count(missing, 'memory')}."
            view.notices.append(Notice("embedding_pending", text))
        return show(search, rank(search))

    return await in_thread(answer)


def rank(search: Search) -> Ranking:
    """Return the candidates, best first. Memories for a task need not answer it, so all of them are kept."""
    question, request = search.question, search.question.request
    if question.windows and question.kinds is not None and request.strategy == "hybrid":
        happened = _of_period(search)
        if happened.scored:
            return happened
    rows, strategy = gather(search)
    if not len(rows):
        return Ranking((), strategy, 0)
    weighed = weigh_rows(search, rows, strategy)
    by_formula = strategy == "graph" or request.ranking != "fitted"
    probabilities, finals = weighed.probabilities, weighed.scores.round(DECIMALS)
    shares, refs = weighed.shares.round(3).tolist(), rows.refs.tolist()
    answering = len(rows)
    if not request.is_task:
        answering = int(np.count_nonzero(probabilities >= weighed.least_probability))
    scored: list[tuple[Ref, Scores]] = []
    for place in np.lexsort((rows.refs, -finals))[: None if request.left_out else answering].tolist():
        score, cosine = float(finals[place]), float(rows.cosine[place])
        scores = Scores(
            final=score,
            relevance=min(1.0, max(0.0, score)) if by_formula else float(probabilities[place]),
            shares={name: share for name, share in zip(NAMES, shares[place], strict=True) if share},
            cosine=cosine if request.is_task and not math.isnan(cosine) else None,
        )
        scored.append((refs[place], scores))
    vectors = {refs[place]: rows.vectors[place] for place in np.flatnonzero(~np.isnan(rows.cosine)).tolist()}
    return Ranking(scored, strategy, answering, len(rows) - answering, vectors)


def gather(search: Search) -> tuple[Rows, Strategy]:
    """Return the candidates, including those added by the graph, and the strategy that found them."""
    view, question, request = search.view, search.question, search.question.request
    rows, strategy = find_candidates(search)
    if SESSION_RECORD not in request.kinds:
        rows = rows.take(np.array([each.kind != SESSION_RECORD for each in rows.facts], dtype=bool))
    facts: dict[Ref, RankingFacts] = dict(zip(rows.refs.tolist(), rows.facts, strict=True))
    graph = Graph(view.reader.spaces, request.session_id, question.now)
    near: dict[Ref, float] = {}
    added: dict[Ref, RankingFacts] = {}
    links = None
    if request.strategy == "graph":
        links = connections(graph, request.query, question.filters, facts)
        if links is None:
            text = "The query names no known entity: it was searched by meaning and words."
            view.notices.append(Notice("no_entity", text))
            strategy = "keyword" if strategy == "keyword" else "hybrid"
        else:
            strategy = "graph"
            rows = rows.take(np.isin(rows.refs, list(links)))
            added = {ref: each for ref, (each, _) in links.items()}
            near = {ref: each for ref, (_, each) in links.items()}
    leaves_something_open = not rows.words.all(axis=1).any()
    is_walked = request.ranking == "pagerank" or (strategy == "hybrid" and leaves_something_open)
    if len(rows) and links is None and is_walked:
        probabilities = weigh_rows(search, rows, strategy).probabilities.tolist()
        near = graph.page_ranks(dict(zip(rows.refs.tolist(), probabilities, strict=True)))
        if request.ranking == "pagerank" and near:  # the largest value counts as 1
            most = max(near.values())
            near = {ref: each / most for ref, each in near.items()}
        others = sorted(near.keys() - facts.keys(), key=lambda ref: (-near[ref], ref))
        added = view.ranking_facts(others[:PAGERANK_CANDIDATES], question.filters)
    if request.about and (about := view.reader.number_of(request.about)) is not None:  # if it passes the filters
        added |= view.ranking_facts([about], question.filters)
    if added := {ref: each for ref, each in added.items() if ref not in facts}:
        rows = rows.followed_by(describe(search, added))
    return replace(rows, graph=np.array([near.get(ref, 0.0) for ref in rows.refs.tolist()])), strategy


def weigh_rows(search: Search, rows: Rows, strategy: Strategy) -> Weighed:
    request = search.question.request
    formula = CONNECTED if strategy == "graph" else FORMULAS.get(request.ranking)
    comparable = columns(search, rows)
    if strategy == "vector":
        nothing = np.zeros(len(rows))
        comparable = replace(comparable, bm25=nothing, coverage=nothing, names_missed=nothing)
    fitted = fitted_for(None if strategy == "keyword" else search.view.model or "")
    factors = None
    if request.profile is not None:
        shares = scope_shares(PROFILES[request.profile], {each.scope for each in rows.facts})
        factors = np.array([shares[each.scope] for each in rows.facts])
    likeness = (rows.vectors @ rows.vectors.T).astype(np.float64)
    return weigh(comparable, search.question.asked, fitted, formula, factors, likeness)


def columns(search: Search, rows: Rows) -> Rows:
    cosine, covered = rows.cosine, rows.coverage
    if not np.isnan(cosine).all():  # without a vector, a memory is as near as its share of the question's words
        span = np.nanmax(cosine, initial=ANSWERING_COSINE) - COSINE_FLOOR
        cosine = np.where(np.isnan(cosine), COSINE_FLOOR + covered / (covered.max() or 1.0) * span, cosine)
    spaces = np.array([each.space for each in rows.facts])
    likeness = _likeness(search.question, rows)
    return replace(rows, cosine=cosine, bm25=_comparable(rows.bm25, spaces, search.sizes), likeness=likeness)


def _comparable(bm25: Column, spaces: NDArray[np.int64], sizes: Mapping[int, int]) -> Column:
    """Scale the candidates' BM25 for comparison across spaces. `sizes` are the numbers of memories in the spaces. BM25
    weighs a word by its rarity, which grows with the logarithm of the space's size, so scores are divided by that
    logarithm and by the best score. In a space of three memories, no word is rare: the smaller the space, the more its
    own best score replaces this scale."""
    if not bm25.any():
        return bm25
    scaled, own, trust = bm25.copy(), np.ones(len(bm25)), np.ones(len(bm25))
    for space in set(spaces.tolist()):
        its, size = spaces == space, sizes[space]
        scaled[its] /= math.log(2.0 + size)
        own[its] = bm25[its].max() or 1.0
        trust[its] = size / (size + TRUSTED_SIZE)
    return np.asarray(trust * (scaled / scaled.max()) + (1.0 - trust) * (bm25 / own))


def _likeness(question: Question, rows: Rows) -> Column:
    """Return the cosines between memories, but 0 for a rule and another memory: neither replaces the other."""
    compared = np.flatnonzero(~np.isnan(rows.cosine))
    if not len(compared) or question.windows:  # facts from a named time are not outdated
        return np.zeros((0, 0))
    vectors = rows.vectors[compared]
    like = vectors @ vectors.T
    is_rule = np.array([each.kind in RULES for each in rows.facts[compared]])
    if is_rule.any():
        like = np.where(is_rule[:, None] == is_rule, like, 0.0)
    if question.numbered:
        # If a fact lacks a requested name that another fact contains, it is about something else.
        names = rows.words[compared][:, question.numbered].astype(np.float32)
        like = np.where(names @ (1.0 - names).T > 0.0, 0.0, like)
    likeness = np.zeros((len(rows), len(rows)))
    likeness[np.ix_(compared, compared)] = like
    return likeness


def _of_period(search: Search) -> Ranking:
    """Return the memories of the requested times, by their scores. Memories of the requested kinds come first (if no
    kind is named: events, then all except open ends), since their time makes them an answer."""
    view, question = search.view, search.question
    kinds = question.kinds or frozenset()
    within = dict.fromkeys(ref for window in question.windows for ref in view.happened_in(window, question.filters))
    facts = view.ranking_facts(within, question.filters)
    happened = [(ref, each) for ref, each in facts.items() if each.kind != SESSION_RECORD]
    if not happened:
        return Ranking((), "hybrid", 0)
    happened.sort(key=lambda item: (item[1].kind not in kinds, -item[1].importance, -item[1].happened_at))
    rows = describe(search, dict(happened[:MAX_OF_PERIOD]))
    weighed = weigh_rows(search, rows, "keyword" if search.vector is None else "hybrid")
    asked_for = [each.kind in kinds if kinds else each.kind != OPEN_END for each in rows.facts]
    events = [each.is_event and not kinds for each in rows.facts]
    best = zip(asked_for, events, weighed.scores, weighed.probabilities, rows.refs.tolist(), strict=True)
    scored = [
        (ref, Scores(final=float(len(rows) - place), relevance=ANSWERS_BY_TIME if is_asked_for else float(probability)))
        for place, (is_asked_for, *_, probability, ref) in enumerate(sorted(best, reverse=True))
    ]
    return Ranking(scored, "hybrid", len(scored))
