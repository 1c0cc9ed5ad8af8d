import asyncio
import json
from pathlib import Path
from typing import Any

from remembrancer.memory.limits import MAX_ANSWER_BYTES
from tests.cases import cases
from tests.runtime import Runtime, Session

MEMORIES = 12
LETTERS = 195_000
AT_ONCE = 10
TOOLSETS = {"REMEMBRANCER_TOOLSETS": "memory,admin,graph,nodes"}


def is_bounded(answer: dict[str, Any]) -> bool:
    assert "error" not in answer, answer
    return len(json.dumps(answer)) < 1.1 * MAX_ANSWER_BYTES


async def test_every_tool_keeps_to_the_limit_and_ten_long_lists_hold_nobody_up(home: Path, runtime: Runtime) -> None:
    async with Session(home, environ=TOOLSETS) as client:
        for number in range(MEMORIES):
            text = f'Deployment number {number} of the "billing" service went through region {number}.\n' * LETTERS
            assert "error" not in await client.store(text[:LETTERS], scope="project")
        before = {role: runtime.pid(role) for role in ("gateway", "store")}
        for answer in await asyncio.gather(*(client.call("list_memories", limit=50) for _ in range(AT_ONCE))):
            assert is_bounded(answer)
            assert 1 <= len(answer["memories"]) < MEMORIES
            assert f"offset {len(answer['memories'])}" in answer["warnings"][0]["message"]
        assert {role: runtime.pid(role) for role in before} == before
        for tool in ("list_memories", "get_valid"):  # by pages, each memory once
            found: list[str] = []
            while len(found) < MEMORIES:
                page = await client.call(tool, limit=1000, offset=len(found))
                found += [memory["id"] for memory in page["memories"]]
                warned = [warning["code"] for warning in page.get("warnings", ())]
                assert warned == (["answer_cut"] if len(found) < MEMORIES else [])
            assert len(set(found)) == MEMORIES
        for tool, arguments in cases("large_answers", "asked"):
            assert is_bounded(await client.call(tool, **arguments)), tool
    async with Session(home, environ={"REMEMBRANCER_TOOLSETS": "nodes"}) as client:
        answer = await client.call("recall", query="billing", limit=50)
        assert answer["nodes"]
        assert is_bounded(answer)
