"""Embeddings in a SQLite file of records: the memories that wait for vectors, passages with theirs, near-duplicates."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from remembrancer.actors.store.records.contract import (
    EmbeddedMemory,
    NearDuplicate,
    PassageFilter,
    PassageVectors,
    SavedEmbeddings,
)
from remembrancer.actors.store.records.materials import passage_vectors
from remembrancer.actors.store.records.memory_rows import SIMILAR
from remembrancer.actors.store.records.sqlite_file import SqliteFile, padded, places_for


class SqlitePassages:
    """The part of `Records` that the embedding and the index need."""

    links_duplicates = True
    _file: SqliteFile
    _clock: Callable[[], float]

    def texts(self, numbers: Sequence[int]) -> dict[int, str]:
        asked = padded(numbers)
        rows = self._file.read(f"SELECT number, content FROM memories WHERE number IN {places_for(asked)}", asked)  # noqa: S608
        return dict(rows)

    def pending(self, model: str | None = None) -> list[int]:
        if model is not None:
            with self._file.transaction() as connection:
                _require_embeddings(connection, model)
        return [row[0] for row in self._file.read("SELECT memory FROM pending_embeddings ORDER BY memory")]

    def save_embeddings(self, model: str, embedded: Sequence[EmbeddedMemory]) -> SavedEmbeddings:
        with self._file.transaction() as connection:
            return _save_embeddings(connection, model, embedded)

    def link_similar(self, links: Sequence[NearDuplicate]) -> None:
        now = self._clock()
        with self._file.transaction() as connection:
            _link_similar(connection, links, now)

    def passages(self, wanted: PassageFilter) -> PassageVectors:
        clauses: list[str] = []
        arguments: list[object] = []
        for column, numbers in (("number", wanted.numbers), ("memory", wanted.memories)):
            if numbers is not None:
                asked = padded(numbers)
                clauses.append(f"{column} IN {places_for(asked)}")
                arguments += asked
        if wanted.model is not None:
            clauses.append("model = ?")
            arguments.append(wanted.model)
        if wanted.heads:
            clauses.append(
                """ordinal = 0 AND EXISTS (SELECT 1 FROM passages AS next WHERE next.memory = passages.memory
                   AND next.model = passages.model AND next.ordinal = 1)"""
            )
        read = ["number", "memory", "ordinal", *(["vector"] if wanted.vectors else [])]
        read += ["start", '"end"'] if wanted.ranges else []
        # Rows of passages are long: where neither vectors nor models matter, a short index has all that is asked for.
        index = "INDEXED BY passages_owned" if len(read) == 3 and wanted.numbers is not None else ""
        order = "ORDER BY number" if wanted.memories is None else ""
        rows = self._file.read(
            f"SELECT {', '.join(read)} FROM passages {index} WHERE {' AND '.join(clauses)} {order} LIMIT ?",  # noqa: S608
            (*arguments, wanted.limit),
        )
        return passage_vectors(rows, vectors=wanted.vectors)

    def is_embedded(self, model: str, number: int) -> bool:
        rows = self._file.read(
            """SELECT EXISTS (SELECT 1 FROM passages WHERE memory = ? AND model = ?)
               AND NOT EXISTS (SELECT 1 FROM pending_embeddings WHERE memory = ?)""",
            (number, model, number),
        )
        return bool(rows[0][0])


def _save_embeddings(connection: sqlite3.Connection, model: str, embedded: Sequence[EmbeddedMemory]) -> SavedEmbeddings:
    replaced: list[int] = []
    outdated: list[int] = []
    numbers: list[int] = []
    memories: list[int] = []
    ordinals: list[int] = []
    rows: list[np.ndarray[Any, np.dtype[np.float32]]] = []
    for memory in embedded:
        waiting = connection.execute(
            """SELECT m.content_digest FROM pending_embeddings AS p JOIN memories AS m ON m.number = p.memory
               WHERE p.memory = ?""",
            (memory.number,),
        ).fetchone()
        if waiting is None:
            continue
        if waiting[0] != memory.digest:
            outdated.append(memory.number)
            continue
        connection.execute("DELETE FROM pending_embeddings WHERE memory = ?", (memory.number,))
        if not memory.passages:
            continue
        older = connection.execute(
            "DELETE FROM passages WHERE memory = ? AND model = ? RETURNING number", (memory.number, model)
        )
        replaced.extend(row[0] for row in older)
        for ordinal, (passage, vector) in enumerate(zip(memory.passages, memory.vectors, strict=True)):
            inserted = connection.execute(
                'INSERT INTO passages (memory, model, ordinal, start, "end", vector) VALUES (?, ?, ?, ?, ?, ?)',
                (memory.number, model, ordinal, passage.start, passage.end, vector.tobytes()),
            ).lastrowid
            assert inserted is not None
            numbers.append(inserted)
            memories.append(memory.number)
            ordinals.append(ordinal)
            rows.append(vector)
    vectors = np.vstack(rows) if rows else np.zeros((0, 0), dtype=np.float32)
    return SavedEmbeddings(PassageVectors(numbers, memories, ordinals, vectors), replaced, outdated)


def _require_embeddings(connection: sqlite3.Connection, model: str) -> None:
    """Where every memory has its passages or waits for them, counts tell."""
    ((missing,),) = connection.execute(
        """SELECT coalesce((SELECT sum(count) FROM tallies), 0)
                  - coalesce((SELECT memories FROM embedded WHERE model = ?), 0)""",
        (model,),
    )
    ((waiting,),) = connection.execute(
        """SELECT count(*) FROM pending_embeddings AS p
           WHERE NOT EXISTS (SELECT 1 FROM passages WHERE memory = p.memory AND model = ?)""",
        (model,),
    )
    if missing > waiting:
        connection.execute(
            """INSERT OR IGNORE INTO pending_embeddings (memory)
               SELECT number FROM memories
               WHERE NOT EXISTS (SELECT 1 FROM passages WHERE memory = memories.number AND model = ?)
               ORDER BY number""",
            (model,),
        )


def _link_similar(connection: sqlite3.Connection, links: Sequence[NearDuplicate], now: float) -> None:
    for link in links:
        if all(connection.execute("SELECT 1 FROM passages WHERE number = ?", (each,)).fetchone() for each in link.seen):
            connection.execute(
                """INSERT INTO memory_links
                   SELECT later.number, earlier.number, ?, ?, ? FROM memories AS later, memories AS earlier
                   WHERE later.number = ? AND earlier.number = ?
                   ON CONFLICT DO UPDATE SET strength = excluded.strength""",
                (SIMILAR, link.cosine, now, link.later, link.earlier),
            )
