"""The schema of `memory.db`.

A space (a project, a shared lane, the user) is a row of `spaces`. Independent rows name their space in the column
`space`; rows that belong to a memory, an entity or a turn refer to its number, which is unique in the home. Links and
edges connect rows of one space. `actors/migrations.py` has the migrations between releases.
"""

import sqlite3
from typing import Final

from remembrancer.actors.index_file import PASSAGES
from remembrancer.actors.migrations import Schema, Step, statements_of
from remembrancer.memory.names import name_words

STANDING_KINDS: Final = "kind IN ('convention', 'preference', 'decision', 'open_end')"
"""The rows of the index `memories_standing`. SQLite uses the index only if a statement has the same condition."""

FORMER: Final = Schema(*[Step("0.2.0", "")] * 8)
"""The versions of the record files of release 0.2.0, one file for each space. They are read but never written."""


MEMORY: Final = Schema(
    *[Step("0.3.0", "")] * 5,  # never released
    Step(
        "0.3.0",
        """
    CREATE TABLE spaces (number INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE);

    CREATE TABLE memories (
        number INTEGER PRIMARY KEY,
        space INTEGER NOT NULL REFERENCES spaces,
        id TEXT NOT NULL,
        type TEXT NOT NULL CHECK (type IN ('episodic', 'semantic', 'procedural')),
        scope TEXT NOT NULL CHECK (scope IN ('session', 'project', 'user')),
        session_id TEXT NOT NULL,
        importance REAL NOT NULL CHECK (importance BETWEEN 0 AND 1),
        characters INTEGER NOT NULL,
        language TEXT,
        by_assistant INTEGER NOT NULL DEFAULT 0,
        version INTEGER NOT NULL DEFAULT 1,
        created_at REAL NOT NULL,
        updated_at REAL NOT NULL,
        occurred_at REAL,
        access_count INTEGER NOT NULL DEFAULT 0,
        last_accessed_at REAL,
        forgotten_at REAL,
        forgotten_reason TEXT,
        invalid_reason TEXT,
        kind TEXT NOT NULL DEFAULT 'observation',
        confidence REAL NOT NULL DEFAULT 0.5 CHECK (confidence BETWEEN 0 AND 1),
        domain TEXT,
        status TEXT NOT NULL DEFAULT 'active'
            CHECK (status IN ('active', 'consolidated', 'archived', 'promoted')),
        archived_at REAL,
        valid_from REAL,
        valid_until REAL,
        source_project TEXT,
        pinned INTEGER NOT NULL DEFAULT 0,
        -- For open ends: when it is due, and whether it is done.
        due REAL,
        done INTEGER NOT NULL DEFAULT 0,
        -- Columns that may be long come last, so that the columns used for ranking are read without them.
        content_digest BLOB NOT NULL,
        content TEXT NOT NULL,
        summary TEXT,
        tags TEXT NOT NULL,
        source TEXT NOT NULL,
        metadata TEXT NOT NULL DEFAULT '{}',
        structured TEXT NOT NULL DEFAULT '{}',
        promotion_chain TEXT NOT NULL DEFAULT '[]',
        parts TEXT NOT NULL DEFAULT '',
        UNIQUE (space, id)
    );
    CREATE INDEX memories_by_number ON memories (space, number);
    -- Has all columns used to filter, count and order memories, since the rows themselves are long.
    CREATE INDEX memories_scanned ON memories (
        space, session_id, scope, number, kind, type, status, forgotten_at, importance, domain, created_at, occurred_at,
        valid_from, valid_until, due, done
    );
    CREATE INDEX memories_by_digest ON memories (space, content_digest);
    -- For looking up short ids, which are the last characters of ids.
    CREATE INDEX memories_by_ending ON memories (space, substr(id, -4), id);
    -- The few rows that a search has to leave out.
    CREATE INDEX memories_apart ON memories (number, space, scope, session_id, forgotten_at, valid_until)
        WHERE forgotten_at IS NOT NULL OR scope = 'session' OR valid_until IS NOT NULL;
    -- A source that is not valid JSON is kept, but has no file.
    CREATE INDEX memories_from_files
        ON memories (space, CASE WHEN json_valid(source) THEN json_extract(source, '$.file') END)
        WHERE CASE WHEN json_valid(source) THEN json_extract(source, '$.file') END IS NOT NULL;
    -- Counts of memories by scope, type and state, maintained by triggers so that a status needs no scan.
    CREATE TABLE tallies (
        space INTEGER NOT NULL REFERENCES spaces ON DELETE CASCADE,
        scope TEXT NOT NULL,
        type TEXT NOT NULL,
        forgotten INTEGER NOT NULL,
        count INTEGER NOT NULL,
        PRIMARY KEY (space, scope, type, forgotten)
    ) WITHOUT ROWID;
    CREATE TRIGGER tallies_insert AFTER INSERT ON memories BEGIN
        INSERT INTO tallies VALUES (new.space, new.scope, new.type, new.forgotten_at IS NOT NULL, 1)
            ON CONFLICT DO UPDATE SET count = count + 1;
    END;
    CREATE TRIGGER tallies_delete AFTER DELETE ON memories BEGIN
        UPDATE tallies SET count = count - 1 WHERE space = old.space AND scope = old.scope AND type = old.type
            AND forgotten = (old.forgotten_at IS NOT NULL);
    END;
    CREATE TRIGGER tallies_update AFTER UPDATE OF space, scope, type, forgotten_at ON memories BEGIN
        UPDATE tallies SET count = count - 1 WHERE space = old.space AND scope = old.scope AND type = old.type
            AND forgotten = (old.forgotten_at IS NOT NULL);
        INSERT INTO tallies VALUES (new.space, new.scope, new.type, new.forgotten_at IS NOT NULL, 1)
            ON CONFLICT DO UPDATE SET count = count + 1;
    END;

    -- Other ids of a memory whose text was stored again: the new id was given out before this was known.
    CREATE TABLE aliases (
        alias TEXT NOT NULL,
        memory INTEGER NOT NULL REFERENCES memories ON DELETE CASCADE,
        PRIMARY KEY (alias, memory)
    ) WITHOUT ROWID;
    CREATE INDEX aliases_by_memory ON aliases (memory);

    CREATE TABLE memory_tags (
        tag TEXT NOT NULL,
        memory INTEGER NOT NULL REFERENCES memories ON DELETE CASCADE,
        PRIMARY KEY (tag, memory)
    ) WITHOUT ROWID;
    CREATE INDEX memory_tags_by_memory ON memory_tags (memory);

    CREATE TABLE entities (
        number INTEGER PRIMARY KEY,
        space INTEGER NOT NULL REFERENCES spaces,
        name TEXT NOT NULL,
        type TEXT NOT NULL,
        created_at REAL NOT NULL,
        key TEXT NOT NULL DEFAULT '',
        UNIQUE (space, name, type)
    );
    CREATE INDEX entities_by_key ON entities (space, key);

    CREATE TABLE memory_entities (
        memory INTEGER NOT NULL REFERENCES memories ON DELETE CASCADE,
        entity INTEGER NOT NULL REFERENCES entities ON DELETE CASCADE,
        relationship TEXT NOT NULL,
        created_at REAL NOT NULL,
        ordinal INTEGER NOT NULL DEFAULT 0,
        -- subject --edge--> entity: as stated by the memory, or only that both occur in one memory.
        subject INTEGER REFERENCES entities ON DELETE SET NULL,
        edge TEXT NOT NULL,
        -- True if no client gave the entity: its name was found in the memory's text.
        found INTEGER NOT NULL DEFAULT 0,
        PRIMARY KEY (memory, entity, relationship, ordinal)
    ) WITHOUT ROWID;
    CREATE INDEX memory_entities_by_subject ON memory_entities (subject, entity) WHERE subject IS NOT NULL;
    CREATE INDEX memory_entities_by_entity ON memory_entities (entity, memory, edge, subject);

    -- Memories whose texts have yet to be searched for names, and the names found, with their certainty.
    CREATE TABLE names_to_find (memory INTEGER PRIMARY KEY REFERENCES memories ON DELETE CASCADE);
    CREATE TRIGGER names_of_new AFTER INSERT ON memories BEGIN
        INSERT OR IGNORE INTO names_to_find VALUES (new.number);
    END;
    CREATE TRIGGER names_of_changed AFTER UPDATE OF content ON memories WHEN new.content != old.content BEGIN
        INSERT OR IGNORE INTO names_to_find VALUES (new.number);
    END;
    CREATE TABLE found_names (
        key TEXT NOT NULL,
        memory INTEGER NOT NULL REFERENCES memories ON DELETE CASCADE,
        name TEXT NOT NULL,
        type TEXT NOT NULL,
        is_certain INTEGER NOT NULL,
        PRIMARY KEY (key, memory)
    ) WITHOUT ROWID;
    CREATE INDEX found_names_by_memory ON found_names (memory);

    -- Links between memories of a space; `similar_to`, with a cosine, marks near-duplicates.
    CREATE TABLE memory_links (
        source INTEGER NOT NULL REFERENCES memories ON DELETE CASCADE,
        target INTEGER NOT NULL REFERENCES memories ON DELETE CASCADE,
        relation TEXT NOT NULL,
        strength REAL NOT NULL,
        created_at REAL NOT NULL,
        PRIMARY KEY (source, target, relation)
    ) WITHOUT ROWID;
    CREATE INDEX memory_links_by_target ON memory_links (target, relation, created_at);
    -- Links whose other end is not in their memory's space: not imported yet, or in another space.
    CREATE TABLE awaited_links (
        source INTEGER NOT NULL REFERENCES memories ON DELETE CASCADE,
        target TEXT NOT NULL,
        relation TEXT NOT NULL,
        strength REAL NOT NULL,
        created_at REAL NOT NULL,
        PRIMARY KEY (source, target, relation)
    ) WITHOUT ROWID;
    CREATE INDEX awaited_links_by_target ON awaited_links (target);

    CREATE TABLE history (
        space INTEGER NOT NULL REFERENCES spaces,
        memory_id TEXT NOT NULL,
        version INTEGER NOT NULL,
        change TEXT NOT NULL,
        operation_id TEXT NOT NULL,
        session_id TEXT NOT NULL,
        record TEXT NOT NULL,
        changed_at REAL NOT NULL,
        details TEXT NOT NULL DEFAULT '{}',
        -- The session that owns the version, if it is private.
        owner TEXT,
        PRIMARY KEY (space, memory_id, version, operation_id)
    ) WITHOUT ROWID;
    CREATE INDEX history_by_time ON history (space, changed_at, memory_id);
    -- The versions made by each run, needed to undo the run.
    CREATE INDEX history_by_run
        ON history (space, CASE WHEN json_valid(details) THEN json_extract(details, '$.run') END, memory_id)
        WHERE CASE WHEN json_valid(details) THEN json_extract(details, '$.run') END IS NOT NULL;
    CREATE INDEX history_by_session ON history (space, session_id, change) WHERE change != 'stored';

    -- Ids of memories that were deleted for good: they cannot be stored again, and a second deletion is reported.
    CREATE TABLE erased (
        space INTEGER NOT NULL REFERENCES spaces,
        memory_id TEXT NOT NULL,
        erased_at REAL NOT NULL,
        PRIMARY KEY (space, memory_id)
    ) WITHOUT ROWID;

    CREATE TABLE applied_operations (
        space INTEGER NOT NULL REFERENCES spaces,
        operation_id TEXT NOT NULL,
        result BLOB NOT NULL,
        applied_at REAL NOT NULL,
        PRIMARY KEY (space, operation_id)
    ) WITHOUT ROWID;

    -- The registry. `ended_at` with the status `active`: the end is still to be processed.
    CREATE TABLE sessions (
        space INTEGER NOT NULL REFERENCES spaces,
        session_id TEXT NOT NULL,
        started_at REAL NOT NULL,
        last_active_at REAL NOT NULL,
        status TEXT NOT NULL DEFAULT 'active'
            CHECK (status IN ('active', 'completed', 'abandoned')),
        ended_at REAL,
        ending TEXT CHECK (ending IN ('completed', 'abandoned')),
        memories_promoted INTEGER NOT NULL DEFAULT 0,
        client TEXT,
        PRIMARY KEY (space, session_id)
    ) WITHOUT ROWID;
    CREATE INDEX sessions_active ON sessions (space, started_at) WHERE status = 'active';
    CREATE INDEX sessions_closed ON sessions (space, coalesce(ended_at, last_active_at)) WHERE status != 'active';

    -- The first sessions that used a memory: three are enough to show that it is used in several.
    CREATE TABLE memory_sessions (
        memory INTEGER NOT NULL REFERENCES memories ON DELETE CASCADE,
        session_id TEXT NOT NULL,
        PRIMARY KEY (memory, session_id)
    ) WITHOUT ROWID;

    -- A project's memories proposed for promotion to the user, including refused proposals.
    CREATE TABLE proposals (
        space INTEGER NOT NULL,
        memory_id TEXT NOT NULL,
        reason TEXT NOT NULL,
        score REAL,
        proposed_at REAL NOT NULL,
        refused_at REAL,
        PRIMARY KEY (space, memory_id),
        FOREIGN KEY (space, memory_id) REFERENCES memories (space, id) ON DELETE CASCADE
    ) WITHOUT ROWID;

    CREATE TABLE turns (
        number INTEGER PRIMARY KEY,
        space INTEGER NOT NULL REFERENCES spaces,
        session_id TEXT NOT NULL,
        turn_number INTEGER NOT NULL,
        role TEXT NOT NULL CHECK (role IN ('user', 'assistant', 'system', 'tool')),
        content TEXT NOT NULL,
        token_count INTEGER NOT NULL DEFAULT 0,
        metadata TEXT NOT NULL DEFAULT '{}',
        created_at REAL NOT NULL
    );
    CREATE UNIQUE INDEX turns_by_session ON turns (space, session_id, turn_number);

    CREATE TABLE tool_calls (
        number INTEGER PRIMARY KEY,
        space INTEGER NOT NULL REFERENCES spaces,
        session_id TEXT NOT NULL,
        turn INTEGER REFERENCES turns ON DELETE SET NULL,
        tool_name TEXT NOT NULL,
        arguments TEXT NOT NULL DEFAULT '{}',
        result_summary TEXT,
        success INTEGER NOT NULL DEFAULT 1,
        duration_ms INTEGER,
        created_at REAL NOT NULL
    );
    CREATE INDEX tool_calls_by_session ON tool_calls (space, session_id, number, tool_name, success);
    -- Needed whenever a turn is deleted.
    CREATE INDEX tool_calls_by_turn ON tool_calls (turn);

    CREATE TABLE promotion_log (
        sequence INTEGER PRIMARY KEY,
        space INTEGER NOT NULL REFERENCES spaces,
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
    CREATE INDEX promotion_log_by_memory ON promotion_log (space, memory_id);
    CREATE INDEX promotion_log_by_target ON promotion_log (space, merged_into) WHERE merged_into IS NOT NULL;

    CREATE TABLE runs (
        space INTEGER NOT NULL REFERENCES spaces,
        run_id TEXT NOT NULL,
        kind TEXT NOT NULL,
        session_id TEXT NOT NULL,
        began_at REAL NOT NULL,
        undone_at REAL,
        PRIMARY KEY (space, run_id)
    ) WITHOUT ROWID;

    -- For the user: the projects in which a pattern was observed.
    CREATE TABLE cross_project_patterns (
        space INTEGER NOT NULL REFERENCES spaces,
        memory_id TEXT NOT NULL,
        source_projects TEXT NOT NULL,
        observation_count INTEGER NOT NULL,
        first_observed REAL NOT NULL,
        last_observed REAL NOT NULL,
        PRIMARY KEY (space, memory_id)
    ) WITHOUT ROWID;

    -- Derived: communities of the entity graph, and the entities in each, the best connected first.
    CREATE TABLE topics (
        number INTEGER PRIMARY KEY,
        space INTEGER NOT NULL REFERENCES spaces,
        label TEXT NOT NULL,
        entities TEXT NOT NULL,
        found_at REAL NOT NULL
    );
    CREATE INDEX topics_by_space ON topics (space, number);

    -- When maintenance (`maintenance`) was done.
    CREATE TABLE maintenance (
        space INTEGER NOT NULL REFERENCES spaces,
        what TEXT NOT NULL,
        done_at REAL NOT NULL,
        PRIMARY KEY (space, what)
    ) WITHOUT ROWID;

    -- For a shared lane: its mark in the journal, the time of the newest entry and, for each erased memory, the
    -- newest entry that quotes or erased it.
    CREATE TABLE lane (
        space INTEGER PRIMARY KEY REFERENCES spaces, journal TEXT NOT NULL, position INTEGER NOT NULL,
        entry_id TEXT NOT NULL, applied_at REAL NOT NULL
    );
    CREATE TABLE lane_erasures (
        space INTEGER NOT NULL REFERENCES spaces, memory_id TEXT NOT NULL, position INTEGER NOT NULL,
        PRIMARY KEY (space, memory_id)
    ) WITHOUT ROWID;

@PASSAGES
    -- The catalogue: the path from which a project's id is derived, the working tree and time of its last session; the
    -- decisions about models; the lanes of the projects and the user that share.
    CREATE TABLE projects (
        id TEXT PRIMARY KEY, path TEXT NOT NULL, created_at REAL NOT NULL, last_used_at REAL NOT NULL, directory TEXT
    ) WITHOUT ROWID;
    CREATE TABLE models (number INTEGER PRIMARY KEY CHECK (number = 1), state BLOB NOT NULL);
    CREATE TABLE shares (name TEXT PRIMARY KEY, lane TEXT NOT NULL) WITHOUT ROWID;
    -- The few memories that every context and every unanswered question needs, with all columns that order them.
    CREATE INDEX memories_standing ON memories (
        space, kind, scope, session_id, forgotten_at, importance, occurred_at, created_at, due, done
    ) WHERE @STANDING;
    """.replace("@PASSAGES", PASSAGES).replace("@STANDING", STANDING_KINDS),
    ),
)

OWNED: Final = (
    *("passages", "embedded", "memories", "tallies", "entities", "history", "erased", "applied_operations", "sessions"),
    *("proposals", "tool_calls", "turns", "promotion_log", "runs", "cross_project_patterns", "topics", "maintenance"),
    *("lane", "lane_erasures"),
)
"""The tables with a `space` column. The rows of all other tables depend on their rows."""

FULL_TEXTS: Final = """
    -- The words of a space's memories, and of its entities' names, split by `name_words`.
    CREATE VIRTUAL TABLE words_@SPACE USING fts5 (
        content, tags, summary, parts, content = '', tokenize = 'porter unicode61'
    );
    CREATE VIRTUAL TABLE names_@SPACE USING fts5 (words, tokenize = 'porter unicode61');
"""
"""The full-text tables of a space, whose number replaces `@SPACE`. They are written together with the rows."""


def make_space(connection: sqlite3.Connection, name: str) -> int:
    """Return the number of a space, creating it and its full-text tables if needed. Must run inside a transaction."""
    found = connection.execute("SELECT number FROM spaces WHERE name = ?", (name,)).fetchone()
    if found is not None:
        return int(found[0])
    number = connection.execute("INSERT INTO spaces (name) VALUES (?)", (name,)).lastrowid
    assert number is not None
    for statement in statements_of(FULL_TEXTS.replace("@SPACE", str(number))):
        connection.execute(statement)
    return number


def fill_full_texts(connection: sqlite3.Connection, space: int) -> None:
    connection.execute(
        f"""INSERT INTO words_{space} (rowid, content, tags, summary, parts)
            SELECT number, content, tags, summary, parts FROM memories WHERE space = ?""",  # noqa: S608 - a number
        (space,),
    )
    named = connection.execute("SELECT number, name FROM entities WHERE space = ?", (space,)).fetchall()
    words = ((number, name_words(entity)) for number, entity in named)
    connection.executemany(f"INSERT INTO names_{space} (rowid, words) VALUES (?, ?)", words)  # noqa: S608 - a number


def recount(connection: sqlite3.Connection) -> None:
    """Rebuild the data derived from a database's rows: counts, and the full-text tables of each space."""
    sort = "space, scope, type, forgotten_at IS NOT NULL"
    connection.execute("DELETE FROM tallies")
    connection.execute(f"INSERT INTO tallies SELECT {sort}, count(*) FROM memories GROUP BY {sort}")  # noqa: S608
    connection.execute("UPDATE embedded SET memories = 0")
    connection.execute(
        """INSERT INTO embedded (space, model, memories) SELECT space, model, count(*) FROM passages
           WHERE ordinal = 0 GROUP BY space, model ON CONFLICT DO UPDATE SET memories = excluded.memories"""
    )
    for (space,) in connection.execute("SELECT number FROM spaces").fetchall():
        for table in (f"words_{space}", f"names_{space}"):
            connection.execute(f"DROP TABLE IF EXISTS {table}")
        for statement in statements_of(FULL_TEXTS.replace("@SPACE", str(space))):
            connection.execute(statement)
        fill_full_texts(connection, space)
