"""Tokens of a shared lane: made at one host, taken at each, revoked everywhere, also by way of a snapshot."""

from __future__ import annotations

import os
import resource
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from remembrancer.actors.store.home_reader import SHARED
from remembrancer.actors.store.shared_lane import FORMAT
from remembrancer.command_line import main
from remembrancer.commands import exit_codes, token
from remembrancer.config.tokens import ENDED_FILE, SHARED_FILE, SharedGrant, Tokens, new_shared, shared_grant
from remembrancer.journal.contract import START
from remembrancer.protocol.errors import FileUnusable, InvalidInput, JournalAway, StorageFull
from remembrancer.protocol.sharing import EndHttpSession, GrantToken, LeaveLane, RevokeToken
from tests.actors.test_shared_lanes import LANE, Host
from tests.in_process_journal import InProcessJournal, InProcessServer
from tests.operations import OTHER_PROJECT, PROJECT, REQUESTED_AT
from tests.patience import until

pytestmark = pytest.mark.anyio
NOW = REQUESTED_AT


@pytest.fixture
async def hosts(tmp_path: Path) -> AsyncIterator[list[Host]]:
    server = InProcessServer()
    await InProcessJournal(server).create(LANE)
    made = [Host(tmp_path / name, server, project) for name, project in (("here", PROJECT), ("there", OTHER_PROJECT))]
    for host in made:
        await host.share()
    yield made
    for host in made:
        await host.aclose()


async def made_at(host: Host, name: str, **given: object) -> str:
    """A new token's text."""
    text, token = new_shared(name, NOW, expires_at=None, read_only=False)
    await host.ask(GrantToken(LANE, msgspec.structs.replace(token, **given)))
    return text


def taken_at(host: Host, text: str) -> SharedGrant | None:
    """The rights that it gives there, by a gateway that looks for the first time."""
    found = Tokens(host.paths.home, takes_shared=True).find(text, NOW)
    assert found is None or isinstance(found, SharedGrant)
    return found


async def test_a_token_made_at_one_host_is_taken_at_the_other_for_what_is_shared_and_nothing_else(
    hosts: list[Host],
) -> None:
    here, there = hosts
    text = await made_at(here, "ana", read_only=True, expires_at=NOW + 60)
    await until(lambda: taken_at(there, text))
    ours, theirs = taken_at(here, text), taken_at(there, text)
    assert ours is not None
    assert theirs is not None
    assert (ours.projects, theirs.projects) == ((PROJECT.path,), (OTHER_PROJECT.path,)), "each in its own directory"
    assert ours.session_key == theirs.session_key
    assert Tokens(there.paths.home).find(text, NOW) is None, "who has not said that such are taken takes none"
    assert (theirs.read_only, theirs.sees_user, theirs.every_project) == (True, False, False)
    assert Tokens(there.paths.home, takes_shared=True).find(text, NOW + 61) is None
    assert (there.paths.home / SHARED_FILE).stat().st_mode & 0o777 == 0o600
    for home in (here.paths.home, there.paths.home):
        assert not [path for path in home.rglob("*") if path.is_file() and text.encode() in path.read_bytes()]


async def test_a_token_is_revoked_everywhere_by_any_host(hosts: list[Host]) -> None:
    here, there = hosts
    ana, ben = await made_at(here, "ana"), await made_at(here, "ben")
    await until(lambda: taken_at(there, ana) and taken_at(there, ben))
    gateway = Tokens(here.paths.home, takes_shared=True)
    grant = gateway.find(ana, NOW)
    assert grant is not None
    assert gateway.holds(grant, NOW)
    await there.ask(RevokeToken(LANE, "ana"))
    assert taken_at(there, ana) is None
    await until(lambda: not gateway.holds(grant, NOW))
    assert taken_at(here, ben)
    with pytest.raises(InvalidInput, match="there is no token 'ana'"):
        await here.ask(RevokeToken(LANE, "ana"))


@contextmanager
def no_room() -> Iterator[None]:
    """The kernel lets no file of this process grow, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def test_a_token_that_is_revoked_where_the_list_cannot_be_written_opens_nothing_there_and_that_is_said(
    hosts: list[Host],
) -> None:
    here, there = hosts
    ana, ben = await made_at(here, "ana"), await made_at(here, "ben")
    await until(lambda: taken_at(there, ana) and taken_at(there, ben))
    shared = there.paths.home / SHARED_FILE
    in_the_way = shared.with_name(f".{shared.name}.{os.getpid()}.new")
    in_the_way.mkdir()
    with pytest.raises(FileUnusable, match="the other machines know"):
        await there.ask(RevokeToken(LANE, "ana"))
    assert (taken_at(there, ana), taken_at(there, ben)) == (None, None)
    await until(lambda: not taken_at(here, ana))
    in_the_way.rmdir()
    await here.store("lantern", "the lantern burns oil")
    await until(lambda: taken_at(there, ben))
    assert taken_at(there, ana) is None


async def test_a_token_that_is_revoked_on_a_full_disk_opens_nothing_there(hosts: list[Host]) -> None:
    here, there = hosts
    ana, ben = await made_at(here, "ana"), await made_at(here, "ben")
    await until(lambda: taken_at(there, ana) and taken_at(there, ben))
    with no_room():
        with pytest.raises(StorageFull):
            await there.ask(RevokeToken(LANE, "ana"))
        assert taken_at(there, ana) is None
    await here.store("lantern", "the lantern burns oil")
    await until(lambda: taken_at(there, ben) and not taken_at(here, ana))
    assert taken_at(there, ana) is None


def test_of_two_tokens_of_a_name_the_shared_one_is_revoked_also_where_the_home_s_own_cannot_be(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _, told = new_shared("ana", NOW, expires_at=None, read_only=False)
    tokens, revoked = Tokens(home), []
    tokens.keep_shared([LANE], LANE, (shared_grant(told, LANE, str(home)),))
    text = tokens.create("ana", (str(home),), NOW)
    monkeypatch.setattr(token, "ask_store", lambda request, _: revoked.append(request))
    with no_room():
        assert main(["token", "revoke", "ana"]) == exit_codes.HOME_UNUSABLE
    assert "ana still opens this home" in capsys.readouterr().err
    assert revoked == [RevokeToken(LANE, "ana")]
    assert tokens.find(text, NOW)

    def away(_request: object, _: object) -> None:
        raise JournalAway("the journal is not reachable")

    monkeypatch.setattr(token, "ask_store", away)
    assert main(["token", "revoke", "ana"]) == exit_codes.NO_ANSWER, "and the home's own also where the others cannot"
    assert tokens.find(text, NOW) is None


async def test_a_session_that_was_ended_at_one_host_is_over_at_the_other_and_for_who_joins(
    hosts: list[Host], tmp_path: Path
) -> None:
    here, there = hosts
    for name in ("0001", "0002", "0001"):
        await here.ask(EndHttpSession(LANE, name))
    await until(lambda: Tokens(there.paths.home).has_ended(LANE, "0002"))
    lane = here.lanes._open[LANE].lane
    assert lane.mark.position == 2, "what is known is not said again"
    assert [Tokens(there.paths.home).has_ended(LANE, name) for name in ("0001", "0003")] == [True, False]
    await there.ask(LeaveLane(OTHER_PROJECT))
    (there.paths.home / ENDED_FILE).unlink()
    file = tmp_path / "snapshot"
    mark = lane.write_snapshot(file)
    await here.journal.put_snapshot(LANE, mark, file)
    await here.journal.trim(LANE, before=mark.position + 1)
    await there.share()
    await until(lambda: Tokens(there.paths.home).has_ended(LANE, "0001"))
    (there.paths.home / ENDED_FILE).write_bytes(b"[{")
    assert Tokens(there.paths.home).has_ended(LANE, "0003"), "what nobody knows does not go on"


async def test_of_two_hosts_that_give_one_name_the_first_has_it(hosts: list[Host]) -> None:
    here, there = hosts
    ana = await made_at(here, "ana")
    with pytest.raises(InvalidInput, match="there is a token 'ana'"):
        await made_at(there, "ana")
    await until(lambda: taken_at(there, ana))
    with pytest.raises(InvalidInput, match="no project of this home shares 'l_ffffffffffff'"):
        await here.ask(RevokeToken("l_ffffffffffff", "ana"))


async def test_without_the_journal_a_token_is_taken_as_it_was_and_none_is_made_or_revoked(hosts: list[Host]) -> None:
    here, there = hosts
    ana = await made_at(here, "ana")
    await until(lambda: taken_at(there, ana))
    there.journal.reachable = False
    with pytest.raises(JournalAway):
        await there.ask(RevokeToken(LANE, "ana"))
    with pytest.raises(JournalAway):
        await made_at(there, "ben")
    await there.aclose()
    there.start()
    assert taken_at(there, ana)
    await there.files.project(OTHER_PROJECT)
    assert taken_at(there, ana)
    there.journal.reachable = True
    await here.ask(RevokeToken(LANE, "ana"))
    await until(lambda: not taken_at(there, ana))


async def test_a_damaged_list_opens_nothing_and_is_made_anew(hosts: list[Host]) -> None:
    here, _ = hosts
    ana = await made_at(here, "ana")
    await here.aclose()
    (here.paths.home / SHARED_FILE).write_bytes(b"[{")
    here.start()
    await here.files.project(PROJECT)
    assert taken_at(here, ana)


async def test_a_project_that_is_not_shared_any_more_after_a_restore_takes_no_token_of_the_lane(
    hosts: list[Host],
) -> None:
    here, _ = hosts
    ana = await made_at(here, "ana")
    await here.aclose()
    (here.paths.home / SHARED).unlink()
    assert taken_at(here, ana), "nobody has looked yet"
    here.start()
    assert taken_at(here, ana) is None


async def test_who_joins_by_a_snapshot_takes_the_tokens_and_who_leaves_takes_none(
    hosts: list[Host], tmp_path: Path
) -> None:
    here, there = hosts
    ana, ben = await made_at(here, "ana"), await made_at(here, "ben")
    await here.ask(RevokeToken(LANE, "ben"))
    await there.ask(LeaveLane(OTHER_PROJECT))
    assert taken_at(there, ana) is None
    own = Tokens(there.paths.home)
    text = own.create("own", ("/",), NOW)
    assert own.find(text, NOW)
    file = tmp_path / "snapshot"
    lane = here.lanes._open[LANE].lane
    mark = lane.write_snapshot(file)
    await here.journal.put_snapshot(LANE, mark, file)
    await here.journal.trim(LANE, before=mark.position + 1)
    await there.share()
    await until(lambda: taken_at(there, ana))
    assert taken_at(there, ben) is None
    assert own.find(text, NOW)


async def test_every_entry_names_its_form_at_which_an_older_release_stops(hosts: list[Host]) -> None:
    here, _ = hosts
    await here.store("lantern", "the lantern burns oil")
    await made_at(here, "ana")
    page = await here.journal.read(LANE, after=START)
    formats = [msgspec.msgpack.decode(entry.body).get("format") for entry in page.entries]
    assert formats == [FORMAT, FORMAT]
