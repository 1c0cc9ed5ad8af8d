"""Estimates from the words of two texts whether the later one replaces the earlier one: a logistic regression on some
measures of the pair, their products, and the words around what the texts share. `python -m bench.worlds` fits its
weights on the memories of invented projects. Pure."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from importlib.resources import files
from itertools import combinations_with_replacement
from operator import mul
from typing import Final, NamedTuple

import msgspec

from remembrancer.memory.likely_kind import READ_CHARACTERS, Token, damped, neighbours, tokens
from remembrancer.memory.wording import ARTICLES, DENIALS, FUNCTION_WORDS, PREPOSITIONS, stem

LEAST_COSINE: Final = 0.3
"""Texts with a lower cosine are not compared."""
HOUR_S: Final = 3600.0
MOST_NEARER: Final = 6
MOST_SPREADS: Final = 3.0
"""Measures are clipped to this many standard deviations from their mean."""
_COMMON: Final = ARTICLES | DENIALS | FUNCTION_WORDS | PREPOSITIONS


class Weights(msgspec.Struct, frozen=True, eq=False):
    texts: int
    words: dict[str, int]
    """The frequent words and sorts of words, each with the number of `texts` in which it occurs."""
    intercept: float = 0.0
    means: tuple[float, ...] = ()
    spreads: tuple[float, ...] = ()
    measures: tuple[float, ...] = ()
    """The weights of the measures, and then of the products of each two (and of each with itself)."""
    features: dict[str, int] = {}
    """For each feature, a hundred times its weight."""

    def rarity(self, word: str) -> float:
        return math.log(self.texts / self.words.get(word, 1))


class Texts(NamedTuple):
    """`others` are the cosines of the later text with other texts before it, and `around` those of the earlier text."""

    earlier: str
    later: str
    cosine: float
    apart_s: float
    others: Sequence[float] = ()
    around: Sequence[float] = ()


class _Read(NamedTuple):
    tokens: Sequence[Token]
    rarities: Mapping[str, float]
    """For the stem of each significant word."""


@lru_cache(maxsize=1024)
def _read(text: str, weights: Weights) -> _Read:
    found = tuple(tokens(text))
    words = (each for each in found if each.sort != "<mark>" and each.word not in _COMMON)
    return _Read(found, {_stem(each.word): weights.rarity(each.sort or each.word) for each in words})


def _stem(word: str) -> str:
    return stem(word.removesuffix("'s"))


def features_of(earlier: str, later: str, weights: Weights) -> Counter[str]:
    """Count the words, and each two neighbours, of each text without what it shares with the other one."""
    one, other = _read(earlier, weights), _read(later, weights)
    shared = one.rarities.keys() & other.rarities.keys()
    counted = Counter[str]()
    for mark, read in (("-", one), ("+", other)):
        words = ["^"]
        for word, sort, ending in read.tokens:
            if sort == "<mark>" or word in _COMMON:
                words.append(word)
            elif _stem(word) in shared:
                words += [f"={sort}"] * (sort != "" or words[-1] != "=")
            else:
                words.append(sort or (word if word in weights.words else ending))
        counted.update(neighbours([*(mark + word for word in words), f"{mark}$"], 2))
    return counted


@lru_cache(maxsize=4096)
def _of_texts(earlier: str, later: str, weights: Weights) -> float:
    """The part of the logit that depends on the two texts alone."""
    features = features_of(earlier, later, weights)
    return damped(features) * sum(weights.features.get(each, 0) * count for each, count in features.items()) / 100


def measures_of(pair: Texts, weights: Weights) -> list[float]:
    one, other = (_read(text, weights).rarities for text in (pair.earlier, pair.later))
    shared = one.keys() & other.keys()
    common, whole, later_whole = sum(other[each] for each in shared), sum(one.values()), sum(other.values())
    return [
        pair.cosine,
        pair.cosine - max((LEAST_COSINE, *pair.others)),
        pair.cosine - max((LEAST_COSINE, *pair.around)),
        math.log1p(min(MOST_NEARER, sum(cosine > pair.cosine for cosine in pair.others))),
        math.log1p(pair.apart_s / HOUR_S),
        math.log1p(common),
        common / max(whole, 1.0),
        common / max(later_whole, 1.0),
        max((other[each] for each in shared), default=0.0),
        len(shared),
        math.log1p(max(whole - common, 0.0)),
        math.log1p(max(later_whole - common, 0.0)),
        math.log1p(len(one)),
        math.log1p(len(other)),
    ]


def with_products(measures: Sequence[float], weights: Weights) -> list[float]:
    scaled = [
        max(-MOST_SPREADS, min(MOST_SPREADS, (each - mean) / spread))
        for each, mean, spread in zip(measures, weights.means, weights.spreads, strict=True)
    ]
    return [*scaled, *(one * other for one, other in combinations_with_replacement(scaled, 2))]


_WEIGHTS: Final = msgspec.json.Decoder(Weights)


@cache
def _weights() -> Weights:
    return _WEIGHTS.decode(files(__package__).joinpath("replacements.json").read_bytes())


def logit(pair: Texts, weights: Weights | None = None) -> float | None:
    """None for a text of more than `READ_CHARACTERS`, which reports on several things."""
    if max(len(pair.earlier), len(pair.later)) > READ_CHARACTERS:
        return None
    weights = weights or _weights()
    of_measures: float = sum(map(mul, weights.measures, with_products(measures_of(pair, weights), weights)))
    return weights.intercept + of_measures + _of_texts(pair.earlier, pair.later, weights)
