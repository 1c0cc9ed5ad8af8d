"""Measures the journal of shared lanes: the time of an append, and concurrent appends by several hosts.

`python -m bench.journal` starts its own NATS servers (one, then a cluster of three), which flush each append to disk,
and uses sealed entries of 600 bytes.
"""

import argparse
import asyncio
import multiprocessing
import statistics
import time
from multiprocessing.queues import SimpleQueue
from multiprocessing.synchronize import Barrier
from typing import Final

from bench.harness import Figure, print_figures
from remembrancer.journal.contract import START, NewEntry
from remembrancer.journal.jetstream import JetStreamJournal, Server
from remembrancer.journal.sealing import Keyring, Sealed
from tests.conftest import DISK
from tests.nats_servers import NatsServers

BODY: Final = bytes(600)
LANE: Final = "bench"
GROUP: Final = 8
"""The number of operations that a busy host appends together."""
APPENDS: Final = 500
HOSTS: Final = 8
SECONDS: Final = 10.0


def connected(urls: tuple[str, ...], keyring: Keyring) -> Sealed:
    """Return a connection for one host."""
    return Sealed(JetStreamJournal(Server(urls)), keyring)


async def append_times(urls: tuple[str, ...], keyring: Keyring, group: int) -> list[float]:
    """Return the times of consecutive appends of `group` entries, in milliseconds."""
    journal, times = connected(urls, keyring), []
    lane = f"{LANE}-{group}"
    mark = await journal.create(lane)
    for number in range(APPENDS):
        entries = [NewEntry(f"{number}-{each}", BODY) for each in range(group)]
        began = time.perf_counter()
        mark = await journal.append(lane, entries, behind=mark)
        times.append((time.perf_counter() - began) * 1000)
    await journal.aclose()
    return times


async def append_as_host(urls: tuple[str, ...], keyring: Keyring, host: int, ready: Barrier) -> int:
    """Append groups to the shared lane, and read after each as a host does. Returns the number of entries."""
    journal, done = connected(urls, keyring), 0
    mark = (await journal.read(LANE, after=START)).mark
    await asyncio.to_thread(ready.wait)
    until = time.perf_counter() + SECONDS
    while time.perf_counter() < until:
        entries = [NewEntry(f"{host}-{done + each}", BODY) for each in range(GROUP)]
        position = (await journal.append(LANE, entries, behind=mark)).position
        while mark.position < position:
            mark = (await journal.read(LANE, after=mark)).mark
        done += GROUP
    await journal.aclose()
    return done


def run_host(urls: tuple[str, ...], keyring: Keyring, host: int, ready: Barrier, results: SimpleQueue[int]) -> None:
    results.put(asyncio.run(append_as_host(urls, keyring, host, ready)))


async def create_lane(servers: NatsServers, keyring: Keyring) -> None:
    journal = connected(servers.urls, keyring)
    await servers.until_ready(journal)
    await journal.create(LANE)
    await journal.aclose()


def measure(count: int) -> list[Figure]:
    """Measure `count` servers that write to disk."""
    keyring = Keyring.new()
    with NatsServers(count, root=DISK) as servers:
        asyncio.run(create_lane(servers, keyring))
        alone = asyncio.run(append_times(servers.urls, keyring, 1))
        grouped = asyncio.run(append_times(servers.urls, keyring, GROUP))
        context = multiprocessing.get_context("spawn")
        ready, results = context.Barrier(HOSTS), context.SimpleQueue()
        hosts = [
            context.Process(target=run_host, args=(servers.urls, keyring, host, ready, results))
            for host in range(HOSTS)
        ]
        for process in hosts:
            process.start()
        done = sum(results.get() for _ in hosts)
        for process in hosts:
            process.join()
    name = f"{count} server(s)"
    return [
        Figure(f"{name}: one entry, p50", statistics.median(alone), "ms", 0),
        Figure(f"{name}: one entry, p95", statistics.quantiles(alone, n=20)[-1], "ms", 0),
        Figure(f"{name}: {GROUP} entries together, p50", statistics.median(grouped), "ms", 0),
        Figure(f"{name}: entries from {HOSTS} hosts", done / SECONDS, "1/s", 0),
    ]


def main() -> None:
    """Measure, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.parse_args()
    print_figures([figure for count in (1, 3) for figure in measure(count)])


if __name__ == "__main__":
    main()
