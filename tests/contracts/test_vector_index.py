"""The promises of every vector index, and of the store's own search over it."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remembrancer.actors.store.records.contract import (
    EmbeddedMemory,
    PassageFilter,
    PassageVectors,
    Records,
    SavedEmbeddings,
    Vectors,
)
from remembrancer.actors.store.records.memory_rows import digest_of
from remembrancer.actors.store.vectors.chroma_index import ChromaIndex
from remembrancer.actors.store.vectors.index_manager import open_chroma
from remembrancer.actors.store.vectors.passage_index import (
    MAX_NEWEST,
    RECONCILE_PAGE,
    Collection,
    ExactCollection,
    IndexLost,
    PassageIndex,
    VectorHit,
    VectorIndex,
    search_exactly,
)
from remembrancer.protocol.work import Passage
from remembrancer.protocol.writes import UpdateMemory
from tests.contracts.records_factories import SqliteFactory, texts_of
from tests.operations import change_operation, memory_id_of, store_operation

DIMENSIONS = 16
MODEL = f"small.int8.0123456789ab.{DIMENSIONS}"
NAME = f"p_0123456789ab.{MODEL}"


def unit(count: int, seed: int = 1) -> Vectors:
    """Random directions, (count, DIMENSIONS)."""
    rows = np.random.default_rng(seed).standard_normal((count, DIMENSIONS)).astype(np.float32)
    scaled: Vectors = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    return scaled


def passages(numbers: Sequence[int], vectors: Vectors) -> PassageVectors:
    """Passages of memories a hundred higher, two each."""
    return PassageVectors(list(numbers), [100 + n // 2 for n in numbers], [n % 2 for n in numbers], vectors)


def found(collection: Collection, query: Vectors, limit: int = 5) -> list[int]:
    (hits,) = collection.search(query.reshape(1, -1), limit)
    return [hit.passage for hit in hits]


# Every collection


@pytest.fixture(params=["exact", "chroma"])
def collection(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Collection]:
    if request.param == "exact":
        yield ExactCollection()
        return
    index = ChromaIndex(tmp_path / "vectors")
    yield index.collection(NAME, DIMENSIONS)
    index.close()


def test_the_nearest_come_first_with_their_memory_and_their_cosine(collection: Collection) -> None:
    vectors = unit(40)
    collection.upsert(passages(range(1, 41), vectors))
    query = unit(3, seed=2)
    for row, hits in zip(query, collection.search(query, 10), strict=True):
        cosines = vectors @ row
        expected = np.argsort(-cosines)[:10]
        assert [hit.passage for hit in hits] == [int(place) + 1 for place in expected]
        for hit in hits:
            assert hit == VectorHit(hit.passage, hit.cosine)
            assert hit.cosine == pytest.approx(float(cosines[hit.passage - 1]), abs=1e-5)


def test_an_upsert_replaces_what_has_the_same_number(collection: Collection) -> None:
    vectors = unit(3)
    collection.upsert(passages([1, 2], vectors[:2]))
    collection.upsert(PassageVectors([2, 3], [77, 78], [0, 4], vectors[[2, 1]]))
    assert sorted(collection.numbers()) == [1, 2, 3]
    (hits,) = collection.search(vectors[2:3], 1)
    assert hits[0].passage == 2
    assert found(collection, vectors[1], 1) == [3]


def test_what_is_deleted_is_not_found_and_unknown_numbers_are_passed_over(collection: Collection) -> None:
    vectors = unit(10)
    collection.upsert(passages(range(1, 11), vectors))
    collection.delete([1, 2, 99])
    collection.delete([])
    assert sorted(collection.numbers()) == list(range(3, 11))
    assert collection.count() == 8
    assert not {1, 2} & set(found(collection, vectors[0], 50))
    collection.upsert(passages([1], vectors[:1]))
    assert found(collection, vectors[0], 1) == [1]


def test_little_or_nothing_to_find_is_no_error(collection: Collection) -> None:
    assert collection.numbers() == []
    assert collection.count() == 0
    assert collection.search(unit(2), 5) == [[], []]
    assert collection.search(unit(0), 5) == []
    collection.upsert(passages([], unit(0)))
    collection.upsert(passages([1], unit(1)))
    assert [len(hits) for hits in collection.search(unit(2), 500)] == [1, 1]


def test_thousands_agree_with_exact_search_at_every_depth(collection: Collection) -> None:
    vectors, queries = unit(3000), unit(5, seed=3)
    exact = ExactCollection()
    for each in (collection, exact):
        each.upsert(passages(range(1, 3001), vectors))
        each.delete(list(range(1, 3001, 7)))
    for depth in (1, 10, 50, 800, 3200):
        for mine, reference in zip(collection.search(queries, depth), exact.search(queries, depth), strict=True):
            wanted = {hit.passage for hit in reference}
            # In a graph of near neighbours (HNSW) that lost every seventh, one that is left may be out of reach.
            assert 0.99 * len(reference) <= len(mine) <= len(reference)
            assert len(wanted & {hit.passage for hit in mine}) >= 0.95 * len(wanted)
            assert [hit.cosine for hit in mine] == sorted((hit.cosine for hit in mine), reverse=True)


steps = st.lists(
    st.tuples(st.sampled_from(["upsert", "delete"]), st.lists(st.integers(1, 12), min_size=1, max_size=4, unique=True)),
    max_size=8,
)


@given(steps)
@settings(max_examples=25)
def test_any_sequence_of_changes_leaves_what_exact_search_says(
    collection: Collection, history: list[tuple[str, list[int]]]
) -> None:
    collection.delete(collection.numbers())
    exact = ExactCollection()
    for turn, (what, numbers) in enumerate(history):
        for each in (collection, exact):
            if what == "upsert":
                each.upsert(passages(numbers, unit(len(numbers), seed=turn)))
            else:
                each.delete(numbers)
    assert sorted(collection.numbers()) == sorted(exact.numbers())
    query = unit(1, seed=99)
    assert found(collection, query[0], 20) == found(exact, query[0], 20)


def test_the_newest_hands_over_those_that_have_been_in_it_longest() -> None:
    newest = ExactCollection()
    assert newest.first(5).numbers == []
    newest.upsert(passages([5, 3, 9], unit(3)))
    assert newest.first(2).numbers == [5, 3]
    assert newest.count() == 3
    newest.delete([5])
    assert newest.first(2).numbers == [3, 9]
    assert np.array_equal(newest.first(1).vectors, unit(3)[1:2])


def test_passages_are_picked_by_numbers_of_any_size() -> None:
    collection = ExactCollection()
    large = 1_795_334_768_604  # files number their chunks by the clock
    vectors = np.eye(3, dtype=np.float32)
    collection.upsert(PassageVectors([1, large, large + 1], [7, large, large], [0, 0, 1], vectors))
    assert list(collection.of(0, [large, 5]).numbers) == [large]
    assert list(collection.of(1, [large]).numbers) == [large, large + 1]
    assert list(collection.of(1, []).numbers) == []


def test_a_snapshot_stays_as_it_was() -> None:
    newest, vectors = ExactCollection(), unit(200)
    newest.upsert(passages(range(1, 201), vectors))
    snapshot = newest.snapshot()
    newest.delete(range(1, 100))
    newest.upsert(passages([500], unit(1, seed=7)))
    assert [hit.passage for hit in search_exactly(snapshot, vectors[:1], 1)[0]] == [1]
    assert sorted(hit.passage for hit in search_exactly(snapshot, vectors[:1], 1000)[0]) == list(range(1, 201))
    assert 500 in newest.numbers()


@given(st.integers(1, 60), st.integers(1, 70), st.integers(1, 5))
def test_the_nearest_are_those_of_a_full_sort_also_among_equals(count: int, limit: int, distinct: int) -> None:
    vectors = unit(distinct)[np.arange(count) % distinct]
    exact = ExactCollection()
    exact.upsert(passages(range(1, count + 1), vectors))
    query = unit(1, seed=4)
    cosines = (query @ vectors.T)[0]
    expected = [int(place) + 1 for place in np.argsort(-cosines, kind="stable")[:limit]]
    assert found(exact, query[0], limit) == expected


# Every index on disk


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "vectors"


@pytest.fixture
def index(folder: Path) -> Iterator[VectorIndex]:
    opened = ChromaIndex(folder)
    yield opened
    opened.close()


def test_collections_of_one_index_do_not_mix(index: VectorIndex) -> None:
    vectors = unit(2)
    one, two = index.collection(NAME, DIMENSIONS), index.collection("user." + MODEL, DIMENSIONS)
    other_model = index.collection("user.large.float32.0123456789ab.4", 4)
    one.upsert(passages([1], vectors[:1]))
    two.upsert(passages([2], vectors[1:]))
    other_model.upsert(PassageVectors([3], [3], [0], np.array([[1, 0, 0, 0]], dtype=np.float32)))
    assert (one.numbers(), two.numbers(), other_model.numbers()) == ([1], [2], [3])
    assert found(one, vectors[1]) == [1]
    assert index.collection(NAME, DIMENSIONS).numbers() == [1], "the same one by its name"


def test_a_collection_that_is_not_needed_is_deleted_and_the_others_stay(index: VectorIndex) -> None:
    for name in ("one.old", "one.new"):
        index.collection(name, DIMENSIONS).upsert(passages([1], unit(1)))
    index.prune(lambda name: name.endswith(".new"))
    assert [index.collection(name, DIMENSIONS).numbers() for name in ("one.old", "one.new")] == [[], [1]]


def test_an_index_survives_closing_and_opening_again(folder: Path) -> None:
    vectors = unit(1500)
    first = ChromaIndex(folder)
    first.collection(NAME, DIMENSIONS).upsert(passages(range(1, 1501), vectors))
    first.close()
    first.close()
    second = ChromaIndex(folder)
    again = second.collection(NAME, DIMENSIONS)
    assert sorted(again.numbers()) == list(range(1, 1501))
    assert [found(again, vectors[place], 1) for place in (0, 700, 1499)] == [[1], [701], [1500]]
    second.close()


def test_a_folder_that_is_deleted_under_it_is_noticed_and_made_again(index: VectorIndex, folder: Path) -> None:
    index.collection(NAME, DIMENSIONS).upsert(passages([1], unit(1)))
    assert index.is_intact()
    shutil.rmtree(folder)
    assert not index.is_intact()
    index.reset()
    assert index.is_intact()
    again = index.collection(NAME, DIMENSIONS)
    assert again.numbers() == []
    again.upsert(passages([2], unit(1)))
    assert again.numbers() == [2]


def test_another_index_put_in_its_place_is_not_taken_for_it(index: VectorIndex, folder: Path) -> None:
    before = folder.with_name("before")
    shutil.copytree(folder, before)
    shutil.rmtree(folder)
    shutil.copytree(before, folder)
    assert not index.is_intact()


def test_a_reset_forgets_everything(index: VectorIndex) -> None:
    index.collection(NAME, DIMENSIONS).upsert(passages([1], unit(1)))
    index.reset()
    assert index.collection(NAME, DIMENSIONS).numbers() == []


BREAKAGES: dict[str, Callable[[bytes], bytes]] = {
    "garbage": lambda whole: b"x" * len(whole),
    "half": lambda whole: whole[: len(whole) // 2],
    "nothing": lambda whole: b"",
    "noise in the middle": lambda whole: whole[:4096] + random.Random(5).randbytes(65536) + whole[69632:],
}


@pytest.mark.parametrize("breakage", BREAKAGES.values(), ids=list(BREAKAGES))
def test_an_index_that_is_broken_on_disk_is_made_anew(folder: Path, breakage: Callable[[bytes], bytes]) -> None:
    whole = ChromaIndex(folder)
    whole.collection(NAME, DIMENSIONS).upsert(passages(range(1, 51), unit(50)))
    whole.close()
    database = folder / "chroma.sqlite3"
    database.write_bytes(breakage(database.read_bytes()))
    opened = open_chroma(folder)
    try:
        again = opened.collection(NAME, DIMENSIONS)
        again.upsert(passages(range(1, 51), unit(50)))
    except IndexLost:  # seen late: the keeper then makes it anew, as here
        opened.reset()
        again = opened.collection(NAME, DIMENSIONS)
        again.upsert(passages(range(1, 51), unit(50)))
    assert sorted(again.numbers()) == list(range(1, 51))
    assert found(again, unit(50)[7], 1) == [8]
    opened.close()


def test_a_file_where_the_folder_should_be_gives_way(folder: Path) -> None:
    folder.write_text("not a folder")
    with pytest.raises(OSError, match="vectors"):
        open_chroma(folder)


# The passages of a file of records


@pytest.fixture
def records(tmp_path: Path) -> Iterator[Records]:
    factory = SqliteFactory(tmp_path)
    yield factory.open()
    factory.close()


class Library:
    """Memories with their vectors in real records, and the search over them."""

    def __init__(self, records: Records) -> None:
        self.records = records
        self.passages = PassageIndex(records, MODEL)
        self.count = 0

    def add(self, vectors: Vectors, *, tell: bool = True) -> int:
        """Store a memory with one passage for each row; its number. `tell` False: the index does not hear of it."""
        self.count += 1
        operation = store_operation(f"op{self.count}", f"memory {self.count}")
        number = self.records.apply([operation])[0].to_embed
        assert number is not None
        saved = self.save(number, vectors)
        if tell:
            self.passages.add(saved)
        return number

    def save(self, number: int, vectors: Vectors) -> SavedEmbeddings:
        """Keep vectors of a memory."""
        parts = tuple(Passage(place, place + 1) for place in range(len(vectors)))
        digest = digest_of(texts_of(self.records, [number])[number])
        return self.records.save_embeddings(MODEL, [EmbeddedMemory(number, digest, parts, vectors)])

    def change(self, number: int, vectors: Vectors) -> None:
        """Give a memory another text, and that its vectors."""
        update = UpdateMemory(memory_id_of(store_operation(f"op{number}", "")), content=f"memory {number} anew")
        (outcome,) = self.records.apply([change_operation(f"change{number}", update)])
        self.passages.remove(outcome.removed_passages)
        self.passages.add(self.save(number, vectors))

    def memories(self, query: Vectors, limit: int = 10) -> list[int]:
        """Memories of the nearest passages."""
        hits = self.passages.search(query, limit)
        assert len({hit.passage for hit in hits}) == len(hits), "each passage once"
        return [hit.memory for hit in hits]


@pytest.fixture
def library(records: Records) -> Library:
    return Library(records)


class _StoppedAfter(ExactCollection):
    """Tells the passages to stop while they bring it their first page."""

    def __init__(self, stop: Callable[[], None]) -> None:
        super().__init__()
        self._stop = stop

    def upsert(self, passages: PassageVectors) -> None:
        super().upsert(passages)
        self._stop()


def test_a_stop_does_not_wait_for_an_index_that_is_being_made_and_the_next_start_goes_on(library: Library) -> None:
    for part in range(3):
        library.add(unit(RECONCILE_PAGE, seed=part))
    stopped = PassageIndex(library.records, MODEL)
    collection = _StoppedAfter(stopped.stop)
    assert stopped.reconcile(collection) == RECONCILE_PAGE
    assert not stopped.attached
    assert collection.count() == RECONCILE_PAGE
    at_the_next_start = PassageIndex(library.records, MODEL)
    assert at_the_next_start.reconcile(collection) == 2 * RECONCILE_PAGE
    assert at_the_next_start.ready


def test_a_passage_is_found_before_it_is_in_the_index_and_once_while_it_moves(
    library: Library, index: VectorIndex
) -> None:
    collection = index.collection(NAME, DIMENSIONS)
    library.passages.reconcile(collection)
    vectors = unit(6)
    numbers = [library.add(vectors[place : place + 1]) for place in range(6)]
    assert collection.numbers() == []
    before = library.memories(vectors[2])
    assert before[0] == numbers[2]
    collection.upsert(
        library.records.passages(
            PassageFilter(numbers=library.records.passages(PassageFilter(MODEL, vectors=False)).numbers[:3])
        )
    )  # half-way through a flush
    assert library.memories(vectors[2]) == before
    assert not library.passages.flush()
    assert len(collection.numbers()) == 6
    assert library.memories(vectors[2]) == before
    assert library.memories(vectors[2], limit=2) == before[:2]


def test_a_file_without_passages_can_be_searched_at_once_and_any_other_when_it_has_its_collection(
    library: Library,
) -> None:
    vectors = unit(2)
    number = library.add(vectors[:1])
    assert library.passages.ready
    assert not library.passages.flush(), "there is nowhere to move it to"
    assert library.memories(vectors[0]) == [number]
    at_the_next_start = PassageIndex(library.records, MODEL)
    assert not is_ready(at_the_next_start)
    at_the_next_start.reconcile(ExactCollection())
    assert is_ready(at_the_next_start)
    at_the_next_start.detach()
    assert not is_ready(at_the_next_start)
    assert PassageIndex(library.records, "another model").ready


def test_reconciling_adds_what_is_missing_and_takes_away_what_is_too_much(library: Library, index: VectorIndex) -> None:
    vectors = unit(30)
    numbers = [library.add(vectors[place : place + 1], tell=False) for place in range(30)]
    collection = index.collection(NAME, DIMENSIONS)
    recorded = library.records.passages(PassageFilter(MODEL, vectors=False)).numbers
    collection.upsert(library.records.passages(PassageFilter(numbers=recorded[:20])))
    collection.upsert(PassageVectors([7000, 7001], [99, 99], [0, 1], unit(2, seed=9)))
    assert library.passages.reconcile(collection) == 12
    assert sorted(collection.numbers()) == recorded
    assert [library.memories(vectors[place], 1) for place in range(30)] == [[number] for number in numbers]
    assert PassageIndex(library.records, MODEL).reconcile(collection) == 0


def test_passages_that_were_replaced_are_not_found_any_more(library: Library, index: VectorIndex) -> None:
    collection = index.collection(NAME, DIMENSIONS)
    vectors = unit(4)
    indexed, fresh = library.add(vectors[:1]), library.add(vectors[1:2])
    library.passages.reconcile(collection)
    library.change(indexed, vectors[2:3])
    library.change(fresh, vectors[3:4])
    for _ in range(2):
        hits = library.passages.search(vectors[0], 10)
        assert sorted(hit.memory for hit in hits) == [indexed, fresh], "one passage each"
        assert all(hit.cosine < 0.99 for hit in hits)
        while library.passages.has_work:
            library.passages.near_duplicates(0.95)
            library.passages.flush()
    assert sorted(collection.numbers()) == library.records.passages(PassageFilter(MODEL, vectors=False)).numbers


def test_near_duplicates_are_pairs_of_whole_memories_each_told_once(library: Library, index: VectorIndex) -> None:
    library.passages.reconcile(index.collection(NAME, DIMENSIONS))
    base, other = unit(2)
    near = base + 0.05 * other
    near = (near / np.linalg.norm(near)).astype(np.float32)
    first = library.add(base.reshape(1, -1))
    assert library.passages.near_duplicates(0.95) == []
    library.passages.flush()
    second = library.add(np.vstack([near, other]))
    library.add(np.vstack([other, base]))
    (pair,) = library.passages.near_duplicates(0.95)
    assert pair[:2] == (second, first)
    assert pair.cosine == pytest.approx(float(base @ near), abs=1e-5)
    assert library.passages.near_duplicates(0.95) == [], "what is checked is not checked again"
    fourth = library.add(base.reshape(1, -1))
    library.add(near.reshape(1, -1))
    assert {pair[:2] for pair in library.passages.near_duplicates(0.95, fourth)} >= {(fourth, first), (fourth, second)}


def test_what_a_crash_kept_out_of_the_index_is_compared_at_the_next_start(library: Library, index: VectorIndex) -> None:
    vectors = unit(1)
    first, second = library.add(vectors, tell=False), library.add(vectors, tell=False)
    library.passages.reconcile(index.collection(NAME, DIMENSIONS))
    assert library.passages.near_duplicates(0.95)[0][:2] == (second, first)


def test_the_newest_become_too_many_and_are_moved_away_in_batches(library: Library) -> None:
    library.passages.reconcile(ExactCollection())
    many = unit(MAX_NEWEST // 8)
    for _ in range(7):
        library.add(many)
        assert not library.passages.must_flush
    library.add(many)
    assert library.passages.must_flush
    assert library.passages.flush()
    assert not library.passages.must_flush


def break_segments(folder: Path, how: str) -> None:
    """Damage what Chroma searches, and leave its list of what it holds."""
    for path in [each for each in folder.rglob("*") if each.is_file() and each.parent != folder]:
        match how:
            case "gone":
                path.unlink()
            case "half":
                path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
            case "noise":
                path.write_bytes(os.urandom(path.stat().st_size))


@pytest.mark.parametrize("how", ["gone", "half", "noise"])
def test_an_index_that_lists_what_it_cannot_find_is_seen_through_and_made_again(
    library: Library, folder: Path, how: str
) -> None:
    vectors = unit(2500)
    library.add(vectors, tell=False)
    opened = ChromaIndex(folder)
    library.passages.reconcile(opened.collection(NAME, DIMENSIONS))
    opened.close()
    break_segments(folder, how)
    reopened = open_chroma(folder)
    try:
        fresh = PassageIndex(library.records, MODEL)
        with pytest.raises(IndexLost):
            fresh.reconcile(reopened.collection(NAME, DIMENSIONS))
        reopened.reset()
        assert fresh.reconcile(reopened.collection(NAME, DIMENSIONS)) == 2500
        assert fresh.search(vectors[9], 1)[0].ordinal == 9
    finally:
        reopened.close()


def test_a_search_that_fails_says_so_and_asks_for_a_new_index(
    library: Library, index: VectorIndex, folder: Path
) -> None:
    library.passages.reconcile(index.collection(NAME, DIMENSIONS))
    library.add(unit(1))
    library.passages.flush()
    assert not is_lost(library.passages)
    database = folder / "chroma.sqlite3"
    with database.open("r+b") as file:  # the same file still: only its content is ruined
        file.write(b"x" * database.stat().st_size)
    for log in folder.glob("chroma.sqlite3-*"):
        log.unlink()
    assert index.is_intact()
    with pytest.raises(IndexLost):
        library.passages.search(unit(1)[0], 5)
    assert is_lost(library.passages)
    library.passages.detach()
    assert not is_lost(library.passages)


def is_lost(passages_of_a_file: PassageIndex) -> bool:
    return passages_of_a_file.lost


def is_ready(passages_of_a_file: PassageIndex) -> bool:
    return passages_of_a_file.ready
