"""Sessions that begin before their project has a file."""

from __future__ import annotations

from remembrancer.actors.store.memory_files import MAX_PENDING_SESSIONS, PendingSessions
from remembrancer.protocol.session_life import EndSession, StartSession
from tests.operations import OTHER_PROJECT, OTHER_SESSION, PROJECT, SESSION, change_operation, store_operation


def test_the_starts_of_a_project_wait_until_they_are_taken() -> None:
    waiting = PendingSessions()
    one = change_operation("one", StartSession(SESSION, "a client"))
    two = change_operation("two", StartSession(OTHER_SESSION))
    elsewhere = change_operation("three", StartSession(SESSION), project=OTHER_PROJECT)
    for operation in (one, two, elsewhere, store_operation("s", "something")):
        waiting.note(operation)
    assert waiting.take(PROJECT.id) == [one, two]
    assert waiting.take(PROJECT.id) == []
    assert waiting.take(OTHER_PROJECT.id) == [elsewhere]


def test_a_session_that_has_ended_meanwhile_waits_no_more_and_the_last_start_counts() -> None:
    waiting = PendingSessions()
    again = change_operation("again", StartSession(SESSION, "another client"))
    waiting.note(change_operation("one", StartSession(SESSION, "a client")))
    waiting.note(again)
    waiting.note(change_operation("two", StartSession(OTHER_SESSION)))
    waiting.note(change_operation("end", EndSession(OTHER_SESSION)))
    assert waiting.take(PROJECT.id) == [again]


def test_only_so_many_wait_and_the_oldest_are_let_go() -> None:
    waiting = PendingSessions()
    for number in range(MAX_PENDING_SESSIONS + 2):
        waiting.note(change_operation(f"start {number}", StartSession(f"session:{number}")))
    assert len(waiting) == MAX_PENDING_SESSIONS
    assert waiting.take(PROJECT.id)[0].operation_id == "start 2"
