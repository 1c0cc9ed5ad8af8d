"""What a question asks for: its times, periods, open ends, and what it is about."""

import math
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from remembrancer.actors.store.retrieval.question import Question, read_question
from remembrancer.browser.history import _start as begin_of
from remembrancer.browser.memories import day_of as browser_day_of
from remembrancer.memory.changes import updated
from remembrancer.memory.open_ends import (
    asks_about_open_ends,
    asks_for_open_ends,
    due_in,
    due_of_open_end,
    is_list_of_open_ends,
    last_day_asked_for,
    moved_to,
    open_ends_in,
)
from remembrancer.memory.times.windows import (
    _PAST,
    KINDS_NAMED,
    LONGEST_OF_PERIOD,
    TimeWindow,
    kinds_of_period,
    nearness,
    time_windows,
)
from remembrancer.protocol.browsing import ActivityRead, MemoryChanged
from remembrancer.protocol.errors import InvalidInput
from remembrancer.protocol.kinds import Kind, type_of_kind
from remembrancer.protocol.reads import Recall
from remembrancer.protocol.writes import MemoryVersion, UpdateMemory
from remembrancer.toolsets.memory.day_log import date_of, dates_in_utc, day_of, happened_in, verb_of
from remembrancer.toolsets.memory.store_memory import kind_of
from tests.cases import cases
from tests.operations import PROJECT, SESSION
from tests.zones import in_zone

NOW = datetime(2023, 5, 30, 17, 0, tzinfo=UTC)  # a Tuesday
DAY_S = 86_400.0


def windows(query: str, now: datetime = NOW) -> tuple[TimeWindow, ...]:
    return time_windows(query, now.timestamp())


def written(seconds: float) -> str:
    """A day, with its hour unless it is midnight."""
    if math.isinf(seconds):
        return "ever"
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H").removesuffix(" 00")


def said(query: str, now: datetime = NOW) -> list[tuple[str, str]]:
    return [(written(each.start), written(each.end)) for each in windows(query, now)]


def test_phrases_and_words_between_them_name_a_span_of_the_calendar() -> None:
    for query, start, end in cases("when", "spans"):
        assert said(query) == [(start, end)], query


def test_other_words_and_questions_about_what_is_to_come_name_no_time() -> None:
    assert [query for query in cases("when", "no_times") if said(query)] == []


def test_german_french_and_spanish_phrases_mean_what_the_english_ones_do() -> None:
    for query, english in cases("when", "translations"):
        assert windows(query) == windows(english) != (), query


def test_a_question_may_name_several_times_and_what_was_complained_about_is_dated_by_the_day() -> None:
    assert said("Did I run more in March or in April?") == [("2023-03-01", "2023-04-01"), ("2023-04-01", "2023-05-01")]
    assert windows("what did they complain about on Friday") == windows("on Friday")
    assert said("yesterday " + "word " * 1000) == [("2023-05-29", "2023-05-30")]
    assert said("word " * 1000 + "yesterday") == []


@pytest.mark.parametrize(("query", "now", "start", "end"), cases("when", "begun"))
def test_what_has_begun_is_this_one_and_the_last_that_before(query: str, now: datetime, start: str, end: str) -> None:
    assert said(query, now) == [(start, end)]


def test_without_a_zone_the_days_are_those_of_the_machine_all_year() -> None:
    zone = ZoneInfo("Europe/Berlin")
    with in_zone("Europe/Berlin"):
        for query in ("yesterday", "in January", "on 2023-03-26", "since 2019", "before March"):
            assert time_windows(query, NOW.timestamp(), None) == time_windows(query, NOW.timestamp(), zone) != ()


@pytest.mark.parametrize("zone", ["Pacific/Auckland", "America/Los_Angeles"])
def test_a_new_text_brings_the_same_due_date_on_every_machine(zone: str) -> None:
    tomorrow = datetime(2023, 5, 31, tzinfo=UTC).timestamp()
    fields: Any = {"type": "semantic", "scope": "project", "session_id": SESSION, "kind": "open_end"}
    before = MemoryVersion(content="Pay the rent by 2023-06-09", due=tomorrow + 9 * DAY_S, **fields)
    with in_zone(zone):
        after = updated(before, UpdateMemory("memory:1", content="Pay the rent by tomorrow"), NOW.timestamp())
    assert after.due == tomorrow


@pytest.mark.parametrize(
    ("zone", "date"),
    [
        ("Pacific/Auckland", "2023-05-30"),
        ("America/Los_Angeles", "2023-05-30"),
        ("Asia/Beirut", "2024-03-31"),  # begins at one o'clock
        ("America/Sao_Paulo", "2017-10-15"),
    ],
)
def test_a_day_without_a_time_is_the_same_day_everywhere(zone: str, date: str) -> None:
    day = datetime.fromisoformat(f"{date}T00:00Z").timestamp()
    with in_zone(zone):
        local = datetime.fromisoformat(date).date()
        begins, ends = begin_of(local), begin_of(local + timedelta(1))
        assert begins == browser_day_of(date)
        assert datetime.fromtimestamp(begins).date() == local
        assert dates_in_utc(begins, ends) == (day, day + DAY_S)
        event = MemoryChanged("1", "happened", day)
        assert date_of(event) == f"{local:%A} {date}"
        assert date_of(MemoryChanged("1", "happened", begins - 1)) != date_of(event)
        stored = MemoryChanged("1", "stored", begins + 1), MemoryChanged("1", "stored", begins - 1)
        assert [happened_in(ActivityRead((each,), happened=(event,))) for each in stored] == [[], [event]]


def test_days_are_those_of_the_calendar_in_the_zone_of_the_question() -> None:
    (window,) = windows("a month ago", datetime(2023, 3, 31, tzinfo=UTC))
    assert written((window.start + window.end) / 2) == "2023-02-28"
    late = datetime(2023, 5, 30, 23, 30, tzinfo=UTC).timestamp()  # half past one on the 31st in Berlin
    (window,) = time_windows("yesterday", late, ZoneInfo("Europe/Berlin"))
    assert window.start == datetime(2023, 5, 29, 22, tzinfo=UTC).timestamp()
    assert window.end - window.start == DAY_S
    zone = ZoneInfo("Europe/Berlin")
    (window,) = time_windows("on 2023-03-26", NOW.timestamp(), zone)
    assert window.end - window.start == 23 * 3600


@pytest.mark.parametrize("reference", [-62_135_596_800.0, 253_402_300_799.0])
@pytest.mark.parametrize("zone", [UTC, timezone(timedelta(hours=-12)), timezone(timedelta(hours=14))])
def test_at_the_ends_of_the_calendar_what_is_beyond_it_is_no_time(reference: float, zone: timezone) -> None:
    assert {time_windows("yesterday", each) for each in (math.nan, math.inf, -math.inf, 1e18, -1e18)} == {()}
    queries = ("yesterday", "999 years ago", "in March", "last weekend", "this year", "since last summer", "in winter")
    for window in (window for query in queries for window in time_windows(query, reference, zone)):
        assert window.start <= window.end


def test_nearness_is_one_within_and_falls_with_the_distance_the_vaguer_the_longer_ago() -> None:
    found = windows("in March")
    (window,) = found
    assert nearness(window.start, found) == nearness(window.end - 1, found) == 1.0
    assert nearness(window.start - window.fade_s, found) == pytest.approx(0.5)
    assert nearness(window.end + window.fade_s, found) == pytest.approx(0.5)
    assert nearness(window.end + 2 * window.fade_s, found) == pytest.approx(1 / 16)
    assert nearness(window.end + 400 * DAY_S, found) == 0.0
    assert nearness(0.0, windows("before March")) == 1.0
    assert nearness(NOW.timestamp(), ()) == 0.0
    assert nearness(math.nan, windows("yesterday")) == 0.0
    days = [windows(f"{count} days ago")[0].fade_s / DAY_S for count in (2, 10, 28)]
    assert days == pytest.approx([1.0, 1.5, 4.2])
    assert windows("four weeks ago")[0].fade_s / DAY_S == pytest.approx(4.2)
    assert windows("an hour ago")[0].fade_s == DAY_S / 48 < windows("yesterday evening")[0].fade_s == DAY_S / 4
    (window,) = windows("in March")
    assert window.fade_s == pytest.approx(3.1 * DAY_S)
    assert nearness(window.end + 4 * DAY_S, [window]) < 0.5


WORDS = """
    the a an last past this next ago back in on at of since before after between and from to until early two 3 31 999
    0 1.5 few couple half weeks day month years decade weekend fortnight Monday saturday may March june dec. Sept 2023
    1999 9999 0000 12/31/22 2023-02-30 30.2.2023 3rd 31st spring winter q3 yesterday
    today night morning vor zwei Wochen letzten il y deux semaines hace dos días ſix wee\u212as mıdnıght
"""
vocabulary = st.lists(st.sampled_from(WORDS.split()), max_size=25).map(" ".join)


@given(
    st.text(max_size=200) | vocabulary | st.text(st.sampled_from("0123456789/-.: aegmotſıİK\n"), max_size=80),
    st.floats(min_value=-6e10, max_value=2.5e11),
)
@example("\ud800 last week", 0.0)
@example("lAſT SUndAy ſeptember 3rd", 1.6e9)
@example("0 months ago, the last 0 minutes, 0.0 years ago", 1.6e9)
@example("after winter", 0.0)
@example("in march 0000, 00/00/00, 0000-00-00, the 0th of may", 1.6e9)
def test_no_text_breaks_it_and_no_window_is_ahead_or_turned_round(query: str, reference: float) -> None:
    for window in time_windows(query, reference):
        assert window.start <= reference + 1e-6  # a calendar has microseconds
        assert window.start <= window.end
        assert window.fade_s > 0


def test_a_day_in_words_is_the_last_one_of_this_machine_s_calendar() -> None:
    monday_afternoon = datetime(2026, 11, 23, 15).timestamp()
    for text, begins in cases("when", "days"):
        day = day_of(text, monday_afternoon)
        midnights = [datetime.combine(begins + timedelta(days=days), datetime.min.time()) for days in (0, 1)]
        assert [datetime.fromtimestamp(each) for each in (day.start, day.end)] == midnights, text


@pytest.mark.parametrize("text", ["", "lantern", "2027-01-01", "2026-02-30", "before 2020"])
def test_what_is_no_day_that_has_begun_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="is not a past day; give today, or a day such as Tuesday"):
        day_of(text, datetime(2026, 11, 23, 15, tzinfo=UTC).timestamp())


# --- Questions that ask for all of a time, and the many that do not.
AUTUMN = 1_795_100_000.0


def test_a_question_may_ask_for_all_of_a_time_or_for_its_memories_of_a_kind() -> None:
    for query, kinds in cases("period_questions", "periods"):
        assert kinds_of_period(query) == frozenset(kinds.split()), query
        assert time_windows(query, AUTUMN) != (), query


def test_a_question_with_a_subject_a_moment_or_a_plan_asks_for_no_period() -> None:
    long = "what did we do yesterday? " + "and what did we do? " * 20
    queries = [*cases("period_questions", "no_periods"), long]
    assert [query for query in queries if kinds_of_period(query) is not None] == []


@given(
    st.text(max_size=LONGEST_OF_PERIOD + 20)
    | st.lists(st.sampled_from([*sorted(KINDS_NAMED), *sorted(_PAST), "hier"])).map(" ".join)
)
def test_no_text_breaks_it_and_a_long_one_asks_for_something(query: str) -> None:
    assert kinds_of_period(query) is None or len(query) <= LONGEST_OF_PERIOD


# --- A question is read once: its words, names, times, and what it is about.
NOVEMBER = datetime(2026, 11, 20, 12, tzinfo=UTC).timestamp()


def read(query: str, **fields: Any) -> Question:
    return read_question(Recall(SESSION, project=PROJECT, query=query, **fields), NOVEMBER)


def test_what_is_valid_is_asked_for_at_the_time_of_the_question() -> None:
    assert read("port", valid_only=True).filters.valid_at == NOVEMBER
    assert read("port", valid_only=True, reference_time=5.0).filters.valid_at == 5.0
    assert read("port").filters.valid_at is None
    (window,) = read("yesterday", reference_time=datetime(2023, 5, 19, 16, tzinfo=UTC).timestamp()).windows
    assert window.start == datetime(2023, 5, 18, tzinfo=UTC).timestamp()
    assert read("?!").units == []
    assert list(read("?!").phrases) == []


@pytest.mark.parametrize(("query", "is_message", "of_the_user", "of_a_period"), cases("question", "questions"))
def test_a_question_is_of_user_or_period(query: str, is_message: bool, of_the_user: bool, of_a_period: bool) -> None:
    question = read(query)
    assert (question.asked.is_message, question.asked.of_the_user) == (is_message, of_the_user)
    assert (question.kinds is not None) == of_a_period


def test_all_of_a_weekday_is_also_that_of_today_like_the_day_of_a_log() -> None:
    days = [datetime(2026, 11, day, tzinfo=UTC).timestamp() for day in (13, 20)]
    for query in ("what did we do on Friday?", "Was haben wir am Freitag gemacht?"):
        assert [each.start for each in read(query, reference_time=NOVEMBER).windows] == days
    for query in ("what did we do last Friday?", "what did we do about the port on Friday?"):
        assert [each.start for each in read(query, reference_time=NOVEMBER).windows] == days[:1]


# --- Open ends, and what is none.
SATURDAY = datetime(2026, 11, 28, 22).timestamp()


def day_in(at: float | None) -> str:
    return datetime.fromtimestamp(at, UTC).date().isoformat() if at else ""


READ: dict[str, Callable[[str], object]] = {
    "items": lambda text: [*open_ends_in(text)],
    "headings": is_list_of_open_ends,
    "due": lambda text: day_in(due_in(text, SATURDAY)),
    "only_dates": lambda text: day_in(due_of_open_end(text, SATURDAY)),
    "moves": lambda text: day_in(moved_to(text, SATURDAY, due_in("by 4 December", SATURDAY))),
    "kinds": lambda text: kind_of(text, SATURDAY),
    "questions": asks_for_open_ends,
    "subjects": asks_about_open_ends,
    "periods": lambda query: last_day_asked_for(query, SATURDAY),
}
"""The readers of a text, by the tables of their cases."""


def test_a_long_sentence_with_many_days_is_read_in_linear_time() -> None:
    began = time.process_time()
    moved_to("from Friday to " * 2000, SATURDAY, due_in("by 4 December", SATURDAY))
    assert time.process_time() - began < 5  # a minute if all that follows each day is read


@pytest.mark.parametrize("table", READ)
def test_a_text_means_what_the_table_of_its_reader_says(table: str) -> None:
    for text, meant in cases("open_ends", table):
        assert READ[table](text) == meant, text


def test_next_friday_is_in_the_next_week() -> None:
    monday = datetime(2026, 11, 30, 14).timestamp()
    assert day_in(due_in("by Friday", monday)) == "2026-12-04"
    for text in ("by next Friday", "by Friday next week", "by Friday at 10am next week"):
        assert day_in(due_in(text, monday)) == "2026-12-11", text


def test_the_due_date_of_a_long_text_is_looked_for_in_time_that_grows_with_its_length() -> None:
    began = time.process_time()
    assert due_in("the licence must be renewed and " * 3000, 0.0) is None
    assert due_in("Ana sends it " + "on " * 100_000, 0.0) is None
    assert due_in("before Christmas, " * 3000, 0.0) is not None
    assert time.process_time() - began < 5.0


@given(st.text(max_size=300), st.text(" -_*()[]!\n", max_size=9))
@example("", "_ (")
def test_any_text_has_a_kind(text: str, before: str) -> None:
    assert type_of_kind(kind_of(f"{before}{text} by 5 December", 0.0))


def test_the_log_says_what_was_decided_and_opened_on_a_day_that_was_given() -> None:
    kinds: tuple[Kind, ...] = ("decision", "open_end", "observation", "fact", "convention", "procedure")
    assert [verb_of(MemoryChanged("1", "happened", 0.0, kind=kind)) for kind in kinds] == [
        "decided",
        "opened",
        "happened",
        "happened",
        "noted",
        "noted",
    ]
