"""All processes of a runtime: the order of starting and stopping them, and the messages to them about each other. Pure
decisions: events go in, with the time, and instructions come out. Times are seconds of a monotonic clock; `next_at`
says when `tick` has something to do."""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from remembrancer.actors.launcher.lifecycle import Instruction, Lifecycle, Tell
from remembrancer.config.settings import Settings, model_choices, threads_per_worker
from remembrancer.protocol.control import ConsolidatorHealth, GatewayHealth, PeerGone, ProcessHealth, Role, StoreHealth
from remembrancer.protocol.errors import Failure
from remembrancer.protocol.work import ModelChoice

HEARTBEAT_S: Final = 1.0
"""The interval of heartbeats to each process."""
FIRST_SESSION_S: Final = 30.0
"""The minimum time for the session that started the runtime to connect, whatever the idle timeout is."""
RESTS: Final = "stopped until it is needed"
NO_JOBS: Final = "it has no jobs"
NO_JOBS_S: Final = 10.0
"""The time without jobs after which the consolidator is stopped until there is another."""
STOP_ORDER: Final[tuple[Role, ...]] = ("gateway", "consolidator", "indexer", "embedder", "store")
"""The gateway can answer open requests while the store is up; unfinished work of the consolidator and the indexer is
done later; a worker hands back its jobs; the store closes last."""


class Supervision:
    """The launcher's decisions. `for_sessions`: the runtime ends by itself if there are no sessions for a long time."""

    def __init__(
        self, settings: Settings, new_incarnation: Callable[[], str], *, for_sessions: bool, now: float
    ) -> None:
        self._settings = settings
        self._new_incarnation = new_incarnation
        self._wanted = settings.embedders
        self._gateway = self._new("gateway")
        self._store = self._new("store")
        self._embedders: dict[int, Lifecycle] = {}
        self._background: dict[Role, Lifecycle] = {}
        """The consolidator and the indexer, while there is work for them."""
        self.reports: dict[str, ProcessHealth] = {}
        """The last health of each process by name, kept after its end, since an old report is better than none."""
        self._idle = IdleWatch(settings.idle_timeout_s if for_sessions else math.inf)
        self._rest = IdleWatch(settings.rest_timeout_s if for_sessions else math.inf)
        self.is_resting = False
        """True after a while without use: only gateway and store keep running, to serve the next request at once."""
        self._asked = 0
        """The number of requests and writes counted by the present store."""
        self._next_beat = now + HEARTBEAT_S
        self._jobs_until = now
        """The time until which the consolidator keeps running without jobs."""
        self.stopping: str | None = None
        """The reason why the runtime is stopping; None while it is not."""

    def _new(self, role: Role, name: str = "") -> Lifecycle:
        return Lifecycle(role, name or role, self._settings, self._new_incarnation)

    @property
    def processes(self) -> tuple[Lifecycle, ...]:
        embedders = (self._embedders[number] for number in sorted(self._embedders))
        return (self._gateway, self._store, *embedders, *(self._background[role] for role in sorted(self._background)))

    @property
    def finished(self) -> bool:
        return self.stopping is not None and all(process.state == "stopped" for process in self.processes)

    @property
    def next_at(self) -> float:
        """The earliest time at which `tick` has something to do."""
        moments = (process.next_at for process in self.processes)
        return min([self._next_beat, *(moment for moment in moments if moment is not None)])

    def begin(self, now: float) -> list[Instruction]:
        return [*self._gateway.start(now), *self._store.start(now)]

    def on_health(self, name: str, incarnation: str, health: ProcessHealth | None, now: float) -> list[Instruction]:
        """Handle the health of a process, whose first report means that it is ready; None: it is still starting."""
        process = self._find(name, incarnation)
        if process is None or health is None:
            return []
        self.reports[name] = health
        match health:
            case StoreHealth(asked=asked) if asked != self._asked:
                self._asked = asked
                self._note_use(now)
            case GatewayHealth():
                self._idle.ready(now)
                self._rest.ready(now)
                if health.sessions:
                    self._note_use(now)
                elif health.pages or self._settings.http_port:
                    self._idle.note_use(now)  # a client over HTTP, or a browser, cannot start a runtime
        is_new = process.on_health(now)
        failed = [other for other in self.processes if is_new and other.state == "failed"]
        news = [Tell(name, incarnation, PeerGone(other.role, "", other.error)) for other in failed]
        return [*news, *self.tick(now)]

    @property
    def _store_health(self) -> StoreHealth | None:
        report = self.reports.get("store")
        return report if isinstance(report, StoreHealth) else None

    def _start(self, role: Role, now: float) -> list[Instruction]:
        if role in self._background:
            return []
        self._background[role] = self._new(role)
        return self._background[role].start(now)

    def _note_use(self, now: float) -> None:
        self._idle.note_use(now)
        self._rest.note_use(now)
        self.is_resting = False

    def _is_at_work(self, process: Lifecycle) -> bool:
        """True if the process has reported work: the store texts to be embedded, the consolidator a job."""
        match self.reports.get(process.name) if process.state == "ready" else None:
            case StoreHealth(embedding=embedding):
                return embedding.pending > 0 and embedding.workers > 0
            case ConsolidatorHealth(job=job):
                return job is not None
        return False

    def _may_rest(self, now: float) -> bool:
        if self.is_resting or self.stopping is not None:
            return False
        return now >= self._rest.ends_at and not any(map(self._is_at_work, self.processes))

    def on_exit(self, name: str, incarnation: str, ending: int | str | Failure, now: float) -> list[Instruction]:
        process = self._find(name, incarnation)
        if process is None or not process.alive:
            return []
        process.on_exit(ending, now)
        failure = process.error if process.state == "failed" else None
        if process is self._gateway and failure is not None:
            self._idle.ready(now)  # no session will ever be served, so none is waited for
        gone = PeerGone(process.role, incarnation, failure)
        news = [Tell(other.name, other.incarnation, gone) for other in self.processes if other.alive]
        return [*news, *self.tick(now)]

    def scale(self, embedders: int, now: float) -> list[Instruction]:
        self._wanted = embedders
        self._note_use(now)
        return self.tick(now)

    def stop(self, reason: str, now: float) -> list[Instruction]:
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
            if self._store_health is not None and self._store_health.has_files and not self.is_resting:
                done += self._start("indexer", now)
        return done

    def _beat(self, now: float) -> list[Instruction]:
        self._next_beat = now + HEARTBEAT_S
        return [instruction for process in self.processes for instruction in process.beat(now)]

    def _arrange_embedders(self, now: float) -> list[Instruction]:
        if _is_beginning(self._gateway) or _is_beginning(self._store):
            return []  # loading models takes both cores, and clients wait for the gateway and the store
        running = {number: each.model for number, each in self._embedders.items()}
        wanted = 0 if self.is_resting else self._wanted
        store = self._store_health
        models = store.models if store is not None and store.models else model_choices(self._settings)[:1]
        begun, ended = plan_scale(wanted, models, running)
        done: list[Instruction] = []
        for number, model in begun:
            process = self._new("embedder", f"embedder-{number}")
            process.threads = threads_per_worker(self._wanted)
            process.model = model
            self._embedders[number] = process
            done += process.start(now)
        for number in ended:
            reason = f"scaled to {self._wanted}" if running[number] in models else "its model is not needed"
            reason = RESTS if self.is_resting else reason
            done += self._embedders[number].ask_to_stop(reason, now)
        return done

    def _arrange_consolidator(self, now: float) -> list[Instruction]:
        """Start the consolidator when there is a job and nothing else is starting, and stop it after a while without
        jobs."""
        running = self._background.get("consolidator")
        has_jobs = self._store_health is not None and self._store_health.has_jobs
        if has_jobs or (running is not None and self._is_at_work(running)):
            self._jobs_until = now + NO_JOBS_S
        if running is not None:
            return running.ask_to_stop(NO_JOBS, now) if running.state == "ready" and now >= self._jobs_until else []
        if self.is_resting or not has_jobs or not self._settings.consolidator:
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

    def _find(self, name: str, incarnation: str) -> Lifecycle | None:
        return next((each for each in self.processes if (each.name, each.incarnation) == (name, incarnation)), None)


def _is_beginning(process: Lifecycle) -> bool:
    """True until a process is ready, or has failed: both happen within the time for its start."""
    return process.state in ("starting", "restarting")


class IdleWatch:
    """Measures the time without a session. Times are seconds of any monotonic clock.

    It starts when the gateway is first ready, with extra time for the first session to connect. If the gateway is away
    later, the number of sessions is unknown and the time runs on: a restarted gateway soon reports its sessions.
    """

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = max(timeout_s, 2 * HEARTBEAT_S)  # sessions are reported at each heartbeat
        self._idle_since = math.inf

    def ready(self, now: float) -> None:
        """Note that the gateway serves sessions, or has failed to start. Only the first call counts."""
        if self._idle_since == math.inf:
            self._idle_since = now + max(0.0, FIRST_SESSION_S - self._timeout_s)

    def note_use(self, now: float) -> None:
        self._idle_since = now

    @property
    def ends_at(self) -> float:
        """The time at which the runtime stops, unless a session appears before."""
        return self._idle_since + self._timeout_s


def plan_scale(
    wanted: int, models: Sequence[ModelChoice], running: Mapping[int, ModelChoice | None]
) -> tuple[list[tuple[int, ModelChoice]], list[int]]:
    """The numbers of the embedders to start, with their models, and of those to stop, in order, for `wanted` of the
    first model and one of each other model (none if 0 are wanted). The highest numbers stop first; new ones get the
    lowest free numbers."""
    start: list[ModelChoice] = []
    stop = [number for number, model in running.items() if model not in models]
    for place, model in enumerate(models):
        numbers = sorted(number for number, each in running.items() if each == model)
        count = min(wanted, 1) if place else wanted
        stop += numbers[count:]
        start += [model] * (count - len(numbers))
    free = (number for number in itertools.count(1) if number not in running)
    return list(zip(free, start, strict=False)), sorted(stop, reverse=True)
