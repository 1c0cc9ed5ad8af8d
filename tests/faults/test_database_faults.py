"""The journal in a database when its server and its network fail: a real server, killed, paused, emptied, set back."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import aclosing, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import psycopg
import pytest

from remembrancer.journal import postgres
from remembrancer.journal.contract import START, Entry, Mark, NewEntry
from remembrancer.journal.postgres import SOON_S, PostgresJournal, _look_after_s
from remembrancer.journal.sealing import SEAL_BYTES, Keyring, Sealed
from remembrancer.journal.server_config import SCHEMA_VERSION, Certificates
from remembrancer.protocol.errors import JournalAway, JournalChanged, JournalRefused, StorageFull
from tests.links import Link
from tests.patience import PATIENCE_S
from tests.postgres_servers import PostgresServer, pooler

pytestmark = pytest.mark.anyio
LANE: Final = "shop"
OF_0_2_0: Final = Path(__file__).parents[1] / "homes" / "0.2.0-postgres.sql"
KEYS: Final = Keyring.new()
T = TypeVar("T")


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    with PostgresServer() as server:
        asyncio.run(_install(server.url))
        yield server


async def _install(url: str) -> None:
    journal = PostgresJournal(url)
    try:
        await journal.install()
    finally:
        await journal.aclose()


@asynccontextmanager
async def connected(url: str, *, answer_s: float = PATIENCE_S, resolve_s: float = PATIENCE_S) -> AsyncIterator[Sealed]:
    journal = PostgresJournal(url, seal_bytes=SEAL_BYTES, answer_s=answer_s, resolve_s=resolve_s)
    try:
        yield Sealed(journal, KEYS)
    finally:
        await journal.aclose()


async def patiently(ask: Callable[[], Awaitable[T]]) -> T:
    """The answer of a journal whose server starts meanwhile."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                return await ask()
            except JournalAway:
                await asyncio.sleep(0.02)


def numbered(first: int, last: int) -> list[NewEntry]:
    return [NewEntry(f"op-{number}", b"%d" % number) for number in range(first, last + 1)]


async def ids(journal: Sealed) -> list[str]:
    entries: list[Entry] = []
    mark = START
    while True:
        page = await journal.read(LANE, after=mark)
        entries += page.entries
        mark = page.mark
        if page.is_last:
            return [entry.id for entry in entries]


def execute(server: PostgresServer, statement: str) -> None:
    """What somebody with the server's password does by hand."""
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute(statement.encode())


class CutOnce(Link):
    """A link to a server, which is cut once: as soon as an append was sent (`"request"`), or when its answer comes."""

    def __init__(self, port: int, cut: str) -> None:
        super().__init__(port)
        self._cut = cut
        self._sent = False
        self.was_cut = False

    def passes(self, data: bytes, *, is_answer: bool) -> bool:
        self._sent = self._sent or (not is_answer and b"remembrancer.append" in data)
        if self._sent and not self.was_cut and is_answer == (self._cut == "answer"):
            self.was_cut = True
            return False
        return True


@pytest.mark.parametrize("cut", ["request", "answer"])
async def test_an_append_whose_link_is_cut_is_there_exactly_once(server: PostgresServer, cut: str) -> None:
    for last in (1, 5):
        link = CutOnce(server.port, cut)
        execute(server, "DELETE FROM remembrancer.lanes")
        async with (
            link.listening() as port,
            connected(server.url_at(port)) as journal,
            connected(server.url) as other,
        ):
            begin = await other.create(LANE)
            await other.append(LANE, [NewEntry("of-another", b"")], behind=begin)
            mark = await journal.append(LANE, numbered(1, last), behind=begin)
            assert link.was_cut
            later = await journal.append(LANE, numbered(6, 6), behind=mark)
            expected = ["of-another", *(f"op-{each}" for each in range(1, last + 1)), "op-6"]
            assert (await ids(other), later.position) == (expected, last + 2)


async def test_an_append_without_an_answer_is_found_when_it_is_read(server: PostgresServer) -> None:
    link = CutOnce(server.port, "answer")
    async with link.listening() as port, connected(server.url_at(port), resolve_s=0.0) as journal:
        begin = await journal.create(LANE)
        with pytest.raises(JournalAway):
            await journal.append(LANE, numbered(1, 2), behind=begin)
        page = await journal.read(LANE, after=begin)
        assert [entry.id for entry in page.entries] == ["op-1", "op-2"]
        with pytest.raises(JournalAway, match="read first"):
            await journal.append(LANE, numbered(2, 3), behind=begin)
        assert await journal.append(LANE, numbered(3, 3), behind=begin)
        assert await ids(journal) == ["op-1", "op-2", "op-3"]


async def _last(watching: AsyncIterator[None]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        async for _ in watching:
            pass


async def test_what_a_killed_server_has_acknowledged_is_there_once(server: PostgresServer) -> None:
    async with connected(server.url) as journal, connected(server.url) as other:
        mark = await journal.create(LANE)
        watching = other.watch(LANE)
        await anext(watching)
        for round_ in range(3):
            append = partial(journal.append, LANE, numbered(2 * round_, 2 * round_ + 1), behind=mark)
            appending = asyncio.create_task(patiently(append))
            if round_:
                await asyncio.to_thread(server.kill)
                await asyncio.to_thread(server.start)
            mark = await appending
        assert await patiently(lambda: ids(journal)) == [f"op-{number}" for number in range(6)]
        assert mark.position == 6
        with pytest.raises(JournalAway):
            await _last(watching)


async def test_a_paused_server_is_away_and_an_append_that_it_was_sent_is_there_once(server: PostgresServer) -> None:
    async with connected(server.url) as other, connected(server.url, answer_s=0.5, resolve_s=0.0) as journal:
        begin = await patiently(lambda: other.create(LANE))
        await patiently(lambda: journal.head(LANE))
        server.pause()
        for _ in range(2):
            with pytest.raises(JournalAway):
                await journal.append(LANE, numbered(1, 2), behind=begin)
        server.go_on()
        await other.append(LANE, numbered(1, 2), behind=begin)
        assert await patiently(lambda: ids(journal)) == ["op-1", "op-2"]


async def test_who_gives_up_waiting_for_a_paused_server_waits_no_longer(server: PostgresServer) -> None:
    async with connected(server.url) as journal:
        await journal.create(LANE)
        server.pause()
        reading = asyncio.create_task(journal.head(LANE))
        await asyncio.sleep(0)
        reading.cancel()
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.wait({reading})
        assert reading.cancelled()
        server.go_on()
        assert await patiently(lambda: journal.head(LANE)) == 0


@pytest.mark.parametrize(
    "loses",
    [
        "TRUNCATE remembrancer.entries",
        "DELETE FROM remembrancer.entries WHERE position >= 3",
        "DELETE FROM remembrancer.lanes",
        "DROP SCHEMA remembrancer CASCADE",
        "UPDATE remembrancer.lanes SET identity = 'another'",
    ],
)
async def test_a_journal_that_was_emptied_or_made_anew_stops_who_has_read_it(
    server: PostgresServer, loses: str
) -> None:
    async with connected(server.url) as journal:
        mark = await journal.append(LANE, numbered(1, 4), behind=await journal.create(LANE))
        execute(server, loses)
        for asked in (journal.read(LANE, after=mark), journal.append(LANE, numbered(5, 5), behind=mark)):
            with pytest.raises(JournalChanged):
                await asked
        if "entries" in loses:
            with pytest.raises(JournalChanged):
                await ids(journal)


@pytest.mark.parametrize("appended_since", [0, 3, 4], ids=["shorter", "as long", "longer"])
async def test_a_database_that_was_restored_from_an_older_backup_is_noticed(
    server: PostgresServer, appended_since: int
) -> None:
    backup = server.directory / "backup"
    async with connected(server.url) as journal:
        early = await journal.append(LANE, numbered(1, 3), behind=await journal.create(LANE))
        await asyncio.to_thread(server.end)
        await asyncio.to_thread(server.copy, server.data, backup)
        await asyncio.to_thread(server.start)
        mark = await journal.append(LANE, numbered(4, 6), behind=early)
        await asyncio.to_thread(server.end)
        shutil.rmtree(server.data)
        backup.rename(server.data)
        await asyncio.to_thread(server.start)
        if appended_since:
            async with connected(server.url) as other:
                await other.append(LANE, numbered(11, 10 + appended_since), behind=early)
        for ask in (
            lambda: journal.read(LANE, after=mark),
            lambda: journal.append(LANE, numbered(7, 7), behind=mark),
        ):
            with pytest.raises(JournalChanged, match="backup"):
                await patiently(ask)


async def test_a_database_without_room_refuses_and_keeps_what_it_has(server: PostgresServer) -> None:
    """The server says so when its disk is full; here a trigger says it in its place."""
    async with connected(server.url) as journal:
        mark = await journal.append(LANE, numbered(1, 1), behind=await journal.create(LANE))
        execute(
            server,
            "CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN RAISE disk_full USING MESSAGE = 'no room'; END $$; "
            "CREATE TRIGGER full_disk BEFORE INSERT ON remembrancer.entries FOR EACH ROW WHEN (new.id = 'op-3') "
            "EXECUTE FUNCTION full_disk()",
        )
        with pytest.raises(StorageFull, match="no room"):
            await journal.append(LANE, numbered(2, 3), behind=mark)
        assert await ids(journal) == ["op-1"]


async def test_tables_of_an_earlier_release_are_made_todays_by_who_decides_over_them_alone(
    server: PostgresServer,
) -> None:
    execute(server, f"DROP SCHEMA remembrancer CASCADE; CREATE SCHEMA remembrancer; {OF_0_2_0.read_text()}")
    execute(
        server,
        "CREATE ROLE laptop LOGIN PASSWORD 'laptop'; INSERT INTO remembrancer.lanes (lane, identity) VALUES "
        f"('{LANE}', 'one'); INSERT INTO remembrancer.members VALUES ('{LANE}', 'laptop', 'laptop', false)",
    )
    at, of_0_2_0 = server.url_at(server.port, "laptop:laptop"), "{op-1,op-2}"
    with psycopg.connect(at, autocommit=True) as member:
        append = "SELECT place FROM remembrancer.append(%s, 'one', 0, '', %s::text[], '{1,2}'::bytea[])"
        assert member.execute(append, (LANE, of_0_2_0)).fetchone() == (2,)
    journal, owner = PostgresJournal(at), PostgresJournal(server.url)
    for asked in (journal.append(LANE, numbered(3, 3), behind=START), owner.head(LANE)):
        with pytest.raises(JournalAway, match="remembrancer share start"):
            await asked
    with pytest.raises(JournalRefused):
        await journal.install()
    await owner.install()
    await owner.install()
    mark = await patiently(lambda: journal.append(LANE, numbered(3, 3), behind=Mark("one", 2, "op-2")))
    assert mark.position == 3
    assert [entry.body for entry in (await journal.read(LANE, after=START)).entries] == [b"1", b"2", b"3"]
    await owner.let_out("laptop")
    with pytest.raises(JournalRefused):
        await journal.read(LANE, after=mark)
    assert _shape(server) == await _shape_of_new(server, owner)
    await journal.aclose()
    await owner.aclose()


def _shape(server: PostgresServer) -> list[tuple[str, ...]]:
    """Columns, functions and policies, as the database tells them."""
    asked = (
        "SELECT table_name, column_name, data_type, column_default, is_nullable FROM information_schema.columns "
        "WHERE table_schema = 'remembrancer' ORDER BY table_name, ordinal_position",
        "SELECT proname, prosrc, prosecdef::text, pg_get_function_arguments(oid), proacl::text FROM pg_proc "
        "WHERE pronamespace = 'remembrancer'::regnamespace ORDER BY proname",
        "SELECT tablename, policyname, cmd, qual FROM pg_policies ORDER BY tablename, policyname",
        "SELECT indexdef FROM pg_indexes WHERE schemaname = 'remembrancer' ORDER BY indexname",
        "SELECT relname, relacl::text, reloptions::text FROM pg_class "
        "WHERE relnamespace = 'remembrancer'::regnamespace ORDER BY relname",
        "SELECT obj_description('remembrancer'::regnamespace)",
    )
    with psycopg.connect(server.url) as connection:
        return [row for each in asked for row in connection.execute(each.encode()).fetchall()]


async def _shape_of_new(server: PostgresServer, owner: PostgresJournal) -> list[tuple[str, ...]]:
    execute(server, "DROP SCHEMA remembrancer CASCADE")
    await owner.aclose()
    await owner.install()
    return _shape(server)


async def test_tables_of_a_newer_release_are_left_alone_until_this_one_is_newer_too(server: PostgresServer) -> None:
    async with connected(server.url, resolve_s=PATIENCE_S) as journal:
        mark = await journal.append(LANE, numbered(1, 1), behind=await journal.create(LANE))
        await journal.aclose()
        execute(server, f"COMMENT ON SCHEMA remembrancer IS 'version {SCHEMA_VERSION + 1}'")
        for asked in (journal.append(LANE, numbered(2, 2), behind=mark), journal.read(LANE, after=START)):
            with pytest.raises(JournalAway, match=f"newer release .version {SCHEMA_VERSION + 1};"):
                await asked
        with pytest.raises(JournalRefused, match="newer release"):
            await _install(server.url)
        execute(server, f"COMMENT ON SCHEMA remembrancer IS 'version {SCHEMA_VERSION}'")
        assert await ids(journal) == ["op-1"]


@pytest.mark.parametrize(
    ("question", "is_renamed"),
    [("append", False), ("append", True), ("read", False), ("read", True), ("head", True)],
)
async def test_tables_that_become_newer_while_a_host_is_connected_are_left_alone_as_well(
    server: PostgresServer, question: str, *, is_renamed: bool
) -> None:
    def changed(old: str, new: str, version: int) -> str:
        renamed = (
            f"ALTER FUNCTION remembrancer.append{old} RENAME TO append{new}; "
            f"ALTER TABLE remembrancer.lanes{old} RENAME TO lanes{new}; "
        )
        return f"{renamed if is_renamed else ''}COMMENT ON SCHEMA remembrancer IS 'version {version}'"

    async with connected(server.url, resolve_s=PATIENCE_S) as journal:
        mark = await journal.append(LANE, numbered(1, 1), behind=await journal.create(LANE))
        ask: dict[str, Callable[[], Awaitable[object]]] = {
            "append": lambda: journal.append(LANE, numbered(2, 2), behind=mark),
            "read": lambda: journal.read(LANE, after=mark),
            "head": lambda: journal.head(LANE),
        }
        execute(server, changed("", "_new", SCHEMA_VERSION + 1))
        with pytest.raises(JournalAway, match=f"newer release .version {SCHEMA_VERSION + 1};"):
            await ask[question]()
        with pytest.raises(JournalAway, match="newer release"):
            await journal.lease(LANE, "lease", "host", 1.0)
        execute(server, changed("_new", "", SCHEMA_VERSION))
        assert await ids(journal) == ["op-1"]
        assert (await journal.append(LANE, numbered(2, 2), behind=mark)).position == 2


async def test_behind_a_pooler_entries_are_seen_without_notifications(
    server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pooler that gives each transaction another connection of the server."""
    monkeypatch.setattr(postgres, "POLL_S", 10 * PATIENCE_S)
    with pooler(server) as port:
        owner = PostgresJournal(server.url)
        await owner.create(LANE)
        roles, journals = [], []
        for name in ("desk", "laptop"):
            role, url = await owner.let_in(LANE, name, read_only=False)
            roles.append(role)
            journals.append(PostgresJournal(url.replace(f":{server.port}/", f":{port}/")))
        desk, laptop = journals
        async with await psycopg.AsyncConnection.connect(desk._url, prepare_threshold=None) as other:
            await other.execute("SELECT")  # holds a connection of the server, until its transaction ends
            await desk.head(LANE)
        assert len({(await desk._ask("SELECT pg_backend_pid()"))[0] for _ in range(6)}) > 1
        mark, read = START, START
        async with asyncio.timeout(PATIENCE_S), aclosing(laptop.watch(LANE)) as watching:  # type: ignore[type-var]
            for number in range(4):
                mark = await desk.append(LANE, numbered(number, number), behind=mark)
                while read != mark:
                    await anext(watching)
                    read = (await laptop.read(LANE, after=read)).mark
        assert await desk.lease(LANE, "upkeep", "desk", 60.0)
        assert not await laptop.lease(LANE, "upkeep", "laptop", 60.0)
        await owner.let_out(roles[1])
        with pytest.raises(JournalRefused):
            await laptop.read(LANE, after=read)
        assert await owner._ask("SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'") == [(0,)]
        for journal in (*journals, owner):
            await journal.aclose()


def test_who_is_told_nothing_looks_soon_after_entries_and_seldom_when_none_come() -> None:
    assert [_look_after_s(calm_s) for calm_s in (0.0, 1.0, 10.0, 1e6)] == [SOON_S, SOON_S, 1.0, postgres.POLL_S]


async def test_a_server_is_known_by_its_certificate_or_nothing_is_said_to_it() -> None:
    signer, another = Certificates.new(), Certificates.new().certificate
    with PostgresServer(certificate=signer.for_host("127.0.0.1")) as server:
        verified = f"{server.url}?sslmode=verify-full"
        journal = PostgresJournal(verified, ca_pem=signer.certificate)
        await journal.install()
        assert await journal._ask("SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()") == [(True,)]
        await journal.aclose()
        for url, trusted in ((verified, another), (verified.replace("127.0.0.1", "localhost"), signer.certificate)):
            with pytest.raises(JournalRefused, match="not known by its certificate"):
                await PostgresJournal(url, ca_pem=trusted).install()


async def test_who_watches_is_hinted_at_without_notifications_and_nothing_is_prepared(
    server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As behind a pooler, which passes none on and gives each statement another connection."""
    monkeypatch.setattr(postgres, "POLL_S", 0.01)
    journal = PostgresJournal(server.url)
    await journal.create(LANE)
    async with asyncio.timeout(PATIENCE_S), aclosing(journal.watch(LANE)) as watching:  # type: ignore[type-var]
        for _ in range(8):
            await anext(watching)
            await journal.read(LANE, after=START)
    assert await journal._ask("SELECT count(*) FROM pg_prepared_statements") == [(0,)]
    await journal.aclose()
