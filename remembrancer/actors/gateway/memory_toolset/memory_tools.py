"""The toolset `memory`: `store_memory`, `recall_memories`, `get_memory_status`."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import anyio
import anyio.to_thread
from msgspec import UNSET

from remembrancer.actors.gateway.memory_toolset import memory_answers as answers
from remembrancer.actors.gateway.memory_toolset.memory_arguments import (
    GetMemoryStatusArguments,
    RecallMemoriesArguments,
    StoreMemoryArguments,
    to_change,
    to_recall,
)
from remembrancer.actors.gateway.memory_toolset.recall_budget import within_budget
from remembrancer.actors.gateway.memory_toolset.recall_hints import hint_for
from remembrancer.actors.gateway.store_access.access_notes import AccessNotes
from remembrancer.actors.gateway.store_access.drain import Drain
from remembrancer.actors.gateway.store_access.happenings import Happenings
from remembrancer.actors.gateway.store_access.reads import ReadPath
from remembrancer.actors.gateway.store_access.store_link import StoreLink
from remembrancer.actors.gateway.store_access.write_queue import WriteQueue
from remembrancer.actors.gateway.store_access.writes import WritePath, not_embedded
from remembrancer.actors.gateway.toolkit.credentials import refuse_credentials
from remembrancer.actors.gateway.toolkit.tools import Answer, Call, Tool, warnings_of, with_seed_forms
from remembrancer.config.settings import Settings
from remembrancer.memory.tokens import estimate_tokens, truncate
from remembrancer.protocol.ids import derive_memory_id, derive_operation_id
from remembrancer.protocol.reads import DescribeStore, EmbeddingState, Notice, Recalled
from remembrancer.protocol.writes import Operation, StoredResult, StoreMemory


class MemoryTools:
    """Carries out the three tools. `home` is what the status shows while the store is away."""

    def __init__(
        self,
        writes: WritePath,
        reads: ReadPath,
        link: StoreLink,
        queue: WriteQueue,
        drain: Drain,
        settings: Settings,
        home: str,
        happenings: Happenings,
        notes: AccessNotes,
    ) -> None:
        self._writes = writes
        self._reads = reads
        self._link = link
        self._queue = queue
        self._drain = drain
        self._settings = settings
        self._home = home
        self._happenings = happenings
        self._notes = notes

    def tools(self) -> tuple[Tool[Any], ...]:
        """The tools, as they are offered."""
        return (
            Tool(
                "store_memory",
                "Remember something for later sessions, durably.",
                StoreMemoryArguments,
                self.store_memory,
            ),
            Tool(
                "recall_memories",
                "Find memories by meaning and words, best first.",
                RecallMemoriesArguments,
                self.recall_memories,
                read_only=True,
            ),
            Tool(
                "get_memory_status",
                "Health and counts of the memory.",
                GetMemoryStatusArguments,
                self.get_memory_status,
                read_only=True,
            ),
        )

    async def store_memory(self, call: Call, arguments: StoreMemoryArguments) -> Answer:
        """Answers when the memory is durable; a retry of the same request is the same memory."""
        caller = call.caller
        change = to_change(arguments, caller.session_id, self._settings.content_limit_bytes)
        operation_id = derive_operation_id(caller.bridge, call.request_id, "store_memory", call.raw_arguments)
        memory_id = derive_memory_id(operation_id, call.received_at)
        operation = Operation(
            operation_id=operation_id,
            project=caller.project,
            session_id=caller.session_id,
            requested_at=call.received_at,
            change=change(memory_id),
        )
        await refuse_credentials(operation.change, allowed=arguments.allow_secrets is True)
        with anyio.CancelScope(shield=True):  # a client that leaves must not leave a write half-way
            written = await self._writes.apply(operation, call.received_at)
        result = written.result or _expected(operation)
        assert isinstance(result, StoredResult)
        notices = list(written.notices)
        embedding: EmbeddingState | None = None
        if arguments.wait_for_embedding is True and not written.queued:
            embedding = await self._writes.await_embedding(operation, memory_id, call.received_at)
            if not embedding.embedded:
                notices.append(not_embedded(embedding.error or written.embedding_error))
        elif written.embedding_error is not None:
            notices.append(not_embedded(written.embedding_error))
        kind = None if arguments.kind is UNSET else arguments.kind
        answer = answers.stored(result, kind, embedding, notices)
        if written.degraded:
            answer["degraded"] = True
        return answer

    async def recall_memories(self, call: Call, arguments: RecallMemoriesArguments) -> Answer:
        """The best memories, as many of them and as much as `max_tokens` allows; says what was not searched."""
        started = time.perf_counter()
        request = to_recall(arguments, call.caller.project, call.caller.session_id)
        found = await self._reads.recall(request, call.received_at)
        answer = answers.recalled(
            found.recalled,
            degraded=found.degraded,
            query_time_ms=(time.perf_counter() - started) * 1000,
            with_scores=arguments.scores is True,
            hint=None if found.degraded else hint_for(request, found.recalled),
        )
        if arguments.max_tokens is not UNSET:
            answer = await _within(call, answer, found.recalled, arguments.max_tokens)
        shown = tuple(memory["id"] for memory in answer["memories"])
        self._happenings.recalled(call.caller, shown)
        if not found.counted:
            self._notes.note(call.caller.project, call.caller.session_id, shown)
        return answer

    async def get_memory_status(self, call: Call, _: GetMemoryStatusArguments) -> Answer:
        """How the memory is, as this session sees it."""
        request = DescribeStore(call.caller.project, call.caller.session_id)
        description, is_fresh = await self._reads.describe(request, call.received_at)
        queue: dict[str, Any] = {"depth": self._queue.depth, "rejected": self._queue.rejected}
        notices: list[Notice] = list(description.notices) if description else []
        if not is_fresh:
            last = "the figures are the last known" if description else "there are no figures yet"
            notices.append(Notice("memory_unavailable", f"{self._link.explain_away()}: {last}"))
        if self._drain.stuck is not None and self._queue.depth:
            notices.append(Notice("queued", f"queued writes have to wait: {self._drain.stuck}"))
        if self._queue.rejected:
            text = f"{self._queue.rejected} queued writes could not be applied and are kept aside: see gateway.log"
            notices.append(Notice("queued_rejected", text))
        connection = answers.connected() if is_fresh else self._disconnected()
        return answers.status(
            call.caller,
            description,
            connection=connection,
            mode=self._settings.deployment_mode,
            home=self._home,
            queue=queue,
            notices=notices,
        )

    def _disconnected(self) -> dict[str, Any]:
        link = self._link
        return answers.disconnected(
            reconnecting=link.is_reconnecting or link.usable,  # usable: it came back while the answer was made
            attempts=link.attempts,
            next_attempt_s=link.next_attempt_s,
        )


async def _within(call: Call, answer: Answer, found: Recalled, max_tokens: int) -> Answer:
    """The answer, whose text has `max_tokens` tokens at most with all that is added to it."""
    notices = call.take_notices()
    if notices:
        answer["warnings"] = [*answer.get("warnings", ()), *warnings_of(notices)]
    passages = [memory.passages for memory in found.memories]
    # In a thread: long memories take their time to be counted.
    fit = partial(within_budget, with_seed_forms(answer), passages, max_tokens, estimate_tokens, truncate)
    return await anyio.to_thread.run_sync(fit)


def _expected(operation: Operation) -> StoredResult:
    """What a queued store is going to come to."""
    change = operation.change
    assert isinstance(change, StoreMemory)
    return StoredResult(change.memory_id, change.type, change.scope, len(set(change.related_entities)))
