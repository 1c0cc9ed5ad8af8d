"""The spaces of a home in this process, with vectors made of words, and what the store asks of them."""

import itertools
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from remembrancer.actors.store.records.memory_rows import digest_of
from remembrancer.actors.store.records.sqlite_file import SqliteFile
from remembrancer.actors.store.records.sqlite_records import Records
from remembrancer.actors.store.records.types import USER, EmbeddedMemory, Vectors
from remembrancer.actors.store.retrieval.context import Gathering
from remembrancer.actors.store.retrieval.graph_search import search_graph
from remembrancer.actors.store.retrieval.recalls import recall
from remembrancer.actors.store.retrieval.view import Source, View
from remembrancer.actors.store.vectors.exact_vectors import ExactVectors
from remembrancer.protocol.kinds import Scope
from remembrancer.protocol.reads import ContextGathered, GatherContext, GraphFound, Recall, Recalled, SearchGraph
from remembrancer.protocol.runs import ApplyRun, Edit
from remembrancer.protocol.wire import Notice
from remembrancer.protocol.work import Passage
from remembrancer.protocol.writes import Applied, Change
from tests.actors.store_process import vector_of
from tests.operations import PROJECT, REQUESTED_AT, SESSION, change_operation, memory_id_of, store_operation

MODEL = "words"
NOW = REQUESTED_AT + 60.0


class Spaces:
    """A project's space and the user's, or others of these names."""

    def __init__(self, directory: Path, names: Iterable[str] = (PROJECT.id, USER)) -> None:
        self.path = directory / "memory.db"
        database = SqliteFile(self.path)
        self.records = {name: Records(database, name, lambda: REQUESTED_AT) for name in names}
        self.vectors = {name: ExactVectors(records, MODEL) for name, records in self.records.items()}
        self.vector_of: Callable[[str], Vectors] = vector_of
        self.threads = ThreadPoolExecutor(2)
        self.notices: list[Notice] = []
        """The caveats of the last recall."""
        self._made = 0

    def close(self) -> None:
        self.threads.shutdown()
        for records in self.records.values():
            records.close()

    @property
    def project(self) -> Records:
        return self.records[PROJECT.id]

    def store(
        self, content: str, scope: Scope = "project", *, space: str | None = None, passages: int = 1, **fields: Any
    ) -> str:
        """Store a memory with so many passages of the same length (0: it has no vectors yet); its id."""
        self._made += 1
        operation = store_operation(f"op-{self._made}", content, scope=scope, **fields)
        records = self.records[space or (USER if scope == "user" else PROJECT.id)]
        records.apply([operation])
        number = records.number_of(memory_id_of(operation))
        assert number is not None
        if passages:
            bounds = [len(content) * part // passages for part in range(passages + 1)]
            parts = tuple(Passage(start, end) for start, end in itertools.pairwise(bounds))
            vectors = np.stack([self.vector_of(content[part.start : part.end]) for part in parts])
            records.save_embeddings(MODEL, [EmbeddedMemory(number, digest_of(content), parts, vectors)])
        return memory_id_of(operation)

    def change(self, change: Change, space: str = PROJECT.id, *, session_id: str = SESSION) -> None:
        self._made += 1
        (outcome,) = self.records[space].apply([change_operation(f"op-{self._made}", change, session_id=session_id)])
        assert isinstance(outcome, Applied), outcome

    def run(self, *edits: Edit) -> None:
        run = ApplyRun(f"run-{self._made}", "project", "consolidation", edits)
        self.change(run, session_id="")

    def view(self, *names: str) -> View:
        """What somebody sees who sees these spaces; without names, all."""
        return View(Source(self.records[name], self.vectors[name]) for name in names or self.records)

    async def embed(self, text: str) -> Vectors:
        return self.vector_of(text)

    async def recall(self, query: str, session_id: str = SESSION, **fields: Any) -> Recalled:
        request, view = Recall(session_id, project=PROJECT, query=query, **fields), self.view()
        answer, _ = await recall(request, view, self.embed, self.threads, NOW)
        self.notices = view.notices
        return answer

    async def found(self, query: str, session_id: str = SESSION, **fields: Any) -> list[str]:
        return [memory.id for memory in (await self.recall(query, session_id, **fields)).memories]

    async def context(self, *, now: float = NOW, **fields: Any) -> ContextGathered:
        request = GatherContext(PROJECT, SESSION, **fields)
        return await Gathering(request, self.view(), self.embed, self.threads, now).gathered()

    def graph(self, entity: str | None = None) -> GraphFound:
        return search_graph(SearchGraph(PROJECT, SESSION, entity), self.view(), NOW)
