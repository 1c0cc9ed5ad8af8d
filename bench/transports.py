"""The line protocol against HTTP for a session on stdio: `python -m bench.transports`.

Two bridges to one gateway are asked in turns: milliseconds of a call that no store takes part in, and from the spawn to
the handshake; megabytes of a bridge.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import time
from typing import Final

import psutil

from bench.client import StdioClient
from bench.harness import Runtime, runtime, token_of
from tests.ports import free_port

CALLS: Final = 500
STARTS: Final = 15


async def opened(running: Runtime, *arguments: str) -> tuple[StdioClient, float]:
    """A session, and the milliseconds until it was one."""
    client, began = StdioClient(running.home, environ=running.environ, arguments=arguments), time.perf_counter()
    await client.start()
    await client.initialize()
    return client, (time.perf_counter() - began) * 1000


async def measure() -> dict[str, dict[str, float]]:
    port = free_port()
    async with runtime(http_port=str(port)) as running:
        token = running.home / "token"
        token.write_text(token_of(running.home))
        ways = {"lines": (), "HTTP": ("--url", f"http://127.0.0.1:{port}/mcp", "--token-file", str(token))}
        clients = {name: (await opened(running, *arguments))[0] for name, arguments in ways.items()}
        calls: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(CALLS):
            for name, client in clients.items():
                began = time.perf_counter()
                await client.request("tools/call", {"name": "no_such_tool", "arguments": {}})
                calls[name].append((time.perf_counter() - began) * 1000)
        memory = {name: psutil.Process(client.process.pid).memory_full_info().pss for name, client in clients.items()}
        starts: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(STARTS):
            for name, arguments in ways.items():
                client, took_ms = await opened(running, *arguments)
                starts[name].append(took_ms)
                await client.aclose()
        for client in clients.values():
            await client.aclose()
    return {
        name: {
            "call_ms": statistics.median(calls[name]),
            "start_ms": statistics.median(starts[name]),
            "pss_mb": memory[name] / 1e6,
        }
        for name in ways
    }


if __name__ == "__main__":
    json.dump(asyncio.run(measure()), sys.stdout, indent=2)
