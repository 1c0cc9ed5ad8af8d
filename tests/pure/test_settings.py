import json
import os
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from remembrancer.actors.bridge.places import find_places
from remembrancer.actors.gateway.conversations import setting_warnings
from remembrancer.command_line import main
from remembrancer.commands import exit_codes, hook
from remembrancer.commands.config import written
from remembrancer.config.home import (
    MAX_FILE_BYTES,
    locate,
    memory_directory,
    read_settings_file,
    read_settings_text,
)
from remembrancer.config.other_formats import read_other_format
from remembrancer.config.reading import (
    Configuration,
    load_configuration,
    load_settings,
    read_configuration,
)
from remembrancer.config.settings import CONSTANTS, NOT_SETTINGS, PREFIX, Settings, model_choices
from remembrancer.protocol.errors import ConfigurationError
from remembrancer.protocol.paths import RuntimePaths
from remembrancer.protocol.work import ModelChoice
from tests.cases import cases

SEED = (Path(__file__).parents[1] / "cases" / "surrealdb-memory.local.md").read_text()


def read(tmp_path: Path, text: str, **environ: str) -> Configuration:
    file = tmp_path / "c.toml"
    file.write_text(text)
    return read_configuration(environ, file)


def imported(tmp_path: Path, name: str, text: str) -> Configuration:
    """The configuration that an imported file makes; `unused` are the names in it without effect."""
    file = tmp_path / name
    file.write_text(text, newline="")
    settings, unused = read_other_format(file, read_settings_text(file))
    made = read_configuration({}, file, settings)
    assert (made.problems, made.warnings) == ((), ())
    return made._replace(warnings=unused)


@pytest.mark.parametrize(("name", "text"), cases("config_files", "formats"))
def test_each_format_is_imported(tmp_path: Path, name: str, text: str) -> None:
    assert imported(tmp_path, name, text).settings == Settings(embedders=3, log_level="warning")


def test_a_file_is_imported_with_its_mode_and_what_has_no_effect_is_named(tmp_path: Path) -> None:
    made = imported(tmp_path, "surrealdb-memory.local.md", SEED)
    assert made.settings == Settings(max_memories_per_session=100, model="all-MiniLM-L6-v2")
    limits = {"max_memories_per_session", "consolidation_on_shutdown"}
    assert set(made.origins) == {"deployment_mode", "model", "log_level", *limits}
    assert set(made.warnings) == {
        *("namespace", "database", "embedding_dimensions"),
        *("remote_url", "remote_user", "remote_pass"),
    }
    text = "---\ndeployment_mode: remote\n---\n```yaml\nremote_url: https://vectors.example\n```\n"
    assert imported(tmp_path, "c.md", text).settings.chroma_url == "https://vectors.example"


@pytest.mark.parametrize(("name", "value", "setting", "meant"), cases("config_files", "names_in_sections"))
def test_a_name_in_a_section_is_known(tmp_path: Path, name: str, value: object, setting: str, meant: object) -> None:
    expected = {setting: tuple(meant) if isinstance(meant, list) else meant}
    made = imported(tmp_path, "c.json", json.dumps(section(name, value)))
    assert made.settings == msgspec.structs.replace(Settings(), **expected)


def section(name: str, value: object) -> dict[str, Any]:
    first, _, rest = name.partition(".")
    return {first: section(rest, value) if rest else value}


@pytest.mark.parametrize(("name", "text", "reason"), cases("config_files", "not_imported"))
def test_what_cannot_be_imported_is_refused_by_its_name_without_quoting_it(name: str, text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=f"{name}.*{reason}") as refused:
        read_other_format(Path(name), text)
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    ("embedding", "meant"),
    [
        *cases("config_files", "local_engines"),
        ({"provider": "openai", "fallback": None, "local": {"model": "all-MiniLM-L6-v2"}}, {"engine": "openai"}),
    ],
)
def test_which_engine_is_local_follows_from_its_model(tmp_path: Path, embedding: Any, meant: dict[str, str]) -> None:
    made = imported(tmp_path, "c.json", json.dumps({"embedding": embedding}))
    assert made.settings == msgspec.structs.replace(Settings(), **meant)


def test_variables_of_other_servers_count_or_are_said_not_to_or_say_nothing() -> None:
    read_in = read_configuration({"MEMORY_MCP_LOG_LEVEL": "debug", "MEMORY_MCP_CACHE_SIZE": "500"})
    assert (read_in.settings, read_in.problems) == (Settings(log_level="debug"), ())
    given = {"MEMORY_MCP_MODEL": "e5_multi", "MEMORY_MCP_BATCH_SIZE": "32", "MEMORY_MCP_TIMEOUT": "120"}
    read_in = read_configuration(given)
    expected = Settings(model="e5_multi", embedding_batch_texts=32, model_load_timeout_s=120)
    assert (read_in.settings, read_in.problems, read_in.warnings) == (expected, (), ())
    assert model_choices(read_in.settings)[0] == ModelChoice("sentence-transformers", "e5_multi")
    (problem,) = read_configuration({"MEMORY_MCP_MODEL": "e6"}).problems
    assert problem.startswith("MEMORY_MCP_MODEL ")
    assert "e5_small, e5_multi, nomic, bge_m3" in problem
    (problem,) = read_configuration(given | {"REMEMBRANCER_ENGINE": "voyage"}).problems
    assert "the engine is voyage" in problem
    others = {"MEMORY_FILE_PATH": "/x", "MEMORY_LIMIT": "1", "MEMORY_": "", "MEMORY_MCP_DATA_DIR": "/data"}
    empty = {"MEMORY_LOG_LEVEL": "", "MEMORY_DEPLOYMENT_MODE": ""}
    assert read_configuration(others) == read_configuration(empty) == Configuration(Settings())


def test_what_is_said_nearer_to_the_session_counts(tmp_path: Path) -> None:
    """Ours before the others', the environment before the file, the file before the default."""
    environ = {"REMEMBRANCER_LOG_LEVEL": "error", "MEMORY_LOG_LEVEL": "warn"}
    for origin, level in (
        ("REMEMBRANCER_LOG_LEVEL", "error"),
        ("MEMORY_LOG_LEVEL", "warning"),
        (f"log_level in {tmp_path / 'c.toml'}", "debug"),
    ):
        made = read(tmp_path, 'log_level = "debug"\n', **environ)
        assert (made.problems, made.settings.log_level, str(made.origins["log_level"])) == ((), level, origin)
        environ.pop(origin, None)
    assert read(tmp_path, "") == Configuration(Settings())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        *cases("config_files", "wrong_files"),
        ("#" * (MAX_FILE_BYTES + 1), "c.toml cannot be read: .* has more than 1048576 bytes"),
    ],
)
def test_what_is_wrong_with_a_file_is_said_with_its_name(tmp_path: Path, text: str, message: str) -> None:
    read_in = read(tmp_path, text)
    [problem] = read_in.problems
    assert re.search(message, problem)
    assert "c.toml" in problem
    assert "\n" not in problem
    assert read_in.settings == Settings()
    with pytest.raises(ConfigurationError, match=message):
        load_settings({"REMEMBRANCER_CONFIG": str(tmp_path / "c.toml"), "REMEMBRANCER_HOME": str(tmp_path)})


def test_a_file_that_is_no_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.toml")
    for name, why in (("pipe.toml", "cannot be read: .* is not a file"), ("missing.toml", "does not exist")):
        with pytest.raises(ConfigurationError, match=f"{name} {why}"):
            load_settings({"REMEMBRANCER_CONFIG": str(tmp_path / name), "REMEMBRANCER_HOME": str(tmp_path)})
    (tmp_path / "latin.toml").write_bytes(b'model = "\xe9"')
    with pytest.raises(ValueError, match=r"latin\.toml is not UTF-8"):
        read_settings_file(tmp_path / "latin.toml")
    environ = {"REMEMBRANCER_CONFIG": str(tmp_path / "pipe.toml"), "REMEMBRANCER_HOME": "/tmp/a"}
    assert find_places(environ).home == str(locate(environ).directory), "nobody waits for the pipe"


def test_a_file_of_another_format_in_the_home_has_to_be_imported_and_toml_counts_more(tmp_path: Path) -> None:
    environ = {"REMEMBRANCER_HOME": str(tmp_path)}
    assert load_settings(environ) == Settings()
    for name in ("memory.config.json", "config.json", "config.md"):
        (tmp_path / name).write_text("{}")
        with pytest.raises(
            ConfigurationError, match=f"config --import {tmp_path / name}' to convert it to config.toml"
        ):
            load_configuration(environ)
    (tmp_path / "config.toml").write_text("embedders = 3\n")
    assert load_configuration(environ).settings == Settings(embedders=3)


def test_everything_that_is_wrong_is_said_at_once(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("embeders = 2\ncontent_limit_bytes = 0\n")
    with pytest.raises(ConfigurationError, match=r"embeders.*; .*content_limit_bytes.*; .*REMEMBRANCER_ENGINE"):
        load_settings({"REMEMBRANCER_HOME": str(tmp_path), "REMEMBRANCER_ENGINE": "x"})


@pytest.mark.parametrize("prefix", ["REMEMBRANCER_", "MEMORY_"])
def test_the_mode_of_a_server_means_one_of_chroma(prefix: str) -> None:
    local = load_settings({f"{prefix}DEPLOYMENT_MODE": "local-server"})
    assert (local.deployment_mode, local.chroma_url) == ("local-server", "http://127.0.0.1:8000")
    named = load_settings({f"{prefix}DEPLOYMENT_MODE": "local-server", "REMEMBRANCER_CHROMA_URL": "http://127.0.0.1:9"})
    assert named.chroma_url == "http://127.0.0.1:9"
    remote = load_configuration({f"{prefix}DEPLOYMENT_MODE": "remote", "MEMORY_REMOTE_URL": "https://vectors.example"})
    assert (remote.settings.chroma_url, remote.warnings) == ("https://vectors.example", ())
    both = {"REMEMBRANCER_CHROMA_URL": "https://own.example", "MEMORY_REMOTE_URL": "https://vectors.example"}
    assert load_settings({f"{prefix}DEPLOYMENT_MODE": "remote", **both}).chroma_url == "https://own.example"
    with pytest.raises(ConfigurationError, match=r"the mode 'remote' needs the address .* REMEMBRANCER_CHROMA_URL"):
        load_settings({f"{prefix}DEPLOYMENT_MODE": "remote"})


def test_keys_are_not_repeated_and_some_settings_stand_in_the_file_alone(tmp_path: Path) -> None:
    for name in ("voyage_key_from", "openai_key_from"):
        (problem,) = read(tmp_path, f'{name} = "sk-0123456789"').problems
        assert problem.endswith("expected text such as ${NAME}")
        assert "0123456789" not in problem
    path = "~/.codex/memories_extensions/remembrancer/{project}.md"
    assert read(tmp_path, f'markdown_index = "{path}"').settings.markdown_index == path
    [problem] = read_configuration({"REMEMBRANCER_MARKDOWN_INDEX": path}).problems
    assert "is only allowed in the configuration file" in problem
    assert read(tmp_path, "chunk_tokens = 101\nchunk_overlap = 50").problems == ()
    [problem] = read(tmp_path, 'markdown_index = "/srv/MEMORY.md"').problems
    assert problem.endswith("expected text such as MEMORY.md or /directory/{project}.md")


def test_a_session_is_told_where_its_configuration_differs_from_the_runtimes(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text('embedders = 3\nlog_level = "warn"\n')
    environment = {"REMEMBRANCER_CONFIG": str(file), "MEMORY_LOG_LEVEL": "error", "REMEMBRANCER_PROJECT": "/x"}
    messages = [notice.message for notice in setting_warnings(environment, Settings())]
    assert len(messages) == 2
    assert any(message.startswith(f"embedders in {file} has a different value") for message in messages)
    assert any(message.startswith("MEMORY_LOG_LEVEL has a different value") for message in messages)
    assert setting_warnings(environment, Settings(embedders=3, log_level="error")) == []
    file.write_text("embeders = 3\n")
    [notice] = setting_warnings({"REMEMBRANCER_CONFIG": str(file)}, Settings())
    assert "did you mean embedders?" in notice.message


# --- Settings: each has a default, a name and bounds; what is wrong is an error that says so.
OF_RELEASE_0_2_0 = cases("settings", "of_release_0_2_0").split()
SETTINGS = [field.name for field in msgspec.structs.fields(Settings)]


def test_each_setting_has_a_variable_also_one_that_became_a_constant_and_others_are_passed_over() -> None:
    environ = {f"{PREFIX}{name.upper()}": written(value) for name, value in msgspec.structs.asdict(Settings()).items()}
    environ |= {f"{PREFIX}{name}": "/anything" for name in NOT_SETTINGS - {"CONFIG"}}
    environ |= {"PATH": "/bin", "EMBEDDERS": "x"}
    assert load_settings(environ) == Settings()
    assert load_settings({"REMEMBRANCER_EMBEDDERS": "3"}).embedders == 3
    assert load_settings({"REMEMBRANCER_DATABASE_LIMIT_BYTES": "2000000"}).database_limit_bytes == 2_000_000
    for name in CONSTANTS:
        configuration = load_configuration({f"{PREFIX}{name.upper()}": "7"})
        assert configuration.settings == Settings()
        assert configuration.warnings == (
            f"{PREFIX}{name.upper()}: accepted for compatibility, without effect in this release",
        )
    (misspelt,) = load_configuration({f"{PREFIX}TOOLSETS": "memory, notes"}).warnings
    assert misspelt.startswith("REMEMBRANCER_TOOLSETS: there is no toolset 'notes': valid names are admin, code")
    for url in ("http://127.0.0.1:8000", "http://localhost", "http://localhost/", "http://[::1]:8000"):
        environ = {"REMEMBRANCER_CHROMA_URL": url, "REMEMBRANCER_CHROMA_CREDENTIAL_FILE": "/x"}
        assert load_settings(environ).chroma_credential_file == "/x"


def test_no_name_in_a_file_of_release_0_2_0_is_unknown(tmp_path: Path) -> None:
    every = "".join(f"{name} = 0\n" for name in OF_RELEASE_0_2_0)
    assert not [problem for problem in read(tmp_path, every).problems if "unknown" in problem]


NEAREST = cases("settings", "nearest")


@pytest.mark.parametrize("wrong", NEAREST)
def test_an_unknown_variable_is_a_warning_that_gives_the_nearest_known_one_if_any_is_near(wrong: str) -> None:
    configuration = load_configuration({PREFIX + wrong: "1"})
    assert configuration.settings == Settings()
    (warning,) = configuration.warnings
    assert PREFIX + wrong in warning
    assert (f"did you mean {PREFIX}{NEAREST[wrong]}?" in warning) == bool(NEAREST[wrong]) == ("did you" in warning)
    assert configuration.unknown == configuration.warnings, "a session of such an environment is told"


def test_a_value_that_is_not_allowed_is_an_error_that_names_the_setting() -> None:
    for name, value in cases("settings", "not_allowed"):
        with pytest.raises(ConfigurationError, match=f"{PREFIX}{name.upper()} has a value that is not allowed"):
            load_settings({f"{PREFIX}{name.upper()}": value})


def test_none_is_a_value_where_it_is_the_default_and_several_texts_are_separated_by_commas() -> None:
    assert load_settings({f"{PREFIX}DATABASE_LIMIT_BYTES": "None"}) == Settings()
    with pytest.raises(ConfigurationError, match=r"expected a whole number, got text"):
        load_settings({f"{PREFIX}DATABASE_LIMIT_BYTES": "no"})
    with pytest.raises(ConfigurationError, match="expected a number, got text"):
        load_settings({f"{PREFIX}IDLE_TIMEOUT_S": "none"})
    environ = {"REMEMBRANCER_NOTES_PATHS": "NOTES.md, docs/ ,", "REMEMBRANCER_NOTES_EXTRA_PATHS": "none"}
    assert load_settings(environ) == Settings(notes_paths=("NOTES.md", "docs/"))


@given(st.sampled_from(SETTINGS), st.text(st.characters(exclude_characters="\0"), max_size=12))
def test_no_value_of_any_variable_is_worse_than_a_configuration_error(name: str, value: str) -> None:
    try:
        settings = load_settings({f"{PREFIX}{name.upper()}": value})
    except ConfigurationError:
        return
    assert msgspec.json.decode(msgspec.json.encode(settings), type=Settings) == settings, "it reaches the processes"


@pytest.mark.parametrize("start", [["status"], ["mcp"], ["hook", "Stop"]])
def test_a_relative_home_is_refused_by_commands_sessions_and_hooks(
    start: list[str], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("REMEMBRANCER_HOME", "memory")
    monkeypatch.setattr(hook, "_read_input", lambda _: {"session_id": "s"})
    status = main(start)
    said = capfd.readouterr().err
    assert "REMEMBRANCER_HOME is 'memory'" in said
    assert f"such as {Path.cwd() / 'memory'}" in said
    assert status == {"status": exit_codes.CONFIGURATION, "mcp": exit_codes.USAGE, "hook": 0}[start[0]]
    assert not Path("memory").exists()


# --- The place of the home: the bridge and all others agree, whatever variables and files say.
@pytest.fixture(autouse=True)
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in [name for name in os.environ if name.startswith(("REMEMBRANCER_", "MEMORY_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.mark.parametrize("files", cases("homes", "files").values(), ids=str)
def test_the_bridge_looks_where_the_other_processes_are(
    scratch: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str]
) -> None:
    write(scratch / "given.toml", 'db_path = "given"\n')
    write(scratch / "given.md", "---\ndb_path: given\ndeployment_mode: embedded-memory\n---\n")
    for folder in ("data/remembrancer", "named", "seeds"):
        for name, text in files.items():
            write(scratch / folder / name, text)
    around = dict(os.environ)
    for environ in cases("homes", "environments"):
        whole = around | environ
        monkeypatch.chdir(scratch)
        places, home = find_places(whole), locate(whole)
        paths = RuntimePaths(home.directory)
        assert (places.home, places.on_disk) == (str(home.directory), str(home.on_disk)), environ
        assert places.config == (None if home.file is None else str(home.file)), environ
        for name in ("gateway_socket", "start_lock", "runtime_lock", "logs"):
            assert getattr(places, name) == str(getattr(paths, name)), environ

        told = {name: value for name, value in whole.items() if name not in {*environ, "XDG_DATA_HOME"}}
        told |= {"REMEMBRANCER_HOME": places.on_disk}
        told |= {name: value for name, value in environ.items() if name.endswith("_MODE")}
        if places.config is not None:
            told["REMEMBRANCER_CONFIG"] = places.config
        monkeypatch.chdir("/")
        runtime = locate(told)
        assert (runtime.directory, runtime.on_disk) == (home.directory, home.on_disk), environ
        assert runtime.file == home.file, environ


def test_the_home_is_of_our_variable_or_the_seeds_or_a_file_or_else_the_platforms(scratch: Path) -> None:
    file = str(write(scratch / "c" / "c.toml", 'db_path = "from-file"\n'))
    everything = {"REMEMBRANCER_HOME": "/ours", "MEMORY_DB_PATH": "/theirs", "REMEMBRANCER_CONFIG": file}
    for variable, home in (("REMEMBRANCER_HOME", "/ours"), ("MEMORY_DB_PATH", "/theirs")):
        assert locate(everything)[1:3] == (Path(home), variable)
        del everything[variable]
    assert locate(everything)[1:3] == (scratch / "c" / "from-file", f"db_path in {file}")
    assert locate({"REMEMBRANCER_HOME": "", "MEMORY_DB_PATH": "/theirs"}).directory == Path("/theirs")
    assert (locate({}).named_by, locate({}).directory.name) == ("default", "remembrancer")
    assert locate({"XDG_DATA_HOME": str(scratch / "data")}).directory == scratch / "data" / "remembrancer"
    (scratch / "link").symlink_to(scratch)
    for variable in ("REMEMBRANCER_HOME", "FLOOD_MEMORY_DIR", "MEMORY_MCP_DATA_DIR"):
        assert locate({variable: str(scratch / "link")}).directory == scratch.resolve()
        assert locate({variable: str(scratch)} | {"REMEMBRANCER_HOME": "/ours"}).named_by == "REMEMBRANCER_HOME"


def test_a_memory_in_memory_is_the_same_one_for_everybody_who_names_the_same_home() -> None:
    one = locate({"REMEMBRANCER_HOME": "/tmp/../tmp/a", "MEMORY_DEPLOYMENT_MODE": "embedded-memory"}).directory
    other = locate({"MEMORY_DB_PATH": "/tmp/a", "REMEMBRANCER_DEPLOYMENT_MODE": "embedded-memory"}).directory
    assert one == other == memory_directory(Path("/tmp/a"))
    assert one != locate({"REMEMBRANCER_HOME": "/tmp/b", "MEMORY_DEPLOYMENT_MODE": "embedded-memory"}).directory
    assert str(os.getuid()) in one.name
    assert RuntimePaths(one).run == one / "run", "its sockets fit into it"


def test_a_socket_that_somebody_else_may_have_put_there_is_not_trusted(scratch: Path) -> None:
    places = find_places({"REMEMBRANCER_HOME": str(scratch / "h"), "MEMORY_DEPLOYMENT_MODE": "embedded-memory"})
    assert not places.are_private(), "it is not there"
    home = Path(places.home)
    home.mkdir(mode=0o700)
    assert places.are_private()
    home.chmod(0o755)
    assert not places.are_private()
    home.rmdir()
    home.symlink_to(scratch)
    assert not places.are_private()
    home.unlink()
    assert find_places({"REMEMBRANCER_HOME": "/tmp/h"}).are_private()
