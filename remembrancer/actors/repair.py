"""Rebuilds a sound database from a damaged one and an earlier copy: from the rows that can still be read, and in the
gaps between them the rows of the copy."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from types import NoneType
from typing import Any, Final, NamedTuple

from remembrancer.actors.salvage import Gap, Key, Pages, Salvage, Tree, Value, owners_of
from remembrancer.protocol.errors import RecordsUnusable
from remembrancer.protocol.paths import delete_database, sync_directory

NAMES: Final = ("id", "memory_id")
"""The columns that identify a row to a person; if it has neither, its key does."""
LEFT_OUT: Final = ("sqlite_schema", "sqlite_temp_schema")
SEQUENCES: Final = "sqlite_sequence"
MANY_GAPS: Final = 200
"""With more gaps a condition becomes too long for SQLite, so everything between the first and the last counts as
one."""
ANY: Final = (int, float, str, bytes, NoneType)
TYPES: Final = {
    "INT": (int, float, NoneType),
    "TEXT": (str, NoneType),
    "REAL": (int, float, NoneType),
    "BLOB": (bytes, NoneType),
}
"""Types by a word in the declared type of a column."""
_FULL_TEXTS: Final = """SELECT name FROM sqlite_schema
    WHERE sql LIKE 'CREATE VIRTUAL TABLE%USING fts5%' AND sql NOT LIKE '%content = ''''%'"""
"""Full-text tables that can be rebuilt from their own content or from the table that they refer to."""


class RowName(NamedTuple):
    """A row as named to a person: its table, and its id or key."""

    table: str
    name: str


@dataclass
class Repaired:
    """The outcome: the number of rows read from the damaged file; those found only in the copy, with the content of
    that time; the lost ones, as far as an index of the file still names them; and the tables that may lack further,
    unknown rows."""

    read: int = 0
    from_copy: list[RowName] = field(default_factory=list)
    lost: list[RowName] = field(default_factory=list)
    incomplete: list[str] = field(default_factory=list)


class _Table(NamedTuple):
    """A table. `columns` are in storage order; `rowid` is the column that is the rowid, or a name of it, None if there
    is none."""

    name: str
    columns: tuple[str, ...]
    key: tuple[str, ...]
    rowid: str | None
    tree: Tree
    indexes: dict[Tree, tuple[tuple[str | None, ...], bool]]
    """The columns of each index followed by the key (None for an expression), and True for a partial one."""
    is_read: bool


def is_damaged(path: Path) -> bool:
    """True if SQLite finds damage in a file, or some pages are all zeros: SQLite does not notice all of these."""
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
            if connection.execute("PRAGMA quick_check(1)").fetchone()[0] != "ok":
                return True
    except (sqlite3.Error, UnicodeDecodeError):
        return True
    return bool(Pages(path).zeroed())


Work = Callable[[sqlite3.Connection], None]


def rebuild(damaged: Path, copy: Path | None, target: Path, lay_out: Work, recount: Work) -> Repaired:
    """Write a sound database to `target`, durably. The damaged one and the copy are only read.

    `lay_out` brings a copy, or an empty database, to the schema. `recount` rebuilds data derived from rows: counts and
    full texts.

    Raises:
        RecordsUnusable: it would not be sound.
        OSError: it cannot be written.
    """
    try:
        return _rebuild(damaged, copy, target, lay_out, recount)
    except sqlite3.Error as error:
        raise OSError(str(error)) from error


def _rebuild(damaged: Path, copy: Path | None, target: Path, lay_out: Work, recount: Work) -> Repaired:
    fresh = target.with_name(f"{target.name}.new")
    delete_database(fresh)
    pages = Pages(damaged)
    if copy is not None:
        shutil.copyfile(copy, fresh)
        fresh.chmod(0o600)
    else:
        os.close(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    with closing(sqlite3.connect(fresh, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
        connection.execute("PRAGMA foreign_keys = OFF")
        roots = _roots(connection)
        owners = owners_of(Pages(fresh), trees_of(connection))
        lay_out(connection)
        connection.execute("PRAGMA foreign_keys = OFF")
        connection.execute("BEGIN")
        done = _merge(connection, Salvage(pages, owners), roots)
        recount(connection)
        connection.execute("COMMIT")
        said = connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
        if said != "ok":
            raise RecordsUnusable(f"{damaged} could not be made whole ({said}): please report this")
    with fresh.open("rb") as written:
        os.fsync(written.fileno())
    fresh.replace(target)
    sync_directory(target.parent)
    return done


def _merge(connection: sqlite3.Connection, salvage: Salvage, roots: dict[str, int]) -> Repaired:
    """Put the rows of the damaged file into a copy. `roots` are the copy's, for use if the file's are unreadable."""
    own = {str(name): root for _, name, _, root, _ in salvage.schema() if isinstance(root, int) and root > 0}
    tables = _tables(connection, roots | own)
    salvage.follow(_trees(tables))
    triggers = connection.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'").fetchall()
    for name, _ in triggers:
        connection.execute(f"DROP TRIGGER {name}")
    done = Repaired()
    of_copy = {table.name: _merge_table(connection, table, salvage) for table in tables if table.is_read}
    for table in tables:
        if table.name in of_copy:
            done.read += of_copy[table.name].read
            _compare_with_indexes(connection, table, salvage, of_copy[table.name].keys, done)
    drop_dangling(connection)
    for (name,) in connection.execute(_FULL_TEXTS).fetchall():
        connection.execute(f"INSERT INTO {name} ({name}) VALUES ('rebuild')")  # noqa: S608
    for _, sql in triggers:
        connection.execute(sql)
    return done


class _Merged(NamedTuple):
    read: int
    keys: set[Key]
    """The keys of the rows that come from the copy."""


def _merge_table(connection: sqlite3.Connection, table: _Table, salvage: Salvage) -> _Merged:
    """Replace a table's rows by those that were read, and keep the copy's rows in the gaps."""
    where, values = _within(table.key, salvage.gaps[table.name])
    connection.execute(f"DELETE FROM {table.name} WHERE NOT ({where})", values)  # noqa: S608 - names of a schema of ours
    of_copy = _keys(connection, table)
    read = 0
    for row in salvage.rows(table.tree):
        named = dict(zip(table.columns, row.values, strict=False))
        if table.rowid is not None:
            named[table.rowid] = row.key[0]
        statement = f"INSERT OR REPLACE INTO {table.name} ({', '.join(named)}) VALUES ({', '.join('?' * len(named))})"  # noqa: S608
        try:
            connection.execute(statement, list(named.values()))
        except sqlite3.IntegrityError:  # such a row was never written: its page is damaged
            continue
        read += 1
        of_copy.discard(row.key)
    return _Merged(read, of_copy)


def _within(key: tuple[str, ...], gaps: list[Gap]) -> tuple[str, list[Value]]:
    """The condition for keys in one of these gaps, and its values."""
    if len(gaps) > MANY_GAPS:
        gaps = [Gap(gaps[0].after, gaps[-1].before)]
    columns, places = f"({', '.join(key)})", f"({', '.join('?' * len(key))})"
    conditions, values = list[str](), list[Value]()
    for gap in gaps:
        bounds = [(sign, bound) for sign, bound in ((">", gap.after), ("<", gap.before)) if bound is not None]
        conditions.append(" AND ".join(f"{columns} {sign} {places}" for sign, _ in bounds) or "1")
        values += [value for _, bound in bounds for value in bound]
    return " OR ".join(f"({each})" for each in conditions) or "0", values


def _compare_with_indexes(
    connection: sqlite3.Connection, table: _Table, salvage: Salvage, of_copy: set[Key], done: Repaired
) -> None:
    """Use the indexes of a damaged table to find lost rows, and drop rows deleted after the copy."""
    if not salvage.gaps[table.name]:
        return
    present = _keys(connection, table)
    indexed: dict[Key, dict[str | None, Value]] = {}
    is_known = False
    for index, (columns, is_partial) in table.indexes.items():
        is_whole = not is_partial and not salvage.gaps[index.name]
        is_known = is_known or is_whole
        in_index = set[Key]()
        for row in salvage.rows(index):
            named = dict(zip(columns, row.values, strict=False))
            key = tuple(named.get(column) for column in table.key)
            in_index.add(key)
            if key not in present:
                indexed.setdefault(key, {}).update(named)
        for key in of_copy - in_index if is_whole else ():
            where = " AND ".join(f"{column} = ?" for column in table.key)
            connection.execute(f"DELETE FROM {table.name} WHERE {where}", key)  # noqa: S608
            of_copy.discard(key)
    name = next((column for column in NAMES if column in table.columns), None)
    done.lost += [RowName(table.name, _name(key, named.get(name))) for key, named in indexed.items()]
    for key in of_copy:
        where = " AND ".join(f"{column} = ?" for column in table.key)
        row = connection.execute(f"SELECT {name or 'NULL'} FROM {table.name} WHERE {where}", key).fetchone()  # noqa: S608
        done.from_copy.append(RowName(table.name, _name(key, row and row[0])))
    if not is_known:
        done.incomplete.append(table.name)


def _name(key: Key, name: Value) -> str:
    return str(name) if name is not None else ", ".join(map(str, key))


def _keys(connection: sqlite3.Connection, table: _Table) -> set[Key]:
    return set(connection.execute(f"SELECT {', '.join(table.key)} FROM {table.name}"))  # noqa: S608


def drop_dangling(connection: sqlite3.Connection) -> None:
    """Treat dangling references as if the rows that they refer to had been deleted."""
    tables = connection.execute(
        "SELECT name FROM pragma_table_list WHERE schema = 'main' AND type = 'table'"
    ).fetchall()
    while sum(_drop_dangling_in(connection, table) for (table,) in tables):
        pass


def _drop_dangling_in(connection: sqlite3.Connection, table: str) -> int:
    changed = 0
    keys: dict[int, list[tuple[Any, ...]]] = {}
    for key in connection.execute(f"PRAGMA foreign_key_list({table})").fetchall():
        keys.setdefault(key[0], []).append(key)
    for columns in keys.values():
        _, _, parent, column, _, _, on_delete, _ = columns[0]
        primary = [
            about[1] for about in sorted(_about(connection, parent), key=lambda about: int(about[5])) if about[5]
        ]
        same = [f"parent.{to or primary[place]} = {table}.{own}" for _, place, _, own, to, *_ in columns]
        known = " AND ".join([f"{table}.{own} IS NOT NULL" for _, _, _, own, *_ in columns])
        change = f"UPDATE {table} SET {column} = NULL" if on_delete == "SET NULL" else f"DELETE FROM {table}"  # noqa: S608
        missing = f"NOT EXISTS (SELECT 1 FROM {parent} AS parent WHERE {' AND '.join(same)})"  # noqa: S608
        changed += connection.execute(f"{change} WHERE {known} AND {missing}").rowcount
    return changed


# --- the trees of a schema ---


def trees_of(connection: sqlite3.Connection) -> list[Tree]:
    """The tables and indexes of a sound database."""
    return _trees(_tables(connection, _roots(connection)))


def _trees(tables: Sequence[_Table]) -> list[Tree]:
    return [tree for table in tables for tree in (table.tree, *table.indexes)]


def _roots(connection: sqlite3.Connection) -> dict[str, int]:
    return dict(connection.execute("SELECT name, rootpage FROM sqlite_schema WHERE rootpage > 0").fetchall())


def _tables(connection: sqlite3.Connection, roots: Mapping[str, int]) -> list[_Table]:
    """The tables of a database. Of a full-text table only the content is read: the rest is derived from it."""
    found = [
        _table(connection, name, without_rowid, roots, is_read=kind == "table" or name.endswith("_content"))
        for _, name, kind, _, without_rowid, _ in connection.execute("PRAGMA table_list").fetchall()
        if kind in ("table", "shadow") and name not in LEFT_OUT and not name.startswith("sqlite_stat")
    ]
    return sorted(found, key=lambda table: table.name == SEQUENCES)  # triggers maintain the others


def _table(
    connection: sqlite3.Connection, name: str, without_rowid: bool, roots: Mapping[str, int], *, is_read: bool
) -> _Table:
    about = _about(connection, name)
    rowid = None if without_rowid else _rowid_of(about)
    types = {column: _types_of(kind, not_null) for _, column, kind, not_null, _, _ in about}
    if rowid in types:
        types[rowid] = (NoneType,)
    columns, key = tuple(types), (rowid or "",)
    indexes: dict[Tree, tuple[tuple[str | None, ...], bool]] = {}
    for _, index, _, origin, is_partial in connection.execute(f"PRAGMA index_list({name})").fetchall():
        of_index = connection.execute(f"PRAGMA index_xinfo({index})").fetchall()
        if without_rowid and origin == "pk":
            columns = tuple(each[2] for each in of_index)
            key = tuple(each[2] for each in of_index if each[5])
            continue
        stored = tuple(rowid if number == -1 else column for _, number, column, *_ in of_index)
        shapes = tuple((int,) if column == rowid else types.get(column or "", ANY) for column in stored)
        indexes[Tree(index, roots.get(index, 0), len(stored), shapes)] = stored, bool(is_partial)
    tree = Tree(name, roots.get(name, 0), len(key) if without_rowid else 0, tuple(types[each] for each in columns))
    return _Table(name, columns, key, rowid, tree, indexes, is_read)


def _about(connection: sqlite3.Connection, table: str) -> list[tuple[Any, ...]]:
    return connection.execute(f"PRAGMA table_info({table})").fetchall()


def _rowid_of(about: Sequence[tuple[Any, ...]]) -> str:
    """The column that is the rowid, by the rule of https://sqlite.org/lang_createtable.html#rowid, or `rowid`."""
    keys = [(column, kind) for _, column, kind, _, _, place in about if place]
    return keys[0][0] if len(keys) == 1 and keys[0][1].upper() == "INTEGER" else "rowid"


def _types_of(declared: str, not_null: int) -> tuple[type, ...]:
    """The types that values of a column with this declared type can have."""
    types = next((types for word, types in TYPES.items() if word in declared.upper()), ANY)
    return tuple(each for each in types if not (not_null and each is NoneType))
