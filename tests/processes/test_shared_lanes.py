"""Two machines share a project, or their user, by a real server: killed servers and stores cost time alone."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from remembrancer.commands import exit_codes
from remembrancer.journal.contract import START
from remembrancer.journal.sharing import Sharing
from remembrancer.protocol.errors import KeyMissing
from remembrancer.protocol.file_locks import FileLock
from remembrancer.protocol.paths import RuntimePaths
from remembrancer.protocol.sharing import ShareProject
from remembrancer.protocol.writes import ProjectRef
from tests.actors.gateway_rig import PATIENT, RawClient, Rig
from tests.actors.store_process import StoreRig, store_rig
from tests.lane_dump import dump_of
from tests.nats_servers import Started
from tests.operations import OTHER_PROJECT, PROJECT, store_operation
from tests.patience import PATIENT_JOURNAL, until
from tests.ports import free_port
from tests.runtime import command, patiently
from tests.spaces import connect_space

COMPARED = "SELECT id, content, scope, version, created_at, updated_at FROM memories ORDER BY number"


async def done(*arguments: str, home: Path, directory: Path | None = None, **environ: str) -> dict[str, Any]:
    answer = await asyncio.to_thread(patiently, *arguments, "--json", home=home, directory=directory, variables=environ)
    assert answer.returncode == exit_codes.OK, answer.stderr
    told: dict[str, Any] = json.loads(answer.stdout)
    return told


async def exchanging(home: Path) -> dict[str, Any]:
    """A home's status once its store has heard of the server again: it may have taken in all entries before that."""
    answers: list[dict[str, Any]] = []

    async def is_well() -> bool:
        answer = await asyncio.to_thread(patiently, "share", "status", "--json", home=home)
        assert answer.returncode in (exit_codes.OK, exit_codes.DEGRADED), answer.stderr
        answers.append(json.loads(answer.stdout))
        return answer.returncode == exit_codes.OK

    await until(is_well)
    return answers[-1]


@pytest.fixture
def server(home: Path, tmp_path: Path) -> Iterator[Started]:
    address = f"127.0.0.1:{free_port()}"
    configured = command("share", "server-config", "--host", address, "--out", str(tmp_path / "nats"), home=home)
    assert configured.returncode == exit_codes.OK, configured.stderr
    with Started(tmp_path / "nats" / "server-1", address) as started:
        yield started


@pytest.fixture
def other(home: Path, tmp_path: Path) -> Iterator[Path]:
    """The home of another machine. Both are locked, as by a launcher: else a command may start a runtime beside the
    stores of a test."""
    directory = tmp_path / "other"
    directory.mkdir(mode=0o700)
    with ExitStack() as locks:
        for each in (home, directory):
            assert locks.enter_context(FileLock(RuntimePaths(each).runtime_lock)).try_acquire()
        yield directory


@pytest.fixture
def checkouts(tmp_path: Path) -> tuple[Path, Path]:
    desk, laptop = tmp_path / "desk" / "shop", tmp_path / "laptop" / "shop"
    for directory in (desk, laptop):
        directory.mkdir(parents=True)
    return desk, laptop


async def finds(client: RawClient, *contents: str) -> bool:
    answer = await client.call("recall_memories", query="lantern", strategy="keyword", limit=20)
    return set(contents) <= {memory["content"] for memory in answer["memories"]}


async def test_whatever_is_written_after_a_removal_is_sealed_with_the_new_key(
    server: Started, home: Path, other: Path, checkouts: tuple[Path, Path]
) -> None:
    (desk, laptop), here = checkouts, Rig(home, PATIENT)
    async with (
        store_rig(home, constants=PATIENT_JOURNAL),
        store_rig(other, constants=PATIENT_JOURNAL),
        here.running(),
        here.session(directory=str(desk), session="session:desk") as at_desk,
    ):
        await at_desk.store("The lantern burns oil")
        shared = await done("share", "project", "--yes", "--invite", "laptop", home=home, directory=desk)
        await done("share", "join", "--here", "--yes", shared["invitation"], home=other, directory=laptop)
        lane = shared["lane"]
        assert (await asyncio.to_thread(command, "share", "invite", "guest", home=home)).returncode == exit_codes.OK
        guest = msgspec.structs.replace(Sharing(home).membership(lane), secret=b"")  # who is brought no new key
        await done("share", "remove", "guest", home=home)
        journal = Sharing(home).open(guest)
        head = await journal.head(lane)
        await at_desk.store("The lantern went out")
        page = await journal.read(lane, after=START)
        assert page.mark.position < head, "what the command itself has written is not for the guest either"
        with pytest.raises(KeyMissing):
            await journal.read(lane, after=page.mark)
        await journal.aclose()
        await until(lambda: Sharing(other).membership(lane).keyring == Sharing(home).membership(lane).keyring)


def rows(home: Path, lane: str) -> tuple[list[Any], list[Any]]:
    with closing(connect_space(RuntimePaths(home), lane)) as connection:
        history = "SELECT * FROM history ORDER BY memory_id, version"
        rows = connection.execute(history).fetchall()  # each begins with the number of the space
        return connection.execute(COMPARED).fetchall(), [row[1:] for row in rows]


async def test_two_homes_share_a_project_and_agree_after_the_server_was_dead(
    server: Started, home: Path, other: Path, checkouts: tuple[Path, Path]
) -> None:
    (desk, laptop), here, there = checkouts, Rig(home, PATIENT), Rig(other, PATIENT)
    async with (
        store_rig(home, constants=PATIENT_JOURNAL),
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

        server.end()
        for client, content in ((at_desk, "The lantern went out"), (at_laptop, "The lantern was lit again")):
            stored = await client.store(content)
            assert "queued" in [each["code"] for each in stored["warnings"]]
        server.start()
        everything = (
            "The lantern burns oil",
            "The lantern hangs at the gate",
            "The lantern went out",
            "The lantern was lit again",
        )
        await until(lambda: finds(at_desk, *everything))
        await until(lambda: finds(at_laptop, *everything))
        assert "laptop" in (await exchanging(home))["lanes"][0]["members"]
        ours, theirs = rows(home, lane), rows(other, lane)
        assert ours == theirs
        assert ([row[1] for row in ours[0]][:2], len(ours[1])) == (list(everything[:2]), 4)
        left = await done("share", "leave", "--yes", home=other, directory=laptop)
        assert left == {"left": lane, "memories": 4}
        assert await finds(at_laptop, *everything), "a copy stays"


EACH = 120
"""Memories of a machine: the store moves 50 at once."""
TWINS = 20
"""Of those, the other machine has the text of so many."""
READ = "SELECT content FROM memories WHERE scope = ? AND forgotten_at IS NULL"


def said(rig: StoreRig, *spaces: str, scope: str = "user") -> list[str]:
    """All that spaces have of the user (or of another scope), in order."""
    found = []
    for space in spaces:
        with closing(connect_space(rig.paths, space)) as connection:
            found += [content for (content,) in connection.execute(READ, (scope,))]
    return sorted(found)


async def killed_while_it_shares(rig: StoreRig, lane: str, its: set[str]) -> None:
    """Kill a store when some of what is its own is in the lane."""
    asking = asyncio.create_task(rig.gateway.ask(ShareProject(None, lane)))
    await until(lambda: its.intersection(said(rig, lane)))
    await rig.store.kill()
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    await rig.start()


async def test_a_user_has_each_memory_once_though_both_machines_died(server: Started, home: Path, other: Path) -> None:
    desk = Sharing(home)
    await desk.start()
    lane = (await desk.new_lane("user", "desk", is_users=True)).lane
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

        await Sharing(other).join_first(shared["invitation"])
        await killed_while_it_shares(there, lane, set(texts[other]) - set(texts[home]))
        joined = await done("share", "join", "--yes", shared["invitation"], home=other)
        assert (joined["lane"], joined["member"], joined["left"]) == (lane, "laptop", 0)
        everything = sorted({*texts[home], *texts[other]})
        await until(lambda: said(here, lane) == everything)
        assert said(there, lane) == everything
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
