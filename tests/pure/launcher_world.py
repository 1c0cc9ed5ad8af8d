"""A world without processes for the launcher's decisions: it carries out instructions and keeps the time."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import TypeVar

from remembrancer.actors.launcher.lifecycle import DELAYS_S, Changed, Instruction, Lifecycle, Signal, Start, Tell
from remembrancer.actors.launcher.supervision import Supervision
from remembrancer.config.settings import Settings
from remembrancer.protocol.control import FromLauncher, ProcessHealth, ProcessState, StoreHealth
from remembrancer.protocol.errors import Failure
from remembrancer.protocol.reads import Counts, EmbeddingSummary

KILLED = -9
FREE_RESTARTS = DELAYS_S.count(0.0)
"""Restarts of a row that come without a pause."""
SUMMARY = EmbeddingSummary("onnx", "test", 384, pending=0, workers=0, vectors_ready=False)
M = TypeVar("M")


class World:
    """Time, and the processes that the decisions have asked for."""

    def __init__(self, settings: Settings | None = None, *, for_sessions: bool = False) -> None:
        self.now = 1000.0
        numbers = itertools.count(1)
        self.core = Supervision(
            settings or Settings(), lambda: f"incarnation-{next(numbers)}", for_sessions=for_sessions, now=self.now
        )
        self.running: dict[str, str] = {}
        self.told: list[tuple[str, FromLauncher]] = []
        self.signals: list[tuple[str, str]] = []
        self.started: list[Start] = []
        self.changes: list[Changed] = []
        self.dies_of_kill = True
        """True if the system has stopped what does not answer."""

    def begin(self) -> None:
        self.apply(self.core.begin(self.now))
        self.settle()

    def settle(self) -> None:
        """Everything that runs says that it is ready."""
        for name in ("gateway", "store"):
            self.ready(name)
        for _ in range(2):  # the embedders came with the gateway, and the consolidator after them
            for name in tuple(self.running):
                self.ready(name)

    def apply(self, instructions: Iterable[Instruction]) -> None:
        """Carry out what the decisions ask for; what is killed dies."""
        killed = []
        for instruction in instructions:
            match instruction:
                case Start(name=name, incarnation=incarnation):
                    assert name not in self.running, f"{name} was started twice"
                    self.running[name] = incarnation
                    self.started.append(instruction)
                case Tell(name=name, incarnation=incarnation, message=message):
                    if self.running.get(name) == incarnation:
                        self.told.append((name, message))
                case Signal(name=name, signal=which):
                    self.signals.append((name, which))
                    if which == "KILL" and self.dies_of_kill:
                        killed.append(name)
                case Changed():
                    self.changes.append(instruction)
        for name in killed:
            if name in self.running:
                self.exit(name, KILLED)

    def ready(self, name: str) -> None:
        """A process says that it is ready; the store, that there is work for the consolidator, too."""
        if name == "store":
            self.pong(name, StoreHealth(Counts(), SUMMARY, has_jobs=True))
        else:
            self.apply(self.core.on_ready(name, self.running[name], self.now))

    def refuse(self, name: str, message: str = "no weights") -> None:
        """A process ends, and says that it cannot start."""
        self.exit(name, Failure("model_unusable", message))

    def pong(self, name: str, health: ProcessHealth | None = None) -> None:
        self.apply(self.core.on_pong(name, self.running[name], health, self.now))

    def exit(self, name: str, ending: int | str | Failure = KILLED) -> None:
        incarnation = self.running.pop(name)
        self.apply(self.core.on_exit(name, incarnation, ending, self.now))

    def crash_loop(self, name: str, ending: int = KILLED) -> None:
        """A process dies, and each next one as soon as it was started, until its budget is spent."""
        while name in self.running:
            self.exit(name, ending)
            retry_at = self.process(name).next_at
            if self.state(name) == "restarting" and retry_at is not None:
                self.run_for(retry_at - self.now)

    def stop(self, reason: str = "test") -> None:
        self.apply(self.core.stop(reason, self.now))

    def scale(self, embedders: int) -> None:
        self.apply(self.core.scale(embedders, self.now))

    def run_for(self, seconds: float, *, answering: bool = True) -> None:
        """Let time pass, from deadline to deadline; what runs answers its pings, or does not."""
        end = self.now + seconds
        while self.core.next_at <= end and not self.core.finished:
            assert self.core.next_at >= self.now, "a deadline in the past would spin"
            self.now = self.core.next_at
            self.apply(self.core.tick(self.now))
            assert self.core.next_at > self.now, "what was due was not done"
            if answering:
                for name in tuple(self.running):
                    self.pong(name)
        self.now = max(self.now, end)

    def process(self, name: str) -> Lifecycle:
        return next(process for process in self.core.processes if process.name == name)

    def state(self, name: str) -> ProcessState:
        return self.process(name).state

    def heard(self, name: str, kind: type[M]) -> list[M]:
        return [message for whom, message in self.told if whom == name and isinstance(message, kind)]


def starting(settings: Settings | None = None) -> World:
    world = World(settings)
    world.apply(world.core.begin(world.now))
    return world


def begun(settings: Settings | None = None, *, for_sessions: bool = False) -> World:
    world = World(settings, for_sessions=for_sessions)
    world.begin()
    return world
