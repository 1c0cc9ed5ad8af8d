import io
import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from bench.client import StdioClient
from remembrancer.command_line import main
from remembrancer.commands import exit_codes
from remembrancer.commands.clients import clients
from tests.cases import cases
from tests.forked import run_command
from tests.patience import PATIENCE_S, wait_until
from tests.processes.runtimes import is_dead

COMMAND = str(Path(sys.executable).with_name("remembrancer"))


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A user's home directory of its own, with a project `app` in it, which is the working directory."""
    for variable in [name for name in os.environ if name.startswith(("REMEMBRANCER_", "MEMORY_", "XDG_", "CLAUDE_"))]:
        monkeypatch.delenv(variable)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", f"{Path(COMMAND).parent}:/usr/bin:/bin")
    (tmp_path / "app").mkdir()
    monkeypatch.chdir(tmp_path / "app")
    yield tmp_path
    assert not (tmp_path / ".local").exists(), "the user's memory was touched"
    homes = {process.pid: process.info["environ"] or {} for process in psutil.process_iter(["environ"])}
    ending = [pid for pid, environ in homes.items() if environ.get("HOME") == str(tmp_path) and pid != os.getpid()]
    wait_until(lambda: all(map(is_dead, ending)))  # a launcher's, that has let its lock go


def setup(*arguments: str, check: bool = False) -> subprocess.CompletedProcess[str]:
    line = ["setup", *arguments, *([] if check else ["--no-check"])]
    done = run_command(*line, environ=os.environ, timeout_s=PATIENCE_S)
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def read(path: Path) -> Any:
    return json.loads(path.read_text())


def test_a_configuration_with_which_no_memory_starts_is_named(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REMEMBRANCER_HOME", str(machine / "memory"))
    (machine / "memory").mkdir()
    (machine / "memory/config.toml").write_text("embeders = 3\n")
    done = setup("claude-code")
    assert done.returncode == exit_codes.CONFIGURATION
    assert "no runtime can start until this is fixed" in done.stderr
    assert "did you mean embedders" in done.stderr


async def test_a_client_that_starts_it_remembers(machine: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = setup("claude-code")
    assert done.returncode == exit_codes.OK
    assert "remembrancer setup claude-code --hooks" in done.stdout
    assert "Claude Code was not found on this machine, but is set up for later" in done.stderr
    entry = read(machine / ".claude.json")["mcpServers"]["remembrancer"]
    assert entry["env"] == {"REMEMBRANCER_HOME": str(home)}
    monkeypatch.delenv("REMEMBRANCER_HOME")
    monkeypatch.setattr("bench.client.command_line", lambda: [entry["command"], *entry["args"]])
    environ = {**entry["env"], "REMEMBRANCER_EMBEDDERS": "0"}
    async with StdioClient(home, cwd=machine / "app", environ=environ) as client:
        await client.store("Ana prefers short answers.")
        answer = await client.call("recall_memories", query="short answers", strategy="keyword")
        assert [memory["content"] for memory in answer["memories"]] == ["Ana prefers short answers."]


def test_everything_else_in_a_file_is_kept_with_its_mode(machine: Path) -> None:
    file = machine / ".claude.json"
    text = '{\n\t"numStartups": 1.5,\n\t"mcpServers": {\n\t\t"z": {\n\t\t\t"command": "z"\n\t\t}\n\t},\n\t"a": "é"\n}\n'
    file.write_text(text)
    file.chmod(0o640)
    assert setup("claude-code").returncode == exit_codes.OK
    assert list(read(file)["mcpServers"]) == ["z", "remembrancer"]
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    file.with_name(".claude.json.bak").write_text('{"theme": "of another program"}')
    assert setup("claude-code", "--remove").returncode == exit_codes.OK
    assert file.read_text() == text, "to the byte"
    assert names(machine) == [".claude.json", ".claude.json.bak", "app"]


@pytest.mark.parametrize("text", ['{ // mine\n  "servers": {}\n}\n', "\xff"])
def test_a_file_that_cannot_be_read_safely_is_left_as_it_is_with_what_to_paste(machine: Path, text: str) -> None:
    file = machine / "app/.vscode/mcp.json"
    file.parent.mkdir()
    file.write_text(text, encoding="latin-1")
    before = file.read_bytes()
    done = setup("vscode", "--project", check=True)
    assert (done.returncode, file.read_bytes(), names(file.parent)) == (exit_codes.REFUSED, before, ["mcp.json"])
    paste = json.loads(done.stdout[done.stdout.index('{\n  "servers"') :])
    assert paste == {"servers": {"remembrancer": {"type": "stdio", "command": "remembrancer", "args": ["mcp"]}}}
    assert "Traceback" not in done.stderr


def test_printing_writes_nothing(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REMEMBRANCER_HOME", str(machine / "memory"))  # which is no matter of a project's file
    done = setup("vscode", "--project", "--print")
    entry = {"type": "stdio", "command": "remembrancer", "args": ["mcp"]}
    assert json.loads(done.stdout) == {"servers": {"remembrancer": entry}}
    assert str(machine / "app/.vscode/mcp.json") in done.stderr
    hooks = setup("claude-code", "--hooks", "--print")
    assert f"{COMMAND} hook Stop" in hooks.stdout
    assert str(machine / ".claude/settings.json") in hooks.stderr
    assert (names(machine), names(machine / "app")) == (["app"], [])


def test_without_a_client_it_says_what_there_is_and_writes_nothing(machine: Path) -> None:
    (machine / ".cursor/extensions").mkdir(parents=True)
    (machine / ".gemini").mkdir()  # as setup with --remove leaves it
    (machine / ".claude").mkdir()
    setup("claude-code")
    done = setup()
    assert done.returncode == exit_codes.OK
    assert "Nothing was written." in done.stdout
    said = {each["client"]: each for each in json.loads(setup("--json").stdout)["clients"]}
    assert said.keys() == {client.name for client in clients()}
    assert {client for client, each in said.items() if each["found"]} == {"claude-code", "cursor"}
    assert (said["claude-code"]["state"], said["cursor"]["state"]) == ("set up", "not set up")
    assert "gemini-cli" in done.stdout.partition("Not found on this machine, but can be set up: ")[2]
    assert (names(machine / ".cursor"), names(machine / "app")) == (["extensions"], [])


def test_all_that_were_found_are_set_up_and_no_others(machine: Path) -> None:
    (machine / ".cursor/extensions").mkdir(parents=True)
    (machine / ".config/Claude/Cache").mkdir(parents=True)
    said = json.loads(setup("all-found", "--json").stdout)
    files = [".config/Claude/claude_desktop_config.json", ".cursor/mcp.json"]
    assert sorted(each["path"] for each in said["clients"]) == [str(machine / file) for file in files]
    assert names(machine / "app") == []
    assert names(machine / ".config") == ["Claude"]


def test_a_wrong_command_line_is_refused_with_the_reason(machine: Path) -> None:
    for arguments, word in cases("setup", "wrong"):
        done = setup(*arguments.split())
        assert (done.returncode, word in done.stderr, "Traceback" in done.stderr) == (exit_codes.USAGE, True, False)
        assert names(machine / "app") == []


@pytest.mark.parametrize(("arguments", "word"), cases("setup", "partly"))
def test_the_entry_is_written_also_without_hooks_or_rules(machine: Path, arguments: list[str], word: str) -> None:
    done = setup(*arguments)
    assert done.returncode == exit_codes.OK, done.stderr
    assert word in done.stderr + done.stdout
    files = [path for path in machine.rglob("*") if path.is_file()]
    assert any("remembrancer" in path.read_text(errors="replace") for path in files)


def test_hooks_are_written_beside_the_entry_and_removed_with_it(machine: Path) -> None:
    settings = machine / "app/.claude/settings.json"
    settings.parent.mkdir()
    before = '{"model": "x", "hooks": {"Stop": [{"hooks": [{"type": "command", "command": "x"}]}]}}'
    settings.write_text(before)
    done = setup("claude-code", "--project", "--hooks")
    assert done.returncode == exit_codes.OK, done.stderr
    assert "first prompt" not in done.stdout, "it has been done"
    assert names(machine / "app") == [".claude", ".mcp.json"]
    hooks = read(settings)["hooks"]
    assert hooks["Stop"][0]["hooks"][0]["command"] == "x"
    command = hooks["UserPromptSubmit"][0]["hooks"][0]["command"]
    assert command == "remembrancer hook UserPromptSubmit"
    written = settings.read_text()
    assert setup("claude-code", "--project", "--hooks").stdout.count("nothing to do") == 2
    assert settings.read_text() == written
    setup("claude-code")
    assert setup("claude-code", "--project", "--remove").returncode == exit_codes.OK
    assert "remembrancer" in read(machine / ".claude.json")["mcpServers"], "the user's stays"
    assert read(settings) == json.loads(before)
    assert names(machine / "app") == [".claude"], "a file that held nothing but our entry is gone"
    assert names(settings.parent) == ["settings.json"]
    setup("claude-code", "--project")
    assert setup("claude-code", "--remove").returncode == exit_codes.OK
    assert names(machine / "app") == [".claude"], "without --project, both are removed"
    assert not (machine / ".claude.json").exists()


def test_a_broken_command_is_seen(
    machine: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = machine / "bin/remembrancer"
    broken.parent.mkdir()
    broken.write_text("#!/bin/sh\necho no module named remembrancer >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setattr(sys, "argv", [str(broken)])
    assert main(["setup", "claude-code"]) == exit_codes.FAILED
    printed = capsys.readouterr().out
    assert ("no module named remembrancer" in printed, "doctor" in printed) == (True, True)
    assert "Next:" not in printed


@pytest.mark.parametrize("answer", ["y", "n"])
def test_own_memories_are_read_if_one_says_yes(machine: Path, monkeypatch: pytest.MonkeyPatch, answer: str) -> None:
    note = machine / ".codex" / "memories" / "a.md"
    note.parent.mkdir(parents=True)
    note.write_text("The user prefers tabs.\n")
    home = machine / "home"
    monkeypatch.setenv("REMEMBRANCER_HOME", str(home))
    assert "(codex 1)" in setup("codex").stdout, "nobody can be asked"
    assert not (home / "config.toml").exists()
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"{answer}\n"))
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    main(["setup", "codex", "--no-check"])
    assert (home / "config.toml").exists() is (answer == "y")
