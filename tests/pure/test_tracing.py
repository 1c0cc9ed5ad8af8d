"""The time of a call: the notes of a process, and how those of all become the way of one call."""

from __future__ import annotations

import asyncio
import io
import time
from contextlib import redirect_stdout

import pytest

from remembrancer.actors.launcher.process_control import Answers
from remembrancer.commands.status import CallTrace, choose, join, lines_of_call, table_of_calls
from remembrancer.commands.terminal import print_lines
from remembrancer.protocol.control import CommandRefused, Pong, ProcessTraces, QueueChanged, TracesGathered, TracesTold
from remembrancer.protocol.errors import StorageFull
from remembrancer.protocol.sockets import Speaker
from remembrancer.protocol.tracing import (
    KEPT,
    MOST_MARKS,
    NO_TRACE,
    Mark,
    Trace,
    TraceReport,
    Traces,
    current,
    working_on,
)
from remembrancer.protocol.wire import Envelope, decode_envelope, encoder


def told(process: str, *marks: Mark, trace: str = "0000002a", is_over: bool = True) -> ProcessTraces:
    return ProcessTraces(process, (TraceReport(trace, f"asked of {process}", marks, is_over),))


GATEWAY = told("gateway", Mark("call read", 10.0), Mark("store asked", 10.001), Mark("answer written", 10.010))
STORE = told("store", Mark("received", 10.002), Mark("words", 10.003, 0.002), Mark("answered", 10.008))


def test_what_is_noted_inside_of_a_call_is_kept_under_its_id() -> None:
    traces = Traces()
    with working_on(traces.begin("recall_memories")) as trace:
        current().mark("checked", 1.0)
        current().part("searched", time.monotonic() - 1)
        current().end("answered")
    assert current() is NO_TRACE
    (report,) = traces.reports(trace.id)
    assert (report.title, report.is_over) == ("recall_memories", True)
    assert [mark.name for mark in report.marks] == ["checked", "searched", "answered"]
    assert report.marks[0] == Mark("checked", 1.0)
    assert report.marks[1].took_s is not None
    assert report.marks[1].took_s >= 1
    assert traces.reports("another") == ()


@pytest.mark.anyio
async def test_a_task_that_outlives_its_call_adds_nothing_to_it() -> None:
    traces = Traces()
    may_go_on = asyncio.Event()

    async def live_on() -> Trace:
        assert current() is not NO_TRACE
        await may_go_on.wait()
        current().mark("long after")
        return current()

    with working_on(traces.begin("store_memory")) as trace:
        task = asyncio.create_task(live_on())
        await asyncio.sleep(0)
        trace.end("answered")
    may_go_on.set()
    assert await task is NO_TRACE
    assert [mark.name for mark in traces.reports()[0].marks] == ["answered"]


def test_the_last_calls_are_kept_with_the_beginnings_of_those_without_end() -> None:
    traces = Traces()
    ids = [traces.begin("any").id for _ in range(KEPT + 10)]
    assert len(set(ids)) == len(ids)
    assert [report.trace for report in traces.reports()] == ids[10:]
    trace = traces.begin("any")
    for number in range(2 * MOST_MARKS):
        trace.mark(str(number))
    assert len(trace.report().marks) == MOST_MARKS


def test_outside_of_a_call_and_of_a_message_without_a_trace_nothing_is_noted() -> None:
    assert current() is NO_TRACE
    current().mark("something")
    assert NO_TRACE.report().marks == ()
    traces = Traces()
    assert traces.follow("", "Ping") is NO_TRACE
    assert traces.reports() == ()


def test_an_envelope_names_the_call_that_it_is_part_of_and_one_without_is_understood() -> None:
    speaker = Speaker("gateway", "01G")
    assert speaker.envelope().trace == ""
    with working_on(Traces().begin("any")) as trace:
        envelope = speaker.envelope(timeout_s=1)
    assert envelope.trace == trace.id
    assert decode_envelope(encoder.encode(envelope)) == envelope
    whole = encoder.encode(Envelope(1, 7, "store", "01S"))
    assert decode_envelope(bytes([whole[0] - 1]) + whole[1:-1]) == Envelope(1, 7, "store", "01S")


def test_the_steps_of_all_processes_become_one_way_in_the_order_of_time() -> None:
    (call,) = join([STORE, GATEWAY])
    assert (call.tool, round(call.total_ms, 3)) == ("asked of gateway", 10)
    way = [(hop.came_from, hop.process, hop.step, round(hop.took_ms, 3)) for hop in call.hops if not hop.beside]
    assert way == [
        (None, "gateway", "store asked", 1),
        ("gateway", "store", "received", 1),
        (None, "store", "answered", 6),
        ("store", "gateway", "answer written", 2),
    ]
    assert sum(hop.share for hop in call.hops if not hop.beside) == pytest.approx(1)
    (part,) = (hop for hop in call.hops if hop.beside)
    assert (part.step, round(part.at_ms, 3), round(part.took_ms, 3)) == ("words", 3, 2)


def test_what_goes_on_elsewhere_after_the_answer_or_what_no_gateway_noted_is_no_part_of_a_call() -> None:
    late = told("store", Mark("received", 10.002), Mark("tidied", 11.0))
    (call,) = join([GATEWAY, late])
    assert call.total_ms == pytest.approx(10)
    assert [hop.step for hop in call.hops] == ["store asked", "received", "answer written"]
    assert join([STORE]) == join([told("gateway")]) == []


def test_a_call_is_chosen_by_its_id_its_age_or_its_length() -> None:
    short = told("gateway", Mark("a", 20.0), Mark("b", 20.001), trace="short")
    open_one = told("gateway", Mark("a", 30.0), Mark("b", 39.0), trace="open", is_over=False)
    calls = join([short, open_one, GATEWAY])

    def chosen(wanted: str) -> str | None:
        call = choose(calls, wanted)
        return None if call is None else call.trace

    assert [call.trace for call in calls] == ["0000002a", "short", "open"]
    assert (chosen("last"), chosen("slowest"), chosen("open"), chosen("none")) == ("short", "0000002a", "open", None)
    assert choose([], "last") is None
    assert choose([], "slowest") is None


def printed(calls: list[CallTrace], *, one: bool) -> str:
    out = io.StringIO()
    with redirect_stdout(out):
        print_lines(lines_of_call(calls[0]) if one else [table_of_calls(calls)])
    return out.getvalue()


def test_a_person_reads_where_the_time_went() -> None:
    calls = join([GATEWAY, STORE])
    table = printed(calls, one=True)
    assert "asked of gateway 0000002a" in table
    assert "gateway → store: received" in table
    assert "60%" in table
    assert "0000002a" in printed(calls, one=False)
    assert "store: answered" in printed(calls, one=False)


@pytest.mark.anyio
async def test_an_answer_waits_for_all_that_were_asked_and_names_who_does_not_answer_in_time() -> None:
    answers = Answers((TracesTold,), ["gateway", "store"])
    answers.note("a stranger", TracesTold(STORE.traces))
    answers.note("store", Pong())
    answers.note("store", TracesTold(STORE.traces))
    await answers.wait(0.01)
    assert answers.traces() == TracesGathered((STORE,), ("gateway",))
    answers.note("gateway", TracesTold(GATEWAY.traces))
    await answers.wait(30)
    assert answers.traces() == TracesGathered((GATEWAY, STORE))
    await Answers((TracesTold,), []).wait(30)


@pytest.mark.anyio
async def test_two_commands_that_ask_at_once_get_their_own_answers() -> None:
    first, second = (Answers((QueueChanged, CommandRefused), ["gateway"], number) for number in (1, 2))
    for said in (QueueChanged(7, 1), CommandRefused("storage_full", "no room", 2)):
        for answers in (first, second):
            answers.note("gateway", said)
    assert first.queue_changed() == QueueChanged(7, 1)
    with pytest.raises(StorageFull, match="no room"):
        second.queue_changed()
