"""A session's start, presence and end, as the gateway tells the store of them."""

from __future__ import annotations

import pytest

from remembrancer.actors.gateway import attendance
from remembrancer.config.project import project_of
from remembrancer.protocol.consolidation import NotePresence
from remembrancer.protocol.session_life import EndSession, StartSession
from tests.actors.gateway_rig import Rig
from tests.patience import until

SESSION = "session:test"


async def test_a_session_starts_when_its_client_is_there_and_ends_when_it_says_so(served: Rig) -> None:
    async with served.session() as client:
        await until(lambda: served.life == [StartSession(SESSION, "test", str(served.paths.home))])
        await client.say_end()
    await until(lambda: served.life[1:] == [EndSession(SESSION, "completed")])


async def test_a_lost_bridge_ends_nothing_and_its_return_begins_the_session_again(served: Rig) -> None:
    for times in (1, 2):
        async with served.session():
            await until(lambda times=times: len(served.life) == times)  # type: ignore[misc]
        await until(lambda: served.gateway.health().sessions == 0)
    assert [type(change) for change in served.life] == [StartSession, StartSession]


async def test_bridges_that_share_a_session_share_its_start_and_its_end(served: Rig) -> None:
    async with served.session() as first:
        await until(lambda: served.life)  # a bridge whose project is not known yet keeps no session open
        async with served.session(bridge="11" * 16) as second:
            await second.call("get_memory_status")
            await second.say_end()
        await until(lambda: served.gateway.health().sessions == 1)
        await first.call("get_memory_status")
        assert [type(change) for change in served.life] == [StartSession]
        await first.say_end()
    await until(lambda: len(served.life) == 2)


async def test_starts_and_ends_wait_for_a_store_that_is_away(quick_rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attendance, "FIRST_WAIT_S", 0.05)
    async with quick_rig.running() as gateway:
        async with quick_rig.session() as client:
            await client.store("the lantern is green")
            await client.say_end()
        await until(lambda: gateway.health().queue_depth == 3)
    async with quick_rig.store(), quick_rig.running():
        await until(
            lambda: (
                quick_rig.rows("SELECT session_id, ending, client FROM sessions") == [(SESSION, "completed", "test")]
            )
        )


async def test_the_store_hears_who_is_there_and_not_of_the_gone(served: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attendance, "PRESENCE_S", 0.02)
    present: list[set[tuple[str, str]]] = []
    monkeypatch.setattr(
        served.gateway.access._store,
        "send",
        lambda message: (
            present.append({(each.id, name) for each, name in message.sessions})
            if isinstance(message, NotePresence)
            else None
        ),
    )
    project = project_of(served.paths.home).id
    async with served.session() as client, served.session(bridge="11" * 16, session="session:other"):
        await client.call("get_memory_status")
        await until(lambda: present and present[-1] == {(project, SESSION), (project, "session:other")})
    await until(lambda: present[-1] == set())


async def test_an_ordered_stop_ends_no_session_but_tells_of_those_that_have_ended(served: Rig) -> None:
    async with served.session(), served.session(bridge="11" * 16, session="session:other") as other:
        await until(lambda: len(served.life) == 2)
        await other.say_end()
        await other.aclose()
        await until(lambda: served.gateway.health().sessions == 1)
        await served.gateway.drain("down")
    assert served.life[2:] == [EndSession("session:other")]
