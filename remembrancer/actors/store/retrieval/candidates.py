"""What one file brings to a recall: the memories nearest to the question by meaning and by words, scope by scope.

A project's file holds its sessions' memories too. Each scope has candidates of its own, so that the few of a session
are not crowded out by the many of its project.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Final, Protocol

import msgspec

from remembrancer.actors.store.records.contract import (
    Filters,
    KeywordHit,
    RankingFacts,
    Records,
    Told,
    Vectors,
)
from remembrancer.actors.store.records.search import padded
from remembrancer.actors.store.retrieval.neighbours import first_of
from remembrancer.actors.store.retrieval.ranking import Signals, best_passages
from remembrancer.actors.store.vectors.passage_index import IndexLost, PassageHit
from remembrancer.protocol.kinds import SCOPES, Scope
from remembrancer.protocol.reads import Strategy

CANDIDATES: Final = 50
"""Memories that each search brings to the fusion, from each scope."""
FIRST_SEARCH: Final = 2 * CANDIDATES
"""Passages looked at first: some memories have several among the nearest. With no more passages than candidates 39 of
100 questions needed a second search, which takes longer than the wider first one; with twice as many, none did."""
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
class Question:
    """What is looked for: the full-text expression (None: no word in it), the unit vector (None: not to be had)."""

    strategy: Strategy
    match: str | None
    vector: Vectors | None


@dataclass(frozen=True, slots=True)
class Found:
    """A file's candidates: what the searches said, and what ranks them. `by_meaning`: its vectors were searched.

    `sizes` are how many memories the file has in each scope. `told` names the best candidates of each search and, for
    each, how many steps away others were told.
    """

    by_meaning: bool
    signals: dict[int, Signals]
    facts: dict[int, RankingFacts]
    sizes: Mapping[Scope, int]
    told: Mapping[int, Mapping[int, int]] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """How many memories the file has in all."""
        return sum(self.sizes.values())

    def together(self, other: Found) -> Found:
        """With the candidates of another scope of the same file."""
        return Found(
            self.by_meaning and other.by_meaning,
            self.signals | other.signals,
            self.facts | other.facts,
            self.sizes,
            {**self.told, **other.told},
        )


@dataclass(frozen=True, slots=True)
class _Search:
    """What passes some filters; `few` are those memories, where they are known and not too many to compare each."""

    filters: Filters
    few: Sequence[int] | None = None


@dataclass(frozen=True, slots=True)
class WordsFound:
    """What the search for words in a file found, for each of the searches into which the filters were divided.

    `hits` None: the words are to be searched only if the vectors cannot be. `sizes` are as in `Found`.
    """

    sizes: Mapping[Scope, int]
    searches: Sequence[_Search]
    hits: Sequence[list[KeywordHit]] | None


def find_words(records: Records, match: str | None, strategy: Strategy, filters: Filters) -> WordsFound:
    """What one file has by words, and all else that can be known without the question's vector."""
    searches = _searches(records, filters)
    hits = None if strategy == "vector" else _by_words(records, match, filters, searches)
    return WordsFound(records.sizes(), searches, hits)


def find_candidates(source: Source, question: Question, filters: Filters, words: WordsFound | None = None) -> Found:
    """The candidates of each scope in one file that pass the filters, each with both signals where it has them.

    `words` is what `find_words` has found for them, if that is known already. Where vectors alone were asked for, the
    words are searched only if the vectors cannot be.
    """
    records = source.records
    if words is None:
        words = find_words(records, question.match, question.strategy, filters)
    searches, sizes, hits = words.searches, words.sizes, words.hits
    if len(searches) > 1:
        source = searched_once(source)
    nearest = [_by_meaning(source, question, search, sizes) for search in searches]
    if hits is None:
        hits = _by_words(records, question.match, filters, searches) if None in nearest else [[] for _ in searches]
    found = [
        _found(source, question, search.filters, near, its, sizes)
        for search, near, its in zip(searches, nearest, hits, strict=True)
    ]
    return reduce(Found.together, found)


def _searches(records: Records, filters: Filters) -> list[_Search]:
    """One search, or two: that of the session's own memories, and that of all others."""
    others = tuple(scope for scope in filters.scopes or SCOPES if scope != "session")
    if not filters.session_id or len(others) == len(filters.scopes):
        return [_Search(filters)]
    own = msgspec.structs.replace(filters, scopes=("session",))
    few = records.matching(own, FEW)
    if not others:
        return [_Search(own, few)]
    return (
        [_Search(filters)]
        if few == []
        else [_Search(own, few), _Search(msgspec.structs.replace(filters, scopes=others))]
    )


def _by_meaning(source: Source, question: Question, search: _Search, sizes: Mapping[Scope, int]) -> _Nearest | None:
    """The nearest memories; None where they cannot be had."""
    records, passages, vector = source.records, source.passages, question.vector
    if vector is None or passages is None:
        return None
    if search.few is not None:
        return _compared(records, passages.model, vector, search.few)
    try:
        return _nearest(records, passages, vector, search.filters, _first_search(sizes, search.filters))
    except IndexLost:
        logger.warning("an index cannot be searched", exc_info=True)
        return None


def _by_words(
    records: Records, match: str | None, filters: Filters, searches: Sequence[_Search]
) -> Sequence[list[KeywordHit]]:
    """What has words of the question, for each of the searches into which `filters` were divided."""
    if match is None:
        return [[] for _ in searches]
    if len(searches) == 1:
        return [records.keyword_hits(match, filters, CANDIDATES)]
    return records.keyword_hits_apart(match, filters, CANDIDATES)


def _found(
    source: Source,
    question: Question,
    filters: Filters,
    nearest: _Nearest | None,
    hits: Sequence[KeywordHit],
    sizes: Mapping[Scope, int],
) -> Found:
    """What both searches found, with what each lacks of the other, and what was told around the best.

    That under `hybrid`, and under `graph`, which becomes it where the query names no entity.
    """
    records, passages = source.records, source.passages
    bm25 = {hit.number: hit.bm25 for hit in hits}
    cosines = {} if nearest is None else dict(nearest.best)
    told = Told({}, {})
    if question.strategy in ("hybrid", "graph") and question.vector is not None:
        told = records.neighbours(list(dict.fromkeys((*first_of(cosines), *first_of(bm25)))), filters)
    others = dict.fromkeys((*bm25, *told.facts))
    if question.vector is not None and passages is not None:
        seen = cosines if nearest is None else nearest.compared
        unseen = [each for each in others if each not in seen]
        cosines |= {each: seen[each] for each in others if each in seen}
        cosines |= _cosines(records, passages.model, question.vector, unseen)
    numbers = list({**others, **cosines})
    known = told.facts if nearest is None else {**told.facts, **nearest.facts}
    missing = [number for number in numbers if number not in known]
    facts = {**known, **records.ranking_facts(padded(missing), filters)} if missing else known
    heads = {} if passages is None else _heads(records, passages.model, question.vector, list(cosines))
    signals = {number: Signals(cosines.get(number), bm25.get(number), head=heads.get(number)) for number in numbers}
    passing = {number: facts[number] for number in numbers if number in facts}
    return Found(nearest is not None, signals, passing, sizes, told.steps)


@dataclass(frozen=True, slots=True)
class _Nearest:
    """The cosines of the `CANDIDATES` nearest memories, nearest first, and what else the search came to know.

    `compared` are the cosines of all the memories that were looked at, and `facts` what ranks some of them.
    """

    best: Mapping[int, float]
    compared: Mapping[int, float]
    facts: Mapping[int, RankingFacts]


def _compared(records: Records, model: str, query: Vectors, few: Sequence[int]) -> _Nearest:
    """The nearest of a few memories, compared one by one."""
    compared = _cosines(records, model, query, few)
    return _Nearest(_first(compared), compared, {})


def _first_search(sizes: Mapping[Scope, int], filters: Filters) -> int:
    """How many passages to look at first, for so many to be of the scopes that are asked for."""
    total = sum(sizes.values())
    scopes = filters.scopes or ("project", "user")  # another session's memories never pass
    wanted = sum(sizes.get(scope, 0) for scope in scopes)
    if not 0 < wanted < total:
        return FIRST_SEARCH
    limit = math.ceil(FIRST_SEARCH * total / wanted)
    return limit if limit <= MOST_AT_FIRST else FIRST_SEARCH


def _nearest(records: Records, passages: Passages, query: Vectors, filters: Filters, first: int) -> _Nearest:
    """The nearest of the memories that pass the filters, of which the `first` passages are looked at before any others.

    The index knows nothing of filters. Where these turn too many away, the few memories that pass them are compared one
    by one; if they are not few the search goes deeper. The index may also run out: among hundreds of equal vectors
    HNSW does not reach everything that it holds.
    """
    limit = first
    few: Sequence[int] | None = None
    while True:
        best: dict[int, float] = {}
        hits = passages.search(query, limit)
        for hit in hits:
            best.setdefault(hit.memory, hit.cosine)
        allowed = records.ranking_facts(padded(list(best)), filters) if best else {}
        passing = {number: cosine for number, cosine in best.items() if number in allowed}
        if len(passing) >= CANDIDATES:
            break
        if limit == first:
            few = records.matching(filters, FEW)
        if few is not None or len(hits) < limit or limit >= DEEPEST_SEARCH:
            numbers = records.matching(filters, EXACT_LIMIT) or () if few is None else few
            passing |= _cosines(records, passages.model, query, [number for number in numbers if number not in best])
            break
        limit = _deeper(limit, len(passing))
    return _Nearest(_first(passing), passing, allowed)


def _first(cosines: Mapping[int, float]) -> dict[int, float]:
    return dict(sorted(cosines.items(), key=lambda item: -item[1])[:CANDIDATES])


def _cosines(records: Records, model: str, query: Vectors, numbers: Sequence[int]) -> dict[int, float]:
    """The cosine of the best passage of each of these memories that has its vectors."""
    if not numbers:
        return {}
    known = records.memory_vectors(model, padded(numbers))
    return best_passages(known.memories, known.vectors, query)


def _heads(records: Records, model: str, query: Vectors | None, numbers: Sequence[int]) -> dict[int, float]:
    """The cosine of the first passage of those of these memories that have several."""
    if query is None or not numbers:
        return {}
    known = records.head_vectors(model, padded(numbers))
    return best_passages(known.memories, known.vectors, query)


def _deeper(limit: int, passing: int) -> int:
    """How many passages to look at next, when `limit` gave only so many memories that pass the filters.

    Twice as many, or four, eight times …, so that recalls side by side ask for the same.
    """
    times = CANDIDATES / passing * SPARE_SHARE if passing else 4.0
    return min(DEEPEST_SEARCH, limit << max(1, math.ceil(math.log2(times))))
