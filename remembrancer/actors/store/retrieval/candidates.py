"""The candidates that one file brings to a recall: the memories nearest to the question by meaning and by words, what
was told next to them, and everything that ranks them.

A project's file holds its sessions' memories too. Each scope has candidates of its own, so that the few of a session
are not crowded out by the many of its project.
"""

from __future__ import annotations

import itertools
import logging
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

import msgspec

from remembrancer.actors.store.file_memories import FileMemories
from remembrancer.actors.store.records.contract import (
    EVERY,
    Filters,
    KeywordHit,
    PassageVectors,
    RankingFacts,
    Survey,
    Vectors,
)
from remembrancer.actors.store.records.materials import mean_vectors
from remembrancer.actors.store.records.sqlite_records import Records
from remembrancer.actors.store.retrieval.question import Question
from remembrancer.actors.store.vectors.exact_vectors import IndexLost, SpaceVectors
from remembrancer.memory.ranking import on_the_scale
from remembrancer.protocol.kinds import SCOPES, Scope
from remembrancer.protocol.work import CALIBRATED, CosineScale

CANDIDATES: Final = 50
"""Memories that each search brings, from each scope."""
TOLD_NEXT_TO: Final = 10
"""So many of the nearest by meaning, and so many by words, bring what was told next to them."""
FIRST_SEARCH: Final = 2 * CANDIDATES
"""Memories looked at first: some may not pass the filters."""
MOST_AT_FIRST: Final = 400
"""Memories looked at at once where many of them are known to be of other scopes."""
GLADLY_SCORED: Final = 4000
"""Memories of a file of which each that has a word of the question is scored."""
FEW: Final = 1000
"""Memories of a session's own that are compared one by one."""

USERS: Final[frozenset[Scope]] = frozenset({"user"})
PROJECTS: Final[frozenset[Scope]] = frozenset({"session", "project"})

SearchedTexts = Records | FileMemories
"""Texts that a recall looks into."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Source:
    """A lane of a view: its records, and its passages when they can be searched (None: not now)."""

    records: SearchedTexts
    passages: SpaceVectors | None = None

    @property
    def scopes(self) -> frozenset[Scope]:
        """The scopes of the memories in it."""
        return USERS if self.records.is_users else PROJECTS


class Row(msgspec.Struct, frozen=True, gc=False):
    """One candidate: what ranks it. None: not known, or there is none."""

    facts: RankingFacts
    bm25: float | None = None
    cosine: float | None = None
    """Of the best passage with the question."""
    opening: float | None = None
    """Of the first passage, where there are several."""
    words: frozenset[int] = frozenset()
    """The question's units that it has, by their places."""
    context_cosine: float | None = None
    """The mean cosine of a turn and those told just before and after it."""
    context_words: frozenset[int] | None = None
    """The question's units that a turn and those around it have together."""
    vector: Vectors | None = None
    """The mean of its passages, of unit length."""


@dataclass(frozen=True, slots=True)
class Found:
    """A file's candidates by their numbers. `by_meaning`: its vectors were searched."""

    by_meaning: bool
    rows: dict[int, Row]


@dataclass(frozen=True, slots=True)
class WordsFound:
    """The knowledge of a file before the question's vector is there.

    `sides` are the searches into which the filters were divided, and `hits` what each of them found by words; None: the
    words are to be searched only if the vectors cannot be.
    """

    survey: Survey
    sides: Sequence[Filters] = ()
    hits: Sequence[list[KeywordHit]] | None = ()


def find_words(records: SearchedTexts, question: Question) -> WordsFound:
    """The part of one file's candidates that is found by words, and all else that needs no vector of the question.

    The filters are divided into two searches where the session has memories of its own: for these, and for all others.
    An empty file is not searched.
    """
    filters = question.filters
    survey = records.survey(question.units, filters.session_id, FEW)
    if not survey.sizes.scopes and not filters.include_forgotten:
        return WordsFound(survey)
    sides = [filters]
    others = tuple(scope for scope in filters.scopes or SCOPES if scope != "session")
    has_own = survey.own is None or len(survey.own) > 0
    if has_own and filters.session_id and len(others) != len(filters.scopes):
        own = msgspec.structs.replace(filters, scopes=("session",))
        sides = [own, msgspec.structs.replace(filters, scopes=others)] if others else [own]
    hits = _by_words(records, question, survey, len(sides)) if question.strategy != "vector" else None
    return WordsFound(survey, sides, hits)


def _by_words(records: SearchedTexts, question: Question, survey: Survey, sides: int) -> Sequence[list[KeywordHit]]:
    """The memories that have words of the question, for each side."""
    if not question.phrases:
        return [[] for _ in range(sides)]
    counted = None
    if survey.sizes.memories > GLADLY_SCORED:
        units = zip(question.units, survey.frequencies, strict=True)
        counted = {unit[0]: count for unit, count in units if len(unit) == 1}
    return records.keyword_hits(question.phrases, question.filters, CANDIDATES, apart=sides > 1, counted=counted)


def find_candidates(source: Source, question: Question, words: WordsFound) -> Found:
    """The candidates of each side of one file that pass the filters, each with all that ranks it.

    `words` is what `find_words` has found. Where vectors alone were asked for, the words are searched only if the
    vectors cannot be.
    """
    if not words.sides:
        return Found(by_meaning=True, rows={})
    records, hits = source.records, words.hits
    nearest = _nearest(source, question, words)
    if hits is None:
        hits = [[] for _ in words.sides]
        if nearest is None:
            hits = _by_words(records, question, words.survey, len(words.sides))
    bm25 = {hit.number: hit.bm25 for its in hits for hit in its}
    near: Sequence[Mapping[int, float]] = ()
    if nearest is not None:
        near, facts = nearest
    else:
        facts = records.ranking_facts(list(bm25), question.filters) if bm25 else {}
    wanted = dict.fromkeys(number for number in (*(each for its in near for each in its), *bm25) if number in facts)
    first = [number for its in near for number in _first(its)]
    first += [number for its in hits for number in _first({hit.number: hit.bm25 for hit in its})]
    rows = describe(source, question, words.survey.frequencies, {each: facts[each] for each in wanted}, bm25, first)
    return Found(nearest is not None, rows)


def _nearest(
    source: Source, question: Question, words: WordsFound
) -> tuple[list[dict[int, float]], Mapping[int, RankingFacts]] | None:
    """For each side the cosines of the `CANDIDATES` nearest memories, and the facts of these and of what has words of
    the question; None where the vectors cannot be searched."""
    records, passages, vector, survey = source.records, source.passages, question.vector, words.survey
    if vector is None or passages is None:
        return None
    by_words = [hit.number for its in words.hits or () for hit in its]
    own = survey.own if len(words.sides) > 1 or question.filters.scopes == ("session",) else None
    try:
        limit = _first_depth(words.sides[-1], survey.sizes.scopes)
        near = {} if own is not None and len(words.sides) == 1 else passages.nearest(vector, limit)
        numbers = dict.fromkeys((*near, *(own or ()), *by_words))
        facts = records.ranking_facts(list(numbers), question.filters) if numbers else {}
        sides: list[dict[int, float]] = []
        for side in words.sides:
            if own is not None and side.scopes == ("session",):
                cosines = passages.nearest(vector, CANDIDATES, [number for number in own if number in facts])
            else:
                cosines = _passing(near, facts, side)
                if len(cosines) < CANDIDATES and len(near) == limit:  # the filters have turned too many away
                    cosines = passages.nearest(vector, CANDIDATES, records.matching(side, EVERY))
                    more = [number for number in cosines if number not in facts]
                    facts = {**facts, **(records.ranking_facts(more, question.filters) if more else {})}
            sides.append(cosines)
    except IndexLost:
        logger.warning("an index cannot be searched", exc_info=True)
        return None
    return sides, facts


def _first_depth(side: Filters, sizes: Mapping[Scope, int]) -> int:
    """The number of memories that are looked at first, where some of them are known to be of other scopes."""
    total = sum(sizes.values())
    wanted = sum(sizes.get(scope, 0) for scope in side.scopes or ("project", "user"))
    first = math.ceil(FIRST_SEARCH * total / wanted) if 0 < wanted < total else FIRST_SEARCH
    return first if first <= MOST_AT_FIRST else FIRST_SEARCH


def _passing(near: Mapping[int, float], facts: Mapping[int, RankingFacts], side: Filters) -> dict[int, float]:
    """The cosines of the nearest `CANDIDATES` of these memories that pass the filters of a side."""
    passing = (
        (number, cosine)
        for number, cosine in near.items()
        if (known := facts.get(number)) is not None and (not side.scopes or known.scope in side.scopes)
    )
    return dict(itertools.islice(passing, CANDIDATES))


def describe(
    source: Source,
    question: Question,
    frequencies: Sequence[int],
    facts: Mapping[int, RankingFacts],
    bm25: Mapping[int, float] = MappingProxyType({}),
    first: Collection[int] = (),
) -> dict[int, Row]:
    """The facts that rank these memories of a file, and those that were told next to the `first` of them.

    Their passages and the words of the question in them are read once.
    """
    records, known = source.records, dict(facts)
    around: dict[int, dict[int, int]] = {}
    turns = [number for number, each in facts.items() if each.type == "episodic"]
    if turns:
        told = records.neighbours(turns, question.filters, and_theirs=len(first) > 0)
        around = {number: told.steps[number] for number in turns if number in told.steps}
        for number in first:
            for other in around.get(number, ()):
                if other not in known:
                    known[other] = told.facts[other]
        around |= {number: told.steps[number] for number in known if number in told.steps}
    if not known:
        return {}
    everything = list(dict.fromkeys((*known, *(other for others in around.values() for other in others))))
    matched = records.words_in(question.units, frequencies, everything) if question.units else {}
    compared = compare(source.passages, question.vector, everything)
    rows: dict[int, Row] = {}
    for number, each in known.items():
        cosine, opening = compared.cosines.get(number), compared.openings.get(number)
        words = frozenset(matched.get(number, ()))
        context_cosine, context_words = None, None
        if each.type == "episodic" and opening is None:
            told_together = [number, *around.get(number, ())]
            if cosine is not None:
                context_cosine = sum(compared.cosines.get(other, 0.0) for other in told_together) / len(told_together)
            context_words = words.union(*(matched.get(other, ()) for other in told_together))
        mean = compared.means.get(number)
        rows[number] = Row(each, bm25.get(number), cosine, opening, words, context_cosine, context_words, mean)
    return rows


@dataclass(frozen=True, slots=True)
class Compared:
    """Memories that have vectors, by their numbers: the cosine of the best passage, that of the first one where there
    are several, and the mean vector."""

    cosines: dict[int, float] = field(default_factory=dict)
    openings: dict[int, float] = field(default_factory=dict)
    means: dict[int, Vectors] = field(default_factory=dict)


def compare(passages: SpaceVectors | None, query: Vectors | None, numbers: Sequence[int]) -> Compared:
    """These memories held against the query's vector (dimensions,), with cosines on the default model's scale."""
    if query is None or passages is None or not numbers:
        return Compared()
    return compared(passages.of_memories(numbers), query, passages.scale)


def compared(passages: PassageVectors, query: Vectors, scale: CosineScale = CALIBRATED) -> Compared:
    """The memories of these passages held against the query's vector. Pure."""
    found = Compared()
    if not passages.numbers:
        return found
    counts: dict[int, int] = {}
    firsts: dict[int, float] = {}
    cosines = (passages.vectors @ query).tolist()
    if scale != CALIBRATED:
        cosines = [on_the_scale(cosine, scale) for cosine in cosines]
    for memory, ordinal, cosine in zip(passages.memories, passages.ordinals, cosines, strict=True):
        counts[memory] = counts.get(memory, 0) + 1
        if cosine > found.cosines.get(memory, -math.inf):
            found.cosines[memory] = cosine
        if ordinal == 0:
            firsts[memory] = cosine
    found.openings.update({memory: cosine for memory, cosine in firsts.items() if counts[memory] > 1})
    found.means.update(zip(*mean_vectors(passages), strict=True))
    return found


def _first(values: Mapping[int, float]) -> list[int]:
    return sorted(values, key=lambda number: (-values[number], number))[:TOLD_NEXT_TO]
