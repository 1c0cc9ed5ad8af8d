"""Hooks in a client's settings: ours are there once, and nobody else's are touched."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from remembrancer.commands.clients import (
    ClientFile,
    Plan,
    Surroundings,
    client_named,
    is_our_command,
    make_groups,
    plan_hooks,
    plan_hooks_removal,
)
from remembrancer.commands.hook import EVENTS_BY_NAME
from remembrancer.protocol.gateway_link import HOOK_EVENTS

CLIENT = client_named("claude-code")
AROUND = Surroundings(Path("/u"), {}, "linux", Path("/u/app"))
PLACE = ClientFile("project", Path("/u/app/.claude/settings.json"), "hooks")
COMMAND = ("/opt/my tools/remembrancer",)
OTHERS = {"matcher": "Bash", "hooks": [{"type": "command", "command": "lint --all"}]}


def planned(text: str | None, *command: str, **environ: str) -> Plan:
    return plan_hooks(CLIENT, PLACE, text, make_groups(CLIENT, command or COMMAND, environ))


def after(plan: Plan) -> Any:
    assert plan.after is not None
    return json.loads(plan.after)


def test_the_settings_are_the_projects_or_the_users() -> None:
    assert CLIENT.hooks_place(AROUND, "project") == PLACE
    elsewhere = Surroundings(Path("/u"), {"CLAUDE_CONFIG_DIR": "/c"}, "linux", Path("/u/app"))
    found = [CLIENT.hooks_place(around, "user") for around in (AROUND, elsewhere)]
    assert [place.path for place in found if place] == [Path("/u/.claude/settings.json"), Path("/c/settings.json")]


def test_a_new_file_has_a_command_for_every_event() -> None:
    plan = planned(None)
    assert plan.action == "add"
    hooks = after(plan)["hooks"]
    assert set(hooks) == set(HOOK_EVENTS) - {"PostToolUseFailure", "PostCompact"}, "older releases know all of these"
    assert hooks["Stop"] == [
        {"hooks": [{"type": "command", "command": "'/opt/my tools/remembrancer' hook Stop", "timeout": 10}]}
    ]
    assert hooks["PreToolUse"][0]["matcher"] == "*"
    assert json.loads(plan.paste) == after(plan)


@pytest.mark.parametrize(
    ("name", "event", "group"),
    [
        ("codex", "Stop", {"hooks": [{"type": "command", "command": "/r/remembrancer hook Stop codex"}]}),
        (
            "gemini-cli",
            "AfterTool",
            {"matcher": "*", "hooks": [{"type": "command", "command": "/r/remembrancer hook AfterTool gemini-cli"}]},
        ),
        ("cursor", "beforeSubmitPrompt", {"command": "/r/remembrancer hook beforeSubmitPrompt cursor"}),
    ],
)
def test_every_client_with_hooks_gets_its_own_events_in_its_own_form_and_loses_them_again(
    name: str, event: str, group: dict[str, Any]
) -> None:
    client = client_named(name)
    place = client.hooks_place(AROUND, "user")
    assert place is not None
    wanted = make_groups(client, ("/r/remembrancer",), {})
    assert wanted[event] == group
    assert {EVENTS_BY_NAME[each] for each in wanted} == set(client.events)
    plan = plan_hooks(client, place, '{"mine": 1}', wanted)
    assert after(plan)["hooks"][event] == [group]
    assert after(plan_hooks_removal(client, place, plan.after)).get("hooks") is None
    assert plan_hooks_removal(client, place, plan_hooks(client, place, None, wanted).after).after == ""


def test_a_home_of_its_own_is_in_every_command() -> None:
    group = make_groups(CLIENT, COMMAND, {"REMEMBRANCER_HOME": "/my home"})["Stop"]
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
