"""Finds the times named in a query, computes how close a memory is to them, and recognizes queries for everything in a
period ("summarise this week"), which resemble none of its memories. A query that asks for a time ("how many weeks ago
did I …") has no windows. Pure: callers pass in the clock and the zone."""

import math
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from typing import Final, cast

from remembrancer.memory.lexicon import word_lists
from remembrancer.memory.times.languages import in_english
from remembrancer.memory.times.phrases import COUNTS, LOOK_BACK, UNITS, Phrase, Span, pattern_of, phrases
from remembrancer.protocol.kinds import Kind

MAX_CHARACTERS: Final = 1000
"""A longer query is a document."""

_PLAIN: Final = str.maketrans(
    {"\u2019": "'", "\u017f": "s", "\u0131": "i", "\u0130": "I", "\u212a": "K", "\u2013": "-"}
)
"""Letters that case-insensitive patterns fold into others, unlike tables of words."""
_RELATIONS: Final[Mapping[str, Callable[[Span, datetime], Span]]] = {
    "since": lambda span, now: Span(span.start, now, span.fade),
    "after": lambda span, now: Span(min(span.end, now), now, span.fade),
    "before": lambda span, _: Span(datetime.min, span.start, span.slack),
    **dict.fromkeys(("until", "till", "by", "up to"), lambda span, _: Span(datetime.min, span.end, span.slack)),
    **dict.fromkeys(("around", "about", "roughly"), lambda span, _: Span(span.start, span.end, 2 * span.fade)),
}
_RELATION = re.compile(rf"\b(?P<word>{'|'.join(_RELATIONS)})\s+(?:(?<!about\s)on\s+)?(?:the\s+)?$", re.I)
_RANGE_BEGINS = re.compile(r"\b(?:between|from)\s+(?:on\s+)?(?:the\s+)?$", re.I)
_RANGE_GOES_ON = re.compile(r"\s+(?:and|to|until|till|through)\s+(?:on\s+)?(?:the\s+)?", re.I)
_AHEAD = re.compile(
    r"\b(?:should|shall|will|going to|suggest\w*|recommend\w*|plans?|planning|tomorrow|can i|could i)\b", re.I
)
_PRESENT = pattern_of(r"(?:today|tonight|this (?!past |<any_month>|.*\d))")
"""In a query about the future, these do not name a memory's time."""

LONGEST_OF_PERIOD: Final = 200
"""The maximum length in characters. A longer query asks for something specific."""
KINDS_NAMED: Final = {word: cast(Kind, kind) for kind, words in word_lists("kinds").items() for word in words}
"""Maps words to the kinds they name. "Event" is not a kind, and an outage is stored with its fix."""
_PAST: Final = word_lists("period_questions")["past"]
EMPTY: Final = word_lists("period_questions")["empty"] | COUNTS.keys() | UNITS.keys() | {f"{unit}s" for unit in UNITS}
"""Words that say nothing about the subject of a question, in four languages."""
_AND_WHY: Final = re.compile(r",?\s+(?:and|und|et|y)\s+(?:why|warum|wieso|pourquoi|por qué)\W*$", re.IGNORECASE)
_WORD: Final = re.compile(r"[^\W_]+[+#]*")


@dataclass(frozen=True, slots=True)
class TimeWindow:
    """In epoch seconds; `start` is -infinity for "before" a time. A time `fade_s` from the window is half a match."""

    start: float
    end: float
    fade_s: float


def time_windows(query: str, reference: float, zone: tzinfo | None = UTC) -> tuple[TimeWindow, ...]:
    """The times named in the query, except those that begin after `reference` (seconds since the epoch); "yesterday" is
    the day before it in `zone` (None: this machine's). Never raises: dates that do not exist are ignored."""
    text = read_query(query)
    try:
        now = datetime.fromtimestamp(reference, zone).replace(tzinfo=None)
    except (ValueError, OverflowError, OSError):
        return ()
    named = phrases(text)
    if _AHEAD.search(text):
        named = [each for each in named if not _PRESENT.match(text[each.begin : each.end])]
    return tuple(dict.fromkeys(_windows(text, named, now, zone)))


def without_times(query: str) -> str:
    text = read_query(query)
    for phrase in reversed(phrases(text)):
        before = _RELATION.sub(" ", text[: phrase.begin])
        text = f"{before} {text[phrase.end :]}"
    return text


def kinds_of_period(query: str) -> frozenset[Kind] | None:
    """The kinds named by a query for everything in a period, empty if it asks for all kinds, or None for any other
    query. "What did we decide this week?" asks for the week's decisions, and "qué pasó ayer" for all of yesterday, but
    "what did we decide about Kafka this week?" asks about Kafka. Other kinds are ranked lower, not left out, since a
    breakage may have been stored as a fact. Call it only for a query with windows."""
    if len(query) > LONGEST_OF_PERIOD:
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
    """ "Go" is a language, "Entscheidungen" is a noun."""
    return word != "I" and not word.islower() and word.casefold() in EMPTY and word.isalpha()


def nearness(happened_at: float, windows: Iterable[TimeWindow]) -> float:
    """1 within a window, 1/2 at `fade_s` from it and 1/16 at twice that (a normal distribution). 0 without windows."""
    best = 0.0
    for window in windows:
        if window.start <= happened_at < window.end:
            return 1.0
        outside = max(window.start - happened_at, happened_at - window.end) / window.fade_s
        best = max(best, float(0.5 ** (outside**2)))
    return best


def read_query(query: str) -> str:
    """The part of a query that is read, with time phrases translated into English."""
    return in_english(unicodedata.normalize("NFC", query[:MAX_CHARACTERS]).translate(_PLAIN))


def _windows(text: str, named: Sequence[Phrase], now: datetime, zone: tzinfo | None) -> Iterable[TimeWindow]:
    place = 0
    while place < len(named):
        first = named[place]
        second = named[place + 1] if place + 1 < len(named) else None
        place += 1
        try:
            before = text[max(0, first.begin - LOOK_BACK) : first.begin]
            if second and _RANGE_BEGINS.search(before) and _RANGE_GOES_ON.fullmatch(text[first.end : second.begin]):
                place += 1
                yield _window(_between(first, second, now), zone)
            elif not first.weak:
                span = first.resolve(now)
                if span.start <= now:
                    relation = _RELATION.search(before)
                    yield _window(_RELATIONS[relation["word"].lower()](span, now) if relation else span, zone)
        except (ValueError, OverflowError, OSError):  # 31 June, or a time before the calendar
            continue


def _between(first: Phrase, second: Phrase, now: datetime) -> Span:
    """ "From November to February" began in the previous year."""
    last = second.resolve(now)
    start = first.resolve(now)
    if start.start > last.start:
        start = first.resolve(last.start)
    if not start.start <= last.start <= now:
        raise ValueError("a range that ends before it begins")
    return Span(start.start, last.end, max(start.slack, last.slack))


def _window(span: Span, zone: tzinfo | None) -> TimeWindow:
    is_open = span.start == datetime.min
    fade = span.slack if is_open else span.fade
    start = -math.inf if is_open else span.start.replace(tzinfo=zone).timestamp()
    return TimeWindow(start, span.end.replace(tzinfo=zone).timestamp(), fade.total_seconds())
