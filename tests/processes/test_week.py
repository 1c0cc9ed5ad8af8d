"""The week of `make demo-week`: a real runtime, real sessions."""

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from bench.client import StdioClient
from bench.harness import Runtime
from examples import week
from tests.forked import run_command
from tests.patience import PATIENCE_S
from tests.runtime import Session


class ForkedRuntime(Runtime):
    def __init__(self, home: Path) -> None:
        self.home, self.environ = home, {"REMEMBRANCER_CALL_BUDGET_S": "40", "REMEMBRANCER_BRIDGE_BUDGET_S": "60"}

    def client(self, directory: Path | None = None, **environ: str) -> StdioClient:
        return Session(self.home, cwd=directory, environ={**self.environ, **environ})

    async def command(self, *arguments: str, directory: Path | None = None) -> tuple[int, str]:
        environ = {**os.environ, "REMEMBRANCER_HOME": str(self.home), **self.environ}
        how: dict[str, Any] = {"environ": environ, "timeout_s": PATIENCE_S, "directory": directory}
        done = await asyncio.to_thread(run_command, *arguments, **how)
        return done.returncode, done.stdout.decode()


async def test_a_week_of_ten_sessions_ends_as_the_model_predicts(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(week, "WAIT_S", PATIENCE_S)
    assert await week.Week(ForkedRuntime(home), Console(quiet=True)).play() == week.STORY["fates"]
