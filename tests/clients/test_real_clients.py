"""Real command lines of assistants, connected by what `setup` wrote: listed, and started cold with a scripted model.

They need Node and the clients, which `make clients` installs; without them these tests are skipped.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.cases import cases
from tests.clients.test_protocol_clients import CLIENTS, TOOLS
from tests.patience import until
from tests.ports import QuietHandler, serving
from tests.runtime import Runtime

COMMAND = str(Path(sys.executable).with_name("remembrancer"))
REPOSITORY = Path(__file__).parents[2]
SERVER = "mcp__remembrancer"
ANSWER_S = 200.0
FACT = "The staging cluster is upgraded on Thursdays."
ARGUMENTS = json.dumps({"content": FACT, "scope": "project", "type": "semantic"})

Json = dict[str, Any]
Events = list[Json]

pytestmark = pytest.mark.timeout(300)


def needs(client: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(not (CLIENTS / client).exists(), reason=f"{client} is not installed: run `make clients`")


class Script:
    """A model that has one thing to say: store a fact, and that it is done when it sees a tool's result."""

    def __init__(self, answer: Callable[[Json], Events]) -> None:
        self.requests: list[Json] = []
        self._answer = answer

    @contextmanager
    def served(self) -> Iterator[str]:
        script = self

        class Handler(QuietHandler):
            def answer(self) -> None:
                request = self.asked()
                script.requests.append(request)
                events = script._answer(request)
                named = [f"event: {each['type']}\n" if "type" in each else "" for each in events]
                lines = [f"{name}data: {json.dumps(each)}\n\n" for name, each in zip(named, events, strict=True)]
                self.reply(200, "".join(lines).encode(), "text/event-stream")

        with serving(Handler) as address:
            yield address


def claude_says(request: Json, *facts: str, server: str = SERVER) -> Events:
    """An answer of the Messages API (https://platform.claude.com/docs/en/build-with-claude/streaming): one fact more is
    stored than there are results of tools, and then all is done."""
    stored = json.dumps(request["messages"]).count('"tool_result"')
    if offered_by_claude(request, server) and stored < len(facts):
        arguments = json.dumps({"content": facts[stored], "scope": "project", "type": "semantic"})
        block = {"type": "tool_use", "id": f"toolu_{stored}", "name": f"{server}__store_memory", "input": {}}
        delta, reason = {"type": "input_json_delta", "partial_json": arguments}, "tool_use"
    else:
        block, delta, reason = {"type": "text", "text": ""}, {"type": "text_delta", "text": "Done."}, "end_turn"
    usage = {"input_tokens": 1, "output_tokens": 1}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": request["model"], "content": []}
    return [
        {"type": "message_start", "message": {**message, "stop_reason": None, "stop_sequence": None, "usage": usage}},
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": None}, "usage": usage},
        {"type": "message_stop"},
    ]


def codex_says(request: Json) -> Events:
    """An answer of the Responses API (https://platform.openai.com/docs/api-reference/responses-streaming)."""
    item: Json = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Done."}]}
    if "function_call_output" not in [each["type"] for each in request["input"]]:
        call = {"namespace": SERVER, "name": "store_memory", "arguments": ARGUMENTS}
        item = {"type": "function_call", "id": "fc_1", "call_id": "call_1", **call}
    usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
    return [
        {"type": "response.created", "response": {"id": "resp_1"}},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": {"id": "resp_1", "usage": usage}},
    ]


def gemini_says(_: Json) -> Events:
    """An answer of the Gemini API (https://ai.google.dev/api/generate-content)."""
    return [{"candidates": [{"content": {"role": "model", "parts": [{"text": "Done."}]}, "finishReason": "STOP"}]}]


def qwen_says(_: Json) -> Events:
    """An answer of the Chat Completions API (https://platform.openai.com/docs/api-reference/chat-streaming)."""
    chunk = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "scripted"}
    deltas: list[tuple[Json, str | None]] = [({"role": "assistant", "content": "Done."}, None), ({}, "stop")]
    return [{**chunk, "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]} for delta, reason in deltas]


def offered_by_claude(request: Json, server: str = SERVER) -> set[str]:
    names = [tool["name"] for tool in request.get("tools", ())]
    return {name.removeprefix(f"{server}__") for name in names if name.startswith(server)}


@pytest.fixture
def environ(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The environment of a user with a home directory of their own. Nothing of ours runs at first."""
    for variable in [name for name in os.environ if name.startswith(("ANTHROPIC_", "OPENAI_", "CODEX_"))]:
        monkeypatch.delenv(variable)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("REMEMBRANCER_HOOK_WAIT_S", "10")  # a busy machine takes its time
    (tmp_path / "app").mkdir()
    return dict(os.environ)


def run(environ: dict[str, str], *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        arguments,
        env=environ,
        cwd=Path(environ["HOME"], "app"),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=ANSWER_S,
        check=False,
    )
    assert done.returncode == 0 or not check, done.stdout + done.stderr
    return done


def claude(
    environ: dict[str, str], prompt: str, *options: str, facts: tuple[str, ...] = (), server: str = SERVER
) -> list[Json]:
    script = Script(lambda request: claude_says(request, *facts, server=server))
    with script.served() as address:
        own = {
            "ANTHROPIC_BASE_URL": address,
            "ANTHROPIC_API_KEY": "none",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        }
        allowed = ("--allowedTools", f"{server}__store_memory")
        done = run(environ | own, str(CLIENTS / "claude"), "-p", prompt, *options, *allowed)
    assert "Done." in done.stdout
    return [request for request in script.requests if request.get("tools")]


@needs("claude")
def test_claude_code_started_cold_has_our_tools_at_once_and_stores(home: Path, environ: dict[str, str]) -> None:
    run(environ, COMMAND, "setup", "claude-code", "--no-check")
    turns = claude(environ, "Remember when staging is upgraded.", facts=(FACT,))
    assert offered_by_claude(turns[0]) == TOOLS
    (result,) = blocks_of(turns, "tool_result")
    check_stored(json.dumps(result), home)


def codex(environ: dict[str, str], prompt: str, *options: str) -> list[Json]:
    script = Script(codex_says)
    with script.served() as address:
        provider = {"name": "scripted", "base_url": f"{address}/v1", "wire_api": "responses"}
        lines = [f"{key} = {json.dumps(value)}" for key, value in provider.items()]
        head = 'model = "scripted"\nmodel_provider = "scripted"\n[model_providers.scripted]\n'
        configuration = Path(environ["HOME"], ".codex", "config.toml")
        ours = configuration.read_text()
        configuration.write_text(head + "\n".join(lines) + "\n" + ours)
        done = run(environ, str(CLIENTS / "codex"), "exec", "--skip-git-repo-check", *options, prompt)
    assert "Done." in done.stdout
    return script.requests


@needs("codex")
def test_codex_started_cold_has_our_tools_in_its_first_request_and_stores(home: Path, environ: dict[str, str]) -> None:
    run(environ, COMMAND, "setup", "codex", "--no-check")
    requests = codex(environ, "Remember when staging is upgraded.")
    assert {x["name"] for each in requests[0]["tools"] if each.get("name") == SERVER for x in each["tools"]} == TOOLS
    (result,) = [each for each in requests[-1]["input"] if each["type"] == "function_call_output"]
    check_stored(json.dumps(result), home)


@needs("codex")
async def test_hooks_of_codex_tell_of_its_session_and_give_it_memories(home: Path, environ: dict[str, str]) -> None:
    run(environ, COMMAND, "setup", "codex", "--hooks", "--no-check")
    run(environ, COMMAND, "add", DEPLOY)
    requests = codex(environ, "When is production deployed?", "--dangerously-bypass-hook-trust")
    assert DEPLOY in json.dumps(requests[0]["input"])
    await until(lambda: {"When is production deployed?", "Done."} <= turns_of(home))


@pytest.mark.parametrize(
    ("client", "program", "directory", "says", "chosen", "options"),
    [
        pytest.param(
            *("gemini-cli", "gemini", ".gemini", gemini_says, "gemini-api-key", ["-m", "gemini-2.5-flash"]),
            marks=needs("gemini"),
        ),
        pytest.param(
            *("qwen-code", "qwen", ".qwen", qwen_says, "openai", ["--auth-type", "openai"]), marks=needs("qwen")
        ),
    ],
)
async def test_the_hooks_of_other_command_lines_tell_of_a_session_and_give_it_what_is_remembered_once(
    home: Path,
    environ: dict[str, str],
    client: str,
    program: str,
    directory: str,
    says: Callable[[Json], Events],
    chosen: str,
    options: list[str],
) -> None:
    settings = Path(environ["HOME"], directory, "settings.json")
    settings.parent.mkdir()
    settings.write_text(json.dumps({"security": {"auth": {"selectedType": chosen}}}))  # as a person does at first
    run(environ, COMMAND, "setup", client, "--hooks", "--no-check")
    run(environ, COMMAND, "add", DEPLOY)
    script = Script(says)
    with script.served() as address:
        own = {
            **{"GOOGLE_GEMINI_BASE_URL": address, "GEMINI_API_KEY": "none", "GEMINI_CLI_TRUST_WORKSPACE": "true"},
            **{"OPENAI_BASE_URL": f"{address}/v1", "OPENAI_API_KEY": "none", "OPENAI_MODEL": "scripted"},
        }
        done = run(environ | own, str(CLIENTS / program), "-p", "When is production deployed?", *options)
    assert "Done." in done.stdout
    assert any(DEPLOY in json.dumps(request) for request in script.requests)
    await until(lambda: {"When is production deployed?", "1 memory given with UserPromptSubmit"} <= turns_of(home))
    assert list((home / "hooks" / "running").glob("given-*")), "the next prompt is not the first"


DEPLOY = "Production is deployed on Tuesdays at 14:00 by the release train."
DATABASE = "The customer database is PostgreSQL 15 in the Frankfurt region."
FLAKY = "Flaky end-to-end tests are quarantined in tests/quarantine and not deleted."


@needs("claude")
async def test_a_later_session_of_claude_code_is_given_what_bears_on_it(home: Path, environ: dict[str, str]) -> None:
    run(environ, COMMAND, "setup", "claude-code", "--hooks", "--no-check")
    first = claude(environ, "Remember how we work here.", facts=(DEPLOY, DATABASE, FLAKY))
    assert given(first, "UserPromptSubmit") == set(), "nothing is known yet"
    await until(Runtime(home).is_drained)

    turns = claude(environ, "When is production deployed?")
    assert given(turns, "SessionStart") == set()
    assert DEPLOY in given(turns, "UserPromptSubmit")
    told = len(contexts(turns, "UserPromptSubmit"))
    for prompt in ("write a haiku about autumn", "thanks, looks good", "Say again when production is deployed."):
        turns = claude(environ, prompt, "--continue")
        assert len(contexts(turns, "UserPromptSubmit")) == told == 1, prompt
    turns = claude(environ, "What do we do with flaky tests?", "--continue")
    assert FLAKY in given(turns, "UserPromptSubmit")


PLUGIN = "mcp__plugin_remembrancer_remembrancer"


@needs("claude")
async def test_the_plugin_is_valid_and_serves_and_tells_from_its_folder(home: Path, environ: dict[str, str]) -> None:
    client = str(CLIENTS / "claude")
    environ["PATH"] = f"{Path(COMMAND).parent}:{environ['PATH']}"
    path = run(environ, COMMAND, "claude-plugin-path").stdout.strip()
    for part in (path, f"{path}/.claude-plugin/plugin.json", str(REPOSITORY)):
        run(environ, client, "plugin", "validate", "--strict", part)
    run(environ, client, "plugin", "marketplace", "add", path)
    run(environ, client, "plugin", "install", "remembrancer@remembrancer")
    (plugin,) = json.loads(run(environ, client, "plugin", "list", "--json").stdout)
    assert (plugin["id"], plugin["enabled"]) == ("remembrancer@remembrancer", True)

    turns = claude(environ, "/remembrancer:remember when we deploy", facts=(DEPLOY,), server=PLUGIN)
    assert offered_by_claude(turns[0], PLUGIN) == TOOLS
    assert "when we deploy" in json.dumps(turns[0]["messages"])
    assert "store_memory" in json.dumps(turns[0]["messages"])
    assert "long-term-memory" in json.dumps(turns[0])
    await until(Runtime(home).is_drained)
    assert DEPLOY in given(claude(environ, "When is production deployed?", server=PLUGIN), "UserPromptSubmit")


def given(turns: list[Json], event: str) -> set[str]:
    texts = contexts(turns, event)
    return {fact for fact in (DEPLOY, DATABASE, FLAKY) if any(fact in text for text in texts)}


def contexts(turns: list[Json], event: str) -> list[str]:
    head = f"{event} hook additional context"
    parts = [block["text"].partition(head)[2] for block in blocks_of(turns, "text") if head in block["text"]]
    return [part.split(" hook additional context")[0] for part in parts]


def blocks_of(turns: list[Json], kind: str) -> list[Json]:
    """The blocks of a kind in the last request: a message is a list of them, or one text."""
    contents = [message["content"] for message in turns[-1]["messages"]]
    blocks = [[{"type": "text", "text": each}] if isinstance(each, str) else each for each in contents]
    return [block for several in blocks for block in several if block["type"] == kind]


def turns_of(home: Path) -> set[str]:
    return {text for (text,) in Runtime(home).rows("SELECT content FROM turns")}


def check_stored(result: str, home: Path) -> None:
    assert "memory_id" in result, result
    assert '"error"' not in result.replace("\\", ""), result
    (memory,) = Runtime(home).contents().items()
    assert memory[1] == FACT
    assert memory[0][-4:] in result  # at least the end of its id


@pytest.mark.parametrize("scope", ["user", "project"])
@pytest.mark.parametrize(("client", "command", "said"), cases("clients", "lists"))
def test_a_clients_own_command_finds_our_entry(
    home: Path, environ: dict[str, str], client: str, command: str, said: str, scope: str
) -> None:
    program, *arguments = command.split()
    if not (CLIENTS / program).exists():
        pytest.skip(f"{program} is not installed: run `make clients`")
    if scope == "project" and client in ("claude-code", "codex", "copilot-cli"):
        pytest.skip(f"{program} wants a person to trust a project first")
    path = f"{Path(COMMAND).parent}:{CLIENTS}:{environ['PATH']}"
    environ |= {"PATH": path, "GEMINI_CLI_TRUST_WORKSPACE": "true"}
    where = ["--project"] if scope == "project" else []
    assert "entry added\n" in run(environ, COMMAND, "setup", client, *where, "--no-check").stdout
    assert re.search(said, listed(environ, program, *arguments)), client
    assert "entry removed\n" in run(environ, COMMAND, "setup", client, *where, "--remove").stdout
    assert "remembrancer" not in listed(environ, program, "mcp", "list"), client


def listed(environ: dict[str, str], program: str, *arguments: str) -> str:
    done = run(environ, str(CLIENTS / program), *arguments, check=False)
    return re.sub(r"\x1b\[[0-9;]*m", "", done.stdout + done.stderr)
