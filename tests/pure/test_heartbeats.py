"""The detection of hangs: silence counts from the first unanswered ping, while the launcher itself was running."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from remembrancer.actors.launcher.lifecycle import Heartbeat

TIMEOUT_S = 2.5
INTERVAL_S = 0.5


def test_a_process_that_was_never_asked_does_not_hang() -> None:
    assert not Heartbeat(TIMEOUT_S).hangs(1e9)


def test_silence_counts_from_the_first_unanswered_ping() -> None:
    beat = Heartbeat(TIMEOUT_S)
    beat.pinged(10.0)
    beat.pinged(11.0)
    assert beat.silent_s(12.0) == 2.0


def test_silence_of_exactly_the_timeout_is_still_life() -> None:
    beat = Heartbeat(TIMEOUT_S)
    beat.pinged(10.0)
    assert not beat.hangs(10.0 + TIMEOUT_S)
    assert beat.hangs(10.0 + TIMEOUT_S + 0.001)


def test_an_answer_ends_the_silence() -> None:
    beat = Heartbeat(TIMEOUT_S)
    beat.pinged(10.0)
    beat.answered()
    assert not beat.hangs(100.0)
    beat.pinged(100.0)
    assert beat.silent_s(101.0) == 1.0


def test_time_in_which_the_launcher_was_suspended_is_excused() -> None:
    beat = Heartbeat(TIMEOUT_S)
    beat.pinged(10.0)
    beat.excuse(3600.0)  # the timer that was due at 10.5 fired an hour later
    assert not beat.hangs(3610.5)
    assert beat.hangs(3613.0)


def test_a_timer_that_fired_early_takes_nothing_back() -> None:
    beat = Heartbeat(TIMEOUT_S)
    beat.pinged(10.0)
    beat.excuse(-1.0)
    assert beat.silent_s(11.0) == 1.0


@given(st.lists(st.floats(min_value=0.0, max_value=30.0), min_size=1, max_size=20))
def test_only_beats_that_came_in_time_make_a_process_hang(lateness: list[float]) -> None:
    beat = Heartbeat(TIMEOUT_S)
    now = 0.0
    beat.pinged(now)
    for beats, late_s in enumerate(lateness, start=1):
        now += INTERVAL_S + late_s
        beat.excuse(late_s)
        assert abs(beat.silent_s(now) - beats * INTERVAL_S) < 1e-6
        beat.pinged(now)
