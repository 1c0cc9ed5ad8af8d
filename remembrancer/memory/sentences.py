"""Sentences of a text: cut out of it, joined to one line, cut short. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

_END: Final = re.compile(
    r"""[.!?…؟۔।]["'”’»)\]]{0,3}\s+"""
    r"""|[。！？｡](?![。！？｡])[”’」』）]{0,3}\s*"""
    r"""|\n\s*"""
)
"""The end of a sentence, and the space behind it. Each alternative is bounded, so that the search takes linear time."""
_ABBREVIATION: Final = re.compile(
    r"(?:^|[\s(])(?:e\.g|i\.e|cf|vs|etc|approx|mr|mrs|ms|dr|prof|st|no|fig|ca|z\.b|d\.h|[^\W\d_])\.$", re.IGNORECASE
)
_ABBREVIATION_LENGTH: Final = 9
_LONGEST_NUMBER: Final = 4
LETTERS_A_WORD: Final = 10
_BULLET: Final = re.compile(r"(?:[-*•>]|#{1,6}|\d{1,3}[.)])\s+")


def split_sentences(text: str) -> list[str]:
    """The sentences in order, without the white space and the marks of a list around them. Blank ones are left out.

    A line break ends a sentence. The full stop of a well-known abbreviation, of an initial, or of a number that
    begins a line, does not.
    """
    pieces: list[str] = []
    begin = 0
    for match in _END.finditer(text):
        if not _ends_nothing(text, begin, match):
            pieces.append(text[begin : match.end()])
            begin = match.end()
    pieces.append(text[begin:])
    bare = (_without_bullet(piece.strip()) for piece in pieces)
    return [each for each in bare if any(character.isalnum() for character in each)] or _whole(text)


def _ends_nothing(text: str, begin: int, match: re.Match[str]) -> bool:
    """True if the mark belongs to an abbreviation, or to a number that begins the piece from `begin`."""
    mark = match.start()
    if text[mark] != "." or "\n" in match.group():
        return False
    if mark - begin <= _LONGEST_NUMBER and text[begin:mark].strip().isdigit():
        return True
    return _ABBREVIATION.search(text[max(begin, mark - _ABBREVIATION_LENGTH) : mark + 1]) is not None


def cut_at_word(text: str, length: int) -> str:
    """The beginning of a text, of no more than `length` characters; it ends with a word where there is such a place."""
    if len(text) <= length:
        return text
    head = text[: length + 1]
    end = max((place for place, character in enumerate(head) if character.isspace()), default=0)
    return (head[:end] if end > length // 2 else head[:length]).rstrip()


def first_words(text: str, number: int) -> str:
    """So many words of the beginning of a text on one line, with "…" where there are more; where words are not told
    apart by spaces, `LETTERS_A_WORD` characters for each."""
    text = text.strip()
    words = text[: 20 * number].split()
    cut = cut_at_word(" ".join(words[:number]), LETTERS_A_WORD * number)
    return cut if cut == " ".join(words) and len(text) <= 20 * number else f"{cut} …"


def _without_bullet(sentence: str) -> str:
    mark = _BULLET.match(sentence)
    return sentence[mark.end() :] if mark else sentence


def _whole(text: str) -> list[str]:
    """A text of signs alone is one sentence, so that nothing becomes nothing but a blank text."""
    return [text.strip()] if text.strip() else []


LEAST_QUOTED: Final = 16
"""Characters of a sentence by which a quotation is known."""


def quotable(texts: Iterable[str]) -> tuple[str, ...]:
    """The texts that show that another text quotes one of these: each whole, and its sentences, if they are not too
    short to be there by chance."""
    found: dict[str, None] = {}
    for text in texts:
        for each in (text.strip(), *split_sentences(text)):
            found |= dict.fromkeys((each, " ".join(each.split())))
    return tuple(each for each in found if len(each) >= LEAST_QUOTED)
