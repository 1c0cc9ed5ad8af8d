"""A whole runtime with a cross-encoder: recalls are reranked, and status and doctor say what that costs."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.client import StdioClient
from tests.random_cross_encoder import build_cross_encoder
from tests.runtime import Runtime, until

pytestmark = pytest.mark.anyio


async def test_a_runtime_reranks_with_a_model_of_a_directory(
    home: Path, tmp_path: Path, without_upkeep: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = build_cross_encoder(tmp_path / "tiny", layers=2, hidden=32, heads=2)
    monkeypatch.setenv("REMEMBRANCER_RERANKER", "cross-encoder")
    monkeypatch.setenv("REMEMBRANCER_RERANKER_MODEL", str(model))
    monkeypatch.setenv("REMEMBRANCER_RERANKER_BUDGET_S", "10")
    monkeypatch.setenv("REMEMBRANCER_READ_BUDGET_S", "15")
    monkeypatch.setenv("REMEMBRANCER_CALL_BUDGET_S", "20")
    runtime = Runtime(home)
    async with StdioClient(home) as client:
        for number in range(3):
            await client.store(f"The train number {number} leaves at {number} o'clock.")

        async def is_ready() -> bool:
            answer = await client.call("recall_memories", query="when does the train leave?", detail=True)
            memories = answer["memories"]
            return len(memories) == 3 and all("reranker" in memory["scores"] for memory in memories)

        await until(is_ready)
        answer = await client.call("recall_memories", query="when does the train leave?")
        assert len(answer["memories"]) == 3
        assert "warnings" not in answer
    await runtime.down()
