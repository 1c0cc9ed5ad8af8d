"""The commands as a person or a program runs them: what they print, and their exit status."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from remembrancer import __version__
from remembrancer.command_line import main
from remembrancer.commands import exit_codes, runtime_client
from tests.patience import PATIENCE_S
from tests.processes.runtimes import runtime, until
from tests.runtime import command


def remembrancer(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command in the home of the environment."""
    return command(*arguments, home=Path(os.environ["REMEMBRANCER_HOME"]))


def answered(*arguments: str) -> subprocess.CompletedProcess[str]:
    """As `remembrancer`, run again while the launcher does not answer in time."""

    def run() -> subprocess.CompletedProcess[str] | None:
        done = remembrancer(*arguments)
        return None if done.returncode == exit_codes.NO_ANSWER else done

    return until(run)


def well(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The status, once all is well: a process that is late with its answer is none of which all is known."""

    def run() -> subprocess.CompletedProcess[str] | None:
        done = remembrancer("status", *arguments)
        return done if done.returncode == exit_codes.OK else None

    return until(run)


def test_nothing_that_runs_is_said_with_a_status_of_its_own(home: Path) -> None:
    home.rmdir()
    for arguments in (["status"], ["down"], ["admin", "scale", "embedder=2"]):
        done = remembrancer(*arguments)
        assert (done.returncode, done.stdout) == (exit_codes.NOT_RUNNING, "")
        assert "remembrancer up" in done.stderr
    assert not home.exists()


def test_a_runtime_is_seen_scaled_and_stopped_from_the_command_line(home: Path) -> None:
    with runtime(home) as running:
        running.until_ready()
        until(lambda: json.loads(well("--json").stdout)["counts"].get("total"))
        said = json.loads(well("--json").stdout)
        assert [each["role"] for each in said["processes"]] == ["launcher", "gateway", "store", "embedder"]
        for process in said["processes"]:
            assert {"pid", "restarts", "uptime_s"} <= process.keys()
            assert (process["rss_bytes"] > 1_000_000, process["state"]) == (True, "ready")
        assert said["counts"]["total"] == 7

        assert "All is well." in well().stdout
        assert "of release" not in well().stdout, "no file waits for an upgrade"

        assert answered("admin", "scale", "embedder=2").returncode == exit_codes.OK
        running.until_ready("embedder-2")
        done = remembrancer("down")
        assert (done.returncode, "Stopped" in done.stdout) == (exit_codes.OK, True)
        assert running.process.wait(PATIENCE_S) == 0


def test_a_launcher_that_does_not_answer_is_degraded(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(runtime_client, "CONNECT_S", 1.0)
    with runtime(home) as running:
        running.until_ready()
        running.process.send_signal(signal.SIGSTOP)
        assert main(["status", "--json"]) == exit_codes.DEGRADED
        running.process.send_signal(signal.SIGCONT)
        (warning,) = json.loads(capsys.readouterr().out)["warnings"]
        assert warning.count("launcher.log") == 1
        assert {process.restarts for process in running.until_ready().values()} == {0}


WRONG = {
    "": "Usage: remembrancer",
    "stauts": "No such command 'stauts'. Did you mean 'status'?",
    "serve": "No such command 'serve'. Did you mean up?",
    "zzz": "No such command 'zzz'.",
    "admin scale": "embedder=N",
    "admin scale store=2": "such as embedder=2",
    "status --jason": "--jason",
}


def test_a_wrong_command_line_is_refused_with_the_reason(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for line, reason in WRONG.items():
        assert main(line.split()) == exit_codes.USAGE
        said = capsys.readouterr()
        assert (said.out, reason in said.err) == ("", True), said.err


def test_a_home_or_setting_to_correct_has_the_exit_status_of_the_help(home: Path, tmp_path: Path) -> None:
    file, broken = tmp_path / "a file", tmp_path / "broken.toml"
    file.touch()
    broken.write_text("embedders = [")
    for line in (["list"], ["add", "a fact"], ["model"]):
        for place, variables, status in (
            (file, {}, exit_codes.HOME_UNUSABLE),
            (home, {"REMEMBRANCER_EMBEDDERS": "zz"}, exit_codes.CONFIGURATION),
            (home, {"REMEMBRANCER_CONFIG": str(broken)}, exit_codes.CONFIGURATION),
        ):
            done = command(*line, home=place, variables=variables)
            assert done.returncode == status, done.stderr


def test_the_version_and_the_help_are_told(home: Path) -> None:
    assert remembrancer("--version").stdout == f"remembrancer {__version__}\n"
    told = remembrancer("--help").stdout
    for word in ("mcp", "up", "down", "status", "scale", "setup", "Exit status", "such as a credential"):
        assert word in told
