"""Fixtures that all tests share: a private home, and the check that nothing outlives a test."""

from __future__ import annotations

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
from pathlib import Path
from typing import Any

import hypothesis.core
import psutil
import pytest
from hypothesis import HealthCheck, settings

from tests.patience import PATIENCE_S

settings.register_profile("steady", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("steady")
"""No property is judged by how long an example takes: a machine that stalls would make it fail."""

SEED_VARIABLE = "TEST_SEED"
"""What the random tests of a run begin from. Drawn anew for each run; to see a failure again, set the one it names."""


def pytest_configure(config: pytest.Config) -> None:
    """The processes that run tests side by side inherit the seed of the first one.

    What a shell runs in the background ignores interrupts, and all that it starts would: tests of interrupts want them.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as the launcher has it: its threads wait for each other
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    seed = os.environ.setdefault(SEED_VARIABLE, str(random.SystemRandom().randrange(2**32)))
    if config.getoption("hypothesis_seed", None) is None:
        hypothesis.core.global_force_seed = int(seed)  # type: ignore[assignment]


def pytest_collection_finish() -> None:
    """What the imports made is never garbage: left out of every collection from here on."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _leaks_are_charged_to_their_test() -> Iterator[None]:
    """What a test leaves open is noticed when it is collected as garbage: here, and not during another test."""
    yield
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
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """What a failed test held is kept alive by its traceback: let go of it before the next test begins."""
    result = yield
    if item.stash.get(_failed, False):
        for name in ("last_type", "last_value", "last_traceback", "last_exc"):
            sys.__dict__.pop(name, None)
        gc.collect()
    return result


PATIENT_ENVIRONMENT = {
    "REMEMBRANCER_WRITE_BUDGET_S": "30",
    "REMEMBRANCER_READ_BUDGET_S": "30",
    "REMEMBRANCER_CALL_BUDGET_S": "60",
    "REMEMBRANCER_BRIDGE_BUDGET_S": "90",
    "REMEMBRANCER_HEARTBEAT_TIMEOUT_S": "20",
}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty home with a path short enough for sockets. Fails the test that leaves a process of it behind."""
    for variable in [name for name in os.environ if name.startswith(("REMEMBRANCER_", "MEMORY_", "CLAUDE_"))]:
        monkeypatch.delenv(variable)
    directory = Path(tempfile.mkdtemp(prefix="rmb-", dir="/tmp"))
    monkeypatch.setenv("REMEMBRANCER_HOME", str(directory))
    try:
        yield directory
    finally:
        left = processes_of(directory)
        left += [psutil.Process(child.pid) for child in multiprocessing.active_children()]  # see tests/forked.py
        for process in left:
            process.kill()
        shutil.rmtree(directory, ignore_errors=True)
    assert not left, f"processes outlived the test: {left}"


@pytest.fixture
def patient(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The home's runtime answers when it can, and never without its store: for tests of what it answers, not when."""
    for name, value in PATIENT_ENVIRONMENT.items():
        monkeypatch.setenv(name, value)


def processes_of(directory: Path, timeout_s: float = PATIENCE_S) -> list[psutil.Process]:
    """Every process but this one whose environment names `directory` as its home and that does not die in time.

    Forked actors have the environment of the server that they come from, and are known by where they work.
    An orphan of a test may stay a zombie for ever where process 1 collects none: a zombie counts as dead.
    """
    deadline = time.monotonic() + timeout_s
    while (left := _alive(directory)) and time.monotonic() < deadline:
        time.sleep(0.02)
    return left


def _alive(directory: Path) -> list[psutil.Process]:
    found = psutil.process_iter(["pid", "cmdline", "cwd", "environ", "status"])
    return [
        process
        for process in found
        if process.pid != os.getpid()
        and str(directory) in ((process.info["environ"] or {}).get("REMEMBRANCER_HOME"), process.info["cwd"])
        and process.info["status"] != psutil.STATUS_ZOMBIE
    ]


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A working tree with a directory for notes."""
    directory = tmp_path / "shop"
    (directory / "memory").mkdir(parents=True)
    return directory


@pytest.fixture
def door(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The HTTP side of the home's runtime, which the test starts."""
    from tests.processes.http_door import http_door

    with http_door(home, monkeypatch) as door:
        yield door
