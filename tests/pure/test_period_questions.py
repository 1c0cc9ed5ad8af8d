"""Questions that ask for all of a time, and the many that do not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remembrancer.memory.times.period_questions import (
    _PAST,
    EMPTY,
    KINDS_NAMED,
    LONGEST,
    PeriodQuestion,
    asks_for_period,
)
from remembrancer.memory.times.windows import time_windows
from remembrancer.protocol.kinds import KINDS
from tests.cases import cases

NOW = 1_795_100_000.0


@pytest.mark.parametrize(("query", "kinds"), cases("period_questions", "periods"))
def test_a_question_may_ask_for_all_of_a_time_or_for_its_memories_of_a_kind(query: str, kinds: str) -> None:
    assert asks_for_period(query) == PeriodQuestion(frozenset(each for each in KINDS if each in kinds.split()))
    assert time_windows(query, NOW) != ()


@pytest.mark.parametrize(
    "query",
    [
        "when did we deploy?",
        "how do I deploy on Mondays?",
        "what did we decide?",
        "who called yesterday?",
        "where were we yesterday",
        "when did we decide that last week?",
        "why did we do that last week",
        "what did we decide about Kafka this week?",
        "numbers from yesterday's load test?",
        "what port did we choose last week",
        "what do I do this week?",
        "what will we do this week?",
        "what is due this week?",
        "what did we do in Go last week",
        "what did we change in C++ yesterday",
        "what did Will do yesterday",
        "what is the decision process",
        "Wann haben wir letzte Woche deployt?",
        "wie haben wir das gestern gelöst?",
        "Was haben wir gestern über Kafka beschlossen?",
        "Wer ist hier der Chef?",
        "¿Cuándo desplegamos la semana pasada?",
        "¿qué decidimos sobre Kafka esta semana?",
        "¿cómo lo arreglamos ayer?",
        "quand avons-nous déployé hier ?",
        "de quoi a-t-on parlé mercredi avec Hélène",
        "",
        "what did we do yesterday? " + "and what did we do? " * 20,
    ],
)
def test_a_question_with_a_subject_a_moment_or_a_plan_asks_for_no_period(query: str) -> None:
    assert asks_for_period(query) is None


def test_the_tables_say_one_thing_of_a_word_and_all_in_small_letters() -> None:
    assert not KINDS_NAMED.keys() & (_PAST | EMPTY)
    assert all(word == word.casefold() for word in (*KINDS_NAMED, *_PAST, *EMPTY))


@given(st.text(max_size=LONGEST + 20) | st.lists(st.sampled_from([*KINDS_NAMED, *sorted(_PAST), "hier"])).map(" ".join))
def test_no_text_breaks_it_and_a_long_one_asks_for_something(query: str) -> None:
    assert asks_for_period(query) is None or len(query) <= LONGEST
