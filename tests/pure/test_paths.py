import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from remembrancer.actors.index_file import SCHEMA, NotesWriter
from remembrancer.actors.snapshots import snapshot_of
from remembrancer.actors.sqlite_file import SqliteFile
from remembrancer.actors.store.records.schema import MEMORY
from remembrancer.commands.home_reader import examine_file
from remembrancer.protocol.control import RuntimeStatus
from remembrancer.protocol.errors import RecordsUnusable, StorageFull
from remembrancer.protocol.file_locks import FileLock
from remembrancer.protocol.paths import RuntimePaths, move_into_place, problem_of, read_file
from remembrancer.protocol.problems import find_problems
from tests.contracts.records_rig import leave_half_made
from tests.patience import PATIENCE_S
from tests.spaces import write_rows

UNIX_SOCKET_LIMIT_BYTES = 103
"""macOS's, less than Linux's 107."""
names = st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=60)


@given(st.lists(names, min_size=1, max_size=8))
@example(["x" * 200])
@example(["ü" * 50])
def test_every_socket_of_any_home_has_a_path_that_the_system_allows(parts: list[str]) -> None:
    paths = RuntimePaths(Path("/", *parts))
    sockets = [paths.control_endpoint, paths.store_endpoint, f"ipc://{paths.gateway_socket}"]
    for endpoint in sockets:
        assert endpoint.startswith("ipc:///")
        assert len(endpoint.removeprefix("ipc://").encode()) <= UNIX_SOCKET_LIMIT_BYTES
    assert len(set(sockets)) == len(sockets)


@given(st.lists(names, min_size=1, max_size=6), st.lists(names, min_size=1, max_size=6))
def test_two_homes_never_share_a_socket(one: list[str], two: list[str]) -> None:
    first, second = Path("/", *one), Path("/", *two)
    assert (RuntimePaths(first).run == RuntimePaths(second).run) == (first == second)


def test_everything_but_the_sockets_of_a_deep_home_stays_in_the_home() -> None:
    home = Path("/", *["deep"] * 40)
    paths = RuntimePaths(home)
    kept = [paths.logs, paths.catalog, paths.vectors, paths.write_queue, paths.keys]
    kept += [paths.runtime_lock, paths.store_lock, paths.gateway_lock, paths.start_lock, paths.runtime_record]
    kept.append(paths.project_database("p_0123456789ab"))
    assert all(path.is_relative_to(home) for path in kept)
    assert len(set(kept)) == len(kept)
    assert not paths.run.is_relative_to(home)
    assert RuntimePaths(Path("/h")).run == Path("/h/run")


def test_what_is_no_file_or_has_one_beside_it_that_is_none_is_named(tmp_path: Path) -> None:
    path, log = tmp_path / "memory.db", tmp_path / "memory.db-wal"
    assert problem_of(path) is None
    path.write_bytes(b"12345")
    assert problem_of(path) is None
    os.mkfifo(log)
    assert problem_of(path) == f"{log} is not a file; move it elsewhere"
    path.unlink()
    for target in ("/dev/zero", "nowhere", str(tmp_path)):
        path.unlink(missing_ok=True)
        path.symlink_to(target)
        assert problem_of(path) == f"{path} is not a file; move it elsewhere"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_what_may_not_be_read_is_named(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch(mode=0)
    assert problem_of(path) == f"{path} cannot be read and written; fix its owner and mode"


@pytest.mark.timeout(PATIENCE_S)
def test_no_pipe_and_no_device_is_waited_for(tmp_path: Path) -> None:
    pipe, device, file = tmp_path / "pipe", tmp_path / "device", tmp_path / "file"
    os.mkfifo(pipe)
    device.symlink_to("/dev/zero")
    file.write_bytes(b"12345")
    for path in (pipe, device, tmp_path, tmp_path / "missing"):
        with pytest.raises(OSError, match=r"."):
            read_file(path)
    with pytest.raises(OSError, match="more than 4 bytes"):
        read_file(file, 4)
    assert read_file(file) == b"12345"


# --- Locks between processes: one holder, and none left behind however the holder ends.
HOLDER = """
import sys
from pathlib import Path
from remembrancer.protocol.file_locks import FileLock
lock = FileLock(Path(sys.argv[1]))
print("held" if lock.try_acquire() else "refused", flush=True)
sys.stdin.read()
"""


@contextmanager
def another_process(program: str, *arguments: str) -> Iterator[str]:
    """The first line that another process prints, which inherits what is open here and is killed at the end."""
    command = [sys.executable, "-c", program, *arguments]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, close_fds=False)
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
    finally:
        process.kill()
        process.communicate()


def test_a_lock_has_one_holder_until_he_releases_it_or_is_killed_and_no_child_of_his(tmp_path: Path) -> None:
    path = tmp_path / "a.lock"
    lock = FileLock(path)
    with another_process(HOLDER, str(path)) as said:
        assert said == "held"
        assert not lock.try_acquire()
        assert lock.is_held_elsewhere()
    assert not lock.is_held_elsewhere()
    assert lock.try_acquire()
    lock.release()
    with FileLock(path) as lock:
        assert lock.try_acquire()
        assert lock.try_acquire(), "ours already"
        assert not lock.is_held_elsewhere()
        with another_process(HOLDER, str(path)) as said:
            assert said == "refused"
        assert not FileLock(path).try_acquire(), "nor to another lock of this process"
    with another_process(HOLDER, str(path)) as said:
        assert said == "held"
    lock = FileLock(path)
    lock.try_acquire()
    with another_process("print('up', flush=True); input()") as said:
        assert said == "up"  # it has what it inherits, and no more
        lock.release()
        assert FileLock(path).try_acquire()


def test_release_may_be_called_twice_and_a_missing_directory_is_an_error_of_the_system(tmp_path: Path) -> None:
    lock = FileLock(tmp_path / "a.lock")
    assert not lock.is_held_elsewhere(), "there is no file yet"
    assert not (tmp_path / "a.lock").exists(), "and looking makes none"
    lock.try_acquire()
    lock.release()
    lock.release()
    assert (tmp_path / "a.lock").stat().st_mode & 0o777 == 0o600
    with pytest.raises(FileNotFoundError):
        FileLock(tmp_path / "missing" / "a.lock").try_acquire()


# --- The error of a full disk: its sizes are true, also of a small file.
def test_sizes_have_units_and_no_room_is_not_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    details = StorageFull.at_limit("full", current_bytes=24 * 2**10, limit_bytes=3 * 2**20).details
    assert (details["current_size"], details["limit"]) == ("24.0 KiB", "3.0 MiB")
    status = RuntimeStatus(str(tmp_path), (), None, None)
    before = find_problems(status)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=0))
    first, *others = find_problems(status)
    assert "0.0 MiB free" in first.what
    assert tuple(others) == before


def refuse(*_: object, **__: object) -> NoReturn:
    error = sqlite3.OperationalError("unable to open database file")
    error.sqlite_errorcode = sqlite3.SQLITE_CANTOPEN
    raise error


def test_a_healthy_file_on_a_full_disk_is_not_called_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, index = tmp_path / "work: mine" / "memory.db", tmp_path / "index.db"
    SqliteFile(path, MEMORY).close()
    SqliteFile(index, SCHEMA).close()

    monkeypatch.setattr(sqlite3, "connect", refuse)
    for each in (lambda: SqliteFile(path, MEMORY), lambda: NotesWriter(index)):
        with pytest.raises(RecordsUnusable, match="backup"):
            each()
    assert index.exists(), "nor is an index made anew"
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=4096))
    with pytest.raises(StorageFull, match="make room"):
        SqliteFile(path, MEMORY)
    with pytest.raises(StorageFull, match="make room"), snapshot_of(path, MEMORY):
        pass
    advice = examine_file(path, MEMORY).advice
    assert advice.startswith("make room")
    assert str(path) in advice


# --- A database is read as of one moment, also where nothing can be written beside it.
def test_a_database_on_a_read_only_disk_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, connect = tmp_path / "memory.db", sqlite3.connect
    made = ("journal_mode = WAL", f"user_version = {MEMORY.latest}")
    write_rows(path, "CREATE TABLE memories (id TEXT)", *(f"PRAGMA {each}" for each in made))
    write_rows(path, "INSERT INTO memories VALUES ('one')")

    def without_log(address: str, **options: Any) -> Any:
        return connect(address, **options) if "immutable" in address else refuse()

    monkeypatch.setattr(sqlite3, "connect", without_log)
    with snapshot_of(path, MEMORY) as file:
        assert file is not None
        assert file.rows("SELECT id FROM memories") == [("one",)]
    path.with_name("memory.db-wal").write_bytes(b"what was committed last")
    with pytest.raises(RecordsUnusable), snapshot_of(path, MEMORY):
        pass


def test_a_database_half_made_has_nothing(tmp_path: Path) -> None:
    leave_half_made(tmp_path / "memory.db")
    with snapshot_of(tmp_path / "memory.db", MEMORY) as file:
        assert file is None


def test_a_file_is_on_the_disk_before_it_takes_the_place_of_another_and_its_name_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fresh, target = tmp_path / "memory.db.new", tmp_path / "memory.db"
    fresh.write_text("new")
    target.write_text("old")
    synced: list[tuple[str, str]] = []
    monkeypatch.setattr(
        os, "fsync", lambda file: synced.append((str(Path(f"/proc/self/fd/{file}").readlink()), target.read_text()))
    )
    move_into_place(fresh, target)
    assert synced == [(str(fresh), "old"), (str(tmp_path), "new")]
    assert list(tmp_path.iterdir()) == [target]
