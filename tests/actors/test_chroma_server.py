"""The vectors of large projects on a real Chroma server, which is killed, paused, emptied and brought back."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from remembrancer.actors.store.vectors.chroma import Chroma, ChromaUnavailable, Server
from remembrancer.config.settings import Settings
from remembrancer.protocol.writes import EraseMemory
from tests.actors.store_process import StoreRig, store_rig
from tests.chroma_process import ChromaProcess, chroma_process
from tests.operations import change_operation
from tests.patience import until


@pytest.fixture(scope="module")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ChromaProcess]:
    with chroma_process(tmp_path_factory.mktemp("chroma")) as server:
        yield server


@pytest.fixture
def server(shared_server: ChromaProcess) -> ChromaProcess:
    shared_server.start()
    shared_server.wipe()
    return shared_server


@pytest.fixture
async def rig(home: Path, server: ChromaProcess) -> AsyncIterator[StoreRig]:
    async with store_rig(home, settings=Settings(chroma_url=server.url, exact_search_passages=0)) as made:
        yield made


async def is_by_meaning(rig: StoreRig) -> bool:
    """True if a question is answered by meaning, and not by words alone."""
    await rig.gateway.recall("harbour")
    return not rig.gateway.notices


async def until_by_meaning(rig: StoreRig) -> None:
    await until(lambda: is_by_meaning(rig))


async def until_moved(server: ChromaProcess, passages: int) -> None:
    await until(lambda: sum(server.collections().values()) == passages)


async def test_vectors_go_to_the_server_and_come_back_after_it_was_killed(rig: StoreRig, server: ChromaProcess) -> None:
    await rig.worker()
    memories = [await rig.gateway.store(f"Fact {n} about the harbour") for n in range(5)]
    await rig.gateway.until_embedded()
    await until_moved(server, 5)
    assert not (rig.paths.vectors / "chroma.sqlite3").exists()
    server.kill()
    found = await rig.gateway.found("harbour")
    assert set(found) == set(memories)
    await until_by_meaning(rig)
    memories.append(await rig.gateway.store("Fact 5 about the harbour, stored while the server was away"))
    assert set(await rig.gateway.found("harbour")) == set(memories)
    await rig.gateway.until(lambda now: "Chroma server" in str(now.embedding.error))
    server.start()
    await rig.gateway.until_embedded()
    await until_moved(server, 6)
    await until_by_meaning(rig)
    assert set(await rig.gateway.found("harbour")) == set(memories)
    assert (await rig.gateway.describe()).embedding.error is None


async def test_a_server_that_hangs_holds_no_answer_up(rig: StoreRig, server: ChromaProcess) -> None:
    await rig.worker()
    memory = await rig.gateway.store("The harbour is dredged in April")
    await rig.gateway.until_embedded()
    await until_moved(server, 1)
    server.pause(on=True)
    try:
        assert (await rig.gateway.recall("harbour dredged")).memories[0].id == memory
        other = await rig.gateway.store("The lighthouse is white")
        assert await rig.gateway.found("lighthouse") == [other]
    finally:
        server.pause(on=False)
    await until_moved(server, 2)
    await until_by_meaning(rig)


async def test_a_server_that_lost_everything_is_filled_from_the_records(rig: StoreRig, server: ChromaProcess) -> None:
    await rig.worker()
    for n in range(5):
        await rig.gateway.store(f"Fact {n} about the harbour")
    await rig.gateway.until_embedded()
    await until_moved(server, 5)
    server.wipe()
    await rig.gateway.recall("harbour")
    await until_moved(server, 5)
    await until_by_meaning(rig)


async def test_what_is_erased_while_the_server_is_away_goes_afterwards(rig: StoreRig, server: ChromaProcess) -> None:
    await rig.worker()
    memories = [await rig.gateway.store(f"Fact {n} about the harbour") for n in range(5)]
    await rig.gateway.until_embedded()
    await until_moved(server, 5)
    server.kill()
    await rig.gateway.submit(change_operation("erase", EraseMemory(memories[0])))
    await rig.restart()
    await rig.worker("embedder-2")
    assert memories[0] not in await rig.gateway.found("harbour")
    server.start()
    await until_moved(server, 4)


async def test_two_homes_on_one_server_know_nothing_of_each_other(
    rig: StoreRig, server: ChromaProcess, tmp_path_factory: pytest.TempPathFactory
) -> None:
    await rig.worker()
    await rig.gateway.store("The harbour is dredged in April")
    await rig.gateway.until_embedded()
    await until_moved(server, 1)
    mine = set(server.collections())
    folder = tmp_path_factory.mktemp("other") / "vectors"
    other = Chroma(folder, Server(server.url))
    other.collection("p_0123456789ab.m.64", 64)
    assert {name.partition(".")[2] for name in server.collections()} >= {"p_0123456789ab.m.64"}
    assert other.names() == ["p_0123456789ab.m.64"]
    other.delete("p_0123456789ab.m.64")
    assert set(server.collections()) == mine
    other.close()
    assert sum(server.collections().values()) == 1


def test_a_secret_is_sent_in_a_header_and_a_missing_one_is_said(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("s3cret\n")
    assert Server("https://x", str(file)).headers() == {"Authorization": "Bearer s3cret"}
    with pytest.raises(ChromaUnavailable, match="cannot be read"):
        Server("https://x", str(tmp_path / "none")).headers()
