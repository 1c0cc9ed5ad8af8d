"""A memory as rows, with its history and its entities: how it is found, made, changed and revived.

Each function runs inside the caller's transaction.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import msgspec

from remembrancer.actors.store.records.sqlite_file import Query, encode_json, query_of
from remembrancer.actors.store.records.subword_tokens import subword_tokens
from remembrancer.memory.changes import differences, is_visible, joined, says_the_same, unknown_memory
from remembrancer.memory.handovers import HANDOVER
from remembrancer.memory.names import name_key, name_words
from remembrancer.memory.ranking import is_assistants
from remembrancer.memory.stop_words import language_of
from remembrancer.protocol.errors import InvalidInput
from remembrancer.protocol.kinds import kind_of_type
from remembrancer.protocol.reads import ListedMemory
from remembrancer.protocol.runs import ChainLink
from remembrancer.protocol.session_life import SHELL_SESSION
from remembrancer.protocol.writes import (
    MENTIONED_WITH,
    EntityRef,
    HistoryEntry,
    Operation,
    PortableMemory,
    RecordedFields,
    Result,
    ShownFields,
    Snapshot,
    SourceRef,
    StoredResult,
    StoreMemory,
)

SIMILAR: Final = "similar_to"
BEGINNING: Final = 300
"""Characters of a memory by which its language is known."""
RELATED: Final = "related_to"
"""The relation without a direction: a link of either memory is one of both."""
SESSIONS_KEPT: Final = 16
"""Sessions of one memory that are told apart: three are enough for a promotion."""
STORED_FIELDS: Final = tuple(name for name in RecordedFields.__struct_fields__ if name != "related_entities")
"""The fields of a memory that have columns of their own."""
SAVED_FIELDS: Final = tuple(
    name for name in STORED_FIELDS if name not in ("session_id", "occurred_at", "forgotten_reason")
)
"""Those that `columns_of` takes: what a change may make another."""
SEARCHED_FIELDS: Final = frozenset({"content", "tags", "summary"})
"""The fields that full text knows, whose other spellings are in the column `parts`."""

_DECODERS: Final[dict[str, Callable[[str], Any]]] = {
    "tags": msgspec.json.Decoder(tuple[str, ...]).decode,
    "source": msgspec.json.Decoder(SourceRef).decode,
    "metadata": msgspec.json.Decoder(dict[str, Any]).decode,
    "structured": msgspec.json.Decoder(dict[str, Any]).decode,
    "promotion_chain": msgspec.json.Decoder(tuple[ChainLink, ...]).decode,
    "pinned": bool,
}
"""Of the columns that are JSON, and of the one that is true or false."""
_KEPT: Final = (
    *("number", "id", "version", "created_at", "updated_at", "access_count", "last_accessed_at", "forgotten_at"),
    *("source_project", "promotion_chain"),
)
"""The columns that are no field of a version."""
_COLUMNS: Final = (*_KEPT, *STORED_FIELDS)


@dataclass(frozen=True, slots=True)
class Done:
    """What came of a change: its result, the memory that needs vectors (a run's may be several), the passages gone."""

    result: Result
    to_embed: int | None = None
    removed_passages: tuple[int, ...] = ()
    also_to_embed: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class MemoryRow:
    """A memory that is there: its number, what it is now, and when it was forgotten."""

    number: int
    id: str
    version: int
    now: Snapshot
    created_at: float
    updated_at: float
    access_count: int
    last_accessed_at: float | None
    forgotten_at: float | None
    promotion_chain: tuple[ChainLink, ...] = ()
    source_project: str | None = None


def digest_of(content: str) -> bytes:
    """What tells two contents apart: the SHA-256 of the UTF-8."""
    return hashlib.sha256(content.encode()).digest()


def read_memory(query: Query, memory_id: str) -> MemoryRow | None:
    """A memory by its id. Raises `ValueError` for what cannot be decoded."""
    rows = query(f"SELECT {', '.join(_COLUMNS)} FROM memories WHERE id = ?", (memory_id,))  # noqa: S608 - our names
    if not rows:
        known = query("SELECT m.id FROM aliases JOIN memories AS m ON m.number = memory WHERE alias = ?", (memory_id,))
        return read_memory(query, known[0][0]) if known else None
    row = decoded(dict(zip(_COLUMNS, rows[0], strict=True)))
    now = Snapshot(
        **{name: row[name] for name in STORED_FIELDS},
        related_entities=_read_entities(query, row["number"]),
        forgotten=row["forgotten_at"] is not None,
    )
    return MemoryRow(now=now, **{name: row[name] for name in _KEPT})


def decoded(columns: dict[str, Any]) -> dict[str, Any]:
    """Columns of `memories` by name, with what those say that need decoding. Raises `ValueError` for what is not."""
    return columns | {name: decode(columns[name]) for name, decode in _DECODERS.items() if name in columns}


def memory_to_change(connection: sqlite3.Connection, operation: Operation, memory_id: str) -> MemoryRow:
    """The memory that an operation changes. Raises `NotFound` when its session sees no such memory."""
    found = read_memory(query_of(connection), memory_id)
    if found is None or not is_visible(found.now.scope, found.now.session_id, operation.session_id):
        raise unknown_memory(memory_id)
    return found


def insert_row(connection: sqlite3.Connection, values: dict[str, object]) -> int:
    """Insert a row of `memories` by column; its number."""
    number = connection.execute(
        f"INSERT INTO memories ({', '.join(values)}) VALUES ({', '.join('?' * len(values))})",  # noqa: S608 - our names
        tuple(values.values()),
    ).lastrowid
    assert number is not None
    return number


def columns_of(snapshot: Snapshot, fields: tuple[str, ...]) -> dict[str, object]:
    """The columns that hold some fields of a memory; `related_entities` has none, nor has whether it is forgotten."""
    columns: dict[str, object] = {}
    for field in fields:
        if field in SAVED_FIELDS:
            value = getattr(snapshot, field)
            is_plain = value is None or isinstance(value, (str, int, float))
            columns[field] = value if is_plain else encode_json(value).decode()
    if "kind" in columns:
        columns["kind"] = snapshot.kind or kind_of_type(snapshot.type)
    if "content" in columns:
        columns["content_digest"] = digest_of(snapshot.content)
        columns["characters"] = len(snapshot.content)
        columns["by_assistant"] = is_assistants(snapshot.content)
        columns["language"] = language_of(snapshot.content[:BEGINNING])
    if not SEARCHED_FIELDS.isdisjoint(fields):
        columns["parts"] = subword_tokens(snapshot.content, snapshot.summary or "", *snapshot.tags)
    return columns


def add_tags(connection: sqlite3.Connection, number: int, tags: tuple[str, ...]) -> None:
    """Note tags where they are searched."""
    connection.executemany("INSERT OR IGNORE INTO memory_tags VALUES (?, ?)", [(tag, number) for tag in tags])


@dataclass(frozen=True, slots=True)
class Revision:
    """A new version, the fields in which it differs (none: it was not made), and the passages that are gone."""

    version: int
    fields: tuple[str, ...]
    to_embed: int | None = None
    removed_passages: tuple[int, ...] = ()


def revise(
    connection: sqlite3.Connection,
    operation: Operation,
    memory: MemoryRow,
    after: Snapshot,
    change: str,
    now: float,
    *,
    chain: tuple[ChainLink, ...] | None = None,
    **details: object,
) -> Revision:
    """Make `after` the next version of a memory, with its row of history. Where nothing differs, nothing is done.

    `chain` is its promotion chain from now on, if that is another one: this alone makes a version as well.
    """
    fields = differences(memory.now, after)
    if not fields and chain is None:
        return Revision(memory.version, ())
    says_else = "content" in fields or after.forgotten or ("valid_until" in fields and after.valid_until is not None)
    summaries = _made_of(connection, memory, SUMMARY) if says_else and memory.now.status == "consolidated" else []
    if "content" in fields or after.forgotten:
        summaries += _made_of(connection, memory, HANDED_OVER)
    version = memory.version + 1
    columns = columns_of(after, fields) | {"version": version, "updated_at": now}
    if chain is not None:
        columns["promotion_chain"] = encode_json(chain).decode()
    if "status" in fields:
        if after.forgotten != memory.now.forgotten:
            columns["forgotten_at"] = now if after.forgotten else None
        columns |= {"forgotten_reason": after.forgotten_reason}
        if after.status != memory.now.status:
            columns["archived_at"] = now if after.status == "archived" else None
    connection.execute(
        f"UPDATE memories SET {', '.join(f'{name} = ?' for name in columns)} WHERE number = ?",  # noqa: S608 - our names
        (*columns.values(), memory.number),
    )
    if "tags" in fields:
        old = [(tag, memory.number) for tag in memory.now.tags]
        connection.executemany("DELETE FROM memory_tags WHERE tag = ? AND memory = ?", old)
        add_tags(connection, memory.number, after.tags)
    if "related_entities" in fields:
        relink_entities(connection, memory.number, after.related_entities, now)
    said = {name: value for name, value in details.items() if value is not None} | {"fields": fields}
    note_version(connection, operation, memory.id, version, change, after, now, said)
    for each in summaries:
        reason = f"{memory.id}, which it says, was changed, superseded or forgotten"
        gone = msgspec.structs.replace(each.now, forgotten=True, forgotten_reason=reason)
        revise(connection, operation, each, gone, "forgotten", now, reason=reason)
    if "content" in fields or after.forgotten:
        _release(connection, memory.number, now)
    if "content" not in fields:
        return Revision(version, fields)
    return Revision(version, fields, memory.number, _drop_vectors(connection, memory.number))


def delete_memory(connection: sqlite3.Connection, number: int) -> tuple[int, ...]:
    """Delete a memory with all that hangs on it but its history. Returns its passages."""
    entities = entities_of(connection, number)
    passages = connection.execute("SELECT number FROM passages WHERE memory = ?", (number,)).fetchall()
    connection.execute("DELETE FROM memories WHERE number = ?", (number,))
    remove_unlinked(connection, entities)
    return tuple(row[0] for row in passages)


_TRACES: Final = (
    "DELETE FROM history WHERE memory_id = ?1",
    "DELETE FROM promotion_log WHERE memory_id = ?1 OR merged_into = ?1",
    "DELETE FROM run_changes WHERE memory_id = ?1",
    "DELETE FROM cross_project_patterns WHERE memory_id = ?1",
    "DELETE FROM awaited_links WHERE target = ?1",
    # Answers that have its tags or a reason in them: a repetition of such a change finds no memory any more.
    *(
        f"DELETE FROM applied_operations WHERE instr(result, '{name}') AND instr(result, ?1)"  # noqa: S608 - our names
        for name in ("TaggedResult", "ForgottenResult", "PromotedResult")
    ),
)
"""What a memory leaves behind, also in the file of a project that it was promoted from."""


def is_erased(connection: sqlite3.Connection, memory_id: str) -> bool:
    """Whether a memory of that id was deleted for good."""
    return connection.execute("SELECT 1 FROM erased WHERE memory_id = ?", (memory_id,)).fetchone() is not None


def mark_erased(connection: sqlite3.Connection, memory_id: str, now: float) -> None:
    """From now on nothing makes a memory of that id."""
    connection.execute("INSERT OR IGNORE INTO erased VALUES (?, ?)", (memory_id, now))


def erase_traces(connection: sqlite3.Connection, memory_id: str, now: float) -> bool:
    """Delete what is left of a memory that is not here any more; whether there was anything."""
    found = sum(connection.execute(statement, (memory_id,)).rowcount for statement in _TRACES)
    chains = connection.execute(
        "SELECT number, promotion_chain FROM memories WHERE instr(promotion_chain, ?)", (memory_id,)
    ).fetchall()
    for number, chain in chains:
        left = tuple(step for step in _DECODERS["promotion_chain"](chain) if step.memory_id != memory_id)
        connection.execute(
            "UPDATE memories SET promotion_chain = ? WHERE number = ?", (encode_json(left).decode(), number)
        )
    if found or chains:
        mark_erased(connection, memory_id, now)
    return bool(found or chains)


def register_session(connection: sqlite3.Connection, session_id: str, now: float) -> None:
    """Note that a session is active at `now`, and register it when it is new.

    One that has ended goes on, without an end until it ends again: there is something new in it. How it ended is kept,
    for whoever finds it left. What is done in the background (an empty id) or in a shell belongs to no session.
    """
    if session_id in ("", SHELL_SESSION):
        return
    running = "UPDATE sessions SET last_active_at = max(last_active_at, ?) WHERE session_id = ?"
    if connection.execute(f"{running} AND status = 'active' AND ended_at IS NULL", (now, session_id)).rowcount:
        return  # its index is not written again
    connection.execute(
        """INSERT INTO sessions (session_id, started_at, last_active_at) VALUES (?, ?, ?)
           ON CONFLICT DO UPDATE SET status = 'active', ended_at = NULL,
           last_active_at = max(last_active_at, excluded.last_active_at)""",
        (session_id, now, now),
    )


def note_session_access(connection: sqlite3.Connection, numbers: Sequence[int], session_id: str) -> None:
    """Note that memories were shown to a session. Of each, only the first so many sessions are kept."""
    connection.execute(
        """INSERT OR IGNORE INTO memory_sessions
           SELECT number, ? FROM memories WHERE number IN (SELECT value FROM json_each(?))
           AND (SELECT count(*) FROM memory_sessions WHERE memory = number) < ?""",
        (session_id, encode_json(sorted(set(numbers))).decode(), SESSIONS_KEPT),
    )


def _read_entities(query: Query, number: int) -> tuple[EntityRef, ...]:
    rows = query(
        """SELECT e.name, e.type, me.relationship, iif(me.edge = ?, '', coalesce(s.name, ''))
           FROM memory_entities AS me JOIN entities AS e ON e.number = me.entity
           LEFT JOIN entities AS s ON s.number = me.subject
           WHERE me.memory = ? ORDER BY me.ordinal, me.entity, me.relationship""",
        (MENTIONED_WITH, number),
    )
    return tuple(EntityRef(*row) for row in rows)


def _drop_vectors(connection: sqlite3.Connection, number: int) -> tuple[int, ...]:
    """The content is another: its passages and what is nearly the same as it have to be found anew."""
    removed = connection.execute("DELETE FROM passages WHERE memory = ? RETURNING number", (number,)).fetchall()
    connection.execute(
        "DELETE FROM memory_links WHERE relation = ? AND (source = ? OR target = ?)", (SIMILAR, number, number)
    )
    return tuple(row[0] for row in removed)


def store_memory(
    connection: sqlite3.Connection,
    operation: Operation,
    change: StoreMemory,
    now: float,
    session_limit: int | None = None,
) -> Done:
    """Insert a memory with its tags, its entities and its first version; one whose text is known becomes that one.

    Raises:
        InvalidInput: the session has stored as many as one may.
    """
    register_session(connection, operation.session_id, now)  # it may come from another one, which is not at work
    found = _same_content(connection, change, operation.session_id)
    for memory_id, scope, owner in found:
        if scope == change.scope and (scope != "session" or owner == change.session_id):
            known = read_memory(query_of(connection), memory_id)
            if known is not None and says_the_same(known.now, known.created_at, change, operation.requested_at):
                others = tuple(each for each, _, _ in found if each != memory_id)
                return _store_again(connection, operation, change, known, others, now)
    if session_limit is not None:
        ((stored,),) = connection.execute(
            """SELECT count(*) FROM memories WHERE session_id = ? AND forgotten_at IS NULL AND NOT EXISTS (
                   SELECT 1 FROM memory_links WHERE source = number AND relation = 'derived_from')""",
            (change.session_id,),
        ).fetchall()
        if stored >= session_limit:
            raise InvalidInput(
                f"this session has stored {stored} memories, and the setting max_memories_per_session allows "
                f"{session_limit}: forget what is not needed, or update a memory instead"
            )
    fields = change.fields() | {
        "related_entities": tuple(dict.fromkeys(change.related_entities)),
        "kind": change.kind or kind_of_type(change.type),
    }
    first = Snapshot(**fields)
    number, edges = insert_memory(connection, operation, change.memory_id, first, now)
    duplicates = tuple(memory_id for memory_id, _, _ in found)
    result = StoredResult(change.memory_id, change.type, change.scope, edges, duplicates)
    return Done(result, to_embed=number)


def _store_again(
    connection: sqlite3.Connection,
    operation: Operation,
    change: StoreMemory,
    known: MemoryRow,
    others: tuple[str, ...],
    now: float,
) -> Done:
    """Join what is said of a text into the memory that has it, which is found by the new id as well."""
    had = len(known.now.related_entities)
    revised = revise(connection, operation, known, joined(known.now, change), "stored again", now)
    connection.execute("INSERT OR IGNORE INTO aliases VALUES (?, ?)", (change.memory_id, known.number))
    connection.execute(
        "UPDATE memories SET access_count = access_count + 1, last_accessed_at = ? WHERE number = ?",
        (now, known.number),
    )
    note_session_access(connection, [known.number], operation.session_id)
    edges = len({*known.now.related_entities, *change.related_entities}) - had
    result = StoredResult(known.id, known.now.type, known.now.scope, edges, others, already_known=True)
    return Done(result, revised.to_embed)


def insert_memory(
    connection: sqlite3.Connection,
    operation: Operation,
    memory_id: str,
    first: Snapshot,
    now: float,
    details: dict[str, object] | None = None,
) -> tuple[int, int]:
    """Insert a memory in its first version. Its number, and how many edges to entities it has made."""
    number = insert_row(
        connection,
        columns_of(first, SAVED_FIELDS)
        | {
            "id": memory_id,
            "session_id": first.session_id,
            "created_at": operation.requested_at,
            "updated_at": now,
            "occurred_at": first.occurred_at,
        },
    )
    add_tags(connection, number, first.tags)
    edges = link_entities(connection, number, first.related_entities, now)
    note_version(connection, operation, memory_id, 1, "stored", first, now, details)
    return number, edges


def _same_content(connection: sqlite3.Connection, change: StoreMemory, session_id: str) -> list[tuple[str, str, str]]:
    """Memories with this very content that the session may see: id, scope and session, oldest first, five at most."""
    return connection.execute(
        """SELECT id, scope, session_id FROM memories WHERE content_digest = ? AND forgotten_at IS NULL
           AND (scope != 'session' OR session_id = ?) ORDER BY number LIMIT 5""",
        (digest_of(change.content), session_id),
    ).fetchall()


REVIVED: Final = "revived"
RELEASED: Final = "released"
"""What the history calls it when a memory is active again: it was used, or nothing stands for it any more."""
SUMS_UP: Final = """o.forgotten_at IS NULL AND (m.scope = 'session' OR o.scope != 'session') AND (
    instr(o.content, m.content) OR EXISTS (
        SELECT 1 FROM memory_links AS e JOIN memories AS k ON k.number = e.target
        WHERE e.source = m.number AND e.relation = 'supports' AND instr(o.content, k.content)))"""
"""Whether the memory `o`, which was derived from `m`, has its words, or those of another that says the same."""


def revive(connection: sqlite3.Connection, numbers: Sequence[int], at: float) -> list[str]:
    """Make those of the memories active that are archived and not forgotten; their ids.

    Each retrieval makes a memory more durable: what is shown is in use.
    """
    query = "status = 'archived' AND number IN (SELECT value FROM json_each(?))"
    return _make_active(connection, query, encode_json(sorted(set(numbers))).decode(), at, REVIVED, "it was used again")


def _release(connection: sqlite3.Connection, number: int, at: float) -> None:
    """Make active what stands behind a memory that does not say it any more, unless another one does."""
    query = f"""status = 'consolidated' AND number IN (
        SELECT m.number FROM memories AS m JOIN memory_links AS l ON m.number IN (l.source, l.target)
        WHERE (l.source = ?1 AND l.relation = 'derived_from' OR l.target = ?1 AND l.relation = 'similar_to')
        AND m.number != ?1 AND NOT EXISTS (
            SELECT 1 FROM memory_links AS d JOIN memories AS o ON o.number = d.source
            WHERE d.target = m.number AND d.relation = 'derived_from' AND {SUMS_UP}))"""  # noqa: S608 - fixed clauses
    _make_active(connection, query, number, at, RELEASED, "what stood for it does not say it any more")


SUMMARY: Final = "o.type = 'semantic' AND instr(o.content, ?2)"
HANDED_OVER: Final = f"EXISTS (SELECT 1 FROM memory_tags WHERE memory = o.number AND tag = '{HANDOVER}')"  # noqa: S608


def _made_of(connection: sqlite3.Connection, memory: MemoryRow, which: str) -> list[MemoryRow]:
    """The summaries (or handovers) that say what a memory says, but for those that somebody has reworded."""
    rows = connection.execute(
        f"""SELECT o.id FROM memory_links AS l JOIN memories AS o ON o.number = l.source
            WHERE l.target = ?1 AND l.relation = 'derived_from' AND o.forgotten_at IS NULL AND {which}
            AND NOT EXISTS (SELECT 1 FROM history WHERE memory_id = o.id AND change = 'updated')""",  # noqa: S608
        (memory.number, memory.now.content)[: 1 + ("?2" in which)],
    ).fetchall()
    found = [read_memory(query_of(connection), memory_id) for (memory_id,) in rows]
    return [each for each in found if each is not None]


def _make_active(
    connection: sqlite3.Connection, query: str, argument: str | int, at: float, change: str, reason: str
) -> list[str]:
    """The version that this makes belongs to no operation and to no session."""
    rows = connection.execute(
        f"SELECT id FROM memories WHERE forgotten_at IS NULL AND {query}",  # noqa: S608 - fixed clauses
        (argument,),
    ).fetchall()
    for (memory_id,) in rows:
        memory = read_memory(query_of(connection), memory_id)
        assert memory is not None, "it was there in this transaction"
        version = memory.version + 1
        connection.execute(
            """UPDATE memories SET status = 'active', archived_at = NULL, version = ?, updated_at = ?
               WHERE number = ?""",
            (version, at, memory.number),
        )
        after = msgspec.structs.replace(memory.now, status="active")
        details = {"reason": reason, "fields": ("status",)}
        add_entry(connection, memory_id, HistoryEntry(version, change, at, "", "", after, details))
    return [memory_id for (memory_id,) in rows]


def archived_since(memory: PortableMemory) -> float | None:
    """When an archived memory was archived, by its history; None for one that is not archived. Pure."""
    if memory.status != "archived":
        return None
    since = memory.updated_at
    for entry in reversed(memory.history):
        if entry.record.status != "archived":
            break
        since = entry.changed_at
    return since


_decode_snapshot = msgspec.json.Decoder(Snapshot).decode
_decode_details = msgspec.json.Decoder(dict[str, Any]).decode
_HISTORY: Final = "version, change, changed_at, session_id, operation_id, record, details"


def note_version(
    connection: sqlite3.Connection,
    operation: Operation,
    memory_id: str,
    version: int,
    change: str,
    after: Snapshot,
    now: float,
    details: dict[str, Any] | None = None,
) -> None:
    """Add what a memory is after one of its changes."""
    entry = HistoryEntry(
        version=version,
        change=change,
        changed_at=now,
        session_id=operation.session_id,
        operation_id=operation.operation_id,
        record=after,
        details=details or {},
    )
    add_entry(connection, memory_id, entry)


def add_entry(connection: sqlite3.Connection, memory_id: str, entry: HistoryEntry) -> None:
    """Add an entry as it is. One that is there already (its memory was here before) is not added twice."""
    record = entry.record
    connection.execute(
        f"""INSERT OR IGNORE INTO history (memory_id, {_HISTORY}, begins, ends, owner)
            SELECT ?, ?, ?, ?, ?, ?, ?, ?, iif(?, NULL, coalesce(?, min(made, coalesce(?, made)))), ?, ?
            FROM (SELECT coalesce((SELECT created_at FROM memories WHERE id = ?), ?) AS made)""",  # noqa: S608
        (
            memory_id,
            entry.version,
            entry.change,
            entry.changed_at,
            entry.session_id,
            entry.operation_id,
            encode_json(record).decode(),
            encode_json(entry.details).decode(),
            record.forgotten,
            record.valid_from,
            record.occurred_at,
            record.valid_until,
            record.session_id if record.scope == "session" else None,
            memory_id,
            entry.changed_at,
        ),
    )
    if entry.version > 1:
        connection.execute(
            "UPDATE history SET replaced_at = ? WHERE memory_id = ? AND version < ? AND replaced_at IS NULL",
            (entry.changed_at, memory_id, entry.version),
        )


def read_history(query: Query, memory_id: str) -> tuple[HistoryEntry, ...]:
    """All versions of a memory, the first one first. Raises `ValueError` for what cannot be decoded."""
    rows = query(
        f"SELECT {_HISTORY} FROM history WHERE memory_id = ? ORDER BY version, changed_at",  # noqa: S608 - fixed names
        (memory_id,),
    )
    return tuple(
        HistoryEntry(
            version=version,
            change=change,
            changed_at=changed_at,
            session_id=session_id,
            operation_id=operation_id,
            record=_decode_snapshot(record),
            details=_decode_details(details),
        )
        for version, change, changed_at, session_id, operation_id, record, details in rows
    )


def known_as_of(
    query: Query, session_id: str, project_id: str, valid_at: float, as_of: float, limit: int, offset: int = 0
) -> list[tuple[float, ListedMemory]]:
    """What was valid at a time, and a session of a project may see, by what the records said at another: the version of
    each memory that was current then, with the time that orders it.

    What became valid last comes first; if `as_of` is earlier than `valid_at`, what was recorded last. So the index is
    never read through what came between the two.
    """
    index, order = ("validity", "begins") if valid_at <= as_of else ("recording", "changed_at")
    rows = query(
        f"""SELECT h.{order}, h.memory_id, h.version, h.record, m.created_at
           FROM history AS h INDEXED BY history_by_{index} CROSS JOIN memories AS m ON m.id = h.memory_id
           WHERE h.begins IS NOT NULL AND h.begins <= ? AND (h.ends IS NULL OR h.ends > ?)
           AND h.changed_at <= ? AND (h.replaced_at IS NULL OR h.replaced_at > ?)
           AND (h.owner IS NULL OR h.owner = ?) AND (m.scope != 'session' OR m.session_id = ?)
           AND (m.scope != 'user' OR m.source_project IS ? OR json_extract(h.record, '$.scope') = 'user')
           ORDER BY h.{order} DESC, h.memory_id DESC LIMIT ? OFFSET ?""",  # noqa: S608 - our names
        (valid_at, valid_at, as_of, as_of, session_id, session_id, project_id, limit, offset),
    )
    found: list[tuple[float, ListedMemory]] = []
    for at, memory_id, version, record, created_at in rows:
        known = _decode_snapshot(record)
        fields = {name: getattr(known, name) for name in (*ShownFields.__struct_fields__, "status", "invalid_reason")}
        found.append((at, ListedMemory(**fields, id=memory_id, version=version, created_at=created_at)))
    return found


def snapshot_of(connection: sqlite3.Connection, memory_id: str, version: int) -> Snapshot | None:
    """What a memory was in a version; None when that is not known."""
    row = connection.execute(
        "SELECT record FROM history WHERE memory_id = ? AND version = ? ORDER BY changed_at DESC LIMIT 1",
        (memory_id, version),
    ).fetchone()
    return None if row is None else _decode_snapshot(row[0])


def related_to(connection: sqlite3.Connection, number: int, session_id: str) -> set[int]:
    """The memories that one is related to, of those that the session sees and that are not forgotten."""
    return {other for _, other, _, _ in read_related(query_of(connection), [number], session_id)}


def read_related(query: Query, numbers: Sequence[int], session_id: str) -> list[tuple[float, int, int, str]]:
    """When each of these memories was related to each other one, the other's number, its own, and the other's id.

    The first linked come first.
    """
    rows = query(
        """SELECT l.created_at, l.other, l.memory, o.id FROM (
               SELECT source AS memory, target AS other, created_at FROM memory_links
               WHERE source IN (SELECT value FROM json_each(?1)) AND relation = ?2
               UNION ALL SELECT target, source, created_at FROM memory_links
               WHERE target IN (SELECT value FROM json_each(?1)) AND relation = ?2) AS l
           JOIN memories AS o ON o.number = l.other
           WHERE o.forgotten_at IS NULL AND (o.scope != 'session' OR o.session_id = ?3)""",
        (encode_json(list(numbers)).decode(), RELATED, session_id),
    )
    return sorted(rows)  # in a fifth of the time that SQLite takes for it


def relink_entities(connection: sqlite3.Connection, memory: int, entities: Sequence[EntityRef], now: float) -> None:
    """Make these the entities of a memory. Those that nothing is linked to any more are gone."""
    rows = connection.execute(
        "DELETE FROM memory_entities WHERE memory = ? RETURNING entity, relationship, created_at", (memory,)
    ).fetchall()
    link_entities(connection, memory, entities, now, {(entity, relation): at for entity, relation, at in rows})
    remove_unlinked(connection, {entity for entity, _, _ in rows})


def entities_of(connection: sqlite3.Connection, memory: int) -> set[int]:
    """The numbers of the entities that a memory is linked to."""
    return {row[0] for row in connection.execute("SELECT entity FROM memory_entities WHERE memory = ?", (memory,))}


def remove_unlinked(connection: sqlite3.Connection, entities: set[int]) -> None:
    """Delete those of the entities that no memory is linked to."""
    connection.executemany(
        "DELETE FROM entities WHERE number = ? AND NOT EXISTS (SELECT 1 FROM memory_entities WHERE entity = number)",
        [(entity,) for entity in entities],
    )


def link_entities(
    connection: sqlite3.Connection,
    memory: int,
    entities: Sequence[EntityRef],
    now: float,
    made_at: Mapping[tuple[int, str], float] = MappingProxyType({}),
) -> int:
    """Make a memory's edges to its entities, and the entities that are new. Returns how many edges were made.

    Between two entities there is the edge that names both; the others are mentioned with the first one. `made_at`:
    when edges that were here were made.
    """
    edges = 0
    numbers = [_number_of(connection, entity, now) for entity in entities]
    named: dict[str, int] = {}
    for entity, number in zip(entities, numbers, strict=True):
        named.setdefault(name_key(entity.name), number)
    subjects = [named.get(name_key(entity.subject)) if entity.subject else None for entity in entities]
    related = {frozenset(ends) for ends in zip(subjects, numbers, strict=True)}
    for ordinal, (entity, number, subject) in enumerate(zip(entities, numbers, subjects, strict=True)):
        edge = MENTIONED_WITH if subject is None else entity.relationship
        if subject is None and frozenset((numbers[0], number)) not in related:
            subject = numbers[0]
        edges += connection.execute(
            """INSERT OR IGNORE INTO memory_entities
                   (memory, entity, relationship, created_at, ordinal, subject, edge)
               VALUES (?, ?, ?, ?, ?, nullif(?, ?), ?)""",
            (
                memory,
                number,
                entity.relationship,
                made_at.get((number, entity.relationship), now),
                ordinal,
                subject,
                number,
                edge,
            ),
        ).rowcount
    return edges


def _number_of(connection: sqlite3.Connection, entity: EntityRef, now: float) -> int:
    """The number of an entity, which is made when it is new."""
    found = connection.execute(
        "SELECT number FROM entities WHERE name = ? AND type = ?", (entity.name, entity.type)
    ).fetchone()
    if found is not None:
        return int(found[0])
    number = connection.execute(
        "INSERT INTO entities (name, type, created_at, key) VALUES (?, ?, ?, ?)",
        (entity.name, entity.type, now, name_key(entity.name)),
    ).lastrowid
    assert number is not None
    connection.execute("INSERT INTO entities_text (rowid, words) VALUES (?, ?)", (number, name_words(entity.name)))
    return number
