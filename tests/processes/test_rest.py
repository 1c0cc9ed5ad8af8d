import os
from pathlib import Path

import pytest

from bench.client import StdioClient
from tests.patience import until
from tests.runtime import Runtime, Session

RESTING = {"launcher", "gateway", "store"}
HELD_UP = """
import os, pathlib, sys, time

if sys.orig_argv[-2:] == ["remembrancer.actors", "embedder"]:
    while pathlib.Path(os.environ["REMEMBRANCER_HOME"], "hold").exists():
        time.sleep(0.01)
if sys.orig_argv[-2:] == ["remembrancer.actors", "store"]:
    from remembrancer.actors.store.vectors import embedding_scheduler

    embedding_scheduler.ABSENT_S = 0.0
"""
"""Run by every Python process that finds it on its path: while a file is there no embedder comes, and a store takes
each word of sessions for that of somebody who comes back, as after the hours of a real break."""


def proportional_bytes(pid: int) -> int:
    """The memory of a process, what it shares with others counted in part."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))


async def test_after_a_break_words_answer_at_once(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sitecustomize.py").write_text(HELD_UP)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")])))
    monkeypatch.setenv("REMEMBRANCER_REST_TIMEOUT_S", "1")
    runtime = Runtime(home)
    async with StdioClient(home) as client:  # processes that share no memory with this one
        stored = await client.store("The lantern in the harbour is mended by Ada.", wait_for_embedding=True)
        assert stored["embedding_generated"] is True
    before = {role: runtime.pid(role) for role in ("gateway", "store")}

    await until(runtime.status, lambda said: {process["role"] for process in said["processes"]} == RESTING)
    await until(runtime.status, lambda said: not said["warnings"])
    (home / "hold").touch()
    used = {role: proportional_bytes(pid) for role, pid in before.items()}
    assert sum(used.values()) < 120_000_000, used
    async with Session(home) as client:
        context = await client.call("get_memory_context", task_description="mend the lantern")
        found = await client.call("recall_memories", query="who mends the lantern?")
        assert {role: runtime.pid(role) for role in before} == before
        assert "mended by Ada" in context["context_block"]
        assert [memory["id"] for memory in found["memories"]] == [stored["memory_id"]]
        assert [warning["code"] for warning in found["warnings"]] == ["embedding_starting"]
        assert "warnings" not in context, "all is given, and nothing had to be searched"
        assert "degraded" not in {**context, **found}

        (home / "hold").unlink()

        async def joins() -> bool:
            again = await client.call("recall_memories", query="who repairs the lamp of the harbour?")
            said = {warning["code"] for warning in again.get("warnings", ())}
            assert said <= {"embedding_starting", "embedding_failed"}, again
            return not said

        await until(joins)
