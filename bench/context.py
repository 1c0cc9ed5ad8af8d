"""Measures the cost of `get_memory_context`: `python -m bench.context [--size N] [--samples N] [--json]`, through a
real client.

It asks with a task (which is embedded and searched), with a task and open files, and with neither.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
from collections.abc import Iterator
from typing import Any, Final

from bench.client import StdioClient
from bench.harness import Figure, drained, fill, latencies, print_figures, runtime, wait_until
from examples.real_text import memories

SIZE: Final = 10_000
SAMPLES: Final = 300
REACH_MS: Final = 40.0
SETTLE_S: Final = 6.0
"""The time for tidying the index, which happens while no client asks."""
KINDS: Final = (
    ("semantic", "project"),
    ("semantic", "project"),
    ("semantic", "project"),
    ("procedural", "project"),
    ("semantic", "user"),
    ("episodic", "session"),
)
"""Type and scope of the memories, in turn; every section gets more than fits."""


def in_all_sections(texts: list[str]) -> Iterator[dict[str, Any]]:
    """Yield the arguments of `store_memory` for texts that begin with the name of a module."""
    for number, (text, (kind, scope)) in enumerate(zip(texts, itertools.cycle(KINDS), strict=False)):
        module = text.partition(": ")[0]
        source = {"file": f"lib/{module.replace('.', '/')}.py"}
        yield {"content": text, "type": kind, "scope": scope, "importance": number % 10 / 10, "source": source}


async def context_figures(client: StdioClient, texts: list[str], samples: int) -> list[Figure]:
    """Measure latencies on a memory with these texts, one call after the other."""
    asked = [texts[number * len(texts) // samples] for number in range(samples)]
    tasks = [f"understand how {text.partition(': ')[2][:60].lower()}" for text in asked]
    files = [[f"/home/ana/lib/{text.partition(': ')[0].replace('.', '/')}.py"] for text in asked]

    async def ask(**arguments: Any) -> None:
        answer = await client.call("get_memory_context", **arguments)
        if answer.get("warnings") or not answer["memories_used"]:
            raise RuntimeError(f"not answered as it should be: {answer}")

    await ask()  # the tokenizer is loaded on first use
    figures = []
    for name, reach, arguments in (
        ("with a task", REACH_MS, [{"task_description": task} for task in tasks]),
        # New wording, since vectors of earlier questions are cached.
        (
            "with a task and a file",
            REACH_MS,
            [
                {"task_description": f"now {task}", "files_in_context": opened}
                for task, opened in zip(tasks, files, strict=True)
            ],
        ),
        ("with neither", 0.0, [{}] * samples),
    ):
        p50, p95 = await latencies(lambda n, given=arguments: ask(**given[n]), samples)  # type: ignore[misc]
        size = f"at {len(texts):,}"
        figures.append(Figure(f"`get_memory_context` {size} {name}, p50", p50, "ms", reach))
        figures.append(Figure(f"`get_memory_context` {size} {name}, p95", p95, "ms", 0))
    return figures


async def measure_context(size: int = SIZE, samples: int = SAMPLES) -> list[Figure]:
    """Fill a new runtime, wait for its vectors, and measure."""
    texts = memories(size)
    async with runtime() as running, running.client() as client:
        await fill(client, in_all_sections(texts))
        await wait_until(lambda: drained(client), 120)
        await asyncio.sleep(SETTLE_S)
        return await context_figures(client, texts, samples)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=SIZE, help="memories")
    parser.add_argument("--samples", type=int, default=SAMPLES, help="calls of each sort")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    options = parser.parse_args()
    measured = asyncio.run(measure_context(options.size, options.samples))
    print_figures(measured, as_json=options.json)
