"""The reranker in an embedder: a real cross-encoder of the library, tiny and with random weights, from a directory."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import anyio
import pytest

from remembrancer.actors.embedder.actor import EmbedderActor
from remembrancer.actors.embedder.reranker import LOADING, TOO_LATE, load_cross_encoder
from remembrancer.protocol.errors import ModelUnusable
from remembrancer.protocol.work import PassagesReranked, RerankPassages, WorkerReady
from tests.actors.test_embedder import StoreSide, spec_of, store_at, worker_in
from tests.random_cross_encoder import build_cross_encoder

pytestmark = pytest.mark.anyio
LATER_S = 60.0


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_cross_encoder(tmp_path_factory.mktemp("tiny"), layers=2, hidden=32, heads=2)


def question(query_id: int, *passages: str, wait_s: float = LATER_S) -> RerankPassages:
    return RerankPassages(query_id, "when does the train leave?", passages, time.time() + wait_s)


async def answer_of(store: StoreSide, asked: RerankPassages) -> PassagesReranked:
    """The answer when the reranker is loaded: until then each question has one that says so."""
    while True:
        await store.say(asked)
        answer = await store.expect(PassagesReranked)
        if answer.error != LOADING:
            return answer
        await anyio.sleep(0.02)


async def test_a_worker_loads_a_cross_encoder_with_its_first_question_and_scores(home: Path, tiny: Path) -> None:
    async with store_at(home) as store, worker_in(home, reranker="cross-encoder", reranker_model=str(tiny)):
        await store.expect(WorkerReady)
        await store.say(question(1, "too early"))
        assert await store.expect(PassagesReranked) == PassagesReranked(1, (), LOADING)
        passages = [f"Train {number} leaves at {number}." for number in range(11)]
        answer = await answer_of(store, question(2, *passages))
        assert (answer.query_id, len(answer.scores), answer.error) == (2, 11, None)
        assert all(0.0 <= score <= 1.0 for score in answer.scores)
        assert len(set(answer.scores)) > 1
        alone = load_cross_encoder(str(tiny), 2).score("when does the train leave?", passages)
        assert answer.scores == pytest.approx(alone, abs=1e-5)
        await store.say(question(3, "too late", wait_s=-1.0))
        assert (await store.expect(PassagesReranked)).error == TOO_LATE


async def test_a_wrong_directory_is_named_and_tried_again(home: Path, tiny: Path) -> None:
    later = home / "later"
    async with store_at(home) as store, worker_in(home, reranker="cross-encoder", reranker_model=str(later)):
        await store.expect(WorkerReady)
        answer = await answer_of(store, question(1, "a passage"))
        assert (answer.error or "").startswith(f"{later} is not a directory: set REMEMBRANCER_")
        shutil.copytree(tiny, later)
        while (answer := await answer_of(store, question(2, "a passage"))).error is not None:  # noqa: ASYNC110 - no message says so
            await anyio.sleep(0.02)
        assert len(answer.scores) == 1


async def test_a_reranker_that_fails_says_so_and_lives_on(home: Path) -> None:
    class Failing:
        def score(self, query: str, passages: Sequence[str]) -> list[float]:
            if "bad" in passages:
                raise RuntimeError("no")
            return [0.25] * len(passages)

    worker = EmbedderActor(spec_of(home), load_reranking=Failing)
    async with store_at(home) as store, worker_in(home, worker):
        await store.expect(WorkerReady)
        assert await answer_of(store, question(1, "good", "bad")) == PassagesReranked(1, (), "RuntimeError: no")
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
