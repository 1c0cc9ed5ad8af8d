"""The consolidator's reads: pages of memories with vectors, edges of entities, sessions, and what is to be done."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from remembrancer.actors.store.records.contract import EmbeddedMemory, MaintenanceState
from remembrancer.actors.store.records.memory_rows import digest_of
from remembrancer.actors.store.records.sqlite_records import Records
from remembrancer.actors.store.vectors.exact_vectors import ExactVectors
from remembrancer.actors.store.vectors.near_duplicates import find_near
from remembrancer.protocol.consolidation import FindNear, ReadEntityEdges, ReadMemories, ReadSession
from remembrancer.protocol.runs import AddLink, CloseRequest, CloseSession, ReviseMemory, SaveTopics, Topic
from remembrancer.protocol.session_life import EndSession, StartSession
from remembrancer.protocol.work import Passage
from remembrancer.protocol.writes import EntityRef, ForgetMemory, UpdateMemory
from tests.contracts.records_factories import SqliteFactory, texts_of, work_of
from tests.contracts.runs_rig import CONTENTS, FOUR, ONE, THREE, TWO, carry_out, stored
from tests.operations import (
    OTHER_SESSION,
    PROJECT,
    REQUESTED_AT,
    SESSION,
    change_operation,
    memory_id_of,
    store_operation,
)

MODEL = "small.int8.0123456789ab.4"
EVERYTHING = ReadMemories(None)
VECTORS = np.array(
    [[1, 0, 0, 0], [0.96, 0.28, 0, 0], [0.936, 0, 0.352, 0], [0, 1, 0, 0], [0, 0, 0, 1]], dtype=np.float32
)


@pytest.fixture
def records(factory: SqliteFactory) -> Records:
    made = factory.open()
    made.apply(stored())
    return made


def ids(records: Records, **fields: Any) -> list[str]:
    return [each.id for each in records.materials(ReadMemories(None, **fields), MODEL).memories]


def embed(records: Records, memory_id: str, *vectors: Any) -> None:
    """Give a memory a passage for each vector."""
    number = records.number_of(memory_id)
    assert number is not None
    content = texts_of(records, [number])[number]
    rows = np.asarray(vectors, dtype=np.float32)
    passages = tuple(Passage(0, len(content)) for _ in vectors)
    records.save_embeddings(MODEL, [EmbeddedMemory(number, digest_of(content), passages, rows)])


def embed_all(records: Records) -> None:
    for memory_id, vector in zip(CONTENTS, VECTORS, strict=False):
        embed(records, memory_id, vector)


# Pages


def test_memories_come_in_pages_in_their_order(records: Records) -> None:
    first = records.materials(ReadMemories(None, limit=3), None)
    assert ([each.id for each in first.memories], first.more) == ([ONE, TWO, THREE], True)
    rest = records.materials(ReadMemories(None, after=first.memories[-1].number, limit=3), None)
    assert ([each.id for each in rest.memories], rest.more) == ([FOUR], False)


def test_a_memory_is_read_with_all_that_counts(factory: SqliteFactory, records: Records) -> None:
    entity = EntityRef("store", "service", "about")
    change = UpdateMemory(ONE, summary="short", add_tags=("t",), add_entities=(entity,), kind="convention", domain="d")
    records.apply([change_operation("update", change)])
    carry_out(records, AddLink(ONE, TWO, "derived_from"), ReviseMemory(TWO, "archived", status="archived"))
    records.touch([1, 1], REQUESTED_AT + 50, SESSION, [ONE])
    records.touch([1], REQUESTED_AT + 40, OTHER_SESSION, [ONE])
    one, two = records.materials(EVERYTHING, None).memories[:2]
    assert (one.content, one.summary, one.tags, one.entities) == (CONTENTS[ONE], "short", ("t",), (entity,))
    assert (one.kind, one.type, one.domain, one.version, one.is_derived) == ("convention", "semantic", "d", 2, True)
    assert (one.access_count, one.sessions_used, one.last_accessed_at) == (3, 2, REQUESTED_AT + 40)
    assert (one.created_at, one.happened_at) == (REQUESTED_AT, REQUESTED_AT)
    assert (two.status, two.archived_at, two.last_accessed_at) == ("archived", factory.clock.now, REQUESTED_AT)
    assert not two.is_derived
    assert not two.pinned
    bare = records.materials(ReadMemories(None, with_content=False), None).memories[0]
    assert (bare.content, bare.summary, bare.entities, bare.tags) == ("", None, (), ("t",))


def test_an_open_end_is_pinned_until_it_is_done(records: Records) -> None:
    pinned = []
    for change in (UpdateMemory(ONE, kind="open_end"), UpdateMemory(ONE, done=True)):
        records.apply([change_operation(f"done {change.done}", change)])
        pinned.append(records.materials(ReadMemories(None, memory_ids=(ONE,)), None).memories[0].pinned)
    assert pinned == [True, False]


def test_what_a_later_memory_more_probably_than_not_replaces_is_told(records: Records) -> None:
    carry_out(records, AddLink(THREE, ONE, "contradicts", 0.4), AddLink(FOUR, TWO, "contradicts", 0.6))
    assert [each.id for each in records.materials(EVERYTHING, None).memories if each.is_replaced] == [TWO]


def test_what_is_asked_for_is_all_that_comes(records: Records) -> None:
    carry_out(records, ReviseMemory(TWO, "consolidated", status="consolidated"))
    records.apply([change_operation("forget", ForgetMemory(FOUR))])
    other = store_operation("other", "of another", memory_id="mem_other", session_id=OTHER_SESSION, type="procedural")
    records.apply([other])
    assert ids(records) == [ONE, TWO, THREE, "mem_other"]
    assert ids(records, scopes=("session", "user")) == [THREE]
    assert ids(records, statuses=("active",)) == [ONE, THREE, "mem_other"]
    assert ids(records, types=("procedural", "episodic")) == ["mem_other"]
    assert ids(records, session_id=SESSION) == [ONE, TWO, THREE]
    assert ids(records, memory_ids=(TWO, FOUR, "mem_none")) == [TWO]


def test_a_vector_is_the_normalised_mean_of_the_passages_of_the_model(records: Records) -> None:
    embed(records, ONE, [1, 0, 0, 0], [0, 1, 0, 0])
    embed(records, THREE, [0, 0, 1, 0])
    read = records.materials(ReadMemories(None, with_vectors=True), MODEL)
    one, two, three, _ = (np.frombuffer(each.vector, dtype="<f4") for each in read.memories)
    assert one == pytest.approx([0.5**0.5, 0.5**0.5, 0, 0])
    assert list(two) == []
    assert list(three) == [0, 0, 1, 0]
    for model in ("another", None):
        assert not any(each.vector for each in records.materials(ReadMemories(None, with_vectors=True), model).memories)


# The nearest


def near(
    records: Records, *memory_ids: str, index: ExactVectors | None = None, least: float = 0.9, **fields: Any
) -> list[list[tuple[str, float]]]:
    """Ids and cosines, rounded."""
    numbers = tuple(records.number_of(each) or 0 for each in memory_ids)
    found = find_near(records, index, MODEL, FindNear(PROJECT, numbers, least, **fields))
    return [[(material.id, round(cosine, 3)) for material, cosine in row] for row in found]


def test_the_nearest_memories_are_found_for_each_memory(records: Records) -> None:
    embed_all(records)
    assert near(records, ONE, "mem_none") == [[(ONE, 1.0), (TWO, 0.96)], []]
    assert near(records, ONE, limit=1) == [[(ONE, 1.0)]]
    assert near(records) == []
    found = find_near(records, None, MODEL, FindNear(PROJECT, (records.number_of(ONE) or 0,), 0.9))
    assert found[0][0][0].vector == b""
    assert found[0][0][0].content == CONTENTS[ONE]


def test_no_session_s_own_memories_are_near(records: Records) -> None:
    embed_all(records)
    assert near(records, THREE) == [[(ONE, 0.936)]]


def test_what_is_forgotten_or_of_another_status_is_not_near(records: Records) -> None:
    embed_all(records)
    carry_out(records, ReviseMemory(ONE, "consolidated", status="consolidated"))
    assert near(records, ONE) == [[(TWO, 0.96)]]
    records.apply([change_operation("forget", ForgetMemory(TWO))])
    assert near(records, ONE) == [[]]


def test_in_a_large_file_the_index_finds_the_same(records: Records, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("remembrancer.actors.store.vectors.near_duplicates.EXACT_UP_TO", 10)
    crowd = [
        store_operation(f"s{n}", f"hidden {n}", memory_id=f"mem_s{n}", scope="session", session_id=OTHER_SESSION)
        for n in range(200)
    ]
    crowd += [store_operation(f"p{n}", f"far {n}", memory_id=f"mem_p{n}") for n in range(20)]
    records.apply(crowd)
    embed_all(records)
    for operation in crowd:
        memory_id = memory_id_of(operation)
        embed(records, memory_id, VECTORS[0] if memory_id.startswith("mem_s") else VECTORS[4])
    index = ExactVectors(records, MODEL)
    asked = (ONE, FOUR, "mem_none")
    assert near(records, *asked, index=index) == near(records, *asked) == [[(ONE, 1.0), (TWO, 0.96)], [], []]


# Pages that are limited in other ways


def test_the_last_page_comes_first_when_it_is_asked_for(records: Records) -> None:
    assert ids(records, before=2**62, limit=3) == [FOUR, THREE, TWO]
    number = records.number_of(TWO)
    page = records.materials(ReadMemories(None, before=number, limit=3), None)
    assert ([each.id for each in page.memories], page.more) == ([ONE], False)


def test_kinds_importance_waiting_and_closed_sessions_limit_a_page(records: Records) -> None:
    records.apply([change_operation("more", UpdateMemory(TWO, importance=0.9, kind="convention"))])
    assert ids(records, kinds=("convention",)) == ids(records, min_importance=0.9) == [TWO]
    assert ids(records, waiting=True) == list(CONTENTS)
    embed(records, ONE, VECTORS[0])
    assert ids(records, waiting=True) == [TWO, THREE, FOUR]
    assert ids(records, closed_before=1e12) == []
    end = [change_operation("start", StartSession(SESSION)), change_operation("end", EndSession(SESSION))]
    records.apply(end)
    (session,) = list(work_of(records).sessions)
    assert session.ended_at is not None
    carry_out(records, CloseSession(SESSION, "completed", session.ended_at))
    assert ids(records, closed_before=session.ended_at) == []
    assert ids(records, closed_before=session.ended_at + 1, scopes=("session",)) == [THREE, FOUR]


# Edges of entities


def test_edges_come_in_pages_that_together_say_all(records: Records, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(5):
        related = tuple(EntityRef(each, "service", "about") for each in ("store", "queue"))
        records.apply([store_operation(f"n{number}", f"n{number}", related_entities=related)])
    carry_out(records, SaveTopics((Topic("a", ("store",)),)))
    whole = records.materials(ReadEntityEdges(None))
    assert (whole.edges, whole.next_after) == ((("queue", "store", 5.0),), None)
    assert whole.topics_at is not None
    monkeypatch.setattr("remembrancer.actors.store.records.background.EDGES_OF", 2)
    weights, page = [], records.materials(ReadEntityEdges(None))
    while page.next_after is not None:
        weights.append(page.edges[0][2])
        page = records.materials(ReadEntityEdges(None, page.next_after))
    assert [*weights, page.edges[0][2]] == [2.0, 2.0, 1.0]


def test_entities_that_memories_name_together_have_edges(records: Records) -> None:
    def named(name: str, memory_id: str, *entities: str, **fields: Any) -> None:
        related = tuple(EntityRef(each, "service", "about") for each in entities)
        records.apply([store_operation(name, name, memory_id=memory_id, related_entities=related, **fields)])

    named("a", "mem_a", "AuthService", "store", "queue")
    named("b", "mem_b", "store", "auth-service")
    named("c", "mem_c", "store", "secret", scope="session")
    named("d", "mem_d", "store", "forgotten")
    named("e", "mem_e", "hub", *(f"spoke{n:02}" for n in range(40)))
    records.apply([change_operation("forget", ForgetMemory("mem_d"))])
    edges = records.materials(ReadEntityEdges(None)).edges
    assert edges[0] == ("AuthService", "store", 2.0)
    weights = {frozenset((one, other)): weight for one, other, weight in edges}
    assert weights[frozenset(("queue", "store"))] == 1.0
    names = {name for edge in weights for name in edge}
    assert "secret" not in names
    assert "forgotten" not in names
    assert frozenset(("hub", "spoke39")) in weights
    assert frozenset(("spoke00", "spoke01")) in weights
    assert frozenset(("spoke38", "spoke39")) not in weights, (
        "what is named beside forty others is not connected with all"
    )


# Sessions, requests, maintenance


def test_a_session_is_read(records: Records) -> None:
    records.apply([change_operation("start", StartSession(SESSION, "claude"))])
    entry, _ = records.materials(ReadSession(PROJECT, SESSION))
    assert entry is not None
    assert (entry.client, entry.status) == ("claude", "active")
    assert records.materials(ReadSession(PROJECT, "nobody"))[0] is None


def test_consolidation_is_asked_for_when_enough_has_come_since_the_last_time(records: Records) -> None:
    assert work_of(records, 2).consolidate_after is None, "a session's memories do not count"
    assert work_of(records, 1).consolidate_after == 0
    carry_out(records, CloseRequest(0))
    assert work_of(records, 1).consolidate_after is None
    new = [store_operation(f"new{n}", f"new {n}", memory_id=f"mem_new{n}") for n in range(3)]
    records.apply(new)
    carry_out(records, ReviseMemory("mem_new0", "consolidated", status="consolidated"), part=1)
    assert work_of(records, 2).consolidate_after is None
    assert work_of(records, 1).consolidate_after == records.number_of(FOUR)


def test_memories_of_running_sessions_that_may_be_worth_it_are_offered_for_promotion(records: Records) -> None:
    assert list(work_of(records, score=0.85).promotable) == []
    records.apply([change_operation("important", UpdateMemory(THREE, importance=0.875, confidence=0.5))])
    assert list(work_of(records, score=0.85).promotable) == [(THREE, 2, 1)], "who has changed it has used it"
    scratch: Any = {"scope": "session", "type": "episodic", "kind": "scratchpad", "importance": 1.0, "confidence": 1.0}
    records.apply([store_operation("scratch", "a scratch", memory_id="mem_scratch", **scratch)])
    assert list(work_of(records, score=0.85).promotable) == [(THREE, 2, 1)], "who has changed it has used it"
    records.apply([change_operation("end", EndSession(SESSION))])
    assert list(work_of(records, score=0.85).promotable) == []


def test_use_is_told_of_a_candidate_so_far_as_it_counts_for_its_score(records: Records) -> None:
    records.apply([change_operation("important", UpdateMemory(THREE, importance=0.875, confidence=0.5))])
    number = records.number_of(THREE)
    assert number is not None
    told = []
    records.touch([number] * 9, 5.0, OTHER_SESSION)
    for used in ([], [THREE], [THREE]):
        records.touch([number], 5.0, SESSION, used)
        told += list(work_of(records, score=0.85).promotable)
    assert told == [(THREE, 2, 1), (THREE, 2, 1), (THREE, 2, 1)], "to be shown is no use"


@pytest.mark.parametrize(
    ("score", "importance", "confidence", "offered"),
    [
        (0.85, 0.8, 0.6, True),  # 0.5 without use, kind and vectors, in spite of rounding
        (0.85, 0.8, 0.59, False),
        (0.7, 0.5, 0.5, True),
        (0.7, 0.5, 0.49, False),
        (1.0, 1.0, 0.83, False),
        (0.2, 0.0, 0.0, True),
    ],
)
def test_what_can_reach_the_score_with_all_that_may_be_added_is_offered(
    records: Records, score: float, importance: float, confidence: float, offered: bool
) -> None:
    records.apply([change_operation("just", UpdateMemory(FOUR, importance=importance, confidence=confidence))])
    assert (FOUR in [each.memory_id for each in work_of(records, score=score).promotable]) == offered


def test_maintenance_knows_when_it_was_done_and_how_many_sessions_ended_since(records: Records) -> None:
    assert work_of(records).maintenance == MaintenanceState(None, 0)
    for number in range(3):
        name = f"session {number}"
        records.apply(
            [
                change_operation(f"start{number}", StartSession(name)),
                change_operation(f"end{number}", EndSession(name), requested_at=REQUESTED_AT + number),
            ]
        )
        entry = records.materials(ReadSession(PROJECT, name))[0]
        assert entry is not None
        assert entry.ended_at is not None
        carry_out(records, CloseSession(name, "completed", entry.ended_at), part=number)
        if number == 1:
            done_at = entry.ended_at
            records.note_maintenance(done_at)
    assert work_of(records).maintenance == MaintenanceState(done_at, 1)
