"""What the processes say they noted of calls, gathered for a command."""

from __future__ import annotations

from collections.abc import Collection

import anyio

from remembrancer.protocol.control import ProcessTraces, TracesGathered
from remembrancer.protocol.tracing import TraceReport


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
