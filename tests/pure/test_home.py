"""The place of the home: the bridge and all others agree, whatever variables and files say."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from remembrancer.actors.bridge.places import find_places, hello_line
from remembrancer.config.home import find_home, locate, memory_directory
from remembrancer.protocol.paths import RuntimePaths


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user without a configuration, in a working directory of his own."""
    for name in [name for name in os.environ if name.startswith(("REMEMBRANCER_", "MEMORY_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


ENVIRONMENTS = [
    {},
    {"REMEMBRANCER_HOME": "named"},
    {"MEMORY_DB_PATH": "seeds"},
    {"REMEMBRANCER_HOME": "named", "MEMORY_DB_PATH": "seeds"},
    {"REMEMBRANCER_HOME": ""},
    {"FLOOD_MEMORY_DIR": "flood"},
    {"MEMORY_MCP_DATA_DIR": "data"},
    {"MEMORY_DB_PATH": "seeds", "FLOOD_MEMORY_DIR": "flood", "MEMORY_MCP_DATA_DIR": "data"},
    {"REMEMBRANCER_CONFIG": "given.toml"},
    {"MEMORY_CONFIG_PATH": "given.md"},
    {"MEMORY_CONFIG_PATH": "missing.md"},
    {"REMEMBRANCER_CONFIG": "given.toml", "MEMORY_CONFIG_PATH": "given.md"},
    {"REMEMBRANCER_CONFIG": "given.toml", "REMEMBRANCER_HOME": "named"},
    {"REMEMBRANCER_CONFIG": "given.toml", "MEMORY_DEPLOYMENT_MODE": "embedded-memory"},
    {"MEMORY_DEPLOYMENT_MODE": "embedded-memory"},
    {"REMEMBRANCER_DEPLOYMENT_MODE": "embedded-memory", "REMEMBRANCER_HOME": "named"},
    {"REMEMBRANCER_DEPLOYMENT_MODE": "embedded-file", "MEMORY_DEPLOYMENT_MODE": "embedded-memory"},
    {"REMEMBRANCER_DEPLOYMENT_MODE": "embedded-file", "MEMORY_CONFIG_PATH": "given.md"},
    {"REMEMBRANCER_HOME": "~/memory"},
    {"REMEMBRANCER_HOME": "/tmp/a/../b"},
    *({"REMEMBRANCER_HOME": f"/tmp/{name}"} for name in ("x" * 52, "x" * 69, "x" * 70, "ü" * 60)),  # long for a socket
    *({"XDG_DATA_HOME": data} for data in ("/somewhere/data", "not/absolute", " ")),
]
FILES = {
    "none": {},
    "plain": {"config.toml": "embedders = 2\n"},
    "moves": {"config.toml": 'db_path = "elsewhere"\n'},
    "escaped": {"config.toml": '"\\u0064b_path" = "elsewhere"\n'},
    "in memory": {"config.toml": 'db_path = "~/elsewhere"\ndeployment_mode = "embedded-memory"\n'},
    "another format": {"config.md": "---\ndb_path: ~/elsewhere\n---\n"},
    "a seed's": {"memory.config.json": '{"db_path": "elsewhere"}'},
    "broken": {"config.toml": "db_path = [\n"},
    "wrong type": {"config.toml": "db_path = 3\n"},
    "two": {"config.toml": 'db_path = "elsewhere"\n', "config.json": "{}"},
}


@pytest.mark.parametrize("files", FILES.values(), ids=FILES)
@pytest.mark.parametrize("environ", ENVIRONMENTS, ids=str)
def test_the_bridge_looks_where_the_other_processes_are(
    scratch: Path, monkeypatch: pytest.MonkeyPatch, environ: dict[str, str], files: dict[str, str]
) -> None:
    write(scratch / "given.toml", 'db_path = "given"\n')
    write(scratch / "given.md", "---\ndb_path: given\ndeployment_mode: embedded-memory\n---\n")
    for folder in ("data/remembrancer", "named", "seeds"):
        for name, text in files.items():
            write(scratch / folder / name, text)
    for variable, value in environ.items():
        monkeypatch.setenv(variable, value)
    places, home = find_places(os.environ), locate(os.environ)
    paths = RuntimePaths(home.directory)
    assert (places.home, places.on_disk) == (str(home.directory), str(home.on_disk))
    assert places.config == (None if home.file is None else str(home.file))
    for name in ("gateway_socket", "start_lock", "runtime_lock", "logs"):
        assert getattr(places, name) == str(getattr(paths, name))

    told = {name: value for name, value in os.environ.items() if name not in {*environ, "XDG_DATA_HOME"}}
    told |= {"REMEMBRANCER_HOME": places.on_disk}
    told |= {name: value for name, value in environ.items() if name.endswith("_MODE")}
    if places.config is not None:
        told["REMEMBRANCER_CONFIG"] = places.config
    monkeypatch.chdir("/")
    runtime = locate(told)
    assert (runtime.directory, runtime.on_disk) == (home.directory, home.on_disk), "where its runtime goes"
    assert runtime.file == home.file


def test_ours_is_before_the_seeds_and_a_variable_is_before_a_file(scratch: Path, tmp_path: Path) -> None:
    file = str(write(scratch / "c" / "c.toml", 'db_path = "from-file"\n'))
    everything = {"REMEMBRANCER_HOME": "/ours", "MEMORY_DB_PATH": "/theirs", "REMEMBRANCER_CONFIG": file}
    for variable, home in (("REMEMBRANCER_HOME", "/ours"), ("MEMORY_DB_PATH", "/theirs")):
        assert locate(everything)[1:3] == (Path(home), variable)
        del everything[variable]
    assert locate(everything)[1:3] == (scratch / "c" / "from-file", f"db_path in {file}")
    assert locate({}).named_by == "default"
    assert locate({"XDG_DATA_HOME": str(scratch / "data")}).directory == scratch / "data" / "remembrancer"
    for variable in ("FLOOD_MEMORY_DIR", "MEMORY_MCP_DATA_DIR"):
        assert locate({variable: str(tmp_path)}).directory == tmp_path.resolve()
        assert locate({variable: str(tmp_path), "REMEMBRANCER_HOME": "/ours"}).named_by == "REMEMBRANCER_HOME"


def test_a_memory_in_memory_is_the_same_one_for_everybody_who_names_the_same_home() -> None:
    one = find_home({"REMEMBRANCER_HOME": "/tmp/../tmp/a", "MEMORY_DEPLOYMENT_MODE": "embedded-memory"})
    other = find_home({"MEMORY_DB_PATH": "/tmp/a", "REMEMBRANCER_DEPLOYMENT_MODE": "embedded-memory"})
    assert one == other == memory_directory(Path("/tmp/a"))
    assert one != find_home({"REMEMBRANCER_HOME": "/tmp/b", "MEMORY_DEPLOYMENT_MODE": "embedded-memory"})
    assert str(os.getuid()) in one.name
    assert RuntimePaths(one).run == one / "run", "its sockets fit into it"


def test_a_configuration_that_is_a_pipe_is_not_waited_for(scratch: Path) -> None:
    os.mkfifo(scratch / "pipe.toml")
    environ = {"REMEMBRANCER_CONFIG": str(scratch / "pipe.toml"), "REMEMBRANCER_HOME": "/tmp/a"}
    assert find_places(environ).home == str(locate(environ).directory)


def test_a_socket_that_somebody_else_may_have_put_there_is_not_trusted(scratch: Path) -> None:
    places = find_places({"REMEMBRANCER_HOME": str(scratch / "h"), "MEMORY_DEPLOYMENT_MODE": "embedded-memory"})
    assert not places.are_private(), "it is not there"
    home = Path(places.home)
    try:
        home.mkdir(mode=0o700)
        assert places.are_private()
        home.chmod(0o755)
        assert not places.are_private()
        home.rmdir()
        home.symlink_to(scratch)
        assert not places.are_private()
    finally:
        if home.is_symlink():
            home.unlink()
        else:
            home.rmdir()
    assert find_places({"REMEMBRANCER_HOME": "/tmp/h"}).are_private()


def test_the_hello_names_the_configuration_file_and_the_seeds_settings_without_their_secrets() -> None:
    environ = {
        "MEMORY_LOG_LEVEL": "warn",
        "MEMORY_REMOTE_URL": "ws://root:secret@host",
        "MEMORY_CONFIG_PATH": "c.md",
        "REMEMBRANCER_CONFIG": "relative.toml",
    }
    hello = json.loads(hello_line(bytes(16), "session:x", None, environ, "/absolute/relative.toml"))
    assert hello["environment"] == {"MEMORY_LOG_LEVEL": "warn", "REMEMBRANCER_CONFIG": "/absolute/relative.toml"}
    assert json.loads(hello_line(bytes(16), "session:x", None, environ))["environment"] == {"MEMORY_LOG_LEVEL": "warn"}
