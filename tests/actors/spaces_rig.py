"""The spaces of a home in this process, with vectors made of words, and what the store asks of them."""

import itertools
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from remembrancer.actors.store.records.sqlite_records import Records
from remembrancer.actors.store.records.types import USER, Vectors
from remembrancer.actors.store.retrieval.context import Gathering
from remembrancer.actors.store.retrieval.graph_search import search_graph
from remembrancer.actors.store.retrieval.recalls import recall
from remembrancer.actors.store.retrieval.view import Source, View
from remembrancer.actors.store.vectors.exact_vectors import ExactVectors
from remembrancer.protocol.ids import derive_memory_id
from remembrancer.protocol.kinds import Scope
from remembrancer.protocol.reads import ContextGathered, GatherContext, GraphFound, Recall, Recalled, SearchGraph
from remembrancer.protocol.runs import ApplyRun, Edit
from remembrancer.protocol.wire import Notice
from remembrancer.protocol.writes import Change
from tests.actors.store_process import vector_of
from tests.contracts.records_rig import RecordsRig
from tests.operations import PROJECT, REQUESTED_AT, SESSION

MODEL = "words"
NOW = REQUESTED_AT + 60.0


class Spaces:
    """A project's space and the user's, or others of these names."""

    def __init__(self, directory: Path, names: Iterable[str] = (PROJECT.id, USER)) -> None:
        first, *others = names
        rig = RecordsRig(directory / "memory.db", first)
        self.rigs = {first: rig, **{name: rig.beside(name) for name in others}}
        self.vectors = {name: ExactVectors(each.records, MODEL) for name, each in self.rigs.items()}
        self.vector_of: Callable[[str], Vectors] = vector_of
        self.threads = ThreadPoolExecutor(2)
        self.notices: list[Notice] = []
        """The caveats of the last recall."""
        self._made = 0

    def close(self) -> None:
        self.threads.shutdown()
        for each in self.rigs.values():
            each.close()

    @property
    def project(self) -> Records:
        return self.rigs[PROJECT.id].records

    def store(
        self, content: str, scope: Scope = "project", *, space: str | None = None, passages: int = 1, **fields: Any
    ) -> str:
        """Store a memory with so many passages of the same length (0: it has no vectors yet); its id."""
        self._made += 1
        rig = self.rigs[space or (USER if scope == "user" else PROJECT.id)]
        memory_id = rig.say(
            content, scope=scope, memory_id=derive_memory_id(f"op-{self._made}", REQUESTED_AT), **fields
        )
        if passages:
            bounds = itertools.pairwise(len(content) * part // passages for part in range(passages + 1))
            rig.embed(memory_id, *(self.vector_of(content[start:end]).tolist() for start, end in bounds), model=MODEL)
        return memory_id

    def change(self, change: Change, space: str = PROJECT.id) -> None:
        self.rigs[space].do(change)

    def run(self, *edits: Edit) -> None:
        self._made += 1
        self.rigs[PROJECT.id].do(ApplyRun(f"run-{self._made}", "project", "consolidation", edits), session="")

    def view(self) -> View:
        return View(Source(each.records, self.vectors[name]) for name, each in self.rigs.items())

    async def embed(self, text: str) -> Vectors:
        return self.vector_of(text)

    async def recall(self, query: str, session_id: str = SESSION, **fields: Any) -> Recalled:
        request, view = Recall(session_id, project=PROJECT, query=query, **fields), self.view()
        answer = await recall(request, view, self.embed, self.threads, NOW)
        self.notices = view.notices
        return answer

    async def found(self, query: str, session_id: str = SESSION, **fields: Any) -> list[str]:
        return [memory.id for memory in (await self.recall(query, session_id, **fields)).memories]

    async def context(self, *, now: float = NOW, **fields: Any) -> ContextGathered:
        request = GatherContext(PROJECT, SESSION, **fields)
        return await Gathering(request, self.view(), self.embed, self.threads, now).gathered()

    def graph(self, entity: str | None = None) -> GraphFound:
        return search_graph(SearchGraph(PROJECT, SESSION, entity), self.view(), NOW)
