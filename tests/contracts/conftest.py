"""The contract of the records is run over every implementation of it.

A backend declares what it can; a test says by the mark `needs` what beyond memories, versions, links, words and vectors
it asks for, and is skipped where that is not declared.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contracts.records_factories import FACTORIES, RecordsFactory


@pytest.fixture(params=FACTORIES, ids=lambda kind: kind.__name__)
def factory(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RecordsFactory]:
    needed = {need for mark in request.node.iter_markers("needs") for need in mark.args}
    if missing := needed - request.param.capabilities:
        pytest.skip(f"{request.param.__name__} has no {', '.join(sorted(missing))}")
    made: RecordsFactory = request.param(tmp_path)
    yield made
    made.close()
