"""The plugin for Claude Code: its files agree with the code that they stand for."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from remembrancer import __version__
from remembrancer.command_line import main
from remembrancer.commands.setup import PLUGIN
from remembrancer.protocol.gateway_link import HOOK_EVENTS
from remembrancer.toolsets.tools import load_tools

ROOT = Path(__file__).parents[2]


def read(path: Path) -> Any:
    return json.loads(path.read_text())


def test_the_command_prints_the_folder_of_the_plugin_which_has_the_version_of_the_package(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["setup", "--plugin-path"]) == 0
    assert Path(capsys.readouterr().out.strip(), ".claude-plugin", "plugin.json").is_file()
    assert read(PLUGIN / ".claude-plugin/plugin.json")["version"] == __version__


@pytest.mark.parametrize("root", [ROOT, PLUGIN])
def test_the_repository_and_the_installed_folder_are_marketplaces_of_the_plugin(root: Path) -> None:
    (entry,) = read(root / ".claude-plugin/marketplace.json")["plugins"]
    manifest = read(root / entry["source"] / ".claude-plugin/plugin.json")
    assert (entry["name"], entry["description"]) == (manifest["name"], manifest["description"])


def test_the_plugin_hooks_every_event_that_is_understood() -> None:
    hooks = read(PLUGIN / "hooks/hooks.json")["hooks"]
    assert list(hooks) == list(HOOK_EVENTS)
    for event, groups in hooks.items():
        assert [hook["command"] for group in groups for hook in group["hooks"]] == [f"remembrancer hook {event}"]


def test_what_the_plugin_tells_the_assistant_to_use_is_there() -> None:
    known = {tool.name for tool in load_tools() if tool.toolset == "memory"}
    for path in [*PLUGIN.glob("commands/*.md"), *PLUGIN.glob("skills/*/SKILL.md")]:
        text = path.read_text()
        named = set(re.findall(r"mcp__plugin_remembrancer_remembrancer__(\w+)", text))
        named |= set(re.findall(r"`(\w+_memory|\w+_memories|get_\w+)`", text))
        assert named, path
        assert named <= known, path
    assert {path.stem for path in PLUGIN.glob("commands/*.md")} == {"remember", "recall", "forget", "memory"}
