"""The pruning of what grows with each session: it goes when nobody needs it any more, and nothing else does."""

from __future__ import annotations

import pytest

from remembrancer.actors.store.records.background import KEPT_VERSIONS
from remembrancer.actors.store.records.sqlite_records import Records
from remembrancer.actors.store.records.types import USER
from remembrancer.protocol.errors import NotFound
from remembrancer.protocol.runs import Prune, ReviseMemory
from remembrancer.protocol.session_life import EndSession, RecordEvents, StartSession, ToolCall, Turn
from remembrancer.protocol.writes import Applied, PromoteMemory, UpdateMemory
from tests.contracts.records_factories import SqliteFactory, writer_of
from tests.contracts.runs_rig import (
    ONE,
    TWO,
    carry_out,
    closing,
    shown,
    stored,
    undo_operation,
)
from tests.operations import OTHER_SESSION, REQUESTED_AT, SESSION, change_operation

TURNS = tuple(Turn("user", f"turn {n}", float(n)) for n in range(5))
CALLS = (ToolCall("Bash", 1.5), ToolCall("Read", 2.5))


@pytest.fixture
def records(factory: SqliteFactory) -> Records:
    """A session that is closed and one that runs, each with turns and tool calls; and a run."""
    made = factory.open()
    made.apply(stored())
    for session in (SESSION, OTHER_SESSION):
        made.apply([change_operation(f"start {session}", StartSession(session), session_id=session)])
        events = RecordEvents(session, TURNS, CALLS)
        made.apply([change_operation(f"events {session}", events, session_id=session)])
    made.apply([change_operation("end", EndSession(SESSION))])
    carry_out(made, closing(made), run_id="closing")
    carry_out(made, *(ReviseMemory(each, "archived", status="archived") for each in (ONE, TWO)))
    return made


def nothing(limit: int = 1000, **fields: float) -> Prune:
    """To remove what is older than no time at all, but for what is given."""
    return Prune(**({"sessions_before": 0.0, "runs_before": 0.0, "operations_before": 0.0} | fields), limit=limit)


def pruned(records: Records, edit: Prune) -> int:
    """The number of rows removed, in as many transactions as it takes."""
    total, part = 0, 0
    while True:
        removed = carry_out(records, edit, run_id="pruning", name=f"prune {edit} {part}", at=REQUESTED_AT + 10).pruned
        assert removed <= edit.limit
        total, part = total + removed, part + 1
        if removed < edit.limit:
            return total


def test_turns_and_tool_calls_of_sessions_closed_long_ago_go(factory: SqliteFactory, records: Records) -> None:
    assert pruned(records, nothing(sessions_before=factory.clock.now)) == 0, "not before the time"
    edit = nothing(sessions_before=factory.clock.now + 1, limit=2)
    assert pruned(records, edit) == 7
    assert pruned(records, nothing(sessions_before=factory.clock.now + 1)) == 0
    assert records.describe_session(SESSION).started_at is not None
    kept = [
        records._file.read(f"SELECT session_id, count(*) FROM {table} WHERE space = @SPACE GROUP BY session_id")
        for table in ("turns", "tool_calls")
    ]
    assert kept == [[(OTHER_SESSION, 5)], [(OTHER_SESSION, 2)]]


def test_a_run_of_long_ago_cannot_be_undone_any_more_and_its_memories_stay(
    factory: SqliteFactory, records: Records
) -> None:
    edit = nothing(runs_before=factory.clock.now + 1, limit=1)
    assert pruned(records, edit) == 2
    (outcome,) = records.apply([undo_operation("undo")])
    assert isinstance(outcome.reply, NotFound)
    assert "cannot be undone any more" in outcome.reply.message
    assert [entry.change for entry in shown(records, ONE).history] == ["stored", "archived"]


def test_what_came_of_operations_of_long_ago_goes(factory: SqliteFactory, records: Records) -> None:
    before = factory.clock.now + 1
    assert pruned(records, nothing(operations_before=before)) > 5
    assert records.outcome_of("end") is None


def test_old_versions_behind_many_newer_ones_go(factory: SqliteFactory, records: Records) -> None:
    for number in range(KEPT_VERSIONS + 5):
        records.apply([change_operation(f"update {number}", UpdateMemory(ONE, importance=0.1 + number / 1000))])
    before = shown(records, ONE).history
    long_ago = nothing(runs_before=factory.clock.now + 1)
    assert pruned(records, nothing(runs_before=factory.clock.now)) == 0, "not before the time"
    pruned(records, long_ago)
    after = shown(records, ONE).history
    assert after == (before[0], *before[-KEPT_VERSIONS:])
    assert pruned(records, nothing(runs_before=factory.clock.now + 2)) == 0


def test_the_log_and_the_history_of_what_has_gone_to_the_user_go_and_it_can_still_be_taken_back(
    factory: SqliteFactory, records: Records
) -> None:
    user = Records(records._file.file, USER, factory.clock)
    writer = writer_of(records, user)
    writer.apply([change_operation("away", PromoteMemory(ONE, "user"))])
    long_ago = nothing(runs_before=factory.clock.now + 1)
    for each in (records, user):
        pruned(each, long_ago)
    assert rows(records, "history", ONE) == 0
    assert len(shown(user, ONE).history) == 3
    assert rows(user, "promotion_log", ONE) == 1, "it is there, and says why"
    (back,) = writer.apply([change_operation("back", PromoteMemory(ONE, "project"))])
    assert isinstance(back.reply, Applied)
    assert [entry.change for entry in shown(records, ONE).history] == ["stored", "archived", "promoted", "taken back"]
    pruned(user, long_ago)
    assert (rows(user, "promotion_log", ONE), rows(user, "history", ONE)) == (0, 0)


def rows(records: Records, table: str, memory_id: str = "%") -> int:
    """The number of a space's rows in a table, of one memory or of all."""
    count = f"SELECT count(*) FROM {table} WHERE space = @SPACE AND memory_id LIKE ?"
    ((found,),) = records._file.read(count, (memory_id,))
    return int(found)
