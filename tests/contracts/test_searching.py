import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remembrancer.actors.store.records import found_entities, search
from remembrancer.actors.store.records.found_entities import ENOUGH, FEW
from remembrancer.actors.store.records.search import BM25, expression_of
from remembrancer.actors.store.records.sqlite_records import Records
from remembrancer.actors.store.records.types import Filters, Phrase
from remembrancer.actors.store.retrieval.graph import MIN_ROWS, Graph, Node, Summary
from remembrancer.actors.store.retrieval.question import phrases_and_units
from remembrancer.memory.names import name_key
from remembrancer.protocol.reads import Direction
from remembrancer.protocol.writes import EraseMemory, ForgetMemory, LinkRef, SourceRef, UpdateMemory
from tests.cases import cases
from tests.contracts.records_rig import RecordsRig, apply, entities
from tests.operations import OTHER_SESSION, REQUESTED_AT, SESSION, store_operation
from tests.zones import in_zone

ALL = Filters(SESSION)
THEIRS: dict[str, Any] = {"scope": "session", "session_id": OTHER_SESSION}


def test_every_search_lets_through_exactly_what_the_filters_allow(rig: RecordsRig) -> None:
    number: dict[str, int] = {}
    library = cases("searching", "library")
    for place, (name, fields) in enumerate(library.items()):
        given = {"type": "semantic", "importance": 0.5} | fields
        memory_id = rig.say(f"lantern: {name}", requested_at=REQUESTED_AT + place, **given)
        number[name] = rig.number(memory_id)
        if "gone" in name:
            rig.do(ForgetMemory(memory_id), session=fields.get("session_id", SESSION))
    latest = [*reversed([name for name in library if name != "event"]), "event"]
    important = sorted(latest, key=lambda name: -library[name].get("importance", 0.5))
    records = rig.records
    for row, names in cases("searching", "filters")["rows"]:
        filters = msgspec.convert({"session_id": SESSION} | row, Filters)
        expected = {number[name] for name in names}
        assert set(records.matching(filters, 1000) or ()) == expected, filters
        assert not expected or records.matching(filters, len(expected) - 1) is None, "there are more"
        assert set(records.keyword_hits([Phrase("lantern")], filters, 1000)) == expected
        if len(own := sorted(expected)[::2]) > 1:
            assert sorted(records.keyword_hits([Phrase("lantern")], filters, 1000, numbers=own)) == own
        assert records.ranking_facts([*number.values()], filters).keys() == expected
        assert records.load([*number.values()], filters).keys() == expected
        assert records.top(filters, "important", 4) == [number[name] for name in important if name in names][:4]
        assert records.top(filters, "latest", 4) == [number[name] for name in latest if name in names][:4]
    assert not records.ranking_facts([], ALL)
    assert not records.load([], ALL)


@pytest.mark.parametrize("zone", ["America/Los_Angeles", "Pacific/Auckland"])
def test_an_event_is_found_by_its_day_in_every_zone(zone: str, rig: RecordsRig) -> None:
    day = datetime(2026, 2, 20)
    with in_zone(zone):
        event = rig.number(rig.say("the ferry was late", occurred_at=day.replace(tzinfo=UTC).timestamp()))
        begin, end = day.timestamp(), day.timestamp() + 86_399
        assert rig.records.matching(Filters(SESSION, after=begin, before=end), 10) == [event]
        assert rig.records.matching(Filters(SESSION, before=begin - 1), 10) == []
        assert rig.records.matching(Filters(SESSION, after=end + 1), 10) == []


def test_open_ends_are_given_by_their_due_dates_until_they_are_done(rig: RecordsRig) -> None:
    """The done, the forgotten, those no longer valid, other sessions' and other kinds are not among them."""

    def end(content: str, **fields: Any) -> str:
        return rig.say(content, **{"kind": "open_end", "type": "episodic", **fields})

    later = end("undated, later", requested_at=REQUESTED_AT + 1)
    undated, second = end("undated"), end("second", due=20.0)
    first, theirs = end("first", scope="session", due=10.0), end("theirs", due=5.0, **THEIRS)
    rig.say("fact", due=1.0)
    done = end("done", due=1.0)
    rig.do(UpdateMemory(done, done=True))
    rig.do(ForgetMemory(end("gone", due=1.0)))
    for replaced in (end("replaced", due=1.0), end("replaced before its time", due=1.0, valid_until=time.time() + 1e6)):
        rig.do(UpdateMemory(second, add_links=(LinkRef("supersedes", replaced),)))

    def due(filters: Filters = ALL, limit: int = 10) -> list[str]:
        return rig.ids(rig.records.top(filters, "due", limit), filters.session_id)

    assert due() == [first, second, later, undated]
    assert due(limit=2) == [first, second]
    assert due(Filters(OTHER_SESSION, include_forgotten=True)) == [theirs, second, later, undated]
    assert due(Filters(SESSION, ("project",), before=REQUESTED_AT)) == [second, undated]
    rig.do(UpdateMemory(done, done=False))
    assert len(due()) == 5


def test_memories_of_files_are_found_by_a_part_of_the_path(rig: RecordsRig) -> None:
    quoted = rig.say("quoted", source=SourceRef(file='src/"o\'dd" näme.py'))
    app = SourceRef(tool="näme.py", file="src/app.py")
    plain = rig.say("plain", source=app, requested_at=REQUESTED_AT + 1)
    rig.say("elsewhere")
    theirs = rig.say("theirs", source=SourceRef(file="app.py"), **THEIRS)

    def of(*paths: str, filters: Filters = ALL, limit: int = 10) -> list[str]:
        return rig.ids(rig.records.from_files(paths, filters, limit), filters.session_id)

    assert (of("app.py"), of('"o\'dd" näme.py'), of()) == ([plain], [quoted], [])
    assert (of("näme.py", "app.py"), of("näme.py", "app.py", limit=1)) == ([plain, quoted], [plain])
    assert of("app.py", filters=Filters(OTHER_SESSION, ("session",))) == [theirs]
    assert of("src/", filters=Filters(SESSION, types=("episodic",))) == []


def test_the_words_of_a_question_are_counted_in_each_memory_that_has_any(rig: RecordsRig) -> None:
    all_ = rig.number(rig.say("Deploying the lantern took the keeper an hour."))
    some = rig.number(rig.say("The lanterns were lit.", tags=("keepers",)))
    none = rig.number(rig.say("Bread."))
    postings = rig.records.postings(phrases_and_units("When did the keeper deploy the lantern?")[1])
    assert Counter(number for having in postings for number in having) == {all_: 3, some: 2}
    assert rig.records.postings([]) == []
    survey = rig.records.survey(phrases_and_units("keeper bread lamp deploy")[1], SESSION, 0)
    assert survey.postings == {rig.records.space: [[all_, some], [none], [], [all_]]}


def test_neighbours_are_the_nearest_episodes_of_a_session_told_within_ten_minutes(rig: RecordsRig) -> None:
    number = {
        name: rig.number(rig.say(name, requested_at=REQUESTED_AT + at, **{"type": "episodic", **fields}))
        for name, at, fields in cases("searching", "told")["rows"]
    }

    def around(*names: str, filters: Filters = ALL, and_theirs: bool = False) -> dict[str, dict[str, int]]:
        name_of = {each: name for name, each in number.items()}
        found = rig.records.neighbours([number[name] for name in names], filters, and_theirs=and_theirs)
        shown = {other for steps in found.steps.values() for other in steps}
        assert found.facts == (rig.records.ranking_facts(list(shown), filters) if shown else {})
        return {name_of[each]: {name_of[other]: n for other, n in steps.items()} for each, steps in found.steps.items()}

    second = {"second": {"first": 1, "third": 1}}
    assert around("second") == second, "the fourth is farther than four rows"
    third, fourth = {"third": {"second": 1, "fourth": 1}}, {"fourth": {"third": 1, "later": 1}}
    assert around("third", "a fact", "private", "nobody's") == third
    assert around("fourth") == fourth, "of ten minutes later, and no more"
    assert around("third", and_theirs=True) == second | third | fourth
    assert around("later") == {"later": {"fourth": 1, "dated": 1, "after it": 2}}, "by its date"
    assert around("dated") == {"dated": {"later": 1, "after it": 1}}, "not one of ten minutes and a second later"
    assert around("and one more") == {"and one more": {"the very last": 1, "last": 2}}, "two on each side"
    assert around("fourth", "second", filters=Filters(SESSION, tags=("red",))) == {"fourth": {"third": 1}}
    assert around("private", "theirs", filters=Filters(OTHER_SESSION)) == {}


# --- The graph.
def graph_of(rig: RecordsRig) -> Graph:
    return Graph(rig.records.spaces, SESSION, REQUESTED_AT)


def nodes(graph: Graph, *names: str) -> list[Node]:
    return [node for name in names for node in graph.nodes_with([name_key(name)]) if graph.names[node] == name]


def named(graph: Graph, found: Iterable[Node]) -> list[str]:
    return [graph.names[node] for node in found]


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
    degrees, near = graph.neighbourhood({first: 9, second: 9, "a": 9, "b": 9, "unknown": 9})
    assert {node: set(others) for node, others in near.items()} == {
        first: {"a", "b", second},
        second: {"a", "c", first},
        "a": {first, second, "b", "c"},
        "b": {first, "a"},
    }
    assert (degrees[first], degrees[second]) == (4, 3), "with the link of another session, and none of what is alike"
    assert degrees["a"] >= 3
    assert "unknown" not in degrees
    assert set(graph.neighbourhood({first: 3, second: 3}).neighbours) == {second}, "the other has more edges than that"
    assert graph.neighbourhood({}).degrees == {}


def test_edges_are_chosen_by_the_key_of_their_relationship(rig: RecordsRig) -> None:
    rig.say("one", "A", "B::depends_on", "C::Depends-On", "D::uses")
    assert targets(rig, "A", "dependson") == {"B", "C"}
    assert targets(rig, "D", "dependson") == set()
    assert summary_of(rig, "uses").relationship_types == {"uses": 1}
    assert summary_of(rig, "dependson").relationship_types == {"Depends-On": 2}, "in one spelling"


def test_entities_are_found_by_key_and_by_words(rig: RecordsRig) -> None:
    stored = rig.say("one", "AuthService:component", "auth-service:file", "Harbour Master:person", "Authors:team")
    graph = graph_of(rig)
    assert named(graph, graph.nodes_with(["authservice", "nothing"])) == ["AuthService", "auth-service"]
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
    groups = [{"related_entities": entities(*each), **fields} for each in named]
    apply(rig.records, [store_operation(f"op{n}", f"text {n}", **each) for n, each in enumerate(groups)])


def test_a_hubs_edges_are_bounded_and_it_says_so(rig: RecordsRig) -> None:
    count = 1300
    say_many(rig, (("Hub", f"Spoke{n % 400}::uses") for n in range(count)))
    graph = graph_of(rig)
    (hub,), spoke = graph.nodes_with(["hub"]), graph.nodes_with(["spoke1"])
    found = graph.edges([hub], direction="outgoing")
    assert found.cut
    assert 0 < len(found.edges) < 400
    assert sum(found.edges.values()) < count
    beside = graph.edges([hub, *graph.nodes_with([f"spoke{n}" for n in range(20)])], direction="outgoing")
    assert (beside.cut, sum(beside.edges.values())) == (True, MIN_ROWS), "of many entities less of each is read"
    few = graph.edges(spoke, direction="incoming")
    assert (few.cut, [*few.edges.values()]) == (False, [4])
    together = graph.edges([hub, *spoke], direction="incoming")
    assert [*together.edges.values()] == [4], "a small entity is seen whole beside a hub"
    assert graph.memory_counts([hub]) == {hub: count}


def test_the_memories_of_other_sessions_hide_nothing_of_a_hub(rig: RecordsRig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("remembrancer.actors.store.retrieval.graph.MAX_ROWS", 100)
    shown = rig.say("shown", "Hub", "Spoke")
    say_many(rig, (("Hub", f"Other{n}") for n in range(200)), **THEIRS)
    graph = graph_of(rig)
    (hub,) = graph.nodes_with(["hub"])
    found = graph.edges([hub])
    assert ([edge.target.key for edge in found.edges], found.cut) == (["spoke"], False)
    (edge,) = found.edges
    assert [fact.memory_id for fact in graph.facts([edge])[edge]] == [shown]
    assert len(graph.memories([hub], Filters(SESSION), 10)) == 1


NAMES = [f"{name}:{kind}" for name in ("a", "b", "c") for kind in ("x", "y")]
relations = st.tuples(st.sampled_from(NAMES), st.sampled_from(["uses", "calls"]))
whose = st.sampled_from(["mine", "theirs", "shared"])
said = st.lists(st.tuples(st.lists(relations, max_size=4, unique=True), whose, st.booleans()), max_size=8)


@settings(max_examples=settings().max_examples // 2)
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
    (entity,) = graph.nodes_with(["inc311"])
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


def test_a_name_that_is_known_counts_where_it_begins_a_sentence_or_stands_beside_another(rig: RecordsRig) -> None:
    memories = say(rig, "Lucia renews the certificate.", "The pager is carried. Lucia has it.", "Nobody has a ladder.")
    assert [found_in(rig, each) for each in memories] == [(), (), ()], "any word begins a sentence"
    say(rig, "We asked Lucia about the certificate.")
    assert [found_in(rig, each) for each in memories] == [("Lucia",), ("Lucia",), ()]
    (both,) = say(rig, "In Venlo Lucia knows Ana Mol.")
    assert set(found_in(rig, both)) == {"Venlo Lucia", "Lucia", "Ana Mol"}, "Venlo, Ana and Mol are not known"


def test_a_family_joins_memories_that_have_its_bare_name_and_two_names_that_differ_by_an_s_stay_apart(
    rig: RecordsRig,
) -> None:
    memories = say(rig, "We asked Herr Brandl.", "It is approved by the Brandls.", "I met Andreas.", "I met Andrea.")
    names = [{"Brandl"}, {"Brandls", "Brandl"}, {"Andreas"}, {"Andrea"}]
    assert [set(found_in(rig, each)) for each in memories] == names


def test_a_word_with_a_capital_letter_is_a_name_at_once_among_few_memories_that_others_see_and_third_among_many(
    rig: RecordsRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert found_in(rig, *say(rig, "I hear that Renske is away.", **THEIRS)) == ()
    assert found_in(rig, *say(rig, "The release is done by Renske.")) == ("Renske",)
    monkeypatch.setattr(found_entities, "SMALL", 1)
    first, _ = say(rig, "The release is done by Jelle.", "We asked Jelle about it.")
    say(rig, "I hear that Jelle is away.", **THEIRS)
    assert found_in(rig, first) == ()
    (third,) = say(rig, "The keys are with Jelle.")
    assert found_in(rig, first) == found_in(rig, third) == ("Jelle",)
    monkeypatch.setattr(found_entities, "ENOUGH", 9)
    rig.do(UpdateMemory(third, content="Jelle has the keys, and so has Wytske."))
    say(rig, "Jelle is back.")
    assert found_in(rig, first) == found_in(rig, third) == ("Jelle",), "what is an entity stays one"


def test_a_name_that_more_than_a_third_of_the_memories_have_joins_none(rig: RecordsRig) -> None:
    memories = say(rig, *(f"step {number} of INC-311 is done" for number in range(FEW)))
    assert all(found_in(rig, each) == ("INC-311",) for each in memories)
    say(rig, "one more about INC-311")
    assert all(found_in(rig, each) == () for each in memories)
    assert count(rig, "INC-311") == 0
    say(rig, *(f"something else, number {number}" for number in range(4 * FEW)), "and again INC-311")
    assert all(found_in(rig, each) == ("INC-311",) for each in memories), "now it tells them from others"
    say(rig, *(f"we pushed the Deploy button of shed {number}" for number in range(ENOUGH)))
    assert count(rig, "Deploy") == 1
    say(rig, *(f"Deploy number {number} is done" for number in range(4 * FEW)))
    assert count(rig, "Deploy") == 0, "nor one that only begins most of them"


# --- Words that are in too many memories: what is found by them, and that nothing is lost for being common.
COUNT = 4_000
QUESTION = [Phrase(words) for words in ("rare", "seldom", "common", "usual", "rare", "usual")]
OTHERS = Filters(OTHER_SESSION)
OWN = 40
TAGGED = 5
"""Of the common memories some are a session's own, and some have a tag."""


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Records]:
    operations = [
        store_operation(
            str(n),
            "common "
            f"{'usual ' * max(n % 7 - 3, 0)}{'rare ' * (n % 400 == 0)}{'seldom ' * (n % 90 == 0)}{'filling ' * (n % 6)}"
            f"no{n}",
            scope="session" if COUNT // 2 < n <= COUNT // 2 + OWN else "project",
            tags=("marked",) if 1 <= n <= TAGGED else (),
        )
        for n in range(COUNT)
    ]
    with RecordsRig(tmp_path_factory.mktemp("many") / "memory.db") as rig, pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "ROWS", 1_000)
        patch.setattr(search, "WIDE_ROWS", 3_000)
        apply(rig.records, operations)
        yield rig.records


def scored_by_all(records: Records) -> dict[int, float]:
    scored = f"SELECT rowid, {BM25} FROM words_@SPACE WHERE words_@SPACE MATCH ?"
    return dict(records._file.read(scored, (expression_of(QUESTION),)))


@pytest.mark.parametrize("counted", [None, {}], ids=["among all", "among those with a rare word"])
def test_the_best_are_found_with_the_scores_that_all_words_give(
    records: Records, counted: dict[Phrase, int] | None
) -> None:
    hits = records.keyword_hits(QUESTION, OTHERS, 50, counted)
    known = scored_by_all(records)
    best = sorted(known, key=lambda number: (-known[number], -number))[:50]
    assert list(hits) == best
    assert list(hits.values()) == pytest.approx([known[number] for number in best])


def test_the_few_that_pass_the_filters_are_found_among_many_better_ones(records: Records) -> None:
    marked = records.matching(Filters(OTHER_SESSION, tags=("marked",)), 50)
    assert marked is not None
    assert records.matching(Filters(OTHER_SESSION, tags=("Marked",)), 50) == marked
    known = scored_by_all(records)
    hits = records.keyword_hits(QUESTION, Filters(OTHER_SESSION, tags=("marked",)), 2)
    assert list(hits) == sorted(marked, key=lambda number: (-known[number], -number))[:2]


def test_what_is_known_of_how_many_have_a_word_changes_nothing_of_what_is_found(records: Records) -> None:
    known = dict(zip(QUESTION[1:3], records.frequencies([[each] for each in QUESTION[1:3]]), strict=True))
    assert known == {Phrase("seldom"): COUNT // 90 + 1, Phrase("common"): COUNT}
    hits = records.keyword_hits(QUESTION, OTHERS, 50, counted=known)
    assert hits == records.keyword_hits(QUESTION, OTHERS, 50, counted={})
