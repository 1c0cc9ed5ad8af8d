"""The restart policy: at once, then with pauses, within a budget, then rarely."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from remembrancer.actors.launcher.lifecycle import BUDGET, DELAYS_S, SLOW_S, STABLE_S, WINDOW_S, Restarts, Retry


def deaths_at_once(policy: Restarts, number: int, *, now: float = 0.0) -> list[Retry]:
    """The policy's answers when each restarted process dies the moment it was started."""
    said = []
    for _ in range(number):
        said.append(policy.after_death(now, 0.0))
        now += said[-1].delay_s
    return said


def test_the_pauses_grow_to_their_limit() -> None:
    assert [retry.delay_s for retry in deaths_at_once(Restarts(), BUDGET)] == list(DELAYS_S)


def test_the_pause_stays_at_its_limit_while_the_budget_lasts() -> None:
    policy = Restarts()
    now = 0.0
    delays = []
    for _ in range(12):
        now += STABLE_S - 1  # it lives long, though never long enough
        retry = policy.after_death(now, STABLE_S - 1)
        now += retry.delay_s
        delays.append(retry.delay_s)
        assert not retry.exhausted
    assert delays[-3:] == [DELAYS_S[-1]] * 3


def test_a_crash_loop_spends_the_budget_and_is_then_tried_rarely() -> None:
    said = deaths_at_once(Restarts(), BUDGET + 3)
    assert [retry.exhausted for retry in said] == [False] * BUDGET + [True] * 3
    assert {retry.delay_s for retry in said[BUDGET:]} == {SLOW_S}


def test_a_good_life_is_forgiven_everything() -> None:
    policy = Restarts()
    deaths_at_once(policy, BUDGET + 1)
    assert policy.after_death(500.0, STABLE_S) == Retry(0.0, exhausted=False)


def test_a_life_just_short_of_good_is_not_forgiven() -> None:
    policy = Restarts()
    deaths_at_once(policy, BUDGET + 1)
    assert policy.after_death(500.0, STABLE_S - 0.01).exhausted


@given(st.lists(st.floats(min_value=0.0, max_value=STABLE_S * 1.5), min_size=1, max_size=60))
def test_no_window_sees_more_restarts_than_the_budget_and_the_rare_ones(lives: list[float]) -> None:
    policy = Restarts()
    now = 0.0
    starts: list[float] = []
    for lived_s in lives:
        now += lived_s
        if lived_s >= STABLE_S:
            starts.clear()
        now += policy.after_death(now, lived_s).delay_s
        starts.append(now)
        assert len([moment for moment in starts if now - moment < WINDOW_S]) <= BUDGET + WINDOW_S / SLOW_S


@given(st.lists(st.floats(min_value=0.0, max_value=STABLE_S - 0.1), min_size=2, max_size=40))
def test_pauses_never_shrink_without_a_good_life(lives: list[float]) -> None:
    policy = Restarts()
    now = 0.0
    delays = []
    for lived_s in lives:
        now += lived_s
        delays.append(policy.after_death(now, lived_s).delay_s)
        now += delays[-1]
    assert delays == sorted(delays)
