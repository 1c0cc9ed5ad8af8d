"""The consolidator in a real runtime: it comes after the others, comes back when it is killed, and leaves in order."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from remembrancer.commands import exit_codes
from remembrancer.protocol.consolidation import Maintain
from remembrancer.protocol.errors import ConsolidatorUnavailable
from remembrancer.protocol.session_life import EndSession, StartSession
from tests.actors.store_process import Gateway
from tests.conftest import PATIENT_ENVIRONMENT, processes_of
from tests.forked import ForkedProcess, start_command
from tests.operations import SESSION, change_operation
from tests.patience import PATIENCE_S
from tests.processes.runtimes import is_dead, until
from tests.runtime import command

pytestmark = pytest.mark.anyio
WELL_ENOUGH = (exit_codes.OK, exit_codes.DEGRADED)
"""What the status ends with: there are no embedders, and after some seconds that is said."""


@contextmanager
def runtime(home: Path, **settings: str) -> Iterator[ForkedProcess]:
    """A real runtime without embedders, stopped in order at the end."""
    given = {"REMEMBRANCER_HOME": str(home), "REMEMBRANCER_EMBEDDERS": "0"}
    environ = {**os.environ, **PATIENT_ENVIRONMENT, **given, **settings}
    printed = home / "printed"
    launcher = start_command("up", environ=environ, printed=printed)
    try:
        yield launcher
        if launcher.poll() is None:
            launcher.send_signal(signal.SIGTERM)
            assert launcher.wait(PATIENCE_S) == 0
            ended = re.findall(r"stopped +(\w+)", printed.read_text())
            assert ended == [role for role in ("gateway", "consolidator", "store") if role in ended]
        assert processes_of(home) == []
    finally:
        if launcher.poll() is None:
            launcher.kill()
            launcher.wait()


def status(home: Path) -> dict[str, Any]:
    said: dict[str, Any] = json.loads(command("status", "--json", home=home).stdout)
    return said


def in_status(home: Path, name: str) -> list[Any]:
    """One field of all processes in the status, which the launcher has answered in time."""
    return [each[name] for each in until(lambda: status(home)["processes"])]


def consolidator(home: Path, *, besides: int = 0) -> dict[str, Any]:
    """The consolidator in the status, once it is ready under another pid than `besides`."""

    def ready() -> dict[str, Any] | None:
        rows = [each for each in status(home)["processes"] if each["role"] == "consolidator"]
        return rows[0] if rows and rows[0]["state"] == "ready" and rows[0]["pid"] != besides else None

    return until(ready)


def test_it_comes_after_the_others_gives_way_to_them_and_is_in_the_status(home: Path) -> None:
    with runtime(home):
        process = psutil.Process(consolidator(home)["pid"])
        assert process.nice() == 10
        until(lambda: set(in_status(home, "state")) == {"ready"})
        assert in_status(home, "role") == ["launcher", "gateway", "store", "consolidator"]
        idle = {"job": None, "finished": 0, "failed": 0, "error": None}
        until(lambda: status(home)["consolidator"] == idle)
        until(lambda: "consolidator waits for work" in command("status", home=home).stdout)
        assert command("status", home=home).returncode in WELL_ENOUGH


def test_it_comes_back_when_it_is_killed_and_does_not_outlive_a_launcher_that_is(home: Path) -> None:
    with runtime(home) as launcher:
        before = consolidator(home)["pid"]
        os.kill(before, signal.SIGKILL)
        after = consolidator(home, besides=before)
        assert after["restarts"] == 1
        assert in_status(home, "restarts") == [0, 0, 0, 1]
        launcher.kill()
        until(lambda: is_dead(after["pid"]))
        assert processes_of(home) == []
        launcher.wait()
        with runtime(home):
            consolidator(home, besides=after["pid"])


async def test_it_is_asked_about_the_end_of_a_session(home: Path) -> None:
    with runtime(home):
        consolidator(home)
        gateway = Gateway(home)
        async with gateway.dealer:
            await gateway.store("Something")
            for name, change in (("start", StartSession(SESSION)), ("end", EndSession(SESSION))):
                await gateway.submit(change_operation(name, change))

        def has_tried() -> bool:
            health = status(home)["consolidator"] or {"finished": 0, "failed": 0}
            return bool(health["finished"] or health["failed"])

        until(has_tried)


async def test_a_runtime_without_one_is_well_and_refuses_what_would_need_it(home: Path) -> None:
    with runtime(home, REMEMBRANCER_CONSOLIDATOR="0"):
        until(lambda: set(in_status(home, "state")) == {"ready"})
        assert in_status(home, "role") == ["launcher", "gateway", "store"]
        assert command("status", home=home).returncode in WELL_ENOUGH
        gateway = Gateway(home)
        async with gateway.dealer:
            with pytest.raises(ConsolidatorUnavailable):
                await gateway.ask(Maintain(None))
