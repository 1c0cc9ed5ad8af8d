"""The schema of a file of records, as migrations that run forward from every released version.

A migration never deletes what it cannot read, and is not stopped by it: text is handed to functions as bytes.
`PRAGMA user_version` says how far a file has come; a file from a newer release is refused and left untouched.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from remembrancer.actors.store.records.names import name_key, name_words
from remembrancer.actors.store.records.word_parts import word_parts
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
    UPDATE entities SET key = name_key(CAST(name AS BLOB));
    CREATE INDEX entities_by_key ON entities (key);
    CREATE VIRTUAL TABLE entities_text USING fts5 (words, tokenize = 'porter unicode61');
    INSERT INTO entities_text (rowid, words) SELECT number, name_words(CAST(name AS BLOB)) FROM entities;
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
    # 3: the third seed's model: kinds, confidence, status and validity; the session registry with turns and tool calls;
    # runs that are undone as one, and the logs of promotion and consolidation; topics; patterns of several projects.
    """
    ALTER TABLE memories ADD COLUMN kind TEXT NOT NULL DEFAULT 'observation';
    UPDATE memories SET kind = CASE type
        WHEN 'semantic' THEN 'fact' WHEN 'procedural' THEN 'procedure' ELSE 'observation' END;
    ALTER TABLE memories ADD COLUMN summary TEXT;
    ALTER TABLE memories ADD COLUMN structured TEXT NOT NULL DEFAULT '{}';
    ALTER TABLE memories ADD COLUMN confidence REAL NOT NULL DEFAULT 0.5 CHECK (confidence BETWEEN 0 AND 1);
    ALTER TABLE memories ADD COLUMN domain TEXT;
    ALTER TABLE memories ADD COLUMN status TEXT NOT NULL DEFAULT 'active'
        CHECK (status IN ('active', 'consolidated', 'archived', 'promoted'));
    ALTER TABLE memories ADD COLUMN archived_at REAL;
    ALTER TABLE memories ADD COLUMN valid_from REAL;
    ALTER TABLE memories ADD COLUMN valid_until REAL;
    ALTER TABLE memories ADD COLUMN promotion_chain TEXT NOT NULL DEFAULT '[]';
    ALTER TABLE memories ADD COLUMN source_project TEXT;
    CREATE INDEX memories_not_active ON memories (status, number) WHERE status != 'active';
    -- Those that count for consolidation, in the order in which they came.
    CREATE INDEX memories_lasting ON memories (number)
        WHERE status = 'active' AND forgotten_at IS NULL AND scope != 'session';

    -- The sessions that a memory was shown to, up to a bound: three are enough to say that it is used in several.
    CREATE TABLE memory_sessions (
        memory INTEGER NOT NULL REFERENCES memories ON DELETE CASCADE,
        session_id TEXT NOT NULL,
        PRIMARY KEY (memory, session_id)
    ) WITHOUT ROWID;

    -- A summary is found by its words as well; the index has to be made anew for its new column.
    DROP TRIGGER memories_text_insert;
    DROP TRIGGER memories_text_delete;
    DROP TRIGGER memories_text_update;
    DROP TABLE memories_text;
    CREATE VIRTUAL TABLE memories_text USING fts5 (
        content, tags, summary, content = 'memories', content_rowid = 'number', tokenize = 'porter unicode61'
    );
    INSERT INTO memories_text (memories_text) VALUES ('rebuild');
    CREATE TRIGGER memories_text_insert AFTER INSERT ON memories BEGIN
        INSERT INTO memories_text (rowid, content, tags, summary)
            VALUES (new.number, new.content, new.tags, new.summary);
    END;
    CREATE TRIGGER memories_text_delete AFTER DELETE ON memories BEGIN
        INSERT INTO memories_text (memories_text, rowid, content, tags, summary)
            VALUES ('delete', old.number, old.content, old.tags, old.summary);
    END;
    CREATE TRIGGER memories_text_update AFTER UPDATE OF content, tags, summary ON memories BEGIN
        INSERT INTO memories_text (memories_text, rowid, content, tags, summary)
            VALUES ('delete', old.number, old.content, old.tags, old.summary);
        INSERT INTO memories_text (rowid, content, tags, summary)
            VALUES (new.number, new.content, new.tags, new.summary);
    END;

    -- The registry. `ended_at` with the status `active`: the end is still to be dealt with.
    ALTER TABLE sessions ADD COLUMN status TEXT NOT NULL DEFAULT 'active'
        CHECK (status IN ('active', 'completed', 'abandoned'));
    ALTER TABLE sessions ADD COLUMN ended_at REAL;
    ALTER TABLE sessions ADD COLUMN ending TEXT CHECK (ending IN ('completed', 'abandoned'));
    ALTER TABLE sessions ADD COLUMN memories_promoted INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE sessions ADD COLUMN summary TEXT;
    ALTER TABLE sessions ADD COLUMN client TEXT;
    -- Sessions of earlier releases are over, and nobody promoted anything at their end.
    UPDATE sessions SET status = 'abandoned', ended_at = last_active_at, ending = 'abandoned';
    CREATE INDEX sessions_active ON sessions (started_at) WHERE status = 'active';

    CREATE TABLE turns (
        number INTEGER PRIMARY KEY,
        session_id TEXT NOT NULL,
        turn_number INTEGER NOT NULL,
        role TEXT NOT NULL CHECK (role IN ('user', 'assistant', 'system', 'tool')),
        content TEXT NOT NULL,
        token_count INTEGER NOT NULL DEFAULT 0,
        extracted INTEGER NOT NULL DEFAULT 0,
        metadata TEXT NOT NULL DEFAULT '{}',
        created_at REAL NOT NULL
    );
    CREATE UNIQUE INDEX turns_by_session ON turns (session_id, turn_number);
    CREATE TABLE tool_calls (
        number INTEGER PRIMARY KEY,
        session_id TEXT NOT NULL,
        turn INTEGER REFERENCES turns ON DELETE SET NULL,
        tool_name TEXT NOT NULL,
        arguments TEXT NOT NULL DEFAULT '{}',
        result_summary TEXT,
        success INTEGER NOT NULL DEFAULT 1,
        duration_ms INTEGER,
        created_at REAL NOT NULL
    );
    CREATE INDEX tool_calls_by_session ON tool_calls (session_id, tool_name);
    CREATE INDEX tool_calls_by_turn ON tool_calls (turn);  -- looked for whenever a turn is removed

    CREATE TABLE promotion_log (
        sequence INTEGER PRIMARY KEY,
        memory_id TEXT NOT NULL,
        kind TEXT NOT NULL,
        from_scope TEXT NOT NULL,
        to_scope TEXT NOT NULL,
        reason TEXT NOT NULL,
        score REAL,
        source_session TEXT NOT NULL,
        merged_into TEXT,
        run_id TEXT,
        promoted_at REAL NOT NULL
    );
    CREATE INDEX promotion_log_by_memory ON promotion_log (memory_id);
    CREATE INDEX promotion_log_by_target ON promotion_log (merged_into) WHERE merged_into IS NOT NULL;

    -- Runs, and what each of their parts changed: from this a run is undone.
    CREATE TABLE runs (
        run_id TEXT PRIMARY KEY,
        kind TEXT NOT NULL,
        session_id TEXT NOT NULL,
        began_at REAL NOT NULL,
        undone_at REAL
    ) WITHOUT ROWID;
    CREATE TABLE run_changes (
        sequence INTEGER PRIMARY KEY,
        run_id TEXT NOT NULL REFERENCES runs ON DELETE CASCADE,
        edit TEXT NOT NULL,
        memory_id TEXT NOT NULL,
        version_before INTEGER,
        version_after INTEGER,
        details TEXT NOT NULL DEFAULT '{}'
    );
    CREATE INDEX run_changes_by_run ON run_changes (run_id, sequence);
    CREATE TABLE consolidation_log (
        sequence INTEGER PRIMARY KEY,
        run_id TEXT NOT NULL,
        method TEXT NOT NULL,
        source_count INTEGER NOT NULL,
        result_count INTEGER NOT NULL,
        source_ids TEXT NOT NULL,
        result_ids TEXT NOT NULL,
        consolidated_at REAL NOT NULL
    );
    CREATE TABLE consolidation_requests (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        requested_at REAL NOT NULL,
        status TEXT NOT NULL DEFAULT 'pending' CHECK (status IN ('pending', 'in_progress', 'completed', 'failed')),
        reason TEXT NOT NULL,
        up_to INTEGER NOT NULL,
        completed_at REAL
    );

    -- In the user's file: the projects in which a pattern was observed.
    CREATE TABLE cross_project_patterns (
        memory_id TEXT PRIMARY KEY,
        source_projects TEXT NOT NULL,
        observation_count INTEGER NOT NULL,
        first_observed REAL NOT NULL,
        last_observed REAL NOT NULL
    ) WITHOUT ROWID;

    -- Derived: communities of the entity graph, and the entities in each, the best connected first.
    CREATE TABLE topics (
        number INTEGER PRIMARY KEY,
        label TEXT NOT NULL,
        entities TEXT NOT NULL,
        found_at REAL NOT NULL
    );
    CREATE TABLE maintenance (
        what TEXT PRIMARY KEY,
        done_at REAL NOT NULL,
        sessions INTEGER NOT NULL DEFAULT 0
    ) WITHOUT ROWID;
    """,
    # 4: words inside words, and words of scripts without spaces, are found; lists that cost what they show.
    """
    ALTER TABLE memories ADD COLUMN parts TEXT NOT NULL DEFAULT '';
    UPDATE memories
        SET parts = word_parts(CAST(content AS BLOB), CAST(coalesce(summary, '') AS BLOB), CAST(tags AS BLOB));
    DROP TRIGGER memories_text_insert;
    DROP TRIGGER memories_text_delete;
    DROP TRIGGER memories_text_update;
    DROP TABLE memories_text;
    CREATE VIRTUAL TABLE memories_text USING fts5 (
        content, tags, summary, parts, content = 'memories', content_rowid = 'number', tokenize = 'porter unicode61'
    );
    INSERT INTO memories_text (memories_text) VALUES ('rebuild');
    CREATE TRIGGER memories_text_insert AFTER INSERT ON memories BEGIN
        INSERT INTO memories_text (rowid, content, tags, summary, parts)
            VALUES (new.number, new.content, new.tags, new.summary, new.parts);
    END;
    CREATE TRIGGER memories_text_delete AFTER DELETE ON memories BEGIN
        INSERT INTO memories_text (memories_text, rowid, content, tags, summary, parts)
            VALUES ('delete', old.number, old.content, old.tags, old.summary, old.parts);
    END;
    CREATE TRIGGER memories_text_update AFTER UPDATE OF content, tags, summary, parts ON memories BEGIN
        INSERT INTO memories_text (memories_text, rowid, content, tags, summary, parts)
            VALUES ('delete', old.number, old.content, old.tags, old.summary, old.parts);
        INSERT INTO memories_text (rowid, content, tags, summary, parts)
            VALUES (new.number, new.content, new.tags, new.summary, new.parts);
    END;

    -- The memories of the project or the user, by sort: in the order of a list, and by time.
    CREATE INDEX memories_by_sort
        ON memories (scope, type, importance, coalesce(occurred_at, created_at), forgotten_at) WHERE scope != 'session';
    CREATE INDEX memories_by_time
        ON memories (scope, type, coalesce(occurred_at, created_at), forgotten_at) WHERE scope != 'session';
    -- A source that cannot be read is left as it is, and has no file.
    CREATE INDEX memories_from_files ON memories (CASE WHEN json_valid(source) THEN json_extract(source, '$.file') END)
        WHERE CASE WHEN json_valid(source) THEN json_extract(source, '$.file') END IS NOT NULL;
    -- Whose a passage is, without its vector: the rows of passages are long.
    CREATE INDEX passages_owned ON passages (number, memory, ordinal);

    -- How many memories have passages of each model, kept by triggers: whether all have needs no look at each.
    CREATE TABLE embedded (
        model TEXT PRIMARY KEY,
        memories INTEGER NOT NULL
    ) WITHOUT ROWID;
    INSERT INTO embedded SELECT model, count(DISTINCT memory) FROM passages GROUP BY model;
    CREATE TRIGGER embedded_insert AFTER INSERT ON passages WHEN new.ordinal = 0 BEGIN
        INSERT INTO embedded VALUES (new.model, 1) ON CONFLICT DO UPDATE SET memories = memories + 1;
    END;
    CREATE TRIGGER embedded_delete AFTER DELETE ON passages WHEN old.ordinal = 0 BEGIN
        UPDATE embedded SET memories = memories - 1 WHERE model = old.model;
    END;
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
    """Bring the file behind `connection` to the present schema, one transaction a step.

    Of several at once, each step is done by one: the others wait, and go on from there.

    Raises:
        sqlite3.DatabaseError: it cannot be; the step that failed has changed nothing.
    """
    for name, function in (("name_key", name_key), ("name_words", name_words), ("word_parts", word_parts)):
        connection.create_function(name, -1, _of_bytes(function), deterministic=True)
    while _version(connection) < SCHEMA_VERSION:
        connection.execute("BEGIN IMMEDIATE")
        try:
            found = _version(connection)  # as it is now that nobody else writes
            if found < SCHEMA_VERSION:
                for statement in _statements(MIGRATIONS[found]):
                    connection.execute(statement)
                connection.execute(f"PRAGMA user_version = {found + 1}")
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:  # a full disk ends a transaction by itself
                connection.execute("ROLLBACK")
            raise


def _version(connection: sqlite3.Connection) -> int:
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    return version


def _statements(script: str) -> Iterator[str]:
    """The statements of a script one by one: to run it whole would end the transaction that is open."""
    statement = ""
    for piece in script.splitlines(keepends=True):
        statement += piece
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


def _of_bytes(function: Callable[..., str]) -> Callable[..., str]:
    """A function of texts as one of their bytes: what is no text has its place taken by U+FFFD."""
    return lambda *texts: function(*(text.decode("utf-8", "replace") for text in texts))
