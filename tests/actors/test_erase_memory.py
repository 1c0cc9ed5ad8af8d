"""Erasing as a session asks for it: what goes, what stays, and what is said when it is held up."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from remembrancer.actors.gateway import shown_log
from remembrancer.actors.gateway.shown_log import ShownLog
from remembrancer.config.project import project_of
from remembrancer.protocol.session_life import RecordEvents, Turn
from remembrancer.protocol.writes import Operation
from tests.actors.gateway_rig import Rig
from tests.actors.store_process import store_rig
from tests.patience import PATIENCE_S, until
from tests.spaces import connect_space, locked

ADMIN: dict[str, Any] = {"environment": {"REMEMBRANCER_TOOLSETS": "memory,admin"}}
SECRET = "the vault opens with marigold"


@pytest.fixture
def places(home: Path, tmp_path: Path) -> tuple[Path, Path]:
    found = tmp_path / "ours", tmp_path / "theirs"
    for each in found:
        each.mkdir()
    return found


@contextmanager
def read(path: Path) -> Iterator[None]:
    """Another program reads a database, as of now."""
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, isolation_level=None)) as connection:
        connection.execute("BEGIN")
        connection.execute("SELECT count(*) FROM memories").fetchone()
        yield


async def test_an_erasing_that_a_reader_holds_up_says_so_and_leaves_no_word_when_it_is_repeated(quick_rig: Rig) -> None:
    def having_it() -> set[str]:
        """The names of the database's files that have the secret in them. Not of its `-shm`: to close that file would
        end the reader's locks, which are this process's."""
        files = [each for each in quick_rig.paths.home.glob("memory.db*") if not each.name.endswith("-shm")]
        return {each.name for each in files if b"marigold" in each.read_bytes()}

    async with store_rig(quick_rig.paths.home), quick_rig.running() as gateway, quick_rig.session(**ADMIN) as client:
        memory_id = (await client.store(SECRET, scope="user"))["memory_id"]
        await until(lambda: gateway.health().queue_depth == 0)
        with read(quick_rig.paths.database):
            refused = await client.call("erase_memory", memory_id=memory_id)
            assert (refused["error"], refused["retry_possible"]) == ("file_locked", True)
            assert "still in the log" in refused["message"]
            assert (await client.call("get_memory", memory_id=memory_id))["error"] == "not_found"
            assert having_it(), "the reader sees it still"
        assert (await client.call("erase_memory", memory_id=memory_id))["already_erased"]
        assert not having_it()


async def test_what_another_project_queued_stays_one_s_own_goes(quick_rig: Rig, places: tuple[Path, Path]) -> None:
    async with (
        store_rig(quick_rig.paths.home),
        quick_rig.running() as gateway,
        quick_rig.session(directory=str(places[0]), **ADMIN) as us,
        quick_rig.session(directory=str(places[1]), bridge="11" * 16, session="session:theirs", **ADMIN) as them,
    ):
        for client in (us, them):
            await client.store("this makes the file")
        await until(lambda: gateway.health().queue_depth == 0)
        with locked(quick_rig.paths.database):
            queued = await them.store("Theirs waits")
            assert queued["warnings"][0]["code"] == "queued"
            assert (await us.call("erase_memory", memory_id=queued["memory_id"]))["retry_possible"]
        await until(lambda: gateway.health().queue_depth == 0)
        assert (await them.call("get_memory", memory_id=queued["memory_id"]))["content"] == "Theirs waits"

        with locked(quick_rig.paths.database):
            queued = await us.store(SECRET)
            refused = await us.call("erase_memory", memory_id=queued["memory_id"])
            assert (refused["error"], refused["retry_possible"]) == ("memory_unavailable", True)
        await until(lambda: gateway.health().queue_depth == 0)
        assert (await us.call("erase_memory", memory_id=queued["memory_id"]))["status"] == "erased"
        assert (await us.call("get_memory", memory_id=queued["memory_id"]))["error"] == "not_found"


@pytest.mark.parametrize(
    ("content", "said", "left"),
    [(SECRET, f"so {SECRET}, then", False), ("Redis", "we have Redis for the cache", True)],
    ids=["a sentence", "a word"],
)
async def test_an_erasing_that_is_held_up_has_deleted_nothing_and_takes_the_quotes_in_its_project_when_it_is_repeated(
    quick_rig: Rig, places: tuple[Path, Path], content: str, said: str, *, left: bool
) -> None:
    projects = [project_of(each) for each in places]

    def turns() -> list[list[str]]:
        found = []
        for each in projects:
            with closing(connect_space(quick_rig.paths, each.id)) as connection:
                found.append([text for (text,) in connection.execute("SELECT content FROM turns")])
        return found

    async with (
        store_rig(quick_rig.paths.home) as store,
        quick_rig.running() as gateway,
        quick_rig.session(directory=str(places[0]), **ADMIN) as us,
        quick_rig.session(directory=str(places[1]), bridge="11" * 16, session="session:theirs", **ADMIN) as them,
    ):
        for client in (us, them):
            await client.store("this makes the file")
        memory_id = (await us.store(content, scope="user"))["memory_id"]
        await until(lambda: gateway.health().queue_depth == 0)
        for project in projects:
            events = RecordEvents("session:any", turns=(Turn("user", said, 1.0),))
            await store.gateway.submit(Operation(f"events of {project.id}", project, "session:any", 1.0, events))
        with locked(quick_rig.paths.database):
            assert (await us.call("erase_memory", memory_id=memory_id))["retry_possible"]
            assert turns() == [[said], [said]]
        assert (await us.call("erase_memory", memory_id=memory_id))["status"] == "erased"
        assert (await us.call("get_memory", memory_id=memory_id))["error"] == "not_found"
        assert turns() == [[said] if left else [], [said]]


def test_what_is_on_its_way_to_the_log_of_the_shown_is_erased(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log, opened = ShownLog(tmp_path, 3600.0), shown_log._opened
    log.note("p_0", "s", ["memory:marigold"], "recall", "a marigold in the cellar")
    writes, goes_on = threading.Event(), threading.Event()

    def held_up(path: Path) -> AbstractContextManager[sqlite3.Connection]:
        if not writes.is_set():
            writes.set()
            goes_on.wait(PATIENCE_S)
        return opened(path)

    monkeypatch.setattr(shown_log, "_opened", held_up)
    with ThreadPoolExecutor(2) as threads:
        written = threads.submit(log.flush)
        assert writes.wait(PATIENCE_S)
        erased = threads.submit(log.erase, ["memory:marigold"], ["a marigold in the cellar"], "p_0")
        with suppress(TimeoutError):
            erased.result(0.2)  # one that does not wait for the batch is over by then
        goes_on.set()
        written.result(PATIENCE_S)
        erased.result(PATIENCE_S)
    assert b"marigold" not in (tmp_path / shown_log.FILE).read_bytes()
