"""Measure what an index of code costs: `python -m bench.code_cost FOLDER [--copies N] [--json]`.

The indexer's own code reads the tree, with its processes that parse; another process, as the store is, asks the index
questions meanwhile. FOLDER is copied first, `--copies` times side by side, since files in it are changed: some are
saved one by one, and 2,000 at once as a switch of branches does.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import tempfile
import time
from asyncio import get_running_loop
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing, suppress
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final, NamedTuple

import anyio
import psutil

from remembrancer.actors.indexer.code_trees import CodeTrees
from remembrancer.code.index import CodeIndex
from remembrancer.code.tree import SourceFile, Tree
from remembrancer.config.settings import Settings
from remembrancer.protocol.code import CodeTree, CodeWork

QUESTIONS: Final = (
    *("how are sockets closed", "parse a date", "connection pooling", "where is the cache invalidated", "read a file"),
    *("retry with back-off", "escape HTML", "base class of errors", "open a database", "split the command line"),
)
SWITCHED: Final = 2000
"""Files that change at once."""
MARK: Final = "zephyrine"
"""A word that no code has."""
PAUSE_S: Final = 0.05
LOOK_S: Final = 0.5
"""So often it is measured how much memory is taken, which costs some milliseconds of a processor itself."""
SAVES: Final = 5


class Work:
    """The word of a store on the one tree that is in use."""

    def __init__(self, tree: CodeTree) -> None:
        self._tree = tree
        self._asked = -1
        self.told = 0
        self._news = anyio.Event()

    def ask(self) -> None:
        """Have the tree looked at once more."""
        self.told += 1
        self._news.set()

    async def await_news(self, question: Callable[[], object], timeout_s: float, *kinds: Any) -> Any:
        """The answer to the indexer's question for work."""
        while self._asked == self.told:
            self._news = anyio.Event()
            await self._news.wait()
        self._asked = self.told
        watched = CodeTree(self._tree.id, self._tree.root, self._tree.database, watch=True, asked=self.told)
        return CodeWork(self.told, (watched,))


class Asked(NamedTuple):
    """An answer: the files that are found, and the milliseconds that it took, of a clock and of a processor."""

    paths: list[str]
    ms: float
    processor_ms: float


_opened: list[CodeIndex] = []
"""The index that is asked, in the process that does."""


def _open(database: Path) -> None:
    _opened.append(CodeIndex(database))


def _ask(question: str, limit: int) -> Asked:
    began, processor_s = time.perf_counter(), time.process_time()
    found = _opened[0].search(question, limit)
    return Asked(
        [each.path for each in found], 1000 * (time.perf_counter() - began), 1000 * (time.process_time() - processor_s)
    )


class Measured:
    """A tree that is being indexed, and its index as the store reads it."""

    def __init__(self, root: Path, database: Path) -> None:
        self.database = database
        self.tree = CodeTree("code_1", str(root), str(database))
        CodeIndex(database, "make").close()
        self.work = Work(self.tree)
        self.trees = CodeTrees(self.work, Settings())
        self.asking = ProcessPoolExecutor(1, get_context("spawn"), _open, (database,))
        self.asked: list[Asked] = []
        self.readers_bytes = self.own_bytes = self.log_bytes = 0

    async def ask_until(self, is_done: Callable[[], bool], pause_s: float = PAUSE_S) -> float:
        """Ask questions until something is so; the seconds that it took."""
        began = looked_at = time.perf_counter()
        for question in _for_ever(QUESTIONS):
            await self.ask(question)
            if time.perf_counter() - looked_at > LOOK_S:
                looked_at = time.perf_counter()
                self.own_bytes = max(self.own_bytes, psutil.Process().memory_full_info().uss)
                self.readers_bytes = max(self.readers_bytes, sum(map(_own_bytes, _readers())))
            self.log_bytes = max(self.log_bytes, _log_bytes(self.database))
            if is_done():
                return time.perf_counter() - began
            await anyio.sleep(pause_s)
        raise AssertionError

    async def ask(self, question: str, limit: int = 10) -> list[str]:
        """The files that a question finds; the time is noted."""
        asked = await get_running_loop().run_in_executor(self.asking, _ask, question, limit)
        self.asked.append(asked)
        return asked.paths

    def is_ready(self, syncs: int) -> bool:
        """True after so many looks at the tree."""
        return self.trees.syncs >= syncs

    async def marked_until_found(self, path: str) -> float:
        """The seconds until the mark in a file is found."""
        began = time.perf_counter()
        while path not in await self.ask(MARK, SWITCHED):
            pass
        return time.perf_counter() - began

    def question_ms(self) -> float:
        """The median of the questions since the last time."""
        asked, self.asked = self.asked, []
        return statistics.median(each.ms for each in asked)

    def processor_s(self) -> float:
        """Seconds of a processor that the indexer has used, and its readers, which run all the while."""
        return time.process_time() + sum(sum(each.cpu_times()[:2]) for each in _readers())


def _log_bytes(database: Path) -> int:
    with suppress(FileNotFoundError):
        return Path(f"{database}-wal").stat().st_size
    return 0


def _own_bytes(process: psutil.Process) -> int:
    """The memory that it shares with no other process."""
    with suppress(psutil.NoSuchProcess):
        return int(process.memory_full_info().uss)
    return 0


def _readers() -> list[psutil.Process]:
    found = []
    for each in psutil.Process().children():
        with suppress(psutil.NoSuchProcess):
            if "remembrancer.code.reader" in each.cmdline():
                found.append(each)
    return found


def _for_ever(items: tuple[str, ...]) -> Iterator[str]:
    while True:
        yield from items


async def measure(root: Path, database: Path) -> dict[str, float | int]:
    """The figures of a tree."""
    count = sum(1 for _ in Tree(str(root)).files())  # a list of them all would be in what the indexer is said to take
    switched, saved = (
        list(islice(Tree(str(root)).files(), SWITCHED)),
        list(islice(Tree(str(root)).files(), 0, count, max(1, count // SAVES)))[:SAVES],
    )
    measured = Measured(root, database)
    figures: dict[str, float | int] = {
        "files": count,
        "lines": sum(_lines(root / each.path) for each in Tree(str(root)).files()),
    }
    async with anyio.create_task_group() as tasks:
        await measured.ask(MARK)  # the process that asks has started
        measured.asked.clear()
        used_s = measured.processor_s()
        tasks.start_soon(measured.trees.run)
        figures["indexed_s"] = await measured.ask_until(lambda: measured.is_ready(1))
        figures["indexed_processor_s"] = measured.processor_s() - used_s
        figures["question_ms_while_indexing_p50"] = measured.question_ms()
        await measured.ask_until(lambda: measured.is_ready(2))  # the watch that has begun has it looked at once more
        figures["index_mb"] = _size(database) / 1e6
        measured.asked.clear()
        for question in QUESTIONS * 5:
            await measured.ask(question)
        figures["question_processor_ms_p50"] = statistics.median(each.processor_ms for each in measured.asked)
        figures["question_ms_p50"] = measured.question_ms()

        syncs, before = measured.trees.syncs, _size(database)
        measured.work.ask()
        figures["no_change_s"] = await measured.ask_until(lambda: measured.is_ready(syncs + 1), pause_s=0.0)
        figures["no_change_bytes"] = _size(database) - before

        figures["saved_s_max"] = 0.0
        for file in saved:
            _mark(root / file.path)
            figures["saved_s_max"] = max(figures["saved_s_max"], await measured.marked_until_found(file.path))
        measured.asked.clear()
        used_s = measured.processor_s()
        for file in switched:
            _mark(root / file.path)
        figures["switched_files"] = len(switched)
        looked_at = measured.trees.syncs

        def is_switched() -> bool:
            nonlocal looked_at
            is_news, looked_at = measured.trees.syncs > looked_at, measured.trees.syncs
            return is_news and _is_known(database, root, switched)

        figures["switched_s"] = await measured.ask_until(is_switched)
        figures["switched_processor_s"] = measured.processor_s() - used_s
        figures["question_ms_while_switching_max"] = max(each.ms for each in measured.asked)
        figures["question_ms_while_switching_p50"] = measured.question_ms()
        tasks.cancel_scope.cancel()
    measured.asking.shutdown()
    figures["log_mb_max"] = measured.log_bytes / 1e6
    figures["indexer_mb"] = measured.own_bytes / 1e6
    figures["readers_mb"] = measured.readers_bytes / 1e6
    return {name: round(value, 3) for name, value in figures.items()}


def _is_known(database: Path, root: Path, files: list[SourceFile]) -> bool:
    """True if the index has these files as they are now."""
    with closing(CodeIndex(database)) as index:
        known = index.known()
    about = ((file.path, (root / file.path).stat()) for file in files)
    return all(known.get(path) == (each.st_mtime_ns, each.st_size) for path, each in about)


def _mark(path: Path) -> None:
    with path.open("a", encoding="utf-8") as opened:
        opened.write(f"\n# {MARK}\n")


def _lines(path: Path) -> int:
    return path.read_bytes().count(b"\n")


def _size(database: Path) -> int:
    return sum(
        each.stat().st_size for each in database.parent.glob(f"{database.name}*") if not each.name.endswith("shm")
    )


def main() -> None:
    """Measure, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--copies", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder, "tree")
        for copy in range(given.copies):
            shutil.copytree(given.folder, root / f"copy_{copy}" if given.copies > 1 else root, symlinks=True)
        figures = anyio.run(measure, root, Path(folder, "code.db"))
    print(
        json.dumps(figures) if given.json else "\n".join(f"{name:34} {value:>12,}" for name, value in figures.items())
    )


if __name__ == "__main__":
    main()
