"""An answer says each thing once, across scopes and in one, and what is out of date after the rest."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from remembrancer.actors.store.records.types import MemoryRecord, Vectors
from remembrancer.actors.store.replaced_memories import can_replace
from remembrancer.actors.store.retrieval.deduplication import (
    COMPARED_CHARACTERS,
    SAME_COSINE,
    Entry,
    deduplicate,
    demote_replaced,
)
from remembrancer.memory.decay import DAY_S
from remembrancer.protocol.kinds import SCOPES, Kind, Scope
from remembrancer.protocol.reads import Scores
from remembrancer.protocol.writes import SourceRef
from tests.cases import cases

NOW = 1_700_000_000.0
EAST: Vectors = np.array([1.0, 0.0], dtype=np.float32)
NORTH: Vectors = np.array([0.0, 1.0], dtype=np.float32)
TOLD = "The lantern hangs by the mole."


def entry(
    memory_id: str, final: float, *, scope: Scope = "project", vector: Vectors | None = None, **fields: Any
) -> Entry:
    """A memory with this final score; `fields` are those of its record, and `strength`."""
    strength = fields.pop("strength", 0.25)
    known: dict[str, Any] = {"content": memory_id, "type": "semantic", "tags": (), "occurred_at": None}
    known |= {"number": 1, "id": memory_id, "scope": scope, "importance": 0.5, "source": SourceRef(), "version": 1}
    known |= {"created_at": NOW, "access_count": 0, "forgotten": False, "near_duplicates": ()}
    doubts = fields.pop("doubts", {})
    record = MemoryRecord(**known | fields)
    return Entry(1, record, Scores(final, relevance=final), strength, vector, doubts=doubts)


def apart(degrees: float) -> Vectors:
    """A unit vector. Two of them with 25 degrees between have a cosine of 0.906, with 26 of 0.899; with 18 degrees of
    0.951, with 19 of 0.946."""
    angle = np.deg2rad(degrees)
    return np.array([np.cos(angle), np.sin(angle)], dtype=np.float32)


def ids(entries: Sequence[Entry]) -> list[str]:
    return [each.record.id for each in entries]


@pytest.mark.parametrize(
    ("users", "projects"),
    [
        ("Postgres listens on port 5432.", "Postgres listens on port 5433."),
        ("Staging is deployed from the release branch.", "Staging is deployed from the main branch."),
        ("Comments in the code are wanted.", "Comments in the code are not wanted."),
        ("x" * 2001, "x" * 2001 + "y"),
    ],
)
def test_what_two_scopes_say_of_one_thing_in_other_words_is_shown_as_both_say_it(users: str, projects: str) -> None:
    mine = entry("mine", 0.9, content=projects, vector=EAST)
    found = deduplicate([mine, entry("users", 0.8, scope="user", content=users, vector=EAST)])
    assert [(each.record.id, each.stands_for) for each in found] == [("mine", ()), ("users", ())]


@pytest.mark.parametrize("kind", ["fact", "open_end"])
@pytest.mark.parametrize("scope", SCOPES)
def test_an_open_end_and_its_completion_are_both_shown(kind: Kind, scope: Scope) -> None:
    task = entry("task", 0.9, content="Upload the slides", vector=EAST, kind="open_end")
    done = entry("done", 0.8, content="The slides are uploaded", vector=EAST, kind=kind, scope=scope)
    assert [(each.record.id, each.stands_for) for each in deduplicate([task, done])] == [("task", ()), ("done", ())]


def test_an_open_end_and_a_fact_of_the_same_words_are_both_shown_and_a_done_one_is_represented() -> None:
    task = entry("task", 0.8, content=TOLD, vector=EAST, kind="open_end")
    others = [entry(kind, 0.9, content=TOLD, vector=EAST, kind=kind, done=True) for kind in ("fact", "open_end")]
    shown = [[(each.record.id, each.stands_for) for each in deduplicate([task, other])] for other in others]
    assert shown == [[("fact", ()), ("task", ())], [("task", ("open_end",))]]


def test_a_summary_stands_before_beside_or_in_the_place_of_its_sources() -> None:
    behind = [entry("one", 0.8), entry("two", 0.6), entry("else", 0.7)]
    summary = entry("summary", 0.75, derived_from=("one", "two"))
    assert ids(deduplicate([*behind, summary])) == ["one", "else", "two"]
    best = entry("summary", 0.9, derived_from=("one", "two"))
    assert ids(deduplicate([*behind, best])) == ["summary", "one", "else", "two"]
    users = entry("users", 0.9, scope="user", content=TOLD, vector=EAST)
    mine = entry("one", 0.8, content=TOLD, vector=EAST)
    assert ids(deduplicate([users, mine, entry("summary", 0.7, vector=NORTH, derived_from=("one",))])) == ["users"]
    summary = entry("summary", 0.85, scope="user", content=TOLD, vector=EAST, derived_from=("other",))
    other, shown = deduplicate([entry("other", 0.9, vector=NORTH), summary, mine])
    assert (other.record.id, shown.record.id, shown.stands_for) == ("other", "summary", ("one",))
    sources = ("one", "two", "three")
    behind = [entry(name, 0.9 - place / 10, status="consolidated") for place, name in enumerate(sources)]
    summary = entry("summary", 0.3, derived_from=sources)
    found = deduplicate([*behind, entry("else", 0.85), summary])
    assert ids(found) == ["summary", "else"]
    assert found[0].scores.final == 0.9
    assert ids(deduplicate([behind[0], summary])) == ["one"], "of one alone the memory says it better"
    behind[1] = entry("two", 0.8, status="consolidated", possibly_superseded_by=("new",))
    found = deduplicate([*behind, entry("summary", 0.95, derived_from=sources)])
    assert [(each.record.id, each.scores.final) for each in found] == [("one", 0.95), ("two", 0.8), ("three", 0.7)]
    assert ids(deduplicate([*behind[:2], summary])) == ["one", "two"]
    assert ids(deduplicate([*behind[1:], best])) == ["summary", "two", "three"], "it alone has the first"
    procedure = entry("summary", 0.3, derived_from=sources, type="procedural")
    assert ids(deduplicate([*behind, procedure])) == ["one", "two", "three"], "a procedure stands for nothing"


# --- What was replaced.
def test_what_was_replaced_stands_right_behind_what_replaced_it_also_in_a_chain_or_a_circle() -> None:
    old, other, new = entry("old", 0.9, superseded_by=("new",)), entry("other", 0.8), entry("new", 0.1)
    assert ids(demote_replaced([old, other, new])) == ["new", "old", "other"]
    assert [each.scores.final for each in demote_replaced([old, other, new])] == [0.9, 0.9, 0.8], "it answers as well"
    of_old, of_new = Scores(0.9, 0.9, shares={"words": 2.9, "standing": -2.0}), Scores(0.1, 0.1, shares={"words": 0.1})
    scored = [dataclasses.replace(old, scores=of_old), dataclasses.replace(new, scores=of_new)]
    assert demote_replaced(scored)[0].scores.shares == {"words": 0.1, "stands_for": 0.8}, "not the loss of the old one"
    assert ids(demote_replaced([other, entry("old", 0.7, superseded_by=("gone",))])) == ["other", "old"]
    gone = entry("gone", 0.3, superseded_by=("new",))
    found = demote_replaced([entry("now", 0.9, doubts={"new": 0.4}), gone, new])
    assert [(each.record.id, each.scores.final) for each in found] == [("now", 0.9), ("new", 0.3), ("gone", 0.3)]
    chain = [entry("a", 0.9, superseded_by=("b",)), entry("b", 0.8, superseded_by=("c",)), entry("c", 0.1)]
    assert ids(demote_replaced(chain)) == ["c", "b", "a"]
    assert [each.scores.final for each in demote_replaced(chain)] == [0.9, 0.9, 0.9]
    circle = [entry("a", 0.9, superseded_by=("b",)), entry("b", 0.8, superseded_by=("a",))]
    assert sorted(ids(demote_replaced(circle))) == ["a", "b"]


@pytest.mark.parametrize(
    ("chance", "own", "expected"),
    [
        (0.6, 0.1, [("new", 0.48), ("old", 0.32), ("other", 0.7)]),
        (0.6, 0.6, [("new", 0.6), ("old", 0.32), ("other", 0.7)]),
        (0.4, 0.1, [("old", 0.48), ("new", 0.1), ("other", 0.7)]),
        (0.4, 0.5, [("new", 0.5), ("old", 0.48), ("other", 0.7)]),
    ],
)
def test_what_is_probably_replaced_shares_its_relevance_with_the_later_memory(
    chance: float, own: float, expected: list[tuple[str, float]]
) -> None:
    old, other, new = entry("old", 0.8, doubts={"gone": 0.5, "new": chance}), entry("other", 0.7), entry("new", own)
    found = demote_replaced([old, other, new])
    assert [(each.record.id, round(each.scores.relevance, 2)) for each in found] == expected


@given(st.lists(st.lists(st.integers(0, 7), max_size=3), max_size=8))
def test_whatever_replaces_what_nothing_is_lost_or_said_twice(links: list[list[int]]) -> None:
    found = [
        entry(f"m{place}", 1.0, superseded_by=tuple(f"m{other}" for other in newer))
        for place, newer in enumerate(links)
    ]
    assert sorted(ids(demote_replaced(found))) == sorted(ids(found))


# --- Of several scopes.
def in_order(*entries: Entry) -> list[Entry]:
    """The entries that are left of some, ranked as they are given: their final scores are 100, 99 …"""
    for place, each in enumerate(entries):
        object.__setattr__(each, "scores", type(each.scores)(100.0 - place, 1.0))
    return deduplicate(entries)


def said(name: str, scope: Scope = "project", degrees: float | None = 0.0, **fields: Any) -> Entry:
    """A memory that says the same as all others, unless `fields` has another content."""
    vector = None if degrees is None else apart(degrees)
    return entry(name, 0.0, scope=scope, vector=vector, **{"content": TOLD, **fields})


@pytest.mark.parametrize(("broader", "narrower"), [("user", "project"), ("user", "session"), ("project", "session")])
def test_the_broader_scope_wins_unless_the_other_is_more_than_twice_as_strong(broader: Scope, narrower: Scope) -> None:
    for strength, expected in ((0.1, "wide"), (0.5, "wide"), (0.501, "near")):
        wide, near = said("wide", broader, strength=0.25), said("near", narrower, strength=strength)
        assert ids(in_order(wide, near)) == [expected]
        assert ids(in_order(near, wide)) == [expected]


def test_one_broad_memory_stands_for_several_narrow_ones_and_of_one_id_for_the_earlier() -> None:
    for updated_at, scope in ((99.0, "user"), (100.0, "user"), (100.5, "project")):
        wide = said("one", "user", strength=0.1, updated_at=100.0)
        near = said("one", "project", strength=0.9, updated_at=updated_at)
        for pair in ((wide, near), (near, wide)):
            (kept,) = in_order(*pair)
            assert (kept.record.scope, kept.stands_for) == (scope, ())
    (kept,) = in_order(
        said("a", "session", 0, tags=("x", "y")),
        said("b", "session", 5),
        said("c", "project", 10, tags=("z",)),
        said("d", "user", 3, tags=("y",)),
    )
    assert (kept.record.id, kept.stands_for) == ("d", ("a", "b", "c"))
    assert kept.found_in == ("session", "project", "user")
    assert kept.record.tags == ("y", "x", "z")


# --- Of one scope.
PUSH = "Run the whole test suite before each push."
PUSHED = "Before each push, run the whole test suite."
LONG = f"{PUSH} " * (COMPARED_CHARACTERS // len(PUSH) + 1)


def event(name: str, after_s: float, type_: str = "episodic") -> Entry:
    return said(name, type=type_, occurred_at=NOW + after_s)


@pytest.mark.parametrize(
    ("entries", "kept"),
    [
        ((said("a", content=PUSH), said("b", degrees=90, content="x"), said("c", degrees=18, content=PUSHED)), "ab"),
        ((said("a", content=PUSH), said("b", degrees=19, content=PUSHED)), "ab"),  # the words alone are not enough
        ((said("a", degrees=None, content=PUSH), said("b", content=PUSHED)), "ab"),
        ((said("a", degrees=None, content="Use  tabs."), said("b", degrees=None, content="use tabs")), "a"),
        ((said("a", content=LONG), said("b", content=LONG)), "a"),
        ((said("a", content=LONG), said("b", content=LONG + PUSHED)), "ab"),
        ((said("a"), Entry(2, said("b").record, said("b").scores, 0.5, is_current=False)), "ab"),
        ((event("a", 0.0), event("b", DAY_S)), "ab"),
        ((event("a", 0.0), event("b", DAY_S - 1)), "a"),
        ((event("a", 0.0, "semantic"), event("b", DAY_S, "semantic")), "a"),
    ],
)
def test_texts_of_one_scope_are_one_where_words_vectors_and_day_agree(entries: Sequence[Entry], kept: str) -> None:
    assert ids(in_order(*entries)) == list(kept)


# --- Whatever is given.
scopes: st.SearchStrategy[Scope] = st.sampled_from(SCOPES)
memories = st.builds(
    said,
    st.sampled_from([f"memory:{n}" for n in range(10)]),
    scopes,
    st.none() | st.integers(0, 36).map(lambda turn: turn * 10.0),
    strength=st.integers(0, 20).map(lambda n: n / 20),
    updated_at=st.integers(0, 3).map(float),
    tags=st.lists(st.sampled_from("abcde"), max_size=3, unique=True).map(tuple),
    content=st.sampled_from([TOLD, PUSH, PUSHED, "The threshold is 5.", "The threshold is 7.", PUSH.upper()]),
)
found = st.lists(memories, max_size=14, unique_by=lambda each: (each.record.id, each.record.scope))


@given(found)
def test_no_two_that_are_left_say_the_same_and_all_is_accounted_for(given_list: list[Entry]) -> None:
    kept = in_order(*given_list)
    assert len(set(ids(kept))) == len(kept)
    for one in kept:
        for two in kept:
            same = one.record.content == two.record.content and one.record.scope != two.record.scope
            if same and one.vector is not None and two.vector is not None:
                assert float(one.vector @ two.vector) <= SAME_COSINE + 1e-6
    assert {name for each in kept for name in (each.record.id, *each.stands_for)} == set(ids(given_list))
    tags = {tag for each in kept for tag in each.record.tags}
    assert tags == {tag for each in given_list for tag in each.record.tags}
    seen = {scope for each in kept for scope in (each.record.scope, *each.found_in)}
    assert seen == {each.record.scope for each in given_list}
    finals = [each.scores.final for each in kept]
    assert finals == sorted(set(finals), reverse=True), "the order of the list is kept"
    for each in kept:
        assert each.record.id not in each.stands_for
        assert not each.found_in or each.record.scope in each.found_in


def test_what_happened_stays_true_unless_it_is_taken_back() -> None:
    for earlier, later, fields, is_replaced in cases("replacement", "happened"):
        old = entry("old", 0.5, content=earlier, space=1, **{"created_at": NOW - DAY_S} | fields).record
        new = entry("new", 0.5, content=later, space=1, number=2).record
        assert can_replace(new, old, ()) == is_replaced, (earlier, later)


def test_what_happened_before_a_task_was_stored_has_not_completed_it() -> None:
    old = entry("old", 0.5, content="Ask Marit about VAT", space=1, type="episodic", kind="open_end", created_at=NOW)
    for ago_s, is_replaced in ((3 * DAY_S, False), (DAY_S / 2, True)):
        new = entry("new", 0.5, content="Wrong VAT rate", space=1, number=2, occurred_at=NOW - ago_s).record
        assert can_replace(new, old.record, ()) == is_replaced


def test_a_fix_replaces_no_dated_event() -> None:
    for earlier, later, fields, is_replaced in cases("replacement", "fixed"):
        old = entry("old", 0.5, content=earlier, space=1, **fields).record
        new = entry("new", 0.5, content=later, space=1, number=2, type="episodic", kind="error_fix").record
        assert can_replace(new, old, ()) == is_replaced, (earlier, later)


def test_steps_replace_only_rules() -> None:
    steps = entry(
        "new", 0.5, content="1. flash the firmware; 2. tell the lab", space=1, number=2, kind="procedure"
    ).record
    kinds: tuple[Kind, ...] = ("fact", "open_end", "convention", "procedure")
    old = [entry("old", 0.5, content="the lab knows the firmware", space=1, kind=kind).record for kind in kinds]
    assert [can_replace(steps, each, ()) for each in old] == [False, False, True, True]
    assert can_replace(replace(steps, content="To flash it, tell the lab"), old[0], ())
