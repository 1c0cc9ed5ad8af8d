"""A short soak: all tools from six sessions while everything is killed. `python -m tests.faults.soak` is a long one."""

from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path

import pytest

import tests.runtime
from bench import harness
from tests.faults import soak
from tests.faults.soak import run

KILLS = 20
PACE_S = 0.5


class ForkedRuntime(harness.Runtime):
    """As its base, but that commands are forked."""

    async def command(self, *arguments: str, directory: Path | None = None) -> tuple[int, str]:
        done = await asyncio.to_thread(
            tests.runtime.command, *arguments, home=self.home, directory=directory, variables=self.environ
        )
        return done.returncode, done.stdout


@pytest.mark.anyio
@pytest.mark.hurried
@pytest.mark.usefixtures("home")
async def test_what_six_sessions_were_acknowledged_bears_twenty_kills(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(soak, "Runtime", ForkedRuntime)
    monkeypatch.setattr(soak, "StdioClient", tests.runtime.Session)
    seed = int(os.environ.get("FAULT_SEED", random.SystemRandom().randrange(10**6)))
    print(f"FAULT_SEED={seed}")
    found = await run(KILLS, 6, seed, PACE_S, embedders=1)
    assert not found.wrong, found.wrong[:5]
    assert (found.lost, found.doubled) == (0, 0)
    assert sum(found.kills.values()) == KILLS
    assert found.acknowledged > KILLS
