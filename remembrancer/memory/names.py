"""Names of entities, as they are compared and searched. Pure."""

from __future__ import annotations

import re
import unicodedata
from typing import Final

from remembrancer.memory.stop_words import stop_words_of
from remembrancer.memory.wording import ARTICLES, PREPOSITIONS

SAME_SUBJECT_COSINE: Final = 0.7
"""Two facts that are nearer to each other than this are about the same, if their words allow it."""

_JOINTS: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|[\W_]+")
"""The joints of a name's words: at a capital letter (`AuthService`, `HTTPServer`) and at what is no letter."""


def name_key(name: str) -> str:
    """A key that names have in common which mean the same: `AuthService`, `auth-service` and `auth service` are one
    key.

    A name without letters and digits is its own key.
    """
    folded = unicodedata.normalize("NFKC", name).casefold()
    return "".join(filter(str.isalnum, folded)) or folded


def name_words(name: str) -> str:
    """The words of a name for full text: the name itself, and its parts where these differ from it."""
    parts = " ".join(part for part in _JOINTS.split(name) if part)
    return name if parts == name else f"{name} {parts}"


_WORD: Final = re.compile(r"(?:[^\W_]|[-_.](?=\w))*[^\W\d_](?:[^\W_]|[-_.](?=\w))*")
"""A word or an identifier, whatever digits are in it (`db-1`); a number alone is none."""
_NUMBER: Final = re.compile(r"\d+(?:[.,:]\d+)*")
_BEFORE_A_NAME: Final = "|".join(sorted(ARTICLES | PREPOSITIONS))
_NUMBERED: Final = re.compile(rf"#\d+|^\W*(?:(?:{_BEFORE_A_NAME})\s+)*[^\W\d_]+\s+\d+\b(?![.,:]?\d)(?=\W*\s\w)")
"""A number that names the thing: `#12` anywhere, or the one behind the first word (`step 1 checks …`)."""
_ONE_MORE: Final = re.compile(r"\b(?:and|und|et|y|e|en)\s+")


def is_same_subject(one: str, other: str, cosine: float) -> bool:
    """True if two facts are about the same thing, so that the later may have replaced the earlier.

    They are near, and one has no word that the other lacks, numbers and stop words left out: where both have words of
    their own, these may be two subjects ("staging", "production") as well as two values. Nor are they numbered things
    with other numbers ("step 1", "step 2"), nor does one only say one more ("… and Redis").
    """
    if cosine < SAME_SUBJECT_COSINE:
        return False
    texts, ignored = (one.casefold(), other.casefold()), stop_words_of(one)
    words, others = (set(_WORD.findall(text)) - ignored for text in texts)
    if not words or not others or not (words <= others or others <= words):
        return False
    named, other_named = (set(_NUMBERED.findall(text)) for text in texts)
    if named and other_named and named != other_named:
        return False
    numbers, other_numbers = (_NUMBER.findall(text) for text in texts)
    if numbers != other_numbers:
        return True
    more = words ^ others
    added = (word for text in texts for part in _ONE_MORE.split(text)[1:] for word in _WORD.findall(part)[:1])
    return more.isdisjoint(added)
