"""Records of a test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contracts.records_factories import SqliteFactory


@pytest.fixture
def factory(tmp_path: Path) -> Iterator[SqliteFactory]:
    made = SqliteFactory(tmp_path)
    yield made
    made.close()
