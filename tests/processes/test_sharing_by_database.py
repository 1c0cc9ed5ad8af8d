"""Sharing by a PostgreSQL database: what its administrator prepares, who is let in, to what, and who is no more."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import psycopg
import pytest

from remembrancer.command_line import main
from remembrancer.commands import exit_codes
from remembrancer.journal.contract import START, Mark, NewEntry
from remembrancer.journal.postgres import PostgresJournal
from remembrancer.journal.server_config import Certificates
from remembrancer.journal.sharing import Membership, Sharing
from remembrancer.protocol.errors import InvalidInput, JournalRefused
from tests.postgres_servers import PostgresServer

T = TypeVar("T")


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


async def appended(sharing: Sharing, membership: Membership, *ids: str) -> Mark:
    journal = sharing.open(membership)
    try:
        entries = [NewEntry(each, each.encode()) for each in ids]
        return await journal.append(membership.lane, entries, behind=START)
    finally:
        await journal.aclose()


async def ids_read(sharing: Sharing, membership: Membership) -> list[str]:
    journal = sharing.open(membership)
    try:
        return [entry.id for entry in (await journal.read(membership.lane, after=START)).entries]
    finally:
        await journal.aclose()


class World:
    """A database that an administrator has prepared by the SQL of the command, and two homes."""

    def __init__(self, home: Path, other: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.server, self.other = PostgresServer(), other
        self.desk, self.laptop = Sharing(home), Sharing(other)
        assert main(["share", "server-config", "--postgresql"]) == exit_codes.OK
        self._sql, told = capsys.readouterr()
        self.url = told.split("'")[1].replace("HOST:5432/DATABASE", f"127.0.0.1:{self.server.port}/postgres")

    def __enter__(self) -> World:
        self.server.start()
        with psycopg.connect(self.server.url, autocommit=True) as connection:
            connection.execute(self._sql.encode())
        return self

    def __exit__(self, *_: object) -> None:
        self.server.__exit__()

    def begin(self) -> Membership:
        """A lane of the first home."""
        run(self.desk.start([self.url]))
        return run(self.desk.new_lane("shop", "desk"))

    def join(self, lane: str, name: str = "laptop", *, read_only: bool = False) -> Membership:
        """The second home as a member."""
        return self.laptop.join(run(self.desk.invite(lane, name, read_only=read_only)))


@pytest.fixture
def world(home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[World]:
    with World(home, tmp_path / "other", capsys) as world:
        yield world


def test_two_machines_share_by_a_database_and_its_password_is_not_shown(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    password = world.url.split(":")[2].split("@")[0]
    assert main(["share", "start", "--server", world.url]) == exit_codes.OK
    assert main(["share", "start", "--json"]) == exit_codes.OK
    lane = run(world.desk.new_lane("shop", "desk"))
    run(appended(world.desk, lane, "op-1", "op-2"))
    invitation = tmp_path / "invitation"
    assert main(["share", "invite", "laptop", "--out", str(invitation)]) == exit_codes.OK
    assert main(["share", "status"]) == exit_codes.OK
    monkeypatch.setenv("REMEMBRANCER_HOME", str(world.other))
    assert main(["join", "--json", str(invitation)]) == exit_codes.OK
    told = capsys.readouterr().out
    assert json.loads(told.splitlines()[-1])["head"] == 2
    there = world.laptop.membership(lane.lane)
    run(appended(world.laptop, there, "op-3"))
    assert run(ids_read(world.desk, lane)) == ["op-1", "op-2", "op-3"]
    assert password not in told
    assert password not in (world.other / "sharing" / "lanes" / f"{lane.lane}.json").read_text()


def test_a_member_reads_and_writes_its_own_lane_alone(world: World) -> None:
    lane, other = world.begin(), run(world.desk.new_lane("diary", "desk"))
    member = world.join(lane.lane)
    for refused in (
        ids_read(world.laptop, msgspec.structs.replace(member, lane=other.lane)),
        appended(world.laptop, msgspec.structs.replace(member, lane=other.lane), "op-1"),
    ):
        with pytest.raises(JournalRefused):
            run(refused)
    run(appended(world.laptop, member, "op-1"))
    with psycopg.connect(member.server.urls[0], autocommit=True) as connection:
        for table in ("lanes", "entries", "members"):
            found = connection.execute(f"SELECT lane FROM remembrancer.{table}".encode()).fetchall()
            assert {name for (name,) in found} == {lane.lane}
        for change in (
            "UPDATE remembrancer.entries SET body = 'x'",
            "DELETE FROM remembrancer.entries",
            "UPDATE remembrancer.lanes SET head = 0",
            "INSERT INTO remembrancer.members SELECT lane || 'x', role, member, false FROM remembrancer.members",
            "INSERT INTO remembrancer.notices SELECT lane, 'desk', 'x', now() FROM remembrancer.lanes",
            f"INSERT INTO remembrancer.leases VALUES ('{other.lane}', 'upkeep', 'laptop', now())",
            f"SELECT remembrancer.locked('{lane.lane}')",
            f"SELECT remembrancer.trim('{other.lane}', 1)",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(change.encode())


def test_who_may_only_read_changes_nothing(world: World) -> None:
    lane = world.begin()
    run(appended(world.desk, lane, "op-1"))
    member = world.join(lane.lane, read_only=True)
    assert run(ids_read(world.laptop, member)) == ["op-1"]

    async def try_all() -> None:
        journal = world.laptop.open(member)
        await journal.notify(lane.lane, "laptop", b"seen")
        for refused in (
            journal.append(lane.lane, [NewEntry("op-2", b"")], behind=START),
            journal.scrub(lane.lane, 1),
            journal.trim(lane.lane, before=2),
            journal.lease(lane.lane, "upkeep", "laptop", 60.0),
            journal.create("another"),
        ):
            with pytest.raises(JournalRefused):
                await refused
        await journal.aclose()

    run(try_all())
    assert run(ids_read(world.desk, lane)) == ["op-1"]


def test_a_removed_member_reads_nothing_more_and_the_others_are_brought_the_new_key(
    world: World, tmp_path: Path
) -> None:
    lane, third = world.begin(), Sharing(tmp_path / "third")
    member, stays = world.join(lane.lane), third.join(run(world.desk.invite(lane.lane, "build")))
    run(appended(world.desk, lane, "op-1"))

    async def removed_while_it_is_connected() -> None:
        journal = world.laptop.open(member)
        assert len((await journal.read(lane.lane, after=START)).entries) == 1
        assert await world.desk.remove(lane.lane, "laptop")
        with pytest.raises(JournalRefused):
            await journal.read(lane.lane, after=START)
        await journal.aclose()

    run(removed_while_it_is_connected())
    run(appended(world.desk, world.desk.membership(lane.lane), "op-2"))
    with pytest.raises(JournalRefused):
        run(ids_read(world.laptop, member))
    assert run(ids_read(third, stays)) == ["op-1", "op-2"]
    assert third.membership(lane.lane).keyring == world.desk.membership(lane.lane).keyring != lane.keyring
    again = world.join(lane.lane, "laptop")
    assert run(ids_read(world.laptop, again)) == ["op-1", "op-2"]


def test_one_who_does_not_own_the_tables_begins_no_sharing(world: World) -> None:
    lane = world.begin()
    member = world.join(lane.lane)
    with pytest.raises(JournalRefused, match="share server-config --postgresql"):
        run(world.laptop.start(member.server.urls))
    with pytest.raises(InvalidInput, match="other kind"):
        run(world.desk.start(["nats://127.0.0.1:4222"]))


def test_a_lane_whose_package_is_missing_says_what_to_install(
    world: World, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    world.begin()
    monkeypatch.delitem(sys.modules, "remembrancer.journal.postgres")
    monkeypatch.setitem(sys.modules, "psycopg", None)
    assert main(["share", "status"]) == exit_codes.DEGRADED
    assert "pip install 'remembrancer[postgresql]'" in capsys.readouterr().out


def test_an_invitation_brings_the_certificate_of_the_servers_signer(world: World, tmp_path: Path) -> None:
    certificate = Certificates.new().certificate
    (tmp_path / "ca.pem").write_text(certificate)
    world.url += f"?sslrootcert={tmp_path / 'ca.pem'}&application_name=shop"
    lane = world.begin()
    server = world.join(lane.lane).server
    assert (server.ca_pem, "sslrootcert" in server.urls[0]) == (certificate, False)
    assert server.urls[0].endswith("?application_name=shop")


@pytest.mark.parametrize("mode", ["disable", "allow", "prefer"])
def test_a_database_on_another_machine_is_reached_encrypted_alone(mode: str) -> None:
    with pytest.raises(InvalidInput, match="so that nobody listens"):
        run(PostgresJournal(f"postgresql://desk@memory.example/shop?sslmode={mode}").head("shop"))
