"""A tool registers itself, once, in the toolset of its folder; and what is said beside its answer or instead of it."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path
from typing import Any

import msgspec
import pytest

from remembrancer import toolsets
from remembrancer.protocol.errors import InvalidInput
from remembrancer.protocol.wire import Notice
from remembrancer.toolsets.arguments import ArgumentDecoder
from remembrancer.toolsets.tools import (
    Answer,
    Call,
    Tool,
    _registered,
    answer_text,
    choose_tools,
    derived_tool,
    load_tools,
    tool,
    unknown_tool,
    with_caveats,
)


class NoArguments(msgspec.Struct):
    pass


class OneArgument(msgspec.Struct):
    memory_id: str


def test_each_tool_has_a_module_of_its_name_or_is_derived_from_one_that_has() -> None:
    folder = Path(toolsets.__file__).parent
    tools = load_tools()
    assert {each.toolset for each in tools} == {"admin", "code", "directory", "files", "graph", "memory", "nodes"}
    for each in tools:
        is_derived = each.run.__module__ == derived_tool.__module__
        assert (folder / each.toolset / f"{each.name}.py").exists() is not is_derived, each.name


def test_a_derived_tool_gives_its_arguments_and_the_answer_other_names() -> None:
    class Arguments(msgspec.Struct, frozen=True):
        memory_id: str
        version: int = 1
        reason: str = "none"

    async def show(call: Call, arguments: Arguments) -> Answer:
        return {"memory_id": arguments.memory_id, "version": arguments.version, "reason": arguments.reason}

    class Short(msgspec.Struct, frozen=True):
        id: str
        version: int | None = None

    show.__annotations__ = {"call": Call, "arguments": Arguments, "return": Answer}
    names = {"id": "memory_id"}
    derived_tool(
        "a.pure.b",
        "derived",
        "It.",
        show,
        Short,
        renamed=names,
        fixed={"reason": "why", "version": 3},
        answer_names={"memory_id": "id"},
    )
    derived = _registered.pop(("pure", "derived"))
    for given, version in ({}, 3), ({"version": 2}, 2):
        answer = derived.run(NotImplemented, derived.decoder.decode({"id": "m", **given}))
        with pytest.raises(StopIteration) as done:
            answer.__await__().send(None)
        assert done.value.value == {"id": "m", "version": version, "reason": "why"}


def test_of_one_name_the_toolset_named_first_has_it_and_two_in_a_toolset_are_an_error() -> None:
    load_tools()

    async def anything(call: Call, arguments: NoArguments) -> Answer:
        raise AssertionError

    tool("One.")(anything)
    try:
        with pytest.raises(ValueError, match="two tools of the toolset pure have the name anything"):
            tool("Another one.")(anything)
    finally:
        del _registered["pure", "anything"]

    def named(toolset: str) -> Tool[Any]:
        return Tool("recall", toolset, toolset, ArgumentDecoder(NoArguments), NotImplemented)

    tools = [named("graph"), named("nodes")]
    assert choose_tools(tools, "nodes,graph")[0]["recall"].toolset == "nodes"
    assert choose_tools(tools, "graph,nodes")[0]["recall"].toolset == "graph"


def test_every_combination_of_toolsets_has_each_tool_once_and_within_its_tokens() -> None:
    tools = load_tools()
    most = {"memory": 1120, "files": 600, "nodes": 700, "graph": 2000, "admin": 400, "code": 600, "directory": 200}
    cost = {(each.toolset, each.name): len(answer_text(each.described())) / 4 for each in tools}
    for names in (order for size in range(1, 7) for order in permutations(most, size)):
        chosen, notices = choose_tools(tools, ",".join(names))
        assert notices == []
        assert {each.toolset for each in chosen.values()} == set(names), "each has a tool of its own"
        assert set(chosen) == {each.name for each in tools if each.toolset in names}
        assert sum(cost[each.toolset, each.name] for each in chosen.values()) <= sum(most[name] for name in names)
        whole = {each.name for each in tools if each.toolset in names and not each.is_short_form}
        assert not {name for name, each in chosen.items() if each.is_short_form} & whole


def test_a_short_form_takes_less_and_what_is_not_listed_may_be_left_out() -> None:
    for each in load_tools():
        schema, listed = each.decoder.schema, each.described()["inputSchema"]["properties"]
        assert set(each.unlisted) == set(schema["properties"]) - set(listed), each.name
        assert set(schema.get("required", ())) <= set(listed), each.name
    tools = {(each.toolset, each.name): each for each in load_tools()}
    short = [each for each in tools.values() if each.is_short_form]
    assert {each.name for each in short} == {"store_memory", "get_memory", "update_memory", "list_memories"}
    for each in short:
        (whole,) = (other for other in tools.values() if other.name == each.name and not other.is_short_form)
        fields = {whole.decoder.aliases.get(name, name) for name in each.decoder.schema["properties"]}
        assert fields <= set(whole.decoder.schema["properties"]), each.name


def test_an_argument_is_given_under_one_of_its_names() -> None:
    decoder = ArgumentDecoder(OneArgument, {"id": "memory_id"})
    assert decoder.decode({"id": "a"}) == decoder.decode({"memory_id": "a"}) == OneArgument("a")
    with pytest.raises(InvalidInput, match="id is another name of memory_id"):
        decoder.decode({"id": "a", "memory_id": "a"})


def test_an_unknown_toolset_or_tool_is_told_of_with_the_nearest_or_all_known() -> None:
    tools = load_tools()
    chosen, notices = choose_tools(tools, "memroy")
    assert chosen == choose_tools(tools, None)[0]
    assert [notice.code for notice in notices] == ["unknown_toolset"]
    assert "known are admin, code, directory, files, graph, memory, nodes" in notices[0].message
    assert unknown_tool("store_memroy", KNOWN) == (
        "there is no tool 'store_memroy': did you mean store_memory? (known are store_memory, recall_memories)"
    )
    assert unknown_tool("zzzz", KNOWN) == "there is no tool 'zzzz': known are store_memory, recall_memories"


# --- The answer to a client that asks for a tool which is not there.


KNOWN = ["store_memory", "recall_memories"]


# --- Caveats of answers: the most serious comes first, and each is said once.


def answer(*codes: str, **fields: object) -> Answer:
    return with_caveats(dict(fields), [Notice(code, f"about {code}") for code in codes])


def test_the_most_serious_warning_comes_first_also_when_it_is_added_later() -> None:
    formed = answer("unknown_toolset", "queued")
    formed = with_caveats(formed, [Notice("embedding_failed", "why")])
    assert [each["code"] for each in formed["warnings"]] == ["embedding_failed", "queued", "unknown_toolset"]
    assert set(formed) == {"warnings"}
