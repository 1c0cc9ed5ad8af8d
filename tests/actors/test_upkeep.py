"""The upkeep of the records, on a real store: at the end of a session, and in maintenance."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from remembrancer.actors.consolidator import maintenance
from remembrancer.protocol.runs import UndoRun
from remembrancer.protocol.session_life import RecordEvents, ToolCall, Turn
from tests.actors.test_consolidation import Workplace, workplace
from tests.operations import OTHER_SESSION, PROJECT, SESSION
from tests.spaces import connect_space


def rows_of(place: Workplace) -> list[int]:
    """The numbers of turns and tool calls that are kept of the session."""
    with closing(connect_space(place.rig.paths, PROJECT.id)) as connection:
        of_session = [f"SELECT count(*) FROM {table} WHERE session_id = ?" for table in ("turns", "tool_calls")]
        return [connection.execute(query, (SESSION,)).fetchone()[0] for query in of_session]


async def test_what_closed_sessions_noted_for_themselves_goes_after_a_while(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "SESSION_DETAILS_KEPT_S", 0.001)
    async with workplace(home) as place:
        await place.start()
        scratch = await place.note("try the other flag", kind="scratchpad")
        outcome = await place.note("pytest: 3 failed", kind="tool_outcome")
        kept = await place.note("the coffee machine is out of order", kind="observation", importance=0.2)
        await place.start(OTHER_SESSION)
        running = await place.note("still needed", kind="scratchpad", session_id=OTHER_SESSION)
        events = RecordEvents(SESSION, (Turn("user", "hello", 1.0),), (ToolCall("Bash", 2.0),))
        await place.change(events)
        assert "notes" not in (await place.maintain()).done, "not while the session runs"
        await place.end()
        plan = await place.maintain(dry_run=True)
        assert rows_of(place) == [1, 1]
        done = await place.maintain()
        counts = [{sort: of.count for sort, of in each.done.items()} for each in (plan, done)]
        assert counts == [{"notes": 2}, {"notes": 2, "pruned": 2}]
        assert set(await place.memories()) == {kept, running}
        assert rows_of(place) == [0, 0]
        assert (await place.session()).status == "completed"
        again = await place.maintain()
        assert (again.done, again.run_ids) == ({}, ())
        (run_id,) = done.run_ids
        await place.change(UndoRun(run_id, "project"), session_id="")
        assert {scratch, outcome} <= set(await place.memories())
        assert "notes" not in (await place.maintain()).done, "somebody wanted it back"
