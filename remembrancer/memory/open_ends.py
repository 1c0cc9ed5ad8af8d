"""Splits lists of open ends ("Next: a; b; c" contains three), reads their due dates, and recognizes tasks with a due
date and questions about all open ends. Pure."""

import re
from contextlib import suppress
from datetime import UTC, datetime, tzinfo
from functools import lru_cache, partial
from itertools import islice
from typing import Final

from dateutil.relativedelta import FR, relativedelta

from remembrancer.memory.decay import DAY_S
from remembrancer.memory.lexicon import toml_file, word_lists
from remembrancer.memory.sentences import split_sentences
from remembrancer.memory.times.phrases import COUNTS, DAY, MONTHS, WEEKDAYS, counted, pattern_of, period_of
from remembrancer.memory.times.windows import EMPTY, read_query, without_times
from remembrancer.memory.wording import stem

_HEADING: Final = re.compile(
    r"\s*(?P<announced>next(?: steps?| up)?|open(?: ends?| points?| questions?| tasks?)?|still (?:open|to do)"
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
_WORD: Final = re.compile(r"[^\W_]+")
_GERMAN: Final = toml_file("times/languages.toml")["german"]["words"]
_ENGLISH: Final = dict(
    zip(f"{_GERMAN['month'][0]} {_GERMAN['weekday'][0]}".split(), (*MONTHS, *WEEKDAYS), strict=True),
    **{"heute": "today", "morgen": "tomorrow", "übermorgen": "overmorrow", "weihnachten": "christmas"},
)
_NUMERIC: Final = re.compile(r"(?<![\w./-])(\d{1,2})([./])(\d{1,2})\2 ?(\d{4})(?![\w/-])")
_REWRITINGS: Final = [(pattern_of(words), plain) for words, plain in toml_file("times/phrases.toml")["coming_days"]]
_GERMAN_DUE: Final = re.compile(
    r"\b(?:bis|vor|spätestens|fällig|frist\b[^.:;\n]{0,60}?(?::| ist)|(?:by|before|due)"
    r"(?= 31\.12\.| (?!\d\d\.(?:04|10)\.$)(?:1[3-9]|2\d|3[01])\.(?:0?[1-9]|1[0-2])\.(?:,| (?-i:[a-z])|$)))"
    r" (?:spätestens )?(?:(?:am|zum|den|dem|der) )?(?P<day>\d{1,2}(?=\.))?\.? ?"
    rf"(?:(?P<named>\d{{4}}-\d\d-\d\d|{'|'.join(_ENGLISH)})\b|(?P<month>0?[1-9]|1[0-2])\.)(?P<year> ?\d{{4}}\b)?(?!\d)",
    re.IGNORECASE,
)
"""A date after a German or English word for "by". "by 24.04." at the end of a text may be a version."""
_ARTICLES: Final = "the|an?|this|that|these|those|my|our|his|her|their"
_ONE: Final = re.compile(rf"\w (?:[A-Z]|(?:{_ARTICLES})\b)")
"""The object of a one-time task: "Renew the domain", but not "Review pull requests"."""
_HOUR: Final = r"(?:\d{1,2}(?:[:.]\d\d)? ?(?:[ap]\.?m\b\.?)?|noon|midnight)"
WEEKDAY: Final = rf"(?:{'|'.join(WEEKDAYS)})"
_CLOCK: Final = re.compile(rf"\b(?:at|{WEEKDAY},?)(?: at)? (\d\d?)(?:[:.](\d\d))?(?: ?([ap])\.?m\b)?(?!\w)", re.I)
_OF_PERIOD: Final = r"(?:(?: of)? (?P<which>this|next) (?P<of>week|year)\b)"
_WEEKDAY_OF_DATE: Final = rf"(?:{WEEKDAY},? (?:the )?(?=\w* ?\d))?"
_MONTH: Final = rf"(?:{'|'.join(f'{name[:3]}(?:{name[3:]}|t?[.]?)' for name in MONTHS)})(?![a-z])"
_OF_MONTH: Final = r"(?:0?[1-9]|[12]\d|3[01])(?:st|nd|rd|th)?"
CALENDAR_DAY: Final = rf"(?:{_OF_MONTH} (?:of )?{_MONTH}|{_MONTH} {_OF_MONTH})"
_WHEN: Final = rf"(?:{'|'.join(_LISTS['after_days'])}|to(?! {WEEKDAY})|of this month|after all)\b"
_NTH: Final = rf"{_OF_MONTH}(?<=[a-z])(?![\w-]| (?!{_WHEN})\w)"
_LATER: Final = (
    rf"(?P<in>in )?(?!the |last )(?P<count>\d{{1,2}}|{'|'.join(COUNTS)}) (?P<unit>day|week|fortnight|month)s?"
    rf"(?(in)| from (?:now|today|(?P<first>{WEEKDAY})))"
)
_LAST: Final = re.compile(r"(?<![nsri]day) (?=(?:today|tonight|(?:(?:the )?end of )?next (?:week|month))[ .!]*$)", re.I)
"""The space before a day in the last words of an open end: "Groceries today", but not "Friday next week"."""
_DUE: Final = re.compile(
    r"\b(?P<how>due|by|before|deadline\b[^.:;\n]{0,60}?(?::| is(?: now)?)|deadline) (?:on |at |in (?=31 february))?"
    rf"(?:(?!{CALENDAR_DAY}){_HOUR}(?:,? on)? |(?:the )?(?:end|close) of (?:the )?(?:day|business)(?: on)? )?"
    rf"(?:the )?(?P<end>end of (?:the )?)?(?:this |coming |(?P<next>next )(?(end)|(?!week|month)))*{_WEEKDAY_OF_DATE}"
    rf"(?P<day>(?P<iso>\d{{4}}-\d\d-\d\d)|(?P<near>today|tonight|(?:to|over)morrow|next (?:week|month)|christmas)"
    rf"|{_LATER}|(?P<date>{CALENDAR_DAY})(?P<year>,? \d{{4}})?|(?P<nth>{_NTH})"
    rf"|{WEEKDAY}|(?(end)(?P<period>week|month|year|{'|'.join(MONTHS)})|(?!)))\b{_OF_PERIOD}?",
    re.IGNORECASE,
)
_ANY_DATE: Final = rf"\d{{4}}-\d\d-\d\d|{CALENDAR_DAY}(?:,? \d{{4}})?"
DATE: Final = re.compile(rf"\b(?:{_ANY_DATE})(?!\w)", re.IGNORECASE)
_VERBS: Final = "|".join(_LISTS["tasks"])
_TASK: Final = re.compile(
    rf"\W*(?:(?:(?:we|i) )?(?:please|to-?do|remember|don['’]t|forget|must|need|have|to)\b:? ?)*\b(?:{_VERBS})\b",
    re.IGNORECASE,
)
_WHO: Final = (
    r"(?:(?:my|our|his|her|their) \w+ ?\w*|s?he|they|we|i"
    r"|(?-i:(?!(?:The|An?|These|Those)\b)[A-Z]\S*(?: (?:and )?[A-Z]\S*)*))"
)
_NOUN: Final = rf"(?:the|an?) \w+(?: \w+)?(?= \w+ (?:{_ARTICLES}|it|us|me|\d+)\b)"
_SENDS: Final = rf"(?:{_WHO} (?:{_VERBS})e?s (?!(?:by|before) |\d)|{_NOUN} (?:{_VERBS})e?s )"
_ROUTINE: Final = re.compile(rf"\b(?:{'|'.join(_LISTS['routines'])})\b", re.IGNORECASE)
_APPOINTMENT: Final = re.compile(
    rf"(?P<person>(?P<present>{_SENDS}|(?:the|an?) (?:\w+ ){{1,3}}?(?:come|arrive)s?(?! out))"
    rf"|(?:{_WHO}|(?:the|an?) (?:\w+ ){{0,2}}\w+)(?: will| must| has to|['’]ll|(?: is| am| are|['’](?:s|m|re)) \w+ing)"
    r"|(?:please )?remind (?:me|us)(?! that\b)|let['’]s)\b"
    rf"|(?:[\w.'’-]+ ){{0,4}}?(?:{'|'.join(_LISTS['appointments'])})(?: v?\d[\w.]*| window)?[,:]? (?:with|at|in|for"
    rf"|about|of|by|to|between|on|is|will|takes|starts|this|next|today|tonight|{WEEKDAY}|(?:has been|was|set|\w+ed))\b",
    re.IGNORECASE,
)
"""The beginning of a text about something that may be planned: "Ana sends", "my brother will collect", "remind me",
"the demo is". In the simple present, "on Friday" may mean a habit, but "Friday" does not."""
_COMING: Final = re.compile(
    rf"\b(?:(?:this|coming) (?={WEEKDAY})|{_WEEKDAY_OF_DATE})(?=(?:{_ANY_DATE}|(?:to|over)morrow|next {WEEKDAY}"
    rf"|{WEEKDAY}{_OF_PERIOD})(?![\w'’]|,? \d{{4}}|(?: to| until| ?[–-]) ?(?:{_MONTH}|\d))"
    rf"|(?P<usual>to(?:day|night)|next (?:week|month)|{_LATER}|(?<=[ny] the ){_NTH}|{WEEKDAY})"
    rf"(?:,(?! {WEEKDAY})| (?:{_WHEN}|\(|\d)|[.!]?$))",
    re.IGNORECASE,
)
"""The words before a day such as "tomorrow". A `usual` day (such as a weekday) counts only before certain words."""
_MOVE: Final = (
    "(?:adjourn|advance|bump|change|defer|delay|extend|move|postpone|push|rearrange|reschedule|shift|slip|switch"
    "|transfer)"
)
_LIMIT: Final = re.compile(
    r"(?:\b(?:since|from|(?<!night )of|until|till|after|before|by|through|between|(?<! \d )(?<! \d\d )and)|[–(-])"
    rf" ?(?:(?:the|on|in|{WEEKDAY},?) )*$"
    rf"|(?:^(?!.*\b(?:\w+ed|set|put|brought)\b).*\b|^(?!.*\b{_MOVE}[pr]?e?d\b).*\bfrom (?:\S+ ){{1,3}}"
    r"|(?<!from )\b\d\d? )to (?:the )?$",
    re.IGNORECASE,
)
"""Text before a day on which nothing happens: "since", "until", or a bracket, since the day in "We use Postgres
(2026-11-30)" only dates the text."""
_STATES: Final = rf"\b(?i:{'|'.join(_LISTS['states'])})\b"
_IRREGULAR: Final = rf"(?i:\b(?<!\bthe )(?<!\ba )(?<!\bmy )(?<!\bour )(?:{'|'.join(_LISTS['past'])}))\b"
"""Verbs in the past, but not participles: "the lost key"."""
_ED: Final = rf"(?!(?i:{'|'.join(_LISTS['not_past'])})\b)[A-Za-z][a-z]*[^\We]ed\b"
_PAST: Final = rf"(?:(?:\b(?<!-)(?=[a-z])|^(?=[A-Z](?!\w+ \w+s\b))){_ED}|{_IRREGULAR})"
_INFINITIVES: Final = dict(pair.split("-") for pair in _LISTS["done"])
_DONE: Final = re.compile(rf"(?<!\bbe )\b(?:\w+ed|{'|'.join(_INFINITIVES)})\b")
_PLANNED: Final = re.compile(
    rf"\b(?:will(?: be (?!no\b|{_STATES})\w+)?|(?:(?:i|we) )?(?:ha(?:s|ve)|meet|(?:visit|leave|start|come|arrive)s?)\b"
    rf"|(?:is|are|been|gets?) (?:now )?(?:(?:on |at )?$|(?!{_STATES})(?:\w+(?:ed|ing)|set|put|held|brought)\b)"
    r"|(?:(?:was|were) )?(?:\w+ed|put|brought)(?=.* (?:for|to) (?:the )?$)|(?:is |are )?(?:not|no longer) .* but)",
    re.IGNORECASE,
)
"""Verbs that state a plan: "is booked", "was moved to"."""
_NEAR: Final = dict.fromkeys(("today", "tonight"), relativedelta()) | {
    **{"tomorrow": relativedelta(days=1), "overmorrow": relativedelta(days=2), "next week": relativedelta(weeks=1)},
    **{"next month": relativedelta(months=1), "christmas": relativedelta(month=12, day=24)},
}
_END: Final = {
    **{"week": relativedelta(weekday=FR), "month": relativedelta(day=31), "year": relativedelta(month=12, day=31)},
    **{name: relativedelta(month=1 + number, day=31) for number, name in enumerate(MONTHS)},
}
_DUTY: Final = re.compile(
    rf" ?\b(?:(?:is|are|has|have|been|needs?|expected|supposed) )*(?:to(?! (?:{_ARTICLES})\b| (?-i:[A-Z\d]))"
    rf"|(?:would like|{'|'.join(_LISTS['duties'])})(?! not\b| to (?!(?:get|have|hear|know|read|receive|see)\b))"
    rf"|{'|'.join(_LISTS['requests'])})\b.*",
    re.IGNORECASE,
)
"""The rest of a clause that announces a task: "must …", "wants to see …", "is to …", but not "to Lyon"."""
_RULE: Final = re.compile(
    rf"^(?:{'|'.join(_LISTS['conditions'])}|(?:the|an?) (?:\S+ ){{1,4}}?will)\b|^(?-i:[A-Z])[a-z]+s must be .*{WEEKDAY}"
    rf"|^(?-i:[A-Z])[a-z]+ (?:is|are|must be) \w+ {_NTH}"
    rf"|\b(?:{'|'.join(_LISTS['habits'])}|days? before|that (?:is|all)|will die)\b"
    r"|\b(?:not|nicht|cannot|\w+n['’]t|(?:there|be|is|are) no)\b(?! (?:forget|vergessen))",
    re.IGNORECASE,
)
_STATE: Final = re.compile(
    rf"{_IRREGULAR}|\b(?:{'|'.join(_LISTS['facts'])}|(?<!\d )am|(?-i:may)|ist(?!.* zu )"
    r"|(?:is|are)(?! (?:\S+ ){0,3}?(?:due|charge|\w+ing)\b))\b",
    re.IGNORECASE,
)
_ACTION: Final = re.compile(
    rf"(?:{_VERBS}) (?!o[fn]\b)|(?!(?:\w+ed|tomorrow|at|on|for|with) )\w*(?:[^\Ws]|ss) (?:{_ARTICLES})\b"
    rf"|{_SENDS}(?!to )|{_WHO} (?!{_STATES})\w+s (?:{_ARTICLES})\b",
    re.IGNORECASE,
)
"""A command, a person with a known verb, or a verb with an object: "Repaint it", "Ana sends it", "Bo hires a van"."""
_VERB: Final = re.compile(
    rf"(?!.*\bdue\b)(?:(?:[\w.'’-]+ ){{0,4}}(?!(?:{_ARTICLES}|for|of|with)\b)[\w.'’-]+ (?!(?:{_ARTICLES}|das)\b)"
    rf"(?-i:[a-z]+[^\Wsui]s) |(?:(?:the|our) )?(?-i:[A-Z]?[a-z]+[^\Wsui]s) (?!for|with)[a-z]+ |(?:\S+ )*?{_PAST})"
    rf"|(?:on +)?(?:(?:{_ARTICLES}) (?:\w+ )?|(?-i:(?!Please\b)[A-Z]\w+) )"
    rf"(?:quit|shut|(?:{'|'.join(_LISTS['like_present'])})(?! (?:on|at|by)\b))\b",
    re.IGNORECASE,
)
"""Any other verb: "The trial ends", "Prices rise", "Bo answered", "Ana cut it"."""
_LASTING: Final = rf"(?:{'|'.join(_LISTS['lasting'])})\b"
_NAMED: Final = r" (?:the (?!\w+['’]s\b)|(?-i:\w*[A-Z])(?!\w*['’]s\b))"
"""What has a name or is known may be needed for long: "we still need Redis", but not "we still need Olga's key"."""
_CHORE: Final = re.compile(
    r"\W*(?:(?P<me>i)|we|some(?:one|body)|(?:my|his|her) \w+"
    rf"|(?-i:(?!(?i:{'|'.join(_LISTS['anyone'] | _LISTS['programs'])})\b)[A-Z][^\W\dA-Z]*(?:[^\Ws]|[aiu]s)))"
    r"(?: \w+ly| still| also)* (?:must|ha(?:s|ve|['’]ve got) to|needs? to)(?: \w+ly| also| (?:not forget|remember) to)*"
    rf" (?(me)(?!{_LASTING})\w+|(?:{_VERBS})) (?:(?:\w+ly|back|up|out|off|to|for|with|at) )*"
    rf"(?:(?:{_ARTICLES}|him|us|me|them|it|\w+['’]s)\b|(?-i:[A-Z]))"
    rf"(?!.*\b(?:{'|'.join(_LISTS['general'])}|(?:before|after) (?:an?|the|\w+ing))\b)"
    r"|.{3,80} still (?:must|ha(?:s|ve) to|needs? to) be (?!able|kept|used|supported)\w+"
    rf"|(?:i|we) still (?:must|have to|need(?! \d|.* \d|.* per\b)(?: to|(?! to\b)(?!{_NAMED}))) (?!{_LASTING})"
    r"|(?:i|we)(?:(?: are| am|['’]\w+) still waiting for| (?:never|haven['’]t) (?:heard|got an? \w+) (?:back |from ))"
    rf"|(?:please |(?:i|we) (?:must |have to |need to ))?(?:{_VERBS}) .*\bbefore (?:{_ARTICLES}|\w+['’]s) (?:\w+ )?"
    rf"(?:{'|'.join(_LISTS['occasions'])})[.!]?$",
    re.IGNORECASE,
)
"""Something that one person, or "we", must do once: "Petra must sign the lease", but not "Tests must not sleep"."""
_MUST: Final = re.compile(r"(?:the|our|my|this|everything)\b.*\b(?:must|should|has to|needs to)\b.* by in ", re.I)
_ENDED: Final = re.compile(
    rf"(?i:^(?!.*\b(?:{_MOVE}(?:[pr]?e?d)?|extension|put (?:off|back)|brought forward|instead|replacement"
    r"|now (?:have|on)|(?:new|next) (?:one|date|day|slot|time)|(?:day|week|month)s? (?:later|earlier)"
    r"|(?:not|n[’']t)(?: \w+)? (?:on|before|until))\b))"
    rf".*?(?:is off\b|{_PAST}"
    rf"|\b(?i:{'|'.join(_LISTS['habits'])}|not?|\w+n['’]t|done|valid|expires|runs until)\b)"
)
"""A text that says that something has ended, holds or recurs, and not that it has moved to another day."""
_RANGE: Final = re.compile(
    rf"^(?!.*\b{_MOVE}[pr]?e?d\b)(.*)\b(?:from|between) ((?:the )?{_WEEKDAY_OF_DATE}(?:{_ANY_DATE}|{WEEKDAY}))"
    rf" (?:to|until|till|and) (?:the )?{_WEEKDAY_OF_DATE}(?:{_ANY_DATE}|{WEEKDAY})(?!\w)",
    re.IGNORECASE,
)
"""A span of days: "from 20 December to 4 January", unless something moved from one day to the other."""
LONGEST_DAY: Final = 80
"""In characters. Reading all that follows each day would take minutes for a long text with many days."""
MOST_DEADLINES: Final = 10
"""Reading each of 3,000 deadlines would take five seconds."""
_ASKS: Final = re.compile(r"(?!(?:can|could|will|would) (?:you|we)\b|kann|können).*\?$", re.IGNORECASE)
_PERIOD: Final = re.compile(r"\b(?P<which>this|next) (?P<unit>week|month|year)\b", re.IGNORECASE)
_IN_MONTH: Final = re.compile(rf"\b(?:in|by|until|of|this) (?P<month>{'|'.join(MONTHS)})\b(?! \d)", re.IGNORECASE)


def asks_for_open_ends(query: str) -> bool:
    """True for "what is left to do?" and "what must be done by Friday?", but not if a word names a subject."""
    if query.isascii() and _OPEN.isdisjoint(_words_in(query)) and not _TO_BE_DONE.search(query):
        return False  # most queries end here: searching for times would double the call's duration
    words = _words_in(without_times(_with_plain_days(query)))
    return bool(words & _OPEN or _TO_BE_DONE.search(query)) and words <= _AROUND


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
    Dezember", a final "tomorrow" or an appointment. The text was written at `at`, in the local time zone unless `zone`
    is given. A weekday is the next one after `at`, or the same day unless the text names an hour that has passed in the
    local time zone. A day without a year is at most about three months before `at`."""
    text = _with_by(text.strip(), at)
    before = None if _DUE.search(text) else _coming_day(text) or _LAST.search(text)
    days: list[float] = []
    for named in islice(_DUE.finditer(f"by {text[before.end() :]}" if before else text), MOST_DEADLINES):
        now = datetime.fromtimestamp(at, zone).replace(tzinfo=None)
        with suppress(ValueError):  # no such day
            day = _day_of(named, now, zone is None and _has_passed(text, now))
            days.append(day.replace(tzinfo=UTC).timestamp())
            if named["how"].casefold() != "before":  # "before Christmas, by 18 December"
                break
    return min(days, default=None)


def _has_passed(text: str, now: datetime) -> bool:
    """True if the hour named in a text is over. "At 7" may be in the evening."""
    if (clock := _CLOCK.search(text)) is None:
        return False
    hour, minute, half = clock.groups()
    is_late = half.lower() == "p" if half else hour[0] != "0" and not 8 <= int(hour) <= 11
    return (int(hour) % 12 + 12 * is_late, int(minute or 0)) < (now.hour, now.minute)


def due_of_open_end(text: str, at: float, zone: tzinfo | None = None) -> float | None:
    """The result of `due_in`, or else the only date in the text, unless that date has passed."""
    due, dates = due_in(text, at, zone), DATE.findall(_with_plain_days(text, at))
    if due is not None or len(dates) != 1:
        return due
    only = due_in(f"by {dates[0]}", at, zone)
    return only if only is not None and only > at - DAY_S else None


def moved_to(text: str, at: float, due: float | None) -> float | None:
    """The future day, other than `due`, to which a text moves an open end: the first of a span of days. None if the
    text says how the open end ended."""
    for sentence in split_sentences(_with_plain_days(text, at)):
        part = _RANGE.sub(r"\1on \2", sentence.partition(" because ")[0])
        if not _ENDED.match(part) or is_appointment(part, at, UTC) or is_task(part, at, UTC):
            named = (
                due_in(words, at, UTC)
                for words in (
                    part,
                    *(f"by {part[day.end() : day.end() + LONGEST_DAY]}" for day in _COMING.finditer(part)),
                )
            )
            day = next((day for day in named if day is not None and day > at and day != due), None)
            if day is not None:
                return day
    return None


def says_done(text: str, task: str) -> bool:
    """True for "Booked the inn for 9 January" about "Book an inn by Friday"."""
    asked, done = _TASK.match(task.lower()), _DONE.findall(text.lower())
    is_done = asked and stem(asked[0].split()[-1]) in {stem(_INFINITIVES.get(each, each)) for each in done}
    return bool(is_done) and not _RULE.search(text)


def closes(text: str, at: float, is_fact: bool, task: str, due: float | None) -> bool:
    """True if a text says that an open end is done, or is a fact that names no future day other than `due`."""
    days = moved_to(text, at, due), due and due_of_open_end(text, at, UTC)
    is_report = says_done(text, task) and not is_task(text, at, UTC)  # "Bo wants the lease signed by Friday" is a task
    return is_report or (is_fact and not any(day and at < day != due for day in days))


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
    due = next((due for word in ("by", "bis") if _DUE.fullmatch(due := _with_by(f"{word} {text}", at))), "")
    return due_in(due, at)


def _with_by(text: str, at: float) -> str:
    """Write German deadlines as English ones, and both as `_with_plain_days` does."""
    return _with_plain_days(_GERMAN_DUE.sub(_due_in_english, _with_plain_days(text, at)))


@lru_cache(maxsize=16)  # several functions ask about one text
def _with_plain_days(text: str, at: float = 0.0) -> str:
    """Write dates as ISO dates, synonyms of "by" as "by", mid-month as the 15th, and other phrases as no day."""
    text = with_iso_dates(text, at)
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


def _due_in_english(due: re.Match[str]) -> str:
    name = MONTHS[int(due["month"]) - 1] if due["month"] else _ENGLISH.get(due["named"].lower(), due["named"])
    return " ".join(filter(None, ("by", due["day"], name, (due["year"] or "").strip())))


def is_appointment(text: str, at: float, zone: tzinfo | None = None) -> bool:
    """True for one sentence about a day that has not passed at `at`. Many facts only name the day they were written."""
    day, due = _coming_day(_with_plain_days(text.strip())), due_in(text, at, zone)
    if day is not None and due in (None, due_in("by today", at, zone)):
        return bool(day["usual"] or _TASK.match(text) or _APPOINTMENT.match(text))
    return day is not None and due is not None and due > at - DAY_S


def names_appointment(text: str) -> bool:
    text = _with_plain_days(text.strip())
    appointment = _APPOINTMENT.match(text)
    is_task = (appointment and appointment["person"]) or _TASK.match(text) or _ACTION.match(text)
    return _coming_day(text) is not None and not is_task


def _coming_day(text: str) -> re.Match[str] | None:
    """Match the words before the day on which something will happen. Text after a comma is only an explanation."""
    if len(text) > 300 or len(split_sentences(text)) > 1 or _ASKS.match(text):
        return None
    appointment = _APPOINTMENT.match(text)
    for day in _COMING.finditer(text):
        before, after = text[: day.start()], _DUTY.sub("", re.split(r"[,;(–]", text[day.end() :])[0])
        plain = f"{_PLANNED.sub('', before)}{_PLANNED.sub('', after)}"
        is_fact = _RULE.search(plain) or _STATE.search(plain) or re.search(_PAST, plain)
        is_state = re.search(_STATES, plain) and not _TASK.match(text)
        is_planned = appointment and not appointment["present"]
        is_once = (appointment or _TASK.match(text)) and not before.endswith(("on ", "on the "))
        is_other = not _CLOCK.search(text) or _VERB.match(_CLOCK.sub("", plain)) or _ROUTINE.search(plain)
        is_habit = day["usual"] and not is_planned and not is_once and is_other
        if not (is_fact or is_state or is_habit or _LIMIT.search(before)):
            return day
    return None


def is_task(text: str, at: float, zone: tzinfo | None = None) -> bool:
    """True for a list of open ends, for a short sentence with a deadline that has not passed at `at`, unless it states
    a fact ("It expires by 5 December"), for a task with a known verb and a day or an occasion, and for something
    that one person or "we" must do once."""
    if is_list_of_open_ends(text):
        return True
    text = _with_by(text.strip(), at)  # "zum 5. Dezember" looks like two sentences
    is_short = len(text) <= 300 and len(split_sentences(text)) == 1 and not _ASKS.match(text)
    due = due_in(text, at, zone)  # also None if there is no such day, as in "by 31 February"
    if is_short and due is None and not _DUE.search(text):
        chore = _CHORE.match(text)
        return chore is not None and not _RULE.search(text, chore.end())
    if not is_short or (due is not None and due <= at - DAY_S):
        return False
    is_within = " by in " in text
    if not is_within and _DUE.search(text):
        return not all(_is_fact(_clause(text, due)) for due in _DUE.finditer(text))
    is_one = not is_within or _ONE.search(text)  # "Answer mails within two days" is a rule
    return bool((_TASK.match(text) and is_one) or _MUST.match(text)) and not _is_fact(text)


def _is_fact(clause: str) -> bool:
    """True for "We paid it before Friday", which is not a task. Text after a task is only an explanation."""
    for part in re.split(r"[,:] (?!due )|[;(–]| (?:because|since|as|so) ", clause):
        start, is_action = _DUTY.sub("", part), _ACTION.match(part)
        if _RULE.search(part) or _STATE.search(start) or (_VERB.match(start) and not is_action):
            return True
        if is_action or start != part:
            break
    return False


def _clause(text: str, due: re.Match[str]) -> str:
    """Return the clause with the deadline. The word before the day becomes "due" or "before", or is dropped."""
    begin = max(text.rfind(mark, 0, due.start()) for mark in ";–") + 1
    how = {"by": "", "before": "before"}.get(due["how"].casefold(), "due")
    return " ".join(f"{text[begin : due.start()]}{how} {due['day']}{text[due.end() :]}".split()).strip(" -*•[].!")
