"""Measures the figures that grow with the number of memories: `python -m bench.scale [--sizes N …]`.

One project grows to 1,000, then to 10,000 … memories (`bench.varied_text`), which are stored and queried through a real
client. At each size, everything is embedded and measured.
"""

import argparse
import asyncio
import itertools
import sys
from functools import partial
from typing import Final

from bench.client import StdioClient
from bench.harness import Figure, fill, latencies, latency_figures, print_figures, runtime, settle, wait_until
from bench.varied_text import varied

SIZES: Final = (1_000, 10_000, 30_000, 100_000)
REACHES: Final = {("hybrid", 10_000): (8.0, 16.0), ("hybrid", 100_000): (16.0, 16.0)}
"""The goals for recalls in milliseconds, p50 and p95, by strategy and size."""
QUESTIONS: Final = 200
"""The number of recalls of each strategy at each size. Each question is new, and about a text stored so far."""
STORES: Final = 60
EMBEDDED_WITHIN_S: Final = 3600.0
SETTLED_WITHIN_S: Final = 600.0
STRATEGIES: Final = ("hybrid", "keyword", "vector")


async def measure(sizes: list[int]) -> list[Figure]:
    """Fill a home up to each size, and measure it."""
    texts = await asyncio.to_thread(varied, max(sizes))
    figures: list[Figure] = []
    async with runtime() as running:
        for smaller, size in itertools.pairwise([0, *sorted(sizes)]):
            print(f"measuring at {size:,} …", file=sys.stderr, flush=True)
            async with running.client() as client:
                await fill(client, texts[smaller:size])
            async with running.client() as client:
                await settle(running, client, EMBEDDED_WITHIN_S)
                await wait_until(partial(_recall, client, "open a file", "vector"), SETTLED_WITHIN_S, 0.2)
                figures += await _figures(client, size, texts[smaller:][: 3 * QUESTIONS])
    return figures


async def _figures(client: StdioClient, size: int, texts: list[str]) -> list[Figure]:
    questions = [f"how does {text.partition(': ')[2][:60].lower()} work?" for text in texts]
    figures: list[Figure] = []
    for place, strategy in enumerate(STRATEGIES):
        times = await _recalls(client, strategy, questions[place::3])
        reach = REACHES.get((strategy, size), (0.0, 0.0))
        figures += latency_figures(f"`recall_memories` {strategy} at {size:,}", times, *reach)
    p50, _ = await latencies(lambda n: client.store(f"measured {n} at {size}: a note"), STORES)
    return [*figures, Figure(f"`store_memory` at {size:,}, p50", p50, "ms", 0)]


async def _recall(client: StdioClient, question: str, strategy: str) -> bool:
    """Recall, and return whether everything was searched."""
    answer = await client.call_or_error("recall_memories", query=question, strategy=strategy)
    return "error" not in answer and not answer.get("warnings")


async def _recalls(client: StdioClient, strategy: str, questions: list[str]) -> tuple[float, float]:
    async def ask(number: int) -> None:
        if not await _recall(client, questions[number], strategy):
            raise RuntimeError(f"{questions[number]!r} is not answered as it should be")

    return await latencies(ask, len(questions))


def main() -> None:
    """Measure, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES), help="numbers of memories")
    given = parser.parse_args()
    if any(size - smaller < 3 * QUESTIONS for smaller, size in itertools.pairwise([0, *sorted(given.sizes)])):
        parser.error(f"the questions are about {3 * QUESTIONS:,} memories of each size that the smaller one has not")
    print_figures(asyncio.run(measure(given.sizes)))


if __name__ == "__main__":
    main()
