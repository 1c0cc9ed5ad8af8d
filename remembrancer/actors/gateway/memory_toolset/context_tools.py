"""The tool `get_memory_context`: what a session should know for its task, as one block of text of a promised size."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

import anyio.to_thread

from remembrancer.actors.gateway.memory_toolset.context_arguments import GetMemoryContextArguments, budget_of, to_gather
from remembrancer.actors.gateway.memory_toolset.context_block import ContextBlock, build_block
from remembrancer.actors.gateway.store_access.access_notes import AccessNotes
from remembrancer.actors.gateway.store_access.happenings import Happenings
from remembrancer.actors.gateway.store_access.known_context import known_sections
from remembrancer.actors.gateway.store_access.reads import ReadPath
from remembrancer.actors.gateway.toolkit.tools import Answer, Call, Caller, Tool, warnings_of
from remembrancer.memory.tokens import estimate_tokens, truncate
from remembrancer.protocol.reads import ContextGathered, ContextSection, GatherContext, Notice

KNOWN: Final = "Only what is known without the store was gathered: there may be more."


class ContextTools:
    """Carries out the tool."""

    def __init__(self, reads: ReadPath, happenings: Happenings, notes: AccessNotes) -> None:
        self._reads = reads
        self._happenings = happenings
        self._notes = notes

    def tools(self) -> tuple[Tool[GetMemoryContextArguments]]:
        """The tool, as it is offered."""
        return (
            Tool(
                "get_memory_context",
                "What to know for the present task, as a Markdown block within a token budget.",
                GetMemoryContextArguments,
                self.get_memory_context,
                read_only=True,
            ),
        )

    async def get_memory_context(self, call: Call, arguments: GetMemoryContextArguments) -> Answer:
        """The block, with what is in it; what was shown counts as accessed."""
        request = to_gather(arguments, call.caller.project, call.caller.session_id)
        sections, notices, is_away = await self._gather(request, call.received_at)
        # In a thread: long memories take their time to be counted.
        build = partial(build_block, sections, budget_of(arguments), estimate_tokens, truncate, is_away=is_away)
        block = await anyio.to_thread.run_sync(build)
        self._note(call.caller, block)
        answer: Answer = {
            "context_block": block.text,
            "memories_used": len(block.memory_ids),
            "tokens_used": block.tokens,
            "truncated": block.truncated,
            "memory_ids": list(block.memory_ids),
        }
        if notices:
            answer["degraded"] = True
            answer["warnings"] = warnings_of(notices)
        return answer

    async def _gather(
        self, request: GatherContext, received_at: float
    ) -> tuple[Sequence[ContextSection], tuple[Notice, ...], bool]:
        """The sections, from the store or from what is known here, what they lack, and whether the store is away."""
        asked = await self._reads.ask(request, received_at)
        reply = asked.reply
        assert isinstance(reply, ContextGathered | None)
        if reply is not None and not asked.from_cache:
            return reply.sections, (*reply.notices, *asked.notices), False
        known = self._reads.known(request.project.id, request.session_id)
        earlier = reply.sections if reply is not None else ()
        sections = await anyio.to_thread.run_sync(known_sections, request, earlier, known)
        notices = asked.notices
        if reply is None and asked.away is not None and any(section.memories for section in sections):
            notices = (self._reads.explain(asked.away, KNOWN),)
        return sections, notices, True

    def _note(self, caller: Caller, block: ContextBlock) -> None:
        """Tell of what was shown, in the background."""
        self._happenings.recalled(caller, block.memory_ids)
        self._notes.note(caller.project, caller.session_id, block.memory_ids)
