"""`remembrancer admin embedder`: a real worker with the real model over TCP, killed, paused, not let in."""

import json
import os
import signal
from pathlib import Path

from tests.actors.store_process import StoreRig
from tests.actors.test_remote_workers import rig as rig
from tests.actors.test_remote_workers import until_state
from tests.forked import ForkedProcess, start_command
from tests.patience import PATIENCE_S
from tests.runtime import command


async def start(rig: StoreRig, tmp_path: Path, name: str) -> ForkedProcess:
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
    await until_state(rig, "ready", "first")
    second = await start(rig, tmp_path, "second")
    await until_state(rig, "ready", "second")
    texts = [f"Ship number {n} left the harbour with {n * 7} crates of tea on board" for n in range(60)]
    for text in texts[:30]:
        await rig.gateway.store(text)
    first.kill()
    await rig.gateway.until_embedded()
    await until_state(rig, "away", "first")
    second.send_signal(signal.SIGSTOP)
    for text in texts[30:]:
        await rig.gateway.store(text)
    await until_state(rig, "away", "second")
    local = rig.launch("embedder")
    await rig.gateway.until_embedded()
    await rig.gateway.until(lambda now: now.embedding.workers == 1)
    assert (await rig.gateway.describe()).embedding.dead_letters == 0
    found = await rig.gateway.recall("Where is ship number 41?")
    assert "number 41 " in found.memories[0].content
    second.send_signal(signal.SIGCONT)
    await until_state(rig, "ready", "second")
    second.send_signal(signal.SIGTERM)
    assert second.wait(PATIENCE_S) == 0
    await local.kill()


async def test_a_worker_says_why_it_is_not_let_in_and_ends(rig: StoreRig, tmp_path: Path) -> None:
    worker = await start(rig, tmp_path, "gpu")
    await until_state(rig, "ready", "gpu")
    assert "connected to tcp://" in (tmp_path / "gpu.out").read_text()
    done = command("admin", "embedder", "--revoke", "gpu", home=rig.home)
    assert done.returncode == 0, done.stderr
    assert worker.wait(PATIENCE_S) == 8
    assert "this embedder was revoked" in (tmp_path / "gpu.out").read_text()
    address = (await rig.health()).remote.address  # type: ignore[union-attr]
    again = command("admin", "embedder", "--connect", address, "--key-file", str(tmp_path / "gpu.key"), home=rig.home)
    assert again.returncode == 8
    assert "the store does not let this embedder in" in again.stderr
