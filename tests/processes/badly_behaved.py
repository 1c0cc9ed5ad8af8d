"""Real processes that behave badly, and a launcher that runs them as `remembrancer up` does.

What a process does is written in `<home>/behaviour/<name>`, read at each of its starts; without the file it behaves
well. Each start appends its incarnation to `<name>.starts`, each message from the launcher to `<name>.heard`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import anyio
import anyio.abc

from remembrancer import launcher
from remembrancer.actors.shell import Actor, LaunchSpec, run_actor
from remembrancer.commands.runtime_commands import up
from remembrancer.protocol.control import (
    ConsolidatorHealth,
    EmbedderHealth,
    GatewayHealth,
    IndexerHealth,
    PeerFailed,
    PeerGone,
    ProcessHealth,
    StoreHealth,
)
from remembrancer.protocol.errors import ModelUnusable
from remembrancer.protocol.reads import Counts, EmbeddingSummary
from tests.forked import forking, redirect

BEHAVIOUR = "behaviour"


class BadlyBehaved(Actor):
    """Crashes, hangs, refuses or lingers, as its file says."""

    def __init__(self, spec: LaunchSpec) -> None:
        super().__init__(spec)
        self._directory = Path(spec.home) / BEHAVIOUR
        self._directory.mkdir(exist_ok=True)
        self._note("starts", spec.incarnation)
        file = self._directory / spec.name
        self._behaviour = file.read_text() if file.exists() else ""

    async def run(self, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        match self._behaviour:
            case "never ready":
                await anyio.sleep_forever()
            case "cannot start":
                raise ModelUnusable("the weights are missing")
            case "crashes at the start":
                os._exit(9)
            case "blocks at the start":
                hang()
            case "has a child":
                self._note("child", str(start_child()))
        task_status.started()
        if self._behaviour == "crashes when ready":
            raise RuntimeError("on purpose")
        await anyio.sleep_forever()

    def health(self) -> ProcessHealth:
        match self.spec.role:
            case "gateway":
                sessions = self._directory / "sessions"
                count = int(sessions.read_text()) if sessions.exists() else 0
                return GatewayHealth(sessions=count, queue_depth=0, queue_rejected=0, store="connected")
            case "store":
                summary = EmbeddingSummary("onnx", "test", 384, pending=0, workers=1, vectors_ready=True)
                return StoreHealth(counts=Counts(total=7), embedding=summary)
            case "embedder":
                return EmbedderHealth(model="test", embedded_passages=0)
            case "consolidator":
                return ConsolidatorHealth()
            case "indexer":
                return IndexerHealth()

    async def drain(self, reason: str) -> None:
        self._note("heard", f"stop: {reason}")
        with (self._directory / "ended").open("a") as log:
            log.write(f"{self.spec.name}\n")
        if self._behaviour == "lingers":
            hang()

    def on_peer_gone(self, peer: PeerGone) -> None:
        self._note("heard", f"gone: {peer.role} {peer.incarnation}")

    def on_peer_failed(self, peer: PeerFailed) -> None:
        self._note("heard", f"failed: {peer.role} {peer.code}")

    def _note(self, what: str, line: str) -> None:
        with (self._directory / f"{self.spec.name}.{what}").open("a") as log:
            log.write(f"{line}\n")


def hang() -> None:
    """Block the event loop: neither a message nor a signal is heard."""
    time.sleep(60)


def start_child() -> int:
    """Start a process that knows nothing of the launcher; returns its pid."""
    return subprocess.Popen(["sleep", "600"]).pid


def main(_: list[str]) -> None:
    """An actor's process."""
    run_actor(BadlyBehaved)


def launch(output: Path, *arguments: str) -> None:
    """The launcher's process: `remembrancer up` with these actors instead of the real ones."""
    redirect(output, output)
    with forking():
        raise SystemExit(launcher.run({"up": (f"{__name__}:launch_these", "")}, ["up", *arguments]))


def launch_these(argv: list[str]) -> int:
    """The command."""
    return up(argv, lambda role: [sys.executable, "-P", "-m", __name__, role])
