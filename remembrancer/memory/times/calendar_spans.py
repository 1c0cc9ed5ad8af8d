"""Calendar spans that people name: a day, a weekend, last month, four weeks ago, spring. Pure.

All times are naive and local; callers choose the zone. A span includes `start` and excludes `end`. Weeks begin on
Monday, and seasons are those of the northern hemisphere.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal

from dateutil.relativedelta import relativedelta

Unit = Literal["minute", "hour", "day", "week", "month", "year"]
"""The units in which people count back."""

DAY: Final = timedelta(days=1)
VAGUENESS: Final = 0.15
"""The relative uncertainty of a count: "four weeks ago" is 28 days give or take four."""
FADE_SHARE: Final = 0.1
"""The distance from a span at which a time counts half, as a share of the span's width."""

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
"""The first and last hour of each part of a day; 28 is four o'clock on the next day."""
SEASONS: Final[Mapping[str, int]] = {"spring": 3, "summer": 6, "autumn": 9, "fall": 9, "winter": 12}
"""The month in which each season begins; it has three."""


@dataclass(frozen=True, slots=True)
class Span:
    """The time from `start` until `end`; `slack` is the minimum distance outside at which a time counts half."""

    start: datetime
    end: datetime
    slack: timedelta = DAY

    @property
    def fade(self) -> timedelta:
        """The distance outside the span at which a time counts half."""
        return max(self.slack, FADE_SHARE * (self.end - self.start))


def day(of: datetime) -> Span:
    """The whole day that contains `of`."""
    start = of.replace(hour=0, minute=0, second=0, microsecond=0)
    return Span(start, start + DAY)


def part_of_day(of: datetime, part: str | None) -> Span:
    """The morning, afternoon, evening or night of that day, or all of it."""
    if part is None:
        return day(of)
    begins, ends = PARTS_OF_DAY[part.lower()]
    start = day(of).start
    return Span(start + timedelta(hours=begins), start + timedelta(hours=ends), timedelta(hours=6))


_MONTHS: Final[Mapping[str, int]] = {"month": 1, "quarter": 3, "year": 12}


def period(of: datetime, unit: str, back: int = 0) -> Span:
    """The week, month, quarter or year that contains that day, or `back` of them earlier."""
    start = day(of).start
    if unit == "week":
        start -= timedelta(days=of.weekday() + 7 * back)
        return Span(start, start + 7 * DAY)
    months = _MONTHS[unit]
    start = start.replace(day=1) - relativedelta(months=(of.month - 1) % months + months * back)
    return Span(start, start + relativedelta(months=months))


def weekend(of: datetime, back: int = 0) -> Span:
    """The latest weekend that has begun by that day, or `back` weekends earlier."""
    start = day(of).start - timedelta(days=(of.weekday() - 5) % 7 + 7 * back)
    return Span(start, start + 2 * DAY)


def season(start_year: int, name: str) -> Span:
    """The season that begins in that year."""
    start = datetime(start_year, SEASONS[name], 1)
    return Span(start, start + relativedelta(months=3))


def latest(span_of: Callable[[int], Span], now: datetime) -> Span:
    """The latest yearly span that has begun by `now`. Raises ValueError if no year has it."""
    for year in range(now.year, now.year - 9, -1):  # 29 February is at most eight years away
        with suppress(ValueError):
            span = span_of(year)
            if span.start <= now:
                return span
    raise ValueError("no year has such a day")


def ago(now: datetime, count: float, unit: Unit, most: float | None = None) -> Span:
    """A time `count` units ago: a span of one unit around it (for years, of one month). With `most`, the span between
    both counts."""
    length = (count if 0.0 < count < 1.0 else 1.0) * _LENGTHS["month" if unit == "year" else unit]
    slack = max(length / 2, VAGUENESS * count * _LENGTHS[unit])
    if unit == "day" and most is None:
        whole_day = day(now - count * DAY)
        return Span(whole_day.start, whole_day.end, max(DAY, slack))
    later = back(now, count, unit) + length / 2
    earlier = back(now, count if most is None else most, unit) - length / 2
    return Span(earlier, min(later, now), slack)


def back(now: datetime, count: float, unit: Unit) -> datetime:
    """The time `count` units earlier: by the calendar for whole months and years, else by their length."""
    if count == int(count) and unit in ("month", "year"):
        months = int(count) * (12 if unit == "year" else 1)
        return now - relativedelta(months=months)
    return now - count * _LENGTHS[unit]


def rolling(now: datetime, count: float, unit: Unit) -> Span:
    """The last `count` units up to now; with days and longer units, from the beginning of a day."""
    start = back(now, count, unit)
    return Span(start if unit in ("minute", "hour") else day(start).start, now, min(DAY, _LENGTHS[unit]))
