"""All processes of a runtime: the order of their start and stop, and the messages to them about each other.

Pure decisions: events go in, with the time, and instructions come out. Times are seconds of a monotonic clock;
`next_at` says when `tick` has something to do.
"""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from remembrancer.actors.launcher.lifecycle import Instruction, Lifecycle, Tell
from remembrancer.config.settings import Settings, model_choices, threads_per_worker
from remembrancer.protocol.control import (
    ConsolidatorHealth,
    FromLauncher,
    GatewayHealth,
    PeerFailed,
    PeerGone,
    ProcessHealth,
    Role,
    StoreHealth,
)
from remembrancer.protocol.errors import Failure
from remembrancer.protocol.work import ModelChoice

HEARTBEAT_S: Final = 0.5
"""The interval of heartbeats to each process."""
FIRST_SESSION_S: Final = 30.0
"""The least time for the session that started the runtime to connect, whatever the idle timeout is."""
RESTS: Final = "stopped until it is needed"
NO_JOBS: Final = "it has no jobs"
NO_JOBS_S: Final = 10.0
"""The time without jobs after which the consolidator is stopped, until there is one again."""
STOP_ORDER: Final[tuple[Role, ...]] = ("gateway", "consolidator", "indexer", "embedder", "store")
"""The gateway answers open requests while the store is there; unfinished work of consolidator and indexer is done
later; a worker hands back its jobs; the store closes last."""


class Supervision:
    """The launcher's decisions. `for_sessions`: the runtime ends by itself after a long time without sessions."""

    def __init__(
        self, settings: Settings, new_incarnation: Callable[[], str], *, for_sessions: bool, now: float
    ) -> None:
        self._settings = settings
        self._new_incarnation = new_incarnation
        self._wanted = settings.embedders
        self._models: tuple[ModelChoice, ...] = (model_choices(settings)[0],)
        self._gateway = self._new("gateway")
        self._store = self._new("store")
        self._embedders: dict[int, Lifecycle] = {}
        self._background: dict[Role, Lifecycle] = {}
        """The consolidator and the indexer, while there is something for them."""
        self._idle = IdleWatch(settings.idle_timeout_s if for_sessions else math.inf)
        self._rest = IdleWatch(settings.rest_timeout_s if for_sessions else math.inf)
        self.is_resting = False
        """True after a while without use: only gateway and store stay, to serve the next request at once."""
        self._busy: set[str] = set()
        """The incarnations that last reported work: the store with texts to be embedded, the consolidator with a
        job."""
        self._asked = 0
        """The number of requests and writes that the present store has counted."""
        self._next_beat = now + HEARTBEAT_S
        self._has_jobs = False
        """True if the store last reported jobs for the consolidator."""
        self._jobs_until = now
        """The time until which the consolidator stays without jobs."""
        self._told: dict[str, PeerFailed | None] = {}
        self.stopping: str | None = None
        """The reason why the runtime is stopping; None while it is not."""

    def _new(self, role: Role, name: str = "") -> Lifecycle:
        return Lifecycle(role, name or role, self._settings, self._new_incarnation)

    @property
    def processes(self) -> tuple[Lifecycle, ...]:
        """Every process, in the order of a listing."""
        embedders = (self._embedders[number] for number in sorted(self._embedders))
        return (self._gateway, self._store, *embedders, *(self._background[role] for role in sorted(self._background)))

    @property
    def finished(self) -> bool:
        """True if the runtime has stopped and no process is left."""
        return self.stopping is not None and all(process.state == "stopped" for process in self.processes)

    @property
    def next_at(self) -> float:
        """The earliest time at which `tick` has something to do."""
        moments = [process.next_at for process in self.processes]
        moments += [self._idle.ends_at if self.stopping is None else None]
        return min([self._next_beat, *(moment for moment in moments if moment is not None)])

    def is_current(self, name: str, incarnation: str) -> bool:
        """True if that is the present incarnation of one of our processes."""
        return self._find(name, incarnation) is not None

    def begin(self, now: float) -> list[Instruction]:
        """Start the gateway, which clients wait for, and the store, side by side."""
        return [*self._gateway.start(now), *self._store.start(now)]

    def on_ready(self, name: str, incarnation: str, now: float) -> list[Instruction]:
        """Handle `Ready` from a process."""
        process = self._find(name, incarnation)
        if process is None:
            return []
        done = process.on_ready(now)
        if process is self._gateway:
            self._idle.ready(now)
            self._rest.ready(now)
        if done:
            done += [Tell(name, incarnation, other.failure) for other in self._others(process) if other.failure]
        return done + self.tick(now)

    def on_pong(self, name: str, incarnation: str, health: ProcessHealth | None, now: float) -> list[Instruction]:
        """Handle an answered ping. A process that reports its health is ready, even if its `Ready` was lost."""
        process = self._find(name, incarnation)
        if process is None:
            return []
        process.on_pong()
        if isinstance(health, StoreHealth) and health.models:
            self._models = health.models
        if isinstance(health, StoreHealth):
            self._note_work(incarnation, is_busy=health.embedding.pending > 0 and health.embedding.workers > 0)
            self._has_jobs = health.has_jobs
            if health.asked != self._asked:
                self._asked = health.asked
                self._note_use(now)
        if isinstance(health, ConsolidatorHealth):
            self._note_work(incarnation, is_busy=health.job is not None)
        if isinstance(health, GatewayHealth):
            if health.sessions:
                self._note_use(now)
            elif health.pages or self._settings.http_port:
                self._idle.note_use(now)  # a client over HTTP, or a browser, cannot start a runtime
        done = self.on_ready(name, incarnation, now) if health is not None else []
        needs_indexer = isinstance(health, StoreHealth) and health.has_files and not self.is_resting
        if needs_indexer and "indexer" not in self._background and self.stopping is None:
            done += self._start("indexer", now)
        return done

    def _start(self, role: Role, now: float) -> list[Instruction]:
        self._background[role] = self._new(role)
        return self._background[role].start(now)

    def _note_use(self, now: float) -> None:
        """Note that the runtime is in use: resting processes are started again."""
        self._idle.note_use(now)
        self._rest.note_use(now)
        self.is_resting = self.is_resting and self.stopping is not None

    def _note_work(self, incarnation: str, *, is_busy: bool) -> None:
        (self._busy.add if is_busy else self._busy.discard)(incarnation)

    def _may_rest(self, now: float) -> bool:
        if self.is_resting or self.stopping is not None:
            return False
        self._busy &= {
            each.incarnation for each in self.processes if each.state == "ready"
        }  # dead processes do no work
        return now >= self._rest.ends_at and not self._busy

    def on_exit(self, name: str, incarnation: str, ending: int | str | Failure, now: float) -> list[Instruction]:
        """Handle the end of a process. The others are told, whatever the reason."""
        process = self._find(name, incarnation)
        if process is None or not process.alive:
            return []
        done = process.on_exit(ending, now)
        done += self._tell_others(process, PeerGone(process.role, incarnation))
        return done + self.tick(now)

    def scale(self, embedders: int, now: float) -> list[Instruction]:
        """Run this many embedders."""
        self._wanted = embedders
        self._note_use(now)
        return self.tick(now)

    def stop(self, reason: str, now: float) -> list[Instruction]:
        """Stop all processes, in order."""
        self.stopping = self.stopping or reason
        return self.tick(now)

    def tick(self, now: float) -> list[Instruction]:
        """Do everything that is due, and everything that follows from the last event."""
        done = self._beat(now) if now >= self._next_beat else []
        if self.stopping is None and now >= self._idle.ends_at:
            self.stopping = f"no session for {self._settings.idle_timeout_s:g} s"
        if self._may_rest(now):
            self.is_resting = True
            for process in self._background.values():
                done += process.ask_to_stop(RESTS, now)
        for process in self.processes:
            if self.stopping is None or process.alive:
                done += process.tick(now)
        if self.stopping is not None:
            done += self._descend(self.stopping, now)
        else:
            self._background = {role: each for role, each in self._background.items() if each.state != "stopped"}
            self._embedders = {number: each for number, each in self._embedders.items() if each.state != "stopped"}
            done += self._arrange_embedders(now) + self._arrange_consolidator(now)
        return done + self._spread_failures(now)

    def _beat(self, now: float) -> list[Instruction]:
        late_s = now - self._next_beat
        self._next_beat = now + HEARTBEAT_S
        self._idle.excuse(late_s)
        self._rest.excuse(late_s)
        return [instruction for process in self.processes for instruction in process.beat(now, late_s)]

    def _arrange_embedders(self, now: float) -> list[Instruction]:
        if _is_beginning(self._gateway):
            return []  # the models take both cores to load, and clients wait for the gateway
        running = {number: each.model for number, each in self._embedders.items()}
        wanted = 0 if self.is_resting else self._wanted
        begun, ended = plan_scale(wanted, self._models, running)
        done: list[Instruction] = []
        for number, model in begun:
            process = self._new("embedder", f"embedder-{number}")
            process.threads = threads_per_worker(self._wanted)
            process.model = model
            self._embedders[number] = process
            done += process.start(now)
        for number in ended:
            reason = f"scaled to {self._wanted}" if running[number] in self._models else "its model is not needed"
            reason = RESTS if self.is_resting else reason
            done += self._embedders[number].ask_to_stop(reason, now)
        return done

    def _arrange_consolidator(self, now: float) -> list[Instruction]:
        """Start the consolidator when there is a job and nothing else is starting, and stop it when there was none for
        a while."""
        running = self._background.get("consolidator")
        if self._has_jobs or (running is not None and running.incarnation in self._busy):
            self._jobs_until = now + NO_JOBS_S
        if running is not None:
            return running.ask_to_stop(NO_JOBS, now) if running.state == "ready" and now >= self._jobs_until else []
        if self.is_resting or not self._has_jobs or not self._settings.consolidator:
            return []
        return [] if any(map(_is_beginning, self.processes)) else self._start("consolidator", now)

    def _descend(self, reason: str, now: float) -> list[Instruction]:
        done: list[Instruction] = []
        for process in self.processes:
            if not process.alive:
                done += process.ask_to_stop(reason, now)
        for role in STOP_ORDER:
            level = [process for process in self.processes if process.role == role]
            for process in level:
                done += process.ask_to_stop(reason, now)
            if any(process.state != "stopped" for process in level):
                break
        return done

    def _spread_failures(self, now: float) -> list[Instruction]:
        done: list[Instruction] = []
        if self._gateway.failure is not None:
            self._idle.ready(now)  # no session will ever be served: there is none to wait for
        for process in self.processes:
            if process.failure != self._told.get(process.name):
                self._told[process.name] = process.failure
                if process.failure is not None:
                    done += self._tell_others(process, process.failure)
        return done

    def _tell_others(self, process: Lifecycle, message: FromLauncher) -> list[Instruction]:
        return [Tell(other.name, other.incarnation, message) for other in self._others(process) if other.alive]

    def _others(self, process: Lifecycle) -> list[Lifecycle]:
        return [other for other in self.processes if other is not process]

    def _find(self, name: str, incarnation: str) -> Lifecycle | None:
        for process in self.processes:
            if process.name == name and process.incarnation == incarnation:
                return process
        return None


def _is_beginning(process: Lifecycle) -> bool:
    """True until a process is ready, or has failed: both happen within the time for its start."""
    return process.state in ("starting", "restarting")


class IdleWatch:
    """Measures the time without a session. Times are seconds of any monotonic clock.

    It starts when the gateway is first ready, however long that took, with extra time for the first session to connect.
    While the gateway is away later, the number of sessions is unknown and the time continues: a restarted gateway soon
    reports its sessions.
    """

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._idle_since = math.inf

    def ready(self, now: float) -> None:
        """Note that the gateway serves sessions, or has failed to. Only the first call counts."""
        if self._idle_since == math.inf:
            self._idle_since = now + max(0.0, FIRST_SESSION_S - self._timeout_s)

    def note_use(self, now: float) -> None:
        """Note a session or a request."""
        self._idle_since = now

    def excuse(self, late_s: float) -> None:
        """Excuse `late_s`, by which the launcher's own timer was late: reports may be waiting unread."""
        self._idle_since += max(0.0, late_s)

    @property
    def ends_at(self) -> float:
        """The time at which the runtime stops, if no session is seen before."""
        return self._idle_since + self._timeout_s


def plan_scale(
    wanted: int, models: Sequence[ModelChoice], running: Mapping[int, ModelChoice | None]
) -> tuple[list[tuple[int, ModelChoice]], list[int]]:
    """The numbers of embedders to start, with their models, and to stop, in order, for `wanted` of the first model and
    one of each other model (none if 0 are wanted). The highest stop first; new ones get the lowest free numbers."""
    start: list[ModelChoice] = []
    stop = [number for number, model in running.items() if model not in models]
    for place, model in enumerate(models):
        numbers = sorted(number for number, each in running.items() if each == model)
        count = min(wanted, 1) if place else wanted
        stop += numbers[count:]
        start += [model] * (count - len(numbers))
    free = (number for number in itertools.count(1) if number not in running)
    return list(zip(free, start, strict=False)), sorted(stop, reverse=True)
