"""Fixtures that all tests share: a private home, and the check that nothing outlives a test."""

import gc
import multiprocessing
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import hypothesis.core
import psutil
import pytest
from hypothesis import HealthCheck, settings

from remembrancer.protocol.paths import RuntimePaths
from tests.patience import PATIENCE_S
from tests.zones import in_zone, zone_at_noon

EXAMPLES_VARIABLE = "TEST_EXAMPLES"
"""The number of examples of each property: few a run, since each run draws others. `TEST_EXAMPLES=1000` looks long."""

settings.register_profile(
    "steady",
    max_examples=int(os.environ.get(EXAMPLES_VARIABLE, "40")),
    deadline=None,
    print_blob=True,
    suppress_health_check=[
        *(HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much),
        HealthCheck.function_scoped_fixture,
    ],
)
settings.load_profile("steady")
"""No property is judged by how long an example takes, nor by how many draws are too large or filtered out: a machine
that stalls, or chance, would make it fail."""

SEED_VARIABLE = "TEST_SEED"
"""What the random tests of a run begin from. Drawn anew for each run; to see a failure again, set the one it names."""


MEMORY = Path("/dev/shm")
DISK = Path("/tmp")
ENOUGH_BYTES = 4 << 30
"""The room that the files of tests side by side have there at least."""


def _root_of_files() -> Path:
    """The directory of all that tests write: in memory where there is room, for no disk is waited for there.

    What survives `kill -9` is the same on both: what a process has written is the kernel's, be there a disk or not.
    """
    if MEMORY.is_dir() and os.access(MEMORY, os.W_OK):
        state = os.statvfs(MEMORY)
        if state.f_bavail * state.f_frsize >= ENOUGH_BYTES and not state.f_flag & os.ST_NOEXEC:
            return MEMORY
    return DISK


ROOT_OF_FILES = _root_of_files()


OF_THE_SURROUNDINGS = (
    *("COLUMNS", "FORCE_COLOR", "LINES", "NO_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"),
    *("GIT_DIR", "GIT_INDEX_FILE", "GIT_WORK_TREE"),
)
"""Variables of whoever runs the tests that would decide what comes of them: how a terminal looks, and the repository
of git, which its hooks name."""


def pytest_configure(config: pytest.Config) -> None:
    """The processes that run tests side by side inherit the seed of the first one.

    What a shell runs in the background ignores interrupts, and all that it starts would: tests of interrupts want them.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as the launcher has it: its threads wait for each other
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(ROOT_OF_FILES))
    os.environ.setdefault("TMPDIR", str(ROOT_OF_FILES))
    tempfile.tempdir = None  # it is looked for again
    for variable in OF_THE_SURROUNDINGS:
        os.environ.pop(variable, None)
    for variable in ("NO_PROXY", "no_proxy"):  # a proxy, if there is one, leads to other machines
        os.environ[variable] = "localhost,127.0.0.1,::1"
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    seed = os.environ.setdefault(SEED_VARIABLE, str(random.SystemRandom().randrange(2**32)))
    if config.getoption("hypothesis_seed", None) is None:
        hypothesis.core.global_force_seed = int(seed)  # type: ignore[assignment]


def pytest_collection() -> None:
    """Collect no garbage while the tests are imported: hardly any of that is garbage."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Leave the objects that imports made out of every collection from here on: they are never garbage."""
    gc.enable()
    gc.collect()
    gc.freeze()


MAY_LEAVE_SOMETHING_OPEN = frozenset({"home", "tmp_path", "anyio_backend"})
"""The fixtures of tests that open files, sockets or tasks."""


@pytest.fixture(autouse=True)
def _leaks_are_charged_to_their_test(request: pytest.FixtureRequest) -> Iterator[None]:
    """Collect garbage after each test that may have opened something: it is charged with what it leaves open.

    Commands narrow the umask of their process, and some tests run them in this one.
    """
    before = os.umask(0o022)
    os.umask(before)
    yield
    os.umask(before)
    if not MAY_LEAVE_SOMETHING_OPEN.isdisjoint(request.fixturenames):
        gc.collect()


_failed = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Say at a failure what a random test began from."""
    report = yield
    if report.failed:
        item.stash[_failed] = True
        report.sections.append(("random seed", f"replay with {SEED_VARIABLE}={os.environ[SEED_VARIABLE]}"))
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, object, object]:
    """Let go of a failed test's traceback, which keeps alive what it held, before the next test begins.

    After the last test of a module, and after one that imported something, leave out of every collection what is alive:
    imports, and what they keep.
    """
    imported = len(sys.modules)
    result = yield
    if item.stash.get(_failed, False):
        for name in ("last_type", "last_value", "last_traceback", "last_exc"):
            sys.__dict__.pop(name, None)
        gc.collect()
    if nextitem is not None and (nextitem.path != item.path or len(sys.modules) > imported):
        gc.collect()
        gc.freeze()
    return result


PATIENT_ENVIRONMENT = {
    "REMEMBRANCER_CALL_BUDGET_S": "60",
    "REMEMBRANCER_BRIDGE_BUDGET_S": "90",
}


@pytest.fixture
def seed() -> int:
    return int(os.environ[SEED_VARIABLE])


@pytest.fixture
def dice(seed: int) -> random.Random:
    return random.Random(seed)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def home(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty home with a path short enough for sockets, in memory unless the test is marked `on_disk`.

    Its runtime answers when it can, unless the test is marked `hurried`, and is stopped at the end. Fails the test of
    which a process is left then.
    """
    for variable in [name for name in os.environ if name.startswith(("REMEMBRANCER_", "MEMORY_", "CLAUDE_"))]:
        if variable != "REMEMBRANCER_PORTABLE":
            monkeypatch.delenv(variable)
    with empty_home(DISK if request.node.get_closest_marker("on_disk") else ROOT_OF_FILES) as directory:
        monkeypatch.setenv("REMEMBRANCER_HOME", str(directory))
        if not request.node.get_closest_marker("hurried"):
            for name, value in PATIENT_ENVIRONMENT.items():
                monkeypatch.setenv(name, value)
        yield directory


@contextmanager
def empty_home(root: Path = ROOT_OF_FILES) -> Iterator[Path]:
    """A home whose runtime is stopped at the end. Raises `AssertionError` if a process is left then."""
    directory = Path(tempfile.mkdtemp(prefix="rmb-", dir=root))
    before = frozenset(psutil.pids())
    try:
        yield directory
        if RuntimePaths(directory).runtime_lock.exists():
            from tests.runtime import stop_runtime  # imports what most tests do without

            stop_runtime(directory)
    finally:
        left = processes_of(directory, besides=before)
        left += [psutil.Process(child.pid) for child in multiprocessing.active_children()]  # see tests/forked.py
        for process in left:
            process.kill()
        shutil.rmtree(directory, ignore_errors=True)
    assert not left, f"processes outlived the test: {left}"


def processes_of(
    directory: Path, timeout_s: float = PATIENCE_S, besides: frozenset[int] = frozenset()
) -> list[psutil.Process]:
    """Every process but this one and those of `besides` that has `directory` as its home and does not die in time.

    Forked actors have the environment of the server that they come from, and are known by where they work.
    An orphan of a test may stay a zombie for ever where process 1 collects none: a zombie counts as dead.
    """
    others = besides | {os.getpid()}
    deadline = time.monotonic() + timeout_s
    while (left := _alive(directory, others)) and time.monotonic() < deadline:
        time.sleep(0.02)
    return left


def _alive(directory: Path, besides: frozenset[int]) -> list[psutil.Process]:
    found = []
    for pid in psutil.pids():
        if pid not in besides:
            with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                process = psutil.Process(pid)
                homes = (process.cwd(), process.environ().get("REMEMBRANCER_HOME"))
                if str(directory) in homes and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
    return found


@pytest.fixture
def without_upkeep(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No maintenance archives what a test stores with dates of long ago."""
    monkeypatch.setenv("REMEMBRANCER_CONSOLIDATOR", "0")


@pytest.fixture
def without_embedders(home: Path, without_upkeep: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is embedded unless a test starts some, so that no link between near-duplicates appears meanwhile."""
    monkeypatch.setenv("REMEMBRANCER_EMBEDDERS", "0")


@pytest.fixture(scope="module")
def at_noon() -> Iterator[None]:
    """Of tests that name the day: no midnight comes while they run."""
    with in_zone(zone_at_noon()):
        yield


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    directory = tmp_path / "shop"
    (directory / "memory").mkdir(parents=True)
    return directory


@pytest.fixture
def door(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The HTTP side of the home's runtime, which the test starts."""
    from tests.processes.http_door import http_door

    with http_door(home, monkeypatch) as door:
        yield door
