import asyncio
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, suppress
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from remembrancer.actors.store.committer import Committer
from remembrancer.actors.store.vectors import vector_spaces
from remembrancer.actors.store.vectors.chroma import Chroma, ChromaUnavailable, ChromaVectors, Server
from remembrancer.actors.store.vectors.vector_spaces import VectorSpaces
from remembrancer.config.settings import Settings
from remembrancer.protocol.writes import EraseMemory
from tests.actors.store_process import IDENTITY, StoreRig, store_rig, vector_of
from tests.contracts.records_rig import RecordsRig, near_duplicates
from tests.operations import SESSION, change_operation
from tests.patience import PATIENCE_S, until
from tests.ports import ServerProcess, free_port

TEXTS = ("the lantern stands in the harbour by the mole", "the lantern stands in the harbour by the mole today")


class Library:
    def __init__(self, directory: Path) -> None:
        self.rig = RecordsRig(directory / "memory.db")
        self.records = self.rig.records
        self.folder = directory / "vectors"
        self.committer = Committer()

    def close(self) -> None:
        self.committer.close()
        self.rig.close()

    def embed(self, *texts: str) -> None:
        for text in texts:
            self.rig.embed(self.rig.say(text), vector_of(text).tolist(), model=IDENTITY.key)

    @asynccontextmanager
    async def tended(self, exact_up_to: int, **options: Any) -> AsyncIterator[VectorSpaces]:
        """Its vectors, with Chroma from so many passages on."""
        spaces = VectorSpaces(self.folder, self.committer, lambda: [self.records], exact_up_to=exact_up_to, **options)
        spaces.use_models([IDENTITY], IDENTITY)
        running = asyncio.ensure_future(spaces.run())
        try:
            yield spaces
        finally:
            running.cancel()
            await spaces.aclose()
            with suppress(asyncio.CancelledError):
                await running

    def number(self, text: str) -> int:
        ((number,),) = self.rig.rows("SELECT number FROM memories WHERE content = ?", (text,))
        return int(number)

    def finds(self, spaces: VectorSpaces, texts: list[str]) -> bool:
        """True if each memory is the nearest to its own text, by a file that is whole."""
        vectors = spaces.searchable(self.records.name)
        return vectors is not None and all(
            list(vectors.nearest(vector_of(text), 1)) == [self.number(text)] for text in texts
        )

    def is_in_chroma(self, spaces: VectorSpaces) -> bool:
        return isinstance(spaces.searchable(self.records.name), ChromaVectors)


@pytest.fixture
async def library(tmp_path: Path) -> AsyncIterator[Library]:
    with closing(Library(tmp_path)) as made:
        yield made


def chronicle(first: int, count: int) -> list[str]:
    return [f"word{number} of the chronicle" for number in range(first, first + count)]


async def test_a_large_file_moves_to_chroma_and_wholly_back(library: Library) -> None:
    on_disk = library.folder / "chroma.sqlite3"
    library.embed(*chronicle(0, 20))
    async with library.tended(20) as spaces:
        assert library.finds(spaces, chronicle(0, 20))
        assert not on_disk.exists()
        library.embed(*chronicle(20, 1))
        assert library.finds(spaces, chronicle(20, 1)), "before it has moved"
        spaces.note_kept(library.records.name)
        await until(lambda: library.is_in_chroma(spaces))
        assert library.finds(spaces, chronicle(0, 21))
    async with library.tended(20) as spaces:
        assert library.finds(spaces, chronicle(0, 21))
        await until(lambda: library.is_in_chroma(spaces))
        assert library.finds(spaces, chronicle(0, 21))
    async with library.tended(1000) as spaces:
        assert not library.is_in_chroma(spaces)
        assert library.finds(spaces, chronicle(0, 21))
        await until(lambda: not on_disk.parent.exists())


async def test_a_chroma_that_breaks_is_made_anew_while_searches_go_on(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vector_spaces, "CHROMA_RETRY_S", 0.0)
    library.embed(*chronicle(0, 21))
    async with library.tended(20) as spaces:
        await until(lambda: library.is_in_chroma(spaces))
        with (library.folder / "chroma.sqlite3").open("r+b") as file:
            file.write(b"x" * 65536)
        assert library.finds(spaces, chronicle(0, 21))
        broken: Any = spaces.searchable(library.records.name)
        assert broken.has_failed
        spaces.note_kept(library.records.name)
        await until(lambda: library.is_in_chroma(spaces) and spaces.searchable(library.records.name) is not broken)
        whole: Any = spaces.searchable(library.records.name)
        assert library.finds(spaces, chronicle(0, 21))
        assert not whole.has_failed
        await until(lambda: spaces.error is None)


async def test_near_duplicates_are_found_and_not_compared_again_after_a_stop(library: Library) -> None:
    library.embed(*chronicle(0, 100), *TEXTS)
    records, (first, second) = library.records, map(library.number, TEXTS)
    last = records.extent(IDENTITY.key)[1]
    async with library.tended(1000) as spaces:
        held = spaces.searchable(records.name)
        await until(lambda: records.compared(IDENTITY.key) == last)
        assert spaces.searchable(records.name) is held, "vectors are not read anew"
        assert near_duplicates(records, second, SESSION) == tuple(library.rig.ids([first]))
    assert records.compared(IDENTITY.key) == last


async def test_memories_are_compared_only_while_clients_are_quiet(library: Library) -> None:
    library.embed(*TEXTS)
    records, asked_about = library.records, asyncio.Event()
    compared, quiet = partial(library.records.compared, IDENTITY.key), asyncio.Event()

    async def until_quiet() -> None:
        asked_about.set()
        await quiet.wait()

    async with library.tended(1000, until_quiet=until_quiet):
        await asked_about.wait()
        assert compared() == 0
        quiet.set()
        await until(lambda: compared() == records.extent(IDENTITY.key)[1])


async def test_idle_vectors_are_freed(library: Library) -> None:
    library.embed(*chronicle(0, 10))
    async with library.tended(1000) as spaces:
        assert library.finds(spaces, chronicle(0, 10))
        held = spaces.searchable(library.records.name)
        assert held is not None
        spaces.free_idle()
        assert held._vectors.nbytes > 0
        spaces.free_idle(idle_s=0)
        assert held._vectors.nbytes == 0
        assert library.finds(spaces, chronicle(0, 10))


class ChromaProcess(ServerProcess):
    def __init__(self, directory: Path) -> None:
        run = "import sys, chromadb_rust_bindings as chroma; chroma.cli(['chroma', *sys.argv[1:]])"  # as `chroma` does
        port = str(free_port())
        where = ("--path", str(directory), "--host", "127.0.0.1", "--port", port)
        super().__init__(directory, f"127.0.0.1:{port}", sys.executable, "-c", run, "run", *where)
        self.url = f"http://127.0.0.1:{port}"
        self._collections = f"{self.url}/api/v2/tenants/default_tenant/databases/default_database/collections"

    def collections(self) -> dict[str, int]:
        listed = self._ask("GET").raise_for_status().json()
        counts = {each["name"]: self._ask("GET", f"/{each['id']}/count") for each in listed}
        return {name: count.json() for name, count in counts.items() if count.is_success}  # not deleted meanwhile

    def wipe(self) -> None:
        for name in self.collections():
            assert self._ask("DELETE", f"/{name}").status_code in (200, 404), "or a store has deleted it by now"

    def _ask(self, method: str, path: str = "") -> httpx.Response:
        return httpx.request(method, f"{self._collections}{path}", timeout=PATIENCE_S)


@pytest.fixture(scope="module")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ChromaProcess]:
    with ChromaProcess(tmp_path_factory.mktemp("chroma")) as server:
        yield server


@pytest.fixture
def server(shared_server: ChromaProcess) -> ChromaProcess:
    if shared_server.process is None:
        shared_server.start()
    shared_server.wipe()
    return shared_server


@pytest.fixture
async def rig(home: Path, server: ChromaProcess) -> AsyncIterator[StoreRig]:
    settings = Settings(chroma_url=server.url, exact_search_passages=0)
    looks_often = {f"{vector_spaces.__name__}.{name}": 0.1 for name in ("CHECK_INTERVAL_S", "CHROMA_RETRY_S")}
    async with store_rig(home, settings=settings, constants=looks_often) as made:
        yield made


async def until_by_meaning(rig: StoreRig) -> None:
    await until(lambda: rig.gateway.recall("harbour"), lambda _: not rig.gateway.notices)


async def until_moved(server: ChromaProcess, passages: int) -> None:
    await until(lambda: sum(server.collections().values()) == passages)


async def five_moved(rig: StoreRig, server: ChromaProcess) -> list[str]:
    await rig.worker()
    memories = [await rig.gateway.store(f"Fact {n} about the harbour") for n in range(5)]
    await rig.gateway.until_embedded()
    await until_moved(server, 5)
    return memories


async def test_vectors_are_on_a_server_again_after_it_hung_and_was_killed(rig: StoreRig, server: ChromaProcess) -> None:
    memories = await five_moved(rig, server)
    assert not (rig.paths.vectors / "chroma.sqlite3").exists()
    server.pause()
    try:
        assert set(await rig.gateway.found("harbour")) == set(memories), "a server that hangs holds no answer up"
        other = await rig.gateway.store("The lighthouse is white")
        assert await rig.gateway.found("lighthouse") == [other]
    finally:
        server.go_on()
    await until_moved(server, 6)
    await until_by_meaning(rig)
    server.end()
    found = await rig.gateway.found("harbour")
    assert set(found) == set(memories)
    await until_by_meaning(rig)
    memories.append(await rig.gateway.store("Fact 5 about the harbour, stored while the server was away"))
    assert set(await rig.gateway.found("harbour")) == set(memories)
    await rig.gateway.until(lambda now: "Chroma server" in str(now.embedding.error))
    server.start()
    await rig.gateway.until_embedded()
    await until_moved(server, 7)
    await until_by_meaning(rig)
    assert set(await rig.gateway.found("harbour")) == set(memories)
    await rig.gateway.until(lambda now: now.embedding.error is None)


async def test_a_server_that_lost_everything_is_filled_with_what_is_there(rig: StoreRig, server: ChromaProcess) -> None:
    memories = await five_moved(rig, server)
    server.wipe()
    await rig.gateway.recall("harbour")
    await until_moved(server, 5)
    await until_by_meaning(rig)
    server.end()
    await rig.gateway.submit(change_operation("erase", EraseMemory(memories[0])))
    await rig.restart()
    await rig.worker("embedder-2")
    assert memories[0] not in await rig.gateway.found("harbour")
    server.start()
    await until_moved(server, 4)


def test_two_homes_on_one_server_know_nothing_of_each_other(server: ChromaProcess, tmp_path: Path) -> None:
    name = "p_0123456789ab.m.64"
    mine, theirs = (Chroma(tmp_path / home / "vectors", Server(server.url)) for home in ("mine", "theirs"))
    with closing(mine), closing(theirs):
        for each in (mine, theirs):
            each.collection(name, 64)
        assert {each.partition(".")[2] for each in server.collections()} == {name}
        theirs.delete(name)
        assert (mine.names(), theirs.names()) == ([name], [])


def test_a_secret_is_sent_in_a_header_and_a_missing_one_is_said(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("s3cret\n")
    assert Server("https://x", str(file)).headers() == {"Authorization": "Bearer s3cret"}
    with pytest.raises(ChromaUnavailable, match="cannot be read"):
        Server("https://x", str(tmp_path / "none")).headers()
