"""Estimates the number of tokens of a text, and finds its longest beginning that fits."""

import math
import re
import unicodedata
from bisect import bisect_left
from collections.abc import Callable
from typing import Final

from remembrancer.memory.sentences import cut_at_word

CHARACTERS_A_TOKEN: Final = 12
"""No prose or code has more characters per token: a text that is too long by this measure is not even counted."""
LEAST_CUT_TOKENS: Final = 16
"""A memory cut to fewer tokens than this is useless."""
LEAST_CHUNK_TOKENS: Final = 32
"""The minimum size of a file's chunks (not in `chunks.py`, which takes longer to import)."""
_PIECE: Final = re.compile(
    r"([A-Za-z]+)|(\d{1,3}|\n+| {2,})|([^\sA-Za-z0-9\u0080-\U0010ffff]+)|([\u0080-\U0010ffff])|\s"
)
_ZERO_WIDTH_JOINER: Final = "\u200d"

Count = Callable[[str], int]


def estimate_tokens(text: str) -> int:
    """Estimates the number of tokens in a text for an assistant's model, without a vocabulary. It is meant to be too
    high rather than too low.

    Four letters of an ASCII word are one token, and so are up to three digits, a run of spaces, or 2.5 symbols in a
    row. In other scripts, an accented letter counts as 1.5, a Greek or Cyrillic letter (and letters in between) as
    0.66, others as 1.75.

    Compared with cl100k_base, the sum over many paragraphs is too high by 28 % in English, 24 % in Python code, 14 % in
    JSON, and, on texts that were not used for choosing these numbers, by 25 to 39 % in Chinese, Japanese and Korean, 40
    % in Russian, 7 % in Ukrainian and 2 % in German. One paragraph in twenty is underestimated by 6 % or more in
    Chinese and Korean, 7 % in Ukrainian and 15 % in German, and none in twenty in the other languages; the worst single
    line has 34 % more.
    """
    tokens = 0.0
    for word, number, signs, other in _PIECE.findall(text):
        if word:
            tokens += max(1.0, 0.25 * len(word))
        elif number:
            tokens += 1.0
        elif signs:
            tokens += max(1.0, 0.4 * len(signs))
        elif other:
            tokens += 1.5 if other < "\u0250" else 0.66 if other < "\u0600" else 1.75
    return math.ceil(round(tokens, 6))  # otherwise the order of the pieces could change the count by one


def truncate(text: str, max_tokens: int) -> str:
    """The longest beginning of a text that is estimated at no more than `max_tokens`, in whole characters.

    Grapheme clusters are not split: a letter keeps its accents, an emoji its modifiers. The text is cut at the end of a
    word if one ends in the second half. The result may be empty.
    """
    if estimate_tokens(text) <= max_tokens:
        return text
    if max_tokens <= 0:
        return ""
    too_long = bisect_left(range(len(text)), True, key=lambda end: estimate_tokens(text[:end]) > max_tokens)
    return cut_at_word(text, whole_characters(text, too_long - 1))


def beginning_within(text: str, most: int, form: Callable[[str], str], count: Count) -> str | None:
    """The longest beginning of a text whose `form` has at most `most` tokens; None if it would be too short."""
    room = most - count(form(""))
    while room >= LEAST_CUT_TOKENS:
        beginning = truncate(text[: room * CHARACTERS_A_TOKEN], room)
        tokens = count(form(beginning))
        if tokens <= most:
            return beginning or None
        room -= max(1, tokens - most)
    return None


def whole_characters(text: str, end: int) -> int:
    """The last position up to `end` at which a text can be cut without splitting a letter from its accents or
    modifiers, or a joined emoji."""
    while 0 < end < len(text) and (
        _ZERO_WIDTH_JOINER in text[end - 1 : end + 1]
        or "\U0001f3fb" <= text[end] <= "\U0001f3ff"  # a skin tone
        or unicodedata.category(text[end]).startswith("M")
    ):
        end -= 1
    return end
