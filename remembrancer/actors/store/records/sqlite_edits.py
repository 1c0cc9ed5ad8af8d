"""A space in SQLite, as read and changed by rules. The callers open and commit the transaction."""

import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import asdict

from remembrancer.actors.sqlite_file import Query, as_json
from remembrancer.actors.store.records.memory_rows import (
    STORED_FIELDS,
    UNVERSIONED_COLUMNS,
    columns_of,
    decode_columns,
    read_entities,
    read_history,
    read_memory,
    read_portable,
)
from remembrancer.actors.store.records.space import SpaceConnection, drop_space
from remembrancer.actors.store.records.types import Link, Memory
from remembrancer.memory.fields import SEARCHED
from remembrancer.memory.names import name_key, name_words
from remembrancer.protocol.runs import ChainLink
from remembrancer.protocol.session_life import BROWSER_SESSION, SHELL_SESSION, RecordEvents
from remembrancer.protocol.writes import (
    MENTIONED_WITH,
    Applied,
    EntityRef,
    HistoryEntry,
    Operation,
    PortableMemory,
    Result,
)

SIMILAR: Final = "similar_to"
MAX_TURNS: Final = 5000
"""The number of recent turns kept for a session, so that a session that never ends does not grow without limit."""
MAX_TOOL_CALLS: Final = 10_000
SESSIONS_KEPT: Final = 16
"""The number of sessions recorded for a memory; three are enough for a promotion."""
_OF_PROMOTION: Final = (
    "DELETE FROM promotion_log WHERE space = @SPACE AND (memory_id = ?1 OR merged_into = ?1)",
    "DELETE FROM cross_project_patterns WHERE space = @SPACE AND memory_id = ?1",
)
_TRACES: Final = (
    "DELETE FROM history WHERE space = @SPACE AND memory_id = ?1",
    *_OF_PROMOTION,
    """DELETE FROM awaited_links WHERE target = ?1
       AND (SELECT space FROM memories WHERE number = awaited_links.source) = @SPACE""",
    # Answers that contain the memory's text, tags or a reason. If the change is repeated, the memory is not found.
    *(
        f"DELETE FROM applied_operations WHERE space = @SPACE AND instr(result, '{name}') AND instr(result, ?1)"  # noqa: S608 - our names
        for name in ("TaggedResult", "ForgottenResult", "PromotedResult", "UpdatedResult")
    ),
)
"""Deletes the traces of a memory, including those in the space of the project from which it was promoted."""

_WORDS: Final = "content, tags, summary, parts"
_WORDS_OF: Final = f"SELECT number, {_WORDS} FROM memories WHERE number = ?"  # noqa: S608 - our names
_OF_LINK: Final = """FROM memory_links WHERE source = (SELECT number FROM memories WHERE space = @SPACE AND id = ?1)
    AND target = (SELECT number FROM memories WHERE space = @SPACE AND id = ?2) AND relation = ?3"""

_decode_result: Final = msgspec.msgpack.Decoder(Result).decode


class SqliteEdits(SpaceConnection):
    """One space inside a transaction, at the time `now` (seconds since the epoch). Queries see the changes so far."""

    def __init__(self, connection: sqlite3.Connection, number: int, now: float) -> None:
        super().__init__(connection, number)
        self.number = number
        self.now = now

    def record_result(self, operation: Operation, result: Result) -> None:
        """Keep the result for repeated requests. The full time counts from now, even if the operation was queued."""
        self.execute(
            "INSERT OR REPLACE INTO applied_operations VALUES (@SPACE, ?, ?, ?)",
            (operation.operation_id, msgspec.msgpack.encode(result), max(self.now, operation.requested_at)),
        )

    def count_accesses(self, numbers: Sequence[int], at: float) -> None:
        """Count an access to each memory (a memory that is listed twice counts twice)."""
        self.execute(  # one statement for all, so that readers can use the interpreter meanwhile
            """UPDATE memories SET access_count = access_count + shown.count, last_accessed_at = ? FROM (
                   SELECT value AS memory, count(*) AS count FROM json_each(?) GROUP BY value) AS shown
               WHERE number = shown.memory""",
            (at, as_json(numbers)),
        )

    def scrub(self, memory_id: str, at: float) -> bool:
        """Delete the remains of an erased memory, unless it exists again. True if it was known here."""
        if self.query("SELECT 1 FROM memories WHERE space = @SPACE AND id = ?", (memory_id,)):
            return False
        is_erased = self.erased_at(memory_id) is not None
        found = bool(self.erase_traces(memory_id))
        if found and not is_erased:
            self.note_erased(memory_id, at)
        return found or is_erased

    def erased_at(self, memory_id: str) -> float | None:
        """The time at which the memory with this id was erased here; None if it was not."""
        rows = self.query("SELECT erased_at FROM erased WHERE space = @SPACE AND memory_id = ?", (memory_id,))
        return rows[0][0] if rows else None

    def drop_quotes(self, quotes: Sequence[str]) -> None:
        values = [(quote, as_json(quote)[1:-1]) for quote in quotes]
        self.executemany(
            "DELETE FROM turns WHERE space = @SPACE AND (instr(content, ?1) OR instr(metadata, ?2))", values
        )
        self.executemany(
            """DELETE FROM tool_calls WHERE space = @SPACE AND (instr(arguments, ?2)
               OR instr(coalesce(result_summary, ''), ?1) OR instr(coalesce(result_summary, ''), ?2))""",
            values,
        )

    def rename_project(self, old: str, new: str) -> None:
        self.execute("UPDATE memories SET source_project = ? WHERE space = @SPACE AND source_project = ?", (new, old))

    # Queries for rules.

    def memory(self, memory_id: str) -> Memory | None:
        """A memory, forgotten or not, by its id or an alias."""
        return read_memory(self.query, memory_id)

    def history(self, memory_id: str) -> tuple[HistoryEntry, ...]:
        return read_history(self.query, memory_id)

    def named_with(self, memory_id: str, since: float) -> list[str]:
        """The ids of other memories with a later change whose details name this memory."""
        rows = self.query(
            """SELECT DISTINCT memory_id FROM history WHERE space = @SPACE AND changed_at >= ? AND change != 'stored'
               AND memory_id != ? AND instr(details, ?) ORDER BY 1""",
            (since, memory_id, as_json(memory_id)),
        )
        return [name for (name,) in rows]

    def portable(self, memory_id: str) -> PortableMemory | None:
        return read_portable(self.query, memory_id, None)

    def links(self, memory_id: str) -> list[Link]:
        rows = self.query(
            """SELECT s.id, t.id, l.relation, l.strength, l.created_at FROM (
                   SELECT * FROM memory_links
                   WHERE source = (SELECT number FROM memories WHERE space = @SPACE AND id = ?1)
                   UNION ALL SELECT * FROM memory_links
                   WHERE target = (SELECT number FROM memories WHERE space = @SPACE AND id = ?1)) AS l
               JOIN memories AS s ON s.number = l.source JOIN memories AS t ON t.number = l.target
               ORDER BY l.source, l.target, l.relation""",
            (memory_id,),
        )
        return [Link(*row) for row in rows]

    # Changes made by rules.

    def put_link(self, source: str, target: str, relation: str, strength: float, created_at: float) -> None:
        """Link two memories, or change the strength of their link. Does nothing if one of them does not exist."""
        self.execute(
            """INSERT INTO memory_links SELECT s.number, t.number, ?, ?, ? FROM memories AS s, memories AS t
               WHERE s.space = @SPACE AND s.id = ? AND t.space = @SPACE
               AND t.id = ? ON CONFLICT DO UPDATE SET strength = excluded.strength""",
            (relation, strength, created_at, source, target),
        )

    def strength(self, source: str, target: str, relation: str) -> float | None:
        rows = self.query(f"SELECT strength {_OF_LINK}", (source, target, relation))
        return rows[0][0] if rows else None

    def unlink(self, source: str, target: str, relation: str) -> float | None:
        """Delete a link and return its strength; None if there was none."""
        rows = self.query(f"DELETE {_OF_LINK} RETURNING strength", (source, target, relation))
        return rows[0][0] if rows else None

    def add_alias(self, alias: str, memory_id: str) -> None:
        self.execute(
            """INSERT INTO aliases SELECT ?1, number FROM memories WHERE space = @SPACE AND id = ?2
               AND NOT EXISTS (SELECT 1 FROM aliases AS a CROSS JOIN memories AS m ON m.number = a.memory
                               WHERE a.alias = ?1 AND m.space = @SPACE)""",
            (alias, memory_id),
        )

    def note_erased(self, memory_id: str, at: float) -> None:
        """Record that a memory was deleted for good, so that its id is never stored again."""
        self.execute("INSERT OR REPLACE INTO erased VALUES (@SPACE, ?, ?)", (memory_id, at))

    def forget_promotion(self, memory_id: str) -> None:
        """Delete a memory's promotions from the log, and its observations."""
        for statement in _OF_PROMOTION:
            self.execute(statement, (memory_id,))

    def note_use(self, memory_ids: Sequence[str], session_id: str) -> None:
        """Record the first few sessions that use each non-private memory. A shell or browser is not a session."""
        if memory_ids and session_id not in ("", SHELL_SESSION, BROWSER_SESSION):
            self.execute(
                """INSERT OR IGNORE INTO memory_sessions
                   SELECT number, ?1 FROM memories WHERE space = @SPACE AND id IN (SELECT value FROM json_each(?2))
                   AND scope != 'session'
                   AND (SELECT count(*) FROM memory_sessions WHERE memory = number) < ?3""",
                (session_id, as_json(sorted(set(memory_ids))), SESSIONS_KEPT),
            )

    def insert(self, memory: PortableMemory, at: float, *, comes_whole: bool = False) -> None:
        """Insert a memory with its history. `at` is the same on every machine. A memory that `comes_whole` from
        elsewhere brings links from and to other memories, which wait until both ends exist."""
        columns = columns_of(memory, STORED_FIELDS) | {name: getattr(memory, name) for name in UNVERSIONED_COLUMNS}
        columns |= {"archived_at": at if memory.status == "archived" else None}
        columns |= {"promotion_chain": as_json(memory.promotion_chain)}
        number = self.execute(
            f"""INSERT INTO memories (space, {", ".join(columns)})
                VALUES (@SPACE, {", ".join("?" * len(columns))})""",  # noqa: S608 - our names
            tuple(columns.values()),
        ).lastrowid
        assert number is not None
        self._add_words(number)
        used_by = [(number, session_id) for session_id in memory.accessed_in]
        self.executemany("INSERT OR IGNORE INTO memory_sessions VALUES (?, ?)", used_by)
        self._add_tags(number, memory.tags)
        self._link_entities(number, memory.related_entities, at)
        if comes_whole:
            self.drop_history(memory.id)  # left from an earlier stay here; its own history includes it
            self.executemany(
                "INSERT OR IGNORE INTO awaited_links VALUES (?, ?, ?, ?, ?)",
                [(number, link.target, link.relation, link.strength, link.created_at) for link in memory.links],
            )
            self._link_awaited(number, memory.id)
        for entry in memory.history:
            self._add_entry(memory.id, entry)

    def drop_history(self, memory_id: str) -> None:
        """Delete the history of a memory, except versions that belonged only to a session."""
        self.execute("DELETE FROM history WHERE space = @SPACE AND memory_id = ? AND owner IS NULL", (memory_id,))

    def _link_awaited(self, number: int, memory_id: str) -> None:
        self.execute(
            """INSERT OR IGNORE INTO memory_links
               SELECT a.source, o.number, a.relation, a.strength, a.created_at
               FROM awaited_links AS a JOIN memories AS o ON o.space = @SPACE AND o.id = a.target WHERE a.source = ?
               UNION ALL SELECT a.source, ?, a.relation, a.strength, a.created_at FROM awaited_links AS a
               JOIN memories AS o ON o.number = a.source AND o.space = @SPACE WHERE a.target = ?""",
            (number, number, memory_id),
        )
        self.execute(
            """DELETE FROM awaited_links
               WHERE target = ? AND (SELECT space FROM memories WHERE number = awaited_links.source) = @SPACE
               OR (source = ? AND EXISTS (SELECT 1 FROM memories WHERE space = @SPACE AND id = target))""",
            (memory_id, number),
        )

    def revise(
        self, before: Memory, entry: HistoryEntry, fields: tuple[str, ...], chain: Sequence[ChainLink] | None = None
    ) -> None:
        """Add a version to a memory. `fields` are the changed fields; `chain` is the promotion chain, if that has
        changed. If the content changes, all data derived from the old content is deleted."""
        after, at = entry.record, entry.changed_at
        columns = columns_of(after, fields) | {"version": entry.version}
        if fields and (fields != ("status",) or after.forgotten == before.now.forgotten):  # hiding is not an update
            columns["updated_at"] = at
        if chain is not None:
            columns["promotion_chain"] = as_json(chain)
        if "status" in fields:
            if after.forgotten != before.now.forgotten:
                columns["forgotten_at"] = at if after.forgotten else None
            columns["forgotten_reason"] = after.forgotten_reason
            if after.status != before.now.status:
                columns["archived_at"] = at if after.status == "archived" else None
        number = before.number
        is_searched = not set(SEARCHED).isdisjoint(fields)
        if is_searched:
            self._drop_words(number)
        self._set(number, columns)
        if is_searched:
            self._add_words(number)
        if "tags" in fields:
            gone = [(tag, number) for tag in before.now.tags if tag not in after.tags]
            self.executemany("DELETE FROM memory_tags WHERE tag = ? AND memory = ?", gone)
            self._add_tags(number, [tag for tag in after.tags if tag not in before.now.tags])
        if "related_entities" in fields:
            edges = "DELETE FROM memory_entities WHERE memory = ? AND NOT found RETURNING entity"
            former = self.query(edges, (number,))
            self._link_entities(number, after.related_entities, at)
            self.remove_unlinked(entity for (entity,) in former)
        self._add_entry(before.id, entry)
        if "content" in fields:
            for table in ("passages", "embedding_attempts"):
                self.execute(f"DELETE FROM {table} WHERE memory = ?", (number,))  # noqa: S608 - our names
            self.execute(
                "DELETE FROM memory_links WHERE relation IN (?1, 'contradicts') AND (source = ?2 OR target = ?2)",
                (SIMILAR, number),
            )
        elif "valid_until" in fields and after.valid_until is None:  # so that it is compared with later changes
            self.execute("DELETE FROM passages WHERE memory = ?", (number,))

    def _set(self, number: int, columns: dict[str, Any]) -> None:
        places = ", ".join(f"{name} = ?" for name in columns)
        self.execute(f"UPDATE memories SET {places} WHERE number = ?", (*columns.values(), number))  # noqa: S608

    def _add_words(self, number: int) -> None:
        self.execute(f"INSERT INTO words_@SPACE (rowid, {_WORDS}) {_WORDS_OF}", (number,))

    def _drop_words(self, number: int) -> None:
        """Remove a memory from the full text, using its row, which must be unchanged since it was added."""
        drop = f"INSERT INTO words_@SPACE (words_@SPACE, rowid, {_WORDS}) SELECT 'delete', * FROM ({_WORDS_OF})"  # noqa: S608
        self.execute(drop, (number,))

    def _add_tags(self, number: int, tags: Sequence[str]) -> None:
        self.executemany("INSERT OR IGNORE INTO memory_tags VALUES (?, ?)", [(tag, number) for tag in tags])

    def _add_entry(self, memory_id: str, entry: HistoryEntry) -> None:
        """Add a history entry, unless it exists because the memory was here before. The entry's time is no earlier than
        the previous entry's, since the clocks of a shared lane's hosts differ."""
        record = entry.record
        columns = asdict(entry) | {"record": as_json(record), "details": as_json(entry.details), "memory_id": memory_id}
        self.execute(  # `+` keeps SQLite from scanning the index on time for the largest value
            """INSERT OR IGNORE INTO history (space, memory_id, version, change, changed_at, session_id, operation_id,
                   record, details, owner)
               VALUES (@SPACE, :memory_id, :version, :change, max(:changed_at, ifnull((SELECT max(+changed_at)
                   FROM history WHERE space = @SPACE AND memory_id = :memory_id AND version < :version), 0)),
                   :session_id, :operation_id, :record, :details, :owner)""",
            columns | {"owner": record.session_id if record.scope == "session" else None},
        )

    def delete(self, memory_id: str) -> None:
        """Delete a memory with everything that depends on it, except its history."""
        for (number,) in self.query("SELECT number FROM memories WHERE space = @SPACE AND id = ?", (memory_id,)):
            entities = self.query("SELECT entity FROM memory_entities WHERE memory = ?", (number,))
            self._drop_words(number)
            self.execute("DELETE FROM memories WHERE number = ?", (number,))
            self.remove_unlinked(entity for (entity,) in entities)

    def erase_traces(self, memory_id: str) -> int:
        """Delete all traces of a memory that is not in the space. Returns the number of deleted or changed rows."""
        found = sum(self.execute(statement, (memory_id,)).rowcount for statement in _TRACES)
        chains = self.query(
            "SELECT number, promotion_chain FROM memories WHERE space = @SPACE AND instr(promotion_chain, ?)",
            (memory_id,),
        )
        for number, chain in chains:
            steps = decode_columns({"promotion_chain": chain})["promotion_chain"]
            left = as_json([step for step in steps if step.memory_id != memory_id])
            self.execute("UPDATE memories SET promotion_chain = ? WHERE number = ?", (left, number))
        return found + len(chains)

    def record_events(self, change: RecordEvents) -> None:
        """Add turns and tool calls. A tool call belongs to the last turn before it."""
        session = change.session_id
        its = "space = @SPACE AND session_id = "
        ((last,),) = self.query(f"SELECT coalesce(max(turn_number), 0) FROM turns WHERE {its}?", (session,))  # noqa: S608
        turns = [asdict(turn) | {"metadata": as_json(turn.metadata)} for turn in change.turns]
        self.executemany(
            """INSERT INTO turns (space, session_id, turn_number, role, content, token_count, metadata, created_at)
               VALUES (@SPACE, :session, :place, :role, :content, :token_count, :metadata, :at)""",
            [turn | {"session": session, "place": place} for place, turn in enumerate(turns, start=last + 1)],
        )
        calls = [asdict(call) | {"arguments": as_json(call.arguments)} for call in change.tool_calls]
        self.executemany(
            f"""INSERT INTO tool_calls
                    (space, session_id, turn, tool_name, arguments, result_summary, success, duration_ms, created_at)
                VALUES (@SPACE, :session, (SELECT number FROM turns WHERE {its} :session AND created_at <= :at
                        ORDER BY turn_number DESC LIMIT 1),
                    :tool_name, :arguments, :result_summary, :success, :duration_ms, :at)""",  # noqa: S608
            [call | {"session": session} for call in calls],
        )
        oldest = last + len(turns) - MAX_TURNS
        self.execute(f"DELETE FROM turns WHERE {its}? AND turn_number <= ?", (session, oldest))  # noqa: S608
        self.execute(
            f"""DELETE FROM tool_calls WHERE {its}? AND number <= (
                    SELECT number FROM tool_calls WHERE {its}? ORDER BY number DESC LIMIT 1 OFFSET ?)""",  # noqa: S608
            (session, session, MAX_TOOL_CALLS),
        )

    # Entities.

    def remove_unlinked(self, entities: Iterable[int]) -> None:
        gone = self.query(
            """DELETE FROM entities WHERE space = @SPACE AND number IN (SELECT value FROM json_each(?))
               AND NOT EXISTS (SELECT 1 FROM memory_entities WHERE entity = number) RETURNING number""",
            (as_json(sorted(set(entities))),),
        )
        self.executemany("DELETE FROM names_@SPACE WHERE rowid = ?", gone)

    def _link_entities(self, memory: int, entities: Sequence[EntityRef], at: float) -> None:
        """An entity with a subject gets an edge from it. The others get a `MENTIONED_WITH` edge from the first one."""
        numbers = [self.number_of_entity(entity, at) for entity in entities]
        named: dict[str, int] = {}
        for entity, number in zip(entities, numbers, strict=True):
            named.setdefault(name_key(entity.name), number)
        subjects = [named.get(name_key(entity.subject)) if entity.subject else None for entity in entities]
        related = {frozenset(ends) for ends in zip(subjects, numbers, strict=True)}
        edges = []
        for ordinal, (entity, number, subject) in enumerate(zip(entities, numbers, subjects, strict=True)):
            edge = MENTIONED_WITH if subject is None else entity.relationship
            if subject is None and frozenset((numbers[0], number)) not in related:
                subject = numbers[0]
            subject = None if subject == number else subject
            edges.append((memory, number, entity.relationship, at, ordinal, subject, edge))
        self.executemany(
            """INSERT OR IGNORE INTO memory_entities (memory, entity, relationship, created_at, ordinal, subject, edge)
               VALUES (?, ?, ?, ?, ?, ?, ?)""",
            edges,
        )

    def number_of_entity(self, entity: EntityRef, at: float) -> int:
        known = "SELECT number FROM entities WHERE space = @SPACE AND name = ? AND type = ?"
        found = self.query(known, (entity.name, entity.type))
        if found:
            return int(found[0][0])
        number = self.execute(
            "INSERT INTO entities (space, name, type, created_at, key) VALUES (@SPACE, ?, ?, ?, ?)",
            (entity.name, entity.type, at, name_key(entity.name)),
        ).lastrowid
        assert number is not None
        self.execute("INSERT INTO names_@SPACE (rowid, words) VALUES (?, ?)", (number, name_words(entity.name)))
        return number


class ArrivingEdits(SqliteEdits):
    """The space to which a memory moves from `source`: an insertion moves the memory itself, with all its data."""

    def __init__(self, source: SqliteEdits, number: int) -> None:
        super().__init__(source.connection, number, source.now)
        self._source = source

    def insert(self, memory: PortableMemory, at: float, *, comes_whole: bool = False) -> None:
        ((number,),) = self._source.query("SELECT number FROM memories WHERE space = @SPACE AND id = ?", (memory.id,))
        self.take_over(number, memory.id)
        columns = {name: getattr(memory, name) for name in ("scope", "version", "updated_at", "source_project")}
        columns["promotion_chain"] = as_json(memory.promotion_chain)
        self._set(number, columns)
        self._add_entry(memory.id, memory.history[-1])

    def take_over(self, number: int, memory_id: str) -> None:
        source = self._source
        source._drop_words(number)
        source.execute("DELETE FROM proposals WHERE space = @SPACE AND memory_id = ?", (memory_id,))
        self._suspend_links(number)
        entities = read_entities(self.query, number)
        former = self.query("DELETE FROM memory_entities WHERE memory = ? RETURNING entity", (number,))
        self.drop_history(memory_id)  # left from an earlier stay here; its own history includes it
        source.execute(
            "UPDATE OR REPLACE history SET space = ? WHERE space = @SPACE AND memory_id = ?", (self.number, memory_id)
        )
        self.execute("UPDATE memories SET space = @SPACE WHERE number = ?", (number,))
        self._add_words(number)
        self._link_entities(number, entities, self.now)
        self.execute("INSERT OR IGNORE INTO names_to_find VALUES (?)", (number,))  # names depend on the other memories
        source.remove_unlinked(entity for (entity,) in former)
        self._link_awaited(number, memory_id)
        self._take_passages(number)

    def _suspend_links(self, number: int) -> None:
        """Suspend the links of a memory until both ends are in one space again."""
        self.execute(
            """INSERT OR IGNORE INTO awaited_links SELECT l.source, t.id, l.relation, l.strength, l.created_at
               FROM memory_links AS l JOIN memories AS t ON t.number = l.target
               WHERE (l.source = ?1 OR l.target = ?1) AND l.relation NOT IN (?2, 'contradicts')""",
            (number, SIMILAR),
        )
        self.execute("DELETE FROM memory_links WHERE source = ?1 OR target = ?1", (number,))

    def _take_passages(self, number: int) -> None:
        """Move the passages of a memory here, under new numbers, so that readers notice them."""
        passages = self.query(
            """SELECT memory, model, ordinal, start, "end", vector FROM passages WHERE memory = ? ORDER BY number""",
            (number,),
        )
        self.execute("DELETE FROM passages WHERE memory = ?", (number,))
        self.executemany(
            """INSERT INTO passages (space, memory, model, ordinal, start, "end", vector)
               VALUES (@SPACE, ?, ?, ?, ?, ?, ?)""",
            passages,
        )


LOGS: Final = ("history", "erased", "applied_operations", "promotion_log")
WITH_SESSIONS: Final = (*LOGS, "sessions", "turns", "tool_calls")
"""The tables, besides `memories`, whose rows may move when one space is merged into another."""


def merge(source: SqliteEdits, target: int, tables: Sequence[str] = WITH_SESSIONS) -> None:
    """Move the memories of a space, with the rows of these tables, into another one, and delete the old space."""
    arriving = ArrivingEdits(source, target)
    for number, memory_id in source.query(
        """SELECT number, id FROM memories WHERE space = @SPACE
           AND id NOT IN (SELECT id FROM memories WHERE space = ?1)
           AND id NOT IN (SELECT memory_id FROM erased WHERE space = ?1) ORDER BY number""",
        (target,),
    ):
        arriving.take_over(number, memory_id)
    here = "SELECT id FROM memories WHERE space = ?"  # memories that stay have a different history there
    source.execute(f"DELETE FROM history WHERE space = @SPACE AND memory_id IN ({here})", (target,))  # noqa: S608
    for table in tables:
        source.execute(f"UPDATE OR IGNORE {table} SET space = ? WHERE space = @SPACE", (target,))  # noqa: S608
    drop_space(source)


def read_applied(query: Query, operation_id: str) -> Applied | None:
    """The result of an operation; None if it has not been applied. Raises `ValueError` if the result is damaged."""
    rows = query("SELECT result FROM applied_operations WHERE space = @SPACE AND operation_id = ?", (operation_id,))
    return Applied(operation_id, _decode_result(rows[0][0]), replayed=True) if rows else None
