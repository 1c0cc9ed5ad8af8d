"""Extra words that the full-text tokenizer does not find in a text, for the index and for queries. Pure.

The tokenizer (`unicode61`) splits words at everything that is neither a letter nor a digit. So it sees one word in
`connectionPoolSize`, three in `connection-pool-size`, one in a whole Chinese sentence, and a fragment for each letter
of pointed Hebrew. The same extra spellings are added to stored texts and to queries:

- the parts of camelCase (`connection pool size`), and of a name with a number (`sha 256`, `python 3 11`);
- a name of several parts as one word (`connectionpoolsize`, `econnreset104`), so that each spelling finds it;
- pairs of neighbouring letters in scripts that put no spaces between words, or attach particles to words (Han, kana,
Hangul, Thai, Lao, Tibetan, Burmese, Khmer): a word's pairs are a phrase within a sentence's pairs;
- words without their marks, where the tokenizer would split them (Hebrew, Arabic, the scripts of India).
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Final

LONGEST: Final = 100
"""A longer name gets no spellings, since it is probably data: a key, or base64."""
MOST_PARTS: Final = 16
"""Names with more parts than this get no spellings."""

_RUN: Final = re.compile(
    "[\u0e01-\u0fff\u1000-\u109f\u1780-\u17dd\u3005-\u3007\u3041-\u309f\u30a1-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uac00-\ud7a3\uf900-\ufaff\U00020000-\U0003ffff]+"
)
_NAME: Final = re.compile(r"\w+(?:[-.]\w+)*")
_WORD: Final = re.compile(r"[^\W_]+")
_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_NUMBERED: Final = re.compile(r"([A-Za-z]+)([0-9]+)")
# The marks of scripts in current use: all below the punctuation at U+2000, and later additions for the same scripts.
_MARKS: Final = {
    code: None
    for codes in (range(0x300, 0x2000), range(0xA66F, 0xAC00), range(0xFB00, 0xFE30))
    for code in codes
    if unicodedata.category(chr(code)).startswith("M")
}


def subword_tokens(*texts: str) -> str:
    """The extra spellings to index with the texts. Plain English has almost none."""
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
    """Normalize a text, and remove the marks on its letters."""
    return text if text.isascii() else unicodedata.normalize("NFKC", text).translate(_MARKS)


def words_of(text: str) -> list[str]:
    """The words as the tokenizer splits them, without the runs from `runs_of`."""
    return [word for piece in _RUN.split(text) for word in _WORD.findall(piece)]


def runs_of(text: str) -> list[str]:
    return [run for word in _WORD.findall(text) for run in _RUN.findall(word)]


def pairs_of(run: str) -> list[str]:
    """Pairs of neighbouring letters, which serve as words; a single letter is kept."""
    return [run[at : at + 2] for at in range(max(1, len(run) - 1))]


def name_parts(words: Iterable[str]) -> list[str]:
    """Split words at their capitals and numbers; words without parts are kept."""
    parts: list[str] = []
    for part in (part for word in words for part in _CAMEL.split(word)):
        numbered = _NUMBERED.fullmatch(part)
        parts += numbered.groups() if numbered else (part,)
    return parts


def joined_names(piece: str) -> list[str]:
    return [
        joined for name in _NAME.findall(piece) if len(name) <= LONGEST and (joined := _joined(_WORD.findall(name)))
    ]


@lru_cache(maxsize=4096)  # a text repeats its names
def _of_name(name: str) -> tuple[str, ...]:
    if len(name) > LONGEST or (name.isalpha() and name[1:].islower()):
        return ()
    words = words_of(name)
    parts = name_parts(words)
    joined = _joined(words)
    return (*(parts if len(words) < len(parts) <= MOST_PARTS else ()), *([joined] if joined else ()))


def _joined(words: list[str]) -> str:
    """Empty for a single word, and for a number with dots, which would be a different number without them."""
    joined = "".join(words) if 1 < len(words) <= MOST_PARTS else ""
    return "" if joined.isdigit() else joined


def _of_scripts(text: str, plain: str) -> Iterator[str]:
    for run in runs_of(plain):
        yield from pairs_of(run)
        if len(run) > 1:
            yield run[-1]  # so that every letter starts a word
    seen = set(_WORD.findall(text))
    yield from (word for word in words_of(plain) if word not in seen)
