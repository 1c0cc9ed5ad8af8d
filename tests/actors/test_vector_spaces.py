"""The upkeep of vectors: large files move to Chroma, near-duplicates are found, memory is freed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Protocol

import pytest

from remembrancer.actors.store.committer import Committer
from remembrancer.actors.store.records.memory_rows import digest_of
from remembrancer.actors.store.records.sqlite_file import SqliteFile
from remembrancer.actors.store.records.sqlite_records import Records
from remembrancer.actors.store.records.types import EmbeddedMemory
from remembrancer.actors.store.vectors import vector_spaces
from remembrancer.actors.store.vectors.chroma import ChromaVectors
from remembrancer.actors.store.vectors.vector_spaces import VectorSpaces
from remembrancer.protocol.work import Passage
from tests.actors.store_process import IDENTITY, vector_of
from tests.contracts.records_factories import near_duplicates
from tests.operations import PROJECT, REQUESTED_AT, SESSION, memory_id_of, store_operation
from tests.patience import until


class Tended(Protocol):
    def __call__(self, *records: Records, exact_up_to: int) -> AbstractAsyncContextManager[VectorSpaces]: ...


TEXTS = ("the lantern stands in the harbour by the mole", "the lantern stands in the harbour by the mole today")


@pytest.fixture
def records(tmp_path: Path) -> Iterator[Records]:
    opened = Records(SqliteFile(tmp_path / "memory.db"), PROJECT.id, lambda: REQUESTED_AT)
    yield opened
    opened.close()


@pytest.fixture
async def tended(tmp_path: Path) -> AsyncIterator[Tended]:
    """Makes the vectors of one file, with Chroma from so many passages on."""
    committer = Committer()

    @asynccontextmanager
    async def manage(*records: Records, exact_up_to: int) -> AsyncIterator[VectorSpaces]:
        folder = tmp_path / "vectors"
        spaces = VectorSpaces(folder, committer, lambda: records, exact_up_to=exact_up_to)
        spaces.use_models([IDENTITY], IDENTITY)
        running = asyncio.ensure_future(spaces.run())
        try:
            yield spaces
        finally:
            await spaces.aclose()
            await running

    yield manage
    committer.close()


def embed(records: Records, texts: list[str]) -> list[int]:
    """Store memories with their vectors; their numbers."""
    outcomes = records.apply([store_operation(text, text) for text in texts])
    numbers = [outcome.to_embed or 0 for outcome in outcomes]
    records.save_embeddings(
        IDENTITY.key,
        [
            EmbeddedMemory(number, digest_of(text), (Passage(0, len(text)),), vector_of(text)[None])
            for number, text in zip(numbers, texts, strict=True)
        ],
    )
    return numbers


def chronicle(first: int, count: int) -> list[str]:
    return [f"word{number} of the chronicle" for number in range(first, first + count)]


def finds(spaces: VectorSpaces, records: Records, texts: list[str]) -> bool:
    """True if each memory is the nearest to its own text, by a file that is whole."""
    vectors = spaces.searchable(records.name)
    return vectors is not None and all(
        list(vectors.nearest(vector_of(text), 1)) == [records.number_of(memory_id_of(store_operation(text, "")))]
        for text in texts
    )


def is_in_chroma(spaces: VectorSpaces, records: Records) -> bool:
    return isinstance(spaces.searchable(records.name), ChromaVectors)


async def test_a_large_file_moves_to_chroma_and_wholly_back(tmp_path: Path, records: Records, tended: Tended) -> None:
    on_disk = tmp_path / "vectors" / "chroma.sqlite3"
    embed(records, chronicle(0, 20))
    async with tended(records, exact_up_to=20) as spaces:
        assert finds(spaces, records, chronicle(0, 20))
        assert not on_disk.exists()
        embed(records, chronicle(20, 1))
        assert finds(spaces, records, chronicle(20, 1)), "before it has moved"
        spaces.note_kept(records.name)
        await until(lambda: is_in_chroma(spaces, records))
        assert finds(spaces, records, chronicle(0, 21))
    async with tended(records, exact_up_to=20) as spaces:
        assert finds(spaces, records, chronicle(0, 21))
        await until(lambda: is_in_chroma(spaces, records))
        assert finds(spaces, records, chronicle(0, 21))
    async with tended(records, exact_up_to=1000) as spaces:
        assert not is_in_chroma(spaces, records)
        assert finds(spaces, records, chronicle(0, 21))
        await until(lambda: not on_disk.parent.exists())


async def test_a_chroma_that_breaks_is_made_anew_while_searches_go_on(
    tmp_path: Path, records: Records, tended: Tended, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vector_spaces, "REACH_AGAIN_S", 0.0)
    embed(records, chronicle(0, 21))
    async with tended(records, exact_up_to=20) as spaces:
        await until(lambda: is_in_chroma(spaces, records))
        with (tmp_path / "vectors" / "chroma.sqlite3").open("r+b") as file:
            file.write(b"x" * 65536)
        assert finds(spaces, records, chronicle(0, 21))
        broken = spaces.searchable(records.name)
        assert isinstance(broken, ChromaVectors)
        assert broken.has_failed
        spaces.nudge()
        await until(lambda: is_in_chroma(spaces, records) and spaces.searchable(records.name) is not broken)
        whole = spaces.searchable(records.name)
        assert isinstance(whole, ChromaVectors)
        assert finds(spaces, records, chronicle(0, 21))
        assert not whole.has_failed
        await until(lambda: spaces.error is None)


async def test_near_duplicates_are_found_and_not_compared_again_after_a_stop(records: Records, tended: Tended) -> None:
    numbers = embed(records, [*chronicle(0, 100), *TEXTS])
    last = records.extent(IDENTITY.key)[1]
    async with tended(records, exact_up_to=1000):
        await until(lambda: records.compared(IDENTITY.key) == last)
        first = memory_id_of(store_operation(TEXTS[0], ""))
        assert near_duplicates(records, numbers[-1], SESSION) == (first,)
    assert records.compared(IDENTITY.key) == last


async def test_idle_vectors_and_too_many_vectors_are_freed(tmp_path: Path, records: Records, tended: Tended) -> None:
    other = Records(SqliteFile(tmp_path / "other.db"), "p_other", lambda: REQUESTED_AT)
    for each in (records, other):
        embed(each, chronicle(0, 10))
    async with tended(records, other, exact_up_to=1000) as spaces:

        def held() -> list[bool]:
            found = [spaces.searchable(each.name) for each in (records, other)]
            return [each is not None and each.size_bytes > 0 for each in found]

        assert finds(spaces, records, chronicle(0, 10))
        assert finds(spaces, other, chronicle(0, 10))
        spaces.free_idle()
        assert held() == [True, True]
        spaces.free_idle(most_bytes=1)
        assert held() == [False, True], "what was searched last stays"
        spaces.free_idle(idle_s=0)
        assert held() == [False, False]
        assert finds(spaces, other, chronicle(0, 10))
    other.close()
