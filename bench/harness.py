"""Shared parts of the benchmarks: figures, a temporary runtime, filling it, and timing calls."""

import asyncio
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
import psutil
from rich.console import Console
from rich.table import Table

from bench.client import Json, StdioClient
from remembrancer.commands import exit_codes

Subject = TypeVar("Subject")
Played = TypeVar("Played")

IN_FLIGHT: Final = 8
STOP_ATTEMPTS: Final = 3
ATTEMPTS: Final = 5
PAUSE_S: Final = 0.5
REST_S: Final = 300
LOOK_S: Final = 3.0
RESTING: Final = 0.05
"""The maximum share of a core that an idle store uses."""
INCOMPLETE: Final = frozenset(
    {"partial_results", "embedding_pending", "embedding_failed", "query_timeout", "memory_unavailable"}
)
"""Warnings of an incomplete search."""


class Figure(msgspec.Struct):
    """One row: name, value, goal, and whether less or more is better."""

    name: str
    value: float
    unit: str
    reach: float
    more_is_better: bool = False

    @property
    def reached(self) -> bool:
        """True if the value meets the goal. A goal of 0 means none."""
        if not self.reach:
            return True
        return self.value >= self.reach if self.more_is_better else self.value <= self.reach


class Runtime:
    """A runtime in a temporary home, started by its first session like a user's runtime."""

    def __init__(self, **settings: str) -> None:
        self.home = Path(tempfile.mkdtemp(prefix="rmb-bench-", dir="/tmp"))
        self.environ = {f"REMEMBRANCER_{name.upper()}": value for name, value in settings.items()}

    def client(self, directory: Path | None = None, **environ: str) -> StdioClient:
        """A session, in the project of a directory (None: the home)."""
        project = {} if directory is None else {"REMEMBRANCER_PROJECT": str(directory)}
        return StdioClient(self.home, cwd=directory, environ={**self.environ, **project, **environ})

    async def command(self, *arguments: str, directory: Path | None = None) -> tuple[int, str]:
        """Run a `remembrancer` command on this home, in a directory (None: the current one). Returns exit status and
        output."""
        process = await asyncio.create_subprocess_exec(
            str(Path(sys.executable).with_name("remembrancer")),
            *arguments,
            stdout=asyncio.subprocess.PIPE,
            cwd=directory,
            env={**_bare_environ(), "REMEMBRANCER_HOME": str(self.home), **self.environ},
        )
        out, _ = await process.communicate()
        return process.returncode or 0, out.decode()

    async def status(self) -> dict[str, Any]:
        _, out = await self.command("status", "--json")
        status: dict[str, Any] = json.loads(out)
        return status

    async def stop(self) -> bool:
        """Stop the runtime. Returns whether it is down."""
        for _ in range(STOP_ATTEMPTS):  # on a busy machine the launcher may not answer in time
            code, _ = await self.command("down")
            if code in (exit_codes.OK, exit_codes.NOT_RUNNING):
                return True
        return False

    async def aclose(self) -> None:
        await self.stop()
        shutil.rmtree(self.home, ignore_errors=True)


def _bare_environ() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(("REMEMBRANCER_", "MEMORY_"))}


@asynccontextmanager
async def runtime(**settings: str) -> AsyncIterator[Runtime]:
    """Provide a runtime, and stop and remove it at the end."""
    running = Runtime(**settings)
    try:
        yield running
    finally:
        await running.aclose()


async def play_in_projects(
    subjects: Sequence[Subject], play: Callable[[Runtime, Path, Subject], Awaitable[Played]], **settings: str
) -> list[Played]:
    """Return the results of `play` for each subject, in a project of its own. All projects share one runtime without a
    consolidator."""
    with tempfile.TemporaryDirectory() as projects:
        async with runtime(idle_timeout_s="3600", consolidator="false", **settings) as running:
            results = []
            for place, subject in enumerate(subjects):
                directory = Path(projects) / str(place)
                (directory / ".git").mkdir(parents=True)
                (directory / ".git" / "HEAD").touch()
                results.append(await play(running, directory, subject))
            return results


async def answered(client: StdioClient, tool: str, **arguments: Any) -> Json:
    """Return a tool's answer, repeating the call several times if it is incomplete. Raises `RuntimeError`."""
    answer: Json = {}
    for attempt in range(ATTEMPTS):
        if attempt:
            await asyncio.sleep(PAUSE_S)
        answer = await client.call_or_error(tool, **arguments)
        codes = {warning["code"] for warning in answer.get("warnings", ())}
        if answer.keys() & {"memory_id", "ids"} or (
            "memories" in answer and not answer.get("degraded") and not codes & INCOMPLETE
        ):
            return answer
    raise RuntimeError(f"{tool} does not answer as it should: {answer}")


def shown_places(memories: Sequence[Json], places: Mapping[str, int]) -> list[int]:
    """Return the indexes of the texts that an answer shows, best first, without repetitions.

    A memory that represents duplicates (`stands_for`) also shows their text: they follow right after it with ranks of
    their own, as in a list without deduplication.
    """
    ids = (each for memory in memories for each in (memory["id"], *memory.get("stands_for", ())))
    return list(dict.fromkeys(places[each] for each in ids if each in places))


def iso(seconds: float) -> str:
    """Format a time as the tools accept it."""
    return datetime.fromtimestamp(seconds, UTC).isoformat()


async def wait_until(condition: Callable[[], Awaitable[bool]], timeout_s: float, interval_s: float = 0.02) -> float:
    """Wait until `condition` holds, and return the seconds. Raises `TimeoutError`."""
    began = time.perf_counter()
    while not await condition():
        if time.perf_counter() - began > timeout_s:
            raise TimeoutError
        await asyncio.sleep(interval_s)
    return time.perf_counter() - began


async def drained(client: StdioClient) -> bool:
    """True if all memories have vectors."""
    embedding = (await client.call("get_memory_status")).get("embedding", {})
    return bool(embedding.get("workers") and embedding.get("pending") == 0)


async def settle(running: Runtime, client: StdioClient, within_s: float = REST_S) -> None:
    """Wait until memories have vectors, names are extracted, and passages are compared. Raises `TimeoutError`."""
    await wait_until(lambda: drained(client), within_s)
    processes = (await running.status())["processes"]
    store = psutil.Process(next(each["pid"] for each in processes if each["role"] == "store"))
    used = 0.0

    async def rests() -> bool:
        nonlocal used
        before, used = used, sum(store.cpu_times()[:2])
        return used - before < RESTING * LOOK_S

    await wait_until(rests, within_s, LOOK_S)


async def fill(client: StdioClient, texts: Iterable[str | dict[str, Any]], *, without_embedder: bool = False) -> float:
    """Store all texts (or the arguments given), `IN_FLIGHT` at a time. Returns acknowledged stores per second.

    With `without_embedder`, the warning about missing embeddings is expected.
    """
    expected = {"embedding_failed"} if without_embedder else set()
    queue = iter(texts)
    stored = 0

    async def connected() -> bool:
        return bool((await client.call("get_memory_status"))["connection"]["status"] == "connected")

    async def work() -> None:
        nonlocal stored
        for each in queue:
            answer = await (client.store(each) if isinstance(each, str) else client.store(**each))
            stored += 1
            unexpected = [each for each in answer.get("warnings", ()) if each["code"] not in expected]
            if "memory_id" not in answer or unexpected:
                raise RuntimeError(f"not stored as it should be: {answer}")

    await wait_until(connected, 30)
    began = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(IN_FLIGHT)))
    return stored / (time.perf_counter() - began)


async def latencies(call: Callable[[int], Awaitable[Any]], count: int) -> tuple[float, float]:
    """Return the median and the 95th percentile of `count` consecutive calls, in milliseconds."""
    times = []
    for number in range(count):
        began = time.perf_counter()
        await call(number)
        times.append((time.perf_counter() - began) * 1000)
    return statistics.median(times), statistics.quantiles(times, n=20)[-1]


def latency_figures(name: str, times: tuple[float, float], reach: float, reach_95: float = 0.0) -> list[Figure]:
    """Return rows for a median and a 95th percentile in milliseconds, with their goals."""
    return [Figure(f"{name}, p50", times[0], "ms", reach), Figure(f"{name}, p95", times[1], "ms", reach_95)]


def print_figures(figures: list[Figure]) -> None:
    table = Table("what", "measured", "reach", "")
    for figure in figures:
        bound = "at least" if figure.more_is_better else "at most"
        reach = f"{bound} {figure.reach:g} {figure.unit}" if figure.reach else "–"
        table.add_row(
            figure.name, f"{figure.value:,.2f} {figure.unit}", reach, "[green]✓" if figure.reached else "[red]missed"
        )
    Console().print(table)
