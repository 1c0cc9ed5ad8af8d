"""How a memory is ranked. Pure functions; the clock is passed in.

Relevance is a fusion of the candidates' min-max scores of the cosine and of BM25, and under `graph` of that with
nearness in the graph; the final score is a composite: 0.6 relevance + 0.2 importance + 0.2 recency,
unless the configuration weighs them otherwise, of which recency has a tenth where there is a question. It is lowered
for what the profile says less of (the memory's scope), and for a memory that another stands for or that has had its
time.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from remembrancer.actors.store.retrieval.profiles import ScopeWeights
from remembrancer.protocol.kinds import Scope, Status
from remembrancer.protocol.reads import Scores, Strategy

RECENCY_HALF_LIFE_S: Final = 30 * 86_400.0
"""The half-life of the user scope. A project's shorter one decides what is archived, not what is found."""
VECTOR_SHARE: Final = 0.5
"""Share of the cosine in hybrid relevance; the rest is BM25's."""
GRAPH_SHARE: Final = 0.5
"""Share of the graph in the relevance of what it connects; the rest is hybrid."""
TIME_SHARE: Final = 1.0
"""How much more a memory counts for lying within a time that the query names.

Of the 46 questions on three conversations of LoCoMo that name a time so many in 100 have their evidence among the first
ten: 76.1 with 0, 89.1 with 0.2, 91.3 with 0.4, 95.7 with 0.7, 97.8 with 1 and with 2; and the first memory is evidence
for 34.8, 37.0, 45.7, 52.2, 52.2 and 52.2.
"""
QUESTION_RECENCY: Final = 0.1
"""What a question leaves of the weight of recency.

With all of it (a third of the weight of relevance) 80.0 of 100 questions of LoCoMo have evidence among the first ten,
with a half 85.5, with a quarter 87.1, with a tenth 87.5 and without any 87.3. On LongMemEval (50 questions) all that
answers is among the first five for 94, 94, 94, 96 and 96 in 100, and the first is right for 96, 94, 94, 94 and 94.
"""
HEAD_SHARE: Final = 0.3
"""The share of a long memory's first passage in its cosine; the rest is its best passage's.

What a text is about stands in its beginning. On LongMemEval (50 questions) all that answers is among the first five for
92 in 100 with 0, 96 with 0.1 to 0.5; with three times as many other memories the first is right for 76 and 80.
"""
COSINE_FLOOR: Final = 0.1
"""What two unrelated texts have in common for a sentence model: below it, a cosine says nothing."""
MIN_COSINE: Final = 0.25
"""A memory without a word of the query and below this cosine is noise: it is not returned."""
ANSWERABLE_COSINE: Final = 0.32
"""When the best memory is below this cosine, and none has most of the query's words, the query has no answer here.

So it is among 1,800 passages or more; the fewer there are, the less likely is it that one is near by chance, and the
less is enough (`answerable_cosine`).
"""
CHANCE_MEAN: Final = 0.03
CHANCE_SPREAD: Final = 0.075
"""The cosines of passages with a query on something else: mean, and spread as it shows in the largest of them.

Of 60 nonsense queries the best cosine with one of 370 to 660 turns of LoCoMo is 0.17 to 0.22 in the median and at most
0.29 for 95 in 100; with one of some 1,600 passages of LongMemEval 0.24 to 0.27, and 0.37. For 495 real questions of
LoCoMo it is at least 0.33, and for those of LongMemEval 0.31.
"""
NEAR_DUPLICATE_COSINE: Final = 0.95
TRUSTED_SIZE: Final = 10
"""Memories with which a file's BM25 is measured half by the best of all files, and half by the best of its own."""
SCOPE_TEMPER: Final = 0.05
"""The power that a profile's weights are raised to, relative to the largest of them.

With 1 the scope decides and not the question. Of 495 questions of LoCoMo about conversations
whose turns or sessions lay in three scopes at random, so many in 100 had an answer among the first five and the first
ten: 63.9 and 75.7 without weights, 63.9 and 74.8 with the power 0.05, 64.1 and 73.8 with 0.1, 62.7 and 72.5 with 0.15,
58.9 and 68.7 with 0.25, 44.2 and 53.2 with 0.5, 34.9 and 40.8 with 1. So a profile decides between memories that match
about equally.
"""
STATUS_FACTORS: Final[Mapping[Status, float]] = {
    "active": 1.0,
    "consolidated": 0.99,
    "promoted": 0.96,
    "archived": 0.95,
}
"""What a memory's status makes of its final score. Nothing is hidden: of what matches, it only comes later.

A random half of the turns of three conversations of LoCoMo was given a factor, in two ways and the reverse of each. Of
100 questions so many whose answer lay in that half (in the other half) had it among the first five: 64.5 (64.5) with 1,
63.4 (65.5) with 0.98, 61.3 (67.5) with 0.95, 57.6 (69.4) with 0.9, 46.6 (72.2) with 0.8, 27.8 (73.7) with 0.7 and
1.2 (74.6) with 0.5.
What is archived is mostly old as well, which its recency says already: with turns 60 days older and no factor it
was 46.7 (72.2), with 0.8 it was 17.1 (74.2) and with 0.5 it was 0.7 (74.6).

With all topics of these conversations summed up (`python -m bench.consolidation --only sources`), 64.8 questions in 100
have an answer among the first five, of the sources and not of the summaries: as many as before, and 64.6 with 0.98.
With 0.9 the first memory is the answer for 33.1 instead of 37.8.
"""
EXPIRED_FACTOR: Final = 0.9
"""For a fact whose validity has ended: what is valid now goes before what was, if it matches nearly as well.

By the figures for statuses, nine of ten that would be among the first ten answers without it still are; with 0.7 it
would be half of them.
"""

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Weights:
    """What the parts of the final score weigh, which is their mean: in [0, 1] as they are."""

    relevance: float = 0.6
    importance: float = 0.2
    recency: float = 0.2

    def __post_init__(self) -> None:
        if min(self.relevance, self.importance, self.recency) < 0 or self.total <= 0:
            raise ValueError("weights must not be negative, and one of them must be more than 0")

    @property
    def total(self) -> float:
        return self.relevance + self.importance + self.recency

    def asked(self) -> Weights:
        """These weights where there is a question: how new a memory is then says little (`QUESTION_RECENCY`)."""
        return Weights(self.relevance, self.importance, self.recency * QUESTION_RECENCY)

    def final(self, relevance: float, importance: float, recent: float) -> float:
        """The weighted mean."""
        weighed = self.relevance * relevance + self.importance * importance + self.recency * recent
        return weighed / self.total


DEFAULT_WEIGHTS: Final = Weights()


class Signals(msgspec.Struct, frozen=True, gc=False):
    """What the searches said of one memory: the best passage's cosine, BM25, the nearness of its entities in the graph
    to those that the query names, its first passage's cosine where it has several, what it was lent by what was told
    next to it, and the nearness of its time to one that the query names. None: it had no say."""

    cosine: float | None
    bm25: float | None
    graph: float | None = None
    head: float | None = None
    neighbour: float | None = None
    time: float | None = None

    @property
    def meaning(self) -> float | None:
        """The cosine that counts: of the best passage, and of the first."""
        if self.cosine is None or self.head is None:
            return self.cosine
        return (1.0 - HEAD_SHARE) * self.cosine + HEAD_SHARE * self.head


def recency(created_at: float, now: float) -> float:
    """Exponential decay from 1; a time in the future counts as now."""
    age_s = max(0.0, now - created_at)
    return float(0.5 ** (age_s / RECENCY_HALF_LIFE_S))


def best_passages(
    memories: Sequence[int], vectors: NDArray[np.float32], query: NDArray[np.float32]
) -> dict[int, float]:
    """The cosine of each memory's best passage. `vectors` is (len(memories), dimensions); all have unit length."""
    if not len(memories):
        return {}
    best: dict[int, float] = {}
    for memory, cosine in zip(memories, (vectors @ query).tolist(), strict=True):
        if cosine > best.get(memory, -math.inf):
            best[memory] = cosine
    return best


def side_by_side(files: Sequence[Mapping[int, Signals]], sizes: Sequence[int]) -> dict[tuple[int, int], Signals]:
    """The candidates of several files, by the file's place and the memory's number, with signals that can be compared.

    A cosine means the same everywhere. BM25 does not: it weighs a word by its rarity in its own file, which grows with
    the logarithm of the file's size (`sizes`: memories), and in a file of three no word is rare. So BM25 is divided by
    that logarithm and by what this makes of the best of all files; the smaller a file, the more also by the best of its
    own alone, by which every file has a perfect match, however bad it is: of 495 questions of LoCoMo about
    conversations in two files, it left 60 in 100 with an answer among the first five, and this way it is 64 as in one.
    """
    rarity = [math.log(2.0 + size) for size in sizes]
    bests = [max((each.bm25 for each in file.values() if each.bm25 is not None), default=0.0) for file in files]
    best = max((own / rare for own, rare in zip(bests, rarity, strict=True)), default=0.0)
    together: dict[tuple[int, int], Signals] = {}
    for place, candidates in enumerate(files):
        own, trust = bests[place], sizes[place] / (sizes[place] + TRUSTED_SIZE)
        for number, each in candidates.items():
            bm25 = each.bm25
            if bm25 is not None and best > 0.0 and own > 0.0:
                bm25 = trust * (bm25 / rarity[place] / best) + (1.0 - trust) * (bm25 / own)
            together[place, number] = msgspec.structs.replace(each, bm25=bm25)
    return together


def answerable_cosine(passages: int) -> float:
    """The cosine below which the best of so many passages is near by chance: about the largest of their number."""
    return min(ANSWERABLE_COSINE, CHANCE_MEAN + CHANCE_SPREAD * math.sqrt(2.0 * math.log(max(2, passages))))


def is_unlikely(candidates: Mapping[Key, Signals], answerable: float = ANSWERABLE_COSINE) -> bool:
    """Whether by meaning nothing answers the query, as far as the candidates have been compared with it."""
    compared = [each.cosine for each in candidates.values() if each.cosine is not None]
    return bool(compared) and len(compared) == len(candidates) and max(compared) < answerable


def words_tell(matched: int, asked: int) -> bool:
    """Whether a memory with so many of a query's words may answer it although its meaning is another one.

    More than half of them, or one of two: a name alone finds what has it, a common word in a question does not.
    """
    return matched * 2 > asked or (asked <= 2 and matched > 0)


def noise(
    candidates: Mapping[Key, Signals], *, by_words: bool = True, answerable: float = ANSWERABLE_COSINE
) -> set[Key]:
    """The candidates for which nothing speaks: no word of the query, no likeness of meaning, no entity near its own.

    Without `by_words` the words that candidates have in common with the query do not speak for them. `answerable` is
    the cosine that the best of them needs. Beside a good answer, what is far from the query is noise in a small file
    too.
    """
    has_words = by_words and any(each.bm25 is not None for each in candidates.values())
    best = max((each.cosine for each in candidates.values() if each.cosine is not None), default=0.0)
    least = answerable if best >= answerable else 1.0
    if has_words or best >= ANSWERABLE_COSINE:
        least = MIN_COSINE
    return {
        key
        for key, each in candidates.items()
        if (each.bm25 is None or not by_words) and each.graph is None and (each.cosine is None or each.cosine < least)
    }


def relevances(candidates: Mapping[Key, Signals], strategy: Strategy) -> dict[Key, float]:
    """Relevance in [0, 1] of each candidate, relative to the best of them.

    A signal is scaled between the floor below which it says nothing and the best candidate's value. Under `hybrid` a
    question in which no word was found rests on the cosine alone, and the reverse. A best cosine that may be chance is
    not scaled up to 1: a memory that has no vector yet would come after it, whatever words it has. Under `graph`
    nearness has a share, as it is, beside what the candidate would have under `hybrid`.
    """
    if strategy == "graph":
        hybrid = relevances(candidates, "hybrid")
        return {
            key: GRAPH_SHARE * (each.graph or 0.0) + (1.0 - GRAPH_SHARE) * hybrid[key]
            for key, each in candidates.items()
        }
    cosines = _scaled({key: each.meaning for key, each in candidates.items()}, COSINE_FLOOR, ANSWERABLE_COSINE)
    bm25s = _scaled({key: each.bm25 for key, each in candidates.items()}, 0.0)
    share = {"vector": 1.0, "keyword": 0.0, "hybrid": VECTOR_SHARE}[strategy]
    if not any(bm25s.values()) and strategy == "hybrid":
        share = 1.0
    elif not any(cosines.values()) and strategy == "hybrid":
        share = 0.0
    return {key: share * cosines[key] + (1.0 - share) * bm25s[key] for key in candidates}


def timely(relevance: Mapping[Key, float], near: Mapping[Key, float]) -> dict[Key, float]:
    """Relevance in [0, 1] with what the nearness to a time that the query names, in [0, 1], makes of it.

    Up to twice as much within that time, if it is the time of few candidates; nothing if it is that of all of them.
    """
    if not near:
        return dict(relevance)
    telling = TIME_SHARE * (1.0 - sum(near.values()) / len(near))
    moved = {key: own * (1.0 + telling * near.get(key, 0.0)) for key, own in relevance.items()}
    best = max(moved.values(), default=0.0)
    return moved if best <= 1.0 else {key: value / best for key, value in moved.items()}


def _scaled(values: Mapping[Key, float | None], floor: float, least: float = 0.0) -> dict[Key, float]:
    """The values between `floor` (0) and the best of them, or `least` if that is more (1)."""
    best = max(least, max((value for value in values.values() if value is not None), default=floor))
    if best <= floor:
        return dict.fromkeys(values, 0.0)
    return {key: 0.0 if value is None else max(0.0, value - floor) / (best - floor) for key, value in values.items()}


def scope_factors(weights: ScopeWeights, scopes: Collection[Scope], temper: float = SCOPE_TEMPER) -> dict[Scope, float]:
    """What the final score is multiplied by for each of the scopes: 1 for the heaviest, less for the others.

    Empty for one scope alone: there is nothing to weigh it against.
    """
    if len(scopes) < 2:
        return {}
    heaviest = max(weights.of(scope) for scope in scopes)
    return {scope: (weights.of(scope) / heaviest) ** temper for scope in scopes}


def has_ended(valid_until: float | None, now: float) -> bool:
    """Whether what a memory says has ceased to be valid."""
    return valid_until is not None and valid_until <= now


def standing(status: Status, valid_until: float | None, now: float) -> float:
    """What the final score of a memory is multiplied by for its status, and for having had its time."""
    return STATUS_FACTORS[status] * (EXPIRED_FACTOR if has_ended(valid_until, now) else 1.0)


def score(
    signals: Signals,
    relevance: float,
    best_bm25: float,
    importance: float,
    recent: float,
    weights: Weights = DEFAULT_WEIGHTS,
    *,
    scope: float | None = None,
    stands: float = 1.0,
) -> Scores:
    """The composite score of one memory, with what it is made of. `scope` is the factor of its scope, if there is one.

    `stands` is its `standing`, a factor of the final score alone.
    """
    factor = stands * (1.0 if scope is None else scope)
    return Scores(
        final=factor * weights.final(relevance, importance, recent),
        relevance=relevance,
        importance=importance,
        recency=recent,
        vector=None if signals.cosine is None else min(1.0, max(0.0, signals.cosine)),
        keyword=None if signals.bm25 is None or best_bm25 <= 0 else max(0.0, signals.bm25) / best_bm25,
        graph=signals.graph,
        scope=scope,
        head=None if signals.head is None else min(1.0, max(0.0, signals.head)),
        time=signals.time,
        neighbour=None if signals.neighbour is None else min(1.0, signals.neighbour),
    )
