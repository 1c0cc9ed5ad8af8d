"""The consolidator in a real runtime: it gives way to the others, and the status says what it does."""

from __future__ import annotations

import json
import os
from pathlib import Path

import psutil

from tests.forked import start_runtime
from tests.processes.runtimes import until
from tests.runtime import command, stop_runtime


def test_it_gives_way_to_the_others_and_is_in_the_status(home: Path) -> None:
    start_runtime({**os.environ, "REMEMBRANCER_EMBEDDERS": "0"})
    idle = {"job": None, "finished": 0, "failed": 0, "error": None}
    until(lambda: json.loads(command("status", "--json", home=home).stdout)["consolidator"] == idle)
    (process,) = (
        each
        for each in json.loads(command("status", "--json", home=home).stdout)["processes"]
        if each["role"] == "consolidator"
    )
    assert psutil.Process(process["pid"]).nice() == 10
    until(lambda: "consolidator waits for work" in command("status", home=home).stdout)
    stop_runtime(home)
