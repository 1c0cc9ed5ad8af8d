"""Measures the figures that grow with the number of memories: `python -m bench.scale [--sizes N …] [--home DIR]
[--json] [--plot FILE]`.

One project of 1,000 to 100,000 memories (`bench.varied_text`) is stored, embedded and queried through a real client.
With `--home` the filled homes are kept in that directory, and reused by the next run.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import msgspec
import psutil

from bench.client import StdioClient
from bench.harness import Runtime, drained, fill, latencies, wait_until
from bench.scale_figures import STRATEGIES, AtSize, Latency, Loading, print_sizes
from bench.varied_text import varied
from remembrancer.commands.runtime_client import ask, is_up
from remembrancer.protocol.control import AskStatus
from remembrancer.protocol.errors import RemembrancerError
from remembrancer.protocol.paths import RuntimePaths

SIZES: Final = (1_000, 10_000, 30_000, 100_000)
QUESTIONS: Final = 200
"""The number of recalls of each strategy. Each question is new; every size gets the same ones."""
FEWER: Final = 60
"""The number of calls of each other tool."""
EMBEDDED_WITHIN_S: Final = 3600.0
SETTLED_WITHIN_S: Final = 600.0
ASKED_EVERY_S: Final = 0.2
"""The pause between two polls for vector search, since polling takes processor time from building the index."""


class KeptRuntime(Runtime):
    """A runtime in a persistent home. The sessions' directory, and so the project, is the same for every size."""

    def __init__(self, home: Path, project: Path) -> None:
        self.home = home
        self.environ = {}
        self._project = project

    def client(self) -> StdioClient:
        return StdioClient(self.home, cwd=self._project, environ=self.environ)

    async def aclose(self) -> None:
        if is_up(RuntimePaths(self.home)):
            await self.command("down")


async def measure(sizes: list[int], folder: Path) -> list[AtSize]:
    """Fill a home for each size, starting from the next smaller one, and measure it."""
    texts = await asyncio.to_thread(varied, max(sizes))
    project = folder / "project"
    project.mkdir(parents=True, exist_ok=True)
    measured = []
    for size in sorted(sizes):
        running = KeptRuntime(folder / f"{size}", project)
        loading = await _filled(running, folder, size, texts)
        print(f"measuring at {size:,} …", file=sys.stderr, flush=True)
        measured.append(await _at_size(running, size, loading, texts))
    return measured


async def _filled(running: KeptRuntime, folder: Path, size: int, texts: list[str]) -> Loading:
    """Make the home of a size if it does not exist."""
    note = folder / f"{size}.json"
    if note.exists():
        return msgspec.json.decode(note.read_bytes(), type=Loading)
    print(f"storing {size:,} memories …", file=sys.stderr, flush=True)
    smaller = [number for number in _kept_sizes(folder) if number < size]
    shutil.rmtree(running.home, ignore_errors=True)
    if smaller:
        shutil.copytree(
            folder / f"{max(smaller)}", running.home, ignore=shutil.ignore_patterns("run", "*.lock", "logs")
        )
    else:
        running.home.mkdir()
    added = texts[max(smaller, default=0) : size]
    try:
        async with running.client() as client:
            await wait_until(lambda: drained(client), EMBEDDED_WITHIN_S, 0.2)
            acknowledged = await fill(client, added)
            waiting = (await client.call("get_memory_status"))["embedding"]["pending"]
            took_s = await wait_until(lambda: drained(client), EMBEDDED_WITHIN_S, 0.2)
            changes = await _changes(client, running)
    finally:
        await running.aclose()
    loading = Loading(len(added), acknowledged, waiting / took_s, changes)
    note.write_bytes(msgspec.json.encode(loading))
    return loading


def _kept_sizes(folder: Path) -> list[int]:
    return [int(path.stem) for path in folder.glob("*.json") if path.stem.isdigit()]


async def _changes(client: StdioClient, running: Runtime) -> dict[str, Latency]:
    """Measure storing, changing and forgetting a memory, one call after the other."""
    await _settle(running)
    ids: list[str] = []

    async def store(number: int) -> None:
        ids.append((await client.store(f"measured {number}: a note that is going to change"))["memory_id"])

    found = {"store_memory": Latency(*await latencies(store, FEWER))}
    await wait_until(lambda: drained(client), SETTLED_WITHIN_S)
    for tool, arguments in (
        ("update_memory", {"content": "the note, changed"}),
        ("forget_memory", {"reason": "measured"}),
    ):

        async def change(number: int, tool: str = tool, given: dict[str, Any] = arguments) -> None:
            _answered(await client.call(tool, memory_id=ids[number], **given))

        found[tool] = Latency(*await latencies(change, FEWER))
    await wait_until(lambda: drained(client), SETTLED_WITHIN_S)
    await _settle(running)
    return found


async def _at_size(running: KeptRuntime, size: int, loading: Loading, texts: list[str]) -> AtSize:
    questions = [f"how does {text.partition(': ')[2][:60].lower()} work?" for text in texts[: 5 * QUESTIONS]]
    try:
        words_s, meaning_s = await _until_answered(running)
        async with running.client() as client:
            await _settle(running)
            recalls = {
                strategy: await _recalls(client, strategy, questions[place::5][:QUESTIONS])
                for place, strategy in enumerate(STRATEGIES)
            }
            calls = await _calls(client, questions[3::5])
            store_bytes, all_bytes = await _memory(running)
        await running.aclose()
    finally:
        await running.aclose()
    return AtSize(
        size=size,
        loading=loading,
        recalls=recalls,
        calls=calls,
        words_s=words_s,
        meaning_s=meaning_s,
        store_bytes=store_bytes,
        all_bytes=all_bytes,
        records_bytes=_bytes_in(running.home / "projects"),
    )


async def _until_answered(running: Runtime) -> tuple[float, float]:
    """Return the seconds from a session's start, with nothing running, until words are searched, and until vectors
    are."""
    began = time.perf_counter()
    async with running.client() as client:
        await wait_until(lambda: _is_whole(client, "keyword"), SETTLED_WITHIN_S)
        words_s = time.perf_counter() - began
        await wait_until(lambda: _is_whole(client, "vector"), SETTLED_WITHIN_S, ASKED_EVERY_S)
        return words_s, time.perf_counter() - began


async def _is_whole(client: StdioClient, strategy: str) -> bool:
    answer = await client.call_or_error("recall_memories", query="open a file", strategy=strategy)
    return "error" not in answer and not answer.get("warnings") and not answer.get("degraded")


async def _recalls(client: StdioClient, strategy: str, questions: list[str]) -> Latency:
    async def ask(number: int) -> None:
        _answered(await client.call("recall_memories", query=questions[number], strategy=strategy))

    return Latency(*await latencies(ask, len(questions)))


async def _calls(client: StdioClient, questions: list[str]) -> dict[str, Latency]:
    async def status(_: int) -> None:
        _answered(await client.call("get_memory_status"))

    async def context(number: int) -> None:
        _answered(await client.call("get_memory_context", task_description=questions[number]))

    asked: dict[str, Callable[[int], Awaitable[None]]] = {"get_memory_status": status, "get_memory_context": context}
    return {tool: Latency(*await latencies(ask, FEWER)) for tool, ask in asked.items()}


def _answered(answer: dict[str, Any]) -> None:
    if "error" in answer or answer.get("warnings"):
        raise RuntimeError(f"not answered as it should be: {answer}")


async def _settle(running: Runtime) -> None:
    """Wait until every memory can be found by meaning."""

    async def is_settled() -> bool:
        try:
            status = await asyncio.to_thread(ask, RuntimePaths(running.home), AskStatus())
        except RemembrancerError:
            return False
        embedding = status.store.embedding if status.store else None
        return embedding is not None and embedding.vectors_ready and not embedding.pending

    await wait_until(is_settled, SETTLED_WITHIN_S, 0.5)


async def _memory(running: Runtime) -> tuple[int, int]:
    """Return the proportional set size of the store, and of the whole runtime."""
    sizes = {
        each["name"]: psutil.Process(each["pid"]).memory_full_info().pss
        for each in (await running.status())["processes"]
        if each["pid"]
    }
    return sizes["store"], sum(sizes.values())


def _bytes_in(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


async def main(options: argparse.Namespace) -> list[AtSize]:
    """Measure, in the given folder or in a temporary one."""
    if options.home is not None:
        return await measure(options.sizes, options.home.absolute())
    with tempfile.TemporaryDirectory(prefix="rmb-scale-", dir="/tmp") as folder:
        return await measure(options.sizes, Path(folder))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES), help="memories, 1,000 or more")
    parser.add_argument("--home", type=Path, metavar="DIR", help="where filled homes are kept (default: nowhere)")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw latency against size into this SVG")
    chosen = parser.parse_args()
    if min(chosen.sizes) < 5 * QUESTIONS:
        parser.error(f"the questions are about the first {5 * QUESTIONS:,} memories")
    results = asyncio.run(main(chosen))
    if chosen.plot is not None:
        from bench.latency_plot import draw  # needs matplotlib, only for the plot

        draw(
            {each.size: {name: (at.p50, at.p95) for name, at in each.recalls.items()} for each in results}, chosen.plot
        )
    if chosen.json:
        print(json.dumps([msgspec.to_builtins(each) for each in results], indent=2))
    else:
        print_sizes(results)
