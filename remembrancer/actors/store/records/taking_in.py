"""Files of records of release 0.2.0, taken into the database."""

from __future__ import annotations

import sqlite3
from pathlib import Path


def take_in(connection: sqlite3.Connection, source: Path, name: str) -> int:
    """Copy all rows of a file of records into a space. Inside a transaction."""
    raise NotImplementedError(name)
