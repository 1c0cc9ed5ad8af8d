"""The beginning and end of a session, and the time for which an answer that was fetched ahead holds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remembrancer.actors.gateway.attendance import Attendance
from remembrancer.actors.gateway.last_answers import HOLDS_S, PreparedAnswers, may_change
from remembrancer.protocol.reads import ContextGathered, GatherContext
from remembrancer.protocol.session_life import EndSession, RecordEvents, StartSession
from remembrancer.protocol.writes import Change, ForgetMemory, StoreMemory, UpdateMemory
from tests.operations import OTHER_PROJECT, OTHER_SESSION, PROJECT, SESSION, change_operation, store_operation

QUESTION = GatherContext(PROJECT, SESSION)


def test_a_session_begins_with_its_first_bridge_and_ends_with_its_last() -> None:
    attendance = Attendance()
    assert attendance.arrive("a", PROJECT, SESSION)
    assert not attendance.arrive("b", PROJECT, SESSION)
    assert not attendance.leave("a", has_said_end=True)
    assert attendance.present() == ((PROJECT, SESSION),)
    assert attendance.leave("b", has_said_end=True)
    assert attendance.present() == ()


def test_a_bridge_that_is_lost_ends_nothing() -> None:
    attendance = Attendance()
    attendance.arrive("a", PROJECT, SESSION)
    assert not attendance.leave("a", has_said_end=False)
    assert attendance.present() == ()
    assert attendance.arrive("again", PROJECT, SESSION)


def test_the_last_bridge_decides_whether_it_was_an_end() -> None:
    attendance = Attendance()
    attendance.arrive("a", PROJECT, SESSION)
    attendance.arrive("b", PROJECT, SESSION)
    attendance.leave("a", has_said_end=True)
    assert not attendance.leave("b", has_said_end=False)


def test_one_session_id_in_two_projects_is_two_sessions() -> None:
    attendance = Attendance()
    assert attendance.arrive("a", PROJECT, SESSION)
    assert attendance.arrive("b", OTHER_PROJECT, SESSION)
    assert attendance.leave("a", has_said_end=True)
    assert attendance.present() == ((OTHER_PROJECT, SESSION),)


def test_a_connection_that_was_never_counted_may_leave() -> None:
    assert not Attendance().leave("a", has_said_end=True)


@given(st.lists(st.tuples(st.integers(0, 4), st.sampled_from([SESSION, OTHER_SESSION]), st.booleans()), max_size=40))
def test_whoever_comes_and_goes_a_session_is_present_as_long_as_it_has_a_bridge(
    steps: list[tuple[int, str, bool]],
) -> None:
    attendance = Attendance()
    there: dict[str, str] = {}
    for number, session, says_end in steps:
        connection = f"c{number}"
        if connection in there:
            others = [name for name, its in there.items() if its == there[connection] and name != connection]
            assert attendance.leave(connection, has_said_end=says_end) == (says_end and not others)
            del there[connection]
        else:
            assert attendance.arrive(connection, PROJECT, session) == (session not in there.values())
            there[connection] = session
        assert {session_id for _, session_id in attendance.present()} == set(there.values())


def ready_since(now: float) -> PreparedAnswers:
    ready = PreparedAnswers()
    ready.finish(QUESTION, ready.begin(QUESTION, now), ContextGathered(()), now)
    return ready


def test_an_answer_that_is_ready_is_given_once() -> None:
    ready = ready_since(100.0)
    assert ready.take(QUESTION, 100.0 + HOLDS_S)
    assert not ready.take(QUESTION, 100.0 + HOLDS_S)


def test_an_answer_grows_old() -> None:
    assert not ready_since(100.0).take(QUESTION, 100.1 + HOLDS_S)


def test_a_clock_that_was_set_back_makes_no_answer_young_again() -> None:
    assert not ready_since(100.0).take(QUESTION, 99.0)


def test_another_question_or_an_answer_in_part_is_not_ready() -> None:
    ready = ready_since(100.0)
    assert not ready.take(GatherContext(PROJECT, OTHER_SESSION), 100.0)
    assert not ready.take(GatherContext(PROJECT, SESSION, task="x"), 100.0)
    ready.finish(QUESTION, ready.begin(QUESTION, 101.0), None, 101.0)
    assert not ready.take(QUESTION, 101.0)


def test_what_is_written_while_the_question_is_under_way_spoils_the_answer() -> None:
    ready = PreparedAnswers()
    prepared = ready.begin(QUESTION, 100.0)
    assert not ready.take(QUESTION, 100.0)
    ready.note_write(store_operation("a", "new"))
    ready.finish(QUESTION, prepared, ContextGathered(()), 100.5)
    assert not ready.take(QUESTION, 100.5)


def test_what_was_never_asked_for_is_let_go() -> None:
    ready = ready_since(100.0)
    ready.begin(GatherContext(PROJECT, OTHER_SESSION), 200.0)
    assert len(ready) == 1


@pytest.mark.parametrize(
    ("change", "here", "elsewhere"),
    [
        (StartSession(SESSION), False, False),
        (EndSession(SESSION), False, False),
        (RecordEvents(SESSION), False, False),
        (
            StoreMemory(memory_id="memory:1", content="x", type="semantic", scope="project", session_id=OTHER_SESSION),
            True,
            False,
        ),
        (
            StoreMemory(memory_id="memory:1", content="x", type="semantic", scope="session", session_id=OTHER_SESSION),
            True,
            False,
        ),
        (
            StoreMemory(memory_id="memory:1", content="x", type="semantic", scope="user", session_id=OTHER_SESSION),
            True,
            True,
        ),
        (UpdateMemory("memory:1", content="x"), True, True),
        (ForgetMemory("memory:1"), True, True),
    ],
)
def test_a_write_counts_wherever_it_may_be_seen(change: Change, here: bool, elsewhere: bool) -> None:
    assert may_change(change_operation("a", change, project=PROJECT), PROJECT.id) is here
    assert may_change(change_operation("a", change, project=OTHER_PROJECT), PROJECT.id) is elsewhere
