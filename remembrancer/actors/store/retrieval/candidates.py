"""What one file brings to a recall: the memories nearest to the question by meaning and by words, scope by scope.

A project's file holds its sessions' memories too. Each scope has candidates of its own, so that the few of a session
are not crowded out by the many of its project.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from remembrancer.actors.store.records.contract import (
    EmbeddedTexts,
    Filters,
    GraphRecords,
    KeywordHit,
    Neighbours,
    PassageFilter,
    Phrase,
    RankingFacts,
    SearchedTexts,
    Sizes,
    Vectors,
)
from remembrancer.actors.store.vectors.passage_index import IndexLost, PassageHit
from remembrancer.memory.ranking import Signals, first_of, on_the_scale
from remembrancer.protocol.kinds import SCOPES, Scope
from remembrancer.protocol.reads import Strategy
from remembrancer.protocol.work import CALIBRATED, CosineScale

CANDIDATES: Final = 50
"""Memories that each search brings to the fusion, from each scope."""
FIRST_SEARCH: Final = 2 * CANDIDATES
"""Passages looked at first: some memories have several among the nearest, and a second search takes longer."""
DEEPEST_SEARCH: Final = 3200
"""Passages looked at when the filters turn most of the nearest away."""
MOST_AT_FIRST: Final = 400
"""Passages looked at at once where many of them are known to be of other scopes."""
SPARE_SHARE: Final = 1.25
"""How much more is looked at than what has passed so far promises: farther away, filters may turn more away."""
FEW: Final = 1000
"""Memories that pass the filters and are compared one by one, when a first search has not found enough of them."""
EXACT_LIMIT: Final = 5000
"""Memories that pass the filters and are compared one by one, when a deep search has not found enough of them."""

logger = logging.getLogger(__name__)


class Passages(Protocol):
    """What can be searched by meaning: a `PassageIndex`, or what stands before one."""

    @property
    def model(self) -> str: ...

    @property
    def scale(self) -> CosineScale: ...

    def search(self, query: Vectors, limit: int) -> list[PassageHit]:
        """The nearest passages to `query` (dimensions,), nearest first, each once, with cosines on the default model's
        scale. Raises `IndexLost`."""


@dataclass(frozen=True, slots=True)
class Source:
    """A file to search: its records, and its passages when they can be searched (None: not now)."""

    records: SearchedTexts
    passages: Passages | None

    @property
    def graph(self) -> GraphRecords | None:
        """The graph of the file, if it has one."""
        return getattr(self.records, "graph", None)


class _SearchedOnce:
    """Passages for several recalls with one vector, side by side: what one has searched the others need not."""

    def __init__(self, passages: Passages) -> None:
        self._passages = passages
        self._hits: dict[int, list[PassageHit]] = {}
        self._lock = threading.Lock()

    @property
    def model(self) -> str:
        return self._passages.model

    @property
    def scale(self) -> CosineScale:
        return self._passages.scale

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
class Question:
    """What is looked for: phrases, the units of `words_in`, the question as a phrase (if it may stand so), and
    the unit vector (None: not to be had)."""

    strategy: Strategy
    phrases: Sequence[Phrase]
    units: Sequence[Sequence[Phrase]]
    whole: Sequence[Phrase]
    vector: Vectors | None


@dataclass(frozen=True, slots=True)
class Found:
    """A file's candidates: what the searches said, and what ranks them. `by_meaning`: its vectors were searched.

    `around` names the best candidates of each search and, for each, how many steps away others of its session are.
    """

    by_meaning: bool
    signals: dict[int, Signals]
    facts: dict[int, RankingFacts]
    sizes: Sizes
    around: dict[int, Mapping[int, int]]


@dataclass(frozen=True, slots=True)
class WordsFound:
    """What the search for words in a file found, for each of the searches into which the filters were divided.

    A search has its filters, and those memories that pass them where they are known and not too many to compare each.
    `hits` None: the words are to be searched only if the vectors cannot be. `frequencies` says in how many memories
    each of the question's units is.
    """

    sizes: Sizes
    frequencies: Sequence[int]
    searches: Sequence[tuple[Filters, Sequence[int] | None]]
    hits: Sequence[list[KeywordHit]] | None


def find_words(records: SearchedTexts, question: Question, filters: Filters) -> WordsFound:
    """What one file has by words, and all else that can be known without the question's vector.

    The filters are divided into two searches where the session has memories of its own: for these, and for all others.
    An empty file is not searched.
    """
    sizes = records.sizes()
    if not sizes.scopes and not filters.include_forgotten:
        return WordsFound(sizes, [0] * len(question.units), [], [])
    searches: list[tuple[Filters, Sequence[int] | None]] = [(filters, None)]
    others = tuple(scope for scope in filters.scopes or SCOPES if scope != "session")
    if filters.session_id and len(others) != len(filters.scopes):
        own = msgspec.structs.replace(filters, scopes=("session",))
        few = records.matching(own, FEW)
        if not others:
            searches = [(own, few)]
        elif few != []:
            searches = [(own, few), (msgspec.structs.replace(filters, scopes=others), None)]
    frequencies = records.frequencies(question.units)
    # What has the question word for word has all of its units, and is found by the rarest of them if that is rare. The
    # phrase, in which common words are, takes as long as all else.
    whole = question.whole if min(frequencies, default=0) > CANDIDATES else ()
    phrases = (*question.phrases, *whole)
    counted = {unit[0]: count for unit, count in zip(question.units, frequencies, strict=True) if len(unit) == 1}
    hits = None if question.strategy == "vector" else _by_words(records, phrases, filters, len(searches), counted)
    return WordsFound(sizes, frequencies, searches, hits)


def find_candidates(source: Source, question: Question, filters: Filters, words: WordsFound) -> Found:
    """The candidates of each scope in one file that pass the filters, each with both signals where it has them.

    `words` is what `find_words` has found. Where vectors alone were asked for, the words are searched only if the
    vectors cannot be.
    """
    records, searches, sizes, hits = source.records, words.searches, words.sizes, words.hits
    if len(searches) > 1:
        source = searched_once(source)
    nearest = [_by_meaning(source, question, own, few, sizes.scopes) for own, few in searches]
    if hits is None:
        hits = (
            _by_words(records, question.phrases, filters, len(searches)) if None in nearest else [[] for _ in searches]
        )
    found = Found(None not in nearest, {}, {}, sizes, {})
    for (own, _), near, its in zip(searches, nearest, hits, strict=True):
        signals, facts, around = _fused(source, question, own, near, its)
        found.signals.update(signals)
        found.facts.update(facts)
        found.around.update(around)
    return found


def _by_words(
    records: SearchedTexts,
    phrases: Sequence[Phrase],
    filters: Filters,
    searches: int,
    counted: Mapping[Phrase, int] = MappingProxyType({}),
) -> Sequence[list[KeywordHit]]:
    """What has words of the question, for each of the searches into which `filters` were divided."""
    if not phrases:
        return [[] for _ in range(searches)]
    return records.keyword_hits(phrases, filters, CANDIDATES, apart=searches > 1, counted=counted)


@dataclass(frozen=True, slots=True)
class _Nearest:
    """The cosines of the `CANDIDATES` nearest memories, nearest first, and what else the search came to know.

    `compared` are the cosines of all the memories that were looked at, and `facts` what ranks some of them.
    """

    best: Mapping[int, float]
    compared: Mapping[int, float]
    facts: Mapping[int, RankingFacts]


def _by_meaning(
    source: Source, question: Question, filters: Filters, few: Sequence[int] | None, sizes: Mapping[Scope, int]
) -> _Nearest | None:
    """The nearest memories; None where they cannot be had. Of a `few` each is compared."""
    records, passages, vector = source.records, source.passages, question.vector
    if vector is None or passages is None:
        return None
    facts: Mapping[int, RankingFacts] = {}
    if few is not None:
        compared = cosines_of(records, passages, vector, few)
    else:
        total = sum(sizes.values())
        scopes = filters.scopes or ("project", "user")  # another session's memories never pass
        wanted = sum(sizes.get(scope, 0) for scope in scopes)
        first = math.ceil(FIRST_SEARCH * total / wanted) if 0 < wanted < total else FIRST_SEARCH
        try:
            compared, facts = _searched(
                records, passages, vector, filters, first if first <= MOST_AT_FIRST else FIRST_SEARCH
            )
        except IndexLost:
            logger.warning("an index cannot be searched", exc_info=True)
            return None
    best = dict(sorted(compared.items(), key=lambda item: -item[1])[:CANDIDATES])
    return _Nearest(best, compared, facts)


def _searched(
    records: SearchedTexts, passages: Passages, query: Vectors, filters: Filters, first: int
) -> tuple[dict[int, float], dict[int, RankingFacts]]:
    """The cosines of memories near the query that pass the filters, and what ranks them as far as that is known.

    The index knows nothing of filters: `first` passages are looked at before any others. Where the filters turn too
    many away, the few memories that pass them are compared one by one; if they are not few the search goes deeper. The
    index may also run out: among hundreds of equal vectors HNSW does not reach everything that it holds.
    """
    limit = first
    few: Sequence[int] | None = None
    while True:
        best: dict[int, float] = {}
        hits = passages.search(query, limit)
        for hit in hits:
            best.setdefault(hit.memory, hit.cosine)
        allowed = records.ranking_facts(list(best), filters) if best else {}
        passing = {number: cosine for number, cosine in best.items() if number in allowed}
        if len(passing) >= CANDIDATES:
            return passing, allowed
        if limit == first:
            few = records.matching(filters, FEW)
        if few is not None or len(hits) < limit or limit >= DEEPEST_SEARCH:
            numbers = records.matching(filters, EXACT_LIMIT) or () if few is None else few
            rest = [number for number in numbers if number not in best]
            return passing | cosines_of(records, passages, query, rest), allowed
        # Twice as many, or four, eight times …, so that recalls side by side ask for the same.
        times = CANDIDATES / len(passing) * SPARE_SHARE if passing else 4.0
        limit = min(DEEPEST_SEARCH, limit << max(1, math.ceil(math.log2(times))))


def _fused(
    source: Source, question: Question, filters: Filters, nearest: _Nearest | None, hits: Sequence[KeywordHit]
) -> tuple[dict[int, Signals], dict[int, RankingFacts], Mapping[int, Mapping[int, int]]]:
    """What both searches found, with what each lacks of the other, what ranks it, and what is next to the best of it.

    That under `hybrid`, and under `graph`, which becomes it where the query names no entity.
    """
    records, passages = source.records, source.passages
    bm25 = {hit.number: hit.bm25 for hit in hits}
    cosines = {} if nearest is None else dict(nearest.best)
    around = Neighbours({}, {})
    if question.strategy in ("hybrid", "graph") and question.vector is not None:
        around = records.neighbours(list(dict.fromkeys((*first_of(cosines), *first_of(bm25)))), filters)
    others = dict.fromkeys((*bm25, *around.facts))
    heads: dict[int, float] = {}
    if question.vector is not None and passages is not None:
        seen = cosines if nearest is None else nearest.compared
        unseen = [each for each in others if each not in seen]
        cosines |= {each: seen[each] for each in others if each in seen}
        cosines |= cosines_of(records, passages, question.vector, unseen)
        heads = cosines_of(records, passages, question.vector, list(cosines), heads=True)
    numbers = list({**others, **cosines})
    known = around.facts if nearest is None else {**around.facts, **nearest.facts}
    missing = [number for number in numbers if number not in known]
    facts = {**known, **records.ranking_facts(missing, filters)} if missing else known
    signals = {number: Signals(cosines.get(number), bm25.get(number), head=heads.get(number)) for number in numbers}
    return signals, {number: facts[number] for number in numbers if number in facts}, around.steps


def cosines_of(
    records: EmbeddedTexts, passages: Passages, query: Vectors, numbers: Sequence[int], *, heads: bool = False
) -> dict[int, float]:
    """The cosine, on the default model's scale, of the best passage of each of these memories that has its vectors.

    With `heads` that of the first passage of those that have several.
    """
    if not numbers:
        return {}
    known = records.passages(PassageFilter(passages.model, numbers, heads=heads))
    best = best_cosines(known.memories, known.vectors, query)
    if passages.scale == CALIBRATED:
        return best
    return {memory: on_the_scale(cosine, passages.scale) for memory, cosine in best.items()}


def best_cosines(memories: Sequence[int], vectors: NDArray[np.float32], query: NDArray[np.float32]) -> dict[int, float]:
    """The cosine of each memory's best passage. `vectors` is (len(memories), dimensions); all have unit length."""
    best: dict[int, float] = {}
    for memory, cosine in zip(memories, (vectors @ query).tolist() if len(memories) else (), strict=True):
        if cosine > best.get(memory, -math.inf):
            best[memory] = cosine
    return best
