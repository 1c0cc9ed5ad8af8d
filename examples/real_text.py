"""Provides any amount of real text: the docstrings of Python's standard library, one paragraph for each memory."""

from __future__ import annotations

import itertools
import re
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Final

SHORTEST: Final = 40
LONGEST: Final = 600
PROSE: Final = 0.85
"""The share of letters and spaces from which a paragraph counts as prose, not code."""
_TRIPLE_QUOTED: Final = re.compile(r'"""(.*?)"""', re.DOTALL)
_SKIPPED: Final = {"test", "tests", "idlelib", "lib2to3", "site-packages", "__pycache__"}


def paragraphs() -> Iterator[str]:
    """Return distinct paragraphs of 40 to 600 characters, in a fixed order for one version of Python."""
    seen: set[str] = set()
    for path in sorted(Path(sysconfig.get_path("stdlib")).rglob("*.py")):
        if _SKIPPED.intersection(path.parts):
            continue
        for docstring in _docstrings(path):
            for block in re.split(r"\n\s*\n", docstring):
                text = " ".join(block.split())
                if SHORTEST <= len(text) <= LONGEST and _is_prose(text) and text not in seen:
                    seen.add(text)
                    yield f"{path.stem}: {text}"


def memories(count: int) -> list[str]:
    """Return `count` distinct texts. When the paragraphs run out, they repeat with numbers."""
    texts = list(itertools.islice(paragraphs(), count))
    rounds = itertools.count(2)
    while len(texts) < count:
        again = next(rounds)
        texts += [f"{text} (note {again})" for text in texts[: count - len(texts)]]
    return texts


def _docstrings(path: Path) -> Iterator[str]:
    """Return the texts between triple quotes in UTF-8 files. A parser would be stricter, but four times as slow."""
    try:
        yield from _TRIPLE_QUOTED.findall(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError:
        return


def _is_prose(text: str) -> bool:
    return sum(character.isalpha() or character.isspace() for character in text) > PROSE * len(text)
