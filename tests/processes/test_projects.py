import asyncio
import itertools
import json
import random
import shutil
import subprocess
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from remembrancer.commands import exit_codes
from remembrancer.config.project import project_of
from remembrancer.config.settings import Settings
from remembrancer.protocol.file_locks import FileLock
from remembrancer.protocol.paths import RuntimePaths
from remembrancer.protocol.sharing import MoveProject
from tests.actors.gateway_rig import PATIENT, RawClient, Rig
from tests.actors.store_process import store_rig
from tests.git import git, make_repository, make_worktree
from tests.operations import memory_id_of, store_operation
from tests.patience import until
from tests.runtime import command, done
from tests.spaces import has_space, rows_of

WITHOUT_EMBEDDERS = Settings(embedders=0)
"""For a store of which a command searches: it waits for no model."""


@pytest.fixture(autouse=True)
def only_what_the_test_runs(home: Path) -> Iterator[None]:
    """No command starts a runtime beside the test's own store, however late that answers."""
    with FileLock(RuntimePaths(home).start_lock) as lock:
        assert lock.try_acquire()
        yield


async def ran(*arguments: str, home: Path, directory: Path | None = None) -> subprocess.CompletedProcess[str]:
    return await asyncio.to_thread(command, *arguments, home=home, directory=directory)


async def moved(*arguments: str | Path, home: Path, status: int = exit_codes.OK) -> str:
    move = partial(done, "admin", "projects", "move", *map(str, arguments), home=home, status=status)
    return await asyncio.to_thread(move)


async def found(client: RawClient, query: str) -> set[str]:
    answer = await client.call("recall_memories", query=query, strategy="keyword")
    return {memory["content"] for memory in answer["memories"]}


async def named(home: Path) -> str:
    listed = await ran("admin", "projects", home=home)
    assert listed.returncode == exit_codes.OK, listed.stderr
    return listed.stderr


async def test_a_moved_repository_is_named_and_finds_its_memories_again(home: Path, tmp_path: Path) -> None:
    old, new = make_repository(tmp_path / "my place"), tmp_path / "deeper" / "my place"
    tree = tmp_path / "tree"
    git("worktree", "add", str(tree), at=old)
    rig = Rig(home, PATIENT)
    async with rig.store(WITHOUT_EMBEDDERS), rig.running() as gateway:
        async with rig.session(directory=str(old), session="session:one") as client:
            erased = await client.store("The beacon burns on the northern mole")
            await found(client, "The beacon burns on the northern mole: or a lantern?")
            await client.store("The lantern is lit at dusk")
            mine = await client.store("I like the lantern to be green", kind="preference")
            await client.call("promote_memory", memory_id=mine["memory_id"], target_scope="user")
            await client.say_end()
        log, former = gateway.access.shown_log, project_of(old).id
        await until(lambda: log.read(project=former))  # some time after the answers
        new.parent.mkdir()
        old.rename(new)
        async with rig.session(directory=str(new), bridge="11" * 16, session="session:two") as client:
            searched = await ran("search", "lantern", home=home, directory=new)
            assert (
                f" memories and is no longer at '{old}'. If this is that project, "
                f"run 'remembrancer admin projects move '{old}' '{new}'' to bring them here." in searched.stderr
            )
            assert str(old) in await named(home)
            context = (await client.call("get_memory_context"))["context_block"]
            assert f"'remembrancer admin projects move '{old}' .' brings its memories here." in context
            await client.store("The lantern hangs at the gate")
            context = (await client.call("get_memory_context"))["context_block"]
            assert f"'remembrancer admin projects move '{old}' .' brings" in context, "until they are moved"
            for given in (("search", "lantern"), ("add", "The lantern hangs at the gate")):
                assert f"move '{old}' '{new}''" in (await ran(*given, home=home, directory=new)).stderr
            assert "The lantern is lit at dusk" not in await found(client, "lantern")
            told = json.loads(await moved(old, new, "--dry-run", "--json", home=home))
            assert (told["memories"] >= 1, told["joined"], told["dry_run"]) == (True, 1, True)
            assert "The lantern is lit at dusk" not in await found(client, "lantern")
            refused = await moved(old, new, home=home, status=exit_codes.USAGE)
            assert f"{new} has 1 memory of its own: this mixes both projects, which cannot be undone" in refused
            said = await moved(old, new, "--yes", home=home)
            assert (" moved from " in said, said.endswith(", which already had 1.\n")) == (True, True)
            texts = ("The lantern is lit at dusk", "The lantern hangs at the gate", "I like the lantern to be green")
            everything = set(texts)
            assert await found(client, "lantern") == everything
            assert not log.read(project=former)
            assert any("beacon" in each.question for each in log.read(project=project_of(new).id))
            forgotten = await ran("forget", erased["memory_id"], "--for-good", "--yes", home=home, directory=new)
            assert forgotten.returncode == exit_codes.OK, forgotten.stderr
            assert not any("beacon" in each.question for each in log.read())
            back = await client.call("promote_memory", memory_id=mine["memory_id"], target_scope="project")
            assert back["new_scope"] == "project", "what came from the old place came from this one"
            await client.store("The lantern went out")
            await client.say_end()
        git("worktree", "repair", str(tree), at=new)
        async with rig.session(directory=str(tree), bridge="22" * 16, session="session:three") as client:
            assert everything < await found(client, "lantern")
        assert not await named(home)
        listed = await ran("admin", "projects", "--json", home=home)
        (project,) = json.loads(listed.stdout)["projects"]
        assert (project["id"], project["path"]) == (project_of(new).id, str(new / ".git"))
        assert project["sessions"] >= 2


async def test_a_directory_that_becomes_a_repository_can_keep_its_memories(home: Path, tmp_path: Path) -> None:
    place = tmp_path / "shop"
    place.mkdir()
    rig = Rig(home, PATIENT)
    async with rig.store(WITHOUT_EMBEDDERS), rig.running():
        async with rig.session(directory=str(place), session="session:one") as client:
            await client.store("The lantern is lit at dusk")
            assert "If this project was in" not in (await client.call("get_memory_context"))["context_block"]
            await client.say_end()
        git("init", at=place)
        async with rig.session(directory=str(place), bridge="11" * 16, session="session:two") as client:
            context = (await client.call("get_memory_context"))["context_block"]
            assert f"If this project was in {place} before, " in context
            await client.store("The mast is painted")
            context = (await client.call("get_memory_context"))["context_block"]
            assert f"If this project was in {place} before, " in context, "until they are moved"
            assert f"{place} to {place}/.git" in await moved(place, place, "--yes", home=home)
            assert await found(client, "lantern") >= {"The lantern is lit at dusk"}
            assert "If this project was in" not in (await client.call("get_memory_context"))["context_block"]
        place.rename(tmp_path / "shop of old")
        unrelated = tmp_path / "work" / "bakery"
        unrelated.mkdir(parents=True)
        async with rig.session(directory=str(unrelated), bridge="22" * 16, session="session:three") as client:
            assert "If this project was in" not in (await client.call("get_memory_context"))["context_block"]


async def test_clones_side_by_side_stay_apart_and_nobody_there_is_robbed(home: Path, tmp_path: Path) -> None:
    one, two = make_repository(tmp_path / "one"), tmp_path / "two"
    git("clone", "--quiet", str(one), str(two), at=tmp_path)
    rig = Rig(home, PATIENT)
    async with rig.store(), rig.running():
        async with rig.session(directory=str(one), session="session:one") as client:
            await client.store("The lantern is lit at dusk")
            refused = await moved(one, two, "--yes", home=home, status=exit_codes.USAGE)
            assert "still connected in" in refused
            await client.say_end()
        async with rig.session(directory=str(two), bridge="11" * 16, session="session:two") as client:
            assert await found(client, "lantern") == set()
            assert not await named(home)
            refused = await moved(one, two, home=home, status=exit_codes.USAGE)
            assert ("is still there" in refused, "--yes" in refused) == (True, True)
            assert "edit ID --to user" in refused, "an import would not help: it goes to where its memories were"
        for arguments, reason in (
            ((tmp_path / "three", two), "there are no memories of"),
            ((one, tmp_path / "three"), "is not a directory"),
            ((one, one), "are already the same project"),
            (("p_000000000000", two), "there are no memories of"),
        ):
            assert reason in await moved(*arguments, home=home, status=exit_codes.USAGE)
        shutil.rmtree(one)
        async with rig.session(directory=str(two), bridge="22" * 16, session="session:three") as client:
            assert str(one) in await named(home), "another clone, perhaps: said, and not done"
            assert await found(client, "lantern") == set()


async def test_a_store_that_is_killed_in_a_move_has_moved_all_or_nothing(
    home: Path, tmp_path: Path, dice: random.Random
) -> None:
    """Wherever it dies, to ask again ends the move, and no memory is lost or there twice."""
    places = [tmp_path / str(number) for number in range(6)]
    for place in places:
        place.mkdir()
    stored: set[str] = set()
    async with store_rig(home) as store:
        for number, (here, there) in enumerate(itertools.pairwise(places)):
            old, new = project_of(here), project_of(there)
            for project in (old, new):
                text = f"fact {number} of {project.path}"
                operation = store_operation(f"{number} {project.id}", text, project=project)
                await store.gateway.submit(operation)
                stored.add(memory_id_of(operation))
            request = MoveProject(old, new, str(there))
            moves = asyncio.create_task(store.gateway.ask(request))
            await asyncio.sleep(dice.uniform(0, 0.03))
            await store.restart()
            moves.cancel()
            await asyncio.gather(moves, return_exceptions=True)
            if has_space(RuntimePaths(home), old.id):
                await store.gateway.ask(request)
            recalled = await store.gateway.recall("fact", project=new, limit=50, strategy="keyword")
            assert {memory.id for memory in recalled.memories} == stored
            assert not has_space(RuntimePaths(home), old.id)


def last_used(home: Path, project_id: str) -> tuple[float, str | None]:
    query = "SELECT last_used_at, directory FROM projects WHERE id = ?"
    ((used_at, directory),) = rows_of(RuntimePaths(home).database, query, project_id)
    return used_at, directory


async def test_projects_are_listed_with_worktree_last_use_and_what_they_have(home: Path, tmp_path: Path) -> None:
    repository, plain = tmp_path / "repository", tmp_path / "plain"
    plain.mkdir()
    repository.mkdir()
    worktree = tmp_path / "worktree"
    make_worktree(repository, worktree)
    (worktree / "inner").mkdir()
    rig = Rig(home, PATIENT)
    async with rig.store(), rig.running():
        async with rig.session(directory=str(repository), session="session:one") as client:
            first = await client.store("Of the repository")
            await client.store("Forgotten", scope="session")
        async with rig.session(directory=str(plain), bridge="11" * 16, session="session:two") as client:
            await client.store("Of the plain directory")
        project = project_of(repository)
        used_at, _ = last_used(home, project.id)
        before = time.time()
        async with rig.session(directory=str(worktree / "inner"), bridge="22" * 16, session="session:three") as client:
            await until(lambda: last_used(home, project.id)[0] > used_at)
            assert last_used(home, project.id)[1] == str(worktree)
            noted = last_used(home, project.id)
            await client.call("forget_memory", memory_id=first["memory_id"])
            await client.store("Written since")
            assert last_used(home, project.id) == noted, "a write is no session"
        listed = await ran("admin", "projects", "--json", home=home)
        table = await ran("admin", "projects", home=home)
    latest, other = json.loads(listed.stdout)["projects"]
    assert latest.pop("last_used_at") >= before
    assert latest.pop("created_at") < before
    place = {"id": project.id, "path": str(repository / ".git"), "directory": str(worktree), "lane": None}
    assert latest == place | {"memories": 2, "forgotten": 1, "sessions": 2}
    assert (other["directory"], other["memories"], other["sessions"]) == (str(plain), 1, 1)
    shown = [line.split()[0] for line in table.stdout.splitlines()]
    assert shown == ["project", str(worktree), str(plain)]
