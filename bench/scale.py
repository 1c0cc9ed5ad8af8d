"""Measures the figures that grow with the number of memories: `python -m bench.scale [--sizes N …] [--home DIR]`.

One project of 1,000 to 100,000 memories (`bench.varied_text`) is stored, embedded and queried through a real client.
With `--home` the filled homes are kept in that directory, and reused by the next run.
"""

import argparse
import asyncio
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Final

from bench.client import StdioClient
from bench.harness import Figure, Runtime, drained, fill, latencies, print_figures, settle, wait_until
from bench.varied_text import varied
from remembrancer.commands.runtime_client import is_up
from remembrancer.protocol.paths import RuntimePaths

SIZES: Final = (1_000, 10_000, 30_000, 100_000)
REACHES: Final = {("hybrid", 10_000): (8.0, 16.0), ("hybrid", 100_000): (16.0, 16.0)}
"""The goals for recalls in milliseconds, p50 and p95, by strategy and size."""
QUESTIONS: Final = 200
"""The number of recalls of each strategy. Each question is new; every size gets the same ones."""
STORES: Final = 60
EMBEDDED_WITHIN_S: Final = 3600.0
SETTLED_WITHIN_S: Final = 600.0
STRATEGIES: Final = ("hybrid", "keyword", "vector")


class KeptRuntime(Runtime):
    """A runtime in a persistent home. The sessions' directory, and so the project, is the same for every size."""

    def __init__(self, home: Path, project: Path) -> None:
        self.home = home
        self.environ = {}
        self._project = project

    def client(self, directory: Path | None = None, **environ: str) -> StdioClient:
        return super().client(directory or self._project, **environ)

    async def aclose(self) -> None:
        if is_up(RuntimePaths(self.home)):
            await self.command("down")


async def measure(sizes: list[int], folder: Path) -> list[Figure]:
    """Fill a home for each size, starting from the next smaller one, and measure it."""
    texts = await asyncio.to_thread(varied, max(sizes))
    project = folder / "project"
    project.mkdir(parents=True, exist_ok=True)
    questions = [f"how does {text.partition(': ')[2][:60].lower()} work?" for text in texts[: 3 * QUESTIONS]]
    figures: list[Figure] = []
    for size in sorted(sizes):
        running = KeptRuntime(folder / f"{size}", project)
        try:
            await _fill_home(running, folder, size, texts)
            print(f"measuring at {size:,} …", file=sys.stderr, flush=True)
            async with running.client() as client:
                await wait_until(lambda: _recall(client, "open a file", "vector"), SETTLED_WITHIN_S, 0.2)
                await settle(running, client, EMBEDDED_WITHIN_S)
                for place, strategy in enumerate(STRATEGIES):
                    p50, p95 = await _recalls(client, strategy, questions[place::3])
                    reach = REACHES.get((strategy, size), (0.0, 0.0))
                    figures.append(Figure(f"`recall_memories` {strategy} at {size:,}, p50", p50, "ms", reach[0]))
                    figures.append(Figure(f"`recall_memories` {strategy} at {size:,}, p95", p95, "ms", reach[1]))
                p50, _ = await latencies(lambda n: client.store(f"measured {n}: a note"), STORES)
                figures.append(Figure(f"`store_memory` at {size:,}, p50", p50, "ms", 0))
        finally:
            await running.aclose()
    return figures


async def _fill_home(running: KeptRuntime, folder: Path, size: int, texts: list[str]) -> None:
    """Make the home of a size if it does not exist. A file beside it says that it is whole."""
    whole = folder / f"{size}.whole"
    if whole.exists():
        return
    print(f"storing {size:,} memories …", file=sys.stderr, flush=True)
    smaller = max((known for known in SIZES if known < size and (folder / f"{known}.whole").exists()), default=0)
    shutil.rmtree(running.home, ignore_errors=True)
    if smaller:
        shutil.copytree(folder / f"{smaller}", running.home, ignore=shutil.ignore_patterns("run", "*.lock", "logs"))
    else:
        running.home.mkdir()
    async with running.client() as client:
        await fill(client, texts[smaller:size])
        await wait_until(lambda: drained(client), EMBEDDED_WITHIN_S, 0.2)
    await running.aclose()
    whole.touch()


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
    """Measure, in the given folder or in a temporary one, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES), help="memories, 1,000 or more")
    parser.add_argument("--home", type=Path, metavar="DIR", help="where filled homes are kept (default: nowhere)")
    given = parser.parse_args()
    if min(given.sizes) < 3 * QUESTIONS:
        parser.error(f"the questions are about the first {3 * QUESTIONS:,} memories")
    with tempfile.TemporaryDirectory(prefix="rmb-scale-", dir="/tmp") as temporary:
        print_figures(asyncio.run(measure(given.sizes, (given.home or Path(temporary)).absolute())))


if __name__ == "__main__":
    main()
