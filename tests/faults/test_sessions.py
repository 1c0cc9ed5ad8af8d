"""Many sessions at once, opened and killed: one runtime, no lock error, sound files, no orphan."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
from pathlib import Path
from typing import Any

import psutil

from bench.client import StdioClient
from examples.real_text import memories
from tests.patience import until
from tests.runtime import Runtime, Session
from tests.spaces import locked

ROUNDS = 20
"""Of each of eight sessions: a store, a recall and four other calls."""
SHORT = 120
"""Characters: what this has brought is embedded in some seconds."""

FURTHER: tuple[tuple[tuple[str, dict[str, Any]], ...], ...] = (
    (("get_memory_status", {}),),
    (("tag_memory", {"add": ["seen"]}), ("get_memory", {})),
    (("update_memory", {"importance": 0.9, "metadata": {"by": "hand"}}), ("get_memory", {"version": 1})),
    (("forget_memory", {"reason": "for a moment"}), ("restore_memory", {})),
    (("get_memory_context", {"task_description": "open a file", "max_tokens": 500}),),
    (("search_knowledge_graph", {}),),
)
"""What follows a store: four of these."""
ABOUT_ONE = {"tag_memory", "get_memory", "update_memory", "forget_memory", "restore_memory"}


async def test_eight_sessions_of_mixed_work_end_with_sound_files(home: Path) -> None:
    short = [text for text in memories(10_000) if len(text) <= SHORT]
    texts = (f"{text} ({number})" for number, text in enumerate(itertools.cycle(short)))
    dice = random.Random(8)
    stored: dict[str, str] = {}
    by_words: list[bool] = []

    async def work(client: StdioClient, number: int) -> None:
        for _ in range(ROUNDS):
            text = next(texts)
            scope = dice.choice(["session", "project", "user"])
            answer = await client.store(text, scope=scope, tags=[f"from-{number}"], importance=dice.random())
            assert "memory_id" in answer, answer
            stored[answer["memory_id"]] = text
            found = await client.call("recall_memories", query=text[:80], strategy=dice.choice(["keyword", "hybrid"]))
            by_words.append(went_by_words(found))
            for tool, arguments in itertools.chain.from_iterable(dice.choices(FURTHER, k=4)):
                about = {"memory_id": answer["memory_id"]} if tool in ABOUT_ONE else {}
                said = await client.call(tool, **about, **arguments)
                went_by_words(said)

    clients = [Session(home) for _ in range(8)]
    await asyncio.gather(*(start(client) for client in clients))
    runtime = Runtime(home)
    await until(runtime.is_ready)
    await asyncio.gather(*(work(client, number) for number, client in enumerate(clients)))
    assert sum(by_words) <= len(by_words) // 20
    await until(runtime.is_drained)
    kept = runtime.contents()
    for memory_id in runtime.derived():  # above 500 memories they are summed up, also while sessions go on
        kept.pop(memory_id, None)
    # An answer has the end of an id, which a later memory may come to have too.
    whole = {
        each: text for short, text in stored.items() for each in kept if each.endswith(short) and kept[each] == text
    }
    assert kept == whole
    for client in clients:
        await client.aclose()
        assert not client.strays
    await runtime.down()
    logged = "".join(path.read_text() for path in (home / "logs").iterdir())
    assert "locked" not in logged
    assert '"ERROR"' not in logged


async def test_a_database_that_another_program_has_locked_holds_nothing_up_and_loses_nothing(home: Path) -> None:
    async with Session(home) as client:
        runtime = Runtime(home)
        await client.store("before")
        with locked(runtime.database):
            for content, scope in (("meanwhile", "project"), ("of the user", "user")):
                queued = await client.store(content, scope=scope)
                assert "locked" in json.dumps(queued["warnings"])

            async def the_reason_is_said() -> bool:
                found = await client.call("recall_memories", query="before", strategy="keyword")
                assert [memory["content"] for memory in found["memories"]] == ["before"]
                return "locked" in json.dumps(found["warnings"])

            await until(the_reason_is_said)
            status = await runtime.status()
            assert (status["write_queue"]["depth"], status["write_queue"]["rejected"]) == (2, 0)
        await until(runtime.is_drained)
    assert sorted(runtime.contents().values()) == ["before", "meanwhile", "of the user"]
    await runtime.down()


def went_by_words(answer: dict[str, Any]) -> bool:
    """True if a question's vector was not there in time: a moment's stall is enough. Nothing else may be missing."""
    assert "error" not in answer, answer
    if answer.get("degraded"):
        assert {warning["code"] for warning in answer["warnings"]} == {"embedding_failed"}, answer
    return bool(answer.get("degraded"))


async def test_fifty_sessions_opened_and_killed_leave_one_runtime_and_no_orphan(home: Path) -> None:
    clients = [StdioClient(home) for _ in range(50)]
    await asyncio.gather(*(client.start() for client in clients))
    await asyncio.gather(*(client.initialize() for client in clients[::2]))
    for client in clients:
        client.process.kill()
        await client.process.wait()
    runtime = Runtime(home)
    await until(runtime.is_ready)

    async def one_runtime_is_left() -> bool:
        left = sorted(role_of(process) for process in psutil.process_iter(["cmdline", "environ"]) if of(home, process))
        return left == ["embedder", "gateway", "store", "up"]

    await until(one_runtime_is_left)
    await runtime.down()


async def start(client: StdioClient) -> None:
    await client.start()
    await client.initialize()


def of(home: Path, process: psutil.Process) -> bool:
    return (process.info["environ"] or {}).get("REMEMBRANCER_HOME") == str(home)


def role_of(process: psutil.Process) -> str:
    """`gateway` of `python -P -m remembrancer.actors.gateway`, `up` of `python -P -m remembrancer up …`."""
    words = process.info["cmdline"] or [""]
    if "remembrancer" in words:
        return str(words[words.index("remembrancer") + 1])
    return str(words[-1]).rpartition(".")[2]


async def test_the_status_counts_what_was_acknowledged_the_moment_it_was(home: Path) -> None:
    runtime = Runtime(home)
    async with Session(home) as client:
        await until(runtime.is_ready)
        for number in range(1, 6):
            assert "warnings" not in await client.store(f"fact {number}")
            assert (await runtime.status())["counts"]["total"] == number
    await runtime.down()
