"""The retrieval benchmark with its real runtime: both forms, both ways to start it, and its end."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.benchmarks.test_retrieval import locomo, longmemeval
from tests.conftest import processes_of
from tests.processes.runtimes import until

ROOT = Path(__file__).parents[2]


def measured(arguments: list[str], data: Any, directory: Path, status: int = 0) -> dict[str, Any]:
    """The benchmark's output for this data, and nothing beside it."""
    path = directory / "data.json"
    path.write_text(json.dumps(data))
    finished = subprocess.run(
        [sys.executable, *arguments, "--data", str(path), "--json"],
        cwd=ROOT,
        capture_output=True,
        timeout=100,
        check=False,
    )
    assert finished.returncode == status, finished.stderr.decode()
    printed: dict[str, Any] = json.loads(finished.stdout)
    return printed


def test_sessions_are_stored_embedded_and_found(home: Path, tmp_path: Path) -> None:
    read = longmemeval(question="Where is the \0 key \ud800?")
    read["sessions"]["s1"] = [{"role": "user", "content": "Hello, and \0. " + "\n" * 300_000 + "Bye."}]
    printed = measured(["-m", "bench.retrieval"], read, tmp_path)
    assert printed["questions"] == 1
    assert printed["problems"] == []
    assert printed["data"]["memories"] == 2
    assert printed["data"]["passages"] >= 2
    for figures in printed["systems"].values():
        assert figures["any@1"] == figures["all@5"] == figures["NDCG@10"] == 100.0


def test_turns_are_measured_by_the_path_of_the_script_and_nonsense_is_asked(home: Path, tmp_path: Path) -> None:
    printed = measured(["bench/retrieval.py", "--abstain"], locomo(), tmp_path)
    assert printed["questions"] == 2
    assert printed["data"]["questions_left_out"] == {"name no evidence": 1}
    assert printed["systems"]["remembrancer"]["fractional@10"] > 0
    assert printed["abstention"]["asked"] == 60
    assert printed["abstention"]["short_questions"]["asked"] == 36


def test_a_question_that_is_refused_is_told_and_the_others_are_measured(home: Path, tmp_path: Path) -> None:
    asked = [{"question": "boat " * 4000, "evidence": ["D1:1"], "category": 1}, *locomo()[0]["qa"]]
    printed = measured(["-m", "bench.retrieval"], locomo(qa=asked), tmp_path, status=1)
    (problem,) = printed["problems"]
    assert "question conv-1/0 is not answered" in problem
    assert printed["questions"] == 3
    assert 0 < printed["systems"]["remembrancer"]["any@1"] < 100


@pytest.mark.parametrize("stopped_by", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_stops_the_runtime_and_removes_its_home(
    home: Path, tmp_path: Path, stopped_by: signal.Signals
) -> None:
    path = tmp_path / "data.json"
    path.write_text(json.dumps(longmemeval()))
    with subprocess.Popen(
        [sys.executable, "-m", "bench.retrieval", "--data", str(path)], cwd=ROOT, stderr=subprocess.PIPE
    ) as process:
        own_home = until(lambda: _home_of_its_runtime(process.pid))
        process.send_signal(stopped_by)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 130, said.decode()
    assert not own_home.exists()
    assert processes_of(own_home) == []


def _home_of_its_runtime(pid: int) -> Path | None:
    """The home that a session of the benchmark names, once a runtime lives there."""
    for child in psutil.Process(pid).children():
        try:
            named = child.environ().get("REMEMBRANCER_HOME")
        except psutil.Error:
            continue
        if named and named.startswith("/tmp/rmb-bench-") and (Path(named) / "runtime.json").exists():
            return Path(named)
    return None
