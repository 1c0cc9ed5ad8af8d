"""Open ends and the questions that ask for them, and what a session hands over when it ends."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from remembrancer.actors.consolidator.session_end import did_of, hand_over
from remembrancer.memory.handovers import HANDOVER, asks_where_it_stopped, is_open_end
from remembrancer.protocol.consolidation import Material, SessionRead
from remembrancer.protocol.runs import AddMemory, Edit, ReviseMemory
from remembrancer.protocol.session_life import SessionEntry
from tests.pure.consolidator_world import material

ENDED = 1_700_000_000.0
ENTRY = SessionEntry("session:s", ENDED - 3600, ENDED, ended_at=ENDED, ending="completed")


@pytest.mark.parametrize(
    "sentence",
    [
        "Next: add the index on invoices(created_at, id)",
        "the migration is half written",
        "Still to do: docs for the CLI",
        "The tests for refunds are not yet written",
        "Blocked by the staging credentials",
        "TODO rename the queue",
        "Continue with the parser tomorrow",
        "Weiter mit dem Export",
    ],
)
def test_what_is_to_be_done_is_an_open_end(sentence: str) -> None:
    assert is_open_end(sentence)


@pytest.mark.parametrize(
    "sentence",
    [
        "The build needs Java 21",
        "Redis holds the sessions",
        "We page by cursor on the next server",
        "The left column is frozen",
        "Svetlana owns billing",
    ],
)
def test_what_is_so_is_none(sentence: str) -> None:
    assert not is_open_end(sentence)


@pytest.mark.parametrize(
    "question",
    [
        "what is next?",
        "What's next",
        "what did I do in the last session?",
        "where did we leave off",
        "What should I work on now?",
        "what is still to do?",
        "continue where we left off",
        "anything unfinished?",
        "open ends",
        "Was ist als nächstes dran?",
    ],
)
def test_questions_for_where_it_stopped(question: str) -> None:
    assert asks_where_it_stopped(question)


@pytest.mark.parametrize(
    "question",
    [
        "which database do we use?",
        "what is next.js used for here",
        "how long is a session cookie valid?",
        "where is the retry limit?",
        "what is the left join in the report for?",
        "how do I resume a paused subscription",
        "what do we do about flaky tests",
    ],
)
def test_questions_for_something_else(question: str) -> None:
    assert not asks_where_it_stopped(question)


def handed(memories: Sequence[Material], read: SessionRead, earlier: Sequence[Material] = ()) -> Sequence[Edit]:
    return hand_over(ENTRY, did_of(memories, read), memories, read, earlier)


def test_a_session_hands_over_its_open_ends_first_and_then_what_it_did() -> None:
    memories = [
        material(1, "Invoices are paged by cursor.", importance=0.9),
        material(2, "Next: add the index on invoices(created_at, id); the migration is half written", scope="session"),
        material(3, "a note for the moment: TODO", kind="scratchpad", scope="session"),
    ]
    adding, *rest = handed(memories, SessionRead(None))
    assert isinstance(adding, AddMemory)
    assert adding.memory.content == (
        "Where the session of 2023-11-14 22:13 UTC stopped. Open: Next: add the index on invoices(created_at, id); "
        "the migration is half written. Invoices are paged by cursor."
    )
    assert (adding.memory.scope, adding.memory.tags) == ("project", (HANDOVER,))
    assert len(rest) == 2, "links to what it was made of"


def test_turns_tell_where_a_session_stopped_that_stored_nothing() -> None:
    turns = (("user", "Make the export faster."), ("assistant", "Batches are in. Next step: measure with 1 GB."))
    adding, *_ = handed([], SessionRead(None, 2, turns))
    assert isinstance(adding, AddMemory)
    assert "Open: Next step: measure with 1 GB." in adding.memory.content
    assert handed([], SessionRead(None)) == ()


def test_a_session_that_ends_again_replaces_what_it_handed_over() -> None:
    earlier = material(7, "Where it stopped before", tags=(HANDOVER,))
    _, archived, *_ = handed([material(1, "The cache is warm.")], SessionRead(None), [earlier])
    assert isinstance(archived, ReviseMemory)
    assert (archived.memory_id, archived.status) == (earlier.id, "archived")
