"""Answers a recall: parses the question, finds candidates, ranks them, and removes duplicates."""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from concurrent.futures import Executor
from dataclasses import replace
from functools import cached_property
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from remembrancer.actors.store.records.types import MemoryRecord, RankingFacts, Vectors, is_memory
from remembrancer.actors.store.retrieval.candidates import (
    Rows,
    Searches,
    comparable,
    describe,
    find_candidates,
    find_words,
)
from remembrancer.actors.store.retrieval.graph import Graph
from remembrancer.actors.store.retrieval.graph_search import connections
from remembrancer.actors.store.retrieval.once import Entry, Ranked, as_recalled, shortlist
from remembrancer.actors.store.retrieval.question import Question, read_question
from remembrancer.actors.store.retrieval.view import Ref, View
from remembrancer.memory.decay import has_ended
from remembrancer.memory.features import (
    EXPIRED,
    NAMES,
    OF_A_RULE,
    RULES,
    Candidates,
    Column,
    coverage,
    rarity,
    standing,
)
from remembrancer.memory.pagerank import DAMPING, personal_pagerank
from remembrancer.memory.profiles import PROFILES, scope_shares
from remembrancer.memory.ranking import (
    COMPOSITE,
    CONNECTED,
    PAGERANK,
    Weighed,
    fitted_for,
    weigh,
)
from remembrancer.memory.times.windows import nearness
from remembrancer.protocol.errors import EmbeddingUnavailable
from remembrancer.protocol.kinds import SESSION_RECORD
from remembrancer.protocol.reads import Recall, Recalled, RecalledMemory, Scores
from remembrancer.protocol.wire import Notice

MOST_OF_A_TIME: Final = 200
"""The number of memories that are ranked for a question about everything of a time, most important first."""
ANSWERS_BY_TIME: Final = 0.9
"""The probability that a memory of the requested kind and time answers: in three invented weeks, 24 of 27 did."""
BROUGHT: Final = 10
"""The number of memories that PageRank adds to the candidates."""
PAGERANK_SEEDS: Final = 20
MOST_COUNTED: Final = 1000
"""The limit on counting each kind of edge at a memory where a walk starts."""
LEAST_SHARE: Final = 0.03
"""The least share of the walk that counts. Memories with less depend on names that many memories have, such as the
speakers' names."""
ROUNDED: Final = 9
"""The decimals of a score; more are rounding errors, which would order what is equal."""
LEAST_RECEIVED: Final = 1e-9
"""Anything less is rounding error."""


async def recall(
    request: Recall,
    view: View,
    embed: Callable[[str], Awaitable[Vectors]],
    threads: Executor,
    now: float,
) -> tuple[Recalled, list[MemoryRecord]]:
    """Answer a recall. Also returns the memories in the answer, whose accesses the caller counts.

    `embed` returns the query's vector, or raises `EmbeddingUnavailable`. If the vectors cannot be searched, words are,
    even if only vectors were requested.
    """
    started = time.perf_counter()
    loop = asyncio.get_running_loop()
    running = RunningRecall(request, view, now)
    vector = None if request.strategy == "keyword" else asyncio.create_task(running.make_vector(embed))
    try:
        await asyncio.sleep(0)  # the embedding request goes first, so that it runs while the words are searched
        await loop.run_in_executor(threads, running.find_words)
        if vector is not None:
            await vector
    finally:  # the vector is not needed if the memories cannot be read
        if vector is not None:
            vector.cancel()
    answer, seen = await loop.run_in_executor(threads, lambda: running.answer(running.rank()))
    return msgspec.structs.replace(answer, query_time_ms=(time.perf_counter() - started) * 1000), seen


class RunningRecall:
    """A recall in progress: its question, the view that it searches, and its findings so far.

    Its methods run on worker threads, one after the other; only `make_vector` runs on the event loop.
    """

    def __init__(self, request: Recall, view: View, now: float) -> None:
        self._request = request
        self._view = view
        self._now = now
        self._vector: Vectors | None = None
        self._strategy = request.strategy
        self._searches: Searches = {}
        self._graph: Mapping[Ref, float] = {}
        self._vectors: Mapping[Ref, Vectors] = {}
        self._below = 0
        self._cut_off: list[tuple[Ref, Scores]] = []
        """The candidates below the threshold, if requested."""

    @cached_property
    def question(self) -> Question:
        """The parsed question. It is parsed on the thread that searches words, while the vector is made."""
        return read_question(self._request, self._now)

    async def make_vector(self, embed: Callable[[str], Awaitable[Vectors]]) -> None:
        """Get the query's vector, or add a notice if there is none."""
        try:
            self._vector = await embed(self._request.query)
        except EmbeddingUnavailable as error:
            self._view.notices.append(Notice(error.code, error.effect))

    def find_words(self) -> None:
        """Search by words, and do everything else that does not need the question's vector."""
        self._searches = find_words(self._view, self.question)

    def rank(self) -> Ranked:
        """Return the candidates that may answer, best first."""
        question = self.question = replace(self.question, vector=self._vector)
        if question.windows and self._request.strategy == "hybrid" and question.period is not None:
            happened = self._of_period()
            if happened:
                return happened
        rows, by_meaning = self.candidates()
        if self._request.about:
            rows = rows.followed_by(self._asked_about(rows))
        self._vectors = {
            rows.refs[place]: rows.vectors[place] for place in np.flatnonzero(~np.isnan(rows.cosine)).tolist()
        }
        return self._cut(rows, self.weighed(rows, by_meaning=by_meaning))

    def candidates(self) -> tuple[Rows, bool]:
        """Return the candidates, with those that the graph adds, and whether meaning was searched."""
        request, question = self._request, self.question
        found = find_candidates(self._view, question, self._searches)
        if question.vector is not None and not found.whole:
            text = "The vector index is still being opened: part of the search was by words only."
            self._view.notices.append(Notice("partial_results", text))
        by_meaning, rows = question.vector is not None and found.by_meaning, found.rows
        if SESSION_RECORD not in request.kinds:
            rows = rows.take([place for place, each in enumerate(rows.facts) if each.kind != SESSION_RECORD])
        if request.strategy == "graph":
            connected = self._connected(rows)
            if connected is not None:
                return connected, by_meaning
            text = "The query names no known entity: it was searched by meaning and words."
            self._view.notices.append(Notice("no_entity", text))
            self._strategy = "hybrid"
        if not by_meaning:
            self._strategy = "keyword"
        elif not found.whole:
            self._strategy = "hybrid"
        leaves_something_open = not rows.words.all(axis=1).any()
        if request.ranking == "pagerank" or (self._strategy == "hybrid" and leaves_something_open):
            rows = self._walked(rows, by_meaning=by_meaning)
        return rows, by_meaning

    def weighed(self, rows: Rows, *, by_meaning: bool) -> Weighed:
        """Return the scores and probabilities of candidates, in their order."""
        request = self._request
        formula: Mapping[str, float] | None = None
        if self._strategy == "graph":
            formula = CONNECTED
        elif request.ranking == "pagerank":
            formula = PAGERANK
        elif request.ranking == "composite":
            formula = COMPOSITE
        of = self.columns(rows)
        if self._strategy == "vector":
            of = replace(of, bm25=np.zeros(len(of)), coverage=np.zeros(len(of)), names_missed=np.zeros(len(of)))
        fitted = fitted_for(self._view.model or "" if by_meaning else None)
        factors = None
        if request.profile is not None:
            shares = scope_shares(PROFILES[request.profile], {each.scope for each in rows.facts})
            factors = np.array([shares[each.scope] for each in rows.facts])
        return weigh(of, self.question.asked, fitted, formula, factors)

    def columns(self, rows: Rows) -> Candidates:
        """Return the feature columns of the candidates."""
        if not len(rows):
            return Candidates.of(0)
        question, facts, found = self.question, rows.facts, self._searches.values()
        sizes = {space: each.size for space, each in self._searches.items()}
        frequencies = [sum(map(len, postings)) for postings in zip(*(each.postings for each in found), strict=True)]
        weights = np.array(rarity(frequencies, sum(sizes.values())))
        numbered, windows, asked_at = sorted(question.numbered), question.windows, question.asked.asked_at
        happened_at = [each.happened_at for each in facts]
        may_be_replaced = np.array([_may_be_replaced(each) for each in facts])
        is_rule = np.array([each.kind in RULES for each in facts])
        covered = coverage(rows.words, weights)
        standings = np.array([standing(each.status, each.valid_until, asked_at) for each in facts])
        return Candidates(
            cosine=rows.cosine,
            opening=rows.opening,
            bm25=comparable(rows, sizes),
            coverage=covered,
            context_cosine=rows.context_cosine,
            context_coverage=np.where(rows.has_context, coverage(rows.context_words, weights), np.nan),
            names_missed=1.0 - rows.words[:, numbered].mean(axis=1) if numbered else np.zeros(len(rows)),
            nearness=np.array([nearness(each, windows) for each in happened_at]) if windows else np.zeros(len(rows)),
            happened_at=np.array(happened_at),
            importance=np.array([each.importance for each in facts]),
            standing=standings + np.where(is_rule & (standings < EXPIRED), OF_A_RULE * (1.0 - covered), 0.0),
            is_fact=may_be_replaced.astype(float),
            by_assistant=np.array([float(each.by_assistant) for each in facts]),
            graph=np.array([self._graph.get(ref, 0.0) for ref in rows.refs]),
            likeness=self._likeness(rows, may_be_replaced, is_rule),
        )

    def _likeness(self, rows: Rows, may_be_replaced: NDArray[np.bool_], is_rule: NDArray[np.bool_]) -> Column:
        """Return the cosines between facts, where one may have been replaced by another: no rule replaces a fact."""
        facts = np.flatnonzero(may_be_replaced & ~np.isnan(rows.cosine))
        if not len(facts) or self.question.windows:  # facts from a named time are not outdated
            return np.zeros((0, 0))
        vectors = rows.vectors[facts]
        like = vectors @ vectors.T
        if is_rule.any():
            like = np.where(is_rule[facts][:, None] == is_rule[facts], like, 0.0)
        if numbered := sorted(self.question.numbered):
            # A fact without a requested name that another one has is about something else.
            names = rows.words[facts][:, numbered].astype(np.float32)
            like = np.where(names @ (1.0 - names).T > 0.0, 0.0, like)
        if len(facts) == len(rows):
            return np.asarray(like, dtype=np.float64)
        likeness = np.zeros((len(rows), len(rows)))
        likeness[np.ix_(facts, facts)] = like
        return likeness

    def answer(self, ranked: Ranked) -> tuple[Recalled, list[MemoryRecord]]:
        """Return the answer for a ranking, and the memories in it."""
        request, question = self._request, self.question
        is_of_a_time = bool(question.windows)
        entries, left_out = shortlist(
            self._view, ranked, question.filters, request.limit, self._now, self._vectors, of_a_time=is_of_a_time
        )
        answer = Recalled(
            memories=tuple(
                RecalledMemory(
                    **entry.record.listed() | {"tags": entry.tags},
                    scores=entry.scores,
                    strength=entry.strength,
                    found_in=entry.found_in,
                    expired=has_ended(entry.record.valid_until, question.asked.asked_at),
                    stands_for=entry.stands_for,
                )
                for entry in entries
            ),
            total_matched=len(ranked) - left_out,
            below_threshold=self._below,
            strategy_used=self._strategy,
            query_time_ms=0.0,
            profile=request.profile,
            left_out=self._left_out(ranked, {entry.ref for entry in entries}) if request.left_out else (),
            short_ids={} if request.scopes or request.sources else self._view.reader.short_forms(_ids_in(entries)),
        )
        return answer, [entry.record for entry in entries]

    def _cut(self, rows: Rows, weighed: Weighed) -> Ranked:
        """Return the candidates that may answer, best first, with their scores.

        Memories for a task need not answer it, so none are cut.
        """
        request = self._request
        by_formula = self._strategy == "graph" or request.ranking != "fitted"
        least = 0.0 if request.is_task else weighed.least_probability
        ranked: list[tuple[Ref, Scores]] = []
        probabilities, finals = weighed.probabilities.tolist(), weighed.scores.round(ROUNDED)
        rounded = weighed.shares.round(3).tolist()
        order = np.lexsort((np.array(rows.refs, dtype=np.int64), -finals))
        may_answer = weighed.probabilities >= least
        self._below = len(rows) - int(np.count_nonzero(may_answer))
        for place in (order if request.left_out else order[may_answer[order]]).tolist():
            score, cosine = float(finals[place]), float(rows.cosine[place])
            shares = zip(NAMES, rounded[place], strict=True)
            scores = Scores(
                final=score,
                relevance=min(1.0, max(0.0, score)) if by_formula else probabilities[place],
                shares={name: share for name, share in shares if share},
                cosine=cosine if request.is_task and not math.isnan(cosine) else None,
            )
            (ranked if may_answer[place] else self._cut_off).append((rows.refs[place], scores))
        return ranked

    def _asked_about(self, rows: Rows) -> Rows:
        """Return the memory that the request asks about as a candidate, found or not, if it passes the filters."""
        ref = self._view.find(self._request.about)
        asked = [] if ref is None or ref in rows.refs else [ref]
        return self._described(self._view.ranking_facts(asked, self.question.filters))

    def _left_out(self, ranked: Ranked, shown: Collection[Ref]) -> tuple[RecalledMemory, ...]:
        """Return the best candidates that are not shown, and the memory that the request asks about."""
        others = [each for each in (*ranked, *self._cut_off) if each[0] not in shown]
        others.sort(key=lambda item: (-item[1].final, item[0]))
        about = self._view.find(self._request.about) if self._request.about else None
        best = [each for place, each in enumerate(others) if place < self._request.left_out or each[0] == about]
        records = self._view.load([ref for ref, _ in best], self.question.filters)
        return tuple(as_recalled(records[ref], scores) for ref, scores in best if ref in records)

    def _connected(self, rows: Rows) -> Rows | None:
        """Return the memories connected with an entity that the query names. None: it names none."""
        graph = self._view.graph(self._request.session_id, self._now)
        facts = dict(zip(rows.refs, rows.facts, strict=True))
        links = connections(graph, self._request.query, self.question.filters, facts)
        if links is None:
            return None
        self._graph = {ref: near for ref, (_, near) in links.items()}
        rows = rows.followed_by(self._described({ref: known for ref, (known, _) in links.items() if ref not in facts}))
        places = {ref: place for place, ref in enumerate(rows.refs)}
        return rows.take([places[ref] for ref in links])

    def _described(self, facts: Mapping[Ref, RankingFacts]) -> Rows:
        return describe(self._view, self.question, self._searches, facts)

    def _walked(self, rows: Rows, *, by_meaning: bool) -> Rows:
        """Return the candidates, and the `BROUGHT` best memories that PageRank adds to them."""
        graph = self._view.graph(self._request.session_id, self._now)
        if not len(rows):
            return rows
        probabilities = self.weighed(rows, by_meaning=by_meaning).probabilities.tolist()
        ranks = page_ranks(dict(zip(rows.refs, probabilities, strict=True)), graph)
        # The ranking `pagerank` scales the largest value to 1.
        most = max(ranks.values(), default=1.0) if self._request.ranking == "pagerank" else 1.0
        self._graph = {ref: rank / most for ref, rank in ranks.items()}
        others = sorted(self._graph.keys() - set(rows.refs), key=lambda ref: (-self._graph[ref], ref))
        brought = self._view.ranking_facts(others[:BROUGHT], self.question.filters)
        return rows.followed_by(self._described(brought))

    def _of_period(self) -> Ranked:
        """Return the memories of the requested times, by their scores. Those of the requested kinds (all, if none are
        named) come first, since they answer by their time."""
        question, period = self.question, self.question.period
        kinds = frozenset() if period is None else period.kinds
        within = dict.fromkeys(
            ref for window in question.windows for ref in self._view.happened_in(window, question.filters)
        )
        facts = self._view.ranking_facts(within, question.filters)
        happened = [(ref, each) for ref, each in facts.items() if each.kind != SESSION_RECORD]
        happened.sort(key=lambda item: (item[1].kind not in kinds, -item[1].importance, -item[1].happened_at))
        rows = self._described(dict(happened[:MOST_OF_A_TIME]))
        weighed = self.weighed(rows, by_meaning=question.vector is not None)
        asked_for = [not kinds or each.kind in kinds for each in rows.facts]
        best = sorted(zip(asked_for, weighed.scores, weighed.probabilities, rows.refs, strict=True), reverse=True)
        return [
            (
                key,
                Scores(
                    final=float(len(best) - place),
                    relevance=ANSWERS_BY_TIME if is_asked_for else float(probability),
                ),
            )
            for place, (is_asked_for, _, probability, key) in enumerate(best)
        ]


def page_ranks(relevance: Mapping[Ref, float], graph: Graph) -> dict[Ref, float]:
    """Return the PageRank of the memories around the best candidates, in [0, 1]; empty if none of these has an edge.

    The walk starts at the most relevant memories with edges, weighted by relevance. A memory's rank is the share that
    it receives from others, divided by the largest share of any but the best seed: its own seed repeats its relevance,
    and the flow between the best seed and its entities says nothing new. All ranks are lower the less relevant the best
    seed is than the best candidate, and the more memories share the connecting entities.
    """
    first = sorted(filter(is_memory, relevance), key=lambda key: (-relevance[key], key))[:PAGERANK_SEEDS]
    around = graph.look(dict.fromkeys(first, MOST_COUNTED))
    # A memory that names everything says little about each.
    seeds: dict[Ref | str, float] = {
        key: relevance[key] ** 2 / math.sqrt(degree)
        for key in first
        if relevance[key] > 0.0 and (degree := around.degrees.get(key, 0))
    }
    if not seeds:
        return {}
    best = next(iter(seeds))
    own = (1.0 - DAMPING) / sum(seeds.values())
    ranks = personal_pagerank(seeds, graph, known=around)
    received = {
        node: got
        for node, rank in ranks.items()
        if not isinstance(node, str) and (got := rank - own * seeds.get(node, 0.0)) > LEAST_RECEIVED
    }
    most = max((got for node, got in received.items() if node != best), default=0.0)
    trust = max(relevance[key] for key in first if key in seeds) / max(relevance.values())
    return {node: trust * min(1.0, got / max(most, LEAST_SHARE)) for node, got in received.items()} if most else {}


def _ids_in(entries: Iterable[Entry]) -> set[str]:
    """Return all ids of memories in an answer's entries."""
    return {
        memory_id
        for entry in entries
        if is_memory(entry.ref)
        for memory_id in (
            entry.record.id,
            *entry.record.near_duplicates,
            *entry.record.derived_from,
            *entry.record.superseded_by,
            *entry.record.possibly_superseded_by,
            *entry.stands_for,
        )
    }


def _may_be_replaced(facts: RankingFacts) -> bool:
    """True for a memory that is valid until a later one replaces it. Events stay as they were."""
    return facts.type != "episodic" or facts.kind == "decision"
