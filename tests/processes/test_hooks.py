"""Hooks as a client runs them: recorded whatever runs, taken in once, answered in time, and never in the way."""

import asyncio
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from remembrancer.actors.gateway.shown_log import ShownLog
from remembrancer.commands.hook import Hook
from remembrancer.commands.runtime_client import is_up
from remembrancer.protocol.file_locks import FileLock
from remembrancer.protocol.paths import RuntimePaths
from tests.forked import run_command
from tests.patience import PATIENCE_S, wait_until
from tests.runtime import Runtime, done, start
from tests.spaces import rows_if_there, spoil_page

pytestmark = pytest.mark.usefixtures("without_embedders")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("REMEMBRANCER_HOOK_WAIT_S", f"{PATIENCE_S}")
    directory = tmp_path / "app"
    directory.mkdir()
    return directory


def run(stdin: bytes, *arguments: str, **environ: str) -> subprocess.CompletedProcess[bytes]:
    """A hook, forked; nothing may ever make it fail."""
    whole = {**os.environ, **environ}
    finished = run_command("hook", *arguments, environ=whole, stdin=stdin, timeout_s=2 * PATIENCE_S)
    assert finished.returncode == 0
    assert b"Traceback" not in finished.stderr
    return finished


def hook(event: str, project: Path, session: str = "s", **given: Any) -> subprocess.CompletedProcess[bytes]:
    whole = {"session_id": session, "cwd": str(project), "hook_event_name": event, **given}
    return run(json.dumps(whole).encode(), event)


def context_in(finished: subprocess.CompletedProcess[bytes], event: str) -> str:
    said = json.loads(finished.stdout)["hookSpecificOutput"]
    assert said["hookEventName"] == event
    text: str = said["additionalContext"]
    return text


def waiting(home: Path) -> list[str]:
    return sorted(path.name for path in RuntimePaths(home).hooks.glob("*.event"))


def rows(home: Path, query: str) -> list[tuple[Any, ...]]:
    return rows_if_there(RuntimePaths(home).database, query)


EVENT = b'{"session_id": "s", "cwd": "/", "last_assistant_message": "x"}'
TURNS = "SELECT role, content FROM turns ORDER BY session_id, turn_number"


def test_what_happens_in_a_session_gets_into_its_records(home: Path, project: Path) -> None:
    tool: dict[str, Any] = {"tool_name": "Bash", "tool_input": {"command": "make test"}, "tool_use_id": "toolu_1"}
    start(home)
    hook("SessionStart", project, source="startup")
    hook("UserPromptSubmit", project, prompt="Run the tests")
    hook("PreToolUse", project, **tool)
    hook("PostToolUse", project, **tool, tool_response={"stdout": "3 passed", "stderr": ""})
    hook("SubagentStop", project, last_assistant_message="The tests live in tests/.")
    hook("Stop", project, last_assistant_message="It is green.")
    hook("SessionEnd", project, reason="logout")
    wait_until(lambda: waiting(home) == [])
    ending = "SELECT ending FROM sessions WHERE session_id = 's'"
    wait_until(lambda: rows(home, ending) == [("completed",)])
    assert rows(home, TURNS) == [
        ("user", "Run the tests"),
        ("tool", "The tests live in tests/."),
        ("assistant", "It is green."),
    ]
    calls = rows(home, "SELECT tool_name, json(arguments), result_summary, success FROM tool_calls")
    assert calls == [("Bash", '{"command":"make test"}', "3 passed", 1)]


def test_no_event_is_lost_or_doubled_by_gateways_and_stores_that_are_killed(home: Path, project: Path) -> None:
    start(home)
    runtime = Runtime(home)
    for number in range(12):
        hook("Stop", project, last_assistant_message=f"answer {number}")
        if number in (3, 8):
            runtime.kill("gateway")
        if number == 6:
            runtime.kill("store")
    expected = [("assistant", f"answer {number}") for number in range(12)]
    wait_until(lambda: rows(home, TURNS) == expected)
    wait_until(lambda: waiting(home) == [])
    assert rows(home, TURNS) == expected


def add(project: Path, text: str, *options: str) -> None:
    done("add", text, *options, home=Path(os.environ["REMEMBRANCER_HOME"]), directory=project)


def remember(project: Path) -> None:
    add(project, "The deployment of the aardvark service runs on Fridays.", "--importance", "0.9")
    add(project, "The user likes short answers.", "--user", "--tag", "preference")


AARDVARK = "When is the aardvark deployment?"


def prompted(project: Path, prompt: str, session: str = "s") -> str:
    finished = hook("UserPromptSubmit", project, session, prompt=prompt)
    return context_in(finished, "UserPromptSubmit") if finished.stdout else ""


def test_a_session_is_told_all_once_and_what_is_new(home: Path, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REMEMBRANCER_EMBEDDERS", "1")  # without any for some seconds, nothing counts as likely
    start(home)
    remember(project)
    assert hook("SessionStart", project, source="startup").stdout == b""
    given = {"session_id": "s", "cwd": str(project), "prompt": AARDVARK}
    with Runtime(home).suspended("gateway"):
        late = run(json.dumps(given).encode(), "UserPromptSubmit", REMEMBRANCER_HOOK_WAIT_S="0.1")
    assert late.stdout == b"", "it is not waited for, and the next prompt is the first"
    told = wait_until(lambda: prompted(project, AARDVARK))
    assert "short answers" in told
    assert "aardvark" in told
    add(project, "The deployment of the badger service runs on Mondays.", "--importance", "0.9")
    wait_until(lambda: asyncio.run(Runtime(home).is_drained()))  # words alone do not make it as likely
    told = wait_until(
        lambda: prompted(project, "When is the badger deployment?")
    )  # one that took too long, gets nothing
    assert "badger" in told
    assert "short answers" not in told
    assert prompted(project, AARDVARK) == "", "it has been given that"
    assert prompted(project, "qwertz") == ""
    assert hook("PostToolUse", project, tool_name="Bash").stdout == b""

    hook("PreCompact", project, trigger="auto")
    hook("PostCompact", project, trigger="auto", compact_summary="We spoke of aardvarks.")
    told = context_in(hook("SessionStart", project, source="compact"), "SessionStart")
    assert "short answers" in told
    assert "aardvark" in told
    assert prompted(project, AARDVARK) == ""
    hook("PreCompact", project, trigger="manual")
    assert "short answers" in wait_until(lambda: prompted(project, AARDVARK))
    wait_until(lambda: ("system", "We spoke of aardvarks.") in rows(home, TURNS))


def without_reader(event: str, project: Path, **given: Any) -> bytes:
    """What a hook says on standard error whose client reads nothing."""
    whole = json.dumps({"session_id": "s", "cwd": str(project), **given}).encode()
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as output:
        command = [sys.executable, "-P", "-m", "remembrancer", "hook", event]
        return subprocess.run(command, input=whole, stdout=output, stderr=subprocess.PIPE, check=True).stderr


def shown(home: Path) -> list[str]:
    return [each.question for each in ShownLog(home, kept_s=0.0).read()]


def test_only_what_could_be_printed_counts_as_given(home: Path, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REMEMBRANCER_ACTION_WAIT_S", f"{PATIENCE_S}")
    start(home)
    add(project, RULE, "--kind", "convention")
    assert b"no context is given" in without_reader("UserPromptSubmit", project, prompt=AARDVARK)
    tool = {"file_path": "src/sums.py", "old_string": "", "new_string": "def get_sum(values):\n    return 0\n"}
    assert b"no context is given" in without_reader("PreToolUse", project, tool_name="Edit", tool_input=tool)
    assert RULE in edit(project)["additionalContext"]
    wait_until(lambda: shown(home) == ["src/sums.py"])
    assert RULE in prompted(project, AARDVARK, "another")
    wait_until(lambda: shown(home) == [AARDVARK, "src/sums.py"])


def test_a_prompt_to_a_damaged_memory_is_complained_of_with_what_repairs_it(home: Path, project: Path) -> None:
    start(home)
    remember(project)
    asyncio.run(Runtime(home).down())
    spoil_page(RuntimePaths(home).database, "memories", 1)
    start(home)
    given = {"session_id": "s", "cwd": str(project), "prompt": AARDVARK}
    finished = run(json.dumps(given).encode(), "UserPromptSubmit", REMEMBRANCER_HOOK_WAIT_S="10")
    assert finished.stdout == b""
    assert (b"doctor --repair" in finished.stderr, b"not recorded" in finished.stderr) == (True, False)


def test_on_a_cold_start_the_runtime_is_started_and_not_waited_for(
    home: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REMEMBRANCER_HOOK_WAIT_S", "0.05")
    assert hook("UserPromptSubmit", project, prompt=AARDVARK).stdout == b""
    is_starting = FileLock(RuntimePaths(home).start_lock).is_held_elsewhere()
    assert is_starting or is_up(RuntimePaths(home)), "nobody starts a second one meanwhile"
    wait_until(lambda: is_up(RuntimePaths(home)))
    monkeypatch.setenv("REMEMBRANCER_HOOK_WAIT_S", f"{PATIENCE_S}")
    remember(project)
    assert "short answers" in prompted(project, AARDVARK)


def test_broken_input_and_a_home_that_is_none_are_complained_of_and_fail_nobody(home: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    assert run(b"", "Stop", "--help").stdout.startswith(b"usage: ")
    for stdin, *arguments in ((b"\xff\xfe\x00", "Stop"), (b"[" * 200_000, "Stop"), (b"{}",), (EVENT, "Stop")):
        elsewhere = {"REMEMBRANCER_HOME": str(tmp_path / "file" / "home")} if stdin == EVENT else {}
        finished = run(stdin, *arguments, **elsewhere)
        assert finished.stdout == b""
        assert finished.stderr.startswith(b"remembrancer hook: ")
    assert waiting(home) == []


def test_a_pipe_that_is_kept_open_is_not_waited_for_nor_an_output_that_nobody_reads(home: Path) -> None:
    silent = ["sh", "-c", f"'{sys.executable}' -P -m remembrancer hook Stop >&- 2>&-"]
    with subprocess.Popen(silent, stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        process.stdin.write(EVENT)
        process.stdin.flush()
        assert process.wait(PATIENCE_S) == 0
    assert len(waiting(home)) == 1


def edit(project: Path, session: str = "s", *client: str) -> dict[str, str]:
    tool = {"file_path": "src/sums.py", "old_string": "", "new_string": "def total(values):\n    return sum(values)\n"}
    given = {"session_id": session, "cwd": str(project), "tool_name": "Edit", "tool_use_id": "e", "tool_input": tool}
    finished = run(json.dumps(given).encode(), "PreToolUse", *client, REMEMBRANCER_ACTION_WAIT_S=f"{PATIENCE_S}")
    return json.loads(finished.stdout)["hookSpecificOutput"] if finished.stdout else {}


RULE = "For sums, function names never start with get_."


def test_a_convention_is_told_once_in_a_session_before_an_edit_on_which_it_bears(home: Path, project: Path) -> None:
    start(home)
    add(project, RULE, "--kind", "convention", "--on", "2026-02-20")
    told = edit(project)
    assert told["hookEventName"] == "PreToolUse"
    assert f"{RULE} (agreed 2026-02-20)" in told["additionalContext"]
    assert edit(project) == {}
    assert RULE in edit(project, "another")["additionalContext"]
    assert edit(project, "third", "gemini") == {}, "it takes no context before a tool"
    looking = {"tool_name": "Bash", "tool_use_id": "l", "tool_input": {"command": "git log | head"}}
    assert hook("PreToolUse", project, "fourth", **looking).stdout == b""
    environ = {**os.environ, "REMEMBRANCER_ACTION_WAIT_S": f"{PATIENCE_S}"}
    began = time.monotonic() - 2 * PATIENCE_S
    late = Hook("PreToolUse", "claude-code", {"session_id": "late", "cwd": str(project)}, environ, began)
    answer = late.ask_about({"path": "src/sums.py", "old": "", "new": "def get_sum(values):\n"}, [])
    assert answer is not None, "the time counts from the question on"
    assert RULE in answer["context_block"]


def test_a_rule_that_says_never_has_the_user_asked(home: Path, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REMEMBRANCER_BEFORE_ACTIONS", "ask")
    start(home)
    add(project, RULE, "--kind", "convention")
    asked = edit(project)
    assert (asked["permissionDecision"], "additionalContext" in asked) == ("ask", False)
    assert RULE in asked["permissionDecisionReason"]
    assert RULE in edit(project, "another", "codex")["additionalContext"], "which takes no question"
