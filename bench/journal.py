"""Measures the journal of shared lanes: the time of an append, concurrent appends by several hosts, and the speed of
catching up.

`python -m bench.journal` starts its own NATS servers (one, then a cluster of three), which flush the disk for each
append, and uses sealed entries of 600 bytes. `--memories 50000` also measures joining a lane of that size, and `--rest
120` an idle host of an idle lane for that many seconds (with NATS servers).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import random
import resource
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from multiprocessing.queues import SimpleQueue
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any, Final, TypeVar

import psutil
from nats.aio.client import Client

from remembrancer.actors.store.committer import Committer
from remembrancer.actors.store.lane_snapshots import LaneSnapshots
from remembrancer.actors.store.memory_files import MemoryFiles
from remembrancer.actors.store.records.contract import Filters, Phrase
from remembrancer.actors.store.records.sqlite_file import SqliteFile
from remembrancer.actors.store.shared_lane import SharedLane
from remembrancer.actors.store.shared_lanes import Connection, FollowUp, SharedLanes
from remembrancer.journal.contract import START, NewEntry
from remembrancer.journal.jetstream import JetStreamJournal, Server
from remembrancer.journal.sealing import SEAL_BYTES, Keyring, Sealed
from remembrancer.protocol.ids import new_ulid
from remembrancer.protocol.paths import RuntimePaths
from remembrancer.protocol.sharing import ShareProject
from remembrancer.protocol.writes import Operation, ProjectRef, StoreMemory
from tests.conftest import DISK
from tests.nats_servers import NatsServers

BODY: Final = bytes(600)
LANE: Final = "bench"
GROUP: Final = 8
"""The number of operations that a busy host appends together."""
JOINED: Final = "joined"
RESTS: Final = "rests"
SETTLED_S: Final = 5.0
"""The time by which a host has finished the work after its start."""
WORDS: Final = ("lantern", "candle", "bottle", "torch", "harbour", "ladder", "window", "garden", "river", "stone")
T = TypeVar("T")
_FIGURES: Final = {
    "append_p50_ms": "one entry, p50 (ms)",
    "append_p95_ms": "one entry, p95 (ms)",
    "group_p50_ms": f"{GROUP} entries together, p50 (ms)",
    "entries_a_second": "entries a second from all hosts",
    "caught_up_a_second": "entries a second, read by one that catches up",
    "join_s": "joining a lane, until words find its memories (s)",
    "join_mb": "memory of that at most (MB)",
    "rest_cpu_ms": "a lane at rest, a minute: processor (ms)",
    "rest_wakeups": "a lane at rest, a minute: wakeups",
    "rest_messages": "a lane at rest, a minute: messages, both ways",
}


def connected(urls: tuple[str, ...], keyring: Keyring) -> Sealed:
    """Provide a connection of one host."""
    return Sealed(JetStreamJournal(Server(urls), seal_bytes=SEAL_BYTES), keyring)


async def _appends(urls: tuple[str, ...], keyring: Keyring, count: int, group: int) -> list[float]:
    """Return the times of consecutive appends, in seconds."""
    journal, taken = connected(urls, keyring), []
    lane = f"{LANE}-{group}"
    mark = await journal.create(lane)
    for number in range(count):
        entries = [NewEntry(f"{number}-{each}", BODY) for each in range(group)]
        started = time.perf_counter()
        mark = await journal.append(lane, entries, behind=mark)
        taken.append(time.perf_counter() - started)
    await journal.aclose()
    return taken


async def _host(urls: tuple[str, ...], keyring: Keyring, host: int, seconds: float, ready: Barrier) -> int:
    """Append groups to the shared lane, and read after each as a host does. Returns the number of entries."""
    journal, done = connected(urls, keyring), 0
    mark = (await journal.read(LANE, after=START)).mark
    await asyncio.to_thread(ready.wait)
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        entries = [NewEntry(f"{host}-{done + each}", BODY) for each in range(GROUP)]
        position = (await journal.append(LANE, entries, behind=mark)).position
        while mark.position < position:
            mark = (await journal.read(LANE, after=mark)).mark
        done += GROUP
    await journal.aclose()
    return done


def _run_host(
    urls: tuple[str, ...],
    keyring: Keyring,
    host: int,
    seconds: float,
    ready: Barrier,
    results: SimpleQueue[int],
) -> None:
    results.put(asyncio.run(_host(urls, keyring, host, seconds, ready)))


async def _caught_up(urls: tuple[str, ...], keyring: Keyring) -> tuple[int, float]:
    """Return the entries of the shared lane, and the seconds in which a new host reads and opens them."""
    journal, mark, count = connected(urls, keyring), START, 0
    started = time.perf_counter()
    while True:
        page = await journal.read(LANE, after=mark)
        count += len(page.entries)
        mark = page.mark
        if page.is_last:
            break
    taken = time.perf_counter() - started
    await journal.aclose()
    return count, taken


@asynccontextmanager
async def _lane(
    urls: tuple[str, ...], keyring: Keyring, member: str, directory: Path, every: int
) -> AsyncIterator[tuple[Committer, SharedLane, LaneSnapshots]]:
    """Open the lane at one of its hosts, which writes a snapshot after that many entries."""
    journal, committer, loop = connected(urls, keyring), Committer(), asyncio.get_running_loop()

    def ask(question: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(question, loop).result()

    def opened() -> SharedLane:
        return SharedLane(
            SqliteFile(directory / f"{member}.db"), directory / f"{member}.db", JOINED, time.time, journal, member, ask
        )

    lane = await committer.run(JOINED, opened)
    yield committer, lane, LaneSnapshots(lane, journal, member, False, committer, lambda *_: None, every=every)
    await committer.run(JOINED, lane.close)
    await asyncio.to_thread(committer.close)
    await journal.aclose()


async def _filled(urls: tuple[str, ...], keyring: Keyring, directory: Path, memories: int) -> None:
    """Make a lane with that many memories, and a snapshot of it."""
    journal = connected(urls, keyring)
    await journal.create(JOINED)
    await journal.aclose()
    chosen = random.Random(1)
    async with _lane(urls, keyring, "maker", directory, memories) as (committer, lane, snapshots):
        for begin in range(0, memories, 400):
            operations = []
            for number in range(begin, min(memories, begin + 400)):
                content = f"Note {number}: the {' '.join(chosen.choices(WORDS, k=40))} stands in room {number}."
                change = StoreMemory(
                    memory_id=f"mem_{number}", content=content, type="semantic", scope="project", session_id="bench"
                )
                operations.append(Operation(new_ulid(), ProjectRef(JOINED, ""), "bench", time.time(), change))
            for outcome in await committer.submit(lane, operations):
                assert not isinstance(outcome.reply, Exception), outcome.reply
        await snapshots.keep()


async def _joined(urls: tuple[str, ...], keyring: Keyring, directory: Path, memories: int) -> tuple[float, float]:
    """Return the seconds in which a new host gets all memories and finds one by its words, and the megabytes used."""
    process, highest_bytes = psutil.Process(), 0
    before_bytes = process.memory_info().rss
    started = time.perf_counter()
    async with _lane(urls, keyring, "joiner", directory, memories) as (_, lane, snapshots):
        joining = asyncio.create_task(snapshots.catch_up())
        while not joining.done():
            await asyncio.wait([joining], timeout=0.05)
            highest_bytes = max(highest_bytes, process.memory_info().rss)
        await joining
        (found,) = lane.keyword_hits([Phrase(str(memories - 1))], Filters("bench"), 5)
        taken = time.perf_counter() - started
        assert found, "the newest memory is not found"
        assert lane.counts(None).total == memories
    return taken, max(0, highest_bytes - before_bytes) / 1e6


def _run_joiner(
    urls: tuple[str, ...],
    keyring: Keyring,
    directory: Path,
    memories: int,
    results: SimpleQueue[tuple[float, float]],
) -> None:
    results.put(asyncio.run(_joined(urls, keyring, directory, memories)))


def _used(client: Client) -> tuple[float, int, int]:
    """Return the processor time of this process in milliseconds, its wakeups, and the messages of a connection."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    messages = client.stats["in_msgs"] + client.stats["out_msgs"]
    return (usage.ru_utime + usage.ru_stime) * 1000, usage.ru_nvcsw, messages


async def _at_rest(urls: tuple[str, ...], keyring: Keyring, directory: Path, seconds: float) -> tuple[float, ...]:
    """Return the processor time, wakeups and messages per minute of a host with an idle lane."""
    inner = JetStreamJournal(Server(urls), seal_bytes=SEAL_BYTES)
    committer, paths = Committer(), RuntimePaths(directory / "home")
    paths.home.mkdir(mode=0o700)
    lanes = SharedLanes(paths, committer, time.time, lambda _: Connection(Sealed(inner, keyring), "rests"))
    files = MemoryFiles(paths, committer, time.time, limit_bytes=None, on_open=lambda _: None, lanes=lanes)

    async def scrub(_: str) -> None:
        """Do nothing: nothing is erased here."""

    lanes.attach(files, FollowUp(scrub, lambda _: None, lambda _: None))
    sharing = lanes.handlers()[ShareProject](ShareProject(ProjectRef("p_0123456789ab", "/rests"), RESTS), None)  # type: ignore[arg-type]
    assert sharing is not None
    await sharing
    await asyncio.sleep(SETTLED_S)
    client = inner._client
    assert client is not None
    before = _used(client)
    await asyncio.sleep(seconds)
    after = _used(client)
    await lanes.aclose()
    await asyncio.to_thread(committer.close)
    files.close()
    return tuple((now - then) * 60 / seconds for then, now in zip(before, after, strict=True))


def _run_at_rest(
    urls: tuple[str, ...], keyring: Keyring, directory: Path, seconds: float, results: SimpleQueue[tuple[float, ...]]
) -> None:
    results.put(asyncio.run(_at_rest(urls, keyring, directory, seconds)))


async def _begun(servers: NatsServers, keyring: Keyring) -> None:
    journal = connected(servers.urls, keyring)
    await servers.until_ready(journal)
    await journal.create(LANE)
    await journal.create(RESTS)
    await journal.aclose()


@contextmanager
def _servers(count: int, keyring: Keyring) -> Iterator[tuple[str, ...]]:
    """Return the URLs of that many NATS servers, on disk and with the shared lane."""
    with NatsServers(count, root=DISK) as servers:
        asyncio.run(_begun(servers, keyring))
        yield servers.urls


def measured(
    servers_count: int, *, appends: int, hosts: int, seconds: float, memories: int, rest_s: float
) -> dict[str, float]:
    """Measure with that many servers."""
    keyring = Keyring.new()
    with _servers(servers_count, keyring) as urls:
        alone = asyncio.run(_appends(urls, keyring, appends, 1))
        grouped = asyncio.run(_appends(urls, keyring, appends, GROUP))
        context = multiprocessing.get_context("spawn")
        ready, results = context.Barrier(hosts), context.SimpleQueue()
        running = [
            context.Process(target=_run_host, args=(urls, keyring, host, seconds, ready, results))
            for host in range(hosts)
        ]
        for process in running:
            process.start()
        done = sum(results.get() for _ in running)
        for process in running:
            process.join()
        count, taken = asyncio.run(_caught_up(urls, keyring))
        assert count == done, f"{done} entries were acknowledged, and {count} are there"
        joined = {}
        if memories:
            with tempfile.TemporaryDirectory(dir=DISK) as directory:
                asyncio.run(_filled(urls, keyring, Path(directory), memories))
                answers = context.SimpleQueue()
                joiner = context.Process(target=_run_joiner, args=(urls, keyring, Path(directory), memories, answers))
                joiner.start()
                joined["join_s"], joined["join_mb"] = answers.get()
                joiner.join()
        if rest_s:
            with tempfile.TemporaryDirectory(dir=DISK) as directory:
                rests = context.SimpleQueue()
                resting = context.Process(target=_run_at_rest, args=(urls, keyring, Path(directory), rest_s, rests))
                resting.start()
                names = ("rest_cpu_ms", "rest_wakeups", "rest_messages")
                joined |= dict(zip(names, rests.get(), strict=True))
                resting.join()
    return {
        "append_p50_ms": statistics.median(alone) * 1000,
        "append_p95_ms": statistics.quantiles(alone, n=20)[-1] * 1000,
        "group_p50_ms": statistics.median(grouped) * 1000,
        "entries_a_second": done / seconds,
        "caught_up_a_second": count / taken,
        **joined,
    }


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(prog="python -m bench.journal", description=__doc__)
    parser.add_argument("--servers", type=int, action="append", choices=(1, 3), help="of NATS; default: both")
    parser.add_argument("--appends", type=int, default=500)
    parser.add_argument("--hosts", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--memories", type=int, default=0, help="of the lane to join; default: none is joined")
    parser.add_argument("--rest", type=float, default=0.0, help="seconds; default: nothing rests")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    counts = asked.servers or [1, 3]
    figures = {
        count: measured(
            count,
            appends=asked.appends,
            hosts=asked.hosts,
            seconds=asked.seconds,
            memories=asked.memories,
            rest_s=asked.rest,
        )
        for count in counts
    }
    if asked.json:
        print(json.dumps(figures))
        return
    print(f"{'':50}" + "".join(f"{f'{count} server(s)':>14}" for count in counts))
    for name, title in _FIGURES.items():
        if all(name not in figures[count] for count in counts):
            continue
        print(f"{title:50}" + "".join(f"{figures[count][name]:14.2f}" for count in counts))


if __name__ == "__main__":
    main()
