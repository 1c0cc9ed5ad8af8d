"""Finds phrases in a text that name a past time, and their calendar spans. `phrases.toml` lists the phrases and when
each names a time, since the same words may be numbers, verbs or people. Times are naive and local (callers choose the
zone), weeks begin on Monday, and seasons follow the northern hemisphere. Pure."""

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache, partial
from typing import Any, Final, Literal, NamedTuple

from dateutil.relativedelta import relativedelta

from remembrancer.memory.lexicon import toml_file

Match = re.Match[str]
Unit = Literal["minute", "hour", "day", "week", "month", "year"]

_FILE: Final = toml_file("times/phrases.toml")
MONTHS, WEEKDAYS = (tuple(_FILE["words"][name].split()) for name in ("months", "weekdays"))
COUNTS: Final[Mapping[str, float | list[float]]] = _FILE["counts"]
"""A number, or a minimum and a maximum."""
UNITS: Final[Mapping[str, tuple[float, Unit]]] = _FILE["units"]
"""Each unit as a multiple of another unit."""

DAY: Final = timedelta(days=1)
VAGUENESS: Final = 0.15
""""Four weeks ago" is 28 days give or take four."""
FADE_SHARE: Final = 0.1
"""The distance from a span at which a time counts as half a match, as a share of the span's width."""
_LENGTHS: Final[Mapping[Unit, timedelta]] = {
    "minute": timedelta(minutes=1),
    "hour": timedelta(hours=1),
    "day": DAY,
    "week": 7 * DAY,
    "month": timedelta(days=30),
    "year": timedelta(days=365),
}
PARTS_OF_DAY: Final[Mapping[str, tuple[int, int]]] = {
    "morning": (5, 12),
    "afternoon": (12, 18),
    "evening": (17, 24),
    "night": (19, 28),
}
"""The first and last hour; 28 is four o'clock on the next day."""
SEASONS: Final[Mapping[str, int]] = {"spring": 3, "summer": 6, "autumn": 9, "fall": 9, "winter": 12}
"""The first of each season's three months."""
_MONTHS_OF: Final[Mapping[str, int]] = {"month": 1, "quarter": 3, "year": 12}


@dataclass(frozen=True, slots=True)
class Span:
    """The time from `start` up to but not including `end`. `slack` is the minimum of `fade`."""

    start: datetime
    end: datetime
    slack: timedelta = DAY

    @property
    def fade(self) -> timedelta:
        """The distance from the span at which a time counts as half a match."""
        return max(self.slack, FADE_SHARE * (self.end - self.start))


def back(now: datetime, count: float, unit: Unit) -> datetime:
    """Go back by the calendar for whole months and years, and by the unit's length for anything else."""
    if count == int(count) and unit in ("month", "year"):
        return now - relativedelta(months=int(count) * _MONTHS_OF[unit])
    return now - count * _LENGTHS[unit]


def counted(match: Match) -> tuple[float, float | None, Unit]:
    """The minimum count, the maximum (None if exact), and the unit."""
    word = (match.groupdict().get("count") or "a").lower()
    count = COUNTS[word] if word in COUNTS else float(word)
    times, unit = UNITS[match["unit"].lower()]
    return (count[0] * times, count[1] * times, unit) if isinstance(count, list) else (count * times, None, unit)


def _midnight(of: datetime) -> datetime:
    return of.replace(hour=0, minute=0, second=0, microsecond=0)


def _day(of: datetime, part: str | None = None) -> Span:
    begins, ends = PARTS_OF_DAY[part.lower()] if part else (0, 24)
    start, slack = _midnight(of), timedelta(hours=6) if part else DAY
    return Span(start + timedelta(hours=begins), start + timedelta(hours=ends), slack)


def _months(start: datetime, count: int = 1) -> Span:
    return Span(start, start + relativedelta(months=count))


def period_of(of: datetime, unit: str, back: int = 0) -> Span:
    """The week, month, quarter or year that contains a day, or the one `back` units earlier."""
    start = _midnight(of)
    if unit == "week":
        start -= timedelta(days=of.weekday() + 7 * back)
        return Span(start, start + 7 * DAY)
    months = _MONTHS_OF[unit]
    return _months(start.replace(day=1) - relativedelta(months=(of.month - 1) % months + months * back), months)


def _weekend(of: datetime, back: int) -> Span:
    """The latest weekend that has begun on the given day, or the one `back` weeks earlier."""
    start = _midnight(of) - timedelta(days=(of.weekday() - 5) % 7 + 7 * back)
    return Span(start, start + 2 * DAY)


def _around(now: datetime, least: float, most: float | None, unit: Unit) -> Span:
    """A span one unit wide (one month for years) around a past time, or the span between two counts."""
    half = (least if 0.0 < least < 1.0 else 1.0) * _LENGTHS["month" if unit == "year" else unit] / 2
    slack = max(half, VAGUENESS * least * _LENGTHS[unit])
    if unit == "day" and most is None:
        start = _midnight(now - least * DAY)
        return Span(start, start + DAY, max(DAY, slack))
    earliest = back(now, least if most is None else most, unit) - half
    return Span(earliest, min(back(now, least, unit) + half, now), slack)


def _ago(match: Match, now: datetime) -> Span:
    least, most, unit = counted(match)
    if match["unit"].lower() == "weekend" and least >= 1:
        return _weekend(now - DAY, int(least) - 1)
    return _around(now, least, most, unit)


def _rolling(match: Match, now: datetime) -> Span:
    """The span from the given number of units ago until now. It begins at midnight for days and longer units."""
    least, most, unit = counted(match)
    start = back(now, most or least, unit)
    return Span(start if unit in ("minute", "hour") else _midnight(start), now, min(DAY, _LENGTHS[unit]))


def _near_day(match: Match, now: datetime) -> Span:
    words = match[0].lower()
    if "other" in words:
        return _around(now, 2, 6, "day")
    of = now - DAY * (2 if "before" in words else words.startswith(("yesterday", "last")))
    return _day(of, match["of_day"] or ("night" if "night" in words else None))


def _named_weekend(match: Match, now: datetime) -> Span:
    is_last = (match["which"] or "this").lower() != "this"  # on a Saturday or Sunday, the previous weekend
    return _weekend(now, is_last and now.weekday() >= WEEKDAYS.index("saturday"))


def _weekday(match: Match, now: datetime) -> Span:
    """A weekday never means today, which would be called "today"."""
    index = [name[:3] for name in WEEKDAYS].index(match["weekday"].lower()[:3])
    return _day(now - DAY * ((now.weekday() - index - 1) % 7 + 1), match["of_day"])


def _in_year(match: Match, now: datetime, span_of: Callable[[int], Span]) -> Span:
    """The span in the named year, or else the latest one that has begun. Raises ValueError if no year has that date."""
    if match["year"]:
        return span_of(int(match["year"]))
    for year in range(now.year, now.year - 9, -1):  # 29 February is at most eight years away
        with suppress(ValueError):
            if (span := span_of(year)).start <= now:
                return span
    raise ValueError("no year has such a day")


def _month_number(match: Match) -> int:
    word = match["month"].lower()[:3]
    return int(word) if word.isdigit() else [name[:3] for name in MONTHS].index(word) + 1


def _month(match: Match, now: datetime) -> Span:
    number = _month_number(match)
    if (match["which"] or "").lower() == "last":
        now = _midnight(now).replace(day=1) - timedelta(microseconds=1)
    return _in_year(match, now, lambda year: _months(datetime(year, number, 1)))


def _date(match: Match, now: datetime) -> Span:
    month, number = _month_number(match), int(match["day"])
    return _in_year(match, now, lambda year: _day(datetime(year, month, number)))


def _days(match: Match, now: datetime) -> Span:
    first = _date(match, now)
    last = _day(first.start.replace(day=int(match["last_day"])))
    if last.start < first.start:
        raise ValueError("a range that ends before it begins")
    return Span(first.start, last.end)


def _season(match: Match, now: datetime) -> Span:
    begins = SEASONS[match["season"].lower()]
    season = _in_year(match, now, lambda year: _months(datetime(year, begins, 1), 3))
    if (match["which"] or "").lower() == "last" and not match["year"] and now < season.end:
        return _months(season.start - relativedelta(years=1), 3)
    return season


_RESOLVERS: Final[Mapping[str, Callable[[Match, datetime], Span]]] = {
    "ago": _ago,
    "rolling": _rolling,
    "near_day": _near_day,
    "month_of_last_year": lambda match, now: _months(datetime(now.year - 1, _month_number(match), 1)),
    "period": lambda match, now: period_of(now, match["period"].lower(), match["which"].lower() == "last"),
    "weekend": _named_weekend,
    "weekday": _weekday,
    "days": _days,
    "date": _date,
    "month": _month,
    # The last month, and with less certainty, the time before it.
    "recently": lambda _, now: Span(now - 30 * DAY, now, 30 * DAY),
    "season": _season,
    "year": lambda match, _: _months(datetime(int(match["year"]), 1, 1), 12),
}
"""The span of each rule's match at a query's local time. These may raise ValueError or OverflowError."""
_NOT_PAST = re.compile(
    r"\b(?:next|every|each|coming|upcoming|following|any|first|second|black|good|many|hundred)[\s-]+$", re.IGNORECASE
)
LOOK_BACK: Final = 40
"""The number of characters examined before a phrase."""


class Phrase(NamedTuple):
    """`resolve` may raise ValueError or OverflowError. A `weak` phrase names a time only as one end of a range."""

    begin: int
    end: int
    resolve: Callable[[datetime], Span]
    weak: bool


def phrases(text: str) -> list[Phrase]:
    """The phrases in order, without overlaps: earlier rules take precedence."""
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
    pattern: re.Pattern[str]
    resolve: Callable[[Match, datetime], Span]
    lead: re.Pattern[str]
    sure: re.Pattern[str]
    never: re.Pattern[str]
    strict: bool


@cache
def _rules() -> tuple[_Rule, ...]:
    """Compiled when a query first needs them, which saves a few milliseconds when the store starts."""
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
    """A case-insensitive pattern; `<name>` stands for a part from `phrases.toml`, and a space for whitespace."""
    words = {"months": MONTHS, "weekdays": WEEKDAYS, "counts": COUNTS, "units": UNITS}
    parts = _FILE["parts"] | {name: "|".join(sorted(known, key=len, reverse=True)) for name, known in words.items()}
    while _NAMED_PART.search(text):
        text = _NAMED_PART.sub(lambda name: parts[name[1]], text)
    return re.compile(text.replace(" ?", r"\s*").replace(" ", r"\s+"), re.IGNORECASE)
