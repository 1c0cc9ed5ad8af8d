"""Provides any number of distinct real texts, for sizes that the standard library's docstrings do not fill.

First come its paragraphs, in mixed order, then texts of two of its sentences, each under the name of its module. In
every round each sentence is once first and once second, with another partner each time. Sentences repeat, but texts
never do, so that the texts' vectors differ, as those of notes about the same things do; words become more frequent with
the number of texts, as in a growing memory.
"""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Iterator
from typing import Final

from examples.real_text import paragraphs

SHORTEST: Final = 30
"""The length from which a sentence can stand alone."""
_SENTENCE_END: Final = re.compile(r"(?<=[.!?])\s+")


def varied(count: int) -> list[str]:
    """Return `count` distinct texts, always the same for one version of Python; a smaller count gives a prefix."""
    return list(itertools.islice(_texts(), count))


def _texts() -> Iterator[str]:
    whole = list(paragraphs())
    _mix(whole, 0)
    seen = set(whole)
    yield from whole
    sentences = _sentences(whole)
    for number in itertools.count(1):
        firsts, seconds = list(sentences), list(sentences)
        _mix(firsts, 2 * number - 1)
        _mix(seconds, 2 * number)
        for (module, first), (_, second) in zip(firsts, seconds, strict=True):
            text = f"{module}: {first} {second}"
            if first != second and text not in seen:
                seen.add(text)
                yield text


def _sentences(texts: list[str]) -> list[tuple[str, str]]:
    """Return the distinct sentences of texts, each with the module where it first occurs."""
    found: dict[str, str] = {}
    for text in texts:
        module, _, rest = text.partition(": ")
        for sentence in _SENTENCE_END.split(rest):
            if len(sentence) >= SHORTEST:
                found.setdefault(sentence, module)
    return [(module, sentence) for sentence, module in found.items()]


def _mix(texts: list[str] | list[tuple[str, str]], seed: int) -> None:
    random.Random(seed).shuffle(texts)
