"""The promises of the graph of records."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from remembrancer.actors.store.records.contract import EdgeRow, EntityFilter, EntityRow, Filters, Phrase
from remembrancer.actors.store.records.sqlite_graph import MOST_ROWS, SqliteGraph
from remembrancer.actors.store.records.sqlite_records import Records
from remembrancer.protocol.writes import Applied, EntityRef, ForgetMemory, LinkRef, Operation, UpdateMemory
from tests.contracts.records_factories import SqliteFactory
from tests.operations import (
    OTHER_SESSION,
    PROJECT,
    REQUESTED_AT,
    SESSION,
    change_operation,
    memory_id_of,
    store_operation,
)


def ref(text: str) -> EntityRef:
    """`name:type:relationship`, the last two of which have defaults."""
    name, kind, relationship = (*text.split(":"), "", "")[:3]
    return EntityRef(name, kind or "thing", relationship or "about")


def say(records: Records, content: str, *entities: str, **fields: Any) -> Operation:
    """Store a memory that names entities, the first one as the subject of the others' relationships."""
    refs = tuple(ref(each) for each in entities)
    related = (*refs[:1], *(replace(each, subject=refs[0].name) for each in refs[1:]))
    operation = store_operation(content, content, related_entities=related, **fields)
    apply(records, operation)
    return operation


def apply(records: Records, *operations: Operation) -> None:
    for outcome in records.apply(operations):
        assert isinstance(outcome.reply, Applied), outcome.reply


def forget(records: Records, stored: Operation) -> None:
    change = ForgetMemory(memory_id_of(stored))
    apply(records, Operation(f"forget {stored.operation_id}", PROJECT, SESSION, REQUESTED_AT, change))


def link(source: Operation, target: Operation) -> Operation:
    change = UpdateMemory(memory_id_of(source), add_links=(LinkRef("supports", memory_id_of(target)),))
    return change_operation(f"link {source.operation_id}", change, session_id=source.session_id)


def number_of(records: Records, stored: Operation) -> int:
    number = records.number_of(memory_id_of(stored))
    assert number is not None
    return number


def numbers(graph: SqliteGraph, *names: str, session_id: str = SESSION) -> list[int]:
    return [row.number for name in names for row in graph.entities(EntityFilter(session_id, name=name))]


def named(rows: Sequence[EntityRow]) -> list[str]:
    return [row.name for row in rows]


def edges(
    graph: SqliteGraph,
    name: str,
    *,
    session_id: str = SESSION,
    relationships: frozenset[str] | None = None,
) -> set[tuple[str, str, str, int, int]]:
    """All edges of an entity by the names of their ends, with how many memories say them and how many said them."""
    own = numbers(graph, name, session_id=session_id)
    found: set[tuple[str, str, str, int, int]] = set()
    for outgoing in (True, False):
        rows = graph.edges(own, session_id, outgoing=outgoing, relationships=relationships)
        assert not rows.cut
        for row in rows.rows:
            names = {
                each.number: each.name for each in graph.entities(EntityFilter("", numbers=[row.subject, row.target]))
            }
            found.add((names[row.subject], row.relationship, names[row.target], row.live, row.forgotten))
    return found


def test_no_edge_of_a_relationship_means_that_none_were_left_out(records: Records) -> None:
    said = [(ref("Hub"), replace(ref(f"Other{number % 7}::uses"), subject="Hub")) for number in range(MOST_ROWS + 10)]
    apply(records, *(store_operation(str(n), str(n), related_entities=both) for n, both in enumerate(said)))
    hub = numbers(records.graph, "Hub")
    found = records.graph.edges(hub, SESSION, outgoing=True, relationships=frozenset({"aliasof"}))
    assert (found.rows, found.cut) == ([], False)
    assert records.graph.edges(hub, SESSION, outgoing=True, relationships=frozenset({"uses"})).cut


def test_the_first_entity_of_a_memory_is_the_subject_of_its_edges(records: Records) -> None:
    say(records, "one", "AuthService:component", "TokenValidator:component:depends_on", "Ada:person:written_by")
    assert edges(records.graph, "AuthService") == {
        ("AuthService", "depends_on", "TokenValidator", 1, 0),
        ("AuthService", "written_by", "Ada", 1, 0),
    }
    assert edges(records.graph, "Ada") == {("AuthService", "written_by", "Ada", 1, 0)}
    assert edges(records.graph, "TokenValidator") == {("AuthService", "depends_on", "TokenValidator", 1, 0)}


def test_every_memory_that_says_an_edge_counts_and_a_forgotten_one_apart(records: Records) -> None:
    first = say(records, "one", "A", "B::uses")
    say(records, "two", "A", "B::uses")
    say(records, "three", "A", "B::calls")
    forget(records, first)
    assert edges(records.graph, "A") == {("A", "uses", "B", 1, 1), ("A", "calls", "B", 1, 0)}
    assert records.graph.memory_counts([numbers(records.graph, "A"), numbers(records.graph, "A", "B")], SESSION) == [
        2,
        2,
    ]


def test_memories_entities_and_links_are_one_undirected_graph_of_what_the_session_sees(records: Records) -> None:
    one = say(records, "one", "A", "B::uses")
    two = say(records, "two", "a", "C", scope="session")
    theirs = say(records, "theirs", "A", "D::uses", scope="session", session_id=OTHER_SESSION)
    gone = say(records, "gone", "A", "E::uses")
    alike = [LinkRef(relation, memory_id_of(one)) for relation in ("contradicts", "similar_to")]
    change = UpdateMemory(memory_id_of(two), add_links=tuple(alike))  # of one and the same thing: nothing is joined
    apply(records, link(two, one), link(theirs, one), change_operation("alike", change))
    forget(records, gone)
    first, second = number_of(records, one), number_of(records, two)
    graph = records.graph
    rows = graph.around({first: 9, second: 9}, {"a": 9, "b": 9, "unknown": 9}, SESSION)
    assert {(here, there) for here, there, _ in rows if there is not None} == {
        (first, "a"),
        (first, "b"),
        (first, second),
        (second, "a"),
        (second, "c"),
        (second, first),
        ("a", first),
        ("a", second),
        ("a", "b"),
        ("a", "c"),
        ("b", first),
        ("b", "a"),
    }
    degrees = {here: degree for here, there, degree in rows if there is None}
    assert (degrees[first], degrees[second]) == (4, 3), "with the link of another session, and none of what is alike"
    assert degrees["a"] >= 3
    assert "unknown" not in degrees
    few = graph.around({first: 3, second: 3}, {}, SESSION)
    assert {here for here, there, _ in few if there is not None} == {second}, "the other has more edges than that"
    assert graph.around({}, {}, SESSION) == []


def test_edges_are_chosen_by_the_key_of_their_relationship(records: Records) -> None:
    say(records, "one", "A", "B::depends_on", "C::Depends-On", "D::uses")
    found = edges(records.graph, "A", relationships=frozenset({"dependson"}))
    assert {target for _, _, target, _, _ in found} == {"B", "C"}
    assert edges(records.graph, "D", relationships=frozenset({"dependson"})) == set()
    assert records.graph.summary(SESSION, frozenset({"uses"}), 9).relationship_types == {"uses": 1}


def test_another_sessions_memories_make_no_entity_no_edge_and_no_count(records: Records) -> None:
    say(records, "mine", "A", "B::uses", scope="session")
    say(records, "theirs", "A", "B::owns", "Secret::hides", scope="session", session_id=OTHER_SESSION, tags=("secret",))
    say(records, "theirs too", "Secret", "A::knows", scope="session", session_id=OTHER_SESSION)
    graph = records.graph
    assert edges(graph, "A") == {("A", "uses", "B", 1, 0)}
    assert edges(graph, "Secret") == set()
    assert graph.entities(EntityFilter(SESSION, name="Secret")) == []
    assert graph.entities(EntityFilter(SESSION, keys=["secret"])) == []
    assert graph.entities(EntityFilter(SESSION, beginning="se", limit=9)) == []
    assert graph.entities(EntityFilter(SESSION, phrases=[Phrase("secret")], limit=9)) == []
    assert graph.uses("entity", "", SESSION) == [("A", 1), ("B", 1)]
    assert dict(graph.uses("tag", "", SESSION)) == {}
    assert graph.memory_counts([numbers(graph, "A")], SESSION) == [1]
    summary = graph.summary(SESSION, None, 9)
    assert (summary.entities, summary.relationships) == (2, 1)
    assert summary.relationship_types == {"uses": 1}
    assert list(graph.memories(numbers(graph, "A"), Filters(SESSION), 9)) == [1]
    assert named(graph.entities(EntityFilter(OTHER_SESSION, name="Secret"))) == ["Secret"]
    assert len(edges(graph, "Secret", session_id=OTHER_SESSION)) == 2
    assert dict(graph.uses("tag", "SEC", OTHER_SESSION)) == {"secret": 1}


def test_entities_are_found_by_name_by_key_by_words_and_by_their_beginning(records: Records) -> None:
    say(records, "one", "AuthService:component", "auth-service:file", "Harbour Master:person", "Authors:team")
    graph = records.graph
    assert named(graph.entities(EntityFilter(SESSION, name="AuthService"))) == ["AuthService"]
    assert graph.entities(EntityFilter(SESSION, name="authservice")) == []
    assert named(graph.entities(EntityFilter(SESSION, keys=["authservice", "nothing"]))) == [
        "AuthService",
        "auth-service",
    ]
    assert named(graph.entities(EntityFilter(SESSION, phrases=[Phrase("harbours")], limit=9))) == ["Harbour Master"], (
        "words are stemmed"
    )
    assert set(named(graph.entities(EntityFilter(SESSION, phrases=[Phrase("service")], limit=9)))) == {
        "AuthService",
        "auth-service",
    }
    assert len(graph.entities(EntityFilter(SESSION, phrases=[Phrase("service")], limit=1))) == 1
    assert named(graph.entities(EntityFilter(SESSION, beginning="auth", limit=9))) == [
        "Authors",
        "AuthService",
        "auth-service",
    ]
    assert len(graph.entities(EntityFilter(SESSION, beginning="auth", limit=2))) == 2


def test_a_name_is_kept_and_found_whatever_is_in_it(records: Records) -> None:
    names = ["' OR 1=1 --", '"quoted"', "100%_*", "日本語", "🦀", "NEAR(a b)", "\U0010ffff", "a\\b"]
    say(records, "one", *(f"{name}:thing" for name in names))
    graph = records.graph
    for name in names:
        (row,) = graph.entities(EntityFilter(SESSION, name=name))
        assert name in named(graph.entities(EntityFilter(SESSION, keys=[row.key])))
    assert len(graph.uses("entity", "", SESSION)) == len(names) - 1, "nothing sorts after the last letter of all"


def test_the_most_important_and_the_latest_memories_of_entities_are_found(records: Records) -> None:
    important = say(records, "important", "A", importance=0.9, requested_at=REQUESTED_AT)
    middling = say(records, "middling", "A", importance=0.8, requested_at=REQUESTED_AT + 1)
    plain = say(records, "plain", "A", "B::uses", importance=0.1, requested_at=REQUESTED_AT + 2)
    latest = say(records, "latest", "B", importance=0.1, occurred_at=REQUESTED_AT + 99)
    forgotten = say(records, "forgotten", "A", importance=1.0, requested_at=REQUESTED_AT + 100)
    forget(records, forgotten)
    graph, seen = records.graph, Filters(SESSION)

    def found(limit: int, *names: str, filters: Filters = seen) -> set[int]:
        facts = graph.memories(numbers(graph, *names), filters, limit)
        assert records.ranking_facts(list(facts), filters) == facts
        return set(facts)

    assert found(1, "A") == {number_of(records, important), number_of(records, plain)}
    assert found(1, "A", "B") == {number_of(records, important), number_of(records, latest)}
    every = {number_of(records, each) for each in (important, middling, plain, latest)}
    assert found(9, "A", "B") == every
    assert found(9, "A", "B", filters=Filters(SESSION, min_importance=0.85)) == {number_of(records, important)}
    assert number_of(records, forgotten) in found(9, "A", filters=Filters(SESSION, include_forgotten=True))
    assert found(9) == set()


def test_an_edge_between_entities_is_there_only_where_both_its_ends_are_named(records: Records) -> None:
    owner, module = EntityRef("Svetlana", "person", "owns"), EntityRef("src/billing", "module", "owned_by")
    apply(records, store_operation("a", "a", related_entities=(owner, module)))
    database = EntityRef("PostgreSQL", "database", "uses", "PaymentAPI")
    apply(records, store_operation("b", "b", related_entities=(database, EntityRef("PaymentAPI", "service", "about"))))
    assert edges(records.graph, "Svetlana") == {("Svetlana", "mentioned_with", "src/billing", 1, 0)}
    assert edges(records.graph, "PaymentAPI") == {("PaymentAPI", "uses", "PostgreSQL", 1, 0)}
    found = numbers(records.graph, "Svetlana", "src/billing")
    facts = records.graph.memories(found, Filters(SESSION), 9, frozenset({"ownedby"}))
    assert len(facts) == 1, "memories are chosen by their own relationship to an entity"
    assert records.graph.memories(found, Filters(SESSION), 9, frozenset({"uses"})) == {}
    whole = records.portable(memory_id_of(store_operation("b", "b")), None)
    assert whole is not None
    assert whole.related_entities[0] == database


def test_the_entities_of_memories_are_told(records: Records) -> None:
    stored = say(records, "one", "A", "B::uses", "B::calls")
    links = records.graph.links_of([number_of(records, stored)])
    assert sorted(link.entity for link in links) == sorted(numbers(records.graph, "A", "B")), "once each"


def test_a_summary_counts_and_names_the_best_connected(records: Records) -> None:
    say(records, "one", "Hub:service", "A:file:uses", "B:file:uses", "C:person:owns")
    say(records, "two", "Hub:service", "A:file:uses")
    say(records, "three", "Alone:file")
    summary = records.graph.summary(SESSION, None, 1)
    assert (summary.entities, summary.relationships) == (5, 3)
    assert len(records.graph.summary(SESSION, None, 9).connected) == 5, "also what is connected with nothing"
    assert summary.entity_types == {"file": 3, "person": 1, "service": 1}
    assert summary.relationship_types == {"owns": 1, "uses": 2}
    assert summary.connected == {numbers(records.graph, "Hub")[0]: 3}


def test_names_and_tags_are_completed_with_how_often_they_are_used(records: Records) -> None:
    say(records, "one", "AuthService", "Authors", tags=("Deploy", "docs"))
    say(records, "two", "AuthService", tags=("Deploy", "deploys"))
    gone = say(records, "three", "Authority", "AuthService", tags=("deployed", "docs"))
    forget(records, gone)
    graph = records.graph
    assert sorted(graph.uses("entity", "auth", SESSION)) == [("AuthService", 2), ("Authors", 1)]
    assert graph.uses("entity", "b", SESSION) == []
    assert dict(graph.uses("tag", "DEP", SESSION)) == {"Deploy": 2, "deploys": 1}
    assert dict(graph.uses("tag", "", SESSION)) == {"Deploy": 2, "deploys": 1, "docs": 1}


def test_a_hubs_edges_are_bounded_and_it_says_so(records: Records) -> None:
    count = 1300
    apply(
        records,
        *(
            store_operation(
                f"op{number}", f"text {number}", related_entities=(ref("Hub"), ref(f"Spoke{number % 400}::uses"))
            )
            for number in range(count)
        ),
    )
    (hub,) = numbers(records.graph, "Hub")
    found = records.graph.edges([hub], SESSION, outgoing=True, relationships=None)
    assert found.cut
    assert 0 < len(found.rows) < 400
    assert sum(row.live for row in found.rows) < count
    few = records.graph.edges(numbers(records.graph, "Spoke1"), SESSION, outgoing=False, relationships=None)
    assert (few.cut, [row.live for row in few.rows]) == (False, [4])
    together = records.graph.edges(
        [hub, *numbers(records.graph, "Spoke1")], SESSION, outgoing=False, relationships=None
    )
    assert [row.live for row in together.rows] == [4], "a small entity is seen whole beside a hub"
    assert records.graph.memory_counts([[hub]], SESSION) == [count]


NAMES = [f"{name}:{kind}" for name in ("a", "b", "c") for kind in ("x", "y")]
said = st.lists(
    st.tuples(
        st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(["uses", "calls"])), max_size=4, unique=True),
        st.sampled_from(["mine", "theirs", "shared"]),
        st.booleans(),
    ),
    max_size=8,
)


@settings(max_examples=25)
@given(said)
def test_edges_are_what_the_visible_memories_say_and_nothing_else(
    tmp_path: Path, memories: list[tuple[list[tuple[str, str]], str, bool]]
) -> None:
    factory = SqliteFactory(Path(tempfile.mkdtemp(dir=tmp_path)))
    records = factory.open()
    expected: dict[tuple[str, str, str], Counter[str]] = {}
    counts: dict[str, set[int]] = {}
    for place, (entities, whose, is_forgotten) in enumerate(memories):
        fields = {
            "scope": "project" if whose == "shared" else "session",
            "session_id": OTHER_SESSION if whose == "theirs" else SESSION,
        }
        stored = say(records, f"m{place}", *(f"{name}:{kind_of}" for name, kind_of in entities), **fields)
        if is_forgotten and whose != "theirs":
            forget(records, stored)
        for name, relationship in entities if whose != "theirs" else ():
            if not is_forgotten:
                counts.setdefault(name, set()).add(place)
            if name != entities[0][0]:
                edge = expected.setdefault((entities[0][0], relationship, name), Counter())
                edge["forgotten" if is_forgotten else "live"] += 1
    graph = records.graph
    rows = [row for name in ("a", "b", "c") for row in graph.entities(EntityFilter(SESSION, name=name))]
    label = {row.number: f"{row.name}:{row.type}" for row in rows}
    for outgoing in (True, False):
        found = graph.edges(list(label), SESSION, outgoing=outgoing, relationships=None)
        assert not found.cut
        assert {_named_edge(row, label): (row.live, row.forgotten) for row in found.rows} == {
            edge: (each["live"], each["forgotten"]) for edge, each in expected.items()
        }
    counted = graph.memory_counts([[number] for number in label], SESSION)
    assert dict(zip(label.values(), counted, strict=True)) == {
        name: len(counts.get(name, ())) for name in label.values()
    }
    assert graph.summary(SESSION, None, 99).relationships == len(expected)
    factory.close()


def _named_edge(row: EdgeRow, label: dict[int, str]) -> tuple[str, str, str]:
    return label[row.subject], row.relationship, label[row.target]
