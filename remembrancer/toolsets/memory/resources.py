"""Resources, which clients read without calling a tool. Untrusted text cannot start a line and forge a heading."""

from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import unquote

import msgspec

from remembrancer.memory.limits import moment
from remembrancer.memory.sentences import one_line
from remembrancer.memory.short_ids import id_or_part
from remembrancer.memory.text import count, neutralised, quote
from remembrancer.memory.tokens import estimate_tokens
from remembrancer.protocol.errors import InvalidInput, NotFound
from remembrancer.protocol.ids import MEMORY_PREFIX
from remembrancer.protocol.reads import (
    ContextGathered,
    DescribeSession,
    GatherContext,
    GraphEntity,
    GraphFound,
    SearchGraph,
    SessionDescription,
)
from remembrancer.protocol.wire import Request
from remembrancer.toolsets.memory.context_block import MARK, TITLE, build_block
from remembrancer.toolsets.service import Caller, MemoryService
from remembrancer.toolsets.tools import DATA, Call, Tool, answer_text

STATUS: Final = "memory://status"
SUMMARY: Final = "memory://session/summary"
GRAPH: Final = "memory://project/knowledge-graph"
PREFERENCES: Final = "memory://user/preferences"
MEMORY_START: Final = "memory://memory/"
MEMORY_TEMPLATE: Final = MEMORY_START + "{id}"
FIXED: Final = (STATUS, SUMMARY, GRAPH, PREFERENCES)


def memory_id_in(uri: str) -> str | None:
    """The full id in a URI, or part of an id. None if the URI has neither."""
    if not uri.startswith(MEMORY_START):
        return None
    try:
        return id_or_part(unquote(uri.removeprefix(MEMORY_START)), field="uri")  # its colon may be escaped
    except InvalidInput:
        return None


RELATIONSHIPS_SHOWN: Final = 5
"""The number of relationships listed for each entity in the graph."""


def session_summary(session_id: str, started_at: float, story: SessionDescription, served: tuple[int, int]) -> str:
    """`served` holds the number of queries and the number of distinct memories."""
    ended = "" if story.status == "active" else f" | {story.status}"
    lines = {
        "Session": f"{one_line(session_id)} | Started: {moment(started_at):%Y-%m-%d %H:%M UTC}{ended}",
        "Memories stored": _counted(story.stored_by_type),
        "Memories recalled": f"{count(served[0], 'query')}, {count(served[1], 'unique memory')} served",
        "Memories promoted": story.memories_promoted,
        "Memories consolidated": story.memories_consolidated,
        "Key topics": ", ".join(map(one_line, story.topics)) or "none yet",
        "Summary": one_line(story.summary or ""),
    }
    return _page("Session Memory Summary", *(f"**{name}:** {value}" for name, value in lines.items() if value))


def knowledge_graph(graph: GraphFound) -> str:
    """Density is relative to the n (n - 1) edges of a complete directed graph."""
    entities, relationships = graph.total_entities, graph.total_relationships
    heading = "Project Knowledge Graph"
    if not entities:
        return _page(heading, "No entities yet. The graph is made from memories with related_entities.")
    possible = entities * (entities - 1)
    density = relationships / possible if possible else 0
    return _page(
        heading,
        f"**Entities:** {_counted(graph.entity_types, total=entities)}",
        f"**Relationships:** {_counted(graph.relationship_types, total=relationships)}",
        f"**Density:** {density:.4g} ({relationships / entities:.1f} relationships per entity)",
        "",
        "### Most Connected Entities",
        *map(_entity, graph.entities),
    )


def preferences(gathered: ContextGathered) -> str:
    memories = tuple(each for each in gathered.memories if not each.is_open)
    gathered = msgspec.structs.replace(gathered, memories=memories, closed=())
    block = build_block(gathered, PREFERENCES_TOKENS, estimate_tokens, is_whole_memory=False)
    return block.text.replace(TITLE, "## User Preferences", 1)


def _page(heading: str, *lines: str) -> str:
    return "\n".join([f"## {heading}", MARK, *lines, ""])


def _entity(entity: GraphEntity) -> str:
    edges_shown = [
        f"{one_line(edge.type)} {'→' if edge.direction == 'outgoing' else '←'} {one_line(edge.target)}"
        + (" (no longer valid)" if edge.stale else "")
        for edge in entity.relationships[:RELATIONSHIPS_SHOWN]
    ]
    more = len(entity.relationships) - len(edges_shown)
    if more > 0:
        edges_shown.append(f"{more} more")
    edges = f": {', '.join(edges_shown)}" if edges_shown else ""
    memories = count(entity.memory_count, "memory")
    return f"- {one_line(entity.name)} ({one_line(entity.type)}, {memories}){edges}"


def _counted(counts: Mapping[str, int], total: int | None = None) -> str:
    """Formats counts, the most frequent first: `12 (7 episodic, 4 semantic, 1 procedural)`."""
    number = sum(counts.values()) if total is None else total
    items = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    listed = ", ".join(f"{each} {one_line(name)}" for name, each in items)
    return f"{number} ({listed})" if counts else str(number)


JSON: Final = "application/json"
MARKDOWN: Final = "text/markdown"
MOST_CONNECTED: Final = 10
PREFERENCES_TOKENS: Final = 20_000
_DESCRIBED: Final = (
    (STATUS, "Memory System Status", "Connection health, memory counts, and storage statistics", JSON),
    (SUMMARY, "Current Session Summary", "Memories stored, recalled, and consolidated this session", MARKDOWN),
    (GRAPH, "Project Knowledge Graph", "Entity and relationship overview for the current project", MARKDOWN),
    (PREFERENCES, "User Preferences", "Learned user preferences and coding patterns", MARKDOWN),
)
RESOURCES: Final = [dict(zip(("uri", "name", "description", "mimeType"), row, strict=True)) for row in _DESCRIBED]
TEMPLATES: Final = [
    {
        "uriTemplate": MEMORY_TEMPLATE,
        "name": "Memory",
        "description": "One memory in full, with its history and relationships",
        "mimeType": JSON,
    }
]


class Resources:
    def __init__(self, tools: Mapping[str, Tool[Any]], service: MemoryService) -> None:
        self._tools = tools
        self._service = service

    async def read(self, caller: Caller, uri: str, received_at: float) -> dict[str, str]:
        """Without the store, returns the last known text, marked as outdated. Raises `NotFound`, or its error."""
        viewer, most, state = caller.viewer, PREFERENCES_TOKENS, self._service.session(caller)
        pages: dict[str, tuple[Request[Any], Callable[[Any], str]]] = {
            SUMMARY: (
                DescribeSession(*viewer),
                lambda story: session_summary(
                    caller.session_id, story.started_at or caller.started_at, story, (state.queries, len(state.served))
                ),
            ),
            GRAPH: (SearchGraph(*viewer, include_memories=False, limit=MOST_CONNECTED), knowledge_graph),
            PREFERENCES: (
                GatherContext(*viewer, sections=("preferences",), tokens=most, part_tokens=most),
                preferences,
            ),
        }
        if uri in pages:
            question, text_of = pages[uri]
            asked = await self._service.ask(question, received_at)
            notices = one_line(" ".join(notice.message for notice in asked.notices))
            above = f"> **{'Degraded' if asked.is_old else 'Note'}:** {notices}\n\n" if notices else ""
            return {"mimeType": MARKDOWN, "text": neutralised(above + text_of(asked.reply))}
        name, arguments = "get_memory_status", dict[str, Any]()
        if uri != STATUS:
            name, arguments = "get_memory", {"memory_id": memory_id_in(uri), "detail": True}
            if arguments["memory_id"] is None:
                known = f"the resources are {', '.join(FIXED)} and {MEMORY_TEMPLATE} (id: {MEMORY_PREFIX}<ULID>)"
                raise NotFound(f"there is no resource {quote(uri)}: {known}", field="uri")
        tool = self._tools[name]
        call = Call(name, caller, name, received_at, arguments, self._service)
        answer = await tool.answer(call, tool.decoder.decode(arguments))
        # Memories are always marked as data, since people may paste them anywhere.
        return {"mimeType": JSON, "text": answer_text({"note": DATA, **answer} if tool.marks_data else answer)}
