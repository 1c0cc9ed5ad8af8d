"""The resources: what a client can read without calling a tool.

Names and contents come from whoever stored them: none of them can begin a line of its own, and so forge a heading.
"""

from __future__ import annotations

import hashlib
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import msgspec

from remembrancer.actors.gateway.store_access import StoreAccess
from remembrancer.memory.limits import moment
from remembrancer.memory.short_ids import id_or_part
from remembrancer.memory.text import counted, neutralised, shown
from remembrancer.protocol.errors import InvalidInput, NotFound
from remembrancer.protocol.ids import MEMORY_PREFIX
from remembrancer.protocol.reads import (
    ContextGathered,
    DescribeSession,
    EarlierSession,
    GatherContext,
    GraphEntity,
    GraphFound,
    GraphRelationship,
    RecalledMemory,
    SearchGraph,
    SessionDescription,
)
from remembrancer.protocol.runs import Topic
from remembrancer.protocol.wire import GatewayRequest
from remembrancer.protocol.writes import MENTIONED_WITH, EntityRef, PortableMemory, SourceRef
from remembrancer.toolsets.memory.context_block import INDENT, MARK, render
from remembrancer.toolsets.service import Asked, Caller
from remembrancer.toolsets.tools import DATA, Answer, Call, Tool

STATUS: Final = "memory://status"
SUMMARY: Final = "memory://session/summary"
GRAPH: Final = "memory://project/knowledge-graph"
PREFERENCES: Final = "memory://user/preferences"
MEMORY_START: Final = "memory://memory/"
MEMORY_TEMPLATE: Final = MEMORY_START + "{id}"
FIXED: Final = (STATUS, SUMMARY, GRAPH, PREFERENCES)
LONGEST_QUOTED: Final = 200
_ESCAPED_COLON: Final = ("%3A", "%3a")


def memory_id_of(uri: str) -> str | None:
    """The id of the memory that a URI names, with its prefix, or a part of the id; None when it names none.

    A client may have escaped the colon.
    """
    if not uri.startswith(MEMORY_START):
        return None
    text = uri.removeprefix(MEMORY_START)
    for escaped in _ESCAPED_COLON:
        text = text.replace(escaped, ":", 1)
    try:
        return id_or_part(text, field="uri")
    except InvalidInput:
        return None


def is_known(uri: str) -> bool:
    """True if a URI is one of ours."""
    return uri in FIXED or memory_id_of(uri) is not None


def quoted(uri: str) -> str:
    """A URI as an error gives it back: whole, unless it is longer than any of ours."""
    return uri if len(uri) <= LONGEST_QUOTED else f"{uri[:LONGEST_QUOTED]}…"


def unknown_resource(uri: str) -> str:
    """A message about a URI that is none of ours."""
    bare = MEMORY_PREFIX + "<ULID>"
    return f"there is no resource {shown(uri)}: known are {', '.join(FIXED)} and {MEMORY_TEMPLATE} (id: {bare})"


MAX_SESSIONS: Final = 512
MAX_MEMORIES: Final = 10_000
"""Ids that are kept of one session, to count each once."""


@dataclass(slots=True)
class Served:
    """The answers that one session was given, counted. `memories` has the one last shown at its end, and stops growing
    at `MAX_MEMORIES`."""

    queries: int = 0
    memories: dict[str, None] = field(default_factory=dict)


class RecallCounts:
    """Counts for the sessions that recalled last. `since` is when counting began (seconds since the epoch)."""

    def __init__(self, since: float) -> None:
        self.since = since
        self._served: OrderedDict[tuple[str, str], Served] = OrderedDict()

    def heard_recall(self, caller: Caller, memory_ids: Sequence[str]) -> None:
        """A query of a session was answered with these memories."""
        key = (caller.project.id, caller.session_id)
        served = self._served.setdefault(key, Served())
        self._served.move_to_end(key)
        served.queries += 1
        for memory_id in reversed(memory_ids):
            if memory_id in served.memories or len(served.memories) < MAX_MEMORIES:
                served.memories.pop(memory_id, None)
                served.memories[memory_id] = None
        if len(self._served) > MAX_SESSIONS:
            self._served.popitem(last=False)

    def served(self, project_id: str, session_id: str) -> tuple[int, int]:
        """The number of queries that a session had answered, and of the different memories that it was shown."""
        found = self._served.get((project_id, session_id), Served())
        return found.queries, len(found.memories)

    def last_shown(self, project_id: str, session_id: str) -> list[str]:
        """The memories that a session was shown, the last and best first."""
        found = self._served.get((project_id, session_id))
        return list(reversed(found.memories)) if found is not None else []


MAX_TOPICS: Final = 10

_Node = tuple[str, str]
"""An entity: its name and its type."""


def known_story(made: Iterable[PortableMemory], session_id: str) -> SessionDescription:
    """The part of a session's story that is known from its own writes."""
    own = [memory for memory in made if memory.session_id == session_id]
    topics = Counter(topic for memory in own for topic in _topics_of(memory))
    return SessionDescription(
        started_at=None,
        stored_by_type=dict(Counter(memory.type for memory in own)),
        changes={},
        topics=tuple(topic for topic, _ in topics.most_common(MAX_TOPICS)),
    )


def known_graph(made: Iterable[PortableMemory], limit: int) -> GraphFound:
    """The best connected entities of these memories, and how many entities and relationships there are in them."""
    memories: Counter[_Node] = Counter()
    edges: dict[tuple[_Node, str, _Node], None] = {}
    for memory in made:
        nodes = [_node_of(entity) for entity in memory.related_entities]
        memories.update(set(nodes))
        named = {entity.name: _node_of(entity) for entity in memory.related_entities}
        for entity in memory.related_entities:
            subject = named.get(entity.subject, nodes[0])
            if _node_of(entity) != subject:
                edge = entity.relationship if entity.subject else MENTIONED_WITH
                edges[subject, edge, _node_of(entity)] = None
    related: defaultdict[_Node, list[GraphRelationship]] = defaultdict(list)
    for subject, relationship, target in edges:
        related[subject].append(GraphRelationship(relationship, target[0], "outgoing"))
        related[target].append(GraphRelationship(relationship, subject[0], "incoming"))
    best = sorted(memories, key=lambda node: (-len(related[node]), -memories[node], node))[:limit]
    return GraphFound(
        entities=tuple(GraphEntity(*node, tuple(related[node]), memories[node]) for node in best),
        relationship_types=dict(Counter(relationship for _, relationship, _ in edges)),
        total_entities=len(memories),
        total_relationships=len(edges),
        entity_types=dict(Counter(kind for _, kind in memories)),
    )


def _node_of(entity: EntityRef) -> _Node:
    return entity.name, entity.type


def _topics_of(memory: PortableMemory) -> Sequence[str]:
    return list(dict.fromkeys([*(entity.name for entity in memory.related_entities), *memory.tags]))


NO_ENTITY_KNOWN: Final = "No entity is known without the store, which has the graph."
NO_PREFERENCE_KNOWN: Final = "None are known without the store, which has them."
RELATIONSHIPS_SHOWN: Final = 5
"""Edges that are written out for one entity of the graph."""
LEFT_SHOWN: Final = 160
"""Characters of a memory that another session has left."""
TOPIC_ENTITIES_SHOWN: Final = 8
TYPES: Final = ("episodic", "semantic", "procedural")
KINDS: Final = (("semantic", "Facts and preferences"), ("procedural", "Ways of working"))
"""The types of memory that preferences are made of, and their headings."""


def session_summary(
    session_id: str,
    started_at: float,
    story: SessionDescription,
    served: tuple[int, int],
    counted_since: float,
    *,
    is_part: bool = False,
) -> str:
    """The memories that a session stored, changed and was shown. `served` is queries and different memories, counted
    from `counted_since` (seconds since the epoch), which is said when the session is older. `is_part`: the story is
    what is known without the store."""
    queries, memories = served
    nothing = "not known now" if is_part else "none yet"
    ended = "" if story.status == "active" else f" | {story.status}"
    since = f" (since {_minute(counted_since)})" if counted_since > started_at + 1.0 else ""
    lines = [
        "## Session Memory Summary",
        MARK,
        f"**Session:** {one_line(session_id)} | Started: {_minute(started_at)}{ended}",
        f"**Memories stored:** {'at least ' if is_part else ''}{_counted(story.stored_by_type, TYPES)}",
    ]
    if story.changes:
        lines.append(f"**Changes:** {_listed(story.changes)}")
    lines.append(
        f"**Memories recalled:** {counted(queries, 'query', 'queries')}, "
        f"{counted(memories, 'unique memory', 'unique memories')} served{since}"
    )
    if story.memories_promoted:
        lines.append(f"**Memories promoted:** {story.memories_promoted}")
    if story.memories_consolidated:
        lines.append(f"**Memories consolidated:** {story.memories_consolidated}")
    if story.average_importance is not None:
        lines.append(f"**Average importance:** {story.average_importance:.2f}")
    if story.turns or story.tool_calls:
        failed = f" ({story.tool_failures} failed)" if story.tool_failures else ""
        calls = counted(story.tool_calls, "tool call", "tool calls")
        lines.append(f"**Conversation:** {counted(story.turns, 'turn', 'turns')}, {calls}{failed}")
    lines.append(f"**Key topics:** {', '.join(one_line(topic) for topic in story.topics) or nothing}")
    if story.summary:
        lines.append(f"**Summary:** {one_line(story.summary)}")
    if story.earlier:
        lines += ["", "### Earlier Sessions", *(_earlier(session) for session in story.earlier)]
    return "\n".join(lines) + "\n"


def knowledge_graph(found: GraphFound, *, is_part: bool = False) -> str:
    """The overview of a project's graph. Density is edges over the n (n - 1) that a directed graph can have.

    `is_part`: it is what is known without the store."""
    entities, relationships = found.total_entities, found.total_relationships
    lines = ["## Project Knowledge Graph", MARK]
    if not entities:
        nothing = NO_ENTITY_KNOWN if is_part else "No entities yet. Memories that name related_entities make the graph."
        return "\n".join([*lines, nothing]) + "\n"
    by_type = found.entity_types or _types_of(found.entities, entities)
    lines += [
        f"**Entities:** {_counted(by_type, total=entities)}",
        f"**Relationships:** {_counted(found.relationship_types, total=relationships)}",
        f"**Density:** {_density(entities, relationships)} ({relationships / entities:.1f} relationships per entity)",
        "",
        "### Most Connected Entities",
    ]
    lines += (_entity(entity) for entity in found.entities)
    if found.topics:
        lines += ["", "### Topics", *(_topic(topic) for topic in found.topics)]
    return "\n".join(lines) + "\n"


def preferences(memories: Sequence[RecalledMemory], *, is_part: bool = False) -> str:
    """The user's preferences, the most important first. `is_part`: it is what is known without the store."""
    lines = ["## User Preferences", MARK]
    if not memories:
        nothing = "None are known yet. Memories of scope user and type semantic or procedural go here."
        lines.append(NO_PREFERENCE_KNOWN if is_part else nothing)
        return "\n".join(lines) + "\n"
    for kind, heading in KINDS:
        of_kind = [memory for memory in memories if memory.type == kind]
        if of_kind:
            lines += ["", f"### {heading}"]
            lines += [_preference(memory) for memory in sorted(of_kind, key=lambda each: -each.importance)]
    return "\n".join(lines) + "\n"


def noted(text: str, notices: str, *, degraded: bool) -> str:
    """A text under what has to be known of it; `degraded` says that it is the last known one."""
    if degraded:
        return f"> **Degraded:** {one_line(notices)}\n\n{text}"
    return f"> **Note:** {one_line(notices)}\n\n{text}" if notices else text


def one_line(text: str) -> str:
    """A text without line breaks and control characters, for use inside a line."""
    return " ".join("".join(each if each.isprintable() else " " for each in text).split())


def list_item(content: str, source: SourceRef, details: Sequence[str]) -> str:
    """A memory as an item of a list, which it cannot leave, with what else is known of it."""
    item = render(content, source)
    start = f"\n{INDENT}" if "\n" in item else " "
    return f"{item}{start}[{'; '.join(one_line(detail) for detail in details)}]"


def _earlier(session: EarlierSession) -> str:
    promoted = f", {session.memories_promoted} promoted" if session.memories_promoted else ""
    left = [one_line(text) for text in session.left]
    said = "; ".join(text if len(text) <= LEFT_SHOWN else f"{text[: LEFT_SHOWN - 1].rstrip()}…" for text in left)
    when = f"{_minute(session.started_at)} to {_minute(session.last_active_at)}"
    return f"- {when}, {session.status}{promoted}: {said or 'left nothing to the project'}"


def _preference(memory: RecalledMemory) -> str:
    tags = [f"tags: {', '.join(memory.tags)}"] if memory.tags else []
    return list_item(memory.content, memory.source, [f"importance {memory.importance:g}", *tags])


def _entity(entity: GraphEntity) -> str:
    shown = [
        f"{one_line(edge.type)} {'→' if edge.direction == 'outgoing' else '←'} {one_line(edge.target)}"
        + (" (stale)" if edge.stale else "")
        for edge in entity.relationships[:RELATIONSHIPS_SHOWN]
    ]
    more = len(entity.relationships) - len(shown)
    if more > 0:
        shown.append(f"{more} more")
    edges = f": {', '.join(shown)}" if shown else ""
    memories = counted(entity.memory_count, "memory", "memories")
    return f"- {one_line(entity.name)} ({one_line(entity.type)}, {memories}){edges}"


def _topic(topic: Topic) -> str:
    members = ", ".join(one_line(name) for name in topic.entities[:TOPIC_ENTITIES_SHOWN])
    more = len(topic.entities) - TOPIC_ENTITIES_SHOWN
    return f"- {one_line(topic.label)}: {members}" + (f" and {more} more" if more > 0 else "")


def _types_of(entities: Sequence[GraphEntity], total: int) -> dict[str, int]:
    """Types counted from the entities themselves, if these are all that there are."""
    counts: dict[str, int] = {}
    for entity in entities if len(entities) == total else ():
        counts[entity.type] = counts.get(entity.type, 0) + 1
    return counts


def _density(entities: int, relationships: int) -> str:
    possible = entities * (entities - 1)
    return f"{relationships / possible:.4g}" if possible else "0"


def _counted(counts: Mapping[str, int], order: Sequence[str] = (), total: int | None = None) -> str:
    """`12 (7 episodic, 4 semantic, 1 procedural)`: in the order given, or else the most frequent first."""
    whole = sum(counts.values()) if total is None else total
    shown = _listed({name: counts[name] for name in order if counts.get(name)} if order else counts, sort=not order)
    return f"{whole} ({shown})" if shown else str(whole)


def _listed(counts: Mapping[str, int], *, sort: bool = True) -> str:
    items = sorted(counts.items(), key=lambda item: (-item[1], item[0])) if sort else counts.items()
    return ", ".join(f"{count} {one_line(name)}" for name, count in items)


def _minute(seconds: float) -> str:
    return moment(seconds).strftime("%Y-%m-%d %H:%M UTC")


JSON: Final = "application/json"
MARKDOWN: Final = "text/markdown"
KNOWN: Final = "This is only what is known without the store: there may be more."
MOST_CONNECTED: Final = 10
PREFERENCES_TOKENS: Final = 20_000
PREFERENCES_SHOWN: Final = 50
STATUS_VOLATILE: Final = frozenset({"uptime_seconds", "database_size_bytes", "attempts", "next_attempt_seconds"})
"""Fields of the status, anywhere in it, that change by themselves: no news for somebody who has subscribed."""
MEMORY_VOLATILE: Final = frozenset(
    {
        *("access_count", "last_accessed", "sessions_used", "strength", "is_stale", "why"),
        *("degraded", "warnings"),
    }
)
"""The same of a memory: what is read about it, and about the answer, is not what it says."""

RESOURCES: Final = (
    (STATUS, "Memory System Status", "Connection health, memory counts, and storage statistics", JSON),
    (SUMMARY, "Current Session Summary", "Memories stored, recalled, and consolidated this session", MARKDOWN),
    (GRAPH, "Project Knowledge Graph", "Entity and relationship overview for the current project", MARKDOWN),
    (PREFERENCES, "User Preferences", "Learned user preferences and coding patterns", MARKDOWN),
)
TEMPLATES: Final = ((MEMORY_TEMPLATE, "Memory", "One memory whole, with its history and relationships", JSON),)


R = TypeVar("R", SessionDescription, GraphFound, ContextGathered)


@dataclass(frozen=True, slots=True)
class Content:
    """A resource as it is now. `digest` is the same for contents that say the same. `is_part`: it is what is known
    without the store, which says nothing of whether the resource has changed."""

    uri: str
    mime_type: str
    text: str
    digest: str
    is_part: bool = False


class Resources:
    """Reads resources for a caller. `tools` carries out those that say what a tool says."""

    def __init__(self, tools: Mapping[str, Tool[Any]], access: StoreAccess, counts: RecallCounts) -> None:
        self._tools = tools
        self._access = access
        self._counts = counts
        self._readers = {
            STATUS: self._status,
            SUMMARY: self._summary,
            GRAPH: self._graph,
            PREFERENCES: self._preferences,
        }

    async def read(self, caller: Caller, uri: str, received_at: float) -> Content:
        """The content of a resource. Without the store it is the last known, or else what is known here, and says so.

        Raises:
            NotFound: there is no such resource, or no such memory that the caller may see.
            RemembrancerError: it cannot be read now, and why.
        """
        reader = self._readers.get(uri)
        if reader is not None:
            return await reader(caller, received_at)
        memory_id = memory_id_of(uri)
        if memory_id is None:
            raise NotFound(unknown_resource(uri), field="uri")
        answer = await self._call("get_memory", {"memory_id": memory_id}, caller, received_at)
        return _json(uri, answer, lasting_memory(answer))

    async def _status(self, caller: Caller, received_at: float) -> Content:
        answer = await self._call("get_memory_status", {}, caller, received_at)
        return _json(STATUS, answer, lasting_status(answer))

    async def _call(self, name: str, arguments: dict[str, Any], caller: Caller, received_at: float) -> Answer:
        """The answer of a tool; one with memories is always marked as data, since a person puts it anywhere."""
        tool = self._tools[name]
        call = Call(name, caller, name, received_at, arguments, self._access)
        answer = await tool.answer(call, tool.decoder.decode(arguments))
        return {"note": DATA, **answer} if tool.marks_data else answer

    async def _summary(self, caller: Caller, received_at: float) -> Content:
        question = DescribeSession(caller.project, caller.session_id)
        asked, story = await self._ask(question, received_at, SessionDescription)
        is_part = story is None
        if story is None:
            story = known_story(self._access.made(caller.project, caller.session_id), caller.session_id)
        text = session_summary(
            caller.session_id,
            story.started_at or caller.started_at,
            story,
            self._counts.served(caller.project.id, caller.session_id),
            self._counts.since,
            is_part=is_part,
        )
        return self._markdown(SUMMARY, text, asked)

    async def _graph(self, caller: Caller, received_at: float) -> Content:
        question = SearchGraph(caller.project, caller.session_id, include_memories=False, limit=MOST_CONNECTED)
        asked, found = await self._ask(question, received_at, GraphFound)
        is_part = found is None
        if found is None:
            found = known_graph(self._access.made(caller.project, caller.session_id), MOST_CONNECTED)
        return self._markdown(GRAPH, knowledge_graph(found, is_part=is_part), asked)

    async def _preferences(self, caller: Caller, received_at: float) -> Content:
        question = GatherContext(
            caller.project, caller.session_id, sections=("preferences",), tokens=PREFERENCES_TOKENS
        )
        asked, gathered = await self._ask(question, received_at, ContextGathered)
        is_part = gathered is None
        if gathered is None:
            known = self._access.known(caller.project, caller.session_id)
            memories = [memory for memory in known if memory.scope == "user"][:PREFERENCES_SHOWN]
        else:
            memories = [memory for section in gathered.sections for memory in section.memories][:PREFERENCES_SHOWN]
        return self._markdown(PREFERENCES, preferences(memories, is_part=is_part), asked)

    async def _ask(self, question: GatewayRequest, received_at: float, kind: type[R]) -> tuple[Asked, R | None]:
        """The answer; None: there is none, and the page is made of what is known here."""
        asked = await self._access.ask(question, received_at)
        assert isinstance(asked.reply, kind | None)
        return asked, asked.reply

    def _markdown(self, uri: str, text: str, asked: Asked) -> Content:
        """The digest leaves out what is said of the content's state: that it is older would be no news of it."""
        is_part = asked.reply is None
        reply = asked.reply
        its_own = reply.notices if isinstance(reply, SessionDescription | GraphFound | ContextGathered) else ()
        notices = (*its_own, *asked.notices)
        if is_part and asked.away is not None:
            notices = (self._access.explain(asked.away, KNOWN),)
        said = " ".join(notice.message for notice in notices)
        shown = neutralised(noted(text, said, degraded=asked.from_cache or is_part))
        return Content(uri, MARKDOWN, shown, digest_of(text), is_part)


def _json(uri: str, answer: Answer, lasting: Answer) -> Content:
    return Content(uri, JSON, msgspec.json.encode(answer).decode(), digest_of(lasting))


def lasting_memory(answer: Answer) -> Answer:
    """A memory's answer without the fields that depend on the reader. Its metadata may have fields of any name: they
    all count."""
    return {name: value for name, value in answer.items() if name not in MEMORY_VOLATILE}


def lasting_status(answer: Answer) -> Answer:
    """A status without the figures that change by themselves. Of warnings the codes count: their text may name a
    time."""
    lasting: Answer = _without(answer, STATUS_VOLATILE)
    if "warnings" in answer:
        lasting["warnings"] = [warning["code"] for warning in answer["warnings"]]
    return lasting


def _without(value: Any, names: frozenset[str]) -> Any:
    if isinstance(value, dict):
        return {name: _without(each, names) for name, each in value.items() if name not in names}
    return value


def digest_of(value: Any) -> str:
    """The same for values that are the same."""
    return hashlib.sha256(msgspec.json.encode(value, order="deterministic")).hexdigest()
