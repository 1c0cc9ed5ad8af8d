"""The candidates of a recall: the memories nearest to the question by meaning and by words, their neighbours, and all
data for ranking them.

A project's space also holds its sessions' memories. Each scope has its own candidates, so that the few memories of a
session are not crowded out by those of the project.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from remembrancer.actors.store.file_index import FileMemories
from remembrancer.actors.store.records.passage_rows import mean_vectors
from remembrancer.actors.store.records.search import ROWS
from remembrancer.actors.store.records.types import EVERY, Filters, Hits, PassageVectors, RankingFacts, Vectors
from remembrancer.actors.store.retrieval.question import Question
from remembrancer.actors.store.retrieval.view import Ref, Source, View
from remembrancer.actors.store.vectors.exact_vectors import Nearest
from remembrancer.memory.features import Column
from remembrancer.memory.ranking import on_the_scale
from remembrancer.protocol.kinds import SCOPES
from remembrancer.protocol.reads import Strategy
from remembrancer.protocol.work import CALIBRATED, CosineScale

CANDIDATES: Final = 50
"""The number of memories from each search, in each scope."""
EXPANDED: Final = 10
"""The number of best hits by meaning, and of best hits by words, whose neighbours become candidates too."""
FIRST_SEARCH: Final = 2 * CANDIDATES
"""The number of memories in the first search, as some may not pass the filters."""
FEW: Final = 1000
"""A session with at most this many memories of its own gets separate candidates from them."""


Matches = NDArray[np.bool_]
"""A row for each candidate, and a column for each unit of the question."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Candidates and their ranking data: row i of each array is of `refs[i]`. NaN: unknown or missing."""

    refs: NDArray[np.int64]
    facts: NDArray[np.object_]
    """Their `RankingFacts`."""
    bm25: Column
    """0 without any word of the question."""
    graph: Column
    """The nearness by the graph, if it was walked."""
    cosine: Column
    """The cosine of the best passage with the question."""
    opening: Column
    """The cosine of the first passage, if there are several."""
    context_cosine: Column
    """The mean cosine of a turn and its neighbours."""
    words: Matches
    """The question's units that each candidate contains."""
    context_words: Matches
    """The question's units that a turn and its neighbours contain together."""
    has_context: NDArray[np.bool_]
    """True for turns with `context_words`."""
    vectors: Vectors
    """The mean of the passages of each, of unit length; 0 if it has none."""

    def __len__(self) -> int:
        return len(self.refs)

    def take(self, chosen: NDArray[np.bool_]) -> Rows:
        return Rows(*(column[chosen] for column in self._columns()))

    def followed_by(self, others: Rows) -> Rows:
        """Return these candidates, followed by those of `others` that are not among them."""
        new = others.take(~np.isin(others.refs, self.refs))
        return Rows(*map(np.concatenate, zip(self._columns(), new._columns(), strict=True)))

    def _columns(self) -> list[Any]:
        return [getattr(self, each.name) for each in fields(self)]


class Search(NamedTuple):
    """The search of a space or of notes by words. `postings` are the memories with each unit of the question, `size`
    is the number of memories, visible or not.

    If the session has memories of its own here, there are two `sides`: these (with their numbers), and all others. An
    empty space has none, and is not searched. `hits` are the results for each side.
    """

    source: Source
    size: int
    postings: Sequence[Sequence[Ref]]
    sides: Sequence[tuple[Filters, Sequence[Ref]]]
    hits: Sequence[Hits]


Searches = Mapping[int, Search]
"""Searches by space number."""


def find_words(view: View, question: Question) -> Searches:
    """Do the part of a recall that does not need the question's vector."""
    filters = question.filters
    survey = view.reader.survey(question.units, filters.session_id, FEW)
    others = tuple(scope for scope in filters.scopes or SCOPES if scope != "session")
    is_apart = filters.session_id and len(others) != len(filters.scopes)
    searches: dict[int, Search] = {}
    for space, source in view.sources.items():
        own: Sequence[Ref] = ()
        if isinstance(source.texts, FileMemories):
            size, postings = source.texts.size, source.texts.postings(question.units)
        else:
            size, postings = survey.sizes[space], survey.postings[space]
            own = survey.own.get(space, ())
        sides: list[tuple[Filters, Sequence[Ref]]] = [(filters, ())]
        if own and is_apart:
            sides = [(msgspec.structs.replace(filters, scopes=("session",)), own)]
            sides += [(msgspec.structs.replace(filters, scopes=others), ())] if others else []
        if not (size or filters.include_forgotten):
            sides = []
        counted = None
        if sum(map(len, postings)) > ROWS:
            units = zip(question.units, postings, strict=True)
            counted = {unit[0]: len(having) for unit, having in units if len(unit) == 1}
        hits = [
            source.texts.keyword_hits(question.phrases, side, CANDIDATES, counted, among)
            for side, among in (sides if question.phrases else ())
        ]
        searches[space] = Search(source, size, postings, sides, hits)
    return searches


def find_candidates(view: View, question: Question, searches: Searches) -> tuple[Rows, Strategy]:
    """Return the candidates of each side of each space that pass the filters, with all ranking data, and the strategy
    that found them. `searches` is the result of `find_words`, which is ignored if only vectors were requested and there
    are some."""
    begun, vector = {space: each for space, each in searches.items() if each.sides}, question.vector
    near: dict[int, Nearest] = {}
    hits: dict[int, Sequence[Hits]] = {}
    numbers: set[Ref] = set()
    for space, search in begun.items():
        if vector is not None and search.source.vectors is not None:
            near[space] = search.source.vectors.nearest(vector, FIRST_SEARCH)
            numbers.update(near[space], *(own for _, own in search.sides))
        hits[space] = () if question.strategy == "vector" and space in near else search.hits
        numbers.update(*hits[space])
    facts = view.ranking_facts(numbers, question.filters)
    found: list[Mapping[Ref, float]] = []
    for space, search in begun.items():
        found += _nearest_of_sides(search, near[space], question, facts) if space in near else ()
        found += hits[space]
    if missing := {ref for each in found for ref in each if ref not in numbers}:
        facts |= view.ranking_facts(missing, question.filters)
    wanted = {ref: facts[ref] for each in found for ref in each if ref in facts}
    first = [ref for each in found for ref in sorted(each, key=lambda ref: (-each[ref], ref))[:EXPANDED]]
    bm25 = {ref: score for sides in hits.values() for side in sides for ref, score in side.items()}
    return describe(view, question, searches, wanted, bm25, first), "keyword" if vector is None else question.strategy


def _nearest_of_sides(
    search: Search, near: Nearest, question: Question, facts: Mapping[Ref, RankingFacts]
) -> list[Nearest]:
    """Return for each side the cosines of the `CANDIDATES` nearest memories, which may lack `facts`. `near` are the
    nearest of any scope."""
    vector, vectors = question.vector, search.source.vectors
    assert vector is not None
    assert vectors is not None
    found: list[Nearest] = []
    for side, own in search.sides:
        passing = (ref for ref in near if ref in facts and (not side.scopes or facts[ref].scope in side.scopes))
        cosines = {ref: near[ref] for ref in itertools.islice(passing, CANDIDATES)}
        if own:
            cosines = vectors.nearest(vector, CANDIDATES, [ref for ref in own if ref in facts])
        elif len(cosines) < CANDIDATES and len(near) == FIRST_SEARCH:  # the filters removed too many
            cosines = vectors.nearest(vector, CANDIDATES, search.source.texts.matching(side, EVERY))
        found.append(cosines)
    return found


def describe(
    view: View,
    question: Question,
    searches: Searches,
    facts: Mapping[Ref, RankingFacts],
    bm25: Mapping[Ref, float] = MappingProxyType({}),
    first: Collection[Ref] = (),
) -> Rows:
    """Return these memories, and the neighbours of those in `first`, as candidates. Their passages, and the question's
    words in them, are read only once."""
    known = dict(facts)
    around: dict[Ref, dict[Ref, int]] = {}
    turns = [ref for ref, each in facts.items() if each.type == "episodic"]
    if turns:
        neighbours = view.reader.neighbours(turns, question.filters, and_theirs=len(first) > 0)
        around = neighbours.steps
        known |= {
            other: neighbours.facts[other] for ref in first for other in around.get(ref, ()) if other not in known
        }
    refs, count = list(known), len(known)
    places = {ref: place for place, ref in enumerate(refs)}
    for other in (other for ref in refs for other in around.get(ref, ())):
        places.setdefault(other, len(places))
    matched = np.zeros((len(places), len(question.units)), dtype=bool)
    for search in searches.values():
        for unit, having in enumerate(search.postings):
            matched[[places[ref] for ref in places.keys() & having], unit] = True
    cosines, openings = np.full(len(places), np.nan), np.full(len(places), np.nan)
    vector = question.vector
    means: Vectors = np.zeros((len(places), 0 if vector is None else len(vector)), dtype=np.float32)
    for source in view.sources.values():
        if vector is not None and places and source.vectors is not None:
            found = compare(source.vectors.of_memories(list(places)), vector, source.vectors.scale)
            there = [places[ref] for ref in found.memories]
            cosines[there], openings[there], means[there] = found.cosines, found.openings, found.means
    has_context = np.array([each.type == "episodic" for each in known.values()], dtype=bool)
    has_context &= np.isnan(openings[:count])
    context_cosine, context_words = np.full(count, np.nan), np.zeros((count, len(question.units)), dtype=bool)
    if has_context.any():
        middles = np.flatnonzero(has_context).tolist()
        together = [[place, *(places[other] for other in around.get(refs[place], ()))] for place in middles]
        lengths = np.array([len(each) for each in together])
        starts = np.cumsum(lengths) - lengths
        members = np.array([place for each in together for place in each])
        sums = np.add.reduceat(np.nan_to_num(cosines)[members], starts)
        context_cosine[middles] = np.where(np.isnan(cosines[middles]), np.nan, sums / lengths)
        context_words[middles] = np.logical_or.reduceat(matched[members], starts, axis=0)
    return Rows(
        np.array(refs, dtype=np.int64),
        np.array(list(known.values()), dtype=np.object_),
        bm25=np.array([bm25.get(ref, 0.0) for ref in refs]),
        graph=np.zeros(count),
        cosine=cosines[:count],
        opening=openings[:count],
        context_cosine=context_cosine,
        words=matched[:count],
        context_words=context_words,
        has_context=has_context,
        vectors=means[:count],
    )


class Compared(NamedTuple):
    """Vector comparisons of memories: the cosine of the best passage, that of the first one if there are several (else
    NaN), and the mean vector, of unit length."""

    memories: Sequence[int]
    cosines: Column
    openings: Column
    means: Vectors


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
