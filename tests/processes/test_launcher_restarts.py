"""Real processes that die, hang, refuse or never come up, under a real launcher."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from tests.processes.runtimes import QUICK, behave, is_dead, runtime, until


def test_a_process_that_is_killed_takes_what_it_started_with_it_and_is_replaced_and_the_others_learn_of_it(
    home: Path,
) -> None:
    behave(home, "store", "has a child")
    with runtime(home) as running:
        before = running.until_ready()["store"]
        child = int(running.lines("store.child")[0])
        os.kill(before.pid, signal.SIGKILL)
        after = running.until_state("store", "ready", besides_pid=before.pid)
        assert after.restarts == 1
        first, second = running.starts("store")
        assert first != second
        until(lambda: f"gone: store {first}" in running.heard("gateway"))
        until(lambda: f"gone: store {first}" in running.heard("embedder-1"))
        until(lambda: is_dead(child))


def test_a_process_that_is_stuck_in_its_work_is_replaced(home: Path) -> None:
    behave(home, "gateway", "is busy for 60 s")
    with runtime(home, settings=QUICK) as running:
        until(lambda: running.starts("gateway"))
        behave(home, "gateway", "")
        until(lambda: running.starts("gateway")[1:])
        assert running.until_state("gateway", "ready").restarts >= 1
        assert running.lines("gateway.ended") == []


def test_a_failure_to_start_that_is_reported_is_shown_and_not_retried(home: Path) -> None:
    behave(home, "embedder-1", "cannot start")
    with runtime(home) as running:
        running.until_ready("gateway", "store")
        failed = running.until_state("embedder-1", "failed")
        assert failed.error == "the weights are missing"
        told = "failed: embedder model_unusable"
        until(lambda: told in running.heard("store"))
        before = running.heard("store").count(told)
        os.kill(running.until_state("store", "ready").pid, signal.SIGKILL)  # a latecomer is told, too
        until(lambda: running.heard("store").count(told) > before)
        assert len(running.starts("embedder-1")) == 1
        behave(home, "embedder-1", "")
        running.scale(1)
        running.until_ready("embedder-1")
