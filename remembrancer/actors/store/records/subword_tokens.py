"""The words in a text that full text does not see by itself: they are indexed, and looked for, besides it. Pure.

The tokenizer (`unicode61`) parts words at whatever is neither a letter nor a digit. So it has one word for
`connectionPoolSize`, three for `connection-pool-size`, one for a whole Chinese sentence, and a splinter for each letter
of Hebrew with points. Of a text that is stored and of a question the same spellings are made:

- the parts of camelCase (`connection pool size`), and of a name with a number (`sha 256`, `python 3 11`);
- a name of several parts as one word (`connectionpoolsize`, `econnreset104`), so that each way to write it finds it;
- pairs of neighbouring letters in scripts that put no space between words, or hang particles on them (Han, kana,
  Hangul, Thai, Lao, Tibetan, Burmese, Khmer): the pairs of a word are a phrase in the pairs of a sentence;
- words without their marks, where the tokenizer would part them at these (Hebrew, Arabic, the scripts of India);
- a word for each pictograph.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Final

LONGEST: Final = 100
"""Characters of a name of which spellings are made. Longer ones are data: a key, or text in base64."""
MOST_PARTS: Final = 16
"""Parts of a name of which spellings are made."""

_RUN: Final = re.compile(
    "[\u0e01-\u0fff\u1000-\u109f\u1780-\u17dd\u3005-\u3007\u3041-\u309f\u30a1-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uac00-\ud7a3\uf900-\ufaff\U00020000-\U0003ffff]+"
)
_NAME: Final = re.compile(r"\w+(?:[-.]\w+)*")
_WORD: Final = re.compile(r"[^\W_]+")
_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_NUMBERED: Final = re.compile(r"([A-Za-z]+)([0-9]+)")
_PICTOGRAPH: Final = re.compile("[\u2600-\u27bf\U0001f300-\U0001faff]")
# Those of the present scripts: all that are below the punctuation of U+2000, and what came later for the same scripts.
_MARKS: Final = {
    code: None
    for codes in (range(0x300, 0x2000), range(0xA66F, 0xAC00), range(0xFB00, 0xFE30))
    for code in codes
    if unicodedata.category(chr(code)).startswith("M")
}


def subword_tokens(*texts: str) -> str:
    """The spellings of some texts, to be indexed besides them. Of plain English next to nothing."""
    found: list[str] = []
    for text in texts:
        plain = bare(text)
        for name in _NAME.findall(plain):
            if not name.islower() or not name.isalpha():
                found.extend(_of_name(name))
        if not text.isascii():
            found.extend(_of_scripts(text, plain))
    return " ".join(found)


def bare(text: str) -> str:
    """A text composed, in its plain forms, and without the marks on its letters but those that are part of them."""
    return text if text.isascii() else unicodedata.normalize("NFKC", text).translate(_MARKS)


def words_of(text: str) -> list[str]:
    """The words of a bare text as the tokenizer parts them, apart from what `runs_of` tells."""
    return [word for piece in _RUN.split(text) for word in _WORD.findall(piece)]


def runs_of(text: str) -> list[str]:
    """The runs of a bare text in scripts without spaces."""
    return [run for word in _WORD.findall(text) for run in _RUN.findall(word)]


def pairs_of(run: str) -> list[str]:
    """The neighbouring letters of a run of letters, which are its words: of one letter that letter."""
    return [run[at : at + 2] for at in range(max(1, len(run) - 1))]


def name_parts(words: Iterable[str]) -> list[str]:
    """Words taken apart at their capitals and numbers, in their order; words that have no parts stay as they are."""
    return [part for word in words for part in _split(word)]


def joined_names(piece: str) -> list[str]:
    """Each name of several parts in a bare piece of text, as one word. A path has several names."""
    return [
        joined for name in _NAME.findall(piece) if len(name) <= LONGEST and (joined := _joined(_WORD.findall(name)))
    ]


def pictographs(text: str) -> list[str]:
    """A word for each pictograph of a text."""
    return [f"u{ord(character):x}" for character in _PICTOGRAPH.findall(text)]


@lru_cache(maxsize=4096)  # a text has the same names again and again
def _of_name(name: str) -> tuple[str, ...]:
    if len(name) > LONGEST or (name.isalpha() and name[1:].islower()):
        return ()
    words = words_of(name)
    parts = name_parts(words)
    joined = _joined(words)
    return (*(parts if len(words) < len(parts) <= MOST_PARTS else ()), *([joined] if joined else ()))


def _joined(words: list[str]) -> str:
    """Empty for a name of one part, and for a number with points in it, which is not the number without them."""
    joined = "".join(words) if 1 < len(words) <= MOST_PARTS else ""
    return "" if joined.isdigit() else joined


def _of_scripts(text: str, plain: str) -> Iterator[str]:
    for run in runs_of(plain):
        yield from pairs_of(run)
        if len(run) > 1:
            yield run[-1]  # so that each letter begins a word
    seen = set(_WORD.findall(text))
    yield from (word for word in words_of(plain) if word not in seen)
    yield from pictographs(plain)


def _split(word: str) -> Iterator[str]:
    for part in _CAMEL.split(word):
        numbered = _NUMBERED.fullmatch(part)
        yield from numbered.groups() if numbered else (part,)
