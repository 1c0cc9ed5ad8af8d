"""Which entities a text names: sequences of its words that are the key of a name, the longest first. Pure."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from remembrancer.actors.store.records.names import name_key, name_words
from remembrancer.actors.store.retrieval.keywords import STOP_WORDS

MOST_WORDS: Final = 4
"""Words between blanks that one name may have in a text."""
MOST_PARTS: Final = 8
"""Runs of letters and digits that one name may have: `src/app/main.py` is one word of four."""
LONGEST_TEXT: Final = 100
"""Parts of a text that are looked at: names beyond are left to the other searches."""
LEAST_STEM: Final = 4
STEM_SHARE: Final = 2 / 3
"""Two words are forms of one when they begin alike for so many letters, and for this share of the longer."""

_WORD: Final = re.compile(r"\S+")
_PART: Final = re.compile(r"[^\W_]+")
_POSSESSIVE: Final = re.compile(r"['\u2019]s\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Mention:
    """What may be a name: the parts `begin` to `end` (exclusive) of a text, and their `name_key`."""

    begin: int
    end: int
    key: str


@dataclass(frozen=True, slots=True)
class Reading:
    """A text as it is searched for names: its parts in lower case, and every sequence of them that may be a name."""

    parts: tuple[str, ...]
    mentions: tuple[Mention, ...]


def read(text: str) -> Reading:
    """Every sequence of one to four words (between blanks) in a text, or of parts of them. No stop word on its own."""
    normal = _POSSESSIVE.sub(" ", unicodedata.normalize("NFKC", text))
    parts: list[tuple[str, int]] = []  # with the place of the word that each is a part of
    for place, word in enumerate(_WORD.finditer(normal)):
        parts.extend((part.group().casefold(), place) for part in _PART.finditer(word.group()))
        if len(parts) >= LONGEST_TEXT:
            del parts[LONGEST_TEXT:]
            break
    mentions = [
        Mention(begin, end, key)
        for begin in range(len(parts))
        for end in range(begin + 1, min(begin + MOST_PARTS, len(parts)) + 1)
        if parts[end - 1][1] - parts[begin][1] < MOST_WORDS
        and not all(part in STOP_WORDS for part, _ in parts[begin:end])
        and (key := name_key("".join(part for part, _ in parts[begin:end])))
    ]
    return Reading(tuple(part for part, _ in parts), tuple(mentions))


def longest(mentions: Iterable[Mention], known: Container[str]) -> list[Mention]:
    """Those of the mentions that are known keys, in the order of the text. Of two that overlap the longer counts."""
    taken: set[int] = set()
    chosen: list[Mention] = []
    for mention in sorted(mentions, key=lambda each: (each.begin - each.end, each.begin)):
        places = range(mention.begin, mention.end)
        if mention.key in known and taken.isdisjoint(places):
            taken.update(places)
            chosen.append(mention)
    return sorted(chosen, key=lambda each: each.begin)


def is_paraphrased(name: str, words: Sequence[str]) -> bool:
    """Whether all words of a name have a form among `words` (in lower case)."""
    split = name_words(name).removeprefix(name).strip() or name
    parts = [part.casefold() for part in _PART.findall(split)]
    return bool(parts) and all(any(alike(part, word) for word in words) for part in parts)


def alike(one: str, other: str) -> bool:
    """Whether two words are the same, or seem to be forms of one."""
    if one == other:
        return True
    common = next((place for place, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), None)
    length = min(len(one), len(other)) if common is None else common
    return length >= LEAST_STEM and length >= STEM_SHARE * max(len(one), len(other))
