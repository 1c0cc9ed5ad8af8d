"""Estimates the probability that a later text replaces an earlier one, or a part of it: a logistic regression on some
measures of the pair, their products, the words around what the texts share, and the places where two similar sentences
differ. `python -m bench.worlds` fits its weights on the memories of invented projects. Pure."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from functools import cache, lru_cache
from importlib.resources import files
from itertools import combinations_with_replacement
from operator import mul
from typing import Final, NamedTuple

import msgspec

from remembrancer.memory.likely_kind import OPENING, Token, damped, neighbours, tokens
from remembrancer.memory.replacement import forms_of
from remembrancer.memory.wording import ARTICLES, DENIALS, FUNCTION_WORDS, PREPOSITIONS, stem

LEAST_COSINE: Final = 0.3
"""Texts with a lower cosine are not compared."""
LEAST_ALIKE: Final = 0.5
"""The least similarity, in words and their order, of sentences whose differences are looked at."""
LONGEST_VALUE: Final = 2
MOST_DIFFERENCES: Final = 3
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


class TextPair(NamedTuple):
    """`others` are the cosines of the later text with other texts before it, and `around` those of the earlier text."""

    earlier: str
    later: str
    cosine: float
    apart_s: float
    others: Sequence[float] = ()
    around: Sequence[float] = ()


class _Read(NamedTuple):
    tokens: Sequence[Token]
    stems: Sequence[str]
    rarities: Mapping[str, float]
    """For the stem of each significant word."""
    forms: frozenset[tuple[str, str]]


@lru_cache(maxsize=1024)
def _read(text: str, weights: Weights) -> _Read:
    found = tuple(tokens(text))
    stems = [stem(each.word.removesuffix("'s")) for each in found]
    return _Read(
        found,
        stems,
        {
            stemmed: weights.rarity(each.sort or each.word)
            for each, stemmed in zip(found, stems, strict=True)
            if each.sort != "<mark>" and each.word not in _COMMON
        },
        frozenset(forms_of(text)),
    )


def features_of(earlier: str, later: str, weights: Weights) -> Counter[str]:
    """Count the words, each two neighbours and the opening words of each text without what it shares with the other
    one, both openings together, and the differences of similar texts."""
    one, other = _read(earlier, weights), _read(later, weights)
    shared = one.rarities.keys() & other.rarities.keys()
    counted = Counter(_differences(one, other, weights))
    openings: list[list[str]] = []
    for mark, read in (("-", one), ("+", other)):
        words = ["^"]
        for (word, sort, ending), stemmed in zip(read.tokens, read.stems, strict=True):
            if sort == "<mark>" or word in _COMMON:
                words.append(word)
            elif stemmed in shared:
                words += [f"={sort}"] * (sort != "" or words[-1] != "=")
            else:
                words.append(sort or (word if word in weights.words else ending))
        words.append("$")
        openings.append(words[1 : 1 + OPENING])
        counted.update(neighbours([mark + word for word in words], 2))
        counted.update(f"{mark}1:{word}" for word in openings[-1])
    before, after = openings
    counted.update(f"{' '.join(before[:most])}>{' '.join(after[:most])}" for most in (1, 2))
    return counted


def _differences(one: _Read, other: _Read, weights: Weights) -> Iterator[str]:
    """The number of places where two similar texts differ, and for the first one, the sorts of both values and what is
    beside them: "We meet in room C" may replace "We meet in room B", but "room C has 40 seats" is about another."""
    matcher = SequenceMatcher(None, one.stems, other.stems, autojunk=False)
    if min(matcher.real_quick_ratio(), matcher.quick_ratio()) < LEAST_ALIKE or matcher.ratio() < LEAST_ALIKE:
        return
    places = [each for change, *each in matcher.get_opcodes() if change == "replace"]
    yield f"~{min(len(places), MOST_DIFFERENCES)}"
    if places:
        begins, ends, later_begins, later_ends = places[0]
        values = one.tokens[begins:ends], other.tokens[later_begins:later_ends]
        sorts = ">".join(_sort_of(each, weights) for each in values)
        before = _beside(one.tokens[begins - 1]) if begins else "^"
        after = _beside(one.tokens[ends]) if ends < len(one.tokens) else "$"
        yield from (f"~{sorts}", f"~{before} {sorts}", f"~{sorts} {after}", f"~{before} _ {after}")


def _sort_of(value: Sequence[Token], weights: Weights) -> str:
    if len(value) > LONGEST_VALUE:
        return "long"
    last = value[-1]
    return last.sort or ("word" if last.word in weights.words and not last.is_name else last.ending)


def _beside(token: Token) -> str:
    return token.word if token.word in _COMMON or token.sort == "<mark>" else f"={token.sort}"


@lru_cache(maxsize=4096)
def _of_texts(earlier: str, later: str, weights: Weights) -> float:
    """The part of the logit that depends on the two texts alone."""
    features = features_of(earlier, later, weights)
    summed = sum(weights.features.get(each, 0) * count for each, count in features.items())
    return damped(features.total()) * summed / 100


def measures_of(pair: TextPair, weights: Weights) -> list[float]:
    earlier, later = _read(pair.earlier, weights), _read(pair.later, weights)
    one, other = earlier.rarities, later.rarities
    shared = one.keys() & other.keys()
    common, whole, later_whole = sum(other[each] for each in shared), sum(one.values()), sum(other.values())
    return [
        pair.cosine,
        pair.cosine - max((LEAST_COSINE, *pair.others)),
        pair.cosine - max((LEAST_COSINE, *pair.around)),
        math.log1p(min(MOST_NEARER, sum(cosine > pair.cosine for cosine in pair.others))),
        math.log1p(len(pair.others)),
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
        (1.0 if earlier.forms & later.forms else -1.0) if earlier.forms and later.forms else 0.0,
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


def probability(pair: TextPair, weights: Weights | None = None) -> float:
    weights = weights or _weights()
    of_measures: float = sum(map(mul, weights.measures, with_products(measures_of(pair, weights), weights)))
    logit = weights.intercept + of_measures + _of_texts(pair.earlier, pair.later, weights)
    return 1.0 / (1.0 + math.exp(-logit))
