"""The anchors of a project's memories in its code, found and judged in the background, and read from memory.

They are derived: a lost anchor is made again from the code as it is then. A file beside the code indexes keeps them,
because nothing else records the code as it was when a memory was stored.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from hashlib import blake2b
from pathlib import Path
from typing import Final

import msgspec

from remembrancer.actors.store.records.sqlite_records import Records
from remembrancer.actors.store.records.types import MemoryRecord
from remembrancer.code.anchors import Anchor, Mentions, anchors_of, judged, mentions_of, worst_of
from remembrancer.code.index import CodeIndex
from remembrancer.code.tree import head_of
from remembrancer.memory.found_names import found_names
from remembrancer.protocol.code import CodeTree
from remembrancer.protocol.kinds import SESSION_RECORD
from remembrancer.protocol.paths import database_files, read_file, write_whole

VERSION: Final = 2
"""The version of the file and of the symbols' digests. A file of another version is rebuilt."""
AT_ONCE: Final = 200
"""Memories in one step, which takes a few milliseconds."""
SWITCHING_S: Final = 60.0
"""An older lock of git's index was left by a crash and does not mean that branches are being switched."""

logger = logging.getLogger(__name__)


class _Known(msgspec.Struct, frozen=True, array_like=True):
    """A memory whose anchors are known, with the digest of its text."""

    version: int
    digest: bytes
    anchors: tuple[Anchor, ...] = ()


class _Kept(msgspec.Struct, array_like=True):
    """The content of the file. `commits` are those at which trees were judged last."""

    version: int = VERSION
    commits: dict[str, str] = {}
    memories: dict[str, _Known] = {}


_decode_kept: Final = msgspec.msgpack.Decoder(_Kept).decode


class ProjectAnchors:
    """The anchors of one project's memories. `look` is for one thread at a time, the rest for the event loop."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._kept = _Kept()
        self._saved = b""
        self._mentions: dict[str, Mentions] = {}
        """The mentions in memories without an anchor."""
        self._judged: dict[str, object] = {}
        """For each tree, the state of its index file at the last judgement."""
        self._writes = -1
        """The records' number of writes when they were examined last."""
        try:
            self._saved = read_file(path)
            kept = _decode_kept(self._saved)
            if kept.version == VERSION:
                self._kept = kept
        except FileNotFoundError:
            pass
        except (OSError, msgspec.DecodeError) as error:
            logger.warning("anchors cannot be read", extra={"file": str(path), "reason": str(error)})

    def of(self, memory_id: str, version: int) -> Anchor | None:
        """The anchor by which this version of a memory is judged; None if it has none."""
        known = self._kept.memories.get(memory_id)
        if known is None or known.version != version or not known.anchors:  # in another version its text may be another
            return None
        return worst_of(known.anchors)

    def all_of(self, memory_id: str) -> tuple[Anchor, ...]:
        """Every anchor of a memory."""
        known = self._kept.memories.get(memory_id)
        return () if known is None else known.anchors

    @property
    def stale(self) -> dict[str, Anchor]:
        """The memories whose code has changed, by id."""
        worst = {each: worst_of(known.anchors) for each, known in list(self._kept.memories.items()) if known.anchors}
        return {each: anchor for each, anchor in worst.items() if anchor.verdict != "fresh"}

    def in_file(self, tree_id: str, path: str) -> dict[str, list[int]]:
        """The memories about a file, each with the lines of its anchors; line 1 if it is about the whole file."""
        found: dict[str, list[int]] = {}
        for memory_id, known in list(self._kept.memories.items()):
            for anchor in known.anchors:
                if (anchor.tree_id, anchor.place) == (tree_id, path) and anchor.verdict != "gone":
                    found.setdefault(memory_id, []).append(anchor.line)
        return found

    def look(self, records: Records, trees: Sequence[CodeTree]) -> Iterator[None]:
        """Find the anchors of new and changed memories, and judge those in changed trees, step by step. Blocks."""
        states = {tree.id: _state_of(tree) for tree in trees}
        changed = [tree for tree in trees if states[tree.id] != self._judged.get(tree.id)]
        new: set[str] = set()
        if (writes := records.writes) != self._writes:
            versions = records.versions()
            for gone in self._kept.memories.keys() - versions.keys():
                del self._kept.memories[gone]
            numbers = [number for each, (number, version) in versions.items() if self._is_new(each, version)]
            for start in range(0, len(numbers), AT_ONCE):
                some = records.load(numbers[start : start + AT_ONCE], None).values()
                new |= {each.id for each in some if self._take(each, trees)}
                yield
            self._writes = writes
        there = {tree.id for tree in trees}
        for memory_id, known in list(self._kept.memories.items()):
            if any(anchor.tree_id not in there for anchor in known.anchors):
                self._put(memory_id, tuple(each for each in known.anchors if each.tree_id in there))
        for tree in changed if not new else trees:
            try:
                yield from self._look_into(tree, new, states[tree.id])
            except sqlite3.Error as error:
                logger.info("anchors are not judged", extra={"root": tree.root, "reason": str(error)})
        self._save()

    def _is_new(self, memory_id: str, version: int) -> bool:
        known = self._kept.memories.get(memory_id)
        return known is None or known.version != version or (not known.anchors and memory_id not in self._mentions)

    def _take(self, memory: MemoryRecord, trees: Sequence[CodeTree]) -> bool:
        """Record the text of a memory. Returns True if it is new."""
        source = memory.source.file or ""
        digest = blake2b(f"{source}\0{memory.content}".encode("utf-8", "replace"), digest_size=8).digest()
        known = self._kept.memories.get(memory.id)
        is_same = known is not None and known.digest == digest
        anchors = known.anchors if known is not None and is_same else ()
        self._kept.memories[memory.id] = _Known(memory.version, digest, anchors)
        if anchors or memory.kind == SESSION_RECORD:
            self._mentions.setdefault(memory.id, Mentions())
            return False
        names = found_names(memory.content, is_entity=memory.kind == "entity")
        self._mentions[memory.id] = mentions_of(names, source or None, [tree.root for tree in trees])
        return True

    def _put(self, memory_id: str, anchors: tuple[Anchor, ...]) -> None:
        self._kept.memories[memory_id] = msgspec.structs.replace(self._kept.memories[memory_id], anchors=anchors)

    def _look_into(self, tree: CodeTree, new: set[str], state: object) -> Iterator[None]:
        with closing(CodeIndex(Path(tree.database))) as index, index.at_one_moment():
            if index.about().get("status") != "ready" or _is_switching(tree.root):
                return
            before = self._kept.commits.get(tree.id, "")
            is_changed = state != self._judged.get(tree.id)
            for place, memory_id in enumerate(list(self._kept.memories if is_changed else new)):
                anchors = self._kept.memories[memory_id].anchors
                mentions = self._mentions.get(memory_id)
                if any(anchor.tree_id == tree.id for anchor in anchors):
                    self._put(
                        memory_id,
                        tuple(judged(each, index, before) if each.tree_id == tree.id else each for each in anchors),
                    )
                elif mentions is not None and any(mentions) and not anchors:
                    self._put(memory_id, tuple(anchors_of(mentions, tree.id, index)))
                if place % AT_ONCE == AT_ONCE - 1:
                    yield
            self._judged[tree.id] = state
            self._kept.commits[tree.id] = head_of(tree.root)[:SHORT]

    def _save(self) -> None:
        anchored = {memory_id: known for memory_id, known in self._kept.memories.items() if known.anchors}
        data = msgspec.msgpack.encode(_Kept(VERSION, self._kept.commits, anchored))
        if data != self._saved:
            write_whole(self._path, data)
            self._saved = data


SHORT: Final = 9
"""Digits of a commit that are shown."""


def _state_of(tree: CodeTree) -> object:
    """A value that changes whenever an index is written to."""
    found = []
    for path in database_files(Path(tree.database))[:2]:
        try:
            about = path.stat()
        except OSError:
            continue
        found.append((about.st_ino, about.st_mtime_ns, about.st_size))
    return found


def _is_switching(root: str) -> bool:
    """True while git seems to be changing the files of a working tree."""
    try:
        return time.time() - os.stat(f"{root}/.git/index.lock").st_mtime < SWITCHING_S  # noqa: PTH116
    except OSError:
        return False
