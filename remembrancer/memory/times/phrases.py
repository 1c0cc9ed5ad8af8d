"""Finds the words in a text that name a time in the past, and the calendar span of each. Pure.

A small grammar of English. Some phrases name a time by themselves ("four weeks ago", "3 May 2023"), others only after
certain words ("in 2022", "on Saturday"), since they may also be numbers, verbs or people.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from typing import Any, Final

from remembrancer.memory.lexicon import toml_file
from remembrancer.memory.times import calendar_spans as spans
from remembrancer.memory.times.calendar_spans import DAY, Span, Unit

Resolve = Callable[[datetime], Span]
"""Maps the local time of the query to a span. May raise ValueError or OverflowError."""
Match = re.Match[str]

_FILE: Final = toml_file("times/phrases.toml")
MONTHS, WEEKDAYS = (tuple(_FILE["words"][name].split()) for name in ("months", "weekdays"))
COUNTS: Final[Mapping[str, float | list[float]]] = _FILE["counts"]
"""Words for numbers: a number, or a minimum and a maximum."""
UNITS: Final[Mapping[str, tuple[float, Unit]]] = _FILE["units"]
"""Words for units: a number of another unit."""
_PERSONS_AND_VERBS: Final = frozenset({"march", "april", "may", "june", "august"})
"""Months whose names are also other words."""
_VERBS: Final = frozenset({"march", "may"})
_ON: Final = re.compile(r"\b(?:on|since|before|after|until|till|by)\s+(?:the\s+)?$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Meaning:
    """The meaning of a match according to a rule. With a `kind`, one of that kind's leading words must precede it."""

    resolve: Resolve
    kind: str | None = None
    present: bool = False


def counted(match: Match) -> tuple[float, float | None, Unit]:
    """The minimum and maximum (None: exact) count in a match with a `<unit>`, and a `<count>` or one, and the unit."""
    word = (match.groupdict().get("count") or "a").lower()
    count = COUNTS[word] if word in COUNTS else float(word)
    times, unit = UNITS[match["unit"].lower()]
    return (count[0] * times, count[1] * times, unit) if isinstance(count, list) else (count * times, None, unit)


def _ago(match: Match) -> Meaning:
    """As in "Four weeks ago", "a couple of years back"."""
    least, most, unit = counted(match)
    if match["unit"].lower() == "weekend" and least >= 1:
        return Meaning(lambda now: spans.weekend(now - DAY, int(least) - 1))
    return Meaning(lambda now: spans.ago(now, least, unit, most))


def _rolling(match: Match) -> Meaning:
    """As in "The last three months", "over the last week", "the past year", up to now."""
    least, most, unit = counted(match)
    return Meaning(lambda now: spans.rolling(now, most or least, unit))


def _near_day(match: Match) -> Meaning:
    """As in "Yesterday", "last night", "this morning", "the other day"."""
    words = " ".join(match[0].lower().split())
    of_day = match["of_day"]
    back = 2 if "before" in words else 1 if words.startswith(("yesterday", "last")) else 0
    if "other" in words:
        return Meaning(lambda now: spans.ago(now, 2, "day", 6))
    if of_day or "night" in words:
        part = of_day.lower() if of_day else "night"
        return Meaning(lambda now: spans.part_of_day(now - back * DAY, part), present=back == 0)
    return Meaning(lambda now: spans.day(now - back * DAY), present=back == 0)


def _period(match: Match) -> Meaning:
    """The week, month, quarter or year of the query, or the previous one."""
    unit, back = match["period"].lower(), 1 if match["which"].lower() == "last" else 0
    return Meaning(lambda now: spans.period(now, unit, back), present=back == 0 and not match["earlier"])


def _weekend(match: Match) -> Meaning:
    """As in "Last weekend", "at the weekend"."""
    which = (match["which"] or "").lower()
    if "last" in which or "past" in which:  # on a Sunday, the previous one
        return Meaning(lambda now: spans.weekend(now, 1 if now.weekday() >= 5 else 0))
    return Meaning(spans.weekend, None if which else "weekend", present=which == "this")


def _weekday(match: Match) -> Meaning | None:
    """As in "Last Saturday", "on Saturday", "Saturday night", "last Fri": the latest before today.

    Short forms must be capitalized, and "Sun" needs "last" or "past", because they are also other words.
    """
    word, which, of_day = match["weekday"], (match["which"] or "").lower(), match["of_day"]
    is_short = word.lower() not in WEEKDAYS
    if which == "this" or (is_short and not which and (word.islower() or word.lower() == "sun")):
        return None  # the next one, or no day at all

    def resolve(now: datetime) -> Span:
        number = [name[:3] for name in WEEKDAYS].index(word.lower()[:3])
        whole_day = spans.weekday(now - DAY, number)  # the same weekday would be "today"
        return spans.part_of_day(whole_day.start, of_day.lower()) if of_day else whole_day

    is_sure = which or ((of_day or match["owns"]) and not is_short)
    return Meaning(resolve, None if is_sure else "on" if is_short else "weekday")


def _month_number(word: str) -> int:
    return next(place for place, month in enumerate(MONTHS, 1) if month.startswith(word.lower().rstrip(".")[:3]))


def _month(match: Match) -> Meaning | None:
    """As in "In March", "last March", "May 2022"; without a year, the latest one that has begun."""
    word, year, which = match["month"], match["year"], match["which"]
    number = _month_number(word)
    if year:
        return Meaning(lambda now: _month_of(now, number, year))
    is_other_word = word.islower() and word in _VERBS
    if is_other_word and which:
        return None  # "the last may be wrong"
    is_last = which is not None and which.lower() == "last"

    def resolve(now: datetime) -> Span:
        last = spans.period(now, "month").start - timedelta(microseconds=1) if is_last else now
        return _month_of(last, number, None)

    is_sure = which or (word.lower() in MONTHS and word.lower() not in _PERSONS_AND_VERBS)
    return Meaning(resolve, None if is_sure else "month")


def _month_of(now: datetime, number: int, year: str | None) -> Span:
    """That month of the year, or else the latest one that has begun."""
    if year:
        return spans.period(datetime(int(year), number, 1), "month")
    return spans.latest(lambda of_year: spans.period(datetime(of_year, number, 1), "month"), now)


def _month_of_last_year(match: Match) -> Meaning:
    """As in "in March last year"."""
    return Meaning(lambda now: _month_of(now, _month_number(match["month"]), str(now.year - 1)))


def _days(match: Match) -> Meaning | None:
    """As in "between 3 and 9 November", "November 3-9", "from the 3rd to the 9th of May 2023"."""
    first = _date(match)
    month, number = _month_number(match["month"]), int(match["last_day"])
    if first is None:
        return None

    def resolve(now: datetime) -> Span:
        begins = first.resolve(now)
        ends = spans.day(datetime(begins.start.year, month, number))
        if ends.start < begins.start:
            raise ValueError("a range that ends before it begins")
        return Span(begins.start, ends.end)

    return Meaning(resolve)


def _date(match: Match) -> Meaning | None:
    """A day of a month; without a year, the latest such day."""
    word, year, number = match["month"], match["year"], int(match["day"])
    is_plain = not (year or match["ordinal"] or _ON.search(match.string, max(0, match.start() - 12), match.start()))
    if is_plain and word.islower() and (word in _VERBS or word not in MONTHS):
        return None  # "may 3 processes", "mar 4"
    month = _month_number(word)
    if year:
        return Meaning(lambda _: spans.day(datetime(int(year), month, number)))
    return Meaning(lambda now: _latest_day(now, month, number))


def _latest_day(now: datetime, month: int, number: int) -> Span:
    for back in range(9):  # 29 February is at most eight years away
        try:
            span = spans.day(datetime(now.year - back, month, number))
        except ValueError:
            continue
        if span.start <= now:
            return span
    raise ValueError(f"no day {number} in month {month}")


def _iso_date(match: Match) -> Meaning:
    """As in "2023-05-04", "2023/5/4"."""
    year, month, number = (int(match[part]) for part in ("year", "month_number", "day"))
    return Meaning(lambda _: spans.day(datetime(year, month, number)))


def _recently(match: Match) -> Meaning:
    """As in "recently", "lately": the last month, and with less certainty the time before it."""
    return Meaning(lambda now: Span(now - 30 * DAY, now, 30 * DAY))


def _season(match: Match) -> Meaning | None:
    """As in "Last summer", "in the spring of 2022"; without a year, the latest one that has begun."""
    name, year, which = match["season"].lower(), match["year"], (match["which"] or "").lower()
    if year:
        return Meaning(lambda _: spans.season(int(year), name))
    if not which and name in ("spring", "fall") and not match["the"] and match["season"] != name:
        return None  # a framework or a name

    def resolve(now: datetime) -> Span:
        begun = spans.latest(lambda of_year: spans.season(of_year, name), now)
        if which == "last" and now < begun.end:
            begun = spans.season(begun.start.year - 1, name)
        return begun

    return Meaning(resolve, None if which else "season", present=which == "this")


def _year(match: Match) -> Meaning:
    """As in "In 2022"."""
    year = int(match["year"])
    return Meaning(lambda _: spans.period(datetime(year, 1, 1), "year"), "year")


_NOT_PAST = re.compile(
    r"\b(?:next|every|each|coming|upcoming|following|any|first|second|black|good|many|hundred)[\s-]+$", re.IGNORECASE
)
LOOK_BACK: Final = 40
"""The number of characters before a phrase that are examined."""


@dataclass(frozen=True, slots=True)
class Phrase:
    """The words from `begin` to `end` of a text, which name a time. `weak`: only as one end of a range.

    `present`: the span contains the query's own time, so the query may be about the future.
    """

    begin: int
    end: int
    resolve: Resolve
    weak: bool = False
    present: bool = False


def phrases(text: str) -> list[Phrase]:
    """The phrases of a text in order, without overlaps: earlier rules take precedence."""
    accepted: list[Phrase] = []
    for pattern, meaning_of in _rules():
        for match in pattern.finditer(text):
            begin, end = match.span()
            if any(begin < each.end and each.begin < end for each in accepted):
                continue
            before = text[max(0, begin - LOOK_BACK) : begin]
            meaning = None if _NOT_PAST.search(before) else meaning_of(match)
            if meaning is None:
                continue
            weak = meaning.kind is not None and not _lead(meaning.kind).search(before)
            accepted.append(Phrase(begin, end, meaning.resolve, weak, meaning.present))
    return sorted(accepted, key=lambda each: each.begin)


_MEANINGS: Final[Mapping[str, Callable[[Match], Meaning | None]]] = {
    "ago": _ago,
    "rolling": _rolling,
    "near_day": _near_day,
    "month_of_last_year": _month_of_last_year,
    "period": _period,
    "weekend": _weekend,
    "weekday": _weekday,
    "iso_date": _iso_date,
    "days": _days,
    "date": _date,
    "month": _month,
    "recently": _recently,
    "season": _season,
    "year": _year,
}
"""The meanings of phrases by the names of their rules; None: the words name no time."""


@cache
def _rules() -> tuple[tuple[re.Pattern[str], Callable[[Match], Meaning | None]], ...]:
    """Compiled for the first query that needs them, which saves some milliseconds at the store's start."""
    rules: list[dict[str, Any]] = _FILE["rules"]
    return tuple((pattern_of(text), _MEANINGS[rule["name"]]) for rule in rules for text in rule["patterns"])


@cache
def _lead(kind: str) -> re.Pattern[str]:
    return pattern_of(rf"\b(?:{_FILE['leads'][kind]}) (?:the )?$")


_NAMED_PART: Final = re.compile(r"(?<!\(\?P)<(\w+)>")


def pattern_of(text: str) -> re.Pattern[str]:
    """A pattern, ignoring case, in which `<name>` stands for a part in `phrases.toml`, and a blank for white space."""
    words = {"months": MONTHS, "weekdays": WEEKDAYS, "counts": COUNTS, "units": UNITS}
    parts = _FILE["parts"] | {name: "|".join(sorted(known, key=len, reverse=True)) for name, known in words.items()}
    while _NAMED_PART.search(text):
        text = _NAMED_PART.sub(lambda name: parts[name[1]], text)
    return re.compile(text.replace(" ", r"\s+"), re.IGNORECASE)
