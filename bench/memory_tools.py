"""Measures the tools for changes, graph and context at 10,000 memories with entities: `python -m bench.speed --only
tools`."""

from __future__ import annotations

import asyncio
import itertools
import re
from collections.abc import Iterator
from typing import Any, Final

from bench.client import StdioClient
from bench.harness import Figure, drained, fill, latencies, runtime, wait_until
from bench.varied_text import varied

SIZE: Final = 10_000
SAMPLES: Final = 300
SETTLE_S: Final = 6.0
"""The time for finding names, which happens while no client asks."""
NAMED: Final = 3
"""The limit on entities that a memory names besides its module: about 20,000 edges in total."""
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z_]{4,}")


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
    texts = varied(SIZE)
    async with runtime() as running, running.client() as client:
        await fill(client, with_entities(texts))
        await wait_until(lambda: drained(client), 120)
        await asyncio.sleep(SETTLE_S)
        return [*await _changes(client), *await _graph(client, texts), *await _contexts(client, texts)]


async def _changes(client: StdioClient) -> list[Figure]:
    ids = []
    for number in range(SAMPLES):
        stored = await client.store(f"measured {number}: a note that is going to change", tags=["measured"])
        ids.append(stored["memory_id"])
    await wait_until(lambda: drained(client), 60)

    async def change(tool: str, number: int, **arguments: Any) -> None:
        answer = await client.call(tool, memory_id=ids[number], **arguments)
        if "error" in answer or answer.get("warnings"):
            raise RuntimeError(f"not changed as it should be: {answer}")

    figures = []
    for tool, arguments in (
        ("tag_memory", {"add": ["kept"]}),
        ("update_memory", {"content": "the note, changed", "importance": 0.9}),
        ("forget_memory", {"reason": "measured"}),
    ):
        p50, p95 = await latencies(lambda n, tool=tool, given=arguments: change(tool, n, **given), SAMPLES)  # type: ignore[misc]
        figures.append(Figure(f"`{tool}` acknowledged at {SIZE:,}, p50", p50, "ms", 3))
        figures.append(Figure(f"`{tool}` acknowledged at {SIZE:,}, p95", p95, "ms", 0))
    return figures


async def _graph(client: StdioClient, texts: list[str]) -> list[Figure]:
    modules = list(dict.fromkeys(text.partition(": ")[0] for text in texts))
    names = itertools.cycle(modules)
    figures = []
    for depth, reach in ((1, 5.0), (3, 25.0)):

        async def search(_: int, depth: int = depth) -> None:
            answer = await client.call("search_knowledge_graph", entity=next(names), depth=depth)
            if not answer.get("entities"):
                raise RuntimeError(f"nothing was found: {answer}")

        p50, p95 = await latencies(search, SAMPLES)
        figures.append(Figure(f"`search_knowledge_graph` depth {depth} at {SIZE:,}, p50", p50, "ms", reach))
        figures.append(Figure(f"`search_knowledge_graph` depth {depth} at {SIZE:,}, p95", p95, "ms", 0))
    return figures


async def _contexts(client: StdioClient, texts: list[str]) -> list[Figure]:
    tasks = [f"understand how {text.partition(': ')[2][:60].lower()}" for text in texts[:: len(texts) // SAMPLES]]

    async def ask(number: int) -> None:
        answer = await client.call("get_memory_context", task_description=tasks[number])
        if answer.get("warnings") or not answer["memories_used"]:
            raise RuntimeError(f"not answered as it should be: {answer}")

    p50, p95 = await latencies(ask, SAMPLES)
    return [
        Figure(f"`get_memory_context` at {SIZE:,} with a task, p50", p50, "ms", 40),
        Figure(f"`get_memory_context` at {SIZE:,} with a task, p95", p95, "ms", 0),
    ]
