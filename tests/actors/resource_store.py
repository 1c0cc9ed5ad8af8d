"""A store that a test plays, which answers what resources, prompts and completion ask as well."""

from __future__ import annotations

from collections import Counter
from typing import Any

from remembrancer.protocol.reads import (
    ContextGathered,
    DescribeSession,
    GatherContext,
    GraphEntity,
    GraphFound,
    SearchGraph,
    SessionDescription,
    Suggest,
    Suggestions,
)
from remembrancer.protocol.writes import ProjectRef, StoreMemory
from tests.actors.gateway_rig import PlayedStore, as_answer

STARTED_AT = 1_700_000_000.0


class ResourceStore(PlayedStore):
    """A project's graph has the entities of its memories, and no edges."""

    def _reply(self, message: Any) -> Any:
        match message:
            case DescribeSession(session_id=session_id):
                own = [memory for memory in self.memories.values() if memory.session_id == session_id]
                topics = tuple(Counter(tag for memory in own for tag in memory.tags))
                by_type: Counter[str] = Counter(memory.type for memory in own)
                return SessionDescription(STARTED_AT, dict(by_type), {}, topics)
            case SearchGraph(project=project):
                return self._graph(project)
            case GatherContext():
                kept = [
                    memory for memory in self.memories.values() if memory.scope == "user" and not memory.forgotten_at
                ]
                return ContextGathered(tuple(as_answer(memory) for memory in kept))
            case Suggest(kind=kind, prefix=prefix):
                names = [name for name in self._names(kind) if name.casefold().startswith(prefix.casefold())]
                return Suggestions(tuple(names), len(names))
        return super()._reply(message)

    def _names(self, kind: str) -> list[str]:
        memories = self.memories.values()
        if kind == "tag":
            return list(dict.fromkeys(tag for memory in memories for tag in memory.tags))
        return list(dict.fromkeys(entity.name for memory in memories for entity in memory.related_entities))

    def _graph(self, project: ProjectRef) -> GraphFound:
        stored = [each.change for each in self.applied.values() if each.project == project]
        entities = [entity for each in stored if isinstance(each, StoreMemory) for entity in each.related_entities]
        found = tuple(GraphEntity(entity.name, entity.type, memory_count=1) for entity in entities)
        types = dict(Counter(each.type for each in found))
        return GraphFound(found, total_entities=len(found), entity_types=types)
