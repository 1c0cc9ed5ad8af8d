from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import empty_home
from tests.runtime import Runtime


@pytest.fixture
def second(home: Path, without_upkeep: None) -> Iterator[Path]:
    with empty_home() as directory:
        yield directory


@pytest.fixture
def runtime(home: Path, monkeypatch: pytest.MonkeyPatch) -> Runtime:
    """A home without embedders, whose runtime is started by the first bridge."""
    monkeypatch.setenv("REMEMBRANCER_EMBEDDERS", "0")
    return Runtime(home)
