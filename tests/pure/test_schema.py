"""The tools' input schemas: plain enough for every client, and small."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
import pytest
from msgspec import UNSET, Meta, UnsetType

from remembrancer.toolsets.arguments import at_path, describe, input_schema
from remembrancer.toolsets.memory.get_memory_context import GetMemoryContextArguments
from remembrancer.toolsets.memory.get_memory_status import GetMemoryStatusArguments
from remembrancer.toolsets.memory.recall_memories import RecallMemoriesArguments
from remembrancer.toolsets.memory.search_knowledge_graph import SearchKnowledgeGraphArguments
from remembrancer.toolsets.memory.store_memory import StoreMemoryArguments
from remembrancer.toolsets.tools import load_tools

ALL = (StoreMemoryArguments, RecallMemoriesArguments, GetMemoryStatusArguments)


class Inner(msgspec.Struct):
    name: str


class Outer(msgspec.Struct):
    """For the readers of the code."""

    title: str
    kind: Literal["a", "b"]
    inner: Annotated[list[Inner], Meta(description="some")] | UnsetType = UNSET
    level: Annotated[int, Meta(ge=1, le=5)] | UnsetType = UNSET


def test_a_schema_is_inlined_and_says_no_more_than_a_model_needs() -> None:
    assert input_schema(Outer) == {
        "type": "object",
        "properties": {
            "title": {"type": "string"},
            "kind": {"type": "string", "enum": ["a", "b"]},
            "inner": {
                "description": "some",
                "type": "array",
                "items": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
            },
            "level": {"type": "integer", "minimum": 1, "maximum": 5},
        },
        "required": ["title", "kind"],
    }


def test_what_is_allowed_is_said_in_words() -> None:
    schema = input_schema(Outer)
    assert describe(at_path(schema, ["level"])) == "an integer from 1 to 5"
    assert describe(at_path(schema, ["kind"])) == "one of a, b"
    assert describe(at_path(schema, ["inner"])) == "a list, each item an object with the fields name"
    assert describe(at_path(schema, ["inner", "name"])) == "a string"


def _keys(node: Any) -> set[str]:
    if isinstance(node, dict):
        return set(node).union(*(_keys(each) for each in node.values()))
    if isinstance(node, list):
        return set().union(*(_keys(each) for each in node))
    return set()


@pytest.mark.parametrize("arguments", ALL)
def test_no_schema_has_what_some_clients_cannot_read(arguments: type[msgspec.Struct]) -> None:
    assert _keys(input_schema(arguments)).isdisjoint({"$ref", "$defs", "anyOf", "oneOf", "allOf"})


def test_what_may_be_left_out_has_the_designs_default() -> None:
    graph = input_schema(SearchKnowledgeGraphArguments)["properties"]
    defaults = {name: node["default"] for name, node in graph.items() if "default" in node}
    assert defaults == {"direction": "both", "depth": 1, "include_memories": True, "limit": 20}
    assert input_schema(GetMemoryContextArguments)["properties"]["max_tokens"]["default"] == 6000


@pytest.mark.parametrize(
    ("tool", "path", "facts"),
    [
        ("recall_memories", "limit", {"minimum": 1, "maximum": 50, "default": 10}),
        ("recall_memories", "include_forgotten", {"type": "boolean", "default": False}),
        ("recall_memories", "strategy", {"default": "hybrid"}),
        ("recall_memories", "min_importance", {"default": 0}),
        ("recall_memories", "time_range.after", {"format": "date-time"}),
        ("recall_memories", "time_range.before", {"format": "date-time"}),
        ("search_knowledge_graph", "depth", {"minimum": 1, "maximum": 3, "default": 1}),
        ("search_knowledge_graph", "limit", {"minimum": 1, "maximum": 100, "default": 20}),
        ("reflect_and_consolidate", "dry_run", {"default": False}),
        ("memory_search", "minScore", {"minimum": 0, "maximum": 1, "default": 0.3}),
        ("memory_search", "maxResults", {"minimum": 1, "maximum": 100, "default": 8}),
    ],
)
def test_the_bounds_formats_and_defaults_are_those_of_the_design(
    tool: str, path: str, facts: dict[str, object]
) -> None:
    """Of these, a client is told the defaults of listed arguments; an error states a bound when it is violated."""
    (found,) = (each for each in load_tools() if each.name == tool)
    node = at_path(found.decoder.schema, path.split("."))
    assert {name: node.get(name) for name in facts} == facts
    assert "maximum" not in str(found.described()["inputSchema"])


def test_what_must_be_given_is_required_and_each_of_several_memories_takes_what_one_does() -> None:
    store, recall = input_schema(StoreMemoryArguments), input_schema(RecallMemoriesArguments)
    assert "required" not in store, "content is missing only where there are no memories either"
    assert set(store["properties"]["memories"]["items"]["properties"]) == set(store["properties"]) - {"memories"}
    assert recall["required"] == ["query"]
    assert input_schema(GetMemoryStatusArguments)["properties"] == {}
