"""Arguments of tools: what is accepted, and the errors that name the field at fault and what is allowed."""

from __future__ import annotations

import json
from contextlib import suppress
from functools import partial
from typing import Any, NoReturn, cast

import anyio
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from remembrancer.config.settings import Settings
from remembrancer.protocol.errors import InvalidInput, MemoryUnavailable
from remembrancer.protocol.ids import derive_memory_id, derive_operation_id
from remembrancer.protocol.kinds import KINDS, type_of_kind
from remembrancer.protocol.reads import Recall
from remembrancer.protocol.wire import Request
from remembrancer.protocol.writes import (
    EntityRef,
    ForgetMemory,
    LinkRef,
    Operation,
    ProjectRef,
    PromoteMemory,
    RestoreMemory,
    SourceRef,
    StoreMemory,
    TagMemory,
    UpdateMemory,
    memory_id_of,
)
from remembrancer.toolsets import tools
from remembrancer.toolsets.arguments import ArgumentDecoder
from remembrancer.toolsets.memory.get_memory_context import MAX_FILES
from remembrancer.toolsets.memory.recall_memories import RecallMemoriesArguments, to_recall
from remembrancer.toolsets.memory.store_memory import StoreMemoryArguments, to_change
from remembrancer.toolsets.service import Caller, MemoryService, Written
from remembrancer.toolsets.tools import Call, Queued, load_tools
from tests.cases import cases

LIMIT_BYTES = 262_144
PROJECT = ProjectRef("p_0123456789ab", "/code")
STORE = ArgumentDecoder(StoreMemoryArguments)
RECALL = ArgumentDecoder(RecallMemoriesArguments)


def store(**arguments: Any) -> StoreMemory:
    given = {"content": "The build needs Java 21", "type": "semantic", "scope": "project", **arguments}
    return to_change(STORE.decode(given), "session:s", LIMIT_BYTES)


def recall(**arguments: Any) -> Recall:
    return to_recall(RECALL.decode({"query": "build", **arguments}), PROJECT, "session:s")


def test_what_is_left_out_has_the_designs_defaults() -> None:
    assert store() == StoreMemory(
        memory_id="",
        content="The build needs Java 21",
        type="semantic",
        scope="project",
        session_id="session:s",
        importance=0.5,
        confidence=0.8,
    )
    assert recall() == Recall(project=PROJECT, session_id="session:s", query="build", strategy="hybrid", limit=10)


AS_GIVEN: dict[str, Any] = {
    "importance": 0.9,
    "kind": "decision",
    "confidence": 0.7,
    "structured": {"version": 21, "of": {"tool": "maven"}, "b": None},
}
"""Arguments that arrive as they are given."""


def test_everything_that_is_given_arrives() -> None:
    change = store(
        **AS_GIVEN,
        type=None,
        tags=[" build ", "java", "build", "Cafe\u0301 "],
        source={"tool": "Bash", "file": "pom.xml", "conversation_turn": 3},
        related_entities=[{"name": "Maven", "type": "tool", "relationship": "uses"}],
        session_id="session:other",
        summary=" Java 21 ",
        domain=" build ",
        valid_from="2026-02-20",
        valid_until="2026-03-20T00:00:00Z",
    )
    assert change == msgspec.structs.replace(
        store(),
        **AS_GIVEN,
        tags=("build", "java", "Café"),
        source=SourceRef("Bash", "pom.xml", 3),
        related_entities=(EntityRef("Maven", "tool", "uses"),),
        session_id="session:other",
        summary="Java 21",
        domain="build",
        valid_from=1771545600.0,
        valid_until=1773964800.0,
    )


def test_every_filter_that_is_given_arrives() -> None:
    question = recall(
        scope=["user", "project"],
        type="episodic",
        kind=["fact", "decision", "fact"],
        domain=["auth", "auth"],
        strategy="keyword",
        limit=50,
        min_importance=0.2,
        tags="java",
        time_range={"after": "2026-02-20", "before": "2026-02-20T14:30:00+01:00"},
        include_forgotten=True,
    )
    assert question == msgspec.structs.replace(
        recall(),
        scopes=("user", "project"),
        kinds=("fact", "decision"),
        domains=("auth",),
        types=("episodic",),
        tags=("java",),
        after=1771545600.0,
        before=1771594200.0,
        strategy="keyword",
        limit=50,
        min_importance=0.2,
        include_forgotten=True,
    )


def test_times_without_an_offset_are_in_utc_and_the_days_of_a_question_are_those_of_its_reference_time() -> None:
    assert store(occurred_at="2026-02-20").occurred_at == 1771545600.0
    assert store(occurred_at="2126-02-20T01:00:00+01:00").occurred_at == 4927219200.0
    assert recall(reference_time=" 2026-02-20T00:00:00Z ").reference_time == 1771545600.0
    for offset, utc_offset_s in (("+09:00", 32400.0), ("-03:30", -12600.0), ("Z", 0.0), ("", None)):
        assert recall(reference_time=f" 2026-02-20T01:00:00{offset}").utc_offset_s == utc_offset_s
    assert recall(reference_time="2026-02-20").utc_offset_s is None
    assert recall().utc_offset_s is None


JOINED = ["می\u200cخواهم", "👩\u200d👧", "שלום", "नमस्\u200dते"]
MAVEN = {"name": "Maven", "type": "source-file", "relationship": "uses"}


@pytest.mark.parametrize(
    ("arguments", "fields"),
    [
        ({"tags": None, "source": None}, {}),
        ({"tags": "java"}, {"tags": ("java",)}),
        ({"tags": ["a", "b"]}, {"tags": ("a", "b")}),
        ({"tags": ' [ "a","b" ]'}, {"tags": ("a", "b")}),
        ({"tags": JOINED}, {"tags": tuple(JOINED)}),  # scripts and emoji need joiners
        ({"related_entities": [MAVEN]}, {"related_entities": (EntityRef(**MAVEN),)}),
        ({"related_entities": json.dumps([MAVEN])}, {"related_entities": (EntityRef(**MAVEN),)}),
        ({"source": '{"tool": "Bash"}'}, {"source": SourceRef("Bash")}),
        ({"source": {"conversation_turn": 3.0}}, {"source": SourceRef(conversation_turn=3)}),
        ({"content": '["a"]'}, {"content": '["a"]'}),
        ({"content": "  one\r\n\ttwo\x1b[0m Cafe\u0301 "}, {"content": "  one\r\n\ttwo\x1b[0m Cafe\u0301 "}),
    ],
)
def test_an_argument_is_understood_in_each_form_that_clients_write(
    arguments: dict[str, Any], fields: dict[str, Any]
) -> None:
    assert store(**arguments) == msgspec.structs.replace(store(), **fields)


def test_a_name_has_nothing_that_cannot_be_seen_or_turns_the_writing() -> None:
    for character in "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f\u061c\u2028\u2029\u200b\ufeff":
        with pytest.raises(InvalidInput, match="control characters") as caught:
            store(tags=[f"a{character}b"])
        assert caught.value.field == "tags[0]"
        assert caught.value.message.isascii()


def test_a_kind_implies_the_type_and_a_type_alone_leaves_the_kind_open() -> None:
    given = {"content": "x", "scope": "session"}
    for kind in KINDS:
        change = to_change(STORE.decode({**given, "kind": kind}), "session:s", LIMIT_BYTES)
        assert (change.kind, change.type) == (kind, type_of_kind(kind))
        both = {**given, "kind": kind, "type": type_of_kind(kind)}
        assert to_change(STORE.decode(both), "session:s", LIMIT_BYTES) == change
    assert store(type="procedural").kind is None
    for kind in ("scratchpad", "tool_outcome"):
        assert store(kind=kind, scope="project").scope == "session", "it is for its session alone"


@pytest.mark.parametrize(("content", "kind"), cases("tool_arguments", "kinds"))
def test_content_alone_is_enough_and_its_words_tell_the_kind(content: str, kind: str) -> None:
    change = to_change(STORE.decode({"content": content}), "session:s", LIMIT_BYTES)
    assert (change.kind, change.type, change.scope) == (kind, type_of_kind(kind), "project")  # type: ignore[arg-type]
    assert change.importance == (0.5 if kind == "fact" else 0.7)


def test_the_subject_of_a_relationship_is_an_entity_of_the_memory_too() -> None:
    given = [{"name": "src/billing", "type": "module", "relationship": "owns", "subject": "Svetlana"}]
    assert store(related_entities=given).related_entities == (
        EntityRef("src/billing", "module", "owns", "Svetlana"),
        EntityRef("Svetlana", "concept", "mentioned_with"),
    )
    named = {"name": "svetlana", "type": "person", "relationship": "is"}
    assert len(store(related_entities=[*given, named]).related_entities) == 2


def test_a_fact_with_a_due_date_is_an_open_end_and_no_other_kind_has_one() -> None:
    for kind in ({}, {"kind": "fact"}, {"kind": "open_end"}):
        assert store(content="The customer comes on Monday", due="2030-05-02", **kind).kind == "open_end"
    with pytest.raises(InvalidInput, match="only an open end"):
        store(content="We release on Monday", due="2030-05-02", kind="decision")


# --- the tools that change a memory ---

BARE = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
ID = f"memory:{BARE}"
OTHER = "memory:01ARZ3NDEKTSV4RRFFQ69G5FAW"
TOOLS = {each.name: each for each in load_tools()}


CALLER = Caller("bridge", "session:s", PROJECT, 0.0)


class NoStore:
    """A service that takes every write, and knows nothing."""

    settings = Settings()

    def __init__(self) -> None:
        self.written: list[Operation] = []
        self.short_ids: dict[tuple[str, str, str], str] = {}

    async def apply(self, operation: Operation, _: float) -> Written:
        self.written.append(operation)
        return Written(None)

    async def ask(self, _: Request[Any], __: float) -> NoReturn:
        raise MemoryUnavailable("there is no store")


GIVEN: dict[str, dict[str, Any]] = {
    "store_memory": {"content": "The build needs Java 21", "type": "semantic", "scope": "project"},
    "recall_memories": {"query": "build"},
    "promote_memory": {"memory_id": ID, "target_scope": "user"},
    **{tool: {"memory_id": ID} for tool in ("update_memory", "tag_memory", "forget_memory", "restore_memory")},
}
"""The arguments that a call has unless it says otherwise."""


def asked(tool: str, **arguments: Any) -> Any:
    """The change that a call of a tool asks for."""
    service = NoStore()
    raw = GIVEN.get(tool, {}) | arguments
    call = Call(tool, CALLER, 1, 0.0, raw, cast(MemoryService, service))
    with suppress(Queued):
        anyio.run(TOOLS[tool].run, call, TOOLS[tool].decoder.decode(raw))
    return service.written[0].change


update, tag, forget, promote, restore = (
    partial(asked, f"{verb}_memory") for verb in ("update", "tag", "forget", "promote", "restore")
)


def test_the_ids_of_a_call_follow_from_it() -> None:
    raw = {"content": "The gate opens at seven"}
    service = NoStore()
    call = Call("store_memory", CALLER, 1, 0.0, raw, cast(MemoryService, service))
    answer = anyio.run(TOOLS["store_memory"].run, call, TOOLS["store_memory"].decoder.decode(raw))
    (operation,) = service.written
    assert operation.operation_id == derive_operation_id("bridge", 1, "store_memory", raw)
    assert answer["memory_id"] == memory_id_of(operation.change) == derive_memory_id(operation.operation_id)


def test_an_answer_stands_once_as_text_and_once_as_structure_in_one_response() -> None:
    result = tools.CallResult(
        {"memory_id": "m", "near": [1.5, None, "“ü"]}, tools.answer_text({"a": "“ü\n", "b": [1.5]})
    )
    response = msgspec.json.decode(anyio.run(result.response, "7"))
    assert response == {
        "jsonrpc": "2.0",
        "id": "7",
        "result": {
            "content": [{"type": "text", "text": result.text}],
            "structuredContent": {"a": "“ü\n", "b": [1.5]},  # the text itself: the answer is not encoded again
            "isError": False,
        },
    }


def test_everything_that_is_given_of_a_change_arrives() -> None:
    assert update(
        **AS_GIVEN,
        content="new",
        tags={"add": [" Cafe\u0301 ", "b", "b"], "remove": "c"},
        metadata={"owner": "ana", "old": None, "deep": {"list": [1, 2.5, True]}},
        related_entities={
            "add": [{"name": " Maven ", "type": "tool", "relationship": "uses"}],
            "remove": ["Gradle", " Gradle"],
        },
        summary="short",
        domain="build",
        valid_from="2026-02-20",
        valid_until="2026-02-21",
        add_links=[{"relation": "supersedes", "target": OTHER.lower().removeprefix("memory:")}] * 2,
        remove_links=[{"relation": "supports", "target": OTHER}],
    ) == UpdateMemory(
        **AS_GIVEN,
        memory_id=ID,
        content="new",
        add_tags=("Café", "b"),
        remove_tags=("c",),
        metadata={"owner": "ana", "old": None, "deep": {"list": [1, 2.5, True]}},
        add_entities=(EntityRef("Maven", "tool", "uses"),),
        remove_entities=("Gradle",),
        summary="short",
        domain="build",
        valid_from=1771545600.0,
        valid_until=1771632000.0,
        add_links=(LinkRef("supersedes", OTHER),),
        remove_links=(LinkRef("supports", OTHER),),
    )
    assert tag(add="a", remove=["b"]) == TagMemory(ID, ("a",), ("b",))
    assert forget(reason="outdated") == ForgetMemory(ID, "outdated")
    assert promote(reason="useful") == PromoteMemory(ID, "user", "useful")
    assert restore(version=3, reason="it was right") == RestoreMemory(ID, 3, "it was right")


def test_what_is_left_out_or_null_stays_and_what_is_given_empty_is_taken_away() -> None:
    less = {"importance": 0.0, "reason": "it matters less"}
    assert update(importance=0.0, tags=None, metadata=None) == UpdateMemory(ID, importance=0.0)
    assert update(**less) == UpdateMemory(ID, **less)  # type: ignore[arg-type]
    assert update(importance=0.0, tags={"add": None}, related_entities={"remove": None}) == update(importance=0)
    assert forget() == ForgetMemory(ID)
    assert forget(reason="語" * 2000).reason == "語" * 2000
    assert restore(version=None) == RestoreMemory(ID)
    assert update(summary="", domain="") == UpdateMemory(ID, summary="", domain="")
    assert update(valid_from="", valid_until="") == UpdateMemory(ID, cleared=("valid_from", "valid_until"))
    assert update(valid_from="", valid_until="1970-01-01") == UpdateMemory(ID, valid_until=0.0, cleared=("valid_from",))


@pytest.mark.parametrize("call", [partial(update, content="x"), partial(tag, add="x"), forget, promote, restore])
def test_what_is_no_id_is_refused_by_every_tool(call: Any) -> None:
    for memory_id in ("", "memory:", "x" * 26, "session:" + BARE, ID + "0", "memory:\ud800"):
        with pytest.raises(InvalidInput) as caught:
            call(memory_id=memory_id)
        assert caught.value.field == "memory_id"
        caught.value.message.encode()


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


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


# --- errors ---

ERRORS = [
    *((tool, *row) for tool, rows in cases("tool_arguments", "errors").items() for row in rows),
    ("store_memory", {"\ud800": "x"}, "\\ud800", "unknown field"),
    ("store_memory", {"content": None}, "content", "must be a string"),
    ("store_memory", {"content": "x" * 2_000_000}, "content", "262144 bytes"),
    ("store_memory", {"content": "ü" * 131_073}, "content", "has 262146"),
    ("store_memory", {"content": "a\ud800"}, "content", "lone surrogate"),
    ("store_memory", {"importance": float("nan")}, "importance", "Expected `float"),
    ("store_memory", {"tags": [f"t{n}" for n in range(10_000)]}, "tags", "at most 100 items"),
    ("store_memory", {"tags": ["a\udfff"]}, "tags[0]", "surrogate"),
    ("store_memory", {"tags": {"a": None}}, "tags", "Expected `array"),
    ("store_memory", {"source": {"conversation_turn": 10**30}}, "source.conversation_turn", "from 0"),
    (
        "store_memory",
        {"related_entities": [{"name": f"n{n}", "type": "b", "relationship": "c"} for n in range(101)]},
        "related_entities",
        "at most 100 items",
    ),
    ("store_memory", {"summary": "x" * 2001}, "summary", ""),
    ("store_memory", {"structured": {"x": float("inf")}}, "structured.x", ""),
    ("store_memory", {"structured": {"x": "y" * 70_000}}, "structured", ""),
    ("recall_memories", {"query": "x" * 20_000}, "query", "bytes"),
    ("recall_memories", {"limit": float("inf")}, "limit", "Expected `int"),
    ("recall_memories", {"limit": 10**30}, "limit", "Expected `int"),
    ("update_memory", {"metadata": {"a": {"x\udfff": 1}}}, "metadata.a", "lone surrogate"),
    ("update_memory", {}, None, "old, new, content, tags, related_entities, "),
    ("update_memory", {"reason": "it matters less"}, None, "nothing to change"),
    ("update_memory", {"tags": {"add": []}}, None, "nothing to change"),
    ("update_memory", {"metadata": {}}, None, "nothing to change"),
    ("update_memory", {"content": "x" * 262_145}, "content", "262144 bytes"),
    ("update_memory", {"tags": {"add": [f"t{n}" for n in range(101)]}}, "tags.add", "at most 100 items"),
    ("update_memory", {"related_entities": {"remove": ["a"] * 101}}, "related_entities.remove", "at most 100 items"),
    ("update_memory", {"metadata": {"a": {"b": [0, -(10**30)]}}}, "metadata.a.b[1]", "2**53"),
    ("update_memory", {"metadata": {"a": float("inf")}}, "metadata.a", "finite"),
    ("update_memory", {"metadata": {"a": float("nan")}}, "metadata.a", "finite"),
    ("update_memory", {"metadata": {"a": deep(8)}}, "metadata.a[0][0][0][0][0][0][0]", "8 levels"),
    ("update_memory", {"metadata": {"a": ["x\ud800"]}}, "metadata.a[0]", "lone surrogate"),
    ("update_memory", {"metadata": {"a": "x" * 65_536}}, "metadata", "65536 bytes"),
    ("update_memory", {"structured": {"x": 2**60}}, "structured.x", "2**53"),
    ("update_memory", {"remove_links": [{"relation": "supports", "target": OTHER}] * 101}, "remove_links", "100 items"),
    ("forget_memory", {"reason": "x" * 2001}, "reason", "2000 characters"),
    ("promote_memory", {"target_scope": None}, "target_scope", "one of project, user"),
    ("promote_memory", {"reason": "\ud800"}, "reason", "surrogate"),
    ("restore_memory", {"version": 10**30}, "version", "from 1 to"),
    ("get_memory_context", {"files_in_context": ["a.py"] * (MAX_FILES + 1)}, "files_in_context", ""),
    ("search_knowledge_graph", {"entity": "x" * 201}, "entity", ""),
]


@pytest.mark.parametrize(("tool", "arguments", "field", "said"), ERRORS)
def test_an_error_names_the_field_and_what_is_allowed(
    tool: str, arguments: dict[str, Any], field: str | None, said: str
) -> None:
    with pytest.raises(InvalidInput) as caught:
        asked(tool, **arguments)
    assert caught.value.field == field
    assert said in caught.value.message
    caught.value.message.encode()  # an error that cannot be sent would be none
