"""Records of a test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from remembrancer.actors.store.records.sqlite_records import Records
from tests.contracts.records_factories import SqliteFactory
from tests.contracts.records_rig import RecordsRig


@pytest.fixture
def factory(tmp_path: Path) -> Iterator[SqliteFactory]:
    made = SqliteFactory(tmp_path)
    yield made
    made.close()


@pytest.fixture
def records(factory: SqliteFactory) -> Records:
    return factory.open()


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[RecordsRig]:
    with RecordsRig(tmp_path / "records" / "memory.db") as made:
        yield made
