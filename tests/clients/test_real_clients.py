"""Claude Code's and Codex's own command lines, connected by what `setup` wrote and started cold, with a scripted model.

They need Node and the clients, which `make clients` installs; without them these tests are skipped.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from tests.clients.test_inspector import CLIENTS, TOOLS
from tests.runtime import Runtime, command

COMMAND = str(Path(sys.executable).with_name("remembrancer"))
SERVER = "mcp__remembrancer"
ANSWER_S = 120.0
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
        """Its address on the loopback."""
        script = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                script.requests.append(request)
                events = script._answer(request)
                body = "".join(f"event: {each['type']}\ndata: {json.dumps(each)}\n\n" for each in events).encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/event-stream")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Nothing is printed."""

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
            server.server_close()


def claude_says(request: Json) -> Events:
    """An answer of the Messages API (https://platform.claude.com/docs/en/build-with-claude/streaming)."""
    if offered_by_claude(request) and "tool_result" not in json.dumps(request["messages"]):
        block = {"type": "tool_use", "id": "toolu_1", "name": f"{SERVER}__store_memory", "input": {}}
        delta, reason = {"type": "input_json_delta", "partial_json": ARGUMENTS}, "tool_use"
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


def offered_by_claude(request: Json) -> set[str]:
    """Our tools in a request of Claude Code's."""
    names = [tool["name"] for tool in request.get("tools", ())]
    return {name.removeprefix(f"{SERVER}__") for name in names if name.startswith(SERVER)}


def offered_by_codex(request: Json) -> set[str]:
    """Our tools in a request of Codex's, which has them in a namespace."""
    return {tool["name"] for each in request["tools"] if each.get("name") == SERVER for tool in each["tools"]}


@pytest.fixture
def environ(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """The environment of a user with a home directory of their own. Nothing of ours runs at first."""
    for variable in [name for name in os.environ if name.startswith(("ANTHROPIC_", "OPENAI_", "CODEX_"))]:
        monkeypatch.delenv(variable)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "app").mkdir()
    yield dict(os.environ)
    command("down", home=home)


def run(environ: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
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
    assert done.returncode == 0, done.stdout + done.stderr
    return done


@needs("claude")
def test_claude_code_started_cold_has_our_tools_in_its_first_request_and_stores(
    home: Path, environ: dict[str, str]
) -> None:
    run(environ, COMMAND, "setup", "claude-code", "--user", "--no-check", "--command", COMMAND)
    script = Script(claude_says)
    with script.served() as address:
        own = {
            "ANTHROPIC_BASE_URL": address,
            "ANTHROPIC_API_KEY": "none",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        }
        allowed = ("--allowedTools", f"{SERVER}__store_memory")
        done = run(environ | own, str(CLIENTS / "claude"), "-p", "Remember when staging is upgraded.", *allowed)
    assert "Done." in done.stdout
    turns = [request for request in script.requests if request.get("tools")]
    assert offered_by_claude(turns[0]) == TOOLS
    (result,) = [
        block
        for message in turns[-1]["messages"]
        if isinstance(message["content"], list)
        for block in message["content"]
        if block["type"] == "tool_result"
    ]
    check_stored(json.dumps(result), home)


@needs("codex")
def test_codex_started_cold_has_our_tools_in_its_first_request_and_stores(home: Path, environ: dict[str, str]) -> None:
    script = Script(codex_says)
    with script.served() as address:
        provider = {"name": "scripted", "base_url": f"{address}/v1", "wire_api": "responses"}
        configuration = Path(environ["HOME"], ".codex", "config.toml")
        configuration.parent.mkdir()
        lines = [f"{key} = {json.dumps(value)}" for key, value in provider.items()]
        head = 'model = "scripted"\nmodel_provider = "scripted"\n[model_providers.scripted]\n'
        configuration.write_text(head + "\n".join(lines))
        run(environ, COMMAND, "setup", "codex", "--no-check", "--command", COMMAND)
        prompt = "Remember when staging is upgraded."
        done = run(environ, str(CLIENTS / "codex"), "exec", "--skip-git-repo-check", prompt)
    assert "Done." in done.stdout
    assert offered_by_codex(script.requests[0]) == TOOLS
    (result,) = [each for each in script.requests[-1]["input"] if each["type"] == "function_call_output"]
    check_stored(json.dumps(result), home)


def check_stored(result: str, home: Path) -> None:
    """What the model was answered, and what is on disk."""
    assert "memory_id" in result, result
    assert '"error"' not in result.replace("\\", ""), result
    (memory,) = Runtime(home).contents().items()
    assert memory[1] == FACT
    assert memory[0] in result
