"""The time of a call: the notes of a process, and how those of all become the way of one call."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from pathlib import Path

import pytest

from remembrancer.commands.status import slow_calls
from remembrancer.protocol.tracing import (
    MOST_MARKS,
    NO_TRACE,
    SLOW_CALL,
    SLOW_S,
    Trace,
    begin,
    current,
    follow,
    last_durations_s,
    working_on,
)


async def test_a_task_that_outlives_its_call_adds_nothing_to_it() -> None:
    may_go_on = asyncio.Event()

    async def live_on() -> Trace:
        assert current() is not NO_TRACE
        await may_go_on.wait()
        current().mark("long after")
        return current()

    with working_on(begin("store_memory")) as trace:
        task = asyncio.create_task(live_on())
        await asyncio.sleep(0)
        trace.end("answered")
    may_go_on.set()
    assert await task is NO_TRACE


@pytest.mark.parametrize(("lasted_s", "is_logged"), [(SLOW_S - 0.1, False), (SLOW_S + 0.1, True)])
def test_a_slow_call_is_logged_in_one_line_and_no_other(
    caplog: pytest.LogCaptureFixture, lasted_s: float, is_logged: bool
) -> None:
    now = time.monotonic()
    with caplog.at_level(logging.INFO), working_on(begin("recall_memories")) as trace:
        current().mark("call read", now - lasted_s)
        current().part("searched", now - 0.01)
        trace.end("answered")
        trace.end("answered twice")
    assert current() is NO_TRACE
    assert last_durations_s()[-1] == pytest.approx(lasted_s, abs=0.09)
    lines = [vars(each) for each in caplog.records if each.message == SLOW_CALL]
    assert len(lines) == is_logged
    for line in lines:
        assert (line["trace"], line["title"]) == (trace.id, "recall_memories")
        assert [name for name, _, _ in line["marks"]] == ["call read", "searched", "answered"]


def test_a_call_that_does_something_without_end_notes_its_beginning() -> None:
    trace = begin("any")
    for number in range(2 * MOST_MARKS):
        trace.mark(str(number))
    assert len(trace._marks) == MOST_MARKS


def test_each_call_has_an_id_of_its_own_and_a_message_without_one_leaves_no_trace() -> None:
    assert len({begin("any").id for _ in range(10)}) == 10
    assert follow("", "Ping") is NO_TRACE


def logged(actor: str, trace: str, *marks: tuple[str, float, float | None]) -> str:
    line = {"time": "2026-01-01T10:00:00+0000", "event": SLOW_CALL, "actor": actor, "trace": trace, "title": "asked"}
    return json.dumps({**line, "marks": marks}) + "\n"


def test_the_lines_of_all_processes_become_one_way_in_the_order_of_time(tmp_path: Path) -> None:
    gateway = logged("gateway", "aa", ("call read", 10.0, None), ("store asked", 10.1, None), ("written", 11.0, None))
    quicker = logged("gateway", "bb", ("call read", 20.0, None), ("written", 20.5, None))
    (tmp_path / "gateway.log").write_text(gateway + "not JSON\n" + quicker)
    marks = (("received", 10.2, None), ("words", 10.3, 0.2), ("answered", 10.8, None), ("tidied", 12.0, None))
    (tmp_path / "store.log").write_text(logged("store", "aa", *marks) + logged("store", "cc", *marks))
    first, last = slow_calls(tmp_path)
    assert (first.trace, round(first.total_ms), last.trace, round(last.total_ms)) == ("aa", 1000, "bb", 500)
    assert [(each.process, each.step, round(each.took_ms), each.beside) for each in first.steps] == [
        ("gateway", "store asked", 100, False),
        ("store", "received", 100, False),
        ("store", "words", 200, True),
        ("store", "answered", 600, False),
        ("gateway", "written", 200, False),
    ]
    assert sum(each.share for each in first.steps if not each.beside) == pytest.approx(1)
