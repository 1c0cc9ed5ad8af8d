import hashlib
import json
import os
import tarfile
import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from remembrancer.actors.store.records.schema import MEMORY
from remembrancer.commands import exit_codes
from remembrancer.commands.backup import write_archive
from remembrancer.commands.runtime_client import ask_store
from remembrancer.protocol.file_locks import FileLock
from remembrancer.protocol.paths import RuntimePaths
from remembrancer.protocol.writes import PromoteMemory, Scope
from tests.contracts.dying_process import dies_of, restore_and_die
from tests.operations import PROJECT
from tests.patience import wait_until
from tests.processes.test_export import ask, change, exported, exported_memories, fill, id_of, recall, store
from tests.processes.test_shell import Shell
from tests.runtime import Runtime, Session, done, start, stop_runtime
from tests.spaces import rows_of, write_rows

pytestmark = pytest.mark.usefixtures("without_embedders")


def restore(archive: Path, home: Path) -> dict[str, str]:
    said: dict[str, str] = json.loads(done("backup", "restore", str(archive), "--yes", "--json", home=home))
    return said


def tree(directory: Path) -> dict[str, str]:
    return {
        str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and path.suffix not in (".lock", ".log") and path.parent.name != "logs"
    }


def without_accesses(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same without what is counted some time after a question was answered."""
    for line in lines:
        for name in ("access_count", "last_accessed_at", "accessed_in"):
            line.get("memory", {}).pop(name, None)
    return lines


def test_a_backup_brings_everything_to_another_home(home: Path, second: Path) -> None:
    fill(home)
    archive = home / "backup.tar.gz"
    done("backup", "list", home=home, status=exit_codes.USAGE)  # not a file of that name
    (home / "config.toml").touch()
    said = json.loads(done("backup", str(archive), "--json", home=home))
    assert said["memories"] == 9
    assert {"logs", "config.toml"} <= set(said["left_out"])
    assert all((home / name).exists() for name in said["left_out"])
    assert archive.stat().st_mode & 0o777 == 0o600
    stop_runtime(home)
    restore(archive, second)
    assert without_accesses(exported(second)) == without_accesses(exported(home))
    for path in second.rglob("*"):
        assert path.stat().st_mode & 0o077 == 0, path
    assert id_of("rich") in recall(second, "sessions in Redis", strategy="keyword")


def test_a_backup_has_what_was_acknowledged_before_it_began(home: Path, second: Path) -> None:
    start(home)
    of_home = dict(os.environ)  # a restore changes it for a while
    acknowledged: list[str] = []
    over = threading.Event()

    def write() -> None:
        for number in range(100_000):
            name = f"note {number}"
            scope: Scope = "user" if number % 3 == 0 else "project"
            ask_store(store(name, f"Note {number}.", scope), environ=of_home)
            acknowledged.append(id_of(name))
            if number % 10 == 5 and scope == "project":
                ask_store(change(f"promote {number}", PromoteMemory(id_of(name), "user")), environ=of_home)
            if over.is_set():
                return

    writer = threading.Thread(target=write)
    writer.start()
    turn, went_on = 0, False
    try:
        while turn < 3 or not went_on:  # without an end, where a backup keeps the writer waiting
            turn += 1
            wait_until(lambda turn=turn: len(acknowledged) > 50 * turn)  # type: ignore[misc]
            before = list(acknowledged)
            done("backup", str(home / f"{turn}.tar"), home=home)
            went_on = went_on or len(acknowledged) > len(before)
            restore(home / f"{turn}.tar", second)
            found = [line["memory"]["id"] for line in exported(second) if line["line"] == "memory"]
            assert set(before) <= set(found)
            assert len(found) == len(set(found))
    finally:
        over.set()
        writer.join()


async def test_queued_writes_are_in_a_backup(home: Path, second: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REMEMBRANCER_CALL_BUDGET_S", "4")
    monkeypatch.setenv("REMEMBRANCER_STALL_TIMEOUT_S", "60")  # the store hangs until the test lets it go on
    async with Session(home) as client:
        await client.store("This is there already.")
        wait_until(lambda: rows_of(RuntimePaths(home).write_queue, "SELECT count(*) FROM queued") == [(0,)])
        with Runtime(home).suspended("store"):
            assert "queued" in json.dumps(await client.store("This waits in the queue."))
            for made in (("backup", str(home / "backup.tar")), ("backup", "export", str(home / "export"))):
                assert json.loads(done(*made, "--json", home=home))["queued"] == 1
    restore(home / "backup.tar", second)
    start(second)
    contents = Runtime(second).contents
    wait_until(lambda: set(contents().values()) >= {"This is there already.", "This waits in the queue."})


def test_what_was_there_is_kept_beside_and_a_second_restore_brings_it_back(home: Path) -> None:
    fill(home)
    early = home / "early.tar"
    done("backup", str(early), home=home)
    as_it_was = exported(home)
    ask(home, store("late", "This came later."), store("new project", "new", project=PROJECT))
    later = home / "later.tar"
    done("backup", str(later), home=home)
    as_it_is = exported(home)
    stop_runtime(home)
    (home / "vectors").mkdir(exist_ok=True)  # as a large project has it
    said = restore(early, home)
    assert exported(home) == as_it_was
    assert (id_of("late"),) in rows_of(Path(said["set_aside"]) / "memory.db", "SELECT id FROM memories")
    assert not (home / "vectors").exists(), "an index of other records must not be used"
    restore(later, home)
    assert exported(home) == as_it_is
    kept = sorted(map(str, home.glob("before-restore-*")))
    assert len(kept) == 2
    erased = done("forget", id_of("late"), "--for-good", "--yes", "--all-projects", home=home)
    assert f"still contain it, perhaps also {kept[0]} and {kept[1]}.\n" in erased
    stop_runtime(home)
    restore(Path(kept[0]), home)
    assert exported(home) == as_it_is, "a directory that a restore kept can be restored"


def test_a_backup_that_is_not_sound_changes_nothing_and_a_sound_one_replaces_a_damaged_database(home: Path) -> None:
    fill(home)
    stop_runtime(home)
    archive = home / "backup.tar"
    done("backup", str(archive), home=home)
    content = archive.read_bytes()
    middle = len(content) // 2
    newer = home / "newer"
    newer.mkdir()
    with tarfile.open(archive) as members:
        members.extractall(newer, filter="data")
    write_rows(newer / "memory.db", f"PRAGMA user_version = {MEMORY.latest + 10_000}")
    with (home / "newer.tar").open("wb") as file:
        write_archive(file, newer)
    for unsound in (
        content[:middle],
        content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :],
        (home / "newer.tar").read_bytes(),
        b"nothing",
    ):
        archive.write_bytes(unsound)
        before = tree(home)
        done("backup", "restore", str(archive), "--yes", home=home, status=exit_codes.FILE_UNUSABLE)
        assert tree(home) == before
    archive.write_bytes(content)
    as_it_was = exported(home)
    (home / "memory.db").write_bytes(b"this is no database" * 500)
    assert "memory.db" in done("backup", str(home / "new.tar"), home=home, status=exit_codes.FILE_UNUSABLE)
    assert not (home / "new.tar").exists()
    said = restore(archive, home)
    assert exported(home) == as_it_was
    assert (Path(said["set_aside"]) / "memory.db").read_bytes().startswith(b"this is no")


def test_nothing_is_restored_without_consent_or_over_a_home_that_is_in_use(home: Path) -> None:
    ask(home, store("one", "one"))
    done("backup", str(home / "backup.tar"), home=home)
    restoring = ("backup", "restore", str(home / "backup.tar"))
    assert "remembrancer down" in done(*restoring, "--yes", home=home, status=exit_codes.ALREADY_RUNNING)
    assert recall(home, "one", strategy="keyword") == [id_of("one")]
    stop_runtime(home)
    with FileLock(RuntimePaths(home).store_lock) as lock:  # as a process of a crashed runtime holds it
        assert lock.try_acquire()
        assert "store.lock" in done(*restoring, "--yes", home=home, status=exit_codes.HOME_UNUSABLE)
    before = tree(home)
    assert "--yes" in done(*restoring, home=home, status=exit_codes.USAGE)
    at_a_terminal = Shell(home, home).at_a_terminal
    assert at_a_terminal(*restoring, says="n\n")[0] == exit_codes.FAILED
    assert tree(home) == before
    assert at_a_terminal(*restoring, says="y\n")[0] == exit_codes.OK
    assert len(list(home.glob("before-restore-*"))) == 1


def test_a_restore_that_is_killed_loses_nothing_and_can_be_done_again(home: Path) -> None:
    ask(home, store("old", "old"), store("user", "user", "user"))
    done("backup", str(home / "backup.tar"), home=home)
    ask(home, store("late", "late"), store("late user", "late", "user"))
    stop_runtime(home)
    former = {id_of("old"), id_of("user")}
    later, interrupted = former | {id_of("late"), id_of("late user")}, 0
    for step in range(40):
        if not dies_of(partial(restore_and_die, step, str(home / "backup.tar"))):
            break
        interrupted += any(home.glob("before-restore-*/*"))
        assert set(exported_memories(home)) in (former, later), "the records are whole at any moment"
        databases = list(home.rglob("memory.db"))
        assert all(rows_of(path, "PRAGMA integrity_check") == [("ok",)] for path in databases)
        assert {row[0] for path in databases for row in rows_of(path, "SELECT id FROM memories")} >= later
    else:
        pytest.fail("the restore never ended")
    assert interrupted >= 3
    assert set(exported_memories(home)) == former
    assert not (home / "restore.staging").exists()
