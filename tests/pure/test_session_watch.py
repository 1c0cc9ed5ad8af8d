"""Which sessions have been abandoned: by presence while the store runs, by the registry after a restart."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from remembrancer.actors.store.job_finder import FORGOTTEN_S, OpenSession, SessionWatch
from tests.operations import OTHER_PROJECT, OTHER_SESSION, PROJECT, SESSION

GRACE_S = 120.0
WALL = 1_700_000_000.0
KEY = (PROJECT.id, SESSION)


def session(last_active_at: float = WALL, *, key: tuple[str, str] = KEY) -> OpenSession:
    return OpenSession(key, last_active_at)


def test_a_session_that_is_connected_is_not_lost_however_long_it_lasts() -> None:
    watch = SessionWatch(GRACE_S)
    for hour in range(100):
        now = hour * 3600.0
        watch.note([KEY], now)
        assert watch.lost([session()], now + 5.0, WALL + now) == []


def test_a_session_whose_connection_is_gone_is_lost_after_the_grace_time() -> None:
    watch = SessionWatch(GRACE_S)
    watch.note([KEY], 1000.0)
    assert watch.lost([session()], 1000.0 + GRACE_S, WALL) == []
    assert watch.lost([session()], 1000.1 + GRACE_S, WALL) == [session()]


def test_a_session_that_comes_back_in_time_is_not_lost() -> None:
    watch = SessionWatch(GRACE_S)
    watch.note([KEY], 0.0)
    watch.note([KEY], 100.0)
    assert watch.lost([session()], 150.0, WALL) == []


def test_a_session_that_begins_again_is_not_lost_for_its_earlier_silence() -> None:
    watch = SessionWatch(GRACE_S)
    watch.note([KEY], 0.0)
    watch.note([KEY], 200.0)
    assert watch.lost([session(WALL - 2 * FORGOTTEN_S)], 201.0, WALL) == []


def test_a_session_that_was_heard_of_once_and_never_again_is_lost_after_the_grace_time() -> None:
    watch = SessionWatch(GRACE_S)
    watch.note([KEY], 200.0)
    assert watch.lost([], 201.0, WALL) == [], "the registry may not have been read since"
    assert watch.lost([session()], 200.1 + GRACE_S, WALL) == [session()]


def test_a_session_that_was_never_connected_is_lost_after_a_day_without_activity() -> None:
    watch = SessionWatch(GRACE_S)
    assert watch.lost([session(WALL - FORGOTTEN_S)], 0.0, WALL) == []
    old = session(WALL - FORGOTTEN_S - 1.0)
    assert watch.lost([old], 0.0, WALL) == [old]


def test_a_clock_that_was_set_back_makes_no_session_old() -> None:
    assert SessionWatch(GRACE_S).lost([session(WALL + 10 * FORGOTTEN_S)], 0.0, WALL) == []


def test_a_wall_clock_that_jumps_ahead_does_not_end_a_session_that_is_connected() -> None:
    watch = SessionWatch(GRACE_S)
    watch.note([KEY], 0.0)
    assert watch.lost([session()], 1.0, WALL + 100 * FORGOTTEN_S) == []


def test_sessions_of_one_name_in_two_projects_are_two() -> None:
    watch = SessionWatch(GRACE_S)
    other = session(key=(OTHER_PROJECT.id, SESSION))
    watch.note([KEY, other.key], 0.0)
    watch.note([KEY], 500.0)
    assert watch.lost([session(), other], 500.0, WALL) == [other]


def test_what_is_over_is_not_remembered() -> None:
    watch = SessionWatch(GRACE_S)
    watch.note([(PROJECT.id, f"session:{number}") for number in range(1000)], 0.0)
    watch.lost([], GRACE_S + 1.0, WALL)
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
    sessions = [session(key=(PROJECT.id, name)) for name in (SESSION, OTHER_SESSION)]
    for pause_s, present in notes:
        now += pause_s
        watch.note([(PROJECT.id, name) for name in present], now)
        seen |= dict.fromkeys(present, now)
    now += after_s
    expected = [each for each in sessions if each.key[1] in seen and now - seen[each.key[1]] > GRACE_S]
    assert watch.lost(sessions, now, WALL) == expected
