"""Splits lists of open ends ("Next: a; b; c" contains three), reads their due dates, and recognizes texts that move or
close them and questions about all open ends. Pure."""

import re
from contextlib import suppress
from datetime import UTC, datetime, tzinfo
from functools import lru_cache, partial
from itertools import islice
from typing import Final

from dateutil.relativedelta import FR, relativedelta

from remembrancer.memory.decay import DAY_S
from remembrancer.memory.lexicon import toml_file, word_lists
from remembrancer.memory.likely_kind import PROBABLE, open_end_probability, probabilities
from remembrancer.memory.sentences import split_sentences
from remembrancer.memory.times.languages import days_in_english
from remembrancer.memory.times.phrases import COUNTS, DAY, MONTHS, WEEKDAYS, counted, pattern_of, period_of
from remembrancer.memory.times.windows import EMPTY, read_query, without_times
from remembrancer.memory.wording import stem
from remembrancer.protocol.kinds import OPEN_END
from remembrancer.protocol.writes import ShownFields

_HEADING: Final = re.compile(
    r"\s*(?P<announced>next(?: steps?| up)?|open(?: ends?| points?| questions?| tasks?)?|tasks?|still (?:open|to do)"
    r"|to[- ]?dos?|als nächstes|nächste schritte|(?:noch )?offen|(?:noch )?zu tun"
    r"|à faire|reste à faire|prochaines? étapes?"
    r"|pendientes?|por hacer|(?:próximos|siguientes) pasos)\s*(?:\((?P<about>[^()]*)\)\s*)?:\s*",
    re.IGNORECASE,
)
_OFTEN_ONE: Final = frozenset({"open", "offen", "noch offen"})
"""Headings that often begin a single open end: "Open (2026-11-17): 180 connections of 200; no remedy yet"."""
_NOTHING: Final = re.compile(r"(?:nothing|none|n/?a|nichts|rien|nada)(?: (?:else|more|left|mehr))?\s*[.!]?\s*", re.I)
_ITEM: Final = re.compile(r"(?:^|\n)[ \t]*(?:[-*•–]|\(?\d{1,2}[.)])[ \t]+(?:\[ \][ \t]+)?")
_NUMBER: Final = re.compile(r"(?:^|\s)\(\d{1,2}\)\s")
_LISTS: Final = word_lists("open_ends")
_OPEN: Final = _LISTS["open"]
_AROUND: Final = _LISTS["around"] | _OPEN | EMPTY
_TO_BE_DONE: Final = re.compile(
    r"\b(?:must|needs? to|should|has to|have to|still) (?:still )?be done\b|\b(?:still|need|have) to do\b|\bdo next\b"
    r"|\b(?:should|must) (?:i|we) do\b|\breste à faire\b|\bnoch (?:zu )?tun\b|\bqueda por hacer\b",
    re.IGNORECASE,
)
_WHAT_TO_DO: Final = re.compile(
    r"\b(?:must|needs? to|should|has to|have to) be done\b|\b(?:should|must) (?:i|we) do\b", re.I
)
_SUBJECT: Final = re.compile(r"\b(?:(?<=left )to|about|at|for|from|in|of|on|with|beim?|für|vom?|de|en|pour|sur)\b")
_WORD: Final = re.compile(r"[^\W_]+")
_NUMERIC: Final = re.compile(r"(?<![\w./-])(\d{1,2})([./])(\d{1,2})\2 ?(\d{4})(?![\w/-])")
_REWRITINGS: Final = [(pattern_of(words), plain) for words, plain in toml_file("times/phrases.toml")["coming_days"]]
WEEKDAY: Final = rf"(?:{'|'.join(WEEKDAYS)})"
_CLOCK: Final = re.compile(rf"\b(?:at|{WEEKDAY},?)(?: at)? (\d\d?)(?:[:.](\d\d))?(?: ?([ap])\.?m\b)?(?!\w)", re.I)
_OF_PERIOD: Final = r"(?:(?: of)? (?P<which>this|next) (?P<of>week|year)\b)"
_WEEKDAY_OF_DATE: Final = rf"(?:{WEEKDAY},? (?:the )?(?=\w* ?\d))?"
_MONTH: Final = rf"(?:{'|'.join(f'{name[:3]}(?:{name[3:]}|t?[.]?)' for name in MONTHS)})(?![a-z])"
_OF_MONTH: Final = r"(?:0?[1-9]|[12]\d|3[01])(?:st|nd|rd|th)?"
CALENDAR_DAY: Final = rf"(?:{_OF_MONTH} (?:of )?{_MONTH}|{_MONTH} {_OF_MONTH})"
_WHEN: Final = rf"(?:{'|'.join(_LISTS['after_days'])}|to(?! {WEEKDAY})|and (?:the|on|by)|of this month|after all)\b"
_NTH: Final = rf"{_OF_MONTH}(?<=[a-z])(?![\w-]| (?!{_WHEN})\w)"
_LATER: Final = (
    rf"(?P<in>in )?(?!the |last )(?P<count>\d{{1,2}}|{'|'.join(COUNTS)}) (?P<unit>day|week|fortnight|month)s?"
    rf"(?(in)| from (?:now|today|(?P<first>{WEEKDAY})))"
)
_DUE: Final = re.compile(
    r"\b(?P<how>due|by|before|deadline(?:\b[^.:;\n]{0,60}?(?::| is(?: now)?))?) (?:on |at |in (?=31 february))?"
    rf"(?:the )?(?P<end>end of (?:the )?)?(?:this |coming |(?P<next>next )(?(end)|(?!week|month)))*{_WEEKDAY_OF_DATE}"
    rf"(?P<day>\d{{4}}-\d\d-\d\d|(?P<near>today|tonight|(?:to|over)morrow|next (?:week|month)|christmas)"
    rf"|{_LATER}|(?P<date>{CALENDAR_DAY})(?P<year>,? \d{{4}})?|(?P<nth>{_NTH})"
    rf"|{WEEKDAY}|(?(end)(?P<period>week|month|year|{'|'.join(MONTHS)})|(?!)))\b{_OF_PERIOD}?",
    re.IGNORECASE,
)
_ANY_DATE: Final = rf"\d{{4}}-\d\d-\d\d|{CALENDAR_DAY}(?:,? \d{{4}})?"
DATE: Final = re.compile(rf"\b(?:{_ANY_DATE})(?!\w)", re.IGNORECASE)
_COMING: Final = re.compile(
    rf"\b(?=(?:{_ANY_DATE}|to(?:day|night)|(?:to|over)morrow|next (?:week|month)|(?:the )?end of \w+|{_LATER}"
    rf"|(?:the )?{_NTH}|{WEEKDAY})(?![\w'’]))",
    re.IGNORECASE,
)
"""The place before a day such as "tomorrow"."""
_LIMIT: Final = re.compile(
    rf"(?:\b(?:since|of|after|statt)|\() ?(?:(?:the|on|in|\S+ and|{WEEKDAY},?) )*$",
    re.IGNORECASE,
)
"""Text before a day on which nothing happens: "since", "instead of", or a bracket, since the day in "We use Postgres
(2026-11-30)" only dates the text."""
_FORMER: Final = re.compile(
    r"\b(?:(?!don)\w+n['’]t|cannot|not|nicht|no longer|originally|(?<!be )cancelled|was)(?: [\w:]+){0,2}?"
    r" ?(?:(?:on|the) )*$",
    re.IGNORECASE,
)
"""Text before the former day of something that has moved: "can't make Saturday"."""
_DROPPED: Final = re.compile(r".{3,25}?(?: is off\b| doesn['’]t\b| isn['’]t\b| ?->| ?→)", re.IGNORECASE)
"""Such a day and the text after it: "4 Feb is off"."""
_NEAR: Final = dict.fromkeys(("today", "tonight"), relativedelta()) | {
    **{"tomorrow": relativedelta(days=1), "overmorrow": relativedelta(days=2), "next week": relativedelta(weeks=1)},
    **{"next month": relativedelta(months=1), "christmas": relativedelta(month=12, day=24)},
}
_END: Final = {
    **{"week": relativedelta(weekday=FR), "month": relativedelta(day=31), "year": relativedelta(month=12, day=31)},
    **{name: relativedelta(month=1 + number, day=31) for number, name in enumerate(MONTHS)},
}
_INFINITIVES: Final = dict(pair.split("-") for pair in _LISTS["done"])
_VERB_DONE: Final = rf"(?:\w+ed|{'|'.join(_INFINITIVES)})\b"
_DONE: Final = re.compile(rf"(?<!\bbe )(?<!\b(?:by|of) )(?<!\b(?:for|the) )\b{_VERB_DONE}")
_UNDONE: Final = re.compile(
    rf"(?:\b(?:needs?|not|never|nobody|no one|wants?|without)|n['’]t)\b[^.,;]{{0,80}}?\b{_VERB_DONE}"
)
_SURELY_DONE: Final = re.compile(rf"^(?:I |we )?{_VERB_DONE}|\b(?:is|are|was|were|been|has|have) {_VERB_DONE}", re.I)
FIRST_WORDS: Final = 6
"""The verb of a task is among its first words: "Petra must still sign …"."""
_MOVES: Final = 0.15
"""A text that moves an open end is at least this likely to be one itself."""
_POSTPONED: Final = re.compile(
    r"\b(?:later|moved|postponed|put off|rescheduled|wait|verlegt|verschoben)\b", re.IGNORECASE
)
LONGEST_DAY: Final = 80
"""In characters. Reading all that follows each day would take minutes for a long text with many days."""
MOST_DEADLINES: Final = 10
"""Reading each of 3,000 deadlines would take five seconds."""
_PERIOD: Final = re.compile(r"\b(?P<which>this|next) (?P<unit>week|month|year)\b", re.IGNORECASE)
_IN_MONTH: Final = re.compile(rf"\b(?:in|by|until|of|this) (?P<month>{'|'.join(MONTHS)})\b(?! \d)", re.IGNORECASE)


def asks_for_open_ends(query: str) -> bool:
    """True for "what is left to do?" and "what must be done by Friday?", but not if a word names a subject."""
    if query.isascii() and _OPEN.isdisjoint(_words_in(query)) and not _TO_BE_DONE.search(query):
        return False  # most queries end here: searching for times would double the call's duration
    words = _words_in(without_times(with_plain_days(query)))
    return bool(words & _OPEN or _TO_BE_DONE.search(query)) and words <= _AROUND


def asks_about_open_ends(query: str) -> bool:
    """True for "anything still open on the importer?": the text before a subject asks for all open ends, and not for
    a procedure, as in "what must be done in an outage?"."""
    asking = [query[: each.start()] for each in islice(_SUBJECT.finditer(query), 3)]
    return any(asks_for_open_ends(each) and not _WHAT_TO_DO.search(each) for each in asking)


def _words_in(text: str) -> set[str]:
    return {word.casefold() for word in _WORD.findall(text)}


def is_list_of_open_ends(text: str) -> bool:
    heading = _HEADING.match(text)
    return heading is not None and not _NOTHING.fullmatch(text, heading.end())


def open_ends_in(text: str) -> tuple[str, ...]:
    """Split a text into the open ends that it lists, each followed by the heading's remark in brackets. Items begin
    with dashes or numbers, or are separated by semicolons after a heading that announces open ends (at least three
    after "Open:"). Any other text is one open end, without its heading."""
    heading = _HEADING.match(text)
    rest = text[heading.end() :] if heading else text
    before, *parts = (_NUMBER if _NUMBER.match(rest) else _ITEM).split(rest)
    if before or len(parts) < 2:
        parts = rest.split(";") if heading else [rest]
        is_often_one = heading and len(parts) < 3 and heading["announced"].casefold() in _OFTEN_ONE
        if is_often_one or any(len(split_sentences(part)) > 1 for part in parts):
            parts = [rest]
    items = [stripped for part in parts if (stripped := " ".join(part.split()).rstrip(" ;."))]
    if len(items) < 2 and heading is None:
        return (text,)
    if len(items) < 2:
        mark = _ITEM.match(rest)
        items = [rest[mark.end() if mark else 0 :].strip(" ;\n") or text]
    about = heading["about"] if heading else None
    return tuple(f"{item} ({about})" if about else item for item in items)


def due_in(text: str, at: float, zone: tzinfo | None = None) -> float | None:
    """The day, in epoch seconds, named by "due 2026-12-20", "before Friday", "by the end of the month", "bis zum 20.
    Dezember", or else the first day to come on which something happens. The text was written at `at`, in the local time
    zone unless `zone` is given. A weekday is the next one after `at`, or the same day unless the text names an hour
    that has passed in the local time zone. A day without a year is at most about three months before `at`."""
    days = _days_in(with_plain_days(text.strip(), at), at, zone)
    return next((day for day in days if day > at - DAY_S), days[0] if days else None)


def _days_in(text: str, at: float, zone: tzinfo | None) -> list[float]:
    """The deadlines in a plain text up to one that is not "before …", sorted, or else the other days in order, without
    the former days of what has moved."""
    now = datetime.fromtimestamp(at, zone).replace(tzinfo=None)
    is_over = zone is None and _has_passed(text, now)
    deadlines = [*islice(_DUE.finditer(text), MOST_DEADLINES)]
    places = [
        (text[max(0, day.start() - LONGEST_DAY) : day.start()], text[day.start() : day.start() + LONGEST_DAY])
        for day in islice(_COMING.finditer(text), 0 if deadlines else MOST_DEADLINES)
    ]
    others = [(before, rest) for before, rest in places if not _LIMIT.search(before)]
    now_on = [rest for before, rest in others if not (_FORMER.search(before) or _DROPPED.match(rest))]
    matches = [_DUE.match(f"by {rest}") for rest in now_on or [rest for _, rest in others]]
    days: list[float] = []
    for named in deadlines or filter(None, matches):
        with suppress(ValueError):  # no such day
            days.append(_day_of(named, now, is_over).replace(tzinfo=UTC).timestamp())
            if deadlines and named["how"].casefold() != "before":  # "before Christmas, by 18 December"
                break
    return sorted(days) if deadlines else days


def _has_passed(text: str, now: datetime) -> bool:
    """True if the hour named in a text is over. "At 7" may be in the evening."""
    if (clock := _CLOCK.search(text)) is None:
        return False
    hour, minute, half = clock.groups()
    is_late = half.lower() == "p" if half else hour[0] != "0" and not 8 <= int(hour) <= 11
    return (int(hour) % 12 + 12 * is_late, int(minute or 0)) < (now.hour, now.minute)


def due_of_open_end(text: str, at: float, zone: tzinfo | None = None) -> float | None:
    """The result of `due_in`, or else the only date in the text, unless that date has passed."""
    if (due := due_in(text, at, zone)) is not None:
        return due
    dates = DATE.findall(with_plain_days(text, at))
    only = due_in(f"by {dates[0]}", at, zone) if len(dates) == 1 else None
    return only if only is not None and only > at - DAY_S else None


def moved_to(text: str, at: float, due: float | None) -> float | None:
    """The first future day, other than `due`, to which a text moves an open end. None if the text says how the open end
    ended."""
    sentences = (each.partition(" because ")[0] for each in split_sentences(with_plain_days(text, at)))
    days = (day for each in sentences if open_end_probability(each) >= _MOVES for day in _days_in(each, at, UTC))
    return next((day for day in days if day > at and day != due), None)


def says_done(text: str, task: str) -> bool:
    """True for "Booked the inn for 9 January" about "Book an inn by Friday"."""
    asked = task.lower().split()[:FIRST_WORDS]
    is_done = not verbs_done(text).isdisjoint((*asked, *map(stem, asked)))
    return is_done and bool(_SURELY_DONE.search(text) or probabilities(text)["task"] < PROBABLE)


def verbs_done(text: str) -> set[str]:
    """The infinitives and stems of the verbs that say what is done, such as "renew" for "has been renewed"."""
    done = _DONE.findall(_UNDONE.sub("", text.lower()))
    return {form for verb in done for form in (stem(_INFINITIVES.get(verb, verb)), verb[:-1], verb[:-2])}


def can_stand_for(one: ShownFields, other: ShownFields) -> bool:
    """False for an open end and a memory that is none, or that reports it as done."""
    if one.kind != OPEN_END != other.kind or one.content == other.content:
        return (one.kind == OPEN_END) == (other.kind == OPEN_END)
    is_report = says_done(one.content, other.content) or says_done(other.content, one.content)
    return one.kind == other.kind and not is_report


@lru_cache(maxsize=1024)  # Review asks about the same pairs after each write
def closes(text: str, at: float, is_fact: bool, task: str, due: float | None) -> bool:
    """True if a text says that an open end is done, or is a fact that neither postpones it nor names a future day other
    than `due`."""
    days = moved_to(text, at, due), due and due_of_open_end(text, at, UTC)
    is_moved = _POSTPONED.search(text) or any(day and at < day != due for day in days)
    return says_done(text, task) or (is_fact and not is_moved)


def _day_of(named: re.Match[str], now: datetime, is_over: bool) -> datetime:
    """A weekday is not today if `is_over`. Raises `ValueError` for a day that does not exist."""
    from dateutil.parser import parse  # few texts name a day
    from dateutil.rrule import MONTHLY, rrule

    now = now.replace(hour=0, minute=0, second=0, microsecond=0)
    if named["near"]:
        return now + _NEAR[named["near"].lower()]
    if named["count"]:
        first, (count, _, unit) = parse(named["first"] or f"{now}", default=now), counted(named)
        return first + relativedelta(**{f"{unit}s": int(count)})  # type: ignore[arg-type]
    if period := (named["period"] or "").lower():
        day = (period_of(now, period, -1).start if named["next"] and period not in MONTHS else now) + _END[period]
        return day if day >= now else day + relativedelta(years=1)
    if named["nth"]:
        return rrule(MONTHLY, now, bymonthday=int(named["nth"][:-2]))[0]
    first = now + DAY * bool(named["next"] or is_over)
    if named["of"]:
        first = period_of(now, named["of"].lower(), -(named["which"].lower() == "next")).start
    day = parse(named["day"], default=first)
    if named["date"] and not (named["year"] or named["of"]):
        years = (day + relativedelta(years=each) for each in (-1, 0, 1))
        day = min(years, key=lambda each: abs(each - now - 90 * DAY))
    return day


def last_day_asked_for(query: str, at: float) -> str:
    """The last day of the period that a question about open ends names, as an ISO date, or "" if it names none."""
    query = read_query(query).rstrip("? ").replace(" until ", " by ").replace("in the next ", "in ")
    if "overdue" in _words_in(query):
        return f"{datetime.fromtimestamp(at - DAY_S):%Y-%m-%d}"
    period = _PERIOD.search(query)
    if period is None:
        due = due_in(query, at) or due_in(_IN_MONTH.sub(r"by the end of \g<month>", query), at)
        return "" if due is None else f"{datetime.fromtimestamp(due, UTC):%Y-%m-%d}"
    back = -1 if period["which"].lower() == "next" else 0
    return f"{period_of(datetime.fromtimestamp(at), period['unit'].lower(), back).end - DAY:%Y-%m-%d}"


def day_named(text: str, at: float) -> float | None:
    """The day that a whole text names, as `due_in` would read it after "by": "4 December", "Friday", "5.12.2026"."""
    due = with_plain_days(f"by {text}", at)
    return due_in(due, at) if _DUE.fullmatch(due) else None


@lru_cache(maxsize=16)  # several functions ask about one text
def with_plain_days(text: str, at: float = 0.0) -> str:
    """Write days to come in English and without synonyms: dates as ISO dates, "bis Freitag" and "no later than Friday"
    as "by Friday", mid-month as the 15th, and phrases that name no certain day as a day that does not exist."""
    text = days_in_english(with_iso_dates(text, at))
    for words, plain in _REWRITINGS:
        text = words.sub(plain, text)
    return text


def with_iso_dates(text: str, at: float = 0.0) -> str:
    """Write "31.12.2026", "12/31/2026" and "5/12/2026" as ISO dates. The last is ambiguous: it becomes the earlier day
    that has not passed at `at`, since a date that is too early does less harm."""
    return _NUMERIC.sub(partial(_iso_date, at=at), text)


def _iso_date(written: re.Match[str], at: float) -> str:
    first, second, year = (int(written[place]) for place in (1, 3, 4))
    days = []
    for day, month in ((first, second), (second, first))[: 1 + (written[2] == "/")]:
        with suppress(ValueError):  # no such day
            days.append(datetime(year, month, day, tzinfo=UTC))
    coming = [day for day in days if day.timestamp() > at - DAY_S]
    return f"{min(coming or days).date() if days else f'{year}-{second:02}-{first:02}'}"
