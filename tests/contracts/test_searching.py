"""What is found in records: by filters, in an order, by words, by names, and what was told around a memory."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from remembrancer.actors.store.records.search import BM25, INTERLEAVED, REACH, TOGETHER_S, WIDE_ROWS, expression_of
from remembrancer.actors.store.records.sqlite_records import Records
from remembrancer.actors.store.records.types import Filters, Phrase
from remembrancer.actors.store.retrieval.question import phrases_and_units
from remembrancer.protocol.kinds import Scope, kind_of_type
from remembrancer.protocol.writes import ForgetMemory, LinkRef, Operation, SourceRef, StoreMemory, UpdateMemory
from tests.contracts.records_rig import RecordsRig, apply
from tests.operations import OTHER_SESSION, REQUESTED_AT, SESSION, change_of, store_operation

ALL = Filters(SESSION)
THEIRS: dict[str, Any] = {"scope": "session", "session_id": OTHER_SESSION}


def keep(rig: RecordsRig, operation: Operation) -> int:
    apply(rig.records, [operation])
    return rig.number(change_of(operation).memory_id)


def happened_at(operation: Operation) -> float:
    occurred_at = change_of(operation).occurred_at
    return operation.requested_at if occurred_at is None else occurred_at


# Filters
def build_library(rig: RecordsRig) -> tuple[dict[int, Operation], set[int]]:
    """A memory of each sort, of two sessions, by their numbers; and the numbers of those that are forgotten."""
    library: dict[int, Operation] = {}
    for place in range(72):
        operation = store_operation(
            f"op{place}",
            f"lantern number {place}",
            scope=get_args(Scope)[place % 3],
            session_id=(SESSION, OTHER_SESSION)[place // 2 % 2],
            type=("episodic", "semantic", "procedural")[place // 3 % 3],
            kind=(None, None, "convention", None, "preference")[place % 5],
            importance=(0.0, 0.25, 0.5, 1.0)[place // 3 % 4],
            tags=((), ("red",), ("red", "blue"), ("green",))[place // 5 % 4],
            requested_at=REQUESTED_AT + place,
            occurred_at=None if place % 4 else REQUESTED_AT - 10 * place,
            domain=(None, "auth", "build")[place % 3 if place < 30 else 0],
        )
        library[keep(rig, operation)] = operation
    forgotten = set(list(library)[::7])
    for number in forgotten:
        change = change_of(library[number])
        rig.do(ForgetMemory(change.memory_id), session=change.session_id)
    return library, forgotten


def passes(operation: Operation, forgotten: bool, filters: Filters) -> bool:
    """The contract of `Filters`, said once more in other words."""
    change = change_of(operation)
    return (
        (change.scope != "session" or change.session_id == filters.session_id)
        and (filters.include_forgotten or not forgotten)
        and (not filters.scopes or change.scope in filters.scopes)
        and (not filters.types or change.type in filters.types)
        and (not filters.domains or change.domain in filters.domains)
        and (not filters.kinds or (change.kind or kind_of_type(change.type)) in filters.kinds)
        and (not filters.tags or bool(set(filters.tags) & set(change.tags)))
        and change.importance >= filters.min_importance
        and (filters.after is None or happened_at(operation) >= filters.after)
        and (filters.before is None or happened_at(operation) <= filters.before)
    )


moments = st.none() | st.floats(REQUESTED_AT - 720, REQUESTED_AT + 80) | st.just(REQUESTED_AT + 5)
some_filters = st.builds(
    Filters,
    session_id=st.sampled_from([SESSION, OTHER_SESSION, "session:nobody", ""]),
    scopes=st.sampled_from([(), ("session",), ("project",), ("user",), ("session", "project", "user")]),
    types=st.sampled_from([(), ("episodic",), ("semantic", "procedural")]),
    kinds=st.sampled_from(
        [(), ("fact",), ("procedure", "observation"), ("convention", "decision"), ("preference", "fact"), ("goal",)]
    ),
    domains=st.sampled_from([(), (), ("auth",), ("testing", "build")]),
    tags=st.sampled_from([(), ("red",), ("blue", "green"), ("none",), ("red' OR 1=1 --",)]),
    min_importance=st.sampled_from([0.0, 0.25, 0.3, 1.0]),
    after=moments,
    before=moments,
    include_forgotten=st.booleans(),
)


def test_every_search_lets_through_exactly_what_the_filters_allow(rig: RecordsRig) -> None:
    library, forgotten = build_library(rig)
    records, numbers = rig.records, list(library)

    @given(some_filters)
    def agrees(filters: Filters) -> None:
        expected = {number for number, each in library.items() if passes(each, number in forgotten, filters)}
        matching = records.matching(filters, 1000)
        assert matching is not None
        assert sorted(matching) == sorted(expected)
        assert not expected or records.matching(filters, len(expected) - 1) is None, "there are more"
        assert set(records.keyword_hits([Phrase("lantern")], filters, 1000)) == expected
        if own := sorted(each for each in expected if change_of(library[each]).scope == "session"):
            narrower = replace(filters, scopes=("session",))
            assert sorted(records.keyword_hits([Phrase("lantern")], narrower, 1000, numbers=own)) == own
        assert records.ranking_facts(numbers, filters).keys() == records.load(numbers, filters).keys() == expected
        assert not records.ranking_facts([], filters)
        assert not records.load([], filters)
        latest = sorted(expected, key=lambda number: (happened_at(library[number]), number), reverse=True)
        assert records.top(filters, "latest", 5) == latest[:5]
        important = sorted(latest, key=lambda number: -change_of(library[number]).importance)
        assert records.top(filters, "important", 5) == important[:5]

    agrees()


@pytest.mark.parametrize("zone", ["America/Los_Angeles", "Pacific/Auckland"])
def test_an_event_is_found_by_its_day_in_every_zone(
    zone: str, rig: RecordsRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    day = datetime(2026, 2, 20)
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        event = rig.number(rig.say("the ferry was late", occurred_at=day.replace(tzinfo=UTC).timestamp()))
        begin, end = day.timestamp(), day.timestamp() + 86_399
        assert rig.records.matching(Filters(SESSION, after=begin, before=end), 10) == [event]
        assert rig.records.matching(Filters(SESSION, before=begin - 1), 10) == []
        assert rig.records.matching(Filters(SESSION, after=end + 1), 10) == []
    finally:
        monkeypatch.undo()
        time.tzset()


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
    replaced = end("replaced", due=1.0)
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


# Words
def test_full_text_finds_words_in_any_form_in_content_and_tags_best_first(rig: RecordsRig) -> None:
    many = rig.say("Deploying deploys what was deployed.")
    one = rig.say("We talked for an hour about the weather, lunch and, once, deploying the thing.")
    tagged = rig.say("Nothing in here.", tags=("deploys",))
    rig.say("Something else entirely.")
    found = rig.found("deployed")
    assert (found[0], set(found)) == (many, {many, one, tagged})
    assert rig.found("deployed", limit=1) == [many]
    scores = list(rig.records.keyword_hits([Phrase("deploy")], ALL, 10).values())
    assert scores == sorted(scores, reverse=True)
    assert min(scores) > 0


def words_in(rig: RecordsRig, question: str, *numbers: int) -> dict[int, int]:
    postings = rig.records.postings(phrases_and_units(question)[1])
    counts = {number: sum(number in having for having in postings) for number in numbers}
    return {number: count for number, count in counts.items() if count}


def test_the_words_of_a_question_are_counted_in_each_memory_that_has_any(rig: RecordsRig) -> None:
    all_ = rig.number(rig.say("Deploying the lantern took the keeper an hour."))
    some = rig.number(rig.say("The lanterns were lit.", tags=("keepers",)))
    none = rig.number(rig.say("Bread."))
    assert words_in(rig, "When did the keeper deploy the lantern?", all_, some, none) == {all_: 3, some: 2}
    assert rig.records.postings([]) == []
    survey = rig.records.survey(phrases_and_units("keeper bread lamp deploy")[1], SESSION, 0)
    assert survey.postings == {rig.records.space: [[all_, some], [none], [], [all_]]}


# What was told around a memory
WHO = (SESSION, OTHER_SESSION, "")


def conversation(rig: RecordsRig) -> dict[int, Operation]:
    """Some sessions that tell things in turn, with pauses and dates in them."""
    chance = np.random.default_rng(7)
    stored: dict[int, Operation] = {}
    now = REQUESTED_AT
    for place in range(80):
        now += TOGETHER_S * float(chance.choice([0.05, 0.3, 0.6, 2.2]))
        operation = store_operation(
            f"op{place}",
            f"told {place}",
            requested_at=now,
            occurred_at=now - 0.8 * TOGETHER_S if place % 7 == 0 else None,
            session_id=WHO[int(chance.choice([0, 0, 0, 1, 1, 2]))],
            scope=("project", "session")[int(chance.choice([0, 0, 1]))],
            type=("episodic", "episodic", "episodic", "semantic")[place % 4],
            tags=(("red",), ())[place % 3 == 0],
            importance=(0.2, 0.8)[place % 5 == 0],
        )
        stored[keep(rig, operation)] = operation
    return stored


def neighbours_of(number: int, stored: dict[int, Operation], passing: set[int]) -> dict[int, int]:
    """The contract, said once more in other words."""
    its = change_of(stored[number])
    steps: dict[int, int] = {}

    def belongs(other: StoreMemory, at: float) -> bool:
        together = abs(at - happened_at(stored[number])) <= TOGETHER_S
        return together and other.type == "episodic" and (other.session_id, other.scope) == (its.session_id, its.scope)

    for direction in (-1, 1):
        step = 0
        for distance in range(1, INTERLEAVED + 1):
            at = number + direction * distance
            if step < REACH and at in passing and belongs(change_of(stored[at]), happened_at(stored[at])):
                step += 1
                steps[at] = step
    return steps if its.session_id and its.type == "episodic" else {}


told_filters = st.builds(
    Filters,
    session_id=st.sampled_from([*WHO, "session:nobody"]),
    scopes=st.sampled_from([(), ("session",), ("project",), ("project", "user")]),
    types=st.sampled_from([(), ("episodic",), ("semantic",)]),
    tags=st.sampled_from([(), ("red",), ("red' OR 1=1 --",)]),
    min_importance=st.sampled_from([0.0, 0.5]),
    after=st.none() | st.floats(REQUESTED_AT, REQUESTED_AT + 50 * TOGETHER_S),
)


def test_neighbours_are_what_the_rule_says_whatever_is_filtered(rig: RecordsRig) -> None:
    stored = conversation(rig)
    assert len(rig.records.neighbours(sorted(stored), ALL).steps) > 15, "there is something to filter"

    @given(told_filters, st.sets(st.sampled_from(sorted(stored)), max_size=12))
    def agrees(filters: Filters, numbers: set[int]) -> None:
        passing = set(rig.records.matching(filters, 1000) or ())
        expected = {number: neighbours_of(number, stored, passing) for number in passing}
        numbers &= passing  # none is asked for that the filters turn away
        told = rig.records.neighbours(sorted(numbers), filters)
        assert told.steps == {number: steps for number, steps in expected.items() if steps and number in numbers}
        theirs = rig.records.neighbours(sorted(numbers), filters, and_theirs=True).steps
        wanted = numbers | {other for steps in told.steps.values() for other in steps}
        assert theirs == {number: steps for number, steps in expected.items() if steps and number in wanted}
        assert set(told.facts) == {other for steps in told.steps.values() for other in steps} <= passing
        assert told.facts == (rig.records.ranking_facts(list(told.facts), filters) if told.facts else {})

    agrees()


# --- Words that are in thousands of memories: what is found by them, and that nothing is lost for being common.
COUNT = WIDE_ROWS + 2_000
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
    with RecordsRig(tmp_path_factory.mktemp("many") / "memory.db") as rig:
        for start in range(0, COUNT, 2_000):
            apply(rig.records, operations[start : start + 2_000])
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
