"""The store among workers that die, fail, lie and change, and with files that are damaged or taken away."""

import asyncio
import shutil
import time
from pathlib import Path

import pytest

from remembrancer.actors.actor_process import EXIT_CRASHED
from remembrancer.actors.migrations import BACKUPS
from remembrancer.protocol.control import PeerGone
from remembrancer.protocol.errors import UNREADABLE, FileLocked, PeerLost, RecordsUnusable, RemembrancerError
from remembrancer.protocol.paths import RuntimePaths, delete_database
from remembrancer.protocol.writes import Operation, TagMemory, UpdateMemory
from tests.actors.store_process import START_S, Job, StoreRig, Worker, assert_chronicle_is_found, chronicle, store_rig
from tests.operations import OTHER_PROJECT, change_operation, memory_id_of, store_operation
from tests.patience import until
from tests.spaces import locked, spoil_page, write_rows


async def test_a_write_is_answered_with_what_keeps_its_text_from_being_embedded_at_that_moment(rig: StoreRig) -> None:
    gateway = rig.gateway
    stored = store_operation("harbour", "the harbour is deep")
    memory_id = memory_id_of(stored)

    async def error_of(operation: Operation) -> str | None:
        return (await gateway.submit(operation)).embedding_error

    assert await error_of(stored) is None, "a worker may yet come"
    async with Worker(rig.home) as worker:
        worker.fail("no weights on this disk")
        await gateway.until(lambda now: now.embedding.error == "no weights on this disk")
        assert await error_of(store_operation("lighthouse", "the lighthouse is old")) == "no weights on this disk"
        assert await error_of(change_operation("tag", TagMemory(memory_id, ("sea",)))) is None, "no text is new"
        update = UpdateMemory(memory_id, content="the harbour is shallow")
        assert await error_of(change_operation("update", update)) == "no weights on this disk"
        worker.announce()
        await gateway.until_embedded()
        assert await error_of(store_operation("tower", "the tower is high")) is None


async def test_answers_to_an_earlier_store_are_not_taken(rig: StoreRig) -> None:
    worker = await rig.worker(holds=True)
    ids = await chronicle(rig, 10)
    await until(lambda: len(worker.jobs) == 10)
    old = list(worker.jobs)
    await rig.restart()
    assert await worker.dealer.wait_connected(START_S)
    worker.announce()
    worker.answer(old)  # of the store that is dead: this one's requests are others
    await until(lambda: len(worker.jobs) == 20)
    assert (await rig.gateway.describe()).embedding.pending == 10
    worker.holds = False
    worker.answer(worker.jobs[10:])
    await rig.gateway.until_embedded()
    await assert_chronicle_is_found(rig, ids)


async def test_a_worker_that_answers_with_nonsense_hurts_nobody(rig: StoreRig) -> None:
    mad = await rig.worker("embedder-1")
    mad.garbles = lambda vectors: vectors[:-1]
    ids = await chronicle(rig, 10)
    await rig.gateway.until(lambda now: now.embedding.pending == 0)  # tried as often as may be
    answer = await rig.gateway.recall("word4", strategy="hybrid")
    assert answer.memories[0].id == ids[4], "the others have a part of the word"
    assert [notice.code for notice in rig.gateway.notices] == ["embedding_failed"]
    assert not (await rig.gateway.embedding_of(ids[0])).embedded
    mad.leave()
    await rig.gateway.until(lambda now: now.embedding.workers == 0)
    sane = await rig.worker("embedder-2")
    await until(lambda: len(sane.jobs) == len(ids))
    await rig.gateway.until_embedded()
    await assert_chronicle_is_found(rig, ids)
    assert rig.store.process.poll() is None


async def test_a_text_that_cannot_be_embedded_is_found_by_its_words_and_holds_up_no_other(rig: StoreRig) -> None:
    worker = await rig.worker()
    worker.refuses = lambda text: "poison" in text
    bad = await rig.gateway.store("poison in the well")
    state = await rig.gateway.embedding_of(bad)
    assert (state.embedded, state.error) == (False, "the worker will not")
    assert sum("poison" in job.text for job in worker.jobs) == 3, "it is tried three times"
    good = await rig.gateway.store("water in the well")
    assert (await rig.gateway.embedding_of(good)).embedded
    assert set(await rig.gateway.found("well")) == {bad, good}
    assert (await rig.gateway.embedding_of(bad)).error == "the worker will not", "whoever asks later is told as well"
    worker.refuses = lambda text: False
    other = await rig.worker("embedder-2")
    await until(lambda: len(other.jobs) + len(worker.jobs) == 5)
    assert (await rig.gateway.embedding_of(bad)).embedded, "another worker's arrival is another chance"


class Mortal(Worker):
    """Never answers a poisonous text."""

    def answer(self, jobs: list[Job]) -> None:
        super().answer([job for job in jobs if "poison" not in job.text])


async def test_a_death_is_counted_though_the_store_misses_the_worker_before_it_is_told(rig: StoreRig) -> None:
    deadly = await rig.gateway.store("poison in the well")
    for number in range(3):
        async with Mortal(rig.home, f"embedder-{number}") as worker:
            worker.announce()
            await until(lambda: any("poison" in job.text for job in worker.jobs))
        while number == 0 and (await rig.gateway.describe()).embedding.workers:
            await rig.gateway.store("water in the well")  # cannot be handed out: nobody is there any longer
        await rig.launcher.tell(rig.store, PeerGone("embedder", worker.speaker.incarnation))
    await rig.gateway.until(lambda now: now.embedding.dead_letters == 1)
    assert "3 embedders died" in ((await rig.gateway.embedding_of(deadly)).error or "")


@pytest.mark.parametrize("damage", ["garbage", "directory", "newer"])
async def test_a_damaged_database_refuses_all_is_left_alone_and_opened_when_it_is_back(home: Path, damage: str) -> None:
    path = RuntimePaths(home).database
    async with store_rig(home, constants={"remembrancer.actors.store.spaces.AGAIN_S": 0.2}) as rig:
        user = await rig.gateway.store("the user likes tea", scope="user")
        kept = await rig.gateway.store("the project likes coffee")
        await rig.stop()
        whole = path.read_bytes()
        if damage == "newer":
            write_rows(path, "PRAGMA user_version = 99000000")
        elif damage == "directory":
            path.unlink()
            path.mkdir()
        else:
            path.write_bytes(b"x" * 8192)
        spoiled = None if damage == "directory" else path.read_bytes()
        await rig.start()
        for asked in (
            rig.gateway.store("they like cake"),
            rig.gateway.store("they like cake", scope="user"),
            rig.gateway.recall("tea"),
            rig.gateway.describe(OTHER_PROJECT),
        ):
            with pytest.raises(RemembrancerError) as refused:
                await asked
            assert refused.value.code in UNREADABLE
        assert str(path) in refused.value.message
        with pytest.raises(RemembrancerError) as refused:
            await rig.gateway.submit_batch(store_operation("a", "lantern"))
        assert refused.value.code in UNREADABLE, "the file may come back"
        assert [str(path) in reason for reason in (await rig.health()).unusable] == [True]
        assert (None if path.is_dir() else path.read_bytes()) == spoiled, "it is left as it is"
        if spoiled is None:
            path.rmdir()
        delete_database(path)
        path.write_bytes(whole)

        async def is_back() -> bool:
            try:
                return {user, kept} <= {*await rig.gateway.found("tea coffee", strategy="keyword")}
            except RemembrancerError:
                return False

        await until(is_back)  # it is opened again when somebody asks, and not before some time is over
        assert await rig.gateway.store("the user likes cake", scope="user")


async def test_a_lock_refuses_writes_and_holds_no_reading_up(rig: StoreRig) -> None:
    kept = await rig.gateway.store("the mole is long", project=OTHER_PROJECT)
    with locked(rig.paths.database):
        refused = [asyncio.ensure_future(rig.gateway.store(f"the quay {n} is old")) for n in range(6)]
        found = await rig.gateway.found("mole crane", project=OTHER_PROJECT, strategy="keyword")
        assert found == [kept]
        outcomes = await asyncio.gather(*refused, return_exceptions=True)
        assert {type(each) for each in outcomes} == {FileLocked}
    assert await rig.gateway.store("the quay is new")


@pytest.mark.parametrize("how", ["missing", "empty"])
async def test_a_file_that_was_lost_is_not_made_anew_before_somebody_says_so(rig: StoreRig, how: str) -> None:
    path = rig.paths.database
    await rig.gateway.store("the harbour is deep")
    await rig.stop()
    delete_database(path)
    if how == "empty":
        path.touch(0o600)
    await rig.start()
    for ask in (rig.gateway.store("the mole is long"), rig.gateway.recall("mole", strategy="keyword")):
        with pytest.raises(RecordsUnusable, match=r"doctor --repair.*to start over"):
            await ask
    await rig.stop()
    shutil.rmtree(path.parent / BACKUPS)
    await rig.start()
    assert await rig.gateway.store("the mole is long")


async def test_what_is_written_after_a_file_was_deleted_under_the_store_is_refused(rig: StoreRig) -> None:
    await rig.gateway.store("the harbour is deep")
    delete_database(rig.paths.database)
    operation = store_operation("mole", "the mole is long", requested_at=time.time())
    with pytest.raises((FileLocked, PeerLost)):
        await rig.gateway.submit(operation)
    assert await rig.store.ended() == EXIT_CRASHED, "the launcher starts another one"
    await rig.start()
    with pytest.raises(RecordsUnusable):
        await rig.gateway.submit(operation)


async def test_damage_that_shows_only_when_it_is_read_is_reported_from_then_on(home: Path) -> None:
    path = RuntimePaths(home).database
    async with store_rig(home) as rig:
        await rig.gateway.store("the project likes coffee")
        await rig.gateway.store("the user likes tea", scope="user")
        await rig.stop()
        spoil_page(path, "memories", content=b"x" * 4096)
        await rig.start()
        with pytest.raises(RecordsUnusable):
            await rig.gateway.recall("likes", strategy="keyword")
        (reason,) = (await rig.health()).unusable
        assert str(path) in reason
        assert "remembrancer doctor --repair" in reason
