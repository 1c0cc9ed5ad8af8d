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

NOW = 1_795_100_000.0


@pytest.mark.parametrize(
    ("query", "kinds"),
    [
        ("what did we decide this week?", "decision"),
        ("What did we decide this week and why?", "decision"),
        ("this week's decisions", "decision"),
        ("list all decisions since Monday", "decision"),
        ("which errors did we fix on Thursday", "error_fix"),
        ("what broke on Wednesday morning", "error_fix"),
        ("What went wrong yesterday?", "error_fix"),
        ("Which conventions have changed last month?", "convention"),
        ("preferences noted between 3 and 9 November", "preference"),
        ("Summarize last week, please", ""),
        ("summarise this week", ""),
        ("what happened yesterday", ""),
        ("what did we note on Monday", ""),
        ("what have we been working on this week?", ""),
        ("what did I learn last month?", ""),
        ("what did we do in the first week of November", ""),
        ("recap of 2026-W45", ""),
        ("yesterday", ""),
        ("Was haben wir diese Woche beschlossen?", "decision"),
        ("was haben wir gestern beschlossen", "decision"),
        ("Alle Entscheidungen der letzten Woche", "decision"),
        ("Welche Fehler haben wir am Freitag behoben?", "error_fix"),
        ("Fasse diese Woche zusammen", ""),
        ("Was ist letzte Woche passiert?", ""),
        ("was war gestern los", ""),
        ("¿Qué decidimos esta semana?", "decision"),
        ("decisiones de la semana pasada", "decision"),
        ("¿Qué errores arreglamos el viernes?", "error_fix"),
        ("resume esta semana", ""),
        ("¿qué pasó ayer?", ""),
        ("qué hemos hecho el martes", ""),
        ("Qu'avons-nous décidé cette semaine ?", "decision"),
        ("qu'est-ce qu'on a décidé mercredi", "decision"),
        ("Quelles erreurs avons-nous corrigées vendredi ?", "error_fix"),
        ("résume cette semaine", ""),
        ("que s'est-il passé hier ?", ""),
        ("qu'a-t-on fait mardi", ""),
    ],
)
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
