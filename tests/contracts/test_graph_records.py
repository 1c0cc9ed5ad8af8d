"""The promises of the graph of records, and the names that are found in texts."""

import tempfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remembrancer.actors.store.records import found_entities
from remembrancer.actors.store.records.found_entities import FEW
from remembrancer.actors.store.records.types import Filters, Phrase
from remembrancer.actors.store.retrieval.graph import MAX_ROWS, MIN_ROWS, Graph, Node, Summary
from remembrancer.memory.names import name_key
from remembrancer.protocol.reads import Direction
from remembrancer.protocol.writes import EraseMemory, ForgetMemory, LinkRef, UpdateMemory
from tests.contracts.records_rig import RecordsRig, apply, entities
from tests.operations import OTHER_SESSION, REQUESTED_AT, SESSION, store_operation

THEIRS: dict[str, Any] = {"scope": "session", "session_id": OTHER_SESSION}


def graph_of(rig: RecordsRig, session_id: str = SESSION) -> Graph:
    return Graph(rig.records.spaces, session_id, REQUESTED_AT)


def nodes(graph: Graph, *names: str) -> list[Node]:
    return [node for name in names for node in graph.keyed([name_key(name)]) if graph.name(node) == name]


def named(graph: Graph, found: Iterable[Node]) -> list[str]:
    return [graph.name(node) for node in found]


def summary_of(rig: RecordsRig, relationship: str | None = None, limit: int = 9) -> Summary:
    return graph_of(rig).summary([rig.records.space], relationship, limit)


def targets(rig: RecordsRig, name: str, relationship: str) -> set[str]:
    graph = graph_of(rig)
    return set(named(graph, (edge.target for edge in graph.edges(nodes(graph, name), relationship=relationship).edges)))


def test_memories_entities_and_links_are_one_undirected_graph_of_what_the_session_sees(rig: RecordsRig) -> None:
    one, two = rig.say("one", "A", "B::uses"), rig.say("two", "a", "C", scope="session")
    theirs = rig.say("theirs", "A", "D::uses", **THEIRS)
    rig.do(ForgetMemory(rig.say("gone", "A", "E::uses")))
    links = [LinkRef(relation, one) for relation in ("supports", "contradicts", "similar_to")]
    rig.do(UpdateMemory(two, add_links=tuple(links)))  # the last two, of one and the same thing, join nothing
    rig.do(UpdateMemory(theirs, add_links=(links[0],)), session=OTHER_SESSION)
    first, second = rig.number(one), rig.number(two)
    graph = graph_of(rig)
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
    assert set(graph.look({first: 3, second: 3}).neighbours) == {second}, "the other has more edges than that"
    assert graph.look({}).degrees == {}


def test_edges_are_chosen_by_the_key_of_their_relationship(rig: RecordsRig) -> None:
    rig.say("one", "A", "B::depends_on", "C::Depends-On", "D::uses")
    assert targets(rig, "A", "dependson") == {"B", "C"}
    assert targets(rig, "D", "dependson") == set()
    assert summary_of(rig, "uses").relationship_types == {"uses": 1}
    assert summary_of(rig, "dependson").relationship_types == {"Depends-On": 2}, "in one spelling"


def test_entities_are_found_by_key_and_by_words(rig: RecordsRig) -> None:
    stored = rig.say("one", "AuthService:component", "auth-service:file", "Harbour Master:person", "Authors:team")
    graph = graph_of(rig)
    assert named(graph, graph.keyed(["authservice", "nothing"])) == ["AuthService", "auth-service"]
    assert named(graph, graph.matching([Phrase("harbours")], 9)) == ["Harbour Master"], "words are stemmed"
    assert set(named(graph, graph.matching([Phrase("service")], 9))) == {"AuthService", "auth-service"}
    assert len(graph.matching([Phrase("service")], 1)) == 1
    number, authors = rig.number(stored), nodes(graph, "Authors")
    every = nodes(graph, "AuthService", "auth-service", "Harbour Master", "Authors")
    assert graph.nodes_named_by([number], every) == {number: set(every)}
    assert graph.nodes_named_by([number], authors) == {number: set(authors)}
    assert graph.nodes_named_by([number], ()) == {}


def test_tags_and_names_are_counted_with_how_often_they_are_used(rig: RecordsRig) -> None:
    rig.say("one", "AuthService", "Authors", tags=("Deploy", "docs"))
    rig.say("two", "AuthService", tags=("Deploy", "deploys"))
    rig.do(ForgetMemory(rig.say("three", "Authority", "AuthService", tags=("deployed", "docs"))))
    assert rig.records.uses(SESSION, 2) == [("Deploy", 2), ("deploys", 1), ("AuthService", 2), ("Authors", 1)]


def say_many(rig: RecordsRig, named: Iterable[tuple[str, ...]], **fields: Any) -> None:
    """Store a memory for each of these groups of entities, all at once."""
    groups = [{"related_entities": entities(*each), **fields} for each in named]
    apply(rig.records, [store_operation(f"op{n}", f"text {n}", **each) for n, each in enumerate(groups)])


def test_a_hubs_edges_are_bounded_and_it_says_so(rig: RecordsRig) -> None:
    count = 1300
    say_many(rig, (("Hub", f"Spoke{n % 400}::uses") for n in range(count)))
    graph = graph_of(rig)
    (hub,), spoke = graph.keyed(["hub"]), graph.keyed(["spoke1"])
    found = graph.edges([hub], direction="outgoing")
    assert found.cut
    assert 0 < len(found.edges) < 400
    assert sum(found.edges.values()) < count
    beside = graph.edges([hub, *graph.keyed([f"spoke{n}" for n in range(20)])], direction="outgoing")
    assert (beside.cut, sum(beside.edges.values())) == (True, MIN_ROWS), "of many entities less of each is read"
    few = graph.edges(spoke, direction="incoming")
    assert (few.cut, [*few.edges.values()]) == (False, [4])
    together = graph.edges([hub, *spoke], direction="incoming")
    assert [*together.edges.values()] == [4], "a small entity is seen whole beside a hub"
    assert graph.memory_counts([hub]) == {hub: count}


def test_the_memories_of_other_sessions_hide_nothing_of_a_hub(rig: RecordsRig) -> None:
    shown = rig.say("shown", "Hub", "Spoke")
    say_many(rig, (("Hub", f"Other{n}") for n in range(MAX_ROWS + 100)), **THEIRS)
    graph = graph_of(rig)
    (hub,) = graph.keyed(["hub"])
    found = graph.edges([hub])
    assert ([edge.target.key for edge in found.edges], found.cut) == (["spoke"], False)
    (edge,) = found.edges
    assert [fact.memory_id for fact in graph.facts([edge])[edge]] == [shown]
    assert len(graph.memories([hub], Filters(SESSION), 10)) == 1


NAMES = [f"{name}:{kind}" for name in ("a", "b", "c") for kind in ("x", "y")]
relations = st.tuples(st.sampled_from(NAMES), st.sampled_from(["uses", "calls"]))
whose = st.sampled_from(["mine", "theirs", "shared"])
said = st.lists(st.tuples(st.lists(relations, max_size=4, unique=True), whose, st.booleans()), max_size=8)


@settings(max_examples=25)
@given(said)
def test_edges_are_what_visible_memories_say(
    tmp_path: Path, memories: list[tuple[list[tuple[str, str]], str, bool]]
) -> None:
    expected: Counter[tuple[str, str, str]] = Counter()
    counts: dict[str, set[int]] = {}
    with RecordsRig(Path(tempfile.mkdtemp(dir=tmp_path)) / "memory.db") as rig:
        for place, (names, whose, is_forgotten) in enumerate(memories):
            fields: dict[str, Any] = {"mine": {"scope": "session"}, "theirs": THEIRS, "shared": {}}[whose]
            stored = rig.say(f"m{place}", *(f"{name}:{relation}" for name, relation in names), **fields)
            if whose == "theirs":
                continue
            if is_forgotten:
                rig.do(ForgetMemory(stored))
            for name, relationship in names:
                if not is_forgotten:
                    counts.setdefault(name, set()).add(place)
                if name != names[0][0]:
                    expected[names[0][0], relationship, name] += not is_forgotten
        graph = graph_of(rig)
        known = nodes(graph, "a", "b", "c")
        for direction in get_args(Direction):
            found = graph.edges(known, direction=direction)
            assert not found.cut
            assert {
                (":".join(edge.subject), edge.relationship, ":".join(edge.target)): live
                for edge, live in found.edges.items()
            } == dict(expected)
        counted = {":".join(node): count for node, count in graph.memory_counts(known).items()}
        assert counted == {name: len(counts.get(name, ())) for name in counted}
        assert sum(summary_of(rig, limit=99).relationship_types.values()) == len(expected)


# --- Names that are found in the texts of memories: which, and when they join those that have them.
def say(rig: RecordsRig, *contents: str, **fields: Any) -> list[str]:
    ids = [rig.say(each, **fields) for each in contents]
    rig.find_names()
    return ids


def found_in(rig: RecordsRig, memory_id: str) -> tuple[str, ...]:
    return rig.records.surroundings(memory_id, "", None).found_entities


def count(rig: RecordsRig, name: str) -> int:
    return len(nodes(Graph(rig.records.spaces, SESSION), name))


def test_certain_names_join_memories_that_nobody_gave_entities(rig: RecordsRig) -> None:
    one, two = say(rig, "The fix for INC-311 is in src/pool.py.", "INC-311 came back on Monday.")
    assert (found_in(rig, one), found_in(rig, two)) == (("INC-311", "src/pool.py"), ("INC-311",))
    graph = Graph(rig.records.spaces, SESSION)
    (entity,) = graph.keyed(["inc311"])
    assert graph.memory_counts([entity]) == {entity: 2}
    assert rig.shown(one).related_entities == (), "what was found is no part of a version or of an export"


def test_an_edited_memory_loses_what_it_does_not_say_any_more_and_an_erased_one_all(rig: RecordsRig) -> None:
    (memory,) = say(rig, "The pool is in src/pool.py.")
    rig.do(UpdateMemory(memory, content="The pool is in src/basin.py."))
    rig.find_names()
    assert found_in(rig, memory) == ("src/basin.py",)
    assert (count(rig, "src/pool.py"), count(rig, "src/basin.py")) == (0, 1)
    rig.do(EraseMemory(memory))
    rig.find_names()
    assert count(rig, "src/basin.py") == 0


def test_a_word_with_a_capital_letter_is_a_name_at_once_among_few_memories_if_others_see_it(rig: RecordsRig) -> None:
    (private,) = say(rig, "I hear that Renske is away.", scope="session", session_id=OTHER_SESSION)
    assert found_in(rig, private) == ()
    (memory,) = say(rig, "The release is done by Renske.")
    assert found_in(rig, memory) == ("Renske",)


def test_among_many_memories_it_is_one_once_three_that_others_see_have_it(
    rig: RecordsRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(found_entities, "SMALL", 1)
    first, _ = say(rig, "The release is done by Renske.", "We asked Renske about it.")
    say(rig, "I hear that Renske is away.", scope="session", session_id=OTHER_SESSION)
    assert found_in(rig, first) == ()
    (third,) = say(rig, "The keys are with Renske.")
    assert found_in(rig, first) == found_in(rig, third) == ("Renske",)


def test_a_name_that_more_than_a_third_of_the_memories_have_joins_none(rig: RecordsRig) -> None:
    memories = say(rig, *(f"step {number} of INC-311 is done" for number in range(FEW)))
    assert all(found_in(rig, each) == ("INC-311",) for each in memories)
    say(rig, "one more about INC-311")
    assert all(found_in(rig, each) == () for each in memories)
    assert count(rig, "INC-311") == 0
    say(rig, *(f"something else, number {number}" for number in range(4 * FEW)), "and again INC-311")
    assert all(found_in(rig, each) == ("INC-311",) for each in memories), "now it tells them from others"
