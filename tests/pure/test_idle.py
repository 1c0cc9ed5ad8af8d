"""When a runtime that a session started goes down by itself."""

from __future__ import annotations

from remembrancer.actors.launcher.supervision import IdleWatch


def test_a_runtime_that_no_session_joins_ends_after_the_timeout() -> None:
    assert IdleWatch(300.0, now=100.0).ends_at == 400.0


def test_the_time_counts_from_the_last_moment_with_a_session() -> None:
    idle = IdleWatch(300.0, now=0.0)
    idle.observe(2, now=200.0)
    idle.observe(0, now=250.0)
    idle.observe(0, now=450.0)
    assert idle.ends_at == 500.0


def test_a_session_that_stays_keeps_the_runtime_up() -> None:
    idle = IdleWatch(300.0, now=0.0)
    for now in range(0, 3000, 100):
        idle.observe(1, now=float(now))
        assert idle.ends_at > now


def test_time_in_which_the_launcher_was_suspended_does_not_count() -> None:
    idle = IdleWatch(300.0, now=0.0)
    idle.excuse(1000.0)
    assert idle.ends_at == 1300.0
