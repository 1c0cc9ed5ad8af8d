import asyncio
import base64
import json
import re
import stat
import subprocess
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, aclosing, closing, suppress
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from remembrancer.command_line import main
from remembrancer.commands import exit_codes
from remembrancer.config.settings import Settings
from remembrancer.journal.contract import START, LaneMark, NewEntry
from remembrancer.journal.jetstream import Server
from remembrancer.journal.sealing import Keyring, Sealed
from remembrancer.journal.server_config import CLUSTER_PORT, PORT, Address
from remembrancer.journal.sharing import PREFIX, Membership, Sharing, read_invitation
from remembrancer.protocol.errors import ConfigurationError, InvalidInput, JournalAway, JournalRefused, KeyMissing
from remembrancer.protocol.file_locks import FileLock
from remembrancer.protocol.paths import RuntimePaths
from remembrancer.protocol.sharing import ShareProject
from remembrancer.protocol.writes import ProjectRef
from tests.actors.gateway_rig import PATIENT, RawClient, Rig
from tests.actors.store_process import StoreRig, store_rig
from tests.nats_servers import Started, binary, reached, until_refused
from tests.operations import OTHER_PROJECT, PROJECT, store_operation
from tests.patience import PATIENCE_S, PATIENT_JOURNAL, until
from tests.ports import free_port
from tests.runtime import command, patiently
from tests.spaces import connect_space, dump_of

run = asyncio.run


def joined(sharing: Sharing, invitation: str) -> Membership:
    membership = read_invitation(invitation)
    sharing.keep(membership)
    return membership


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
        configure = ["share", "server-config", "--host", self.address, "--out", str(directory / "nats")]
        assert main(configure) == exit_codes.OK
        self.server = Started(directory / "nats" / "server-1", self.address)
        self.desk, self.laptop = Sharing(home), Sharing(self.other)

    def begin(self) -> Membership:
        return run(self.desk.new_lane("shop", "desk"))

    def join(self, lane: str, name: str = "laptop") -> Membership:
        return joined(self.laptop, run(self.desk.invite(lane, name)))


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
    lane = world.begin()
    mark = run(appended(world.desk, lane, START, "op-1", "op-2"))
    invitation = tmp_path / "invitation"
    assert main(["share", "invite", "laptop", "--out", str(invitation)]) == exit_codes.OK
    assert stat.S_IMODE(invitation.stat().st_mode) == 0o600
    assert main(["share", "invite", "laptop"]) == exit_codes.USAGE
    assert main(["share", "status"]) == exit_codes.OK
    assert "members: desk\n  invited, but not joined yet: laptop\n" in capsys.readouterr().out
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
def test_a_member_is_let_in_to_its_own_lane_alone_and_reads_it_by_its_key(world: World) -> None:
    lane, other = world.begin(), run(world.desk.new_lane("diary", "desk"))
    member = world.join(lane.lane)
    elsewhere = msgspec.structs.replace(member, lane=other.lane)
    nobody = msgspec.structs.replace(member.server, user_jwt="", user_seed="")
    run(appended(world.desk, lane, START, "op-1"))
    with pytest.raises(KeyMissing, match="position 1"):
        run(ids_read(world.laptop, msgspec.structs.replace(member, keyring=Keyring.new())))
    for refused in (
        ids_read(world.laptop, elsewhere),
        appended(world.laptop, elsewhere, START, "op-1"),
        appended(world.laptop, msgspec.structs.replace(member, server=nobody), START, "op-1"),
    ):
        with pytest.raises(JournalRefused):
            run(refused)
    assert run(ids_read(world.desk, other)) == []


@encrypted_or_not
def test_a_removed_member_reads_nothing_more(world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lane, third = world.begin(), Sharing(tmp_path / "third")
    member, stays = world.join(lane.lane), joined(third, run(world.desk.invite(lane.lane, "build")))
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
    assert main(["share", "remove", "build"]) == exit_codes.USAGE
    assert "confirm with --yes" in capsys.readouterr().err
    assert main(["share", "remove", "laptop", "--yes"]) == exit_codes.USAGE
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


def test_a_removal_broken_off_leaves_all_a_key(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lane, third = world.begin(), Sharing(tmp_path / "third")
    member, stays = world.join(lane.lane), joined(third, run(world.desk.invite(lane.lane, "build")))
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
    assert run(ids_read(tablet, joined(tablet, invited_meanwhile))) == ["op-1", "op-2"]


def test_another_operator_is_no_use(world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    world.begin()
    stranger = Sharing(tmp_path / "stranger")
    host, port = world.address.split(":")
    stranger.configure([Address(host, int(port))])
    with pytest.raises((JournalRefused, JournalAway)):
        run(stranger.new_lane("shop", "desk"))
    world.server.end()
    capsys.readouterr()
    assert main(["share", "status"]) == exit_codes.DEGRADED
    assert "not reachable" in capsys.readouterr().out


def test_an_invitation_is_for_the_first_machine_that_joins_by_it(world: World, tmp_path: Path) -> None:
    lane, second = world.begin(), Sharing(tmp_path / "second")
    line = run(world.desk.invite(lane.lane, "laptop"))
    first = run(world.laptop.join(line))
    assert run(world.laptop.join(line)) == first, "it may come again"
    with pytest.raises(InvalidInput, match="another machine has joined"):
        run(second.join(line))
    assert second.memberships() == ()
    run(world.laptop.leave(lane.lane))
    assert run(second.join(line)).member == "laptop", "who has left makes room"
    run(world.desk.remove(lane.lane, "laptop"))
    assert run(second.join(run(world.desk.invite(lane.lane, "laptop")))).member == "laptop"


def test_three_servers_are_one_journal_and_one_that_was_away_learns_who_was_removed(home: Path, tmp_path: Path) -> None:
    host, ports = "127.0.0.2", [free_port(CLUSTER_PORT - PORT) for _ in range(3)]
    hosts = [argument for port in ports for argument in ("--host", f"{host}:{port}")]
    again = ["share", "server-config", *hosts, "--out", str(tmp_path / "nats")]
    assert [main(again), main(again)] == [exit_codes.OK, exit_codes.USAGE], "the directory exists"
    directories = [tmp_path / "nats" / f"server-{number}" for number in (1, 2, 3)]
    for directory in directories:
        subprocess.run([binary(), "-c", "server.conf", "-t"], cwd=directory, check=True, capture_output=True)
    sharing = Sharing(home)
    servers = [Started(directory, f"{host}:{port}") for directory, port in zip(directories, ports, strict=True)]
    with servers[0], servers[1], servers[2]:
        lane = run(reached(lambda: sharing.new_lane("shop", "desk")))
        run(reached(lambda: appended(sharing, lane, START, "op-1")))
        servers[0].end()
        assert run(reached(lambda: ids_read(sharing, lane))) == ["op-1"]
        guest = joined(Sharing(tmp_path / "guest"), run(sharing.invite(lane.lane, "guest")))
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
        run(world.laptop.join(PREFIX + base64.urlsafe_b64encode(packed).decode()))
    assert not world.laptop.memberships()
    assert main(["share", "invite", "laptop"]) == exit_codes.USAGE
    run(world.desk.leave("l_0123456789ab"))
    host, port = world.address.split(":")
    world.desk.configure([Address(host, int(port))])
    administration.write_bytes(configured)  # whose keys the server of this test knows
    assert run(appended(world.desk, world.begin(), START, "op-1"))


async def done(*arguments: str, home: Path, directory: Path | None = None, **environ: str) -> dict[str, Any]:
    answer = await asyncio.to_thread(patiently, *arguments, "--json", home=home, directory=directory, variables=environ)
    assert answer.returncode == exit_codes.OK, answer.stderr
    told: dict[str, Any] = json.loads(answer.stdout)
    return told


@pytest.fixture
def other(world: World) -> Iterator[Path]:
    """The home of the other machine. Both are locked, as by a launcher: else a command may start a runtime beside the
    stores of a test."""
    world.other.mkdir(mode=0o700)
    with ExitStack() as locks:
        for each in (world.home, world.other):
            assert locks.enter_context(FileLock(RuntimePaths(each).runtime_lock)).try_acquire()
        yield world.other


async def finds(client: RawClient, *contents: str) -> bool:
    answer = await client.call("recall_memories", query="lantern", strategy="keyword", limit=20)
    return set(contents) <= {memory["content"] for memory in answer["memories"]}


async def test_two_homes_share_a_project_agree_after_the_server_was_dead_and_get_the_new_key_after_a_removal(
    world: World, home: Path, other: Path, tmp_path: Path
) -> None:
    desk, laptop = tmp_path / "desk" / "shop", tmp_path / "laptop" / "shop"
    for directory in (desk, laptop):
        directory.mkdir(parents=True)
    here, there = Rig(home, PATIENT), Rig(other, PATIENT)
    async with (
        store_rig(home, settings=Settings(embedders=0), constants=PATIENT_JOURNAL),
        store_rig(other, constants=PATIENT_JOURNAL),
        here.running(),
        there.running(),
        here.session(directory=str(desk), session="session:desk") as at_desk,
        there.session(directory=str(laptop), bridge="11" * 16, session="session:laptop") as at_laptop,
    ):
        await at_desk.store("The lantern burns oil")
        await at_desk.store("The lantern of this session alone", scope="session")
        planned = await done("share", "project", "--dry-run", home=home, REMEMBRANCER_PROJECT=str(desk))
        assert (planned["dry_run"], planned["memories"]) == (True, 1)
        shared = await done("share", "project", "--yes", "--invite", "laptop", home=home, directory=desk)
        assert (shared["title"], shared["memories"], shared["left"]) == ("shop", 1, 0)
        lane = shared["lane"]
        joined = await done("share", "join", "--here", "--yes", shared["invitation"], home=other, directory=laptop)
        assert (joined["lane"], joined["member"]) == (lane, "laptop")

        assert await finds(at_laptop, "The lantern burns oil"), "what was there before is there at once"
        assert not await finds(at_laptop, "The lantern of this session alone")
        assert await finds(at_desk, "The lantern burns oil", "The lantern of this session alone")
        await at_laptop.store("The lantern hangs at the gate")
        await until(lambda: finds(at_desk, "The lantern hangs at the gate"))
        await done("add", "The lantern is green", home=other, directory=laptop)
        await until(lambda: finds(at_desk, "The lantern is green"))
        (green,) = (await done("search", "green lantern", home=home, directory=desk))["memories"][:1]
        for question in ((), ("--history",)):
            told = await asyncio.to_thread(patiently, "show", green["id"], *question, home=home, directory=desk)
            assert "laptop, in the shell" in told.stdout, "not the user of this machine"

        world.server.end()
        for client, content in ((at_desk, "The lantern went out"), (at_laptop, "The lantern was lit again")):
            stored = await client.store(content)
            assert "queued" in [each["code"] for each in stored["warnings"]]
        world.server.start()
        said = ("burns oil", "hangs at the gate", "is green", "went out", "was lit again")
        everything = tuple(f"The lantern {each}" for each in said)
        await until(lambda: finds(at_desk, *everything))
        await until(lambda: finds(at_laptop, *everything))
        status = partial(asyncio.to_thread, patiently, "share", "status", home=home)
        await until(status, lambda told: told.returncode == exit_codes.OK)  # of the server
        assert "laptop" in (await done("share", "status", home=home))["lanes"][0]["members"]
        ours: list[str] = dump_of(RuntimePaths(home).database, lane)
        await until(lambda: dump_of(RuntimePaths(other).database, lane) == ours)
        assert sum(row.startswith("history ") for row in ours) == len(everything), "each write was applied once"
        assert (await asyncio.to_thread(command, "share", "invite", "guest", home=home)).returncode == exit_codes.OK
        guest = msgspec.structs.replace(Sharing(home).membership(lane), secret=b"")  # who is brought no new key
        await done("share", "remove", "guest", "--yes", home=home)
        async with aclosing(Sharing(home).open(guest)) as journal:
            head = await journal.head(lane)
            await at_desk.store("The lantern is new")
            page = await journal.read(lane, after=START)
            assert page.mark.position < head, "what the command itself has written is not for the guest either"
            with pytest.raises(KeyMissing):
                await journal.read(lane, after=page.mark)
        await until(lambda: finds(at_laptop, "The lantern is new"))
        assert Sharing(other).membership(lane).keyring == Sharing(home).membership(lane).keyring
        moved = laptop.rename(laptop.with_name("my shop"))
        move = "admin", "projects", "move", str(laptop), "."
        refused = await asyncio.to_thread(patiently, *move, home=other, directory=moved)
        (place,) = re.findall(r"'REMEMBRANCER_PROJECT=(\S+) remembrancer share leave'", refused.stderr)
        left = await done("share", "leave", "--yes", home=other, directory=moved, REMEMBRANCER_PROJECT=place)
        assert left == {"left": lane, "memories": 6}
        assert await finds(at_laptop, *everything), "a copy stays"


EACH = 120
"""Memories of a machine: the store moves 50 at once."""
TWINS = 20
"""Of those, the other machine has the text of so many."""
READ = "SELECT content FROM memories WHERE scope = ? AND forgotten_at IS NULL"


def said(rig: StoreRig, *spaces: str, scope: str = "user") -> list[str]:
    found = []
    for space in spaces:
        with closing(connect_space(rig.paths, space)) as connection:
            found += [content for (content,) in connection.execute(READ, (scope,))]
    return sorted(found)


async def killed_while_it_shares(rig: StoreRig, lane: str, its: set[str]) -> None:
    asking = asyncio.create_task(rig.gateway.ask(ShareProject(None, lane)))
    await until(lambda: its.intersection(said(rig, lane)))
    await rig.store.kill()
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    await rig.start()


async def test_a_user_has_each_memory_once_though_both_machines_died(world: World, home: Path, other: Path) -> None:
    lane = (await world.desk.new_lane("user", "desk", is_users=True)).lane
    texts = {home: [f"I like lantern {n}" for n in range(EACH)]}
    texts[other] = [f"I like lantern {n}" for n in range(EACH - TWINS, 2 * EACH - TWINS)]
    async with store_rig(home, constants=PATIENT_JOURNAL) as here, store_rig(other, constants=PATIENT_JOURNAL) as there:
        for rig, project in ((here, PROJECT), (there, OTHER_PROJECT)):
            await rig.gateway.submit_batch(
                *(store_operation(text, text, scope="user", project=project) for text in texts[rig.home])
            )
        await killed_while_it_shares(here, lane, set(texts[home]))
        assert set(said(here, "user", lane)) == set(texts[home])
        assert await here.gateway.found("lantern 7", strategy="keyword"), "what is left is found as well"
        shared = await done("share", "user", "--yes", "--invite", "laptop", home=home)
        assert (shared["lane"], shared["left"]) == (lane, 0)
        assert said(here, "user") == []

        await Sharing(other).join(shared["invitation"])
        await killed_while_it_shares(there, lane, set(texts[other]) - set(texts[home]))
        joined = await done("share", "join", "--yes", shared["invitation"], home=other)
        assert (joined["lane"], joined["member"], joined["left"]) == (lane, "laptop", 0)
        everything = sorted({*texts[home], *texts[other]})
        await until(lambda: said(here, lane) == said(there, lane) == everything)
        assert said(there, "user") == []
        await here.gateway.store("I like candles", scope="user")
        await until(lambda: "I like candles" in said(there, lane))
        await until(lambda: dump_of(here.paths.database) == dump_of(there.paths.database))

        assert await there.gateway.found("candles", strategy="keyword", project=OTHER_PROJECT)
        without_user = ProjectRef(OTHER_PROJECT.id, OTHER_PROJECT.path, sees_user=False)
        assert not await there.gateway.found("candles", strategy="keyword", project=without_user)
        status = await done("share", "status", home=home)
        assert (status["lanes"][0]["user"], status["lanes"][0]["members"]) == (True, ["desk", "laptop"])
        left = await done("share", "leave", "--user", "--yes", home=other)
        assert left == {"left": lane, "memories": len(everything) + 1}
        assert said(there, "user") == sorted([*everything, "I like candles"])
