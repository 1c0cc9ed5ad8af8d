"""Bad input through the real path: each gets an error that names the field and what is allowed; nothing crashes."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import zmq

from remembrancer.protocol.paths import RuntimePaths
from tests.runtime import Runtime, Session, command, patiently, until

GOOD: dict[str, Any] = {"content": "a fact", "type": "semantic", "scope": "project"}
BAD_STORES: list[tuple[str, dict[str, Any], str]] = [
    ("an unknown field", {"contents": "x"}, "content"),
    ("a wrong type", {"importance": "high"}, "importance"),
    ("importance out of bounds", {"importance": 1.5}, "importance"),
    ("empty content", {"content": "  "}, "content"),
    ("2 MB of content", {"content": "x" * 2_000_000}, "content"),
    ("10,000 tags", {"tags": [f"t{n}" for n in range(10_000)]}, "tags"),
    ("a NUL byte", {"content": "a\x00b"}, "content"),
    ("an unknown scope", {"scope": "galaxy"}, "scope"),
    ("an unknown type", {"type": "vague"}, "type"),
    ("an entity without a name", {"related_entities": [{"type": "file", "relationship": "uses"}]}, "name"),
]
BAD_RECALLS: list[tuple[str, dict[str, Any], str]] = [
    ("a limit of 0", {"query": "x", "limit": 0}, "limit"),
    ("a limit of 51", {"query": "x", "limit": 51}, "limit"),
    ("no query", {}, "query"),
    ("a malformed date", {"query": "x", "time_range": {"after": "yesterday-ish"}}, "after"),
    ("an unknown strategy", {"query": "x", "strategy": "psychic"}, "strategy"),
]


async def test_bad_input_is_refused_by_name_and_loses_nothing(home: Path) -> None:
    async with Session(home) as client:
        kept = await client.store("This was here before.")
        for title, change, field in BAD_STORES:
            answer = await client.call("store_memory", **{**GOOD, **change})
            assert_refused(title, answer, field)
        for title, arguments, field in BAD_RECALLS:
            assert_refused(title, await client.call("recall_memories", **arguments), field)
        unknown = await client.call_or_error("store_memries", **GOOD)
        assert "store_memory" in unknown["message"]
        found = await client.call("recall_memories", query="here before", strategy="keyword")
        assert [memory["content"] for memory in found["memories"]] == ["This was here before."]
        assert not client.strays
    runtime = Runtime(home)
    (only,) = runtime.contents()
    assert only.endswith(kept["memory_id"])
    await runtime.down()


def assert_refused(title: str, answer: dict[str, Any], field: str) -> None:
    assert answer.get("error") == "invalid_input", f"{title}: {answer}"
    assert field in answer["message"], f"{title}: {answer}"


async def test_broken_lines_and_lone_surrogates_are_answered_and_the_session_goes_on(home: Path) -> None:
    async with Session(home) as client:
        await client.send_raw(b'{"jsonrpc": "2.0", "id": 7, "method": \n')
        await client.send_raw(b"\xff\xfe\n")
        surrogate = {"jsonrpc": "2.0", "id": "s", "method": "tools/call", "params": {"name": "store_memory"}}
        line = json.dumps({**surrogate, "params": {"name": "store_memory", "arguments": {**GOOD, "content": "\ud800"}}})
        await client.send_raw(line.encode() + b"\n")
        assert "memory_id" in await client.store("The session goes on.")

        async def answered() -> bool:
            return len(client.strays) >= 3

        await until(answered)
        answers = [json.loads(stray) for stray in client.strays]
        assert {answer.get("error", {}).get("code") for answer in answers if "error" in answer} >= {-32700}
        assert all(answer["jsonrpc"] == "2.0" for answer in answers)
    runtime = Runtime(home)
    assert list(runtime.contents().values()) == ["The session goes on."]
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

        async def dropped() -> bool:
            return "frame dropped" in (home / "logs" / "store.log").read_text()

        await until(dropped)
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
