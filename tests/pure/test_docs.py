"""The documents and the plugin say what the code does."""

import contextlib
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import click
import msgspec
import pytest

from remembrancer import __version__
from remembrancer.actors.consolidator import maintenance
from remembrancer.actors.store.retrieval.deduplication import SAME_COSINE
from remembrancer.command_line import COMMANDS, group, main
from remembrancer.commands.config import written
from remembrancer.commands.setup import PLUGIN
from remembrancer.config.home import read_settings_file
from remembrancer.config.named_home import CONFIG_FILE, CONFIG_VARIABLES, HOME_VARIABLES
from remembrancer.config.other_formats import LOCAL_MODEL, NAMES, PROVIDERS
from remembrancer.config.reading import DB_PATH, FOREIGN_VARIABLES, REMOTE_URL
from remembrancer.config.settings import NOT_SETTINGS, PREFIX, SETTABLE, Settings
from remembrancer.memory import decay, promotion
from remembrancer.memory.features import NAMES as FEATURE_NAMES
from remembrancer.memory.features import STANDINGS
from remembrancer.memory.ranking import PROFILES, fitted_for
from remembrancer.protocol.errors import _BY_CODE
from remembrancer.protocol.gateway_link import HOOK_EVENTS
from remembrancer.protocol.kinds import KINDS, MEMORY_TYPES, SCOPES, STATUSES, type_of_kind
from remembrancer.toolsets.tools import load_tools
from tests.pure.memories import memory

ROOT = Path(__file__).parents[2]
GROUPS = ("token", "model", "share", "backup", "admin")
CODE = ("remembrancer", "bench", "examples", "tests", "release")


def section_of(page: str, heading: str) -> str:
    section = page.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    assert section, heading
    return section


def test_every_setting_and_name_of_another_server_is_documented_and_the_example_can_be_read(tmp_path: Path) -> None:
    documented = dict(re.findall(rf"^\| `{PREFIX}(\w+)` \| (\S+) \|", settings_page(), flags=re.MULTILINE))
    fields = msgspec.structs.fields(Settings)
    defaults = {field.name.upper(): written(field.default) for field in fields if field.name in SETTABLE}
    assert documented == defaults
    named = {name for page in pages() for name in re.findall(rf"{PREFIX}([A-Z_]+[A-Z])", page.read_text())}
    assert named - defaults.keys() - NOT_SETTINGS == set()
    section = section_of(settings_page(), "Names of other memory servers")
    rows = re.findall(r"^- (`.*?):", section, flags=re.MULTILINE)
    foreign = {name for row in rows for name in re.findall(r"`([\w.]+)`", row)}
    variables = {each for each in foreign if each.isupper()}
    others = {*CONFIG_VARIABLES, *HOME_VARIABLES, "MEMORY_SESSION_ID"} - {"REMEMBRANCER_CONFIG", "REMEMBRANCER_HOME"}
    assert variables == {*FOREIGN_VARIABLES, REMOTE_URL, *others}
    assert foreign - variables == {*NAMES, *PROVIDERS, LOCAL_MODEL, DB_PATH, "remote_url"}
    (example,) = re.findall(r"^```toml\n(.*?)^```", settings_page(), flags=re.MULTILINE | re.DOTALL)
    (tmp_path / CONFIG_FILE).write_text(example)
    assert f"`{CONFIG_FILE}`" in settings_page()
    assert read_settings_file(tmp_path / CONFIG_FILE) == {"embedders": 2, "log_level": "warning"}


def test_every_page_names_each_command_warning_and_feature_that_there_is() -> None:
    page = (ROOT / "docs" / "shell.md").read_text()
    for command in COMMANDS:
        assert re.search(rf"\bremembrancer {command}\b", page), command
    sources = [path.read_text() for path in (ROOT / "remembrancer").rglob("*.py")]
    codes = {code for source in sources for code in re.findall(r'(?:Notice|warn)\(\s*"(\w+)"', source)}
    page = (ROOT / "docs" / "design-differences.md").read_text()
    assert "queued" in codes
    assert {code for code in codes if f"`{code}`" not in page} == set()
    section = section_of(page, "Errors and warnings")
    fields = {"retry_possible", "current_size"}
    assert set(re.findall(r"`([a-z]+_[a-z_]+)`", section)) <= codes | fields | _BY_CODE.keys()
    page = (ROOT / "docs" / "retrieval.md").read_text()
    weights = fitted_for("").weights
    for name in FEATURE_NAMES:
        (row,) = re.findall(rf"^\|[^|]*`{name}`[^|]*\|[^|]*\|\s*(\S+)", page, flags=re.MULTILINE)
        assert float(row.replace("−", "-")) == round(weights.get(name, 0.0), 1), name


def test_every_link_path_module_function_and_program_of_a_page_is_there() -> None:
    files = {f"/{path.relative_to(ROOT)}": path for top in CODE for path in (ROOT / top).rglob("*.py")}

    def files_named(name: str) -> list[Path]:
        return [path for place, path in files.items() if place.endswith(f"/{name}")]

    for page in pages():
        text = page.read_text()
        for name in re.findall(r"`([\w/]+\.py)`", text):
            assert files_named(name), f"{page.name} names {name}"
        for name, module in re.findall(r"`(?:\w+\.)?(\w+)` (?:in|of) `([\w/]+\.py)`", text):
            (path,) = files_named(module)
            assert re.search(rf"^ *(def|class|async def) {name}\b", path.read_text(), flags=re.MULTILINE), (page, name)
        for name in re.findall(r"python -m ((?:bench|examples|remembrancer)[\w.]*\w)", text):
            path = ROOT.joinpath(*name.split("."))
            assert path.with_suffix(".py").exists() or (path / "__main__.py").exists(), f"{page.name} runs {name}"
        for target, heading in re.findall(r"\]\(([\w./-]*\.md)?(?:#([\w-]+))?\)", text):
            linked = page.parent / target if target else page
            assert linked.exists(), f"{page.name} links to {target}"
            assert not heading or heading in anchors_of(linked), f"{page.name} links to {target}#{heading}"
    for page in (*pages(), ROOT / "CHANGELOG.md"):
        assert not re.search(r"/(root|work|home/\w+)/", page.read_text()), page
    text = (ROOT / "docs" / "architecture.md").read_text().partition("\n## The data")[0]
    bases = (ROOT, ROOT / "remembrancer", ROOT / "remembrancer" / "actors" / "store")
    named = re.findall(r"`([\w/]+(?:/|\.(?:py|js|json|toml|txt)))`", text)
    assert {"browser/templates/", "memory/chunks.py", "records/schema.py"} <= set(named)
    assert [path for path in named if not any((base / path).exists() for base in bases)] == []


def test_every_option_that_a_page_gives_a_command_is_one_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    given: dict[tuple[str, ...], set[str]] = {}
    for page in pages():
        text = re.sub(r"`(remembrancer [a-z]+[^`]*)`", r"\n\1\n", page.read_text())
        for command, rest in re.findall(r"^remembrancer ([a-z]+)([^#\n]*)", text, flags=re.MULTILINE):
            named = [word for word in rest.split()[:2] if re.fullmatch("[a-z][a-z-]+", word)]
            parts = (command, *named) if command in GROUPS else (command,)
            given.setdefault(parts, set()).update(re.findall(r"--[a-z-]+", rest))
    assert given["token", "create"]
    for parts, options in given.items():
        if not options:
            continue
        with contextlib.suppress(SystemExit):
            main([*parts, "-h"])
        described = capsys.readouterr()
        missing = {option for option in options if not re.search(rf"{option}\b", described.out)}
        assert missing == set(), (parts, described.err)


def test_the_help_of_each_command_fits_a_terminal_and_its_sentences_end(capfd: pytest.CaptureFixture[str]) -> None:
    commands: list[tuple[tuple[str, ...], Any]] = [((), group())]
    for parts, command in commands:
        if isinstance(command, click.Group):
            context = click.Context(command)
            commands += [
                ((*parts, name), command.get_command(context, name)) for name in command.list_commands(context)
            ]
        with contextlib.suppress(SystemExit):
            main([*parts, "--help"])
        described = capfd.readouterr().out
        assert described, parts
        assert [line for line in described.splitlines() if len(line) > 80] == [], parts
        if parts[-1:] not in (("mcp",), ("hook",)):  # which write their own
            helps = [command.help, *(getattr(each, "help", None) for each in command.params)]
            assert [text for text in helps if text and text[0].isupper() and text.strip()[-1] != "."] == [], parts


@cache
def anchors_of(page: Path) -> set[str]:
    """The names by which links lead to the headings of a page."""
    headings = [line.lstrip("# ").lower() for line in page.read_text().splitlines() if line.startswith("#")]
    return {re.sub(r"[^\w -]", "", heading).replace(" ", "-") for heading in headings}


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


# --- `docs/memory-model.md` says what the rules do: its tables and numbers are held against them.
PAGE = (ROOT / "docs" / "memory-model.md").read_text()
SETTINGS = Settings()
PROJECT, USER = decay.FADING["project"], decay.FADING["user"]
PROJECT_DAYS, USER_DAYS = (f"{fading.half_life_s / decay.DAY_S:g}" for fading in (PROJECT, USER))
USED_TWICE = memory(0, importance=0.8, confidence=0.7, access_count=2)


def rows(heading: str) -> dict[str, list[str]]:
    """The rows of the tables below a heading, by their first cells without marks of code."""
    section = section_of(PAGE, heading)
    table: dict[str, list[str]] = {}
    for line in section.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if line.startswith("| ") and not set(line) <= set("|- "):
            table[cells[0].strip("`* ")] = [cell.strip() for cell in cells[1:]]
    return table


PROJECT_RULE, USER_RULE = (
    (f"{rule.strength_below:g}", f"{rule.older_than_s / decay.DAY_S:g} days", f"{rule.accessed_below} times")
    for rule in (PROJECT, USER)
)


def test_the_numbers_of_the_page_are_those_in_force() -> None:
    sentences = [
        f"{PROJECT_DAYS} days × (1 + {PROJECT.access_gain:g} × accesses)",
        f"{USER_DAYS} days × (1 + {USER.access_gain:g} × accesses)",
        f"more than {decay.STALE_AFTER_S / decay.DAY_S:g} days ago, and fewer than {decay.STALE_BELOW_ACCESSES}",
        f"half-life of {decay.RECENCY_HALF_LIFE_S / decay.DAY_S:g} days.",
        f"0.56 × 0.5^(10 / 9.1) = {decay.strength_of(USED_TWICE, 10 * decay.DAY_S):g}.",
        f"at the session's end, at {promotion.SESSION_END_SCORE:g} or above "
        f"(the {promotion.SESSION_END_LIMIT} strongest)",
        f"at once, while the session runs, at {promotion.AT_ONCE_SCORE:g} or above",
        f"at {promotion.USER_SCORE:g} or above, if it is a",
        f"an importance of at least {promotion.USER_MIN_IMPORTANCE:g}",
        f"was used in at least {promotion.USER_MIN_SESSIONS} sessions",
        f"(cosine above {promotion.MERGE_COSINE:g})",
        f"grows by {promotion.PROJECT_CONFIDENCE_GAIN:g} in a project and by {promotion.USER_CONFIDENCE_GAIN:g}",
        f"One run selects at most {promotion.USER_LIMIT} memories for the user",
        f"| × {promotion.IMPORTANCE_SHARE:g} |",
        f"| × {promotion.CONFIDENCE_SHARE:g} |",
        f"log10(sessions + 1) / 2, at most {promotion.MOST_FOR_USE:g} |",
        f"for {SETTINGS.session_grace_s:g} seconds",
        f"a cosine above {SAME_COSINE:.2f}",
        f"strength below {PROJECT_RULE[0]}, older than {PROJECT_RULE[1]}, read fewer than {PROJECT_RULE[2]}",
        f"below {USER_RULE[0]}, {USER_RULE[1]}, {USER_RULE[2]}",
        f"archived for {decay.DELETE_AFTER_S / decay.DAY_S:g} days, and neither used nor changed since",
        f"are deleted {maintenance.SESSION_DETAILS_KEPT_S / decay.DAY_S:g} days after",
        f"runs are deleted after {maintenance.RUNS_KEPT_S / decay.DAY_S:g} days",
    ]
    assert [each for each in sentences if each not in " ".join(PAGE.split())] == []


def test_the_tables_of_the_memory_model_are_those_in_force() -> None:
    table = rows("Three scopes")
    assert [name for name in table if name != "scope"] == list(SCOPES)
    table = rows("Kinds and types")
    for memory_type in MEMORY_TYPES:
        kinds = re.findall(r"`(\w+)`", table[memory_type][0])
        assert sorted(kinds) == sorted(kind for kind in KINDS if type_of_kind(kind) == memory_type)
    assert [name for name in table if name in STATUSES] == list(STANDINGS)
    table = rows("Recall over three scopes")
    weights = {name: tuple(map(float, cells[:3])) for name, cells in table.items() if name != "profile"}
    assert weights == {name: tuple(each.values()) for name, each in PROFILES.items()}
    (cell, *_) = rows("Promotion: how a memory moves to a broader scope")["kind"]
    added = {
        kind: float(number)
        for number, kinds in re.findall(r"([\d.]+) for ([^;]*)", cell)
        for kind in re.findall(r"`(\w+)`", kinds)
    }
    assert added == promotion.FOR_KIND
    (named,) = re.findall(r"if it is a (.*?), has an importance", " ".join(PAGE.split()))
    assert set(re.findall(r"`(\w+)`", named)) == promotion.USER_KINDS


# --- The plugin for Claude Code: its files agree with the code that they stand for.
def read(path: Path) -> Any:
    return json.loads(path.read_text())


def test_a_command_prints_the_folder_of_the_plugin_of_this_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["setup", "--plugin-path"]) == 0
    assert Path(capsys.readouterr().out.strip(), ".claude-plugin", "plugin.json").is_file()
    assert read(PLUGIN / ".claude-plugin/plugin.json")["version"] == __version__


@pytest.mark.parametrize("root", [ROOT, PLUGIN])
def test_the_repository_and_the_installed_folder_are_marketplaces_of_the_plugin(root: Path) -> None:
    (entry,) = read(root / ".claude-plugin/marketplace.json")["plugins"]
    manifest = read(root / entry["source"] / ".claude-plugin/plugin.json")
    assert (entry["name"], entry["description"]) == (manifest["name"], manifest["description"])


def test_the_plugin_hooks_every_event_and_tells_the_assistant_to_use_what_is_there() -> None:
    hooks = read(PLUGIN / "hooks/hooks.json")["hooks"]
    assert list(hooks) == list(HOOK_EVENTS)
    for event, groups in hooks.items():
        assert [hook["command"] for group in groups for hook in group["hooks"]] == [f"remembrancer hook {event}"]
    known = {tool.name for tool in load_tools() if tool.toolset == "memory"}
    for path in [*PLUGIN.glob("commands/*.md"), *PLUGIN.glob("skills/*/SKILL.md")]:
        text = path.read_text()
        named = set(re.findall(r"mcp__plugin_remembrancer_remembrancer__(\w+)", text))
        named |= set(re.findall(r"`(\w+_memory|\w+_memories|get_\w+)`", text))
        assert named, path
        assert named <= known, path
    assert {path.stem for path in PLUGIN.glob("commands/*.md")} == {"remember", "recall", "forget", "memory"}


def test_the_readme_can_be_read_in_a_few_minutes() -> None:
    assert len((ROOT / "README.md").read_text().split()) <= 900
