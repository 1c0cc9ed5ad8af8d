"""Configuration files: three forms, the names of other servers, what counts more, what is refused, no secret shown."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from remembrancer.actors.gateway.hello import setting_warnings
from remembrancer.commands.config import as_lines, as_object
from remembrancer.commands.report import Rows
from remembrancer.config.home import MAX_FILE_BYTES, Home, read_settings_file
from remembrancer.config.reading import (
    HIDDEN,
    IGNORED_KEYS,
    LOCAL_MODEL,
    SECTION_KEYS,
    Configuration,
    exposed,
    is_secret,
    load_configuration,
    load_settings,
    read_configuration,
    shown,
)
from remembrancer.config.settings import Settings, model_choices
from remembrancer.protocol.errors import ConfigurationError
from remembrancer.protocol.work import ModelChoice
from tests.cases import cases

FIRST_SEED, SECOND_SEED = (
    (Path(__file__).parents[1] / "cases" / name).read_text()
    for name in ("surrealdb-memory.local.md", "memory.config.json")
)
MINILM = Settings(engine="onnx", model="all-MiniLM-L6-v2")
BGE = Settings(engine="sentence-transformers", model="BAAI/bge-m3")
ALIKE = {
    "c.toml": 'embedders = 3\nidle_timeout_s = 60\nlog_level = "warn"\n',
    "c.json": '{"embedders": 3, "idle_timeout_s": 60, "log_level": "warn"}',
    "c.md": "---\nembedders: 3\nidle_timeout_s: 60\nlog_level: warn\n---\n# Ours\n",
    "C.MD": "\ufeff---\r\nembedders: 3\r\nidle_timeout_s: 60\r\nlog_level: warn\r\n---\r\n",
}


def read(tmp_path: Path, name: str, text: str, **environ: str) -> Configuration:
    """The configuration that a file makes, with these variables."""
    file = tmp_path / name
    file.write_text(text, newline="")
    file.chmod(0o600)
    return read_configuration(environ, (file,))


@pytest.mark.parametrize(("name", "text"), ALIKE.items())
def test_each_form_says_the_same(tmp_path: Path, name: str, text: str) -> None:
    read_in = read(tmp_path, name, text)
    assert read_in.problems == read_in.warnings == ()
    assert read_in.settings == Settings(embedders=3, idle_timeout_s=60.0, log_level="warning")
    assert str(read_in.origins["log_level"]) == f"log_level in {tmp_path / name}"


@pytest.mark.parametrize(("name", "text"), [("c.toml", ""), ("c.json", "{}"), ("c.md", "---\n---\n")])
def test_a_file_may_say_nothing(tmp_path: Path, name: str, text: str) -> None:
    assert read(tmp_path, name, text) == Configuration(Settings())


def test_a_file_with_yaml_in_front_is_read_as_it_stands(tmp_path: Path) -> None:
    read_in = read(tmp_path, "surrealdb-memory.local.md", FIRST_SEED)
    assert read_in.problems == ()
    assert read_in.settings == Settings(max_memories_per_session=100, model="all-MiniLM-L6-v2")
    limits = {"max_memories_per_session", "consolidation_on_shutdown"}
    assert set(read_in.origins) == {"deployment_mode", "model", "log_level", *limits}
    assert [unused.origin.name for unused in read_in.unused] == [
        *("namespace", "database"),
        *("remote_url", "remote_user", "remote_pass"),
    ]
    [warning] = read_in.warnings
    assert "without effect" in warning


def test_the_variables_of_other_servers_count_or_are_said_not_to() -> None:
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
    assert read_configuration({"MEMORY_MCP_DATA_DIR": "/data"}).warnings == ()


def test_what_has_no_effect_stops_no_runtime_whatever_its_value(tmp_path: Path) -> None:
    text = 'namespace = "other"\ndatabase = "theirs"\nremote_url = 50\n'
    read_in = read(tmp_path, "c.toml", text)
    assert (read_in.problems, read_in.settings) == ((), Settings())
    [warning] = read_in.warnings
    assert "namespace, database, remote_url" in warning
    assert "without effect in this release" in warning


def test_a_file_of_a_server_that_indexes_sources_is_read_as_it_stands(tmp_path: Path) -> None:
    read_in = read(tmp_path, "memory.config.json", SECOND_SEED)
    assert read_in.problems == ()
    assert [each.origin.name for each in read_in.unused] == [
        "search.hybrid.vectorWeight",
        "search.hybrid.keywordWeight",
    ]
    assert read_in.settings == Settings(
        search_min_score=0.3,
        workspace="/home/user/projects/my-app",
        transcripts_path="~/.claude/projects/*/sessions/",
        index_file="memory.sqlite",
        engine="voyage",
        model="voyage-3-large",
        fallback_engine="openai",
    )
    assert str(read_in.origins["chunk_overlap"]) == f"chunking.overlap in {tmp_path / 'memory.config.json'}"


OTHER_VALUES = cases("config_files", "names_in_sections")


def test_every_name_in_a_section_is_tried() -> None:
    assert {name for name, *_ in OTHER_VALUES} == SECTION_KEYS - {"embedding_model", LOCAL_MODEL} - IGNORED_KEYS


@pytest.mark.parametrize(("name", "value", "setting", "meant"), OTHER_VALUES)
def test_a_name_in_a_section_is_one_of_our_settings(
    tmp_path: Path, name: str, value: object, setting: str, meant: object
) -> None:
    read_in = read(tmp_path, "c.json", json.dumps(section(name, value)))
    assert (read_in.problems, read_in.warnings) == ((), ())
    assert read_in.settings == msgspec.structs.replace(
        Settings(), **{setting: tuple(meant) if isinstance(meant, list) else meant}
    )
    assert str(read_in.origins[setting]) == f"{name} in {tmp_path / 'c.json'}"


def section(name: str, value: object) -> dict[str, Any]:
    """A name with dots as sections in sections."""
    first, _, rest = name.partition(".")
    return {first: section(rest, value) if rest else value}


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        *cases("config_files", "wrong_sections"),
        ("embedding.provider", None, "it must be one of voyage, openai, local"),
    ],
)
def test_what_is_wrong_in_a_section_is_said_with_its_name(
    tmp_path: Path, name: str, value: object, message: str
) -> None:
    read_in = read(tmp_path, "c.json", json.dumps(section(name, value)))
    [problem] = read_in.problems
    assert name in problem
    assert re.search(message, problem)
    assert read_in.settings == Settings()


@pytest.mark.parametrize(
    ("embedding", "meant"),
    [
        ({"provider": "local"}, Settings(engine="onnx")),
        ({"provider": "local", "model": "voyage-3-large", "local": {"model": "all-MiniLM-L6-v2"}}, MINILM),
        ({"provider": "local", "local": {"model": "BAAI/bge-m3"}}, BGE),
        (
            {"provider": "voyage", "fallback": "local", "local": {"model": "BAAI/bge-m3"}},
            Settings(engine="voyage", fallback_engine="sentence-transformers", fallback_model="BAAI/bge-m3"),
        ),
        ({"provider": "openai", "fallback": None, "local": {"model": "all-MiniLM-L6-v2"}}, Settings(engine="openai")),
    ],
)
def test_which_engine_is_local_follows_from_its_model(tmp_path: Path, embedding: Any, meant: Settings) -> None:
    read_in = read(tmp_path, "c.json", json.dumps({"embedding": {**embedding, "batch": {"enabled": True}}}))
    assert (read_in.problems, read_in.settings) == ((), meant)


def test_our_own_names_count_more_than_those_in_sections(tmp_path: Path) -> None:
    text = json.dumps(
        {
            "embedding": {"provider": "local"},
            "engine": "openai",
            "search": {"maxResults": 3},
            "search_max_results": 7,
            "sync": {"watchEnabled": False},
            "watch": True,
        }
    )
    found = read(tmp_path, "c.json", text)
    assert found.settings == Settings(engine="openai", search_max_results=3)
    assert [unused.origin.name for unused in found.unused] == ["search_max_results"], "which is a constant"


def test_a_key_in_the_place_of_its_variable_is_refused_and_never_shown(tmp_path: Path) -> None:
    read_in = read(tmp_path, "c.json", json.dumps({"secrets": {"VOYAGE_API_KEY": "hunter2"}}))
    [problem] = read_in.problems
    assert "secrets.VOYAGE_API_KEY" in problem
    assert "${" in problem
    assert "hunter2" not in str(read_in)


@pytest.mark.parametrize("count", range(5))
def test_what_is_said_nearer_to_the_session_counts(tmp_path: Path, count: int) -> None:
    """Ours before the others', the environment before the file, the file before the default."""
    said = [
        ("environ", "REMEMBRANCER_LOG_LEVEL", "error", "REMEMBRANCER_LOG_LEVEL"),
        ("environ", "MEMORY_LOG_LEVEL", "warn", "MEMORY_LOG_LEVEL"),
        ("file", "model", "ours", "model in "),
        ("file", "embedding_model", "theirs", "embedding_model in "),
    ]
    left = said[count:]
    text = "".join(f'{name} = "{value}"\n' for where, name, value, _ in left if where == "file")
    if any(where == "environ" for where, *_ in left):
        text += 'log_level = "debug"\n'
    environ = {name: value for where, name, value, _ in left if where == "environ"}
    read_in = read(tmp_path, "c.toml", text, **environ)
    assert read_in.problems == ()
    if count < 2:
        assert read_in.settings.log_level == ("error", "warning")[count]
        assert str(read_in.origins["log_level"]) == said[count][3]
    elif count < 4:
        assert read_in.settings.model == said[count][2]
        assert str(read_in.origins["model"]).startswith(said[count][3])
    else:
        assert read_in == Configuration(Settings())


def test_a_variable_that_is_empty_says_nothing_when_it_is_of_another_server() -> None:
    assert read_configuration({"MEMORY_LOG_LEVEL": "", "MEMORY_DEPLOYMENT_MODE": ""}) == Configuration(Settings())


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        *cases("config_files", "wrong_files"),
        ("c.toml", "#" * (MAX_FILE_BYTES + 1), "c.toml: it has more than 1048576 bytes"),
    ],
)
def test_what_is_wrong_with_a_file_is_said_with_its_name(tmp_path: Path, name: str, text: str, message: str) -> None:
    read_in = read(tmp_path, name, text)
    [problem] = read_in.problems
    assert re.search(message, problem)
    assert name in problem or "_weight" in problem
    assert "\n" not in problem
    assert read_in.settings == Settings()
    with pytest.raises(ConfigurationError, match=message):
        load_settings({"REMEMBRANCER_CONFIG": str(tmp_path / name), "REMEMBRANCER_HOME": str(tmp_path)})


def test_an_example_in_the_text_is_no_setting(tmp_path: Path) -> None:
    text = "---\nembedders: 2\n---\n```yaml\nembedders: 9\nother: 1\n```\n"
    assert read(tmp_path, "c.md", text) == read(tmp_path, "c.md", "---\nembedders: 2\n---\n")


def test_a_file_that_is_no_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.toml")
    for name, why in (("pipe.toml", "it is not a file"), ("missing.toml", "there is no such file")):
        with pytest.raises(ConfigurationError, match=f"{name}: {why}"):
            load_settings({"REMEMBRANCER_CONFIG": str(tmp_path / name), "REMEMBRANCER_HOME": str(tmp_path)})
    (tmp_path / "latin.toml").write_bytes(b'model = "\xe9"')
    with pytest.raises(ValueError, match="it is not UTF-8"):
        read_settings_file(tmp_path / "latin.toml")


def test_the_file_in_the_home_is_found_and_two_of_them_are_one_too_many(tmp_path: Path) -> None:
    environ = {"REMEMBRANCER_HOME": str(tmp_path)}
    assert load_settings(environ) == Settings()
    for name in ("config.json", "config.md", "config.toml"):
        (tmp_path / name).write_text(ALIKE[f"c{Path(name).suffix}"])
        assert load_settings(environ).embedders == 3
        (tmp_path / name).rename(tmp_path / f"other-{name}")
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "config.md").write_text("---\n---\n")
    with pytest.raises(ConfigurationError, match=r"config\.md and config\.json: keep one"):
        load_settings(environ)
    assert load_settings({**environ, "REMEMBRANCER_CONFIG": str(tmp_path / "config.json")}) == Settings()


def test_everything_that_is_wrong_is_said_at_once(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("embeders = 2\ncontent_limit_bytes = 0\n")
    with pytest.raises(ConfigurationError, match=r"embeders.*; .*content_limit_bytes.*; .*REMEMBRANCER_ENGINE"):
        load_settings({"REMEMBRANCER_HOME": str(tmp_path), "REMEMBRANCER_ENGINE": "x"})


@pytest.mark.parametrize("prefix", ["REMEMBRANCER_", "MEMORY_"])
def test_the_mode_of_a_server_means_one_of_chroma(prefix: str, tmp_path: Path) -> None:
    local = load_settings({f"{prefix}DEPLOYMENT_MODE": "local-server"})
    assert (local.deployment_mode, local.chroma_url) == ("local-server", "http://127.0.0.1:8000")
    named = load_settings({f"{prefix}DEPLOYMENT_MODE": "local-server", "REMEMBRANCER_CHROMA_URL": "http://127.0.0.1:9"})
    assert named.chroma_url == "http://127.0.0.1:9"
    remote = load_configuration({f"{prefix}DEPLOYMENT_MODE": "remote", "MEMORY_REMOTE_URL": "https://vectors.example"})
    assert (remote.settings.chroma_url, remote.unused, remote.warnings) == ("https://vectors.example", (), ())
    with pytest.raises(ConfigurationError, match=r"the mode remote needs the address .* REMEMBRANCER_CHROMA_URL"):
        load_settings({f"{prefix}DEPLOYMENT_MODE": "remote"})
    file = tmp_path / "config.md"
    file.write_text("---\ndeployment_mode: remote\n---\n```yaml\nremote_url: https://vectors.example\n```\n")
    assert read_configuration({}, (file,)).settings.chroma_url == "https://vectors.example"


@pytest.mark.parametrize("url", ["http://127.0.0.1:8000", "http://localhost", "http://localhost/", "http://[::1]:8000"])
def test_the_token_for_a_server_of_this_machine_may_go_in_the_clear(url: str) -> None:
    environ = {"REMEMBRANCER_CHROMA_URL": url, "REMEMBRANCER_CHROMA_CREDENTIAL_FILE": "/x"}
    assert load_settings(environ).chroma_credential_file == "/x"


def test_a_variable_with_the_prefix_that_others_use_is_none_of_our_business_unless_it_is_nearly_ours() -> None:
    assert load_configuration({"MEMORY_FILE_PATH": "/x", "MEMORY_LIMIT": "1", "MEMORY_": ""}).warnings == ()
    [warning] = load_configuration({"MEMORY_LOGLEVEL": "info"}).warnings
    assert warning == "MEMORY_LOGLEVEL is not known: did you mean MEMORY_LOG_LEVEL?"


def test_a_secret_that_others_can_read_is_warned_of(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text('remote_pass = "hunter2"\n')
    for mode in (0o600, 0o400, 0o644, 0o640):
        file.chmod(mode)
        found = [each for each in read_configuration({}, (file,)).warnings if "chmod 600" in each]
        assert len(found) == (mode & 0o077 != 0)
    file.write_text('remote_pass = ""\nremote_url = "ws://localhost"\n')
    assert not any("chmod" in each for each in read_configuration({}, (file,)).warnings)
    assert exposed(0o100644, []) is None


@pytest.mark.parametrize(
    ("name", "value", "seen"),
    [
        ("remote_pass", "x", HIDDEN),
        ("API_TOKEN", 3, HIDDEN),
        ("client_secret", "", HIDDEN),
        ("some_key", None, HIDDEN),
        ("remote_url", "ws://localhost:8000/rpc", "ws://localhost:8000/rpc"),
        ("remote_url", "ws://root:x@localhost:8000", "ws://***"),
        ("remote_url", "https://host/?token=x", "https://***"),
        ("remote_url", "root:x@localhost", HIDDEN),
        ("model", "https://me:x@host/model", "https://***"),
        ("model", "name@revision", "name@revision"),
        ("embedders", 2, "2"),
    ],
)
def test_what_is_secret_is_hidden(name: str, value: object, seen: str) -> None:
    assert shown(name, value) == seen


secrets = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Zs"]), min_size=1, max_size=12).map(
    lambda text: f"Zq{text}9"
)


@given(secret=secrets, quoted=st.booleans(), suffix=st.sampled_from([".toml", ".json", ".md"]))
def test_no_secret_is_ever_printed_whether_the_file_can_be_read_or_not(
    tmp_path: Path, secret: str, quoted: bool, suffix: str
) -> None:
    value = json.dumps(secret) if quoted else secret
    text = {
        ".toml": f"remote_pass = {value}\nremote_url = {json.dumps(f'ws://root:{secret}@host')}\n",
        ".json": f'{{"remote_pass": {value}, "secrets": {{"A": {json.dumps(secret)}}}}}',
        ".md": f"---\nembedders: 2\n---\n```yaml\nremote_user: x\nremote_pass: {value}\n```\n",
    }[suffix]
    file = tmp_path / f"c{suffix}"
    file.write_text(text)
    found = read_configuration({"MEMORY_REMOTE_URL": f"https://host/?x={secret}"}, (file,))
    home = Home(tmp_path, tmp_path, "default", (file,))
    lines = [str(each.rows) if isinstance(each, Rows) else str(each) for each in as_lines(home, found)]
    printed = "\n".join(lines) + json.dumps(as_object(home, found), ensure_ascii=False)
    assert secret not in "\n".join([printed, *found.problems, repr(found)])


@pytest.mark.parametrize("value", ["*Zqhunter9", "!Zqhunter9 x", "&Zqhunter9 &Zqhunter9", "%Zqhunter9", "{Zqhunter9"])
def test_what_is_wrong_with_yaml_is_said_without_quoting_it(tmp_path: Path, value: str) -> None:
    [problem] = read(tmp_path, "c.md", f"---\nremote_pass: {value}\n---\n").problems
    assert "not YAML" in problem
    assert "hunter" not in problem


def test_no_setting_of_ours_holds_a_secret_only_the_name_of_its_variable() -> None:
    fields = msgspec.structs.fields(Settings)
    secret = {field.name for field in fields if is_secret(field.name)}
    assert secret == {"voyage_key_from", "openai_key_from"}
    for name in secret:
        assert shown(name, "${MY_KEY}") == "${MY_KEY}", "which names a variable"
        assert shown(name, "sk-0123456789") == "***"


@pytest.mark.parametrize("name", ["voyage_key_from", "openai_key_from"])
def test_a_key_in_place_of_the_name_of_its_variable_is_refused_and_not_repeated(tmp_path: Path, name: str) -> None:
    (problem,) = read(tmp_path, "c.toml", f'{name} = "sk-0123456789"').problems
    assert "it must be the name of a variable, as ${OPENAI_API_KEY}" in problem
    assert "0123456789" not in problem


def test_a_session_is_told_where_its_configuration_differs_from_the_runtimes(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text('embedders = 3\nlog_level = "warn"\n')
    environment = {"REMEMBRANCER_CONFIG": str(file), "MEMORY_LOG_LEVEL": "error", "REMEMBRANCER_PROJECT": "/x"}
    messages = [notice.message for notice in setting_warnings(environment, Settings())]
    assert len(messages) == 2
    assert any(message.startswith(f"embedders in {file} differs") for message in messages)
    assert any(message.startswith("MEMORY_LOG_LEVEL differs") for message in messages)
    assert setting_warnings(environment, Settings(embedders=3, log_level="error")) == []
    file.write_text("embeders = 3\n")
    [notice] = setting_warnings({"REMEMBRANCER_CONFIG": str(file)}, Settings())
    assert "did you mean embedders?" in notice.message


def test_a_file_of_memories_outside_of_the_tree_is_named_by_the_file_of_settings_alone(tmp_path: Path) -> None:
    path = "~/.codex/memories_extensions/remembrancer/{project}.md"
    assert read(tmp_path, "c.toml", f'markdown_index = "{path}"').settings.markdown_index == path
    [problem] = read_configuration({"REMEMBRANCER_MARKDOWN_INDEX": path}).problems
    assert "must stand in the configuration file" in problem
    [problem] = read(tmp_path, "c.toml", 'markdown_index = "/srv/MEMORY.md"').problems
    assert "an absolute one with {project}" in problem
