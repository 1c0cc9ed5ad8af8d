"""The files of a tree of code, and the processes that read them, which may die (`remembrancer.code.reader`)."""

import asyncio
import contextlib
import logging
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import anyio
import msgspec

from remembrancer.actors.index_file import CodeWriter, FileState
from remembrancer.actors.indexer.watching import Scan, TreeFiles
from remembrancer.code.languages import language_of
from remembrancer.code.reader import DEADLINE_S, ReadFile, ReadFiles, answers
from remembrancer.code.tree import FOREIGN, IGNORE_FILES, SourceFile, Tree
from remembrancer.protocol.files import ToRead

READERS: Final = min(2, os.cpu_count() or 1)

logger = logging.getLogger(__name__)


async def _read_until_death(request: ReadFiles) -> list[ReadFile]:
    command = (sys.executable, "-P", "-s", "-m", "remembrancer.code.reader")
    with anyio.CancelScope(shield=True):  # otherwise a half-started process would never end
        process = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
    try:
        output, _ = await process.communicate(msgspec.json.encode(request))
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        with anyio.CancelScope(shield=True):
            await process.wait()
    if not output:
        raise OSError("the process that reads code did not start")
    complete, _, _ = output.rpartition(b"\n")
    return answers.decode_lines(complete)


class CodeFiles(TreeFiles):
    """`free` limits the number of processes that read at the same time. Each of them reads one batch of files."""

    quiet_s = 0.15
    longest_s = 1.0
    batch_bytes = 2 * 1024 * 1024
    open_index = CodeWriter

    def __init__(
        self, root: str, free: asyncio.Semaphore, exclude: Sequence[str] = (), deadline_s: int = DEADLINE_S
    ) -> None:
        self._tree = Tree(root, exclude)
        self.root = Path(self._tree.root)
        self._free = free
        self._deadline_s = deadline_s

    def scan(self, known: Mapping[str, FileState], asked: ToRead | None) -> Scan | None:
        if not self.root.is_dir():
            return None
        gone, changed, total = dict(known), list[SourceFile](), 0
        for file in self._tree.files():
            total += 1
            state = gone.pop(file.path, None)
            if state is None or (state.mtime_ns, state.size) != (file.mtime_ns, file.size):
                changed.append(file)
        return Scan(changed, list(gone), total, dict(self._tree.skipped))

    async def read(self, batch: Sequence[SourceFile]) -> list[ReadFile]:
        """A file that kills the process is retried without its parser, and then skipped. Raises `OSError`."""
        root, read, plain = str(self.root), list[ReadFile](), set[str]()
        async with self._free:
            while left := batch[len(read) :]:
                read += await _read_until_death(ReadFiles(root, tuple(left), tuple(plain), self._deadline_s))
                if len(read) == len(batch):
                    break
                fatal = batch[len(read)]
                logger.warning("reading a file killed the process", extra={"root": root, "file": fatal.path})
                if fatal.path in plain:
                    read.append(ReadFile(*fatal, kind="", skipped="fatal"))
                plain.add(fatal.path)
        return read

    def directories(self) -> set[Path]:
        return {self.root}

    def concerns(self, path: Path) -> bool:
        if path == self.root:
            return True
        *above, name = Path(os.path.relpath(path, self.root)).parts
        if any(part.startswith(".") or part in FOREIGN for part in above):
            return False
        return name in IGNORE_FILES or language_of(name) is not None or "." not in name
