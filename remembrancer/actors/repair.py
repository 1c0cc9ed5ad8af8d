"""Rebuilds a sound database from the readable rows of a damaged one, and takes the rest from an earlier copy."""

import os
import shutil
import sqlite3
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any, Final, NamedTuple

from remembrancer.protocol.errors import RecordsUnusable
from remembrancer.protocol.paths import delete_database, move_into_place

NAMES: Final = ("id", "memory_id")
"""The columns that identify a row to a person. Rows without these columns are identified by their keys."""
SEQUENCES: Final = "sqlite_sequence"
PAGE_BYTES: Final = 4096
"""SQLite's default."""

Key = tuple[Any, ...]
Work = Callable[[sqlite3.Connection], None]


class RowName(NamedTuple):
    """The table of a row, and the id or key that identifies it to a person."""

    table: str
    name: str


@dataclass
class Repaired:
    """The outcome: the number of rows read from the damaged file; rows found only in the copy, as they were when it was
    made; lost rows that an index of the file still lists; and tables that may have lost further rows."""

    read: int = 0
    from_copy: list[RowName] = field(default_factory=list)
    lost: list[RowName] = field(default_factory=list)
    incomplete: list[str] = field(default_factory=list)


class _Table(NamedTuple):
    """A table. `key` is its primary key, or the name of the column that is the rowid. `indexes` are its indexes without
    expressions: the columns of each, and True for a partial index."""

    name: str
    columns: tuple[str, ...]
    key: tuple[str, ...]
    has_rowid: bool
    indexes: dict[str, tuple[tuple[str, ...], bool]]

    @property
    def name_column(self) -> str | None:
        return next((column for column in NAMES if column in self.columns), None)


def rebuild(damaged: Path, copy: Path | None, target: Path, lay_out: Work, recount: Work) -> Repaired:
    """Write a sound database to `target`. `lay_out` brings a copy or an empty database up to the current schema;
    `recount` rebuilds derived data. Raises `RecordsUnusable` if the result would not be sound, or `OSError`."""
    fresh, scratch = (target.with_name(f"{target.name}.{word}") for word in ("new", "reading"))
    try:
        delete_database(fresh)
        fresh.touch(mode=0o600, exist_ok=False)
        if copy is not None:
            shutil.copyfile(copy, fresh)
        done = Repaired()
        with closing(sqlite3.connect(fresh, isolation_level=None)) as connection:
            connection.execute("PRAGMA journal_mode = DELETE")
            lay_out(connection)
            connection.execute("PRAGMA foreign_keys = OFF")
            roots = _roots(connection) | _make_readable(damaged, fresh, scratch)
            connection.execute("BEGIN")
            triggers = connection.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'").fetchall()
            for name, _ in triggers:
                connection.execute(f"DROP TRIGGER {name}")
            for table in _tables(connection):
                with closing(_opened(scratch, table, roots)) as source:
                    _merge_table(connection, table, source, scratch, done)
            drop_dangling(connection)
            for _, sql in triggers:
                connection.execute(sql)
            recount(connection)
            connection.execute("COMMIT")
            outcome = connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
            if outcome != "ok":
                raise RecordsUnusable(f"{damaged} could not be repaired ({outcome}): please report this")
        move_into_place(fresh, target)
    except sqlite3.Error as error:
        raise OSError(str(error)) from error
    finally:
        delete_database(scratch)
    return done


# --- Reading a damaged file.


def _make_readable(damaged: Path, fresh: Path, scratch: Path) -> dict[str, int]:
    """Copy a damaged file with its log, and return the root pages of the tables and indexes that can still be read. If
    the first page is unreadable, the first page of the new database replaces it."""
    delete_database(scratch)
    scratch.touch(mode=0o600, exist_ok=False)
    for suffix in ("", "-wal"):
        source = damaged.with_name(damaged.name + suffix)
        if source.is_file():
            shutil.copyfile(source, scratch.with_name(scratch.name + suffix))
    for page in (None, fresh.read_bytes()[:PAGE_BYTES]):
        if page is not None:
            _put_first_page(scratch, page)
        with suppress(sqlite3.Error, UnicodeDecodeError), closing(_connect(scratch)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            connection.execute("PRAGMA journal_mode = DELETE")
            return _roots(connection)
    return {}


def _put_first_page(path: Path, page: bytes) -> None:
    """Replace the first page of a database. The new page gives the right file size, and lists no unused pages."""
    pages = path.stat().st_size // PAGE_BYTES
    header = bytearray(page)
    header[28:40] = pages.to_bytes(4) + bytes(8)
    header[92:96] = header[24:28]  # marks the size as valid
    with path.open("r+b") as file:
        file.write(header)


def _opened(scratch: Path, table: _Table, roots: Mapping[str, int]) -> sqlite3.Connection:
    """Open a damaged file with a first page that describes only one table, as `t`: the schema may be damaged."""
    columns = list(table.columns)
    if table.has_rowid and table.key[0] in columns:
        columns[columns.index(table.key[0])] += " INTEGER PRIMARY KEY"
    elif not table.has_rowid:
        columns.append(f"PRIMARY KEY ({', '.join(table.key)})")
    names = {"t": table.name} | {f"i{place}": name for place, name in enumerate(table.indexes)}
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as outline:
        outline.execute(f"CREATE TABLE t ({', '.join(columns)}){'' if table.has_rowid else ' WITHOUT ROWID'}")
        for place, (indexed, _) in enumerate(table.indexes.values()):
            outline.execute(f"CREATE INDEX i{place} ON t ({', '.join(indexed)})")
        outline.execute("PRAGMA writable_schema = ON")
        for alias, name in names.items():
            outline.execute("UPDATE sqlite_schema SET rootpage = ? WHERE name = ?", (roots.get(name, 0), alias))
        _put_first_page(scratch, outline.serialize()[:PAGE_BYTES])
    return _connect(scratch, "?mode=ro&immutable=1")


def _connect(path: Path, mode: str = "") -> sqlite3.Connection:
    return sqlite3.connect(f"{path.absolute().as_uri()}{mode}", uri=True, isolation_level=None)


def _roots(connection: sqlite3.Connection) -> dict[str, int]:
    return dict(connection.execute("SELECT name, rootpage FROM sqlite_schema WHERE rootpage > 0").fetchall())


def _sort_key(key: Key) -> list[tuple[str, Any]]:
    """A key for sorting, since values in damaged keys may have the wrong types."""
    return [(type(value).__name__, value) for value in key]


def _rows(
    source: sqlite3.Connection, table: _Table, known: Collection[Key], faults: list[sqlite3.Error]
) -> Iterator[tuple[Key, Key]]:
    """Yield the keys and columns of all readable rows, and add the errors of other rows to `faults`. After damage,
    reading continues at the next key known to be readable, and finally backwards from the end."""
    key, places = ", ".join(table.key), ", ".join("?" * len(table.key))
    select = f"SELECT {key}, {', '.join(table.columns)} FROM t NOT INDEXED"  # noqa: S608 - names of a schema of ours
    last: Key | None = None

    def read(condition: str, values: Key, order: str = "ASC") -> Iterator[tuple[Key, Key]]:
        ordered = ", ".join(f"{column} {order}" for column in table.key)
        for row in source.execute(f"{select} WHERE {condition} ORDER BY {ordered}", values):
            if _has_empty_page(row):
                raise sqlite3.DatabaseError("the last page of a long row is empty")
            yield row[: len(table.key)], row[len(table.key) :]

    for start in (None, *sorted(known, key=_sort_key)):
        if start is not None and last is not None and _sort_key(start) <= _sort_key(last):
            continue
        try:
            for found in read("TRUE" if start is None else f"({key}) >= ({places})", start or ()):
                last = found[0]
                yield found
        except sqlite3.Error as error:
            faults.append(error)
        else:
            return
    with suppress(sqlite3.Error):
        yield from read("TRUE" if last is None else f"({key}) > ({places})", last or (), "DESC")


def _may_exist(source: sqlite3.Connection, table: _Table, key: Key) -> bool:
    """True if there is a row with this key, or if damage may be hiding one."""
    where = " AND ".join(f"{column} = ?" for column in table.key)
    try:
        return bool(source.execute(f"SELECT * FROM t NOT INDEXED WHERE {where}", key).fetchall())  # noqa: S608
    except sqlite3.Error:
        return True


def _indexed(source: sqlite3.Connection, table: _Table) -> tuple[dict[Key, Any], list[set[Key]]]:
    """Return the keys in the readable parts of a table's indexes, with the names of the rows if an index contains them;
    and the keys in each index that covers all rows and was read to its end."""
    names: dict[Key, Any] = {}
    whole: list[set[Key]] = []
    for place, (columns, is_partial) in enumerate(table.indexes.values()):
        name = table.name_column if table.name_column in (*columns, *table.key) else None
        select = f"SELECT {', '.join(table.key)}, {name or 'NULL'} FROM t INDEXED BY i{place}"  # noqa: S608
        for order in ("ASC", "DESC"):  # after damage, also from the other end
            ordered = ", ".join(f"{column} {order}" for column in columns)
            keys = set[Key]()
            with suppress(sqlite3.Error, UnicodeDecodeError):
                for *values, row_name in source.execute(f"{select} ORDER BY {ordered}"):
                    keys.add(tuple(values))
                    names[tuple(values)] = names.get(tuple(values)) or row_name
                if not is_partial:
                    whole.append(keys)
                break
    return names, whole


def _rows_of_leaves(scratch: Path, table: _Table, names: Mapping[Key, Any]) -> Iterator[tuple[Key, Key]]:
    """Yield the rows with these keys and names from all leaf pages, even those below a damaged page: a leaf page is
    also a valid root, so each one is read as if it were the whole table. Rows of other tables do not match."""
    if table.name_column is None:
        return
    leaf_kind = 13 if table.has_rowid else 10  # https://sqlite.org/fileformat.html#b_tree_pages
    name = len(table.key) + table.columns.index(table.name_column)
    select = f"SELECT {', '.join((*table.key, *table.columns))} FROM t NOT INDEXED"  # noqa: S608
    with scratch.open("rb") as file:
        starts = range(PAGE_BYTES, scratch.stat().st_size, PAGE_BYTES)  # the first page contains the schema
        leaves = [start // PAGE_BYTES + 1 for start in starts if os.pread(file.fileno(), 1, start)[0] == leaf_kind]
    for page in leaves:
        with (
            suppress(sqlite3.Error, UnicodeDecodeError),
            closing(_opened(scratch, table._replace(indexes={}), {table.name: page})) as leaf,
        ):
            for row in leaf.execute(select):
                key = row[: len(table.key)]
                if names.get(key) is not None and names[key] == row[name] and not _has_empty_page(row):
                    yield key, row[len(table.key) :]


def _has_empty_page(row: Key) -> bool:
    """True if the last page of a long row is empty."""
    return any(isinstance(value, str) and value.endswith("\0") for value in row)


# --- Merging.


def _merge_table(
    connection: sqlite3.Connection, table: _Table, source: sqlite3.Connection, scratch: Path, done: Repaired
) -> None:
    """Merge the readable rows into the copy, whose other rows stay, unless an index shows that they were deleted."""
    key = ", ".join(table.key)
    of_copy = set(connection.execute(f"SELECT {key} FROM {table.name}"))  # noqa: S608
    indexed, whole = _indexed(source, table)
    faults: list[sqlite3.Error] = []
    read = _insert(connection, table, _rows(source, table, of_copy | indexed.keys(), faults))
    if unread := {row_key: name for row_key, name in indexed.items() if row_key not in read}:
        read |= _insert(connection, table, _rows_of_leaves(scratch, table, unread))
    done.read += len(read)
    where = " AND ".join(f"{column} = ?" for column in table.key)
    for row_key in of_copy - read:
        if all(row_key in keys for keys in whole) and _may_exist(source, table, row_key):
            name = f"SELECT {table.name_column or 'NULL'} FROM {table.name} WHERE {where}"  # noqa: S608
            ((value,),) = connection.execute(name, row_key).fetchall()
            done.from_copy.append(RowName(table.name, _name(row_key, value)))
        else:
            connection.execute(f"DELETE FROM {table.name} WHERE {where}", row_key)  # noqa: S608
    lost = indexed.keys() - read - of_copy
    done.lost += [RowName(table.name, _name(row_key, indexed[row_key])) for row_key in sorted(lost, key=_sort_key)]
    if faults and not whole:
        done.incomplete.append(table.name)


def _insert(connection: sqlite3.Connection, table: _Table, rows: Iterator[tuple[Key, Key]]) -> set[Key]:
    inserted = set[Key]()
    for row_key, values in rows:
        named = dict(zip(table.key, row_key, strict=True)) | dict(zip(table.columns, values, strict=True))
        named = {column: value for column, value in named.items() if value is not None}  # the others get their defaults
        statement = f"INSERT OR REPLACE INTO {table.name} ({', '.join(named)}) VALUES ({', '.join('?' * len(named))})"  # noqa: S608
        with suppress(sqlite3.IntegrityError):  # the row was never written: its page is damaged
            connection.execute(statement, list(named.values()))
            inserted.add(row_key)
    return inserted


def _name(key: Key, name: object) -> str:
    return str(name) if name is not None else ", ".join(map(str, key))


def _tables(connection: sqlite3.Connection) -> list[_Table]:
    """Full-text tables are omitted, since they are derived. Sequences come last, since inserting rows changes them."""
    listed = connection.execute(
        """SELECT name, NOT wr FROM pragma_table_list
           WHERE schema = 'main' AND type = 'table' AND (name NOT LIKE 'sqlite_%' OR name = ?) ORDER BY name = ?""",
        (SEQUENCES, SEQUENCES),
    ).fetchall()
    return [_table(connection, name, has_rowid=bool(has_rowid)) for name, has_rowid in listed]


def _table(connection: sqlite3.Connection, name: str, *, has_rowid: bool) -> _Table:
    about = connection.execute(f"PRAGMA table_info({name})").fetchall()
    keys = [(place, column, kind) for _, column, kind, _, _, place in about if place]
    key = tuple(column for _, column, _ in sorted(keys))
    if has_rowid:  # by the rule of https://sqlite.org/lang_createtable.html#rowid
        key = key if len(keys) == 1 and keys[0][2].upper() == "INTEGER" else ("rowid",)
    indexes = {}
    for _, index, _, origin, is_partial in connection.execute(f"PRAGMA index_list({name})").fetchall():
        columns = tuple(column for _, _, column in connection.execute(f"PRAGMA index_info({index})"))
        if None not in columns and (has_rowid or origin != "pk"):
            indexes[index] = columns, bool(is_partial)
    return _Table(name, tuple(column for _, column, *_ in about), key, has_rowid, indexes)


_REFERENCES: Final = """SELECT t.name, f.id, f."table", f.on_delete, f."from", coalesce(f."to", p.name)
    FROM pragma_table_list AS t JOIN pragma_foreign_key_list(t.name) AS f
    LEFT JOIN pragma_table_info(f."table") AS p ON p.pk = f.seq + 1
    WHERE t.schema = 'main' AND t.type = 'table' ORDER BY t.name, f.id"""
"""The columns of each foreign key, with the columns that they refer to: by default, those of the primary key."""


def drop_dangling(connection: sqlite3.Connection) -> None:
    """Treat dangling references as if the rows that they refer to had been deleted."""
    statements: list[str] = []
    for (table, _, parent, on_delete), rows in groupby(connection.execute(_REFERENCES).fetchall(), lambda row: row[:4]):
        columns = [(own, to) for *_, own, to in rows]
        change = f"UPDATE {table} SET {columns[0][0]} = NULL" if on_delete == "SET NULL" else f"DELETE FROM {table}"  # noqa: S608
        known = " AND ".join(f"{table}.{own} IS NOT NULL" for own, _ in columns)
        same = " AND ".join(f"parent.{to} = {table}.{own}" for own, to in columns)
        statements.append(f"{change} WHERE {known} AND NOT EXISTS (SELECT 1 FROM {parent} AS parent WHERE {same})")  # noqa: S608
    while sum(connection.execute(each).rowcount for each in statements):
        pass
