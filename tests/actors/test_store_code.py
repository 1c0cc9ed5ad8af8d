"""The store's list of the trees of code."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from remembrancer.code.index import CodeIndex
from remembrancer.config.project import project_of
from remembrancer.protocol.code import DeleteCode, DescribeCode, IndexCode, ListCodeFiles, SearchCode
from remembrancer.protocol.errors import InvalidInput, MemoryUnavailable
from remembrancer.protocol.paths import delete_database
from remembrancer.protocol.projects import MoveProject
from tests.actors.store_process import store_rig
from tests.operations import PROJECT, store_operation
from tests.patience import until


async def test_neither_system_nor_home_are_indexed(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    person, link = tmp_path / "person", tmp_path / "link"
    (person / "shop").mkdir(parents=True)
    link.symlink_to(home)
    monkeypatch.setenv("HOME", str(person))
    async with store_rig(home) as rig:
        rig.paths.keys.mkdir(exist_ok=True)
        own = (home, home / "keys", home.parent, link)
        for place in ("/", "/boot", "/etc", "/etc/ssl", "/proc/self", "/root", "/sys", "~", *map(str, own)):
            with pytest.raises(InvalidInput, match=r"holds no repository|more than a repository|no directory"):
                await rig.gateway.ask(IndexCode(PROJECT, place, watch=False))
        await rig.gateway.ask(IndexCode(PROJECT, "~/shop", watch=False))


def be_ready(folder: Path) -> None:
    """Say in each index of a project that it is filled: no indexer is there."""
    for database in folder.glob("code/*.db"):
        index = CodeIndex(database, "write")
        index.note(status="ready")
        index.close()


def lose(database: Path) -> None:
    delete_database(database)


def damage(database: Path) -> None:
    database.write_bytes(b"no index" * 4096)


def damage_inside(database: Path) -> None:
    """It can be opened, and not be read."""
    content = database.read_bytes()
    database.write_bytes(content[:4096] + b"\xff" * (len(content) - 4096))


@pytest.mark.parametrize(
    ("harm", "question"), [(lose, DescribeCode), (damage, ListCodeFiles), (damage_inside, SearchCode)]
)
async def test_an_index_that_is_lost_or_damaged_is_made_anew_when_it_is_read(
    home: Path, tmp_path: Path, harm: Callable[[Path], None], question: type[DescribeCode | SearchCode | ListCodeFiles]
) -> None:
    async with store_rig(home) as rig:
        (tree,) = await rig.gateway.ask(IndexCode(PROJECT, str(tmp_path), watch=False))
        (database,) = rig.paths.projects.glob("*/code/*.db")
        be_ready(database.parent.parent)
        assert (await rig.gateway.ask(DescribeCode(PROJECT)))[0].status == "ready"
        await rig.restart()  # nobody has it open
        harm(database)
        if question is SearchCode:
            assert await rig.gateway.ask(SearchCode(PROJECT, "lantern")) == ()
            assert [notice.code for notice in rig.gateway.notices] == ["partial_results"]
        elif question is ListCodeFiles:
            with pytest.raises(MemoryUnavailable):
                await rig.gateway.ask(ListCodeFiles(PROJECT, tree.id))
        (after,) = await until(lambda: rig.gateway.ask(DescribeCode(PROJECT)), lambda trees: not trees[0].error)
        assert (after.id, after.status) == (tree.id, "queued")
        (made,) = rig.paths.projects.glob("*/code/*.db")
        assert made != database, "whoever has the old one open writes into no new one"
        await rig.gateway.ask(DeleteCode(PROJECT, tree.id))
        assert not list(rig.paths.projects.glob("*/code/*.db*"))


async def test_a_moved_project_leaves_its_trees_and_those_of_the_new_place_stay(home: Path, tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    before, after = project_of(old), project_of(new)
    async with store_rig(home) as rig:
        for project, root in ((before, old), (after, new)):
            root.mkdir()
            await rig.gateway.submit(store_operation(project.id, f"of {project.path}", project=project))
            await rig.gateway.ask(IndexCode(project, str(root), watch=False))
        await rig.gateway.ask(MoveProject(before, after, str(new)))
        for _ in range(2):
            assert [tree.root for tree in await rig.gateway.ask(DescribeCode(after))] == [str(new)]
            assert await rig.gateway.ask(DescribeCode(before)) == ()
            assert len(list(rig.paths.projects.glob("*/code/*.db"))) == 1
            await rig.restart()
