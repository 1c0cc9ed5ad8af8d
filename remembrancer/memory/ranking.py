"""How a memory is ranked: relevance from what the searches said of it, and the composite score. Pure; the clock is
passed in.

Relevance is the mean of the candidates' scaled cosine and BM25, with what is next to a memory and the time that the
question names; the score weighs it with importance and recency, and is lowered for a lighter scope and for a memory
that another stands for or that has had its time. docs/retrieval.md has what was measured for these figures.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import mul
from types import MappingProxyType
from typing import Final, Protocol, TypeVar

import msgspec

from remembrancer.memory.profiles import ScopeWeights
from remembrancer.protocol.kinds import Scope, Status
from remembrancer.protocol.reads import Scores, Strategy
from remembrancer.protocol.work import CALIBRATED, CosineScale

RECENCY_HALF_LIFE_S: Final = 30 * 86_400.0
"""The half-life of the user scope. A project's shorter one decides what is archived, not what is found."""
VECTOR_SHARE: Final = 0.5
"""Share of the cosine in hybrid relevance; the rest is BM25's."""
GRAPH_SHARE: Final = 0.5
"""Share of the graph in the relevance of what it connects; the rest is hybrid."""
TIME_SHARE: Final = 1.0
"""How much more a memory counts for lying within a time that the query names."""
QUESTION_RECENCY: Final = 0.1
"""What a question leaves of the weight of recency: it asks for what fits, and seldom for what is new."""
ASSISTANT_SHARE: Final = 0.7
"""What is left of the relevance of what an assistant said, where users ask about themselves."""
HEAD_SHARE: Final = 0.3
"""The share of a long memory's first passage in its cosine: what a text is about stands in its beginning. The rest is
its best passage's."""
PAGERANK_SHARES: Final = (0.40, 0.15, 0.45)
"""What the cosine, BM25 and PageRank weigh in the ranking `pagerank`."""
PAGERANK_SEEDS: Final = 20
GRAPH_BOOST: Final = 0.6
"""The most by which PageRank lifts what is found by meaning and words."""
DAMPING: Final = 0.5
"""The share of PageRank that goes on at each step; the rest starts again at the seeds (as HippoRAG has it)."""
ROUNDS: Final = 15
PRECISION: Final = 5e-4
"""What waits at a node for each of its edges is left there when it is less than this: see `personal_pagerank`."""
NEIGHBOUR_SOURCES: Final = 10
"""So many of the nearest by meaning, and so many by words, boost their neighbours."""
NEIGHBOUR_SHARES: Final = (0.5, 0.35)
"""The share of its relevance by which a memory boosts those one step and two steps away."""
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
"""The cosines of passages with a query on something else: mean, and spread as it shows in the largest of them."""
LEAST_SPAN: Final = 0.05
"""Between the cosines of what belongs together and of what does not, for a model that hardly tells them apart."""
NEAR_DUPLICATE_COSINE: Final = 0.95
TRUSTED_SIZE: Final = 10
"""Memories with which a file's BM25 is measured half by the best of all files, and half by the best of its own."""
SCOPE_TEMPER: Final = 0.05
"""The power that a profile's weights are raised to, relative to the largest of them: with 1 the scope would decide and
not the question. So a profile decides between memories that match about equally."""
STATUS_FACTORS: Final[Mapping[Status, float]] = {
    "active": 1.0,
    "consolidated": 0.99,
    "promoted": 0.96,
    "archived": 0.95,
}
"""What a memory's status makes of its final score. Nothing is hidden: of what matches, it only comes later."""
EXPIRED_FACTOR: Final = 0.9
"""For a fact whose validity has ended: what is valid now goes before what was, if it matches nearly as well."""

Key = TypeVar("Key", bound=Hashable)

_PARTS: Final = re.compile(r"(?<=[.!?…])\s+|(?<=[。！？])|\n+")
"""Between two sentences."""
_LONGEST_MESSAGE: Final = 4000
_ASSISTANT: Final = re.compile(r"\s*(?:assistant|ai|bot|model)\s*:", re.IGNORECASE)
_USER: Final = re.compile(r"^\s*(?:user|human)\s*:", re.IGNORECASE | re.MULTILINE)
_OF_THE_USER: Final = re.compile(
    r"\b(?:i|me|my|mine|we|us|our|ich|mich|mir|mein\w{0,2}|wir|uns|unser\w{0,2}|je|j|moi|mon|ma|mes|nous|notre|nos|yo|mi|mis)\b",
    re.IGNORECASE,
)
_OF_THE_ASSISTANT: Final = re.compile(
    r"\b(?:(?:did|have|had) you"
    r"|you(?:'ve| have| had)? (?:said|told|gave|recommended|suggested|mentioned|explained|wrote|listed|showed|proposed)"
    r"|your (?:suggestions?|recommendations?|advice|answer|explanation)"
    r"|(?:hast|hattest) du|haben sie|as-tu|avez-vous|dijiste|recomendaste|sugeriste)\b",
    re.IGNORECASE,
)


def is_message(query: str) -> bool:
    """Whether a query has several sentences, and not only questions: it goes on with something."""
    parts = [each.strip() for each in _PARTS.split(query[:_LONGEST_MESSAGE]) if each.strip()]
    return len(parts) > 1 and not all(each.endswith(("?", "？")) for each in parts)


def is_assistants(content: str) -> bool:
    """Whether a memory is what an assistant said in a conversation, and nothing else."""
    return bool(_ASSISTANT.match(content)) and not _USER.search(content)


def asks_of_the_user(query: str) -> bool:
    """Whether users ask about themselves, and not about what they were told."""
    return bool(_OF_THE_USER.search(query)) and not _OF_THE_ASSISTANT.search(query)


@dataclass(frozen=True, slots=True)
class Weights:
    """What the parts of the final score weigh, which is their mean: in [0, 1] as they are."""

    relevance: float = 0.6
    importance: float = 0.2
    recency: float = 0.2

    def __post_init__(self) -> None:
        parts = (self.relevance, self.importance, self.recency)
        if min(parts) < 0 or not any(parts):
            raise ValueError("weights must not be negative, and one of them must be more than 0")

    def asked(self, query: str) -> Weights:
        """These weights for what is asked: how new a memory is says little for a question (`QUESTION_RECENCY`), and as
        much as ever for a message, which goes on with something."""
        share = 1.0 if is_message(query) else QUESTION_RECENCY
        return Weights(self.relevance, self.importance, self.recency * share)

    def final(self, relevance: float, importance: float, recent: float) -> float:
        """The weighted mean."""
        weighed = self.relevance * relevance + self.importance * importance + self.recency * recent
        return weighed / (self.relevance + self.importance + self.recency)


DEFAULT_WEIGHTS: Final = Weights()


class Signals(msgspec.Struct, frozen=True, gc=False):
    """What the searches said of one memory: the best passage's cosine, BM25, the nearness of its entities in the graph
    to those that the query names (or its PageRank over the best), and its first passage's cosine where it has several.
    None: it had no say."""

    cosine: float | None
    bm25: float | None
    graph: float | None = None
    head: float | None = None

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


def side_by_side(files: Sequence[Mapping[int, Signals]], sizes: Sequence[int]) -> dict[tuple[int, int], Signals]:
    """The candidates of several files, by the file's place and the memory's number, with signals that can be compared.

    A cosine means the same everywhere. BM25 does not: it weighs a word by its rarity in its own file, which grows with
    the logarithm of the file's size (`sizes`: memories), and in a file of three no word is rare. So BM25 is divided by
    that logarithm and by what this makes of the best of all files; the smaller a file, the more also by the best of its
    own alone, by which every file has a perfect match, however bad it is.
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


def on_the_scale(cosine: float, scale: CosineScale) -> float:
    """A cosine of a model as the default one would have it, by whose cosines the thresholds of this module were chosen.

    Two unrelated texts have 0.75 in common for some models, and what belongs together not much more.
    """
    share = (cosine - scale.unrelated) / max(LEAST_SPAN, scale.answering - scale.unrelated)
    return min(1.0, CALIBRATED.unrelated + share * (CALIBRATED.answering - CALIBRATED.unrelated))


def weighted_ranks(
    candidates: Mapping[Key, Signals], vector_weight: float = 0.7, keyword_weight: float = 0.3
) -> dict[Key, float]:
    """The cosine, and 1 / (1 + the place among those that have words of the query), weighed: in [0, 1]."""
    by_words = sorted((key for key in candidates if candidates[key].bm25), key=lambda key: -(candidates[key].bm25 or 0))
    ranks = {key: 1.0 / (1 + place) for place, key in enumerate(by_words)}
    return {
        key: vector_weight * max(0.0, each.cosine or 0.0) + keyword_weight * ranks.get(key, 0.0)
        for key, each in candidates.items()
    }


class Neighbourhood(Protocol[Key]):
    """An undirected graph of which a part is read at a time."""

    def degrees(self, nodes: Sequence[Key], most: int) -> Mapping[Key, int]:
        """How many edges each node has, or more than that; of those that have more than `most`, so many at least."""

    def neighbours(self, nodes: Sequence[Key]) -> Mapping[Key, Sequence[Key]]:
        """The nodes that each of these is joined to, each once."""


def personal_pagerank(
    seeds: Mapping[Key, float],
    graph: Neighbourhood[Key],
    precision: float = PRECISION,
    known: Mapping[Key, int] = MappingProxyType({}),
) -> dict[Key, float]:
    """PageRank personalised by the weights of `seeds`, as far as it was walked. `known` are degrees that need not be
    asked for.

    Forward push (Andersen, Chung and Lang, 2006) in `ROUNDS` rounds: what a node has received stays there to a half,
    and goes on to its neighbours in equal parts to the other, where that is at least `precision` for each. So no more
    than 1 / ((1 - `DAMPING`) * `precision`) edges are walked, whatever the size of the graph. No value is above the
    exact one, and where the rounds were enough none is below it by more than `precision` for each edge of its node.
    """
    whole = sum(seeds.values())
    waiting = {node: weight / whole for node, weight in seeds.items() if weight > 0.0}
    ranks: defaultdict[Key, float] = defaultdict(float)
    degrees = dict(known)
    neighbours: dict[Key, Sequence[Key]] = {}
    for _ in range(ROUNDS):
        heavy = [node for node, mass in waiting.items() if mass >= precision * max(1, degrees.get(node, 1))]
        most = int(max((waiting[node] for node in heavy), default=0.0) / precision) + 1
        degrees |= graph.degrees([node for node in heavy if node not in neighbours and node not in known], most)
        going = [node for node in heavy if waiting[node] >= precision * degrees.get(node, 0)]
        neighbours |= graph.neighbours([node for node in going if node not in neighbours])
        if not going:
            break
        pushed = [(node, waiting.pop(node)) for node in going]
        for node, mass in pushed:
            ranks[node] += mass * (1.0 - DAMPING)
            others = neighbours.get(node, ())
            for other in others:
                waiting[other] = waiting.get(other, 0.0) + mass * DAMPING / len(others)
    for node, mass in waiting.items():
        ranks[node] += mass * (1.0 - DAMPING)
    return dict(ranks)


def pagerank_relevances(candidates: Mapping[Key, Signals]) -> dict[Key, float]:
    """Relevance in [0, 1] by `PAGERANK_SHARES`, each signal scaled as in `relevances`; `graph` is PageRank."""
    parts = (
        _scaled({key: each.meaning for key, each in candidates.items()}, COSINE_FLOOR, ANSWERABLE_COSINE),
        _scaled({key: each.bm25 for key, each in candidates.items()}, 0.0),
        _scaled({key: each.graph for key, each in candidates.items()}, 0.0),
    )
    return {key: sum(map(mul, PAGERANK_SHARES, (part[key] for part in parts))) for key in candidates}


def first_of(values: Mapping[int, float]) -> list[int]:
    """The candidates that one search has put first, of those that may boost their neighbours."""
    return sorted(values, key=lambda number: (-values[number], number))[:NEIGHBOUR_SOURCES]


def neighbour_boosts(
    relevance: Mapping[Key, float], around: Iterable[tuple[Key, Mapping[Key, int]]], long: Collection[Key] = ()
) -> dict[Key, float]:
    """What each memory gains from those that the same session stored next to it: the most that one of them offers.

    An answer often stands next to the words of its question, without any of these words. `around` names memories and,
    for each, how many steps others are away. Those in `long` gain nothing: a whole text has its own context.
    """
    boosts: dict[Key, float] = {}
    for source, others in around:
        own = relevance.get(source, 0.0)
        for other, steps in others.items():
            if other in relevance and other not in long and steps <= len(NEIGHBOUR_SHARES):
                boosts[other] = max(boosts.get(other, 0.0), NEIGHBOUR_SHARES[steps - 1] * own)
    return boosts


def with_graph_boosts(boosts: Mapping[Key, float], candidates: Mapping[Key, Signals]) -> dict[Key, float]:
    """These boosts, or those by PageRank where they are more."""
    return {key: max(boosts.get(key, 0.0), GRAPH_BOOST * (each.graph or 0.0)) for key, each in candidates.items()}


def boosted(relevance: Mapping[Key, float], boosts: Mapping[Key, float]) -> dict[Key, float]:
    """Each memory's relevance in [0, 1] with its boost, which fills up a part of what it lacks."""
    return {key: own + boosts.get(key, 0.0) * (1.0 - own) for key, own in relevance.items()}


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


def verbatim_first(relevance: Mapping[Key, float], verbatim: Collection[Key]) -> dict[Key, float]:
    """Relevance in [0, 1] where some have the question word for word: these come before all others."""
    if not verbatim:
        return dict(relevance)
    return {key: 0.9 + 0.1 * own if key in verbatim else 0.5 * own for key, own in relevance.items()}


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
    neighbour: float | None = None,
    time: float | None = None,
    probability: float | None = None,
) -> Scores:
    """The composite score of one memory, with what it is made of. `scope` is the factor of its scope, if there is one.

    `stands` is its `standing`, a factor of the final score alone. `neighbour` is its boost by its neighbours, and
    `time` the nearness of its time to one that the query names, where there are such.
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
        time=time,
        neighbour=None if neighbour is None else min(1.0, neighbour),
        probability=probability,
    )
