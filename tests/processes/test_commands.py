import json
import os
import re
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from remembrancer import __version__
from remembrancer.command_line import main
from remembrancer.commands import exit_codes, runtime_client
from remembrancer.config.settings import SETTABLE, Settings
from tests.cases import cases
from tests.patience import PATIENCE_S, wait_until
from tests.processes.runtimes import runtime
from tests.runtime import Runtime, command, done, patiently, start


def test_nothing_that_runs_is_said_with_a_status_of_its_own(home: Path) -> None:
    home.rmdir()
    for arguments in (["status"], ["down"], ["admin", "scale", "embedder=2"]):
        done = command(*arguments, home=home)
        assert (done.returncode, done.stdout) == (exit_codes.NOT_RUNNING, "")
        assert "remembrancer up" in done.stderr
    assert not home.exists()


def test_a_configuration_with_which_nothing_starts_is_part_of_the_status(home: Path) -> None:
    (home / "config.toml").write_text("embeders = 3\n")
    done = command("status", home=home)
    assert done.returncode == exit_codes.NOT_RUNNING
    assert "did you mean embedders" in done.stderr
    assert "starts it" not in done.stderr
    (problem,) = json.loads(command("status", "--json", home=home).stdout)["problems"]
    assert problem["code"] == "configuration_error"


def test_a_runtime_is_seen_scaled_and_stopped_from_the_command_line(home: Path) -> None:
    with runtime(home) as running:
        running.until_ready()
        well = wait_until(lambda: told if "All is well." in (told := command("status", home=home).stdout) else "")
        assert "of release" not in well, "no file waits for an upgrade"
        assert len(re.findall(r"\bready\b.* [1-9]\d* MiB", well)) == 4
        assert patiently("admin", "scale", "embedder=2", home=home).returncode == exit_codes.OK
        running.until_ready("embedder-2")
        assert "Stopped" in done("down", home=home)
        assert running.process.wait(PATIENCE_S) == 0


def test_a_silent_launcher_is_degraded_and_a_silent_process_is_said_to_be_late(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with runtime(home) as running:
        running.until_ready()
        with Runtime(home).suspended("store"):
            said = command("status", "--json", home=home), command("status", home=home)
            late = json.loads(said[0].stdout)
            assert "store" in late["late"], "whatever else is wrong on a busy machine"
            assert said[0].returncode == (exit_codes.DEGRADED if late["problems"] else exit_codes.OK), late["problems"]
            assert "store did not answer in time: " in said[1].stdout
        for name in ("CONNECT_S", "ANSWER_S"):
            monkeypatch.setattr(runtime_client, name, 0.5)
        with Runtime(home).suspended("launcher"):
            assert main(["status", "--json"]) == exit_codes.DEGRADED
        (warning,) = json.loads(capsys.readouterr().out)["warnings"]
        assert warning.count("launcher.log") == 1
        assert {process.restarts for process in running.until_ready().values()} == {0}


def test_a_wrong_command_line_is_refused_with_the_reason(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for line, reason in cases("commands", "wrong"):
        assert main(line.split()) == exit_codes.USAGE
        said = capsys.readouterr()
        assert (said.out, reason in said.err) == ("", True), said.err


def test_a_home_or_setting_to_correct_has_the_exit_status_of_the_help(home: Path, tmp_path: Path) -> None:
    file, broken = tmp_path / "a file", tmp_path / "broken.toml"
    file.touch()
    broken.write_text("embedders = [")
    for line in (["list"], ["add", "a fact"], ["model"], ["up"]):
        for place, variables, status, reason in (
            (file, {}, exit_codes.HOME_UNUSABLE, "it is a file"),
            (home, {"REMEMBRANCER_EMBEDDERS": "zz"}, exit_codes.CONFIGURATION, "EMBEDDERS"),
            (home, {"REMEMBRANCER_CONFIG": str(broken)}, exit_codes.CONFIGURATION, "broken.toml"),
        ):
            assert reason in done(*line, home=place, variables=variables, status=status)
    assert "it is a file" in done("status", home=file, status=exit_codes.NOT_RUNNING)
    refused = done("config", "--set", "embedders=2", home=file, status=exit_codes.FILE_UNUSABLE)
    assert f"{file} cannot be used: " in refused


@pytest.mark.skipif(sys.platform != "linux", reason="a file that can be opened, but not read")
def test_an_error_in_reading_a_file_is_no_crash(home: Path) -> None:
    for line in (["backup", "import"], ["share", "join"]):
        assert "Input/output error" in done(*line, "/proc/self/mem", home=home, status=exit_codes.FILE_UNUSABLE)


def test_the_version_and_the_exit_statuses_are_told(home: Path) -> None:
    assert command("--version", home=home).stdout == f"remembrancer {__version__}\n"
    told = command("--help", home=home).stdout
    for word in ("Exit status", "such as a credential"):
        assert word in told


def config(*arguments: str, status: int = exit_codes.OK, **environ: str) -> str:
    return done("config", *arguments, home=Path(os.environ["REMEMBRANCER_HOME"]), variables=environ, status=status)


def test_the_settings_that_count_are_told_with_where_each_comes_from(home: Path) -> None:
    file = home / "config.toml"
    file.write_text("embedders = 2\nqueue_limit = 7\n")
    said = json.loads(config("--json", MEMORY_LOG_LEVEL="warn"))
    place = {"directory": str(home), "on_disk": str(home), "in_memory": False, "from": "REMEMBRANCER_HOME"}
    assert said["home"] == place
    assert said["files"] == [str(file)]
    assert said["settings"]["embedders"] == {"value": 2, "from": "file", "name": "embedders", "file": str(file)}
    variable = {"value": "warning", "from": "environment", "name": "MEMORY_LOG_LEVEL", "file": None}
    assert said["settings"]["log_level"] == variable
    assert said["settings"]["model"] == {"value": Settings().model, "from": "default", "name": None, "file": None}
    assert ["queue_limit" in each for each in said["warnings"]] == [True]
    assert said["problems"] == []

    assert "engine" not in config(MEMORY_LOG_LEVEL="warn")
    printed = config("--all")
    told = {line.split()[0]: line.split()[1:] for line in printed.splitlines() if line}
    assert " ".join(told["embedders"]) == f"2 embedders in {file}"
    assert told["engine"][:2] == ["onnx", "default"]
    assert told.keys() >= set(SETTABLE)
    assert "queue_limit" in printed


def test_a_setting_is_written_into_the_file_and_taken_out_again(home: Path) -> None:
    file = home / "config.toml"
    file.write_text("# my own words\nembedders = 2\n")
    for assignment in ("native_memories=true", "REMEMBRANCER_NOTES_PATHS=NOTES.md,docs/"):
        config("--set", assignment)
    added = 'native_memories = true\nnotes_paths = ["NOTES.md", "docs/"]\n'
    assert file.read_text() == f"# my own words\nembedders = 2\n{added}"
    assert json.loads(config("--json"))["settings"]["native_memories"]["value"] is True
    config("--set", "native_memories=")
    assert "native_memories" not in file.read_text()
    for assignment, message in cases("commands", "assignments"):
        refused = command("config", "--set", assignment, home=home)
        assert (refused.returncode, refused.stdout) == (exit_codes.CONFIGURATION, "")
        assert message in refused.stderr
    config("--set", "embedders=3", "--import", str(file), status=exit_codes.USAGE)
    file.write_text("embedders = [")
    assert f"{file}: it is not TOML" in config("--set", "embedders=3", status=exit_codes.CONFIGURATION)
    assert file.read_text() == "embedders = ["


def test_a_configuration_of_another_server_is_imported_once(home: Path) -> None:
    other = home / "config.json"
    other.write_text(
        '{"embedders": 3, "sources": {"memory": {"enabled": false}}, "namespace": "theirs", "db_path": "."}'
    )
    assert f"config --import {other}'" in config(status=exit_codes.CONFIGURATION)
    assert str(other) in config("--set", "embedders=2", status=exit_codes.CONFIGURATION)
    assert "Without effect here: namespace" in config("--import", str(other))
    assert f'db_path = "{home.resolve()}"' in (home / "config.toml").read_text()
    said = json.loads(config("--json"))
    assert (said["settings"]["embedders"]["value"], said["settings"]["notes"]["value"]) == (3, False)
    assert said["problems"] == []
    assert "already exists" in config("--import", str(other), status=exit_codes.CONFIGURATION)
    (home / "config.toml").unlink()
    other.write_text('{"embedders": "many"}')
    assert "a whole number, got text" in config("--import", str(other), status=exit_codes.CONFIGURATION)
    assert not (home / "config.toml").exists()


CONTENT = "Builds take nine minutes."


@pytest.mark.usefixtures("runtime")
def test_the_memories_of_a_project_of_all_and_of_the_user_are_looked_through(home: Path, tmp_path: Path) -> None:
    (project := tmp_path / "app").mkdir()
    start(home)
    done("add", CONTENT, home=home, directory=project)
    said = json.loads(done("admin", "maintain", "--project", str(project), "--dry-run", "--json", home=home))
    assert said["dry_run"] is True
    (place,) = said["places"]
    assert place["project"]["path"] == str(project)
    assert place["outcome"]["examined"] in (1, 2), "the memory, and what its session hands over at its end"
    assert place["outcome"].keys().isdisjoint(("done", "run_ids"))
    first, *others = done("admin", "maintain", "--all-projects", home=home).splitlines()
    assert first in (f"{project}: 1 examined", f"{project}: 2 examined")
    assert others == ["the user: 0 examined", "There was nothing to do."]
    done("down", home=home)
    said = json.loads(done("admin", "maintain", "--user", "--json", home=home))
    assert [place["project"] for place in said["places"]] == [None], "also where no runtime is up"


@pytest.mark.usefixtures("runtime")
def test_it_comes_when_there_is_work_gives_way_to_the_others_and_is_in_the_status(home: Path) -> None:
    def niceness() -> int:
        """That of a consolidator that has done a job; it is there for ten seconds more."""
        assert patiently("admin", "maintain", "--user", home=home).returncode == exit_codes.OK
        with suppress(psutil.NoSuchProcess):
            return Runtime(home).process("consolidator").nice()
        return 0

    def health() -> Any:
        return json.loads(done("status", "--json", home=home))["consolidator"]

    start(home)
    done("add", CONTENT, home=home)
    assert wait_until(niceness) == 10
    idle = wait_until(lambda: (known := health())["job"] is None and known)
    assert (idle["finished"] >= 1, idle["failed"], idle["error"]) == (True, 0, None)
    assert re.search(r"consolidator idle; \d+ jobs? done", done("status", home=home))
