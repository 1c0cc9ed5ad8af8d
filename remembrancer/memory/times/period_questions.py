"""Recognizes queries for everything in a period: "what did we decide this week?", "summarise this week". Pure.

Memories of the period share no words with such a query, and are not near it in meaning: only the time matters, and
perhaps a kind. A query with any further word is about that word, and is treated like others.
"""

import re
from typing import Final, cast

from remembrancer.memory.lexicon import word_lists
from remembrancer.memory.times.phrases import COUNTS, UNITS
from remembrancer.memory.times.windows import read_query, without_times
from remembrancer.protocol.kinds import Kind

LONGEST: Final = 200
"""In characters. A longer query asks for something specific."""

KINDS_NAMED: Final = {word: cast(Kind, kind) for kind, words in word_lists("kinds").items() for word in words}
"""The words that name a kind. "Event" is not a kind, and an outage is stored with its fix."""
_PAST: Final = word_lists("period_questions")["past"]
"""Words that ask about the past, or for a summary."""
EMPTY: Final = word_lists("period_questions")["empty"] | COUNTS.keys() | UNITS.keys() | {f"{unit}s" for unit in UNITS}
"""Words that say nothing about the subject of a question, in four languages."""
_AND_WHY: Final = re.compile(r",?\s+(?:and|und|et|y)\s+(?:why|warum|wieso|pourquoi|por qué)\W*$", re.IGNORECASE)
_WORD: Final = re.compile(r"[^\W_]+[+#]*")


def kinds_of_period(query: str) -> frozenset[Kind] | None:
    """The kinds that a query for everything in a period names, none if it asks for all; None for any other query.

    Memories of these kinds come first; other kinds are not left out, since a breakage on Monday may have been stored as
    a fact.

    "What did we decide this week?" asks for its decisions, "qué pasó ayer" for all of yesterday. "What did we decide
    about Kafka this week?" asks about Kafka, "who called yesterday?" about a person, "what do I do this week?" about a
    plan, and "when did we deploy?" names no time. Only call it for a query with windows: `time_windows` says which
    period is meant. Pure; never raises.
    """
    if len(query) > LONGEST:
        return None
    rest = without_times(query)
    if rest == read_query(query):
        return None
    written = _WORD.findall(_AND_WHY.sub("", rest))
    words = [word.casefold() for word in written]
    if any(word not in KINDS_NAMED and word not in _PAST and word not in EMPTY for word in words):
        return None
    if any(_may_be_a_name(word) for word in written[1:]):
        return None
    kinds = frozenset(KINDS_NAMED[word] for word in words if word in KINDS_NAMED)
    return kinds if kinds or not _PAST.isdisjoint(words) or not words else None


def _may_be_a_name(word: str) -> bool:
    """True if a word is capitalized unnecessarily: "Go" is a language, "Entscheidungen" is a noun."""
    return word != "I" and not word.islower() and word.casefold() in EMPTY and word.isalpha()
