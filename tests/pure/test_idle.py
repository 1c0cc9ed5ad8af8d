"""The time at which a runtime that a session started goes down by itself."""

from __future__ import annotations

import math

from remembrancer.actors.launcher.supervision import FIRST_SESSION_S, IdleWatch


def idle_watch(timeout_s: float = 300.0) -> IdleWatch:
    """Of a gateway that is ready at the time 0."""
    idle = IdleWatch(timeout_s)
    idle.ready(0.0)
    return idle


def test_nothing_ends_for_idleness_before_it_was_ready() -> None:
    idle = IdleWatch(5.0)
    idle.excuse(2.0)
    assert idle.ends_at == math.inf
    idle.ready(now=100.0)
    assert idle.ends_at == 100.0 + FIRST_SESSION_S, "the session that started it has time to come"
    idle.observe(1, now=101.0)
    idle.ready(now=200.0)
    assert idle.ends_at == 106.0


def test_a_runtime_that_no_session_joins_ends_after_the_timeout() -> None:
    assert idle_watch().ends_at == 300.0


def test_the_time_counts_from_the_last_moment_with_a_session() -> None:
    idle = idle_watch()
    idle.observe(2, now=200.0)
    idle.observe(0, now=250.0)
    idle.observe(0, now=450.0)
    assert idle.ends_at == 500.0


def test_a_session_that_stays_keeps_the_runtime_up() -> None:
    idle = idle_watch()
    for now in range(0, 3000, 100):
        idle.observe(1, now=float(now))
        assert idle.ends_at > now


def test_time_in_which_the_launcher_was_suspended_does_not_count() -> None:
    idle = idle_watch()
    idle.excuse(1000.0)
    assert idle.ends_at == 1300.0
