"""The time for which an answer that was fetched ahead holds."""

from __future__ import annotations

import pytest

from remembrancer.actors.gateway.last_answers import HOLDS_S, PreparedContexts, may_change
from remembrancer.protocol.reads import ContextGathered, GatherContext
from remembrancer.protocol.session_life import EndSession, RecordEvents, StartSession
from remembrancer.protocol.writes import Change, ForgetMemory, StoreMemory, UpdateMemory
from tests.operations import OTHER_PROJECT, OTHER_SESSION, PROJECT, SESSION, change_operation, store_operation

QUESTION = GatherContext(PROJECT, SESSION)


def ready_since(now: float) -> PreparedContexts:
    ready = PreparedContexts()
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
    ready = PreparedContexts()
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
