"""Clients' configurations: where they lie, how our entry and hooks look, and that everything else in a file stays."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from remembrancer.commands.clients import (
    Client,
    ClientFile,
    Plan,
    Surroundings,
    client_named,
    clients,
    is_our_command,
    is_temporary,
    make_entry,
    make_groups,
    own_command,
    parse_with_comments,
    plan_entry,
    plan_hooks,
    plan_hooks_removal,
    plan_removal,
    plan_rules,
    read_text,
)
from remembrancer.commands.hook import EVENTS_BY_NAME
from remembrancer.protocol.gateway_link import HOOK_EVENTS

COMMAND = ("/opt/bin/remembrancer", "mcp")
ENTRY = {"command": "/opt/bin/remembrancer", "args": ["mcp"]}
KEYS = st.text(max_size=6)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)
FILES = st.dictionaries(KEYS, VALUES, max_size=4)
LOOKS = st.sampled_from([None, 1, 2, 4, "\t"])


def around(platform: str = "linux", **environ: str) -> Surroundings:
    return Surroundings(Path("/home/ana"), environ, platform, Path("/src/app"))


def planned(text: str | None, client: str = "cursor", *, force: bool = False, **environ: str) -> Plan:
    known = client_named(client)
    place = known.places(around())[-1]
    return plan_entry(known, place, text, "remembrancer", make_entry(known, COMMAND, environ), force=force)


def removed(text: str | None, client: str = "cursor", *, force: bool = False) -> Plan:
    known = client_named(client)
    return plan_removal(known, known.places(around())[-1], text, "remembrancer", force=force)


def left_by(plan: Plan) -> str:
    """The text of a file that is changed."""
    assert plan.after is not None
    return plan.after


# --- where and how ---


PLACES = """
claude-code    linux  /src/app/.mcp.json              /home/ana/.claude.json
claude-desktop linux  -                               /home/ana/.config/Claude/claude_desktop_config.json
claude-desktop darwin -                               {support}/Claude/claude_desktop_config.json
cursor         linux  /src/app/.cursor/mcp.json       /home/ana/.cursor/mcp.json
vscode         linux  /src/app/.vscode/mcp.json       /home/ana/.config/Code/User/mcp.json
vscode         darwin /src/app/.vscode/mcp.json       {support}/Code/User/mcp.json
codex          linux  /src/app/.codex/config.toml     /home/ana/.codex/config.toml
opencode       darwin /src/app/opencode.json          /home/ana/.config/opencode/opencode.json
goose          linux  -                               /home/ana/.config/goose/config.yaml
copilot-cli    linux  /src/app/.github/mcp.json       /home/ana/.copilot/mcp-config.json
windsurf       linux  -                               /home/ana/.codeium/windsurf/mcp_config.json
kiro           linux  /src/app/.kiro/settings/mcp.json /home/ana/.kiro/settings/mcp.json
"""


@pytest.mark.parametrize("row", PLACES.strip().splitlines())
def test_each_client_has_its_files_where_it_looks_for_them(row: str) -> None:
    client, platform, project, user = row.split()
    places = {"project": project, "user": user.format(support="/home/ana/Library/Application Support")}
    found = client_named(client).places(around(platform))
    assert {"project": "-"} | {place.scope: str(place.path) for place in found} == places


def test_a_configuration_that_lies_elsewhere_is_found_there() -> None:
    moved = around(XDG_CONFIG_HOME="/conf", CLAUDE_CONFIG_DIR="/claude", CODEX_HOME="/codex")
    user = {client.name: client.place(moved, "user") for client in clients()}
    found = {name: str(place.path) for name, place in user.items() if place}
    assert found.keys() == user.keys(), "every client has a file for all projects"
    moving = ("claude-code", "claude-desktop", "cursor", "vscode", "codex", "zed")
    assert {name: found[name] for name in moving} == {
        "claude-code": "/claude/.claude.json",
        "claude-desktop": "/conf/Claude/claude_desktop_config.json",
        "cursor": "/home/ana/.cursor/mcp.json",
        "vscode": "/conf/Code/User/mcp.json",
        "codex": "/codex/config.toml",
        "zed": "/conf/zed/settings.json",
    }


@pytest.mark.parametrize(
    ("client", "section", "form"),
    [
        ("claude-code", "mcpServers", {"type": "stdio"}),
        ("claude-desktop", "mcpServers", {}),
        ("vscode", "servers", {"type": "stdio"}),
        ("gemini-cli", "mcpServers", {}),
        ("zed", "context_servers", {}),
        ("copilot-cli", "mcpServers", {"type": "local", "tools": ["*"]}),
        ("opencode", "mcp", {"type": "local", "enabled": True, "command": [*COMMAND]}),
    ],
)
def test_each_client_gets_its_own_form_of_the_entry(client: str, section: str, form: dict[str, Any]) -> None:
    plan = planned(None, client)
    entry = form if "command" in form else ENTRY | form
    assert (plan.action, json.loads(left_by(plan))) == ("add", {section: {"remembrancer": entry}})
    assert left_by(plan).endswith("}\n")


# --- the command ---


def test_the_command_is_the_one_that_was_run_or_lies_beside_the_interpreter_or_is_the_module(tmp_path: Path) -> None:
    command, link = tmp_path / "venv/bin/remembrancer", tmp_path / "bin/remembrancer"
    for path in (command, link):
        path.parent.mkdir(parents=True)
    command.touch(0o755)
    link.symlink_to(command)
    assert own_command(str(link), "/usr/bin/python3", {}) == (str(link), "mcp")
    module, python = str(tmp_path / "site-packages/remembrancer/__main__.py"), str(tmp_path / "python")
    assert own_command(module, str(tmp_path / "venv/bin/python"), {}) == (str(command), "mcp")
    assert own_command(module, python, {"PATH": str(tmp_path)}) == (python, "-P", "-m", "remembrancer", "mcp")


PASSING = (
    "/home/ana/.cache/uv/archive-v0/qy7 /home/ana/.cache/uv/environments-v2/x /home/ana/.local/share/pipx/.cache/8d"
)
LASTING = (
    "/home/ana/.local /home/ana/.local/share/pipx/venvs/remembrancer /home/ana/.local/share/uv/tools/r /src/tmp/.venv"
)


def test_a_place_that_is_made_for_one_run_is_told_from_one_that_lasts() -> None:
    for temporary, places in ((True, f"{PASSING} /home/ana/.cache/pipx/8d /tmp/venv"), (False, LASTING)):
        for place in places.split():
            assert is_temporary(Path(place, "bin/remembrancer")) is temporary, place


# --- changing a file ---


@given(FILES, LOOKS, st.booleans())
def test_setting_an_entry_changes_nothing_else(
    whole: dict[str, Any], indent: int | str | None, ascii_only: bool
) -> None:
    plan = planned(json.dumps(whole, indent=indent, ensure_ascii=ascii_only))
    if not isinstance(whole.get("mcpServers", {}), dict):
        assert plan.action == "refuse"
        return
    entry = make_entry(client_named("cursor"), COMMAND, {})
    before = {**whole, "mcpServers": {**whole.get("mcpServers", {}), "remembrancer": entry}}
    assert json.dumps(json.loads(left_by(plan))) == json.dumps(before)  # the order of the keys, too


@given(FILES, LOOKS)
def test_an_entry_that_was_added_and_removed_leaves_the_rest_as_it_was(
    servers: dict[str, Any], indent: int | str | None
) -> None:
    servers.pop("remembrancer", None)
    text = json.dumps({"first": 1, "mcpServers": servers, "last": [2.50]}, indent=indent)
    left = json.loads(text)
    if not servers:
        del left["mcpServers"]
    assert json.dumps(json.loads(left_by(removed(planned(text).after)))) == json.dumps(left)


def parsed(text: str, client: str) -> Any:
    """A client's file, read in its own format."""
    read: dict[str, Callable[[str], Any]] = {"goose": yaml.safe_load, "codex": tomllib.loads}
    return read.get(client, json.loads)(text)


@pytest.mark.parametrize(
    ("client", "text", "why"),
    [
        ("vscode", '{ // mine\n "servers": {} }', "comments"),
        ("vscode", '{ "servers": {}, /* mine */ "a": 1 }', "comments"),
        ("vscode", '{ "servers": {}, }', "trailing commas"),
        ("vscode", '{ "servers": ', "not valid JSON"),
        ("vscode", '{"url": "https://example.org" "b": 1}', "not valid JSON"),  # an address is no comment
        ("vscode", "[]", "JSON object"),
        ("vscode", '{"a": 1, "a": 2}', "twice"),
        ("vscode", "[" * 100_000, "deeply"),
        ("vscode", '{"servers": []}', "'servers' is not an object"),
        ("goose", "# mine\nGOOSE_MODE: auto\n", "comments"),
        ("goose", "a: [", "not valid YAML"),
        ("goose", "- a", "mapping"),
        ("codex", "model = ", "not valid TOML"),
    ],
)
@pytest.mark.parametrize("force", [False, True])
def test_a_file_that_cannot_be_changed_safely_is_refused_with_what_to_paste(
    client: str, text: str, why: str, force: bool
) -> None:
    plan = planned(text, client, force=force)
    assert (plan.action, plan.after) == ("refuse", None)
    assert why in plan.said
    assert parsed(plan.paste, client) == parsed(left_by(planned(None, client)), client)


def test_a_file_that_begins_with_a_byte_order_mark_is_read(tmp_path: Path) -> None:
    (tmp_path / "mcp.json").write_bytes(b'\xef\xbb\xbf{"servers": {}}')
    assert read_text(tmp_path / "mcp.json") == '{"servers": {}}'


def test_an_entry_between_comments_is_seen_without_being_changed() -> None:
    text = '{ // "mine"\n "servers": { "a": {"url": "http://x/*,}"}, /* ours */ "remembrancer": %s, },\n}'
    plan = planned(text % json.dumps({"type": "stdio", **ENTRY}), "vscode")
    assert (plan.action, plan.after) == ("nothing", None)
    assert planned(text % '{"command": "/other"}', "vscode", force=True).action == "refuse"
    assert parse_with_comments(text % "1")["servers"]["a"] == {"url": "http://x/*,}"}


# --- what is there already ---


@pytest.mark.parametrize(
    "present",
    [
        {"command": "/old/remembrancer", "args": ["mcp"]},
        {"command": "/opt/bin/remembrancer", "args": ["mcp", "--project", "/x"]},
        {"type": "http", "url": "https://example.org"},
        "nonsense",
    ],
)
def test_another_entry_of_our_name_is_replaced_only_by_force(present: object) -> None:
    text = json.dumps({"mcpServers": {"a": {"command": "a"}, "remembrancer": present}})
    refused = planned(text)
    assert refused.action == "refuse"
    assert "--force" in refused.said
    forced = planned(text, force=True)
    servers = {"a": {"command": "a"}, "remembrancer": {"type": "stdio", **ENTRY}}
    assert (forced.action, json.loads(left_by(forced))) == ("replace", {"mcpServers": servers})


@pytest.mark.parametrize(
    ("entry", "ours"),
    [
        ({"command": "/a/remembrancer", "args": ["mcp"]}, True),
        ({"command": "/v/bin/python", "args": ["-m", "remembrancer", "mcp"]}, True),
        ({"command": "npx", "args": ["-y", "server-memory"]}, False),
        ({"url": "https://example.org"}, False),
    ],
)
def test_only_an_entry_that_is_ours_is_removed_without_force(entry: object, ours: bool) -> None:
    text = json.dumps({"mcpServers": {"remembrancer": entry}})
    assert removed(text).action == ("remove" if ours else "refuse")
    assert (removed(text, force=True).action, removed(text, force=True).after) == ("remove", ""), "it held nothing else"
    assert removed(None).action == "nothing"


# --- every client ---


@pytest.mark.parametrize("client", clients(), ids=lambda client: client.name)
def test_every_client_is_set_up_once_and_left_as_it_was(client: Client) -> None:
    for place in client.places(around()):
        wanted = make_entry(client, COMMAND, {"A": "b"})
        plan = plan_entry(client, place, None, "remembrancer", wanted, force=False)
        assert plan.action == "add"
        assert plan_entry(client, place, plan.after, "remembrancer", wanted, force=False).action == "nothing"
        more = make_entry(client, COMMAND, {"A": "b", "C": "d"})
        extended = plan_entry(client, place, plan.after, "remembrancer", more, force=False)
        assert extended.action == "extend"
        assert plan_entry(client, place, extended.after, "remembrancer", more, force=False).action == "nothing"
        other = make_entry(client, ("/other", "mcp"), {})
        assert plan_entry(client, place, plan.after, "remembrancer", other, force=False).action == "refuse"
        left = plan_removal(client, place, plan.after, "remembrancer", force=False)
        assert (left.action, left.after) == ("remove", "")


def test_a_file_of_goose_keeps_its_other_extensions() -> None:
    before = "GOOSE_MODE: auto\nextensions:\n  developer:\n    enabled: true\n    type: builtin\n"
    found = yaml.safe_load(left_by(planned(before, "goose")))
    entry = found["extensions"].pop("remembrancer")
    assert found == yaml.safe_load(before)
    assert entry.items() >= {"cmd": COMMAND[0], "args": ["mcp"], "type": "stdio", "enabled": True}.items()


def rules_planned(name: str, text: str | None, *, remove: bool = False) -> Plan:
    client = client_named(name)
    place = client.rules_place(around(), "project")
    assert place is not None
    return plan_rules(client, place, text, remove=remove)


@pytest.mark.parametrize("before", [None, "# Rules\n\nBe brief.\n", "Be brief.", "a\n\n\n"])
@pytest.mark.parametrize("name", ["codex", "cursor"])
def test_instructions_get_a_block_once_and_lose_it_again(name: str, before: str | None) -> None:
    after = left_by(rules_planned(name, before))
    assert after.count("`recall_memories`") == 1
    assert rules_planned(name, after).action == "nothing"
    assert rules_planned(name, before, remove=True).action == "nothing"
    left = left_by(rules_planned(name, after, remove=True))
    assert left.strip() == (before or "").strip()
    assert (left == "") == (before is None)


def test_a_block_of_an_older_release_is_replaced_where_others_wrote_around_it() -> None:
    text = "above\n\n<!-- remembrancer -->\nformer\n<!-- /remembrancer -->\nbelow\n"
    after = left_by(rules_planned("codex", text))
    assert "former" not in after
    assert after.startswith("above\nbelow\n\n<!-- remembrancer -->")


# --- Codex's file, which is TOML ---

CODEX = """# my settings
model = "o"   # the good one

[mcp_servers.other]
command = "x"

[mcp_servers.remembrancer]
command = "/opt/bin/remembrancer"
args = ["mcp"]
startup_timeout_sec = 30

[mcp_servers.remembrancer.env]
A = "b"

[[profiles]] # the last
name = "mcp_servers.remembrancer"
"""


def test_codex_gets_a_table_and_keeps_all_other_lines_as_they_are() -> None:
    before = CODEX[: CODEX.index("[mcp_servers.remembrancer]")] + CODEX[CODEX.index("[[profiles]]") :]
    plan = planned(before, "codex", REMEMBRANCER_HOME='/h "1"')
    assert plan.action == "add"
    left = iter(left_by(plan).splitlines())
    assert all(line in left for line in before.splitlines()), "each is there, and in its order"
    entry = {**ENTRY, "env": {"REMEMBRANCER_HOME": '/h "1"'}}
    assert tomllib.loads(left_by(plan))["mcp_servers"] == {"other": {"command": "x"}, "remembrancer": entry}
    assert planned(plan.after, "codex", REMEMBRANCER_HOME='/h "1"').action == "nothing"
    assert tomllib.loads(left_by(planned(None, "codex"))) == {"mcp_servers": {"remembrancer": ENTRY}}


def test_what_is_taken_out_of_codex_file_is_our_entry_alone() -> None:
    plan, left = removed(CODEX, "codex"), tomllib.loads(CODEX)
    del left["mcp_servers"]["remembrancer"]
    assert (plan.action, tomllib.loads(left_by(plan))) == ("remove", left)
    assert "# the good one" in left_by(plan)


@pytest.mark.parametrize(
    "text",
    [
        'mcp_servers = {remembrancer = {command = "y"}}',
        '[mcp_servers]\nremembrancer.command = "y"',
        'note = """\n[mcp_servers.remembrancer]\n"""\n[mcp_servers]\nremembrancer = {command = "y"}',
    ],
)
def test_an_entry_of_codex_is_replaced_in_whatever_form_it_is_written(text: str) -> None:
    assert planned(text, "codex").action == "refuse", "another entry of this name is in the way"
    plan, left = planned(text, "codex", force=True), {**tomllib.loads(text), "mcp_servers": {"remembrancer": ENTRY}}
    assert (plan.action, tomllib.loads(left_by(plan))) == ("replace", left)


@given(st.dictionaries(st.text(max_size=6), st.text(max_size=8), max_size=3))
def test_any_variable_reaches_codex(environ: dict[str, str]) -> None:
    known = client_named("codex")
    wanted = make_entry(known, COMMAND, environ)
    plan = plan_entry(known, known.places(around())[-1], CODEX, "mine", wanted, force=False)
    assert tomllib.loads(left_by(plan))["mcp_servers"]["mine"] == wanted


# --- Hooks in a client's settings: ours are there once, and nobody else's are touched.


CLAUDE = client_named("claude-code")
AROUND = Surroundings(Path("/u"), {}, "linux", Path("/u/app"))
PLACE = ClientFile("project", Path("/u/app/.claude/settings.json"), "hooks")
RUN = ("/opt/my tools/remembrancer",)
OTHERS = {"matcher": "Bash", "hooks": [{"type": "command", "command": "lint --all"}]}


def hooks_planned(text: str | None, *command: str, **environ: str) -> Plan:
    return plan_hooks(CLAUDE, PLACE, text, make_groups(CLAUDE, command or RUN, environ))


def after(plan: Plan) -> Any:
    return json.loads(left_by(plan))


def test_the_settings_are_the_projects_or_the_users() -> None:
    assert CLAUDE.hooks_place(AROUND, "project") == PLACE
    elsewhere = Surroundings(Path("/u"), {"CLAUDE_CONFIG_DIR": "/c"}, "linux", Path("/u/app"))
    found = [CLAUDE.hooks_place(around, "user") for around in (AROUND, elsewhere)]
    assert [place.path for place in found if place] == [Path("/u/.claude/settings.json"), Path("/c/settings.json")]


def test_a_new_file_has_a_command_for_every_event() -> None:
    plan = hooks_planned(None)
    assert plan.action == "add"
    hooks = after(plan)["hooks"]
    assert set(hooks) == set(HOOK_EVENTS) - {"PostToolUseFailure", "PostCompact"}, "older releases know all of these"
    assert hooks["Stop"] == [
        {"hooks": [{"type": "command", "command": "'/opt/my tools/remembrancer' hook Stop", "timeout": 10}]}
    ]
    assert hooks["PreToolUse"][0]["matcher"] == "*"
    assert json.loads(plan.paste) == after(plan)
    again = hooks_planned(plan.after)
    assert (again.action, again.after) == ("nothing", None)


@pytest.mark.parametrize(
    ("name", "event", "matcher"),
    [("codex", "Stop", {}), ("gemini-cli", "AfterTool", {"matcher": "*"}), ("cursor", "beforeSubmitPrompt", None)],
)
def test_every_client_with_hooks_gets_its_events_in_its_form_and_loses_them_again(
    name: str, event: str, matcher: dict[str, Any] | None
) -> None:
    client = client_named(name)
    place = client.hooks_place(AROUND, "user")
    assert place is not None
    wanted = make_groups(client, ("/r/remembrancer",), {})
    command = f"/r/remembrancer hook {event} {name}"
    typed = {"type": "command", "command": command}
    assert wanted[event] == ({"command": command} if matcher is None else {**matcher, "hooks": [typed]})
    assert {EVENTS_BY_NAME[each] for each in wanted} == set(client.events)
    plan = plan_hooks(client, place, '{"mine": 1}', wanted)
    assert after(plan)["hooks"][event] == [wanted[event]]
    assert after(plan_hooks_removal(client, place, plan.after)).get("hooks") is None
    assert plan_hooks_removal(client, place, plan_hooks(client, place, None, wanted).after).after == ""


def test_everything_else_in_the_settings_stays() -> None:
    before = {"model": "x", "hooks": {"PreToolUse": [OTHERS], "Notification": [OTHERS]}, "env": {"A": "b"}}
    plan = hooks_planned(json.dumps(before, indent=4))
    hooks = after(plan)["hooks"]
    assert (hooks["PreToolUse"][0], len(hooks["PreToolUse"]), hooks["Notification"]) == (OTHERS, 2, [OTHERS])
    assert {**after(plan), "hooks": None} == {**before, "hooks": None}
    assert after(plan_hooks_removal(CLAUDE, PLACE, plan.after)) == before


def test_a_command_of_ours_that_lay_elsewhere_or_in_another_group_is_replaced_and_not_doubled() -> None:
    plan = hooks_planned(hooks_planned(None, "/old/remembrancer").after)
    assert (plan.action, plan.after) == ("replace", hooks_planned(None).after)
    ours, theirs = ({"type": "command", "command": each} for each in ("remembrancer hook Stop", "beep"))
    stop = after(hooks_planned(json.dumps({"hooks": {"Stop": [{"hooks": [ours, theirs]}]}})))["hooks"]["Stop"]
    assert (stop[0], len(stop)) == ({"hooks": [theirs]}, 2)


def test_what_was_added_to_an_empty_file_leaves_nothing() -> None:
    assert plan_hooks_removal(CLAUDE, PLACE, hooks_planned("{}\n").after).after == ""
    assert plan_hooks_removal(CLAUDE, PLACE, "{}\n").action == "nothing"
    assert plan_hooks_removal(CLAUDE, PLACE, None).action == "nothing"


@pytest.mark.parametrize("text", ["[]", "{", '{"hooks": []}', '{"hooks": {"Stop": {}}}', '// x\n{"hooks": {}}'])
def test_settings_that_cannot_be_changed_safely_are_left_with_what_to_paste(text: str) -> None:
    plan = hooks_planned(text)
    assert (plan.action, plan.after) == ("refuse", None)
    assert json.loads(plan.paste)["hooks"]


def test_a_command_of_ours_is_known_by_what_it_runs_and_has_its_home() -> None:
    command = make_groups(CLAUDE, RUN, {"REMEMBRANCER_HOME": "/my home"})["Stop"]["hooks"][0]["command"]
    assert command == "REMEMBRANCER_HOME='/my home' '/opt/my tools/remembrancer' hook Stop"
    for ours in (command, "/x/python -P -m remembrancer hook Stop"):
        assert is_our_command(ours)
    for other in ("remembrancer mcp", "lint hook", "echo 'remembrancer hook Stop'", "'unclosed", 7, None):
        assert not is_our_command(other), other
