"""Fixtures that all tests share: a private home, and the check that nothing outlives a test."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest


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


def processes_of(directory: Path, timeout_s: float = 5.0) -> list[psutil.Process]:
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
