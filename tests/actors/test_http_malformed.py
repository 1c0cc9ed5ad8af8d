"""Bad messages over HTTP: malformed, smuggled, oversized, never ending, too slow, too much.

Against the gateway's own transport in this process, behind which is no memory.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
import re
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from remembrancer.actors.gateway import http_messages
from remembrancer.config.tokens import Tokens
from tests.clients.conformance_server import served
from tests.patience import PATIENCE_S

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning"),
]
PING = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'


@pytest.fixture
async def port(home: Path) -> AsyncIterator[int]:
    async with served(home) as url:
        yield int(url.rpartition(":")[2].partition("/")[0])


def request(*more: bytes, body: bytes = PING, length: bool = True, host: bytes = b"Host: localhost") -> bytes:
    lines = [b"POST /mcp HTTP/1.1", host, b"Content-Type: application/json", *more]
    lines += [b"Content-Length: %d" % len(body)] if length else []
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


async def said_to(port: int, data: bytes) -> bytes:
    """The answer to these bytes; empty: the connection was closed without one."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    answer = b""
    try:
        writer.write(data)
        while piece := await asyncio.wait_for(reader.read(65_536), PATIENCE_S):
            answer += piece
            head, _, body = answer.partition(b"\r\n\r\n")
            length = re.search(rb"(?i)content-length: (\d+)", head)
            if length is not None and len(body) >= int(length[1]):
                break
    except ConnectionError:
        pass
    finally:
        writer.close()
    return answer


CHUNKED = b"Transfer-Encoding: chunked"
WRONG: list[tuple[bytes, int, bytes]] = [
    (request(CHUNKED, body=b"0\r\n\r\nPOST /mcp HTTP/1.1"), 400, b"not both"),
    (request(b"Content-Length: 3"), 400, b"Invalid HTTP"),
    (request(b"Content-Length: -1", length=False), 400, b"Invalid HTTP"),
    (request(b"Content-Length: +5", length=False), 400, b"Invalid HTTP"),
    (request(b"Content-Length: 9999999", length=False), 413, b"bytes at most"),
    (request(b"Transfer-Encoding: gzip, chunked", length=False), 400, b"Invalid HTTP"),
    (request(CHUNKED, length=False, body=b"zz\r\nabc\r\n0\r\n\r\n"), 400, b"Invalid HTTP"),
    (request(b"X-A : a"), 400, b"Invalid HTTP"),
    (request(b"X-A: a\0b"), 400, b"Invalid HTTP"),
    (request(b"X-A: " + b"a" * 40_000), 431, b"bytes at most"),
    (request(host=b"X: y"), 400, b"Invalid HTTP"),
    (request(host=b"Host: [::1"), 421, b"http_hosts"),
    (request(b"Origin: http://[::1"), 403, b"http_origins"),
    (b"GET /mcp\r\n\r\n", 400, b"Invalid HTTP"),
    (request().replace(b"POST", b"PUT"), 405, b"Method Not Allowed"),
    (b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", 400, b"Invalid HTTP"),
    (request(body=b""), 400, b"Parse error"),
    (request(body=b'{"jsonrpc":"2.0","id":NaN,"method":"ping"}'), 400, b"Parse error"),
    (request(body=b'{"jsonrpc":"2.0","id":1,"method":"\xff"}'), 400, b"Parse error"),
    (request(body=b'{"jsonrpc":"2.0","id":{},"method":"ping"}'), 400, b"a string or an integer"),
    (request(body=b"[" * 100_000), 400, b"one message"),
    (request(body=b"[" + PING + b"," + PING + b"]"), 400, b"one message"),
    (request(body=b'{"jsonrpc":"2.0","id":1}'), 400, b"Validation error"),
    (request(b"MCP-Protocol-Version: 1999-01-01"), 400, b"_meta"),
    (request(b"Mcp-Session-Id: \xff\xff"), 404, b"initialize"),
    (request(b"X-Remembrancer-Project: a\xff"), 400, b"absolute path"),
]


async def test_what_is_malformed_gets_its_status_and_a_sentence(port: int) -> None:
    for data, status, sentence in WRONG:
        answer = await said_to(port, data)
        assert answer.startswith(b"HTTP/1.1 %d " % status), (data[:200], answer)
        assert sentence in answer, (data[:200], answer)
    assert b'"result":{}' in await said_to(port, request())


async def test_nothing_that_chance_makes_of_a_request_is_a_fault_or_shows_a_token(
    home: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_messages, "BODY_WAIT_S", 0.1)
    monkeypatch.setattr(http_messages, "FIRST_WAIT_S", 0.1)
    token = Tokens(home).create("ana", (str(home),), time.time()).encode()
    chance = random.Random(int(os.environ["TEST_SEED"]))
    whole = request(b"Authorization: Bearer " + token, b"Accept: application/json", b"Origin: http://localhost")
    pieces = (b"\r\n", b"\0", b"\xff", b":", b" ", b"chunked", b"{", b'"', b"-1", b"\r\n\r\n", b"999999", token, b"%00")
    with caplog.at_level(logging.DEBUG):
        async with served(home) as url:
            port = int(url.rpartition(":")[2].partition("/")[0])
            made = []
            for _ in range(300):
                data = whole
                for _ in range(chance.randint(1, 3)):
                    at, upto = chance.randrange(len(data)), chance.randint(0, 6)
                    data = data[:at] + chance.choice(pieces) + data[at + upto :]
                made.append(data)
            for data, answer in zip(made, await asyncio.gather(*(said_to(port, each) for each in made)), strict=True):
                assert not answer or answer[9:10] in (b"2", b"4"), (data, answer)
            assert b'"result":{}' in await said_to(port, whole)
    assert token.decode() not in caplog.text


async def test_a_body_that_does_not_end_and_a_head_that_does_not_come_hold_nobody_up(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_messages, "BODY_WAIT_S", 0.2)
    monkeypatch.setattr(http_messages, "FIRST_WAIT_S", 0.2)
    drip = request(CHUNKED, length=False, body=b"5\r\n     \r\n")
    other = b"PUT /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{"
    for data, said in (
        (drip, b"408"),
        (other, b"408"),
        (b"POST /mcp HTTP/1.1\r\nHost: loc", b""),
        (request() + b"POST /mc", b"200"),
    ):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(data)
        assert b'"result":{}' in await said_to(port, request()), "others are served meanwhile"
        assert said in (await asyncio.wait_for(reader.read(), PATIENCE_S))[:20]
        writer.close()


async def test_who_reads_nothing_is_let_go_and_others_are_served(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_messages, "FIRST_WAIT_S", 0.2)
    _, writer = await asyncio.open_connection("127.0.0.1", port, limit=1)
    long = {"name": "test_prompt_with_arguments", "arguments": {"arg1": "x" * 1_000_000, "arg2": "y"}}
    asked = request(body=json.dumps({"jsonrpc": "2.0", "id": 1, "method": "prompts/get", "params": long}).encode())

    async def ask_for_ever() -> None:
        while True:
            writer.write(asked)
            await asyncio.wait_for(writer.drain(), PATIENCE_S)

    asking = asyncio.create_task(ask_for_ever())
    assert b'"result":{}' in await said_to(port, request())
    with pytest.raises(ConnectionError):
        await asking
    assert b'"result":{}' in await said_to(port, request())
    writer.close()


async def test_connections_beyond_the_limit_are_refused_and_those_left_open_are_let_go(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_messages, "FIRST_WAIT_S", PATIENCE_S)  # none of them is let go before all are open
    monkeypatch.setattr(http_messages, "MAX_CONNECTIONS", 50)
    opened = [await asyncio.open_connection("127.0.0.1", port) for _ in range(200)]
    told = [await asyncio.wait_for(reader.read(), PATIENCE_S) for reader, _ in opened[50:]]
    assert all(each.startswith(b"HTTP/1.1 503") for each in told)
    for _, writer in opened:
        writer.close()

    async def is_served() -> bool:
        return b'"result":{}' in await said_to(port, request())

    async with asyncio.timeout(PATIENCE_S):
        while not await is_served():  # noqa: ASYNC110 - it sees in a moment that they are closed
            await asyncio.sleep(0.01)
    monkeypatch.setattr(http_messages, "FIRST_WAIT_S", 0.2)
    opened = [await asyncio.open_connection("127.0.0.1", port) for _ in range(10)]
    assert [await asyncio.wait_for(reader.read(), PATIENCE_S) for reader, _ in opened] == [b""] * 10
    for _, writer in opened:
        writer.close()
