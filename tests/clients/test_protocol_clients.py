"""The conformance suite, the MCP Inspector and mcp-remote: clients that are not ours, over stdio and HTTP.

They need Node and what `make conformance` installs; without them those tests are skipped.
"""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from remembrancer.toolsets.memory.resources import FIXED
from remembrancer.toolsets.tools import load_tools
from tests.conftest import PATIENT_ENVIRONMENT
from tests.patience import PATIENCE_S
from tests.processes.http_door import Door

CLIENTS = Path(os.environ.get("REMEMBRANCER_CLIENTS", Path(__file__).parents[2] / ".clients")) / "node_modules" / ".bin"
"""Where the commands of clients that are not ours are."""
INSPECTOR = CLIENTS / "mcp-inspector"


def needs(client: str) -> pytest.MarkDecorator:
    there = (CLIENTS / client).exists() and (CLIENTS / "node").exists()
    return pytest.mark.skipif(not there, reason=f"{client} or its Node is not installed: run `make conformance`")


TOOLS = {tool.name for tool in load_tools() if tool.toolset == "memory"}


class Inspector:
    """One session after the other: each call starts the command of a client's configuration, as the Inspector does."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._environ = {name: value for name, value in os.environ.items() if name != "REMEMBRANCER_CLIENTS"}
        self._environ["HOME"] = str(home)

    def run(self, method: str, *options: str, exit_status: int = 0) -> dict[str, Any]:
        done = subprocess.run(
            [
                *(str(INSPECTOR), "--cli", "-q", "--format", "json", "-e", f"REMEMBRANCER_HOME={self._home}"),
                *("-e", "REMEMBRANCER_SESSION_ID=session:inspected", "--cwd", str(self._home)),
                *("-e", "REMEMBRANCER_CONSOLIDATOR=0"),  # each call ends the session, which may promote its memory
                *(part for name, value in PATIENT_ENVIRONMENT.items() for part in ("-e", f"{name}={value}")),
                *(str(Path(sys.executable).with_name("remembrancer")), "mcp", "--method", method, *options),
            ],
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            env=self._environ,
            check=False,
        )
        assert done.returncode == exit_status, f"{method} {options}: {done.stdout}\n{done.stderr}"
        result: dict[str, Any] = json.loads(done.stdout)["result"]
        return result

    def call(self, tool: str, *, exit_status: int = 0, **arguments: Any) -> dict[str, Any]:
        result = self.run(
            "tools/call", "--tool-name", tool, "--tool-args-json", json.dumps(arguments), exit_status=exit_status
        )
        assert json.loads(result["content"][0]["text"]) == result["structuredContent"]
        answer: dict[str, Any] = result["structuredContent"]
        return answer


@needs("mcp-inspector")
def test_tools_resources_and_prompts_answer_the_inspector(home: Path) -> None:
    inspector = Inspector(home)
    listed = inspector.run("tools/list", "--strict")
    assert {tool["name"] for tool in listed["tools"]} == TOOLS
    entity = {"name": "AuthService", "type": "component", "relationship": "describes"}
    given: Any = {
        "content": "AuthService prefers tabs",
        "type": "semantic",
        "scope": "user",
        "related_entities": [entity],
    }
    memory = inspector.call("store_memory", **given)["memory_id"]
    assert inspector.call("recall_memories", query="AuthService")["memories"][0]["id"] == memory
    assert inspector.call("update_memory", memory_id=memory, metadata={"ticket": "T-1"})["version"] == 2
    assert inspector.call("get_memory", memory_id=memory, detail=True)["metadata"] == {"ticket": "T-1"}
    mistake = inspector.call("recall_memories", exit_status=5, query="x", limt=3)
    assert (mistake["error"], mistake["field"]) == ("invalid_input", "limt")
    resources = {each["uri"] for each in inspector.run("resources/list")["resources"]}
    assert resources == set(FIXED)
    for uri in (*resources, f"memory://memory/{memory}"):
        (content,) = inspector.run("resources/read", "--uri", uri)["contents"]
        assert content["uri"] == uri
        assert content["text"]
    templates = inspector.run("resources/templates/list")["resourceTemplates"]
    assert [each["uriTemplate"] for each in templates] == ["memory://memory/{id}"]
    prompts = {each["name"] for each in inspector.run("prompts/list")["prompts"]}
    assert prompts == {"remember", "remember-all", "recall", "what-do-you-know-about", "forget", "memory"}
    got = inspector.run("prompts/get", "--prompt-name", "recall", "--prompt-args", "topic=tabs")
    assert "recall_memories" in json.dumps(got["messages"])


FITTING = {
    *("server-initialize", "ping", "tools-list", "tools-call-error", "resources-list", "prompts-list"),
    *("server-sse-multiple-streams", "dns-rebinding-protection"),
}
"""The scenarios that ask for no tool, resource or prompt by a name of the suite's own."""


def node_environment(home: Path) -> dict[str, str]:
    return {"PATH": f"{CLIENTS}:{os.environ['PATH']}", "HOME": str(home)}


async def node(home: Path, *arguments: str, timeout_s: float = 4 * PATIENCE_S) -> subprocess.CompletedProcess[str]:
    how: dict[str, Any] = {"capture_output": True, "text": True, "timeout": timeout_s, "env": node_environment(home)}
    return await asyncio.to_thread(lambda: subprocess.run(arguments, check=False, **how))


@needs("conformance")
@pytest.mark.usefixtures("without_embedders")
async def test_every_scenario_for_a_server_of_other_tools_passes(door: Door, tmp_path: Path) -> None:
    await asyncio.to_thread(lambda: door.start(no_token=True))
    for name in FITTING:
        results = tmp_path / name
        command = ("server", "--url", door.url, "-o", str(results), "--scenario", name)
        ran = await node(door.home, str(CLIENTS / "conformance"), *command)
        files = list(results.rglob("checks.json"))
        statuses = {each["status"] for file in files for each in json.loads(file.read_text())}
        assert "SUCCESS" in statuses, (name, ran.stdout + ran.stderr)
        assert "FAILURE" not in statuses, (name, ran.stdout)


@needs("mcp-remote")
@pytest.mark.usefixtures("without_embedders")
async def test_mcp_remote_carries_a_client_on_stdio_to_the_server(door: Door) -> None:
    token = door.token("remote", "--project", str(door.home))
    await asyncio.to_thread(door.start)
    command = [door.url, "--allow-http", "--transport", "http-only", "--header", "Authorization:${AUTH_HEADER}"]
    environ = {**node_environment(door.home), "AUTH_HEADER": f"Bearer {token}"}
    parameters = StdioServerParameters(command=str(CLIENTS / "mcp-remote"), args=command, env=environ)
    async with Client(stdio_client(parameters), mode="legacy") as client:
        assert {each.name for each in (await client.list_tools()).tools} == TOOLS
        await client.call_tool("store_memory", {"content": "The lamp is green"})
        found = (await client.call_tool("recall_memories", {"query": "green lamp"})).structured_content
        assert found is not None
        assert found["memories"][0]["content"] == "The lamp is green"
