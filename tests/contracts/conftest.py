"""The contract of the records is run over every implementation of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contracts.records_factories import FACTORIES, RecordsFactory


@pytest.fixture(params=FACTORIES, ids=lambda kind: kind.__name__)
def factory(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RecordsFactory]:
    made: RecordsFactory = request.param(tmp_path)
    yield made
    made.close()
