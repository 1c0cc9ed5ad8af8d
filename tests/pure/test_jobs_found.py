"""Which jobs follow from how a file stands, and which sessions have been abandoned."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remembrancer.actors.store.job_finder import FORGOTTEN_S, RETRY_S, Attempts, SessionWatch, jobs_of
from remembrancer.actors.store.records.types import MaintenanceState, WaitingWork
from remembrancer.protocol.consolidation import Job, Maintain, Promotable, PromoteAtOnce, SessionEnded
from remembrancer.protocol.session_life import SessionEntry
from tests.operations import OTHER_SESSION, PROJECT, SESSION

NOW = 1_700_000_000.0
RUNNING = SessionEntry("session:running", NOW - 100, NOW)
ENDED = SessionEntry("session:ended", NOW - 100, NOW, ended_at=NOW)


def jobs(work: WaitingWork) -> list[object]:
    return [job.work for job in jobs_of(PROJECT.id, PROJECT, work, NOW)]


def maintained(days_ago: float | None, *, sessions: int = 0, oldest_days_ago: float | None = 100.0) -> WaitingWork:
    done_at = None if days_ago is None else NOW - days_ago * 86_400
    oldest_at = None if oldest_days_ago is None else NOW - oldest_days_ago * 86_400
    return WaitingWork(maintenance=MaintenanceState(done_at, sessions), oldest_at=oldest_at)


def test_a_session_that_has_ended_is_a_job_each_time_and_one_that_runs_is_none() -> None:
    assert jobs(WaitingWork()) == []
    assert jobs(WaitingWork(sessions=(RUNNING, ENDED))) == [SessionEnded(ENDED)]
    again = SessionEntry("session:ended", NOW - 100, NOW, ended_at=NOW + 1)
    (first,) = jobs_of(PROJECT.id, PROJECT, WaitingWork(sessions=(ENDED,)), NOW)
    (second,) = jobs_of(PROJECT.id, PROJECT, WaitingWork(sessions=(again,)), NOW)
    assert first.key != second.key


@pytest.mark.parametrize(
    ("work", "due"),
    [
        (maintained(6.9), False),
        (maintained(7.0), True),
        (maintained(1.0, sessions=9), False),
        (maintained(1.0, sessions=10), True),
        (maintained(None, oldest_days_ago=6.9), False),
        (maintained(None, oldest_days_ago=7.0), True),
        (maintained(None, sessions=10, oldest_days_ago=1.0), True),
        (maintained(None, sessions=10, oldest_days_ago=None), False),
        (maintained(-3.0), False),
        (maintained(-400.0), True),
    ],
)
def test_maintenance_is_due_after_ten_sessions_or_a_week(work: WaitingWork, due: bool) -> None:
    assert any(isinstance(job, Maintain) for job in jobs(work)) == due


def test_maintenance_goes_last_and_is_all_that_the_user_s_file_has() -> None:
    work = WaitingWork((ENDED,), (Promotable("a", 1, 0),), MaintenanceState(0.0, 0), oldest_at=0.0)
    assert [type(each) for each in jobs(work)] == [SessionEnded, PromoteAtOnce, Maintain]
    (only,) = jobs_of("user", None, work, NOW)
    assert only == Job(None, Maintain(None))


# --- Attempts.


def session_end(name: str = "session:1") -> Job:
    return Job(PROJECT, SessionEnded(SessionEntry(name, 1.0, 2.0, ended_at=3.0)))


def test_the_first_due_job_of_a_sort_is_handed_out_and_the_next_one_while_it_pauses() -> None:
    attempts, due = Attempts(), [session_end("1"), Job(PROJECT, Maintain(PROJECT)), session_end("2")]
    assert attempts.take(due, "asked", 0.0) is None
    assert attempts.take(due, "session", 0.0) == due[0]
    attempts.finish(due[0], 0.0)
    assert attempts.take(due, "session", 0.0) == due[2]
    assert attempts.take(due, "long", 0.0) == due[1]


@pytest.mark.parametrize("dies", [True, False])
def test_a_job_that_is_still_due_comes_again_after_longer_and_longer_pauses(dies: bool) -> None:
    attempts, job, now = Attempts(), session_end(), 0.0
    for made, (if_died_s, if_done_s) in enumerate(zip(RETRY_S, (*RETRY_S[1:], RETRY_S[-1]), strict=True)):
        assert attempts.made(job) == made
        assert attempts.take([job], "session", now) == job
        pause_s = if_died_s
        if not dies:
            now += 1000.0
            attempts.finish(job, now)
            pause_s = if_done_s
        if pause_s:
            assert attempts.take([job], "session", now + pause_s - 0.1) is None
        now += pause_s
    attempts.forget(job)
    assert attempts.take([job], "session", now - 0.1) == job


def test_attempts_at_what_is_not_due_are_forgotten_and_one_in_a_lane_pauses_in_any_time() -> None:
    attempts, job = Attempts(), session_end()
    assert attempts.take([job], "session", 0.0) == job
    attempts.keep([job])
    assert attempts.take([], "session", 1.0) is None
    assert attempts.made(job) == 1
    attempts.keep([])
    assert attempts.made(job) == 0
    attempts = Attempts()
    first, again = (Job(PROJECT, Maintain(PROJECT), at) for at in (1.0, 2.0))
    assert attempts.take([first], "long", 0.0) == first
    attempts.finish(first, 0.0)
    assert attempts.take([again], "long", 1.0) is None


# --- Which sessions have been abandoned: by presence while the store runs, by the registry after a restart.


GRACE_S = 120.0
WALL = 1_700_000_000.0
KEY = (PROJECT.id, SESSION)


AGES_S = FORGOTTEN_S * 2


@pytest.mark.parametrize(
    ("heard_at", "looked_at", "silent_s", "is_lost"),
    [
        pytest.param([1000.0], 1000.0 + GRACE_S, 0.0, False, id="its connection is gone"),
        pytest.param([1000.0], 1000.1 + GRACE_S, 0.0, True, id="for longer than the grace time"),
        pytest.param([0.0, 100.0], 150.0, 0.0, False, id="it came back in time"),
        pytest.param([0.0, 200.0], 201.0, AGES_S, False, id="it begins again after a silence"),
        pytest.param([0.0], 1.0, 100 * FORGOTTEN_S, False, id="the clock of the wall jumps ahead"),
        pytest.param([], 0.0, FORGOTTEN_S, False, id="never connected"),
        pytest.param([], 0.0, FORGOTTEN_S + 1.0, True, id="never connected for more than a day"),
        pytest.param([], 0.0, -10 * FORGOTTEN_S, False, id="the clock was set back"),
        pytest.param(range(0, 360_000, 3600), 356_405.0, AGES_S, False, id="connected, however long"),
    ],
)
def test_a_session_is_lost_after_the_grace_time_without_connection_or_a_day_without_activity(
    heard_at: Sequence[float], looked_at: float, silent_s: float, is_lost: bool
) -> None:
    watch, at_hand = SessionWatch(GRACE_S), {KEY: WALL - silent_s}
    for now in heard_at:
        watch.note([KEY], now)
        assert watch.lost(at_hand, now + 1.0, WALL) == []
    assert watch.lost(at_hand, looked_at, WALL) == ([KEY] if is_lost else [])


def test_a_session_heard_of_once_is_lost_after_the_grace_time_and_what_is_over_is_forgotten() -> None:
    watch = SessionWatch(GRACE_S)
    watch.note([KEY], 200.0)
    assert watch.lost({}, 201.0, WALL) == [], "the registry may not have been read since"
    assert watch.lost({KEY: WALL}, 200.1 + GRACE_S, WALL) == [KEY]
    watch = SessionWatch(GRACE_S)
    watch.note([(PROJECT.id, f"session:{number}") for number in range(1000)], 0.0)
    watch.lost({}, GRACE_S + 1.0, WALL)
    assert watch.watched == 0


@given(
    st.lists(st.tuples(st.floats(0.1, 200.0), st.sets(st.sampled_from([SESSION, OTHER_SESSION])))),
    st.floats(0.0, 1000.0),
)
def test_only_what_was_away_for_longer_than_the_grace_time_is_lost(
    notes: list[tuple[float, set[str]]], after_s: float
) -> None:
    watch, now = SessionWatch(GRACE_S), 0.0
    seen: dict[str, float] = {}
    sessions = {(PROJECT.id, name): WALL for name in (SESSION, OTHER_SESSION)}
    for pause_s, present in notes:
        now += pause_s
        watch.note([(PROJECT.id, name) for name in present], now)
        seen |= dict.fromkeys(present, now)
    now += after_s
    expected = [key for key in sessions if key[1] in seen and now - seen[key[1]] > GRACE_S]
    assert watch.lost(sessions, now, WALL) == expected
