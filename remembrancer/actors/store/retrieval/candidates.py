"""The candidates of a recall: the memories nearest to the question by meaning and by words, their neighbours, and all
data for ranking them.

A project's space also holds its sessions' memories. Each scope has its own candidates, so that the few memories of a
session are not crowded out by those of the project.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

import msgspec
import numpy as np

from remembrancer.actors.store.file_memories import FileMemories
from remembrancer.actors.store.records.contract import (
    EVERY,
    Filters,
    KeywordHit,
    PassageVectors,
    RankingFacts,
    Vectors,
)
from remembrancer.actors.store.records.materials import mean_vectors
from remembrancer.actors.store.retrieval.question import Question
from remembrancer.actors.store.retrieval.view import Ref, Source, View
from remembrancer.actors.store.vectors.exact_vectors import Nearest
from remembrancer.memory.features import Column
from remembrancer.memory.ranking import on_the_scale
from remembrancer.protocol.kinds import SCOPES, Scope
from remembrancer.protocol.work import CALIBRATED, CosineScale

CANDIDATES: Final = 50
"""The number of memories from each search, in each scope."""
TOLD_NEXT_TO: Final = 10
"""The number of best hits by meaning, and of best hits by words, whose neighbours become candidates too."""
FIRST_SEARCH: Final = 2 * CANDIDATES
"""The number of memories in the first search, as some may not pass the filters."""
MOST_AT_FIRST: Final = 400
"""The limit on the first search if many of the memories are known to be of other scopes."""
GLADLY_SCORED: Final = 4000
"""The size of a space up to which every memory with a word of the question is scored."""
FEW: Final = 1000
"""The number of a session's own memories up to which they are compared one by one."""
TRUSTED_SIZE: Final = 10
"""The size at which a space's BM25 is scaled half by the best of all spaces, and half by the space's own best."""


class Row(msgspec.Struct, frozen=True, gc=False):
    """A candidate's ranking data. None: unknown or missing."""

    facts: RankingFacts
    bm25: float | None = None
    cosine: float | None = None
    """The cosine of the best passage with the question."""
    opening: float | None = None
    """The cosine of the first passage, if there are several."""
    words: frozenset[int] = frozenset()
    """The positions of the question's units that it contains."""
    context_cosine: float | None = None
    """The mean cosine of a turn and its neighbours."""
    context_words: frozenset[int] | None = None
    """The question's units that a turn and its neighbours contain together."""
    vector: Vectors | None = None
    """The mean of its passages, of unit length."""


Rows = dict[Ref, Row]
"""Candidates by memory."""


@dataclass(frozen=True, slots=True)
class WordsFound:
    """The findings in a space before the question's vector is available.

    The filters are split into `sides`, and `hits` are the results by words of each; None: words are searched only if
    the vectors cannot be. `own` are the session's own memories; None: too many.
    """

    sizes: Mapping[Scope, int]
    frequencies: Sequence[int]
    own: Sequence[int] | None = ()
    sides: Sequence[Filters] = ()
    hits: Sequence[list[KeywordHit]] | None = ()

    @property
    def size(self) -> int:
        """The number of memories, visible or not."""
        return sum(self.sizes.values())


Words = Mapping[int, WordsFound]
"""Findings by space number."""


@dataclass(frozen=True, slots=True)
class Candidates:
    """The candidates. `by_meaning`: vectors were searched; `whole`: those of every space that has any."""

    rows: Rows
    by_meaning: bool
    whole: bool


def find_words(view: View, question: Question) -> Words:
    """Do all of a recall that does not need the question's vector.

    If the session has memories of its own, the filters are split into two searches: for these, and for all others. An
    empty space is not searched.
    """
    filters = question.filters
    survey = view.reader.survey(question.units, filters.session_id, FEW)
    found: dict[int, WordsFound] = {}
    for space, source in view.sources.items():
        texts = source.texts
        if isinstance(texts, FileMemories):
            known = WordsFound({"project": texts.size} if texts.size else {}, texts.frequencies(question.units))
        else:
            own = None if survey.own is None else survey.own.get(space, ())
            known = WordsFound(survey.sizes[space], survey.frequencies[space], own)
        if known.sizes or filters.include_forgotten:
            sides = _sides(filters, known.own)
            hits = _by_words(source, question, known, len(sides)) if question.strategy != "vector" else None
            known = WordsFound(known.sizes, known.frequencies, known.own, sides, hits)
        found[space] = known
    return found


def _sides(filters: Filters, own: Sequence[int] | None) -> list[Filters]:
    others = tuple(scope for scope in filters.scopes or SCOPES if scope != "session")
    has_own = own is None or len(own) > 0
    if not has_own or not filters.session_id or len(others) == len(filters.scopes):
        return [filters]
    of_session = msgspec.structs.replace(filters, scopes=("session",))
    return [of_session, msgspec.structs.replace(filters, scopes=others)] if others else [of_session]


def _by_words(source: Source, question: Question, words: WordsFound, sides: int) -> Sequence[list[KeywordHit]]:
    """Return the memories with words of the question, for each side."""
    if not question.phrases:
        return [[] for _ in range(sides)]
    counted = None
    if words.size > GLADLY_SCORED:
        units = zip(question.units, words.frequencies, strict=True)
        counted = {unit[0]: count for unit, count in units if len(unit) == 1}
    return source.texts.keyword_hits(question.phrases, question.filters, CANDIDATES, apart=sides > 1, counted=counted)


class _Search:
    """A running search of one space. `near` are the cosines of the nearest memories, of any scope; None: its vectors
    cannot be searched."""

    def __init__(self, source: Source, question: Question, words: WordsFound) -> None:
        self.space = source.space
        self._source = source
        self._question = question
        self._words = words
        self._vector = question.vector if source.vectors is not None else None
        self._limit = _first_depth(words.sides[-1], words.sizes)
        self.is_own = words.sides[0].scopes == ("session",)
        self.near: Nearest | None = None
        if self._vector is not None:
            only_own = self.is_own and words.own is not None and len(words.sides) == 1
            self.near = {} if only_own else source.nearest(self._vector, self._limit)
        hits = words.hits
        if hits is None:
            without = self.near is None
            hits = _by_words(source, question, words, len(words.sides)) if without else [[] for _ in words.sides]
        self.hits = hits

    def numbers(self) -> list[Ref]:
        """Return the memories whose facts decide which become candidates."""
        by_words = [hit.number for its in self.hits for hit in its]
        if self.near is None:
            return by_words
        return [*self.near, *((self._words.own or ()) if self.is_own else ()), *by_words]

    def nearest(self, view: View, facts: dict[Ref, RankingFacts]) -> list[Nearest]:
        """Return for each side the cosines of the `CANDIDATES` nearest memories. Adds missing facts to `facts`."""
        if self.near is None or self._vector is None:
            return []
        sides: list[Nearest] = []
        for side in self._words.sides:
            if side.scopes == ("session",) and self._words.own is not None:
                own = [number for number in self._words.own if number in facts]
                sides.append(self._source.nearest(self._vector, CANDIDATES, own))
                continue
            cosines = _passing(self.near, facts, side)
            if len(cosines) < CANDIDATES and len(self.near) == self._limit:  # the filters removed too many
                cosines = self._source.nearest(self._vector, CANDIDATES, self._source.texts.matching(side, EVERY))
                facts |= view.ranking_facts([ref for ref in cosines if ref not in facts], self._question.filters)
            sides.append(cosines)
        return sides


def find_candidates(view: View, question: Question, words: Words) -> Candidates:
    """Return the candidates of each side of each space that pass the filters, with all ranking data.

    `words` is the result of `find_words`. If only vectors were requested, words are searched only if there are none.
    """
    searches = [_Search(source, question, words[space]) for space, source in view.sources.items() if words[space].sides]
    numbers = dict.fromkeys(number for each in searches for number in each.numbers())
    facts = view.ranking_facts(numbers, question.filters)
    near = [each.nearest(view, facts) for each in searches]
    bm25 = {hit.number: hit.bm25 for each in searches for its in each.hits for hit in its}
    wanted: dict[Ref, RankingFacts] = {}
    first: list[Ref] = []
    for search, sides in zip(searches, near, strict=True):
        of_words = [{hit.number: hit.bm25 for hit in its} for its in search.hits]
        wanted |= {ref: facts[ref] for found in (*sides, *of_words) for ref in found if ref in facts}
        first += [ref for found in (*sides, *of_words) for ref in _first(found)]
    rows = describe(view, question, words, wanted, bm25, first)
    with_rows = {row.facts.space for row in rows.values()}
    searched = [each.near is not None for each in searches if each.near is not None or each.space in with_rows]
    return Candidates(rows, by_meaning=not searches or any(searched), whole=all(searched))


def _first_depth(side: Filters, sizes: Mapping[Scope, int]) -> int:
    """Return the number of memories to search first, if some are known to be of other scopes."""
    total = sum(sizes.values())
    wanted = sum(sizes.get(scope, 0) for scope in side.scopes or ("project", "user"))
    first = math.ceil(FIRST_SEARCH * total / wanted) if 0 < wanted < total else FIRST_SEARCH
    return first if first <= MOST_AT_FIRST else FIRST_SEARCH


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
    words: Words,
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
        told = view.reader.neighbours(turns, question.filters, and_theirs=len(first) > 0)
        around, others = told.steps, told.facts
        known |= {other: others[other] for ref in first for other in around.get(ref, ()) if other not in known}
    by_space: defaultdict[int, list[Ref]] = defaultdict(list)
    told_around = (other for each in known for other in around.get(each, ()))
    for ref in dict.fromkeys((*known, *told_around)):
        by_space[(known.get(ref) or others[ref]).space].append(ref)
    matched: dict[Ref, set[int]] = {}
    compared = Compared()
    for space, refs in by_space.items():
        source = view.sources[space]
        if question.units:
            matched |= source.texts.words_in(question.units, words[space].frequencies, refs)
        if question.vector is not None and source.vectors is not None:
            compared.add(source.passages_of(refs), question.vector, source.vectors.scale)
    rows: Rows = {}
    for ref, each in known.items():
        cosine, opening = compared.cosines.get(ref), compared.openings.get(ref)
        own = frozenset(matched.get(ref, ()))
        context_cosine, context_words = None, None
        if each.type == "episodic" and opening is None:
            together = [ref, *around.get(ref, ())]
            if cosine is not None:
                context_cosine = sum(compared.cosines.get(other, 0.0) for other in together) / len(together)
            context_words = own.union(*(matched.get(other, ()) for other in together))
        mean = compared.means.get(ref)
        rows[ref] = Row(each, bm25.get(ref), cosine, opening, own, context_cosine, context_words, mean)
    return rows


@dataclass(frozen=True, slots=True)
class Compared:
    """Vector comparisons of memories: the cosine of the best passage, that of the first one if there are several, and
    the mean vector."""

    cosines: dict[Ref, float] = field(default_factory=dict)
    openings: dict[Ref, float] = field(default_factory=dict)
    means: dict[Ref, Vectors] = field(default_factory=dict)

    def add(self, passages: PassageVectors, query: Vectors, scale: CosineScale = CALIBRATED) -> None:
        """Compare the memories of these passages with the query's vector (dimensions,). The cosines are on the default
        model's scale."""
        if not passages.numbers:
            return
        counts: dict[int, int] = {}
        firsts: dict[int, float] = {}
        cosines = (passages.vectors @ query).tolist()
        if scale != CALIBRATED:
            cosines = [on_the_scale(cosine, scale) for cosine in cosines]
        for memory, ordinal, cosine in zip(passages.memories, passages.ordinals, cosines, strict=True):
            counts[memory] = counts.get(memory, 0) + 1
            if cosine > self.cosines.get(memory, -math.inf):
                self.cosines[memory] = cosine
            if ordinal == 0:
                firsts[memory] = cosine
        self.openings.update({memory: cosine for memory, cosine in firsts.items() if counts[memory] > 1})
        self.means.update(zip(*mean_vectors(passages), strict=True))


def comparable(rows: Rows, sizes: Mapping[int, int]) -> Column:
    """Scale the candidates' BM25 for comparison across spaces. `sizes` are the numbers of memories in the spaces.

    BM25 weighs a word by its rarity in its space, which grows with the logarithm of the space's size; in a space of
    three no word is rare. So scores are divided by that logarithm, and by the best of the results. The smaller a space,
    the more it is scaled by its own best score instead, which gives every space a perfect match, however bad.
    """
    bm25 = np.array([row.bm25 or 0.0 for row in rows.values()])
    if not bm25.any():
        return bm25
    spaces = np.array([row.facts.space for row in rows.values()])
    scaled, own, trust = bm25.copy(), np.ones(len(bm25)), np.ones(len(bm25))
    for space in set(spaces.tolist()):
        its, size = spaces == space, sizes[space]
        scaled[its] /= math.log(2.0 + size)
        own[its] = bm25[its].max() or 1.0
        trust[its] = size / (size + TRUSTED_SIZE)
    return np.asarray(trust * (scaled / scaled.max()) + (1.0 - trust) * (bm25 / own))


def _first(values: Mapping[Ref, float]) -> list[Ref]:
    return sorted(values, key=lambda ref: (-values[ref], ref))[:TOLD_NEXT_TO]
