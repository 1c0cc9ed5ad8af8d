"""Batches of like length within a bound, and jobs that end with their last passage."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from remembrancer.actors.embedder.batching import (
    LARGEST_BATCH_TOKENS,
    SMALLEST_BATCH_TOKENS,
    TARGET_S,
    BatchSize,
    PassageQueue,
    QueuedPassage,
)
from remembrancer.actors.embedder.passages import MeasuredPassage
from remembrancer.protocol.work import Passage

LENGTHS = st.lists(st.lists(st.integers(min_value=2, max_value=256), min_size=1, max_size=8), max_size=30)


def of_lengths(*tokens: int) -> list[MeasuredPassage]:
    return [MeasuredPassage(0, 0, each) for each in tokens]


def filled(jobs: list[list[int]]) -> PassageQueue:
    queue = PassageQueue()
    for job_id, lengths in enumerate(jobs):
        queue.add(job_id, "", of_lengths(*lengths))
    return queue


def emptied(queue: PassageQueue, bound: int) -> list[list[QueuedPassage]]:
    batches = []
    while batch := queue.take(bound):
        batches.append(batch)
    return batches


@given(jobs=LENGTHS, bound=st.integers(min_value=1, max_value=2048))
def test_every_passage_is_in_one_batch_and_no_batch_of_several_is_over_the_bound(
    jobs: list[list[int]], bound: int
) -> None:
    queue = filled(jobs)
    batches = emptied(queue, bound)
    taken = sorted((row.job_id, row.place) for batch in batches for row in batch)
    assert taken == sorted((job, place) for job, lengths in enumerate(jobs) for place in range(len(lengths)))
    assert len(queue) == 0
    for batch in batches:
        assert batch == sorted(batch)
        assert len(batch) == 1 or len(batch) * max(row.tokens for row in batch) <= bound


def test_a_batch_has_no_more_rows_than_it_may() -> None:
    queue = filled([[10], [11], [12], [200], [13]])
    taken = []
    while queue:
        taken.append([row.tokens for row in queue.take(2048, 2)])
    assert sorted(taken) == [[10, 11], [12, 13], [200]]


def test_a_batch_holds_passages_of_like_length() -> None:
    queue = filled([[10], [200], [11], [210], [12], [205]])
    assert [[row.tokens for row in batch] for batch in emptied(queue, 640)] == [[10, 11, 12], [200, 205, 210]]


def test_short_passages_do_not_wait_for_a_long_text_that_came_before_them() -> None:
    queue = filled([[256] * 40, [8], [9]])
    assert {row.job_id for row in queue.take(512)} == {1, 2}


def test_a_long_passage_is_not_overtaken_for_ever() -> None:
    queue = filled([[256]])
    for job_id in range(1, 6):
        queue.add(job_id, "", of_lengths(*[8] * 64))
        if any(row.job_id == 0 for row in queue.take(512)):
            return
    raise AssertionError("the long passage was passed over in five batches")


def test_long_texts_are_done_one_after_the_other_and_not_all_together() -> None:
    queue = filled([[250, 240, 255, 30], [251, 239, 254, 31], [252, 241, 253, 32]])
    left = {0: 4, 1: 4, 2: 4}
    begun: set[int] = set()
    while batch := queue.take(1024):
        for row in batch:
            begun.add(row.job_id)
            left[row.job_id] -= 1
        assert sum(left[job_id] > 0 for job_id in begun) <= 1, "one at a time is half done"
    assert set(left.values()) == {0}


@given(jobs=LENGTHS, bound=st.integers(min_value=1, max_value=2048))
def test_no_job_is_begun_beside_another_before_one_is_finished(jobs: list[list[int]], bound: int) -> None:
    queue = filled(jobs)
    left = {job_id: len(lengths) for job_id, lengths in enumerate(jobs)}
    while batch := queue.take(bound):
        for row in batch:
            left[row.job_id] -= 1
        together = {row.job_id for row in batch}
        assert len(together) == 1 or any(left[job_id] == 0 for job_id in together)


def test_the_passages_of_a_job_can_be_forgotten() -> None:
    queue = filled([[8, 9], [10], [11]])
    queue.drop(0)
    assert [row.job_id for batch in emptied(queue, 20) for row in batch] == [1, 2]
    queue.add(7, "", of_lengths(3))
    queue.clear()
    assert queue.take(512) == []


def test_the_size_of_a_batch_follows_the_speed_of_the_model() -> None:
    size = BatchSize()
    for _ in range(50):
        size.observe(size.tokens, size.tokens / 20_000)
    assert abs(size.tokens - 20_000 * TARGET_S) < 20
    for _ in range(200):
        size.observe(size.tokens, 10.0)
    assert size.tokens == SMALLEST_BATCH_TOKENS
    for _ in range(200):
        size.observe(size.tokens, 0.0)
    assert size.tokens == LARGEST_BATCH_TOKENS


def test_a_batch_that_was_small_for_want_of_work_does_not_change_the_size() -> None:
    size = BatchSize(512)
    size.observe(10, 1.0)
    assert size.tokens == 512


def test_a_job_is_answered_once_with_its_vectors_in_the_order_of_its_passages() -> None:
    queue = PassageQueue()
    queue.add(5, "abcdefghi", [MeasuredPassage(0, 4, 3), MeasuredPassage(3, 9, 3)], marks=2)
    assert 5 in queue
    first, second = queue.take(512)
    assert [(row.tokens, row.text) for row in (first, second)] == [(5, "abcd"), (5, "defghi")]
    assert queue.put(second, np.array([0, 1], dtype=np.float32)) is None
    answer = queue.put(first, np.array([1, 0], dtype=np.float32))
    assert answer is not None
    assert answer.passages == (Passage(0, 4), Passage(3, 9))
    assert np.frombuffer(answer.vectors, dtype="<f4").tolist() == [1, 0, 0, 1]
    assert 5 not in queue


def test_a_vector_of_a_forgotten_job_is_passed_over() -> None:
    queue = filled([[3]])
    (row,) = queue.take(512)
    queue.drop(0)
    assert queue.put(row, np.zeros(2, dtype=np.float32)) is None
