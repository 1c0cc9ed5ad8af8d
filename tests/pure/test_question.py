"""A question is read once: its words, names, times, and what it is about."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from remembrancer.actors.store.retrieval.question import Question, read_question
from remembrancer.protocol.reads import Recall
from tests.cases import cases
from tests.operations import PROJECT, SESSION

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC).timestamp()


def read(query: str, **fields: Any) -> Question:
    return read_question(Recall(SESSION, project=PROJECT, query=query, **fields), NOW)


def test_what_is_valid_is_asked_for_at_the_time_of_the_question_and_in_its_zone() -> None:
    assert read("port", valid_only=True).filters.valid_at == NOW
    assert read("port", valid_only=True, reference_time=5.0).filters.valid_at == 5.0
    assert read("port").filters.valid_at is None
    reference = datetime(2023, 5, 19, 16, tzinfo=UTC).timestamp()  # in Tokyo the 20th has begun
    for offset_s, hour in ((9 * 3600.0, 15), (0.0, 0), (None, 0)):
        (window,) = read("yesterday", reference_time=reference, utc_offset_s=offset_s).windows
        assert window.start == datetime(2023, 5, 18, hour, tzinfo=UTC).timestamp()
    assert read("?!").units == []
    assert list(read("?!").phrases) == []


@pytest.mark.parametrize(("query", "is_message", "of_the_user", "of_a_period"), cases("question", "questions"))
def test_a_question_is_a_message_or_of_the_user_or_of_a_period(
    query: str, is_message: bool, of_the_user: bool, of_a_period: bool
) -> None:
    question = read(query)
    assert (question.asked.is_message, question.asked.of_the_user) == (is_message, of_the_user)
    assert (question.period is not None) == of_a_period
