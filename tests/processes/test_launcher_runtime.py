"""One runtime of a home: its directories, its lock, its workers, and a launcher that is refused."""

from __future__ import annotations

import stat
import tempfile
from pathlib import Path

import pytest

from remembrancer.actors.launcher.home import prepare_home, remove_sockets
from remembrancer.commands import exit_codes
from remembrancer.protocol.errors import HomeUnusable
from remembrancer.protocol.paths import RuntimePaths
from tests.patience import PATIENCE_S
from tests.processes.runtimes import RunningRuntime, runtime, until


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def test_a_home_that_others_could_read_is_closed_and_one_in_which_everyone_may_write_is_refused(home: Path) -> None:
    home.chmod(0o755)
    paths = RuntimePaths(home)
    paths.run.mkdir(mode=0o755)
    prepare_home(paths)
    assert (mode(home), mode(paths.run)) == (0o700, 0o700)
    home.chmod(0o777)
    with pytest.raises(HomeUnusable, match="everyone may write"):
        prepare_home(paths)


def test_a_directory_in_place_of_a_socket_is_moved_out_of_the_way(home: Path) -> None:
    paths = RuntimePaths(home)
    prepare_home(paths)
    (paths.run / "store.sock" / "kept").mkdir(parents=True)
    remove_sockets(paths)
    assert [path.match("store.sock.damaged-*/kept") for path in paths.run.glob("*/*")] == [True]


def test_two_launchers_at_once_are_one_runtime(home: Path) -> None:
    with runtime(home) as one, runtime(home) as two:
        until(lambda: one.process.poll() is not None or two.process.poll() is not None)
        loser, winner = (one, two) if one.process.poll() is not None else (two, one)
        assert loser.process.poll() == exit_codes.ALREADY_RUNNING
        said = loser.output.read_text()
        assert ("is already up" in said, f"process {winner.process.pid}" in said, said.count("\n")) == (True, True, 1)
        winner.until_ready()
        assert len(winner.starts("store")) == 1


def refused(home: Path, *arguments: str, settings: dict[str, str] | None = None) -> tuple[int, str]:
    """The exit status and the output of a launcher that does not come up."""
    running = RunningRuntime(home, *arguments, settings=settings)
    try:
        return running.process.wait(PATIENCE_S), running.output.read_text()
    finally:
        running.output.unlink()


def test_a_setting_that_is_wrong_is_refused_in_one_line_and_in_the_log(home: Path) -> None:
    status, said = refused(home, settings={"REMEMBRANCER_EMBEDDERS": "many"})
    assert status == exit_codes.CONFIGURATION
    assert "a whole number from 0 to 64" in said
    assert said.count("\n") == 1
    assert "REMEMBRANCER_EMBEDDERS" in (home / "logs" / "launcher.log").read_text()
    status, said = refused(home, "--embedders", "65")
    assert (status, "65 embedders are not possible" in said) == (exit_codes.USAGE, True)


def test_a_deep_home_has_its_sockets_elsewhere_and_private(home: Path) -> None:
    deep = home / ("d" * 120)
    paths = RuntimePaths(deep)
    with runtime(deep) as running:
        running.until_ready()
        assert paths.run.parent == Path(tempfile.gettempdir())
        assert mode(paths.run) == 0o700
    assert not paths.run.exists()


@pytest.mark.parametrize("is_link", [False, True])
def test_a_directory_for_sockets_that_others_can_enter_or_a_link_in_its_place_is_refused(
    home: Path, is_link: bool
) -> None:
    paths = RuntimePaths(home / ("d" * 120))
    if is_link:
        paths.run.symlink_to(home)
    else:
        paths.run.mkdir()
        paths.run.chmod(0o755)
    try:
        with pytest.raises(HomeUnusable, match="other users can access it"):
            prepare_home(paths)
    finally:
        (paths.run.unlink if is_link else paths.run.rmdir)()
