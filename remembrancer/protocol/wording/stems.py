"""Words without their endings."""

from __future__ import annotations

from typing import Final

_SUFFIXES: Final = (("ies", "y"), ("ing", ""), ("ed", ""), ("es", ""), ("s", ""))
_NO_SUFFIX: Final = ("ss", "us", "is", "eed")
_SHORTEST_STEM: Final = 3


def stem(word: str) -> str:
    """A word without the ending of its plural, past or progressive: only so much that forms of one word fall together.

    It is meant for comparing words with one another, not for showing. "stops", "stopped" and "stopping" have one stem.
    """
    if word in ("uses", "used", "using"):
        return "use"
    for suffix, instead in _SUFFIXES:
        bare = word.removesuffix(suffix) + instead
        if word.endswith(suffix) and not word.endswith(_NO_SUFFIX) and len(bare) >= _SHORTEST_STEM and _is_word(bare):
            doubled = suffix in ("ing", "ed") and bare[-1] == bare[-2] and bare[-1] not in "lsz"
            return bare[:-1] if doubled and len(bare) > _SHORTEST_STEM else _without_e(bare)
    return _without_e(word)


def _is_word(bare: str) -> bool:
    return bare.isalpha() and any(vowel in bare for vowel in "aeiouy")


def _without_e(word: str) -> str:
    return word[:-1] if word.endswith("e") and len(word) > _SHORTEST_STEM else word
