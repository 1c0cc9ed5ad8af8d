"""Homes and settings that several tests with whole runtimes want."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT_OF_FILES, processes_of
from tests.runtime import Runtime, stop_runtime


@pytest.fixture
def without_upkeep(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No maintenance archives what a test stores with dates of long ago."""
    monkeypatch.setenv("REMEMBRANCER_CONSOLIDATOR", "0")


@pytest.fixture
def without_embedders(home: Path, without_upkeep: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is embedded unless a test starts some, so that no link between near-duplicates appears meanwhile."""
    monkeypatch.setenv("REMEMBRANCER_EMBEDDERS", "0")


@pytest.fixture
def second(home: Path, without_upkeep: None) -> Iterator[Path]:
    """Another empty home. Fails the test whose processes outlive it."""
    directory = Path(tempfile.mkdtemp(prefix="rmb-", dir=ROOT_OF_FILES))
    try:
        yield directory
        stop_runtime(directory)
    finally:
        left = processes_of(directory)
        for process in left:
            process.kill()
        shutil.rmtree(directory, ignore_errors=True)
    assert not left


@pytest.fixture
def runtime(home: Path, monkeypatch: pytest.MonkeyPatch) -> Runtime:
    """A home without embedders, whose runtime is started by the first bridge."""
    monkeypatch.setenv("REMEMBRANCER_EMBEDDERS", "0")
    return Runtime(home)
