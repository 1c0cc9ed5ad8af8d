"""Passages and links as rows: what is derived from the contents of memories. Inside the caller's transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

import numpy as np

from remembrancer.actors.store.records.contract import (
    EmbeddedMemory,
    NearDuplicate,
    PassageVectors,
    SavedEmbeddings,
)
from remembrancer.actors.store.records.memory_rows import SIMILAR


def save_embeddings(connection: sqlite3.Connection, model: str, embedded: Sequence[EmbeddedMemory]) -> SavedEmbeddings:
    """As `Records.save_embeddings`."""
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


def fail_embedding(connection: sqlite3.Connection, number: int, digest: bytes, error: str, *, final: bool) -> None:
    """As `Records.fail_embedding`."""
    tried = "WHERE memory = ? AND EXISTS (SELECT 1 FROM memories WHERE number = memory AND content_digest = ?)"
    if final:
        connection.execute(f"DELETE FROM pending_embeddings {tried}", (number, digest))  # noqa: S608 - fixed clauses
    else:
        connection.execute(
            f"UPDATE pending_embeddings SET attempts = attempts + 1, error = ? {tried}",  # noqa: S608 - fixed clauses
            (error, number, digest),
        )


def require_embeddings(connection: sqlite3.Connection, model: str) -> None:
    """As `Records.require_embeddings`. Where every memory has its passages or waits for them, counts tell."""
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


def link_similar(connection: sqlite3.Connection, links: Sequence[NearDuplicate], now: float) -> None:
    """As `Records.link_similar`."""
    for link in links:
        if all(connection.execute("SELECT 1 FROM passages WHERE number = ?", (each,)).fetchone() for each in link.seen):
            connection.execute(
                """INSERT INTO memory_links
                   SELECT later.number, earlier.number, ?, ?, ? FROM memories AS later, memories AS earlier
                   WHERE later.number = ? AND earlier.number = ?
                   ON CONFLICT DO UPDATE SET strength = excluded.strength""",
                (SIMILAR, link.cosine, now, link.later, link.earlier),
            )
