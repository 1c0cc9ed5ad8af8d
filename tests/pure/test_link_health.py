"""How the gateway sees the store, and when it tries it again."""

from __future__ import annotations

from remembrancer.actors.gateway.store_link import LinkHealth, LinkState


def try_in_vain(health: LinkHealth, times: int) -> tuple[list[float], list[LinkState]]:
    """The pauses before so many attempts without an answer, and the state after each."""
    pauses, states = [], []
    for _ in range(times):
        pauses.append(health.next_pause_s())
        health.attempt()
        health.silent()
        states.append(health.state)
    return pauses, states


def test_a_new_connection_is_trusted_once_it_has_answered() -> None:
    health = LinkHealth()
    states: list[LinkState] = [health.state]
    for event in (health.connection, health.answered, health.connection):
        event()
        states.append(health.state)
    assert states == ["reconnecting", "reconnecting", "connected", "reconnecting"]


def test_a_silent_store_is_tried_at_once_then_after_1_2_4_and_8_seconds_and_then_every_30() -> None:
    health = LinkHealth()
    health.answered()
    health.silent()
    assert health.state == "away"
    pauses, states = try_in_vain(health, 7)
    assert pauses == [0.0, 1.0, 2.0, 4.0, 8.0, 30.0, 30.0]
    assert states == ["away"] * 4 + ["degraded"] * 3


def test_a_connection_begins_the_schedule_anew() -> None:
    health = LinkHealth()
    try_in_vain(health, 6)
    health.connection()
    assert (health.state, health.next_pause_s(), health.attempts) == ("reconnecting", 0.0, 0)


def test_an_answer_ends_it_and_the_next_silence_begins_at_the_beginning() -> None:
    health = LinkHealth()
    try_in_vain(health, 6)
    health.answered()
    assert (health.state, health.attempts, health.has_answered) == ("connected", 0, True)
    health.silent()
    assert (health.state, health.next_pause_s()) == ("away", 0.0)
