"""Questions that ask for all of a time, and the many that do not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remembrancer.memory.times.period_questions import _PAST, KINDS_NAMED, LONGEST, PeriodQuestion, asks_for_period
from remembrancer.memory.times.windows import time_windows
from remembrancer.protocol.kinds import KINDS
from tests.cases import cases

NOW = 1_795_100_000.0


@pytest.mark.parametrize(("query", "kinds"), cases("period_questions", "periods"))
def test_a_question_may_ask_for_all_of_a_time_or_for_its_memories_of_a_kind(query: str, kinds: str) -> None:
    assert asks_for_period(query) == PeriodQuestion(frozenset(each for each in KINDS if each in kinds.split()))
    assert time_windows(query, NOW) != ()


@pytest.mark.parametrize(
    "query", [*cases("period_questions", "no_periods"), "what did we do yesterday? " + "and what did we do? " * 20]
)
def test_a_question_with_a_subject_a_moment_or_a_plan_asks_for_no_period(query: str) -> None:
    assert asks_for_period(query) is None


@given(
    st.text(max_size=LONGEST + 20)
    | st.lists(st.sampled_from([*sorted(KINDS_NAMED), *sorted(_PAST), "hier"])).map(" ".join)
)
def test_no_text_breaks_it_and_a_long_one_asks_for_something(query: str) -> None:
    assert asks_for_period(query) is None or len(query) <= LONGEST
