"""A session's start, presence and end, as the gateway tells the store of them."""

from __future__ import annotations

import pytest

from remembrancer.actors.gateway import attendance, recognition
from remembrancer.config.project import project_of
from remembrancer.protocol.session_life import EndSession, StartSession
from tests.actors.gateway_rig import PlayedStore, Rig
from tests.patience import until

SESSION = "session:test"


async def test_a_session_starts_when_its_client_is_there_and_ends_when_it_says_so(patient_rig: Rig) -> None:
    async with PlayedStore(patient_rig.paths).open() as store, patient_rig.running():
        async with patient_rig.session() as client:
            await until(lambda: len(store.life) == 1)
            assert store.life == [StartSession(SESSION, "test", str(patient_rig.paths.home))]
            await client.say_end()
        await until(lambda: len(store.life) == 2)
        assert store.life[1] == EndSession(SESSION, "completed")


async def test_a_lost_bridge_ends_nothing_and_its_return_begins_the_session_again(patient_rig: Rig) -> None:
    async with PlayedStore(patient_rig.paths).open() as store, patient_rig.running() as gateway:
        for times in (1, 2):
            async with patient_rig.session():
                await until(lambda times=times: len(store.life) == times)  # type: ignore[misc]
            await until(lambda: gateway.health().sessions == 0)
        assert [type(change) for change in store.life] == [StartSession, StartSession]


async def test_bridges_that_share_a_session_share_its_start_and_its_end(patient_rig: Rig) -> None:
    async with PlayedStore(patient_rig.paths).open() as store, patient_rig.running() as gateway:
        async with patient_rig.session() as first:
            await until(lambda: len(store.life) == 1)  # a bridge whose project is not known yet keeps no session open
            async with patient_rig.session(bridge="11" * 16) as second:
                await second.call("get_memory_status")
                await second.say_end()
            await until(lambda: gateway.health().sessions == 1)
            await first.call("get_memory_status")
            assert [type(change) for change in store.life] == [StartSession]
            await first.say_end()
        await until(lambda: len(store.life) == 2)


async def test_starts_and_ends_wait_for_a_store_that_is_away(quick_rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attendance, "FIRST_WAIT_S", 0.05)
    monkeypatch.setattr(recognition, "STORE_WAIT_S", 0.05)
    async with quick_rig.running() as gateway:
        async with quick_rig.session() as client:
            await until(lambda: gateway.health().queue_depth == 1)
            await client.say_end()
        await until(lambda: gateway.health().queue_depth == 2)
    async with PlayedStore(quick_rig.paths).open() as store, quick_rig.running():
        await until(lambda: len(store.life) == 2)
        assert [type(change) for change in store.life] == [StartSession, EndSession]


async def test_the_store_hears_who_is_there_and_no_more_of_who_has_gone(
    patient_rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attendance, "PRESENCE_S", 0.02)
    async with PlayedStore(patient_rig.paths).open() as store, patient_rig.running() as gateway:
        async with patient_rig.session() as client, patient_rig.session(bridge="11" * 16, session="session:other"):
            await client.call("get_memory_status")
            await until(lambda: bool(store.present) and len(store.present[-1].sessions) == 2)
            project = project_of(patient_rig.paths.home)
            assert {(each.id, name) for each, name in store.present[-1].sessions} == {
                (project.id, SESSION),
                (project.id, "session:other"),
            }
        await until(lambda: gateway.health().sessions == 0)


async def test_an_ordered_stop_ends_no_session_but_tells_of_those_that_have_ended(patient_rig: Rig) -> None:
    async with PlayedStore(patient_rig.paths).open() as store, patient_rig.running() as gateway:
        async with patient_rig.session(), patient_rig.session(bridge="11" * 16, session="session:other") as other:
            await until(lambda: len(store.life) == 2)
            await other.say_end()
            await other.aclose()
            await until(lambda: gateway.health().sessions == 1)
            await gateway.drain("down")
        assert store.life[2:] == [EndSession("session:other")]
