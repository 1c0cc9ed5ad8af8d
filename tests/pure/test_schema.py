"""The tools' input schemas: plain enough for every client, and small."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
import pytest
from msgspec import Meta

from remembrancer.toolsets.arguments import input_schema
from remembrancer.toolsets.memory.recall_memories import RecallMemoriesArguments
from remembrancer.toolsets.memory.store_memory import StoreMemoryArguments

ALL = (StoreMemoryArguments, RecallMemoriesArguments)


class Inner(msgspec.Struct):
    name: str


class Outer(msgspec.Struct):
    """For the readers of the code."""

    title: str
    kind: Literal["a", "b"]
    inner: Annotated[list[Inner], Meta(description="some")] | None = None
    level: Annotated[int, Meta(ge=1, le=5)] | None = None


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


def _keys(node: Any) -> set[str]:
    if isinstance(node, dict):
        return set(node).union(*(_keys(each) for each in node.values()))
    if isinstance(node, list):
        return set().union(*(_keys(each) for each in node))
    return set()


@pytest.mark.parametrize("arguments", ALL)
def test_no_schema_has_what_some_clients_cannot_read(arguments: type[msgspec.Struct]) -> None:
    assert _keys(input_schema(arguments)).isdisjoint({"$ref", "$defs", "anyOf", "oneOf", "allOf"})


def test_what_must_be_given_is_required_and_each_of_several_memories_takes_what_one_does() -> None:
    store, recall = input_schema(StoreMemoryArguments), input_schema(RecallMemoriesArguments)
    assert "required" not in store, "content is missing only where there are no memories either"
    assert set(store["properties"]["memories"]["items"]["properties"]) == set(store["properties"]) - {"memories"}
    assert recall["required"] == ["query"]
