"""The store as a process among workers that take long over long memories, and that die of some."""

from __future__ import annotations

from remembrancer.actors.store.records.types import MAX_ATTEMPTS
from remembrancer.actors.store.vectors.embedding_scheduler import DEADLY
from remembrancer.actors.store.vectors.leases import HAND_BYTES
from remembrancer.protocol.control import PeerGone
from remembrancer.protocol.writes import UpdateMemory
from tests.actors.store_process import Job, StoreRig, Worker
from tests.operations import change_operation
from tests.patience import until


def size_of(jobs: list[Job]) -> int:
    return sum(len(job.text.encode()) for job in jobs)


async def given(worker: Worker, count: int) -> None:
    """Wait until the worker was given so many jobs."""
    await until(lambda: len(worker.jobs) >= count)


async def work_until(worker: Worker, word: str) -> None:
    """Do one job after another, up to the one whose text has that word."""
    for done in range(1000):
        await given(worker, done + 1)
        if word in worker.jobs[done].text:
            return
        worker.answer(worker.jobs[done : done + 1])


async def die(rig: StoreRig, worker: Worker) -> None:
    """The worker's process is gone, and the launcher has seen it."""
    await worker.dealer.aclose()
    await rig.launcher.tell(rig.store, PeerGone("embedder", worker.speaker.incarnation))
    await rig.gateway.until(lambda now: now.embedding.workers == 0)


async def test_a_worker_is_given_long_memories_as_it_gets_them_done_and_the_newest_first(rig: StoreRig) -> None:
    texts = [f"word{n} " + "of the harbour chronicle " * 1200 for n in range(8)]
    for text in texts:
        await rig.gateway.store(text)
    worker = await rig.worker(credit=128, holds=True)
    await given(worker, 2)
    held = len(worker.jobs)
    assert 1 < held < len(texts)
    for done in range(len(texts)):
        worker.answer(worker.jobs[done : done + 1])
        await given(worker, min(done + 1 + held, len(texts)))
        assert size_of(worker.jobs[done + 1 :]) <= HAND_BYTES
    assert [job.text for job in worker.jobs] == texts[::-1]
    await rig.gateway.until_embedded()


async def test_a_memory_that_its_embedders_die_of_is_a_dead_letter_and_holds_up_no_other(rig: StoreRig) -> None:
    gateway = rig.gateway
    good = [await gateway.store(f"word{n} of the harbour chronicle") for n in range(3)]
    deadly = await gateway.store("poison in the harbour")
    good += [await gateway.store(f"word{n} of the harbour chronicle") for n in range(3, 6)]
    for _ in range(MAX_ATTEMPTS):
        worker = await rig.worker(holds=True)
        await work_until(worker, "poison")
        await die(rig, worker)
    last = await rig.worker()
    await gateway.until_embedded()
    assert all("poison" not in job.text for job in last.jobs)
    assert all([(await gateway.embedding_of(memory_id)).embedded for memory_id in good])
    state = await gateway.embedding_of(deadly)
    assert (state.embedded, state.error) == (False, DEADLY)
    described = (await gateway.describe()).embedding
    assert (described.dead_letters, described.dead_letter_error) == (1, DEADLY)
    assert deadly in await gateway.found("poison", strategy="keyword")
    await gateway.submit(change_operation("mend", UpdateMemory(deadly, content="medicine in the harbour")))
    assert (await gateway.embedding_of(deadly)).embedded, "another text is another chance"
    assert (await gateway.describe()).embedding.dead_letters == 0
