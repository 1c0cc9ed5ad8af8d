"""As many different real texts as are wanted, for sizes that the standard library's docstrings do not fill.

First come its paragraphs, in a mixed order. Then texts of two of its sentences, each under the name of its module: in
every round each sentence is first once and second once, beside another each time. Repeated are sentences, never texts,
so that the vectors of the texts lie apart, as those of what is noted about the same things do; the words become more
frequent with the number of texts, as they do in a memory that grows.
"""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Iterator
from typing import Final

from examples.real_text import paragraphs

SHORTEST: Final = 30
"""Characters of a sentence that can stand by itself."""
_SENTENCE_END: Final = re.compile(r"(?<=[.!?])\s+")


def varied(count: int) -> list[str]:
    """`count` distinct texts, always the same for one version of Python; fewer texts are the beginning of more."""
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
    """The distinct sentences of texts, each with the module that it was met in first."""
    found: dict[str, str] = {}
    for text in texts:
        module, _, rest = text.partition(": ")
        for sentence in _SENTENCE_END.split(rest):
            if len(sentence) >= SHORTEST:
                found.setdefault(sentence, module)
    return [(module, sentence) for sentence, module in found.items()]


def _mix(texts: list[str] | list[tuple[str, str]], seed: int) -> None:
    random.Random(seed).shuffle(texts)
