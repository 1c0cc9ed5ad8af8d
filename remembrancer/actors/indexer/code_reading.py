"""The processes that read code for the indexer, and may die doing so: see `remembrancer.code.reader`."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import struct
import sys
import time
from collections.abc import Sequence
from typing import Final

import anyio

from remembrancer.code.languages import language_of
from remembrancer.code.read_files import ReadFile
from remembrancer.code.reader import DEADLINE_S, Begun, Done, ReadFiles, answers, frame
from remembrancer.code.tree import SourceFile

IDLE_S: Final = 30.0
"""A process is ended after being idle for this long."""
MOST_DEATHS: Final = 3
"""After this many files of one language in a batch have killed a process, the rest are cut without that parser."""

logger = logging.getLogger(__name__)


class _Process:
    """One reading process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._process = process
        self._in, self._out = process.stdin, process.stdout
        self.idle_since = time.monotonic()
        self.begun: str | None = None
        """The file that it started reading last."""

    @classmethod
    async def start(cls) -> _Process:
        command = (sys.executable, "-P", "-s", "-m", "remembrancer.code.reader")
        pipe = asyncio.subprocess.PIPE
        with anyio.CancelScope(shield=True):  # otherwise nobody would end a half-started process
            process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe)
        return cls(process)

    async def read(self, request: ReadFiles) -> tuple[ReadFile, ...]:
        """Read the requested files. Raises `EOFError` if the process dies."""
        self.begun = None
        try:
            self._in.write(frame(request))
            await self._in.drain()
            while True:
                (length,) = struct.unpack(">I", await self._out.readexactly(4))
                answer: Begun | Done = answers.decode(await self._out.readexactly(length))
                if isinstance(answer, Done):
                    return answer.files
                self.begun = answer.path
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            raise EOFError from error

    async def aclose(self) -> None:
        """Kill the process, whatever it is doing."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        self._in.close()
        with anyio.CancelScope(shield=True):
            await self._process.wait()


class CodeReaders:
    """A few reading processes, started on demand; each file has a deadline. Belongs to one event loop."""

    def __init__(self, most: int, deadline_s: int = DEADLINE_S) -> None:
        self._deadline_s = deadline_s
        self._free = asyncio.Semaphore(most)
        self._idle: list[_Process] = []
        self.deaths = 0
        """The number of processes that a file has killed."""

    async def read(self, root: str, files: Sequence[SourceFile]) -> tuple[ReadFile, ...]:
        """Read these files of a tree. A file that kills its parser is cut without it; if it still kills the process, it
        is skipped.

        Raises:
            OSError: no process can be started, or it dies before it has read anything.
        """
        plain: set[str] = set()
        fatal: list[SourceFile] = []
        async with self._free:
            while True:
                process = self._idle.pop() if self._idle else await _Process.start()
                try:
                    asked = ReadFiles(root, tuple(files), tuple(plain), self._deadline_s)
                    read = await process.read(asked)
                except EOFError:
                    self.deaths += 1
                    await process.aclose()
                    if process.begun is None:
                        raise OSError("the process that reads code does not start") from None
                    logger.warning("reading a file has ended its process", extra={"root": root, "file": process.begun})
                    if process.begun in plain:
                        fatal += [file for file in files if file.path == process.begun]
                        files = [file for file in files if file.path != process.begun]
                    plain.add(process.begun)
                    of_language = {file.path for file in files if language_of(file.path) == language_of(process.begun)}
                    if len(of_language & plain) >= MOST_DEATHS:
                        plain |= of_language
                except BaseException:
                    await process.aclose()
                    raise
                else:
                    process.idle_since = time.monotonic()
                    self._idle.append(process)
                    return read + tuple(ReadFile(*file, language="", skipped="fatal") for file in fatal)

    async def end_idle(self) -> None:
        """End the processes that have been idle for a while."""
        now = time.monotonic()
        for process in [each for each in self._idle if now - each.idle_since > IDLE_S]:
            self._idle.remove(process)
            await process.aclose()

    async def aclose(self) -> None:
        """End all idle processes."""
        while self._idle:
            await self._idle.pop().aclose()
