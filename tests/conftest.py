"""Fixtures that all tests share: a private home, and the check that nothing outlives a test."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
import warnings
from collections.abc import Generator, Iterator
from pathlib import Path

import psutil
import pytest
from hypothesis import HealthCheck, settings

from tests.patience import PATIENCE_S

settings.register_profile("steady", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("steady")
"""No property is judged by how long an example takes: a machine that stalls would make it fail."""

_GARBAGE = "default::pytest.PytestUnraisableExceptionWarning"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """What a failed test leaves open is noticed when it is collected as garbage, during another test or the second run
    of its own: neither may fail for it. As long as no test has failed, whatever is left open is an error."""
    report = yield
    if report.failed and call.excinfo is not None and not _is_of_garbage(call.excinfo.value):
        warnings.simplefilter("default", pytest.PytestUnraisableExceptionWarning)  # for what is left of this test
        for each in item.session.items:
            if not any(mark.args == (_GARBAGE,) for mark in each.iter_markers("filterwarnings")):
                each.add_marker(pytest.mark.filterwarnings(_GARBAGE))
    return report


def _is_of_garbage(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return all(_is_of_garbage(each) for each in error.exceptions)
    return isinstance(error, pytest.PytestUnraisableExceptionWarning)


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
        for process in left:
            process.kill()
        shutil.rmtree(directory, ignore_errors=True)
    assert not left, f"processes outlived the test: {[process.info for process in left]}"


@pytest.fixture
def patient(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The home's runtime answers when it can, and never without its store: for tests of what it answers, not when."""
    for name, value in PATIENT_ENVIRONMENT.items():
        monkeypatch.setenv(name, value)


def processes_of(directory: Path, timeout_s: float = PATIENCE_S) -> list[psutil.Process]:
    """Every process but this one whose environment names `directory` as its home and that does not die in time.

    An orphan of a test may stay a zombie for ever where process 1 collects none: a zombie counts as dead.
    """
    deadline = time.monotonic() + timeout_s
    while (left := _alive(directory)) and time.monotonic() < deadline:
        time.sleep(0.02)
    return left


def _alive(directory: Path) -> list[psutil.Process]:
    found = psutil.process_iter(["pid", "cmdline", "environ", "status"])
    return [
        process
        for process in found
        if process.pid != os.getpid()
        and (process.info["environ"] or {}).get("REMEMBRANCER_HOME") == str(directory)
        and process.info["status"] != psutil.STATUS_ZOMBIE
    ]
