"""The promises of `Records` about their file: its schema, its durability, its copies, and a bad one."""

import os
import random
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from remembrancer.actors import sqlite_file
from remembrancer.actors.migrations import STAMP, Step, daily_copies
from remembrancer.actors.snapshots import damage_of
from remembrancer.actors.sqlite_file import SqliteFile
from remembrancer.actors.store.daily_copies import DAY_S, DailyCopies
from remembrancer.actors.store.records.catalog import NEW_S, REMEMBERED, Catalog, RememberedProject, former_project
from remembrancer.actors.store.records.schema import MEMORY
from remembrancer.actors.store.records.sqlite_records import Records
from remembrancer.actors.store.records.types import Filters, Phrase
from remembrancer.commands.home_reader import (
    FoundMemory,
    copy_records,
    find_memories,
    first_words,
    known_projects,
)
from remembrancer.config.project import project_of
from remembrancer.protocol.errors import (
    FileLocked,
    FileUnusable,
    MemoryUnavailable,
    RecordsUnusable,
    RemembrancerError,
    SchemaTooNew,
    StorageFull,
)
from remembrancer.protocol.paths import RuntimePaths
from remembrancer.protocol.writes import Applied, EraseMemory
from tests.cases import cases
from tests.contracts.dying_process import write_for_ever
from tests.contracts.records_rig import RecordsRig, apply, check_derived, leave_half_made, leave_in_log, pending, scrub
from tests.forked import ForkedProcess
from tests.operations import (
    OTHER_PROJECT,
    PROJECT,
    REQUESTED_AT,
    SESSION,
    change_operation,
    memory_id_of,
    store_operation,
)
from tests.patience import PATIENCE_S
from tests.spaces import full_disk, locked, rows_of, spoil_page, write_rows

SEED = 7
KILLS = 6


def fill(path: Path, count: int = 20) -> None:
    with RecordsRig(path) as rig:
        apply(rig.records, [store_operation(f"op{n}", f"lantern number {n}", tags=("t",)) for n in range(count)])


def test_an_empty_file_and_no_file_are_brought_to_the_present_schema(path: Path) -> None:
    path.parent.mkdir()
    path.touch()
    SqliteFile(path, MEMORY).close()
    assert rows_of(path, "PRAGMA user_version") == [(MEMORY.latest,)]
    shutil.rmtree(path.parent)
    SqliteFile(path, MEMORY).close()
    assert rows_of(path, "PRAGMA user_version") == [(MEMORY.latest,)]
    assert rows_of(path, "PRAGMA journal_mode") == [("wal",)]
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_a_file_whose_making_was_killed_is_made_anew(path: Path) -> None:
    path.parent.mkdir()
    leave_half_made(path)
    with RecordsRig(path) as rig:
        rig.say("words")
    assert rows_of(path, "SELECT name FROM sqlite_schema WHERE name = 'half'") == []


@pytest.mark.parametrize("journal", ["DELETE", "WAL"])
def test_a_file_of_a_newer_schema_is_refused_and_not_a_byte_of_it_or_its_log_changes(path: Path, journal: str) -> None:
    """A careless reader turns a rollback journal into a WAL, and takes in what a crash has left in one."""
    path.parent.mkdir()
    write_rows(path, f"PRAGMA journal_mode = {journal}", "CREATE TABLE future (x)", "PRAGMA user_version = 99000000")
    if journal == "WAL":
        leave_in_log(path, "INSERT INTO future VALUES (1)")
        path.with_name("memory.db-shm").unlink()
    before = {each: each.read_bytes() for each in path.parent.iterdir()}
    assert all(before.values())
    for _ in range(2):
        with pytest.raises(SchemaTooNew, match=r"newer release \(99\.0\.0"):
            SqliteFile(path, MEMORY)
    assert {each: each.read_bytes() for each in before} == before


NOISE = random.Random(SEED)
BAD_FILES = {
    "text": b"This is no database at all, but a note.\n" * 200,
    "noise": NOISE.randbytes(8192),
    "a header and no more": b"SQLite format 3\x00" + b"\x00" * 84,
    "a header and noise": b"SQLite format 3\x00" + NOISE.randbytes(8176),
}


@pytest.mark.parametrize("content", BAD_FILES.values(), ids=BAD_FILES)
def test_a_file_that_is_no_database_is_refused_and_left_as_it_is(path: Path, content: bytes) -> None:
    path.parent.mkdir()
    path.write_bytes(content)
    with pytest.raises(RecordsUnusable, match="backup"):
        SqliteFile(path, MEMORY)
    assert path.read_bytes() == content
    for place in (path / "memory.db", path.parent):  # where no file can be
        with pytest.raises(RecordsUnusable):
            SqliteFile(place, MEMORY)


def everything_of(records: Records) -> list[Callable[[], object]]:
    filters = Filters(SESSION)
    return [
        lambda: records.keyword_hits([Phrase("lantern")], filters, 50),
        lambda: records.load(list(range(200)), filters),
        lambda: records.counts(None),
        lambda: records.missing(None),
        lambda: records.passages(numbers=list(range(50))),
        lambda: pending(records, "model"),
        lambda: records.touch([1, 2, 3], 1.0),
    ]


def test_a_file_that_is_damaged_in_any_place_gives_errors_of_ours_and_nothing_worse(path: Path) -> None:
    fill(path, 200)
    whole = path.read_bytes()
    rng = random.Random(SEED)
    met: list[str] = []
    for _ in range(40):
        damaged = bytearray(whole)
        for _ in range(rng.randrange(1, 6)):
            at = rng.randrange(len(damaged) - 4096)
            damaged[at : at + 4096] = rng.choice([bytes(4096), rng.randbytes(4096)])
        path.write_bytes(damaged[: rng.choice([len(damaged), len(damaged) // 2])])
        try:
            damaged_rig = RecordsRig(path)
        except RemembrancerError as error:
            met.append(error.code)
            continue
        with damaged_rig as rig:
            for each in everything_of(rig.records):
                try:
                    each()
                except RemembrancerError as error:
                    met.append(error.code)
            reply = apply(rig.records, [store_operation("new", "one more lantern")])[0]
            met.append("applied" if isinstance(reply, Applied) else reply.code)
    assert "records_unusable" in met


def test_what_was_acknowledged_is_there_after_kill_9_at_any_moment(path: Path) -> None:
    rng = random.Random(SEED)
    acknowledged: set[str] = set()
    for turn in range(KILLS):
        source, sink = os.pipe()
        process = ForkedProcess(write_for_ever, path, turn * 100_000, stdout=sink)
        os.close(sink)
        process.stdin.close()
        with os.fdopen(source) as printed:
            acknowledged.update(printed.readline().strip() for _ in range(rng.randrange(1, 200)))
            process.kill()
            acknowledged.update(printed.read().splitlines())
        process.wait()
        check_derived(path)
    applied = {str(row[0]) for row in rows_of(path, "SELECT operation_id FROM applied_operations")}
    assert acknowledged <= applied
    stored = rows_of(path, "SELECT count(*), count(DISTINCT id) FROM memories")
    assert stored == [(len(applied), len(applied))], "none half, none twice"
    with RecordsRig(path) as rig:
        assert rig.records.counts(None).total == len(applied)
        assert len(rig.found("lantern", limit=100_000)) == len(applied)
        assert len(pending(rig.records)) == len(applied)
        again = [store_operation(each, "again") for each in acknowledged]
        replies = apply(rig.records, again)
    assert all(isinstance(reply, Applied) and reply.replayed for reply in replies)


def test_a_file_that_another_program_has_locked_is_not_called_damaged(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_file, "BUSY_TIMEOUT_S", 0.05)
    words = store_operation("op", "words").change
    with RecordsRig(path) as rig:
        with locked(path):
            assert isinstance(rig.try_to(words), FileLocked)
            SqliteFile(path, MEMORY).close()
        rig.do(words)
    write_rows(path, "PRAGMA journal_mode = DELETE")  # then who writes keeps everybody out
    with locked(path), pytest.raises(FileLocked, match="another program"):
        SqliteFile(path, MEMORY)
    SqliteFile(path, MEMORY).close()


def test_the_catalogue_remembers_projects_lanes_and_what_was_decided_about_models(tmp_path: Path) -> None:
    clock = iter(range(100))
    catalog = Catalog(lambda: next(clock))
    assert (catalog.projects(), catalog.models(), catalog.shares()) == ([], None, [])
    with pytest.raises(FileLocked):
        catalog.note_session(PROJECT)
    with closing(SqliteFile(tmp_path / "memory.db", MEMORY)) as database:
        catalog.database = database
        for project in (PROJECT, OTHER_PROJECT):
            catalog.note_session(project)
        assert catalog.projects() == [OTHER_PROJECT, PROJECT]
        catalog.note_session(PROJECT, "/work/one/tree")
        catalog.note_session(PROJECT, None)
        for state in (b"one", b"other"):
            catalog.note_models(state)
        catalog.share(PROJECT.id, "l_one")
    again = Catalog(lambda: 0.0)
    with closing(SqliteFile(tmp_path / "memory.db", MEMORY)) as database:
        again.database = database
        assert again.projects() == [PROJECT, OTHER_PROJECT]
        assert again.models() == b"other"
        assert again.shares() == [(PROJECT.id, "l_one")]


@pytest.mark.parametrize(("known", "is_long_ago", "may_be"), cases("sqlite_records", "former"))
def test_a_project_was_another_one_only_if_its_name_or_a_file_older_than_the_memories_says_so(
    tmp_path: Path, known: dict[str, Any], is_long_ago: bool, may_be: bool
) -> None:
    """The only file here is of the time 4."""
    (new := tmp_path / "src" / "new").mkdir(parents=True)
    (new / "README").touch()
    os.utime(new / "README", (4.0, 4.0))
    project, used_at, first_at = project_of(new), known["used_at"], known.get("first_at")
    gone = RememberedProject("p_old", str(tmp_path / known["former"]), used_at, 3, 1.0, known.get("newest_at", used_at))
    own = [] if first_at is None else [RememberedProject(project.id, project.path, 9.0, 1, first_at, 9.0)]
    assert (former_project([*own, gone], project, new, 7.0 + NEW_S + 2 * is_long_ago) == gone) is may_be


def test_a_directory_is_listed_for_its_former_project_only_if_one_beside_it_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (new := tmp_path / "src" / "new").mkdir(parents=True)
    (kept := tmp_path / "src" / "kept").mkdir()
    there = RememberedProject(project_of(kept).id, str(kept), 5.0, 3, 1.0, 5.0)
    gone = RememberedProject("p_old", str(tmp_path / "other" / "old"), 5.0, 3, 1.0, 5.0)
    monkeypatch.setattr(os, "scandir", pytest.fail)  # it may have many files
    assert former_project([there, gone], project_of(new), new, 10.0) is None


def test_the_first_and_newest_memories_of_a_project_are_found_without_reading_the_others(path: Path) -> None:
    fill(path)  # the memories of PROJECT
    name = f"'{PROJECT.id}'"
    write_rows(path, f"INSERT INTO projects VALUES ({name}, '/app', 1.0, 2.0, NULL)")
    write_rows(path, f"UPDATE spaces SET name = {name}")
    write_rows(path, "UPDATE memories SET created_at = number")
    assert rows_of(path, REMEMBERED) == [(PROJECT.id, "/app", 2.0, 20, 1.0, 20.0)]
    plan = " ".join(row[3] for row in rows_of(path, f"EXPLAIN QUERY PLAN {REMEMBERED}"))
    assert "SCAN memories" not in plan
    assert plan.count("memories USING INDEX memories_by_number (space=?)") == 2


def test_a_file_is_closed_only_when_each_reader_has_finished_its_query(path: Path, records: Records) -> None:
    fill(path)
    reading, may_end = threading.Event(), threading.Event()

    def read() -> int:
        with records._file.reading() as ask:
            before = len(ask("SELECT number FROM memories", ()))
            reading.set()
            assert may_end.wait(PATIENCE_S)
            return before + len(ask("SELECT number FROM memories", ()))

    with ThreadPoolExecutor(2) as threads:
        answer = threads.submit(read)
        assert reading.wait(PATIENCE_S)
        closed = threads.submit(records.close)
        assert not wait([closed], 0.05).done
        may_end.set()
        assert answer.result(PATIENCE_S) == 40
        closed.result(PATIENCE_S)
        with pytest.raises(RemembrancerError):
            threads.submit(records.number_of, "memory").result(PATIENCE_S)
    with pytest.raises(MemoryUnavailable):
        records.number_of("memory")
    records.close()


def test_only_what_can_be_made_again_is_committed_without_waiting_for_the_disk(tmp_path: Path) -> None:
    file = SqliteFile(tmp_path / "memory.db", MEMORY)
    waits = "PRAGMA synchronous"
    with file.transaction(durable=False) as connection:
        assert connection.execute(waits).fetchone() == (1,)
    with pytest.raises(ValueError, match="no vector"), file.transaction(durable=False):
        raise ValueError("no vector")
    with file.transaction() as connection:
        assert connection.execute(waits).fetchone() == (2,)
    file.close()


# --- The daily copies of a file of records.
KEPT = 3


class Rig(NamedTuple):
    path: Path
    records: Records
    copies: DailyCopies

    def write(self, name: str) -> None:
        apply(self.records, [store_operation(name, f"lantern {name}")])

    def copy(self) -> Path | None:
        return self.copies.copy_if_due()

    def days_pass(self, days: float) -> None:
        for copy in reversed(daily_copies(self.path)):
            at = datetime.strptime(copy.name[-16:], STAMP).replace(tzinfo=UTC).timestamp() - days * DAY_S
            copy.rename(copy.with_name(f"{copy.name[:-16]}{datetime.fromtimestamp(at, UTC).strftime(STAMP)}"))


@pytest.fixture
def rig(path: Path, records: Records) -> Rig:
    made = Rig(path, records, DailyCopies(path, KEPT, lambda _: None))
    made.write("first")
    return made


def contents(path: Path) -> set[str]:
    return {content for (content,) in rows_of(path, "SELECT content FROM memories")}


def test_a_file_that_has_changed_is_copied_once_a_day_and_so_many_copies_are_kept(rig: Rig) -> None:
    killed = rig.path.parent / "backups" / f"{rig.path.name}.20260101T000000Z.new"
    killed.parent.mkdir(mode=0o700)
    killed.write_bytes(b"half")
    first = rig.copy()
    assert first is not None
    assert not killed.exists(), "what a kill left unfinished is gone"
    assert contents(first) == {"lantern first"}
    assert damage_of(first) is None
    assert (first.stat().st_mode & 0o777, first.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    rig.write("second")
    assert rig.copy() is None, "the last one is not a day old"
    for day in range(KEPT + 1):
        rig.days_pass(1)
        rig.write(f"day {day}")
        assert rig.copy() is not None
        assert len(daily_copies(rig.path)) == min(day + 2, KEPT)
    newest, *_, oldest = daily_copies(rig.path)
    assert contents(newest) - contents(oldest) == {f"lantern day {day}" for day in (2, 3)}
    rig.days_pass(300)
    later = time.time() - 2 * DAY_S
    for path in (rig.path, rig.path.with_name("memory.db-wal")):
        os.utime(path, (later - 300 * DAY_S,) * 2)
    assert rig.copy() is None, "nothing has changed since the last one"


def test_copies_of_a_clock_that_was_ahead_neither_delay_the_next_one_nor_outlive_it(rig: Rig) -> None:
    for day in range(KEPT):
        assert rig.copy()
        rig.days_pass(1)
        rig.write(f"day {day}")
    rig.days_pass(-3000)
    rig.write("later")
    made = rig.copy()
    assert made is not None
    assert daily_copies(rig.path)[0] == made, "the newest"
    assert len(daily_copies(rig.path)) == KEPT
    rig.write("later still")
    assert rig.copy() is None, "it is not a day old"


def test_an_erased_memory_is_in_no_daily_copy(rig: Rig) -> None:
    assert rig.copy()
    rig.copy()
    erased = memory_id_of(store_operation("first", "lantern first"))
    apply(rig.records, [change_operation("erase", EraseMemory(erased))])
    scrub(rig.records, erased)
    assert daily_copies(rig.path) == []
    copy = rig.copy()
    assert copy is not None, "there is a new one at once"
    assert b"lantern first" not in copy.read_bytes()


def test_a_copy_that_cannot_be_made_leaves_the_earlier_ones(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    assert rig.copy()
    rig.days_pass(2)
    rig.write("second")
    before = daily_copies(rig.path)
    with monkeypatch.context() as patch:
        full = shutil.disk_usage(rig.path)._replace(free=1000)
        patch.setattr("remembrancer.actors.migrations.shutil.disk_usage", lambda _: full)
        with pytest.raises(StorageFull, match="daily copy"):
            rig.copy()
    with full_disk(rig.path.stat().st_size // 2), pytest.raises(StorageFull, match="daily copy"):
        rig.copy()
    rig.records.close()
    spoil_page(rig.path, "memories")
    with pytest.raises(RecordsUnusable):
        rig.copy()
    assert sorted(rig.path.parent.glob("backups/*")) == before


def test_what_a_crash_has_left_is_checked(rig: Rig, tmp_path: Path) -> None:
    rig.copies.check()
    rig.records.close()
    spoil_page(rig.path, "memories")
    with pytest.raises(RecordsUnusable, match="doctor --repair"):
        rig.copies.check()


# --- A home read as of one moment.
MOVED, OTHER = (memory_id_of(store_operation(name, "")) for name in ("moved", "other"))


@pytest.fixture
def paths(tmp_path: Path) -> RuntimePaths:
    paths = RuntimePaths(tmp_path)
    with closing(SqliteFile(paths.database, MEMORY)) as database:
        user, project = (Records(database, name, lambda: REQUESTED_AT) for name in ("user", PROJECT.id))
        apply(user, [store_operation("moved", "I prefer tabs.", scope="user")])
        apply(project, [store_operation("other", "The release is cut on Thursdays.")])
    return paths


def test_a_home_of_an_earlier_schema_has_to_be_upgraded(paths: RuntimePaths, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MEMORY, "steps", (*MEMORY.steps, Step("99.0.0", "CREATE TABLE later (x);")))
    before = paths.database.read_bytes()
    with pytest.raises(RecordsUnusable, match="run 'remembrancer list', which upgrades it"):
        known_projects(paths)
    assert paths.database.read_bytes() == before


def test_a_copy_without_room_does_not_call_the_memories_damaged(paths: RuntimePaths, tmp_path: Path) -> None:
    with (
        full_disk(paths.database.stat().st_size // 2),
        pytest.raises(FileUnusable, match="cannot be written: No space left"),
    ):
        copy_records(paths, tmp_path / "copy.db")


def test_nothing_outside_what_is_asked_for_is_looked_into(paths: RuntimePaths) -> None:
    ids = [MOVED, OTHER]
    users = FoundMemory("user", MOVED, "I prefer tabs.", None)
    assert find_memories(paths, [], ids) == find_memories(paths, [OTHER_PROJECT.id], ids) == [users]
    assert set(first_words(paths, [PROJECT.id], ids)) == {MOVED, OTHER}


IS_LOCKED = """
import fcntl, sys
with open(sys.argv[1], "rb+") as file:
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 510, 0x40000002)
    except OSError:
        sys.exit(0)
sys.exit("another program would take the log for its own, and remove it")
"""
"""The lock of a connection is in these bytes: https://sqlite.org/src/file/src/os.h (`SHARED_FIRST`)."""


def test_looking_for_erased_words_keeps_the_locks_of_the_connections(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    with closing(SqliteFile(path, MEMORY)) as file:
        file.read("SELECT 1")
        for _ in range(2):
            file.leave_nothing(texts=["the erased words"])
            subprocess.run([sys.executable, "-c", IS_LOCKED, str(path)], check=True)


LOOKS_FOR_WORDS = """
import pathlib, resource, sys
from remembrancer.actors.sqlite_file import SqliteFile
from remembrancer.actors.store.records.schema import MEMORY
file = SqliteFile(pathlib.Path(sys.argv[1]), MEMORY)
file.writer.execute("CREATE TABLE texts (text)")
file.writer.executemany("INSERT INTO texts VALUES (zeroblob(?))", [(10_000_000,)] * 10)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
file.leave_nothing(texts=["the erased words"])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / before)
file.writer.execute("INSERT INTO texts VALUES (?)", ("." * 3_000_000 + "the erased words",))
file.empty_log()
assert file._has_any(["the erased words"])
"""


def test_a_large_database_is_not_loaded_to_look_for_erased_words(tmp_path: Path) -> None:
    looking = [sys.executable, "-c", LOOKS_FOR_WORDS, str(tmp_path / "memory.db")]
    grown = subprocess.run(looking, check=True, capture_output=True, text=True)
    assert float(grown.stdout) < 1.5
