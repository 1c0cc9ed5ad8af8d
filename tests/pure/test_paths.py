"""Paths of a home: every socket's path fits, and two homes never share one."""

from __future__ import annotations

from pathlib import Path

from hypothesis import example, given
from hypothesis import strategies as st

from remembrancer.protocol.paths import RuntimePaths

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
