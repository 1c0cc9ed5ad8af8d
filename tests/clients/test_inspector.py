"""Every tool, resource and prompt through the MCP Inspector's command line: a client that is not ours.

It needs Node and the Inspector, which `make conformance` installs; without them these tests are skipped.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import PATIENT_ENVIRONMENT
from tests.patience import PATIENCE_S
from tests.runtime import command

CLIENTS = Path(os.environ.get("REMEMBRANCER_CLIENTS", Path(__file__).parents[2] / ".clients")) / "node_modules" / ".bin"
"""Where the commands of clients that are not ours are."""
INSPECTOR = CLIENTS / "mcp-inspector"

pytestmark = pytest.mark.skipif(
    not INSPECTOR.exists(), reason="the MCP Inspector is not installed: run `make conformance`"
)

TOOLS = {
    "store_memory",
    "recall_memories",
    "search_knowledge_graph",
    "forget_memory",
    "update_memory",
    "get_memory_status",
    "get_memory_context",
    "promote_memory",
    "tag_memory",
    "restore_memory",
    "get_memory",
    "reflect_and_consolidate",
}


class Inspector:
    """One session after the other: each call starts the command of a client's configuration, as the Inspector does."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._environ = {name: value for name, value in os.environ.items() if name != "REMEMBRANCER_CLIENTS"}
        self._environ["HOME"] = str(home)

    def run(self, method: str, *options: str, exit_status: int = 0) -> dict[str, Any]:
        """The result of one request, as the Inspector prints it."""
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
        """A tool's structured answer."""
        result = self.run(
            "tools/call", "--tool-name", tool, "--tool-args-json", json.dumps(arguments), exit_status=exit_status
        )
        assert json.loads(result["content"][0]["text"]) == result["structuredContent"]
        answer: dict[str, Any] = result["structuredContent"]
        return answer


@pytest.fixture
def inspector(home: Path) -> Iterator[Inspector]:
    yield Inspector(home)
    command("down", home=home)


def test_every_tool_answers_the_inspector(inspector: Inspector) -> None:
    listed = inspector.run("tools/list", "--strict")
    assert {tool["name"] for tool in listed["tools"]} == TOOLS
    entities = [
        {"name": "AuthService", "type": "component", "relationship": "describes"},
        {"name": "TokenValidator", "type": "component", "relationship": "depends_on", "subject": "AuthService"},
    ]
    content = "AuthService checks every token with the TokenValidator"
    stored = inspector.call(
        "store_memory", content=content, type="semantic", scope="session", tags=["auth"], related_entities=entities
    )
    memory = stored["memory_id"]
    assert stored["graph_edges_created"] == 2
    while inspector.call("get_memory_status")["embedding"]["pending"]:
        continue  # the model is still being loaded; the deadline of the test is for a hang
    recalled = inspector.call("recall_memories", query="who checks tokens?")
    assert [each["id"] for each in recalled["memories"]] == [memory]
    assert inspector.call("recall_memories", query="AuthService", strategy="graph")["memories"][0]["id"] == memory
    graph = inspector.call("search_knowledge_graph", entity="AuthService")
    assert graph["entities"][0]["relationships"] == [
        {"type": "depends_on", "target": "TokenValidator", "direction": "outgoing"}
    ]
    updated = inspector.call("update_memory", memory_id=memory, importance=0.9, metadata={"ticket": "T-1"})
    assert (updated["updated_fields"], updated["version"]) == (["importance", "metadata"], 2)
    assert "re_embedded" not in updated
    assert inspector.call("tag_memory", memory_id=memory, add=["tokens"])["tags"] == ["auth", "tokens"]
    promoted = inspector.call("promote_memory", memory_id=memory, target_scope="project", reason="of use to all")
    assert (promoted["previous_scope"], promoted["new_scope"]) == ("session", "project")
    assert content in inspector.call("get_memory_context", task_description="token checks")["context_block"]
    assert inspector.call("forget_memory", memory_id=memory, reason="to see")["status"] == "forgotten"
    assert inspector.call("recall_memories", query="who checks tokens?")["memories"] == []
    inspector.call("restore_memory", memory_id=memory)
    whole = inspector.call("get_memory", memory_id=memory, detail=True)
    assert (whole["content"], whole["importance"], whole["metadata"]) == (content, 0.9, {"ticket": "T-1"})
    assert [each["change"] for each in whole["history"]] == [
        "stored",
        "updated",
        "tagged",
        "promoted",
        "forgotten",
        "restored",
    ]
    counts = inspector.call("get_memory_status")["counts"]["by_scope"]
    assert (counts["session"], counts["user"]) == (0, 0)
    assert counts["project"] in (1, 2)  # the session that stored it leaves its record when it ends


def test_a_mistake_is_answered_with_the_envelope_of_errors(inspector: Inspector) -> None:
    answer = inspector.call("recall_memories", exit_status=5, query="x", limt=3)
    assert (answer["error"], answer["field"], answer["degraded"], answer["retry_possible"]) == (
        "invalid_input",
        "limt",
        False,
        False,
    )
    assert "did you mean limit" in answer["message"]


def test_every_resource_and_prompt_answers_the_inspector(inspector: Inspector) -> None:
    memory = inspector.call("store_memory", content="Prefers tabs", type="semantic", scope="user")["memory_id"]
    listed = {each["uri"] for each in inspector.run("resources/list")["resources"]}
    assert listed == {
        "memory://status",
        "memory://session/summary",
        "memory://project/knowledge-graph",
        "memory://user/preferences",
    }
    for uri in (*listed, f"memory://memory/{memory}"):
        (content,) = inspector.run("resources/read", "--uri", uri)["contents"]
        assert content["uri"] == uri
        assert content["text"]
    (preferences,) = inspector.run("resources/read", "--uri", "memory://user/preferences")["contents"]
    assert "Prefers tabs" in preferences["text"]
    templates = inspector.run("resources/templates/list")["resourceTemplates"]
    assert [each["uriTemplate"] for each in templates] == ["memory://memory/{id}"]
    prompts = {each["name"] for each in inspector.run("prompts/list")["prompts"]}
    assert prompts == {"remember", "remember-all", "recall", "what-do-you-know-about", "forget", "memory"}
    got = inspector.run("prompts/get", "--prompt-name", "recall", "--prompt-args", "topic=tabs")
    assert "recall_memories" in json.dumps(got["messages"])
