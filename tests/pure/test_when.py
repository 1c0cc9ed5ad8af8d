"""The times that questions name: what they are, that other words are none, and that no text breaks it."""

from __future__ import annotations

import math
import time
from datetime import UTC, date, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from remembrancer.memory.times.windows import TimeWindow, nearness, time_windows, zone_of
from remembrancer.protocol.errors import InvalidInput
from remembrancer.toolsets.memory.day_log import day_of

NOW = datetime(2023, 5, 30, 17, 0, tzinfo=UTC)  # a Tuesday
DAY_S = 86_400.0


def windows(query: str, now: datetime = NOW) -> tuple[TimeWindow, ...]:
    """The times that a question names at that time."""
    return time_windows(query, now.timestamp())


def written(seconds: float) -> str:
    """A day, with its hour unless it is midnight."""
    if math.isinf(seconds):
        return "ever"
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H").removesuffix(" 00")


def said(query: str, now: datetime = NOW) -> list[tuple[str, str]]:
    """The beginning and end of each window."""
    return [(written(each.start), written(each.end)) for each in windows(query, now)]


@pytest.mark.parametrize(
    ("query", "start", "end"),
    [
        ("what did I do yesterday?", "2023-05-29", "2023-05-30"),
        ("the day before yesterday", "2023-05-28", "2023-05-29"),
        ("what did she say last night", "2023-05-29 19", "2023-05-30 04"),
        ("what did we decide this morning", "2023-05-30 05", "2023-05-30 12"),
        ("who called yesterday evening?", "2023-05-29 17", "2023-05-30"),
        ("what did I note today?", "2023-05-30", "2023-05-31"),
        ("the artist that I started to listen to last Friday", "2023-05-26", "2023-05-27"),
        ("what broke last Tuesday", "2023-05-23", "2023-05-24"),
        ("whom did I meet on Saturday?", "2023-05-27", "2023-05-28"),
        ("Saturday night's dinner", "2023-05-27 19", "2023-05-28 04"),
        ("the Saturday before last", "2023-05-20", "2023-05-21"),
        ("last week on Friday", "2023-05-26", "2023-05-27"),
        ("Friday last week", "2023-05-26", "2023-05-27"),
        ("what did I read last week?", "2023-05-22", "2023-05-29"),
        ("the week before last", "2023-05-15", "2023-05-22"),
        ("which bike did I fix the past weekend?", "2023-05-27", "2023-05-29"),
        ("two weekends ago", "2023-05-20", "2023-05-22"),
        ("what did I spend last month?", "2023-04-01", "2023-05-01"),
        ("the trip that we took last year", "2022-01-01", "2023-01-01"),
        ("late last month", "2023-04-21", "2023-05-01"),
        ("How many films did I watch in the last 3 months?", "2023-02-28", "2023-05-30 17"),
        ("what changed over the past week", "2023-05-23", "2023-05-30 17"),
        ("errors of the last 24 hours", "2023-05-29 17", "2023-05-30 17"),
        ("four weeks ago", "2023-04-29 05", "2023-05-06 05"),
        ("10 days ago", "2023-05-20", "2023-05-21"),
        ("a couple of days ago", "2023-05-28", "2023-05-29"),
        ("a few weeks ago", "2023-04-22 05", "2023-05-20 05"),
        ("two months ago", "2023-03-15 17", "2023-04-14 17"),
        ("a year and a half ago", "2021-11-14 05", "2021-12-14 05"),
        ("How many doctor's appointments did I go to in March?", "2023-03-01", "2023-04-01"),
        ("in may", "2023-05-01", "2023-06-01"),
        ("the first BBQ event in June", "2022-06-01", "2022-07-01"),
        ("last May", "2022-05-01", "2022-06-01"),
        ("early March", "2023-03-01", "2023-03-11 08"),
        ("in Feb", "2023-02-01", "2023-03-01"),
        ("What happened in September 2022?", "2022-09-01", "2022-10-01"),
        ("on May 3rd", "2023-05-03", "2023-05-04"),
        ("on the 3rd of May, 2021", "2021-05-03", "2021-05-04"),
        ("on 1 February, 2023?", "2023-02-01", "2023-02-02"),
        ("on Monday, May 22", "2023-05-22", "2023-05-23"),
        ("Dec 24", "2022-12-24", "2022-12-25"),
        ("on 29 February", "2020-02-29", "2020-03-01"),
        ("on 2023-05-04", "2023-05-04", "2023-05-05"),
        ("the log of 2023-05-04T10:00", "2023-05-04", "2023-05-05"),
        ("12/31/2022", "2022-12-31", "2023-01-01"),
        ("31.12.2022", "2022-12-31", "2023-01-01"),
        ("where did I live in 2019?", "2019-01-01", "2020-01-01"),
        ("revenue in Q4", "2022-10-01", "2023-01-01"),
        ("Q4 revenue", "2022-10-01", "2023-01-01"),
        ("in the third quarter", "2022-07-01", "2022-10-01"),
        ("the fourth quarter of 2021", "2021-10-01", "2022-01-01"),
        ("a year ago", "2022-05-15 17", "2022-06-14 17"),
        ("the first week of May", "2023-05-01", "2023-05-08"),
        ("in the last week of February 2022", "2022-02-22", "2022-03-01"),
        ("the 2nd week of last month", "2023-04-08", "2023-04-15"),
        ("November 3-9", "2022-11-03", "2022-11-10"),
        ("3 \N{EN DASH} 9 November 2021", "2021-11-03", "2021-11-10"),
        ("what shipped in 2022-W45?", "2022-11-07", "2022-11-14"),
        ("in March last year", "2022-03-01", "2022-04-01"),
        ("end of March", "2023-03-21 16", "2023-04-01"),
        ("Monday of this week", "2023-05-29", "2023-05-30"),
        ("2022W45-3", "2022-11-07", "2022-11-14"),
        ("in W45", "2022-11-07", "2022-11-14"),
        ("CW45", "2022-11-07", "2022-11-14"),
        ("billing service déployé hier", "2023-05-29", "2023-05-30"),
        ("who broke the build gestern?", "2023-05-29", "2023-05-30"),
        ("Q1 2023", "2023-01-01", "2023-04-01"),
        ("last summer", "2022-06-01", "2022-09-01"),
        ("what did we plant in spring", "2023-03-01", "2023-06-01"),
        ("what shipped in week 20", "2023-05-15", "2023-05-22"),
        ("what shipped in week 45", "2022-11-07", "2022-11-14"),
        ("what broke recently?", "2023-04-30 17", "2023-05-30 17"),
        ("Was war in KW 20?", "2023-05-15", "2023-05-22"),
        ("Qu'est-ce qu'on a décidé hier ?", "2023-05-29", "2023-05-30"),
        ("¿Qué hicimos recientemente?", "2023-04-30 17", "2023-05-30 17"),
        ("in the spring of 2022", "2022-03-01", "2022-06-01"),
        ("what did we decide on the 15th?", "2023-05-15", "2023-05-16"),
        ("who called on the 31st and why", "2023-03-31", "2023-04-01"),
        ("what did I note last Sat?", "2023-05-27", "2023-05-28"),
        ("last Thurs afternoon", "2023-05-25 12", "2023-05-25 18"),
        ("whom did I meet on Fri?", "2023-05-26", "2023-05-27"),
        ("the week of May 1", "2023-05-01", "2023-05-08"),
        ("what broke in the week of the 17th?", "2023-05-15", "2023-05-22"),
        ("the week beginning 2023-05-01", "2023-05-01", "2023-05-08"),
        ("between March and May", "2023-03-01", "2023-06-01"),
        ("between 3 and 9 November", "2022-11-03", "2022-11-10"),
        ("from the 3rd to the 9th of May", "2023-05-03", "2023-05-10"),
        ("from 28 October to 3 November", "2022-10-28", "2022-11-04"),
        ("from November to February", "2022-11-01", "2023-03-01"),
        ("from 2019 to 2021", "2019-01-01", "2022-01-01"),
        ("since June", "2022-06-01", "2023-05-30 17"),
        ("since the 15th", "2023-05-15", "2023-05-30 17"),
        ("since last Monday", "2023-05-29", "2023-05-30 17"),
        ("after March", "2023-04-01", "2023-05-30 17"),
        ("before March", "ever", "2023-03-01"),
        ("until yesterday", "ever", "2023-05-30"),
        ("the week before May 3, 2023", "2023-04-26", "2023-05-04"),
        ("two weeks before April 11, 2023", "2023-03-28", "2023-04-12"),
        ("last weekend before April 10, 2023", "2023-04-03", "2023-04-11"),
        ("the day after May 3, 2023", "2023-05-03", "2023-05-05"),
    ],
)
def test_phrases_and_words_before_and_between_them_name_a_span_of_the_calendar(
    query: str, start: str, end: str
) -> None:
    assert said(query) == [(start, end)]


@pytest.mark.parametrize(
    "query",
    [
        "What brand are my favourite running shoes?",
        "does version 3.11 march on port 8080?",
        "v2.4 of issue 12 may be it",
        "How many weeks ago did I attend a bird watching workshop?",
        "When did I go to the dentist, and how long did it take?",
        "How many days did it take me to finish the book?",
        "What was the increase that I saw in two weeks?",
        "the run took for two weeks, within 10 ms, on a 5 minute timer",
        "the first may be wrong, the last may not, this may break, may 3 processes run?",
        "the soldiers march in step and march 5 miles",
        "next Saturday, every Monday, on Mondays, each summer",
        "a second cup on the sat nav in the sun",
        "April called me about June, in a letter from April",
        "raise the timeout from 2000 to 2010 ms, in 2000 lines, on port 2022",
        "at last I did it the last time, at the last minute, in the past, long ago, many years ago",
        "Wer ist hier der Chef?",
        "În ce an a fost adoptată legea? La réunion a lieu le jeudi.",
        "the H2 database and week 99",
        "Spring Boot in Spring, and a fall from the ladder",
        "Black Friday deals",
        "between 3 and 9 items, question q3, the third quarter, room W12, the first week of training",
        "5 to 9 may fail, raise from 3 to 5, w45",
        "the desk on the 2nd floor, on the 1st attempt, the 3rd of them on the 5th Avenue, the 15th, on the 39th",
        "who sat on sun loungers, runs on Sun hardware, on sat, the last sunday-driver, the last mon-itor",
        "192.168.10.20 and 1.2.3 and 10/20",
        "src/2023/05/04_x.py and on_monday()",
        "on February 31, 2023-13-45",
        "in June 2051, and in 2049",
        "the main mars rover is here, de facto en passant",
        "",
        "What should I cook today?",
        "Suggest something to do this weekend.",
    ],
)
def test_other_words_and_questions_about_what_is_to_come_name_no_time(query: str) -> None:
    assert said(query) == []


@pytest.mark.parametrize(
    ("query", "english"),
    [
        ("Was habe ich vor zwei Wochen über Bremen gesagt?", "two weeks ago"),
        ("Wen traf ich letzten Samstag?", "last Saturday"),
        ("am 3. Mai 2023", "on 3 May 2023"),
        ("in den letzten drei Monaten", "in the last three months"),
        ("gestern Abend", "yesterday evening"),
        ("zwischen März und Mai", "between March and May"),
        ("was im Jahr 2022 geschah", "in 2022"),
        ("Qu'ai-je dit il y a deux semaines ?", "two weeks ago"),
        ("la semaine dernière", "last week"),
        ("samedi dernier", "last Saturday"),
        ("en mars", "in March"),
        ("l'été dernier", "last summer"),
        ("avant-hier", "the day before yesterday"),
        ("¿Qué dije hace dos semanas?", "two weeks ago"),
        ("el fin de semana pasado", "last weekend"),
        ("en marzo de 2023", "in March 2023"),
        ("los últimos tres meses", "in the last three months"),
        ("hace un par de días", "a couple of days ago"),
        ("desde 2021", "since 2021"),
        ("vor einem Jahr", "a year ago"),
        ("il y a un an", "a year ago"),
        ("hace un año", "a year ago"),
        ("zwischen dem 3. und 9. November", "between 3 and 9 November"),
        ("vom 28. Oktober bis zum 3. November 2022", "from 28 October 2022 to 3 November 2022"),
        ("entre le 3 et le 9 novembre", "between 3 and 9 November"),
        ("du 28 octobre au 3 novembre", "from 28 October to 3 November"),
        ("entre el 3 y el 9 de noviembre", "between 3 and 9 November"),
        ("del 28 de octubre al 3 de noviembre", "from 28 October to 3 November"),
        ("in der ersten Novemberwoche", "the first week of November"),
        ("letzte Woche im Oktober", "the last week of October"),
        ("la première semaine d'octobre 2021", "the first week of October 2021"),
        ("la última semana de octubre", "the last week of October"),
        ("im dritten Quartal", "in the third quarter"),
        ("au troisième trimestre 2022", "in the third quarter of 2022"),
        ("en el tercer trimestre", "in the third quarter"),
        ("KW45", "week 45"),
        ("diese Woche", "this week"),
        ("heute Morgen", "this morning"),
        ("am Freitag", "on Friday"),
        ("seit dem 3. Mai", "since 3 May"),
        ("cette semaine", "this week"),
        ("ce mois-ci", "this month"),
        ("aujourd'hui", "today"),
        ("mercredi", "on Wednesday"),
        ("le lundi 29 mai", "on 29 May"),
        ("24 de abril", "24 April"),
        ("jusqu'au 3 mai", "until 3 May"),
        ("esta semana", "this week"),
        ("el viernes", "on Friday"),
        ("hoy", "today"),
        ("am Wochenende", "at the weekend"),
        ("Anfang Mai", "early May"),
        ("seit Montag", "since Monday"),
        ("im März letzten Jahres", "in March last year"),
        ("zwischen Sonntag und Montag", "between Sunday and Monday"),
        ("mi-mars", "mid March"),
        ("depuis hier", "since yesterday"),
        ("entre dimanche et lundi", "between Sunday and Monday"),
        ("a finales de marzo de 2022", "late March 2022"),
        ("desde el lunes", "since Monday"),
        ("entre el domingo y el lunes", "between Sunday and Monday"),
    ],
)
def test_german_french_and_spanish_phrases_mean_what_the_english_ones_do(query: str, english: str) -> None:
    assert windows(query) == windows(english) != ()


def test_what_people_complained_about_on_a_day_is_dated_by_it_and_not_about_it() -> None:
    assert windows("what did they complain about on Friday") == windows("on Friday")


def test_a_question_may_name_several_times() -> None:
    assert said("Did I run more in March or in April?") == [("2023-03-01", "2023-04-01"), ("2023-04-01", "2023-05-01")]


@pytest.mark.parametrize(
    ("query", "now", "start", "end"),
    [
        ("last weekend", datetime(2023, 5, 28, 12, tzinfo=UTC), "2023-05-20", "2023-05-22"),
        ("what did I do at the weekend", datetime(2023, 5, 28, 12, tzinfo=UTC), "2023-05-27", "2023-05-29"),
        ("in March", datetime(2023, 3, 27, tzinfo=UTC), "2023-03-01", "2023-04-01"),
        ("last March", datetime(2023, 3, 27, tzinfo=UTC), "2022-03-01", "2022-04-01"),
        ("last winter", datetime(2023, 1, 10, tzinfo=UTC), "2021-12-01", "2022-03-01"),
        ("during the winter", datetime(2023, 1, 10, tzinfo=UTC), "2022-12-01", "2023-03-01"),
    ],
)
def test_what_has_begun_is_this_one_and_the_last_is_the_one_before(
    query: str, now: datetime, start: str, end: str
) -> None:
    assert said(query, now) == [(start, end)]


def test_the_months_before_count_by_the_calendar() -> None:
    (window,) = windows("a month ago", datetime(2023, 3, 31, tzinfo=UTC))
    assert written((window.start + window.end) / 2) == "2023-02-28"


def test_yesterday_is_the_day_before_in_the_zone_of_whoever_asks() -> None:
    late = datetime(2023, 5, 30, 23, 30, tzinfo=UTC).timestamp()  # half past one on the 31st in Berlin
    (window,) = time_windows("yesterday", late, ZoneInfo("Europe/Berlin"))
    assert window.start == datetime(2023, 5, 29, 22, tzinfo=UTC).timestamp()
    assert window.end - window.start == DAY_S


def test_without_a_zone_the_days_are_those_of_the_machine_in_summer_and_in_winter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    zone = ZoneInfo("Europe/Berlin")
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        for query in ("yesterday", "in January", "on 2023-03-26", "since 2019", "before March"):
            assert time_windows(query, NOW.timestamp(), None) == time_windows(query, NOW.timestamp(), zone) != ()
    finally:
        monkeypatch.undo()
        time.tzset()


def test_a_time_has_the_zone_that_it_says_else_that_of_utc_and_no_time_is_now_and_here() -> None:
    assert zone_of(0.0, 32400.0) == timezone(timedelta(hours=9))
    assert zone_of(None, -12600.0) == timezone(-timedelta(hours=3, minutes=30))
    assert zone_of(0.0, None) == UTC
    assert zone_of(None, None) is None
    assert zone_of(0.0, 1e9) == UTC, "which is no offset"


def test_a_day_is_as_long_as_it_is_when_the_clocks_change() -> None:
    zone = ZoneInfo("Europe/Berlin")
    (window,) = time_windows("on 2023-03-26", NOW.timestamp(), zone)
    assert window.end - window.start == 23 * 3600


@pytest.mark.parametrize("reference", [math.nan, math.inf, -math.inf, 1e18, -1e18])
def test_a_reference_that_is_no_time_has_no_windows(reference: float) -> None:
    assert time_windows("yesterday", reference) == ()


@pytest.mark.parametrize("reference", [-62_135_596_800.0, 253_402_300_799.0])
@pytest.mark.parametrize("zone", [UTC, timezone(timedelta(hours=-12)), timezone(timedelta(hours=14))])
def test_at_the_ends_of_the_calendar_what_is_beyond_it_is_no_time(reference: float, zone: timezone) -> None:
    for query in (
        "yesterday",
        "999 years ago",
        "in March",
        "last weekend",
        "this year",
        "since last summer",
        "in winter",
    ):
        for window in time_windows(query, reference, zone):
            assert window.start <= window.end


def test_nearness_is_one_within_and_falls_with_the_distance_on_either_side() -> None:
    found = windows("in March")
    (window,) = found
    assert nearness(window.start, found) == nearness(window.end - 1, found) == 1.0
    assert nearness(window.start - window.early_s, found) == pytest.approx(0.5)
    assert nearness(window.end + window.late_s, found) == pytest.approx(0.5)
    assert nearness(window.end + 2 * window.late_s, found) == pytest.approx(1 / 16)
    assert nearness(window.end + 400 * DAY_S, found) == 0.0


def test_what_was_in_a_month_is_not_told_in_the_second_week_of_the_next() -> None:
    (window,) = windows("in March")
    assert window.late_s == window.early_s == pytest.approx(3.1 * DAY_S)
    assert nearness(window.end + 4 * DAY_S, [window]) < 0.5


def test_the_longer_ago_the_vaguer() -> None:
    days = [windows(f"{count} days ago")[0].late_s / DAY_S for count in (2, 10, 28)]
    assert days == pytest.approx([1.0, 1.5, 4.2])
    assert windows("four weeks ago")[0].late_s / DAY_S == pytest.approx(4.2)


def test_all_that_was_before_counts_wholly_after_before() -> None:
    assert nearness(0.0, windows("before March")) == 1.0


def test_without_windows_or_without_a_time_nothing_is_near() -> None:
    assert nearness(NOW.timestamp(), ()) == 0.0
    assert nearness(math.nan, windows("yesterday")) == 0.0


@given(
    st.floats(allow_nan=False, min_value=-1e11, max_value=1e11),
    st.sampled_from(["in March", "4 weeks ago", "since May"]),
)
def test_nearness_lies_between_nothing_and_one_and_never_grows_on_the_way_out(happened_at: float, query: str) -> None:
    found = windows(query)
    near = nearness(happened_at, found)
    assert 0.0 <= near <= 1.0
    further = happened_at + math.copysign(DAY_S, happened_at - found[0].start)
    assert nearness(further, found) <= near or nearness(further, found) == 1.0


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
        assert window.early_s > 0
        assert window.late_s > 0


def test_a_long_document_is_read_at_its_beginning_only() -> None:
    assert said("yesterday " + "word " * 1000) == [("2023-05-29", "2023-05-30")]
    assert said("word " * 1000 + "yesterday") == []


def test_many_times_are_bounded() -> None:
    assert len(windows(" and ".join(f"on 2023-01-{day:02d}" for day in range(1, 31)))) == 8


@pytest.mark.parametrize(
    ("text", "begins"),
    [
        *(
            (text, date(2026, 11, 17))
            for text in ("Tuesday", "on Tuesday", "dienstag", "mardi", "martes", "2026-11-17")
        ),
        *((text, date(2026, 11, 22)) for text in ("yesterday", "gestern", "hier", "ayer")),
        *((text, date(2026, 11, 23)) for text in ("today", "heute", "aujourd'hui", "hoy")),
        *((text, date(2026, 11, 23)) for text in ("Monday", "on monday", "montag", "am Montag", "lundi", "lunes")),
        *((text, date(2026, 11, 16)) for text in ("last Monday", "lundi dernier")),
        ("17 November", date(2026, 11, 17)),
    ],
)
def test_a_day_in_words_is_the_last_one_of_this_machine_s_calendar(text: str, begins: date) -> None:
    monday_afternoon = datetime(2026, 11, 23, 15).timestamp()
    day = day_of(text, monday_afternoon)
    midnights = [datetime.combine(begins + timedelta(days=days), datetime.min.time()) for days in (0, 1)]
    assert [datetime.fromtimestamp(each) for each in (day.start, day.end)] == midnights


@pytest.mark.parametrize("text", ["", "lantern", "2027-01-01", "before 2020"])
def test_what_is_no_day_that_has_begun_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="must be today or a past day"):
        day_of(text, datetime(2026, 11, 23, 15, tzinfo=UTC).timestamp())
