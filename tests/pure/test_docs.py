"""The documents say what the code does: settings and commands."""

from __future__ import annotations

import contextlib
import json
import re
from pathlib import Path

import msgspec
import pytest

from remembrancer.command_line import COMMANDS, main
from remembrancer.commands.config import written
from remembrancer.config.home import read_settings_file
from remembrancer.config.named_home import CONFIG_FILE, CONFIG_VARIABLES, HOME_VARIABLES
from remembrancer.config.other_formats import LOCAL_MODEL, NAMES, PROVIDERS
from remembrancer.config.reading import DB_PATH, FOREIGN_VARIABLES, REMOTE_URL, UNUSED_VARIABLE
from remembrancer.config.settings import PREFIX, SETTABLE, Settings
from remembrancer.memory.features import NAMES as FEATURE_NAMES
from remembrancer.memory.ranking import fitted_for
from remembrancer.toolsets.tools import load_tools

ROOT = Path(__file__).parents[2]
GROUPS = ("token", "model", "share", "backup", "admin")
CODE = ("remembrancer", "bench", "examples", "tests", "release")


def test_every_setting_is_documented_with_its_default() -> None:
    documented = dict(re.findall(rf"^\| `{PREFIX}(\w+)` \| (\S+) \|", settings_page(), flags=re.MULTILINE))
    fields = msgspec.structs.fields(Settings)
    defaults = {field.name.upper(): written(field.default) for field in fields if field.name in SETTABLE}
    assert documented == defaults


def test_every_name_of_another_memory_server_is_documented() -> None:
    section = settings_page().partition("## Names of other memory servers")[2].partition("\n## ")[0]
    rows = re.findall(r"^- (`.*?):", section, flags=re.MULTILINE)
    documented = {name for row in rows for name in re.findall(r"`([\w.]+)`", row)}
    variables = {each for each in documented if each.isupper()}
    others = {*CONFIG_VARIABLES, *HOME_VARIABLES, "MEMORY_SESSION_ID"} - {"REMEMBRANCER_CONFIG", "REMEMBRANCER_HOME"}
    assert variables == {*FOREIGN_VARIABLES, REMOTE_URL, UNUSED_VARIABLE, *others}
    assert documented - variables == {*NAMES, *PROVIDERS, LOCAL_MODEL, DB_PATH, "remote_url"}


def test_the_example_of_the_configuration_file_can_be_read(tmp_path: Path) -> None:
    (example,) = re.findall(r"^```toml\n(.*?)^```", settings_page(), flags=re.MULTILINE | re.DOTALL)
    (tmp_path / CONFIG_FILE).write_text(example)
    assert f"`{CONFIG_FILE}`" in settings_page()
    assert read_settings_file(tmp_path / CONFIG_FILE) == {"embedders": 2, "log_level": "warning"}


def test_the_page_of_the_shell_lists_every_command() -> None:
    page = (ROOT / "docs" / "shell.md").read_text()
    for command in COMMANDS:
        assert re.search(rf"\bremembrancer {command}\b", page), command


def test_every_warning_of_an_answer_is_documented() -> None:
    sources = [path.read_text() for path in (ROOT / "remembrancer").rglob("*.py")]
    codes = {code for source in sources for code in re.findall(r'Notice\(\s*"(\w+)"', source)}
    page = (ROOT / "docs" / "design-differences.md").read_text()
    assert "queued" in codes
    assert {code for code in codes if f"`{code}`" not in page} == set()


def test_every_feature_is_in_the_table_of_retrieval_with_its_weight() -> None:
    page = (ROOT / "docs" / "retrieval.md").read_text()
    weights = fitted_for("").weights
    for name in FEATURE_NAMES:
        (row,) = re.findall(rf"^\|[^|]*`{name}`[^|]*\|[^|]*\|\s*(\S+)", page, flags=re.MULTILINE)
        assert float(row.replace("−", "-")) == round(weights.get(name, 0.0), 1), name


def test_every_module_function_and_program_that_a_page_names_is_there() -> None:
    modules = ["/" + str(path.relative_to(ROOT)) for top in CODE for path in (ROOT / top).rglob("*.py")]
    for page in pages():
        for name in re.findall(r"`([\w/]+\.py)`", page.read_text()):
            assert any(module.endswith("/" + name) for module in modules), f"{page.name} names {name}"
    for page in pages():
        for name, module in re.findall(r"`(?:\w+\.)?(\w+)` (?:in|of) `([\w/]+\.py)`", page.read_text()):
            (path,) = [path for top in CODE for path in (ROOT / top).rglob("*.py") if str(path).endswith("/" + module)]
            assert re.search(rf"^ *(def|class|async def) {name}\b", path.read_text(), flags=re.MULTILINE), (page, name)
    for page in pages():
        for name in re.findall(r"python -m ((?:bench|examples|remembrancer)[\w.]*\w)", page.read_text()):
            path = ROOT.joinpath(*name.split("."))
            assert path.with_suffix(".py").exists() or (path / "__main__.py").exists(), f"{page.name} runs {name}"
    for page in [ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").glob("*.md")]:
        assert not re.search(r"/(root|work|home/\w+)/", page.read_text()), page


def test_every_link_of_a_page_leads_somewhere() -> None:
    for page in pages():
        for target, heading in re.findall(r"\]\(([\w./-]*\.md)?(?:#([\w-]+))?\)", page.read_text()):
            linked = page.parent / target if target else page
            assert linked.exists(), f"{page.name} links to {target}"
            headings = {
                re.sub(r"[^\w -]", "", line.lstrip("# ").lower()).replace(" ", "-")
                for line in linked.read_text().splitlines()
                if line.startswith("#")
            }
            assert not heading or heading in headings, f"{page.name} links to {target}#{heading}"


def test_every_path_of_the_page_of_the_architecture_is_where_it_says() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text().partition("\n## The data")[0]
    bases = (ROOT, ROOT / "remembrancer", ROOT / "remembrancer" / "actors" / "store")
    named = re.findall(r"`([\w/]+(?:/|\.py|\.json))`", page)
    assert {"commands/", "memory/chunks.py", "records/schema.py"} <= set(named)
    assert [path for path in named if not any((base / path).exists() for base in bases)] == []


def test_every_option_that_a_page_gives_a_command_is_one_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    given: dict[tuple[str, ...], set[str]] = {}
    for page in pages():
        for command, rest in re.findall(r"^remembrancer ([a-z]+)([^#\n]*)", text_of(page), flags=re.MULTILINE):
            named = [word for word in rest.split()[:2] if re.fullmatch("[a-z][a-z-]+", word)]
            parts = (command, *named) if command in GROUPS else (command,)
            given.setdefault(parts, set()).update(re.findall(r"--[a-z-]+", rest))
    assert given["token", "create"]
    for parts, options in given.items():
        if not options:
            continue
        with contextlib.suppress(SystemExit):
            main([*parts, "--help"])
        described = capsys.readouterr().out
        assert {option for option in options if not re.search(rf"{option}\b", described)} == set(), parts


def text_of(page: Path) -> str:
    """A page in which every call of a command stands at the beginning of a line."""
    return re.sub(r"`(remembrancer [a-z]+[^`]*)`", r"\n\1\n", page.read_text())


def pages() -> list[Path]:
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def settings_page() -> str:
    return (ROOT / "docs" / "settings.md").read_text()


def test_the_page_of_tools_names_each_in_its_toolset_and_says_what_they_cost() -> None:
    page = (ROOT / "docs" / "tools.md").read_text()
    families = re.findall(
        r"^## `(\w+)`[^\n]* \(([\d,]+) tokens\)\n(.*?)(?=^## |\Z)", page, flags=re.MULTILINE | re.DOTALL
    )
    known = load_tools()
    documented = {
        (family, name)
        for family, _, tools in families
        for names in re.findall(r"^- (.*)", tools, flags=re.MULTILINE)
        for name in re.findall(r"(?:^|, |; )`(\w+)`(?=[:,])", names)
    }
    assert documented == {(tool.toolset, tool.name) for tool in known}
    for family, cost, _ in families:
        listed = {"tools": [tool.described() for tool in known if tool.toolset == family]}
        tokens = len(json.dumps(listed, separators=(",", ":"), ensure_ascii=False)) / 4
        assert tokens == pytest.approx(int(cost.replace(",", "")), abs=1), family
