"""How a recall is answered: the scopes side by side, fusion, ranking, and a plain word about what is missing."""

from __future__ import annotations

import asyncio
import itertools
import math
import re
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from functools import partial
from typing import Final, cast

import msgspec

from remembrancer.actors.store.records.contract import RankingFacts, Records, Vectors
from remembrancer.actors.store.retrieval.candidates import (
    CANDIDATES,
    Found,
    Question,
    Source,
    WordsFound,
    cosines_of,
    find_candidates,
    find_words,
)
from remembrancer.actors.store.retrieval.graph_ranks import page_ranks
from remembrancer.actors.store.retrieval.graph_search import connections
from remembrancer.actors.store.retrieval.joined_graph import JoinedGraph
from remembrancer.actors.store.retrieval.keywords import (
    fragment_of,
    phrase_groups,
    phrases_of,
    units_of,
    word_for_word,
)
from remembrancer.actors.store.retrieval.reranking import Reranking, texts_of
from remembrancer.actors.store.retrieval.shortlist import Place, Ranked, as_recalled, passages_of, shortlist
from remembrancer.memory.handovers import HANDOVER, asks_where_it_stopped
from remembrancer.memory.profiles import PROFILES, choose_profile
from remembrancer.memory.ranking import (
    ASSISTANT_SHARE,
    DEFAULT_WEIGHTS,
    Signals,
    Weights,
    answerable_cosine,
    asks_of_the_user,
    boosted,
    first_of,
    has_ended,
    is_unlikely,
    neighbour_boosts,
    noise,
    pagerank_relevances,
    recency,
    relevances,
    scope_factors,
    score,
    side_by_side,
    standing,
    timely,
    verbatim_first,
    with_graph_boosts,
    words_tell,
)
from remembrancer.memory.relevance import ANSWERS, Evidence, coverage, margins, probability, rarity, unlikely
from remembrancer.memory.stop_words import ENGLISH, ENGLISH_STOP_WORDS, language_of
from remembrancer.memory.times.phrases import COUNTS, UNITS
from remembrancer.memory.times.windows import TimeWindow, nearness, time_windows, without_times, zone_of
from remembrancer.protocol.errors import EmbeddingUnavailable
from remembrancer.protocol.kinds import SCOPES
from remembrancer.protocol.reads import Notice, ProfileName, Recall, Recalled, Scores
from remembrancer.protocol.tracing import current

HANDOVERS: Final = 3
"""Sessions of which is told where they stopped."""
ASIDE: Final = 24
"""Memories that hardly answer and are looked at, as they may have replaced what does."""
BROUGHT: Final = 10
"""Memories that PageRank brings beside the candidates."""
CONNECTED: Final = 0.8
MOST_CONNECTED: Final = 2
"""So many facts that hardly answer by themselves are shown for what PageRank makes of them, if that is so much."""
CONNECTED_SHARE: Final = 0.5
"""They answer with this share of the best one's probability."""
SHORT: Final = 300
"""Characters of a fact that is shown only if it is likely to answer."""
COMPARED: Final = 100_000
"""Characters of a memory in which the question is looked for word for word."""
WITHIN: Final = 0.5
"""What is as near to a time that the question names is not left out, nor is what has a name of it as a whole."""
ASKED: Final = 16
"""Words of a question. What has more of them is a text, for which something is looked for that has to do with it."""
NEAR_BY: Final = 6
"""So many memories near a question whose language is known tell that it is in another one."""
SURE: Final = 0.5
"""A likelier answer is one, whatever language it is in."""
WORTH_A_THREAD: Final = 2000
"""Memories of a file that is searched beside the first one; a smaller one is sooner done after it."""


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
    running = RunningRecall(request, sources, threads, now, weights)
    vector = None if request.strategy == "keyword" else asyncio.create_task(running.make_vector(embed))
    try:
        await asyncio.sleep(0)  # the worker is asked first: it makes the vector while the words are searched
        await loop.run_in_executor(threads, running.find_words)
        if vector is not None:
            await vector
    finally:  # nobody waits for the vector where a file cannot be read
        if vector is not None:
            vector.cancel()
    if reranking is None:  # one turn on the threads, not three
        answer, seen = await loop.run_in_executor(threads, lambda: running.answer(running.rank()))
        running.trace.mark("back on the loop")
    else:
        ranked = await loop.run_in_executor(threads, running.rank)
        head = ranked[: reranking.candidates]
        read = partial(texts_of, request.query, running.vector, sources, head, request.filters)
        reading = partial(loop.run_in_executor, threads, read)
        ranked = await reranking.reranked(request.query, ranked, reading, running.notices)
        answer, seen = await loop.run_in_executor(threads, running.answer, ranked)
    return msgspec.structs.replace(answer, query_time_ms=(time.perf_counter() - started) * 1000), seen


class RunningRecall:
    """One recall under way: what is asked and of which files, and what is found out on the way to its answer.

    Its methods run on the threads, one after the other, but for `make_vector`.
    """

    def __init__(
        self, request: Recall, sources: Sequence[Source], threads: Executor, now: float, weights: Weights
    ) -> None:
        self.vector: Vectors | None = None
        """The query's."""
        self.notices: list[Notice] = []
        self.trace = current()
        self._request = request
        self._sources = sources
        self._threads = threads
        self._now = now
        self._asked_at = now if request.reference_time is None else request.reference_time
        self._weights = weights.asked(request.query)
        self._filters = request.filters
        if request.valid_only:
            self._filters = msgspec.structs.replace(self._filters, valid_at=self._asked_at)
        self._strategy = request.strategy
        self._question = Question(request.strategy, (), (), (), None)
        self._fragment = ""
        """The question as it may stand in a memory word for word."""
        self._words: Sequence[WordsFound] = ()
        self._windows: Sequence[TimeWindow] = ()
        self._profile: ProfileName | None = None
        self._found: Sequence[Found] = ()
        self._cuts = False
        """Whether facts that hardly answer are left out."""
        self.evidence: dict[Place, Evidence] = {}
        """What speaks for each candidate."""
        self._matched: dict[Place, set[int]] = {}
        """Which of the question's units each candidate has, by their places."""
        self._verbatim: set[Place] = set()
        """The candidates that have the question word for word."""
        self._below = 0
        self._aside: Ranked = ()
        """The first of what hardly answers: it may have replaced what does."""

    async def make_vector(self, embed: Callable[[str], Awaitable[Vectors]]) -> None:
        """Have the query's vector made, or say why there is none."""
        try:
            self.vector = await embed(self._request.query)
        except EmbeddingUnavailable as error:
            text = f"Only words were searched, not meaning: {error.message}. (keyword_only)"
            self.notices.append(Notice("embedding_failed", text))

    def find_words(self) -> None:
        """Read the question, and find what each file has by words: all that can be done without its vector."""
        began = time.monotonic()
        request = self._request
        self._fragment, in_words = fragment_of(request.query)
        units = units_of(request.query)
        self._question = Question(request.strategy, phrases_of(request.query), units, in_words, None)
        self._words = [find_words(source.records, self._question, self._filters) for source in self._sources]
        if len(set(request.scopes or SCOPES)) > 1:
            in_project = sum(each.sizes.scopes.get("project", 0) for each in self._words)
            self._profile = request.profile or choose_profile(request.query, in_project)
        zone = zone_of(request.reference_time, request.utc_offset_s)
        self._windows = time_windows(request.query, self._asked_at, zone)
        self.trace.part("words searched", began)

    def rank(self) -> Ranked:
        """The candidates that may answer, best first."""
        ranked = self._without_unlikely(self.candidates())
        if self._request.strategy == "hybrid" and asks_where_it_stopped(self._request.query):
            ranked = self._with_handovers(ranked)
        self.trace.mark("ranked")
        return ranked

    def candidates(self) -> Ranked:
        """All candidates that are not noise, best first."""
        request = self._request
        self.trace.mark("thread began")
        found = self._search()
        self.trace.mark("candidates found")
        if self.vector is not None and not all(each.by_meaning for each in found):
            text = "The vector index is still being opened: words alone were searched in part."
            self.notices.append(Notice("partial_results", text))
        connected = self._connected(found) if request.strategy == "graph" else None
        if connected is not None:
            found = connected
        else:
            if request.strategy == "graph":
                text = "The query names no known entity: meaning and words were searched."
                self.notices.append(Notice("no_entity", text))
                self._strategy = "hybrid"
            if self.vector is None or (found and not any(each.by_meaning for each in found)):
                self._strategy = "keyword"
            elif not all(each.by_meaning for each in found):
                self._strategy = "hybrid"
        if self._windows and request.strategy == "hybrid" and asks_what_happened(request.query):
            happened = [self._of_times(source, self._windows) for source in self._sources]
            if any(each.facts for each in happened):
                return self._scored(happened, self._windows, by_time=True)
        self._found, self._cuts = found, not (connected or request.is_task)
        return self._scored(found, self._windows, by_time=False)

    def answer(self, ranked: Ranked) -> tuple[Recalled, dict[int, list[int]]]:
        """What is answered with a ranking, and the numbers of the memories in it by their source's place."""
        request = self._request
        entries, left_out = shortlist(
            self._sources,
            ranked,
            self._filters,
            request.limit,
            self._now,
            aside=self._aside,
            of_a_time=bool(self._windows),
        )
        passages = {}
        if request.with_passages:
            passages = passages_of(request.query, self.vector, self._sources, {e.place: e.record for e in entries})
        seen: dict[int, list[int]] = {}
        for entry in entries:
            seen.setdefault(entry.place[0], []).append(entry.place[1])
        answer = Recalled(
            memories=tuple(
                msgspec.structs.replace(
                    as_recalled(entry.record, entry.scores),
                    tags=entry.tags,
                    strength=entry.strength,
                    found_in=entry.found_in,
                    expired=has_ended(entry.record.valid_until, self._asked_at),
                    stands_for=entry.stands_for,
                    passages=passages.get(entry.place, ()),
                )
                for entry in entries
            ),
            total_matched=len(ranked) - left_out,
            below_threshold=self._below,
            strategy_used=self._strategy,
            query_time_ms=0.0,
            notices=tuple(self.notices),
            profile=self._profile,
        )
        self.trace.mark("shortlist loaded")
        return answer, seen

    def _search(self) -> list[Found]:
        """Each file's candidates. A large file is searched beside the first one: most of the work is SQLite's and the
        index's, which let others run."""
        question = replace(self._question, vector=self.vector)
        begun = {
            place: self._threads.submit(find_candidates, source, question, self._filters, self._words[place])
            for place, source in enumerate(self._sources)
            if place and self._words[place].sizes.memories > WORTH_A_THREAD
        }
        found: list[Found] = []
        for place, source in enumerate(self._sources):
            search = begun.get(place)
            # What no thread has begun is done here: nobody waits for a thread that waits itself.
            if search is None or search.cancel():
                found.append(find_candidates(source, question, self._filters, self._words[place]))
            else:
                found.append(search.result())
        return found

    def _connected(self, found: Sequence[Found]) -> list[Found] | None:
        """Of each file the memories that are connected with an entity that the query names, with all their signals.

        None: it names none.
        """
        records = [cast(Records, source.records) for source in self._sources]  # nothing else has a graph
        graph = JoinedGraph([each.graph for each in records], self._request.session_id)
        links = connections(graph, self._request.query, self._filters, [each.facts for each in found])
        if links is None:
            return None
        connected: list[Found] = []
        for source, each, named in zip(self._sources, found, links, strict=True):
            cosines = self._cosines(source, [number for number in named if number not in each.facts])
            signals: dict[int, Signals] = {}
            for number, (_, near) in named.items():
                seen = each.signals.get(number) or Signals(cosines.get(number), None)
                signals[number] = msgspec.structs.replace(seen, graph=near)
            facts = {number: known for number, (known, _) in named.items()}
            connected.append(Found(each.by_meaning, signals, facts, each.sizes, {}))
        return connected

    def _with_handovers(self, ranked: Ranked) -> Ranked:
        """Where the last sessions stopped, the latest first, and then what was found."""
        filters = msgspec.structs.replace(self._filters, tags=(HANDOVER,))
        found: list[Found] = []
        for source in self._sources:
            facts = source.records.ranking_facts(source.records.top(filters, "latest", HANDOVERS), filters)
            found.append(self._looked_up(source, {key: each for key, each in facts.items() if each.status == "active"}))
        scored = self._scored(found, (), by_time=True)
        first = sorted(scored, key=lambda item: -found[item[0][0]].facts[item[0][1]].happened_at)
        known = {key for key, _ in first}
        return [*first[:HANDOVERS], *(item for item in ranked if item[0] not in known)]

    def _of_times(self, source: Source, windows: Sequence[TimeWindow]) -> Found:
        """What happened in the windows of what is in one file; where that is much, the most important of it."""
        records, filters = source.records, self._filters
        numbers: dict[int, None] = {}
        for window in windows:
            after = max(window.start, -math.inf if filters.after is None else filters.after)
            before = min(math.nextafter(window.end, -math.inf), math.inf if filters.before is None else filters.before)
            within = msgspec.structs.replace(
                filters, after=None if math.isinf(after) else after, before=None if math.isinf(before) else before
            )
            all_of_it = records.matching(within, CANDIDATES)
            numbers |= dict.fromkeys(records.top(within, "important", CANDIDATES) if all_of_it is None else all_of_it)
        return self._looked_up(source, records.ranking_facts(list(numbers), filters) if numbers else {})

    def _looked_up(self, source: Source, facts: dict[int, RankingFacts]) -> Found:
        """Memories of a file that no search has found, with how near they are to the query."""
        cosines = self._cosines(source, list(facts))
        signals = {number: Signals(cosines.get(number), None) for number in facts}
        by_meaning = self.vector is None or source.passages is not None
        return Found(by_meaning, signals, facts, source.records.sizes(), {})

    def _cosines(self, source: Source, numbers: Sequence[int]) -> dict[int, float]:
        if self.vector is None or source.passages is None:
            return {}
        return cosines_of(source.records, source.passages, self.vector, numbers)

    def _scored(self, found: Sequence[Found], windows: Sequence[TimeWindow], *, by_time: bool) -> Ranked:
        """All candidates that are not noise, best first, each with the probability that it answers.

        `by_time`: the candidates are relevant for their time, and their meaning decides between them; none is noise,
        and no probability is known.
        """
        signals = side_by_side(
            [{number: each.signals[number] for number in each.facts} for each in found],
            [each.sizes.memories for each in found],
        )
        facts: dict[Place, RankingFacts] = {
            (place, number): fact for place, each in enumerate(found) for number, fact in each.facts.items()
        }
        estimates: dict[Place, float] = {}
        by_pagerank = self._request.ranking == "pagerank" and not by_time
        walks = (by_pagerank or self._request.strategy == "hybrid") and self._strategy != "graph" and not by_time
        if not by_time:
            answerable = answerable_cosine(sum(each.sizes.passages for each in found))
            by_words = not is_unlikely(signals, answerable) or self._words_tell(found)
            for key in (unfit := noise(signals, by_words=by_words, answerable=answerable)):
                del signals[key]
            self._below = len(unfit)
            if walks:
                found, signals, facts = self._walked(found, signals, facts)
                self._found = found
            self.evidence = self._evidence(found, signals, facts)
            estimates = {key: probability(each) for key, each in self.evidence.items()}
        own = pagerank_relevances(signals) if by_pagerank else relevances(signals, self._strategy)
        boosts: dict[Place, float] = {}
        if self._strategy == "hybrid" and not by_pagerank:
            around = (
                ((place, number), {(place, other): steps for other, steps in others.items()})
                for place, each in enumerate(found)
                for number, others in each.around.items()
            )
            long = {key for key, signal in signals.items() if signal.head is not None}
            boosts = neighbour_boosts(own, around, long)
        lifts = boosts if by_pagerank or not walks else with_graph_boosts(boosts, signals)
        near = {key: nearness(facts[key].happened_at, windows) for key in signals} if windows else {}
        relevance = {key: (1.0 + own[key]) / 2.0 for key in own} if by_time else timely(boosted(own, lifts), near)
        if asks_of_the_user(self._request.query):
            relevance = {
                key: own * (ASSISTANT_SHARE if facts[key].by_assistant else 1.0) for key, own in relevance.items()
            }
        if self._strategy != "vector" and not by_time:
            relevance = verbatim_first(relevance, self._verbatim)
        best_bm25 = max((signal.bm25 or 0.0 for signal in signals.values()), default=0.0)
        scopes = {facts[key].scope for key in signals}
        factors = {} if self._profile is None else scope_factors(PROFILES[self._profile], scopes)
        ranked: list[tuple[Place, Scores]] = []
        for key, signal in signals.items():
            fact = facts[key]
            scores = score(
                signal,
                relevance[key],
                best_bm25,
                fact.importance,
                recency(fact.happened_at, self._asked_at),
                self._weights,
                scope=factors.get(fact.scope),
                stands=standing(fact.status, fact.valid_until, self._asked_at),
                neighbour=boosts.get(key),
                time=near.get(key),
                probability=estimates.get(key),
            )
            ranked.append((key, scores))
        ranked.sort(key=lambda item: (-item[1].final, item[0]))
        return ranked

    def _walked(
        self, found: Sequence[Found], signals: Mapping[Place, Signals], facts: Mapping[Place, RankingFacts]
    ) -> tuple[Sequence[Found], dict[Place, Signals], dict[Place, RankingFacts]]:
        """The candidates with their PageRank, and what it brings beside them: of that the `BROUGHT` best."""
        graphs = {place: graph for place, source in enumerate(self._sources) if (graph := source.graph) is not None}
        ranks = page_ranks(signals, graphs, self._request.session_id)
        with_ranks = {key: msgspec.structs.replace(each, graph=ranks.get(key)) for key, each in signals.items()}
        others = sorted((key for key in ranks if key not in signals), key=lambda key: (-ranks[key], key))[:BROUGHT]
        together: list[Found] = []
        for place, (source, each) in enumerate(zip(self._sources, found, strict=True)):
            numbers = [number for own, number in others if own == place]
            new = source.records.ranking_facts(numbers, self._filters) if numbers else {}
            cosines = self._cosines(source, list(new))
            its = {number: Signals(cosines.get(number), None, ranks[place, number]) for number in new}
            with_ranks |= {(place, number): signal for number, signal in its.items()}
            together.append(replace(each, signals={**each.signals, **its}, facts={**each.facts, **new}))
        new_facts = {
            (place, number): fact for place, each in enumerate(together) for number, fact in each.facts.items()
        }
        return together, with_ranks, {**facts, **new_facts}

    def _evidence(
        self, found: Sequence[Found], signals: Mapping[Place, Signals], facts: Mapping[Place, RankingFacts]
    ) -> dict[Place, Evidence]:
        """What speaks for each candidate. Notes which words of the question it has, and which has it word for word."""
        query, units = self._request.query, self._question.units
        language = language_of(query) or (ENGLISH if query.isascii() else None)
        margin = margins(
            {
                (place, number): signal.meaning
                for place, each in enumerate(found)
                for number, signal in each.signals.items()
                if signal.meaning is not None
            }
        )
        frequencies = [sum(each) for each in zip(*(each.frequencies for each in self._words), strict=True)]
        weights = rarity(frequencies, sum(each.sizes.memories for each in found))
        for place, (source, words) in enumerate(zip(self._sources, self._words, strict=True)):
            numbers = [number for own, number in signals if own == place]
            if not numbers:
                continue
            matched = source.records.words_in(units, words.frequencies, numbers)
            self._matched |= {(place, number): places for number, places in matched.items()}
            whole = [number for number, places in matched.items() if len(places) == len(units)]
            if self._fragment and whole:
                whole.sort(key=lambda number: -(found[place].signals[number].bm25 or 0.0))
                for number, record in source.records.load(whole[:ASIDE], self._filters).items():
                    if self._fragment in word_for_word(record.content[:COMPARED]):
                        self._verbatim.add((place, number))
        numbered = self._numbered()
        nothing: set[int] = set()
        evidence: dict[Place, Evidence] = {}
        for key, signal in signals.items():
            fact, has = facts[key], self._matched.get(key, nothing)
            evidence[key] = Evidence(
                signal.meaning,
                margin.get(key, 0.0),
                coverage(has, weights),
                len(units),
                sum(place not in has for place in numbered) / len(numbered) if numbered else 0.0,
                None not in (language, fact.language) and language != fact.language,
                signal.head is not None,
                fact.type == "episodic",
            )
        return evidence

    def _numbered(self) -> list[int]:
        """The question's units that are names with a number in them."""
        return [place for place, each in enumerate(self._question.units) if any(map(str.isdigit, each[0].words))]

    def _without_unlikely(self, ranked: Ranked) -> Ranked:
        """The candidates without the facts that hardly answer.

        Of what happened, and of longer texts, several answer together and each a little: there noise alone is left out.
        """
        units, numbered = self._question.units, self._numbered()
        if self._cuts and len(units) <= ASKED:
            names = {place for place, each in enumerate(units) if len(each) > 1 or " " in each[0].words}
            names.update(numbered)
            facts: dict[Place, float] = {}
            spared: set[Place] = set()
            # A time in which most of them lie says nothing of any.
            is_telling = sum(scores.time or 0.0 for _, scores in ranked) < WITHIN * len(ranked)
            for key, scores in ranked:
                evidence, fact = self.evidence[key], self._found[key[0]].facts[key[1]]
                if fact.characters <= SHORT and not evidence.is_long and not evidence.is_event:
                    facts[key] = scores.probability or 0.0
                    is_meant = key in self._verbatim or not names.isdisjoint(self._matched.get(key, ()))
                    if is_meant or evidence.cosine is None or (is_telling and (scores.time or 0.0) >= WITHIN):
                        spared.add(key)
            gone = unlikely(facts) - spared
            joined = self._joined(ranked, gone)
            gone -= joined.keys()
            ranked = [
                (key, msgspec.structs.replace(scores, probability=joined[key]) if key in joined else scores)
                for key, scores in ranked
            ]
            if numbered and len(numbered) == len(units):  # of an identifier that is asked for a part is no match
                gone |= {key for key, _ in ranked if key not in self._matched}
            self._below += len(gone)
            self._aside = [item for item in ranked if item[0] in gone][:ASIDE]
        else:
            gone = set()
        self._note_language(ranked)
        return [item for item in ranked if item[0] not in gone] if gone else ranked

    def _joined(self, ranked: Ranked, gone: Collection[Place]) -> Mapping[Place, float]:
        """Those out of `gone` that the graph brings, with the probability that this makes of theirs: where a memory
        answers a part of the question, what is next to it may answer the rest.

        One that has all of the question's words leaves no rest. And what shares words with the question, but none that
        the best one lacks, was found by them already, and says less.
        """
        probabilities = {key: scores.probability or 0.0 for key, scores in ranked}
        best = max(ranked, key=lambda item: probabilities[item[0]], default=None)
        if best is None or probabilities[best[0]] < ANSWERS:
            return {}
        nothing: set[int] = set()
        known = self._matched.get(best[0], nothing)
        if len(known) == len(self._question.units):
            return {}
        near = {key: scores.graph for key, scores in ranked if key in gone and (scores.graph or 0.0) >= CONNECTED}
        joined = [key for key in near if not (has := self._matched.get(key, nothing)) or has - known]
        first = sorted(joined, key=lambda key: -(near[key] or 0.0))[:MOST_CONNECTED]
        least = CONNECTED_SHARE * probabilities[best[0]]
        return {key: max(least, probabilities[key]) for key in first}

    def _note_language(self, ranked: Ranked) -> None:
        """Say so if nothing is likely to answer and what is near the question is in another language."""
        guess = language_of(self._request.query)
        if guess is None or max((scores.probability or 0.0 for _, scores in ranked), default=0.0) >= SURE:
            return
        others: list[str] = []
        for place, found in enumerate(self._found):
            near = sorted(found.facts, key=lambda number: -(found.signals[number].meaning or 0.0))
            numbers = [*(number for (own, number), _ in ranked if own == place), *near][:ASIDE]
            others += [each for number in dict.fromkeys(numbers) if (each := found.facts[number].language)]
        if len(others) >= NEAR_BY and guess not in others:
            text = f"The question seems to be in another language ({guess}) than what is remembered near it."
            self.notices.append(Notice("other_language", f"{text} Such questions find little: ask in that language."))

    def _words_tell(self, found: Sequence[Found]) -> bool:
        """Whether words may speak where nothing answers by meaning: one of the candidates must have most of them."""
        groups = phrase_groups(self._request.query)
        for source, each in zip(self._sources, found, strict=True):
            hits = {number: each.signals[number].bm25 or 0.0 for number in each.facts if each.signals[number].bm25}
            if hits:
                matched = source.records.words_in(groups, source.records.frequencies(groups), first_of(hits))
                if any(words_tell(len(places), len(groups)) for places in matched.values()):
                    return True
        return False


# A question that names a time and nothing else: "what did we do last Saturday". None of its words is in what happened
# then, and nothing is near it by meaning. So what lies in its time is looked up.

_PAST_TEXT: Final = """
    did happened done changed learned learnt decided discussed worked talked told said met went been
    gemacht getan passiert geschehen besprochen gelernt entschieden fait passé arrivé appris décidé hicimos hice hizo
    pasó aprendimos decidimos
"""
_PAST: Final = frozenset(_PAST_TEXT.split())
"""One of them says that the question is about what was, not about what is to be done."""
_EMPTY_TEXT: Final = """
    happen go going gone do work working talk discuss decide learn change meet say tell make made
    anything everything something thing things stuff everyone someone anyone else still around back
    was wer wen wo wir ich du ihr haben habe hast hat sind bin ist es alles etwas an am im in
    que qu quoi avons nous ai j je tu as avez vous est s il c ce qui où on a le la les en au du
    qué hemos he ha se lo el los
"""
"""Words of such a question that say nothing of what is looked for, beside the stop words."""
_OF_TIMES: Final = frozenset(COUNTS) | frozenset(UNITS) | frozenset(f"{unit}s" for unit in UNITS)
_KNOWN: Final = ENGLISH_STOP_WORDS | _PAST | _OF_TIMES | frozenset(_EMPTY_TEXT.split())
_WORD: Final = re.compile(r"[^\W_]+")
_NAMED: Final = re.compile(r"[^\W\d_][+#]")
"""`C++` and `C#`."""
_BEFORE_A_SUBJECT_TEXT: Final = "about around in into of on over regarding to with über mit sur avec sobre con"
_BEFORE_A_SUBJECT: Final = frozenset(_BEFORE_A_SUBJECT_TEXT.split())
"""What follows one of them is what is looked for, though it may look like an empty word: "about go"."""
LONGEST_EMPTY_QUESTION: Final = 200
"""Characters. Who writes more asks for something."""


def asks_what_happened(query: str) -> bool:
    """Whether a question that names times asks for nothing but what happened then. Pure."""
    if len(query) > LONGEST_EMPTY_QUESTION:
        return False
    rest = without_times(query).replace("'ve", " ").replace("'s", " ")
    written = _WORD.findall(rest)
    if _NAMED.search(rest) or any(word != "I" and not word.islower() for word in written[1:] if not word.isdigit()):
        return False
    words = [word.casefold() for word in written]
    after = (word for before, word in itertools.pairwise(words) if before in _BEFORE_A_SUBJECT)
    if not (ENGLISH_STOP_WORDS | _OF_TIMES).issuperset(after):
        return False
    return not _PAST.isdisjoint(words) and _KNOWN.issuperset(words)
