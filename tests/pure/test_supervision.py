"""The launcher's decisions: the life of one process, and of all."""

import itertools
import math
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from typing import TypeVar

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from remembrancer.actors.actor_process import MANY_FILES
from remembrancer.actors.launcher.lifecycle import (
    ASK_S,
    DELAYS_S,
    FORGIVEN_S,
    KILL_S,
    READY_S,
    SLOW_S,
    STARTING_S,
    TERM_S,
    Instruction,
    Lifecycle,
    Signal,
    Start,
    Tell,
    describe_ending,
)
from remembrancer.actors.launcher.supervision import (
    FIRST_SESSION_S,
    HEARTBEAT_S,
    NO_JOBS,
    NO_JOBS_S,
    RESTS,
    IdleWatch,
    Supervision,
    plan_scale,
)
from remembrancer.config.settings import Settings
from remembrancer.protocol.control import (
    ConsolidatorHealth,
    EmbedderHealth,
    FromLauncher,
    GatewayHealth,
    IndexerHealth,
    PeerGone,
    ProcessHealth,
    ProcessState,
    Stop,
    StoreHealth,
)
from remembrancer.protocol.errors import Failure
from remembrancer.protocol.reads import Counts, EmbeddingSummary
from remembrancer.protocol.work import ModelChoice

# --- A world without processes for the launcher's decisions: it carries out instructions and keeps the time.
KILLED = -9
FREE_RESTARTS = DELAYS_S.count(0.0)
"""Restarts of a row that come without a pause."""
SUMMARY = EmbeddingSummary("onnx", "test", 384, pending=0, workers=0)
M = TypeVar("M")


def sessions(count: int, http: str | None = None, pages: int = 0) -> GatewayHealth:
    return GatewayHealth(sessions=count, queue_depth=0, queue_rejected=0, store="connected", http=http, pages=pages)


WELL: dict[str, ProcessHealth] = {
    "gateway": sessions(0),
    "store": StoreHealth(Counts(), SUMMARY, has_jobs=True),
    "embedder": EmbedderHealth(),
    "consolidator": ConsolidatorHealth(),
    "indexer": IndexerHealth(),
}


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
        self.dies_of_kill = True
        """True if the system has stopped what does not answer."""

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
        for name in killed:
            if name in self.running:
                self.exit(name, KILLED)

    def ready(self, name: str) -> None:
        """A process reports that it is well; the store, that there is work for the consolidator, too."""
        self.pong(name, WELL[self.process(name).role])

    def refuse(self, name: str, message: str = "no weights") -> None:
        """A process ends, and says that it cannot start."""
        self.exit(name, Failure("model_unusable", message))

    def pong(self, name: str, health: ProcessHealth) -> None:
        self.apply(self.core.on_health(name, self.running[name], health, self.now))

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
                for name in [process.name for process in self.core.processes if process.state == "ready"]:
                    self.pong(name, sessions(0) if name == "gateway" else self.core.reports[name])
        self.now = max(self.now, end)

    def process(self, name: str) -> Lifecycle:
        return next(process for process in self.core.processes if process.name == name)

    def state(self, name: str) -> ProcessState:
        return self.process(name).state

    def heard(self, name: str, kind: type[M]) -> list[M]:
        return [message for whom, message in self.told if whom == name and isinstance(message, kind)]

    def failures_heard(self, name: str) -> list[tuple[str, str]]:
        """The roles that cannot be started, with the reasons, as a process was told."""
        return [(gone.role, gone.failure) for gone in self.heard(name, PeerGone) if gone.failure is not None]


def starting(settings: Settings | None = None, *, for_sessions: bool = False) -> World:
    world = World(settings, for_sessions=for_sessions)
    world.apply(world.core.begin(world.now))
    return world


def begun(settings: Settings | None = None, *, for_sessions: bool = False) -> World:
    world = starting(settings, for_sessions=for_sessions)
    world.settle()
    return world


def test_gateway_and_store_start_first_and_the_consolidator_last_and_nobody_waits_for_what_has_failed() -> None:
    world = starting(Settings(embedders=2))
    assert [start.name for start in world.started] == ["gateway", "store"]
    world.ready("gateway")
    assert "embedder-1" not in world.running
    world.ready("store")
    assert {"embedder-1", "embedder-2"} <= set(world.running)
    world.ready("embedder-1")
    assert "consolidator" not in world.running
    world.ready("embedder-2")
    assert "consolidator" in world.running
    world = starting()
    world.ready("store")
    world.run_for(READY_S - 1.0)
    assert "embedder-1" not in world.running
    world.run_for(2.0)
    assert "embedder-1" in world.running, "the gateway has failed"
    world.run_for(READY_S + 1.0)
    assert "consolidator" in world.running, "the embedder has failed"
    world = starting()
    world.refuse("gateway")
    assert "embedder-1" not in world.running
    world.ready("store")
    world.refuse("embedder-1")
    assert "consolidator" in world.running


def test_the_consolidator_and_the_indexer_are_there_while_there_is_something_for_them() -> None:
    world = starting()
    world.ready("gateway")
    world.pong("store", StoreHealth(Counts(), SUMMARY))
    world.ready("embedder-1")
    world.run_for(100.0)
    assert "consolidator" not in world.running
    world.pong("store", StoreHealth(Counts(), SUMMARY, has_jobs=True))
    world.run_for(1.0)
    world.ready("consolidator")
    world.pong("consolidator", ConsolidatorHealth(job="tidying"))
    world.pong("store", StoreHealth(Counts(), SUMMARY))
    world.run_for(2 * NO_JOBS_S)
    assert not world.heard("consolidator", Stop)
    world.pong("consolidator", ConsolidatorHealth())
    world.run_for(NO_JOBS_S + 1.0)
    assert world.heard("consolidator", Stop)[0].reason == NO_JOBS
    world.exit("consolidator", 0)
    world.pong("store", StoreHealth(Counts(), SUMMARY, has_jobs=True))
    world.run_for(1.0)
    assert "consolidator" in world.running
    world = begun()
    world.crash_loop("consolidator")
    assert world.state("consolidator") == "failed"
    assert {"gateway", "store", "embedder-1"} <= set(world.running)
    assert [role for role, _ in world.failures_heard("store")] == ["consolidator"]
    world = starting()
    world.ready("gateway")
    world.ready("store")
    world.pong("store", StoreHealth(Counts(), SUMMARY))
    assert "indexer" not in world.running
    world.pong("store", StoreHealth(Counts(), SUMMARY, has_files=True))
    world.ready("indexer")
    first = world.running["indexer"]
    world.pong("store", StoreHealth(Counts(), SUMMARY))
    assert world.running["indexer"] == first
    world.exit("indexer")
    world.run_for(5.0)
    assert world.running["indexer"] != first


def test_the_others_learn_of_a_failure_and_latecomers_until_it_was_mended() -> None:
    world = begun()
    world.exit("embedder-1")
    world.refuse("embedder-1", "the weights are missing")
    failure = ("embedder", "the weights are missing")
    assert world.failures_heard("gateway") == [failure]
    world.told.clear()
    world.exit("gateway")
    world.ready("gateway")
    assert world.failures_heard("gateway") == [failure]
    world = begun()
    world.crash_loop("embedder-1", 70)
    world.run_for(SLOW_S)
    world.ready("embedder-1")
    world.told.clear()
    world.exit("gateway")
    world.ready("gateway")
    assert world.failures_heard("gateway") == []


def test_scaling_starts_what_is_missing_and_stops_the_highest(monkeypatch: pytest.MonkeyPatch) -> None:
    world = begun()
    world.scale(3)
    assert {"embedder-1", "embedder-2", "embedder-3"} <= set(world.running)
    world.settle()
    world.told.clear()
    world.scale(1)
    assert [name for name, message in world.told if isinstance(message, Stop)] == ["embedder-3", "embedder-2"]
    world.exit("embedder-3", 0)
    world.exit("embedder-2", 0)
    assert [process.name for process in world.core.processes] == ["gateway", "store", "embedder-1", "consolidator"]
    monkeypatch.setattr("os.cpu_count", lambda: 8)
    world = begun(Settings(embedders=2))
    assert [start.threads for start in world.started if start.role == "embedder"] == [4, 4]


@pytest.mark.parametrize("deaths", [0, FREE_RESTARTS + 1])
def test_nothing_is_restarted_while_everything_stops_though_it_was_due(deaths: int) -> None:
    world = begun()
    for _ in range(deaths):
        world.exit("store")
    world.stop()
    if not deaths:
        world.exit("store")
    world.run_for(1.0)
    assert "store" not in world.running
    assert world.state("store") == "stopped"


def test_a_runtime_for_sessions_ends_when_none_was_there_for_long_and_one_in_the_foreground_stays() -> None:
    foreground = begun(Settings(idle_timeout_s=60.0, consolidator=False))
    foreground.run_for(500.0)
    assert foreground.core.stopping is None
    assert [process.name for process in foreground.core.processes] == ["gateway", "store", "embedder-1"]
    world = begun(Settings(idle_timeout_s=60.0, embedders=0), for_sessions=True)
    world.run_for(50.0)
    world.pong("gateway", sessions(1))
    world.run_for(30.0)
    assert world.core.stopping is None
    world.pong("gateway", sessions(0))
    world.run_for(31.0)
    assert world.core.stopping == "no session for 60 s"


def test_a_session_between_two_reports_is_no_idle_time_however_short_the_timeout() -> None:
    world = begun(Settings(idle_timeout_s=0.5, embedders=0), for_sessions=True)
    for _ in range(5):
        world.pong("gateway", sessions(1))
        world.run_for(HEARTBEAT_S)
    assert world.core.stopping is None
    world.run_for(HEARTBEAT_S)
    assert world.core.stopping == "no session for 0.5 s"


def test_embedders_consolidator_and_indexer_rest_while_nobody_is_there_and_come_back_with_a_session() -> None:
    world = begun(Settings(rest_timeout_s=60.0, embedders=2), for_sessions=True)
    world.pong("store", StoreHealth(Counts(), SUMMARY, has_files=True))
    world.settle()
    world.pong("gateway", sessions(1))
    assert set(world.running) == {"gateway", "store", "embedder-1", "embedder-2", "consolidator", "indexer"}
    world.pong("gateway", sessions(0))
    world.run_for(61.0)
    for name in ("embedder-1", "embedder-2", "consolidator", "indexer"):
        assert world.heard(name, Stop)[0].reason == RESTS
        if name in world.running:
            world.exit(name, 0)
    world.run_for(3600.0)
    assert set(world.running) == {"gateway", "store"}
    assert (world.core.stopping, world.core.is_resting) == (None, True)
    world.pong("gateway", sessions(1))
    world.settle()
    world.run_for(20.0)
    world.settle()
    world.pong("store", StoreHealth(Counts(), SUMMARY, has_files=True))
    assert set(world.running) == {"gateway", "store", "embedder-1", "embedder-2", "consolidator", "indexer"}


def test_whatever_is_asked_wakes_what_rests_and_pages_that_are_open_keep_nothing_awake() -> None:
    world = begun(Settings(rest_timeout_s=60.0, idle_timeout_s=600.0), for_sessions=True)
    for _ in range(70):
        world.pong("gateway", sessions(0, http="http://127.0.0.1:8080/mcp", pages=1))
        world.run_for(10.0)
    assert world.core.stopping is None, "somebody looks at it"
    assert (world.core.is_resting, set(world.running)) == (True, {"gateway", "store"})
    world.pong("store", StoreHealth(Counts(), SUMMARY, asked=1))  # by a command, whose session is gone by now
    world.run_for(20.0)
    world.settle()
    assert set(world.running) == {"gateway", "store", "embedder-1", "consolidator"}
    world.pong("store", StoreHealth(Counts(), SUMMARY, asked=1))
    world.run_for(61.0)
    assert world.core.is_resting
    world.run_for(600.0)
    assert world.core.stopping == "no session for 600 s"


def test_nothing_rests_while_texts_wait_for_their_vectors_or_a_job_is_being_done() -> None:
    world = begun(Settings(rest_timeout_s=60.0), for_sessions=True)
    at_work = msgspec.structs.replace(SUMMARY, pending=3, workers=1)
    world.pong("store", StoreHealth(Counts(), at_work, has_jobs=True))
    world.run_for(120.0)
    assert "embedder-1" in world.running
    world.pong("consolidator", ConsolidatorHealth(job="tidying"))
    world.pong("store", StoreHealth(Counts(), SUMMARY))
    world.run_for(60.0)
    assert "embedder-1" in world.running
    world.pong("consolidator", ConsolidatorHealth())
    world.run_for(1.0)
    assert world.heard("embedder-1", Stop)[0].reason == RESTS


def test_work_that_a_dead_process_reported_keeps_nothing_awake() -> None:
    world = begun(Settings(rest_timeout_s=60.0), for_sessions=True)
    world.pong("consolidator", ConsolidatorHealth(job="tidying"))
    world.exit("consolidator")
    world.ready("consolidator")
    world.run_for(120.0)
    assert world.core.is_resting


EVENTS = st.one_of(
    st.tuples(st.just("pass"), st.floats(0.01, 40.0)),
    st.tuples(st.sampled_from(["ready", "crash", "refuse", "hang"]), st.integers(0, 6)),
    st.tuples(st.just("scale"), st.integers(0, 4)),
)


def happen(world: World, event: tuple[str, float]) -> None:
    kind, number = event
    names = sorted(world.running)
    name = names[int(number) % len(names)] if names else None
    if kind == "pass":
        world.run_for(number)
    elif kind == "scale":
        world.scale(int(number))
    elif kind == "hang":
        world.run_for(4.0, answering=False)
    elif name is not None:
        {"ready": world.ready, "crash": world.exit, "refuse": world.refuse}[kind](name)


@given(st.lists(EVENTS, max_size=40))
def test_whatever_happens_no_process_runs_twice_and_a_stop_ends_all(events: list[tuple[str, float]]) -> None:
    world = starting(Settings(embedders=2))
    for event in events:
        happen(world, event)
        alive = {process.name for process in world.core.processes if process.alive}
        assert alive == set(world.running)
    world.stop()
    world.run_for(10.0)
    assert world.core.finished
    assert not world.running


# --- Which embedders to start and which to stop, and which numbers are possible.
ONE, OTHER, THIRD = (ModelChoice("onnx", name) for name in ("one", "other", "third"))


def test_numbers_of_embedders_leave_from_the_highest() -> None:
    assert plan_scale(1, [ONE], dict.fromkeys((1, 2, 3, 4), ONE)) == ([], [4, 3, 2])
    assert plan_scale(4, [ONE], {2: ONE}) == ([(1, ONE), (3, ONE), (4, ONE)], [])


@given(
    st.integers(0, 64),
    st.permutations([ONE, OTHER, THIRD]),
    st.integers(1, 3),
    st.dictionaries(st.integers(1, 64), st.sampled_from([ONE, OTHER, THIRD])),
)
def test_a_plan_leads_to_the_wanted_number_of_the_first_model_and_one_of_each_other(
    wanted: int, order: list[ModelChoice], count: int, running: dict[int, ModelChoice]
) -> None:
    models = order[:count]
    begun, ended = plan_scale(wanted, models, running)
    numbers = [number for number, _ in begun]
    assert not running.keys() & set(numbers)
    assert numbers == sorted(set(numbers))
    assert set(ended) <= set(running)
    left = Counter([model for number, model in running.items() if number not in ended])
    left.update(model for _, model in begun)
    assert left == Counter([models[0]] * wanted + (models[1:] if wanted else []))


# --- The time at which a runtime that a session started goes down by itself.
def test_nothing_ends_for_idleness_before_it_was_ready_and_then_after_the_last_session() -> None:
    idle = IdleWatch(300.0)
    assert idle.ends_at == math.inf
    idle.ready(now=100.0)
    assert idle.ends_at == 400.0, "where no session comes"
    idle.note_use(now=2900.0)
    idle.ready(now=3000.0)
    assert idle.ends_at == 3200.0
    soon = IdleWatch(5.0)
    soon.ready(now=100.0)
    assert soon.ends_at == 100.0 + FIRST_SESSION_S, "the session that started it has time to come"


# --- The life of one process: ready, dead, hanging, failed, stopped, and when it is started again.
def test_a_process_that_dies_is_started_again_at_once_then_with_a_pause_and_after_a_good_life_at_once() -> None:
    world = begun()
    before = world.running["store"]
    world.exit("store")
    assert world.running["store"] != before
    assert world.state("store") == "starting"
    assert world.process("store").restarts == 1
    world.apply(world.core.on_health("store", before, StoreHealth(Counts(), SUMMARY), world.now))
    world.apply(world.core.on_exit("store", before, -9, world.now))
    assert world.state("store") == "starting", "words of an earlier incarnation are ignored"
    for _ in range(FREE_RESTARTS):
        world.exit("store")
    assert world.state("store") == "restarting"
    world.run_for(DELAYS_S[FREE_RESTARTS] - 0.01)
    assert "store" not in world.running
    world.run_for(0.02)
    assert "store" in world.running
    world = begun()
    for _ in range(4):
        world.exit("store")
        world.run_for(DELAYS_S[-1])
    world.ready("store")
    world.run_for(5 * FORGIVEN_S)
    world.exit("store")
    assert "store" in world.running


def test_a_crash_loop_fails_visibly_is_told_and_described_for_a_person() -> None:
    world = begun()
    world.crash_loop("store", 70)
    assert world.process("store").restarts == len(DELAYS_S)
    assert world.state("store") == "failed"
    assert "status 70" in (world.process("store").error or "")
    for _ in range(2):
        tries = len(world.started)
        world.run_for(SLOW_S)
        assert len(world.started) == tries + 1
        assert world.state("store") == "failed"  # until it has proved itself
        world.exit("store", 70)
    assert "retried" in world.failures_heard("gateway")[0][1]
    world.run_for(SLOW_S)
    world.ready("store")
    assert (world.state("store"), world.process("store").error) == ("ready", None)
    assert "Killed" in describe_ending("store", -9)
    assert "store.log" in describe_ending("store", 70)
    assert describe_ending("store", "no such file") == "no such file"


def test_a_failure_that_the_process_reports_is_not_retried_and_keeps_its_reason() -> None:
    world = begun()
    world.exit("store")
    world.refuse("store", "a newer release")
    world.run_for(3600.0)
    assert "store" not in world.running
    assert (world.state("store"), world.process("store").error) == ("failed", "a newer release")


def test_what_is_never_ready_is_killed_and_tried_rarely() -> None:
    world = begun()
    world.exit("store")
    world.run_for(READY_S + 0.5)
    assert ("store", "KILL") in world.signals
    assert world.state("store") == "failed"
    assert f"not ready after {READY_S:g} s" in (world.process("store").error or "")
    tries = len(world.started)
    world.run_for(SLOW_S)
    assert len(world.started) == tries + 1


def test_a_process_that_hangs_is_killed_and_replaced(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    world = begun()
    world.run_for(10.0)
    before = world.running["store"]
    world.run_for(Settings().stall_timeout_s - 1, answering=False)
    assert world.signals == []
    world.run_for(3.0, answering=False)
    assert ("store", "KILL") in world.signals
    assert world.running["store"] != before
    assert "process unresponsive" in caplog.messages


def test_a_stop_climbs_from_asking_to_killing() -> None:
    world = begun(Settings(embedders=0))
    world.stop()
    assert isinstance(world.told[-1][1], Stop)
    world.run_for(ASK_S - 0.01)
    assert world.signals == []
    world.run_for(0.01)
    assert world.signals == [("gateway", "TERM")]
    world.run_for(TERM_S - 0.01)
    assert world.signals == [("gateway", "TERM")]
    world.run_for(0.02)
    assert world.signals[1] == ("gateway", "KILL")


def test_a_process_that_still_starts_has_less_time_to_stop_and_one_that_the_kernel_holds_none() -> None:
    world = starting(Settings(embedders=0))
    world.stop()
    assert world.signals == [("gateway", "TERM")]
    world.run_for(STARTING_S)
    assert ("gateway", "KILL") in world.signals
    world = begun()
    world.dies_of_kill = False
    world.stop()
    world.run_for(4 * (ASK_S + TERM_S + KILL_S) + 0.1)
    assert world.core.finished


def test_a_process_may_open_many_files_where_the_system_allows_it() -> None:
    program = """
import resource
from remembrancer.actors.actor_process import allow_many_files
resource.setrlimit(resource.RLIMIT_NOFILE, (256, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
allow_many_files()
print(*resource.getrlimit(resource.RLIMIT_NOFILE))"""
    present, most = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True).stdout.split()
    assert int(present) == min(MANY_FILES, int(most))
