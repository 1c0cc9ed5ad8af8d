"""Paths of a home: every socket's path fits, two homes never share one, and each is looked at before it is opened."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from remembrancer.protocol.file_locks import FileLock
from remembrancer.protocol.paths import RuntimePaths, look_at, read_file, set_aside
from tests.patience import PATIENCE_S

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
    kept = [paths.logs, paths.catalog, paths.user_database, paths.vectors, paths.write_queue, paths.keys]
    kept += [paths.runtime_lock, paths.store_lock, paths.gateway_lock, paths.start_lock, paths.runtime_record]
    kept.append(paths.project_database("p_0123456789ab"))
    assert all(path.is_relative_to(home) for path in kept)
    assert len(set(kept)) == len(kept)
    assert not paths.run.is_relative_to(home)
    assert RuntimePaths(Path("/h")).run == Path("/h/run")


def test_a_look_says_what_is_there_and_what_to_do_about_it(tmp_path: Path) -> None:
    file, directory, pipe, device, lost = (tmp_path / name for name in ("file", "directory", "pipe", "device", "lost"))
    file.write_bytes(b"12345")
    directory.mkdir()
    os.mkfifo(pipe)
    device.symlink_to("/dev/zero")
    lost.symlink_to("nowhere")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        assert look_at(tmp_path / "socket").kind == "socket"
    assert look_at(file) == ("file", 5, None)
    assert look_at(directory, "directory").problem is None
    assert look_at(tmp_path / "missing") == ("missing", 0, None)
    assert look_at(directory).problem == f"{directory} is a directory and no file: move it away"
    assert look_at(pipe).problem == f"{pipe} is a pipe and no file: move it away"
    assert look_at(device).problem == f"{device} is a device and no file: move it away"
    assert look_at(lost).problem == f"{lost} is a link that leads nowhere: remove it"
    assert look_at(file / "below").kind == "unreachable"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_look_says_what_may_not_be_read(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch(mode=0)
    assert look_at(path).problem == (f"{path} may not be read and written: its mode is 0000: fix its owner and mode")


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


def test_what_is_set_aside_is_found_beside_and_a_lock_is_taken_on_a_pipe_as_well(tmp_path: Path) -> None:
    path = tmp_path / "logs"
    path.write_bytes(b"a note")
    aside = set_aside(path)
    assert aside is not None
    assert (aside.parent, aside.read_bytes(), path.exists()) == (tmp_path, b"a note", False)
    assert set_aside(path) is None
    path = tmp_path / "runtime.lock"
    os.mkfifo(path)
    with FileLock(path) as lock:
        assert lock.try_acquire()
        assert FileLock(path).is_held_elsewhere()
    assert not FileLock(path).is_held_elsewhere()
