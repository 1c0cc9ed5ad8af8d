"""The week of `make demo-week`: a real runtime, real sessions."""

from __future__ import annotations

import os
import subprocess
from functools import partial
from pathlib import Path

import anyio
import pytest
from mcp import StdioServerParameters

from examples import sessions
from examples.sessions import server
from examples.week import playing
from examples.week.predictions import outcomes
from tests.forked import run_command, start_runtime
from tests.patience import PATIENCE_S


@pytest.fixture(autouse=True)
def processes_are_forked(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (sessions, playing):
        monkeypatch.setattr(module, "command", forked_command)
        monkeypatch.setattr(module, "server", forked)


async def forked_command(
    home: Path, *arguments: str, directory: Path | None = None, stdin: str = "", **environ: str
) -> subprocess.CompletedProcess[bytes]:
    """As `sessions.command`."""
    variables = {**os.environ, **(server(home, home, **environ).env or {})}
    run = partial(run_command, *arguments, environ=variables, stdin=stdin.encode(), directory=directory)
    return await anyio.to_thread.run_sync(partial(run, timeout_s=PATIENCE_S))


def forked(home: Path, project: Path, **environ: str) -> StdioServerParameters:
    """As `sessions.server`, with a runtime that is forked."""
    parameters = server(home, project, **environ)
    start_runtime({**os.environ, **(parameters.env or {})})
    return parameters


async def test_a_week_of_ten_sessions_ends_as_the_model_predicts(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(playing, "WAIT_S", PATIENCE_S)
    told: list[str] = []
    played = await playing.play(home, told.append)
    assert played.journal.trouble == []
    for rule, predicted, happened in outcomes(played):
        assert happened == predicted, rule
    assert sum(line.startswith("[bold]day") for line in told) == len(
        {session["day"] for session in playing.STORY["sessions"]}
    )
