"""`VectorIndex` on an embedded Chroma (HNSW, cosine). Importing chromadb takes most of a second: do it off the loop.

Chroma keeps one client for each path in a process, so a folder that is deleted under a live process goes unnoticed by
it; `is_intact` looks at the file itself.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final

import chromadb
from chromadb.api.shared_system_client import SharedSystemClient
from chromadb.config import Settings as ChromaSettings

from remembrancer.actors.store.records.contract import PassageVectors, Vectors
from remembrancer.actors.store.vectors.passage_index import Collection, IndexLost, VectorHit

SEARCH_EFFORT: Final = 150
"""HNSW's ef_search. Among 100,000 mixtures of two real vectors it finds 99.0 % of the true nearest ten in 2 ms.

(100 finds 98.6 % in 1.2 ms.)
"""
WRITE_BATCH: Final = 1000
"""Chroma refuses batches above its own limit (5,461 with this SQLite)."""


class ChromaIndex:
    """Every collection under one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._client: Any = None
        self._inode = 0
        self._open()

    @classmethod
    def anew(cls, folder: Path) -> ChromaIndex:
        """An empty index in place of whatever the folder holds."""
        SharedSystemClient.clear_system_cache()
        shutil.rmtree(folder, ignore_errors=True)
        return cls(folder)

    def collection(self, name: str, dimensions: int) -> Collection:
        with _as_lost():
            found = self._client.get_or_create_collection(
                name,
                embedding_function=None,
                configuration={"hnsw": {"space": "cosine", "ef_search": SEARCH_EFFORT}},
                metadata={"dimensions": dimensions},
            )
        return ChromaCollection(found)

    def prune(self, is_needed: Callable[[str], bool]) -> None:
        with _as_lost():
            for collection in self._client.list_collections():
                if not is_needed(collection.name):
                    self._client.delete_collection(collection.name)

    def is_intact(self) -> bool:
        try:
            return self._database.stat().st_ino == self._inode
        except FileNotFoundError:
            return False

    def reset(self) -> None:
        self.close()
        shutil.rmtree(self._folder, ignore_errors=True)
        self._open()

    def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()  # forgetting it is not enough: its connections would keep the file locked for a while

    @property
    def _database(self) -> Path:
        return self._folder / "chroma.sqlite3"

    def _open(self) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        settings = ChromaSettings(anonymized_telemetry=False, is_persistent=True, persist_directory=str(self._folder))
        self._client = chromadb.PersistentClient(str(self._folder), settings=settings)
        self._client.heartbeat()
        self._inode = self._database.stat().st_ino


class ChromaCollection:
    """One collection. Only numbers and vectors are kept: metadata would double the time of a search."""

    def __init__(
        self,
        collection: Any,
        searched: Any = None,
        guard: Callable[[], AbstractContextManager[None]] | None = None,
    ) -> None:
        """`searched` is the same collection by a client with less patience; `guard` makes errors our own."""
        self._collection = collection
        self._searched = collection if searched is None else searched
        self._guard = guard or _as_lost

    def upsert(self, passages: PassageVectors) -> None:
        for start in range(0, len(passages.numbers), WRITE_BATCH):
            batch = slice(start, start + WRITE_BATCH)
            with self._guard():
                self._collection.upsert(
                    ids=[str(number) for number in passages.numbers[batch]],
                    embeddings=passages.vectors[batch],
                )

    def delete(self, numbers: Sequence[int]) -> None:
        for start in range(0, len(numbers), WRITE_BATCH):
            with self._guard():
                self._collection.delete(ids=[str(number) for number in numbers[start : start + WRITE_BATCH]])

    def search(self, queries: Vectors, limit: int) -> list[list[VectorHit]]:
        if not len(queries):
            return []
        with self._guard():
            answer = self._searched.query(query_embeddings=queries, n_results=limit, include=["distances"])
        return [
            [VectorHit(int(number), 1.0 - distance) for number, distance in zip(numbers, distances, strict=True)]
            for numbers, distances in zip(answer["ids"], answer["distances"], strict=True)
        ]

    def numbers(self) -> list[int]:
        with self._guard():
            return [int(number) for number in self._collection.get(include=[])["ids"]]

    def count(self) -> int:
        with self._guard():
            return int(self._collection.count())


@contextlib.contextmanager
def _as_lost() -> Iterator[None]:
    try:
        yield
    except BaseException as error:  # Chroma's native part panics with a BaseException of its own
        if isinstance(error, (KeyboardInterrupt, SystemExit)):
            raise
        raise IndexLost(f"a collection of the index cannot be used: {error!r}") from error
