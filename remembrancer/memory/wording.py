"""The rules that decide whether one of two similar texts can stand for both; stems and normal forms of words. Pure.

A cosine does not distinguish a fact from another one about the same subject: "deployed from the main branch" and
"deployed from the release branch" have 0.90. So the words decide, and in doubt both texts are kept. The words are
English, with some negations of other languages.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from remembrancer.memory.lexicon import word_lists

SURE: Final = 0.92
"""Above this cosine both texts may have words of their own."""
_MOST_PIVOTS: Final = 200
"""The number of words around which swapped neighbours are looked for."""
_END_MARKS: Final = " .!…;,。！｡；，۔।"
"""Without a question mark: a question differs from the statement."""
_SUFFIXES: Final = (("ies", "y"), ("ing", ""), ("ed", ""), ("es", ""), ("s", ""))
_NO_SUFFIX: Final = ("ss", "us", "is", "eed")
_SHORTEST_STEM: Final = 3
LONG_WORD: Final = 8
"""The length from which on a word also loses endings such as `-ation`."""
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
"""Words that are dropped: "no longer" is "no"."""
FUNCTION_WORDS: Final = _LISTS["function_words"]
DENIALS: Final = _LISTS["denials"]
NUMBERS: Final = {
    "two": "2", "three": "3", "four": "4", "five": "5", "six": "6", "seven": "7",
    "eight": "8", "nine": "9", "ten": "10", "eleven": "11", "twelve": "12",
}  # fmt: skip
PREPOSITIONS: Final = _LISTS["prepositions"]
RESTRICTING: Final = _LISTS["restricting"]
"""Words that limit a statement; one more of them makes it a different statement."""
_IGNORED: Final = (
    (ARTICLES | FUNCTION_WORDS | FILLERS | _LISTS["insignificant"])
    - PREPOSITIONS
    - RESTRICTING
    - DENIALS
    - _LISTS["persons"]
)
_WORD: Final = re.compile(r"[^\W_]+(?:[.'’_/+#:-]+[^\W_]+)*[+#]*")
_EMPHASIS: Final = re.compile(r",? *\b(?:without|with no) (?:any )?exceptions?\b", re.IGNORECASE)
_FORMER: Final = re.compile(r"(?<!is )(?<!are )(?<!was )(?<!were )(?<!be )(?<!been )\bused to ", re.IGNORECASE)
_DENIED: Final = "not"
_MARKS: Final = frozenset("._/+#:")
_FIRST_NOT_LATIN: Final = 0x370
"""The start of Greek; letters before it are Latin, and those after it hardly ever (ligatures are split before)."""


@lru_cache(maxsize=1024)
def normalised(text: str) -> str:
    """A text without irrelevant differences: character forms (NFKC), case, white space, final punctuation.

    Cached, because each text is compared with several."""
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    joined = " ".join(folded.split())
    return joined.rstrip(_END_MARKS) or joined


@lru_cache(maxsize=200_000)
def stem(word: str) -> str:
    """A lower-case word without its ending, for comparing words, not for display.

    "stops", "stopped" and "stopping" have one stem; and so have longer words of different parts of speech: "validates"
    and "validation".
    """
    inflected = _without_inflection(word)
    return inflected if len(word) < LONG_WORD else min(inflected, _without_ending(word), key=len)


def _without_inflection(word: str) -> str:
    """A word without the ending of its plural, past tense or progressive form."""
    if word in ("uses", "used", "using"):
        return "use"
    for suffix, instead in _SUFFIXES:
        bare = word.removesuffix(suffix) + instead
        if word.endswith(suffix) and not word.endswith(_NO_SUFFIX) and len(bare) >= _SHORTEST_STEM and _is_word(bare):
            doubled = suffix in ("ing", "ed") and bare[-1] == bare[-2] and bare[-1] not in "lsz"
            return bare[:-1] if doubled and len(bare) > _SHORTEST_STEM else _without_e(bare)
    return _without_e(word)


def _without_ending(word: str) -> str:
    """A word without the first of `_ENDINGS` that leaves enough letters."""
    for ending in _BY_LAST.get(word[-1], ()):
        root = word[: -len(ending)]
        if word.endswith(ending) and len(root) >= _SHORTEST_ROOT:
            return root[:-1] if len(root) > _SHORTEST_ROOT and root[-1] == root[-2] and root[-1] not in "ls" else root
    return word


def _is_word(bare: str) -> bool:
    return bare.isalpha() and any(vowel in bare for vowel in "aeiouy")


def _without_e(word: str) -> str:
    return word[:-1] if word.endswith("e") and len(word) > _SHORTEST_STEM else word


_GIVING_UP: Final = frozenset(map(stem, _LISTS["giving_up"]))
"""Stems of verbs that negate: both texts must have one, or neither."""


@dataclass(frozen=True, slots=True)
class _Word:
    """A significant word of a text. `before` and `after` are its significant neighbours, "" at the ends."""

    key: str
    named: bool
    """A number, a name, code or a word in a script other than Latin: a different one means a different statement,
    however similar the texts are otherwise. For Russian or Korean it is unknown which words negate, and which are
    insignificant."""
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class _Text:
    words: tuple[_Word, ...]
    """All significant words except prepositions."""
    objects: dict[str, tuple[str, ...]]
    """The words after each preposition, and after negations (as `not`), in order."""
    restrictions: frozenset[str]
    denials: int


def same_in_words(one: str, other: str, cosine: float) -> bool:
    """True if one of two texts can stand for the other, judged by their words in any order.

    Insignificant words are ignored, and so are the endings of the others. Then:

    - with a cosine up to 0.92, at most one text has words that the other lacks: an addition, another order;
    - above that both may, if none of these words takes the place of another: after the same word or before it;
    - no number, name or piece of code, no negation and no condition (if, only, before …) is in one text only;
    - no preposition or negation has a different object in each text, or its objects in a different order;
    - no two words have swapped places.
    """
    if normalised(one) == normalised(other):
        return True
    a, b = _read(one), _read(other)
    keys_a, keys_b = {word.key for word in a.words}, {word.key for word in b.words}
    own_a = [word for word in a.words if word.key not in keys_b]
    own_b = [word for word in b.words if word.key not in keys_a]
    if not keys_a & keys_b or a.denials != b.denials or a.restrictions != b.restrictions:
        return False
    if any(each.named for each in (*own_a, *own_b)):
        return False
    if own_a and own_b and (cosine <= SURE or _in_one_place(own_a, own_b)):
        return False
    return not _other_objects(a, b) and not _changed_places(a, b)


@lru_cache(maxsize=1024)
def _read(text: str) -> _Text:
    """The significant words of a text. Cached, because each text is compared with several."""
    tokens = list(_tokens(_FORMER.sub("not ", _EMPHASIS.sub("", unicodedata.normalize("NFKC", text)))))
    keys = [key for key, _ in tokens]
    words = []
    objects: dict[str, list[str]] = {}
    for place, (key, named) in enumerate(tokens):
        before = keys[place - 1] if place else ""
        after = keys[place + 1] if place + 1 < len(keys) else ""
        if key in PREPOSITIONS or key == _DENIED:
            objects.setdefault(key, []).append(after)
        else:
            words.append(_Word(key, named, before, after))
    return _Text(
        tuple(words),
        {key: tuple(each) for key, each in objects.items()},
        frozenset(keys) & (RESTRICTING | _GIVING_UP),
        keys.count(_DENIED),
    )


def _tokens(text: str) -> Iterator[tuple[str, bool]]:
    """The significant words of a text (stems, prepositions and negations), and whether each names something."""
    for match in _WORD.finditer(text):
        written, folded = match[0], match[0].casefold()
        if folded in PREPOSITIONS or folded in RESTRICTING:
            yield folded, False
        elif folded in DENIALS or folded.endswith(("n't", "n’t")):
            yield _DENIED, False
        elif folded not in _IGNORED:
            folded = folded.removesuffix("'s").removesuffix("’s")
            yield NUMBERS.get(folded, stem(folded)), _is_name(written) or folded in NUMBERS


def _is_name(written: str) -> bool:
    """True if a word is taken for a name (see `_Word`). A capitalized word at the start of a sentence may be one as
    well."""
    if not _MARKS.isdisjoint(written) or any(each.isdigit() or each.isupper() for each in written):
        return True
    return any(each.isalpha() and ord(each) >= _FIRST_NOT_LATIN for each in written)


def _in_one_place(own_a: Sequence[_Word], own_b: Sequence[_Word]) -> bool:
    """True if a word of one text takes the place of one of the other: of these, one has been replaced by the other."""
    befores, afters = {each.before for each in own_b}, {each.after for each in own_b}
    return any(each.before in befores or each.after in afters for each in own_a)


def _other_objects(a: _Text, b: _Text) -> bool:
    """True if a preposition has different objects in the texts, or in a different order."""
    for preposition in a.objects.keys() & b.objects.keys():
        in_a, in_b = a.objects[preposition], b.objects[preposition]
        common = [each for each in in_a if each in in_b]
        if not common or common != [each for each in in_b if each in in_a]:
            return True
    return False


def _changed_places(a: _Text, b: _Text) -> bool:
    """True if a word precedes another in one text and follows it in the other, and vice versa.

    The passive voice does that, and marks it with "by": so if only one text has a "by", the words have to swap places.
    """
    keys_a, keys_b = [word.key for word in a.words], [word.key for word in b.words]
    at_b = {key: place for place, key in enumerate(keys_b) if keys_b.count(key) == 1}
    places = [at_b[key] for key in keys_a if key in at_b and keys_a.count(key) == 1][:_MOST_PIVOTS]
    swapped = places == sorted(places, reverse=True) and len(places) > 1
    swapped = swapped or any(
        any(place > pivot for place in places[:at]) and any(place < pivot for place in places[at + 1 :])
        for at, pivot in enumerate(places)
    )
    return swapped != (("by" in a.objects) != ("by" in b.objects))
