"""What the resources say, as text. Pure.

Names and contents come from whoever stored them: none of them can begin a line of its own, and so forge a heading.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

from remembrancer.actors.gateway.memory_toolset.context_block import INDENT, render
from remembrancer.protocol.reads import EarlierSession, GraphEntity, GraphFound, RecalledMemory, SessionDescription
from remembrancer.protocol.runs import Topic
from remembrancer.protocol.writes import SourceRef

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
    """What a session stored, changed and was shown. `served` is queries and different memories, counted from
    `counted_since` (seconds since the epoch), which is said when the session is older. `is_part`: the story is what is
    known without the store."""
    queries, memories = served
    nothing = "not known now" if is_part else "none yet"
    ended = "" if story.status == "active" else f" | {story.status}"
    since = f" (since {_minute(counted_since)})" if counted_since > started_at + 1.0 else ""
    lines = [
        "## Session Memory Summary",
        f"**Session:** {one_line(session_id)} | Started: {_minute(started_at)}{ended}",
        f"**Memories stored:** {'at least ' if is_part else ''}{_counted(story.stored_by_type, TYPES)}",
    ]
    if story.changes:
        lines.append(f"**Changes:** {_listed(story.changes)}")
    lines.append(
        f"**Memories recalled:** {_plural(queries, 'query', 'queries')}, "
        f"{_plural(memories, 'unique memory', 'unique memories')} served{since}"
    )
    if story.memories_promoted:
        lines.append(f"**Memories promoted:** {story.memories_promoted}")
    if story.turns or story.tool_calls:
        failed = f" ({story.tool_failures} failed)" if story.tool_failures else ""
        calls = _plural(story.tool_calls, "tool call", "tool calls")
        lines.append(f"**Conversation:** {_plural(story.turns, 'turn', 'turns')}, {calls}{failed}")
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
    lines = ["## Project Knowledge Graph"]
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
    """What is known of the user, the most important first. `is_part`: it is what is known without the store."""
    lines = ["## User Preferences"]
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
    return f"{item}{start}[{'; '.join(one_line(each) for each in details)}]"


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
    memories = _plural(entity.memory_count, "memory", "memories")
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


def _plural(count: int, one: str, many: str) -> str:
    return f"{count} {one if count == 1 else many}"


def _minute(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")
