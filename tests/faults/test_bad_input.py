"""Bad input through the real path: each gets an error that names the field and what is allowed; nothing crashes."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import zmq

from remembrancer.protocol.paths import RuntimePaths
from tests.patience import until
from tests.runtime import Runtime, Session, command, patiently


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
