"""What the processes last said of themselves: the status of the runtime, and the traces gathered for a command."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import anyio

from remembrancer.actors.launcher.lifecycle import Lifecycle
from remembrancer.protocol.control import (
    ConsolidatorHealth,
    EmbedderHealth,
    GatewayHealth,
    ProcessHealth,
    ProcessStatus,
    ProcessTraces,
    RuntimeStatus,
    StoreHealth,
    TracesGathered,
)
from remembrancer.protocol.tracing import TraceReport


class HealthTable:
    """The last health of each process. Moments are of `time.monotonic`."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._health: dict[str, ProcessHealth] = {}
        self._heard_at: dict[str, float] = {}
        self._news = anyio.Event()

    def note(self, name: str, health: ProcessHealth | None) -> None:
        """A process answered a ping."""
        self._heard_at[name] = time.monotonic()
        if health is not None:
            self._health[name] = health
        self._news.set()
        self._news = anyio.Event()

    def forget(self, name: str) -> None:
        """A new incarnation starts, of which nothing is known."""
        self._health.pop(name, None)

    async def wait_for(self, names: Collection[str], *, since: float) -> None:
        """Wait until each of the named processes has answered after `since`."""
        while any(self._heard_at.get(name, since) <= since for name in names):
            await self._news.wait()

    def runtime_status(
        self, processes: Sequence[Lifecycle], pids: Mapping[str, int], *, launcher_started_at: float
    ) -> RuntimeStatus:
        """The status of the runtime, from what is known now. The launcher is one of its processes."""
        now = time.monotonic()
        launcher = ProcessStatus(
            role="launcher",
            name="launcher",
            pid=os.getpid(),
            state="ready",
            restarts=0,
            uptime_s=now - launcher_started_at,
            rss_bytes=resident_bytes(os.getpid()),
        )
        rows = [self._row(process, pids.get(process.name, 0), now) for process in processes]
        gateway, store = self._health.get("gateway"), self._health.get("store")
        consolidator = self._health.get("consolidator")
        return RuntimeStatus(
            home=str(self._home),
            processes=(launcher, *rows),
            gateway=gateway if isinstance(gateway, GatewayHealth) else None,
            store=store if isinstance(store, StoreHealth) else None,
            consolidator=consolidator if isinstance(consolidator, ConsolidatorHealth) else None,
        )

    def _row(self, process: Lifecycle, pid: int, now: float) -> ProcessStatus:
        state, error = process.state, process.error
        health = self._health.get(process.name)
        if state == "ready" and isinstance(health, EmbedderHealth) and health.error:
            state, error = "degraded", health.error
        return ProcessStatus(
            role=process.role,
            name=process.name,
            pid=pid,
            state=state,
            restarts=process.restarts,
            uptime_s=now - process.started_at if pid else 0.0,
            rss_bytes=resident_bytes(pid) if pid else 0,
            error=error,
        )


def resident_bytes(pid: int) -> int:
    """The resident memory of a process; 0 when it has gone."""
    import psutil  # after the first processes were started: it costs 15 ms, which clients would wait for

    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.Error:
        return 0


class TraceGathering:
    """The answers to one question, from those that were asked."""

    def __init__(self, asked: Collection[str]) -> None:
        self._asked = tuple(asked)
        self._told: dict[str, tuple[TraceReport, ...]] = {}
        self._whole = anyio.Event()

    def note(self, name: str, traces: tuple[TraceReport, ...]) -> None:
        """A process answered."""
        if name in self._asked:
            self._told[name] = traces
        if len(self._told) == len(self._asked):
            self._whole.set()

    async def wait(self, timeout_s: float) -> TracesGathered:
        """What has come when all have answered, or when the time is over."""
        with anyio.move_on_after(timeout_s if self._asked else 0):
            await self._whole.wait()
        told = tuple(ProcessTraces(name, self._told[name]) for name in self._asked if name in self._told)
        return TracesGathered(told, tuple(name for name in self._asked if name not in self._told))
