"""The files in which release 0.2.0 kept its catalogue."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing

from remembrancer.protocol.paths import RuntimePaths
from tests.operations import PROJECT, REQUESTED_AT


def lay_former_catalogue(paths: RuntimePaths, models: bytes = b"models") -> None:
    """Lay a catalogue with a project that shares the lane `l_one`, and with decisions about models."""
    with closing(sqlite3.connect(paths.catalog)) as connection, connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(
            """CREATE TABLE projects (
                id TEXT PRIMARY KEY, path TEXT NOT NULL, created_at REAL NOT NULL, last_used_at REAL NOT NULL,
                directory TEXT, first_commit TEXT
            ) WITHOUT ROWID"""
        )
        connection.execute("CREATE TABLE models (number INTEGER PRIMARY KEY CHECK (number = 1), state BLOB NOT NULL)")
        connection.execute("CREATE TABLE files (name TEXT PRIMARY KEY) WITHOUT ROWID")
        known = (PROJECT.id, PROJECT.path, REQUESTED_AT, REQUESTED_AT, "/work/tree", "abc")
        connection.execute("INSERT INTO projects VALUES (?, ?, ?, ?, ?, ?)", known)
        connection.execute("INSERT INTO models VALUES (1, ?)", (models,))
        connection.execute("PRAGMA user_version = 20000")
    paths.lanes.mkdir(exist_ok=True)
    paths.shares.write_text(json.dumps({PROJECT.id: "l_one"}))
