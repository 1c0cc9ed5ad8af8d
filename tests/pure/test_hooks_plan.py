"""Hooks in a client's settings: ours are there once, and nobody else's are touched."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from remembrancer.commands.clients import (
    HOOK_EVENTS,
    Plan,
    Surroundings,
    client_named,
    hooks_document,
    hooks_place,
    is_our_command,
    make_groups,
    plan_hooks,
    plan_hooks_removal,
)

CLIENT = client_named("claude-code")
AROUND = Surroundings(Path("/u"), {}, "linux", Path("/u/app"))
PLACE = hooks_place(AROUND, "project")
COMMAND = ("/opt/my tools/remembrancer",)
OTHERS = {"matcher": "Bash", "hooks": [{"type": "command", "command": "lint --all"}]}


def planned(text: str | None, *command: str, **environ: str) -> Plan:
    return plan_hooks(CLIENT, PLACE, text, make_groups(command or COMMAND, environ))


def after(plan: Plan) -> Any:
    assert plan.after is not None
    return json.loads(plan.after)


def test_the_settings_are_the_projects_or_the_users() -> None:
    assert PLACE.path == Path("/u/app/.claude/settings.json")
    assert hooks_place(AROUND, "user").path == Path("/u/.claude/settings.json")
    elsewhere = Surroundings(Path("/u"), {"CLAUDE_CONFIG_DIR": "/c"}, "linux", Path("/u/app"))
    assert hooks_place(elsewhere, "user").path == Path("/c/settings.json")


def test_a_new_file_has_a_command_for_every_event() -> None:
    plan = planned(None)
    assert plan.action == "add"
    hooks = after(plan)["hooks"]
    assert set(hooks) == set(HOOK_EVENTS)
    assert hooks["Stop"] == [
        {"hooks": [{"type": "command", "command": "'/opt/my tools/remembrancer' hook Stop", "timeout": 10}]}
    ]
    assert hooks["PreToolUse"][0]["matcher"] == "*"
    assert json.loads(hooks_document(make_groups(COMMAND, {}))) == after(plan)


def test_only_events_that_every_release_of_the_client_knows_are_written() -> None:
    assert "PostToolUseFailure" not in HOOK_EVENTS


def test_a_home_of_its_own_is_in_every_command() -> None:
    group = make_groups(COMMAND, {"REMEMBRANCER_HOME": "/my home"})["Stop"]
    command = group["hooks"][0]["command"]
    assert command == "REMEMBRANCER_HOME='/my home' '/opt/my tools/remembrancer' hook Stop"
    assert is_our_command(command)


def test_everything_else_in_the_settings_stays() -> None:
    before = {"model": "x", "hooks": {"PreToolUse": [OTHERS], "Notification": [OTHERS]}, "env": {"A": "b"}}
    plan = planned(json.dumps(before, indent=4))
    said = after(plan)
    assert said["hooks"]["PreToolUse"][0] == OTHERS
    assert len(said["hooks"]["PreToolUse"]) == 2
    assert said["hooks"]["Notification"] == [OTHERS]
    assert (said["model"], said["env"]) == ("x", {"A": "b"})
    assert plan_hooks_removal(CLIENT, PLACE, plan.after).after is not None
    assert after(plan_hooks_removal(CLIENT, PLACE, plan.after)) == before


def test_a_second_time_there_is_nothing_to_do() -> None:
    plan = planned(planned(None).after)
    assert (plan.action, plan.after) == ("nothing", None)


def test_a_command_of_ours_that_lay_elsewhere_is_replaced_and_not_doubled() -> None:
    plan = planned(planned(None, "/old/remembrancer").after)
    assert plan.action == "replace"
    assert plan.after == planned(None).after


def test_a_command_of_ours_in_somebody_elses_group_goes_without_the_rest_of_it() -> None:
    ours = {"type": "command", "command": "remembrancer hook Stop"}
    theirs = {"type": "command", "command": "beep"}
    said = after(planned(json.dumps({"hooks": {"Stop": [{"hooks": [ours, theirs]}]}})))
    assert said["hooks"]["Stop"][0] == {"hooks": [theirs]}
    assert len(said["hooks"]["Stop"]) == 2


def test_what_was_added_to_an_empty_file_leaves_nothing() -> None:
    assert plan_hooks_removal(CLIENT, PLACE, planned("{}\n").after).after == ""
    assert plan_hooks_removal(CLIENT, PLACE, "{}\n").action == "nothing"
    assert plan_hooks_removal(CLIENT, PLACE, None).action == "nothing"


@pytest.mark.parametrize("text", ["[]", "{", '{"hooks": []}', '{"hooks": {"Stop": {}}}', '// x\n{"hooks": {}}'])
def test_settings_that_cannot_be_changed_safely_are_left_with_what_to_paste(text: str) -> None:
    plan = planned(text)
    assert (plan.action, plan.after) == ("refuse", None)
    assert json.loads(plan.paste)["hooks"]


@pytest.mark.parametrize(
    "command", ["remembrancer mcp", "lint hook", "echo 'remembrancer hook Stop'", "'unclosed", 7, None]
)
def test_a_command_that_is_not_ours_is_known_as_such(command: object) -> None:
    assert not is_our_command(command)


def test_a_command_of_ours_is_known_by_what_it_runs() -> None:
    assert is_our_command("/x/python -P -m remembrancer hook Stop")
