import socket
from collections.abc import AsyncIterator
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import anyio
import httpx
import msgspec
import pytest

from remembrancer.actors.gateway import actor
from remembrancer.actors.gateway.shown_log import Shown
from remembrancer.actors.gateway.store_access import WriteNews
from remembrancer.browser.access import VisitorAccess
from remembrancer.browser.history import AnsweredQuery, asked_of, lines_of, live, parts_of, totals_of
from remembrancer.browser.view import View, who
from remembrancer.protocol.browsing import ActivityRead, MemoryChanged
from remembrancer.protocol.errors import MemoryUnavailable
from remembrancer.protocol.reads import ListedSession
from remembrancer.protocol.session_life import SHELL_SESSION
from tests.actors.gateway_rig import PATIENT, Rig
from tests.cases import cases
from tests.operations import store_operation


async def test_two_that_open_the_browser_get_one_server(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(home, PATIENT)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setattr(actor, "BROWSER_PORTS", (port,))
        async with rig.running() as gateway:
            with pytest.raises(MemoryUnavailable):
                await gateway.access.open_browser()
            monkeypatch.setattr(actor, "BROWSER_PORTS", (port, 0))
            urls: list[str] = []

            async def browse() -> None:
                urls.append(await gateway.access.open_browser())

            async with anyio.create_task_group() as tasks:
                for _ in range(2):
                    tasks.start_soon(browse)
            assert len({httpx.URL(url).port for url in urls}) == 1


async def test_the_browser_opens_on_a_full_disk(home: Path) -> None:
    rig = Rig(home, PATIENT)
    async with rig.running() as gateway:
        (rig.paths.run / "browser").symlink_to("/dev/full")
        assert httpx.URL(await gateway.access.open_browser()).port


async def test_an_open_page_hears_of_a_write_that_follows_its_first_event_at_once() -> None:
    writes = WriteNews()
    access = SimpleNamespace(holds=lambda _grant: True)
    shared = SimpleNamespace(next_write=lambda: writes.happened, access=access)
    response = await live(cast(View, SimpleNamespace(shared=shared, grant=None)))
    events = cast(AsyncIterator[bytes], response.body_iterator)  # type: ignore[attr-defined]
    for event in (b"event: here", b"event: written", b"event: written"):
        assert event in await anext(events)
        writes.note(store_operation("gate", "The gate opens at seven"))


def test_each_home_of_a_machine_has_a_cookie_of_its_own_on_any_port(tmp_path: Path) -> None:
    first, second, again = (VisitorAccess(tmp_path / name, no_token=False) for name in ("first", "second", "first"))
    assert first._cookie == again._cookie != second._cookie, "or they would sign each other's visitors out"


@pytest.mark.parametrize(("session_id", "member", "name"), cases("browser", "who"))
def test_a_change_of_another_machine_has_that_machine_s_name(session_id: str, member: str, name: str) -> None:
    start = datetime(2001, 9, 9, 1, 46).astimezone().timestamp()
    clients = {"session:named": "claude-code", "session:nameless": None, "session:library": "mcp"}
    sessions = {each: ListedSession(each, start, start, client=client) for each, client in clients.items()}
    assert who(session_id, sessions, member) == name


def test_a_day_tells_a_person_s_changes_on_another_machine_from_those_here() -> None:
    here = MemoryChanged("m_1", "stored", 2.0, SHELL_SESSION)
    there = MemoryChanged("m_2", "stored", 1.0, SHELL_SESSION, member="laptop")
    question = {SHELL_SESSION: [AnsweredQuery(3.0, "which?", "recall_memories", ())]}
    parts = parts_of(ActivityRead((here, there)), question, {})
    assert [(each.who, [line.change for line in each.lines], len(each.asked)) for each in parts] == [
        ("You, in the shell", [here], 1),
        ("laptop, in the shell", [there], 0),
    ]


def test_a_query_that_only_files_answered_did_not_find_nothing() -> None:
    log = [Shown(at, "p", "s", "", place, "recall_memories", "where?") for at, place in ((2.0, 1), (2.0, 2), (1.0, 0))]
    assert [(each.memory_ids, each.in_files) for each in asked_of(log)["s"]] == [((), True), ((), False)]


def test_a_memory_that_was_summarised_later_stays_with_the_session_that_stored_it() -> None:
    summarised = MemoryChanged("m_1", "consolidated", 2.0, version=2)
    stored = MemoryChanged("m_1", "stored", 1.0, "session:shell", version=1)
    summary = MemoryChanged("m_2", "derived", 2.0, version=1)
    parts = parts_of(ActivityRead((summary, summarised, stored)), {}, {})
    assert [(each.who, [line.change for line in each.lines], each.ends) for each in parts] == [
        ("In the background", [summary], 2.0),
        ("You, in the shell", [summarised], 1.0),
    ]
    assert parts[1].lines[0].did == "stored, summarised"


def test_a_restoring_that_was_undone_is_neither_told_nor_counted_on_today() -> None:
    stored, forgotten = MemoryChanged("m", "stored", 1.0), MemoryChanged("m", "forgotten", 2.0, is_forgotten=True)
    restored = MemoryChanged("m", "restored", 3.0, is_undone=True, is_forgotten=True)
    undoing = MemoryChanged("m", "forgotten", 4.0, undid="restored", is_forgotten=True)
    changes = (undoing, restored, forgotten, stored)
    (line,) = lines_of(changes)
    assert (line.did, line.button) == ("stored, forgotten", "restore")
    assert totals_of(changes) == {"stored": 1, "forgotten": 1}
    (line,) = lines_of((undoing, restored))
    assert line.did == "restored (undone)", "nothing else is left of that day"


def test_today_offers_the_undo_that_the_store_names_and_to_restore_what_is_forgotten() -> None:
    """Which change an undo takes back is tested with the store."""
    opened = MemoryChanged("m", "stored", 1.0, kind="open_end")
    undone = MemoryChanged("m", "undone", 2.0, version=9, undid="updated")
    for several, undo, button in (
        ((MemoryChanged("m", "tagged", 2.0, version=9, undo_at=9), opened), "undo/9", "undo: changed"),
        ((undone, msgspec.structs.replace(opened, undo_at=9)), "undo/9", "undo"),
        ((undone, MemoryChanged("m", "tagged", 1.0, is_undone=True)), "", ""),
        ((msgspec.structs.replace(opened, undo_at=9),), "undo/9", "undo"),
        ((MemoryChanged("m", "forgotten", 2.0, version=9, is_forgotten=True),), "restore", "restore"),
    ):
        (line,) = lines_of(several)
        assert line.undo == undo
        assert line.button == button or not undo
