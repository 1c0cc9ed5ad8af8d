"""The candidates of a recall: the memories nearest to the question by meaning and by words, their neighbours, and all
data for ranking them.

A project's space also holds its sessions' memories. Each scope has its own candidates, so that the few memories of a
session are not crowded out by those of the project.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from remembrancer.actors.store.file_index import FileMemories
from remembrancer.actors.store.records.passage_rows import mean_vectors
from remembrancer.actors.store.records.search import ROWS
from remembrancer.actors.store.records.types import (
    EVERY,
    Filters,
    Hits,
    PassageVectors,
    RankingFacts,
    Vectors,
)
from remembrancer.actors.store.retrieval.question import Question
from remembrancer.actors.store.retrieval.view import Ref, Source, View
from remembrancer.actors.store.vectors.exact_vectors import Nearest
from remembrancer.memory.features import Column
from remembrancer.memory.ranking import on_the_scale
from remembrancer.protocol.kinds import SCOPES
from remembrancer.protocol.work import CALIBRATED, CosineScale

CANDIDATES: Final = 50
"""The number of memories from each search, in each scope."""
TOLD_NEXT_TO: Final = 10
"""The number of best hits by meaning, and of best hits by words, whose neighbours become candidates too."""
FIRST_SEARCH: Final = 2 * CANDIDATES
"""The number of memories in the first search, as some may not pass the filters."""
FEW: Final = 1000
"""The number of a session's own memories up to which they have candidates of their own."""
TRUSTED_SIZE: Final = 10
"""The size at which a space's BM25 is scaled half by the best of all spaces, and half by the space's own best."""


Matches = NDArray[np.bool_]
"""A row for each candidate, and a column for each unit of the question."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Candidates and their ranking data: place i of each list and row i of each array are of `refs[i]`. NaN: unknown
    or missing."""

    refs: Sequence[Ref]
    facts: Sequence[RankingFacts]
    bm25: Column
    """0 without any word of the question."""
    cosine: Column
    """The cosine of the best passage with the question."""
    opening: Column
    """The cosine of the first passage, if there are several."""
    context_cosine: Column
    """The mean cosine of a turn and its neighbours."""
    words: Matches
    """The question's units that each contains."""
    context_words: Matches
    """The question's units that a turn and its neighbours contain together."""
    has_context: NDArray[np.bool_]
    """True for turns with `context_words`."""
    vectors: Vectors
    """The mean of the passages of each, of unit length; 0 if it has none."""

    def __len__(self) -> int:
        return len(self.refs)

    def take(self, places: Sequence[int]) -> Rows:
        """Return the candidates at some places."""
        refs, facts = [self.refs[place] for place in places], [self.facts[place] for place in places]
        chosen = np.asarray(places, dtype=np.intp)
        return Rows(refs, facts, *(column[chosen] for column in self._arrays()))

    def followed_by(self, others: Rows) -> Rows:
        """Return these candidates, and after them those of the others that are not among them."""
        known = set(self.refs)
        new = others.take([place for place, ref in enumerate(others.refs) if ref not in known])
        if not new.refs or not self.refs:
            return new if new.refs else self
        arrays = (np.concatenate(pair) for pair in zip(self._arrays(), new._arrays(), strict=True))
        return Rows([*self.refs, *new.refs], [*self.facts, *new.facts], *arrays)

    def _arrays(self) -> tuple[Any, ...]:
        return (
            *(self.bm25, self.cosine, self.opening, self.context_cosine),
            *(self.words, self.context_words, self.has_context, self.vectors),
        )


class Search:
    """The search of a space or of notes, by words, and by vectors once there is the question's. `postings` are the
    memories with each unit of the question, `size` is the number of memories, visible or not.

    If the session has memories of its own here (`own`), there are two `sides`: these, and all others. An empty space
    has none, and is not searched.
    """

    def __init__(
        self, source: Source, question: Question, size: int, postings: Sequence[Sequence[Ref]], own: Sequence[Ref] = ()
    ) -> None:
        self.postings = postings
        self.size = size
        self._source = source
        self._question = question
        self.sides = _sides(question.filters, own) if size or question.filters.include_forgotten else []
        self._vector: Vectors | None = None
        self._near: Nearest | None = None
        """The cosines of the nearest memories, of any scope; None: its vectors are not searched."""
        self.hits: Sequence[Hits] = ()
        """The results by words for each side."""
        if self.sides and question.strategy != "vector":
            self.find_words()

    @property
    def has_vectors(self) -> bool:
        """True if vectors were searched."""
        return self._near is not None

    def find_words(self) -> None:
        """Search by words."""
        question = self._question
        if question.phrases:
            counted = None
            if sum(map(len, self.postings)) > ROWS:
                units = zip(question.units, self.postings, strict=True)
                counted = {unit[0]: len(having) for unit, having in units if len(unit) == 1}
            hits = self._source.texts.keyword_hits
            self.hits = [hits(question.phrases, side, CANDIDATES, counted, own) for side, own in self.sides]

    def find_near(self, vector: Vectors | None) -> list[Ref]:
        """Search by vectors, and by words if that is not possible. Returns the memories whose facts decide which become
        candidates."""
        if vector is not None and self._source.vectors is not None:
            self._vector = vector
            self._near = self._source.vectors.nearest(vector, FIRST_SEARCH)
        elif not self.hits:
            self.find_words()
        owned = [ref for _, own in self.sides for ref in own] if self.has_vectors else []
        return [*(self._near or ()), *owned, *(ref for hits in self.hits for ref in hits)]

    def nearest(self, view: View, facts: dict[Ref, RankingFacts]) -> Iterator[Nearest]:
        """Yield for each side the cosines of the `CANDIDATES` nearest memories. Adds missing facts to `facts`."""
        vector, near, vectors = self._vector, self._near, self._source.vectors
        if vector is None or near is None or vectors is None:
            return
        for side, own in self.sides:
            if own:
                yield vectors.nearest(vector, CANDIDATES, [ref for ref in own if ref in facts])
                continue
            cosines = _passing(near, facts, side)
            if len(cosines) < CANDIDATES and len(near) == FIRST_SEARCH:  # the filters removed too many
                cosines = vectors.nearest(vector, CANDIDATES, self._source.texts.matching(side, EVERY))
                facts |= view.ranking_facts([ref for ref in cosines if ref not in facts], self._question.filters)
            yield cosines


Searches = Mapping[int, Search]
"""Searches by space number."""


@dataclass(frozen=True, slots=True)
class Candidates:
    """The candidates. `by_meaning`: vectors were searched; `whole`: those of every space that has any."""

    rows: Rows
    by_meaning: bool
    whole: bool


def find_words(view: View, question: Question) -> Searches:
    """Do the part of a recall that does not need the question's vector."""
    survey = view.reader.survey(question.units, question.filters.session_id, FEW)
    searches: dict[int, Search] = {}
    for space, source in view.sources.items():
        if isinstance(source.texts, FileMemories):
            searches[space] = Search(source, question, source.texts.size, source.texts.postings(question.units))
        else:
            size, own = sum(survey.sizes[space].values()), (survey.own or {}).get(space, ())
            searches[space] = Search(source, question, size, survey.postings[space], own)
    return searches


def _sides(filters: Filters, own: Sequence[Ref]) -> list[tuple[Filters, Sequence[Ref]]]:
    """Return the filters of each side, with the memories that pass them if they are the session's own."""
    others = tuple(scope for scope in filters.scopes or SCOPES if scope != "session")
    if not own or not filters.session_id or len(others) == len(filters.scopes):
        return [(filters, ())]
    of_session = msgspec.structs.replace(filters, scopes=("session",)), own
    return [of_session, (msgspec.structs.replace(filters, scopes=others), ())] if others else [of_session]


def find_candidates(view: View, question: Question, searches: Searches) -> Candidates:
    """Return the candidates of each side of each space that pass the filters, with all ranking data.

    `searches` is the result of `find_words`. If only vectors were requested, words are searched only if there are none.
    """
    begun = {space: each for space, each in searches.items() if each.sides}
    numbers = dict.fromkeys(number for each in begun.values() for number in each.find_near(question.vector))
    facts = view.ranking_facts(numbers, question.filters)
    wanted: dict[Ref, RankingFacts] = {}
    bm25: dict[Ref, float] = {}
    first: list[Ref] = []
    for search in begun.values():
        for found in (*search.nearest(view, facts), *search.hits):
            wanted |= {ref: facts[ref] for ref in found if ref in facts}
            first += _first(found)
        for hits in search.hits:
            bm25 |= hits
    rows = describe(view, question, searches, wanted, bm25, first)
    with_rows = {known.space for known in rows.facts}
    searched = [each.has_vectors for space, each in begun.items() if each.has_vectors or space in with_rows]
    return Candidates(rows, by_meaning=not begun or any(searched), whole=all(searched))


def _passing(near: Nearest, facts: Mapping[Ref, RankingFacts], side: Filters) -> Nearest:
    """Return the cosines of the `CANDIDATES` nearest of these memories that pass a side's filters."""
    passing = (
        (number, cosine)
        for number, cosine in near.items()
        if (known := facts.get(number)) is not None and (not side.scopes or known.scope in side.scopes)
    )
    return dict(itertools.islice(passing, CANDIDATES))


def describe(
    view: View,
    question: Question,
    searches: Searches,
    facts: Mapping[Ref, RankingFacts],
    bm25: Mapping[Ref, float] = MappingProxyType({}),
    first: Collection[Ref] = (),
) -> Rows:
    """Return these memories, and the neighbours of those in `first`, as candidates.

    Their passages, and the question's words in them, are read only once.
    """
    known = dict(facts)
    around: dict[Ref, dict[Ref, int]] = {}
    others: dict[Ref, RankingFacts] = {}
    turns = [ref for ref, each in facts.items() if each.type == "episodic"]
    if turns:
        neighbours = view.reader.neighbours(turns, question.filters, and_theirs=len(first) > 0)
        around, others = neighbours.steps, neighbours.facts
        known |= {other: others[other] for ref in first for other in around.get(ref, ()) if other not in known}
    refs, count = list(known), len(known)
    places = {ref: place for place, ref in enumerate(refs)}
    for other in (other for ref in refs for other in around.get(ref, ())):
        places.setdefault(other, len(places))
    matched = np.zeros((len(places), len(question.units)), dtype=bool)
    for search in searches.values():
        for unit, having in enumerate(search.postings):
            matched[[places[ref] for ref in places.keys() & having], unit] = True
    compared = _compared(view, question, places, {ref: (known.get(ref) or others[ref]).space for ref in places})
    has_context = np.array([each.type == "episodic" for each in known.values()], dtype=bool)
    has_context &= np.isnan(compared.openings[:count])
    context_cosine, context_words = np.full(count, np.nan), np.zeros((count, len(question.units)), dtype=bool)
    if has_context.any():
        middles = np.flatnonzero(has_context).tolist()
        together = [[place, *(places[other] for other in around.get(refs[place], ()))] for place in middles]
        lengths = np.array([len(each) for each in together])
        starts = np.cumsum(lengths) - lengths
        members = np.array([place for each in together for place in each])
        sums = np.add.reduceat(np.nan_to_num(compared.cosines)[members], starts)
        context_cosine[middles] = np.where(np.isnan(compared.cosines[middles]), np.nan, sums / lengths)
        context_words[middles] = np.logical_or.reduceat(matched[members], starts, axis=0)
    return Rows(
        refs,
        list(known.values()),
        np.array([bm25.get(ref, 0.0) for ref in refs]),
        compared.cosines[:count],
        compared.openings[:count],
        context_cosine,
        matched[:count],
        context_words,
        has_context,
        compared.means[:count],
    )


class Compared(NamedTuple):
    """Vector comparisons of memories: the cosine of the best passage, that of the first one if there are several (else
    NaN), and the mean vector, of unit length."""

    memories: Sequence[int]
    cosines: Column
    openings: Column
    means: Vectors


def _compared(view: View, question: Question, places: Mapping[Ref, int], spaces: Mapping[Ref, int]) -> Compared:
    """Compare memories with the question's vector; NaN, and 0 as a mean, where there are no vectors."""
    count, vector = len(places), question.vector
    cosines, openings = np.full(count, np.nan), np.full(count, np.nan)
    means: Vectors = np.zeros((count, 0 if vector is None else len(vector)), dtype=np.float32)
    for space, source in view.sources.items():
        refs = [ref for ref, its in spaces.items() if its == space]
        if vector is not None and refs and source.vectors is not None:
            found = compare(source.vectors.of_memories(refs), vector, source.vectors.scale)
            there = [places[ref] for ref in found.memories]
            cosines[there], openings[there], means[there] = found.cosines, found.openings, found.means
    return Compared(list(places), cosines, openings, means)


def compare(passages: PassageVectors, query: Vectors, scale: CosineScale = CALIBRATED) -> Compared:
    """Compare the memories of passages with a query's vector (dimensions,). The cosines are on the default model's
    scale."""
    if not passages.numbers:
        return Compared([], np.zeros(0), np.zeros(0), np.zeros((0, len(query)), dtype=np.float32))
    cosines = (passages.vectors @ query).astype(np.float64)
    if scale != CALIBRATED:
        cosines = np.array([on_the_scale(cosine, scale) for cosine in cosines.tolist()])
    owners = np.asarray(passages.memories)
    order = np.argsort(owners, kind="stable")
    owners, cosines, is_first = owners[order], cosines[order], np.asarray(passages.ordinals)[order] == 0
    _, starts, counts = np.unique(owners, return_index=True, return_counts=True)
    openings = np.add.reduceat(np.where(is_first, cosines, 0.0), starts)
    openings[(counts == 1) | ~np.logical_or.reduceat(is_first, starts)] = np.nan
    memories, means = mean_vectors(passages)
    return Compared(memories, np.maximum.reduceat(cosines, starts), openings, means)


def comparable(rows: Rows, sizes: Mapping[int, int]) -> Column:
    """Scale the candidates' BM25 for comparison across spaces. `sizes` are the numbers of memories in the spaces.

    BM25 weighs a word by its rarity in its space, which grows with the logarithm of the space's size; in a space of
    three no word is rare. So scores are divided by that logarithm, and by the best of the results. The smaller a space,
    the more it is scaled by its own best score instead, which gives every space a perfect match, however bad.
    """
    bm25 = rows.bm25
    if not bm25.any():
        return bm25
    spaces = np.array([facts.space for facts in rows.facts])
    scaled, own, trust = bm25.copy(), np.ones(len(bm25)), np.ones(len(bm25))
    for space in set(spaces.tolist()):
        its, size = spaces == space, sizes[space]
        scaled[its] /= math.log(2.0 + size)
        own[its] = bm25[its].max() or 1.0
        trust[its] = size / (size + TRUSTED_SIZE)
    return np.asarray(trust * (scaled / scaled.max()) + (1.0 - trust) * (bm25 / own))


def _first(values: Mapping[Ref, float]) -> list[Ref]:
    return sorted(values, key=lambda ref: (-values[ref], ref))[:TOLD_NEXT_TO]
