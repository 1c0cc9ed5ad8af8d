"""Random changes against a model, with `kill -9` of the store in between: all that is kept agrees at the end.

Hypothesis makes the sequences. The store is a real process with real files, and a worker gives it vectors; a kill comes
between two changes, or while one is under way, which is then sent again as a gateway sends it.
"""

from __future__ import annotations

import asyncio
import itertools
import sqlite3
import tempfile
import time
from contextlib import AsyncExitStack, closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, multiple, rule

from remembrancer.protocol.errors import InvalidInput, NotFound
from remembrancer.protocol.ids import derive_memory_id
from remembrancer.protocol.reads import GetMemory, GraphFound, MemoryShown, SearchGraph
from remembrancer.protocol.writes import (
    Applied,
    Change,
    EntityRef,
    ForgetMemory,
    Operation,
    PromoteMemory,
    RestoreMemory,
    Scope,
    StoreMemory,
    Submit,
    TagMemory,
    UpdateMemory,
)
from tests.actors.store_process import IDENTITY, REQUEST_S, StoreRig, Worker, store_rig, vector_of
from tests.faults.memory_model import Model, Verdict
from tests.operations import OTHER_SESSION, PROJECT, SESSION

WORDS = ("anchor", "bellows", "copper", "damson", "ember", "falcon", "garnet", "hazel", "iris", "juniper")
NAMES = ("Anvil", "Bridge", "Cellar", "Dock")

pytestmark = pytest.mark.timeout(300)

contents = st.lists(st.sampled_from(WORDS), min_size=1, max_size=4, unique=True)
sessions = st.sampled_from((SESSION, OTHER_SESSION))
scopes = st.sampled_from(("session", "project", "user"))
importances = st.sampled_from((0.0, 0.3, 0.5, 1.0))
tags = st.lists(st.sampled_from(("red", "green", "blue")), max_size=2, unique=True).map(tuple)
entities = st.lists(
    st.builds(EntityRef, st.sampled_from(NAMES), st.just("thing"), st.sampled_from(("uses", "describes"))),
    max_size=3,
    unique=True,
).map(tuple)
metadata = st.none() | st.dictionaries(st.sampled_from(("a", "b")), st.sampled_from((1, "x", None)), min_size=1)
kills = st.sampled_from(("no", "no", "no", "no", "no", "before", "during"))


class ChangesUnderFire(RuleBasedStateMachine):
    memories = Bundle("memories")

    def __init__(self) -> None:
        super().__init__()
        self.model = Model()
        self.runner = asyncio.Runner()
        self.stack = AsyncExitStack()
        self.folder = tempfile.TemporaryDirectory(prefix="rmb-")
        self.numbers = itertools.count(1)
        self.sent: list[tuple[Operation, Verdict]] = []
        self.rig: StoreRig
        self.worker: Worker

    @initialize()
    def begin(self) -> None:
        async def start() -> None:
            self.rig = await self.stack.enter_async_context(store_rig(Path(self.folder.name)))
            self.worker = await self.rig.worker()

        self.runner.run(start())

    # --- what happens ---

    @rule(
        target=memories,
        session=sessions,
        scope=scopes,
        words=contents,
        importance=importances,
        tags=tags,
        entities=entities,
        kill=kills,
    )
    def store(
        self,
        session: str,
        scope: Scope,
        words: list[str],
        importance: float,
        tags: tuple[str, ...],
        entities: tuple[EntityRef, ...],
        kill: str,
    ) -> Any:
        number = next(self.numbers)
        memory_id = derive_memory_id(f"memory {number}", 1_700_000_000.0)
        change = StoreMemory(
            memory_id,
            f"note{number} {' '.join(words)}",
            "semantic",
            scope,
            session,
            importance=importance,
            tags=tags,
            related_entities=entities,
        )
        self.submit(change, session, kill)
        return memory_id if self.model.memories else multiple()

    @rule(
        memory=memories,
        session=sessions,
        words=st.none() | contents,
        importance=st.none() | importances,
        add=tags,
        remove=tags,
        metadata=metadata,
        add_entities=entities,
        remove_entities=st.lists(st.sampled_from(NAMES), max_size=2, unique=True).map(tuple),
        kill=kills,
    )
    def update(
        self,
        memory: str,
        session: str,
        words: list[str] | None,
        importance: float | None,
        add: tuple[str, ...],
        remove: tuple[str, ...],
        metadata: dict[str, Any] | None,
        add_entities: tuple[EntityRef, ...],
        remove_entities: tuple[str, ...],
        kill: str,
    ) -> None:
        content = None if words is None else f"note{next(self.numbers)} {' '.join(words)}"
        remove = tuple(tag for tag in remove if tag not in add)
        kept = tuple(each for each in add_entities if each.name not in remove_entities)
        change = UpdateMemory(memory, content, importance, add, remove, metadata, kept, remove_entities)
        self.submit(change, session, kill)

    @rule(memory=memories, session=sessions, add=tags, remove=tags, kill=kills)
    def tag(self, memory: str, session: str, add: tuple[str, ...], remove: tuple[str, ...], kill: str) -> None:
        remove = tuple(tag for tag in remove if tag not in add)
        self.submit(TagMemory(memory, add, remove), session, kill)

    @rule(memory=memories, session=sessions, kill=kills)
    def forget(self, memory: str, session: str, kill: str) -> None:
        self.submit(ForgetMemory(memory, "it is time"), session, kill)

    @rule(memory=memories, session=sessions, scope=st.sampled_from(("project", "user")), kill=kills)
    def promote(self, memory: str, session: str, scope: Any, kill: str) -> None:
        self.submit(PromoteMemory(memory, scope), session, kill)

    @rule(memory=memories, session=sessions, version=st.none() | st.integers(1, 4), kill=kills)
    def restore(self, memory: str, session: str, version: int | None, kill: str) -> None:
        self.submit(RestoreMemory(memory, version), session, kill)

    @rule(place=st.integers(0, 200))
    def send_again(self, place: int) -> None:
        """An earlier operation comes once more: it changes nothing, and is answered as before."""
        if self.sent:
            operation, verdict = self.sent[place % len(self.sent)]
            if verdict == "applied":
                assert self.runner.run(self.rig.gateway.submit(operation)).replayed

    def submit(self, change: Change, session: str, kill: str) -> None:
        operation = Operation(f"operation {next(self.numbers)}", PROJECT, session, time.time(), change)
        verdict = self.runner.run(self._submit(operation, kill))
        assert verdict == self.model.apply(change, session), change
        self.sent.append((operation, verdict))

    async def _submit(self, operation: Operation, kill: str) -> Verdict:
        if kill == "before":
            await self._restart()
        elif kill == "during":
            under_way = asyncio.create_task(self.rig.gateway.ask(Submit(operation), Applied))
            await asyncio.sleep(0.001)
            await self._restart()
            await asyncio.gather(under_way, return_exceptions=True)
        try:
            await self.rig.gateway.submit(operation)
        except InvalidInput:
            return "invalid_input"
        except NotFound:
            return "not_found"
        return "applied"

    async def _restart(self) -> None:
        await self.rig.restart()
        assert await self.worker.dealer.wait_connected(REQUEST_S)
        self.worker.announce()
        await self.rig.gateway.until(lambda now: now.embedding.workers > 0)

    # --- what has to be true at the end ---

    def teardown(self) -> None:
        try:
            if hasattr(self, "rig"):
                self.runner.run(self._compare())
                code = self.runner.run(self.rig.stop())
                assert code == 0
                self._compare_files()
        finally:
            self.runner.run(self.stack.aclose())
            self.runner.close()
            self.folder.cleanup()

    async def _compare(self) -> None:
        gateway = self.rig.gateway
        for memory_id, memory in self.model.memories.items():
            for session in (SESSION, OTHER_SESSION):
                if self.model.visible(memory_id, session) is None:
                    with pytest.raises(NotFound, match=memory_id):
                        await gateway.ask(GetMemory(PROJECT, session, memory_id), MemoryShown)
            shown = await gateway.ask(GetMemory(PROJECT, memory.session_id, memory_id), MemoryShown)
            now, real = memory.now, shown.memory
            assert (real.content, real.importance, real.scope) == (now.content, now.importance, now.scope)
            assert (real.tags, real.related_entities, real.metadata) == (now.tags, now.entities, now.metadata)
            assert (real.version, real.forgotten_at is not None) == (len(memory.versions), now.forgotten)
            told = [(each.record.content, each.record.tags, each.record.forgotten) for each in real.history]
            assert told == [(each.content, each.tags, each.forgotten) for each in memory.versions]
        await gateway.until_embedded()
        for session in (SESSION, OTHER_SESSION):
            await self._compare_searches(session)

    async def _compare_searches(self, session: str) -> None:
        """Words and vectors find what there is, and nothing that was; the graph has its edges and no others."""
        gateway = self.rig.gateway
        edges: set[tuple[str, str, str]] = set()
        for memory_id, memory in self.model.memories.items():
            visible = self.model.visible(memory_id, session) is not None
            findable = visible and not memory.now.forgotten
            for old in memory.versions:
                mark = old.content.split()[0]
                found = await gateway.found(mark, strategy="keyword", session_id=session)
                assert (memory_id in found) == (findable and mark == memory.now.content.split()[0]), mark
            near = await gateway.found(memory.now.content, strategy="vector", session_id=session, limit=50)
            assert (memory_id in near) == findable
            if visible and memory.now.entities:
                subject, *others = memory.now.entities
                edges |= {(subject.name, each.relationship, each.name) for each in others if each.name != subject.name}
        real: set[tuple[str, str, str]] = set()
        for name in NAMES:
            found_graph = await gateway.ask(SearchGraph(PROJECT, session, name), GraphFound)
            for entity in found_graph.entities:
                if entity.name == name:
                    outgoing = [each for each in entity.relationships if each.direction == "outgoing"]
                    real |= {(name, each.type, each.target) for each in outgoing}
        assert real == edges

    def _compare_files(self) -> None:
        """The store is down: each file is whole, and what is derived in it follows from the memories."""
        for path in (self.rig.paths.user_database, self.rig.paths.project_database(PROJECT.id)):
            if path.exists():
                with closing(sqlite3.connect(path)) as connection:
                    _compare_file(connection)


def _compare_file(connection: sqlite3.Connection) -> None:
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
    connection.execute("INSERT INTO memories_text (memories_text, rank) VALUES ('integrity-check', 1)")
    counted = "SELECT scope, type, forgotten_at IS NOT NULL, count(*) FROM memories GROUP BY 1, 2, 3"
    kept = "SELECT scope, type, forgotten, count FROM tallies WHERE count > 0"
    assert sorted(connection.execute(kept)) == sorted(connection.execute(counted))
    listed = "SELECT m.number, j.value FROM memories AS m, json_each(m.tags) AS j"
    assert sorted(connection.execute("SELECT memory, tag FROM memory_tags")) == sorted(connection.execute(listed))
    idle = "SELECT name FROM entities WHERE number NOT IN (SELECT entity FROM memory_entities)"
    assert connection.execute(idle).fetchall() == []
    assert connection.execute("SELECT count(*) FROM moves").fetchone() == (0,)
    assert connection.execute("SELECT count(*) FROM pending_embeddings").fetchone() == (0,)
    contents = dict(connection.execute("SELECT number, content FROM memories"))
    vectors = connection.execute('SELECT memory, model, start, "end", vector FROM passages').fetchall()
    assert {row[0] for row in vectors} == set(contents)
    for memory, model, start, end, vector in vectors:
        assert model == IDENTITY.key
        expected = vector_of(contents[memory][start:end], IDENTITY.model)
        assert np.allclose(np.frombuffer(vector, dtype="<f4"), expected)


TestChangesUnderFire: Any = ChangesUnderFire.TestCase
TestChangesUnderFire.settings = settings(
    max_examples=12,
    stateful_step_count=25,
    deadline=None,
    phases=(Phase.generate,),  # a kill hits another moment each time: shrinking would chase a ghost
    suppress_health_check=list(HealthCheck),
)
