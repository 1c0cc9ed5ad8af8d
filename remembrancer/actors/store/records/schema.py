"""The schema of a file of records, as migrations that run forward from every released version.

A migration never deletes what it cannot read. `PRAGMA user_version` says how far a file has come; a file from a newer
release is refused and left untouched.
"""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path
from typing import Final

from remembrancer.actors.store.records.names import name_key, name_words
from remembrancer.protocol.errors import SchemaTooNew

MIGRATIONS: Final[tuple[str, ...]] = (
    # 1: memories, their full text, graph, history, applied operations, passages and pending embeddings.
    """
    CREATE TABLE memories (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        id TEXT NOT NULL UNIQUE,
        content TEXT NOT NULL,
        content_digest BLOB NOT NULL,
        type TEXT NOT NULL CHECK (type IN ('episodic', 'semantic', 'procedural')),
        scope TEXT NOT NULL CHECK (scope IN ('session', 'project', 'user')),
        session_id TEXT NOT NULL,
        importance REAL NOT NULL CHECK (importance BETWEEN 0 AND 1),
        tags TEXT NOT NULL,
        source TEXT NOT NULL,
        metadata TEXT NOT NULL DEFAULT '{}',
        version INTEGER NOT NULL DEFAULT 1,
        created_at REAL NOT NULL,
        updated_at REAL NOT NULL,
        occurred_at REAL,
        access_count INTEGER NOT NULL DEFAULT 0,
        last_accessed_at REAL,
        forgotten_at REAL,
        forgotten_reason TEXT
    );
    CREATE INDEX memories_by_session ON memories (session_id, scope);
    CREATE INDEX memories_by_digest ON memories (content_digest);

    CREATE VIRTUAL TABLE memories_text USING fts5 (
        content, tags, content = 'memories', content_rowid = 'number', tokenize = 'porter unicode61'
    );
    CREATE TRIGGER memories_text_insert AFTER INSERT ON memories BEGIN
        INSERT INTO memories_text (rowid, content, tags) VALUES (new.number, new.content, new.tags);
    END;
    CREATE TRIGGER memories_text_delete AFTER DELETE ON memories BEGIN
        INSERT INTO memories_text (memories_text, rowid, content, tags)
            VALUES ('delete', old.number, old.content, old.tags);
    END;
    CREATE TRIGGER memories_text_update AFTER UPDATE OF content, tags ON memories BEGIN
        INSERT INTO memories_text (memories_text, rowid, content, tags)
            VALUES ('delete', old.number, old.content, old.tags);
        INSERT INTO memories_text (rowid, content, tags) VALUES (new.number, new.content, new.tags);
    END;

    -- How many memories there are of each sort, kept by triggers so that a status costs no scan.
    CREATE TABLE tallies (
        scope TEXT NOT NULL,
        type TEXT NOT NULL,
        forgotten INTEGER NOT NULL,
        count INTEGER NOT NULL,
        PRIMARY KEY (scope, type, forgotten)
    ) WITHOUT ROWID;
    CREATE TRIGGER tallies_insert AFTER INSERT ON memories BEGIN
        INSERT INTO tallies VALUES (new.scope, new.type, new.forgotten_at IS NOT NULL, 1)
            ON CONFLICT DO UPDATE SET count = count + 1;
    END;
    CREATE TRIGGER tallies_delete AFTER DELETE ON memories BEGIN
        UPDATE tallies SET count = count - 1
            WHERE scope = old.scope AND type = old.type AND forgotten = (old.forgotten_at IS NOT NULL);
    END;
    CREATE TRIGGER tallies_update AFTER UPDATE OF scope, type, forgotten_at ON memories BEGIN
        UPDATE tallies SET count = count - 1
            WHERE scope = old.scope AND type = old.type AND forgotten = (old.forgotten_at IS NOT NULL);
        INSERT INTO tallies VALUES (new.scope, new.type, new.forgotten_at IS NOT NULL, 1)
            ON CONFLICT DO UPDATE SET count = count + 1;
    END;

    CREATE TABLE memory_tags (
        memory INTEGER NOT NULL REFERENCES memories ON DELETE CASCADE,
        tag TEXT NOT NULL,
        PRIMARY KEY (memory, tag)
    ) WITHOUT ROWID;
    CREATE INDEX memory_tags_by_tag ON memory_tags (tag, memory);

    CREATE TABLE entities (
        number INTEGER PRIMARY KEY,
        name TEXT NOT NULL,
        type TEXT NOT NULL,
        created_at REAL NOT NULL,
        UNIQUE (name, type)
    );
    CREATE TABLE memory_entities (
        memory INTEGER NOT NULL REFERENCES memories ON DELETE CASCADE,
        entity INTEGER NOT NULL REFERENCES entities ON DELETE CASCADE,
        relationship TEXT NOT NULL,
        created_at REAL NOT NULL,
        PRIMARY KEY (memory, entity, relationship)
    ) WITHOUT ROWID;
    CREATE INDEX memory_entities_by_entity ON memory_entities (entity, memory);

    -- Links between memories; `similar_to` with its cosine is what reports a near-duplicate.
    CREATE TABLE memory_links (
        source INTEGER NOT NULL REFERENCES memories ON DELETE CASCADE,
        target INTEGER NOT NULL REFERENCES memories ON DELETE CASCADE,
        relation TEXT NOT NULL,
        strength REAL NOT NULL,
        created_at REAL NOT NULL,
        PRIMARY KEY (source, target, relation)
    ) WITHOUT ROWID;
    CREATE INDEX memory_links_by_target ON memory_links (target, relation);

    CREATE TABLE history (
        sequence INTEGER PRIMARY KEY,
        memory_id TEXT NOT NULL,
        version INTEGER NOT NULL,
        change TEXT NOT NULL,
        operation_id TEXT NOT NULL,
        session_id TEXT NOT NULL,
        record TEXT NOT NULL,
        changed_at REAL NOT NULL
    );
    CREATE INDEX history_by_memory ON history (memory_id, version);

    CREATE TABLE applied_operations (
        operation_id TEXT PRIMARY KEY,
        result BLOB NOT NULL,
        applied_at REAL NOT NULL
    ) WITHOUT ROWID;

    CREATE TABLE sessions (
        session_id TEXT PRIMARY KEY,
        started_at REAL NOT NULL,
        last_active_at REAL NOT NULL
    ) WITHOUT ROWID;

    -- Derived from here on: passages and vectors can be made again from the memories.
    CREATE TABLE pending_embeddings (
        memory INTEGER PRIMARY KEY REFERENCES memories ON DELETE CASCADE,
        attempts INTEGER NOT NULL DEFAULT 0,
        error TEXT
    );
    CREATE TABLE passages (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        memory INTEGER NOT NULL REFERENCES memories ON DELETE CASCADE,
        model TEXT NOT NULL,
        ordinal INTEGER NOT NULL,
        start INTEGER NOT NULL,
        end INTEGER NOT NULL,
        vector BLOB NOT NULL,
        UNIQUE (memory, model, ordinal)
    );
    CREATE INDEX passages_by_model ON passages (model, number);
    """,
    # 2: the order of a memory's entities, and with it edges between entities; names as they are looked up; moves.
    """
    -- The first entity of a memory is its subject: the others are related to it, and the memory says how.
    ALTER TABLE memory_entities ADD COLUMN ordinal INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE memory_entities ADD COLUMN subject INTEGER REFERENCES entities ON DELETE SET NULL;
    UPDATE memory_entities SET ordinal = coalesce((
        SELECT named.key FROM memories AS m JOIN history AS h ON h.memory_id = m.id AND h.version = 1
        JOIN entities AS e ON e.number = memory_entities.entity
        JOIN json_each(h.record, '$.related_entities') AS named
            ON json_extract(named.value, '$.name') = e.name AND json_extract(named.value, '$.type') = e.type
            AND json_extract(named.value, '$.relationship') = memory_entities.relationship
        WHERE m.number = memory_entities.memory), 0);
    UPDATE memory_entities SET subject = (
        SELECT first.entity FROM memory_entities AS first
        WHERE first.memory = memory_entities.memory ORDER BY first.ordinal, first.entity LIMIT 1);
    UPDATE memory_entities SET subject = NULL WHERE subject = entity;
    -- Both have all that a question for edges asks of a row.
    CREATE INDEX memory_entities_by_subject ON memory_entities (subject, entity) WHERE subject IS NOT NULL;
    DROP INDEX memory_entities_by_entity;
    CREATE INDEX memory_entities_by_entity ON memory_entities (entity, memory, relationship, subject);
    -- The memories that not everybody sees, or nobody any more: usually few, so that to look here is quick.
    CREATE INDEX memories_apart ON memories (number, scope, session_id, forgotten_at)
        WHERE forgotten_at IS NOT NULL OR scope = 'session';

    -- `key` is how a name is looked up; the words of a name are found by full text.
    ALTER TABLE entities ADD COLUMN key TEXT NOT NULL DEFAULT '';
    UPDATE entities SET key = name_key(name);
    CREATE INDEX entities_by_key ON entities (key);
    CREATE VIRTUAL TABLE entities_text USING fts5 (words, tokenize = 'porter unicode61');
    INSERT INTO entities_text (rowid, words) SELECT number, name_words(name) FROM entities;
    CREATE TRIGGER entities_text_delete AFTER DELETE ON entities BEGIN
        DELETE FROM entities_text WHERE rowid = old.number;
    END;

    ALTER TABLE history ADD COLUMN details TEXT NOT NULL DEFAULT '{}';
    CREATE INDEX history_by_session ON history (session_id, change) WHERE change != 'stored';

    -- Promotions to the user's file that are under way: begun here, and ended here once the user's file has the memory.
    CREATE TABLE moves (
        operation_id TEXT PRIMARY KEY,
        operation BLOB NOT NULL,
        begun_at REAL NOT NULL
    ) WITHOUT ROWID;

    -- Links of imported memories whose other end has not been imported yet.
    CREATE TABLE awaited_links (
        source INTEGER NOT NULL REFERENCES memories ON DELETE CASCADE,
        target TEXT NOT NULL,
        relation TEXT NOT NULL,
        strength REAL NOT NULL,
        created_at REAL NOT NULL,
        PRIMARY KEY (source, target, relation)
    ) WITHOUT ROWID;
    CREATE INDEX awaited_links_by_target ON awaited_links (target);
    """,
)
SCHEMA_VERSION: Final = len(MIGRATIONS)


def refuse_newer(path: Path) -> None:
    """Look at a file before it is opened for writing, which may change it even if nothing is written.

    Raises:
        SchemaTooNew: a newer release wrote it.
        sqlite3.DatabaseError: it cannot be read.
    """
    found = version_of(path)
    if found > SCHEMA_VERSION:
        raise SchemaTooNew(
            f"{path} has schema version {found}, and this release reads up to {SCHEMA_VERSION}: "
            "install the newer release that wrote it, or set REMEMBRANCER_HOME to another directory"
        )


def version_of(path: Path) -> int:
    """The `user_version` of a database, 0 when there is none. Read only: no byte of the file changes."""
    if not path.exists():
        return 0
    with contextlib.closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
        version: int = connection.execute("PRAGMA user_version").fetchone()[0]
        return version


def migrate(connection: sqlite3.Connection) -> None:
    """Bring the file behind `connection` to the present schema, one transaction a step."""
    found = connection.execute("PRAGMA user_version").fetchone()[0]
    connection.create_function("name_key", 1, name_key, deterministic=True)
    connection.create_function("name_words", 1, name_words, deterministic=True)
    for version in range(found, SCHEMA_VERSION):
        connection.executescript(f"BEGIN IMMEDIATE;{MIGRATIONS[version]};PRAGMA user_version = {version + 1};COMMIT;")
