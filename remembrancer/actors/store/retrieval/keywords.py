"""From a person's question to a full-text expression. Pure, and total: no text can break the syntax of FTS5."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from remembrancer.actors.store.records.word_parts import (
    bare,
    joined_names,
    name_parts,
    pairs_of,
    pictographs,
    runs_of,
    words_of,
)

MAX_TERMS: Final = 40
MAX_PHRASE_WORDS: Final = 16
QUOTED_WEIGHT: Final = 3
"""How often what stands in quotation marks counts: enough for the memories that have it to come before all others."""
MAX_QUOTED: Final = 5

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
_CONTRACTION = re.compile(r"(?<=\w)'(?:s|t|d|m|re|ve|ll)\b", re.IGNORECASE)
_QUOTED = re.compile(
    '"([^"]+)"|\u201c([^\u201c\u201d]+)\u201d|\u00ab([^\u00ab\u00bb]+)\u00bb|\u300c([^\u300c\u300d]+)\u300d|`([^`]+)`'
)


def match_expression(query: str) -> str | None:
    """An FTS5 expression that finds any of the query's words; None when there is no word in it.

    It is phrases in quotation marks with OR between them; a phrase that counts for more is there several times. A piece
    with punctuation inside (`src/app.py`, `ECONNRESET-104`) or with parts (`poolSize`) counts as a phrase, by its parts
    and in its other spellings; so does what is quoted. Stop words are left out unless there is nothing else.
    """
    groups, quoted = _groups(query)
    chosen = list(dict.fromkeys(term for group in groups for term in group))[:MAX_TERMS]
    counted = [term for term in chosen for _ in range(QUOTED_WEIGHT if term in quoted else 1)]
    return " OR ".join(counted) if counted else None


def expressions_of(query: str) -> list[str]:
    """For each word or name of a question the FTS5 expression that finds it in any of its spellings."""
    groups, _ = _groups(query)
    return [" OR ".join(group) for group in dict.fromkeys(groups)]


def _groups(query: str) -> tuple[list[tuple[str, ...]], list[str]]:
    """The terms of a question, those of a piece of it together, and the phrases in it that are quoted."""
    groups: list[tuple[str, ...]] = []
    stop: list[tuple[str, ...]] = []
    text = bare(query.replace("\x00", " ").replace("\u2019", "'"))
    quoted = list(dict.fromkeys(_quoted(text)))[:MAX_QUOTED]
    groups.extend((phrase,) for phrase in quoted)
    seen = set(quoted)
    for piece in _PIECE.findall(text):
        if len(seen) >= MAX_TERMS:
            break
        plain = _CONTRACTION.sub(" ", piece)
        words = [word.lower() for word in words_of(plain)]
        if piece.strip("'\"?!.,;:()[]{}").lower() in STOP_WORDS:
            stop.extend((_phrase([word]),) for word in words)
            continue
        terms = [_phrase(words)] if len(words) > 1 else []
        terms += [_phrase([word]) for word in words if word not in STOP_WORDS]
        stop.extend((_phrase([word]),) for word in words if word in STOP_WORDS)
        terms += _spellings(plain)
        if terms:
            groups.append(tuple(dict.fromkeys(terms)))
            seen.update(terms)
    return groups or stop, quoted


def _spellings(piece: str) -> Iterator[str]:
    """The other terms for a piece of a question, as `word_parts` has them for what is stored."""
    words = words_of(piece)
    parts = [part.lower() for part in name_parts(words)]
    if len(parts) > len(words):
        yield _phrase(parts)
        yield from (_phrase([part]) for part in parts if part not in STOP_WORDS)
    yield from (_phrase([joined.lower()]) for joined in joined_names(piece))
    for run in runs_of(piece):
        pairs = pairs_of(run)
        if len(run) == 1:
            yield f"{_phrase(pairs)}*"  # all pairs that it begins
            continue
        yield _phrase(pairs)
        yield from (_phrase([pair]) for pair in pairs)
    yield from (_phrase([word]) for word in pictographs(piece))


def _quoted(text: str) -> Iterator[str]:
    for found in _QUOTED.finditer(text):
        inside = next(group for group in found.groups() if group is not None)
        words = [word.lower() for word in words_of(inside)]
        runs = [run for run in runs_of(inside) if len(run) > 1]
        yield from (_phrase(pairs_of(run)) for run in runs)
        if words:
            yield _phrase(words)


def _phrase(words: Sequence[str]) -> str:
    return f'"{" ".join(words[:MAX_PHRASE_WORDS])}"'
