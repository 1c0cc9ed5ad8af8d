"""`remembrancer config` as a person or a program runs it."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from remembrancer.commands import exit_codes
from remembrancer.config.settings import SETTABLE, Settings
from tests.runtime import command


def config(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run the command in the home of the environment."""
    done = command("config", *arguments, home=Path(os.environ["REMEMBRANCER_HOME"]), variables=environ)
    assert "Traceback" not in done.stderr
    return done


def test_the_settings_that_count_are_told_with_where_each_comes_from(home: Path) -> None:
    file = home / "config.toml"
    file.write_text("embedders = 2\nqueue_limit = 7\n")
    done = config("--json", MEMORY_LOG_LEVEL="warn")
    assert done.returncode == exit_codes.OK, done.stderr
    said = json.loads(done.stdout)
    assert said["home"] == {
        "directory": str(home),
        "on_disk": str(home),
        "in_memory": False,
        "from": "REMEMBRANCER_HOME",
    }
    assert said["files"] == [str(file)]
    assert said["settings"]["embedders"] == {"value": 2, "from": "file", "name": "embedders", "file": str(file)}
    assert said["settings"]["log_level"] == {
        "value": "warning",
        "from": "environment",
        "name": "MEMORY_LOG_LEVEL",
        "file": None,
    }
    assert said["settings"]["model"] == {"value": Settings().model, "from": "default", "name": None, "file": None}
    assert list(said["settings"]) == list(SETTABLE)
    assert [each["name"] for each in said["without_effect"]] == ["queue_limit"]
    assert len(said["warnings"]) == 1
    assert said["problems"] == []

    done = config(MEMORY_LOG_LEVEL="warn")
    assert done.returncode == exit_codes.OK
    told = {line.split()[0]: line.split()[1:] for line in done.stdout.splitlines() if line}
    assert told["embedders"][:4] == ["2", "embedders", "in", str(file)]
    assert " ".join(told["embedders"][4:]) == "The number of embedding workers at the start"
    assert told["log_level"][:2] == ["warning", "MEMORY_LOG_LEVEL"]
    assert told["engine"][:2] == ["onnx", "default"]
    assert all(told[name][2:] for name in SETTABLE)
    assert "queue_limit" in done.stdout


def test_a_setting_is_written_into_the_file_and_taken_out_again(home: Path) -> None:
    file = home / "config.toml"
    file.write_text("# my own words\nembedders = 2\n")
    for assignment in ("native_memories=true", "REMEMBRANCER_NOTES_PATHS=NOTES.md,docs/"):
        assert config("--set", assignment).returncode == exit_codes.OK
    assert file.read_text() == (
        '# my own words\nembedders = 2\nnative_memories = true\nnotes_paths = ["NOTES.md", "docs/"]\n'
    )
    assert json.loads(config("--json").stdout)["settings"]["native_memories"]["value"] is True
    assert config("--set", "native_memories=").returncode == exit_codes.OK
    assert "native_memories" not in file.read_text()
    for assignment, message in [
        ("nativ_memories=true", "did you mean native_memories"),
        ("native_memories=perhaps", "true or false"),
        ("native_memories", "NAME=VALUE"),
        ("=3", "NAME=VALUE"),
    ]:
        refused = config("--set", assignment)
        assert (refused.returncode, refused.stdout) == (exit_codes.CONFIGURATION, "")
        assert message in refused.stderr
    assert config("--set", "embedders=3", "--import", str(file)).returncode == exit_codes.USAGE


def test_a_configuration_of_another_server_is_imported_once(home: Path) -> None:
    other = home / "config.json"
    other.write_text(
        '{"embedders": 3, "sources": {"memory": {"enabled": false}}, "namespace": "theirs", "db_path": "."}'
    )
    assert f"{other} is read" in config().stdout
    assert str(other) in config("--set", "embedders=2").stderr
    done = config("--import", str(other))
    assert done.returncode == exit_codes.OK, done.stderr
    assert "without effect here: namespace" in done.stdout
    assert f'db_path = "{home.resolve()}"' in (home / "config.toml").read_text()
    said = json.loads(config("--json").stdout)
    assert (said["settings"]["embedders"]["value"], said["settings"]["notes"]["value"]) == (3, False)
    assert said["problems"] == []
    again = config("--import", str(other))
    assert (again.returncode, "is there already" in again.stderr) == (exit_codes.CONFIGURATION, True)
    (home / "config.toml").unlink()
    other.write_text('{"embedders": "many"}')
    assert "it must be a whole number" in config("--import", str(other)).stderr
    assert not (home / "config.toml").exists()
