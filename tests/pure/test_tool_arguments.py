"""Arguments of the `memory` tools: what is accepted, and the errors that name the field and what is allowed."""

from __future__ import annotations

from typing import Any

import pytest

from remembrancer.memory.promotion import DEFAULT_PROMOTION, promotion_score
from remembrancer.protocol.errors import InvalidInput
from remembrancer.protocol.kinds import KINDS, type_of_kind
from remembrancer.protocol.reads import Recall
from remembrancer.protocol.writes import EntityRef, ProjectRef, SourceRef, StoreMemory
from remembrancer.toolsets.arguments import ArgumentDecoder
from remembrancer.toolsets.memory.get_memory_status import GetMemoryStatusArguments
from remembrancer.toolsets.memory.recall_memories import RecallMemoriesArguments, to_recall
from remembrancer.toolsets.memory.store_memory import StoreMemoryArguments, to_change

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


def test_everything_that_is_given_arrives() -> None:
    change = store(
        importance=0.9,
        tags=[" build ", "java", "build"],
        source={"tool": "Bash", "file": "pom.xml", "conversation_turn": 3},
        related_entities=[{"name": "Maven", "type": "tool", "relationship": "uses"}],
        session_id="session:other",
    )
    assert change.importance == 0.9
    assert change.tags == ("build", "java")
    assert change.source == SourceRef("Bash", "pom.xml", 3)
    assert change.related_entities == (EntityRef("Maven", "tool", "uses"),)
    assert change.session_id == "session:other"


def test_a_kind_that_there_is_none_of_is_named() -> None:
    with pytest.raises(InvalidInput, match=r"kind\[1\] must be one of .*decision.*, not .*opinion"):
        recall(kind=["fact", "opinion"])


def test_a_value_of_another_field_is_recognised() -> None:
    with pytest.raises(InvalidInput, match=r"type must be one of .*, not 'decision': that is a value of kind$"):
        store(type="decision")


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
    assert question.scopes == ("user", "project")
    assert question.kinds == ("fact", "decision")
    assert question.domains == ("auth",)
    assert question.types == ("episodic",)
    assert question.tags == ("java",)
    assert (question.after, question.before) == (1771545600.0, 1771594200.0)
    assert (question.strategy, question.limit, question.min_importance) == ("keyword", 50, 0.2)
    assert question.include_forgotten


def test_times_without_an_offset_are_in_utc_and_may_be_to_come() -> None:
    assert store(occurred_at="2026-02-20").occurred_at == 1771545600.0
    assert store(occurred_at="2126-02-20T01:00:00+01:00").occurred_at == 4927219200.0
    assert store().occurred_at is None
    assert recall(reference_time=" 2026-02-20T00:00:00Z ").reference_time == 1771545600.0
    assert recall().reference_time is None


@pytest.mark.parametrize(
    ("moment", "utc_offset_s"),
    [
        ("2026-02-20T01:00:00+09:00", 32400.0),
        (" 2026-02-20T01:00:00-03:30", -12600.0),
        ("2026-02-20T01:00:00Z", 0.0),
        ("2026-02-20T01:00:00", None),
        ("2026-02-20", None),
    ],
)
def test_whose_days_a_question_means_is_the_offset_of_its_reference_time(
    moment: str, utc_offset_s: float | None
) -> None:
    assert recall(reference_time=moment).utc_offset_s == utc_offset_s
    assert recall().utc_offset_s is None


def test_passages_are_asked_for_only_where_there_may_be_no_room_for_the_whole() -> None:
    assert recall(max_tokens=500).with_passages
    assert not recall().with_passages


def test_the_store_counts_as_accessed_only_what_is_shown_for_sure() -> None:
    assert recall().counts_accesses
    assert not recall(max_tokens=500).counts_accesses


def test_a_bare_string_stands_for_a_list_of_one() -> None:
    assert store(tags="java").tags == ("java",)
    assert recall(scope="user").scopes == ("user",)


def test_null_stands_for_an_optional_field_that_is_left_out() -> None:
    assert store(tags=None, source=None) == store()


def test_names_are_trimmed_and_composed() -> None:
    assert store(tags=["Cafe\u0301 "]).tags == ("Café",)


def test_a_name_keeps_the_joiners_that_scripts_and_emoji_need() -> None:
    names = ["می\u200cخواهم", "👩\u200d👧", "שלום", "नमस्\u200dते"]
    assert store(tags=names).tags == tuple(names)


@pytest.mark.parametrize(
    "character",
    [*"\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f\u061c", *"\u2028\u2029\u200b\ufeff"],
    ids=ascii,
)
def test_a_name_has_nothing_that_cannot_be_seen_or_turns_the_writing(character: str) -> None:
    with pytest.raises(InvalidInput, match="control characters") as caught:
        store(tags=[f"a{character}b"])
    assert caught.value.field == "tags[0]"
    assert caught.value.message.isascii()


def test_a_whole_number_may_be_written_with_a_point() -> None:
    question = recall(limit=10.0)
    assert question.limit == 10
    assert isinstance(question.limit, int)
    assert store(source={"conversation_turn": 3.0}).source.conversation_turn == 3


def test_content_is_kept_as_it_is() -> None:
    text = "  line one\r\n\tline two\x1b[0m Cafe\u0301 "
    assert store(content=text).content == text


@pytest.mark.parametrize(
    ("arguments", "field", "said"),
    [
        ({"contents": "x"}, "contents", "did you mean content?"),
        ({"content": "x", "entities": []}, "entities", "did you mean related_entities?"),
        ({"\ud800": "x"}, "\\ud800", "unknown field"),
        ({"content": 5}, "content", "must be a string"),
        ({"content": None}, "content", "must be a string"),
        ({"content": " \n"}, "content", "must not be empty"),
        ({"content": "x" * 2_000_000}, "content", "262144 bytes"),
        ({"content": "ü" * 131_073}, "content", "has 262146"),
        ({"content": "a\0b"}, "content", "NUL"),
        ({"content": "a\ud800"}, "content", "lone surrogate"),
        ({"type": "opinion"}, "type", "one of episodic, procedural, semantic"),
        ({"scope": "team"}, "scope", "one of project, session, user"),
        ({"importance": 1.01}, "importance", "a number from 0 to 1"),
        ({"importance": -0.1}, "importance", "a number from 0 to 1"),
        ({"importance": float("nan")}, "importance", "a number from 0 to 1"),
        ({"importance": "0.5"}, "importance", "a number from 0 to 1"),
        ({"importance": True}, "importance", "a number from 0 to 1, not true"),
        ({"tags": [f"t{n}" for n in range(10_000)]}, "tags", "100 items at most"),
        ({"tags": ["x" * 101]}, "tags[0]", "100 characters"),
        ({"tags": ["ok", ""]}, "tags[1]", "must not be empty"),
        ({"tags": ["a\nb"]}, "tags[0]", "control characters"),
        ({"tags": ["a\0b"]}, "tags[0]", "control characters"),
        ({"tags": ["a\udfff"]}, "tags[0]", "surrogate"),
        ({"tags": [1]}, "tags[0]", "must be a string"),
        ({"tags": {"a": None}}, "tags", 'must be a list, each item a string, not {"a": null}'),
        ({"source": {"turn": 1}}, "source.turn", "conversation_turn"),
        ({"source": '{"turn": 1}'}, "source.turn", "did you mean conversation_turn?"),
        ({"source": {"conversation_turn": -1}}, "source.conversation_turn", "from 0"),
        ({"source": {"conversation_turn": 10**30}}, "source.conversation_turn", "from 0"),
        ({"source": "Bash"}, "source", "an object with the fields tool, file, conversation_turn"),
        ({"related_entities": [{"name": "a", "type": "b"}]}, "related_entities[0].relationship", "is missing"),
        ({"related_entities": [{"name": "", "type": "b", "relationship": "c"}]}, "related_entities[0].name", "empty"),
        (
            {"related_entities": [{"name": f"n{n}", "type": "b", "relationship": "c"} for n in range(101)]},
            "related_entities",
            "100 items at most",
        ),
        ({"session_id": ""}, "session_id", "must not be empty"),
        ({"session_id": "session:other", "scope": "session"}, "session_id", "a session's memories are its own"),
        ({"wait_for_embedding": "yes"}, "wait_for_embedding", "true or false"),
        ({"occurred_at": "yesterday"}, "occurred_at", "ISO 8601"),
        ({"occurred_at": "2026-02-30"}, "occurred_at", "ISO 8601"),
        ({"occurred_at": "0001-01-01T00:00+10:00"}, "occurred_at", "ISO 8601"),
        ({"occurred_at": 1771545600}, "occurred_at", "must be a string"),
    ],
)
def test_store_memory_names_the_field_and_what_is_allowed(arguments: dict[str, Any], field: str, said: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        store(**arguments)
    assert caught.value.field == field
    assert said in caught.value.message
    caught.value.message.encode()  # an error that cannot be sent would be none


@pytest.mark.parametrize(
    ("arguments", "field", "said"),
    [
        ({"query": ""}, "query", "must not be empty"),
        ({"query": "x" * 20_000}, "query", "bytes"),
        ({"limit": 0}, "limit", "an integer from 1 to 50"),
        ({"limit": 51}, "limit", "an integer from 1 to 50"),
        ({"limit": 10.5}, "limit", "an integer from 1 to 50"),
        ({"limit": float("inf")}, "limit", "an integer from 1 to 50"),
        ({"limit": 10**30}, "limit", "an integer from 1 to 50"),
        ({"strategy": "magic"}, "strategy", "one of graph, hybrid, keyword, vector"),
        ({"scope": ["user", "team"]}, "scope[1]", "one of project, session, user"),
        ({"min_importance": 2}, "min_importance", "a number from 0 to 1"),
        ({"time_range": {"since": "2026"}}, "time_range.since", "known are after, before"),
        ({"time_range": {"after": "yesterday"}}, "time_range.after", "ISO 8601"),
        ({"time_range": {"after": "2026-13-01"}}, "time_range.after", "ISO 8601"),
        ({"time_range": {"after": "2026-03-01", "before": "2026-02-01"}}, "time_range.after", "later than"),
        ({"include_forgotten": 1}, "include_forgotten", "true or false"),
        ({"reference_time": "next week"}, "reference_time", "ISO 8601"),
        ({"max_tokens": 49}, "max_tokens", "an integer from 64 to 100000"),
        ({"max_tokens": 100_001}, "max_tokens", "an integer from 64 to 100000"),
        ({"detail": "all"}, "detail", "true or false"),
    ],
)
def test_recall_memories_names_the_field_and_what_is_allowed(arguments: dict[str, Any], field: str, said: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        recall(**arguments)
    assert caught.value.field == field
    assert said in caught.value.message


def test_a_missing_field_is_named_with_what_it_must_be() -> None:
    with pytest.raises(InvalidInput) as caught:
        STORE.decode({"scope": "user", "type": "semantic"})
    assert caught.value.field == "content"
    assert caught.value.message == "content is missing: it must be a string"


def test_a_kind_implies_the_type_and_a_type_alone_leaves_the_kind_open() -> None:
    given = {"content": "x", "scope": "session"}
    for kind in KINDS:
        change = to_change(STORE.decode({**given, "kind": kind}), "session:s", LIMIT_BYTES)
        assert (change.kind, change.type) == (kind, type_of_kind(kind))
        both = {**given, "kind": kind, "type": type_of_kind(kind)}
        assert to_change(STORE.decode(both), "session:s", LIMIT_BYTES) == change
    assert store(type="procedural").kind is None


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        ("Staging runs PostgreSQL 15", "fact"),
        ("We decided to page by cursor", "decision"),
        ("The fix was to raise the pool's size", "error_fix"),
        ("Svetlana prefers tabs", "preference"),
        ("To release, tag the commit and push", "procedure"),
        ("Never log request bodies", "convention"),
    ],
)
def test_content_alone_is_enough_and_its_words_tell_the_kind(content: str, kind: str) -> None:
    change = to_change(STORE.decode({"content": content}), "session:s", LIMIT_BYTES)
    assert (change.kind, change.type, change.scope) == (kind, type_of_kind(kind), "project")  # type: ignore[arg-type]
    assert change.importance == (0.5 if kind == "fact" else 0.7)


def test_what_a_model_bothered_to_store_leaves_its_session_by_default() -> None:
    for kind in ("decision", "error_fix"):
        change = to_change(STORE.decode({"content": "x", "kind": kind, "scope": "session"}), "session:s", LIMIT_BYTES)
        score = promotion_score(change.importance, change.confidence, 0, kind, has_vectors=False)
        assert score >= DEFAULT_PROMOTION.session_end_score


def test_a_kind_decides_the_type() -> None:
    assert store(kind="decision").type == "episodic"


@pytest.mark.parametrize("kind", ["scratchpad", "tool_outcome"])
def test_what_is_for_a_session_alone_stays_in_it(kind: str) -> None:
    for scope in ("project", "session"):
        assert store(kind=kind, scope=scope).scope == "session"


@pytest.mark.parametrize("tags", ['["a", "b"]', ' [ "a","b" ]', ["a", "b"]])
def test_a_list_may_come_as_a_text_in_json(tags: Any) -> None:
    assert store(tags=tags).tags == ("a", "b")
    named = '[{"name": "Maven", "type": "tool", "relationship": "uses"}]'
    assert store(related_entities=named).related_entities == (EntityRef("Maven", "tool", "uses"),)
    assert store(source='{"tool": "Bash"}').source == SourceRef("Bash")


def test_a_text_that_begins_like_a_list_and_is_none_is_refused() -> None:
    with pytest.raises(InvalidInput, match="tags must be a list, each item a string"):
        store(tags='["a", b]')
    assert store(content='["a"]').content == '["a"]'


def test_the_other_fields_arrive() -> None:
    change = store(
        kind="fact",
        summary=" Java 21 ",
        confidence=0.9,
        domain=" build ",
        structured={"version": 21, "of": {"tool": "maven"}},
        valid_from="2026-02-20",
        valid_until="2026-03-20T00:00:00Z",
    )
    assert (change.summary, change.confidence, change.domain) == ("Java 21", 0.9, "build")
    assert change.structured == {"version": 21, "of": {"tool": "maven"}}
    assert (change.valid_from, change.valid_until) == (1771545600.0, 1773964800.0)


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"kind": "thought"}, "kind"),
        ({"confidence": 1.5}, "confidence"),
        ({"summary": " "}, "summary"),
        ({"summary": "x" * 2001}, "summary"),
        ({"domain": "a\nb"}, "domain"),
        ({"structured": {"x": float("inf")}}, "structured.x"),
        ({"structured": {"x": "y" * 70_000}}, "structured"),
        ({"valid_from": "soon"}, "valid_from"),
        ({"valid_from": "2026-02-20", "valid_until": "2026-02-20"}, "valid_until"),
    ],
)
def test_a_wrong_one_of_the_other_fields_is_named(arguments: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        store(**arguments)
    assert caught.value.field == field


def test_the_type_of_an_entity_is_kept_as_given() -> None:
    given = [{"name": name, "type": name, "relationship": "is"} for name in ("Library", "source-file", "component")]
    assert [entity.type for entity in store(related_entities=given).related_entities] == [
        "Library",
        "source-file",
        "component",
    ]


def test_the_subject_of_a_relationship_is_an_entity_of_the_memory_too() -> None:
    given = [{"name": "src/billing", "type": "module", "relationship": "owns", "subject": "Svetlana"}]
    assert store(related_entities=given).related_entities == (
        EntityRef("src/billing", "module", "owns", "Svetlana"),
        EntityRef("Svetlana", "concept", "mentioned_with"),
    )
    named = {"name": "svetlana", "type": "person", "relationship": "is"}
    assert len(store(related_entities=[*given, named]).related_entities) == 2


def test_a_profile_is_one_of_six() -> None:
    assert recall(profile="debugging").profile == "debugging"
    assert recall().profile is None
    with pytest.raises(InvalidInput, match="new_project"):
        recall(profile="everything")


def test_get_memory_status_takes_nothing() -> None:
    decoder = ArgumentDecoder(GetMemoryStatusArguments)
    assert decoder.decode({}) == GetMemoryStatusArguments()
    with pytest.raises(InvalidInput, match="there are none"):
        decoder.decode({"verbose": True})
