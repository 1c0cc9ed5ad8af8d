"""Schemas from release to release: an invented next one stands for those to come."""

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from remembrancer.actors.gateway import shown_log, write_queue
from remembrancer.actors.gateway.shown_log import FILE, ShownLog
from remembrancer.actors.gateway.write_queue import QueueFile, queued_row
from remembrancer.actors.migrations import Step, copy_of, drop_copies, version_in, version_of
from remembrancer.actors.sqlite_file import SqliteFile
from remembrancer.actors.store.records.schema import MEMORY
from remembrancer.protocol.errors import FileUnusable, RecordsUnusable, SchemaTooOld, StorageFull
from remembrancer.protocol.writes import EraseMemory
from tests.contracts.records_rig import RecordsRig, apply, leave_in_log, scrub
from tests.operations import PROJECT, SESSION, memory_id_of, store_operation
from tests.spaces import full_disk, rows_of, spoil_page, write_rows

COLOURS = Step("99.0.0", "ALTER TABLE memories ADD COLUMN colour TEXT; UPDATE memories SET colour = 'green'")
"""The last statement needs no semicolon."""
NEXT = version_in("99.0.0")


@pytest.fixture
def old(path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of the present schema, to which a later release has come."""
    with RecordsRig(path) as rig:
        apply(rig.records, [store_operation(f"op{n}", f"lantern number {n}") for n in range(3)])
    comes(monkeypatch, COLOURS)
    return path


def comes(monkeypatch: pytest.MonkeyPatch, *steps: Step) -> None:
    monkeypatch.setattr(MEMORY, "steps", (*MEMORY.steps[:FIRST], *steps))


FIRST = len(MEMORY.steps)


def copied(path: Path) -> Path:
    return copy_of(path, MEMORY.steps[FIRST - 1].release)


def total(path: Path) -> int:
    with RecordsRig(path) as rig:
        return rig.records.counts(None).total


def is_as_it_was(path: Path) -> bool:
    assert rows_of(path, "PRAGMA quick_check") == [("ok",)]
    contents = [(f"lantern number {n}",) for n in range(3)]
    assert rows_of(path, "SELECT content FROM memories ORDER BY number") == contents
    return version_of(path) == MEMORY.versions[FIRST - 1]


def test_an_older_file_is_copied_and_brought_forward_and_keeps_what_it_has(old: Path) -> None:
    leave_in_log(old, "UPDATE memories SET content = 'in the log alone' WHERE number = 1")
    with RecordsRig(old) as rig:
        assert rig.records.counts(None).total == 3
        assert version_of(old) == NEXT
        assert rows_of(old, "SELECT colour FROM memories") == [("green",)] * 3
        rig.say("a lantern without a colour")
        assert rig.records.counts(None).total == 4
    assert version_of(copied(old)) == MEMORY.versions[FIRST - 1]
    contents = rows_of(copied(old), "SELECT content FROM memories ORDER BY number")
    assert contents == [("in the log alone",), ("lantern number 1",), ("lantern number 2",)]
    assert sorted(path.name for path in old.parent.glob("*release*")) == [copied(old).name], "and nothing beside"


def test_an_erased_memory_is_in_no_copy_of_its_file_and_others_keep_theirs(old: Path, tmp_path: Path) -> None:
    elsewhere = shutil.copytree(old.parent, tmp_path / "elsewhere") / old.name
    erased = memory_id_of(store_operation("op1", "lantern number 1"))
    SqliteFile(elsewhere, MEMORY).close()
    with RecordsRig(old) as rig:
        assert copied(old).exists()
        rig.do(EraseMemory(erased))
        scrub(rig.records, erased)
    assert [path for path in old.parent.iterdir() if b"lantern number 1" in path.read_bytes()] == []
    assert copy_of(elsewhere, copied(old).name.partition("release-")[2]).exists()


def test_the_copies_of_other_files_go_with_an_erased_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    queue_path, shown_path = tmp_path / "queue.db", tmp_path / FILE
    waiting = store_operation("waiting", "lantern waiting")
    queue = QueueFile(queue_path)
    queue.append(queued_row(waiting, PROJECT.id, 1.0))
    queue.close()
    shown = ShownLog(tmp_path, kept_s=1e12)
    shown.note(PROJECT.id, SESSION, ["memory:shown"], "recall_memories", "which lantern is lit?")
    shown.flush()
    for schema in (write_queue.SCHEMA, shown_log.SCHEMA):
        monkeypatch.setattr(schema, "steps", (*schema.steps, Step("99.0.0", "CREATE TABLE later (x);")))
    queue = QueueFile(queue_path)
    queue.settle([waiting.operation_id], {}, 2.0)  # the store has it: only the copy has its words
    shown.erase(["memory:shown"], (), PROJECT.id)
    copies = [copy_of(path, "0.2.0") for path in (queue_path, shown_path)]
    assert queue_path.exists()
    queue.erase(memory_id_of(waiting))
    queue.close()
    assert not any(copy.exists() for copy in copies)


def test_a_copy_that_cannot_be_deleted_is_named(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    copy_of(path, "0.2.0").mkdir()
    with pytest.raises(FileUnusable, match=r"memory.db.release-0.2.0 may still contain erased content"):
        drop_copies(path)


UPDATE = "UPDATE memories SET content = 'x';"
FAILING = {
    f"{UPDATE} SELECT * FROM nowhere;": "nowhere",
    f"{UPDATE} UPDATE memories SET id = 'same';": "UNIQUE",
    "INSERT INTO memory_tags VALUES ('tag', 12345);": "FOREIGN KEY",
}


@pytest.mark.parametrize("statements", FAILING)
def test_a_step_that_fails_changes_nothing(old: Path, monkeypatch: pytest.MonkeyPatch, statements: str) -> None:
    comes(monkeypatch, COLOURS, Step("99.1.0", f"{statements}\n"))
    said = rf"{FAILING[statements]}.*release {MEMORY.steps[FIRST - 1].release} can still read it"
    with pytest.raises(RecordsUnusable, match=said):
        SqliteFile(old, MEMORY)
    assert is_as_it_was(old)


def test_of_two_openings_at_once_one_takes_the_steps_and_each_finds_the_present_schema(old: Path) -> None:
    """The second one does it all between the first one's look at the version and its lock."""
    with (
        closing(sqlite3.connect(old, isolation_level=None)) as first,
        closing(sqlite3.connect(old, isolation_level=None)) as second,
    ):
        seen: list[str] = []

        def overtake(statement: str) -> None:
            seen.append(statement)
            if statement == "BEGIN IMMEDIATE" and version_of(old) < NEXT:
                MEMORY.migrate(second, old)

        first.set_trace_callback(overtake)
        MEMORY.migrate(first, old)
        assert "BEGIN IMMEDIATE" in seen
        assert not any("ALTER TABLE" in statement for statement in seen)
        assert version_of(old) == NEXT
    assert total(old) == 3


@pytest.mark.parametrize("limit_bytes", [1, 100_000])
def test_without_room_on_the_disk_it_stays_as_it_was_until_there_is_some(old: Path, limit_bytes: int) -> None:
    """The kernel refuses to let a file of this process grow: as on a full disk, the log or the copy cannot be made."""
    write_rows(old, "PRAGMA journal_mode = DELETE")
    assert old.stat().st_size > limit_bytes
    with full_disk(limit_bytes), pytest.raises(StorageFull, match="no room"):
        SqliteFile(old, MEMORY)
    assert not list(old.parent.glob("*release*"))
    assert is_as_it_was(old)
    assert total(old) == 3


def test_a_damaged_file_is_not_brought_forward(old: Path) -> None:
    spoil_page(old, "memories_by_digest", content=b"\xff" * 4096)
    content = old.read_bytes()
    for _ in range(2):
        with pytest.raises(RecordsUnusable):
            SqliteFile(old, MEMORY)
    assert old.read_bytes() == content
    assert not copied(old).exists()


@pytest.mark.parametrize("version", [1, 57, version_in("0.2.0") - 1])
def test_a_file_of_before_the_first_release_is_refused_unchanged(path: Path, version: int) -> None:
    path.parent.mkdir()
    write_rows(path, "CREATE TABLE memories (id)", f"PRAGMA user_version = {version}")
    before = path.read_bytes()
    with pytest.raises(SchemaTooOld, match=r"older than 0\.2\.0.*remembrancer export"):
        SqliteFile(path, MEMORY)
    assert path.read_bytes() == before
