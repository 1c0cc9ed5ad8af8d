"""The tools that change a memory (update, forget, tag, promote, restore), and `get_memory`, which shows one."""

from __future__ import annotations

from typing import Any

import anyio

from remembrancer.actors.gateway.memory_toolset import change_answers as answers
from remembrancer.actors.gateway.memory_toolset.change_arguments import (
    ForgetMemoryArguments,
    GetMemoryArguments,
    PromoteMemoryArguments,
    RestoreMemoryArguments,
    TagMemoryArguments,
    UpdateMemoryArguments,
    clean_version,
    to_forgetting,
    to_promotion,
    to_restoring,
    to_tagging,
    to_update,
)
from remembrancer.actors.gateway.memory_toolset.memory_lookup import look_up
from remembrancer.actors.gateway.store_access.expected import PlainChange, expected
from remembrancer.actors.gateway.store_access.reads import ReadPath
from remembrancer.actors.gateway.store_access.writes import WritePath, not_embedded
from remembrancer.actors.gateway.toolkit.credentials import refuse_credentials
from remembrancer.actors.gateway.toolkit.tools import Answer, Call, Tool, warnings_of
from remembrancer.config.settings import Settings
from remembrancer.protocol.ids import derive_operation_id, parse_memory_id
from remembrancer.protocol.writes import Operation


class ChangeTools:
    """Carries out the six tools."""

    def __init__(self, writes: WritePath, reads: ReadPath, settings: Settings) -> None:
        self._writes = writes
        self._reads = reads
        self._settings = settings

    def tools(self) -> tuple[Tool[Any], ...]:
        """The tools, as they are offered. A destructive one hides or replaces what is remembered; it can be undone."""
        return (
            Tool(
                "update_memory",
                "Change a memory. Earlier versions are kept.",
                UpdateMemoryArguments,
                self.update_memory,
                destructive=True,
                idempotent=True,
            ),
            Tool(
                "forget_memory",
                "Hide a memory from recall.",
                ForgetMemoryArguments,
                self.forget_memory,
                destructive=True,
                idempotent=True,
            ),
            Tool("tag_memory", "Add or remove tags.", TagMemoryArguments, self.tag_memory, idempotent=True),
            Tool("promote_memory", "Move a memory to a broader scope.", PromoteMemoryArguments, self.promote_memory),
            Tool(
                "restore_memory",
                "Undo a forget, or return to a version.",
                RestoreMemoryArguments,
                self.restore_memory,
                destructive=True,
            ),
            Tool(
                "get_memory",
                "One memory whole with its history, or as of a version.",
                GetMemoryArguments,
                self.get_memory,
                read_only=True,
            ),
        )

    async def update_memory(self, call: Call, arguments: UpdateMemoryArguments) -> Answer:
        """Change what is given, and leave the rest."""
        change = to_update(arguments, self._settings.content_limit_bytes)
        return await self._change(call, "update_memory", change, allow_secrets=arguments.allow_secrets is True)

    async def forget_memory(self, call: Call, arguments: ForgetMemoryArguments) -> Answer:
        """Hide a memory; nothing is deleted."""
        return await self._change(call, "forget_memory", to_forgetting(arguments))

    async def tag_memory(self, call: Call, arguments: TagMemoryArguments) -> Answer:
        """Add and remove tags."""
        return await self._change(call, "tag_memory", to_tagging(arguments))

    async def promote_memory(self, call: Call, arguments: PromoteMemoryArguments) -> Answer:
        """Have more sessions or projects see a memory."""
        return await self._change(call, "promote_memory", to_promotion(arguments))

    async def restore_memory(self, call: Call, arguments: RestoreMemoryArguments) -> Answer:
        """Undo a forgetting, or return to an earlier version."""
        return await self._change(call, "restore_memory", to_restoring(arguments))

    async def get_memory(self, call: Call, arguments: GetMemoryArguments) -> Answer:
        """Show one memory with its history."""
        memory_id = parse_memory_id(arguments.memory_id)
        version = clean_version(arguments.version)
        return await look_up(self._reads, call.caller, memory_id, call.received_at, version)

    async def _change(self, call: Call, tool: str, change: PlainChange, *, allow_secrets: bool = False) -> Answer:
        """Answers when the change is durable; a retry of the same request changes nothing more."""
        await refuse_credentials(change, allowed=allow_secrets)
        caller = call.caller
        operation = Operation(
            operation_id=derive_operation_id(caller.bridge, call.request_id, tool, call.raw_arguments),
            project=caller.project,
            session_id=caller.session_id,
            requested_at=call.received_at,
            change=change,
        )
        with anyio.CancelScope(shield=True):  # a client that leaves must not leave a write half-way
            written = await self._writes.apply(operation, call.received_at)
        if written.result is None:
            answer = expected(change, self._reads.find_before(operation))
        else:
            answer = answers.changed(written.result)
        notices = list(written.notices)
        if answer.get("re_embedded"):
            answer["embedding"] = "pending"
        if written.embedding_error is not None:
            answer["searchable_by"] = "keyword_only"
            notices.append(not_embedded(written.embedding_error))
        if written.degraded:
            answer["degraded"] = True
        if notices:
            answer["warnings"] = warnings_of(notices)
        return answer
