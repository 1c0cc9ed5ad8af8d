"""Sharing over servers that `share server-config` has configured: who is let in, to what, and who is no more."""

from __future__ import annotations

import asyncio
import base64
import json
import stat
import subprocess
import zlib
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest

from remembrancer.command_line import main
from remembrancer.commands import exit_codes
from remembrancer.journal.contract import START, LaneMark, NewEntry
from remembrancer.journal.jetstream import Server
from remembrancer.journal.sealing import Keyring, Sealed
from remembrancer.journal.server_config import CLUSTER_PORT, PORT, Address
from remembrancer.journal.sharing import PREFIX, Membership, Sharing
from remembrancer.protocol.errors import ConfigurationError, InvalidInput, JournalAway, JournalRefused, KeyMissing
from tests.nats_servers import Started, binary, reached, until_refused
from tests.patience import PATIENCE_S, PATIENT_JOURNAL
from tests.ports import free_port

T = TypeVar("T")


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


async def appended(sharing: Sharing, membership: Membership, behind: LaneMark, *ids: str) -> LaneMark:
    async with aclosing(sharing.open(membership)) as journal:
        entries = [NewEntry(each, each.encode()) for each in ids]
        return await journal.append(membership.lane, entries, behind=behind)


async def ids_read(sharing: Sharing, membership: Membership, after: LaneMark = START) -> list[str]:
    async with aclosing(sharing.open(membership)) as journal:
        page = await journal.read(membership.lane, after=after)
        assert [entry.body for entry in page.entries] == [entry.id.encode() for entry in page.entries]
        return [entry.id for entry in page.entries]


class World:
    """A server that the command has configured, in a directory, and two homes."""

    def __init__(self, home: Path, directory: Path, host: str) -> None:
        self.home, self.other = home, directory / "other"
        self.address = f"{host}:{free_port()}"
        assert (
            main(["share", "server-config", "--host", self.address, "--out", str(directory / "nats")]) == exit_codes.OK
        )
        self.server = Started(directory / "nats" / "server-1", self.address)
        self.desk, self.laptop = Sharing(home), Sharing(self.other)

    def begin(self) -> Membership:
        run(self.desk.start())
        return run(self.desk.new_lane("shop", "desk"))

    def join(self, lane: str, name: str = "laptop") -> Membership:
        return self.laptop.join(run(self.desk.invite(lane, name)))


@pytest.fixture
def world(
    request: pytest.FixtureRequest, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[World]:
    for name, value in PATIENT_JOURNAL.items():
        monkeypatch.setattr(name, value)
    world = World(home, tmp_path, getattr(request, "param", "127.0.0.1"))
    with world.server:
        yield world


encrypted_or_not = pytest.mark.parametrize("world", ["127.0.0.1", "127.0.0.2"], ids=["loopback", "tls"], indirect=True)
"""For tests of what the connection itself has to do with."""


@encrypted_or_not
def test_two_machines_share_by_four_commands(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
) -> None:
    run(world.desk.start())
    lane = run(world.desk.new_lane("shop", "desk"))
    mark = run(appended(world.desk, lane, START, "op-1", "op-2"))
    invitation = tmp_path / "invitation"
    assert main(["share", "invite", "laptop", "--out", str(invitation)]) == exit_codes.OK
    assert stat.S_IMODE(invitation.stat().st_mode) == 0o600
    assert main(["share", "invite", "laptop"]) == exit_codes.USAGE
    capsys.readouterr()
    monkeypatch.setenv("REMEMBRANCER_HOME", str(world.other))
    assert main(["share", "join", "--json", str(invitation)]) == exit_codes.OK
    joined = json.loads(capsys.readouterr().out)
    assert joined == {"lane": lane.lane, "title": "shop", "member": "laptop", "head": 2}
    there = world.laptop.membership(lane.lane)
    assert run(ids_read(world.laptop, there)) == ["op-1", "op-2"]
    run(appended(world.laptop, there, mark, "op-3"))
    assert run(ids_read(world.desk, lane, mark)) == ["op-3"]
    assert main(["share", "status", "--json"]) == exit_codes.OK
    (told,) = json.loads(capsys.readouterr().out)["lanes"]
    assert (told["head"], told["members"]) == (3, ["desk", "laptop"])
    files = [path for path in (world.other / "sharing").rglob("*") if path.is_file()]
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    assert "eof_received" not in caplog.text, "an encrypted connection ends without a complaint"


@encrypted_or_not
def test_a_member_is_let_in_to_its_own_lane_alone(world: World) -> None:
    lane, other = world.begin(), run(world.desk.new_lane("diary", "desk"))
    member = world.join(lane.lane)
    for refused in (
        ids_read(world.laptop, msgspec.structs.replace(member, lane=other.lane)),
        appended(world.laptop, msgspec.structs.replace(member, lane=other.lane), START, "op-1"),
        appended(world.laptop, msgspec.structs.replace(member, server=nobody(member)), START, "op-1"),
    ):
        with pytest.raises(JournalRefused):
            run(refused)
    assert run(ids_read(world.desk, other)) == []


def nobody(member: Membership) -> Any:
    return msgspec.structs.replace(member.server, user_jwt="", user_seed="")


@encrypted_or_not
def test_a_removed_member_reads_nothing_more_and_the_others_are_brought_the_new_key(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lane, third = world.begin(), Sharing(tmp_path / "third")
    member, stays = world.join(lane.lane), third.join(run(world.desk.invite(lane.lane, "build")))
    mark = run(appended(world.desk, lane, START, "op-1"))

    async def removed_while_it_is_connected() -> None:
        async with aclosing(world.laptop.open(member)) as journal, asyncio.timeout(PATIENCE_S):
            assert len((await journal.read(lane.lane, after=START)).entries) == 1
            await world.desk.remove(lane.lane, "laptop")
            with suppress(JournalRefused):  # or else the time is over
                while True:
                    with suppress(JournalAway):  # in the moment in which the server cuts the connection
                        await journal.read(lane.lane, after=START)

    run(removed_while_it_is_connected())
    run(appended(world.desk, world.desk.membership(lane.lane), mark, "op-2"))
    world.server.again()
    with pytest.raises(JournalRefused):
        run(ids_read(world.laptop, member))
    assert run(ids_read(third, stays)) == ["op-1", "op-2"]
    assert third.membership(lane.lane).keyring == world.desk.membership(lane.lane).keyring != lane.keyring
    assert main(["share", "remove", "laptop"]) == exit_codes.USAGE
    assert "build" in capsys.readouterr().err
    assert main(["share", "status"]) == exit_codes.OK
    assert "members: desk\n" in capsys.readouterr().out
    again = world.join(lane.lane, "laptop")
    assert run(ids_read(world.laptop, again)) == ["op-1", "op-2"]


def test_machines_that_are_invited_and_removed_at_once_are_all_known_and_then_none(world: World) -> None:
    lane, names = world.begin(), [f"guest-{number}" for number in range(6)]

    def members() -> list[str]:
        administration = world.desk.administration
        assert administration is not None
        return sorted(administration.members[lane.lane])

    with ThreadPoolExecutor(len(names)) as threads:
        list(threads.map(lambda name: run(Sharing(world.home).invite(lane.lane, name)), names))
        assert members() == ["desk", *names]
        list(threads.map(lambda name: run(Sharing(world.home).remove(lane.lane, name)), names))
    assert members() == ["desk"]
    keyring = world.desk.membership(lane.lane).keyring
    assert len(keyring.keys) == 1 + len(names), "each removal had a key of its own"


def test_a_removal_that_is_broken_off_and_done_again_leaves_nobody_without_a_key(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lane, third = world.begin(), Sharing(tmp_path / "third")
    member, stays = world.join(lane.lane), third.join(run(world.desk.invite(lane.lane, "build")))
    run(world.desk.invite(lane.lane, "guest"))
    mark = run(appended(world.desk, lane, START, "op-1"))
    notify = Sealed.notify

    async def without_an_answer(journal: Sealed, *given: Any) -> None:
        await notify(journal, *given)
        raise JournalAway("the journal does not answer")

    with monkeypatch.context() as patched:
        patched.setattr(Sealed, "notify", without_an_answer)
        with pytest.raises(JournalAway):
            run(world.desk.remove(lane.lane, "guest"))

    async def hear_of_it() -> None:
        async with aclosing(world.laptop.open(member)) as journal:
            await journal.notices(lane.lane)

    run(hear_of_it())
    run(appended(world.laptop, world.laptop.membership(lane.lane), mark, "op-2"))
    invited_meanwhile = run(world.desk.invite(lane.lane, "tablet"))
    run(world.desk.remove(lane.lane, "guest"))
    assert run(ids_read(third, stays)) == ["op-1", "op-2"]
    tablet = Sharing(tmp_path / "tablet")
    assert run(ids_read(tablet, tablet.join(invited_meanwhile))) == ["op-1", "op-2"]


def test_another_key_or_operator_is_no_use(world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lane = world.begin()
    run(appended(world.desk, lane, START, "op-1"))
    member = world.join(lane.lane)
    assert run(ids_read(world.laptop, member)) == ["op-1"]
    with pytest.raises(KeyMissing, match="position 1"):
        run(ids_read(world.laptop, msgspec.structs.replace(member, keyring=Keyring.new())))
    assert run(ids_read(world.desk, lane)) == ["op-1"]
    stranger = Sharing(tmp_path / "stranger")
    host, port = world.address.split(":")
    stranger.configure([Address(host, int(port))])
    with pytest.raises((JournalRefused, JournalAway)):
        run(stranger.start())
    world.server.end()
    capsys.readouterr()
    assert main(["share", "status"]) == exit_codes.DEGRADED
    assert "not reachable" in capsys.readouterr().out


def test_an_invitation_is_for_the_first_machine_that_joins_by_it(world: World, tmp_path: Path) -> None:
    lane, second = world.begin(), Sharing(tmp_path / "second")
    line = run(world.desk.invite(lane.lane, "laptop"))
    first = run(world.laptop.join_first(line))
    assert run(world.laptop.join_first(line)) == first, "it may come again"
    with pytest.raises(InvalidInput, match="another machine has joined"):
        run(second.join_first(line))
    assert second.memberships() == ()
    run(world.laptop.leave(lane.lane))
    assert run(second.join_first(line)).member == "laptop", "who has left makes room"
    run(world.desk.remove(lane.lane, "laptop"))
    assert run(second.join_first(run(world.desk.invite(lane.lane, "laptop")))).member == "laptop"


def test_three_servers_are_one_journal_and_one_that_was_away_learns_who_was_removed(home: Path, tmp_path: Path) -> None:
    host, ports = "127.0.0.2", [free_port(CLUSTER_PORT - PORT) for _ in range(3)]
    hosts = [argument for port in ports for argument in ("--host", f"{host}:{port}")]
    assert main(["share", "server-config", *hosts, "--out", str(tmp_path / "nats")]) == exit_codes.OK
    directories = [tmp_path / "nats" / f"server-{number}" for number in (1, 2, 3)]
    for directory in directories:
        subprocess.run([binary(), "-c", "server.conf", "-t"], cwd=directory, check=True, capture_output=True)
    sharing = Sharing(home)
    servers = [Started(directory, f"{host}:{port}") for directory, port in zip(directories, ports, strict=True)]
    with servers[0], servers[1], servers[2]:
        run(reached(lambda: sharing.start()))
        lane = run(reached(lambda: sharing.new_lane("shop", "desk")))
        run(reached(lambda: appended(sharing, lane, START, "op-1")))
        servers[0].end()
        assert run(reached(lambda: ids_read(sharing, lane))) == ["op-1"]
        guest = Sharing(tmp_path / "guest").join(run(sharing.invite(lane.lane, "guest")))
        run(reached(lambda: sharing.remove(lane.lane, "guest")))
        servers[0].start()
        url = next(url for url in guest.server.urls if url.endswith(f":{ports[0]}"))
        alone = msgspec.structs.replace(guest, server=msgspec.structs.replace(guest.server, urls=(url,)))
        run(until_refused(sharing, alone))


def test_what_0_2_0_shared_says_how_to_go_on(world: World, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    urls = ("postgresql://desk:word@db.example/shop",)
    world.desk.keep(Membership("l_0123456789ab", "shop", "desk", Server(urls), Keyring.new(), b"secret"))
    administration = home / "sharing" / "administration.json"
    configured = administration.read_bytes()
    administration.write_bytes(msgspec.json.encode({"urls": urls, "members": {"l_0123456789ab": {}}}))
    assert main(["share", "status"]) == exit_codes.DEGRADED
    assert "remembrancer share leave" in capsys.readouterr().out
    packed = zlib.compress(msgspec.msgpack.encode(world.desk.membership("l_0123456789ab")))
    with pytest.raises(ConfigurationError):
        run(world.laptop.join_first(PREFIX + base64.urlsafe_b64encode(packed).decode()))
    assert not world.laptop.memberships()
    assert main(["share", "invite", "laptop"]) == exit_codes.USAGE
    run(world.desk.leave("l_0123456789ab"))
    host, port = world.address.split(":")
    world.desk.configure([Address(host, int(port))])
    administration.write_bytes(configured)  # whose keys the server of this test knows
    assert run(appended(world.desk, world.begin(), START, "op-1"))
