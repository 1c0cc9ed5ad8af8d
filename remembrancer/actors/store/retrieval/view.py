"""The memory that one session sees: the project's space with the session's own memories, its shared lane, the user's
memories, and notes. Rows of all spaces are queried together; words and vectors are searched space by space."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec

from remembrancer.actors.sqlite_file import SqliteFile
from remembrancer.actors.store.file_index import FileMemories
from remembrancer.actors.store.records.sqlite_records import Reader, Records
from remembrancer.actors.store.records.types import Filters, MemoryRecord, RankingFacts
from remembrancer.actors.store.vectors.exact_vectors import ExactVectors
from remembrancer.memory.chunks import is_imported, lines_imported, shown_chunk
from remembrancer.memory.times.windows import TimeWindow
from remembrancer.protocol.kinds import Scope
from remembrancer.protocol.wire import Notice
from remembrancer.toolsets.files.workspace_files import ENDINGS

Ref = int
"""The number of a memory in the database, or of a chunk of notes (at least `FIRST_CHUNK`)."""
HAPPENED: Final = 50
"""The maximum number of memories from a time window in each space, most important first."""
MOST_IMPORTED: Final = 1000
"""The maximum number of memories with which notes are compared: the latest ones."""
PROJECTS: Final[frozenset[Scope]] = frozenset({"session", "project"})


class Source(NamedTuple):
    """A space, or a project's notes. `vectors` is None if vectors cannot be searched."""

    texts: Records | FileMemories
    vectors: ExactVectors | None = None


class View:
    """Spaces that are read together, from the narrowest to the broadest, and perhaps notes. The methods block, may be
    called from any thread, and raise the same errors as `Records`. A memory in two spaces is being moved to the broader
    one, and is read there. `database`, the file of the spaces, is required if there are no spaces."""

    def __init__(
        self, spaces: Iterable[Source], notes: Source | None = None, database: SqliteFile | None = None
    ) -> None:
        self.sources = {each.texts.space: each for each in (*spaces, *([] if notes is None else [notes]))}
        self.records = [each.texts for each in self.sources.values() if isinstance(each.texts, Records)]
        self._notes = next((each.texts for each in self.sources.values() if isinstance(each.texts, FileMemories)), None)
        self.reader = Reader.of(self.records, database)
        self.model = next((each.vectors.model for each in self.sources.values() if each.vectors is not None), None)
        self.notices: list[Notice] = []

    def ranking_facts(self, refs: Iterable[Ref], filters: Filters) -> dict[Ref, RankingFacts]:
        """Memories that do not pass the filters are omitted, and so are notes that were imported as memories, perhaps
        from another tree."""
        numbers = list(refs)
        found = self.reader.ranking_facts(numbers, filters) if numbers else {}
        if self._notes is None:
            return found
        chunks = self._notes.chunks(numbers, filters)
        imported = self.reader.from_files(ENDINGS, filters, MOST_IMPORTED) if chunks and self.records else {}
        known = set[str]().union(*map(lines_imported, imported.values()))
        bodies = ((each.text, each.content[each.body :]) for each in chunks)
        new = [text for text, body in bodies if not (known and is_imported(shown_chunk(body, 0), known))]
        return found | self._notes.ranking_facts(new, filters)

    def load(self, refs: Iterable[Ref], filters: Filters | None) -> dict[Ref, MemoryRecord]:
        """Memories that do not pass the filters are omitted."""
        numbers = list(refs)
        found = self.reader.load(numbers, filters) if numbers else {}
        return found if self._notes is None else found | self._notes.load(numbers, filters)

    def happened_in(self, window: TimeWindow, filters: Filters) -> list[Ref]:
        """Return the memories in a time window: at most the `HAPPENED` most important ones of each space."""
        after = max(window.start, -math.inf if filters.after is None else filters.after)
        before = min(math.nextafter(window.end, -math.inf), math.inf if filters.before is None else filters.before)
        within = msgspec.structs.replace(filters, after=after, before=before)
        found: list[Ref] = []
        for source in self.sources.values():
            whole = source.texts.matching(within, HAPPENED)
            found += source.texts.top(within, "important", HAPPENED) if whole is None else whole
        return found

    def visible(self, memory_ids: Iterable[str], filters: Filters) -> dict[Ref, tuple[str, RankingFacts]]:
        """Return the ids and ranking facts of these memories, if they exist and pass the filters. A memory in two lanes
        appears twice."""
        known = self.reader.numbers_of(set(memory_ids))
        facts = self.reader.ranking_facts(list(known), filters) if known else {}
        return {ref: (known[ref][1], each) for ref, each in facts.items()}

    def records_of(self, ref: Ref) -> Records:
        space = self.reader.spaces_of([ref])[ref]
        return next(records for records in self.records if records.space == space)
