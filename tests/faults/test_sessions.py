"""Many sessions at once, opened and killed, and bad input: one runtime, clear errors, sound files, no orphan."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from pathlib import Path

import psutil
import zmq

from bench.client import StdioClient
from remembrancer.protocol.paths import RuntimePaths
from tests.patience import until
from tests.runtime import Runtime, Session, command, patiently
from tests.spaces import locked


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


async def test_malformed_frames_on_the_stores_socket_are_counted_and_dropped(home: Path) -> None:
    async with Session(home) as client:
        await client.store("before")
        context = zmq.Context()
        with context.socket(zmq.DEALER) as raw:
            raw.setsockopt(zmq.LINGER, 1000)
            raw.connect(RuntimePaths(home).store_endpoint)
            for frames in ([b""], [b"\xc1", b"\x00"], [b"garbage"] * 5, [b"\x93\x01\x02\x03", b"{}"]):
                raw.send_multipart(frames)
        context.term()
        assert "memory_id" in await client.store("after")
        runtime = Runtime(home)
        await until(lambda: "frame dropped" in (home / "logs" / "store.log").read_text())
        assert (await runtime.status())["processes"][0]["restarts"] == 0
    await runtime.down()


async def test_a_database_of_a_newer_release_is_left_alone_and_named_while_writes_wait(home: Path) -> None:
    database = home / "memory.db"
    connection = sqlite3.connect(database)
    connection.executescript("CREATE TABLE future (x); PRAGMA user_version = 99000000;")
    connection.close()
    before = database.read_bytes()
    async with Session(home) as client:
        runtime = Runtime(home)
        for tool, asked in (("store_memory", {"content": "x"}), ("recall_memories", {"query": "x"})):
            assert "99.0.0" in json.dumps(await client.call_or_error(tool, **asked))
        status = patiently("status", home=home)
        assert status.returncode == 3
        assert "99.0.0" in status.stdout
    assert database.read_bytes() == before
    await runtime.down()


async def test_a_home_that_cannot_be_made_is_a_clear_error_for_the_client(home: Path) -> None:
    (home / "file").write_text("in the way")
    client = Session(home / "file" / "home", cwd=home)
    await client.start()
    answer = await client.request_or_error("initialize", {})
    assert "file" in answer["message"]
    await client.aclose()
    assert command("up", home=home / "file" / "home").returncode == 6
