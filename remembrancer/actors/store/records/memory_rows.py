"""Memories as rows, with their history and entities: how to read them, and which columns hold their fields."""

import hashlib
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, Final, get_type_hints

import msgspec

from remembrancer.actors.sqlite_file import Query, as_json, json_list
from remembrancer.actors.store.records.space import shown_to
from remembrancer.actors.store.records.types import Memory
from remembrancer.memory.changes import is_version_visible, is_visible
from remembrancer.memory.fields import FIELDS, SEARCHED
from remembrancer.memory.ranking import is_assistants
from remembrancer.memory.stop_words import language_of
from remembrancer.memory.subword_tokens import subword_tokens
from remembrancer.memory.wording import spellings
from remembrancer.protocol.kinds import kind_of_type
from remembrancer.protocol.runs import ChainLink
from remembrancer.protocol.writes import (
    MENTIONED_WITH,
    EntityRef,
    HistoryEntry,
    MemoryLink,
    MemoryVersion,
    PortableMemory,
    RecordedFields,
    Scope,
)

RELATED: Final = "related_to"
"""The undirected relation: a link from one memory also counts for the other."""
FULL_TEXT: Final = ("content", "tags", "summary")
"""The fields that have their own full-text column. The words of other searchable fields are in the column `parts`."""
LANGUAGE_SAMPLE_CHARACTERS: Final = 300
STORED_FIELDS: Final = tuple(name for name in RecordedFields.__struct_fields__ if name != "related_entities")

_TYPES: Final = get_type_hints(PortableMemory)
DECODERS: Final[dict[str, Callable[[Any], Any]]] = {
    each.name: bool if each.sort == "flag" else msgspec.json.Decoder(_TYPES[each.name]).decode
    for each in FIELDS
    if each.name in STORED_FIELDS and each.sort in ("tags", "object", "source", "flag")
} | {"promotion_chain": msgspec.json.Decoder(tuple[ChainLink, ...]).decode}
UNVERSIONED_COLUMNS: Final = (
    *("id", "version", "created_at", "updated_at", "access_count", "last_accessed_at", "forgotten_at"),
    *("source_project", "promotion_chain"),
)
_COLUMNS: Final = ("number", *UNVERSIONED_COLUMNS, *STORED_FIELDS)
SAYS_IT: Final = """o.forgotten_at IS NULL AND (m.scope = 'session' OR o.scope != 'session') AND (
    instr(o.content, m.content) OR EXISTS (
        SELECT 1 FROM memory_links AS e JOIN memories AS k ON k.number = e.target
        WHERE e.source = m.number AND e.relation = 'supports' AND instr(o.content, k.content)))"""
"""SQL: the memory `o`, derived from `m`, contains the text of `m`, or of another memory that `m` supports."""


def digest_of(content: str) -> bytes:
    return hashlib.sha256(content.encode()).digest()


def read_memory(query: Query, memory_id: str) -> Memory | None:
    """Return the memory with this id or alias. Raises `ValueError` if it cannot be decoded."""
    rows = query(f"SELECT {', '.join(_COLUMNS)} FROM memories WHERE space = @SPACE AND id = ?", (memory_id,))  # noqa: S608 - our names
    if not rows:
        known = query(
            """SELECT m.id FROM aliases CROSS JOIN memories AS m ON m.number = memory
               WHERE alias = ? AND m.space = @SPACE""",
            (memory_id,),
        )
        return read_memory(query, known[0][0]) if known else None
    row = decode_columns(dict(zip(_COLUMNS, rows[0], strict=True)))
    now = MemoryVersion(
        **{name: row[name] for name in STORED_FIELDS},
        related_entities=read_entities(query, row["number"]),
        forgotten=row["forgotten_at"] is not None,
    )
    return Memory(number=row["number"], now=now, **{name: row[name] for name in UNVERSIONED_COLUMNS})


def decode_columns(columns: dict[str, Any]) -> dict[str, Any]:
    return columns | {name: decode(columns[name]) for name, decode in DECODERS.items() if name in columns}


def columns_of(memory: RecordedFields, fields: tuple[str, ...]) -> dict[str, object]:
    """There are no columns for `related_entities` and the forgotten state."""
    columns: dict[str, object] = {}
    for field in fields:
        if field in STORED_FIELDS:
            value = getattr(memory, field)
            is_plain = value is None or isinstance(value, (str, int, float))
            columns[field] = value if is_plain else as_json(value)
    if "kind" in columns:
        columns["kind"] = memory.kind or kind_of_type(memory.type)
    if "content" in columns:
        columns["content_digest"] = digest_of(memory.content)
        columns["characters"] = len(memory.content)
        columns["by_assistant"] = is_assistants(memory.content)
        columns["language"] = language_of(memory.content[:LANGUAGE_SAMPLE_CHARACTERS])
    if not set(SEARCHED).isdisjoint(fields):
        values = (getattr(memory, name) or "" for name in SEARCHED)
        texts = ((value,) if isinstance(value, str) else value for value in values)
        others = (getattr(memory, name) or "" for name in SEARCHED if name not in FULL_TEXT)
        columns["parts"] = " ".join((subword_tokens(*chain.from_iterable(texts)), *others)).strip()
    return columns


def read_entities(query: Query, number: int) -> tuple[EntityRef, ...]:
    rows = query(
        """SELECT e.name, e.type, me.relationship, iif(me.edge = ?, '', coalesce(s.name, ''))
           FROM memory_entities AS me JOIN entities AS e ON e.number = me.entity
           LEFT JOIN entities AS s ON s.number = me.subject
           WHERE me.memory = ? AND NOT me.found ORDER BY me.ordinal, me.entity, me.relationship""",
        (MENTIONED_WITH, number),
    )
    return tuple(EntityRef(*row) for row in rows)


_decode_snapshot = msgspec.json.Decoder(MemoryVersion).decode
_decode_details = msgspec.json.Decoder(dict[str, Any]).decode
_HISTORY: Final = "version, change, changed_at, session_id, operation_id, record, details"


_RUN: Final = "CASE WHEN json_valid(details) THEN json_extract(details, '$.run') END"
OF_RUN: Final = f"FROM history INDEXED BY history_by_run WHERE space = @SPACE AND {_RUN} IS NOT NULL AND {_RUN} ="
"""Selects the versions made by a run. The run's id must follow."""


def of_import(run_id: str) -> str:
    """Return SQL that selects the versions created by an import. `run_id` is a placeholder or a column."""
    return f"""FROM history WHERE space = @SPACE AND instr(details, '"imported":"' || {run_id} || '"')"""


def read_history(query: Query, memory_id: str) -> tuple[HistoryEntry, ...]:
    """Return all versions of a memory, oldest first. Raises `ValueError` if a row cannot be decoded."""
    rows = query(
        f"SELECT {_HISTORY} FROM history WHERE space = @SPACE AND memory_id = ? ORDER BY version, changed_at",  # noqa: S608 - fixed names
        (memory_id,),
    )
    return tuple(
        HistoryEntry(version, change, at, session_id, operation_id, _decode_snapshot(record), _decode_details(details))
        for version, change, at, session_id, operation_id, record, details in rows
    )


_COPIES: Final = f"""SELECT id, scope FROM memories AS m
    WHERE space = @SPACE AND content_digest IN (?, ?, ?, ?, ?, ?, ?) AND id != ? AND (? OR forgotten_at IS NULL)
    AND {shown_to("m", "ifnull(?, m.session_id)")}
    ORDER BY content != ?, number LIMIT ?"""  # noqa: S608 - fixed


def read_copies(
    query: Query, memory_id: str, content: str, session_id: str | None, limit: int = -1, *, with_forgotten: bool = False
) -> dict[str, Scope]:
    """Return up to `limit` other memories with the same text (see `spellings`) that the session may see (None: any
    memories), each with its scope; exact copies come first, then the oldest."""
    digests = map(digest_of, spellings(content))
    return dict(query(_COPIES, (*digests, memory_id, with_forgotten, session_id, content, limit)))


def read_related(query: Query, numbers: Sequence[int], session_id: str) -> list[tuple[float, int, int, str]]:
    """Return for each relation the time, the other memory, this memory and the other's id, oldest first."""
    rows = query(
        f"""SELECT l.created_at, l.other, l.memory, o.id FROM (
               SELECT source AS memory, target AS other, created_at FROM memory_links
               WHERE source IN (SELECT value FROM json_each(?1)) AND relation = ?2
               UNION ALL SELECT target, source, created_at FROM memory_links
               WHERE target IN (SELECT value FROM json_each(?1)) AND relation = ?2) AS l
           JOIN memories AS o ON o.number = l.other
           WHERE o.forgotten_at IS NULL AND {shown_to("o", "?3")}""",  # noqa: S608 - fixed
        (json_list(numbers), RELATED, session_id),
    )
    return sorted(rows)  # five times as fast as sorting in SQLite


def read_portable(
    query: Query, memory_id: str, session_id: str | None, project_id: str | None = None
) -> PortableMemory | None:
    """None if the session may not see the memory. Without a session, also returns links that are still awaited."""
    found = read_memory(query, memory_id)
    if found is None or not is_visible(found.now, session_id):
        return None
    now = found.now
    sessions = query("SELECT session_id FROM memory_sessions WHERE memory = ? ORDER BY 1", (found.number,))
    return PortableMemory(
        **now.recorded(),
        **{name: getattr(found, name) for name in UNVERSIONED_COLUMNS},
        history=tuple(
            _redacted(query, entry, session_id)
            for entry in read_history(query, found.id)
            if is_version_visible(entry.record, now.scope, found.source_project, session_id, project_id)
        ),
        links=_read_links(query, found.number, session_id),
        accessed_in=tuple(session for (session,) in sessions),
    )


def _redacted(query: Query, entry: HistoryEntry, session_id: str | None) -> HistoryEntry:
    """Leave out links, which only an undo needs, and the id of another memory that the session may not see."""
    if session_id is None:
        return entry
    named = entry.details.get("by", entry.details.get("other"))
    other = read_memory(query, named) if isinstance(named, str) else None
    hidden = ("links",) if other is None or is_visible(other.now, session_id) else ("links", "by", "other")
    known = {name: value for name, value in entry.details.items() if name not in hidden}
    return msgspec.structs.replace(entry, details=known)


def _read_links(query: Query, number: int, session_id: str | None) -> tuple[MemoryLink, ...]:
    rows = query(
        f"""SELECT o.id, l.relation, l.strength, l.created_at FROM memory_links AS l
           JOIN memories AS o ON o.number = l.target
           WHERE l.source = ? AND {shown_to("o", "ifnull(?, o.session_id)")}""",  # noqa: S608 - fixed
        (number, session_id),
    )
    if session_id is None:
        rows += query("SELECT target, relation, strength, created_at FROM awaited_links WHERE source = ?", (number,))
    return tuple(MemoryLink(*row) for row in sorted(rows))
