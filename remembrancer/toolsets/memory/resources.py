"""The resources: content that a client can read without calling a tool.

Names and contents are untrusted: none of them can start a line of its own and so forge a heading.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar
from urllib.parse import unquote

from remembrancer.memory.limits import moment
from remembrancer.memory.sentences import one_line
from remembrancer.memory.short_ids import id_or_part
from remembrancer.memory.text import count, neutralised, shown
from remembrancer.protocol.errors import InvalidInput, NotFound
from remembrancer.protocol.ids import MEMORY_PREFIX
from remembrancer.protocol.reads import (
    DescribeSession,
    GatherContext,
    GraphEntity,
    GraphFound,
    RecalledMemory,
    SearchGraph,
    SessionDescription,
)
from remembrancer.protocol.wire import Request
from remembrancer.toolsets.memory.context_block import INDENT, MARK, render
from remembrancer.toolsets.service import Caller, MemoryService
from remembrancer.toolsets.tools import DATA, Call, Tool, answer_text

STATUS: Final = "memory://status"
SUMMARY: Final = "memory://session/summary"
GRAPH: Final = "memory://project/knowledge-graph"
PREFERENCES: Final = "memory://user/preferences"
MEMORY_START: Final = "memory://memory/"
MEMORY_TEMPLATE: Final = MEMORY_START + "{id}"
FIXED: Final = (STATUS, SUMMARY, GRAPH, PREFERENCES)
R = TypeVar("R")


def memory_id_in(uri: str) -> str | None:
    """The memory id in a URI, with its prefix, or a part of an id; None if the URI names none."""
    if not uri.startswith(MEMORY_START):
        return None
    try:
        return id_or_part(unquote(uri.removeprefix(MEMORY_START)), field="uri")  # its colon may be escaped
    except InvalidInput:
        return None


RELATIONSHIPS_SHOWN: Final = 5
"""The number of edges that are written out for one entity of the graph."""
KINDS: Final = (("semantic", "Facts and preferences"), ("procedural", "Ways of working"))
"""The types of memory among preferences, and their headings."""


def session_summary(session_id: str, started_at: float, story: SessionDescription, served: tuple[int, int]) -> str:
    """The memories that a session stored and was shown. `served` is the number of queries and of distinct memories."""
    ended = "" if story.status == "active" else f" | {story.status}"
    lines = [
        "## Session Memory Summary",
        MARK,
        f"**Session:** {one_line(session_id)} | Started: {_minute(started_at)}{ended}",
        f"**Memories stored:** {_counted(story.stored_by_type)}",
        f"**Memories recalled:** {count(served[0], 'query')}, {count(served[1], 'unique memory')} served",
    ]
    if story.memories_promoted:
        lines.append(f"**Memories promoted:** {story.memories_promoted}")
    if story.memories_consolidated:
        lines.append(f"**Memories consolidated:** {story.memories_consolidated}")
    lines.append(f"**Key topics:** {', '.join(one_line(topic) for topic in story.topics) or 'none yet'}")
    if story.summary:
        lines.append(f"**Summary:** {one_line(story.summary)}")
    return "\n".join(lines) + "\n"


def knowledge_graph(graph: GraphFound) -> str:
    """The overview of a project's graph. Density is relative to n (n - 1), the edges of a whole directed graph."""
    entities, relationships = graph.total_entities, graph.total_relationships
    lines = ["## Project Knowledge Graph", MARK]
    if not entities:
        return "\n".join([*lines, "No entities yet. The graph is made from memories with related_entities."]) + "\n"
    possible = entities * (entities - 1)
    density = f"{relationships / possible:.4g}" if possible else "0"
    lines += [
        f"**Entities:** {_counted(graph.entity_types, total=entities)}",
        f"**Relationships:** {_counted(graph.relationship_types, total=relationships)}",
        f"**Density:** {density} ({relationships / entities:.1f} relationships per entity)",
        "",
        "### Most Connected Entities",
    ]
    lines += (_entity(entity) for entity in graph.entities)
    return "\n".join(lines) + "\n"


def preferences(memories: Sequence[RecalledMemory]) -> str:
    """The user's preferences, the most important first."""
    lines = ["## User Preferences", MARK]
    if not memories:
        lines.append("None are known yet. Memories of scope user and type semantic or procedural go here.")
        return "\n".join(lines) + "\n"
    for kind, heading in KINDS:
        of_kind = [memory for memory in memories[:PREFERENCES_SHOWN] if memory.type == kind]
        if of_kind:
            lines += ["", f"### {heading}"]
            lines += [_preference(memory) for memory in sorted(of_kind, key=lambda each: -each.importance)]
    return "\n".join(lines) + "\n"


def _preference(memory: RecalledMemory) -> str:
    """A memory as a list item; its content cannot break out of the item."""
    item = render(memory.content, memory.source)
    tags = f"; tags: {one_line(', '.join(memory.tags))}" if memory.tags else ""
    start = f"\n{INDENT}" if "\n" in item else " "
    return f"{item}{start}[importance {memory.importance:g}{tags}]"


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
    """`12 (7 episodic, 4 semantic, 1 procedural)`, the most frequent first."""
    number = sum(counts.values()) if total is None else total
    items = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    listed = ", ".join(f"{each} {one_line(name)}" for name, each in items)
    return f"{number} ({listed})" if counts else str(number)


def _minute(seconds: float) -> str:
    return moment(seconds).strftime("%Y-%m-%d %H:%M UTC")


JSON: Final = "application/json"
MARKDOWN: Final = "text/markdown"
MOST_CONNECTED: Final = 10
PREFERENCES_TOKENS: Final = 20_000
PREFERENCES_SHOWN: Final = 50
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
        "description": "One memory whole, with its history and relationships",
        "mimeType": JSON,
    }
]
"""The entries for `resources/list` and `resources/templates/list`."""


@dataclass(frozen=True, slots=True)
class Content:
    """A resource as it is now."""

    mime_type: str
    text: str


class Resources:
    """Reads resources for a caller, using `tools` for those that show a tool's answer."""

    def __init__(self, tools: Mapping[str, Tool[Any]], service: MemoryService) -> None:
        self._tools = tools
        self._service = service

    async def read(self, caller: Caller, uri: str, received_at: float) -> Content:
        """The content of a resource; while the store is away, the last known one, marked as such. Raises `NotFound`, or
        the reason why it cannot be read now."""
        viewer = caller.viewer
        if uri == SUMMARY:
            return await self._page(DescribeSession(*viewer), lambda story: self._summary(caller, story), received_at)
        if uri == GRAPH:
            overview = SearchGraph(*viewer, include_memories=False, limit=MOST_CONNECTED)
            return await self._page(overview, knowledge_graph, received_at)
        if uri == PREFERENCES:
            most = PREFERENCES_TOKENS
            question = GatherContext(*viewer, sections=("preferences",), tokens=most, part_tokens=most)
            return await self._page(question, lambda reply: preferences(reply.memories), received_at)
        if uri == STATUS:
            return await self._call("get_memory_status", {}, caller, received_at)
        memory_id = memory_id_in(uri)
        if memory_id is None:
            known = f"the resources are {', '.join(FIXED)} and {MEMORY_TEMPLATE} (id: {MEMORY_PREFIX}<ULID>)"
            raise NotFound(f"there is no resource {shown(uri)}: {known}", field="uri")
        return await self._call("get_memory", {"memory_id": memory_id, "detail": True}, caller, received_at)

    async def _call(self, name: str, arguments: dict[str, Any], caller: Caller, received_at: float) -> Content:
        """The answer of a tool. Memories in it are always marked as data, since a person may paste them anywhere."""
        tool = self._tools[name]
        call = Call(name, caller, name, received_at, arguments, self._service)
        answer = await tool.answer(call, tool.decoder.decode(arguments))
        return Content(JSON, answer_text({"note": DATA, **answer} if tool.marks_data else answer))

    async def _page(self, question: Request[R], text_of: Callable[[R], str], received_at: float) -> Content:
        """The store's answer as Markdown, with its notices above it."""
        asked = await self._service.ask(question, received_at)
        notices = one_line(" ".join(notice.message for notice in asked.notices))
        above = f"> **{'Degraded' if asked.is_old else 'Note'}:** {notices}\n\n" if notices else ""
        return Content(MARKDOWN, neutralised(above + text_of(asked.reply)))

    def _summary(self, caller: Caller, story: SessionDescription) -> str:
        state = self._service.session(caller)
        started_at = story.started_at or caller.started_at
        return session_summary(caller.session_id, started_at, story, (state.queries, len(state.served)))
