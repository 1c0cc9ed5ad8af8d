"""Decides by their words whether one of two similar texts can stand for both, and normalizes and stems words. A cosine
does not distinguish facts about one subject: "deployed from the main branch" and "deployed from the release branch"
score 0.90. Pure."""

import re
import unicodedata
from functools import lru_cache
from typing import Final

from remembrancer.memory.lexicon import word_lists

_END_MARKS: Final = ".!…;,。！｡；，۔।"
"""The question mark is not included, since a question differs from a statement."""
_BLANKS: Final = re.compile(r"[^\S\r\n]+")
_SUFFIXES: Final = (("ies", "y"), ("ing", ""), ("ed", ""), ("es", ""), ("s", ""))
_NO_SUFFIX: Final = ("ss", "us", "is", "eed")
_SHORTEST_STEM: Final = 3
_VOWELS: Final = frozenset("aeiouy")
LONG_WORD: Final = 8
"""Words of this length or more also lose endings such as `-ation`."""
_SHORTEST_ROOT: Final = 4
_ENDINGS: Final = (
    *("izations", "ization", "isation", "ifications", "ification", "ations", "ation", "izing", "izers", "izer", "ized"),
    *("izes", "ize", "ators", "ator", "ating", "ated", "ates", "ate", "ments", "ment", "ness", "ingly", "ings", "ing"),
    *("ions", "ion", "ables", "able", "ibles", "ible", "ively", "ives", "ive", "encies", "ency", "ences", "ence"),
    *("ances", "ance", "ents", "ent", "ers", "er", "ors", "or", "edly", "ed", "ally", "als", "al", "ly", "ies", "es"),
    *("s", "e", "y"),
)
_BY_LAST: Final = {last: tuple(e for e in _ENDINGS if e[-1] == last) for last in {e[-1] for e in _ENDINGS}}


_LISTS: Final = word_lists("wording")
ARTICLES: Final = _LISTS["articles"]
FILLERS: Final = _LISTS["fillers"]
"""Words that are dropped: "no longer" becomes "no"."""
FUNCTION_WORDS: Final = _LISTS["function_words"]
DENIALS: Final = _LISTS["denials"]
NUMBERS: Final = {
    "two": "2", "three": "3", "four": "4", "five": "5", "six": "6", "seven": "7",
    "eight": "8", "nine": "9", "ten": "10", "eleven": "11", "twelve": "12",
}  # fmt: skip
_CONTRACTED: Final = {"ca": "can", "wo": "will", "sha": "shall"}
"""Stems of verbs before "n't"."""
PREPOSITIONS: Final = _LISTS["prepositions"]
_INSIGNIFICANT: Final = ARTICLES | _LISTS["insignificant"]
_AROUND: Final = "'\"`´“”„‘’«»()[]{},;:!…"


@lru_cache(maxsize=1024)
def normalised(text: str) -> str:
    """Ignore character forms (NFKC), case, whitespace and final marks. Cached, since a text is compared repeatedly."""
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    joined = " ".join(folded.split())
    joined = joined.rstrip(" .!") or joined  # some people write a space before these marks
    bare = joined.rstrip(_END_MARKS)
    return bare if bare and bare[-1] != " " else joined  # a mark by itself is part of the content


def spellings(text: str) -> tuple[str, ...]:
    """Variants without superfluous spaces, with or without a final mark, and with either case of the first letter."""
    bare = _BLANKS.sub(" ", text.strip()).rstrip(" .!") or text
    either = bare[:1].upper() + bare[1:], bare[:1].lower() + bare[1:]
    return (text, *(written + end for written in either for end in ("", ".", "!")))


@lru_cache(maxsize=200_000)
def stem(word: str) -> str:
    """For comparison only. "stops" and "stopping" share a stem, and so do "validates" and "validation"."""
    inflected = _without_inflection(word)
    return inflected if len(word) < LONG_WORD else min(inflected, _without_ending(word), key=len)


def _without_inflection(word: str) -> str:
    if word in ("uses", "used", "using"):
        return "use"
    for suffix, instead in _SUFFIXES:
        bare = word.removesuffix(suffix) + instead
        if not word.endswith(suffix) or word.endswith(_NO_SUFFIX) or len(bare) < _SHORTEST_STEM or not bare.isalpha():
            continue
        if not _VOWELS.isdisjoint(bare):
            doubled = suffix in ("ing", "ed") and bare[-1] == bare[-2] and bare[-1] not in "lsz"
            return bare[:-1] if doubled and len(bare) > _SHORTEST_STEM else _without_e(bare)
    return _without_e(word)


def _without_ending(word: str) -> str:
    for ending in _BY_LAST.get(word[-1], ()):
        root = word[: -len(ending)]
        if word.endswith(ending) and len(root) >= _SHORTEST_ROOT:
            return root[:-1] if root[-1] == root[-2] and root[-1] not in "ls" else root
    return word


def _without_e(word: str) -> str:
    return word[:-1] if word.endswith("e") and len(word) > _SHORTEST_STEM else word


@lru_cache(maxsize=1024)
def significant_words(text: str) -> tuple[str, ...]:
    """Symbols in a word are kept (`_a`, `--force`, `C++`). Cached, since a text is compared with several others."""
    words: list[str] = []
    for written in normalised(text).split():
        word = written.strip(_AROUND).rstrip(_AROUND + ".").replace("’", "'") or written
        verb = word.removesuffix("n't")
        parts = (word,) if verb == word else (_CONTRACTED.get(verb, verb), "not")
        words += [NUMBERS.get(each, stem(each.removesuffix("'s"))) for each in parts if each not in _INSIGNIFICANT]
    return tuple(words)


def same_in_words(one: str, other: str) -> bool:
    """True for the same words, even if a part has moved to the front: "Before each push, run the tests"."""
    if normalised(one) == normalised(other):
        return True
    a, b = significant_words(one), significant_words(other)
    return sorted(a) == sorted(b) and any(a == b[place:] + b[:place] for place in range(len(b)))
