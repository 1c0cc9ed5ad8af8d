"""An answer says each thing once, and what is out of date after the rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace as replace_entry
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from remembrancer.actors.store.records.contract import MemoryRecord, Vectors
from remembrancer.actors.store.retrieval.once import NAMED, Entry, each_once, marked, replaced_last, strength_of
from remembrancer.memory.decay import DAY_S
from remembrancer.protocol.kinds import SCOPES, Scope
from remembrancer.protocol.reads import Scores
from remembrancer.protocol.writes import SourceRef

NOW = 1_700_000_000.0
EAST: Vectors = np.array([1.0, 0.0], dtype=np.float32)
NORTH: Vectors = np.array([0.0, 1.0], dtype=np.float32)
TOLD = "The lantern hangs by the mole."


def entry(
    memory_id: str, final: float, *, scope: Scope = "project", vector: Vectors | None = None, **fields: Any
) -> Entry:
    """A memory with this final score; `fields` are those of its record, and `strength`."""
    strength = fields.pop("strength", 0.25)
    record = MemoryRecord(
        number=1,
        id=memory_id,
        content=fields.pop("content", memory_id),
        type=fields.pop("type", "semantic"),
        scope=scope,
        importance=0.5,
        tags=fields.pop("tags", ()),
        source=SourceRef(),
        version=1,
        created_at=NOW,
        occurred_at=fields.pop("occurred_at", None),
        access_count=0,
        forgotten=False,
        near_duplicates=(),
        **fields,
    )
    return Entry((0, 1), record, Scores(final, relevance=final, importance=0.5, recency=1.0), strength, vector)


def ids(entries: Sequence[Entry]) -> list[str]:
    return [each.record.id for each in entries]


def test_the_broader_of_two_that_say_the_same_stands_for_both_at_the_better_place() -> None:
    found = each_once(
        [
            entry("mine", 0.9, scope="session", content=TOLD, vector=EAST, tags=("a", "b")),
            entry("other", 0.8, vector=NORTH),
            entry("users", 0.3, scope="user", content=TOLD, vector=EAST, tags=("b", "c")),
        ]
    )
    assert ids(found) == ["users", "other"]
    assert found[0].scores.final == 0.9
    assert (found[0].tags, found[0].found_in, found[0].stands_for) == (("b", "c", "a"), ("session", "user"), ("mine",))
    assert (found[1].found_in, found[1].stands_for) == ((), ())


def test_a_narrower_memory_that_is_much_stronger_stands_for_the_broader_one() -> None:
    found = each_once(
        [
            entry("users", 0.9, scope="user", content=TOLD, vector=EAST, strength=0.1),
            entry("mine", 0.5, content=TOLD, vector=EAST, strength=0.3),
        ]
    )
    assert ids(found) == ["mine"]
    assert found[0].stands_for == ("users",)


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
    found = each_once(
        [
            entry("mine", 0.9, content=projects, vector=EAST),
            entry("users", 0.8, scope="user", content=users, vector=EAST),
        ]
    )
    assert ids(found) == ["mine", "users"]
    assert [each.stands_for for each in found] == [(), ()]


def test_memories_of_one_scope_stay_apart_however_alike_they_are() -> None:
    assert ids(each_once([entry("one", 0.9, vector=EAST), entry("two", 0.8, vector=EAST)])) == ["one", "two"]


def test_a_memory_that_is_in_two_files_for_a_moment_is_shown_as_the_later_one_has_it() -> None:
    found = each_once(
        [entry("moved", 0.9, updated_at=1.0), entry("moved", 0.4, scope="user", updated_at=2.0), entry("else", 0.1)]
    )
    assert ids(found) == ["moved", "else"]
    assert found[0].record.scope == "user"
    assert found[0].stands_for == ()


def test_a_summary_is_left_out_where_one_of_its_sources_says_it_better() -> None:
    found = each_once(
        [entry("one", 0.9), entry("summary", 0.8, derived_from=("one", "two")), entry("two", 0.7), entry("else", 0.6)]
    )
    assert ids(found) == ["one", "two", "else"]


def test_a_summary_is_shown_in_the_place_of_several_memories_that_stand_behind_it() -> None:
    sources = ("one", "two", "three")
    behind = [entry(name, 0.9 - place / 10, status="consolidated") for place, name in enumerate(sources)]
    summary = entry("summary", 0.3, derived_from=sources)
    found = each_once([*behind, entry("else", 0.85), summary])
    assert ids(found) == ["summary", "else"]
    assert found[0].scores.final == 0.9
    assert ids(each_once([behind[0], summary])) == ["one"], "of one alone the memory says it better"
    procedure = entry("summary", 0.3, derived_from=sources, type="procedural")
    assert ids(each_once([*behind, procedure])) == ["one", "two", "three"], "a procedure stands for nothing"


def test_a_summary_that_says_it_best_comes_first_and_its_active_sources_keep_their_places() -> None:
    found = each_once(
        [entry("summary", 0.9, derived_from=("one", "two")), entry("one", 0.8), entry("else", 0.7), entry("two", 0.6)]
    )
    assert ids(found) == ["summary", "one", "else", "two"]


def test_a_source_that_another_scope_says_as_well_keeps_its_summary_out() -> None:
    found = each_once(
        [
            entry("users", 0.9, scope="user", content=TOLD, vector=EAST),
            entry("one", 0.8, content=TOLD, vector=EAST),
            entry("summary", 0.7, vector=NORTH, derived_from=("one",)),
        ]
    )
    assert ids(found) == ["users"]


def test_a_summary_stays_where_it_stands_for_something_of_another_scope() -> None:
    found = each_once(
        [
            entry("one", 0.9, vector=NORTH),
            entry("summary", 0.8, scope="user", content=TOLD, vector=EAST, derived_from=("one",)),
            entry("mine", 0.7, content=TOLD, vector=EAST),
        ]
    )
    assert ids(found) == ["one", "summary"]
    assert found[1].stands_for == ("mine",)


entries = st.lists(
    st.builds(
        lambda number, final, scope, angle, sources: entry(
            f"m{number}",
            final,
            scope=scope,
            vector=np.array([np.cos(angle), np.sin(angle)], dtype=np.float32),
            derived_from=sources,
        ),
        st.integers(0, 1000),
        st.floats(0.0, 1.0),
        st.sampled_from(SCOPES),
        st.floats(0.0, 6.3),
        st.lists(st.integers(0, 1000).map("m{}".format), max_size=2).map(tuple),
    ),
    max_size=12,
    unique_by=lambda each: each.record.id,
)


@given(entries)
def test_whatever_is_left_out_is_stood_for_in_the_answer_or_derived_from_what_is_there(found: list[Entry]) -> None:
    kept = each_once(found)
    finals = [each.scores.final for each in kept]
    assert finals == sorted(finals, reverse=True)
    said = {one for each in kept for one in (each.record.id, *each.stands_for)}
    for each in found:
        assert each.record.id in said or said.intersection(each.record.derived_from)


def test_strength_counts_from_the_last_access_or_else_from_the_making() -> None:
    record = replace(entry("one", 0.5).record, importance=0.8, confidence=0.5)
    assert strength_of(record, NOW) == pytest.approx(0.4)
    assert strength_of(record, NOW + 7 * DAY_S) == pytest.approx(0.2)
    assert strength_of(replace(record, last_accessed_at=NOW + 7 * DAY_S), NOW + 7 * DAY_S) == pytest.approx(0.4)


# --- What may have been replaced.


def port(name: str, number: int, when: float, **fields: Any) -> Entry:
    """A fact of a port, told at some time."""
    given = {"content": f"The API listens on port {number}", **fields}
    return entry(name, 1.0 - when / 10, occurred_at=NOW + when, **given)


def newer_than(entries: Sequence[Entry]) -> dict[str, tuple[str, ...]]:
    return {each.record.id: each.record.possibly_superseded_by for each in marked(entries)}


def apart(degrees: float) -> Vectors:
    return np.array([np.cos(np.deg2rad(degrees)), np.sin(np.deg2rad(degrees))], dtype=np.float32)


def test_a_later_fact_about_the_same_marks_the_earlier_and_not_the_other_way_round() -> None:
    old, new = port("old", 8080, 1, vector=apart(0)), port("new", 9090, 2, vector=apart(20))
    assert newer_than([old, new]) == newer_than([new, old]) == {"old": ("new",), "new": ()}


@pytest.mark.parametrize(
    "other",
    [
        {"type": "episodic"},
        {"scope": "user"},
        {"valid_until": NOW - 1, "is_current": False},
        {"vector": None},
        {"vector": apart(80)},
        {"vector": apart(0)},
        {"content": "The worker of the queue waits for 9090 seconds"},
        {"occurred_at": NOW + 1},
        {"content": "The API listens on port 9090" + " " * 2000 + "."},
    ],
    ids=["told", "of the user", "over", "no vector", "far", "a copy", "other words", "of the same time", "long"],
)
def test_nothing_else_marks_it(other: dict[str, Any]) -> None:
    given = dict(other)
    is_current, when = given.pop("is_current", True), given.pop("occurred_at", NOW + 2) - NOW
    new = port("new", 9090, when, **{"vector": apart(20), **given})
    new = replace_entry(new, is_current=is_current)
    found = newer_than([port("old", 8080, 1, vector=apart(0)), new])
    assert found["old"] == ()


def test_what_a_link_has_put_in_its_place_is_not_named_twice_and_no_more_are_named_than_help() -> None:
    old = port("old", 8080, 0, vector=apart(0), superseded_by=("n1",))
    later = [port(f"n{number}", 9000 + number, number, vector=apart(3 * number)) for number in range(1, 9)]
    named = newer_than([old, *later])["old"]
    assert "n1" not in named
    assert len(named) == NAMED


def test_what_was_replaced_stands_right_behind_what_replaced_it() -> None:
    old, other, new = entry("old", 0.9, superseded_by=("new",)), entry("other", 0.8), entry("new", 0.1)
    assert ids(replaced_last([old, other, new])) == ["new", "old", "other"]
    maybe = entry("old", 0.9, possibly_superseded_by=("gone", "new"))
    assert ids(replaced_last([maybe, other, new])) == ["old", "other", "new"], "what is only likely moves nothing"
    assert ids(replaced_last([other, old])) == ["other", "old"], "nor does what is not found"


def test_a_chain_of_replacements_stands_latest_first_and_a_circle_ends() -> None:
    chain = [entry("a", 0.9, superseded_by=("b",)), entry("b", 0.8, superseded_by=("c",)), entry("c", 0.1)]
    assert ids(replaced_last(chain)) == ["c", "b", "a"]
    circle = [entry("a", 0.9, superseded_by=("b",)), entry("b", 0.8, superseded_by=("a",))]
    assert sorted(ids(replaced_last(circle))) == ["a", "b"]


@given(st.lists(st.lists(st.integers(0, 7), max_size=3), max_size=8))
def test_whatever_replaces_what_nothing_is_lost_or_said_twice(links: list[list[int]]) -> None:
    found = [
        entry(f"m{place}", 1.0, superseded_by=tuple(f"m{other}" for other in newer))
        for place, newer in enumerate(links)
    ]
    assert sorted(ids(replaced_last(found))) == sorted(ids(found))
