"""The page of a session costs the same however much the session did: counts run along indices, and lists are pages."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

from remembrancer.actors.store.records.sessions import TOPICS_OF, describe_session, read_session_start
from remembrancer.actors.store.records.space import SpaceConnection
from remembrancer.actors.store.records.sqlite_records import Records
from remembrancer.protocol.browsing import ReadTurns, TurnsRead
from remembrancer.protocol.session_life import RecordEvents, ToolCall, Turn
from remembrancer.protocol.writes import Operation
from tests.operations import PROJECT, REQUESTED_AT, SESSION

MANY = 4 * TOPICS_OF
STEP = 100
MOST_STEPS = 60
"""Of SQLite's machine for each memory that is only counted: an entry of an index takes some 45, a row whose text is
read twice that."""


def fill(records: Records, first: int, count: int) -> None:
    """Store memories of the session, each with a tag that only a thousand share."""
    connection = records._file.file.writer
    connection.execute("BEGIN")
    connection.executemany(
        """INSERT INTO memories (space, id, type, scope, session_id, importance, characters, created_at, updated_at,
               content_digest, content, tags, source)
           VALUES (1, ?, 'semantic', 'project', ?, 0.5, 9, 1, 1, ?, ?, ?, '{}')""",
        [
            (f"memory:{n}", SESSION, str(n).encode(), f"lantern {n}", f'["lamps","of {n // TOPICS_OF}"]')
            for n in range(first, first + count)
        ],
    )
    connection.execute("COMMIT")


def steps_of(records: Records) -> int:
    """The work of describing a session and its beginning, in steps of SQLite's machine: the same on any
    computer."""
    connection = records._file.file.writer
    done = Counter[str]()

    def note() -> None:
        done["steps"] += STEP

    connection.set_progress_handler(note, STEP)
    query = SpaceConnection(connection, 1).query
    describe_session(query, records.spaces, (), SESSION)
    read_session_start(query, SESSION)
    connection.set_progress_handler(None, 0)
    return done["steps"]


def test_a_session_of_many_memories_has_its_topics_from_the_last_of_them_and_its_counts_from_an_index(
    records: Records,
) -> None:
    fill(records, 0, MANY)
    few = steps_of(records)
    fill(records, MANY, MANY)
    many = steps_of(records)
    described = records.describe_session(SESSION)
    assert described.topics == ("lamps", "of 7")
    assert described.stored_by_type == {"semantic": 2 * MANY}
    assert (many - few) / MANY < MOST_STEPS


def test_what_was_said_and_done_is_read_page_by_page_from_the_last_to_the_first(records: Records) -> None:
    at = REQUESTED_AT
    events = RecordEvents(
        SESSION,
        turns=tuple(Turn("user", f"turn {n}", at + n) for n in range(7)),
        tool_calls=tuple(ToolCall(f"tool {n}", at + n // 2, {"n": n}) for n in range(16)),
    )
    records.apply([Operation("events", PROJECT, SESSION, at, events)])
    before: tuple[int, int] | None = None
    pages: list[TurnsRead] = []
    while not pages or before is not None:
        page = records.browse(ReadTurns(PROJECT, SESSION, before, 5))
        assert isinstance(page, TurnsRead)
        pages.append(page)
        before = page.earlier
    assert [len(page.turns) + len(page.tool_calls) for page in pages] == [5, 5, 5, 5, 3]
    assert tuple(turn for page in reversed(pages) for turn in page.turns) == events.turns
    assert tuple(call for page in reversed(pages) for call in page.tool_calls) == events.tool_calls
    times = [[turn.at for turn in page.turns] + [call.at for call in page.tool_calls] for page in pages]
    assert all(min(later) >= max(earlier) for later, earlier in pairwise(times))
