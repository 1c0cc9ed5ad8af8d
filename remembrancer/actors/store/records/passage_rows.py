"""Embeddings: memories without vectors of a model, passages with their vectors, near-duplicates."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from remembrancer.actors.sqlite_file import AMONG, SqliteFile, json_list, where
from remembrancer.actors.store.records.types import (
    MAX_ATTEMPTS,
    RECORDS,
    Clock,
    EmbeddedMemory,
    FailedText,
    NearDuplicate,
    PassageVectors,
    TextToEmbed,
    Vectors,
)


class EmbeddedTexts:
    """Rows of a table `_table` (with `number`, `content` and `content_digest`) that have vectors: the memories of a
    space, or the texts of a project's files, which are also called memories here. `_own` is the clause that selects the
    relevant rows and passages. Raises the same errors as `Records`."""

    name: str
    """A unique name: `user`, a project's id with or without `.files`, or `records` for all memories."""
    links_duplicates = True
    _table = "memories"
    _own = "space = @SPACE"
    _count = "SELECT coalesce(sum(count), 0) FROM tallies WHERE space = @SPACE"
    """Counts all rows without scanning them."""
    _file: Any
    """The space, or the index of notes, that contains the table."""
    _clock: Clock

    @property
    def _of_own(self) -> str:
        return f"EXISTS (SELECT 1 FROM {self._table} WHERE number = memory AND {self._own})"  # noqa: S608 - our names

    def missing(self, model: str | None) -> int:
        """Return the number of memories without vectors of `model` (None: of all memories), except dead letters."""
        ((missing,),) = self._file.read(
            f"""SELECT ({self._count})
                       - coalesce((SELECT sum(memories) FROM embedded WHERE {self._own} AND model = ?1), 0)
                       - (SELECT count(*) FROM embedding_attempts
                          WHERE model = ?1 AND attempts >= ?2 AND {self._of_own})""",  # noqa: S608 - our names
            (model, MAX_ATTEMPTS),
        )
        return int(missing)

    def next_texts(self, model: str, limit: int, hand_bytes: int, without: Sequence[int] = ()) -> list[TextToEmbed]:
        """Return the newest texts that have no vectors of `model`, except dead letters and texts in `without`: at most
        `limit`, and none after their total size exceeds `hand_bytes`."""
        limit = min(limit, self.missing(model) - len(without))  # without this limit, all texts might be read
        if limit <= 0:
            return []
        rows = self._file.read(
            f"""SELECT t.number, t.content, t.content_digest, coalesce(a.died, 0)
                FROM {self._table} AS t LEFT JOIN embedding_attempts AS a ON a.memory = t.number AND a.model = ?1
                WHERE {self._own} AND NOT EXISTS (SELECT 1 FROM passages WHERE memory = t.number AND model = ?1)
                AND coalesce(a.attempts, 0) < ?2 AND t.number NOT IN (SELECT value FROM json_each(?3))
                ORDER BY t.number DESC LIMIT ?4""",  # noqa: S608 - our name
            (model, MAX_ATTEMPTS, json_list(without), limit),
        )
        found: list[TextToEmbed] = []
        size_bytes = 0
        for number, content, digest, died in rows:
            if size_bytes > hand_bytes:
                break
            found.append(TextToEmbed(number, content, digest, bool(died)))
            size_bytes += found[-1].size_bytes
        return found

    def note_attempts(self, model: str, failed: Sequence[FailedText]) -> list[FailedText]:
        """Record failed attempts. Returns the new dead letters, which `try_again` retries at `until` or later."""
        with self._file.transaction(durable=False) as connection:
            for text in failed:
                connection.execute(
                    f"""INSERT INTO embedding_attempts
                        SELECT number, ?1, 1, ?2, ?3, ?4 FROM {self._table} WHERE number = ?5
                        AND NOT EXISTS (SELECT 1 FROM passages WHERE memory = ?5 AND model = ?1)
                        ON CONFLICT DO UPDATE SET attempts = attempts + 1, reason = excluded.reason,
                        until = excluded.until, died = max(died, excluded.died)""",  # noqa: S608 - our name
                    (model, text.reason, text.until, text.died, text.number),
                )
        dead = self.dead_letters(model)
        return [text for text in failed if text.number in dead]

    def try_again(self, model: str, now: float) -> None:
        """Give dead letters another chance. Texts that killed workers get one attempt."""
        if not self.dead_letters(model):
            return
        with self._file.transaction(durable=False) as connection:
            connection.execute(
                f"""UPDATE embedding_attempts SET attempts = iif(died, {MAX_ATTEMPTS - 1}, 0)
                    WHERE model = ? AND attempts >= ? AND until <= ? AND {self._of_own}""",  # noqa: S608 - ours
                (model, MAX_ATTEMPTS, now),
            )

    def dead_letters(self, model: str) -> dict[int, str]:
        rows = self._file.read(
            f"""SELECT memory, reason FROM embedding_attempts
                WHERE model = ? AND attempts >= ? AND {self._of_own}""",  # noqa: S608 - our clause
            (model, MAX_ATTEMPTS),
        )
        return dict(rows)

    def save_embeddings(self, model: str, embedded: Sequence[EmbeddedMemory]) -> list[int]:
        """Returns the numbers of the new passages. Skips memories that are gone, embedded already, or changed since."""
        kept: list[int] = []
        with self._file.transaction(durable=False) as connection:
            for memory in embedded:
                found = connection.execute(
                    f"""SELECT content_digest, EXISTS (SELECT 1 FROM passages WHERE memory = t.number AND model = ?),
                        space FROM {self._table} AS t WHERE {self._own} AND number = ?""",  # noqa: S608 - our names
                    (model, memory.number),
                ).fetchone()
                if found is None or found[1] or found[0] != memory.digest:
                    continue
                done = "DELETE FROM embedding_attempts WHERE memory = ? AND model = ?"
                connection.execute(done, (memory.number, model))
                for ordinal, (passage, vector) in enumerate(zip(memory.passages, memory.vectors, strict=True)):
                    inserted = connection.execute(
                        """INSERT INTO passages (space, memory, model, ordinal, start, "end", vector)
                           VALUES (?, ?, ?, ?, ?, ?, ?)""",
                        (found[2], memory.number, model, ordinal, passage.start, passage.end, vector.tobytes()),
                    ).lastrowid
                    assert inserted is not None
                    kept.append(inserted)
        return kept

    def names_of(self, numbers: Sequence[int]) -> list[str]:
        return [self.name]

    def prune_models(self, kept: Sequence[str], limit: int) -> int:
        with self._file.transaction(durable=False) as connection:
            pruned = connection.execute(
                f"""DELETE FROM passages WHERE number IN (SELECT p.number FROM
                    (SELECT * FROM embedded WHERE {self._own} AND memories > 0
                        AND model NOT IN (SELECT value FROM json_each(?))) AS e
                    CROSS JOIN passages AS p ON p.space = e.space AND p.model = e.model LIMIT ?)""",  # noqa: S608
                (json_list(kept), limit),
            ).rowcount
        return int(pruned)

    def link_similar(self, links: Sequence[NearDuplicate]) -> None:
        """Store near-duplicates and contradictions. Skips pairs with a missing memory or passage, and contradictions
        that another link has resolved, or that come from a derived memory, which repeats older memories."""
        with self._file.transaction(durable=False) as connection:
            for link in links:
                known = [connection.execute("SELECT 1 FROM passages WHERE number = ?", (each,)) for each in link.seen]
                if all(each.fetchone() for each in known):
                    connection.execute(
                        """INSERT INTO memory_links
                           SELECT later.number, earlier.number, ?, ?, ? FROM memories AS later, memories AS earlier
                           WHERE later.number = ? AND earlier.number = ? AND iif(?1 = 'similar_to',
                               (later.kind = 'open_end') = (earlier.kind = 'open_end'), NOT EXISTS (
                               SELECT 1 FROM memory_links WHERE relation NOT IN ('similar_to', 'contradicts')
                               AND (source, target)
                               IN ((later.number, earlier.number), (earlier.number, later.number))
                               OR (source = later.number AND relation = 'derived_from')))
                           ON CONFLICT DO UPDATE SET strength = excluded.strength""",
                        (link.relation, link.cosine, self._clock(), link.later, link.earlier),
                    )

    def compared(self, model: str) -> int:
        """Return the number of the last passage for which near-duplicates have been found and linked."""
        rows = self._file.read(f"SELECT compared FROM embedded WHERE {self._own} AND model = ?", (model,))  # noqa: S608
        return rows[0][0] if rows else 0

    def note_compared(self, model: str, number: int) -> None:
        with self._file.transaction(durable=False) as connection:
            noted = f"UPDATE embedded SET compared = ? WHERE {self._own} AND model = ?"  # noqa: S608 - our clause
            connection.execute(noted, (number, model))

    @property
    def commits(self) -> int:
        """The number of writes since the file was opened. Vectors of all spaces are stored together."""
        return int(self._file.file.commits)

    def extent(self, model: str) -> tuple[int, int]:
        """Return the number of memories with vectors of a model, and the number of its last passage (0: none). Adding
        or deleting passages changes one of them: every memory has a first passage, and numbers are never reused."""
        ((memories, last),) = self._file.read(
            f"""SELECT (SELECT memories FROM embedded WHERE {self._own} AND model = ?1),
                       (SELECT max(number) FROM passages WHERE {self._own} AND model = ?1)""",  # noqa: S608 - our clause
            (model,),
        )
        return memories or 0, last or 0

    def passage_numbers(self, model: str) -> list[int]:
        rows = self._file.read(
            f"SELECT number FROM passages WHERE {self._own} AND model = ? ORDER BY number",  # noqa: S608 - our clause
            (model,),
        )
        return [number for (number,) in rows]

    def is_embedded(self, model: str, number: int) -> bool:
        return bool(self._file.read("SELECT 1 FROM passages WHERE memory = ? AND model = ? LIMIT 1", (number, model)))

    def passages(
        self,
        model: str | None = None,
        memories: Sequence[int] | None = None,
        *,
        numbers: Sequence[int] | None = None,
        after: int | None = None,
        limit: int = -1,
    ) -> PassageVectors:
        """Return the passages with these `numbers`, or those of a `model` (of these `memories`, or with numbers above
        `after`), oldest first unless memories are given. Missing passages are omitted."""
        among, arguments = where(
            (f"number IN {AMONG}", None if numbers is None else json_list(numbers)),
            (f"memory IN {AMONG}", None if memories is None else json_list(memories)),
            (f"{self._own} AND model = ?" if memories is None else "model = ?", model),
            ("number > ?", after),
        )
        order = "ORDER BY number" if memories is None else ""
        rows = self._file.read(
            f"SELECT number, memory, ordinal, vector FROM passages WHERE {among} {order} LIMIT ?",  # noqa: S608 - our clauses
            (*arguments, limit),
        )
        return passage_vectors(rows)


class HomeTexts(EmbeddedTexts):
    """The memories of all spaces together."""

    name = RECORDS
    _own = "TRUE"
    _count = "SELECT coalesce(sum(count), 0) FROM tallies"

    def __init__(self, file: SqliteFile, clock: Clock) -> None:
        self._file = file
        self._clock = clock

    def names_of(self, numbers: Sequence[int]) -> list[str]:
        named = f"SELECT name FROM spaces WHERE number IN (SELECT space FROM memories WHERE number IN {AMONG})"  # noqa: S608
        return [name for (name,) in self._file.read(named, (json_list(numbers),))]


def mean_vectors(passages: PassageVectors) -> tuple[list[int], Vectors]:
    """Return the memories in ascending order, and the normalised means of their vectors, (memories, dimensions)."""
    if not passages.numbers:
        return [], np.zeros((0, 0), dtype=np.float32)
    owners = np.asarray(passages.memories)
    order = np.argsort(owners, kind="stable")
    memories, starts = np.unique(owners[order], return_index=True)
    sums = np.add.reduceat(passages.vectors[order], starts, axis=0)
    lengths = np.linalg.norm(sums, axis=1, keepdims=True)
    return memories.tolist(), np.asarray(sums / np.where(lengths > 0, lengths, 1), dtype=np.float32)


def passage_vectors(rows: Sequence[Any]) -> PassageVectors:
    """Decode rows of passages (number, memory, ordinal, vector)."""
    return PassageVectors(
        [row[0] for row in rows],
        [row[1] for row in rows],
        [row[2] for row in rows],
        np.frombuffer(b"".join(row[3] for row in rows), dtype="<f4").reshape(len(rows), -1 if rows else 0),
    )
