"""The arguments of `search_knowledge_graph`, checked and made into a message."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from remembrancer.actors.gateway.memory_toolset.memory_arguments import MAX_NAME
from remembrancer.actors.gateway.toolkit.text import clean_name
from remembrancer.protocol.reads import Direction, SearchGraph
from remembrancer.protocol.writes import ProjectRef


class SearchKnowledgeGraphArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `search_knowledge_graph` takes."""

    entity: Annotated[str, Meta(description="Its name; omit for an overview")] | UnsetType = UNSET
    relationship_type: Annotated[str, Meta(description="uses, depends_on …")] | UnsetType = UNSET
    direction: Annotated[Direction, Meta(extra_json_schema={"default": "both"})] | UnsetType = UNSET
    depth: Annotated[int, Meta(ge=1, le=3, extra_json_schema={"default": 1})] | UnsetType = UNSET
    include_memories: Annotated[bool, Meta(extra_json_schema={"default": True})] | UnsetType = UNSET
    limit: Annotated[int, Meta(ge=1, le=100, extra_json_schema={"default": 20})] | UnsetType = UNSET


def to_search(arguments: SearchKnowledgeGraphArguments, project: ProjectRef, session_id: str) -> SearchGraph:
    """The question that a call asks. A blank name is none.

    Raises:
        InvalidInput: a field is not what is allowed.
    """
    return SearchGraph(
        project=project,
        session_id=session_id,
        entity=_name(arguments.entity, "entity"),
        relationship_type=_name(arguments.relationship_type, "relationship_type"),
        direction="both" if arguments.direction is UNSET else arguments.direction,
        depth=1 if arguments.depth is UNSET else arguments.depth,
        include_memories=arguments.include_memories is not False,
        limit=20 if arguments.limit is UNSET else arguments.limit,
    )


def _name(name: str | UnsetType, field: str) -> str | None:
    return None if name is UNSET or not name.strip() else clean_name(name, field=field, longest=MAX_NAME)
