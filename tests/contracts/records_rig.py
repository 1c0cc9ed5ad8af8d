"""One rig for what is asked of records: `say` stores, `do` changes, `refused` is refused, `shown` and `found` read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Self

import msgspec
import numpy as np

from remembrancer.actors.store.records.memory_rows import digest_of
from remembrancer.actors.store.records.sqlite_file import SqliteFile
from remembrancer.actors.store.records.sqlite_records import Records
from remembrancer.actors.store.records.types import (
    EmbeddedMemory,
    Filters,
    MemoryRecord,
    PassageFilter,
)
from remembrancer.actors.store.retrieval.keywords import phrases_of
from remembrancer.protocol.errors import RemembrancerError
from remembrancer.protocol.work import Passage
from remembrancer.protocol.writes import Applied, Change, EntityRef, PortableMemory
from tests.contracts.records_factories import Clock, texts_of
from tests.operations import PROJECT, SESSION, change_operation, memory_id_of, store_operation

MODEL = "small.int8.0123456789ab.4"


def entities(*texts: str) -> tuple[EntityRef, ...]:
    """Each is `name:type:relationship`, the last two of which have defaults; the first is the subject of the others."""
    split = [(*each.split(":"), "", "")[:3] for each in texts]
    refs = [EntityRef(name, kind or "thing", relationship or "about") for name, kind, relationship in split]
    return (*refs[:1], *(msgspec.structs.replace(each, subject=refs[0].name) for each in refs[1:]))


class RecordsRig:
    """The records of one space. A change is asked for at `at`, and recorded when the clock says."""

    def __init__(self, path: Path, space: str = PROJECT.id, file: SqliteFile | None = None) -> None:
        self.path = path
        self.clock = Clock()
        self.records = Records(file or SqliteFile(path), space, self.clock)
        self._made = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.records.close()

    def beside(self, space: str) -> RecordsRig:
        return RecordsRig(self.path, space, self.records._file.file)

    def at(self, time: float) -> RecordsRig:
        self.clock.now = time
        return self

    def say(self, content: str, *names: str, **fields: Any) -> str:
        """Store a memory that names entities (see `entities`); its id. Where no `requested_at` is given, it is now."""
        self._made += 1
        given = {"requested_at": self.clock.now, "related_entities": entities(*names), **fields}
        operation = store_operation(f"say {self._made}", content, **given)
        (outcome,) = self.records.apply([operation])
        assert isinstance(outcome.reply, Applied), outcome.reply
        return memory_id_of(operation)

    def try_to(self, change: Change, *, session: str = SESSION, at: float | None = None) -> Any:
        self._made += 1
        asked_at = self.clock.now if at is None else at
        operation = change_operation(f"change {self._made}", change, session_id=session, requested_at=asked_at)
        reply = self.records.apply([operation])[0].reply
        return reply.result if isinstance(reply, Applied) else reply

    def do(self, change: Change, **options: Any) -> Any:
        result = self.try_to(change, **options)
        assert not isinstance(result, RemembrancerError), result
        return result

    def refused(self, change: Change, **options: Any) -> RemembrancerError:
        """The error of a change that is refused, after which nothing is different."""
        before = self.everything()
        error = self.try_to(change, **options)
        assert isinstance(error, RemembrancerError), error
        assert self.everything() == before
        return error

    def everything(self) -> list[PortableMemory | None]:
        return [
            self.records.portable(each, None) for (each,) in self.rows("SELECT id FROM memories WHERE space = @SPACE")
        ]

    def rows(self, query: str, arguments: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        return self.records._file.read(query, arguments)

    def shown(self, memory_id: str, session: str | None = None) -> PortableMemory:
        memory = self.records.portable(memory_id, session)
        assert memory is not None
        return memory

    def number(self, memory_id: str) -> int:
        number = self.records.number_of(memory_id)
        assert number is not None
        return number

    def loaded(self, memory_id: str, session: str = SESSION) -> MemoryRecord:
        """A memory as an answer has it."""
        number = self.number(memory_id)
        return self.records.load([number], Filters(session))[number]

    def ids(self, numbers: Iterable[int], session: str = SESSION) -> list[str]:
        """The ids of memories that a session sees, in the order of their numbers' list."""
        wanted = list(numbers)
        loaded = self.records.load(wanted, Filters(session, include_forgotten=True))
        return [loaded[each].id for each in wanted]

    def found(self, query: str, filters: Filters | None = None, limit: int = 50) -> list[str]:
        filters = filters or Filters(SESSION)
        return self.ids(self.records.keyword_hits(phrases_of(query), filters, limit), filters.session_id)

    def embed(
        self, memory_id: str, *vectors: Sequence[float], text: str | None = None, model: str = MODEL
    ) -> list[int]:
        """Vectors come, one a passage, of what a memory is, or was when it was `text`."""
        number = self.number(memory_id)
        matrix = np.array(vectors or [[1, 0, 0, 0]], dtype=np.float32)
        digest = digest_of(texts_of(self.records, [number])[number] if text is None else text)
        passages = tuple(Passage(n, n + 1) for n in range(len(matrix)))
        return self.records.save_embeddings(model, [EmbeddedMemory(number, digest, passages, matrix)])

    def passages(self, memory_id: str, model: str = MODEL) -> list[int]:
        return self.records.passages(PassageFilter(model, [self.number(memory_id)])).numbers

    def find_names(self) -> None:
        """Do what is left for later: names are found in texts."""
        while self.records.find_names():
            pass

    def files_with(self, word: str) -> list[str]:
        """The names of the files in which that word is left, once nobody has them open."""
        self.close()
        return [path.name for path in self.path.parent.iterdir() if word.encode() in path.read_bytes()]
