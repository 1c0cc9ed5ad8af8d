"""Estimates the number of tokens in a text, and finds its longest prefix that fits."""

import math
import re
import unicodedata
from bisect import bisect_left
from collections.abc import Callable
from typing import Final

from remembrancer.memory.sentences import cut_at_word

CHARACTERS_A_TOKEN: Final = 12
"""The maximum in prose and code. Tokens are not even counted in a longer text."""
LEAST_CUT_TOKENS: Final = 16
"""A memory cut to fewer tokens is useless."""
LEAST_CHUNK_TOKENS: Final = 32
"""Defined here because `chunks.py` takes longer to import."""
_PIECE: Final = re.compile(
    r"([A-Za-z]+)|(\d{1,3}|\n+| {2,})|([^\sA-Za-z0-9\u0080-\U0010ffff]+)|([\u0080-\U0010ffff])|\s"
)
_ZERO_WIDTH_JOINER: Final = "\u200d"

Count = Callable[[str], int]


def estimate_tokens(text: str) -> int:
    """Estimate the number of tokens in a text without a vocabulary, erring on the high side. An ASCII word counts as
    one token per four letters; up to three digits, a run of spaces, or 2.5 symbols in a row count as one. In other
    scripts, an accented letter is 1.5, a Greek or Cyrillic letter (and letters in between) 0.66, others 1.75. Compared
    with cl100k_base, long texts are 14 to 28 % too high in English, code and JSON, 25 to 40 % in Chinese, Japanese,
    Korean and Russian, and 2 to 7 % in German and Ukrainian; a single line may be too low by a quarter."""
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
    return math.ceil(round(tokens, 6))  # without rounding, the order of the pieces could change the count by one


def truncate(text: str, max_tokens: int) -> str:
    """The longest prefix that fits, perhaps empty. It ends after a word if possible, and splits no grapheme cluster."""
    if estimate_tokens(text) <= max_tokens:
        return text
    if max_tokens <= 0:
        return ""
    too_long = bisect_left(range(len(text)), True, key=lambda end: estimate_tokens(text[:end]) > max_tokens)
    return cut_at_word(text, whole_characters(text, too_long - 1))


def beginning_within(text: str, most: int, form: Callable[[str], str], count: Count) -> str | None:
    """The longest prefix whose `form` has at most `most` tokens, or None if it would be too short."""
    room = most - count(form(""))
    while room >= LEAST_CUT_TOKENS:
        beginning = truncate(text[: room * CHARACTERS_A_TOKEN], room)
        tokens = count(form(beginning))
        if tokens <= most:
            return beginning or None
        room -= max(1, tokens - most)
    return None


def whole_characters(text: str, end: int) -> int:
    """The last position up to `end` that does not split a letter from its accents or an emoji from its modifiers."""
    while 0 < end < len(text) and (
        _ZERO_WIDTH_JOINER in text[end - 1 : end + 1]
        or "\U0001f3fb" <= text[end] <= "\U0001f3ff"  # a skin tone
        or unicodedata.category(text[end]).startswith("M")
    ):
        end -= 1
    return end
