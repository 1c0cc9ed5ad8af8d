"""What HTTP costs beside stdio, and a walk over linked nodes: `python -m bench.http_cost [--nodes N] [--json]`.

A store, and a recall over 1,000 memories, by a client on stdio and by one on HTTP that keeps its connection, in turn.
Then `connections` three links deep among so many nodes that were linked to four others each.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import json
import random
import socket
import statistics
import time
from collections.abc import Callable
from typing import Any, Final

import msgspec

from bench.harness import Figure, drained, fill, print_table, runtime, wait_until
from bench.varied_text import varied

MEMORIES: Final = 1_000
NODES: Final = 10_000
LINKS: Final = 4
ROUNDS: Final = 10
CALLS: Final = 30
PROTOCOL: Final = "2025-11-25"
Json = dict[str, Any]


class HttpClient:
    """One session over one connection. Blocks."""

    def __init__(self, port: int) -> None:
        self._line = http.client.HTTPConnection("127.0.0.1", port)
        self._line.connect()
        self._line.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._headers = {"Content-Type": "application/json"}
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


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    return port


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
        web = await asyncio.to_thread(HttpClient, port)

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
        for memory_id in chance.sample(ids, min(200, len(ids))):
            await timed("connections, depth 3", lambda each=memory_id: stdio.call("connections", node_id=each, depth=3))  # type: ignore[misc]
    medians = {name: statistics.median(values) for name, values in times.items()}
    figures = [Figure(f"{name}, p50", value, "ms", 0) for name, value in medians.items()]
    for what in ("store", "recall"):
        added = medians[f"{what}, HTTP"] - medians[f"{what}, stdio"]
        figures.append(Figure(f"HTTP adds to a {what}", added, "ms", 1.0))
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=NODES, help=f"linked nodes (default {NODES})")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    asked = parser.parse_args()
    figures = asyncio.run(measure(asked.nodes))
    if asked.json:
        print(json.dumps(msgspec.to_builtins(figures)))
    else:
        print_table(figures)


if __name__ == "__main__":
    main()
