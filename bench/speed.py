"""Measures speed and size: `python -m bench.speed [--only NAME …]`, through a real stdio client.

Each figure is a median (or the named percentile) on this machine, compared with the project's goal.
"""

import argparse
import asyncio
import itertools
import json
import re
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final

import psutil

from bench.client import StdioClient
from bench.harness import (
    IN_FLIGHT,
    Figure,
    Runtime,
    drained,
    fill,
    latencies,
    latency_figures,
    print_figures,
    runtime,
    settle,
    wait_until,
)
from bench.varied_text import varied

STARTS: Final = 15
COLD_STARTS: Final = 5
SAMPLES: Final = 400
BURST: Final = 3000
DRAINED: Final = 3000
RESTARTS: Final = 5
FURTHER_SESSIONS: Final = 8
LARGE: Final = 10_000
STATEMENT_CHARACTERS: Final = 160
"""The drain is measured with texts as long as a statement, like most memories: about 25 word pieces."""
NAMED: Final = 3
"""The limit on entities that a memory names besides its module: about 20,000 edges in total."""
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z_]{4,}")


async def start_to_initialized(running: Runtime) -> float:
    """Return the time in milliseconds from spawning a session to its answer to `initialize`."""
    client = running.client()
    began = time.perf_counter()
    await client.start()
    await client.initialize()
    took = (time.perf_counter() - began) * 1000
    await client.aclose()
    return took


async def measure_starts() -> list[Figure]:
    cold = []
    for _ in range(COLD_STARTS):
        async with runtime() as running:
            cold.append(await start_to_initialized(running))
    async with runtime() as running, running.client() as client:
        await wait_until(lambda: drained(client), 30)
        warm = [await start_to_initialized(running) for _ in range(STARTS)]
    return [
        Figure("spawn to `initialize` answered, runtime up", statistics.median(warm), "ms", 25),
        Figure("spawn to `initialize` answered, nothing running", statistics.median(cold), "ms", 1200),
    ]


async def measure_calls() -> list[Figure]:
    texts = varied(LARGE + SAMPLES + BURST)
    more = texts[LARGE:]
    async with runtime() as running, running.client() as client:
        await fill(client, texts[:LARGE])
        await settle(running, client)
        times = await latencies(lambda n: client.store(more[n]), SAMPLES)
        figures = latency_figures(f"`store_memory` acknowledged at {LARGE:,}", times, 1.5, 4)
        await settle(running, client)
        questions = [
            f"how does {text.split(': ', 1)[1][:60].lower()} work?" for text in texts[: LARGE : LARGE // SAMPLES]
        ]
        for strategy, reach, reach_95 in (("hybrid", 8.0, 16.0), ("keyword", 4.0, 0.0)):
            times = await latencies(
                lambda n, strategy=strategy: client.call("recall_memories", query=questions[n], strategy=strategy),  # type: ignore[misc]
                len(questions),
            )
            figures += latency_figures(f"`recall_memories` {strategy} at {LARGE:,}", times, reach, reach_95)
        rate = await fill(client, more[SAMPLES:])
        figures.append(Figure(f"stores acknowledged, {IN_FLIGHT} in flight", rate, "1/s", 1500, more_is_better=True))
    return figures


async def measure_drain() -> list[Figure]:
    """Measure from when the worker is ready until no passage is pending. Each text is one passage."""
    texts = [text for text in varied(LARGE) if len(text) <= STATEMENT_CHARACTERS][:DRAINED]
    async with runtime(embedders="0") as running, running.client() as client:
        await fill(client, texts, without_embedder=True)
        await running.command("admin", "scale", "embedder=1")

        async def is_ready() -> bool:
            return bool((await client.call("get_memory_status"))["embedding"]["workers"])

        await wait_until(is_ready, 300, 0.01)
        pending = (await client.call("get_memory_status"))["embedding"]["pending"]
        rate = pending / await wait_until(lambda: drained(client), 300, 0.1)
    return [Figure("embedding drain, one worker", rate, "passages/s", 450, more_is_better=True)]


async def measure_restart() -> list[Figure]:
    times = []
    async with runtime() as running, running.client() as client:
        await fill(client, varied(1000))
        await wait_until(lambda: drained(client), 60)
        for number in range(RESTARTS):
            store = next(p for p in (await running.status())["processes"] if p["role"] == "store")
            psutil.Process(store["pid"]).kill()
            began = time.perf_counter()

            async def answered(number: int = number) -> bool:
                stored = await client.store(f"written after the store's death number {number} at {time.time()}")
                found = await client.call("recall_memories", query="contextlib closing", strategy="keyword")
                return not stored.get("warnings") and not found.get("degraded")

            await wait_until(answered, 30, 0.005)
            times.append(time.perf_counter() - began)
            await wait_until(lambda: drained(client), 60)
    return [Figure("a killed store until it answers writes and keyword reads", statistics.median(times), "s", 1.0)]


async def measure_memory() -> list[Figure]:
    async with runtime(embedders="1") as running, running.client() as client:
        await fill(client, varied(1000))
        await wait_until(lambda: drained(client), 60)
        await asyncio.sleep(3)
        alone = await _pss(running, [client])
        others = [running.client() for _ in range(FURTHER_SESSIONS)]
        for other in others:
            await other.start()
            await other.initialize()
            await other.call("recall_memories", query="open a file")
        together = await _pss(running, [client, *others])
        for other in others:
            await other.aclose()
    return [
        Figure("memory (PSS), the whole runtime idle with one worker", alone, "MB", 550),
        Figure("memory (PSS), each further session", (together - alone) / FURTHER_SESSIONS, "MB", 12),
    ]


async def _pss(running: Runtime, clients: list[StdioClient]) -> float:
    pids = [process["pid"] for process in (await running.status())["processes"]]
    pids += [client.process.pid for client in clients]
    return float(sum(psutil.Process(pid).memory_full_info().pss for pid in pids) / 1e6)


async def measure_tokens() -> list[Figure]:
    async with runtime() as running, running.client() as client:
        listed = await client.request("tools/list")
    tokens = len(json.dumps({"tools": listed["tools"]}, separators=(",", ":"), ensure_ascii=False)) / 4
    name = f"`tools/list` of the {len(listed['tools'])} tools (compact JSON characters / 4)"
    return [Figure(name, tokens, "tokens", 2000)]


# --- the tools for changes, graph and context, at 10,000 memories with entities ---


def with_entities(texts: list[str]) -> Iterator[dict[str, Any]]:
    """Yield the arguments of `store_memory`: each memory is about its module, and mentions some of its longer words."""
    for number, text in enumerate(texts):
        module, _, rest = text.partition(": ")
        words = list(dict.fromkeys(word.lower() for word in _NAME.findall(rest)))[:NAMED]
        entities = [{"name": module, "type": "module", "relationship": "describes"}]
        entities += [{"name": word, "type": "concept", "relationship": "mentions"} for word in words]
        kind = "procedural" if number % 10 == 0 else "semantic"
        yield {
            "content": text,
            "type": kind,
            "scope": "user" if number % 20 == 0 else "project",
            "importance": (number % 10) / 10,
            "tags": [module],
            "related_entities": entities,
        }


async def measure_tools() -> list[Figure]:
    """Measure changes, graph and context, one call after the other."""
    texts = varied(LARGE)
    async with runtime() as running, running.client() as client:
        await fill(client, with_entities(texts))
        await settle(running, client)
        changes = await _changes(running, client)
        await settle(running, client)
        return [*changes, *await _graph(client, texts), *await _contexts(client, texts)]


async def _changes(running: Runtime, client: StdioClient) -> list[Figure]:
    ids = []
    for number in range(SAMPLES):
        stored = await client.store(f"measured {number}: a note that is going to change", tags=["measured"])
        ids.append(stored["memory_id"])
    await settle(running, client)

    async def change(tool: str, number: int, **arguments: Any) -> None:
        answer = await client.call(tool, memory_id=ids[number], **arguments)
        if "error" in answer or answer.get("warnings"):
            raise RuntimeError(f"not changed as it should be: {answer}")

    figures: list[Figure] = []
    for tool, arguments in (
        ("tag_memory", {"add": ["kept"]}),
        ("update_memory", {"content": "the note, changed", "importance": 0.9}),
        ("forget_memory", {"reason": "measured"}),
    ):
        times = await latencies(lambda n, tool=tool, given=arguments: change(tool, n, **given), SAMPLES)  # type: ignore[misc]
        figures += latency_figures(f"`{tool}` acknowledged at {LARGE:,}", times, 3)
    return figures


async def _graph(client: StdioClient, texts: list[str]) -> list[Figure]:
    modules = list(dict.fromkeys(text.partition(": ")[0] for text in texts))
    names = itertools.cycle(modules)
    figures: list[Figure] = []
    for depth, reach in ((1, 5.0), (3, 25.0)):

        async def search(_: int, depth: int = depth) -> None:
            answer = await client.call("search_knowledge_graph", entity=next(names), depth=depth)
            if not answer.get("entities"):
                raise RuntimeError(f"nothing was found: {answer}")

        name = f"`search_knowledge_graph` depth {depth} at {LARGE:,}"
        figures += latency_figures(name, await latencies(search, SAMPLES), reach)
    return figures


async def _contexts(client: StdioClient, texts: list[str]) -> list[Figure]:
    tasks = [f"understand how {text.partition(': ')[2][:60].lower()}" for text in texts[:: len(texts) // SAMPLES]]

    async def ask(number: int) -> None:
        answer = await client.call("get_memory_context", task_description=tasks[number])
        if answer.get("warnings") or not answer["memories_used"]:
            raise RuntimeError(f"not answered as it should be: {answer}")

    name = f"`get_memory_context` at {LARGE:,} with a task"
    return latency_figures(name, await latencies(ask, SAMPLES), 40)


MEASUREMENTS: Final[dict[str, Callable[[], Awaitable[list[Figure]]]]] = {
    "starts": measure_starts,
    "calls": measure_calls,
    "tools": measure_tools,
    "drain": measure_drain,
    "restart": measure_restart,
    "memory": measure_memory,
    "tokens": measure_tokens,
}


async def main(arguments: argparse.Namespace) -> list[Figure]:
    figures = []
    for name in arguments.only or MEASUREMENTS:
        print(f"measuring {name} …", file=sys.stderr, flush=True)
        figures += await MEASUREMENTS[name]()
    return figures


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", choices=list(MEASUREMENTS), help="measure these alone")
    options = parser.parse_args()
    measured = asyncio.run(main(options))
    print_figures(measured)
