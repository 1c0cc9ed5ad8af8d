"""The SDK's own client on the gateway's socket, as a bridge would connect it. `ERAS` has the modes of it."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import anyio
import mcp_types as mcp
from anyio.streams.buffered import BufferedByteReceiveStream
from mcp import Client
from mcp.client import Transport
from mcp.shared.message import SessionMessage

from remembrancer.protocol.gateway_link import CONTROL, stamped
from tests.actors.gateway_rig import GatewayStream, Rig

ERAS: Final = ("legacy", "2026-07-28")
"""Modes of the SDK's client: the handshake, and the newest protocol."""
Streams = tuple[Any, Any]


@asynccontextmanager
async def _connected(path: Path, hello: dict[str, Any]) -> AsyncIterator[Streams]:
    to_client, client_reads = anyio.create_memory_object_stream[SessionMessage | Exception](100)
    client_writes, from_client = anyio.create_memory_object_stream[SessionMessage](100)
    async with await GatewayStream.connect(path) as socket, anyio.create_task_group() as tasks:
        await socket.send(json.dumps(hello).encode() + b"\n")
        lines = BufferedByteReceiveStream(socket)

        async def pump_in() -> None:
            async with to_client:
                while True:
                    try:
                        line = await lines.receive_until(b"\n", 16_000_000)
                    except (anyio.IncompleteRead, anyio.ClosedResourceError, anyio.BrokenResourceError):
                        return
                    if line.startswith(CONTROL):
                        continue
                    message = mcp.jsonrpc_message_adapter.validate_json(line, by_name=False)
                    try:
                        await to_client.send(SessionMessage(message))
                    except anyio.BrokenResourceError:  # the client has left
                        return

        async def pump_out() -> None:
            async with from_client:
                async for item in from_client:
                    text = item.message.model_dump_json(by_alias=True, exclude_unset=True).encode()
                    await socket.send(stamped(text, int(time.time() * 1000)))

        tasks.start_soon(pump_in)
        tasks.start_soon(pump_out)
        async with client_reads, client_writes:
            yield client_reads, client_writes
        tasks.cancel_scope.cancel()


def sdk_client(rig: Rig, mode: str, *, bridge: str = "00" * 16, **options: Any) -> Client:
    """A client that is to be entered. `options` are the hello's fields, and `message_handler`."""
    handler = options.pop("message_handler", None)
    hello = rig.hello(bridge, **options)
    transport: Transport = _connected(rig.paths.gateway_socket, hello)
    return Client(transport, mode=mode, message_handler=handler, cache=None)


async def store(client: Client, content: str, **arguments: Any) -> str:
    given = {"content": content, "type": "semantic", "scope": "project", **arguments}
    answer = (await client.call_tool("store_memory", given)).structured_content
    assert answer is not None
    return str(answer["memory_id"])
