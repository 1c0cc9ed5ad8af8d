import asyncio
import errno
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import psutil
import pytest
from msgspec.structs import replace

from remembrancer.actors.index_file import CodeWriter, NotesWriter
from remembrancer.actors.indexer import watching
from remembrancer.actors.indexer.code_reading import CodeFiles
from remembrancer.actors.indexer.watching import Indexer
from remembrancer.actors.store import actor, file_handlers
from remembrancer.actors.store.file_index import CodeIndex
from remembrancer.code.tree import Tree
from remembrancer.config.project import project_of
from remembrancer.protocol.code import DeleteCode, DescribeCode, IndexCode, ListCodeFiles, ListStale, SearchCode
from remembrancer.protocol.consolidation import NotePresence
from remembrancer.protocol.errors import InvalidInput, MemoryUnavailable
from remembrancer.protocol.files import AwaitIndexerWork, DescribeFiles, IndexedTree, SyncDone
from remembrancer.protocol.paths import delete_database
from remembrancer.protocol.sharing import MoveProject
from tests.actors.store_process import StoreRig, store_rig
from tests.operations import PROJECT, REQUESTED_AT, SESSION, memory_id_of, store_operation
from tests.patience import until
from tests.spaces import has_space

DEATH = "reading a file killed the process"
FATAL = {
    "kotlin": "import ctypes\n\ndef language():\n    ctypes.string_at(0)\n",  # a segmentation fault
    "lua": "import os\n\ndef language():\n    os.abort()\n",
    "swift": "def language():\n    while True:\n        pass\n",
    "scala": "def language():\n    return bytes(1 << 40)\n",  # more memory than there is
}
"""Grammars, by their languages, that end or hold up whoever loads them."""
SLOW = """import time

def language():
    time.sleep(1.1)
    end = time.process_time() + 0.6
    while time.process_time() < end:
        pass
    raise ImportError
"""
"""A grammar that a busy machine holds up for longer than it computes."""


@pytest.fixture
def tree(tmp_path: Path) -> IndexedTree:
    root = tmp_path / "tree"
    root.mkdir()
    (root / "pool.py").write_text("class ConnectionPool:\n    pass\n")
    return IndexedTree("p_0", str(root), str(tmp_path / "code.db"), "code", watch=False)


@pytest.fixture
def grammars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory in which the processes that read look for grammars first."""
    folder = tmp_path / "grammars"
    folder.mkdir()
    monkeypatch.setenv("PYTHONPATH", str(folder), prepend=os.pathsep)
    return folder


@asynccontextmanager
async def indexing(
    tree: IndexedTree, deadline_s: int = 10, told: list[SyncDone] | None = None
) -> AsyncIterator[Indexer]:
    files = CodeFiles(tree.root, asyncio.Semaphore(2), deadline_s=deadline_s)
    indexer = Indexer(tree, files, (lambda _: None) if told is None else told.append)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(indexer.run)
        yield indexer
        indexer.scope.cancel()
    assert not readers(), "no process is left"


def readers() -> list[psutil.Process]:
    found = []
    for each in psutil.Process().children():
        with suppress(psutil.NoSuchProcess):  # it has ended meanwhile
            if "remembrancer.code.reader" in each.cmdline():
                found.append(each)
    return found


def write(tree: IndexedTree, name: str, text: str) -> None:
    path = Path(tree.root, name)
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)


async def test_a_file_on_which_a_grammar_crashes_is_cut_without_it(
    tree: IndexedTree, grammars: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = {}
    for ending, language in {"kt": "kotlin", "lua": "lua", "swift": "swift", "sc": "scala"}.items():
        (grammars / f"tree_sitter_{language}.py").write_text(FATAL[language])
        write(tree, f"fatal.{ending}", "fn open_valve\n")
        files[f"fatal.{ending}"] = "open_valve"
    files["pool.py"] = "ConnectionPool"
    code = CodeFiles(tree.root, asyncio.Semaphore(1), deadline_s=1)
    read = await code.read(list(Tree(tree.root).files()))
    assert caplog.messages.count(DEATH) == len(FATAL)
    assert {each.path: each.chunks[0].name for each in read} == files
    assert not any(each.skipped for each in read)


async def test_a_deadline_is_for_a_grammar_that_loops_and_not_for_a_busy_machine(
    tree: IndexedTree, grammars: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for ending, language in {"kt": "kotlin", "lua": "lua"}.items():
        (grammars / f"tree_sitter_{language}.py").write_text(SLOW)
        write(tree, f"slow.{ending}", "fn open_valve\n")
    code = CodeFiles(tree.root, asyncio.Semaphore(1), deadline_s=1)
    assert len(await code.read(list(Tree(tree.root).files()))) == 3
    assert DEATH not in caplog.messages


async def test_a_tree_that_is_deleted_while_it_is_read_leaves_nothing(tree: IndexedTree) -> None:
    for number in range(400):
        write(tree, f"part_{number}.py", f"def part_{number}():\n    return {number}\n" * 30)
    async with indexing(tree) as indexer:
        await until(readers)
        delete_database(Path(tree.database))
        indexer.scope.cancel()
        await until(lambda: not readers())
    assert not list(Path(tree.database).parent.glob("code.db*"))


async def test_of_a_tree_that_is_gone_one_line_is_logged(
    tree: IndexedTree, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(watching, "UNWATCHED_LOOK_S", 0.05)
    caplog.set_level("INFO")
    Path(tree.root, "pool.py").unlink()
    Path(tree.root).rmdir()
    told: list[SyncDone] = []
    async with indexing(replace(tree, watch=True), told=told):
        await until(lambda: len(told) >= 4)
    assert CodeFiles(tree.root, asyncio.Semaphore(1)).concerns(Path(tree.root)), "so that it is seen to go"
    loggers = [record.name for record in caplog.records if record.name.startswith("remembrancer")]
    assert loggers == [watching.__name__]


async def test_no_home_is_indexed(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    person, link = tmp_path / "person", tmp_path / "link"
    (person / "shop").mkdir(parents=True)
    link.symlink_to(home)
    monkeypatch.setenv("HOME", str(person))
    async with store_rig(home) as rig:
        rig.paths.keys.mkdir(exist_ok=True)
        own = (home, home / "keys", home.parent, link)
        for place in ("/", "~", *map(str, own)):
            with pytest.raises(InvalidInput, match=r"not part of a repository|contains a home directory"):
                await rig.gateway.ask(IndexCode(PROJECT, place, watch=False))
        await rig.gateway.ask(IndexCode(PROJECT, "~/shop", watch=False))


async def test_asking_for_memories_whose_files_are_gone_makes_no_space(rig: StoreRig, tmp_path: Path) -> None:
    await rig.gateway.ask(IndexCode(PROJECT, str(tmp_path), watch=False))
    assert await rig.gateway.ask(ListStale(PROJECT)) == ()
    assert not has_space(rig.paths, PROJECT.id)


async def test_a_file_that_another_tree_has_is_not_gone(rig: StoreRig, tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name / "src").mkdir(parents=True)
        await rig.gateway.ask(IndexCode(PROJECT, str(tmp_path / name), watch=False))
    (tmp_path / "two" / "src" / "pool.py").touch()
    lit = store_operation("1", "The lantern is lit in src/pool.py", project=PROJECT)
    await rig.gateway.submit(lit)
    assert await rig.gateway.ask(ListStale(PROJECT)) == ()
    (tmp_path / "two" / "src" / "pool.py").unlink()
    assert [each.code for each in await rig.gateway.ask(ListStale(PROJECT))] == ["gone: src/pool.py"]
    await rig.gateway.submit(store_operation("2", "It is lit at six", project=PROJECT, supersedes=memory_id_of(lit)))
    assert await rig.gateway.ask(ListStale(PROJECT)) == (), "what is replaced is past"


def damage(database: Path) -> None:
    database.write_bytes(b"no index" * 4096)


def damage_inside(database: Path) -> None:
    """It can be opened, and not be read."""
    content = database.read_bytes()
    database.write_bytes(content[:4096] + b"\xff" * (len(content) - 4096))


@pytest.mark.parametrize(
    ("harm", "question"), [(delete_database, DescribeCode), (damage, ListCodeFiles), (damage_inside, SearchCode)]
)
async def test_an_index_that_is_lost_or_damaged_is_made_anew_when_it_is_read(
    rig: StoreRig, tmp_path: Path, harm: Callable[[Path], None], question: type[Any]
) -> None:
    (tree,) = await rig.gateway.ask(IndexCode(PROJECT, str(tmp_path), watch=False))
    (database,) = rig.paths.projects.glob("*/code/*.db")
    with closing(CodeWriter(database)) as index:
        index.note(tree.root, status="ready")  # no indexer is there
    await rig.restart()
    assert (await rig.gateway.ask(DescribeCode(PROJECT)))[0].status == "ready"
    await rig.restart()  # nobody has it open
    CodeIndex(database).close()  # nor is anything in its log
    harm(database)
    if question is SearchCode:
        assert await rig.gateway.ask(SearchCode(PROJECT, "lantern")) == ()
        assert [notice.code for notice in rig.gateway.notices] == ["partial_results"]
    elif question is ListCodeFiles:
        with pytest.raises(MemoryUnavailable):
            await rig.gateway.ask(ListCodeFiles(PROJECT, tree.id))
    (after,) = await until(lambda: rig.gateway.ask(DescribeCode(PROJECT)), lambda trees: not trees[0].error)
    assert (after.id, after.status) == (tree.id, "queued")
    (work,) = (await rig.gateway.ask(AwaitIndexerWork())).asked.values()
    assert work.tree.database == str(database), "the indexer fills it again"
    await rig.gateway.ask(DeleteCode(PROJECT, tree.id))
    assert not [each for each in rig.paths.projects.glob("*/code/*.db*") if each.is_file()]


async def test_a_directory_in_the_place_of_an_index_is_named(rig: StoreRig, tmp_path: Path) -> None:
    await rig.gateway.ask(IndexCode(PROJECT, str(tmp_path), watch=False))
    (database,) = rig.paths.projects.glob("*/code/*.db")
    delete_database(database)
    database.mkdir()
    await rig.restart()
    assert await rig.gateway.ask(SearchCode(PROJECT, "lantern")) == ()
    (tree,) = await rig.gateway.ask(DescribeCode(PROJECT))
    assert f"{database} is not a file; move it elsewhere" in tree.error


async def damaged_notes(rig: StoreRig, root: Path) -> Path:
    path = rig.paths.project_database(PROJECT.id).with_name(rig.settings.index_file)
    path.parent.mkdir(parents=True, exist_ok=True)
    described = await rig.gateway.ask(DescribeFiles(PROJECT, str(root)))
    assert (described.pending, described.bytes, described.synced_at) == (0, 0, None)
    with closing(NotesWriter(path)) as index:
        index.note(str(root), status="ready", completed_at=REQUESTED_AT)
    CodeIndex(path).close()
    described = await rig.gateway.ask(DescribeFiles(PROJECT, str(root)))  # opens it
    assert described.synced_at == REQUESTED_AT
    damage_inside(path)
    return path


def refuse(path: Path) -> None:
    raise OSError(errno.EROFS, "Read-only file system", str(path))


async def test_a_damaged_index_that_cannot_be_deleted_ends_only_its_housekeeping(home: Path, tmp_path: Path) -> None:
    quick = {f"{actor.__name__}.HOUSEKEEPING_S": 0.05, f"{file_handlers.__name__}.delete_database": refuse}
    async with store_rig(home, constants=quick) as rig:
        await damaged_notes(rig, tmp_path)
        assert await rig.gateway.found("lantern", strategy="keyword", sources=("notes",), root=str(tmp_path)) == []
        assert [notice.code for notice in rig.gateway.notices] == ["partial_results"]
        await until(lambda: "housekeeping postponed" in rig.log())
        assert await rig.gateway.ask(DescribeCode(PROJECT)) == ()


async def test_a_recall_leaves_out_notes_whose_index_is_damaged(rig: StoreRig, tmp_path: Path) -> None:
    memory_id = await rig.gateway.store("the lantern is lit")
    path = await damaged_notes(rig, tmp_path)
    assert await rig.gateway.found("lantern", strategy="keyword", root=str(tmp_path)) == [memory_id]
    (missing,) = rig.gateway.notices
    assert missing.code == "partial_results"
    assert missing.message.startswith(f"The notes are missing from this answer: {path} cannot be read")
    assert (await rig.health()).unusable == (), "no memory is damaged"


async def test_what_cannot_be_deleted_or_read_beside_an_index_of_code_is_left(home: Path, tmp_path: Path) -> None:
    async with store_rig(home) as rig:
        await rig.gateway.ask(IndexCode(PROJECT, str(tmp_path), watch=False))
        (database,) = rig.paths.projects.glob("*/code/*.db")
        stray, listed = database.with_name("stray.db"), database.with_name("trees.json")
        stray.mkdir()
        await rig.restart()
        assert [tree.root for tree in await rig.gateway.ask(DescribeCode(PROJECT))] == [str(tmp_path)]
        listed.unlink()
        listed.mkdir()  # an error in reading it, which may pass
        await rig.restart()
        assert await rig.gateway.ask(DescribeCode(PROJECT)) == ()
        assert database.exists()


async def test_code_that_is_indexed_in_one_project_leaves_the_others_to_be_followed(
    rig: StoreRig, tmp_path: Path
) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    before, after = project_of(old), project_of(new)

    async def followed() -> set[str]:
        return {tree.root for tree in (await rig.gateway.ask(AwaitIndexerWork())).trees}

    old.mkdir()
    new.mkdir()
    await rig.gateway.ask(IndexCode(before, str(old)))
    await rig.restart()
    await followed()  # it answers: what needs no answer is sent only over a connection
    rig.gateway.dealer.send(NotePresence(((before, SESSION),), ((before, str(old)),)))
    await until(lambda: followed(), lambda roots: roots == {str(old)})
    await rig.gateway.ask(IndexCode(after, str(new)))
    assert await followed() == {str(old), str(new)}


async def test_a_moved_project_leaves_its_trees_and_those_of_the_new_place_stay(rig: StoreRig, tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    before, after = project_of(old), project_of(new)
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
