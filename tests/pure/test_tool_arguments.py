import json
from collections import defaultdict
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from itertools import permutations
from typing import Annotated, Any, Literal, NoReturn, cast

import anyio
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Meta

from remembrancer.config.settings import Settings
from remembrancer.memory.text import nearest
from remembrancer.protocol.environment import TOOLSETS
from remembrancer.protocol.errors import InvalidInput, MemoryUnavailable
from remembrancer.protocol.ids import derive_id, derive_memory_id
from remembrancer.protocol.kinds import KINDS, type_of_kind
from remembrancer.protocol.reads import Recall
from remembrancer.protocol.wire import Notice, Request
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
from remembrancer.toolsets.arguments import ArgumentDecoder, input_schema
from remembrancer.toolsets.memory.get_memory_context import MAX_FILES
from remembrancer.toolsets.memory.recall_memories import RecallMemoriesArguments, to_recall
from remembrancer.toolsets.memory.store_memory import StoreMemoryArguments, to_change
from remembrancer.toolsets.service import Caller, MemoryService, SessionState, Written
from remembrancer.toolsets.tools import (
    Answer,
    Call,
    Queued,
    Tool,
    _registered,
    answer_text,
    choose_tools,
    load_tools,
    tool,
)
from tests.cases import cases

LIMIT_BYTES = 262_144
PROJECT = ProjectRef("p_0123456789ab", "/code")
STORE = ArgumentDecoder(StoreMemoryArguments)
RECALL = ArgumentDecoder(RecallMemoriesArguments)


def store(**arguments: Any) -> StoreMemory:
    given = {"content": "The build needs Java 21", "type": "semantic", "scope": "project", **arguments}
    return to_change(STORE.decode(given), "session:s", LIMIT_BYTES, 0.0)


def recall(**arguments: Any) -> Recall:
    return to_recall(RECALL.decode({"query": "build", **arguments}), PROJECT, "session:s")


AS_GIVEN: dict[str, Any] = {
    "importance": 0.9,
    "kind": "decision",
    "confidence": 0.7,
    "structured": {"version": 21, "of": {"tool": "maven"}, "b": None},
}
"""Arguments that arrive as they are given."""
MAVEN_USED = {"name": " Maven ", "type": "tool", "relationship": "uses"}
STORED: dict[str, tuple[Any, Any]] = {
    **{name: (value, value) for name, value in AS_GIVEN.items()},
    "tags": ([" build ", "# java", "#build", "Cafe\u0301 "], ("build", "java", "Café")),
    "source": ({"tool": "Bash", "file": "pom.xml", "conversation_turn": 3}, SourceRef("Bash", "pom.xml", 3)),
    "related_entities": ([MAVEN_USED], (EntityRef("Maven", "tool", "uses"),)),
    "session_id": ("session:other", "session:other"),
    "summary": (" Java 21 ", "Java 21"),
    "domain": (" build ", "build"),
    "valid_from": ("2026-02-20", 1771545600.0),
    "valid_until": ("2026-03-20T00:00:00Z", 1773964800.0),
}
"""Arguments as they are given, and the fields that they become."""
FILTERS: dict[str, Any] = {
    "strategy": "keyword",
    "ranking": "composite",
    "limit": 50,
    "min_importance": 0.2,
    "include_forgotten": True,
}


def test_what_is_left_out_has_the_designs_defaults_and_all_that_is_given_arrives() -> None:
    known: dict[str, Any] = {"content": "The build needs Java 21", "type": "semantic", "scope": "project"}
    given_by_us: dict[str, Any] = {"memory_id": "", "session_id": "session:s", "importance": 0.5, "confidence": 0.8}
    assert store() == StoreMemory(**known, **given_by_us)
    assert recall() == Recall(project=PROJECT, session_id="session:s", query="build", strategy="hybrid", limit=10)
    change = store(type=None, **{name: given for name, (given, _) in STORED.items()})
    assert change == msgspec.structs.replace(store(), **{name: kept for name, (_, kept) in STORED.items()})
    lists = {"scope": ["user", "project"], "kind": ["fact", "decision", "fact"], "domain": ["auth", "auth"]}
    times = {"after": "2026-02-20", "before": "2026-02-20T14:30:00+01:00"}
    question = recall(**FILTERS, **lists, type="episodic", tags="#java", time_range=times)
    kept = {
        "scopes": ("user", "project"),
        "kinds": ("fact", "decision"),
        "domains": ("auth",),
        "tags": ("java", "#java"),
    }
    moments = {"after": 1771545600.0, "before": 1771594200.0}
    assert question == msgspec.structs.replace(recall(), **FILTERS, **kept, types=("episodic",), **moments)


def test_times_without_an_offset_are_in_utc() -> None:
    assert store(occurred_at="2026-02-20").occurred_at == 1771545600.0
    assert store(occurred_at="2026-02-20T01:00:00+01:00").occurred_at == 1771545600.0
    late_today = f"{datetime.now(UTC):%Y-%m-%d}T23:59:59Z"
    assert (store(occurred_at=late_today).occurred_at or 0.0) > 1771545600.0, "an hour of today may lie ahead"
    for call in (store, update):
        with pytest.raises(InvalidInput, match="is not a past day; give today"):
            call(occurred_at="2126-02-20")
    assert recall(reference_time=" 2026-02-20T00:00:00Z ").reference_time == 1771545600.0
    assert recall(reference_time="2026-02-20T09:00:00+09:00").reference_time == 1771545600.0


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
def test_an_argument_is_understood_in_each_form_of_clients(arguments: dict[str, Any], fields: dict[str, Any]) -> None:
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
        change = to_change(STORE.decode({**given, "kind": kind}), "session:s", LIMIT_BYTES, 0.0)
        assert (change.kind, change.type) == (kind, type_of_kind(kind))
        both = {**given, "kind": kind, "type": type_of_kind(kind)}
        assert to_change(STORE.decode(both), "session:s", LIMIT_BYTES, 0.0) == change
    assert store(type="procedural").kind is None
    for kind in ("scratchpad", "tool_outcome"):
        assert store(kind=kind, scope="project").scope == "session", "it is for its session alone"


def test_content_alone_is_enough_and_its_words_tell_the_kind() -> None:
    for content, kind in cases("tool_arguments", "kinds"):
        change = to_change(STORE.decode({"content": content}), "session:s", LIMIT_BYTES, 0.0)
        assert (change.kind, change.type, change.scope) == (kind, type_of_kind(kind), "project"), content
        assert change.importance == (0.5 if kind == "fact" else 0.7), content


def test_a_kind_only_guessed_makes_no_sessions_memory_matter_more() -> None:
    guessed = {"content": "I prefer short answers", "scope": "session", "session_id": "session:s"}
    for more, importance in cases("tool_arguments", "importances"):
        assert to_change(STORE.decode(guessed | more), "session:s", LIMIT_BYTES, 0.0).importance == importance, more


def test_the_subject_of_a_relationship_is_an_entity_and_a_fact_with_a_due_date_an_open_end() -> None:
    given = [{"name": "src/billing", "type": "module", "relationship": "owns", "subject": "Svetlana"}]
    assert store(related_entities=given).related_entities == (
        EntityRef("src/billing", "module", "owns", "Svetlana"),
        EntityRef("Svetlana", "concept", "mentioned_with"),
    )
    named = {"name": "svetlana", "type": "person", "relationship": "is"}
    assert len(store(related_entities=[*given, named]).related_entities) == 2
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
        self.sessions: defaultdict[str, SessionState] = defaultdict(SessionState)

    async def apply(self, operation: Operation, _: float) -> Written:
        self.written.append(operation)
        return Written(None)

    def session(self, of: Caller) -> SessionState:
        return self.sessions[of.session_id]

    async def ask(self, _: Request[Any], __: float) -> NoReturn:
        raise MemoryUnavailable("there is no store")

    require = ask

    def is_first_data_for(self, _: Caller) -> bool:
        return False


GIVEN: dict[str, dict[str, Any]] = {
    "store_memory": {"content": "The build needs Java 21", "type": "semantic", "scope": "project"},
    "recall_memories": {"query": "build"},
    "promote_memory": {"memory_id": ID, "target_scope": "user"},
    **{tool: {"memory_id": ID} for tool in ("update_memory", "tag_memory", "forget_memory", "restore_memory")},
}
"""The arguments that a call has unless it says otherwise."""


def asked(tool: str, **arguments: Any) -> Any:
    service = NoStore()
    raw = GIVEN.get(tool, {}) | arguments
    call = Call(tool, CALLER, 1, 0.0, raw, cast(MemoryService, service))
    with suppress(Queued):
        anyio.run(TOOLS[tool].run, call, TOOLS[tool].decoder.decode(raw))
    return service.written[0].change


update, tag, forget, promote, restore = (
    partial(asked, f"{verb}_memory") for verb in ("update", "tag", "forget", "promote", "restore")
)


def test_the_ids_of_a_call_follow_from_it_and_its_answer_stands_as_text_and_as_structure() -> None:
    raw = {"content": "The gate opens at seven"}
    service = NoStore()
    call = Call("store_memory", CALLER, 1, 0.0, raw, cast(MemoryService, service))
    answer = anyio.run(TOOLS["store_memory"].run, call, TOOLS["store_memory"].decoder.decode(raw))
    (operation,) = service.written
    assert operation.operation_id == derive_id("bridge", 1, "store_memory", raw)
    assert answer["memory_id"] == memory_id_of(operation.change) == derive_memory_id(operation.operation_id)
    result = tools.CallResult(
        {"memory_id": "m", "near": [1.5, None, "“ü"]}, tools.answer_text({"a": "“ü\n", "b": [1.5]})
    )
    response = msgspec.json.decode(result.response("7"))
    assert response == {
        "jsonrpc": "2.0",
        "id": "7",
        "result": {
            "content": [{"type": "text", "text": result.text}],
            "structuredContent": {"a": "“ü\n", "b": [1.5]},  # the text itself: the answer is not encoded again
            "isError": False,
        },
    }


async def test_a_short_id_is_of_the_memory_that_has_it_now_and_only_for_who_was_shown_it() -> None:
    service = NoStore()

    async def resolved(short: str, caller: Caller = CALLER) -> str:
        raw = {"memory_id": short, "add": ["a"]}
        call = Call("tag_memory", caller, 1, 0.0, raw, cast(MemoryService, service))
        await TOOLS["tag_memory"].answer(call, TOOLS["tag_memory"].decoder.decode(raw))
        return memory_id_of(service.written[-1].change) or ""

    shown = Call("recall_memories", CALLER, 1, 0.0, {}, cast(MemoryService, service))
    tools.note_short_ids(shown, {ID: ID[-4:]})
    assert await resolved(ID[-4:]) == ID
    tools.note_short_ids(shown, {ID: ID[-6:]})  # since another memory ends like it
    assert await resolved(ID[-6:]) == ID
    for short, caller in ((ID[-4:], CALLER), (ID[-6:], replace(CALLER, session_id="session:t"))):
        with pytest.raises(MemoryUnavailable, match="only a part of an id; give the whole id"):
            await resolved(short, caller)


METADATA = {"owner": "ana", "old": None, "deep": {"list": [1, 2.5, True]}}
UPDATED: dict[str, tuple[Any, dict[str, Any]]] = {
    **{name: (value, {name: value}) for name, value in AS_GIVEN.items()},
    "content": ("new", {"content": "new"}),
    "tags": (
        {"add": [" Cafe\u0301 ", "b", "#b"], "remove": ["#b", "#c"]},
        {"add_tags": ("Café", "b"), "remove_tags": ("b", "c", "#b", "#c")},
    ),
    "metadata": (METADATA, {"metadata": METADATA}),
    "related_entities": (
        {"add": [MAVEN_USED], "remove": ["Gradle", " Gradle"]},
        {"add_entities": (EntityRef("Maven", "tool", "uses"),), "remove_entities": ("Gradle",)},
    ),
    "summary": ("short", {"summary": "short"}),
    "domain": ("build", {"domain": "build"}),
    "valid_from": ("2026-02-20", {"valid_from": 1771545600.0}),
    "valid_until": ("2026-02-21", {"valid_until": 1771632000.0}),
    "occurred_at": ("2026-02-20", {"occurred_at": 1771545600.0}),
    "add_links": (
        [{"relation": "supersedes", "target": OTHER.lower().removeprefix("memory:")}] * 2,
        {"add_links": (LinkRef("supersedes", OTHER),)},
    ),
    "remove_links": (
        [{"relation": "supports", "target": OTHER}],
        {"remove_links": (LinkRef("supports", OTHER),)},
    ),
}


def test_everything_that_is_given_of_a_change_arrives() -> None:
    fields: dict[str, Any] = {name: value for _, kept in UPDATED.values() for name, value in kept.items()}
    assert update(**{name: given for name, (given, _) in UPDATED.items()}) == UpdateMemory(ID, **fields)
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
    assert update(occurred_at="") == UpdateMemory(ID, cleared=("occurred_at",))
    assert update(valid_from="", valid_until="1970-01-01") == UpdateMemory(ID, valid_until=0.0, cleared=("valid_from",))


@pytest.mark.parametrize("call", [partial(update, content="x"), partial(tag, add="x"), forget, promote, restore])
def test_what_is_no_id_is_refused_by_every_tool(call: Any) -> None:
    for memory_id in ("", "memory:", "x" * 26, "session:" + BARE, ID + "0", "memory:\ud800"):
        with pytest.raises(InvalidInput) as caught:
            call(memory_id=memory_id)
        assert caught.value.field == "memory_id"
        caught.value.message.encode()


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
    ("store_memory", {"tags": [f"t{n}" for n in range(10_000)]}, "tags", "at most 100 items"),
    ("store_memory", {"tags": ["a\udfff"]}, "tags[0]", "surrogate"),
    ("store_memory", {"tags": {"a": None}}, "tags", "expected a list"),
    (
        "store_memory",
        {"related_entities": [{"name": f"n{n}", "type": "b", "relationship": "c"} for n in range(101)]},
        "related_entities",
        "at most 100 items",
    ),
    ("store_memory", {"summary": "x" * 2001}, "summary", ""),
    ("store_memory", {"structured": {"x": "y" * 70_000}}, "structured", ""),
    ("recall_memories", {"query": "x" * 20_000}, "query", "bytes"),
    ("update_memory", {"metadata": {"a": {"x\udfff": 1}}}, "metadata", "lone surrogate"),
    ("update_memory", {"content": "x" * 262_145}, "content", "262144 bytes"),
    ("update_memory", {"tags": {"add": [f"t{n}" for n in range(101)]}}, "tags.add", "at most 100 items"),
    ("update_memory", {"related_entities": {"remove": ["a"] * 101}}, "related_entities.remove", "at most 100 items"),
    ("update_memory", {"metadata": {"a": ["x\ud800"]}}, "metadata", "lone surrogate"),
    ("update_memory", {"metadata": {"a": "x" * 65_536}}, "metadata", "65536 bytes"),
    ("update_memory", {"remove_links": [{"relation": "supports", "target": OTHER}] * 101}, "remove_links", "100 items"),
    ("forget_memory", {"reason": "x" * 2001}, "reason", "2000 characters"),
    ("promote_memory", {"target_scope": None}, "target_scope", "one of project, user"),
    ("promote_memory", {"reason": "\ud800"}, "reason", "surrogate"),
    ("get_memory_context", {"files_in_context": ["a.py"] * (MAX_FILES + 1)}, "files_in_context", ""),
    ("search_knowledge_graph", {"entity": "x" * 201}, "entity", ""),
]


@pytest.mark.parametrize("tool", sorted({each for each, *_ in ERRORS}))
def test_an_error_names_its_field_and_the_limits(tool: str) -> None:
    for arguments, field, said in (case for each, *case in ERRORS if each == tool):
        with pytest.raises(InvalidInput) as caught:
            asked(tool, **arguments)
        assert (caught.value.field or "", said in caught.value.message) == (field, True), caught.value.message
        caught.value.message.encode()  # an error that cannot be sent would be none


# --- The tools' input schemas: plain enough for every client, and small.
class Inner(msgspec.Struct):
    name: str


class Outer(msgspec.Struct):
    """For the readers of the code."""

    title: str
    kind: Literal["a", "b"]
    inner: Annotated[list[Inner], Meta(description="some")] | None = None
    level: Annotated[int, Meta(ge=1, le=5)] | None = None


def test_a_schema_is_inlined_and_says_what_is_required_and_no_more() -> None:
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
    store, recall = input_schema(StoreMemoryArguments), input_schema(RecallMemoriesArguments)
    assert "required" not in store, "content is missing only where there are no memories either"
    assert set(store["properties"]["memories"]["items"]["properties"]) == set(store["properties"]) - {"memories"}
    assert recall["required"] == ["query"]


def test_no_schema_has_what_some_clients_cannot_read() -> None:
    for each in load_tools():
        written = json.dumps(each.decoder.schema)
        assert [key for key in ("$ref", "$defs", "anyOf", "oneOf", "allOf") if f'"{key}"' in written] == [], each.name


# --- A tool registers itself, once, in the toolset of its folder; and what is said beside its answer or instead of it.
class NoArguments(msgspec.Struct):
    pass


class OneArgument(msgspec.Struct):
    memory_id: str


def test_every_combination_of_toolsets_has_each_tool_of_a_module_once_and_within_its_tokens() -> None:
    tools = load_tools()
    assert {each.toolset for each in tools} == {"admin", "code", "directory", "files", "graph", "memory", "nodes"}
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


def test_unlisted_arguments_may_be_left_out_and_each_is_given_under_one_of_its_names() -> None:
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
    decoder = ArgumentDecoder(OneArgument, {"id": "memory_id"})
    assert decoder.decode({"id": "a"}) == decoder.decode({"memory_id": "a"}) == OneArgument("a")
    with pytest.raises(InvalidInput, match="id is another name for memory_id"):
        decoder.decode({"id": "a", "memory_id": "a"})


def test_an_unknown_toolset_or_tool_is_told_of_and_the_most_serious_warning_comes_first() -> None:
    tools = load_tools()
    chosen, notices = choose_tools(tools, "memroy")
    assert chosen == choose_tools(tools, None)[0]
    assert [notice.code for notice in notices] == ["unknown_toolset"]
    assert "valid names are admin, code, directory, files, graph, memory, nodes" in notices[0].message
    assert {each.toolset for each in tools} == set(TOOLSETS)
    known = ["store_memory", "recall_memories"]
    listed = "valid names are store_memory, recall_memories"
    assert nearest("store_memroy", known) == f": did you mean store_memory? ({listed})"
    assert nearest("zzzz", known) == f": {listed}"
    call = Call("store_memory", CALLER, 1, 0.0, {}, cast(MemoryService, NoStore()))
    call.notices = [Notice(code, f"about {code}") for code in ("unknown_toolset", "queued")]
    formed = call.with_caveats({})
    call.notices = [Notice("embedding_failed", "why")]
    formed = call.with_caveats(formed)
    assert [each["code"] for each in formed["warnings"]] == ["embedding_failed", "queued", "unknown_toolset"]
    assert set(formed) == {"warnings"}
