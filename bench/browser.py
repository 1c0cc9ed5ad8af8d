"""Measures the memory browser's pages: `python -m bench.browser [--sizes N …] [--home DIR] [--json]`.

Each size is a home (`bench.varied_text`) with sessions, tags, entities and recalls. The pages are requested one after
the other, as a browser does, and questions are typed letter by letter. Memories only have vectors if homes in `--home`
bring them (as filled by `bench.scale`); otherwise only words are searched.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import httpx
import psutil

from bench.client import StdioClient
from bench.harness import IN_FLIGHT, Figure, drained, print_figures, wait_until
from bench.scale import KeptRuntime
from bench.varied_text import varied
from remembrancer.config.project import project_of

SIZES: Final = (10_000, 100_000)
REACHES: Final = {10_000: 60.0, 100_000: 120.0}
TYPED: Final = 40.0
ROUNDS: Final = 40
QUESTIONS: Final = 10
RECALLS: Final = 200
SETTLED_WITHIN_S: Final = 900.0
REST_S: Final = 3.0
AT_REST: Final = 0.03
"""The share of one processor that gateway and store together may use while idle."""


async def measure(sizes: list[int], folder: Path, rounds: int) -> list[Figure]:
    """Return the median and the 95th percentile of every page, at each size."""
    figures: list[Figure] = []
    project = folder / "project"
    project.mkdir(parents=True, exist_ok=True)
    for size in sorted(sizes):
        async with _filled(folder / f"{size}", project, size) as running, _visit(running, project) as visit:
            processes = (await running.status())["processes"]
            workers = [psutil.Process(each["pid"]) for each in processes if each["role"] in ("gateway", "store")]
            await _rest(workers)
            figures += [each async for each in _figures(visit, workers, size, rounds)]
    return figures


@asynccontextmanager
async def _filled(home: Path, project: Path, size: int) -> AsyncIterator[KeptRuntime]:
    running = KeptRuntime(home, project)
    is_new, has_vectors = _begun(home)
    if not has_vectors:
        running.environ = {"REMEMBRANCER_EMBEDDERS": "0"}
    try:
        async with running.client() as client:
            if is_new:
                texts = varied(size)
                await _fill(client, _memories(texts))
                for text in texts[:RECALLS]:
                    await client.call("recall_memories", query=text[:60])
            elif has_vectors:
                await wait_until(lambda: drained(client), SETTLED_WITHIN_S, 0.2)
            yield running
    finally:
        await running.aclose()


def _begun(home: Path) -> tuple[bool, bool]:
    """Return whether a home is new, and whether it has vectors."""
    is_new = not home.exists()
    home.mkdir(exist_ok=True)
    return is_new, (home / "vectors").exists()


async def _rest(workers: list[psutil.Process]) -> None:
    """Wait until names have been searched in all memories, so that this work does not count towards the pages."""
    worked_s = _work_s(workers)

    async def is_at_rest() -> bool:
        nonlocal worked_s
        before, worked_s = worked_s, _work_s(workers)
        return worked_s - before < AT_REST * REST_S

    await asyncio.sleep(REST_S)
    await wait_until(is_at_rest, SETTLED_WITHIN_S, REST_S)


async def _fill(client: StdioClient, memories: Iterator[dict[str, Any]]) -> None:
    """Store everything, and wait for queued writes."""

    async def work() -> None:
        for each in memories:
            answer = await client.store(**each)
            if "memory_id" not in answer:
                raise RuntimeError(f"not stored as it should be: {answer}")

    async def is_stored() -> bool:
        return bool((await client.call("get_memory_status"))["write_queue"]["depth"] == 0)

    await asyncio.gather(*(work() for _ in range(IN_FLIGHT)))
    await wait_until(is_stored, SETTLED_WITHIN_S, 0.2)


def _memories(texts: list[str]) -> Iterator[dict[str, Any]]:
    for place, text in enumerate(texts):
        module = text.partition(":")[0]
        entity = {"name": module, "type": "library", "relationship": "about"}
        yield {"content": text, "tags": [module, f"t{place % 50}"], "related_entities": [entity]}


@asynccontextmanager
async def _visit(running: KeptRuntime, project: Path) -> AsyncIterator[httpx.AsyncClient]:
    """Open a visitor's session, with a cookie."""
    _, out = await running.command("ui", "--print", "--project", str(project))
    address = out.strip()
    base = f"{address.partition('/enter')[0]}/p/{project_of(project).id}"
    async with httpx.AsyncClient(base_url=base, timeout=60.0) as client:
        (await client.get(address)).raise_for_status()
        yield client


async def _figures(
    visit: httpx.AsyncClient, workers: list[psutil.Process], size: int, rounds: int
) -> AsyncIterator[Figure]:
    first = (await visit.get("/")).text
    memory = re.findall(r"/memory/(memory:\w+)", first)[-1]
    session = re.findall(r'/sessions/([^"?]+)"', (await visit.get("/sessions")).text)
    tag = re.findall(r'class="tag">([^<]+)<', first)[0]
    entity = re.findall(r"entity=([^\"&]+)", (await visit.get("/graph")).text)
    older = re.findall(r'href="[^"]*/p/p_\w+(/[^"]*)">Older', first)
    earlier = re.findall(r'href="[^"]*/p/p_\w+(/timeline[^"]*)">Earlier', (await visit.get("/timeline")).text)
    pages = {
        "the latest memories": "/",
        "the older ones": older[0].replace("&amp;", "&"),
        "the oldest": "/?since=2000-01-01&until=2100-01-01",
        "of a tag": f"/?tag={tag}",
        "the important": "/?order=important",
        "of the user": "/?scope=user",
        "of a kind that there is not": "/?kind=preference",
        "a memory": f"/memory/{memory}",
        "review": "/review",
        "timeline": "/timeline",
        "timeline, earlier": earlier[0].replace("&amp;", "&"),
        "graph": "/graph",
        "graph, its drawing": "/graph.json",
        "an entity": f"/graph?entity={entity[0]}",
        "sessions": "/sessions",
        "a session": f"/sessions/{session[0]}",
        "notes": "/notes",
        "code": "/code",
        "projects": "/projects",
        "health": "/health",
        "usage": "/usage",
    }
    for name, path in pages.items():
        async for figure in _asked(visit, workers, f"{size:,}: {name}", [path] * rounds, REACHES.get(size, 0)):
            yield figure
    typed = [
        f"/?{httpx.QueryParams(q=text[:end], typed=1)}"
        for text in varied(5 * QUESTIONS)[::5]
        for end in range(2, 42, 2)
    ]
    async for figure in _asked(visit, workers, f"{size:,}: search as one types", typed, TYPED):
        yield figure
    whole = [f"/?{httpx.QueryParams(q=text[:40])}" for text in varied(5 * rounds)[::5]]
    async for figure in _asked(visit, workers, f"{size:,}: search when the typing stops", whole, REACHES.get(size, 0)):
        yield figure


async def _asked(
    visit: httpx.AsyncClient, workers: list[psutil.Process], name: str, paths: list[str], reach: float
) -> AsyncIterator[Figure]:
    """Measure the times of these addresses, and the processor time of gateway and store, which is the same on a busy
    machine."""
    times = []
    await visit.get(paths[0])
    before = _work_s(workers)
    for path in paths:
        began = time.perf_counter()
        (await visit.get(path, headers={"HX-Request": "true"})).raise_for_status()
        times.append((time.perf_counter() - began) * 1000)
    worked_ms = (_work_s(workers) - before) / len(paths) * 1000
    yield Figure(f"{name}: work", worked_ms, "ms", 0)
    yield Figure(f"{name}: p50", statistics.median(times), "ms", 0)
    yield Figure(f"{name}: p95", statistics.quantiles(times, n=20)[-1], "ms", reach)


def _work_s(workers: list[psutil.Process]) -> float:
    return sum(sum(each.cpu_times()[:2]) for each in workers)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.browser", description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES), metavar="N")
    parser.add_argument("--rounds", type=int, default=ROUNDS, metavar="N", help=f"of every page ({ROUNDS})")
    parser.add_argument("--home", type=Path, metavar="DIR", help="keep the filled homes there, or use those")
    parser.add_argument("--json", action="store_true", help="for programs")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rmb-bench-", dir="/tmp") as name:
        folder = (asked.home or Path(name)).resolve()
        print_figures(asyncio.run(measure(asked.sizes, folder, asked.rounds)), as_json=asked.json)


if __name__ == "__main__":
    main()
