"""Homes of release 0.2.0, which have a file of records for each space, become one database."""

import asyncio
import hashlib
import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import tarfile
import time
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from remembrancer.actors.migrations import drop_old_files, version_of, write_checked_copy
from remembrancer.actors.store import spaces
from remembrancer.actors.store.committer import Committer
from remembrancer.actors.store.old_home_migration import migrate_old_home, old_files
from remembrancer.actors.store.spaces import HomeSpaces
from remembrancer.commands import doctor
from remembrancer.commands.backup import locked, restore
from remembrancer.commands.clients import ClientEnvironment
from remembrancer.commands.doctor import Examination
from remembrancer.config.settings import Settings
from remembrancer.protocol.errors import FileUnusable, RecordsUnusable, SchemaTooOld, StorageFull
from remembrancer.protocol.file_locks import FileLock
from remembrancer.protocol.paths import RuntimePaths
from remembrancer.protocol.reads import ListMemories
from remembrancer.protocol.writes import PromoteMemory
from tests.actors.gateway_rig import Rig
from tests.actors.store_process import store_rig
from tests.contracts.dying_process import dies_of
from tests.contracts.records_rig import check_derived
from tests.forked import is_killed
from tests.operations import PROJECT, change_operation
from tests.patience import until
from tests.runtime import command
from tests.spaces import full_disk, rows_of, spoil_page, write_rows

HOMES = Path(__file__).parent.parent / "homes"
KILLS = int(os.environ.get("KILLS", "12"))
DERIVED = {"tallies", "embedded", "run_changes", "lane_entries"}
NUMBERS = {"memory", "source", "target", "entity", "subject", "turn", "up_to", "number", "sequence"}
GONE = {"begins", "ends", "replaced_at"}
"""Columns of the history that repeated what its records say."""

Portrait = dict[str, list[str]]


def old_home(directory: Path, archive: str) -> RuntimePaths:
    with tarfile.open(HOMES / archive) as packed:
        packed.extractall(directory, filter="data")
    ((home,),) = [[path.parent.parent for path in directory.rglob("user/memory.db")]]
    return RuntimePaths(home)


def portraits(paths: RuntimePaths, scratch: Path) -> dict[str, Portrait]:
    """All that the old files say, by their spaces, numbers left out and what they refer to in their place."""
    found = {}
    for name, path in old_files(paths).items():
        copy = scratch / "portrayed.db"
        copy.unlink(missing_ok=True)
        with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(copy, isolation_level=None)) as file:
            source.backup(file)
            with suppress(sqlite3.OperationalError):  # it has them
                file.execute("ALTER TABLE memories ADD COLUMN due REAL")
                file.execute("ALTER TABLE memories ADD COLUMN done INTEGER NOT NULL DEFAULT 0")
            found[name] = portrait(file, None)
    return found


def portrait(file: sqlite3.Connection, space: int | None) -> Portrait:
    names = {
        "memories": dict(file.execute("SELECT number, id FROM memories").fetchall()),
        "entities": dict(file.execute("SELECT number, name || type FROM entities").fetchall()),
        "turns": dict(file.execute("SELECT number, session_id || turn_number FROM turns").fetchall()),
    }
    owner = {} if space is None else dict(file.execute("SELECT number, space FROM memories").fetchall())
    found: Portrait = {}
    for (table,) in file.execute("SELECT name FROM pragma_table_list WHERE type = 'table'").fetchall():
        if table.startswith("sqlite_") or table in DERIVED or table == "spaces":
            continue
        rows = file.execute(f"SELECT * FROM {table}")
        columns = [column for column, *_ in rows.description]
        said = []
        for row in rows:
            named: dict[str, Any] = dict(zip(columns, row, strict=True))
            number = named.get("memory") or named.get("source")
            if space is not None and named.get("space", owner.get(number)) != space:
                continue
            if table == "lane" and named["journal"] == "":
                continue
            named.pop("space", None)
            said.append(repr(sorted(resolved(table, named, names).items())))
        found[table] = sorted(said)
    return found


def resolved(table: str, row: dict[str, Any], names: dict[str, dict[int, str]]) -> dict[str, Any]:
    for column in NUMBERS & row.keys():
        value = row[column]
        if isinstance(value, int):
            kind = {"entity": "entities", "subject": "entities", "turn": "turns"}.get(column, "memories")
            row[column] = names[kind].get(value, "gone")
    return {column: value for column, value in row.items() if column not in ("number", "sequence", *GONE)}


def new_portraits(paths: RuntimePaths) -> dict[str, Portrait]:
    check_derived(paths.database)
    with closing(sqlite3.connect(paths.database)) as file:
        spaces = file.execute("SELECT name, number FROM spaces").fetchall()
        return {name: portrait(file, number) for name, number in spaces}


def check(paths: RuntimePaths, before: dict[str, Portrait]) -> None:
    after = new_portraits(paths)
    assert after.keys() == before.keys()
    for space, tables in before.items():
        for table, rows in tables.items():
            assert after[space].get(table, []) == rows, (space, table)
    left = [path.name for path in paths.home.glob("memory.db*")]
    assert left == ["memory.db"], left


@pytest.mark.parametrize("archive", ["0.2.0.tar.gz", "0.2.0-shared.tar.gz", "0.2.0-code.tar.gz"])
def test_every_row_of_an_old_home_is_in_its_space_and_the_old_files_stay(archive: str, tmp_path: Path) -> None:
    paths = old_home(tmp_path / "home", archive)
    before = portraits(paths, tmp_path)
    files = {path: path.read_bytes() for path in old_files(paths).values()}
    migrate_old_home(paths)
    check(paths, before)
    assert {path: path.read_bytes() for path in files} == files
    migrate_old_home(paths)
    drop_old_files(paths.home)
    assert old_files(paths) == {}


def test_a_kill_at_any_moment_leaves_a_home_that_is_brought_forward_next_time(tmp_path: Path) -> None:
    paths = old_home(tmp_path / "home", "0.2.0-shared.tar.gz")
    before = portraits(paths, tmp_path)
    chance = random.Random(KILLS)
    began = time.monotonic()
    migrate_old_home(RuntimePaths(shutil.copytree(paths.home, tmp_path / "timed")))
    whole_s = time.monotonic() - began
    home = tmp_path / "killed"
    for _ in range(0, KILLS, 2):
        copied = RuntimePaths(shutil.copytree(paths.home, home))
        for _ in range(2):  # what the first one left is killed again
            is_killed(chance.uniform(0.0, whole_s), migrate_old_home, copied)
        migrate_old_home(copied)
        check(copied, before)
        assert portraits(copied, tmp_path) == before, "the old files are unchanged"
        shutil.rmtree(home)


def test_a_kill_as_soon_as_the_database_is_in_place_leaves_no_copy_of_an_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = old_home(tmp_path / "home", "0.2.0.tar.gz")
    before = portraits(paths, tmp_path)

    def move_and_die(fresh: Path, target: Path) -> None:
        fresh.replace(target)
        os.kill(os.getpid(), signal.SIGKILL)

    monkeypatch.setattr(f"{migrate_old_home.__module__}.move_into_place", move_and_die)
    assert dies_of(lambda: migrate_old_home(paths))
    check(paths, before)


def test_a_backup_of_release_0_2_0_takes_the_place_of_a_database(tmp_path: Path) -> None:
    old, paths = (old_home(tmp_path / name, f"{name}.tar.gz") for name in ("0.2.0", "0.2.0-shared"))
    migrate_old_home(paths)
    before, copied = portraits(old, tmp_path), []
    for path in old_files(old).values():
        name, copy = str(path.relative_to(old.home)), tmp_path / "staged" / path.relative_to(old.home)
        copy.parent.mkdir(parents=True)
        write_checked_copy(path, copy, "no room")
        copied.append({"name": name, "sha256": hashlib.sha256(copy.read_bytes()).hexdigest(), "size_bytes": 0})
    (tmp_path / "staged" / "manifest.json").write_text(json.dumps({"version": 1, "files": copied}))
    with tarfile.open(tmp_path / "archive.tar", "w") as archive:
        for path in sorted(each for each in (tmp_path / "staged").rglob("*") if each.is_file()):
            archive.add(path, str(path.relative_to(tmp_path / "staged")))
    with locked(paths):
        restore(paths, tmp_path / "archive.tar", 0.0)
    check(paths, before)


def test_a_full_disk_leaves_an_old_home_which_is_brought_forward_when_there_is_room(tmp_path: Path) -> None:
    paths = old_home(tmp_path / "home", "0.2.0-shared.tar.gz")
    before = portraits(paths, tmp_path)
    there = RuntimePaths(shutil.copytree(paths.home, tmp_path / "there"))
    migrate_old_home(there)
    size = there.database.stat().st_size
    for limit_bytes in (0, size // 10, size // 2, size - 4096):  # for the copy of a file, and the database itself
        with full_disk(limit_bytes), pytest.raises(StorageFull, match="make room"):
            migrate_old_home(paths)
        assert list(paths.home.glob("memory.db*")) in ([], [paths.home / "memory.db.new"])
    migrate_old_home(paths)
    check(paths, before)


def test_a_damaged_old_file_is_named_and_the_rest_comes_when_it_is_restored_or_moved_away(tmp_path: Path) -> None:
    paths = old_home(tmp_path / "home", "0.2.0.tar.gz")
    before = portraits(paths, tmp_path)
    user, project = old_files(paths).values()
    whole = project.read_bytes()
    spoil_page(project, "history")
    user.write_bytes(b"no database at all" * 500)
    at = examination(paths)
    for path in (user, project):
        with pytest.raises(RecordsUnusable, match="move it elsewhere") as refused:
            migrate_old_home(paths)
        assert str(path) in refused.value.message
        found = doctor.check_records(at)
        assert (found.status, found.advice) == ("problem", "restore a backup of it, or move it elsewhere")
        assert not paths.database.exists()
        path.rename(path.with_name("aside.db"))
    project.write_bytes(whole)
    migrate_old_home(paths)
    (name,) = new_portraits(paths)
    assert new_portraits(paths)[name]["memories"] == before[name]["memories"]


def test_an_old_file_of_before_the_first_release_is_named_until_it_is_moved_away(tmp_path: Path) -> None:
    paths = old_home(tmp_path / "home", "0.2.0.tar.gz")
    user, project = old_files(paths).values()
    write_rows(user, "PRAGMA user_version = 57")
    with pytest.raises(SchemaTooOld, match=f"{user} was written by a release older than 0.2.0"):
        migrate_old_home(paths)
    assert f"{user}: was written by a release older than 0.2.0" in str(doctor.check_records(examination(paths)))
    assert (version_of(user), paths.database.exists()) == (57, False)
    user.rename(user.with_name("aside.db"))
    migrate_old_home(paths)
    assert list(new_portraits(paths)) == [project.parent.name]


def bring_forward_late(paths: RuntimePaths) -> None:
    while not paths.home.with_name("go on").exists():
        time.sleep(0.05)
    migrate_old_home(paths)


async def test_a_command_waits_for_the_upgrade_of_an_old_home_and_a_write_is_queued(tmp_path: Path) -> None:
    paths = old_home(tmp_path / "home", "0.2.0.tar.gz")
    rig = Rig(paths.home, Settings(call_budget_s=20.0))

    async def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        run = partial(command, *arguments, home=paths.home, directory=tmp_path)
        return await asyncio.to_thread(run)

    late = {f"{spaces.__name__}.migrate_old_home": bring_forward_late}
    with FileLock(paths.start_lock) as lock:  # the command starts no runtime of its own
        assert lock.try_acquire()
        async with store_rig(paths.home, constants=late) as store, rig.running():
            listing = asyncio.create_task(run("list", "--user"))
            await until(lambda: sum(isinstance(each, ListMemories) for each in rig.asked) > 1)
            assert "Queued durably, to be stored as soon as possible" in (await run("add", "A new fact")).stdout
            assert not listing.done()
            assert (await store.health()).opening
            paths.home.with_name("go on").touch()
            listed = await listing
            assert not (await store.health()).opening
    assert listed.returncode == 0, listed.stderr
    assert "Prefers short answers with an example." in listed.stdout


def bring_forward_without_room(paths: RuntimePaths) -> None:
    with full_disk(0):
        migrate_old_home(paths)


async def test_a_write_is_queued_while_there_is_no_room_to_upgrade_an_old_home(tmp_path: Path) -> None:
    paths = old_home(tmp_path / "home", "0.2.0.tar.gz")
    without_room = {f"{spaces.__name__}.migrate_old_home": bring_forward_without_room}
    rig = Rig(paths.home, Settings())
    async with store_rig(paths.home, constants=without_room), rig.running(), rig.session() as client:
        await rig.until_store_answers()

        async def is_explained() -> bool:
            (warning,) = (await client.store("The beacon burns on the northern mole"))["warnings"]
            assert warning["code"] == "queued"
            return "make room and try again" in warning["message"]

        await until(is_explained)


async def test_a_former_catalogue_is_taken_in_and_stays_for_a_return(tmp_path: Path) -> None:
    paths, commits = old_home(tmp_path / "home", "0.2.0-shared.tar.gz"), Committer()
    former, shares = paths.catalog.read_bytes(), json.loads(paths.shares.read_bytes())
    for _ in range(2):
        files = HomeSpaces(paths, commits, time.time, lambda _: None)
        await files.wait_for_opening()  # the first time, while all is brought forward
        assert files.user_file.counts(None).total > 0
        assert [(each.id, each.path) for each in files.catalog.projects()] == rows_of(
            paths.catalog, "SELECT id, path FROM projects"
        )
        assert [(files.catalog.models(),)] == rows_of(paths.catalog, "SELECT state FROM models")
        assert dict(files.catalog.shares()) == shares
        files.close()
    commits.close()
    assert paths.catalog.read_bytes() == former
    assert paths.shares.exists()


def test_nothing_is_taken_in_while_it_cannot_be_read_what_is_shared(tmp_path: Path) -> None:
    paths = old_home(tmp_path / "home", "0.2.0.tar.gz")
    paths.lanes.mkdir(exist_ok=True)
    paths.shares.write_text("{")
    with pytest.raises(FileUnusable, match="restore a backup"):
        migrate_old_home(paths)
    assert not paths.database.exists()


MOVED = "memory:01JZZZZZZZZZZZZZZZZZZZZZZZ"
LANE = "l_0123456789ab"


def old_file(path: Path, operation: bytes, *, is_project: bool, has_memory: bool, has_applied: bool) -> None:
    """A file of records as a move leaves it in one of its three steps."""
    path.parent.mkdir(parents=True)
    memory = """INSERT INTO memories (id, type, scope, session_id, importance, characters, created_at, updated_at,
        content_digest, content, tags, source) VALUES (?, 'semantic', 'project', 's', 0.5, 1, 1, 1, ?, ?, '[]', '{}')"""
    former = old_home(path.parent / "former", "0.2.0.tar.gz")
    with closing(sqlite3.connect(former.home / "user/memory.db")) as file, closing(sqlite3.connect(path)) as copy:
        file.backup(copy)
    shutil.rmtree(path.parent / "former")
    with closing(sqlite3.connect(path, isolation_level=None)) as file:
        file.execute("PRAGMA foreign_keys = ON")
        for table in ("memories", "entities", "history", "sessions", "applied_operations", "moves"):
            file.execute(f"DELETE FROM {table}")
        file.execute(memory, ("memory:OTHER", b"1", "another lantern"))
        if has_memory:
            file.execute(memory, (MOVED, b"2", "a lantern that moves"))
        if has_applied:
            file.execute("INSERT INTO applied_operations VALUES ('move', x'00', 1)")
        if is_project:
            file.execute("INSERT INTO moves VALUES ('move', ?, 1)", (operation,))


@pytest.mark.parametrize("is_shared", [False, True])
@pytest.mark.parametrize("is_received", [False, True])
def test_a_move_that_was_under_way_is_ended_or_not_begun(is_received: bool, is_shared: bool, tmp_path: Path) -> None:
    paths = RuntimePaths(tmp_path / "home")
    move = msgspec.msgpack.encode(change_operation("move", PromoteMemory(MOVED, target_scope="user")))
    place = paths.project_database(PROJECT.id)
    old_file(place, move, is_project=True, has_memory=True, has_applied=False)
    target, name = (paths.lanes / f"{LANE}.db", LANE) if is_shared else (paths.home / "user/memory.db", "user")
    old_file(target, move, is_project=False, has_memory=is_received, has_applied=is_received)
    if is_shared:
        paths.shares.write_bytes(msgspec.json.encode({"user": LANE}))
    migrate_old_home(paths)
    with closing(sqlite3.connect(paths.database)) as file:
        rows = file.execute("SELECT name FROM memories JOIN spaces ON spaces.number = space WHERE id = ?", (MOVED,))
        assert rows.fetchall() == [(name if is_received else PROJECT.id,)]
        known = file.execute("SELECT count(*) FROM applied_operations WHERE operation_id = 'move'").fetchone()[0]
        assert known == (2 if is_received else 0)
    new_portraits(paths)


def examination(paths: RuntimePaths) -> Examination:
    return Examination(paths, ClientEnvironment(paths.home, {}, "linux", paths.home))


def test_a_doctor_knows_an_old_home_that_waits_for_its_upgrade_from_one_that_lost_its_memories(tmp_path: Path) -> None:
    paths = old_home(tmp_path / "home", "0.2.0.tar.gz")
    at = examination(paths)
    assert doctor.check_files(at).status == "ok"
    records = doctor.check_records(at)
    assert (records.status, "the next start imports 2 files of release 0.2.0" in records.advice) == ("ok", True)
    for path in old_files(paths).values():
        path.unlink()
    assert "missing or empty, although it used to have memories" in doctor.check_files(at).found


def test_a_doctor_names_an_old_file_in_which_release_0_2_0_went_on_storing(tmp_path: Path) -> None:
    paths = old_home(tmp_path / "home", "0.2.0.tar.gz")
    at = examination(paths)
    migrate_old_home(paths)
    assert doctor.check_records(at).status == "ok"
    with closing(sqlite3.connect(paths.home / "user/memory.db")) as file, file:
        file.execute("UPDATE memories SET id = 'memory:LATER', created_at = 1e11 WHERE number = 1")
    records = doctor.check_records(at)
    assert (records.status, "export them with release 0.2.0" in records.advice) == ("warning", True)
    assert "--delete-old-files" not in records.advice
    assert f"stored memories in {paths.home}/user/memory.db" in " ".join(records.details)
