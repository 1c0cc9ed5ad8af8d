"""The reranker in an embedder: a real cross-encoder of the library, tiny and with random weights, from a directory."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from remembrancer.actors.embedder.actor import EmbedderActor
from remembrancer.actors.embedder.cross_encoder import load_cross_encoder
from remembrancer.actors.embedder.reranking import TOO_LATE
from remembrancer.protocol.errors import ModelUnusable
from remembrancer.protocol.work import (
    PassagesReranked,
    PrepareReranker,
    RerankerFailed,
    RerankerReady,
    RerankPassages,
    WorkerReady,
)
from tests.actors.test_embedder import spec_of, store_at, worker_in
from tests.random_cross_encoder import build_cross_encoder

pytestmark = pytest.mark.anyio
LATER_S = 60.0


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_cross_encoder(tmp_path_factory.mktemp("tiny"), layers=2, hidden=32, heads=2)


def question(query_id: int, *passages: str, wait_s: float = LATER_S) -> RerankPassages:
    return RerankPassages(query_id, "when does the train leave?", passages, time.time() + wait_s)


async def test_a_worker_loads_a_cross_encoder_when_it_is_told_to_and_scores_with_it(home: Path, tiny: Path) -> None:
    async with store_at(home) as store, worker_in(home, reranker="cross-encoder", reranker_model=str(tiny)):
        await store.expect(WorkerReady)
        await store.say(question(1, "too early"))
        assert (await store.expect(PassagesReranked)).error == "this worker has no reranker"
        await store.say(PrepareReranker())
        assert (await store.expect(RerankerReady)).model == tiny.name
        passages = [f"Train {number} leaves at {number}." for number in range(11)]
        await store.say(question(2, *passages))
        answer = await store.expect(PassagesReranked)
        assert (answer.query_id, len(answer.scores), answer.error) == (2, 11, None)
        assert all(0.0 <= score <= 1.0 for score in answer.scores)
        assert len(set(answer.scores)) > 1
        alone = load_cross_encoder(str(tiny), 2).score("when does the train leave?", passages)
        assert answer.scores == pytest.approx(alone, abs=1e-5)
        await store.say(PrepareReranker())
        assert (await store.expect(RerankerReady)).model == tiny.name, "who is told again says so again"
        await store.say(question(3, "too late", wait_s=-1.0))
        assert (await store.expect(PassagesReranked)).error == TOO_LATE


async def test_a_wrong_directory_is_named_and_tried_again(home: Path, tiny: Path) -> None:
    later = home / "later"
    async with store_at(home) as store, worker_in(home, reranker="cross-encoder", reranker_model=str(later)):
        await store.expect(WorkerReady)
        await store.say(PrepareReranker())
        assert (await store.expect(RerankerFailed)).message.startswith(f"{later} is not a directory: set REMEMBRANCER_")
        await store.say(question(1, "a passage"))
        assert "not a directory" in ((await store.expect(PassagesReranked)).error or "")
        shutil.copytree(tiny, later)
        while isinstance(message := await store.next(), RerankerFailed):
            pass
        assert message == RerankerReady("later")


async def test_a_reranker_that_fails_says_so_and_lives_on(home: Path) -> None:
    class Failing:
        name = "failing"

        def score(self, query: str, passages: Sequence[str]) -> list[float]:
            if "bad" in passages:
                raise RuntimeError("no")
            return [0.25] * len(passages)

    worker = EmbedderActor(spec_of(home), load_reranking=Failing)
    async with store_at(home) as store, worker_in(home, worker):
        await store.expect(WorkerReady)
        await store.say(PrepareReranker())
        await store.expect(RerankerReady)
        await store.say(question(1, "good", "bad"))
        assert await store.expect(PassagesReranked) == PassagesReranked(1, (), "RuntimeError: no")
        await store.say(question(2, "good"))
        assert await store.expect(PassagesReranked) == PassagesReranked(2, (0.25,))


def no_weights(directory: Path) -> str:
    (directory / "model.safetensors").unlink()
    return "cannot load the cross-encoder"


def no_config(directory: Path) -> str:
    (directory / "config.json").unlink()
    return "has no config.json"


@pytest.mark.parametrize("spoil", [no_weights, no_config])
def test_a_directory_that_is_not_whole_is_an_error_that_names_it(
    tmp_path: Path, tiny: Path, spoil: Callable[[Path], str]
) -> None:
    directory = tmp_path / "spoilt"
    shutil.copytree(tiny, directory)
    why = spoil(directory)
    with pytest.raises(ModelUnusable, match=why) as caught:
        load_cross_encoder(str(directory), 1)
    assert str(directory) in caught.value.message
