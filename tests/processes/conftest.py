"""Homes and settings that several tests with whole runtimes want."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import empty_home
from tests.runtime import Runtime


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
    with empty_home() as directory:
        yield directory


@pytest.fixture
def runtime(home: Path, monkeypatch: pytest.MonkeyPatch) -> Runtime:
    """A home without embedders, whose runtime is started by the first bridge."""
    monkeypatch.setenv("REMEMBRANCER_EMBEDDERS", "0")
    return Runtime(home)
