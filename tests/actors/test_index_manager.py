"""The upkeep of the index: what is asked of it meanwhile does not wait for it."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import anyio
import pytest

from remembrancer.actors.store.committer import Committer
from remembrancer.actors.store.read_handlers import near_duplicates
from remembrancer.actors.store.records.contract import EmbeddedMemory
from remembrancer.actors.store.records.memory_rows import digest_of
from remembrancer.actors.store.records.sqlite_records import SqliteRecords
from remembrancer.actors.store.vectors.index_manager import IndexManager
from remembrancer.actors.store.vectors.passage_index import VectorIndex
from remembrancer.protocol.work import Passage
from tests.actors.store_process import IDENTITY, vector_of
from tests.operations import PROJECT, REQUESTED_AT, SESSION, store_operation
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.anyio
TEXTS = ("the lantern stands in the harbour by the mole", "the lantern stands in the harbour by the mole today")


async def test_near_duplicates_are_found_while_the_index_is_being_opened(tmp_path: Path) -> None:
    opening, may_open = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def open_slowly() -> VectorIndex:
        loop.call_soon_threadsafe(opening.set)
        may_open.wait()
        raise OSError("closed before it was open")

    records = SqliteRecords(tmp_path / "memory.db", PROJECT.id, lambda: REQUESTED_AT)
    committer = Committer()
    keeper = IndexManager(open_slowly, committer, busy=lambda: False)
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
