"""Walks through the graph against a plain model of one, and the names that texts hold."""

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remembrancer.actors.store.retrieval.graph import Edge, Expansion, Node
from remembrancer.actors.store.retrieval.graph_search import Reached, connection, longest, spans_of, walk
from remembrancer.memory.found_names import CERTAIN, FIRST, MOST_NAMES, POSSIBLE, READ, found_names, is_proper
from remembrancer.memory.names import name_key
from remembrancer.protocol.reads import Direction
from tests.cases import cases

NODES = [Node(name, "thing") for name in "abcdefgh"]
EVERY = 1000


@dataclass(frozen=True)
class Said:
    subject: Node
    relationship: str
    target: Node
    forgotten: bool


class SmallGraph:
    """A neighbourhood that is looked up by reading everything that was ever said."""

    def __init__(self, said: Sequence[Said], direction: Direction = "both") -> None:
        self.said = said
        self.direction = direction
        self.asked: list[list[Node]] = []

    def expand(self, nodes: Sequence[Node]) -> Expansion:
        self.asked.append(list(nodes))
        edges: Counter[Edge] = Counter()
        for each in self.said:
            leads_on = (each.subject in nodes and self.direction != "incoming") or (
                each.target in nodes and self.direction != "outgoing"
            )
            if leads_on:
                edges[Edge(each.subject, each.relationship, each.target)] += not each.forgotten
        return Expansion(edges)


def distances(said: Sequence[Said], starts: set[Node], depth: int, direction: Direction) -> dict[Node, int]:
    """Hops by relaxing every edge again and again, as Bellman and Ford do."""
    found = dict.fromkeys(starts, 0)
    for _ in range(depth):
        for each in said:
            for here, there, way in ((each.subject, each.target, "outgoing"), (each.target, each.subject, "incoming")):
                if direction in ("both", way) and here in found and found[here] < depth:
                    found[there] = min(found.get(there, depth + 1), found[here] + 1)
    return found


nodes = st.sampled_from(NODES)
sayings = st.lists(st.builds(Said, nodes, st.sampled_from(["uses", "calls"]), nodes, st.booleans()), max_size=25)
directions: st.SearchStrategy[Direction] = st.sampled_from(["outgoing", "incoming", "both"])


@given(sayings, st.sets(nodes, max_size=3), st.integers(1, 3), directions)
def test_a_walk_reaches_what_every_path_does(
    said: list[Said], starts: set[Node], depth: int, direction: Direction
) -> None:
    walked = walk(sorted(starts), SmallGraph(said, direction).expand, depth, EVERY)
    expected = distances(said, starts, depth, direction)
    assert {node: reached.distance for node, reached in walked.reached.items()} == expected
    assert not walked.cut
    order = [(reached.distance, -reached.weight) for reached in walked.reached.values()]
    assert order == sorted(order), "the nearest first, then the well connected"


@given(sayings, nodes, st.integers(1, 3))
def test_a_walk_finds_every_edge_with_all_that_say_it(said: list[Said], start: Node, depth: int) -> None:
    walked = walk([start], SmallGraph(said).expand, depth, EVERY)
    inner = {node for node, reached in walked.reached.items() if reached.distance < depth}
    expected: Counter[Edge] = Counter()
    for each in said:
        if each.subject != each.target and inner & {each.subject, each.target}:
            expected[Edge(each.subject, each.relationship, each.target)] += not each.forgotten
    assert walked.edges == dict(expected)
    assert list(walked.edges.values()) == sorted(walked.edges.values(), reverse=True)


def test_a_hub_leads_on_only_to_its_best_connected_and_the_walk_says_so() -> None:
    hub = Node("hub", "thing")
    spokes = [Node(f"spoke{number}", "thing") for number in range(9)]
    said = [Said(hub, "uses", spoke, False) for number, spoke in enumerate(spokes) for _ in range(number + 1)]
    graph = SmallGraph(said)
    walked = walk([hub], graph.expand, 2, widest=3)
    assert walked.cut
    assert graph.asked == [[hub], [spokes[8], spokes[7], spokes[6]]]
    assert len(walked.reached) == 10, "those that were met are there all the same"
    assert not walk([hub], SmallGraph(said).expand, 1, widest=3).cut, "nothing was to follow"


@given(
    st.lists(st.builds(Reached, st.integers(0, 4), st.integers(0, 5)), max_size=8),
    *(st.integers(0, 3), st.integers(1, 6), st.integers(1, 6)),
)
def test_nearness_makes_a_memory_worth_0_to_1(entities: list[Reached], distance: int, few: int, many: int) -> None:
    worth = connection(entities)
    assert 0.0 <= worth <= max((1.0 / (1 + each.distance) for each in entities), default=0.0) <= 1.0
    assert (worth == 0.0) == (not entities)
    near, far = Reached(distance), Reached(distance + 1)
    assert connection([near] * few) >= connection([far] * many)
    assert connection([near] * (few + 1)) > connection([near] * few), "several that are as near count for more"
    assert connection([near, far]) == connection([near])


# Names in texts
def keys_in(text: str, *names: str) -> list[str]:
    return list(longest(spans_of(text), {name_key(name) for name in names}).values())


@pytest.mark.parametrize(("text", "name"), cases("graph", "found"))
def test_a_name_is_found_in_a_text_in_any_spelling(text: str, name: str) -> None:
    assert keys_in(text, name) == [name_key(name)]


def test_the_longest_name_counts_each_word_once_and_stop_words_and_long_sequences_none() -> None:
    assert keys_in("the auth service gateway", "auth", "auth service", "service gateway") == ["authservice"]
    assert keys_in("auth and the auth service", "auth", "auth service") == ["auth", "authservice"]
    assert keys_in("who is it and what is the", "who", "it", "what is") == []
    assert keys_in("one two three four five", "one two three four five", "two three four five") == ["twothreefourfive"]


@given(st.text(max_size=300))
def test_any_text_can_be_read_for_names(text: str) -> None:
    spans = spans_of(text)
    assert all(0 <= begin < end and key for (begin, end), key in spans.items())
    chosen = longest(spans, set(spans.values()))
    places = [place for span in chosen for place in range(*span)]
    assert places == sorted(set(places))


# --- Names that a text has, and what only looks like one.
def certain(text: str, *, is_entity: bool = False) -> list[str]:
    return [each.name for each in found_names(text, is_entity=is_entity) if each.certainty == CERTAIN]


TABLES = {CERTAIN: "names", POSSIBLE: "possible", FIRST: "first"}


@pytest.mark.parametrize(
    ("certainty", "text", "names"), [(each, *row) for each in TABLES for row in cases("found_names", TABLES[each])]
)
def test_a_name_is_certain_by_its_form_or_possible_by_a_capital_letter(
    certainty: int, text: str, names: list[str]
) -> None:
    assert [each.name for each in found_names(text) if each.certainty == certainty] == names


def test_an_entity_begins_its_memory_and_names_are_not_without_number() -> None:
    assert certain("billing relay: copies the outbox to the broker", is_entity=True) == ["billing relay"]
    assert certain("billing relay: copies the outbox to the broker") == []
    assert certain("auth_service, AuthService and authService") == ["auth_service"]
    assert len(found_names(" ".join(f"name_{number}" for number in range(100)))) == MOST_NAMES


SENTENCES = " ".join(f"Q{''.join(letters)}." for letters in product("abcdefghijkl", repeat=3))


def test_data_and_many_names_cost_hardly_more_than_prose() -> None:
    """A pattern that is tried holds up every thread of the store: its loop answered nothing for seconds once."""

    def cost_s(piece: str) -> float:
        text, costs = (piece * READ)[:READ], []
        for _ in range(3):
            began = time.thread_time()
            found_names(text, is_entity=True)
            costs.append(time.thread_time() - began)
        return min(costs)

    prose_s = cost_s("The gate of Harbour Street opens at seven. ")
    for piece in ("x", "a-", "x_", "[(", SENTENCES):
        assert cost_s(piece) <= 5 * prose_s, piece[:9]


def test_the_name_of_a_person_or_a_product_is_proper_and_an_identifier_if_somebody_gave_it_a_type() -> None:
    for name in ("Valkey", "Stripe", "Anna Lindqvist", "PostgreSQL", "Marek Dvořák", "Orders API", "C#", ".NET"):
        assert is_proper(name, "custom"), name
    for name in ("wJalrXUtnFEMI", "SHOP-12", "legacy_id", "src/app.py", "maxmemory-policy", "pay()"):
        assert (is_proper(name, "custom"), is_proper(name, "component")) == (False, True), name
