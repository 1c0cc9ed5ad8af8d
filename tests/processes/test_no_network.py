"""By default no process of the runtime opens an internet socket: the kernel sees to it."""

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bench.client import StdioClient, command_line
from remembrancer.commands import exit_codes
from tests.cases import cases
from tests.patience import until
from tests.processes.without_network import NOT_HERE
from tests.runtime import Runtime, patiently

WRAPPER = [sys.executable, str(Path(__file__).with_name("without_network.py"))]


async def test_a_whole_life_asks_for_no_internet(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Start, every tool, the resources, scale, down. Each process of the bridge's runtime has the filter, and one that
    asked would be restarted, which is seen."""
    asking = [*WRAPPER, sys.executable, "-c", "import socket; socket.socket()"]
    if (died := subprocess.run(asking, check=False).returncode) == NOT_HERE:
        pytest.skip("seccomp filters are Linux's, and this kernel or machine has none that is known here")
    assert died == -signal.SIGSYS
    monkeypatch.setattr("bench.client.command_line", lambda: [*WRAPPER, *command_line()])
    runtime = Runtime(home)
    async with StdioClient(home, cwd=tmp_path) as client:
        entities = [{"name": "Ana", "type": "person", "relationship": "is about"}]
        memory = (await client.store("Ana prefers tabs.", related_entities=entities))["memory_id"]
        await client.store("Ana prefers short answers.", scope="user")
        await until(runtime.is_drained)
        answer = await client.call("recall_memories", query="does she like long replies?")
        assert answer["memories"]
        assert (await client.call("search_knowledge_graph", entity="Ana"))["entities"]
        assert (await client.call("get_memory_context", task_description="write to Ana"))["tokens_used"]
        for tool, arguments in cases("no_network", "calls"):
            assert "error" not in await client.call(tool, memory_id=memory, **arguments)
        await client.call("get_memory_status")
        for resource in (await client.request("resources/list"))["resources"]:
            await client.request("resources/read", {"uri": resource["uri"]})
        scaled = await asyncio.to_thread(patiently, "scale", "embedder=2", home=home)
        assert scaled.returncode == exit_codes.OK, scaled.stderr
        await until(runtime.is_ready)
        status = await runtime.status()
        assert {process["restarts"] for process in status["processes"]} == {0}
        filtered = (Path(f"/proc/{process['pid']}/status").read_text() for process in status["processes"])
        assert all("\nSeccomp:\t2\n" in each for each in filtered)
    await runtime.down()
    logged = "".join(path.read_text() for path in (home / "logs").iterdir())
    assert '"ERROR"' not in logged
    assert "locked" not in logged
