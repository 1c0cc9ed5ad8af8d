"""Fixtures that all tests share: a private home, and the check that nothing outlives a test."""

from __future__ import annotations

import os
import shutil
import tempfile
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
    for variable in [name for name in os.environ if name.startswith(("REMEMBRANCER_", "MEMORY_"))]:
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


def processes_of(directory: Path) -> list[psutil.Process]:
    """Every live process whose environment names `directory` as its home, but this one. Waits 5 s for the dying."""
    mine = {os.getpid()}
    found = [process for process in psutil.process_iter(["pid", "cmdline", "environ"]) if process.pid not in mine]
    ours = [p for p in found if (p.info["environ"] or {}).get("REMEMBRANCER_HOME") == str(directory)]
    _, alive = psutil.wait_procs(ours, timeout=5)
    return [process for process in alive if process.status() != psutil.STATUS_ZOMBIE]
