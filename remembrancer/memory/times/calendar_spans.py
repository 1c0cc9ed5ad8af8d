"""Spans of the calendar that people name: a day, a weekend, last month, four weeks ago, Easter. Pure.

All times are naive and local: whoever calls decides which zone they are of. A span holds `start`, and not `end`.
Weeks begin on Monday, seasons are those of the north, and the feasts are the ones that people date things by.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, time, timedelta
from typing import Final, Literal

from dateutil.easter import easter
from dateutil.relativedelta import relativedelta

Unit = Literal["minute", "hour", "day", "week", "month", "year"]
"""The units in which people count back."""

DAY: Final = timedelta(days=1)
VAGUENESS: Final = 0.15
"""The uncertainty of a count, as a share of it: "four weeks ago" is 28 days give or take four."""
EARLY_SHARE: Final = 0.1
LATE_SHARE: Final = 0.1
"""The distance before and after a span at which a time still half counts, as a share of the span's width: what happened
in June is told in June or in July, seldom in May."""

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
"""The hours from and until which a part of a day goes; 28 is four o'clock on the next day."""
SEASONS: Final[Mapping[str, int]] = {"spring": 3, "summer": 6, "autumn": 9, "fall": 9, "winter": 12}
"""The month with which each begins; it has three."""


@dataclass(frozen=True, slots=True)
class Span:
    """From `start` until `end`; `slack` is how far outside them a time still half counts, or further if it is wide."""

    start: datetime
    end: datetime
    slack: timedelta = DAY

    @property
    def early(self) -> timedelta:
        """The distance before it at which a time still half counts."""
        return max(self.slack, EARLY_SHARE * (self.end - self.start))

    @property
    def late(self) -> timedelta:
        """The distance after it at which a time still half counts."""
        return max(self.slack, LATE_SHARE * (self.end - self.start))

    def third(self, which: int) -> Span:
        """The first, second or last third (0, 1, 2)."""
        part = (self.end - self.start) / 3
        return Span(self.start + which * part, self.start + (which + 1) * part, self.slack)


def day(of: datetime) -> Span:
    """The whole day that `of` is in."""
    start = of.replace(hour=0, minute=0, second=0, microsecond=0)
    return Span(start, start + DAY)


def part_of_day(of: datetime, part: str) -> Span:
    """The morning, afternoon, evening or night of that day."""
    begins, ends = PARTS_OF_DAY[part]
    start = day(of).start
    return Span(start + timedelta(hours=begins), start + timedelta(hours=ends), timedelta(hours=6))


def week(of: datetime, back: int = 0) -> Span:
    """The week of that day, or so many before it."""
    start = day(of).start - timedelta(days=of.weekday() + 7 * back)
    return Span(start, start + 7 * DAY)


def weekend(of: datetime, back: int = 0) -> Span:
    """The latest weekend that has begun by that day, or so many before it."""
    start = day(of).start - timedelta(days=(of.weekday() - 5) % 7 + 7 * back)
    return Span(start, start + 2 * DAY)


def month(of: datetime, back: int = 0) -> Span:
    """The month of that day, or so many before it."""
    start = day(of).start.replace(day=1) - relativedelta(months=back)
    return Span(start, start + relativedelta(months=1))


def quarter(of: datetime, back: int = 0) -> Span:
    """The quarter of the year of that day, or so many before it."""
    start = month(of, (of.month - 1) % 3 + 3 * back).start
    return Span(start, start + relativedelta(months=3))


def week_of(whole: Span, which: int) -> Span:
    """The first (0), second … seven days of a span, or its last (-1), as far as it goes.

    Raises `ValueError` where it is not so long.
    """
    start = whole.end - 7 * DAY if which < 0 else whole.start + 7 * which * DAY
    if start >= whole.end:
        raise ValueError(f"{whole} has no week {which}")
    return Span(start, min(start + 7 * DAY, whole.end), whole.slack)


def half_of(whole: Span, which: int) -> Span:
    """The first half (0) of a span, or the second: of a year in whole months."""
    is_year = whole.end - whole.start > 360 * DAY
    middle = whole.start + (relativedelta(months=6) if is_year else (whole.end - whole.start).days // 2 * DAY)
    return Span(middle, whole.end, whole.slack) if which else Span(whole.start, middle, whole.slack)


def iso_week(of_year: int, number: int) -> Span:
    """The week of that number in ISO 8601. Raises `ValueError` where the year has none."""
    return week(datetime.fromisocalendar(of_year, number, 1))


def year(of: datetime, back: int = 0) -> Span:
    """The year of that day, or so many before it."""
    start = day(of).start.replace(month=1, day=1) - relativedelta(years=back)
    return Span(start, start + relativedelta(years=1))


def weekday(of: datetime, index: int, back: int = 0) -> Span:
    """The latest Monday (0) … Sunday (6) up to that day, or so many weeks before it."""
    return day(of - timedelta(days=(of.weekday() - index) % 7 + 7 * back))


def season(start_year: int, name: str) -> Span:
    """The season that begins in that year."""
    start = datetime(start_year, SEASONS[name], 1)
    return Span(start, start + relativedelta(months=3))


def latest(span_of: Callable[[int], Span], now: datetime, back: int = 0) -> Span:
    """The latest span that recurs each year and has begun by `now`, or the one so many years before that."""
    this_year = span_of(now.year)
    return span_of(now.year - back) if this_year.start <= now else span_of(now.year - 1 - back)


def ago(now: datetime, count: float, unit: Unit, most: float | None = None) -> Span:
    """So many units ago: a span of one unit around that time, of years one of a month. With `most`, anywhere between
    the two counts."""
    length = (count if 0.0 < count < 1.0 else 1.0) * _LENGTHS["month" if unit == "year" else unit]
    slack = max(length / 2, VAGUENESS * count * _LENGTHS[unit])
    if unit == "day" and most is None:
        whole = day(now - count * DAY)
        return Span(whole.start, whole.end, max(DAY, slack))
    later = back(now, count, unit) + length / 2
    earlier = back(now, count if most is None else most, unit) - length / 2
    return Span(earlier, min(later, now), slack)


def back(now: datetime, count: float, unit: Unit) -> datetime:
    """The time so many units before: by the calendar for whole months and years, else by their length."""
    if count == int(count) and unit in ("month", "year"):
        months = int(count) * (12 if unit == "year" else 1)
        return now - relativedelta(months=months)
    return now - count * _LENGTHS[unit]


def rolling(now: datetime, count: float, unit: Unit) -> Span:
    """The last so many units up to now; of days and longer units from the beginning of a day."""
    start = back(now, count, unit)
    return Span(start if unit in ("minute", "hour") else day(start).start, now, min(DAY, _LENGTHS[unit]))


def _fixed(first_month: int, first_day: int, days: int = 1) -> Callable[[int], Span]:
    return lambda of_year: _feast(datetime(of_year, first_month, first_day), days)


def _easter(first: int, days: int) -> Callable[[int], Span]:
    return lambda of_year: _feast(datetime.combine(easter(of_year), time()) + first * DAY, days)


def _thanksgiving(after: int = 0) -> Callable[[int], Span]:
    """The fourth Thursday of November, or so many days after it."""
    return lambda of_year: _feast(weekday(datetime(of_year, 11, 28), 3).start + after * DAY, 1)


def _feast(start: datetime, days: int) -> Span:
    return Span(start, start + days * DAY, 2 * DAY)


FEASTS: Final[Mapping[str, Callable[[int], Span]]] = {
    "christmas eve": _fixed(12, 24),
    "christmas": _fixed(12, 24, 3),
    "xmas": _fixed(12, 24, 3),
    "boxing day": _fixed(12, 26),
    "new year's eve": _fixed(12, 31),
    "new year's day": _fixed(1, 1),
    "new year": _fixed(1, 1),
    "new year's": _fixed(1, 1),
    "valentine's day": _fixed(2, 14),
    "valentine's": _fixed(2, 14),
    "st patrick's day": _fixed(3, 17),
    "good friday": _easter(-2, 1),
    "easter": _easter(-2, 4),
    "pentecost": _easter(49, 2),
    "independence day": _fixed(7, 4),
    "halloween": _fixed(10, 31),
    "thanksgiving": _thanksgiving(),
    "black friday": _thanksgiving(1),
}
"""Spans that recur each year and have a name, with the span in a year."""
