"""The spaces of a database. Each reads only its own rows, and a write goes through a single space.

A statement selects its space with `space = @SPACE`, which becomes `IN` if several are read together. The number is
inserted into the statement, since the names of a space's full-text tables (`words_@SPACE`) cannot be arguments. SQLite
refuses a statement that still contains `@SPACE`: full-text tables are queried one by one, or by `for_each`.
"""

import contextlib
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from remembrancer.actors.sqlite_file import Query, SqliteFile
from remembrancer.actors.store.records.schema import OWNED, make_space
from remembrancer.actors.store.records.types import SOON_TOLD_S
from remembrancer.memory.decay import DAY_S

Arguments = Sequence[object] | Mapping[str, object]


def _of_spaces(*numbers: int) -> tuple[str, str]:
    if len(numbers) == 1:
        return "@SPACE", str(numbers[0])
    return "= @SPACE", f"IN ({', '.join(map(str, numbers))})"


class SpaceConnection:
    """A connection whose statements apply to one space or, for reading, to several."""

    def __init__(self, connection: sqlite3.Connection, *numbers: int) -> None:
        self.connection = connection
        self._spaces = _of_spaces(*numbers)

    def execute(self, statement: str, arguments: Arguments = ()) -> sqlite3.Cursor:
        return self.connection.execute(statement.replace(*self._spaces), arguments)

    def executemany(self, statement: str, rows: Sequence[Arguments]) -> sqlite3.Cursor:
        return self.connection.executemany(statement.replace(*self._spaces), rows)

    def query(self, statement: str, arguments: Arguments = ()) -> list[Any]:
        return self.execute(statement, arguments).fetchall()


def visible(alias: str = "m", session: str = "?") -> str:
    """The condition under which a viewer may see a memory. Nothing else isolates memories, so every read must include
    it. `session` is the placeholder for the session's id."""
    return f"+{alias}.space = @SPACE AND {shown_to(alias, session)}"


def shown_to(alias: str = "m", session: str = "?") -> str:
    """Like `visible`, for a memory that must be in one of the spaces, because another memory there refers to it."""
    return f"({alias}.scope != 'session' OR {alias}.session_id = {session})"


def is_newer(one: str, other: str) -> str:
    """The condition that one memory is newer than another (both are aliases): `AgeKey` in SQL."""
    age = f"""coalesce(max({{0}}.occurred_at, min({{0}}.created_at, {{0}}.occurred_at + iif({{1}}.occurred_at IS NULL,
        {SOON_TOLD_S}, {DAY_S} * ({{0}}.occurred_at % {DAY_S} = 0)))), {{0}}.created_at)"""
    return " > ".join(f"({age.format(*pair)}, {pair[0]}.number)" for pair in ((one, other), (other, one)))


DOUBTS: Final = """(WITH RECURSIVE doubts(other, strength) AS (
        SELECT source, strength FROM memory_links WHERE target = m.number AND relation = 'contradicts'
        UNION SELECT source, doubts.strength FROM doubts
        JOIN memory_links ON target = other AND relation = 'supersedes')
    SELECT other, strength FROM doubts
    UNION ALL SELECT target, strength FROM memory_links WHERE source = m.number AND relation = 'contradicts')"""
"""The memories that possibly replace `m`, or have replaced one that does; or those that `m` possibly replaces."""
APART: Final = "memories AS a INDEXED BY memories_apart"
"""The memories that are forgotten, no longer valid, or private to a session, read through a small index."""


class Spaces:
    """Spaces that are read together, possibly none; or a single space, which can also be written."""

    def __init__(self, file: SqliteFile, numbers: Sequence[int]) -> None:
        self.file = file
        self.numbers = tuple(numbers)
        self.commits = 0
        self._spaces = _of_spaces(*numbers)

    def for_each(self, statement: str) -> str:
        """Repeat a statement with numbered arguments for each space, since full-text tables are queried one by one."""
        numbers = self.numbers or (0,)  # no space has the number 0
        return " UNION ALL ".join(statement.replace("@SPACE", str(number)) for number in numbers)

    def read(self, query: str, arguments: Arguments = ()) -> list[Any]:
        return self.file.read(query.replace(*self._spaces), arguments)

    @contextlib.contextmanager
    def reading(self) -> Iterator[Query]:
        with self.file.reading() as connection:
            yield SpaceConnection(connection, *self.numbers).query

    @contextlib.contextmanager
    def transaction(self, *, durable: bool = True, is_access: bool = False) -> Iterator[SpaceConnection]:
        with self.file.transaction(durable=durable, is_access=is_access) as connection:
            yield SpaceConnection(connection, *self.numbers)
        self.commits += 1


def number_of_space(file: SqliteFile, name: str) -> int:
    """The number of a space, which is created if it is missing."""
    known = file.read("SELECT number FROM spaces WHERE name = ?", (name,))
    if known:
        return int(known[0][0])
    with file.transaction() as connection:
        return make_space(connection, name)


def empty_space(connection: SpaceConnection) -> None:
    connection.execute("INSERT INTO words_@SPACE (words_@SPACE) VALUES ('delete-all')")
    connection.execute("DELETE FROM names_@SPACE")
    for table in OWNED:  # rows that depend on these are deleted with them
        connection.execute(f"DELETE FROM {table} WHERE space = @SPACE")  # noqa: S608 - our names


def drop_space(connection: SpaceConnection) -> None:
    empty_space(connection)
    connection.execute("DROP TABLE words_@SPACE")
    connection.execute("DROP TABLE names_@SPACE")
    connection.execute("DELETE FROM spaces WHERE number = @SPACE")
