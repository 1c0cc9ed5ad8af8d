"""The tool `search_knowledge_graph`: how things are related, as the memories say."""

from __future__ import annotations

from typing import Final

from remembrancer.actors.gateway.memory_toolset import graph_answers as answers
from remembrancer.actors.gateway.memory_toolset.graph_arguments import SearchKnowledgeGraphArguments, to_search
from remembrancer.actors.gateway.store_access.happenings import Happenings
from remembrancer.actors.gateway.store_access.read_cache import word_match
from remembrancer.actors.gateway.store_access.reads import ReadPath
from remembrancer.actors.gateway.toolkit.tools import Answer, Call, Tool
from remembrancer.protocol.errors import UNREADABLE
from remembrancer.protocol.reads import GraphFound, RecalledMemory, SearchGraph

KNOWN: Final = "The graph was not searched: these are the memories known without the store that name the entity."


class GraphTools:
    """Carries out the tool."""

    def __init__(self, reads: ReadPath, happenings: Happenings) -> None:
        self._reads = reads
        self._happenings = happenings

    def tools(self) -> tuple[Tool[SearchKnowledgeGraphArguments]]:
        """The tool, as it is offered."""
        return (
            Tool(
                "search_knowledge_graph",
                "How components, people, files … relate, with the memories about them.",
                SearchKnowledgeGraphArguments,
                self.search_knowledge_graph,
                read_only=True,
            ),
        )

    async def search_knowledge_graph(self, call: Call, arguments: SearchKnowledgeGraphArguments) -> Answer:
        """What is related with an entity, or the graph at a glance. An unknown entity is no error."""
        request = to_search(arguments, call.caller.project, call.caller.session_id)
        asked = await self._reads.ask(request, call.received_at)
        found = asked.reply
        assert isinstance(found, GraphFound | None)
        if found is None:
            memories = self._known(request)
            notices = asked.notices
            if memories and asked.away is not None:
                notices = (self._reads.explain(asked.away, KNOWN),)
            answer = answers.memories_alone(memories, notices)
        else:
            memories = list(found.memories)
            is_part = any(notice.code in UNREADABLE for notice in found.notices)
            degraded = is_part or bool(asked.notices)
            answer = answers.graph_found(found, (*found.notices, *asked.notices), degraded=degraded)
        if request.entity is not None and request.include_memories:
            self._happenings.recalled(call.caller, tuple(memory.id for memory in memories))
        return answer

    def _known(self, request: SearchGraph) -> list[RecalledMemory]:
        """Memories that are known here and have every word of the entity's name."""
        if request.entity is None or not request.include_memories:
            return []
        known = self._reads.known(request.project.id, request.session_id)
        return [memory for memory in known if word_match(request.entity, memory.content) == 1.0][: request.limit]
