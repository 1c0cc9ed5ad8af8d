"""All processes of a runtime: the order in which they start and stop, and what they learn about each other. Only
decisions: events come in with the time, in seconds on a monotonic clock, and a `System` carries out the results."""

import itertools
import math
from typing import Final

from remembrancer.actors.launcher.lifecycle import Lifecycle, System
from remembrancer.config.settings import Settings, model_choices, threads_per_worker
from remembrancer.protocol.control import ConsolidatorHealth, GatewayHealth, PeerGone, ProcessHealth, Role, StoreHealth
from remembrancer.protocol.errors import Failure
from remembrancer.protocol.work import ModelChoice

HEARTBEAT_S: Final = 1.0
FIRST_SESSION_S: Final = 30.0
"""How long the session that started the runtime may take to connect, whatever the idle timeout is."""
RESTS: Final = "stopped until it is needed"
NO_JOBS: Final = "it has no jobs"
NO_JOBS_S: Final = 10.0
"""After this time without jobs, the consolidator is stopped."""
LISTED: Final[tuple[Role, ...]] = ("gateway", "store", "embedder", "consolidator", "indexer")
STOP_ORDER: Final[tuple[Role, ...]] = ("gateway", "consolidator", "indexer", "embedder", "store")
"""The gateway can answer pending requests while the store is up, and workers can hand back their jobs to it."""


class Supervision:
    """The launcher's decisions. With `for_sessions`, the runtime stops by itself after a long time without sessions."""

    def __init__(self, settings: Settings, system: System, *, for_sessions: bool, now: float) -> None:
        self._settings = settings
        self._system = system
        self._wanted = settings.embedders
        self._processes: dict[str, Lifecycle] = {}
        self.reports: dict[str, ProcessHealth] = {}
        """Each process's last health report, by name. It is kept after the process has ended."""
        least_s = 2 * HEARTBEAT_S if for_sessions else math.inf  # sessions are reported at each heartbeat
        self._idle_s = max(settings.idle_timeout_s, least_s)
        self._rest_s = max(settings.rest_timeout_s, least_s)
        self._ends_at = self._rests_at = math.inf
        """The times at which the runtime will stop, and go idle, unless it is used before then."""
        self.is_resting = False
        """True after a while without use. Only the gateway and the store run, so the next request is served at once."""
        self._asked = 0
        self._next_beat = now + HEARTBEAT_S
        self._jobs_until = now
        self.stopping: str | None = None

    @property
    def processes(self) -> list[Lifecycle]:
        return sorted(self._processes.values(), key=lambda each: (LISTED.index(each.role), len(each.name), each.name))

    @property
    def _store_health(self) -> StoreHealth | None:
        report = self.reports.get("store")
        return report if isinstance(report, StoreHealth) else None

    @property
    def finished(self) -> bool:
        return self.stopping is not None and all(process.state == "stopped" for process in self.processes)

    @property
    def next_at(self) -> float:
        return min([self._next_beat, *(process.next_at for process in self.processes)])

    def _start(
        self, role: Role, now: float, number: int = 0, model: ModelChoice | None = None, threads: int = 1
    ) -> None:
        name = f"{role}-{number}" if number else role
        if name not in self._processes:
            self._processes[name] = process = Lifecycle(role, name, self._system, self._settings, model, threads)
            process.start(now)

    def on_health(self, name: str, incarnation: str, health: ProcessHealth | None, now: float) -> None:
        """The first report means that the process is ready. `health` is None while it is starting."""
        process = self._find(name, incarnation)
        if process is None or health is None:
            return
        self.reports[name] = health
        match health:
            case StoreHealth(asked=asked) if asked != self._asked:
                self._asked = asked
                self._note_use(now)
            case GatewayHealth():
                self._note_ready(now)
                if health.sessions or health.pages or self._settings.http_port:
                    # Clients over HTTP and browsers could not start the runtime again, but need no other process.
                    self._note_use(now, wakes=health.sessions > 0)
        if process.on_health(now):
            for other in self.processes:
                if other.state == "failed":
                    self._system.tell(process, PeerGone(other.role, "", other.error))
        self.tick(now)

    def on_exit(self, name: str, incarnation: str, ending: int | str | Failure, now: float) -> None:
        process = self._find(name, incarnation)
        if process is None or not process.alive:
            return
        process.on_exit(ending, now)
        failure = process.error if process.state == "failed" else None
        if process.role == "gateway" and failure is not None:
            self._note_ready(now)  # no session will be served, so there is none to wait for
        for other in self.processes:
            if other.alive:
                self._system.tell(other, PeerGone(process.role, incarnation, failure))
        self.tick(now)

    def scale(self, embedders: int, now: float) -> None:
        self._wanted = embedders
        self._note_use(now)
        self.tick(now)

    def stop(self, reason: str, now: float) -> None:
        self.stopping = self.stopping or reason
        self.tick(now)

    def tick(self, now: float) -> None:
        if now >= self._next_beat:
            self._next_beat = now + HEARTBEAT_S
            for process in self.processes:
                process.beat(now)
        if self.stopping is None and now >= self._ends_at:
            self.stopping = f"no session for {self._settings.idle_timeout_s:g} s"
        if self.stopping is None and now >= self._rests_at and not any(map(self._is_at_work, self.processes)):
            self.is_resting = True
        for process in self.processes:
            if self.stopping is None or process.alive:
                process.tick(now)
        if self.stopping is not None:
            self._descend(self.stopping, now)
            return
        self._processes = {name: process for name, process in self._processes.items() if process.state != "stopped"}
        self._start("gateway", now)
        self._start("store", now)
        if self.is_resting:
            for process in self.processes:
                if process.role not in ("gateway", "store"):
                    process.ask_to_stop(RESTS, now)
        else:
            self._arrange_embedders(now)
            self._arrange_background(now)

    def _note_ready(self, now: float) -> None:
        """Called when the gateway is ready or has failed to start. Only the first call counts."""
        if self._ends_at == math.inf:
            self._ends_at = now + max(self._idle_s, FIRST_SESSION_S)
            self._rests_at = now + max(self._rest_s, FIRST_SESSION_S)

    def _note_use(self, now: float, *, wakes: bool = True) -> None:
        self._ends_at = now + self._idle_s
        if wakes:
            self._rests_at, self.is_resting = now + self._rest_s, False

    def _is_at_work(self, process: Lifecycle) -> bool:
        """True if the process has reported work: texts to embed (the store), or a job (the consolidator)."""
        match self.reports.get(process.name) if process.state == "ready" else None:
            case StoreHealth(embedding=embedding):
                return embedding.pending > 0 and embedding.workers > 0
            case ConsolidatorHealth(job=job):
                return job is not None
        return False

    def _are_beginning(self, *roles: Role) -> bool:
        """True until each process of these roles is ready, has failed, or has exceeded the start timeout."""
        return any(process.role in roles and process.state in ("starting", "restarting") for process in self.processes)

    def _arrange_embedders(self, now: float) -> None:
        """Run the desired number of embedders with the first model, and one for each of the other models; none if 0 are
        desired. Embedders with the highest numbers stop first; new ones get the lowest free numbers."""
        if self._are_beginning("gateway", "store"):
            return  # loading a model takes both cores while clients wait for the gateway and the store
        store, threads = self._store_health, threads_per_worker(self._wanted)
        models = store.models if store is not None and store.models else model_choices(self._settings)[:1]
        embedders = [process for process in self.processes if process.role == "embedder"]
        for process in embedders:
            if process.model not in models:
                process.ask_to_stop("its model is not needed", now)
        for place, model in enumerate(models):
            present = [process for process in embedders if process.model == model]
            count = min(self._wanted, 1) if place else self._wanted
            for process in reversed(present[count:]):
                process.ask_to_stop(f"scaled to {self._wanted}", now)
            for _ in range(count - len(present)):
                number = next(each for each in itertools.count(1) if f"embedder-{each}" not in self._processes)
                self._start("embedder", now, number, model, threads)

    def _arrange_background(self, now: float) -> None:
        """Run the indexer once there are files, and the consolidator for jobs, when nothing else is starting."""
        store, consolidator = self._store_health, self._processes.get("consolidator")
        has_jobs = store is not None and store.has_jobs
        if has_jobs or (consolidator is not None and self._is_at_work(consolidator)):
            self._jobs_until = now + NO_JOBS_S
        elif consolidator is not None and consolidator.state == "ready" and now >= self._jobs_until:
            consolidator.ask_to_stop(NO_JOBS, now)
        if has_jobs and self._settings.consolidator and not self._are_beginning(*LISTED):
            self._start("consolidator", now)
        if store is not None and store.has_files:
            self._start("indexer", now)

    def _descend(self, reason: str, now: float) -> None:
        alive = {process.role for process in self.processes if process.alive}
        stage = next((role for role in STOP_ORDER if role in alive), None)
        for process in self.processes:
            if process.role == stage or not process.alive:
                process.ask_to_stop(reason, now)

    def _find(self, name: str, incarnation: str) -> Lifecycle | None:
        process = self._processes.get(name)
        return process if process is not None and process.incarnation == incarnation else None
