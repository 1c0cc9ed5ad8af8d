"""The indexer of code, in process, with its readers: what hangs, dies or goes away stops nothing else."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import anyio
import anyio.lowlevel
import psutil
import pytest

from remembrancer.actors.indexer.code_reading import CodeReaders
from remembrancer.actors.indexer.code_trees import CodeTrees
from remembrancer.code.index import CodeIndex
from remembrancer.code.tree import Tree
from remembrancer.config.settings import Settings
from remembrancer.protocol.code import CodeTree
from tests.patience import until

LOOPS = "<<A\n" * 40_000
"""The grammar of the shell takes longer for these than any deadline here."""
FATAL = {
    "zig": "import ctypes\n\ndef language():\n    ctypes.string_at(0)\n",  # a segmentation fault
    "lua": "import os\n\ndef language():\n    os.abort()\n",
    "haskell": "def language():\n    while True:\n        pass\n",
    "elixir": "def language():\n    return bytes(1 << 40)\n",  # more memory than there is
}
"""Grammars, by their languages, that end or hold up whoever loads them."""


class Work:
    def __init__(self, *trees: CodeTree) -> None:
        self.trees = trees
        self.say: Callable[..., None] = lambda *_: None


@pytest.fixture
def tree(tmp_path: Path) -> CodeTree:
    root = tmp_path / "tree"
    root.mkdir()
    (root / "pool.py").write_text("class ConnectionPool:\n    pass\n")
    database = tmp_path / "code.db"
    CodeIndex(database, "make").close()
    return CodeTree("code_1", str(root), str(database), watch=False)


@pytest.fixture
def grammars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory in which the processes that read look for grammars first."""
    folder = tmp_path / "grammars"
    folder.mkdir()
    monkeypatch.setenv("PYTHONPATH", str(folder), prepend=os.pathsep)
    return folder


@asynccontextmanager
async def indexing(work: Work, deadline_s: int = 10) -> AsyncIterator[CodeTrees]:
    trees = CodeTrees(Settings(), CodeReaders(2, deadline_s))
    async with anyio.create_task_group() as tasks:
        work.say = lambda *said: trees.take_up(said, tasks)
        work.say(*work.trees)
        yield trees
        tasks.cancel_scope.cancel()
    assert not readers(), "no process is left"


def is_past(due: float) -> bool:
    return time.monotonic() > due


def readers() -> list[psutil.Process]:
    found = []
    for each in psutil.Process().children():
        with contextlib.suppress(psutil.NoSuchProcess):  # it has ended meanwhile
            if "remembrancer.code.reader" in each.cmdline():
                found.append(each)
    return found


def write(tree: CodeTree, name: str, text: str) -> None:
    path = Path(tree.root, name)
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)


def delete(tree: CodeTree) -> None:
    for ending in ("", "-wal", "-shm"):
        Path(tree.database + ending).unlink(missing_ok=True)


def found(tree: CodeTree, question: str) -> list[str]:
    index = CodeIndex(Path(tree.database))
    try:
        return [each.path for each in index.search(question, 10)]
    finally:
        index.close()


async def test_a_file_on_which_a_grammar_loops_is_cut_without_it_and_holds_up_no_other(tree: CodeTree) -> None:
    write(tree, "loops.sh", f"open_valve() {{\n  echo valve\n}}\n{LOOPS}")
    write(tree, "line.js", "x" * 20_000_000)
    async with indexing(Work(tree), deadline_s=1) as trees:
        await until(lambda: trees.syncs == 1)
    assert found(tree, "ConnectionPool") == ["pool.py"]
    assert found(tree, "open_valve") == ["loops.sh"]
    index = CodeIndex(Path(tree.database))
    assert (index.about()["status"], index.about()["skipped"]) == ("ready", '{"huge":1}')
    index.close()


async def test_a_reading_process_that_is_killed_costs_nothing_but_time(tree: CodeTree) -> None:
    for number in range(150):
        write(tree, f"part_{number}.py", f"def part_{number}():\n    return {number}\n" * 30)
    async with indexing(Work(tree)) as trees:
        await until(readers)
        for process in readers():
            process.kill()
        await until(lambda: trees.syncs == 1)
    index = CodeIndex(Path(tree.database))
    assert len(index.known()) == 151
    assert not index.skipped()
    index.close()


async def test_a_file_on_which_a_grammar_crashes_is_cut_without_it(tree: CodeTree, grammars: Path) -> None:
    files = {}
    for ending, language in {"zig": "zig", "lua": "lua", "hs": "haskell", "ex": "elixir"}.items():
        (grammars / f"tree_sitter_{language}.py").write_text(FATAL[language])
        write(tree, f"fatal.{ending}", "fn open_valve\n")
        files[f"fatal.{ending}"] = "open_valve"
    files["pool.py"] = "ConnectionPool"
    reading = CodeReaders(1, deadline_s=1)
    read = await reading.read(tree.root, list(Tree(tree.root).files()))
    assert reading.deaths == len(FATAL)
    assert {each.path: each.chunks[0].name for each in read} == files
    assert not any(each.skipped for each in read)


async def test_a_deadline_is_for_a_grammar_that_loops_and_not_for_a_busy_machine(tree: CodeTree) -> None:
    for number in range(300):
        write(tree, f"part_{number}.py", f"def part_{number}():\n    return {number}\n" * 200)
    reading = CodeReaders(1, deadline_s=1)

    def has_used(seconds: float) -> bool:
        return bool(process.cpu_times().user >= seconds)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(reading.read, tree.root, list(Tree(tree.root).files()))
        await until(readers)
        (process,) = readers()
        await until(partial(has_used, 1.0))  # it reads
        process.suspend()
        await until(partial(is_past, time.monotonic() + 1.5))
        used_s = process.cpu_times().user
        process.resume()
        await until(partial(has_used, used_s + 0.1))
        tasks.cancel_scope.cancel()
    assert reading.deaths == 0


async def test_a_tree_that_is_deleted_while_it_is_read_leaves_nothing(tree: CodeTree) -> None:
    for number in range(400):
        write(tree, f"part_{number}.py", f"def part_{number}():\n    return {number}\n" * 30)
    work = Work(tree)
    async with indexing(work) as trees:
        await until(readers)
        delete(tree)
        work.say()
        await until(lambda: not trees.trees)
        await until(lambda: not readers())
    assert not list(Path(tree.database).parent.glob("code.db*"))


async def test_a_saved_file_is_found_soon_and_so_is_a_switch_of_branches(tree: CodeTree) -> None:
    watched = CodeTree(tree.id, tree.root, tree.database, watch=True)
    async with indexing(Work(watched)) as trees:
        await until(lambda: trees.syncs >= 1)
        write(tree, "pool.py", "class Reservoir:\n    pass\n")
        await until(lambda: found(tree, "Reservoir") == ["pool.py"])
        for number in range(300):
            write(tree, f"part_{number}.py", f"def part_{number}():\n    return {number}\n")
        write(tree, "pool.py", "")
        await until(lambda: found(tree, "part_299")[:1] == ["part_299.py"] and not found(tree, "Reservoir"))
