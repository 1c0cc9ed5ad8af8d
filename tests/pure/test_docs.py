"""The documents say what the code does: settings and commands."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import msgspec

from remembrancer.commands.config import written
from remembrancer.config.home import CONFIG_FILES, read_settings_file
from remembrancer.config.reading import (
    DB_PATH,
    DIMENSIONS,
    FOREIGN_PREFIX,
    FOREIGN_VARIABLES,
    LATER_MODES,
    READ_ELSEWHERE,
    SECTION_KEYS,
    UNUSED_KEYS,
    UNUSED_VARIABLES,
)
from remembrancer.config.settings import NOT_SETTINGS, PREFIX, Settings
from remembrancer.launcher import COMMANDS
from remembrancer.memory.ranking import QUESTION_RECENCY

ROOT = Path(__file__).parents[2]


def test_every_setting_is_documented_with_its_default() -> None:
    documented = dict(re.findall(rf"^\| `{PREFIX}(\w+)` \| (\S+) \|", settings_page(), flags=re.MULTILINE))
    defaults = {field.name.upper(): written(field.default) for field in msgspec.structs.fields(Settings)}
    assert documented == defaults


def test_every_variable_of_a_session_is_documented() -> None:
    for name in NOT_SETTINGS:
        assert f"`{PREFIX}{name}`" in settings_page()


def test_every_name_of_another_memory_server_is_documented() -> None:
    section = settings_page().partition("## Names of other memory servers")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`.*?) \|", section, flags=re.MULTILINE)
    documented = {name for row in rows for name in re.findall(r"`([\w.]+)`", row)}
    variables = {*FOREIGN_VARIABLES, *UNUSED_VARIABLES, *READ_ELSEWHERE}
    keys = {*FOREIGN_VARIABLES.values(), *SECTION_KEYS, "workspace", DB_PATH, DIMENSIONS, *UNUSED_KEYS}
    assert documented == {FOREIGN_PREFIX + name for name in variables} | keys


def test_the_example_of_each_form_of_the_configuration_file_says_the_same(tmp_path: Path) -> None:
    examples = dict(re.findall(r"^```(toml|json|markdown)\n(.*?)^```", settings_page(), flags=re.MULTILINE | re.DOTALL))
    for name, form in zip(CONFIG_FILES, ("toml", "markdown", "json"), strict=True):
        assert f"`{name}`" in settings_page()
        (tmp_path / name).write_text(examples[form])
        assert read_settings_file(tmp_path / name) == {"embedders": 2, "log_level": "warning"}


def test_every_deployment_mode_is_documented() -> None:
    section = settings_page().partition("## Deployment modes")[2]
    rows = re.findall(r"^\| (`.*?) \|", section, flags=re.MULTILINE)
    modes = {field.name: field.type for field in msgspec.structs.fields(Settings)}["deployment_mode"]
    assert {name for row in rows for name in re.findall(r"`([\w-]+)`", row)} == {*get_args(modes), *LATER_MODES}


def test_the_readme_lists_every_command() -> None:
    readme = (ROOT / "README.md").read_text()
    for command in COMMANDS:
        assert f"`remembrancer {command}" in readme, command


def test_every_warning_of_an_answer_is_documented() -> None:
    sources = [path.read_text() for path in (ROOT / "remembrancer").rglob("*.py")]
    codes = {code for source in sources for code in re.findall(r'Notice\(\s*"(\w+)"', source)}
    page = (ROOT / "docs" / "design-differences.md").read_text()
    assert "queued" in codes
    assert {code for code in codes if f"`{code}`" not in page} == set()


def test_every_page_says_the_same_of_what_a_question_leaves_of_recency() -> None:
    assert QUESTION_RECENCY == 0.1
    for name in ("settings", "design-differences", "retrieval"):
        text = " ".join((ROOT / "docs" / f"{name}.md").read_text().split())
        assert re.search(r"question (of a recall )?leaves a tenth of", text), name


def test_the_figures_of_retrieval_are_those_of_the_benchmarks() -> None:
    section = (ROOT / "docs" / "benchmarks.md").read_text().partition("## How well it finds")[2].partition("\n## ")[0]
    (any_1, any_5, _, all_5, ndcg_10), locomo = figures("**Remembrancer**", section)
    _, (*_, fusion) = figures("reciprocal rank fusion of the two", section)
    page = (ROOT / "docs" / "retrieval.md").read_text()
    (final,) = figures("all of it, through the tools, with the model as it is now", page)
    assert final == [*locomo, any_1, any_5, all_5, ndcg_10]
    assert f"*LoCoMo* any@10 {fusion} (in the benchmark" in page


def figures(name: str, page: str) -> list[list[float]]:
    """The numbers in each row of that name."""
    rows = re.findall(rf"^\| {re.escape(name)} (.*)$", page, flags=re.MULTILINE)
    return [[float(number) for number in re.findall(r"\d+(?:\.\d+)?", row)] for row in rows]


def test_the_changelog_and_the_readme_name_no_path_of_a_developer() -> None:
    for page in [ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").glob("*.md")]:
        assert not re.search(r"/(root|work|home/\w+)/", page.read_text()), page


def settings_page() -> str:
    return (ROOT / "docs" / "settings.md").read_text()
