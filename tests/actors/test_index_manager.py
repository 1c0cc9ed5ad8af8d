"""The upkeep of the index: what is asked of it meanwhile does not wait for it."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing
from pathlib import Path

import anyio
import pytest

from remembrancer.actors.store.committer import Committer
from remembrancer.actors.store.records.contract import EmbeddedMemory, SavedEmbeddings
from remembrancer.actors.store.records.memory_rows import digest_of
from remembrancer.actors.store.records.sqlite_records import SqliteRecords
from remembrancer.actors.store.vectors.index_manager import IndexManager
from remembrancer.actors.store.vectors.passage_index import ExactCollection, PassageIndex, VectorIndex
from remembrancer.protocol.work import Passage
from tests.actors.store_process import IDENTITY, vector_of
from tests.contracts.records_factories import near_duplicates
from tests.operations import PROJECT, REQUESTED_AT, SESSION, store_operation
from tests.patience import PATIENCE_S, until

pytestmark = pytest.mark.anyio
Tended = Callable[[SqliteRecords, int], AbstractAsyncContextManager[IndexManager]]
TEXTS = ("the lantern stands in the harbour by the mole", "the lantern stands in the harbour by the mole today")


async def test_near_duplicates_are_found_while_the_index_is_being_opened(tmp_path: Path) -> None:
    opening, may_open = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def open_slowly(_: Path) -> VectorIndex:
        loop.call_soon_threadsafe(opening.set)
        may_open.wait()
        raise OSError("closed before it was open")

    records = SqliteRecords(tmp_path / "memory.db", PROJECT.id, lambda: REQUESTED_AT)
    committer = Committer()
    keeper = IndexManager(tmp_path / "vectors", committer, exact_up_to=0, busy=lambda: False, open_index=open_slowly)
    keeper.use_models([IDENTITY], IDENTITY, [records])
    tending = asyncio.ensure_future(keeper.run())
    outcomes = records.apply([store_operation(text, text, memory_id=f"memory:{len(text)}") for text in TEXTS])
    numbers = [outcome.to_embed for outcome in outcomes if outcome.to_embed is not None]
    made = [
        EmbeddedMemory(number, digest_of(text), (Passage(0, len(text)),), vector_of(text).reshape(1, -1))
        for number, text in zip(numbers, TEXTS, strict=True)
    ]
    keeper.add(records.name, IDENTITY.key, records.save_embeddings(IDENTITY.key, made))
    try:
        with anyio.fail_after(PATIENCE_S), ThreadPoolExecutor(1) as threads:
            await opening.wait()
            await keeper.check_now(records.name, numbers[1], threads)
        assert near_duplicates(records, numbers[1], SESSION) == (f"memory:{len(TEXTS[0])}",)
    finally:
        await keeper.aclose()
        may_open.set()
        await tending
        committer.close()
        records.close()


@pytest.fixture
async def tended(tmp_path: Path) -> AsyncIterator[Tended]:
    """Makes managers of one file, with an index on disk from so many passages on."""
    committer = Committer()

    @asynccontextmanager
    async def manage(records: SqliteRecords, exact_up_to: int) -> AsyncIterator[IndexManager]:
        manager = IndexManager(tmp_path / "vectors", committer, exact_up_to=exact_up_to, busy=lambda: False)
        manager.use_models([IDENTITY], IDENTITY, [records])
        running = asyncio.ensure_future(manager.run())
        try:
            yield manager
        finally:
            await manager.note_compared()
            await manager.flush_all()
            manager.nudge()
            await running
            await manager.aclose()

    yield manage
    committer.close()


def embedded(records: SqliteRecords, first: int, count: int) -> SavedEmbeddings:
    """Store memories with their vectors."""
    texts = [f"word{number} of the chronicle" for number in range(first, first + count)]
    outcomes = records.apply([store_operation(text, text) for text in texts])
    return records.save_embeddings(
        IDENTITY.key,
        [
            EmbeddedMemory(outcome.to_embed or 0, digest_of(text), (Passage(0, len(text)),), vector_of(text)[None])
            for outcome, text in zip(outcomes, texts, strict=True)
        ],
    )


def found(manager: IndexManager, records: SqliteRecords, number: int) -> bool:
    """True if a memory is the nearest to its own text, by a file that is whole."""
    passages = manager.searchable(records.name)
    return (
        passages is not None and passages.search(vector_of(f"word{number} of the chronicle"), 1)[0].memory == number + 1
    )


async def test_a_file_is_searched_in_memory_until_it_is_too_large_for_that(tmp_path: Path, tended: Tended) -> None:
    on_disk = tmp_path / "vectors" / "chroma.sqlite3"
    records = SqliteRecords(tmp_path / "memory.db", PROJECT.id, lambda: REQUESTED_AT)
    saved = embedded(records, 0, 20)
    async with tended(records, 20) as manager:
        await until(lambda: found(manager, records, 7))
        assert not on_disk.exists()
        manager.add(records.name, IDENTITY.key, saved)
        manager.add(records.name, IDENTITY.key, embedded(records, 20, 1))
        assert found(manager, records, 20), "before it has moved"
        await until(on_disk.exists)
        await until(lambda: is_on_disk(manager, records))
        assert all(found(manager, records, number) for number in range(21))
    async with tended(records, 1000) as manager:
        await until(lambda: manager.searchable(records.name) is not None)
        assert all(found(manager, records, number) for number in range(21))
        with closing(sqlite3.connect(on_disk)) as connection:
            assert connection.execute("SELECT count(*) FROM collections").fetchone() == (0,), "nothing stays there"
    records.close()


def is_on_disk(manager: IndexManager, records: SqliteRecords) -> bool:
    passages = manager.searchable(records.name)
    return passages is not None and passages.attached and not passages.is_exact and not passages.has_work


async def test_what_has_been_compared_is_not_compared_again_after_an_orderly_stop(
    tmp_path: Path, tended: Tended
) -> None:
    records = SqliteRecords(tmp_path / "memory.db", PROJECT.id, lambda: REQUESTED_AT)
    saved = embedded(records, 0, 5)
    async with tended(records, 20) as manager:
        manager.add(records.name, IDENTITY.key, saved)
        await until(lambda: is_settled(manager, records))
    assert records.compared(IDENTITY.key) == max(saved.kept.numbers)
    left = embedded(records, 5, 2).kept.numbers
    fresh = PassageIndex(records, IDENTITY.key)
    fresh.reconcile(ExactCollection())
    assert fresh.compared == left[0] - 1, "what came later is"
    records.close()


def is_settled(manager: IndexManager, records: SqliteRecords) -> bool:
    passages = manager.searchable(records.name)
    return passages is not None and passages.attached and not passages.has_work
