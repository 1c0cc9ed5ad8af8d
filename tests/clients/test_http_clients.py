"""The conformance suite, mcp-remote and the Inspector over HTTP: clients that are not ours.

They need Node and what `make conformance` installs; without them those tests are skipped.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from tests.clients.conformance_server import served
from tests.clients.test_inspector import CLIENTS, INSPECTOR, TOOLS
from tests.patience import PATIENCE_S
from tests.processes.http_door import Door

pytestmark = [
    pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning"),  # the suite asks for logging
]
FITTING = {
    *("server-initialize", "ping", "tools-list", "tools-call-error", "resources-list", "prompts-list"),
    *("server-sse-multiple-streams", "dns-rebinding-protection"),
}
"""The scenarios that ask for no tool, resource or prompt by a name of the suite's own."""


@pytest.fixture
def few_processes(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A runtime starts sooner without what no test here needs."""
    for name in ("EMBEDDERS", "CONSOLIDATOR"):
        monkeypatch.setenv(f"REMEMBRANCER_{name}", "0")


def needs(client: str) -> pytest.MarkDecorator:
    there = (CLIENTS / client).exists() and (CLIENTS / "node").exists()
    return pytest.mark.skipif(not there, reason=f"{client} or its Node is not installed: run `make conformance`")


def node_environment(home: Path) -> dict[str, str]:
    """Node 22, and nothing of the user's."""
    return {"PATH": f"{CLIENTS}:{os.environ['PATH']}", "HOME": str(home)}


async def node(home: Path, *arguments: str, timeout_s: float = 4 * PATIENCE_S) -> subprocess.CompletedProcess[str]:
    return await asyncio.to_thread(
        lambda: subprocess.run(
            arguments, capture_output=True, text=True, timeout=timeout_s, check=False, env=node_environment(home)
        )
    )


async def checked(home: Path, results: Path, url: str, *options: str) -> dict[str, list[tuple[str, str]]]:
    """Each scenario of the suite that was run, with the name and the outcome of its checks."""
    command = ("server", "--url", url, "-o", str(results), *options)
    ran = await node(home, str(CLIENTS / "conformance"), *command)
    found = {}
    for file in results.rglob("checks.json"):  # in a directory for each scenario
        scenario = file.parent.name.removeprefix("server-").rpartition("-2")[0]
        found[scenario] = [(each["id"], each["status"]) for each in json.loads(file.read_text())]
    assert found, ran.stdout + ran.stderr
    return found


@needs("conformance")
async def test_every_scenario_of_the_conformance_suite_passes_on_the_transport(home: Path, tmp_path: Path) -> None:
    async with served(home) as url:
        outcome = await checked(home, tmp_path, url, "--suite", "all")
    assert len(outcome) >= 32, sorted(outcome)
    failed = {name: checks for name, checks in outcome.items() if any(status == "FAILURE" for _, status in checks)}
    assert not failed


@needs("conformance")
@pytest.mark.usefixtures("few_processes")
async def test_every_scenario_for_a_server_of_other_tools_passes(door: Door, tmp_path: Path) -> None:
    await asyncio.to_thread(lambda: door.start(no_token=True))
    for name in FITTING:
        outcome = await checked(door.home, tmp_path / name, door.url, "--scenario", name)
        statuses = {status for checks in outcome.values() for _, status in checks}
        assert "SUCCESS" in statuses, (name, outcome)
        assert "FAILURE" not in statuses, (name, outcome)


@needs("mcp-remote")
@pytest.mark.usefixtures("few_processes")
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


@needs("mcp-inspector")
@pytest.mark.usefixtures("few_processes")
async def test_the_inspector_calls_a_tool_over_http(door: Door) -> None:
    token = door.token("inspector", "--project", str(door.home))
    await asyncio.to_thread(door.start)

    async def inspect(*options: str) -> Any:
        to_server = ("--server-url", door.url, "--transport", "http", "--header", f"Authorization: Bearer {token}")
        ran = await node(door.home, str(INSPECTOR), "--cli", "-q", "--format", "json", *to_server, *options)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return json.loads(ran.stdout)["result"]

    listed = await inspect("--method", "tools/list", "--strict")
    assert {each["name"] for each in listed["tools"]} == TOOLS
    arguments = json.dumps({"content": "The door is oak"})
    stored = await inspect("--method", "tools/call", "--tool-name", "store_memory", "--tool-args-json", arguments)
    assert stored["structuredContent"]["memory_id"]
