"""Embedding leases: a machine that plays workers which take, answer, fail, leave and die in any order.

The records are a set of texts that have no vectors, with their attempts, as the store asks them.
"""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from remembrancer.actors.store.records.types import MAX_ATTEMPTS, TextToEmbed
from remembrancer.actors.store.vectors.leases import HAND_BYTES, SUSPECTS, EmbeddingJob, Leases

FILE = "p_0123456789ab"
MODEL = "small"
WORKERS = st.sampled_from(["ann", "bob", "cid"])
KEYS = st.integers(0, 12)


def text_of(key: int, size_bytes: int = 100, *, is_alone: bool = False) -> TextToEmbed:
    return TextToEmbed(key, "x" * size_bytes, b"", is_alone)


def job_of(key: int) -> EmbeddingJob:
    return EmbeddingJob(MODEL, FILE, key)


class Store:
    """What has no vectors, and what the records know of failures."""

    def __init__(self, keys: int = 0, size_bytes: int = 100) -> None:
        self.leases: Leases[str] = Leases()
        self.due = set(range(keys))
        self.attempts: Counter[int] = Counter()
        self.died: set[int] = set()
        self.sizes = dict.fromkeys(range(200), size_bytes)

    def deliver(self, limit: int | None = None) -> dict[str, list[TextToEmbed]]:
        """Hand out as the store does: the newest that are not leased, as many as there is room for."""
        room = self.leases.room(MODEL)
        leased = self.leases.leased_of(MODEL, FILE)
        asked = [key for key in sorted(self.due, reverse=True) if key not in leased and not self.is_dead(key)]
        texts = [text_of(key, self.sizes[key], is_alone=key in self.died) for key in asked]
        texts = texts[: room if limit is None else min(room, limit)]
        handed: dict[str, list[TextToEmbed]] = {}
        for worker, text in self.leases.hand_out(MODEL, FILE, texts):
            handed.setdefault(worker, []).append(text)
        return handed

    def handed(self, worker: str) -> list[TextToEmbed]:
        return self.deliver().get(worker, [])

    def is_dead(self, key: int) -> bool:
        return self.attempts[key] >= MAX_ATTEMPTS

    def finish(self, worker: str, key: int) -> None:
        """An answer that is kept."""
        assert self.leases.finish(worker, job_of(key))
        self.due.discard(key)
        self.leases.release(job_of(key))

    def fail(self, worker: str, key: int) -> None:
        assert self.leases.finish(worker, job_of(key))
        self.attempts[key] += 1
        self.leases.release(job_of(key))

    def die(self, worker: str) -> list[int]:
        """A death that is noted: the dead letters that come of it."""
        jobs = self.leases.worker_died(worker)
        for job in jobs:
            self.attempts[job.number] += 1
            self.died.add(job.number)
            self.leases.release(job)
        return [number for _, _, number in jobs if self.is_dead(number)]


def keys_of(texts: list[TextToEmbed]) -> list[int]:
    return [each.number for each in texts]


class Workers(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.store = Store()
        self.store.sizes = {key: HAND_BYTES * key // 10 for key in range(13)}  # the longest does not fit into a hand
        self.credit: dict[str, int] = {}
        self.in_hand: dict[str, set[int]] = {}

    @rule(keys=st.lists(KEYS, max_size=5))
    def come(self, keys: list[int]) -> None:
        self.store.due.update(keys)

    @rule(worker=WORKERS, credit=st.integers(0, 4))
    def arrive(self, worker: str, credit: int) -> None:
        self.store.leases.worker_ready(worker, MODEL, credit)
        self.credit[worker], self.in_hand[worker] = credit, set()

    @rule(worker=WORKERS)
    def leave(self, worker: str) -> None:
        self.store.leases.worker_gone(worker)
        self.credit.pop(worker, None)
        self.in_hand.pop(worker, None)

    @rule(worker=WORKERS)
    def die(self, worker: str) -> None:
        self.store.die(worker)
        self.credit.pop(worker, None)
        self.in_hand.pop(worker, None)

    @rule(limit=st.sampled_from([None, None, 0, 1, 3]))
    def hand_out(self, limit: int | None) -> None:
        sent = self.store.deliver(limit)
        assert limit is None or sum(map(len, sent.values())) <= limit
        for worker, texts in sent.items():
            hand = self.in_hand[worker]
            for text in texts:
                key = text.number
                assert key not in set().union(*self.in_hand.values()), "in two hands at once"
                assert not (hand and text.is_alone), "a suspected text is handed out alone"
                assert not hand or sum(self.store.sizes[each] for each in [*hand, key]) <= HAND_BYTES
                hand.add(key)
            assert len(hand) <= self.credit[worker]

    @precondition(lambda self: any(self.in_hand.values()))
    @rule(data=st.data(), well=st.booleans())
    def answer(self, data: st.DataObject, well: bool) -> None:
        worker = data.draw(st.sampled_from(sorted(each for each, hand in self.in_hand.items() if hand)))
        key = data.draw(st.sampled_from(sorted(self.in_hand[worker])))
        self.in_hand[worker].remove(key)
        assert not self.store.leases.finish("somebody else", job_of(key))
        if well:
            self.store.finish(worker, key)
        else:
            self.store.fail(worker, key)

    @invariant()
    def the_workers_are_those_that_came_and_did_not_go(self) -> None:
        assert self.store.leases.workers == dict.fromkeys(self.credit, MODEL)
        assert all(self.store.leases.count_held(worker) == len(hand) for worker, hand in self.in_hand.items())
        assert self.store.leases.workers_of(MODEL) == list(self.store.leases.workers)

    def teardown(self) -> None:
        """Whatever was done, a worker that works on gets everything done."""
        for worker in list(self.credit):
            self.store.leases.worker_gone(worker)
        self.store.leases.worker_ready("dora", MODEL, 2)
        while handed := self.store.handed("dora"):
            for text in handed:
                self.store.finish("dora", text.number)
        assert all(self.store.is_dead(key) for key in self.store.due)


TestWorkersThatDoAsTheyLike = Workers.TestCase


def working(*workers: str, credit: int = 128, keys: int = 10, size_bytes: int = 100) -> Store:
    store = Store(keys, size_bytes)
    for worker in workers:
        store.leases.worker_ready(worker, MODEL, credit)
    return store


def test_texts_are_shared_out_among_the_workers_that_have_credit() -> None:
    store = working("ann", "bob", credit=3, keys=4)
    assert sorted(len(leases) for leases in store.deliver().values()) == [2, 2]
    store.leases.worker_gone("ann")
    assert len(store.handed("bob")) == 1, "its credit is 3, and it holds 2"


def test_a_worker_holds_no_more_text_than_it_can_embed_soon() -> None:
    store = working("ann", keys=20, size_bytes=HAND_BYTES // 4)
    first = store.handed("ann")
    assert keys_of(first) == [19, 18, 17, 16], "the newest first"
    assert store.handed("ann") == []
    store.finish("ann", first[0].number)
    assert keys_of(store.handed("ann")) == [15]


def lives_of_workers(deadly: set[int], keys: int, *, most: int = 100) -> tuple[list[int], list[int], int]:
    """Workers that die of certain texts, one after another: what they finished, the dead letters, and their number."""
    store = working("worker-0", keys=keys)
    finished: list[int] = []
    letters: list[int] = []
    for number in range(most):
        worker = f"worker-{number}"
        store.leases.worker_ready(worker, MODEL, 128)
        dies = False
        while not dies and (texts := store.handed(worker)):
            for text in texts:
                if dies := text.number in deadly:
                    letters += store.die(worker)
                    break
                store.finish(worker, text.number)
                finished.append(text.number)
        if not dies:
            return finished, letters, number
    raise AssertionError("the workers die for ever")


@pytest.mark.parametrize(("deadly", "keys"), [({7}, SUSPECTS + 20), ({0, 3, 40}, 60)])
def test_texts_that_kill_their_workers_are_found_one_by_one_and_all_others_are_embedded(
    deadly: set[int], keys: int
) -> None:
    finished, letters, dead = lives_of_workers(deadly, keys)
    assert set(letters) == deadly
    assert sorted(finished) == sorted(set(range(keys)) - deadly)
    assert dead <= len(deadly) * MAX_ATTEMPTS
