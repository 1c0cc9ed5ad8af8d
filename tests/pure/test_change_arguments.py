"""Arguments of the tools that change a memory: what is accepted, and the errors that name the field at fault."""

from __future__ import annotations

from typing import Any, cast

import anyio
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from remembrancer.config.settings import Settings
from remembrancer.protocol.errors import InvalidInput
from remembrancer.protocol.wire import GatewayRequest
from remembrancer.protocol.writes import (
    EntityRef,
    ForgetMemory,
    LinkRef,
    Operation,
    ProjectRef,
    PromoteMemory,
    RestoreMemory,
    TagMemory,
    UpdateMemory,
)
from remembrancer.toolsets.service import Asked, Away, Caller, MemoryService, Written
from remembrancer.toolsets.tools import Call, load_tools

BARE = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
ID = f"memory:{BARE}"
OTHER = "memory:01ARZ3NDEKTSV4RRFFQ69G5FAW"
TOOLS = {each.name: each for each in load_tools()}


class NoStore:
    """A service that takes every write, and knows nothing."""

    settings = Settings(content_limit_bytes=1000)

    def __init__(self) -> None:
        self.written: list[Operation] = []

    async def apply(self, operation: Operation, _: float) -> Written:
        self.written.append(operation)
        return Written(operation, None)

    async def ask(self, _: GatewayRequest, __: float) -> Asked:
        return Asked(None, away=Away())

    def find_before(self, _: Operation) -> None:
        return None


def asked(tool: str, **arguments: Any) -> Any:
    """The change that a call of a tool asks for."""
    service = NoStore()
    raw = {"memory_id": ID, **arguments}
    caller = Caller("bridge", "session:s", ProjectRef("p_0123456789ab", "/code"), 0.0)
    call = Call(tool, caller, 1, 0.0, raw, cast(MemoryService, service))
    anyio.run(TOOLS[tool].run, call, TOOLS[tool].decoder.decode(raw))
    return service.written[0].change


def update(**arguments: Any) -> UpdateMemory:
    return cast(UpdateMemory, asked("update_memory", **arguments))


def tag(**arguments: Any) -> TagMemory:
    return cast(TagMemory, asked("tag_memory", **arguments))


def forget(**arguments: Any) -> ForgetMemory:
    return cast(ForgetMemory, asked("forget_memory", **arguments))


def promote(**arguments: Any) -> PromoteMemory:
    return cast(PromoteMemory, asked("promote_memory", **{"target_scope": "user", **arguments}))


def restore(**arguments: Any) -> RestoreMemory:
    return cast(RestoreMemory, asked("restore_memory", **arguments))


def test_everything_that_is_given_arrives() -> None:
    assert update(
        content="new",
        importance=0.9,
        tags={"add": [" Cafe\u0301 ", "b", "b"], "remove": "c"},
        metadata={"owner": "ana", "old": None, "deep": {"list": [1, 2.5, True]}},
        related_entities={
            "add": [{"name": " Maven ", "type": "tool", "relationship": "uses"}],
            "remove": ["Gradle", " Gradle"],
        },
    ) == UpdateMemory(
        memory_id=ID,
        content="new",
        importance=0.9,
        add_tags=("Café", "b"),
        remove_tags=("c",),
        metadata={"owner": "ana", "old": None, "deep": {"list": [1, 2.5, True]}},
        add_entities=(EntityRef("Maven", "tool", "uses"),),
        remove_entities=("Gradle",),
    )
    assert tag(add="a", remove=["b"]) == TagMemory(ID, ("a",), ("b",))
    assert forget(reason="outdated") == ForgetMemory(ID, "outdated")
    assert promote(reason="useful") == PromoteMemory(ID, "user", "useful")
    assert restore(version=3, reason="it was right") == RestoreMemory(ID, 3, "it was right")


def test_what_is_left_out_or_null_stays_as_it_is() -> None:
    assert update(importance=0.0, tags=None, metadata=None) == UpdateMemory(ID, importance=0.0)
    assert update(importance=0.0, tags={"add": None}, related_entities={"remove": None}) == update(importance=0)
    assert forget() == ForgetMemory(ID)
    assert restore(version=None) == RestoreMemory(ID)


@pytest.mark.parametrize("memory_id", [ID, BARE, BARE.lower(), f"memory:{BARE.lower()}"])
def test_an_id_may_be_given_with_its_prefix_or_without(memory_id: str) -> None:
    for change in (
        update(memory_id=memory_id, content="x"),
        tag(memory_id=memory_id, add="x"),
        forget(memory_id=memory_id),
        promote(memory_id=memory_id),
        restore(memory_id=memory_id),
    ):
        assert change.memory_id == ID


@pytest.mark.parametrize("call", [update, tag, forget, promote, restore])
@pytest.mark.parametrize("memory_id", ["", "memory:", "x" * 26, "session:" + BARE, ID + "0", "memory:\ud800"])
def test_what_is_no_id_is_refused_by_every_tool(call: Any, memory_id: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        call(
            memory_id=memory_id, **({"content": "x"} if call is update else {}), **({"add": "x"} if call is tag else {})
        )
    assert caught.value.field == "memory_id"
    caught.value.message.encode()


@pytest.mark.parametrize(
    "arguments", [{}, {"tags": {}}, {"tags": {"add": []}}, {"metadata": {}}, {"related_entities": {"remove": []}}]
)
def test_an_update_of_nothing_names_what_can_be_changed(arguments: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match=r"content, importance, tags .*, metadata, related_entities"):
        update(**arguments)


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("arguments", "field", "said"),
    [
        ({"contents": "x"}, "contents", "did you mean content?"),
        ({"content": " "}, "content", "must not be empty"),
        ({"content": "x" * 1001}, "content", "1000 bytes"),
        ({"importance": 1.5}, "importance", "a number from 0 to 1"),
        ({"tags": ["x"]}, "tags", "an object with the fields add, remove"),
        ({"tags": {"added": ["x"]}}, "tags.added", "did you mean add?"),
        ({"tags": {"add": ["x", 1]}}, "tags.add[1]", "must be a string"),
        ({"tags": {"add": ["a\nb"]}}, "tags.add[0]", "control characters"),
        ({"tags": {"remove": ["a\u0000"]}}, "tags.remove[0]", "control characters"),
        ({"tags": {"add": ["a", "b"], "remove": [" b"]}}, "tags.add", "both name 'b'"),
        ({"tags": {"add": [f"t{n}" for n in range(101)]}}, "tags.add", "100 items at most"),
        ({"related_entities": {"add": [{"name": "a"}]}}, "related_entities.add[0].type", "is missing"),
        (
            {"related_entities": {"add": [{"name": "a", "type": " ", "relationship": "c"}]}},
            "related_entities.add[0].type",
            "must not be empty",
        ),
        ({"related_entities": {"remove": ["a\n"] * 2 + ["\n"]}}, "related_entities.remove[2]", "must not be empty"),
        ({"related_entities": {"remove": ["a"] * 101}}, "related_entities.remove", "100 items at most"),
        ({"metadata": ["x"]}, "metadata", "must be an object, not"),
        ({"metadata": {"": 1}}, "metadata", "must not be empty"),
        ({"metadata": {"a\nb": 1}}, "metadata", "control characters"),
        ({"metadata": {"a": 2**53 + 1}}, "metadata.a", "2**53"),
        ({"metadata": {"a": {"b": [0, -(10**30)]}}}, "metadata.a.b[1]", "2**53"),
        ({"metadata": {"a": float("inf")}}, "metadata.a", "finite"),
        ({"metadata": {"a": float("nan")}}, "metadata.a", "finite"),
        ({"metadata": {"a": 1e300}}, "metadata.a", "2**53"),
        ({"metadata": {"a": deep(8)}}, "metadata.a[0][0][0][0][0][0][0]", "8 levels"),
        ({"metadata": {"a": ["x\ud800"]}}, "metadata.a[0]", "lone surrogate"),
        ({"metadata": {"a": {"x\udfff": 1}}}, "metadata.a", "lone surrogate"),
        ({"metadata": {"a": "x" * 65_536}}, "metadata", "65536 bytes"),
    ],
)
def test_update_memory_names_the_field_and_what_is_allowed(arguments: dict[str, Any], field: str, said: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        update(**arguments)
    assert caught.value.field == field
    assert said in caught.value.message
    caught.value.message.encode()


@pytest.mark.parametrize(
    ("call", "arguments", "field", "said"),
    [
        (tag, {}, "add", "nothing to change"),
        (tag, {"add": ["a"], "remove": ["a"]}, "add", "both name 'a'"),
        (tag, {"remove": [""]}, "remove[0]", "must not be empty"),
        (forget, {"reason": "x" * 2001}, "reason", "2000 characters"),
        (forget, {"reason": "a\0"}, "reason", "NUL"),
        (forget, {"reason": ""}, "reason", "must not be empty"),
        (promote, {"target_scope": "session"}, "target_scope", "one of project, user"),
        (promote, {"target_scope": None}, "target_scope", "one of project, user"),
        (promote, {"reason": "\ud800"}, "reason", "surrogate"),
        (restore, {"version": 0}, "version", "at least 1"),
        (restore, {"version": 10**30}, "version", "from 1 to"),
        (restore, {"version": "1"}, "version", "an integer"),
    ],
)
def test_the_other_tools_name_the_field_and_what_is_allowed(
    call: Any, arguments: dict[str, Any], field: str, said: str
) -> None:
    with pytest.raises(InvalidInput) as caught:
        call(**arguments)
    assert caught.value.field == field
    assert said in caught.value.message


def test_a_reason_may_have_as_many_characters_of_any_script() -> None:
    assert forget(reason="語" * 2000).reason == "語" * 2000


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(st.text(max_size=10), VALUES, min_size=1, max_size=4))
def test_metadata_that_is_accepted_travels_unharmed(metadata: dict[str, Any]) -> None:
    try:
        change = update(metadata=metadata)
    except InvalidInput as error:
        error.message.encode()
        return
    for format_ in (msgspec.msgpack, msgspec.json):
        assert format_.decode(format_.encode(change), type=UpdateMemory) == change


def test_the_other_fields_arrive() -> None:
    change = update(
        kind="decision",
        summary="short",
        confidence=0.7,
        domain="build",
        structured={"a": 1, "b": None},
        valid_from="2026-02-20",
        valid_until="2026-02-21",
        add_links=[{"relation": "supersedes", "target": OTHER.lower().removeprefix("memory:")}] * 2,
        remove_links=[{"relation": "supports", "target": OTHER}],
    )
    assert change == UpdateMemory(
        ID,
        kind="decision",
        summary="short",
        confidence=0.7,
        domain="build",
        structured={"a": 1, "b": None},
        valid_from=1771545600.0,
        valid_until=1771632000.0,
        add_links=(LinkRef("supersedes", OTHER),),
        remove_links=(LinkRef("supports", OTHER),),
    )


def test_an_empty_summary_or_domain_takes_it_away() -> None:
    assert update(summary="", domain="") == UpdateMemory(ID, summary="", domain="")


def test_an_empty_beginning_or_end_of_the_validity_takes_it_away() -> None:
    assert update(valid_until="") == UpdateMemory(ID, cleared=("valid_until",))
    assert update(valid_from="", valid_until="") == UpdateMemory(ID, cleared=("valid_from", "valid_until"))
    assert update(valid_from="", valid_until="1970-01-01") == UpdateMemory(ID, valid_until=0.0, cleared=("valid_from",))


@pytest.mark.parametrize(
    ("arguments", "field", "said"),
    [
        ({"kind": "thought"}, "kind", "tool_outcome"),
        ({"summary": "  "}, "summary", "must not be empty"),
        ({"structured": {"x": 2**60}}, "structured.x", "2**53"),
        ({"valid_until": "soon"}, "valid_until", "ISO 8601"),
        ({"add_links": [{"relation": "likes", "target": OTHER}]}, "add_links[0].relation", "caused_by"),
        ({"add_links": [{"relation": "supports", "target": "x"}]}, "add_links[0].target", "ULID"),
        ({"add_links": [{"relation": "supports", "target": ID}]}, "add_links[0].target", "another one"),
        ({"add_links": [{"relation": "supports"}]}, "add_links[0].target", "is missing"),
        ({"remove_links": [{"relation": "likes", "target": OTHER}]}, "remove_links[0].relation", "caused_by"),
        ({"remove_links": [{"target": OTHER}]}, "remove_links[0].relation", "is missing"),
        (
            {"add_links": [{"relation": "supports", "target": OTHER, "strength": 2}]},
            "add_links[0].strength",
            "at most 1",
        ),
        ({"remove_links": ["supports"]}, "remove_links[0]", "an object"),
        ({"remove_links": [{"relation": "supports", "target": OTHER}] * 101}, "remove_links", "100 items"),
    ],
)
def test_a_wrong_one_of_the_other_fields_is_named(arguments: dict[str, Any], field: str, said: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        update(**arguments)
    assert caught.value.field == field
    assert said in caught.value.message
