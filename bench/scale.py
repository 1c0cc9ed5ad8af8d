"""Measures the figures that grow with the number of memories: `python -m bench.scale [--sizes N …] [--home DIR]
[--plot FILE]`.

One project of 1,000 to 100,000 memories (`bench.varied_text`) is stored, embedded and queried through a real client.
With `--home` the filled homes are kept in that directory, and reused by the next run. `--plot` draws the latency of
recalls as an SVG, which needs matplotlib.
"""

import argparse
import asyncio
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

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
COLOURS: Final = {"hybrid": "#0b6e99", "keyword": "#b35900", "vector": "#4d7c2a"}
"""The strategies, and the colours of their lines."""
INK: Final = "#767676"
"""Readable on white and on dark pages."""
STYLE: Final[dict[Any, Any]] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "remembrancer",
    "font.family": "sans-serif",
    "font.size": 11,
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), INK),
}
Recalls = dict[str, tuple[float, float]]
"""The median and the 95th percentile of recalls in milliseconds, by strategy."""


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


async def measure(sizes: list[int], folder: Path) -> tuple[list[Figure], dict[int, Recalls]]:
    """Fill a home for each size, starting from the next smaller one, and measure it."""
    texts = await asyncio.to_thread(varied, max(sizes))
    project = folder / "project"
    project.mkdir(parents=True, exist_ok=True)
    questions = [f"how does {text.partition(': ')[2][:60].lower()} work?" for text in texts[: 3 * QUESTIONS]]
    figures: list[Figure] = []
    recalls: dict[int, Recalls] = {}
    for size in sorted(sizes):
        running = KeptRuntime(folder / f"{size}", project)
        try:
            await _fill_home(running, folder, size, texts)
            print(f"measuring at {size:,} …", file=sys.stderr, flush=True)
            async with running.client() as client:
                await wait_until(lambda: _recall(client, "open a file", "vector"), SETTLED_WITHIN_S, 0.2)
                await settle(running, client, EMBEDDED_WITHIN_S)
                recalls[size] = {
                    strategy: await _recalls(client, strategy, questions[place::3])
                    for place, strategy in enumerate(COLOURS)
                }
                for strategy, (p50, p95) in recalls[size].items():
                    reach = REACHES.get((strategy, size), (0.0, 0.0))
                    figures.append(Figure(f"`recall_memories` {strategy} at {size:,}, p50", p50, "ms", reach[0]))
                    figures.append(Figure(f"`recall_memories` {strategy} at {size:,}, p95", p95, "ms", reach[1]))
                p50, _ = await latencies(lambda n: client.store(f"measured {n}: a note"), STORES)
                figures.append(Figure(f"`store_memory` at {size:,}, p50", p50, "ms", 0))
        finally:
            await running.aclose()
    return figures, recalls


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


def draw(recalls: dict[int, Recalls], file: Path) -> None:
    """Plot the latency of recalls against the number of memories, as an SVG that is the same for the same figures."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot, ticker

    sizes = sorted(recalls)
    with pyplot.rc_context(STYLE):
        drawing, axes = pyplot.subplots(figsize=(7.2, 4.0), layout="constrained")
        for strategy, colour in COLOURS.items():
            for place, (name, style) in enumerate((("p50", "-"), ("p95", ":"))):
                values = [recalls[size][strategy][place] for size in sizes]
                axes.plot(sizes, values, style, marker="o", markersize=4, color=colour, label=f"{strategy}, {name}")
        axes.set_xscale("log")
        axes.set_xticks(sizes, [f"{size:,}" for size in sizes])
        axes.xaxis.set_minor_locator(ticker.NullLocator())
        axes.set_ylim(bottom=0)
        axes.set_xlabel("memories in the project")
        axes.set_ylabel("milliseconds a recall")
        axes.grid(axis="y", color=INK, alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, ncols=3)
        drawing.savefig(file, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
        pyplot.close(drawing)


def main() -> None:
    """Measure, in the given folder or in a temporary one, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES), help="memories, 1,000 or more")
    parser.add_argument("--home", type=Path, metavar="DIR", help="where filled homes are kept (default: nowhere)")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw latency against size into this SVG")
    given = parser.parse_args()
    if min(given.sizes) < 3 * QUESTIONS:
        parser.error(f"the questions are about the first {3 * QUESTIONS:,} memories")
    with tempfile.TemporaryDirectory(prefix="rmb-scale-", dir="/tmp") as temporary:
        figures, recalls = asyncio.run(measure(given.sizes, (given.home or Path(temporary)).absolute()))
    print_figures(figures)
    if given.plot is not None:
        draw(recalls, given.plot)


if __name__ == "__main__":
    main()
