"""`VectorIndex` on an embedded Chroma (HNSW, cosine).

Chroma is called by the native module of its package. `import chromadb` would bring servers, telemetry and thirty
providers of embeddings with it: a second of processor time at each start of the store, and tens of megabytes.

A folder that is deleted under a live process goes unnoticed by Chroma; `is_intact` looks at the file itself.
"""

from __future__ import annotations

import contextlib
import json
import resource
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import chromadb_rust_bindings as chroma

from remembrancer.actors.store.records.contract import PassageVectors, Vectors
from remembrancer.actors.store.vectors.passage_index import Collection, IndexLost, VectorHit

SEARCH_EFFORT: Final = 150
"""HNSW's ef_search. Among 100,000 mixtures of two real vectors it finds 99.0 % of the true nearest ten in 2 ms.

(100 finds 98.6 % in 1.2 ms.)
"""
WRITE_BATCH: Final = 1000
"""Chroma refuses batches above its own limit (5,461 with this SQLite)."""
CONFIGURATION: Final = json.dumps(
    {"hnsw": {"space": "cosine", "ef_search": SEARCH_EFFORT}, "embedding_function": {"type": "legacy"}}
)
"""Legacy is Chroma's word for vectors that the caller brings."""
FILES_OF_A_COLLECTION: Final = 5


class ChromaIndex:
    """Every collection under one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.bindings: Any
        """Chroma itself; None once it is closed. Kept nowhere else: its connections end with the last reference."""
        self._inode = 0
        self._open()

    @classmethod
    def anew(cls, folder: Path) -> ChromaIndex:
        """An empty index in place of whatever the folder holds."""
        shutil.rmtree(folder, ignore_errors=True)
        return cls(folder)

    def collection(self, name: str, dimensions: int) -> Collection:
        with _as_lost():
            found = self.bindings.create_collection(
                name, CONFIGURATION, metadata={"dimensions": dimensions}, get_or_create=True
            )
        return ChromaCollection(self, str(found.id))

    def prune(self, is_needed: Callable[[str], bool]) -> None:
        with _as_lost():
            for collection in self.bindings.list_collections():
                if not is_needed(collection.name):
                    self.bindings.delete_collection(collection.name, collection.tenant, collection.database)

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
        self.bindings = None

    @property
    def _database(self) -> Path:
        return self._folder / "chroma.sqlite3"

    def _open(self) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        database = chroma.SqliteDBConfig(
            url=str(self._database),
            hash_type=chroma.MigrationHash.MD5,
            migration_mode=chroma.MigrationMode.Apply,
        )
        self.bindings = chroma.Bindings(
            allow_reset=False,
            sqlite_db_config=database,
            persist_path=str(self._folder),
            hnsw_cache_size=resource.getrlimit(resource.RLIMIT_NOFILE)[0] // FILES_OF_A_COLLECTION,
        )
        self._inode = self._database.stat().st_ino


class ChromaCollection:
    """One collection. Only numbers and vectors are kept: metadata would double the time of a search."""

    def __init__(self, index: ChromaIndex, collection_id: str) -> None:
        self._index = index
        self._id = collection_id

    def upsert(self, passages: PassageVectors) -> None:
        for start in range(0, len(passages.numbers), WRITE_BATCH):
            batch = slice(start, start + WRITE_BATCH)
            with _as_lost():
                self._index.bindings.upsert(
                    self._id, [str(number) for number in passages.numbers[batch]], list(passages.vectors[batch])
                )

    def delete(self, numbers: Sequence[int]) -> None:
        for start in range(0, len(numbers), WRITE_BATCH):
            with _as_lost():
                self._index.bindings.delete(self._id, [str(number) for number in numbers[start : start + WRITE_BATCH]])

    def search(self, queries: Vectors, limit: int) -> list[list[VectorHit]]:
        if not len(queries):
            return []
        with _as_lost():
            answer = self._index.bindings.query(self._id, None, list(queries), limit, None, None, ["distances"])
        return [
            [VectorHit(int(number), 1.0 - distance) for number, distance in zip(numbers, distances, strict=True)]
            for numbers, distances in zip(answer.ids, answer.distances, strict=True)
        ]

    def numbers(self) -> list[int]:
        with _as_lost():
            return [int(number) for number in self._index.bindings.get(self._id, include=[]).ids]

    def count(self) -> int:
        with _as_lost():
            return int(self._index.bindings.count(self._id))


@contextlib.contextmanager
def _as_lost() -> Iterator[None]:
    try:
        yield
    except BaseException as error:  # Chroma's native part panics with a BaseException of its own
        if isinstance(error, (KeyboardInterrupt, SystemExit)):
            raise
        raise IndexLost(f"a collection of the index cannot be used: {error!r}") from error
