"""The files of a tree of code, for its index."""

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from remembrancer.actors.index_file import CodeWriter, FileState, IndexWriter
from remembrancer.actors.indexer.code_reading import CodeReaders
from remembrancer.actors.indexer.watching import Scan, TreeFiles
from remembrancer.code.languages import language_of
from remembrancer.code.read_files import ReadFile
from remembrancer.code.tree import FOREIGN, IGNORE_FILES, SourceFile, Tree
from remembrancer.protocol.files import ToRead

BATCH_BYTES: Final = 2 * 1024 * 1024


class CodeFiles(TreeFiles):
    """The code below a directory."""

    quiet_s = 0.15
    longest_s = 1.0
    look_s = math.inf
    batch_bytes = BATCH_BYTES

    def __init__(self, root: str, readers: CodeReaders, exclude: Sequence[str] = ()) -> None:
        self._tree = Tree(root, exclude)
        self.root = Path(self._tree.root)
        self._readers = readers

    def open_index(self, path: Path) -> IndexWriter:
        return CodeWriter(path)

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
        return await self._readers.read(str(self.root), batch)

    def directories(self) -> set[Path]:
        return {self.root}

    def concerns(self, path: Path) -> bool:
        if path == self.root:
            return True
        *above, name = Path(os.path.relpath(path, self.root)).parts
        if any(part.startswith(".") or part in FOREIGN for part in above):
            return False
        return name in IGNORE_FILES or language_of(name) is not None or "." not in name
