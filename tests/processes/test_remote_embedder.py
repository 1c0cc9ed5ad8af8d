"""`remembrancer admin embedder`: a real worker with the real model over TCP, killed, paused, not let in."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from remembrancer.config.settings import Settings
from tests.actors.store_process import StoreRig, store_rig
from tests.forked import ForkedProcess, start_command
from tests.patience import PATIENCE_S, until
from tests.runtime import command

LISTENING = Settings(embedder_listen="tcp://127.0.0.1:0", embedders=0, stall_timeout_s=3.0)


@pytest.fixture
async def rig(home: Path) -> AsyncIterator[StoreRig]:
    async with store_rig(home, settings=LISTENING) as made:
        yield made


async def states(rig: StoreRig) -> dict[str, str]:
    remote = (await rig.health()).remote
    assert remote is not None
    return {each.name: each.state for each in remote.workers}


async def until_is(rig: StoreRig, name: str, state: str) -> None:
    async def is_so() -> bool:
        return (await states(rig))[name] == state

    await until(is_so)


async def start(rig: StoreRig, tmp_path: Path, name: str) -> ForkedProcess:
    """Invite an embedder and start it, each by its command."""
    file = tmp_path / f"{name}.key"
    done = command("admin", "embedder", "--invite", str(file), "--json", home=rig.home)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["name"] == name
    assert file.stat().st_mode & 0o777 == 0o600
    remote = (await rig.health()).remote
    assert remote is not None
    elsewhere = {**os.environ, "REMEMBRANCER_HOME": str(tmp_path / "elsewhere")}
    arguments = ("embedder", "--connect", remote.address, "--key-file", str(file), "--threads", "1")
    return start_command(*arguments, environ=elsewhere, printed=tmp_path / f"{name}.out")


async def test_a_worker_that_is_killed_or_paused_costs_nothing_but_time(rig: StoreRig, tmp_path: Path) -> None:
    first = await start(rig, tmp_path, "first")
    await until_is(rig, "first", "ready")
    second = await start(rig, tmp_path, "second")
    await until_is(rig, "second", "ready")
    texts = [f"Ship number {n} left the harbour with {n * 7} crates of tea on board" for n in range(60)]
    for text in texts[:30]:
        await rig.gateway.store(text)
    first.kill()
    await rig.gateway.until_embedded()
    await until_is(rig, "first", "away")
    second.send_signal(signal.SIGSTOP)
    for text in texts[30:]:
        await rig.gateway.store(text)
    await until_is(rig, "second", "away")
    local = rig.launch("embedder")
    await rig.gateway.until_embedded()
    await rig.gateway.until(lambda now: now.embedding.workers == 1)
    assert (await rig.gateway.describe()).embedding.dead_letters == 0
    found = await rig.gateway.recall("Where is ship number 41?")
    assert "number 41 " in found.memories[0].content
    second.send_signal(signal.SIGCONT)
    await until_is(rig, "second", "ready")
    second.send_signal(signal.SIGTERM)
    assert second.wait(PATIENCE_S) == 0
    await local.kill()


async def test_a_worker_says_why_it_is_not_let_in_and_ends(rig: StoreRig, tmp_path: Path) -> None:
    worker = await start(rig, tmp_path, "gpu")
    await until_is(rig, "gpu", "ready")
    assert "connected to tcp://" in (tmp_path / "gpu.out").read_text()
    done = command("admin", "embedder", "--revoke", "gpu", home=rig.home)
    assert done.returncode == 0, done.stderr
    assert worker.wait(PATIENCE_S) == 8
    assert "this embedder was revoked" in (tmp_path / "gpu.out").read_text()
    address = (await rig.health()).remote.address  # type: ignore[union-attr]
    again = command("admin", "embedder", "--connect", address, "--key-file", str(tmp_path / "gpu.key"), home=rig.home)
    assert again.returncode == 8
    assert "the store does not let this embedder in" in again.stderr
