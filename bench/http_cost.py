"""The cost of HTTP beside stdio, and under load: `python -m bench.http_cost [--nodes N] [--load-only] [--json]`.

A store, and a recall over 1,000 memories, by a client on stdio and by one on HTTP that keeps its connection, in turn.
Then `connections` three links deep among so many nodes that were linked to four others each. Then 200 sessions, each on
a connection of its own, ask for one memory so that together they make 500 requests a second, and then 1,000, whatever
the answers take; a latency counts from when its request was due. Then 10,000 connections are opened and left.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import json
import random
import resource
import socket
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import psutil

from bench.harness import Figure, drained, fill, print_figures, runtime, token_of, wait_until
from bench.varied_text import varied
from tests.ports import free_port

MEMORIES: Final = 1_000
NODES: Final = 10_000
LINKS: Final = 4
ROUNDS: Final = 10
CLIENTS: Final = 200
RATES: Final = (500, 1000)
LOAD_S: Final = 10.0
LEFT: Final = 10_000
CALLS: Final = 30
PROTOCOL: Final = "2025-11-25"
Json = dict[str, Any]


class HttpClient:
    """One session over one connection. Blocks."""

    def __init__(self, port: int, token: str) -> None:
        self._line = http.client.HTTPConnection("127.0.0.1", port)
        self._line.connect()
        self._line.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}
        self._number = 0
        begun = {"protocolVersion": PROTOCOL, "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}
        self._headers["Mcp-Session-Id"] = self._post("initialize", begun)[1]
        self._headers["MCP-Protocol-Version"] = PROTOCOL

    def call(self, tool: str, **arguments: Any) -> Json:
        answer: Json = self._post("tools/call", {"name": tool, "arguments": arguments})[0]["result"][
            "structuredContent"
        ]
        return answer

    def _post(self, method: str, params: Json) -> tuple[Json, str]:
        self._number += 1
        body = {"jsonrpc": "2.0", "id": self._number, "method": method, "params": params}
        self._line.request("POST", "/mcp", json.dumps(body), self._headers)
        response = self._line.getresponse()
        return json.loads(response.read()), response.headers.get("Mcp-Session-Id", "")


async def measure(nodes: int) -> list[Figure]:
    """The medians over stdio and HTTP, and what HTTP adds."""
    port = free_port()
    texts = [text[:300] for text in varied(MEMORIES + 2 * ROUNDS * CALLS + nodes)]
    known, fresh = texts[:MEMORIES], iter(texts[MEMORIES:])
    questions = (f"how does {' '.join(text.split()[at : at + 8])} work?" for at in (1, 4, 7) for text in known)
    times: dict[str, list[float]] = {}
    async with runtime(http_port=str(port), toolsets="memory,nodes") as running, running.client() as stdio:
        await fill(stdio, known)
        await wait_until(lambda: drained(stdio), 120)
        web = await asyncio.to_thread(HttpClient, port, token_of(running.home))

        async def timed(name: str, call: Callable[[], Any]) -> None:
            began = time.perf_counter()
            found = call()
            answer = await found if asyncio.iscoroutine(found) else found
            times.setdefault(name, []).append((time.perf_counter() - began) * 1000)
            if "error" in answer:
                raise RuntimeError(f"not answered as it should be: {answer}")

        for _ in range(ROUNDS):
            for _ in range(CALLS):
                text, other = next(fresh), next(fresh)
                await timed("store, stdio", lambda text=text: stdio.call("store_memory", content=text))  # type: ignore[misc]
                await timed("store, HTTP", lambda other=other: web.call("store_memory", content=other))  # type: ignore[misc]
            await wait_until(lambda: drained(stdio), 60)
            for _ in range(CALLS):
                text, other = next(questions), next(questions)
                await timed("recall, stdio", lambda text=text: stdio.call("recall_memories", query=text))  # type: ignore[misc]
                await timed("recall, HTTP", lambda other=other: web.call("recall_memories", query=other))  # type: ignore[misc]
        chance, ids = random.Random(1), list[str]()  # the same net each time
        for text in fresh:
            linked = chance.sample(ids, min(LINKS, len(ids)))
            ids.append((await stdio.call("remember", content=text, links=linked))["id"])
        await wait_until(lambda: drained(stdio), 1200)  # embedding them would be what is measured
        for memory_id in chance.sample(ids, min(200, len(ids))):
            await timed("connections, depth 3", lambda each=memory_id: stdio.call("connections", node_id=each, depth=3))  # type: ignore[misc]
    medians = {name: statistics.median(values) for name, values in times.items()}
    reach = {"connections, depth 3": 8.0}
    figures = [Figure(f"{name}, p50", value, "ms", reach.get(name, 0)) for name, value in medians.items()]
    for what in ("store", "recall"):
        added = medians[f"{what}, HTTP"] - medians[f"{what}, stdio"]
        figures.append(Figure(f"HTTP adds to a {what}", added, "ms", 1.0))
    return figures


async def measure_load() -> list[Figure]:
    """200 sessions at several rates, what each costs in memory, and who is served beside 10,000 left connections."""
    port = free_port()
    async with (
        runtime(http_port=str(port), http_requests_per_minute="0", embedders="0") as running,
        running.client() as stdio,
    ):
        memory_id = (await stdio.call("store_memory", content=next(iter(varied(1)))[:300], scope="user"))["memory_id"]
        gateway = next(each["pid"] for each in (await running.status())["processes"] if each["role"] == "gateway")
        process = psutil.Process(gateway)
        token = token_of(running.home)
        await RawHttp(port, token).open()  # what is made once
        before = process.memory_info().rss
        clients = [await RawHttp(port, token).open() for _ in range(CLIENTS)]
        each_mb = (process.memory_info().rss - before) / CLIENTS / 1e6
        figures: list[Figure] = []
        for rate in RATES:
            before_s = sum(process.cpu_times()[:2])
            latencies, took_s = await _asked_at(rate, clients, memory_id)
            worked_ms = (sum(process.cpu_times()[:2]) - before_s) / len(latencies) * 1000
            hundredths = statistics.quantiles(latencies, n=100)
            answered = len(latencies) / took_s
            figures += [
                Figure(f"of {rate:,} reads a second, answered", answered, "/s", 0.99 * rate, more_is_better=True),
                Figure(f"at {rate:,}: the gateway's work on each", worked_ms, "ms", 0),
                Figure(f"at {rate:,}: latency, p50", hundredths[49], "ms", 0),
                Figure(f"at {rate:,}: latency, p99", hundredths[98], "ms", 60.0),
            ]
        for client in clients:
            client.close()
        most = min(LEFT, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - 1000)
        left = [await asyncio.open_connection("127.0.0.1", port) for _ in range(most)]
        asked = time.perf_counter()
        found = await stdio.call("get_memory", memory_id=memory_id)
        beside = (time.perf_counter() - asked) * 1000
        for _, writer in left:
            writer.close()
        if "error" in found:
            raise RuntimeError(f"not answered beside connections that were left: {found}")
    return [
        *figures,
        Figure("memory of a session and its connection", each_mb, "MB", 0.2),
        Figure(f"a read on stdio beside {most:,} connections opened and left", beside, "ms", 0),
    ]


async def _asked_at(rate: float, clients: Sequence[RawHttp], memory_id: str) -> tuple[list[float], float]:
    """The latencies in ms of reads that are due so often a second, and how long all took, in seconds."""
    latencies: list[float] = []
    began = time.perf_counter()

    async def ask(number: int, client: RawHttp) -> None:
        due = began + number / rate
        while due < began + LOAD_S:
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            await client.call("get_memory", memory_id=memory_id)
            latencies.append((time.perf_counter() - due) * 1000)
            due += len(clients) / rate

    await asyncio.gather(*(ask(number, client) for number, client in enumerate(clients)))
    return latencies, time.perf_counter() - began


class RawHttp:
    """A session on a connection of its own, which costs the machine as little as can be."""

    def __init__(self, port: int, token: str) -> None:
        self._port = port
        self._head = f"Authorization: Bearer {token}\r\n"

    async def open(self) -> RawHttp:
        """Connect and shake hands."""
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        begun = {"protocolVersion": PROTOCOL, "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}
        head, _ = await self._post("initialize", begun)
        session = next(line[16:] for line in head.splitlines() if line.lower().startswith("mcp-session-id: "))
        self._head += f"Mcp-Session-Id: {session}\r\nMCP-Protocol-Version: {PROTOCOL}\r\n"
        return self

    async def call(self, tool: str, **arguments: Any) -> None:
        """Raises `RuntimeError` for an error."""
        _, body = await self._post("tools/call", {"name": tool, "arguments": arguments})
        if b'"isError":true' in body or b'"error":' in body[:200]:
            raise RuntimeError(f"not answered as it should be: {body[:500]!r}")

    async def _post(self, method: str, params: Json) -> tuple[str, bytes]:
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
        head = f"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{self._head}"
        self._writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode())
        answered = (await self._reader.readuntil(b"\r\n\r\n")).decode()
        length = next(int(line[16:]) for line in answered.splitlines() if line.lower().startswith("content-length: "))
        return answered, await self._reader.readexactly(length)

    def close(self) -> None:
        """Let go of the connection."""
        self._writer.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=NODES, help=f"linked nodes (default {NODES})")
    parser.add_argument("--load-only", action="store_true", help="leave out what one client alone sees")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    asked = parser.parse_args()
    figures = [] if asked.load_only else asyncio.run(measure(asked.nodes))
    figures += asyncio.run(measure_load())
    print_figures(figures, as_json=asked.json)


if __name__ == "__main__":
    main()
