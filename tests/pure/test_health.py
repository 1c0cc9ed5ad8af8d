"""The health of a runtime, its status for a program and for a person, and the exit status."""

from __future__ import annotations

import io
import json
from contextlib import redirect_stdout
from pathlib import Path

import msgspec
import pytest

from remembrancer.commands.status import duration, lines_of, report
from remembrancer.commands.terminal import print_lines
from remembrancer.protocol.control import GatewayHealth, ProcessState, ProcessStatus, RuntimeStatus, StoreHealth
from remembrancer.protocol.problems import ADVICE, find_problems
from remembrancer.protocol.reads import Counts, EmbeddingSummary

EMBEDDING = EmbeddingSummary("onnx", "all-MiniLM-L6-v2", 384, pending=0, workers=1, vectors_ready=True)
GATEWAY = GatewayHealth(sessions=2, queue_depth=0, queue_rejected=0, store="connected")

UNUSABLE = StoreHealth(Counts(), EMBEDDING, unusable=("p_1/memory.db cannot be read",))


def process(role: str, state: ProcessState = "ready", error: str | None = None) -> ProcessStatus:
    return ProcessStatus(role, 42, state, 0, 12.5, 1024, error, name=role)


def runtime(
    *,
    embedder: ProcessStatus | None = None,
    gateway: GatewayHealth | None = GATEWAY,
    embedding: EmbeddingSummary = EMBEDDING,
) -> RuntimeStatus:
    rows = (process("launcher"), process("gateway"), process("store"), embedder or process("embedder"))
    return RuntimeStatus("/home", rows, gateway, StoreHealth(Counts(total=3), embedding))


@pytest.mark.parametrize(
    ("status", "says"),
    [
        (runtime(gateway=msgspec.structs.replace(GATEWAY, store="away")), "away"),
        (runtime(gateway=msgspec.structs.replace(GATEWAY, store="reconnecting")), "reconnecting"),
        (runtime(gateway=msgspec.structs.replace(GATEWAY, queue_depth=4)), "4 writes are in the queue"),
        (msgspec.structs.replace(runtime(), store=UNUSABLE), "p_1/memory.db cannot be read"),
        (runtime(gateway=None), "gateway has not reported"),
        (runtime(embedding=msgspec.structs.replace(EMBEDDING, workers=0)), "no embedder is ready"),
        (runtime(embedding=msgspec.structs.replace(EMBEDDING, error="no weights")), "no weights"),
        (msgspec.structs.replace(runtime(), store=None), "store has not reported"),
    ],
)
def test_each_thing_that_is_missing_makes_it_degraded(status: RuntimeStatus, says: str) -> None:
    problems = find_problems(status)
    assert [says in problem.what for problem in problems] == [True]


def test_a_runtime_whose_every_part_works_is_well_and_one_of_the_release_before_is_not() -> None:
    assert find_problems(runtime()) == ()
    status = runtime(embedding=msgspec.structs.replace(EMBEDDING, workers=0))
    assert find_problems(msgspec.structs.replace(status, processes=status.processes[:3])) == ()
    status = runtime()
    old = msgspec.structs.replace(status.processes[0], role="launcher", uptime_s=1e9)
    (problem,) = find_problems(msgspec.structs.replace(status, processes=(old, *status.processes[1:])))
    assert "before this release was installed" in problem.what
    assert "remembrancer down" in problem.advice


def test_the_object_for_programs_says_what_the_runtime_said_under_the_same_keys_as_when_nothing_runs() -> None:
    said = json.loads(json.dumps(report(Path("/home"), runtime(), find_problems(runtime()))))
    nothing = report(Path("/home"), None, ())
    assert said.keys() == nothing.keys()
    assert nothing["processes"] == []
    for key in ("write_queue", "embedding", "gateway"):
        assert said[key].keys() == nothing[key].keys()
    store = {"role": "store", "name": "store", "pid": 42, "state": "ready", "error": None}
    assert said["processes"][2] == store | {"restarts": 0, "uptime_s": 12.5, "rss_bytes": 1024}
    assert said["write_queue"]["depth"] == 0
    assert said["embedding"]["model"] == "all-MiniLM-L6-v2"
    assert said["counts"]["total"] == 3
    assert said["warnings"] == []


def printed(status: RuntimeStatus) -> str:
    """The table that a person reads."""
    out = io.StringIO()
    with redirect_stdout(out):
        print_lines(lines_of(status, find_problems(status)))
    return out.getvalue()


def test_the_table_for_persons_says_what_is_wrong_and_what_to_do() -> None:
    text = printed(runtime(embedder=process("embedder", "failed", "no [weights] here")))
    assert "no [weights] here" in text
    assert ADVICE["failed"] in text
    status = runtime(embedding=msgspec.structs.replace(EMBEDDING, dead_letters=1, dead_letter_error="it will not"))
    assert "embedders died of them or refused them: it will not" in printed(status)
    assert report(Path("/h"), status, ())["embedding"]["dead_letters"] == 1


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (59.4, "59 s"), (60, "1 min"), (3600, "1 h 0 min"), (12_000, "3 h 20 min"), (187_200, "2 d 4 h")],
)
def test_a_time_span_is_said_as_a_person_says_it(seconds: float, text: str) -> None:
    assert duration(seconds) == text
