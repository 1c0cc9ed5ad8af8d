"""A journal on PostgreSQL, for a team that has one: a row for each entry, and one for each lane, locked by who appends.

An append is one call of a function in the database: it locks the lane's row, compares the caller's mark, looks for the
entries by their ids, and inserts them. So nobody holds the lock over the network, and an append without an answer is
found where it stands. Row-level security lets a member see its own lanes alone; nothing but these functions writes
entries. A notification hints at an append. Nothing is prepared and nothing lasts longer than a statement, so a pooler
may give each statement another connection; it passes no notification on, so who reads behind one looks by itself.

What is scrubbed is gone for readers at once, and from the server's file at its next vacuum, for which one such row is
enough. Write-ahead logs and backups of the server keep the sealed bytes for as long as its operator keeps those.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import secrets
import socket
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlsplit

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from remembrancer.journal.contract import (
    Entry,
    Mark,
    NewEntry,
    Notice,
    Page,
    Snapshot,
    Trimmed,
    check_entries,
    check_name,
)
from remembrancer.journal.server_config import SCHEMA_VERSION, schema
from remembrancer.protocol.errors import (
    EntryDamaged,
    InvalidInput,
    JournalAway,
    JournalChanged,
    JournalRefused,
    RemembrancerError,
    StorageFull,
)

OLDEST_SERVER: Final = 140000
ANSWER_S: Final = 5.0
"""The time that the server may take for one answer."""
RESOLVE_S: Final = 15.0
"""The time that is taken to learn of an append without an answer: longer than the restart of a server."""
POLL_S: Final = 5.0
"""A watch hints so often without a notification."""
SOON_S: Final = 0.2
"""Behind a pooler it hints so often while entries come, and the more seldom the longer none came."""
CALM: Final = 0.1
"""The share of the time without an entry for which it waits then."""
PAGE_BYTES: Final = 4 * 1024 * 1024
PIECE_BYTES: Final = 512 * 1024
PIECES: Final = 8
"""The pieces of a snapshot that are read together."""
UNFINISHED_S: Final = 6 * 3600.0
"""Pieces of a snapshot that is not whole after that time are left of a host that was killed."""
_LOCAL: Final = frozenset({"", "127.0.0.1", "localhost", "::1"})
_ENCRYPTED: Final = ("require", "verify-ca", "verify-full")
_NOT_ADMITTED: Final = re.compile(
    r"authentication failed|role .* does not exist|not permitted to log in|no pg_hba\.conf entry"
    r"|database .* does not exist|certificate|does not support SSL",
    re.IGNORECASE,
)
_NOT_TRUSTED: Final = re.compile(r"certificate verify failed|does not match host name")
_VERSION: Final = re.compile(r"version (\d+)")
_IS_KNOWN: Final = (  # in half the time of `obj_description`
    "(SELECT description FROM pg_description WHERE objoid = 'remembrancer'::regnamespace "  # noqa: S608 - our own
    f"AND classoid = 'pg_namespace'::regclass AND objsubid = 0) = 'version {SCHEMA_VERSION}'"
)
"""The tables may have become others since the connection was made: then entries are neither appended nor read."""
_ABOUT: Final = """
    SELECT pg_get_userbyid(n.nspowner), obj_description(n.oid, 'pg_namespace'),
           EXISTS (SELECT FROM pg_class c WHERE c.relnamespace = n.oid AND c.relname = 'lanes'), pg_backend_pid()
    FROM (SELECT) one LEFT JOIN pg_namespace n ON n.nspname = 'remembrancer'
"""
OLDER: Final = (
    "the tables of the journal are of an earlier release: on the machine that decides over what is shared, install "
    "today's and run 'remembrancer share start'"
)
_READ: Final = f"""
    SELECT l.identity, l.head, l.first, m.id, e.position, e.id, e.body, e.at
    FROM remembrancer.lanes l
    LEFT JOIN remembrancer.entries m ON m.lane = l.lane AND m.position = %(after)s
    LEFT JOIN LATERAL (
        SELECT sized.* FROM (
            SELECT asked.*, sum(octet_length(body)) OVER (ORDER BY position) - octet_length(body) AS bytes_before
            FROM (SELECT position, id, body, at FROM remembrancer.entries
                  WHERE lane = l.lane AND position > %(after)s ORDER BY position LIMIT %(limit)s) asked
        ) sized WHERE bytes_before IS NULL OR bytes_before < %(bytes)s
    ) e ON true
    WHERE l.lane = %(lane)s AND {_IS_KNOWN} ORDER BY e.position
"""  # noqa: S608 - our own
_NOT_THERE: Final = (
    psycopg.errors.UndefinedTable,
    psycopg.errors.UndefinedFunction,
    psycopg.errors.InvalidSchemaName,
)


class _OtherSchema(Exception):
    """The tables are of a version that this release does not know. Nothing was asked of them."""


class PostgresJournal:
    """A connection to the journals in a database, made when it is first needed and again when it was lost.

    `url` names the database with user and password, as libpq does; `ca_pem` is the certificate that the server's own is
    signed with, "" for those that this machine trusts. `seal_bytes` were added to each body by a seal.
    """

    def __init__(
        self,
        url: str,
        *,
        ca_pem: str = "",
        seal_bytes: int = 0,
        answer_s: float | None = None,
        resolve_s: float = RESOLVE_S,
    ) -> None:
        self._url = url
        self._ca_pem = ca_pem
        self._seal_bytes = seal_bytes
        self._answer_s = ANSWER_S if answer_s is None else answer_s
        self._resolve_s = resolve_s
        self._connection: psycopg.AsyncConnection[Any] | None = None
        self._schema = 0
        """The version of the tables; 0: there are none."""
        self._is_pooled = False
        """True if something stands between that may give each statement another connection of the server."""
        self._moved_at = 0.0
        """The time of the loop when an entry was seen last."""
        self._heard: int | None = None
        """The socket of the connection while nobody asks: the server says something by itself."""
        self._one_at_a_time = asyncio.Lock()
        self._hints: set[tuple[str, asyncio.Queue[bool]]] = set()
        """The channel of each watch, and the hints that it waits for; False: the connection is lost."""

    # Who decides over the database

    async def install(self) -> None:
        """Make the tables where there are none yet, or today's of earlier ones.

        Raises `JournalAway`, or `JournalRefused` if this role may not do so, or if they are of a newer release.
        """
        ((owner, *_),) = await self._ask(_ABOUT, any_schema=True)
        if self._schema > SCHEMA_VERSION:
            raise JournalRefused(_newer(self._schema))
        if owner is None:
            await self._ask("CREATE SCHEMA remembrancer", any_schema=True)
        ((owner, may_decide, may_invite),) = await self._ask(
            "SELECT pg_get_userbyid(n.nspowner), pg_has_role(n.nspowner, 'MEMBER'), r.rolcreaterole OR r.rolsuper "
            "FROM pg_namespace n, pg_roles r WHERE n.nspname = 'remembrancer' AND r.rolname = current_user",
            any_schema=True,
        )
        if not may_decide or not may_invite:
            raise JournalRefused(
                "this role may not decide over who shares in the database: it has to own the schema 'remembrancer' and "
                "may have to make roles. 'remembrancer share server-config --postgresql' prints what an administrator "
                "can run"
            )
        if self._schema < SCHEMA_VERSION:  # several statements that go together are one transaction
            role = sql.SQL("SET LOCAL ROLE {};\n").format(sql.Identifier(owner))
            await self._ask(role + sql.SQL(await asyncio.to_thread(schema)), any_schema=True)
            self._schema = SCHEMA_VERSION

    async def let_in(self, lane: str, member: str, *, read_only: bool) -> tuple[str, str]:
        """Make a role for a new member of a lane: its name, and the URL by which the member connects."""
        role, password = f"remembrancer_{secrets.token_hex(8)}", secrets.token_urlsafe(24)
        # In plain text: servers of those who host them take no password that was hashed before.
        await self._ask(sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}").format(sql.Identifier(role), sql.Literal(password)))
        insert = "INSERT INTO remembrancer.members (lane, role, member, read_only) VALUES (%s, %s, %s, %s)"
        await self._ask(insert, (check_name(lane), role, check_name(member), read_only))
        parts = urlsplit(self._url)
        netloc = f"{quote(role)}:{quote(password)}@{parts.netloc.rpartition('@')[2]}"
        return role, parts._replace(netloc=netloc).geturl()

    async def let_out(self, role: str) -> None:
        """Take a member's rights and its role."""
        await self._ask("DELETE FROM remembrancer.members WHERE role = %s", (role,))
        await self._ask(sql.SQL("DROP ROLE IF EXISTS {}").format(sql.Identifier(role)))

    # The contract

    async def create(self, lane: str) -> Mark:
        """See `Journal`."""
        identity = secrets.token_hex(16)
        insert = "INSERT INTO remembrancer.lanes (lane, identity) VALUES (%s, %s) ON CONFLICT DO NOTHING RETURNING true"
        if not await self._ask(insert, (check_name(lane), identity)):
            raise InvalidInput(f"there is a lane {lane!r} already")
        return Mark(identity, 0, "")

    async def identity(self, lane: str) -> str:
        """See `Journal`."""
        return str((await self._row(lane, "SELECT identity FROM remembrancer.lanes WHERE lane = %s"))[0])

    async def head(self, lane: str) -> int:
        """See `Journal`."""
        return int((await self._row(lane, "SELECT head FROM remembrancer.lanes WHERE lane = %s"))[0])

    async def append(self, lane: str, entries: Sequence[NewEntry], *, behind: Mark) -> Mark:
        """See `Journal`."""
        check_entries(entries, seal_bytes=self._seal_bytes)
        asked = (behind.journal, behind.position, behind.entry_id)
        new = ([entry.id for entry in entries], [entry.body for entry in entries])
        append = f"SELECT * FROM remembrancer.append(%s, %s, %s, %s, %s::text[], %s::bytea[]) WHERE {_IS_KNOWN}"  # noqa: S608 - our own
        deadline = asyncio.get_running_loop().time() + self._resolve_s
        while True:
            try:
                identity, head, first, id_behind, place = await self._row(lane, append, *asked, *new)
                break
            except JournalAway as error:
                in_vain = isinstance(error.__cause__, psycopg.errors.UniqueViolation | _OtherSchema)
                if in_vain or asyncio.get_running_loop().time() > deadline:
                    raise
                await asyncio.sleep(0.1)  # a server that starts
        _compare(behind, identity, head, first, id_behind)
        if place <= behind.position:
            raise JournalChanged.other()
        self._moved_at = asyncio.get_running_loop().time()
        return Mark(identity, place, entries[-1].id)

    async def read(self, lane: str, *, after: Mark, limit: int = 1000) -> Page:
        """See `Journal`."""
        mark = after
        while True:
            asked = {"lane": check_name(lane), "after": mark.position, "limit": limit, "bytes": PAGE_BYTES}
            rows = await self._ask(_READ, asked)
            if not rows:
                raise await self._missing(lane)
            identity, head, first, id_behind = rows[0][:4]
            _compare(mark, identity, head, first, id_behind)
            if first > mark.position + 1:
                raise Trimmed(first)
            found = [row[4:] for row in rows if row[4] is not None]
            if [position for position, *_ in found] != list(range(mark.position + 1, mark.position + 1 + len(found))):
                raise JournalChanged.other()
            if not found and head > mark.position:
                raise JournalChanged.other()
            position, entry_id = found[-1][:2] if found else (mark.position, mark.entry_id)
            mark = Mark(identity, position, entry_id)
            if found:
                self._moved_at = asyncio.get_running_loop().time()
            entries = tuple(Entry(place, its_id, body, at) for place, its_id, body, at in found if body is not None)
            page = Page(entries, mark, head)
            if entries or page.is_last:
                return page

    async def watch(self, lane: str) -> AsyncIterator[None]:
        """See `Journal`."""
        # MD5 names the channel, as it is at hand in every database, and hides nothing.
        channel = "remembrancer_" + hashlib.md5(check_name(lane).encode(), usedforsecurity=False).hexdigest()
        hints: asyncio.Queue[bool] = asyncio.Queue(1)
        self._hints.add((channel, hints))
        try:
            await self._ask("SELECT")  # connects
            if not self._is_pooled:
                await self._ask(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))
            yield
            while True:
                calm_s = asyncio.get_running_loop().time() - self._moved_at
                with suppress(TimeoutError):  # a hint without an append
                    async with asyncio.timeout(_look_after_s(calm_s) if self._is_pooled else POLL_S):
                        if not await hints.get():
                            raise JournalAway("the connection to the journal is lost")
                yield
        finally:
            self._hints.discard((channel, hints))

    async def scrub(self, lane: str, position: int) -> None:
        """See `Journal`."""
        await self._if_there(lane, "SELECT remembrancer.scrub(%s, %s)", position)

    async def trim(self, lane: str, *, before: int) -> None:
        """See `Journal`."""
        await self._if_there(lane, "SELECT remembrancer.trim(%s, %s)", before)

    async def put_snapshot(self, lane: str, mark: Mark, path: Path) -> Snapshot:
        """See `Journal`."""
        unfinished = (
            "DELETE FROM remembrancer.pieces p WHERE lane = %s AND at < now() - make_interval(secs => %s) "
            "AND NOT EXISTS (SELECT FROM remembrancer.snapshots s WHERE s.lane = p.lane AND s.name = p.name)"
        )
        await self._ask(unfinished, (check_name(lane), UNFINISHED_S))
        snapshot = Snapshot(secrets.token_hex(8), mark, (await asyncio.to_thread(path.stat)).st_size)
        with await asyncio.to_thread(path.open, "rb") as file:
            number = 0
            while piece := await asyncio.to_thread(file.read, PIECE_BYTES):
                insert = "INSERT INTO remembrancer.pieces (lane, name, number, body) VALUES (%s, %s, %s, %s)"
                await self._ask(insert, (lane, snapshot.name, number, piece))
                number += 1
        insert = "INSERT INTO remembrancer.snapshots VALUES (%s, %s, %s, %s, %s, %s)"
        about = (lane, snapshot.name, mark.journal, mark.position, mark.entry_id, snapshot.size_bytes)
        await self._ask(insert, about)
        return snapshot

    async def snapshots(self, lane: str) -> tuple[Snapshot, ...]:
        """See `Journal`."""
        asked = (
            "SELECT name, journal, position, entry_id, size_bytes FROM remembrancer.snapshots WHERE lane = %s "
            "ORDER BY position DESC"
        )
        rows = await self._ask(asked, (check_name(lane),))
        if not rows:
            await self.identity(lane)  # raises if there is none
        return tuple(Snapshot(name, Mark(*mark), size_bytes) for name, *mark, size_bytes in rows)

    async def get_snapshot(self, lane: str, snapshot: Snapshot, path: Path) -> None:
        """See `Journal`."""
        if snapshot.name not in {each.name for each in await self.snapshots(lane)}:
            raise InvalidInput("there is no such snapshot any more")
        asked = (
            "SELECT number, body FROM remembrancer.pieces WHERE lane = %s AND name = %s AND number >= %s "
            "ORDER BY number LIMIT %s"
        )
        wanted, size_bytes = 0, 0
        try:
            with await asyncio.to_thread(path.open, "xb") as file:
                while found := await self._ask(asked, (lane, snapshot.name, wanted, PIECES)):
                    for number, piece in found:
                        if number != wanted:
                            raise EntryDamaged("a piece of the snapshot is missing")
                        wanted += 1
                        size_bytes += len(piece)
                        await asyncio.to_thread(file.write, piece)
            if size_bytes != snapshot.size_bytes:
                raise EntryDamaged("the end of the snapshot is missing")
        except BaseException:
            await asyncio.to_thread(path.unlink, missing_ok=True)
            raise

    async def drop_snapshot(self, lane: str, snapshot: Snapshot) -> None:
        """See `Journal`."""
        for table in ("snapshots", "pieces"):  # what is dropped in part is no snapshot, but pieces of none
            delete = sql.SQL("DELETE FROM remembrancer.{} WHERE lane = %s AND name = %s").format(sql.Identifier(table))
            await self._ask(delete, (check_name(lane), snapshot.name))

    async def lease(self, lane: str, name: str, holder: str, ttl_s: float) -> bool:
        """See `Journal`."""
        take = (
            "INSERT INTO remembrancer.leases AS held (lane, name, holder, until) "
            "VALUES (%s, %s, %s, clock_timestamp() + make_interval(secs => %s)) "
            "ON CONFLICT (lane, name) DO UPDATE SET holder = excluded.holder, until = excluded.until "
            "WHERE held.holder = excluded.holder OR held.until < clock_timestamp() RETURNING true"
        )
        return bool(await self._ask(take, (check_name(lane), check_name(name), holder, ttl_s)))

    async def holder(self, lane: str, name: str) -> str | None:
        """See `Journal`."""
        held = "SELECT holder FROM remembrancer.leases WHERE lane = %s AND name = %s AND until >= clock_timestamp()"
        found = await self._ask(held, (check_name(lane), check_name(name)))
        return found[0][0] if found else None

    async def release(self, lane: str, name: str, holder: str) -> None:
        """See `Journal`."""
        delete = "DELETE FROM remembrancer.leases WHERE lane = %s AND name = %s AND holder = %s"
        await self._ask(delete, (check_name(lane), name, holder))

    async def notify(self, lane: str, host: str, body: bytes) -> None:
        """See `Journal`."""
        leave = (
            "INSERT INTO remembrancer.notices (lane, host, body, at) VALUES (%s, %s, %s, clock_timestamp()) "
            "ON CONFLICT (lane, host) DO UPDATE SET body = excluded.body, at = excluded.at"
        )
        await self._ask(leave, (check_name(lane), check_name(host), body))

    async def notices(self, lane: str) -> Mapping[str, Notice]:
        """See `Journal`."""
        asked = (
            "SELECT host, body, greatest(0, extract(epoch FROM clock_timestamp() - at))::float8 "
            "FROM remembrancer.notices WHERE lane = %s"
        )
        rows = await self._ask(asked, (check_name(lane),))
        if not rows:
            await self.identity(lane)  # raises if there is none
        return {host: Notice(body, age_s) for host, body, age_s in rows}

    async def aclose(self) -> None:
        """See `Journal`."""
        if self._connection is not None:
            _cut(self._connection)
        async with self._one_at_a_time:
            await self._let_go()

    # Questions and answers

    async def _row(self, lane: str, query: str, *asked: object) -> Sequence[Any]:
        """The one row of an answer about a lane. Raises `JournalChanged` or `JournalRefused` if there is none."""
        rows = await self._ask(query, (check_name(lane), *asked))
        if not rows:
            raise await self._missing(lane)
        return rows[0]

    async def _if_there(self, lane: str, query: str, *asked: object) -> None:
        if not (await self._row(lane, query, *asked))[0]:
            raise JournalChanged.missing()

    async def _missing(self, lane: str) -> RemembrancerError:
        """The error for a lane that this host finds nothing of: there is none, or it is none of its own (any more).

        Raises `JournalAway` if the tables are not those of this release any more.
        """
        self._note_schema(await self._ask(_ABOUT, any_schema=True))
        ((may,),) = await self._ask("SELECT remembrancer.may(%s, false)", (lane,))
        return (
            JournalChanged.missing() if may else JournalRefused("this host is no member (any more) of what is shared")
        )

    async def _ask(
        self, query: Any, asked: Sequence[Any] | Mapping[str, Any] | None = None, *, any_schema: bool = False
    ) -> list[Sequence[Any]]:
        """The rows of an answer, in time. Nothing is asked of tables that this release does not know, if there are
        any, unless it is about them (`any_schema`)."""
        async with self._one_at_a_time, self._errors():
            connection = await self._connected()
            if not any_schema:
                await self._check_schema()
            self._hear_no_more()
            try:
                rows = await self._in_time(connection, query, asked)
            except _NOT_THERE:
                self._note_schema(await self._in_time(connection, _ABOUT, ()))
                if not any_schema:
                    await self._check_schema()
                raise
            self._heard = connection.fileno()
            asyncio.get_running_loop().add_reader(self._heard, self._on_readable, connection)
            return rows

    async def _check_schema(self) -> None:
        """Raises `_OtherSchema`."""
        if self._schema not in (0, SCHEMA_VERSION):
            await self._let_go()  # they may be others when it is tried again
            raise _OtherSchema(_newer(self._schema) if self._schema > SCHEMA_VERSION else OLDER)

    def _note_schema(self, about: Sequence[Sequence[Any]]) -> int:
        """Note the version of the tables, of the answer to `_ABOUT`; the process of the server that has answered."""
        ((_, said, there, pid),) = about
        version = _VERSION.fullmatch(said or "")
        self._schema = int(version[1]) if version else int(there)
        return int(pid)

    async def _in_time(self, connection: psycopg.AsyncConnection[Any], query: Any, asked: Any) -> list[Sequence[Any]]:
        asking = asyncio.create_task(_rows(connection, query, asked))
        try:
            await asyncio.wait({asking}, timeout=self._answer_s)
            in_time = asking.done()
        finally:
            if not asking.done():
                _cut(connection)  # without a word to a server that may not listen
                await asyncio.wait({asking})
                asking.exception()  # it is the cut
        if not in_time:
            raise JournalAway("the journal did not answer in time")
        return asking.result()

    async def _connected(self) -> psycopg.AsyncConnection[Any]:
        if self._connection is not None and not self._connection.closed:
            return self._connection
        await self._let_go()
        with ExitStack() as held:
            options = _options(self._url)
            if self._ca_pem:
                file = held.enter_context(tempfile.NamedTemporaryFile("w", suffix=".pem"))  # libpq reads files alone
                file.write(self._ca_pem)
                file.flush()
                options["sslrootcert"] = file.name
            connection = await psycopg.AsyncConnection.connect(
                make_conninfo(**options),
                autocommit=True,
                prepare_threshold=None,
                connect_timeout=max(2, round(self._answer_s)),
                application_name="remembrancer",
            )
        try:
            if connection.info.server_version < OLDEST_SERVER:
                raise JournalRefused("the server is an older PostgreSQL: 14 or newer is needed")
            pid = self._note_schema(await self._in_time(connection, _ABOUT, ()))
        except BaseException:
            await connection.close()
            raise
        self._is_pooled = pid != connection.info.backend_pid
        connection.add_notify_handler(lambda notify: self._hint(notify.channel))
        self._connection = connection
        return connection

    async def _let_go(self) -> None:
        """Close the connection, if there is one, and say so to who watches."""
        connection, self._connection = self._connection, None
        if connection is None:
            return
        self._hear_no_more()
        await connection.close()
        self._lost()

    def _hear_no_more(self) -> None:
        """Leave the connection's answers to who asks."""
        if self._heard is not None:
            asyncio.get_running_loop().remove_reader(self._heard)
            self._heard = None

    def _on_readable(self, connection: psycopg.AsyncConnection[Any]) -> None:
        """Take in what the server says by itself: that something was appended, or that it goes."""
        try:
            connection.pgconn.consume_input()
            while notify := connection.pgconn.notifies():
                self._hint(notify.relname.decode())
        except psycopg.OperationalError:
            self._hear_no_more()
            self._lost()

    def _hint(self, channel: str) -> None:
        for each, hints in self._hints:
            if each == channel and hints.empty():
                hints.put_nowait(True)

    def _lost(self) -> None:
        for _, hints in self._hints:
            if hints.full():
                hints.get_nowait()
            hints.put_nowait(False)

    @asynccontextmanager
    async def _errors(self) -> AsyncIterator[None]:
        """Have what the client library raises within become an error of ours."""
        try:
            yield
        except (psycopg.errors.InsufficientPrivilege, psycopg.errors.UndefinedObject) as error:  # of a dropped role
            raise JournalRefused(f"the server of the journal does not let this host do this: {_said(error)}") from error
        except (*_NOT_THERE, psycopg.errors.ForeignKeyViolation) as error:
            raise JournalChanged.missing() from error
        except _OtherSchema as error:  # what is written meanwhile waits
            raise JournalAway(str(error)) from error
        except psycopg.errors.DiskFull as error:
            raise StorageFull(f"the server of the journal has no room: {_said(error)}") from error
        except psycopg.errors.UniqueViolation as error:
            raise JournalAway("some of these entries stand in the journal already: it has to be read first") from error
        except psycopg.Error as error:
            if self._connection is None and _NOT_TRUSTED.search(str(error)):
                raise JournalRefused(
                    "the server of the journal is not known by its certificate, and nothing was said to it: who signed "
                    f"that is named by ?sslrootcert=FILE, and it is for the name in the URL ({_said(error)})"
                ) from error
            if self._connection is None and _NOT_ADMITTED.search(str(error)):
                raise JournalRefused(f"the server of the journal does not let this host in: {_said(error)}") from error
            raise JournalAway(f"the journal is not reachable: {_said(error)}") from error


def _look_after_s(calm_s: float) -> float:
    """The time until who is told nothing looks again, if no entry came for so long."""
    return min(POLL_S, max(SOON_S, CALM * calm_s))


def _newer(version: int) -> str:
    return (
        f"the tables of the journal are of a newer release (version {version}; this one knows {SCHEMA_VERSION}): "
        "install that here too"
    )


async def _rows(connection: psycopg.AsyncConnection[Any], query: Any, asked: Any) -> list[Sequence[Any]]:
    # Several statements go together without arguments alone, and answer in text.
    cursor = await connection.execute(query, asked, binary=asked is not None)
    return await cursor.fetchall() if cursor.description is not None else []


def _compare(mark: Mark, identity: str, head: int, first: int, id_there: str | None) -> None:
    """Raise `JournalChanged` if a mark is not of the journal with that entry at its position."""
    if mark.journal not in ("", identity):
        raise JournalChanged.other()
    if mark.position > head:
        raise JournalChanged.shorter(mark.position, head)
    if mark.position >= first and (id_there is None or mark.entry_id not in ("", id_there)):
        raise JournalChanged.other()


def _options(url: str) -> dict[str, Any]:
    """The options of a connection: encrypted and with a certificate that is checked, unless the server is here.

    Raises `InvalidInput` for a URL that is none, or that asks for no encryption.
    """
    try:
        options: dict[str, Any] = dict(conninfo_to_dict(url))
    except psycopg.ProgrammingError as error:
        raise InvalidInput("the server is named as postgresql://user:password@host:port/database") from error
    hosts = str(options.get("host") or "").split(",")
    if all(host in _LOCAL or host.startswith("/") for host in hosts):
        return options
    if options.setdefault("sslmode", "verify-full") not in _ENCRYPTED:
        raise InvalidInput(
            "a server on another machine is reached with sslmode=require or more, so that nobody listens"
        )
    if options["sslmode"] == "verify-full":
        options.setdefault("sslrootcert", "system")
    return options


def _cut(connection: psycopg.AsyncConnection[Any]) -> None:
    """Break a connection, so that who waits for its answer waits no more."""
    with suppress(OSError, psycopg.OperationalError), socket.socket(fileno=os.dup(connection.fileno())) as same:
        same.shutdown(socket.SHUT_RDWR)


def _said(error: psycopg.Error) -> str:
    """The first line of what the server says."""
    return (error.diag.message_primary or str(error) or type(error).__name__).splitlines()[0]
