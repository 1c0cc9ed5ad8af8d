"""Settings: each has a default, a name and bounds; what is wrong is an error that says so."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from remembrancer.commands.config import written
from remembrancer.config.home import find_home
from remembrancer.config.reading import load_configuration, load_settings
from remembrancer.config.settings import CONSTANTS, NOT_SETTINGS, PREFIX, Settings, threads_per_worker, unknown_name
from remembrancer.protocol.errors import ConfigurationError
from tests.cases import cases

NAMES = [field.name for field in msgspec.structs.fields(Settings)]


def test_an_empty_environment_gives_the_defaults() -> None:
    assert load_settings({}) == Settings()


def test_a_variable_of_each_setting_is_read_and_others_are_passed_over() -> None:
    environ = {f"{PREFIX}{name.upper()}": written(value) for name, value in msgspec.structs.asdict(Settings()).items()}
    environ |= {f"{PREFIX}{name}": "anything" for name in NOT_SETTINGS - {"CONFIG"}}
    environ |= {"PATH": "/bin", "EMBEDDERS": "x"}
    assert load_settings(environ) == Settings()
    assert load_settings({"REMEMBRANCER_EMBEDDERS": "3"}).embedders == 3
    assert load_settings({"REMEMBRANCER_DATABASE_LIMIT_BYTES": "2000000"}).database_limit_bytes == 2_000_000


@pytest.mark.parametrize(
    ("wrong", "nearest"),
    [
        ("REMEMBRANCER_EMBEDER", "REMEMBRANCER_EMBEDDERS"),
        ("REMEMBRANCER_LOGLEVEL", "REMEMBRANCER_LOG_LEVEL"),
        ("REMEMBRANCER_MODLE", "REMEMBRANCER_MODEL"),
        ("REMEMBRANCER_WRITE_BUDGET", "REMEMBRANCER_WRITE_BUDGET_S"),
    ],
)
def test_an_unknown_variable_is_a_warning_that_gives_the_nearest_known_one(wrong: str, nearest: str) -> None:
    configuration = load_configuration({wrong: "1"})
    assert configuration.settings == Settings()
    (warning,) = configuration.warnings
    assert re.search(rf"{wrong}.*did you mean {nearest}\?", warning)
    assert configuration.unknown == configuration.warnings, "a session of such an environment is told"


def test_a_name_that_is_near_to_none_is_answered_with_all_of_them() -> None:
    assert unknown_name("zzzz", ["alpha", "beta"]) == "unknown name zzzz: known are alpha, beta"
    assert "'remembrancer config' shows all" in unknown_name("zzzz", [f"name_{each}" for each in range(90)])


@pytest.mark.parametrize(("name", "value"), cases("settings", "not_allowed"))
def test_a_value_that_is_not_allowed_is_an_error_that_names_the_setting(name: str, value: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{PREFIX}{name.upper()} has a value that is not allowed"):
        load_settings({f"{PREFIX}{name.upper()}": value})


@pytest.mark.parametrize("name", sorted(CONSTANTS))
def test_a_setting_that_became_a_constant_is_accepted_without_effect_and_said(name: str) -> None:
    configuration = load_configuration({f"{PREFIX}{name.upper()}": "7"})
    assert configuration.settings == Settings()
    assert configuration.warnings == (
        f"{PREFIX}{name.upper()}: accepted for compatibility, without effect in this release",
    )


@pytest.mark.parametrize("value", ["none", "None"])
def test_the_default_as_the_page_of_settings_has_it_is_a_value(value: str) -> None:
    assert load_settings({f"{PREFIX}DATABASE_LIMIT_BYTES": value}) == Settings()
    with pytest.raises(ConfigurationError, match="it must be a whole number of at least 1048576 or none"):
        load_settings({f"{PREFIX}DATABASE_LIMIT_BYTES": "no"})
    with pytest.raises(ConfigurationError, match="it must be a number above 0 and at most 86400"):
        load_settings({f"{PREFIX}IDLE_TIMEOUT_S": value})


@given(st.sampled_from(NAMES), st.text(st.characters(exclude_characters="\0"), max_size=12))
def test_no_value_of_any_variable_is_worse_than_a_configuration_error(name: str, value: str) -> None:
    try:
        settings = load_settings({f"{PREFIX}{name.upper()}": value})
    except ConfigurationError:
        return
    assert msgspec.json.decode(msgspec.json.encode(settings), type=Settings) == settings, "it reaches the processes"


@given(st.integers(0, 256), st.integers(0, 64))
def test_a_worker_always_has_a_thread(wanted: int, workers: int) -> None:
    threads = threads_per_worker(Settings(embedder_threads=wanted), workers)
    assert threads == wanted if wanted else threads >= 1


def test_the_home_is_the_named_directory_or_else_the_platforms(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert find_home({"REMEMBRANCER_HOME": str(tmp_path / "link")}) == (tmp_path / "real").resolve()
    assert find_home({"REMEMBRANCER_HOME": ""}) == find_home({})
    assert find_home({}).name == "remembrancer"


def test_a_setting_of_several_texts_is_separated_by_commas() -> None:
    environ = {"REMEMBRANCER_NOTES_PATHS": "NOTES.md, docs/ ,", "REMEMBRANCER_NOTES_EXTRA_PATHS": "none"}
    assert load_settings(environ) == Settings(notes_paths=("NOTES.md", "docs/"))
