"""Real processes that behave badly, and a launcher that runs them as `remembrancer up` does.

What a process does is written in `<home>/behaviour/<name>`, read at each of its starts; without the file it behaves
well. Each start appends its incarnation to `<name>.starts`, each message from the launcher to `<name>.heard`.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import anyio
import anyio.abc

from remembrancer import command_line
from remembrancer.actors.launcher import lifecycle
from remembrancer.actors.shell import Actor, LaunchSpec, run_actor
from remembrancer.commands import runtime_commands
from remembrancer.protocol import sockets, wire
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
from remembrancer.protocol.wire import PROTOCOL_VERSION
from tests.forked import forking, redirect

BEHAVIOUR = "behaviour"
"""The releases of files by the word of a store, which has none."""


class BadlyBehaved(Actor):
    """Hangs, refuses or lingers, as its file says."""

    def __init__(self, spec: LaunchSpec) -> None:
        super().__init__(spec)
        self._directory = Path(spec.home) / BEHAVIOUR
        self._directory.mkdir(exist_ok=True)
        file = self._directory / spec.name
        self._behaviour = file.read_text() if file.exists() else ""
        self._note("starts", spec.incarnation)  # from here on the file may be changed
        if self._behaviour == "is of another release":
            for module in (wire, sockets):
                setattr(module, "PROTOCOL_VERSION", PROTOCOL_VERSION + 1)  # noqa: B010 - it is final

    async def run(self, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        match self._behaviour:
            case "cannot start":
                raise ModelUnusable("the weights are missing")
            case "blocks at the start":
                hang()
            case "has a child":
                self._note("child", str(start_child()))
        task_status.started()
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
    time.sleep(60)


def start_child() -> int:
    """Start a process that knows nothing of the launcher; returns its pid."""
    return subprocess.Popen(["sleep", "600"]).pid


def main(_: list[str]) -> None:
    run_actor(BadlyBehaved)


def launch(output: Path, stops_within_s: float | None, *arguments: str) -> None:
    """The launcher's process: `remembrancer up` with these actors instead of the real ones. Each has so long to stop
    before it is made to (None: as long as in every runtime)."""
    redirect(output, output)
    if stops_within_s is not None:
        setattr(lifecycle, "ASK_S", stops_within_s)  # noqa: B010 - it is final where nobody is patient
    with forking():
        setattr(runtime_commands, "ACTOR", lambda role: [sys.executable, "-P", "-m", __name__, role])  # noqa: B010
        raise SystemExit(command_line.main(["up", *arguments]))
