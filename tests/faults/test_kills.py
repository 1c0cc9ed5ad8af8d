"""`kill -9` of every process at random moments: nothing acknowledged is lost, nothing is there twice, nobody waits."""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest

from bench.client import StdioClient
from tests.patience import PATIENCE_S, until
from tests.processes.runtimes import is_dead
from tests.runtime import Runtime, Session

SESSIONS = 4
STORES = 500


@dataclass
class Account:
    acknowledged: dict[str, str] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)
    longest_s: float = 0.0


async def store_all(client: StdioClient, texts: list[str], account: Account) -> None:
    """Store as a patient assistant does: an error that says so is tried again as a new call."""
    give_up_at = time.monotonic() + PATIENCE_S
    for text in texts:
        while text not in account.acknowledged:
            began = time.monotonic()
            answer = await client.call_or_error("store_memory", content=text, type="semantic", scope="project")
            account.longest_s = max(account.longest_s, time.monotonic() - began)
            if "memory_id" in answer:
                account.acknowledged[text] = answer["memory_id"]
                continue
            account.refused.append(text)
            assert answer["retry_possible"], answer
            assert time.monotonic() < give_up_at, answer


async def under_fire(home: Path, kill: Callable[[Runtime], Coroutine[Any, Any, None]]) -> Account:
    runtime = Runtime(home)
    account = Account()
    clients = [Session(home) for _ in range(SESSIONS)]
    for client in clients:
        await client.start()
        await client.initialize()
    await until(runtime.is_ready)
    texts = [f"fact {number}: the value of setting {number} is {number * 7}" for number in range(STORES)]
    shooting = asyncio.create_task(kill(runtime))
    await asyncio.gather(*(store_all(client, texts[place::SESSIONS], account) for place, client in enumerate(clients)))
    await shooting
    await until(runtime.is_drained)
    records, aliases = runtime.contents(), runtime.aliases()
    for text, memory_id in account.acknowledged.items():
        # A call that was refused may have been carried out: then the next one, if it was queued, has another id for it.
        # An answer has the end of an id, which a later memory may come to have too.
        meant = {each for each in {**records, **aliases} if each.endswith(memory_id)}
        known = {aliases.get(each, each) for each in meant} if text in account.refused else meant
        assert text in map(records.get, known), f"acknowledged and missing: {text}"
    copies = [text for text in texts if list(records.values()).count(text) > 1]
    assert not set(copies) - set(account.refused), f"there twice: {copies}"
    assert account.longest_s <= PATIENCE_S, f"a call took {account.longest_s:.1f} s: a bridge answers after 5"
    for client in clients:
        assert not client.strays
        assert client.process.returncode is None, "a session had to be restarted"
        assert await client.aclose() < PATIENCE_S
    await runtime.down()
    return account


@pytest.mark.parametrize(
    ("role", "times"),
    [("store", 3), ("gateway", 3), ("embedder", 3), ("launcher", 1), ("", 1)],
    ids=lambda each: each or "all",
)
async def test_kills_lose_nothing_and_sessions_go_on(role: str, times: int, home: Path, dice: random.Random) -> None:
    """With an empty role, all processes are killed at once."""

    async def kill(runtime: Runtime) -> None:
        for _ in range(times):
            await asyncio.sleep(dice.uniform(0.0, 0.4))
            if role:
                runtime.kill(role)
            else:
                for process in runtime.processes():
                    process.kill()

    assert len((await under_fire(home, kill)).acknowledged) == STORES


async def test_a_runtime_whose_launcher_was_killed_comes_back_without_being_asked(home: Path) -> None:
    runtime = Runtime(home)
    async with Session(home) as client:
        await until(runtime.is_ready)
        killed = runtime.process("launcher")
        killed.kill()

        async def is_back() -> bool:
            return is_dead(killed.pid) and await runtime.is_ready()

        await until(is_back)
        assert "memory_id" in await client.store("The session goes on.")
    await runtime.down()


async def test_a_store_that_hangs_is_noticed_and_replaced(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REMEMBRANCER_STALL_TIMEOUT_S", "3")
    hung: list[psutil.Process] = []

    async def stop(runtime: Runtime) -> None:
        await asyncio.sleep(0.1)
        hung.append(runtime.process("store"))
        hung[0].send_signal(signal.SIGSTOP)

    account = await under_fire(home, stop)
    assert len(account.acknowledged) == STORES
    assert is_dead(hung[0].pid)


READS: list[tuple[str, dict[str, Any]]] = [
    ("recall_memories", {"query": "crane", "strategy": "keyword"}),
    ("get_memory_context", {}),
    ("list_memories", {}),
    ("get_valid", {}),
    ("search_text", {"query": "crane"}),
    ("get_memory", {"memory_id": None}),
    ("connections", {"node_id": None}),
    ("memory_search", {"query": "crane"}),
]
"""The calls that read; None stands for the id of the memory that they are to find."""


@pytest.mark.parametrize("fault", [signal.SIGKILL, signal.SIGSTOP])
async def test_a_read_waits_for_the_store_that_restarts_and_answers_right(home: Path, fault: signal.Signals) -> None:
    runtime = Runtime(home)
    patient = {
        "REMEMBRANCER_CALL_BUDGET_S": "60",
        "REMEMBRANCER_STALL_TIMEOUT_S": "3",
        "REMEMBRANCER_TOOLSETS": "memory,admin,graph,nodes,files",
    }
    async with Session(home, environ=patient) as client:
        await until(runtime.is_ready)
        memory_id = (await client.store("The crane is high."))["memory_id"]
        reads = [(tool, {name: value or memory_id for name, value in given.items()}) for tool, given in READS]
        runtime.process("store").send_signal(fault)
        answers = await asyncio.gather(*(client.call(tool, **given) for tool, given in reads))
        for (tool, _), answer in zip(reads, answers, strict=True):
            assert "degraded" not in answer, (tool, answer)
            assert tool == "memory_search" or "The crane is high." in str(answer), (tool, answer)
    await runtime.down()
