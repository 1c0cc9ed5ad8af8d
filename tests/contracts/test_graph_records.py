"""The promises of the graph of records."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, get_args

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from remembrancer.actors.store.records.sqlite_records import Records
from remembrancer.actors.store.records.types import Filters, Phrase
from remembrancer.actors.store.retrieval.graph import MOST_ROWS, Expansion, Graph, Node, Summary
from remembrancer.protocol.reads import Direction
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


def graph_of(records: Records, session_id: str = SESSION) -> Graph:
    return Graph(records.spaces, session_id, REQUESTED_AT)


def nodes(graph: Graph, *names: str) -> list[Node]:
    return [node for name in names for node in graph.named(name)]


def named(graph: Graph, found: Iterable[Node]) -> list[str]:
    return [graph.name(node) for node in found]


def summary_of(records: Records, relationships: frozenset[str] | None = None, limit: int = 9) -> Summary:
    return graph_of(records).summary([records.space], relationships, limit)


def edges(
    records: Records,
    name: str,
    *,
    session_id: str = SESSION,
    relationships: frozenset[str] | None = None,
) -> set[tuple[str, str, str, int, int]]:
    """All edges of an entity by the names of their ends, with how many memories say them and how many said them."""
    graph = graph_of(records, session_id)
    expansion = graph.edges(nodes(graph, name), relationships=relationships)
    assert not expansion.cut
    return said_in(graph, expansion)


def said_in(graph: Graph, expansion: Expansion) -> set[tuple[str, str, str, int, int]]:
    return {
        (graph.name(edge.subject), graph.relationship(edge.relationship), graph.name(edge.target), live, forgotten)
        for _, edge, live, forgotten in expansion.sightings
    }


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
    graph = graph_of(records)
    degrees, near = graph.look({first: 9, second: 9, "a": 9, "b": 9, "unknown": 9})
    assert {node: set(others) for node, others in near.items()} == {
        first: {"a", "b", second},
        second: {"a", "c", first},
        "a": {first, second, "b", "c"},
        "b": {first, "a"},
    }
    assert (degrees[first], degrees[second]) == (4, 3), "with the link of another session, and none of what is alike"
    assert degrees["a"] >= 3
    assert "unknown" not in degrees
    few = graph.look({first: 3, second: 3})
    assert set(few.neighbours) == {second}, "the other has more edges than that"
    assert graph.look({}).degrees == {}


def test_edges_are_chosen_by_the_key_of_their_relationship(records: Records) -> None:
    say(records, "one", "A", "B::depends_on", "C::Depends-On", "D::uses")
    found = edges(records, "A", relationships=frozenset({"dependson"}))
    assert {target for _, _, target, _, _ in found} == {"B", "C"}
    assert edges(records, "D", relationships=frozenset({"dependson"})) == set()
    assert summary_of(records, frozenset({"uses"})).relationship_types == {"uses": 1}


def test_another_sessions_memories_make_no_entity_no_edge_and_no_count(records: Records) -> None:
    say(records, "mine", "A", "B::uses", scope="session")
    say(records, "theirs", "A", "B::owns", "Secret::hides", scope="session", session_id=OTHER_SESSION, tags=("secret",))
    say(records, "theirs too", "Secret", "A::knows", scope="session", session_id=OTHER_SESSION)
    graph, other = graph_of(records), graph_of(records, OTHER_SESSION)
    assert edges(records, "A") == {("A", "uses", "B", 1, 0)}
    assert edges(records, "Secret") == set()
    assert graph.named("Secret") == []
    assert graph.keyed(["secret"]) == []
    assert graph.beginning("se", 9) == []
    assert graph.matching([Phrase("secret")], 9) == []
    assert records.uses("entity", "", SESSION) == [("A", 1), ("B", 1)]
    assert dict(records.uses("tag", "", SESSION)) == {}
    assert list(graph.memory_counts(nodes(graph, "A")).values()) == [1]
    summary = summary_of(records)
    assert (summary.entity_types, summary.relationship_types) == ({"thing": 2}, {"uses": 1})
    assert list(graph.memories(nodes(graph, "A"), Filters(SESSION), 9)) == [1]
    assert named(other, other.named("Secret")) == ["Secret"]
    assert len(edges(records, "Secret", session_id=OTHER_SESSION)) == 2
    assert dict(records.uses("tag", "SEC", OTHER_SESSION)) == {"secret": 1}


def test_entities_are_found_by_name_by_key_by_words_and_by_their_beginning(records: Records) -> None:
    say(records, "one", "AuthService:component", "auth-service:file", "Harbour Master:person", "Authors:team")
    graph = graph_of(records)
    assert named(graph, graph.named("AuthService")) == ["AuthService"]
    assert graph.named("authservice") == []
    assert named(graph, graph.keyed(["authservice", "nothing"])) == ["AuthService", "auth-service"]
    words = [Phrase("harbours")]
    assert named(graph, graph.matching(words, 9)) == ["Harbour Master"], "words are stemmed"
    assert set(named(graph, graph.matching([Phrase("service")], 9))) == {"AuthService", "auth-service"}
    assert len(graph.matching([Phrase("service")], 1)) == 1
    assert named(graph, graph.beginning("auth", 9)) == ["Authors", "AuthService", "auth-service"]
    assert len(graph.beginning("auth", 2)) == 2


def test_the_entities_of_memories_are_told(records: Records) -> None:
    stored = say(records, "one", "A", "B::uses", "B::calls")
    number, graph = number_of(records, stored), graph_of(records)
    assert graph.nodes_named_by([number]) == {number: set(nodes(graph, "A", "B"))}
    assert graph.nodes_named_by([number], nodes(graph, "A")) == {number: set(nodes(graph, "A"))}


def test_names_and_tags_are_completed_with_how_often_they_are_used(records: Records) -> None:
    say(records, "one", "AuthService", "Authors", tags=("Deploy", "docs"))
    say(records, "two", "AuthService", tags=("Deploy", "deploys"))
    gone = say(records, "three", "Authority", "AuthService", tags=("deployed", "docs"))
    forget(records, gone)
    assert sorted(records.uses("entity", "auth", SESSION)) == [("AuthService", 2), ("Authors", 1)]
    assert records.uses("entity", "b", SESSION) == []
    assert dict(records.uses("tag", "DEP", SESSION)) == {"Deploy": 2, "deploys": 1}
    assert dict(records.uses("tag", "", SESSION)) == {"Deploy": 2, "deploys": 1, "docs": 1}


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
    graph = graph_of(records)
    (hub,) = graph.named("Hub")
    found = graph.edges([hub], direction="outgoing")
    assert found.cut
    assert 0 < len(found.sightings) < 400
    assert sum(row.live for row in found.sightings) < count
    few = graph.edges(graph.named("Spoke1"), direction="incoming")
    assert (few.cut, [row.live for row in few.sightings]) == (False, [4])
    together = graph.edges([hub, *graph.named("Spoke1")], direction="incoming")
    assert [row.live for row in together.sightings] == [4], "a small entity is seen whole beside a hub"
    assert graph.memory_counts([hub]) == {hub: count}


def test_the_memories_of_other_sessions_hide_nothing_of_a_hub(records: Records) -> None:
    shown = say(records, "shown", "Hub", "Spoke")
    apply(
        records,
        *(
            store_operation(
                f"op{number}",
                f"text {number}",
                scope="session",
                session_id=OTHER_SESSION,
                related_entities=(ref("Hub"), replace(ref(f"Other{number}"), subject="Hub")),
            )
            for number in range(MOST_ROWS + 100)
        ),
    )
    graph = graph_of(records)
    (hub,) = graph.named("Hub")
    found = graph.edges([hub])
    assert ([row.edge.target.key for row in found.sightings], found.cut) == (["spoke"], False)
    (edge,) = (row.edge for row in found.sightings)
    assert [fact.memory_id for fact in graph.facts([edge])[edge]] == [memory_id_of(shown)]
    assert len(graph.memories([hub], Filters(SESSION), 10)) == 1


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
    graph = graph_of(records)
    known = nodes(graph, "a", "b", "c")
    for direction in get_args(Direction):
        found = graph.edges(known, direction=direction)
        assert not found.cut
        assert {
            (":".join(edge.subject), edge.relationship, ":".join(edge.target)): (live, forgotten)
            for _, edge, live, forgotten in found.sightings
        } == {edge: (each["live"], each["forgotten"]) for edge, each in expected.items()}
    counted = {":".join(node): count for node, count in graph.memory_counts(known).items()}
    assert counted == {name: len(counts.get(name, ())) for name in counted}
    assert sum(summary_of(records, limit=99).relationship_types.values()) == len(expected)
    factory.close()
