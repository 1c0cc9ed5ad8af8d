"""Background work steps back while clients are served, and not for ever."""

from __future__ import annotations

import time

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from remembrancer.actors.store.requests import BURST_S, IDLE_S, LONGEST_HOLD_S, READING_S, LoadGate
from tests.patience import PATIENCE_S

moments = st.floats(0.0, 1000.0)


def test_embedding_waits_for_a_burst_and_the_index_is_tidied_when_nobody_is_at_work() -> None:
    gate = LoadGate()
    gate.begin()
    assert gate.hold_s(10.0, 10.0) == pytest.approx(BURST_S)
    gate.end(10.1)
    assert gate.hold_s(10.1, 10.0) == pytest.approx(BURST_S)
    assert gate.hold_s(10.1 + BURST_S, 10.0) == 0.0
    gate = LoadGate()
    gate.begin()
    assert not gate.is_idle(1000.0)
    gate.end(1000.0)
    assert not gate.is_idle(1000.0 + IDLE_S / 2)
    assert gate.is_idle(1000.0 + IDLE_S)


@given(moments, moments)
def test_a_lasting_burst_does_not_hold_embedding_for_ever(now: float, waited: float) -> None:
    gate = LoadGate()
    gate.begin()
    held_s = gate.hold_s(now, now - waited)
    assert held_s == pytest.approx(max(0.0, min(BURST_S, LONGEST_HOLD_S - waited)), abs=1e-9)


async def test_embedding_waits_while_files_are_read_and_their_reading_does_not_wait_for_itself() -> None:
    gate = LoadGate()
    now = time.monotonic()
    gate.note_reading(now)
    assert gate.hold_s(now, now) == pytest.approx(READING_S)
    assert gate.hold_s(now + READING_S, now) == 0.0
    gate.note_reading(now + 3600.0)
    with anyio.fail_after(PATIENCE_S):
        await gate.step_aside()
    assert not gate.is_serving(now)
