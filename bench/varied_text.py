"""Provides any number of distinct real texts, from the docstrings of Python's standard library.

Their paragraphs come first, in shuffled order, and then texts of two sentences, each under a module's name. In every
round, each sentence comes once first and once second, with another partner each time. Sentences repeat but texts never
do, so the vectors of texts differ like those of notes about the same things. Words become more frequent as the number
of texts grows, as in a growing memory.
"""

import itertools
import random
import re
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Final

SHORTEST: Final = 30
"""The minimum length of a sentence that can stand alone."""
PARAGRAPH: Final = range(40, 601)
"""The range of lengths of paragraphs."""
PROSE: Final = 0.85
"""The minimum share of letters and spaces in a paragraph that is prose, not code."""
_TRIPLE_QUOTED: Final = re.compile(r'"""(.*?)"""', re.DOTALL)
_SKIPPED: Final = {"test", "tests", "idlelib", "lib2to3", "site-packages", "__pycache__"}
_SENTENCE_END: Final = re.compile(r"(?<=[.!?])\s+")


def varied(count: int) -> list[str]:
    """Return `count` distinct texts, the same for a given version of Python. A smaller count gives a prefix."""
    return list(itertools.islice(_texts(), count))


def _texts() -> Iterator[str]:
    whole = list(_paragraphs())
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


def _paragraphs() -> Iterator[str]:
    """Return distinct paragraphs, in a fixed order for one version of Python."""
    seen: set[str] = set()
    for path in sorted(Path(sysconfig.get_path("stdlib")).rglob("*.py")):
        if _SKIPPED.intersection(path.parts):
            continue
        for docstring in _TRIPLE_QUOTED.findall(path.read_text(encoding="utf-8", errors="ignore")):
            for block in re.split(r"\n\s*\n", docstring):
                text = " ".join(block.split())
                if len(text) in PARAGRAPH and _is_prose(text) and text not in seen:
                    seen.add(text)
                    yield f"{path.stem}: {text}"


def _is_prose(text: str) -> bool:
    return sum(character.isalpha() or character.isspace() for character in text) > PROSE * len(text)
