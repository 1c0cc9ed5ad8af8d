"""Splits lists of open ends (a text such as "Next: a; b; c" contains three), reads their due dates, and recognizes
tasks with a due date and questions about all open ends. Pure."""

import re
from contextlib import suppress
from datetime import UTC, datetime, tzinfo
from functools import partial
from typing import Final

from dateutil.relativedelta import FR, relativedelta

from remembrancer.memory.decay import DAY_S
from remembrancer.memory.lexicon import toml_file, word_lists
from remembrancer.memory.sentences import split_sentences
from remembrancer.memory.times.phrases import COUNTS, DAY, MONTHS, WEEKDAYS, counted, period_of
from remembrancer.memory.times.windows import EMPTY, read_query, without_times

_HEADING: Final = re.compile(
    r"\s*(?P<announced>next(?: steps?| up)?|open(?: ends?| points?| questions?| tasks?)?|still (?:open|to do)"
    r"|to[- ]?dos?|als nächstes|nächste schritte|(?:noch )?offen|(?:noch )?zu tun"
    r"|à faire|reste à faire|prochaines? étapes?"
    r"|pendientes?|por hacer|(?:próximos|siguientes) pasos)\s*(?:\((?P<about>[^()]*)\)\s*)?:\s*",
    re.IGNORECASE,
)
_OFTEN_ONE: Final = frozenset({"open", "offen", "noch offen"})
"""Headings that often begin a single open end: "Open (2026-11-17): 180 connections of 200; no remedy yet"."""
_NOTHING: Final = re.compile(
    r"(?:nothing|none|n/?a|nichts|rien|nada)(?: (?:else|more|left|mehr))?\s*[.!]?\s*", re.IGNORECASE
)
_ITEM: Final = re.compile(r"(?:^|\n)[ \t]*(?:[-*•–]|\(?\d{1,2}[.)])[ \t]+(?:\[ \][ \t]+)?")
"""The marker of an item at the start of a line, with an unticked box."""
_NUMBER: Final = re.compile(r"(?:^|\s)\(\d{1,2}\)\s")
"""The marker of an item within a line."""
_LISTS: Final = word_lists("open_ends")
_OPEN: Final = _LISTS["open"]
_AROUND: Final = _LISTS["around"] | _OPEN | EMPTY
_TASKS: Final = _LISTS["tasks"] | _LISTS["errands"]
_TO_BE_DONE: Final = re.compile(
    r"\b(?:must|needs? to|should|has to|have to|still) (?:still )?be done\b|\b(?:still|need|have) to do\b|\bdo next\b"
    r"|\breste à faire\b|\bnoch (?:zu )?tun\b|\bqueda por hacer\b",
    re.IGNORECASE,
)
_WORD: Final = re.compile(r"[^\W_]+")
_GERMAN: Final = toml_file("times/languages.toml")["german"]["words"]
_ENGLISH: Final = {"heute": "today", "morgen": "tomorrow"} | dict(
    zip(f"{_GERMAN['month'][0]} {_GERMAN['weekday'][0]}".split(), (*MONTHS, *WEEKDAYS), strict=True)
)
_NUMERIC: Final = re.compile(r"(?<![\w./-])(\d{1,2})([./])(\d{1,2})\2 ?(\d{4})(?![\w/-])")
_MIDDLE: Final = re.compile(rf"\b(?:mid[ -]|(?:the )?middle of )(?=(?:{'|'.join(MONTHS)})\b)", re.IGNORECASE)
_GERMAN_DUE: Final = re.compile(
    r"\b(?:bis|vor|spätestens|fällig|(?:by|before|due)"
    r"(?= 31\.12\.| (?!\d\d\.(?:04|10)\.$)(?:1[3-9]|2\d|3[01])\.(?:0?[1-9]|1[0-2])\.(?:,| (?-i:[a-z])|$)))"
    r" (?:spätestens )?(?:(?:am|zum|den|dem) )?(?P<day>\d{1,2}(?=\.))?\.? ?"
    rf"(?:(?P<named>\d{{4}}-\d\d-\d\d|{'|'.join(_ENGLISH)})\b|(?P<month>0?[1-9]|1[0-2])\.)(?P<year> ?\d{{4}}\b)?(?!\d)",
    re.IGNORECASE,
)
"""A date after a German word for "by". After an English one without a year, the sentence ends or goes on after it:
"by 24.04." at the end may be a version."""
_TASK: Final = re.compile(
    r"(?:[-*•–] (?:\[ \] )?)?(?:please |bitte )?"
    r"(?P<announced>(?:remember|do(?:n['’]t| not) forget)(?: to|(?=:))|to[- ]?do"
    r"|remind (?:me|us)(?! that\b)(?: [^,;:?!\n]{1,30}?)? to"
    r"|(?:(?:we|i) )?(?:must|need to|have to)|denke? daran,?|nicht vergessen:?|(?:wir müssen|ich muss))?\b *"
    r"(?P<verb>[^\W\d_]*+)(?!(?: (?!(?:that|whether|if|wh\w+|how|because|so|and)\b)[^\s,;:()]+){0,5}? (?:is|are|was"
    r"|were|has|have|had|will|would|can|could|came|went|begins|ends|starts|moved|(?<!to )come|comes"
    r"|(?:arrive|expire)[ds])\b)",
    re.IGNORECASE,
)
"""The beginning of a task, but not of a statement such as "Order 4711 was delivered"."""
_ONE: Final = re.compile(
    r"(?: (?:up|out|in|on|back|off|with|to|at)){0,2} (?:(?:the|an?|this|that|these|those|my|our|his|her|their)\b"
    r"|(?-i:[A-Z][a-z]))",
    re.IGNORECASE,
)
"""The object of a task that is done once: "Renew the domain", "Talk to Ana", but not "Review pull requests"."""
_GENERAL: Final = re.compile(
    r"[,;:?`]|\b(?:all|any|each|every|always|never|not?|if|when\w*|unless|instead|first|only|than"
    r"|(?:before|after) [\w-]+ing)\b",
    re.IGNORECASE,
)
"""Words and marks of a rule, or of a text that says more than a task."""
_HOUR: Final = r"(?:\d{1,2}(?:[:.]\d\d)? ?(?:[ap]\.?m\b\.?)?|noon|midnight)"
WEEKDAY: Final = rf"(?:{'|'.join(WEEKDAYS)})"
_WEEKDAY_OF_DATE: Final = rf"(?:{WEEKDAY},? (?:the )?(?=\w* ?\d))?"
_MONTH: Final = rf"(?:{'|'.join(f'{name[:3]}(?:{name[3:]}|t?[.]?)' for name in MONTHS)})(?![a-z])"
_OF_MONTH: Final = r"(?:0?[1-9]|[12]\d|3[01])(?:st|nd|rd|th)?"
CALENDAR_DAY: Final = rf"(?:{_OF_MONTH} (?:of )?{_MONTH}|{_MONTH} {_OF_MONTH})"
_LATER: Final = rf"in (?P<count>\d{{1,2}}|{'|'.join(COUNTS)}) (?P<unit>day|week|fortnight|month)s?"
_WHEN: Final = re.compile(
    r"(?:please )?remind (?:me|us)\b(?! that\b)(?s:.*)"
    rf"\b(?:on |next (?!week|month)|this |(?=(?:tomorrow|today|next (?:week|month)|{_LATER})\b))",
    re.IGNORECASE,
)
"""A reminder up to its last day, which it is due on: "next Monday", "tomorrow"."""
_LAST: Final = re.compile(
    rf" (?:at {_HOUR} )?(?=(?:(?:{_HOUR} )?(?:today|tonight|tomorrow)|next (?:week|month|{WEEKDAY})|this {WEEKDAY})"
    rf"(?: morning| afternoon| evening)?(?: at {_HOUR})?[ .!]*$)",
    re.IGNORECASE,
)
"""The beginning of a day in the last words of a task: "Call the bank at 5pm tomorrow"."""
_DUE: Final = re.compile(
    r"\b(?P<how>due|by|before|deadline\b[^.:;\n]{0,60}?(?::| is)|deadline) (?:on |at )?"
    rf"(?:(?!{CALENDAR_DAY}){_HOUR}(?:,? on)? |(?:the )?(?:end|close) of (?:the )?(?:day|business)(?: on)? )?"
    rf"(?:the )?(?P<end>end of (?:the )?)?(?:this |coming |next (?!week|month))*{_WEEKDAY_OF_DATE}"
    rf"(?P<day>(?P<iso>\d{{4}}-\d\d-\d\d)|(?P<near>today|tonight|tomorrow|next week|next month)|{_LATER}"
    rf"|(?P<date>{CALENDAR_DAY})(?P<year>,? \d{{4}})?"
    rf"|{WEEKDAY}|(?(end)(?P<period>week|month|year|{'|'.join(MONTHS)})|(?!)))\b",
    re.IGNORECASE,
)
_ANY_DATE: Final = rf"\d{{4}}-\d\d-\d\d|{CALENDAR_DAY}(?:,? \d{{4}})?"
DATE: Final = re.compile(rf"\b(?:{_ANY_DATE})(?!\w)", re.IGNORECASE)
_VERBS: Final = "|".join(_TASKS)
_PERSON: Final = (
    r"(?:(?:my|our|his|her|their) \w+(?: \w+)?|s?he|they|we|i"
    r"|(?-i:[A-Z][\w.'’-]*)(?: (?:and )?(?-i:[A-Z][\w'’-]*))*)"
)
_DONE_BY: Final = (
    rf"(?P<person>(?P<present>{_PERSON} (?:{_VERBS})e?s"
    rf"|(?-i:[A-Z][\w'’-]* and [A-Z][\w'’-]*) (?:{_VERBS})|(?:the|an?) (?:\w+ ){{1,3}}?(?:come|arrive)s?)"
    rf"|{_PERSON}(?:(?: will| must| has to|['’]ll|(?: is| am| are|['’]s|['’]m|['’]re) going to) (?:{_VERBS})"
    rf"|(?: is| am| are|['’]s|['’]m|['’]re) (?:{'|'.join(verb.rstrip('e') for verb in _TASKS)})[pt]?ing)"
    r"|(?:the|an?) (?:\w+ ){1,3}?(?:will (?:come|arrive)|is (?:com|arriv)ing))\b"
    r"(?:(?!\b(?:each|every|always|usually|never|not|that|whether|if|because|until)\b)[^,;:.?!\n]){0,120}?"
)
"""A person and what they do or will do, or somebody who is coming: "Ana sends", "my brother will collect". What
somebody does "on Friday" in the simple present may be a habit, and is no task, unlike what they do "Friday"."""
_APPOINTMENT: Final = re.compile(
    rf"(?:{_DONE_BY}|"
    r"(?:(?:(?:we|i) have|there(?:['’]s| is)) )?(?:(?!(?:no|each|every|had|was|were)\b)[\w.'’-]+ ){0,4}?"
    rf"(?:{'|'.join(_LISTS['appointments'])})(?: v?\d[\w.]*| window)?"
    r"(?: (?:with|at|in|for|about|of|by|to|between)\b(?:[^,;:.?!\n]|\.(?! )){1,80}?)?"
    r"(?: (?:(?:is|was|has been|will be) )?(?:(?:set|scheduled|planned|booked|moved|postponed|rescheduled)(?: back)?"
    r" (?:for|to)|takes place|starts|is|will be))?)[,:]? (?:on |by |next |this |the ){0,3}(?<!of )(?<!from )(?<!since )"
    rf"{_WEEKDAY_OF_DATE}(?P<day>{_ANY_DATE}|(?(present)(?<!on )){WEEKDAY}"
    r"|today|tonight|tomorrow|next week)"
    r"(?:,? (?:at|from|in|with|for|about|via|on|because|morning|afternoon|evening|\(|\d)[^;?!\n]*)?[.!]?",
    re.IGNORECASE,
)
"""An appointment or a person's task: "Meeting with Acme on 3 December at 10:00", "The demo is moved to Friday"."""
_NEAR: Final = {
    **{"today": relativedelta(), "tonight": relativedelta(), "tomorrow": relativedelta(days=1)},
    **{"next week": relativedelta(weeks=1), "next month": relativedelta(months=1)},
}
_END: Final = {
    **{"week": relativedelta(weekday=FR), "month": relativedelta(day=31), "year": relativedelta(month=12, day=31)},
    **{name: relativedelta(month=1 + number, day=31) for number, name in enumerate(MONTHS)},
}
_AS_BY: Final = re.compile(
    r"\bn(?:o|ot) later than\b|\b(?P<within>within) (?:the next )?"
    rf"(?=(?:\d{{1,2}}|{'|'.join(COUNTS)}) (?:day|week|fortnight|month)s?\b)"
    rf"|\b(?P<must>(?:must|has to|have to|needs? to) be (?:{'|'.join(_TASKS)})t?e?d\b"
    r"[^,;:?!\n]{0,200}) until\b",
    re.IGNORECASE,
)
"""Words that mean "by": "no later than", "within two weeks", and "until" where the verb is that of a task."""
_OBLIGATION: Final = re.compile(
    r"(?!(?:if|when|once|unless|who|no|none|nobody|nothing)\b)(?:"
    r"(?:(?!\b(?:that|which|what|why|whether|not|each|every|always)\b)[^,;:?!\n])+ (?:"
    r"(?:is|are) due(?: by| before)?"
    r"|(?:must|should|has to|have to|needs? to) (?!(?:not|never)\b)[^\W\d_]+(?: [^,;:?!\n]+)? (?:by|before))"
    r"|(?:(?:the|our|my) )?(?:\w+ )?deadline\b.*(?::| is))",
    re.IGNORECASE,
)
"""The words before the date of a deadline that does not begin as a task: "The lease must be signed by"."""
_OF_ONE: Final = re.compile(
    r"(?:(?:[Tt]he|[Tt]his|[Mm]y|[Oo]ur|[Aa]n?) .*?|[A-Z]\w*[^\Ws] )\b(?:must|should|has to|needs to)\b"
)
"""The beginning of a deadline for one thing or person: a weekday deadline for several is often a rule."""
_NO_OBLIGATION: Final = re.compile(
    r" (?:each|every|was|were|had|(?:has|have)(?! to))\b|(?<! be)(?<! and) (?:met|missed|sent)\b", re.IGNORECASE
)
"""The words of a deadline that recurs or is past."""
_PERIOD: Final = re.compile(r"\b(?P<which>this|next) (?P<unit>week|month|year)\b", re.IGNORECASE)
_IN_MONTH: Final = re.compile(rf"\b(?:in|by|until|of|this) (?P<month>{'|'.join(MONTHS)})\b(?! \d)", re.IGNORECASE)


def asks_for_open_ends(query: str) -> bool:
    """True if a query asks for everything that is open: "what is left to do?", "what must be done by Friday?". A query
    with any word about a subject does not."""
    if query.isascii() and _OPEN.isdisjoint(_words_in(query)) and not _TO_BE_DONE.search(query):
        return False  # most queries: looking for times takes as long as the rest of the tool
    words = _words_in(without_times(_MIDDLE.sub("15 ", query)))
    return bool(words & _OPEN or _TO_BE_DONE.search(query)) and words <= _AROUND


def _words_in(text: str) -> set[str]:
    return {word.casefold() for word in _WORD.findall(text)}


def is_list_of_open_ends(text: str) -> bool:
    """True if the first words of a text announce open ends, and it does not say that there are none."""
    heading = _HEADING.match(text)
    return heading is not None and not _NOTHING.fullmatch(text, heading.end())


def open_ends_in(text: str) -> tuple[str, ...]:
    """The open ends that a text lists, each followed, in brackets, by the heading's remark about all of them.

    Items are marked by dashes or numbers; without marks, they are separated by semicolons, if a heading announces open
    ends and no item has several sentences; after "Open:" only if there are three or more. A text that is not a list is
    one open end, without its heading.
    """
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
    """The day in "due 2026-12-20", "before Friday", "by the end of the month" or "bis zum 20. Dezember", in a
    "tomorrow" in the last words, or of an appointment, in seconds since the epoch, else None. `at` is the time of the
    text, in the local time zone unless another is given: a weekday is the next one from then, and a day without a year
    is the nearest."""
    if appointment := _APPOINTMENT.fullmatch(text := _with_iso_dates(text.strip(), at)):
        text = f"by {appointment['day']}"
    elif not _DUE.search(text) and (before := _WHEN.match(text) or _LAST.search(text)):
        text = f"by {text[before.end() :]}"
    for named in _DUE.finditer(_with_by(text)):
        now = datetime.fromtimestamp(at, zone).replace(hour=0, minute=0, second=0, microsecond=0, tzinfo=None)
        with suppress(ValueError):  # no such day
            return _day_of(named, now).replace(tzinfo=UTC).timestamp()
    return None


def due_of_open_end(text: str, at: float, zone: tzinfo | None = None) -> float | None:
    """The result of `due_in`, or else the only date that the text of an open end names, unless it has passed."""
    due, dates = due_in(text, at, zone), DATE.findall(_with_iso_dates(text, at))
    if due is not None or len(dates) != 1:
        return due
    only = due_in(f"by {dates[0]}", at, zone)
    return only if only is not None and only > at - DAY_S else None


def _day_of(named: re.Match[str], now: datetime) -> datetime:
    """Raises `ValueError` if there is no such day."""
    from dateutil.parser import parse  # few texts name a day

    if named["near"]:
        return now + _NEAR[named["near"].lower()]
    if named["count"]:
        count, _, unit = counted(named)
        return now + relativedelta(**{f"{unit}s": int(count)})  # type: ignore[arg-type]
    if period := (named["period"] or "").lower():
        day = now + _END[period]
        return day if day >= now else day + relativedelta(years=1)
    day = parse(named["day"], default=now)
    if named["date"] and not named["year"]:
        years = (day + relativedelta(years=each) for each in (-1, 0, 1))
        day = min(years, key=lambda each: abs(each - now))
    return day


def last_day_asked_for(query: str, at: float) -> str:
    """The last day of the time that a question about open ends names ("this week", "in December", "by Friday";
    yesterday for "overdue") as an ISO date; empty if it names none."""
    query = read_query(query).rstrip("? ").replace(" until ", " by ")
    if "overdue" in _words_in(query):
        return f"{datetime.fromtimestamp(at - DAY_S):%Y-%m-%d}"
    period = _PERIOD.search(query)
    if period is None:
        due = due_in(query, at) or due_in(_IN_MONTH.sub(r"by the end of \g<month>", query), at)
        return "" if due is None else f"{datetime.fromtimestamp(due, UTC):%Y-%m-%d}"
    back = -1 if period["which"].lower() == "next" else 0
    return f"{period_of(datetime.fromtimestamp(at), period['unit'].lower(), back).end - DAY:%Y-%m-%d}"


def day_named(text: str, at: float) -> float | None:
    """The day that a whole text names, as `due_in` reads it after "by": "4 December", "Friday", "5.12.2026"."""
    text = _with_iso_dates(text, at)
    due = next((due for word in ("by", "bis") if _DUE.fullmatch(due := _with_by(f"{word} {text}"))), "")
    return due_in(due, at)


def _with_by(text: str) -> str:
    """A text with "by" in place of other English and German words for it, and the 15th for the middle of a month."""
    text = _MIDDLE.sub("15 ", text)
    text = _GERMAN_DUE.sub(_due_in_english, text)
    return _AS_BY.sub(lambda due: f"{due['must']} by" if due["must"] else "by in " if due["within"] else "by", text)


def _with_iso_dates(text: str, at: float = 0.0) -> str:
    """A text with "31.12.2026", "12/31/2026" and "5/12/2026" as ISO dates. The last may be either of two days: it is
    the earlier one that has not passed at `at`, since a date that is too early does less harm."""
    return _NUMERIC.sub(partial(_iso_date, at=at), text)


def _iso_date(written: re.Match[str], at: float) -> str:
    first, second, year = (int(written[place]) for place in (1, 3, 4))
    days = []
    for day, month in ((first, second), (second, first))[: 1 + (written[2] == "/")]:
        with suppress(ValueError):  # no such day
            days.append(datetime(year, month, day, tzinfo=UTC))
    coming = [day for day in days if day.timestamp() > at - DAY_S]
    return f"{min(coming or days).date()}" if days else written[0]


def _due_in_english(due: re.Match[str]) -> str:
    name = MONTHS[int(due["month"]) - 1] if due["month"] else _ENGLISH.get(due["named"].lower(), due["named"])
    return " ".join(filter(None, ("by", due["day"], name, (due["year"] or "").strip())))


def is_appointment(text: str, at: float) -> bool:
    """True for a single sentence that names an appointment, or a person's task, on a day that has not passed at `at`,
    in seconds since the epoch."""
    due = due_in(text, at) if _APPOINTMENT.fullmatch(_with_iso_dates(text.strip())) else None
    return due is not None and due > at - DAY_S


def names_appointment(text: str) -> bool:
    """True for a single sentence that names an appointment, future or past."""
    appointment = _APPOINTMENT.fullmatch(_with_iso_dates(text.strip()))
    return appointment is not None and not appointment["person"]


def is_errand(text: str) -> bool:
    """True for a short sentence such as "Call Ana about the offer", but not "Order imports by name"."""
    begins, is_short = _TASK.match(text := text.strip()), len(text) <= 100 and len(split_sentences(text)) == 1
    if begins is None or not is_short or begins["verb"].casefold() not in _LISTS["errands"]:
        return False
    return bool(_ONE.match(text, begins.end())) and not _GENERAL.search(text)


def is_task_with_date(text: str) -> bool:
    """True for a short sentence such as "Renew it by 5 December", but not "It expires by 5 December"."""
    text = _with_by(_with_iso_dates(text.strip()))  # "zum 5. Dezember" looks like two sentences
    if (first := _DUE.match(text)) and first["how"].casefold() in ("by", "before"):
        text = f"{text[first.end() :].lstrip(' ,').rstrip('.!')} {first[0]}"
    begins, is_short = _TASK.match(text), len(text) <= 300 and len(split_sentences(text)) == 1
    if not is_short or text.endswith("?") or due_in(text, 0.0) is None:
        return False
    dates = (each for each in _DUE.finditer(text) if each["iso"] or each["date"] or _OF_ONE.match(text))
    if any(_OBLIGATION.fullmatch(text, 0, each.end("how")) for each in dates) and not _NO_OBLIGATION.search(text):
        return True
    if begins is None or (" by in " in text and not _ONE.search(text)):  # "Answer mails within two days" is a rule
        return False
    words = [word.casefold() for word in _WORD.findall(text.partition(" (")[0])]
    is_infinitive = not _LISTS["infinitives"].isdisjoint(words[-1:]) and _LISTS["finite"].isdisjoint(words)
    return is_infinitive or bool(begins["announced"]) or begins["verb"].casefold() in _TASKS
