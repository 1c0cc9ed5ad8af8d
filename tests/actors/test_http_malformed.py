"""Bad messages over HTTP, against the gateway's own transport in this process, behind which is no memory."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import re
import time
from pathlib import Path

import pytest

from remembrancer.config.tokens import Tokens
from tests.clients.conformance_server import served
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")
PING = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'


async def said_to(port: int, data: bytes, patience_s: float = PATIENCE_S) -> bytes:
    """The answer to these bytes; empty: the connection was closed without one, or more was expected."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    answer = b""
    try:
        writer.write(data)
        while piece := await asyncio.wait_for(reader.read(65_536), patience_s):
            answer += piece
            head, _, body = answer.partition(b"\r\n\r\n")
            length = re.search(rb"(?i)content-length: (\d+)", head)
            if length is not None and len(body) >= int(length[1]):
                break
    except (ConnectionError, TimeoutError):
        assert not answer or patience_s < PATIENCE_S
    finally:
        writer.close()
    return answer


async def test_nothing_that_chance_makes_of_a_request_is_a_fault_or_shows_a_token(
    home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    token = Tokens(home).create("ana", (str(home),), time.time()).encode()
    chance = random.Random(int(os.environ["TEST_SEED"]))
    lines = (
        b"POST /mcp HTTP/1.1",
        b"Host: localhost",
        b"Content-Type: application/json",
        b"Accept: application/json",
        b"Authorization: Bearer " + token,
        b"Content-Length: %d" % len(PING),
    )
    whole = b"\r\n".join(lines) + b"\r\n\r\n" + PING
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
            for data, answer in zip(
                made, await asyncio.gather(*(said_to(port, each, 1.0) for each in made)), strict=True
            ):
                assert not answer or answer[9:10] in (b"2", b"4"), (data, answer)
            assert b'"result":{}' in await said_to(port, whole)
    assert token.decode() not in caplog.text
