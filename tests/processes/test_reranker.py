"""A whole runtime with a cross-encoder: recalls are reranked, and status and doctor say what that costs."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from bench.client import StdioClient
from bench.random_cross_encoder import build_cross_encoder
from tests.runtime import Runtime, command, until

pytestmark = pytest.mark.anyio


async def test_a_runtime_reranks_with_a_model_of_a_directory_and_says_what_it_costs(
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
            status = await runtime.status()
            reranker = status["reranker"]
            return bool(reranker and reranker["state"] == "ready") and status["embedding"]["pending"] == 0

        await until(is_ready)
        answer = await client.call("recall_memories", query="when does the train leave?")
        assert len(answer["memories"]) == 3
        assert "warnings" not in answer
        status = await runtime.status()
        assert (status["reranker"]["model"], status["reranker"]["asked"]) == ("tiny", 1)
        assert status["reranker"]["last_ms"] > 0
        doctor = await asyncio.to_thread(command, "doctor", "--json", home=home)
        checks = {check["name"]: check for check in json.loads(doctor.stdout)["checks"]}
        assert checks["reranker"]["status"] == "ok"
        assert "the last recall waited" in checks["reranker"]["found"]
    await runtime.down()


def test_the_doctor_names_a_directory_that_is_not_there(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REMEMBRANCER_RERANKER", "cross-encoder")
    monkeypatch.setenv("REMEMBRANCER_RERANKER_MODEL", "/nowhere/at/all")
    done = command("doctor", "--json", home=home)
    checks = {check["name"]: check for check in json.loads(done.stdout)["checks"]}
    assert checks["reranker"]["status"] == "problem"
    assert "/nowhere/at/all is not a directory" in checks["reranker"]["found"]
