"""The candidates of a recall: the memories nearest to the question by meaning and by words, their neighbours, and all
data for ranking them. A session's memories have their own candidates, so that the project's do not displace them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import chain, islice
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from remembrancer.actors.store.file_index import FileMemories
from remembrancer.actors.store.records.passage_rows import mean_vectors
from remembrancer.actors.store.records.search import ROWS
from remembrancer.actors.store.records.types import NO_LIMIT, Filters, Hits, PassageVectors, RankingFacts, Vectors
from remembrancer.actors.store.retrieval.question import Question
from remembrancer.actors.store.retrieval.view import Ref, Source, View
from remembrancer.actors.store.vectors.exact_vectors import Nearest
from remembrancer.memory.features import EXPIRED, OF_A_RULE, RULES, Candidates, Column, coverage, rarity, standing
from remembrancer.memory.ranking import on_the_scale
from remembrancer.memory.times.windows import nearness
from remembrancer.protocol.kinds import SCOPES
from remembrancer.protocol.reads import Strategy
from remembrancer.protocol.work import CALIBRATED, CosineScale

CANDIDATES: Final = 50
"""The number of memories taken from each search in each scope."""
EXPANDED: Final = 10
"""The number of best hits by meaning, and of best hits by words, whose neighbours also become candidates."""
FIRST_SEARCH: Final = 2 * CANDIDATES
"""The number of memories in the first search. It is larger, since some may not pass the filters."""
FEW: Final = 1000
"""If a session has at most this many memories, candidates are also taken from these alone."""


@dataclass(frozen=True, kw_only=True)
class Rows(Candidates):
    """Candidates, and the data used to rank them: row i of each array belongs to `refs[i]`. Until candidates are
    compared with one another, cosines may be unknown, and BM25 applies to each space separately."""

    refs: NDArray[np.int64]
    facts: NDArray[np.object_]
    words: NDArray[np.bool_]
    """The units of the question that each candidate contains, one column per unit."""
    vectors: Vectors
    """The mean of each candidate's passages, of unit length; 0 if it has no passages."""

    def take(self, chosen: NDArray[np.bool_]) -> Rows:
        return replace(self, **{name: column[chosen] for name, column in self._columns().items()})

    def followed_by(self, others: Rows) -> Rows:
        new = others._columns()
        return replace(self, **{name: np.concatenate((own, new[name])) for name, own in self._columns().items()})

    def _columns(self) -> dict[str, Any]:
        return {each.name: getattr(self, each.name) for each in fields(self) if each.name != "likeness"}


class Side(NamedTuple):
    """Memories of a space that have their own candidates: all, only the session's `own`, or all others."""

    source: Source
    filters: Filters
    hits: Hits
    own: Sequence[Ref] = ()


class Search(NamedTuple):
    """`sizes` are the numbers of memories in the spaces, visible or not; `postings` are the memories with each unit of
    the question. `vector` (dimensions,) is of unit length; None if it is unavailable."""

    view: View
    question: Question
    sizes: dict[int, int]
    postings: list[list[Ref]]
    sides: list[Side]
    vector: Vectors | None = None

    @property
    def weights(self) -> Column:
        return np.array(rarity([len(each) for each in self.postings], sum(self.sizes.values())))


def find_words(view: View, question: Question) -> Search:
    """Do the part of a recall that does not need the question's vector."""
    filters = question.filters
    survey = view.reader.survey(question.units, filters.session_id, FEW)
    others = tuple(scope for scope in filters.scopes or SCOPES if scope != "session")
    is_apart = filters.session_id and len(others) != len(filters.scopes)
    search = Search(view, question, dict(survey.sizes), [[] for _ in question.units], [])
    for space, source in view.sources.items():
        texts = source.texts
        if isinstance(texts, FileMemories):
            search.sizes[space], postings = texts.size, texts.postings(question.units)
        else:
            postings = survey.postings[space]
        for every, having in zip(search.postings, postings, strict=True):
            every.extend(having)
        counted = None
        if sum(map(len, postings)) > ROWS:
            units = zip(question.units, postings, strict=True)
            counted = {unit[0]: len(having) for unit, having in units if len(unit) == 1}
        sides: list[tuple[Filters, Sequence[Ref]]] = [(filters, ())]
        if is_apart and (own := survey.own.get(space)):
            sides = [(msgspec.structs.replace(filters, scopes=("session",)), own)]
            sides += [(msgspec.structs.replace(filters, scopes=others), ())] if others else []
        for side, own in sides if search.sizes[space] or filters.include_forgotten else ():
            among = question.phrases, side, CANDIDATES, counted, own
            search.sides.append(Side(source, side, texts.keyword_hits(*among) if question.phrases else {}, own))
    return search


def find_candidates(search: Search) -> tuple[Rows, Strategy]:
    """Return the candidates of all sides, and the strategy that found them. If only vectors were requested, hits by
    words count only where there are no vectors."""
    view, question, strategy = search.view, search.question, search.question.request.strategy
    near: dict[int, Nearest] = {}
    hits: list[Hits] = []
    numbers: set[Ref] = set()
    for side in search.sides:
        space, vectors = side.source.texts.space, side.source.vectors
        if search.vector is not None and vectors is not None:
            if space not in near:
                near[space] = vectors.nearest(search.vector, FIRST_SEARCH)
            numbers.update(near[space], side.own)
        if strategy != "vector" or space not in near:
            hits.append(side.hits)
            numbers.update(side.hits)
    facts = view.ranking_facts(numbers, question.filters)
    spaces = ((side, near.get(side.source.texts.space)) for side in search.sides)
    found: list[Mapping[Ref, float]] = [
        _nearest(side, nearest, search.vector, facts) for side, nearest in spaces if nearest is not None
    ]
    found += hits
    if missing := {ref for each in found for ref in each if ref not in numbers}:
        facts |= view.ranking_facts(missing, question.filters)
    wanted = {ref: facts[ref] for each in found for ref in each if ref in facts}
    first = [ref for each in found for ref in sorted(each, key=lambda ref: (-each[ref], ref))[:EXPANDED]]
    bm25 = {ref: score for side in hits for ref, score in side.items()}
    return describe(search, wanted, bm25, first), "keyword" if search.vector is None else strategy


def _nearest(side: Side, near: Nearest, vector: Vectors | None, facts: Mapping[Ref, RankingFacts]) -> Nearest:
    """Return a side's nearest `CANDIDATES`, some perhaps without `facts`. `near` are the nearest in any scope."""
    vectors, scopes = side.source.vectors, side.filters.scopes
    assert vector is not None
    assert vectors is not None
    if side.own:
        return vectors.nearest(vector, CANDIDATES, [ref for ref in side.own if ref in facts])
    passing = (ref for ref in near if ref in facts and (not scopes or facts[ref].scope in scopes))
    cosines = {ref: near[ref] for ref in islice(passing, CANDIDATES)}
    if len(cosines) < CANDIDATES and len(near) == FIRST_SEARCH:  # the filters removed too many
        return vectors.nearest(vector, CANDIDATES, side.source.texts.matching(side.filters, NO_LIMIT))
    return cosines


def describe(
    search: Search,
    facts: Mapping[Ref, RankingFacts],
    bm25: Mapping[Ref, float] = MappingProxyType({}),
    first: Collection[Ref] = (),
) -> Rows:
    """Return these memories as candidates, with the neighbours of those in `first`."""
    view, question, vector = search.view, search.question, search.vector
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
    every = dict.fromkeys(chain(refs, *(around.get(ref, ()) for ref in refs)))  # also the neighbours of candidates
    places = {ref: place for place, ref in enumerate(every)}
    matched = np.zeros((len(places), len(question.units)), dtype=bool)
    for unit, having in enumerate(search.postings):
        matched[[places[ref] for ref in places.keys() & having], unit] = True
    cosines, openings = np.full((2, len(places)), np.nan)
    means: Vectors = np.zeros((len(places), 0 if vector is None else len(vector)), dtype=np.float32)
    for source in view.sources.values():
        if vector is not None and places and source.vectors is not None:
            found = compare(source.vectors.of_memories(list(places)), vector, source.vectors.scale)
            there = [places[ref] for ref in found.memories]
            cosines[there], openings[there], means[there] = found.cosines, found.openings, found.means
    asked_at, numbered, windows, weights = question.asked.asked_at, question.numbered, question.windows, search.weights
    context_cosine, context_coverage = np.full((2, count), np.nan)
    is_turn = np.array([each.type == "episodic" for each in known.values()], dtype=bool)
    middles = np.flatnonzero(is_turn & np.isnan(openings[:count])).tolist()
    if middles:
        together = [[place, *(places[other] for other in around.get(refs[place], ()))] for place in middles]
        lengths, members = np.array([len(each) for each in together]), np.array(list(chain(*together)))
        starts = np.cumsum(lengths) - lengths
        sums = np.add.reduceat(np.nan_to_num(cosines)[members], starts)
        context_cosine[middles] = np.where(np.isnan(cosines[middles]), np.nan, sums / lengths)
        context_coverage[middles] = coverage(np.logical_or.reduceat(matched[members], starts, axis=0), weights)
    words = matched[:count]
    covered = coverage(words, weights)
    is_rule = np.array([each.kind in RULES for each in known.values()], dtype=bool)
    standings = np.array([standing(each.status, each.valid_until, asked_at) for each in known.values()])
    # Events are not replaced.
    is_fact = [float(each.type != "episodic" or each.kind == "decision") for each in known.values()]
    return Rows(
        refs=np.array(refs, dtype=np.int64),
        facts=np.array(list(known.values()), dtype=np.object_),
        words=words,
        vectors=means[:count],
        cosine=cosines[:count],
        opening=openings[:count],
        bm25=np.array([bm25.get(ref, 0.0) for ref in refs]),
        coverage=covered,
        context_cosine=context_cosine,
        context_coverage=context_coverage,
        names_missed=1.0 - words[:, numbered].mean(axis=1) if numbered else np.zeros(count),
        nearness=np.array([nearness(each.happened_at, windows) if windows else 0.0 for each in known.values()]),
        happened_at=np.array([each.happened_at for each in known.values()]),
        importance=np.array([each.importance for each in known.values()]),
        standing=standings + np.where(is_rule & (standings < EXPIRED), OF_A_RULE * (1.0 - covered), 0.0),
        is_fact=np.array(is_fact),
        by_assistant=np.array([float(each.by_assistant) for each in known.values()]),
        graph=np.zeros(count),
    )


class Compared(NamedTuple):
    """For each memory, the cosine of its best passage, that of its first passage (`openings`; NaN if it is the only
    one), and its mean vector, of unit length."""

    memories: Sequence[int]
    cosines: Column
    openings: Column
    means: Vectors


def compare(passages: PassageVectors, query: Vectors, scale: CosineScale = CALIBRATED) -> Compared:
    """Compare memories with the vector of a query (dimensions,). The cosines are on the default model's scale."""
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
