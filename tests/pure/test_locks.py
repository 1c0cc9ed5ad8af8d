"""Locks between processes: one holder, and none left behind however the holder ends."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from remembrancer.protocol.file_locks import FileLock

HOLDER = """
import sys
from pathlib import Path
from remembrancer.protocol.file_locks import FileLock
lock = FileLock(Path(sys.argv[1]))
print("held" if lock.try_acquire() else "refused", flush=True)
sys.stdin.read()
"""


def start_holder(path: Path) -> tuple[subprocess.Popen[str], str]:
    """Another process that takes the lock; and what it says of it."""
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    return holder, holder.stdout.readline().strip()


def end(holder: subprocess.Popen[str]) -> None:
    holder.kill()
    holder.communicate()


def test_kill_9_of_the_holder_releases_the_lock(tmp_path: Path) -> None:
    lock = FileLock(tmp_path / "a.lock")
    holder, said = start_holder(tmp_path / "a.lock")
    try:
        assert said == "held"
        assert not lock.try_acquire()
        assert lock.is_held_elsewhere()
    finally:
        end(holder)
    assert not lock.is_held_elsewhere()
    assert lock.try_acquire()
    lock.release()


def test_a_lock_that_we_hold_is_refused_to_others_until_we_release_it(tmp_path: Path) -> None:
    with FileLock(tmp_path / "a.lock") as lock:
        assert lock.try_acquire()
        assert lock.try_acquire(), "ours already"
        assert not lock.is_held_elsewhere()
        second, said = start_holder(tmp_path / "a.lock")
        end(second)
        assert said == "refused"
        assert not FileLock(lock.path).try_acquire(), "nor to another lock of this process"
    third, said = start_holder(tmp_path / "a.lock")
    end(third)
    assert said == "held"


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


def test_a_child_that_we_start_does_not_keep_the_lock(tmp_path: Path) -> None:
    lock = FileLock(tmp_path / "a.lock")
    lock.try_acquire()
    child = subprocess.Popen(
        [sys.executable, "-c", "print('up', flush=True); input()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        close_fds=False,
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == b"up\n"  # it has what it inherits, and no more
        lock.release()
        assert FileLock(lock.path).try_acquire()
    finally:
        child.kill()
        child.communicate()
