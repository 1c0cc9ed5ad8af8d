"""The work on a whole file waits while many memories are being embedded, and never for ever."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from remembrancer.actors.store.job_queue import BACKLOG, LONGEST_HOLD_S, STANDSTILL_S, Backlog


def test_a_few_memories_without_vectors_are_not_waited_for() -> None:
    assert Backlog().held_until(BACKLOG, 5.0) == 5.0


def test_a_backlog_that_shrinks_is_waited_for_until_it_is_small() -> None:
    backlog = Backlog()
    now = 0.0
    for pending in range(10_000, BACKLOG, -50):
        assert backlog.held_until(pending, now) > now
        now += STANDSTILL_S / 3
        if now >= LONGEST_HOLD_S - STANDSTILL_S:
            break
    assert backlog.held_until(BACKLOG, now) == now


def test_a_backlog_that_nobody_works_on_is_not_waited_for() -> None:
    backlog = Backlog()
    assert backlog.held_until(5000, 0.0) > 0.0
    assert backlog.held_until(5000, STANDSTILL_S - 0.5) == STANDSTILL_S
    assert backlog.held_until(5000, STANDSTILL_S) == STANDSTILL_S


@given(pending=st.lists(st.integers(BACKLOG + 1, 10_000), min_size=1), step_s=st.floats(0.1, 100.0))
def test_no_backlog_holds_anything_for_longer_than_its_bound(pending: list[int], step_s: float) -> None:
    backlog = Backlog()
    now = 100.0
    for count in pending:
        until = backlog.held_until(count, now)
        assert now <= until <= max(now, 100.0 + LONGEST_HOLD_S)
        now += step_s
