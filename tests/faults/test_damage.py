"""Damage to a file of a home beside its records: it is said, nothing is overwritten, and projects go on.

The worst dozen of `tests.faults.damage`, which tries all of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import anyio
import pytest

from remembrancer.actors.store.records.sqlite_file import SqliteFile
from remembrancer.actors.store.records.sqlite_records import Records
from remembrancer.protocol.errors import FileLocked
from tests.faults.damage import Damage, Scene, damages, tried

WORST = (
    "queue.db: directory",
    "queue.db: pipe",
    "queue.db: newer",
    "projects/P/index.db: directory",
    "tokens.json: directory",
    "config.toml: pipe",
    "logs: file",
    "runtime.json: directory",
    ".: full disk",
)
BY_NAME = {each.name: each for each in damages()}

pytestmark = pytest.mark.usefixtures("home")


@pytest.fixture(scope="module")
def scene() -> Iterator[Scene]:
    made = Scene()
    try:
        anyio.run(made.prepare)
        yield made
    finally:
        made.close()


@pytest.mark.parametrize("damage", [BY_NAME[name] for name in WORST if name in BY_NAME], ids=lambda each: each.name)
async def test_damage_to_one_file_stops_no_other_project(scene: Scene, damage: Damage) -> None:
    outcome = await tried(scene, damage)
    assert outcome.is_good, outcome


def test_a_file_that_was_taken_away_is_not_begun_anew_by_who_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    records = Records(SqliteFile(path), "user", lambda: 1.0)
    assert records.proposals() == ()
    for each in tmp_path.iterdir():
        each.unlink()
    assert records.proposals() == (), "what is open is still there for this thread"
    with ThreadPoolExecutor(1) as another, pytest.raises(FileLocked, match="taken away"):
        another.submit(records.proposals).result()
    assert not path.exists()
    records.close()
