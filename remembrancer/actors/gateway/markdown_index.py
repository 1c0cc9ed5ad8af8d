"""The setting `markdown_index`: keeps a block of a Markdown file up to date with the project's memories."""

import logging
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread

from remembrancer.actors.gateway.store_access import StoreAccess
from remembrancer.memory.decay import DAY_S
from remembrancer.memory.markdown_index import MOST_BYTES, kept_in, outside, size_of, with_block
from remembrancer.protocol.errors import RemembrancerError
from remembrancer.protocol.paths import write_whole
from remembrancer.protocol.reads import ContextGathered, GatherContext, RecalledMemory
from remembrancer.toolsets.memory.context_block import build_block
from remembrancer.toolsets.service import Caller

logger = logging.getLogger(__name__)
COALESCE_S: Final = 1.0
TOKENS: Final = 8000
MAX_FILE_BYTES: Final = 1024 * 1024
"""Larger files are not updated."""
USED_S: Final = 7 * DAY_S
MOST_USED: Final = 8
"""The maximum number of uses counted. For each use, a memory counts as `USED_S` newer."""


class MarkdownIndex:
    """Keeps the files in the working trees used by sessions up to date. Run `run` as a task."""

    def __init__(self, access: StoreAccess) -> None:
        self._access = access
        self._callers: dict[str, Caller] = {}

    async def attend(self, caller: Caller) -> None:
        if self._access.settings.markdown_index is None or not caller.directory:
            return
        self._callers[caller.directory] = caller
        await self._update(caller)

    async def run(self) -> None:
        written: set[str] = set()
        self._access.writes.listeners.append(lambda operation: written.add(operation.project.id))
        happened = self._access.writes.happened
        while self._access.settings.markdown_index is not None:
            await happened.wait()
            await anyio.sleep(COALESCE_S)
            happened = self._access.writes.happened
            callers = [each for each in self._callers.values() if each.project.id in written]
            written.clear()
            for caller in callers:
                await self._update(caller)

    async def _update(self, caller: Caller) -> None:
        path, tree = place_of(caller, str(self._access.settings.markdown_index))
        question = GatherContext(caller.project, caller.session_id, tokens=TOKENS, part_tokens=TOKENS)
        try:
            if (content := await anyio.to_thread.run_sync(read_file, path, tree)) is None:
                return
            asked = await self._access.ask(question, time.time())
            gathered = _of_project(asked.reply)
            if asked.is_old or not (gathered.memories or kept_in(content)):
                return
            block = build_block(gathered, MOST_BYTES, partial(size_of, around=outside(content)), root=caller.directory)
            fresh = with_block(content, block.text, time.time())
            if fresh != content:
                await anyio.to_thread.run_sync(_replace, path, content, fresh)
        except (RemembrancerError, OSError) as error:
            logger.warning("the Markdown file was not written", extra={"tree": caller.directory, "why": str(error)})


def place_of(caller: Caller, named: str) -> tuple[Path, Path | None]:
    """The Markdown file for a caller, and the tree that must contain it (None: the file may be outside any tree)."""
    if not named.startswith(("/", "~/")):
        return Path(caller.directory) / named, Path(caller.directory)
    project = caller.project
    name = f"{Path(project.path.removesuffix('/.git')).name}-{project.id}"
    return Path(named.replace("{project}", name)).expanduser(), None


def _of_project(gathered: ContextGathered) -> ContextGathered:
    """Only the project's memories, the most used and newest first."""
    parts = gathered.memories, gathered.replaced, gathered.closed
    memories, replaced, closed = (tuple(each for each in part if each.scope == "project") for part in parts)

    def recency(memory: RecalledMemory) -> float:
        return (memory.updated_at or memory.created_at) + USED_S * min(MOST_USED, memory.access_count)

    return ContextGathered(
        tuple(sorted(memories, key=recency, reverse=True)),
        is_all=gathered.is_all and len(memories) == len(gathered.memories),
        replaced=replaced,
        closed=closed,
        short_ids=gathered.short_ids,
        edited=gathered.edited,
    )


def read_file(path: Path, tree: Path | None) -> str | None:
    """The file's text; empty if there is no file. None if the file must not be written: it is outside the tree (perhaps
    through a link), has neither block nor tree, is not plain text, is too large, or has merge conflicts."""
    if not path.parent.is_dir() or (tree is not None and not path.resolve().is_relative_to(tree.resolve())):
        return None
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return ""
    with suppress(UnicodeDecodeError):
        is_plain = len(data) <= MAX_FILE_BYTES and b"\r" not in data and b"\n<<<<<<< " not in b"\n" + data
        content = data.decode() if is_plain else None
        return content if tree is not None or (content and kept_in(content)) else None
    return None


def _replace(path: Path, before: str, content: str) -> None:
    if (path.read_text("utf-8") if path.exists() else "") != before:
        return
    target = path.resolve()
    mode = target.stat().st_mode & 0o777 if target.exists() else 0o644
    write_whole(target, content.encode(), mode)
