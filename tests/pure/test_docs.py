"""The documents say what the code does: settings and commands."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from remembrancer.config.settings import NOT_SETTINGS, PREFIX, Settings
from remembrancer.launcher import COMMANDS

ROOT = Path(__file__).parents[2]


def test_every_setting_is_documented_with_its_default() -> None:
    documented = dict(re.findall(rf"^\| `{PREFIX}(\w+)` \| (\S+) \|", settings_page(), flags=re.MULTILINE))
    defaults = {field.name.upper(): str(field.default) for field in msgspec.structs.fields(Settings)}
    assert documented == defaults


def test_every_variable_of_a_session_is_documented() -> None:
    for name in NOT_SETTINGS:
        assert f"`{PREFIX}{name}`" in settings_page()


def test_the_readme_lists_every_command() -> None:
    readme = (ROOT / "README.md").read_text()
    for command in COMMANDS:
        assert f"`remembrancer {command}" in readme, command


def test_the_changelog_and_the_readme_name_no_path_of_a_developer() -> None:
    for page in [ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").glob("*.md")]:
        assert not re.search(r"/(root|work|home/\w+)/", page.read_text()), page


def settings_page() -> str:
    return (ROOT / "docs" / "settings.md").read_text()
