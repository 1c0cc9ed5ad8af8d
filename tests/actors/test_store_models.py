"""A change of the model in a real store process: the old one answers until the new one's vectors are whole."""

import sqlite3
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, closing
from functools import partial
from pathlib import Path

import anyio
import msgspec
import pytest

from remembrancer.config.settings import Settings
from remembrancer.protocol.work import ChooseModel, ModelChoice, ModelProgress
from tests.actors.store_process import (
    IDENTITY,
    REQUEST_S,
    StoreRig,
    Worker,
    assert_chronicle_is_found,
    chronicle,
    store_rig,
)
from tests.patience import until
from tests.spaces import rows_of

OTHER = ModelChoice("sentence-transformers", "better words")
BETTER = msgspec.structs.replace(IDENTITY, model="better words", revision="fedcba9876543210")
MANY = 40
PATIENT = Settings(call_budget_s=2 * REQUEST_S)
"""What is found, and not when: half of it is what a question's vector may take, on a machine that is busy."""


@pytest.fixture
async def rig(home: Path) -> AsyncIterator[StoreRig]:
    async with store_rig(home, settings=PATIENT) as made:
        yield made


async def fill(rig: StoreRig) -> list[str]:
    ids = await chronicle(rig, MANY)
    await rig.gateway.until_embedded()
    return ids


async def models(rig: StoreRig) -> dict[str, ModelProgress]:
    return {each.role: each for each in (await rig.gateway.describe()).embedding.models}


def models_recorded(rig: StoreRig) -> set[str]:
    return {model for (model,) in rig.rows("SELECT DISTINCT model FROM passages")}


def collections(rig: StoreRig) -> set[str]:
    try:
        return {row[0] for row in rows_of(rig.paths.vectors / "chroma.sqlite3", "SELECT name FROM collections")}
    except sqlite3.OperationalError:  # nothing has moved yet
        return set()


async def announce_again(rig: StoreRig, *workers: Worker) -> None:
    for worker in workers:
        while not any(each.choice == worker.choice and each.workers for each in (await models(rig)).values()):
            worker.announce()
            await anyio.sleep(0.1)


async def test_a_change_of_model_is_made_behind_the_old_one_and_survives_the_store(rig: StoreRig) -> None:
    rig.settings = msgspec.structs.replace(PATIENT, exact_search_passages=0)  # so that all vectors are in Chroma
    await rig.restart()
    old = await rig.worker()
    ids = await fill(rig)
    await rig.gateway.ask(ChooseModel(OTHER))
    async with Worker(rig.home, "embedder-2", identity=BETTER, choice=OTHER, holds=True) as new:
        new.announce()
        await until(lambda: len(new.jobs) >= 10)
        new.answer(new.jobs[:10])
        await rig.gateway.until(lambda now: now.embedding.models[-1].pending == MANY - 10)
        await assert_chronicle_is_found(rig, ids)
        assert not new.questions, "the old model answers"
        progress = (await models(rig))["next"]
        assert (progress.choice, progress.total, progress.pending) == (OTHER, MANY, MANY - 10)
        late = await rig.gateway.store("word777 of the chronicle777")
        assert (await rig.gateway.embedding_of(late)).embedded, "new memories are found by the old model as well"
        await rig.restart()
        await announce_again(rig, old)
        await rig.gateway.until_embedded()
        await assert_chronicle_is_found(rig, ids)
        progress = (await models(rig))["next"]
        assert (progress.choice, progress.total) == (OTHER, MANY + 1), "the change goes on"
        new.holds = False
        asked, known = len(new.jobs), len(new.questions)
        await announce_again(rig, new)
        await until(lambda: len(new.jobs) - asked == MANY + 1 - 10)
        await rig.gateway.until(lambda now: now.embedding.model == "better words")
        await assert_chronicle_is_found(rig, ids)
        assert len(new.questions) > known
        await until(lambda: models_recorded(rig) == {BETTER.key})
        await until(lambda: collections(rig) and all(name.endswith(BETTER.key) for name in collections(rig)))
        assert set(await models(rig)) == {"active"}
        old.announce()
        new.announce()
        assert (await rig.gateway.embedding_of(await rig.gateway.store("word778"))).embedded
        assert all("word778" not in job.text for job in old.jobs), "it is not needed any more"


async def test_a_store_that_is_killed_before_the_change_is_noted_still_has_the_old_vectors(rig: StoreRig) -> None:
    old = await rig.worker()
    ids = await fill(rig)
    await rig.gateway.ask(ChooseModel(OTHER))
    async with Worker(rig.home, "embedder-2", identity=BETTER, choice=OTHER, holds=True, credit=2 * MANY) as new:
        new.announce()
        await until(lambda: len(new.jobs) == MANY)
        with closing(sqlite3.connect(rig.paths.database, isolation_level=None)) as another:
            await rig.gateway.until(lambda now: bool(now.embedding.models[-1].total))
            another.execute(
                "CREATE TRIGGER undecided BEFORE INSERT ON models BEGIN SELECT RAISE (ABORT, 'not now'); END"
            )
            new.answer(new.jobs)
            await rig.gateway.until(lambda now: now.embedding.model == "better words")
            await assert_chronicle_is_found(rig, ids)
            await rig.store.kill()
            assert models_recorded(rig) == {IDENTITY.key, BETTER.key}
            another.execute("DROP TRIGGER undecided")
        await rig.start()
        await announce_again(rig, old)
        await rig.gateway.until_embedded()
        await assert_chronicle_is_found(rig, ids)
        await announce_again(rig, new)
        await rig.gateway.until(lambda now: now.embedding.model == "better words")
        await until(lambda: models_recorded(rig) == {BETTER.key})
        assert len(new.jobs) == MANY, "nothing was embedded twice"


async def test_a_question_is_never_answered_by_another_models_vectors(rig: StoreRig) -> None:
    """Two models of the same dimensions, which share no direction: mixed up, they would find the wrong memories."""
    await rig.worker()
    ids = await fill(rig)
    await rig.gateway.ask(ChooseModel(OTHER))
    async with Worker(rig.home, "embedder-2", identity=BETTER, choice=OTHER) as new, anyio.create_task_group() as tasks:
        changed = anyio.Event()

        async def ask(first: int) -> None:
            asked = 0
            while not changed.is_set() or asked < 20:
                place, asked = (first + 3 * asked) % MANY, asked + 1
                answer = await rig.gateway.recall(f"word{place} of the chronicle{place}, {asked}", strategy="vector")
                if not rig.gateway.notices:
                    assert answer.memories[0].id == ids[place]

        for first in range(3):
            tasks.start_soon(ask, first)
        new.announce()
        await rig.gateway.until(lambda now: now.embedding.model == "better words")
        changed.set()


async def test_a_new_model_whose_vectors_are_not_whole_never_answers_for_the_old_one(rig: StoreRig) -> None:
    old = await rig.worker()
    ids = await fill(rig)
    await rig.gateway.ask(ChooseModel(OTHER))
    async with Worker(rig.home, "embedder-2", identity=BETTER, choice=OTHER, holds=True) as new:
        new.announce()
        await until(lambda: new.jobs)
        old.leave()
        await rig.gateway.until(lambda now: now.embedding.models[0].workers == 0)
        answer = await rig.gateway.recall("word3 of the chronicle3")
        assert answer.memories[0].id == ids[3]
        assert [notice.code for notice in rig.gateway.notices] == ["embedding_failed"]
        assert not new.questions


async def test_the_fallback_answers_before_the_local_model_while_the_provider_is_away(home: Path) -> None:
    names = {"voyage": "voyage-3-large", "openai": "text-embedding-3-small", "onnx": "all-MiniLM-L6-v2"}
    settings = Settings(engine="voyage", fallback_engine="openai")
    async with store_rig(home, settings=settings) as rig, AsyncExitStack() as stack:
        workers = []
        for number, (engine, model) in enumerate(names.items(), 1):
            identity = msgspec.structs.replace(IDENTITY, engine=engine, model=model)
            worker = Worker(home, f"embedder-{number}", identity=identity, choice=ModelChoice(engine, model))
            workers.append(await stack.enter_async_context(worker))
            worker.announce()
        ids = await fill(rig)
        for model, change in (
            (names["openai"], partial(workers[0].fail, "away")),
            (names["voyage"], workers[0].announce),
        ):
            change()
            await rig.gateway.until(
                lambda now, model=model: (  # type: ignore[misc]
                    not any(each.pending for each in now.embedding.models) and now.embedding.model == model
                )
            )
            await assert_chronicle_is_found(rig, ids)
        assert [len(worker.jobs) for worker in workers] == [MANY] * 3, "each has embedded everything once"
