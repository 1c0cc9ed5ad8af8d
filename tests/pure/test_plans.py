"""The plans of promotions, summaries, themes and maintenance, without a store."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from remembrancer.actors.consolidator import session_end
from remembrancer.actors.consolidator.derived_memories import (
    LONGEST_SOURCE,
    SUMMARY_CHARACTERS,
    name_of,
    plan_patterns,
    plan_summaries,
)
from remembrancer.actors.consolidator.maintenance import plan_archiving, plan_forgetting
from remembrancer.actors.consolidator.promoting import changed_by, plan_promotions
from remembrancer.actors.consolidator.session_end import promoted_of
from remembrancer.actors.consolidator.store_requests import PART_EDITS, Found, Group, packed
from remembrancer.protocol.consolidation import SMALLEST_CLUSTER, Material
from remembrancer.protocol.kinds import KINDS, Kind, type_of_kind
from remembrancer.protocol.runs import AddLink, AddMemory, LogPromotion, ReviseMemory
from remembrancer.protocol.writes import EntityRef, ProjectRef
from tests.pure.memories import memory

# --- Memories for plans to be made about, and what becomes of them when a plan is carried out.
NOW = 1_800_000_000.0
DAY_S = 86_400.0
DIMENSIONS = 8
SESSION = "session:one"


def direction(*weights: float) -> bytes:
    """A unit vector as it travels; what is not given is 0."""
    row = np.zeros(DIMENSIONS, dtype=np.float32)
    row[: len(weights)] = weights
    return bytes((row / np.linalg.norm(row)).astype("<f4").tobytes())


def material(number: int, content: str = "", *, kind: Kind = "convention", **fields: Any) -> Material:
    given: dict[str, Any] = {"id": f"memory:{number:026d}", "number": number, "kind": kind, "type": type_of_kind(kind)}
    given |= {"scope": "session", "session_id": SESSION, "vector": direction(1.0), "created_at": NOW - 3600 + number}
    return memory(number, content or f"note {number}", **given | fields)


def carried_out(memories: Iterable[Material], groups: Iterable[Group]) -> list[Material]:
    """The memories after the edits, as the store leaves them. A version that is not the expected one fails the test."""
    known = {memory.id: memory for memory in memories}
    forgotten: set[str] = set()
    for edit in (edit for group in groups for edit in group):
        match edit:
            case AddMemory(memory=new, made_of=made_of):
                assert new.id not in known
                assert all(known[source].version == version for source, version in made_of)
                made = material(
                    len(known) + 1000,
                    new.content,
                    kind=new.kind,
                    scope=new.scope,
                    session_id=new.session_id,
                    importance=new.importance,
                    confidence=new.confidence,
                    vector=known[made_of[0][0]].vector,
                    derived_from=tuple(source for source, _ in made_of),
                )
                known[new.id] = msgspec.structs.replace(made, id=new.id)
            case ReviseMemory():
                before = known[edit.memory_id]
                assert edit.expected_version == before.version
                given = {"status": edit.status, "scope": edit.scope, "importance": edit.importance}
                given |= {"confidence": edit.confidence}
                changed = {name: value for name, value in given.items() if value is not None}
                known[before.id] = msgspec.structs.replace(before, version=before.version + 1, **changed)
                if edit.forget is not None:
                    forgotten.add(before.id)
            case AddLink(source=source, target=target):
                assert source != target
                assert {source, target} <= set(known)
            case _:
                pass
    return [memory for memory in known.values() if memory.id not in forgotten]


def contents(memories: Iterable[Material]) -> set[str]:
    return {memory.content for memory in memories}


WORDS = (
    *("the build", "the gateway", "a test", "the cache", "fails", "is slow"),
    *("at night", "never", "uses", "port", "7", "8"),
)


@st.composite
def materials(draw: st.DrawFn, /, **fixed: Any) -> list[Material]:
    """Some memories in a few directions, so that many are near each other."""
    made = []
    for number in range(draw(st.integers(0, 14))):
        words = draw(st.lists(st.sampled_from(WORDS), min_size=1, max_size=5))
        weights: Sequence[float] = draw(st.lists(st.sampled_from([0.0, 0.1, 1.0]), min_size=3, max_size=3))
        fields = {
            "kind": draw(st.sampled_from(KINDS)),
            "importance": draw(st.floats(0, 1)),
            "confidence": draw(st.floats(0, 1)),
            "access_count": draw(st.integers(0, 20)),
            "vector": direction(*weights) if any(weights) else b"",
            "version": draw(st.integers(1, 3)),
            **fixed,
        }
        made.append(material(number, " ".join(words), **fields))
    return made


def strong(number: int, content: str, **fields: Any) -> Material:
    return material(number, content, **{"importance": 0.9, "confidence": 0.8, **fields})


def plan(memories: list[Material], known: dict[str, Found] | None = None) -> list[Group]:
    promoted = promoted_of(memories, NOW)
    return plan_promotions(promoted, known or {}, NOW)


def moved(made: list[Group]) -> list[str]:
    revisions = [edit for group in made for edit in group if isinstance(edit, ReviseMemory)]
    return [edit.memory_id for edit in revisions if edit.scope == "project"]


def test_a_merge_raises_the_target_and_keeps_what_the_other_said() -> None:
    arriving = strong(1, "tests run before each push")
    target = material(2, "tests run before each push, always", scope="project", importance=0.5, confidence=0.99)
    made = plan([arriving], {arriving.id: [(target, 0.9)]})
    ((source, merging, link, log),) = made
    assert isinstance(source, ReviseMemory)
    assert (source.memory_id, source.status, source.expected_version) == (arriving.id, "promoted", 1)
    assert isinstance(merging, ReviseMemory)
    assert (merging.importance, merging.confidence, merging.accessed, merging.only_with) == (
        0.9,
        1.0,
        True,
        arriving.id,
    )
    assert merging.chain is not None
    assert (merging.chain.action, merging.chain.content) == ("merged", arriving.content)
    assert link == AddLink(arriving.id, target.id, "supports", 0.9)
    assert isinstance(log, LogPromotion)
    assert log.merged_into == target.id
    assert moved(made) == []


API = {"entities": (EntityRef("api", "service", "about"),)}
CACHE = "the cache is cleared when the service"


@pytest.mark.parametrize(
    ("told", "other", "cosine", "fields"),
    [
        (f"{CACHE} starts", f"{CACHE} stops", 0.9, {}),
        ("the api listens on port 8443", "the api listens on port 8080", 0.97, API),
    ],
)
def test_what_is_near_but_not_the_same_is_linked(told: str, other: str, cosine: float, fields: dict[str, Any]) -> None:
    arriving = strong(1, told, kind="fact", **fields)
    target = material(2, other, kind="fact", scope="project", created_at=NOW - 90_000, **fields)
    made = plan([arriving], {arriving.id: [(target, cosine)]})
    assert moved(made) == [arriving.id]
    links = [edit for edit in made[0] if isinstance(edit, AddLink)]
    assert links == [AddLink(arriving.id, target.id, "similar_to", cosine)]


def test_what_was_summed_up_is_promoted_beside_its_summary_and_merges_follow_each_other() -> None:
    first, second = strong(1, "tests run first"), strong(2, "the tests run first", vector=direction(0.0, 1.0))
    target = material(3, "tests run first, always", scope="project", confidence=0.5, version=4)
    made = plan([first, second], {each.id: [(target, 0.95)] for each in (first, second)})
    merges = [edit for group in made for edit in group if isinstance(edit, ReviseMemory) and edit.only_with]
    assert [(edit.expected_version, edit.confidence) for edit in merges] == [(4, 0.55), (5, 0.6)]
    weaker = msgspec.structs.replace(second, vector=first.vector, importance=0.8)
    assert moved(plan([weaker, first])) == [first.id]
    (_, (_, merging, *_)) = plan([weaker, first])
    assert isinstance(merging, ReviseMemory)
    assert (merging.memory_id, merging.expected_version, merging.only_with) == (first.id, 2, weaker.id)
    notes = observations(importance=1.0, confidence=1.0)
    (summary,) = summed_up(notes)
    reflected = carried_out(notes, [summary])
    after = {memory.id: memory for memory in carried_out(reflected, end_of(reflected))}
    assert {(after[note.id].scope, after[note.id].status) for note in notes} == {("project", "consolidated")}
    assert (after[summary[0].memory.id].scope, after[summary[0].memory.id].status) == ("project", "active")


@given(st.one_of(materials(), materials(kind="decision")), st.integers(1, 2))
def test_the_end_of_a_session_loses_nothing_and_comes_to_rest_in_any_order(
    memories: list[Material], times: int
) -> None:
    """No memory is changed behind the back of another edit: that would fail in `carried_out`."""
    assert packed(end_of(memories)) == packed(end_of(list(reversed(memories))))
    after = carried_out(memories, end_of(memories))
    assert contents(memories) <= contents(after)
    by_id = {memory.id: memory for memory in after}
    assert all(by_id[memory.id].importance >= memory.importance for memory in memories)
    reflected = memories
    for _ in range(times):
        reflected = carried_out(reflected, summed_up(reflected))
    seen = seen_by_the_next(carried_out(reflected, end_of(reflected)))
    assert seen_by_the_next(after) <= seen, "what is summed up meanwhile keeps nothing from the next session"
    for _ in memories:
        after = carried_out(after, end_of(after))
    assert end_of(after) == [], "there was always something to do"


def test_what_was_undone_is_not_promoted_again_and_summaries_take_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    assert plan([strong(1, "tests run before each push", undone="promoted")]) == []
    assert moved(plan([strong(1, "tests run before each push", undone="consolidated")]))
    monkeypatch.setattr(session_end, "SESSION_END_LIMIT", 2)
    notes = [strong(number, f"note {number}", kind="fact") for number in range(3)]
    summary = strong(9, "all notes", kind="fact", importance=1.0, derived_from=("memory:other",))
    chosen = [memory.id for memory, _ in promoted_of([summary, *notes], NOW)]
    assert chosen == [notes[0].id, notes[1].id, summary.id]


def seen_by_the_next(memories: list[Material]) -> set[str]:
    return {memory.content for memory in memories if memory.scope == "project"}


def end_of(memories: list[Material]) -> list[Group]:
    promotions = plan(memories)
    left = [memory for memory in memories if memory.id not in changed_by(promotions)]
    return [*promotions, *plan_summaries(left, NOW)]


# --- The plans of summaries and themes, without a store.
FULL = (
    "The queue was full at noon",
    "Mails were late since the queue was full",
    "A worker died of the full queue",
    "After the deployment the queue filled up again",
)


def observations(count: int = 4, texts: Sequence[str] = FULL, **fields: Any) -> list[Material]:
    return [material(number, texts[number - 1], kind="observation", **fields) for number in range(1, count + 1)]


def dated(source: Material) -> str:
    return f"{datetime.fromtimestamp(source.happened_at, UTC).date()}: {source.content}"


summed_up = partial(plan_summaries, now=NOW)


def test_a_cluster_becomes_a_fact_that_points_at_its_sources() -> None:
    sources = observations(importance=0.3, confidence=0.6, tags=("queue",))
    sources[1] = msgspec.structs.replace(
        sources[1], importance=0.7, tags=("queue", "night"), entities=(EntityRef("queue", "service", "about"),)
    )
    ((adding, *edits),) = summed_up(sources)
    made = adding.memory
    assert (made.kind, made.scope, made.session_id) == ("fact", "session", sources[0].session_id)
    assert (made.importance, made.confidence) == (0.7, 0.65)
    assert made.tags == ("queue",)
    assert made.entities == (("queue", "service", "about"),)
    assert made.occurred_at == sources[-1].happened_at
    assert made.content == "\n".join(map(dated, sources))
    assert made.summary is None, "a source's line would stand for all"
    marks = [edit for edit in edits if isinstance(edit, ReviseMemory)]
    assert [(edit.memory_id, edit.status, edit.expected_version) for edit in marks] == [
        (source.id, "consolidated", 1) for source in sources
    ]
    links = [edit for edit in edits if isinstance(edit, AddLink)]
    assert {(link.source, link.target, link.relation) for link in links} == {
        (made.id, source.id, "derived_from") for source in sources
    }


def test_a_summary_leaves_alone_what_is_superseded_derived_too_long_or_of_several_sessions() -> None:
    for kind in ("scratchpad", "error_fix"):
        assert summed_up([msgspec.structs.replace(each, kind=kind) for each in observations()]) == []
    for fields in (
        {"valid_until": NOW - 1},
        {"is_replaced": True},
        {"derived_from": ("memory:other",)},
        {"vector": b""},
    ):
        assert summed_up(observations(**fields)) == []
    mine, theirs = observations(2), observations(2, session_id="session:two")
    assert summed_up([*mine, *(msgspec.structs.replace(each, id=each.id + "x") for each in theirs)]) == []
    long = material(9, "The queue was full. " + "It took long. " * 20, kind="observation")
    (made,) = summed_up([*observations(), long])
    assert long.id not in dict(made[0].made_of)
    several = [material(number, "The queue was full of mails, " + "abcdefgh"[number] * 150) for number in range(8)]
    many = summed_up([msgspec.structs.replace(each, kind="observation", type="episodic") for each in several])
    assert [len(made[0].made_of) for made in many] == [3, 3]
    assert all(len(made[0].memory.content) <= SUMMARY_CHARACTERS + LONGEST_SOURCE for made in many)


def test_a_summary_that_was_undone_is_made_again_on_request() -> None:
    sources = observations(undone="consolidated")
    assert summed_up(sources) == []
    assert len(plan_summaries(sources, NOW, again=True)) == 1


@given(materials(kind="observation"))
def test_a_summary_has_a_line_for_each_source_in_one_group(memories: list[Material]) -> None:
    by_id = {memory.id: memory for memory in memories}
    for adding, *_ in summed_up(memories):
        sources = [by_id[memory_id] for memory_id, _ in adding.made_of]
        assert adding.memory.content.split("\n") == list(map(dated, sources))
        assert len({source.id for source in sources}) == len(sources) >= SMALLEST_CLUSTER
    many = summed_up(memories) * 20
    parts = packed(many)
    assert [edit for edits in parts for edit in edits] == [edit for each in many for edit in each]
    for edits in parts:
        assert len(edits) <= PART_EDITS
        assert isinstance(edits[0], AddMemory)


def said_in(count: int, content: str, first: int = 0, **fields: Any) -> list[Material]:
    return [
        material(number, content, session_id=f"session:{number}", **{"scope": "project", **fields})
        for number in range(first, first + count)
    ]


def test_a_theme_is_of_a_session_if_one_source_is_and_what_a_long_text_says_is_no_pattern() -> None:
    *steps, last = said_in(3, "Run the tests, then tag the commit", kind="procedure")
    ((_, derived),) = plan_patterns([*steps, msgspec.structs.replace(last, scope="session")], NOW, "one")
    assert derived is not None
    assert (derived[0].memory.scope, derived[0].memory.session_id) == ("session", "session:2")
    said = "Restart the worker after changing its configuration."
    short = said_in(4, said, kind="observation")
    assert [theme.pattern for theme, _ in plan_patterns(short, NOW, "app")] == [said]
    long = [msgspec.structs.replace(each, content=f"{said}\n" + "More was found out. " * 40) for each in short]
    assert plan_patterns(long, NOW, "app") == []
    assert name_of(ProjectRef("p", "/work/shop/.git")) == "shop"
    assert name_of(ProjectRef("p", "/srv/shop.git")) == "shop"
    assert name_of(ProjectRef("p", "/work/shop")) == "shop"


# --- The plans of maintenance, without a store.
def test_what_is_pinned_or_wanted_back_is_neither_archived_nor_let_go() -> None:
    weak = material(1, kind="observation", importance=0.01, created_at=NOW - 400 * 86_400.0, scope="project")
    old = material(2, kind="observation", scope="project", status="archived", archived_at=1.0, created_at=2.0)
    assert (set(plan_archiving([weak, old], NOW)), set(plan_forgetting([weak, old], NOW))) == ({weak.id}, {old.id})
    pinned = [msgspec.structs.replace(each, pinned=True) for each in (weak, old)]
    assert plan_archiving(pinned, NOW) == plan_forgetting(pinned, NOW) == {}
    made: Any = {"kind": "observation", "scope": "project"}
    weak = material(1, importance=0.1, created_at=NOW - 30 * DAY_S, undone="archived", **made)
    old = material(
        2, **made, status="archived", undone="forgotten", created_at=NOW - 200 * DAY_S, updated_at=NOW - 91 * DAY_S
    )
    assert plan_archiving([weak, old], NOW) == plan_forgetting([weak, old], NOW) == {}


@given(materials(scope="project", created_at=NOW - 100 * DAY_S))
def test_archiving_hides_nothing_and_leaves_nothing_to_archive(memories: list[Material]) -> None:
    archived = plan_archiving(memories, NOW)
    assert plan_forgetting(memories, NOW) == {}
    after = carried_out(memories, archived.values())
    assert contents(after) == contents(memories)
    # Archiving makes a version, so that the time until it is forgotten begins then.
    again = [memory for memory in after if memory.status != "archived"]
    assert plan_archiving(again, NOW) == plan_forgetting(again, NOW) == {}


def test_a_series_of_figures_is_not_summed_up_and_left_out_of_a_summary_of_others() -> None:
    frames = [f"Dark frame {number}: 3.{number} electrons at -{90 - 5 * number} C" for number in range(4)]
    builds = [f"Ask {name} about build {number}" for number, name in enumerate(("Ana", "Ben", "Cleo", "Dan"))]
    versions = [f"Deployed version 1.{number} to staging" for number in range(4)]
    for series in (frames, builds, versions):
        assert summed_up(observations(texts=series)) == []
    ((adding, *_),) = summed_up(observations(6, texts=[*FULL, *frames[:2]]))
    assert adding.memory.content.count("\n") == 3
