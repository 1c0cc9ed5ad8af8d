"""The distance of calls from what the machine allows: `python -m bench.floor [--json]`.

The floor is a line through a bare bridge (a pump between two pipes and a Unix socket), a process that passes it on over
ZeroMQ, and a process that commits it to SQLite with `synchronous=FULL`: the same hops as a store, and nothing else. It
is measured in turn with the real thing, in one run.

- `store`: the median of `store_memory` over the floor's.
- `recall`: the median of a hybrid `recall_memories` over the hops without a commit, plus a question's vector, plus the
  bare FTS5 and Chroma queries over the same texts.
- `flight`: acknowledged stores a second with 8 in flight and an embedder at work, as a share of the floor's.
- `switches`: context switches of one store, over all processes of the runtime and its bridge.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import select
import shutil
import socket
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import chromadb
import zmq
from chromadb.config import Settings as ChromaSettings

from bench.baselines import WordIndex
from bench.harness import IN_FLIGHT, drained, fill, runtime, wait_until
from bench.varied_text import varied
from remembrancer.actors.embedder.workers import load_engine
from remembrancer.config.settings import Settings

ROUNDS: Final = 8
CALLS: Final = 40
"""Of each sort in a round; the sorts take turns."""
MEMORIES: Final = 1000
BURST: Final = 800
PARAGRAPH_CHARACTERS: Final = 300
CANDIDATES: Final = 50


# --- the processes of the floor: each blocks, and does one thing ---


def bare_bridge(directory: Path) -> None:
    """Pump lines between standard input and output and a Unix socket."""
    link = socket.socket(socket.AF_UNIX)
    link.connect(str(directory / "lines"))
    poll = select.poll()
    poll.register(0, select.POLLIN)
    poll.register(link, select.POLLIN)
    while True:
        for descriptor, _ in poll.poll():
            data = os.read(0, 65536) if descriptor == 0 else link.recv(65536)
            if not data:
                return
            if descriptor == 0:
                link.sendall(data)
            else:
                os.write(1, data)


def bare_gateway(directory: Path) -> None:
    """Pass each line on over ZeroMQ, and each answer back."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(directory / "lines"))
    listener.listen()
    dealer: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.DEALER)
    dealer.connect(f"ipc://{directory}/store")
    link, _ = listener.accept()
    poller = zmq.Poller()
    poller.register(link, zmq.POLLIN)
    poller.register(dealer, zmq.POLLIN)
    rest = b""
    while True:
        for which, _ in poller.poll():
            if which is dealer:
                link.sendall(dealer.recv() + b"\n")
                continue
            data = link.recv(65536)
            if not data:
                return
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                dealer.send(line)


def bare_store(directory: Path) -> None:
    """Commit each line, then acknowledge it. A line that begins with `?` is acknowledged without a commit."""
    router: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.ROUTER)
    router.bind(f"ipc://{directory}/store")
    database = sqlite3.connect(directory / "floor.db", isolation_level=None)
    database.executescript("PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; CREATE TABLE lines (line BLOB)")
    while True:
        peer, line = router.recv_multipart()
        if line == b"!":
            return
        if not line.startswith(b"?"):
            database.execute("INSERT INTO lines VALUES (?)", (line,))
        router.send_multipart([peer, b"ok"])


ROLES: Final[dict[str, Callable[[Path], None]]] = {
    "store": bare_store,
    "gateway": bare_gateway,
    "bridge": bare_bridge,
}


class Floor:
    """The three processes, and the client that writes to the bridge."""

    def __init__(self) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="rmb-floor-", dir="/tmp"))
        self._processes: list[asyncio.subprocess.Process] = []

    async def __aenter__(self) -> Floor:
        for role in ROLES:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "bench.floor", "--role", role, str(self._directory)),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
            )
            self._processes.append(process)
            if role == "gateway":
                await wait_until(self._is_listening, 30, 0.01)
        return self

    async def __aexit__(self, *_: object) -> None:
        for process in self._processes:
            process.kill()
            await process.wait()
        shutil.rmtree(self._directory)

    async def _is_listening(self) -> bool:
        return (self._directory / "lines").exists()

    async def send(self, line: bytes) -> None:
        """Write a line and wait for its answer."""
        bridge = self._processes[-1]
        assert bridge.stdin is not None
        assert bridge.stdout is not None
        bridge.stdin.write(line + b"\n")
        await bridge.stdout.readline()

    async def flight(self, lines: list[bytes]) -> float:
        """Acknowledged lines a second with `IN_FLIGHT` on their way."""
        bridge = self._processes[-1]
        assert bridge.stdin is not None
        assert bridge.stdout is not None
        began = time.perf_counter()
        for number, line in enumerate(lines):
            if number >= IN_FLIGHT:
                await bridge.stdout.readline()
            bridge.stdin.write(line + b"\n")
        for _ in range(min(IN_FLIGHT, len(lines))):
            await bridge.stdout.readline()
        return len(lines) / (time.perf_counter() - began)


class BareQueries:
    """A question's vector, and the FTS5 and Chroma queries, in one process and without anything around them."""

    def __init__(self, texts: list[str], directory: Path) -> None:
        self._engine = load_engine(Settings(), 2)
        self._words = WordIndex(texts)
        client = chromadb.PersistentClient(str(directory), settings=ChromaSettings(anonymized_telemetry=False))
        self._vectors = client.create_collection("texts", metadata={"hnsw:space": "cosine"})
        vectors = self._engine.embed_passages(texts)
        self._vectors.add([str(number) for number in range(len(texts))], embeddings=vectors)

    def ask(self, question: str) -> None:
        """Answer a question three times over."""
        vector = self._engine.embed_questions([question])
        self._words.rank(question, CANDIDATES)
        self._vectors.query(vector, n_results=CANDIDATES, include=["distances"])

    def close(self) -> None:
        """Let go of the index of words."""
        self._words.close()


def _switches(pids: list[int]) -> int:
    """Context switches of all threads of these processes so far."""
    total = 0
    for pid in pids:
        for task in Path(f"/proc/{pid}/task").glob("*/status"):
            for line in task.read_text().splitlines():
                if "ctxt_switches" in line:
                    total += int(line.split()[1])
    return total


async def measure() -> dict[str, float]:
    """The ratios, and the medians in milliseconds that they are made of."""
    texts = [text[:PARAGRAPH_CHARACTERS] for text in varied(MEMORIES + 2 * ROUNDS * CALLS + BURST)]
    known, fresh = texts[:MEMORIES], iter(texts[MEMORIES:])
    questions = _questions(known)
    times: dict[str, list[float]] = {name: [] for name in ("store", "floor", "recall", "hops", "queries")}
    switches = []

    async def timed(name: str, call: Any) -> None:
        began = time.perf_counter()
        await call
        times[name].append((time.perf_counter() - began) * 1000)

    directory = Path(tempfile.mkdtemp(prefix="rmb-floor-", dir="/tmp"))
    async with Floor() as floor, runtime() as running, running.client() as client:
        bare = await asyncio.to_thread(BareQueries, known, directory)
        await fill(client, known)
        await wait_until(lambda: drained(client), 120)
        await floor.send(b"warm")
        pids = [process["pid"] for process in (await running.status())["processes"]] + [client.process.pid]
        for _ in range(ROUNDS):
            for _ in range(CALLS):
                await timed("floor", floor.send(next(fresh).encode()))
            before = _switches(pids)
            for _ in range(CALLS):
                await timed("store", client.store(next(fresh)))
            switches.append((_switches(pids) - before) / CALLS)
            await wait_until(lambda: drained(client), 60)
            for _ in range(CALLS):
                await timed("hops", floor.send(b"?" + next(questions).encode()))
            for _ in range(CALLS):
                question = next(questions)
                await timed("recall", client.call("recall_memories", query=question, strategy="hybrid"))
            for _ in range(CALLS):
                await timed("queries", asyncio.to_thread(bare.ask, next(questions)))
        rates = []
        for _ in range(2):
            burst = [next(fresh) for _ in range(BURST // 2)]
            rates.append((await fill(client, burst)) / (await floor.flight([text.encode() for text in burst])))
            await wait_until(lambda: drained(client), 120)
        bare.close()
    shutil.rmtree(directory)
    medians = {name: statistics.median(values) for name, values in times.items()}
    return {
        "store": medians["store"] / medians["floor"],
        "recall": medians["recall"] / (medians["hops"] + medians["queries"]),
        "flight": statistics.median(rates),
        "switches": statistics.median(switches),
        **{f"{name}_ms": value for name, value in medians.items()},
    }


def _questions(texts: list[str]) -> Iterator[str]:
    """Questions that were not asked before, about what was stored."""
    number = 0
    while True:
        words = texts[number % len(texts)].partition(": ")[2].split()
        at = number // len(texts) * 3
        yield f"how does {' '.join(words[at : at + 8]).lower()} work?"
        number += 1


def main() -> None:
    """Measure, or be one of the processes of the floor."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.add_argument("--role", nargs=2, metavar=("ROLE", "DIRECTORY"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.role:
        ROLES[options.role[0]](Path(options.role[1]))
        return
    figures = asyncio.run(measure())
    if options.json:
        print(json.dumps(figures))
        return
    for name, value in figures.items():
        print(f"{name:12} {value:8.2f}")


if __name__ == "__main__":
    main()
