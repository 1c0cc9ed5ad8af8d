"""The duration of a call, and the line in the log about a slow one."""

from __future__ import annotations

import asyncio
import logging
import time

import pytest

from remembrancer.protocol.tracing import (
    SLOW_CALL,
    SLOW_S,
    CallTiming,
    last_durations_s,
    timing_of,
    waiting_for_store,
)


@pytest.mark.parametrize(("lasted_s", "is_logged"), [(SLOW_S - 0.1, False), (SLOW_S + 0.1, True)])
def test_a_slow_call_is_logged_in_one_line_and_no_other(
    caplog: pytest.LogCaptureFixture, lasted_s: float, is_logged: bool
) -> None:
    timing = CallTiming(time.monotonic() - lasted_s)
    with caplog.at_level(logging.INFO), timing_of(timing, "recall_memories"):
        timing.end()
        timing.end()
    assert last_durations_s()[-1] == pytest.approx(lasted_s, abs=0.09)
    lines = [vars(each) for each in caplog.records if each.message == SLOW_CALL]
    assert [line["tool"] for line in lines] == ["recall_memories"] * is_logged
    for line in lines:
        assert line["total_ms"] >= lasted_s * 1000
        assert line["store_ms"] == 0


async def test_waits_for_the_store_count_for_the_call_that_they_belong_to() -> None:
    async def wait() -> None:
        with waiting_for_store():
            await asyncio.sleep(0.02)

    mine, other = CallTiming(), CallTiming()
    with timing_of(mine, "store_memory"):
        await asyncio.create_task(wait())
    await wait()
    assert mine.store_s >= 0.02
    assert other.store_s == 0


def test_what_is_no_call_of_a_tool_is_not_counted() -> None:
    before = last_durations_s()
    CallTiming().end()
    assert last_durations_s() == before
