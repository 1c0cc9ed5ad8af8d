"""Finds the words in a text that name a time in the past, and the calendar span of each. Pure.

A small grammar of English: `phrases.toml` has the phrases, and the conditions on which each names a time, since its
words may also be numbers, verbs or people ("in 2022", "on Saturday"). This module has the meaning of each phrase.
"""

import re
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from functools import cache, partial
from typing import Any, Final, NamedTuple

from remembrancer.memory.lexicon import toml_file
from remembrancer.memory.times import calendar_spans as spans
from remembrancer.memory.times.calendar_spans import DAY, Span, Unit

Match = re.Match[str]

_FILE: Final = toml_file("times/phrases.toml")
MONTHS, WEEKDAYS = (tuple(_FILE["words"][name].split()) for name in ("months", "weekdays"))
COUNTS: Final[Mapping[str, float | list[float]]] = _FILE["counts"]
"""Words for numbers: a number, or a minimum and a maximum."""
UNITS: Final[Mapping[str, tuple[float, Unit]]] = _FILE["units"]
"""Words for units: a number of another unit."""


def counted(match: Match) -> tuple[float, float | None, Unit]:
    """The minimum and maximum (None: exact) count in a match, one without a `<count>`, and its `<unit>`."""
    word = (match.groupdict().get("count") or "a").lower()
    count = COUNTS[word] if word in COUNTS else float(word)
    times, unit = UNITS[match["unit"].lower()]
    return (count[0] * times, count[1] * times, unit) if isinstance(count, list) else (count * times, None, unit)


def _ago(match: Match, now: datetime) -> Span:
    least, most, unit = counted(match)
    if match["unit"].lower() == "weekend" and least >= 1:
        return spans.weekend(now - DAY, int(least) - 1)
    return spans.ago(now, least, unit, most)


def _rolling(match: Match, now: datetime) -> Span:
    least, most, unit = counted(match)
    return spans.rolling(now, most or least, unit)


def _near_day(match: Match, now: datetime) -> Span:
    words = match[0].lower()
    if "other" in words:
        return spans.ago(now, 2, "day", 6)
    of = now - DAY * (2 if "before" in words else words.startswith(("yesterday", "last")))
    return spans.part_of_day(of, match["of_day"] or ("night" if "night" in words else None))


def _weekend(match: Match, now: datetime) -> Span:
    is_last = (match["which"] or "this").lower() != "this"  # on a Sunday, the previous one
    return spans.weekend(now, is_last and now.weekday() >= WEEKDAYS.index("saturday"))


def _weekday(match: Match, now: datetime) -> Span:
    """The latest such weekday before today, since today's would be called "today"."""
    index = [name[:3] for name in WEEKDAYS].index(match["weekday"].lower()[:3])
    return spans.part_of_day(now - DAY * ((now.weekday() - index - 1) % 7 + 1), match["of_day"])


def _in_year(match: Match, now: datetime, span_of: Callable[[int], Span]) -> Span:
    """A yearly span in the year of a match; without one, the latest that has begun."""
    return span_of(int(match["year"])) if match["year"] else spans.latest(span_of, now)


def _month_number(match: Match) -> int:
    word = match["month"].lower()[:3]
    return int(word) if word.isdigit() else [name[:3] for name in MONTHS].index(word) + 1


def _month(match: Match, now: datetime) -> Span:
    number = _month_number(match)
    if (match["which"] or "").lower() == "last":
        now = spans.period(now, "month").start - timedelta(microseconds=1)
    return _in_year(match, now, lambda year: spans.period(datetime(year, number, 1), "month"))


def _date(match: Match, now: datetime) -> Span:
    month, number = _month_number(match), int(match["day"])
    return _in_year(match, now, lambda year: spans.day(datetime(year, month, number)))


def _days(match: Match, now: datetime) -> Span:
    first = _date(match, now)
    last = spans.day(datetime(first.start.year, _month_number(match), int(match["last_day"])))
    if last.start < first.start:
        raise ValueError("a range that ends before it begins")
    return Span(first.start, last.end)


def _season(match: Match, now: datetime) -> Span:
    name = match["season"].lower()
    season = _in_year(match, now, lambda year: spans.season(year, name))
    if (match["which"] or "").lower() == "last" and not match["year"] and now < season.end:
        return spans.season(season.start.year - 1, name)
    return season


_RESOLVERS: Final[Mapping[str, Callable[[Match, datetime], Span]]] = {
    "ago": _ago,
    "rolling": _rolling,
    "near_day": _near_day,
    "month_of_last_year": lambda match, now: spans.period(datetime(now.year - 1, _month_number(match), 1), "month"),
    "period": lambda match, now: spans.period(now, match["period"].lower(), match["which"].lower() == "last"),
    "weekend": _weekend,
    "weekday": _weekday,
    "days": _days,
    "date": _date,
    "month": _month,
    # The last month, and with less certainty the time before it.
    "recently": lambda _, now: Span(now - 30 * DAY, now, 30 * DAY),
    "season": _season,
    "year": lambda match, _: spans.period(datetime(int(match["year"]), 1, 1), "year"),
}
"""The spans that phrases name at the local time of a query, by the names of their rules. They may raise ValueError or
OverflowError."""
_NOT_PAST = re.compile(
    r"\b(?:next|every|each|coming|upcoming|following|any|first|second|black|good|many|hundred)[\s-]+$", re.IGNORECASE
)
LOOK_BACK: Final = 40
"""The number of characters before a phrase that are examined."""


class Phrase(NamedTuple):
    """The words from `begin` to `end` of a text, which name a time; `resolve` gives its span at the local time of the
    query, or raises ValueError or OverflowError. `weak`: only as one end of a range."""

    begin: int
    end: int
    resolve: Callable[[datetime], Span]
    weak: bool


def phrases(text: str) -> list[Phrase]:
    """The phrases of a text in order, without overlaps: earlier rules take precedence."""
    accepted: list[Phrase] = []
    for rule in _rules():
        for match in rule.pattern.finditer(text):
            (begin, end), words = match.span(), match[0]
            before = text[max(0, begin - LOOK_BACK) : begin]
            weak = not (rule.sure.match(words) or rule.lead.search(before))
            is_none = _NOT_PAST.search(before) or rule.never.match(words) or (weak and rule.strict)
            if not is_none and all(end <= each.begin or each.end <= begin for each in accepted):
                accepted.append(Phrase(begin, end, partial(rule.resolve, match), weak))
    return sorted(accepted, key=lambda each: each.begin)


class _Rule(NamedTuple):
    """A pattern of `phrases.toml` with the conditions of its rule."""

    pattern: re.Pattern[str]
    resolve: Callable[[Match, datetime], Span]
    lead: re.Pattern[str]
    sure: re.Pattern[str]
    never: re.Pattern[str]
    strict: bool


@cache
def _rules() -> tuple[_Rule, ...]:
    """Compiled for the first query that needs them, which saves some milliseconds at the store's start."""
    rows: list[dict[str, Any]] = _FILE["rules"]
    return tuple(
        _Rule(
            pattern_of(pattern),
            _RESOLVERS[row["name"]],
            pattern_of(rf"\b(?:{row.get('lead', '(?!)')}) (?:the )?$"),
            pattern_of(row.get("sure", "" if "lead" not in row else "(?!)")),
            pattern_of(row.get("never", "(?!)")),
            row.get("strict", False),
        )
        for row in rows
        for pattern in row["patterns"]
    )


_NAMED_PART: Final = re.compile(r"(?<!\(\?P)<(\w+)>")


def pattern_of(text: str) -> re.Pattern[str]:
    """A pattern, ignoring case, in which `<name>` stands for a part in `phrases.toml`, and a blank for white space."""
    words = {"months": MONTHS, "weekdays": WEEKDAYS, "counts": COUNTS, "units": UNITS}
    parts = _FILE["parts"] | {name: "|".join(sorted(known, key=len, reverse=True)) for name, known in words.items()}
    while _NAMED_PART.search(text):
        text = _NAMED_PART.sub(lambda name: parts[name[1]], text)
    return re.compile(text.replace(" ", r"\s+"), re.IGNORECASE)
