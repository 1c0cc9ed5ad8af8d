from collections.abc import Iterator
from pathlib import Path

import pytest

from remembrancer.actors.store.records.sqlite_records import Records
from tests.contracts.records_rig import RecordsRig
from tests.contracts.runs_rig import RunsRig


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "records" / "memory.db"


@pytest.fixture
def rig(path: Path) -> Iterator[RecordsRig]:
    with RecordsRig(path) as made:
        yield made


@pytest.fixture
def records(path: Path) -> Iterator[Records]:
    with RecordsRig(path) as made:
        yield made.records


@pytest.fixture
def runs(path: Path) -> Iterator[RunsRig]:
    with RunsRig(path) as made:
        yield made
