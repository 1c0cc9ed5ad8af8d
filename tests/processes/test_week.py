"""The week of `make demo-week`: a real runtime, real sessions."""

import os
import subprocess
from functools import partial
from pathlib import Path

import anyio
import pytest
from mcp import StdioServerParameters
from rich.console import Console

from examples import sessions, week
from examples.sessions import server
from tests.forked import run_command, start_runtime
from tests.patience import PATIENCE_S


async def forked_command(home: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    """As `sessions.command`."""
    run = partial(run_command, *arguments, environ={**os.environ, **(server(home, home).env or {})})
    return await anyio.to_thread.run_sync(partial(run, timeout_s=PATIENCE_S))


def forked(home: Path, project: Path, **environ: str) -> StdioServerParameters:
    """As `sessions.server`, with a runtime that is forked."""
    parameters = server(home, project, **environ)
    start_runtime({**os.environ, **(parameters.env or {})})
    return parameters


async def test_a_week_of_ten_sessions_ends_as_the_model_predicts(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (sessions, week):
        monkeypatch.setattr(module, "command", forked_command)
        monkeypatch.setattr(module, "server", forked)
    monkeypatch.setattr(week, "WAIT_S", PATIENCE_S)
    played = week.Week(home, Console(quiet=True))
    assert await played.play() == week.STORY["fates"]
    assert played.missed == []
