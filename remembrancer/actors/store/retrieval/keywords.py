"""From a person's question to a full-text expression. Pure, and total: no text can break the syntax of FTS5."""

from __future__ import annotations

import re
import unicodedata
from typing import Final

MAX_TERMS: Final = 40
MAX_PHRASE_WORDS: Final = 16

# The Snowball project's English list, less the words that carry meaning in notes about software ("up", "off", "own").
_STOP_TEXT: Final = """
    a about above after again against all am an and any are aren't as at be because been before being below between
    both but by can can't cannot could couldn't did didn't do does doesn't doing don't down during each few for from
    further had hadn't has hasn't have haven't having he her here hers herself him himself his how i i'd i'll i'm i've
    if in into is isn't it it's its itself just let's me more most mustn't my myself no nor not of on once only or other
    ought our ours ourselves out over same shan't she should shouldn't so some such than that that's the their theirs
    them themselves then there there's these they they're this those through to too under until very was wasn't we
    we're were weren't what what's when where which while who whom why will with won't would wouldn't you you're your
    yours yourself yourselves
"""
STOP_WORDS: Final = frozenset(_STOP_TEXT.split())

_PIECE = re.compile(r"\S+")
_WORD = re.compile(r"[^\W_]+")
_CONTRACTION = re.compile(r"(?<=\w)'(?:s|t|d|m|re|ve|ll)\b", re.IGNORECASE)


def match_expression(query: str) -> str | None:
    """An FTS5 expression that finds any of the query's words; None when there is no word in it.

    A piece with punctuation inside (`src/app.py`, `ECONNRESET-104`) counts as a phrase and by its parts. Stop words are
    left out unless there is nothing else.
    """
    terms: dict[str, None] = {}
    stop: dict[str, None] = {}
    # Composed, since FTS5 sees one letter where a decomposed text has a letter and its accent.
    text = unicodedata.normalize("NFC", query).replace("\x00", " ").replace("\u2019", "'")
    for piece in _PIECE.findall(text):
        words = [word.lower() for word in _WORD.findall(_CONTRACTION.sub(" ", piece))]
        if piece.strip("'\"?!.,;:()[]{}").lower() in STOP_WORDS:
            stop.update(dict.fromkeys(words))
            continue
        if len(words) > 1:
            terms[" ".join(words[:MAX_PHRASE_WORDS])] = None
        for word in words:
            (stop if word in STOP_WORDS else terms)[word] = None
    chosen = list(terms or stop)[:MAX_TERMS]
    return " OR ".join(f'"{term}"' for term in chosen) if chosen else None
