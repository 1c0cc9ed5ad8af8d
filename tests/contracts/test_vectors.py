import random
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from remembrancer.actors.store.records.memory_rows import digest_of
from remembrancer.actors.store.records.sqlite_records import Records
from remembrancer.actors.store.records.types import MAX_ATTEMPTS, FailedText, PassageVectors, Vectors
from remembrancer.actors.store.vectors import exact_vectors
from remembrancer.actors.store.vectors.chroma import ADD_BATCH, Chroma, ChromaUnavailable, ChromaVectors
from remembrancer.actors.store.vectors.exact_vectors import ExactVectors
from remembrancer.actors.store.vectors.near_duplicates import compared
from remembrancer.protocol.work import ModelIdentity
from remembrancer.protocol.writes import EraseMemory, UpdateMemory
from tests.contracts.records_rig import RecordsRig, apply, embedded, texts_of
from tests.operations import change_operation, memory_id_of, store_operation

DIMENSIONS = 16
IDENTITY = ModelIdentity("onnx", "small", "0123456789ab", "int8", DIMENSIONS, 256)
MODEL = IDENTITY.key
NAME = f"p_0123456789ab.{MODEL}"


def unit(count: int, seed: int = 1) -> Vectors:
    """Random directions, (count, DIMENSIONS)."""
    rows = np.random.default_rng(seed).standard_normal((count, DIMENSIONS)).astype(np.float32)
    scaled: Vectors = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    return scaled


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "vectors"


@pytest.fixture
def chroma(folder: Path) -> Iterator[Chroma]:
    opened = Chroma(folder)
    yield opened
    opened.close()


def moved(records: Records, chroma: Chroma, goes_on: Callable[[], bool] = lambda: True) -> ChromaVectors:
    vectors = ChromaVectors(records, IDENTITY, chroma)
    vectors.follow(goes_on)
    return vectors


class Library:
    """Memories with their vectors in real records, and a search over them; `tend` brings it up to date if it must."""

    def __init__(self, records: Records, vectors: ExactVectors, tend: Callable[[], object] = lambda: None) -> None:
        self.records = records
        self.vectors = vectors
        self.tend = tend
        self.count = 0
        self.ids: dict[int, str] = {}
        """By the number that a memory has now: an erased one's may be given again."""

    def add(self, *vectors: Vectors) -> list[int]:
        """Store a memory for each of these, with a passage for each row; their numbers."""
        first = self.count + 1
        self.count += len(vectors)
        operations = [store_operation(f"op{n}", f"memory {n}") for n in range(first, self.count + 1)]
        apply(self.records, operations)
        numbers = [self.records.number_of(memory_id_of(each)) or 0 for each in operations]
        self.ids.update(zip(numbers, map(memory_id_of, operations), strict=True))
        self.save(numbers, vectors)
        return numbers

    def save(self, numbers: Sequence[int], vectors: Sequence[Vectors]) -> None:
        texts = texts_of(self.records, numbers)
        made = zip(numbers, vectors, strict=True)
        self.records.save_embeddings(MODEL, [embedded(number, texts[number], *rows) for number, rows in made])

    def change(self, number: int, vectors: Vectors, text: str = "anew") -> None:
        update = UpdateMemory(self.ids[number], content=f"memory {number}: {text}")
        apply(self.records, [change_operation(f"change{self.ids[number]} {text}", update)])
        self.save([number], [vectors])

    def erase(self, number: int) -> None:
        gone = EraseMemory(self.ids.pop(number))
        apply(self.records, [change_operation(f"erase{gone.memory_id}", gone)])

    def rows(self) -> PassageVectors:
        return self.records.passages(MODEL)


@pytest.fixture(params=["exact", "chroma"])
def library(request: pytest.FixtureRequest, records: Records) -> Library:
    if request.param == "exact":
        return Library(records, ExactVectors(records, MODEL))
    vectors = moved(records, request.getfixturevalue("chroma"))
    return Library(records, vectors, lambda: vectors.follow(lambda: True))


def expected(passages: PassageVectors, query: Vectors, limit: int) -> dict[int, float]:
    best: dict[int, float] = {}
    if not passages.numbers:
        return best
    for memory, cosine in zip(passages.memories, (passages.vectors @ query).tolist(), strict=True):
        best[memory] = max(cosine, best.get(memory, -1.0))
    return dict(sorted(best.items(), key=lambda pair: -pair[1])[:limit])


def assert_same(found: dict[int, float], wanted: dict[int, float]) -> None:
    assert list(found) == list(wanted)
    assert list(found.values()) == pytest.approx(list(wanted.values()), abs=1e-4)


def test_only_what_is_allowed_is_found_however_little_that_is(library: Library) -> None:
    numbers = library.add(*(unit(1, seed=n) for n in range(600)))
    library.tend()
    query = unit(1, seed=700)[0]
    for share in (1, 2, 20, 300):
        allowed = [*numbers[::share], 10**6]
        passages = library.vectors.of_memories(allowed)
        assert passages.memories == numbers[::share]
        found = library.vectors.nearest(query, 20, allowed)
        wanted = expected(passages, query, 20)
        assert len(set(found) & set(wanted)) >= 0.95 * len(wanted), "HNSW may lack some"
        if not isinstance(library.vectors, ChromaVectors):
            assert_same(found, wanted)


def test_what_was_changed_or_erased_is_not_found_any_more(library: Library) -> None:
    vectors = unit(5)
    numbers = library.add(*(vectors[place : place + 1] for place in range(4)))
    for _ in range(2):  # as it was taken in, and after it was tended
        assert next(iter(library.vectors.nearest(vectors[1], 1))) == numbers[1]
        library.tend()
    library.change(numbers[0], vectors[4:5])
    library.erase(numbers[1])
    for _ in range(2):
        found = library.vectors.nearest(vectors[0], 10)
        assert sorted(found) == [numbers[0], *numbers[2:]]
        assert found[numbers[0]] == pytest.approx(float(vectors[4] @ vectors[0]), abs=1e-5)
        assert numbers[1] not in library.vectors.nearest(vectors[1], 10)
        assert sorted(library.vectors.of_memories(numbers).memories) == sorted(library.rows().memories)
        library.tend()


@pytest.mark.parametrize("library", ["chroma"], indirect=True)
def test_many_agree_with_a_full_sort_at_every_depth(library: Library) -> None:
    numbers = library.add(*(row[None] for row in unit(1500)))
    library.tend()
    for number in numbers[::50]:
        library.erase(number)
    library.tend()
    rows = library.rows()
    for depth in (1, 50, 800, 3200):
        for query in unit(3, seed=3):
            found, wanted = library.vectors.nearest(query, depth), expected(rows, query, depth)
            # In a graph of near neighbours (HNSW) that lost some, one that is left may be out of reach.
            assert 0.99 * len(wanted) <= len(found) <= len(wanted)
            assert len(set(found) & set(wanted)) >= 0.95 * len(wanted)


def test_near_duplicates_are_pairs_of_whole_memories(library: Library) -> None:
    base, other = unit(2)
    near = base + 0.05 * other
    near = (near / np.linalg.norm(near)).astype(np.float32)
    first, second, _ = library.add(base[None], np.vstack([near, other]), np.vstack([other, base]))
    library.tend()
    pairs = compared(library.vectors, library.rows())[0]
    assert {pair[:2] for pair in pairs} == {(second, first)}
    assert pairs[0].cosine == pytest.approx(float(base @ near), abs=1e-5)
    assert compared(library.vectors, library.records.passages(MODEL, [10**6])) == ([], [])


steps = st.lists(
    st.tuples(st.sampled_from(["add", "change", "erase", "search", "free"]), st.integers(0, 7)), max_size=14
)


@given(steps)
def test_any_changes_leave_what_records_have(
    tmp_path_factory: pytest.TempPathFactory, history: list[tuple[str, int]]
) -> None:
    with RecordsRig(tmp_path_factory.mktemp("records") / "memory.db") as rig:
        vectors = ExactVectors(rig.records, MODEL)
        library = Library(rig.records, vectors)
        there: list[int] = []
        for turn, (what, which) in enumerate(history):
            match what:
                case "add":
                    there += library.add(unit(1 + which % 3, seed=turn))
                case "change" if there:
                    library.change(there[which % len(there)], unit(1, seed=100 + turn), f"text {turn}")
                case "erase" if there:
                    library.erase(there.pop(which % len(there)))
                case "free":
                    vectors.free()
                case _:
                    assert_same(vectors.nearest(unit(1, seed=7)[0], 3), expected(library.rows(), unit(1, seed=7)[0], 3))
        query = unit(1, seed=7)[0]
        assert_same(vectors.nearest(query, 20), expected(library.rows(), query, 20))


@pytest.fixture
def exact(records: Records) -> Library:
    return Library(records, ExactVectors(records, MODEL))


@given(st.integers(1, 60), st.integers(1, 70), st.integers(1, 5))
def test_the_nearest_are_those_of_a_full_sort_also_among_equals(count: int, limit: int, distinct: int) -> None:
    vectors = unit(distinct)[np.arange(count) % distinct]
    cosines = vectors @ unit(1, seed=4)[0]
    found = exact_vectors.first_memories(cosines, np.arange(1, count + 1), limit)
    assert list(found) == [int(place) + 1 for place in np.argsort(-cosines, kind="stable")[:limit]]


def asked(records: Records, limit: int = 9, hand_bytes: int = 10**6, without: Sequence[int] = ()) -> list[int]:
    return [each.number for each in records.next_texts(MODEL, limit, hand_bytes, without)]


def test_texts_without_vectors_are_asked_for_newest_first_within_bounds(exact: Library) -> None:
    records = exact.records
    apply(records, [store_operation(f"op{n}", f"memory {n}") for n in range(1, 7)])
    assert (asked(records), records.missing(MODEL), records.missing(None)) == ([6, 5, 4, 3, 2, 1], 6, 6)
    exact.save([6, 2], [unit(1), unit(1)])
    assert asked(records) == [5, 4, 3, 1]
    assert [records.missing(model) for model in (MODEL, "other", None)] == [4, 6, 6]
    assert asked(records, limit=2, without=[5]) == [4, 3]
    assert asked(records, hand_bytes=10) == [5, 4], "as long as there is room, and the one that fills it"
    (first, *_) = records.next_texts(MODEL, 1, 1)
    assert (first.content, first.digest, first.is_alone) == ("memory 5", digest_of("memory 5"), False)


@pytest.mark.parametrize("died", [False, True])
def test_a_text_becomes_a_dead_letter_and_has_another_chance_later(exact: Library, *, died: bool) -> None:
    records = exact.records
    first, second = store_operation("op1", "memory 1"), store_operation("op2", "memory 2")
    apply(records, [first, second])
    exact.ids[1] = memory_id_of(first)
    for attempt in range(1, MAX_ATTEMPTS + 1):
        failed = [FailedText(number, f"reason {attempt}", died, 100.0) for number in (1, 999)]
        dead = records.note_attempts(MODEL, failed)
        assert dead == (failed[:1] if attempt == MAX_ATTEMPTS else [])
        if not dead:
            alone = {each.number: each.is_alone for each in records.next_texts(MODEL, 9, 999)}
            assert list(alone.items()) == [(2, False), (1, died)]
    assert (asked(records), records.missing(MODEL), records.missing("other")) == ([2], 1, 2)
    assert records.dead_letters(MODEL) == {1: f"reason {MAX_ATTEMPTS}"}
    records.try_again(MODEL, 99.0)
    assert asked(records) == [2]
    records.try_again(MODEL, 100.0)
    assert asked(records) == [2, 1]
    failed = [FailedText(1, "again", died, 200.0)]
    assert records.note_attempts(MODEL, failed) == (failed if died else []), "a deadly one has one chance"
    exact.change(1, unit(1))
    assert (asked(records), records.dead_letters(MODEL)) == ([2], {})
    for _ in range(MAX_ATTEMPTS):
        assert records.note_attempts(MODEL, [FailedText(1, "late", died, 100.0)]) == [], "it has its vectors"
    assert records.missing(MODEL) == 1


def held(chroma: Chroma, name: str = NAME, dimensions: int = DIMENSIONS) -> list[int]:
    return sorted(map(int, chroma.collection(name, dimensions)[0].get(include=[])["ids"]))


def put(chroma: Chroma, numbers: Sequence[int], vectors: Vectors, name: str = NAME) -> None:
    collection, _ = chroma.collection(name, vectors.shape[1])
    collection.upsert(ids=[str(number) for number in numbers], embeddings=vectors)


def test_a_stop_does_not_wait_for_a_filling_and_the_next_start_goes_on(exact: Library, chroma: Chroma) -> None:
    exact.add(unit(3 * ADD_BATCH))
    goes_on = iter([True, False])
    vectors = moved(exact.records, chroma, lambda: next(goes_on))
    assert held(chroma) == exact.rows().numbers[:ADD_BATCH]
    assert vectors.newest().numbers == exact.rows().numbers[ADD_BATCH:]
    vectors = moved(exact.records, chroma, iter([True, True, False]).__next__)
    assert held(chroma) == exact.rows().numbers
    assert vectors.newest().numbers == []


def test_a_collection_that_has_something_else_than_the_records_is_made_anew(exact: Library, chroma: Chroma) -> None:
    vectors = unit(30)
    numbers = exact.add(*(row[None] for row in vectors))
    put(chroma, exact.rows().numbers[:20], unit(20, seed=9))
    put(chroma, [7000], unit(1, seed=9))
    made = moved(exact.records, chroma)
    assert held(chroma) == exact.rows().numbers
    assert [list(made.nearest(row, 1)) for row in vectors] == [[number] for number in numbers]


def test_collections_of_one_home_do_not_mix_and_are_there_after_closing(folder: Path) -> None:
    first = Chroma(folder)
    of_user, of_other_model = f"user.{MODEL}", "user.large.float32.0123456789ab.4"
    put(first, [1], unit(1))
    put(first, [2], unit(1, seed=2), of_user)
    put(first, [3], np.array([[1, 0, 0, 0]], dtype=np.float32), of_other_model)
    first.close()
    first.close()
    second = Chroma(folder)
    assert sorted(second.names()) == sorted([NAME, of_user, of_other_model])
    assert (held(second), held(second, of_user), held(second, of_other_model, 4)) == ([1], [2], [3])
    second.delete(NAME)
    assert NAME not in second.names()
    second.close()


def moved_again(records: Records, folder: Path, chromas: ExitStack) -> ChromaVectors:
    """The vectors of records in a Chroma that may be damaged, and is then deleted."""
    try:
        return moved(records, chromas.enter_context(closing(Chroma(folder))))
    except ChromaUnavailable:
        chromas.close()
        shutil.rmtree(folder)
        return moved(records, chromas.enter_context(closing(Chroma(folder))))


BREAKAGES: dict[str, Callable[[bytes], bytes | None]] = {
    "garbage": lambda whole: b"x" * len(whole),
    "nothing": lambda whole: b"",
    "noise in the middle": lambda whole: whole[:4096] + random.Random(5).randbytes(65536) + whole[69632:],
    "segments gone": lambda whole: None,
    "noise in the segments": lambda whole: random.Random(5).randbytes(len(whole)),
}


@pytest.mark.parametrize("name", BREAKAGES)
def test_what_is_broken_on_disk_is_seen_and_made_anew(exact: Library, folder: Path, name: str) -> None:
    """The segments are what Chroma searches, beside its list of what it holds."""
    in_segments = "segments" in name
    vectors = unit(1200 if in_segments else 50)
    numbers = exact.add(*(row[None] for row in vectors))
    with closing(Chroma(folder)) as whole:
        moved(exact.records, whole)
    segments = [each for each in folder.rglob("*") if each.is_file() and each.parent != folder]
    for path in segments if in_segments else [folder / "chroma.sqlite3"]:
        broken = BREAKAGES[name](path.read_bytes())
        path.unlink() if broken is None else path.write_bytes(broken)
    with ExitStack() as chromas:
        again = moved_again(exact.records, folder, chromas)
        assert in_segments or again.newest().numbers == []
        assert list(again.nearest(vectors[7], 1)) == [numbers[7]]
        assert not again.has_failed
