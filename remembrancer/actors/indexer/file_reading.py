"""Finds the notes and transcripts of a workspace, and reads them for their index, without credentials."""

import hashlib
import math
import os
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import anyio.to_thread

from remembrancer.actors.index_file import FileState, IndexWriter, NotesWriter, ReadNote
from remembrancer.actors.indexer.watching import Scan, TreeFiles
from remembrancer.config.settings import Settings
from remembrancer.memory.chunks import chunks_of
from remembrancer.memory.credentials import masked
from remembrancer.memory.markdown_index import without_block
from remembrancer.memory.notes import MAX_FILE_BYTES
from remembrancer.memory.transcripts import chunks_of_turns, read_turns
from remembrancer.protocol.files import ToRead
from remembrancer.toolsets.files.workspace_files import (
    MAX_TRANSCRIPT_BYTES,
    FoundFile,
    find_note,
    is_of_workspace,
    native_places,
    note_paths,
    open_note,
    places_of,
    scan,
)

OTHER_PROJECT: Final = "of another project"
"""A reason that need not be reported."""
ENDED_S: Final = 300.0
"""A transcript that has not changed for this long is read again, even if it has hardly grown."""
GROWTH: Final = 0.1
"""A whole transcript is read again only after growing by at least this fraction."""
HEAD_BYTES: Final = 256 * 1024
"""The length of the beginning of a transcript, which usually names the directory of its session."""
BATCH_BYTES: Final = 64 * 1024
"""The size of one transaction: it takes about 50 ms, and delays writes of vectors."""
LONGEST_S: Final = 4.0
"""The maximum wait for a quiet interval if files keep changing."""
TRANSCRIPTS_LOOK_S: Final = 30.0
"""The interval between checks of transcripts, which grow all the time and are read in larger pieces."""
_GAP: Final = re.compile(r"\n{4,}")
"""Several blank lines, for example where a block of memories was removed from a note."""


class WorkspaceFiles(TreeFiles):
    batch_bytes = BATCH_BYTES

    def __init__(self, root: str, settings: Settings) -> None:
        self.root = Path(root)
        self._settings = settings
        self.quiet_s, self.longest_s = settings.watch_quiet_s, settings.watch_quiet_s + LONGEST_S
        transcripts_s = TRANSCRIPTS_LOOK_S if settings.transcripts and settings.watch else math.inf
        self.look_s = min(settings.sync_interval_s or math.inf, transcripts_s)
        self.native = tuple(str(Path(place).expanduser()) for place in native_places(self.root))
        self._places = note_paths(self.root, settings)
        self._overlap = min(settings.chunk_overlap, settings.chunk_tokens // 2)
        self._known: Mapping[str, FileState] | None = None
        self._force = False

    def open_index(self, path: Path) -> IndexWriter:
        settings = self._settings
        return NotesWriter(path, f"{settings.chunk_tokens} {settings.chunk_overlap} {settings.chunk_at_boundaries}")

    def scan(self, known: Mapping[str, FileState], asked: ToRead | None) -> Scan:
        if self._known is None:  # files that an earlier process could not read may be readable now
            known = {path: state._replace(mtime_ns=0) if state.skipped else state for path, state in known.items()}
        self._known, self._force = known, asked is not None and asked.force
        found, skipped = scan(self.root, self._settings)
        source = None if asked is None else asked.source
        changed = [file for file in found if self.is_due(file, known.get(file.shown), asked)]
        there = {file.shown for file in found}
        removed = [path for path, state in known.items() if path not in there and source in (None, state.kind)]
        return Scan(changed, removed, sum(source in (None, file.source) for file in found), skipped)

    def left_out(self, scan: Scan, known: Mapping[str, FileState]) -> dict[str, str]:
        unreadable = {path: state.skipped for path, state in known.items() if state.skipped not in ("", OTHER_PROJECT)}
        return {**scan.skipped, **unreadable}

    async def read(self, batch: Sequence[FoundFile]) -> list[ReadNote]:
        def read() -> list[ReadNote]:
            files = (self.read_file(file, (self._known or {}).get(file.shown), force=self._force) for file in batch)
            return [file for file in files if file is not None]

        return await anyio.to_thread.run_sync(read)

    def directories(self) -> set[Path]:
        return {path for path in self._places if path.is_dir() and not path.is_symlink()}  # a link could lead anywhere

    def concerns(self, path: Path) -> bool:
        return path == self.root or any(path.is_relative_to(place) for place in self._places)

    def is_due(self, file: FoundFile, known: FileState | None, asked: ToRead | None = None) -> bool:
        """True if a file is new or has changed (a transcript may wait), or a client requests it anyway."""
        is_known = known is not None and (known.mtime_ns, known.size) == (file.mtime_ns, file.size)
        if is_known and not (asked is not None and asked.force):
            return False
        if asked is not None:
            return asked.source in (None, file.source)
        if known is None:
            return True
        grown = file.size - known.size
        if file.source != "sessions" or grown <= 0 or time.time() - file.mtime_ns / 1e9 > ENDED_S:
            return True
        if grown < GROWTH * known.size:
            return False
        if grown >= self._settings.transcripts_delta_bytes:
            return True
        try:
            with file.path.open("rb") as transcript:
                transcript.seek(known.size)
                return transcript.read(grown).count(b"\n") >= self._settings.transcripts_delta_messages
        except OSError:  # reading the file reports the error
            return True

    def read_file(self, file: FoundFile, known: FileState | None, *, force: bool = False) -> ReadNote | None:
        """A file to index, with the reason if it is skipped; None if it is gone or being written. Blocks."""
        try:
            read_it = self._read_transcript if file.source == "sessions" else self._read_note
            read = read_it(file, known, force=force)
        except FileNotFoundError:
            return None
        except OSError as error:
            read = f"it cannot be read: {error.strerror}"
        if isinstance(read, str):
            return ReadNote(file.shown, file.mtime_ns, file.size, file.source, (), skipped=read)
        return read

    def _read_note(self, file: FoundFile, known: FileState | None, *, force: bool) -> ReadNote | str | None:
        note = find_note(file.path, self.root, places_of(self._settings, self.root))
        if isinstance(note, str):  # no longer a readable note
            return note
        with os.fdopen(open_note(note), "rb") as opened:
            data = opened.read(MAX_FILE_BYTES + 1)
            if len(data) != os.fstat(opened.fileno()).st_size:
                return None  # it is being written, which changes its time
        read = ReadNote(file.shown, file.mtime_ns, len(data), file.source, digest=hashlib.sha256(data).digest())
        if known is not None and known.digest == read.digest and not force:
            return read
        if b"\0" in data[:8192]:
            return "binary"
        try:
            text = masked(without_block(data.decode("utf-8-sig")))
        except UnicodeDecodeError:
            return "not UTF-8"
        settings = self._settings
        chunks = chunks_of(text, settings.chunk_tokens, self._overlap, at_blocks=settings.chunk_at_boundaries)
        return read._replace(chunks=tuple(each._replace(text=_GAP.sub("\n\n", each.text)) for each in chunks))

    def _read_transcript(self, file: FoundFile, known: FileState | None, *, force: bool) -> ReadNote | str:
        with file.path.open("rb") as transcript:
            data = transcript.read(HEAD_BYTES)
            _, directory = read_turns(data)
            if directory and not is_of_workspace(directory, file.path, self.root):
                return OTHER_PROJECT
            data += transcript.read(MAX_TRANSCRIPT_BYTES)
        read = ReadNote(file.shown, file.mtime_ns, file.size, file.source, digest=hashlib.sha256(data).digest())
        if known is not None and known.digest == read.digest and not force:
            return read
        turns, directory = read_turns(data)
        if not is_of_workspace(directory, file.path, self.root):
            return OTHER_PROJECT
        return read._replace(chunks=tuple(chunks_of_turns(turns, self._settings.chunk_tokens, self._overlap)))
