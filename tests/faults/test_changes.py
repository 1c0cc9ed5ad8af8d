"""Random changes with `kill -9` of the store in between: each is answered, and all is kept, as where nothing is killed.

Hypothesis makes the sequences. The store is a real process with real files, and a worker gives it vectors; a kill comes
between two changes, or while one is under way, which is then sent again as a gateway sends it. The same changes are
made once in a file of this process.
"""

import asyncio
import itertools
import sqlite3
import tempfile
import time
from contextlib import AsyncExitStack, closing
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, rule

from remembrancer.actors.store.records.sqlite_file import SqliteFile
from remembrancer.actors.store.records.sqlite_records import Records
from remembrancer.actors.store.records.types import USER
from remembrancer.memory.names import name_key
from remembrancer.protocol.errors import NotFound, RemembrancerError
from remembrancer.protocol.kinds import SCOPES
from remembrancer.protocol.reads import GetMemory, SearchGraph
from remembrancer.protocol.writes import (
    MENTIONED_WITH,
    Applied,
    Operation,
    PortableMemory,
    PromoteMemory,
    Result,
    Submit,
    UpdateMemory,
)
from tests.actors.store_process import IDENTITY, REQUEST_S, StoreRig, Worker, store_rig, vector_of
from tests.contracts.random_changes import SESSIONS, changes_of, new_memories
from tests.contracts.records_rig import check_derived, ids_of, writer_of
from tests.operations import PROJECT, memory_id_of, store_operation

NOW = time.time()
"""The time of every operation: a session whose last one is long ago ends by itself, and leaves a record."""
NAMES = ("AuthService", "auth-service", "store", "???")

kills = st.sampled_from(("no", "no", "no", "no", "no", "before", "during"))
Refusal = type[RemembrancerError]


class UndisturbedRecords:
    def __init__(self, path: Path) -> None:
        database = SqliteFile(path)
        project, user = (Records(database, name, lambda: NOW) for name in (PROJECT.id, USER))
        self.spaces = (project, user)
        self.writer = writer_of(project, user)
        self.close = database.close

    def apply(self, operation: Operation) -> Result | Refusal:
        reply = self.writer.apply([operation])[0].reply
        return reply.result if isinstance(reply, Applied) else type(reply)

    def memories(self, session: str | None = None) -> dict[str, PortableMemory]:
        """The memories that a session (None: anybody) may see, with the versions that it may see, by their ids."""
        shown = [space.portable(each, session, PROJECT.id) for space in self.spaces for each in ids_of(space)]
        return {memory.id: memory for memory in shown if memory is not None}


class ChangesUnderFire(RuleBasedStateMachine):
    memories = Bundle("memories")

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.stack = AsyncExitStack()
        self.folder = tempfile.TemporaryDirectory(prefix="rmb-")
        self.undisturbed = UndisturbedRecords(Path(self.folder.name, "undisturbed.db"))
        self.numbers = itertools.count(1)
        self.sent: list[tuple[Operation, Result]] = []
        self.rig: StoreRig
        self.worker: Worker

    @initialize()
    def begin(self) -> None:
        async def start() -> None:
            self.rig = await self.stack.enter_async_context(store_rig(Path(self.folder.name)))
            self.worker = await self.rig.worker()

        self.runner.run(start())

    # --- what happens ---

    @rule(target=memories, fields=new_memories(SCOPES), kill=kills)
    def store(self, fields: dict[str, Any], kill: str) -> str:
        fields = {**fields, "content": self.marked(fields["content"]), "requested_at": NOW}
        operation = store_operation(f"operation {next(self.numbers)}", **fields)
        self.submit(operation, kill)
        return memory_id_of(operation)

    @rule(
        memory=memories,
        session=st.sampled_from(SESSIONS),
        change=changes_of(st.just("")) | st.builds(PromoteMemory, st.just(""), st.just("user")),
        kill=kills,
    )
    def change(self, memory: str, session: str, change: Any, kill: str) -> None:
        change = msgspec.structs.replace(change, memory_id=memory)
        if isinstance(change, UpdateMemory) and isinstance(change.content, str):
            change = msgspec.structs.replace(change, content=self.marked(change.content))
        self.submit(Operation(f"operation {next(self.numbers)}", PROJECT, session, NOW, change), kill)

    @rule(place=st.integers(0, 200))
    def send_again(self, place: int) -> None:
        """An earlier operation comes once more: it changes nothing, and is answered as before."""
        if self.sent:
            operation, result = self.sent[place % len(self.sent)]
            answer = self.runner.run(self.rig.gateway.submit(operation))
            assert msgspec.structs.replace(answer, near=(), short_ids={}) == Applied(
                operation.operation_id, result, replayed=True
            )

    def marked(self, words: str) -> str:
        """A content that begins with a word that no other one has, three times: no other one is so near to it that a
        recall would show one of the two."""
        letters = "".join("qwzxkvjpgb"[int(digit)] for digit in str(next(self.numbers)))
        mark = f"note{letters}"  # a word of its own: of "note17", "note" would be a part as well
        return f"{mark} {mark} {mark} {words}"

    def submit(self, operation: Operation, kill: str) -> None:
        answer = self.runner.run(self._submit(operation, kill))
        assert answer == self.undisturbed.apply(operation), operation
        if not isinstance(answer, type):
            self.sent.append((operation, answer))

    async def _submit(self, operation: Operation, kill: str) -> Result | Refusal:
        if kill == "before":
            await self._restart()
        elif kill == "during":
            under_way = asyncio.create_task(self.rig.gateway.ask(Submit(operation)))
            await asyncio.sleep(0.001)
            await self._restart()
            await asyncio.gather(under_way, return_exceptions=True)
        try:
            return (await self.rig.gateway.submit(operation)).result
        except RemembrancerError as error:
            return type(error)

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
            self.undisturbed.close()
            self.folder.cleanup()

    async def _compare(self) -> None:
        gateway = self.rig.gateway
        for session in SESSIONS:
            visible = self.undisturbed.memories(session)
            for memory_id in self.undisturbed.memories():
                if memory_id in visible:
                    shown = await gateway.ask(GetMemory(PROJECT, session, memory_id))
                    assert without_accesses(shown.memory) == without_accesses(visible[memory_id])
                else:
                    with pytest.raises(NotFound, match=memory_id):
                        await gateway.ask(GetMemory(PROJECT, session, memory_id))
        await gateway.until_embedded()
        for session in SESSIONS:
            await self._compare_searches(session)

    async def _compare_searches(self, session: str) -> None:
        """Words and vectors find what there is, and nothing that was; the graph has its edges and no others."""
        gateway = self.rig.gateway
        edges: set[tuple[str, ...]] = set()
        visible = self.undisturbed.memories(session)
        for memory_id, now in self.undisturbed.memories().items():
            is_findable = memory_id in visible and now.forgotten_at is None
            for old in now.history:
                mark = old.record.content.split()[0]
                found = await gateway.found(mark, strategy="keyword", session_id=session)
                assert (memory_id in found) == (is_findable and mark == now.content.split()[0]), mark
            near = await gateway.found(now.content, strategy="vector", session_id=session, limit=50)
            assert (memory_id in near) == is_findable
            if memory_id in visible and now.related_entities:
                subject, *others = now.related_entities
                edges |= {
                    (name_key(subject.name), subject.type, MENTIONED_WITH, name_key(each.name))
                    for each in others
                    if (name_key(each.name), each.type) != (name_key(subject.name), subject.type)
                }
        real: set[tuple[str, ...]] = set()
        for name in NAMES:
            walked = await gateway.ask(SearchGraph(PROJECT, session, name))
            real |= {
                (name_key(entity.name), entity.type, each.type, name_key(each.target))
                for entity in walked.entities
                for each in entity.relationships
                if entity.distance == 0 and each.direction == "outgoing"
            }
        assert real == edges

    def _compare_files(self) -> None:
        """The store is down: its file is whole, and what is derived in it follows from the memories."""
        check_derived(self.rig.paths.database)
        with closing(sqlite3.connect(self.rig.paths.database)) as connection:
            _compare_vectors(connection)


def without_accesses(memory: PortableMemory) -> PortableMemory:
    return msgspec.structs.replace(memory, access_count=0, last_accessed_at=None, accessed_in=())


def _compare_vectors(connection: sqlite3.Connection) -> None:
    assert connection.execute("SELECT count(*) FROM moves").fetchone() == (0,)
    contents = dict(connection.execute("SELECT number, content FROM memories"))
    vectors = connection.execute('SELECT memory, model, start, "end", vector FROM passages').fetchall()
    assert {row[0] for row in vectors} == set(contents)
    for memory, model, start, end, vector in vectors:
        assert model == IDENTITY.key
        expected = vector_of(contents[memory][start:end], IDENTITY.model)
        assert np.allclose(np.frombuffer(vector, dtype="<f4"), expected)


TestChangesUnderFire: Any = ChangesUnderFire.TestCase
TestChangesUnderFire.settings = settings(
    max_examples=8,
    stateful_step_count=25,
    phases=(Phase.generate,),  # a kill hits another moment each time: shrinking would chase a ghost
    suppress_health_check=list(HealthCheck),
)
