"""The store with a reranker: its order counts, and whatever goes wrong with it leaves the order that there was."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from remembrancer.protocol.control import PeerGone
from remembrancer.protocol.reads import Recalled
from remembrancer.protocol.wire import ToWorker
from remembrancer.protocol.work import PassagesReranked, RerankPassages
from tests.actors.store_process import START_S, StoreRig, Worker, store_rig

pytestmark = pytest.mark.anyio
Scoring = Callable[[Sequence[str]], Sequence[float] | None]
QUERY = "lantern harbour"


def by_brass(passages: Sequence[str]) -> Sequence[float]:
    """Wants brass, whatever the question."""
    return [0.99 if "brass" in passage else 0.01 for passage in passages]


class RerankingWorker(Worker):
    """A worker with a reranker of its own making."""

    scoring: Scoring = staticmethod(by_brass)
    error: str | None = None

    def __init__(self, home: Path, name: str = "embedder-1", **options: Any) -> None:
        super().__init__(home, name, **options)
        self.reranked: list[RerankPassages] = []

    def _hear(self, message: ToWorker) -> None:
        match message:
            case RerankPassages(query_id=query_id, passages=passages):
                self.reranked.append(message)
                scores = self.scoring(passages)
                if scores is not None:
                    self._outbox.put_nowait(PassagesReranked(query_id, tuple(scores), self.error))
            case _:
                super()._hear(message)


@pytest.fixture
async def rig(home: Path) -> AsyncIterator[StoreRig]:
    async with store_rig(home, started=False) as made:
        made.settings = msgspec.structs.replace(
            made.settings, reranker="cross-encoder", reranker_candidates=5, reranker_budget_s=0.5
        )
        await made.start()
        yield made


async def join(rig: StoreRig, name: str = "embedder-1") -> RerankingWorker:
    """A worker that has announced itself, and that the store knows with its vectors."""
    worker = RerankingWorker(rig.home, name)
    await rig._stack.enter_async_context(worker)
    before = (await rig.gateway.describe()).embedding.workers
    worker.announce()
    await rig.gateway.until(lambda now: now.embedding.workers > before)
    return worker


async def fill(rig: StoreRig) -> list[str]:
    """Three memories that match ever less; the last has brass. They have their vectors."""
    stored = [
        await rig.gateway.store(text)
        for text in ("lantern harbour", "lantern harbour pier wall", "lantern by the harbour made of brass in a shed")
    ]
    await rig.gateway.until_embedded()
    return stored


async def until_ready(rig: StoreRig, *workers: RerankingWorker) -> None:
    """Ask until recalls are reranked; what the workers were asked meanwhile is forgotten."""
    with anyio.fail_after(START_S):
        while codes(await rig.gateway.recall(QUERY)) or not any(worker.reranked for worker in workers):  # noqa: ASYNC110 - no message says so
            await anyio.sleep(0.01)
    for worker in workers:
        worker.reranked.clear()


def ids(answer: Recalled) -> list[str]:
    return [memory.id for memory in answer.memories]


def codes(answer: Recalled) -> list[str]:
    return [notice.code for notice in answer.notices]


async def test_the_rerankers_order_counts_and_its_score_is_seen(rig: StoreRig) -> None:
    worker = await join(rig)
    first, second, brass = await fill(rig)
    await until_ready(rig, worker)
    answer = await rig.gateway.recall(QUERY)
    assert ids(answer) == [brass, first, second]
    assert [memory.scores.reranker for memory in answer.memories] == [0.99, 0.01, 0.01]
    assert codes(answer) == []
    (asked,) = worker.reranked
    assert asked.query == QUERY
    assert set(asked.passages) == {memory.content for memory in answer.memories}


async def test_of_a_long_memory_the_reranker_reads_the_best_passages(rig: StoreRig) -> None:
    worker = await join(rig)
    filler = "The tide comes in and the tide goes out again. " * 40
    await rig.gateway.store(f"{filler}The bell is made of brass and bronze. {filler}")
    await rig.gateway.store("bell brass bronze")
    await rig.gateway.until_embedded()
    await rig.gateway.store("lantern harbour")
    await rig.gateway.store("lantern harbour pier")
    await until_ready(rig, worker)
    assert len((await rig.gateway.recall("bell brass bronze")).memories) == 2
    (asked,) = worker.reranked
    long = max(asked.passages, key=len)
    assert "made of brass" in long
    assert len(long) < 450


@pytest.mark.parametrize(
    ("scoring", "error", "why"),
    [
        (lambda passages: None, None, "answered within 0.5 s"),
        (lambda passages: [0.5], None, "does not fit"),
        (lambda passages: [7.0 for _ in passages], None, "does not fit"),
        (lambda passages: [float("nan") for _ in passages], None, "does not fit"),
        (lambda passages: [], "the reranker is being loaded", "is being loaded"),
    ],
)
async def test_an_answer_that_is_none_leaves_the_order_and_is_said(
    rig: StoreRig, scoring: Scoring, error: str | None, why: str
) -> None:
    worker = await join(rig)
    first, second, brass = await fill(rig)
    await until_ready(rig, worker)
    worker.scoring, worker.error = scoring, error
    answer = await rig.gateway.recall(QUERY)
    assert ids(answer) == [first, second, brass]
    assert codes(answer) == ["not_reranked"]
    assert why in answer.notices[0].message
    assert [memory.scores.reranker for memory in answer.memories] == [None] * 3


async def test_when_the_worker_dies_its_questions_end_and_another_takes_over(rig: StoreRig) -> None:
    worker = await join(rig)
    other = await join(rig, "embedder-2")
    first, _, brass = await fill(rig)
    await until_ready(rig, worker)
    assert other.reranked == [], "one of them has the model"
    asked = anyio.Event()

    def hold(passages: Sequence[str]) -> None:
        asked.set()

    worker.scoring = hold
    answers: list[Recalled] = []

    async def ask() -> None:
        answers.append(await rig.gateway.recall(QUERY))

    with anyio.fail_after(START_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            await asked.wait()
            gone = PeerGone("embedder", worker.speaker.incarnation)
            await rig.launcher.tell(rig.store, gone)
    assert (ids(answers[0])[0], codes(answers[0])) == (first, ["not_reranked"])
    assert "died" in answers[0].notices[0].message
    await until_ready(rig, other)
    assert ids(await rig.gateway.recall(QUERY))[0] == brass
    assert len(other.reranked) == 1
