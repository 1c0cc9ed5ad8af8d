"""Damage inside a file of records: a sound one is made of what can be read of it and of an earlier copy."""

import random
import shutil
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from remembrancer.actors import repair
from remembrancer.actors.repair import Repaired
from remembrancer.actors.snapshots import damage_of
from remembrancer.actors.store.records.schema import MEMORY, recount
from remembrancer.commands.backup import repair as repair_file
from remembrancer.protocol.session_life import RecordEvents, Turn
from remembrancer.protocol.writes import ForgetMemory, UpdateMemory
from tests.contracts.records_rig import RecordsRig, apply
from tests.forked import is_killed
from tests.operations import SESSION, change_operation, memory_id_of, store_operation
from tests.spaces import overwrite_pages

PLACES = 20
KILLS = 6
BEFORE, SINCE = 120, 20
PAGE = 4096
COUNTED = ("tallies", "embedded")


class Home:
    def __init__(self, directory: Path) -> None:
        self.directory, self.path, self.copy = directory, directory / "memory.db", directory / "copy.db"
        rig = RecordsRig(self.path)
        records = rig.records
        stored = [operation(number) for number in range(BEFORE + SINCE)]
        apply(records, stored[:BEFORE])
        apply(records, [change_operation("told", RecordEvents(SESSION, (Turn("user", "the gate is green", 1.0),) * 9))])
        self._embed(0)
        with closing(sqlite3.connect(self.path)) as source, closing(sqlite3.connect(self.copy)) as target:
            source.backup(target)
            target.execute("PRAGMA journal_mode = DELETE")
        apply(records, stored[BEFORE:])
        changed = [memory_id_of(each) for each in stored[:BEFORE:30]]
        newer = [(each, UpdateMemory(each, content=f"a newer text of {each}")) for each in changed]
        apply(records, [change_operation(f"change{each}", change) for each, change in newer])
        apply(records, [change_operation("forget", ForgetMemory(memory_id_of(stored[1])))])
        self._embed(BEFORE)
        self.before, self.now = rows(self.copy), rows(self.path)
        rig.close()
        query(self.path, "PRAGMA wal_checkpoint(TRUNCATE)")
        self.roots = dict(query(self.path, "SELECT name, rootpage FROM sqlite_schema WHERE rootpage > 0"))
        kinds = query(self.path, "SELECT pageno, name, pagetype FROM dbstat")
        self.owners = {page: name for page, name, _ in kinds}
        self.overflows = {page for page, _, kind in kinds if kind == "overflow"}

    def _embed(self, after: int) -> None:
        with closing(sqlite3.connect(self.path)) as connection, connection:
            for (number,) in connection.execute("SELECT number FROM memories WHERE number > ?", (after,)).fetchall():
                vector = random.Random(number).randbytes(1536)
                connection.execute(
                    "INSERT INTO passages (space, memory, model, ordinal, start, end, vector) "
                    "VALUES (1, ?, 'm', 0, 0, 9, ?)",
                    (number, vector),
                )

    def damaged(self, *pages: int, filled: random.Random | None = None) -> Path:
        path = self.directory / "damaged.db"
        shutil.copyfile(self.path, path)
        overwrite_pages(path, *pages, content=bytes(PAGE) if filled is None else filled.randbytes(PAGE))
        return path

    def repaired(self, damaged: Path, *, copy: bool = True) -> tuple[Repaired, dict[str, set[tuple[Any, ...]]]]:
        target = self.directory / "repaired.db"
        done = repair.rebuild(damaged, self.copy if copy else None, target, partial(MEMORY.migrate, path=None), recount)
        assert damage_of(target) is None
        for name in ("words_1", "names_1"):
            query(target, f"INSERT INTO {name} ({name}, rank) VALUES ('integrity-check', 1)")
        assert query(target, "SELECT count(*) FROM words_1_docsize") == query(target, "SELECT count(*) FROM memories")
        return done, rows(target)


def operation(number: int) -> Any:
    content = f"lantern number {number} hangs at the {'long ' * random.Random(number).choice((1, 20, 300, 2000))}gate"
    return store_operation(f"op{number}", content, tags=("lantern", f"gate {number % 7}"))


def query(path: Path, sql: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(sql).fetchall()


def rows(path: Path) -> dict[str, set[tuple[Any, ...]]]:
    tables = query(path, "SELECT name FROM pragma_table_list WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")
    return {name: set(query(path, f"SELECT * FROM {name}")) for (name,) in tables}


def ids(memories: set[tuple[Any, ...]]) -> set[str]:
    return {value for row in memories for value in row[:3] if str(value).startswith("memory:")}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    return Home(tmp_path_factory.mktemp("records"))


def check(home: Home, damaged: Path, owners: set[str], *, copy: bool = True) -> None:
    """Whatever is not there is new since the copy, was in one of the damaged `owners`, and is named."""
    done, found = home.repaired(damaged, copy=copy)
    before = home.before if copy else {table: set() for table in home.now}
    named = {(row.table, row.name) for row in done.lost}
    lost = {table: expected - found[table] for table, expected in home.now.items() if table not in COUNTED}
    lost_memories = {row[0] for row in lost["memories"]}
    assert lost_memories == set() or "memories" in owners
    for table, missing in lost.items():
        assert missing <= home.now[table] - before[table], f"the copy has what is missing of {table}"
        assert found[table] - home.now[table] <= before[table], f"nobody wrote what is in {table}"
        alone = [row for row in missing if not lost_memories.intersection(row)]
        assert not alone or table in {row.table for row in (*done.lost, *done.from_copy)} | set(done.incomplete), table
        assert not alone or table in owners, table
    there = ids(found["memories"])
    assert {name for table, name in named if table == "memories"} == ids(lost["memories"]) - there
    if not any(lost.values()):
        assert found["tallies"] == home.now["tallies"] or done.from_copy


def test_a_zeroed_page_costs_what_was_written_below_it_since_the_copy_and_that_is_named(home: Home) -> None:
    pages = random.Random(33).sample(range(2, home.path.stat().st_size // PAGE + 1), PLACES - 1)
    for page in [1, *pages]:
        damaged = home.damaged(page)
        is_noticed = page not in home.overflows or home.owners[page] in ("memories", "history")
        assert damage_of(damaged) or not is_noticed, page
        check(home, damaged, {home.owners[page]})


def test_many_pages_at_once_and_pages_of_noise_cost_no_more_than_their_rows(home: Home) -> None:
    pages = random.Random(34).sample(range(1, home.path.stat().st_size // PAGE + 1), 30)
    check(home, home.damaged(*pages), {home.owners[page] for page in pages})
    check(home, home.damaged(*pages, filled=random.Random(35)), {home.owners[page] for page in pages})


def test_without_a_copy_what_can_be_read_is_there(home: Home) -> None:
    page = next(page for page, owner in home.owners.items() if owner == "memories" and page != home.roots["memories"])
    check(home, home.damaged(page), {"memories"}, copy=False)


def test_a_damaged_root_costs_none_of_the_rows_below_it(home: Home) -> None:
    damaged = home.damaged(home.roots["memories"])
    for copy in (True, False):
        done, found = home.repaired(damaged, copy=copy)
        assert found["memories"] == home.now["memories"]
        assert (done.lost, done.from_copy) == ([], [])


def test_a_damaged_root_and_the_first_leaf_of_an_index_cost_only_the_rows_of_that_leaf(home: Home) -> None:
    index = "name = 'sqlite_autoindex_memories_1'"  # the one that has their ids
    ((leaf, entries),) = query(home.path, f"SELECT pageno, ncell FROM dbstat WHERE {index} AND path = '/000/'")
    done, found = home.repaired(home.damaged(home.roots["memories"], leaf), copy=False)
    lost = home.now["memories"] - found["memories"]
    assert len(lost) <= entries + 1, "with the entry between this leaf and the next"
    assert len(lost) == len([row for row in done.lost if row.table == "memories"])


def test_what_is_in_the_log_alone_is_not_lost_and_without_a_file_the_copy_is_all_there_is(home: Home) -> None:
    page, path = home.roots["memories"], home.directory / "logged.db"
    shutil.copyfile(home.path, path)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        connection.execute("UPDATE memories SET domain = 'told in the log'")
        logged = connection.execute("SELECT * FROM memories").fetchall()
        for suffix in ("", "-wal"):
            shutil.copyfile(f"{path}{suffix}", f"{home.damaged(page)}{suffix}")
    damaged = home.directory / "damaged.db"
    overwrite_pages(damaged, 1, page)
    done, found = home.repaired(damaged)
    damaged.with_name("damaged.db-wal").unlink()
    assert found["memories"] == set(logged)
    assert done.lost == []
    damaged.unlink()
    done, found = home.repaired(damaged)
    assert found["memories"] == home.before["memories"]
    assert len(done.from_copy) >= len(home.before["memories"])


def test_rows_that_refer_to_a_dangling_one_go_with_it_and_those_that_refer_to_none_stay() -> None:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(
            """CREATE TABLE a (b REFERENCES b); CREATE TABLE b (id PRIMARY KEY, c REFERENCES c);
               CREATE TABLE c (id PRIMARY KEY);
               INSERT INTO a VALUES (1), (2), (NULL); INSERT INTO b VALUES (1, 7), (2, 8); INSERT INTO c VALUES (8)"""
        )
        repair.drop_dangling(connection)
        assert connection.execute("SELECT b FROM a").fetchall() == [(2,), (None,)]


def test_a_repair_that_is_killed_at_any_moment_is_done_by_the_next_one(home: Home) -> None:
    with damaged_beside_a_log(home, home.directory / "kept") as path:
        place = path.parent
        (place / "backups").mkdir(parents=True)
        shutil.copyfile(home.copy, place / "backups" / "memory.db.20260131T120000Z")
        shutil.copytree(place, home.directory / "whole")
        began = time.monotonic()
        repair_file(home.directory / "whole" / "memory.db", 0.0)
        expected, whole_s = rows(home.directory / "whole" / "memory.db"), time.monotonic() - began
        assert "in the log alone" in str(expected["sessions"])
        chance, kills = random.Random(36), 0
        while kills < KILLS:
            copied = shutil.copytree(place, home.directory / "killed")
            while is_killed(chance.uniform(0.0, 1.2 * whole_s), repair_if_damaged, copied / "memory.db"):
                kills += 1
            assert rows(copied / "memory.db") == expected
            assert list(copied.glob("memory.db.damaged-*"))
            shutil.rmtree(copied)


def test_a_repair_that_ended_too_soon_is_done_by_the_next_one(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    with damaged_beside_a_log(home, home.directory / "log") as damaged:
        shutil.copytree(damaged.parent, home.directory / "ended")
    path = home.directory / "ended" / "memory.db"
    replace = Path.replace

    def ends_at_last(source: Path, target: Path) -> Path:
        if target == path:
            raise KeyboardInterrupt
        return replace(source, target)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", ends_at_last)
        with pytest.raises(KeyboardInterrupt):
            repair_file(path, 0.0)
    assert not path.with_name("memory.db-wal").exists()
    assert damage_of(path)
    repair_file(path, 0.0)
    assert "in the log alone" in str(rows(path)["sessions"])


@contextmanager
def damaged_beside_a_log(home: Home, place: Path) -> Iterator[Path]:
    """A copy of the file without a page of its memories, and with a change that is in its log alone."""
    place.mkdir()
    path = place / "memory.db"
    shutil.copyfile(home.path, path)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        with connection:
            connection.execute("UPDATE sessions SET client = 'in the log alone'")
        overwrite_pages(path, home.roots["memories"])
        yield path


def repair_if_damaged(path: Path) -> None:
    if damage_of(path):
        repair_file(path, time.time())
