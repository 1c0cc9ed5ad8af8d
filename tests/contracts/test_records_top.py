"""What every `Records` promises of the memories that nothing was asked of: the most important, the latest, a file's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from remembrancer.actors.store.records.contract import Filters, Order, Records
from remembrancer.protocol.writes import SourceRef
from tests.contracts.records_factories import FACTORIES
from tests.operations import OTHER_SESSION, REQUESTED_AT, SESSION, store_operation

ALL = Filters(SESSION)


@pytest.fixture(params=FACTORIES, ids=lambda kind: kind.__name__)
def records(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Records]:
    made = request.param(tmp_path)
    yield made.open()
    made.close()


def store(records: Records, name: str, **fields: Any) -> int:
    (outcome,) = records.apply([store_operation(name, name, **fields)])
    assert outcome.to_embed is not None
    return outcome.to_embed


@pytest.mark.parametrize("order", ["important", "latest"])
def test_the_first_are_given_in_order(records: Records, order: Order) -> None:
    dull = store(records, "dull", importance=0.1, requested_at=REQUESTED_AT + 9)
    old = store(records, "old", importance=0.9, requested_at=REQUESTED_AT, occurred_at=5.0)
    plain = store(records, "plain", importance=0.5, requested_at=REQUESTED_AT + 1)
    later = store(records, "later", importance=0.5, requested_at=REQUESTED_AT + 2)
    same = store(records, "same", importance=0.5, requested_at=REQUESTED_AT + 2)
    expected = {"important": [old, same, later, plain, dull], "latest": [dull, same, later, plain, old]}[order]
    assert records.top(ALL, order, 10) == expected
    assert records.top(ALL, order, 2) == expected[:2]


def test_the_first_pass_the_filters(records: Records) -> None:
    fact = store(records, "fact")
    event = store(records, "event", type="episodic")
    mine = store(records, "mine", scope="session", type="episodic")
    theirs = store(records, "theirs", scope="session", session_id=OTHER_SESSION, type="episodic")
    assert set(records.top(ALL, "important", 10)) == {fact, event, mine}
    assert records.top(Filters(SESSION, ("session",)), "latest", 10) == [mine]
    assert records.top(Filters(OTHER_SESSION, ("session",), ("episodic",)), "latest", 10) == [theirs]
    assert records.top(Filters(SESSION, ("project",), ("episodic",)), "latest", 10) == [event]


def test_memories_of_files_are_found_by_a_part_of_the_path(records: Records) -> None:
    quoted = store(records, "quoted", source=SourceRef(file='src/"o\'dd" näme.py'))
    plain = store(records, "plain", source=SourceRef(tool="näme.py", file="src/app.py"), requested_at=REQUESTED_AT + 1)
    store(records, "elsewhere")
    theirs = store(records, "theirs", scope="session", session_id=OTHER_SESSION, source=SourceRef(file="app.py"))
    assert records.from_files(["app.py"], ALL, 10) == [plain]
    assert records.from_files(['"o\'dd" näme.py'], ALL, 10) == [quoted]
    assert records.from_files(["näme.py", "app.py"], ALL, 10) == [plain, quoted]
    assert records.from_files(["näme.py", "app.py"], ALL, 1) == [plain]
    assert records.from_files([], ALL, 10) == []
    assert records.from_files(["app.py"], Filters(OTHER_SESSION, ("session",)), 10) == [theirs]
