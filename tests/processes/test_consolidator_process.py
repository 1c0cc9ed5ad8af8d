"""The consolidator in a real runtime: it gives way to the others, and the status says what it does."""

from __future__ import annotations

import json
import os
from pathlib import Path

import psutil

from tests.forked import start_runtime
from tests.processes.runtimes import until
from tests.runtime import command, stop_runtime


def test_it_comes_when_there_is_work_gives_way_to_the_others_and_is_in_the_status(home: Path) -> None:
    start_runtime({**os.environ, "REMEMBRANCER_EMBEDDERS": "0"})
    assert json.loads(command("status", "--json", home=home).stdout)["consolidator"]["finished"] is None
    command("admin", "maintain", "--user", home=home)
    idle = {"job": None, "finished": 1, "failed": 0, "error": None}
    until(lambda: json.loads(command("status", "--json", home=home).stdout)["consolidator"] == idle)
    (process,) = (
        each
        for each in json.loads(command("status", "--json", home=home).stdout)["processes"]
        if each["role"] == "consolidator"
    )
    assert psutil.Process(process["pid"]).nice() == 10
    assert "consolidator waits for work; 1 done" in command("status", home=home).stdout
    stop_runtime(home)
