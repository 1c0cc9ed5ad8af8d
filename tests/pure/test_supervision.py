import itertools
import subprocess
import sys
from collections import Counter
from typing import Any, Literal, TypeVar

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
    Lifecycle,
    describe_ending,
)
from remembrancer.actors.launcher.supervision import (
    FIRST_SESSION_S,
    HEARTBEAT_S,
    NO_JOBS,
    NO_JOBS_S,
    RESTS,
    Supervision,
)
from remembrancer.config.settings import Settings
from remembrancer.protocol.control import (
    ConsolidatorHealth,
    EmbedderHealth,
    GatewayHealth,
    IndexerHealth,
    PeerGone,
    ProcessHealth,
    Stop,
    StoreHealth,
)
from remembrancer.protocol.errors import Failure
from remembrancer.protocol.reads import Counts, EmbeddingSummary
from remembrancer.protocol.work import ModelChoice

KILLED = -9
FREE_RESTARTS = DELAYS_S.count(0.0)
"""Restarts of a row that come without a pause."""
SUMMARY = EmbeddingSummary("onnx", "test", 384, pending=0, workers=0)
AT_WORK = msgspec.structs.replace(SUMMARY, pending=3, workers=1)
M = TypeVar("M")


def gateway(sessions: int = 0, http: str | None = None, pages: int = 0) -> GatewayHealth:
    return GatewayHealth(sessions, queue_depth=0, queue_rejected=0, store="connected", http=http, pages=pages)


def store(embedding: EmbeddingSummary = SUMMARY, **reported: Any) -> StoreHealth:
    return StoreHealth(Counts(), embedding, **reported)


WELL: dict[str, ProcessHealth] = {
    "gateway": gateway(),
    "store": store(has_jobs=True),
    "embedder": EmbedderHealth(),
    "consolidator": ConsolidatorHealth(),
    "indexer": IndexerHealth(),
}


class World:
    """Time, and a system without processes: what is killed dies, and a stop is obeyed by the test alone."""

    def __init__(self, *, for_sessions: bool = False, is_settled: bool = True, **settings: Any) -> None:
        self.now = 1000.0
        self.running: dict[str, str] = {}
        self.told: list[tuple[str, Stop | PeerGone]] = []
        self.signals: list[tuple[str, str]] = []
        self.started: list[Lifecycle] = []
        self.dies_of_kill = True
        """True if the system has stopped what does not answer."""
        self._killed: list[str] = []
        self._numbers = itertools.count(1)
        self.core = Supervision(Settings(**settings), self, for_sessions=for_sessions, now=self.now)
        self.core.tick(self.now)
        if is_settled:
            self.settle()

    # --- what the decisions ask for ---

    def start(self, process: Lifecycle) -> str:
        assert process.name not in self.running, f"{process.name} was started twice"
        self.started.append(process)
        self.running[process.name] = incarnation = f"incarnation-{next(self._numbers)}"
        return incarnation

    def ping(self, process: Lifecycle) -> None:
        assert process.name in self.running

    def tell(self, process: Lifecycle, message: Stop | PeerGone) -> None:
        self.told.append((process.name, message))

    def signal(self, process: Lifecycle, which: Literal["TERM", "KILL"]) -> None:
        self.signals.append((process.name, which))
        if which == "KILL" and self.dies_of_kill:
            self._killed.append(process.name)

    # --- what happens ---

    def settle(self) -> None:
        """Everything that runs says that it is ready."""
        for name in ("gateway", "store"):
            self.ready(name)
        for _ in range(2):  # the embedders came with the gateway, and the consolidator after them
            for name in tuple(self.running):
                self.ready(name)

    def ready(self, name: str) -> None:
        """A process reports that it is well; the store, that there is work for the consolidator, too."""
        self.pong(name, WELL[name.partition("-")[0]])

    def pong(self, name: str, health: ProcessHealth) -> None:
        self.core.on_health(name, self.running[name], health, self.now)
        self._bury()

    def exit(self, name: str, ending: int | str | Failure = KILLED) -> None:
        self.core.on_exit(name, self.running.pop(name), ending, self.now)
        self._bury()

    def refuse(self, name: str, message: str = "no weights") -> None:
        """A process ends, and says that it cannot start."""
        self.exit(name, Failure("model_unusable", message))

    def crash_loop(self, name: str, ending: int = KILLED) -> None:
        """A process dies, and each next one as soon as it was started, until its budget is spent."""
        while name in self.running:
            self.exit(name, ending)
            if self.state(name) == "restarting":
                self.run_for(self.process(name).next_at - self.now)

    def stop(self) -> None:
        self.core.stop("test", self.now)
        self._bury()

    def scale(self, embedders: int) -> None:
        self.core.scale(embedders, self.now)
        self._bury()

    def run_for(self, seconds: float, *, answering: bool = True) -> None:
        """Let time pass, from deadline to deadline; what runs answers its pings, or does not."""
        end = self.now + seconds
        while self.core.next_at <= end and not self.core.finished:
            assert self.core.next_at >= self.now, "a deadline in the past would spin"
            self.now = self.core.next_at
            self.core.tick(self.now)
            self._bury()
            assert self.core.next_at > self.now, "what was due was not done"
            for process in self.core.processes if answering else ():
                if process.state == "ready":
                    self.pong(process.name, gateway() if process.role == "gateway" else self.core.reports[process.name])
        self.now = max(self.now, end)

    def _bury(self) -> None:
        while self._killed:
            name = self._killed.pop()
            if name in self.running:
                self.exit(name)

    # --- what can be seen ---

    def process(self, name: str) -> Lifecycle:
        return next(process for process in self.core.processes if process.name == name)

    def state(self, name: str) -> str:
        return self.process(name).state

    def others(self) -> set[str]:
        return self.running.keys() - {"gateway", "store"}

    def stops(self, name: str = "") -> list[str]:
        """The reasons for which a process was asked to stop; without a name, the names of those that were."""
        asked = [(whom, message.reason) for whom, message in self.told if isinstance(message, Stop)]
        return [reason for whom, reason in asked if whom == name] if name else [whom for whom, _ in asked]

    def failures_heard(self, name: str) -> list[tuple[str, str]]:
        """The roles that cannot be started, with the reasons, as a process was told."""
        gone = [message for whom, message in self.told if whom == name and isinstance(message, PeerGone)]
        return [(each.role, each.failure) for each in gone if each.failure is not None]


def test_gateway_and_store_start_first_and_the_consolidator_last_and_nobody_waits_for_what_has_failed() -> None:
    world = World(is_settled=False, embedders=2)
    assert [*world.running] == ["gateway", "store"]
    world.ready("gateway")
    assert world.others() == set()
    world.ready("store")
    assert world.others() == {"embedder-1", "embedder-2"}
    world.ready("embedder-1")
    assert "consolidator" not in world.running
    world.ready("embedder-2")
    assert "consolidator" in world.running
    world = World(is_settled=False)
    world.ready("store")
    world.run_for(READY_S - 1.0)
    assert "embedder-1" not in world.running
    world.run_for(2.0)
    assert "embedder-1" in world.running, "the gateway has failed"
    world.run_for(READY_S + 1.0)
    assert "consolidator" in world.running, "the embedder has failed"
    world = World(is_settled=False)
    world.refuse("gateway")
    assert "embedder-1" not in world.running
    world.ready("store")
    world.refuse("embedder-1")
    assert "consolidator" in world.running


def test_the_consolidator_is_there_while_there_are_jobs_and_a_failure_of_it_stops_nothing_else() -> None:
    world = World(is_settled=False)
    world.ready("gateway")
    world.pong("store", store())
    world.ready("embedder-1")
    world.run_for(100.0)
    assert world.others() == {"embedder-1"}
    for _ in range(2):
        world.pong("store", store(has_jobs=True))
        assert "consolidator" in world.running
        world.pong("consolidator", ConsolidatorHealth(job="tidying"))
        world.pong("store", store())
        world.run_for(2 * NO_JOBS_S)
        assert not world.stops()
        world.pong("consolidator", ConsolidatorHealth())
        world.run_for(NO_JOBS_S - 1.0)
        assert not world.stops()
        world.run_for(2.0)
        assert world.stops("consolidator") == [NO_JOBS]
        world.exit("consolidator", 0)
        world.told.clear()
    world = World()
    world.crash_loop("consolidator")
    world.pong("store", store())
    world.run_for(2 * NO_JOBS_S)
    assert world.state("consolidator") == "failed", "though there is nothing to do, a person is to know"
    assert {"gateway", "store", "embedder-1"} <= set(world.running)
    assert [role for role, _ in world.failures_heard("store")] == ["consolidator"]


def test_the_indexer_is_there_from_the_first_files_on() -> None:
    world = World(consolidator=False)
    world.pong("store", store())
    assert world.others() == {"embedder-1"}, "there is no consolidator where the settings want none"
    world.pong("store", store(has_files=True))
    world.ready("indexer")
    first = world.running["indexer"]
    world.pong("store", store())
    assert world.running["indexer"] == first
    world.exit("indexer")
    assert world.running["indexer"] != first


def test_the_others_learn_of_a_failure_and_latecomers_until_it_was_mended() -> None:
    world = World()
    world.exit("embedder-1")
    world.refuse("embedder-1", "the weights are missing")
    failure = ("embedder", "the weights are missing")
    assert world.failures_heard("gateway") == [failure]
    world.told.clear()
    world.exit("gateway")
    world.ready("gateway")
    assert world.failures_heard("gateway") == [failure]
    world = World()
    world.crash_loop("embedder-1", 70)
    world.run_for(SLOW_S)
    world.ready("embedder-1")
    world.told.clear()
    world.exit("gateway")
    world.ready("gateway")
    assert world.failures_heard("gateway") == []


@pytest.mark.parametrize("deaths", [0, FREE_RESTARTS + 1])
def test_nothing_is_restarted_while_everything_stops_though_it_was_due(deaths: int) -> None:
    world = World()
    for _ in range(deaths):
        world.exit("store")
    world.stop()
    if not deaths:
        world.exit("store")
    world.run_for(1.0)
    assert "store" not in world.running
    assert world.state("store") == "stopped"


def test_a_runtime_for_sessions_ends_when_none_was_there_for_long_and_one_in_the_foreground_stays() -> None:
    foreground = World(idle_timeout_s=60.0)
    foreground.run_for(500.0)
    assert foreground.core.stopping is None
    world = World(for_sessions=True, idle_timeout_s=60.0, embedders=0)
    world.run_for(50.0)
    world.pong("gateway", gateway(1))
    world.run_for(30.0)
    assert world.core.stopping is None
    world.run_for(31.0)
    assert world.core.stopping == "no session for 60 s"


@pytest.mark.parametrize(("timeout_s", "lasts_s"), [(5.0, FIRST_SESSION_S), (300.0, 300.0)])
def test_the_session_that_started_a_runtime_has_time_to_come(timeout_s: float, lasts_s: float) -> None:
    world = World(is_settled=False, for_sessions=True, idle_timeout_s=timeout_s)
    world.run_for(READY_S - 1.0)
    world.ready("gateway")
    for seconds, is_over in ((lasts_s - 1.0, False), (2.0, True)):
        world.run_for(seconds)
        assert (world.core.stopping is not None) is is_over


def test_a_session_between_two_reports_is_no_idle_time_however_short_the_timeout() -> None:
    world = World(for_sessions=True, idle_timeout_s=0.5, embedders=0)
    for _ in range(5):
        world.pong("gateway", gateway(1))
        world.run_for(HEARTBEAT_S)
    assert world.core.stopping is None
    world.run_for(HEARTBEAT_S)
    assert world.core.stopping == "no session for 0.5 s"


def test_embedders_consolidator_and_indexer_rest_while_nobody_is_there_and_come_back_with_a_session() -> None:
    world = World(for_sessions=True, rest_timeout_s=60.0, embedders=2)
    every = {"embedder-1", "embedder-2", "consolidator", "indexer"}
    for _ in range(2):
        world.pong("gateway", gateway(1))
        world.run_for(20.0)  # then a second consolidator has done its jobs
        world.settle()
        world.pong("store", store(has_files=True, has_jobs=True))
        assert world.others() == every
        world.told.clear()
        world.run_for(61.0)
        assert [world.stops(name) for name in every] == [[RESTS]] * len(every)
        world.run_for(3600.0)
        assert world.others() == set()
        assert (world.core.stopping, world.core.is_resting) == (None, True)


def test_whatever_is_asked_wakes_what_rests_and_pages_that_are_open_keep_nothing_awake() -> None:
    world = World(for_sessions=True, rest_timeout_s=60.0, idle_timeout_s=600.0)
    for _ in range(70):
        world.pong("gateway", gateway(http="http://127.0.0.1:8080/mcp", pages=1))
        world.run_for(10.0)
    assert world.core.stopping is None, "somebody looks at it"
    assert (world.core.is_resting, world.others()) == (True, set())
    world.pong("store", store(asked=1))  # by a command, whose session is gone by now
    world.run_for(20.0)
    world.settle()
    assert world.others() == {"embedder-1", "consolidator"}
    world.pong("store", store(asked=1))
    world.run_for(61.0)
    assert world.core.is_resting
    world.run_for(600.0)
    assert world.core.stopping == "no session for 600 s"


def test_nothing_rests_while_texts_wait_for_their_vectors_or_a_job_is_being_done() -> None:
    world = World(for_sessions=True, rest_timeout_s=60.0)
    world.pong("store", store(AT_WORK, has_jobs=True))
    world.run_for(120.0)
    assert not world.core.is_resting
    world.pong("consolidator", ConsolidatorHealth(job="tidying"))
    world.pong("store", store())
    world.run_for(60.0)
    assert not world.core.is_resting
    world.pong("consolidator", ConsolidatorHealth())
    world.run_for(1.0)
    assert world.stops("embedder-1") == [RESTS]
    world = World(for_sessions=True, rest_timeout_s=60.0)
    world.pong("consolidator", ConsolidatorHealth(job="tidying"))
    world.refuse("consolidator")  # with what it reported
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
    world = World(is_settled=False, embedders=2)
    for event in events:
        happen(world, event)
        alive = {process.name for process in world.core.processes if process.alive}
        assert alive == set(world.running)
    world.stop()
    world.run_for(10.0)
    assert world.core.finished
    assert not world.running


# --- Which embedders start and which stop, and with how many threads.
def test_embedders_leave_from_the_highest_and_come_with_the_lowest_free_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 8)
    world = World(embedders=4)
    assert [each.threads for each in world.started if each.role == "embedder"] == [2] * 4
    world.scale(2)
    assert world.stops() == ["embedder-4", "embedder-3"]
    for name in ("embedder-4", "embedder-3"):
        world.exit(name, 0)
    names = ["gateway", "store", "embedder-1", "embedder-2", "consolidator"]
    assert [each.name for each in world.core.processes] == names
    world.scale(12)
    assert [each.name for each in world.core.processes][2:-1] == [f"embedder-{number}" for number in range(1, 13)]


@given(
    st.lists(
        st.tuples(
            st.integers(0, 64), st.permutations([ModelChoice("onnx", name) for name in "abc"]), st.integers(1, 3)
        ),
        max_size=4,
    )
)
def test_the_first_model_has_the_wanted_number_of_embedders_and_each_other_one(
    wishes: list[tuple[int, list[ModelChoice], int]],
) -> None:
    world = World()
    for wanted, order, count in wishes:
        models = order[:count]
        world.pong("store", store(models=tuple(models)))
        world.scale(wanted)
        for name in world.stops():
            if name in world.running:
                world.exit(name, 0)
        having = Counter(each.model for each in world.core.processes if each.role == "embedder")
        assert having == Counter([models[0]] * wanted + (models[1:] if wanted else []))


# --- The life of one process: ready, dead, hanging, failed, stopped, and when it is started again.
def test_a_process_that_dies_is_started_again_at_once_then_with_a_pause_and_after_a_good_life_at_once() -> None:
    world = World()
    before = world.running["store"]
    world.exit("store")
    assert world.running["store"] != before
    assert ("gateway", PeerGone("store", before)) in world.told
    assert world.state("store") == "starting"
    assert world.process("store").restarts == 1
    world.core.on_health("store", before, store(), world.now)
    world.core.on_exit("store", before, KILLED, world.now)
    assert world.state("store") == "starting", "words of an earlier incarnation are ignored"
    for _ in range(FREE_RESTARTS):
        world.exit("store")
    assert world.state("store") == "restarting"
    world.run_for(DELAYS_S[FREE_RESTARTS] - 0.01)
    assert "store" not in world.running
    world.run_for(0.02)
    assert "store" in world.running
    world = World()
    for _ in range(4):
        world.exit("store")
        world.run_for(DELAYS_S[-1])
    world.ready("store")
    world.run_for(5 * FORGIVEN_S)
    world.exit("store")
    assert "store" in world.running


def test_a_crash_loop_fails_visibly_is_told_and_described_for_a_person() -> None:
    world = World()
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
    assert "Killed" in describe_ending("store", KILLED)
    assert "store.log" in describe_ending("store", 70)
    assert describe_ending("store", "no such file") == "no such file"


def test_a_failure_that_the_process_reports_is_not_retried_and_keeps_its_reason() -> None:
    world = World()
    world.exit("store")
    world.refuse("store", "a newer release")
    world.run_for(3600.0)
    assert "store" not in world.running
    assert (world.state("store"), world.process("store").error) == ("failed", "a newer release")


def test_what_is_never_ready_is_killed_and_tried_rarely() -> None:
    world = World()
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
    world = World()
    world.run_for(10.0)
    before = world.running["store"]
    world.run_for(Settings().stall_timeout_s - 1, answering=False)
    assert world.signals == []
    world.run_for(3.0, answering=False)
    assert ("store", "KILL") in world.signals
    assert world.running["store"] != before
    assert "process unresponsive" in caplog.messages


@pytest.mark.parametrize(("is_ready", "term_after_s", "kill_after_s"), [(True, ASK_S, TERM_S), (False, 0, STARTING_S)])
def test_a_stop_climbs_from_asking_to_killing(is_ready: bool, term_after_s: float, kill_after_s: float) -> None:
    world = World(is_settled=is_ready, embedders=0)
    world.stop()
    assert world.stops() == ["gateway"]
    if term_after_s:
        world.run_for(term_after_s - 0.01)
        assert world.signals == []
        world.run_for(0.01)
    assert world.signals == [("gateway", "TERM")]
    world.run_for(kill_after_s - 0.01)
    assert world.signals == [("gateway", "TERM")]
    world.run_for(0.01)
    assert world.signals[1] == ("gateway", "KILL")


def test_the_processes_stop_in_order_and_one_that_the_kernel_holds_is_not_waited_for() -> None:
    world = World(embedders=2)
    world.pong("store", store(has_files=True))
    world.dies_of_kill = False
    world.stop()
    world.run_for(5 * (ASK_S + TERM_S + KILL_S) + 0.1)
    assert world.core.finished
    assert world.stops() == ["gateway", "consolidator", "indexer", "embedder-1", "embedder-2", "store"]


def test_a_process_may_open_many_files_where_the_system_allows_it() -> None:
    program = """
import resource
from remembrancer.actors.actor_process import allow_many_files
resource.setrlimit(resource.RLIMIT_NOFILE, (256, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
allow_many_files()
print(*resource.getrlimit(resource.RLIMIT_NOFILE))"""
    present, most = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True).stdout.split()
    assert int(present) == min(MANY_FILES, int(most))
