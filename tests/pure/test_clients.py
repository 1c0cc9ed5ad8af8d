import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from remembrancer.commands.clients import (
    Client,
    ClientEnvironment,
    ClientFile,
    FileRefused,
    client_named,
    clients,
    is_our_command,
    merge,
    own_command,
    read_text,
    write_text,
)
from remembrancer.commands.hook import EVENTS_BY_NAME
from remembrancer.protocol.gateway_link import HOOK_EVENTS
from tests.cases import cases

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


def around(platform: str = "linux", **environ: str) -> ClientEnvironment:
    return ClientEnvironment(Path("/home/ana"), environ, platform, Path("/src/app"))


def added(text: str, client: str = "cursor", **environ: str) -> str:
    known = client_named(client)
    return merge(known, known.places(around())[-1], text, COMMAND, environ)


def removed(text: str, client: str = "cursor") -> str:
    known = client_named(client)
    return merge(known, known.places(around())[-1], text, None, {})


# --- where and how ---
@pytest.mark.parametrize(("client", "platform", "project", "user"), cases("clients", "places"))
def test_each_client_has_its_files_where_it_looks_for_them(client: str, platform: str, project: str, user: str) -> None:
    places = {"project": project, "user": user.format(support="/home/ana/Library/Application Support")}
    found = client_named(client).places(around(platform))
    assert {"project": "-"} | {place.scope: str(place.path) for place in found} == places


def test_a_configuration_that_lies_elsewhere_is_found_there() -> None:
    moved = around(XDG_CONFIG_HOME="/conf", CLAUDE_CONFIG_DIR="/claude", CODEX_HOME="/codex")
    found = {client.name: str(place.path) for client in clients() if (place := client.place(moved, "user"))}
    assert found.keys() == {client.name for client in clients()}, "every client has a file for all projects"
    assert found.items() >= cases("clients", "moved").items()


def test_each_client_gets_its_own_form_of_the_entry() -> None:
    for client, section, entry in cases("clients", "forms"):
        whole = entry if "command" in entry else ENTRY | entry
        assert json.loads(added("", client)) == {section: {"remembrancer": whole}}, client
        assert added("", client).endswith("}\n"), client


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


# --- changing a file ---
@given(FILES, VALUES | FILES, LOOKS, st.booleans())
def test_an_entry_changes_nothing_else_and_its_removal_leaves_the_rest(
    whole: dict[str, Any], servers: Any, indent: int | str | None, ascii_only: bool
) -> None:
    whole = {**whole, "mcpServers": servers, "last": [2.50]}
    text = json.dumps(whole, indent=indent, ensure_ascii=ascii_only)
    if not isinstance(servers, dict):
        with pytest.raises(FileRefused):
            added(text)
        return
    with_entry = {**whole, "mcpServers": {**servers, "remembrancer": {"type": "stdio", **ENTRY}}}
    assert json.dumps(json.loads(added(text))) == json.dumps(with_entry)  # the order of the keys, too
    rest = {name: value for name, value in whole.items() if name != "mcpServers" or servers}
    assert json.dumps(json.loads(removed(added(text)))) == json.dumps(rest)
    assert removed(text) == text


@pytest.mark.parametrize(
    ("client", "text", "why"), [*cases("clients", "refused"), ("vscode", "[" * 100_000, "not valid JSON")]
)
def test_a_file_that_cannot_be_changed_safely_is_refused(client: str, text: str, why: str) -> None:
    with pytest.raises(FileRefused, match=why):
        added(text, client)


def test_a_file_that_begins_with_a_byte_order_mark_is_read_and_a_symbolic_link_stays_one(tmp_path: Path) -> None:
    target, link = tmp_path / "dotfiles.json", tmp_path / "mcp.json"
    target.write_bytes(b'\xef\xbb\xbf{"servers": {"a": 1}}')
    link.symlink_to(target)
    assert read_text(link) == '{"servers": {"a": 1}}'
    write_text(ClientFile("user", "entry", link), '{"servers": {}}')
    assert (link.is_symlink(), target.read_text()) == (True, '{"servers": {}}')


# --- what is there already ---
OTHER = {"a": {"command": "a"}}


@pytest.mark.parametrize(("present", "kept"), cases("clients", "ours"))
def test_our_entry_starts_this_command_and_keeps_the_rest(present: dict[str, Any], kept: dict[str, Any]) -> None:
    text = json.dumps({"mcpServers": {**OTHER, "remembrancer": present}})
    entry = {"type": "stdio", **ENTRY, **kept}
    assert json.loads(added(text)) == {"mcpServers": {**OTHER, "remembrancer": entry}}
    assert json.loads(removed(text)) == {"mcpServers": OTHER}


@pytest.mark.parametrize("present", [{"type": "http", "url": "https://example.org"}, {"command": "/a/b"}, "nonsense"])
def test_another_entry_of_our_name_is_neither_replaced_nor_removed(present: object) -> None:
    text = json.dumps({"mcpServers": {**OTHER, "remembrancer": present}})
    for change in (added, removed):
        with pytest.raises(FileRefused, match="starts something else"):
            change(text)


# --- every client ---
@pytest.mark.parametrize("client", clients(), ids=lambda client: client.name)
def test_every_client_is_set_up_once_and_left_as_it_was(client: Client) -> None:
    for place in client.places(around()):
        text = merge(client, place, "", COMMAND, {"A": "b"})
        assert merge(client, place, text, COMMAND, {"A": "b"}) == text
        extended = merge(client, place, text, COMMAND, {"A": "b", "C": "d"})
        assert extended == merge(client, place, "", COMMAND, {"A": "b", "C": "d"})
        assert merge(client, place, extended, COMMAND, {"A": "b"}) == extended
        assert merge(client, place, text, None, {}) == ""


def test_a_file_of_goose_keeps_its_other_extensions() -> None:
    before = "GOOSE_MODE: auto\nextensions:\n  developer:\n    enabled: true\n    type: builtin\n"
    found = yaml.safe_load(added(before, "goose"))
    assert list(found) == ["GOOSE_MODE", "extensions"]
    assert found["extensions"]["developer"] == {"enabled": True, "type": "builtin"}
    entry = found["extensions"]["remembrancer"]
    assert (entry["cmd"], entry["args"], entry["type"], entry["enabled"]) == (COMMAND[0], ["mcp"], "stdio", True)


def instructions(name: str, text: str, *, remove: bool = False) -> str:
    client = client_named(name)
    place = client.place(around(), "project", "rules")
    assert place is not None
    return merge(client, place, text, None if remove else COMMAND, {})


@pytest.mark.parametrize("before", ["", "\n", "# Rules\n\nBe brief.\n", "Be brief.", "a\n\n\n"])
@pytest.mark.parametrize("name", ["codex", "cursor"])
def test_instructions_get_a_block_once_and_lose_it_again(name: str, before: str) -> None:
    after = instructions(name, before)
    assert after.count("`recall_memories`") == 1
    assert instructions(name, after) == after
    assert instructions(name, before, remove=True) == before
    assert instructions(name, after, remove=True).strip() == before.strip()


def test_a_block_of_an_older_release_is_replaced_where_others_wrote_around_it() -> None:
    text = "above\n\n<!-- remembrancer -->\nformer\n<!-- /remembrancer -->\nbelow\n"
    after = instructions("codex", text)
    assert "former" not in after
    assert after.startswith("above\nbelow\n\n<!-- remembrancer -->")


# --- Codex's file, which is TOML ---
CODEX = cases("clients", "codex")


def test_codex_gets_a_table_and_loses_it_and_keeps_all_other_lines_as_they_are() -> None:
    before = CODEX[: CODEX.index("[mcp_servers.remembrancer]")] + CODEX[CODEX.index("[[profiles]]") :]
    text = added(before, "codex", REMEMBRANCER_HOME='/h "1"')
    lines = iter(text.splitlines())
    assert all(line in lines for line in before.splitlines()), "each is there, and in its order"
    entry = {**ENTRY, "env": {"REMEMBRANCER_HOME": '/h "1"'}}
    assert tomllib.loads(text)["mcp_servers"] == {"other": {"command": "x"}, "remembrancer": entry}
    assert added(text, "codex", REMEMBRANCER_HOME='/h "1"') == text
    assert tomllib.loads(added("", "codex")) == {"mcp_servers": {"remembrancer": ENTRY}}
    text, rest = removed(CODEX, "codex"), tomllib.loads(CODEX)
    del rest["mcp_servers"]["remembrancer"]
    assert tomllib.loads(text) == rest
    assert "# the good one" in text


def test_an_entry_is_replaced_in_whatever_form_it_is_written_and_leaves_no_trace_at_the_end_of_a_file() -> None:
    for text in cases("clients", "codex_entries"):
        assert tomllib.loads(added(text, "codex")) == {**tomllib.loads(text), "mcp_servers": {"remembrancer": ENTRY}}
    for client, text in cases("clients", "no_trace"):
        assert removed(added(text, client), client) == text


@given(st.dictionaries(st.text(max_size=6), st.text(max_size=8), max_size=3))
def test_any_variable_reaches_codex(environ: dict[str, str]) -> None:
    wanted = {**ENTRY, **({"env": environ} if environ else {})}
    assert tomllib.loads(added("model = 1 # mine", "codex", **environ))["mcp_servers"]["remembrancer"] == wanted


# --- Hooks in a client's settings: ours are there once, and nobody else's are touched.
CLAUDE = client_named("claude-code")
PLACE = ClientFile("project", "hooks", Path("/src/app/.claude/settings.json"), "hooks")
RUN = "/opt/my tools/remembrancer"
OTHERS = {"matcher": "Bash", "hooks": [{"type": "command", "command": "lint --all"}]}


def with_hooks(text: str, program: str = RUN, **environ: str) -> str:
    return merge(CLAUDE, PLACE, text, (program, "mcp"), environ)


def test_a_new_file_of_the_project_or_the_user_has_a_command_for_every_event() -> None:
    assert CLAUDE.place(around(), "project", "hooks") == PLACE
    found = [CLAUDE.place(each, "user", "hooks") for each in (around(), around(CLAUDE_CONFIG_DIR="/c"))]
    paths = [Path("/home/ana/.claude/settings.json"), Path("/c/settings.json")]
    assert [place.path for place in found if place] == paths
    text = with_hooks("")
    hooks = json.loads(text)["hooks"]
    assert set(hooks) == set(HOOK_EVENTS) - {"PostToolUseFailure", "PostCompact"}, "older releases know all of these"
    assert hooks["Stop"] == [
        {"hooks": [{"type": "command", "command": "'/opt/my tools/remembrancer' hook Stop", "timeout": 10}]}
    ]
    assert hooks["PreToolUse"][0]["matcher"] == "*"
    assert with_hooks(text) == with_hooks(with_hooks("", "/old/remembrancer")) == text, "what lay elsewhere is replaced"


@pytest.mark.parametrize(
    ("name", "event", "matcher"),
    [("codex", "Stop", {}), ("gemini-cli", "AfterTool", {"matcher": "*"}), ("cursor", "beforeSubmitPrompt", None)],
)
def test_each_client_gets_its_hooks_and_loses_them(name: str, event: str, matcher: dict[str, Any] | None) -> None:
    client = client_named(name)
    place = client.place(around(), "user", "hooks")
    assert place is not None
    text = merge(client, place, '{"mine": 1}', COMMAND, {})
    command = f"{COMMAND[0]} hook {event} {name}"
    typed = {"type": "command", "command": command}
    hooks = json.loads(text)["hooks"]
    assert json.loads(text).get("version") == (1 if client.flat else None)
    assert hooks[event] == [{"command": command} if matcher is None else {**matcher, "hooks": [typed]}]
    assert {EVENTS_BY_NAME[each] for each in hooks} == set(client.events)
    assert json.loads(merge(client, place, text, None, {})).keys() == json.loads(text).keys() - {"hooks"}
    assert merge(client, place, merge(client, place, "", COMMAND, {}), None, {}) == ""


@pytest.mark.parametrize("text", ["[]", "{", '{"hooks": []}', '{"hooks": {"Stop": {}}}', '// x\n{"hooks": {}}'])
def test_settings_that_cannot_be_changed_safely_are_refused(text: str) -> None:
    with pytest.raises(FileRefused):
        with_hooks(text)


def test_a_command_of_ours_is_known_by_what_it_runs_and_has_its_home() -> None:
    command = json.loads(with_hooks("", REMEMBRANCER_HOME="/my home"))["hooks"]["Stop"][0]["hooks"][0]["command"]
    assert command == "REMEMBRANCER_HOME='/my home' '/opt/my tools/remembrancer' hook Stop"
    for ours in (command, "/x/python -P -m remembrancer hook Stop"):
        assert is_our_command(ours)
    for other in ("remembrancer mcp", "lint hook", "echo 'remembrancer hook Stop'", "'unclosed", 7, None):
        assert not is_our_command(other), other
