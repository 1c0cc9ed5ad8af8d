"""The page of a session costs the same however much the session did: counts run along indices, and lists are pages."""

from __future__ import annotations

from itertools import pairwise

from remembrancer.actors.store.records.sqlite_records import Records
from remembrancer.protocol.browsing import ReadTurns, TurnsRead
from remembrancer.protocol.session_life import RecordEvents, ToolCall, Turn
from remembrancer.protocol.writes import Operation
from tests.operations import PROJECT, REQUESTED_AT, SESSION

"""Of SQLite's machine for each memory that is only counted: an entry of an index takes some 45, a row whose text is
read twice that."""


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
