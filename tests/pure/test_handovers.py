"""Open ends and the questions that ask for them, and what a session hands over when it ends."""

from __future__ import annotations

import re

import pytest

from remembrancer.memory.handovers import (
    HANDOVER,
    LINE,
    SessionDeeds,
    SessionRecord,
    StoredMemory,
    asks_where_it_stopped,
    is_open_end,
    is_session_record,
    session_record,
)
from remembrancer.protocol.kinds import KINDS, SESSION_RECORD
from remembrancer.toolsets.memory import INSTRUCTIONS

ENDED = 1_700_000_000.0


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


def record(
    *stored: StoredMemory, kept: int = 0, prompts: int = 0, calls: int = 0, files: list[str] | None = None
) -> SessionRecord:
    made = session_record(SessionDeeds(ENDED, stored, kept, prompts, calls, files or []))
    assert made is not None
    return made


def test_an_open_end_written_as_the_instructions_say_is_one() -> None:
    """What a session keeps to itself is quoted nowhere, so that they may not send open ends there."""
    project, session = INSTRUCTIONS.split("(scope project)")[1].split("(scope session)")[0].split("), ")
    (said,) = re.findall(r'open ends as well \("([^"]+)"', project)
    assert is_open_end(said)
    assert "open" not in session


def test_a_record_says_the_open_ends_and_counts_the_rest_without_its_words() -> None:
    said = record(
        StoredMemory("memory:A", "Invoices are paged by cursor.", "fact"),
        StoredMemory("memory:B", "Next: add the index on invoices(created_at, id)", "decision"),
        kept=2,
    )
    assert said.content == (
        "Where the session of 2023-11-14 22:13 UTC stopped. Open: Next: add the index on invoices(created_at, id). "
        "Stored: 1 fact, 1 decision (memory:A, memory:B). Kept to itself: 2."
    )
    assert said.summary == "Next: add the index on invoices(created_at, id)"
    assert said.quoted == ("memory:B",)
    assert said.about["stored"] == ["memory:A", "memory:B"]


def test_what_was_promoted_or_tagged_to_be_handed_over_is_said_in_a_line() -> None:
    said = record(
        StoredMemory("memory:A", "The build needs Java 21.", "fact", is_promoted=True),
        StoredMemory("memory:B", "Ask Ilse about the codes " + "x" * 300, "observation", tags=(HANDOVER,)),
    )
    assert "Promoted: The build needs Java 21." in said.content
    assert "Open: Ask Ilse about the codes" in said.content
    assert len(said.summary) <= LINE
    assert set(said.quoted) == {"memory:A", "memory:B"}


def test_tools_and_files_are_named_and_prompts_are_only_counted() -> None:
    said = record(prompts=3, calls=12, files=[f"src/{number}.py" for number in range(10)])
    assert said.content == (
        "The session of 2023-11-14 22:13 UTC. Prompts: 3, tool calls: 12. "
        "Files: src/0.py, src/1.py, src/2.py, src/3.py, src/4.py, src/5.py, src/6.py, src/7.py and 2 more."
    )
    assert said.quoted == ()


def test_a_session_that_left_nothing_to_its_project_has_no_record() -> None:
    assert session_record(SessionDeeds(ENDED, kept=3, prompts=2)) is None


def test_nobody_can_give_a_memory_the_kind_of_a_record() -> None:
    assert is_session_record(SESSION_RECORD)
    assert not any(is_session_record(kind) for kind in KINDS)
