"""The probability that a later text replaces an earlier one: one table of features, each with its fitted weight. Pure.

A store names such a memory, a recall marks it, a context leaves it out, and Review shows the pair until somebody
decides. `python -m bench.replaced` fits the weights and says what each feature earns.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, NamedTuple

from remembrancer.memory.wording import (
    ARTICLES,
    DENIALS,
    FILLERS,
    FUNCTION_WORDS,
    NUMBERS,
    PREPOSITIONS,
    stem,
    words,
)

PROBABLE: Final = 0.25
"""From this probability on a memory is marked, and a context has its successor in its place: of other authors' pairs
than those that it was fitted on, more than one in two are replaced."""
POSSIBLE: Final = 0.15
"""From this probability on a pair waits in Review for a person."""
LEAST_COSINE: Final = 0.4
"""Texts that are farther from each other are not compared."""
READ: Final = 2000
"""Characters of a text whose words are compared."""
SAME_DAY_S: Final = 12 * 3600.0
HEAD: Final = 4
"""The words with which a text says what it is about."""
FEW: Final = 60
"""Rarity is counted as if there were at least so many memories."""

_WORD: Final = re.compile(r"[@#]?\w+(?:[.'’/+#:-]+\w+)*[+#]*")
_QUOTED: Final = re.compile(r"['\"`«“]([^'\"`»”]{1,30})['\"`»”]")
_SENTENCE_END: Final = re.compile(r"[.!?:]\s*$")
_CHANGE: Final = re.compile(
    r"\b(?:now|no longer|instead of|rather than|in place of|any ?more|from now on|going forward|as of|as from|since"
    r"|until now|used to|new|moved?|moves|changed|switched|migrated|replaced?s?|raised|reduced|renamed|upgraded"
    r"|took over|taken over|postponed|slipped|extended|correction)\b",
    re.IGNORECASE,
)
_ASKING: Final = frozenset(
    stem(each)
    for each in words("""
        want need like please ensure make sure remember always use update going forward additionally firstly secondly
        however keep important consistent consistency coding name naming follow convention ask think know thing way well
        let emphasize point similarly likewise
    """)
)
"""Words with which something is asked for: they tell nothing of what is asked."""
_IGNORED: Final = ARTICLES | FILLERS | FUNCTION_WORDS | PREPOSITIONS


class Read(NamedTuple):
    """The words of a text that count: in their order, each once, and those that name a value."""

    order: tuple[str, ...]
    keys: frozenset[str]
    values: frozenset[str]
    denials: int
    changes: bool
    written: Mapping[str, str]
    """Each word as it is written, for an index of words."""


def read(text: str) -> Read:
    """The words of a text, as `probability` compares them."""
    text = text[:READ]
    quoted = {each.strip().casefold() for each in _QUOTED.findall(text)}
    order: list[str] = []
    values: set[str] = set()
    forms: dict[str, str] = {}
    denials = 0
    for found in _WORD.finditer(text):
        written = found[0]
        word = written.casefold().removesuffix("'s").removesuffix("’s")
        if word in DENIALS or word.endswith(("n't", "n’t")):
            denials += 1
            continue
        if word in NUMBERS or any(each.isdigit() for each in written):
            order.append(NUMBERS.get(word, word))
            values.add(order[-1])
        elif "_" in written or written[0] in "@#" or word in quoted or "/" in written or "." in written:
            order.append(word)
            values.add(word)
        elif word not in _IGNORED:
            if (stemmed := stem(word)) in _ASKING:
                continue
            order.append(stemmed)
            begins = found.start() == 0 or _SENTENCE_END.search(text, max(0, found.start() - 3), found.start())
            if written[0].isupper() and not begins:
                values.add(order[-1])
        else:
            continue
        forms.setdefault(order[-1], word)
    return Read(
        tuple(order),
        frozenset(order),
        frozenset(values),
        denials,
        bool(_CHANGE.search(text)),
        forms,
    )


@dataclass(frozen=True)
class Pair:
    """An earlier and a later text. `having` says in how many memories each word stands, these two among them; of
    `memories` there are so many."""

    earlier: Read
    later: Read
    cosine: float
    apart_s: float
    having: Mapping[str, int] = field(default_factory=dict)
    memories: int = 0

    @cached_property
    def shared(self) -> frozenset[str]:
        """The words that both have."""
        return self.earlier.keys & self.later.keys

    @cached_property
    def own(self) -> tuple[frozenset[str], frozenset[str]]:
        """The words that one of them has alone."""
        return self.earlier.keys - self.shared, self.later.keys - self.shared

    @cached_property
    def elsewhere(self) -> tuple[list[float], list[float]]:
        """Of the words of each alone, the logarithm of how many other memories have them."""
        one, other = ([math.log(max(1, self.having.get(word, 1))) for word in own] for own in self.own)
        return one, other

    def both_have(self, own_of: Callable[[Read], frozenset[str]]) -> float:
        """1 if each has such a word alone."""
        return float(all(own_of(text) & own for text, own in zip((self.earlier, self.later), self.own, strict=True)))


class Feature(NamedTuple):
    """One feature with its weight. `why` says what it is for."""

    name: str
    weight: float
    of: Callable[[Pair], float]
    why: str


def _rarest(pair: Pair) -> float:
    whole = max(FEW, pair.memories)
    return max((math.log1p(whole / max(1, pair.having.get(word, 2))) for word in pair.shared), default=0.0)


def _subject(text: Read) -> frozenset[str]:
    return frozenset(text.order[:HEAD])


FEATURES: Final = (
    Feature("cosine", 9.36, lambda pair: pair.cosine, "they are about the same"),
    Feature("rarest", 0.74, _rarest, "a rare word or name that both have says of what thing they speak"),
    Feature("value", 1.58, lambda pair: pair.both_have(lambda text: text.values), "each has a name or number alone"),
    Feature(
        "subject", -1.69, lambda pair: pair.both_have(_subject), "each begins with a word of its own: with two subjects"
    ),
    Feature(
        "known",
        -0.96,
        lambda pair: min(max(each, default=0.0) for each in pair.elsewhere),
        "what other memories have as well is a thing (staging, production), and no value",
    ),
    Feature("others", -0.06, lambda pair: max(map(sum, pair.elsewhere)), "one says much of other things"),
    Feature("length", 0.41, lambda pair: math.log1p(max(map(len, pair.own))), "long texts are less near each other"),
    Feature(
        "denial",
        -0.42,
        lambda pair: float(pair.earlier.denials != pair.later.denials),
        "a denial is often one more rule",
    ),
    Feature("change", 1.15, lambda pair: float(pair.later.changes), "the later one says that something changed"),
    Feature("same_day", -3.0, lambda pair: float(pair.apart_s < SAME_DAY_S), "what is said together holds together"),
)
INTERCEPT: Final = -9.42


def table_of(pair: Pair) -> list[float]:
    """Every feature of a pair."""
    return [each.of(pair) for each in FEATURES]


def probability(pair: Pair) -> float:
    """The probability that the later text replaces the earlier one, in [0, 1]."""
    logit = INTERCEPT + sum(each.weight * each.of(pair) for each in FEATURES)
    return 1.0 / (1.0 + math.exp(-logit))
