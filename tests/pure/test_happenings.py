"""Which questions ask for nothing but what happened at a time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remembrancer.actors.store.retrieval.recalls import asks_what_happened


@pytest.mark.parametrize(
    "query",
    [
        "What did we do last Saturday?",
        "what happened yesterday",
        "What have you learned since Monday?",
        "what did we work on between Monday and Wednesday",
        "where did we go on 10 October",
        "Whom did I meet in March?",
        "anything that's changed this week?",
        "What happened two weeks before Christmas?",
        "Was haben wir letzten Samstag gemacht?",
        "Qu'avons-nous fait la semaine dernière ?",
        "¿Qué hicimos la semana pasada?",
    ],
)
def test_a_time_and_empty_words_ask_for_what_happened_then(query: str) -> None:
    assert asks_what_happened(query)


@pytest.mark.parametrize(
    "query",
    [
        "What did we decide about Kafka last week?",
        "meeting last month",
        "yesterday",
        "What do I have to do today?",
        "what do we do every Monday",
        "Where did Lena go yesterday?",
        "did zorblax frob the blorp last Saturday",
        "What did we learn about Go last week?",
        "what did we learn about go last week",
        "What did we discuss about AI last month?",
        "What did we change in C++ last week?",
        "what did we decide on c# yesterday",
        "What did we learn about ES in March?",
        "what happened in LA last week",
        "What did Will say last week?",
        "What did we do last week? " + "Well, " * 30 + "kafka",
        "我们上周做了什么",
        "",
    ],
)
def test_whatever_else_is_named_is_looked_for(query: str) -> None:
    assert not asks_what_happened(query)


@given(st.text(max_size=60), st.sampled_from(["", " last week", " ago", " since May"]))
def test_no_text_breaks_it(text: str, time: str) -> None:
    assert asks_what_happened(f"did {text}{time}") in (True, False)
