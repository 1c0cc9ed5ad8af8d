"""A small grammar of English for times in the past: which words of a text name one, and which span it is. Pure.

A phrase is either a time on its own ("four weeks ago", "last Saturday", "3 May 2023"), or only after a word that makes
it one ("in 2022", "on Saturday", "since May"): the same words are numbers, verbs and people as well.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Final

from remembrancer.actors.store.retrieval import time_meanings as means
from remembrancer.actors.store.retrieval.calendar_spans import FEASTS, PARTS_OF_DAY, SEASONS
from remembrancer.actors.store.retrieval.time_meanings import COUNTS, UNITS, WEEKDAYS, Match, Meaning, Resolve

_ANY_MONTH = (
    "(?:january|february|march|april|may|june|july|august|september|october|november|december"
    r"|(?:jan|feb|mar|apr|jun|jul|aug|sept|sep|oct|nov|dec)\b\.?)"
)
_MONTH = f"(?P<month>{_ANY_MONTH})"
_WEEKDAY = f"(?P<weekday>{'|'.join(WEEKDAYS)})"
_YEAR = r"(?P<year>(?:19|20)\d\d)(?![\w-]|[.:/]\d)"
_DAY = r"(?P<day>[0-3]?\d)"
_COUNT_WORDS = "|".join(sorted(COUNTS, key=len, reverse=True))
COUNT: Final = (
    rf"(?<![\w.:/-])(?:(?:an?|the|last)\s+(?=couple|few|half|dozen))?(?P<count>\d{{1,3}}(?:\.\d)?|{_COUNT_WORDS})"
    r"(?:\s+(?:of|an?))?"
)
UNIT: Final = rf"(?P<unit>{'|'.join(sorted(UNITS, key=len, reverse=True))})s?"
_PART = r"(?:(?P<part>early|mid|late|the (?:beginning|start|middle|end) of)(?:\s+in)?[\s-]+)"
_OF_DAY = rf"(?P<of_day>{'|'.join(PARTS_OF_DAY)})"
_ELSEWHERE = r"(?!\s+(?:of|before|after)\b)"
_SHORT_WEEKDAY = r"(?P<weekday>mon|tues?|wed|thu(?:rs?)?|fri|sat|sun)"
_NO_NAME = r"(?![\w-])"
_NUMBER = r"(?<![\w.:/#$€£-])"
_AFTER_YEAR = (
    r"(?=\s*$|\s*[?!.,;:)'\"]|\s+(?:and|or|to|until|till|through|with|for|at|by|when|where|who|what|which|how|why|if|did"
    r"|do|does|was|were|is|are|has|have|had|i|we|he|she|they|you|my|our|his|her|their|the|this|that|about|on|in|from"
    r"|but|because|while|compared|than|versus|vs)\b)"
)

_LEADS: Final[Mapping[str, str]] = {
    "month": "in|during|since|until|till|before|after|throughout|around|of",
    "day": "on|since|before|after|until|till|by|week of",
    "weekday": "on|since|before|after|until|till|by",
    "year": "in|during|since|until|till|before|after|throughout|around|by|of",
    "season": "in|during|over|since|until|till|before|after|throughout|of",
    "feast": "on|at|for|over|since|until|till|before|after|around|during|by|of",
    "weekend": "on|over|at|during|since",
}
"""The words after which a phrase of a kind is a time."""
_LEAD_PATTERNS: Final = {
    kind: re.compile(rf"\b(?:{words})\s+(?:the\s+)?$", re.IGNORECASE) for kind, words in _LEADS.items()
}
_NOT_PAST = re.compile(
    r"\b(?:next|every|each|coming|upcoming|following|any|first|second|black|good|many|hundred)[\s-]+$", re.IGNORECASE
)
LOOK_BACK: Final = 40
"""How many characters before a phrase are looked at."""


@dataclass(frozen=True, slots=True)
class Phrase:
    """Words of a text, `begin` to `end`, that name a time. `weak`: only if they are one end of a range.

    `present`: a span that has the question's own time in it, by which a question may mean what is to come.
    """

    begin: int
    end: int
    resolve: Resolve
    weak: bool = False
    present: bool = False


_Rule = tuple[re.Pattern[str], Callable[[Match], Meaning | None]]


def phrases(text: str) -> list[Phrase]:
    """The phrases of a text in their order, none overlapping another: the earlier rule has the words."""
    found: list[Phrase] = []
    for pattern, meaning_of in _rules():
        for match in pattern.finditer(text):
            begin, end = match.span()
            if any(begin < each.end and each.begin < end for each in found):
                continue
            before = text[max(0, begin - LOOK_BACK) : begin]
            meaning = None if _NOT_PAST.search(before) else meaning_of(match)
            if meaning is None:
                continue
            weak = meaning.kind is not None and not _LEAD_PATTERNS[meaning.kind].search(before)
            found.append(Phrase(begin, end, meaning.resolve, weak, meaning.present))
    return sorted(found, key=lambda each: each.begin)


@cache
def _rules() -> tuple[_Rule, ...]:
    """Compiled by the first question that needs them, which takes a store's start some milliseconds less."""
    return tuple(_all_rules())


def _all_rules() -> Iterator[_Rule]:
    """The patterns, those of more words before those of fewer."""

    def rule(pattern: str, meaning_of: Callable[[Match], Meaning | None]) -> _Rule:
        return re.compile(pattern.replace(" ", r"\s+"), re.IGNORECASE), meaning_of

    which = r"(?:\b(?P<which>last|this past|past|this) )"
    half = r"(?: and a half)"
    yield rule(
        rf"{COUNT}(?P<half>{half})?[\s-]+{UNIT}(?P<half_after>{half})? (?:ago|back(?! to\b))\b(?: today\b)?", means.ago
    )
    yield rule(rf"{COUNT} {_WEEKDAY}s? ago\b", means.weekdays_ago)
    yield rule(rf"\b(?:last|past) (?:(?:an?|the) )?{COUNT}[\s-]+{UNIT}\b{_ELSEWHERE}", means.rolling)
    yield rule(
        rf"\b(?:in|over|during|within|throughout|for) the (?:last|past) {UNIT}\b(?<!weekend){_ELSEWHERE}",
        means.rolling_one,
    )
    yield rule(r"\b(?:the|this) past (?P<unit>week|month|quarter|year|decade)\b", means.rolling_one)
    yield rule(
        rf"\b(?:the day before yesterday|yesterday(?: {_OF_DAY})?|last night|today|tonight|the other day)\b",
        means.near_day,
    )
    yield rule(rf"\bthis {_OF_DAY}\b", means.near_day)
    yield rule(
        rf"\b{_WEEKDAY} (?:of )?last week\b|\blast week(?:'s)?(?: on)? (?P<then>{'|'.join(WEEKDAYS)})\b",
        means.weekday_of_last_week,
    )
    periods = "(?P<period>week|month|quarter|year)"
    yield rule(
        rf"{_PART}?(?P<earlier>earlier )?\b(?P<which>last|this) {periods}\b(?P<last_but_one>(?!))?{_ELSEWHERE}",
        means.period,
    )
    yield rule(rf"{_PART}?(?P<earlier>(?!))?(?P<which>\bthe) {periods} (?P<last_but_one>before last)\b", means.period)
    yield rule(rf"{which}?\bweekend\b(?P<last_but_one> before last\b)?{_ELSEWHERE}", means.weekend)
    yield rule(
        rf"{which}?\b{_WEEKDAY}\b(?P<last_but_one> before last\b)?(?: {_OF_DAY}\b)?(?P<owns>'s\b)?{_NO_NAME}"
        rf"{_ELSEWHERE}(?!,? (?:the |in )?(?:\d|{_ANY_MONTH}))",
        means.weekday,
    )
    yield rule(
        rf"\b(?:(?P<which>last|this past|past)|on) {_SHORT_WEEKDAY}\b[.]?(?: {_OF_DAY}\b)?{_NO_NAME}"
        rf"(?!,? (?:the |in )?(?:\d|{_ANY_MONTH}))",
        means.short_weekday,
    )
    yield rule(
        rf"{_NUMBER}(?P<year>\d{{4}})([-/])(?P<month_number>[01]?\d)\2(?P<day>[0-3]?\d)(?!\d|[-/.:]\d)", means.iso_date
    )
    yield rule(
        rf"{_NUMBER}(?P<first>[0-3]?\d)(?P<dot>[/.])(?P<second>[0-3]?\d)(?P=dot)(?P<year>(?:19|20)?\d\d)(?![\w-]|[.:/]\d)",
        means.numbers_date,
    )
    ordinal = "(?P<ordinal>st|nd|rd|th)?"
    yield rule(rf"\b{_MONTH} (?:the )?{_DAY}{ordinal}(?![\w:%-]|[.]\d)(?:,? {_YEAR})?", means.date)
    yield rule(rf"{_NUMBER}{_DAY}{ordinal} (?:of )?{_MONTH}\b(?:,? {_YEAR})?", means.date)
    yield rule(rf"{_NUMBER}{_DAY}(?:st|nd|rd|th){_NO_NAME}{_AFTER_YEAR}", means.day_of_month)
    yield rule(rf"{_PART}?{which}?\b{_MONTH}(?:,?(?: of)? {_YEAR})?{_NO_NAME}", means.month)
    yield rule(rf"\bq(?P<quarter>[1-4])\b(?:(?: of)? {_YEAR})?{_NO_NAME}", means.quarter)
    yield rule(
        rf"{_PART}?{which}?\b(?P<the>the )?(?P<season>{'|'.join(SEASONS)})\b(?:(?: of)? {_YEAR})?{_NO_NAME}",
        means.season,
    )
    feast = "|".join(sorted((name.replace("st ", "(?:st\\.?|saint) ") for name in FEASTS), key=len, reverse=True))
    yield rule(rf"{which}?\b(?P<feast>{feast})(?:(?: of)? {_YEAR})?{_NO_NAME}", means.feast)
    yield rule(rf"(?P<part>(?!))?\bthe year {_YEAR}", means.year)
    yield rule(rf"{_PART}?{_NUMBER}{_YEAR}{_AFTER_YEAR}", means.year)
