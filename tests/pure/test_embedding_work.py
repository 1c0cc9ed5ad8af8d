"""Who embeds what: a machine that plays workers which take, answer, fail, hang, leave and die in any order.

The model of the test is the workers' own: what each has in hand and has not answered.
"""

from __future__ import annotations

from collections import Counter

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from remembrancer.actors.store.vectors.embedding_work import LEASE_S, MAX_ATTEMPTS, EmbeddingWork, Lease
from remembrancer.protocol.work import ModelIdentity

IDENTITY = ModelIdentity("onnx", "small", "0123456789ab", "int8", 4, 256)
WORKERS = st.sampled_from(["ann", "bob", "cid"])
KEYS = st.integers(0, 12)


class Workers(RuleBasedStateMachine):
    """Jobs are keys 0 to 12; a job is due from when it is queued until it is finished or has finally failed."""

    leases: Bundle[Lease[int, str]] = Bundle("leases")

    def __init__(self) -> None:
        super().__init__()
        self.work: EmbeddingWork[int, str] = EmbeddingWork()
        self.now = 1000.0
        self.credit: dict[str, int] = {}
        self.in_hand: dict[str, set[int]] = {}
        self.standing: dict[int, Lease[int, str]] = {}
        self.due: set[int] = set()
        self.queue: list[int] = []
        self.failures: Counter[int] = Counter()
        self.handed_out: dict[int, Lease[int, str]] = {}

    @rule(keys=st.lists(KEYS, max_size=5))
    def enqueue(self, keys: list[int]) -> None:
        self.work.enqueue(keys)
        for key in keys:
            self.due.add(key)
            if key not in self.queue:
                self.queue.append(key)
            superseded = self._lease_of(key)
            if superseded is not None:
                del self.standing[superseded.job_id]
                self.failures.pop(key, None)

    @rule(keys=st.lists(KEYS, max_size=5))
    def enqueue_missing(self, keys: list[int]) -> None:
        self.work.enqueue_missing(keys)
        for key in keys:
            if key not in self.queue and self._lease_of(key) is None:
                self.queue.append(key)
                self.due.add(key)

    @rule(key=KEYS)
    def discard(self, key: int) -> None:
        self.work.discard(key)
        self.due.discard(key)
        self.failures.pop(key, None)
        if key in self.queue:
            self.queue.remove(key)
        lease = self._lease_of(key)
        if lease is not None:
            del self.standing[lease.job_id]

    @rule(worker=WORKERS, credit=st.integers(0, 4))
    def arrive(self, worker: str, credit: int) -> None:
        self._forget(worker)
        self.work.worker_ready(worker, IDENTITY, credit)
        self.credit[worker], self.in_hand[worker] = credit, set()

    @rule(worker=WORKERS)
    def die(self, worker: str) -> None:
        self._forget(worker)
        self.work.worker_gone(worker)

    @rule(
        seconds=st.sampled_from([0.0, 1.0, LEASE_S / 2, LEASE_S]),
        limit=st.sampled_from([None, None, 0, 1, 3]),
        target=leases,
    )
    def hand_out(self, seconds: float, limit: int | None) -> Lease[int, str]:
        self.now += seconds
        expired = sorted(job for job, lease in self.standing.items() if lease.expires_at <= self.now)
        self._requeue(expired)
        for worker, hand in self.in_hand.items():  # what has expired is taken for lost
            self.in_hand[worker] = {job for job in hand if self.handed_out[job].expires_at > self.now}
        free = sum(credit - len(self.in_hand[worker]) for worker, credit in self.credit.items())
        count = free if limit is None else min(free, limit)
        expected, self.queue = self.queue[:count], self.queue[count:]
        handed = sorted(
            (lease for leases in self.work.hand_out(self.now, limit).values() for lease in leases),
            key=lambda lease: lease.job_id,
        )
        assert [lease.key for lease in handed] == expected, "in the order of the queue, as far as credit and limit go"
        for lease in handed:
            assert lease.expires_at == self.now + LEASE_S
            self.standing[lease.job_id] = lease
            self.handed_out[lease.job_id] = lease
            self.in_hand[lease.worker].add(lease.job_id)
        return handed[0] if handed else Lease(0, -1, "nobody", 0.0)

    @rule(lease=leases)
    def finish(self, lease: Lease[int, str]) -> None:
        stands = lease.job_id in self.standing
        assert self.work.finish("somebody else", lease.job_id) is None
        assert self.work.finish(lease.worker, lease.job_id) == (lease.key if stands else None)
        self._answered(lease)
        if stands:
            del self.standing[lease.job_id]
            self.due.discard(lease.key)
            self.failures.pop(lease.key, None)

    @rule(lease=leases)
    def fail(self, lease: Lease[int, str]) -> None:
        stands = lease.job_id in self.standing
        failed = self.work.fail(lease.worker, lease.job_id)
        self._answered(lease)
        if not stands:
            assert failed is None
            return
        del self.standing[lease.job_id]
        self.failures[lease.key] += 1
        final = self.failures[lease.key] >= MAX_ATTEMPTS
        assert failed == (lease.key, final)
        if final:
            self.due.discard(lease.key)
            self.failures.pop(lease.key)
        else:
            self.queue.append(lease.key)

    @invariant()
    def no_job_is_lost_and_none_is_in_two_hands(self) -> None:
        leased = [lease.key for lease in self.standing.values()]
        assert len(leased) == len(set(leased))
        assert set(leased) | set(self.queue) == self.due
        assert not set(leased) & set(self.queue)
        assert self.work.pending == len(self.due)
        assert self.work.has_queued == bool(self.queue)

    @invariant()
    def nobody_holds_more_than_their_credit(self) -> None:
        assert all(len(self.in_hand[worker]) <= credit for worker, credit in self.credit.items())
        assert set(self.work.workers) == set(self.credit)
        assert all(self.work.knows(worker) for worker in self.credit)
        assert (self.work.identity is None) == (not self.credit)

    def teardown(self) -> None:
        """Whatever was done, a worker that works on gets everything done."""
        for worker in list(self.credit):
            self.die(worker)
        self.work.worker_ready("dora", IDENTITY, 2)
        done: list[int] = []
        while handed := self.work.hand_out(self.now).get("dora"):
            for lease in handed:
                key = self.work.finish("dora", lease.job_id)
                assert key is not None
                done.append(key)
        assert done == self.queue
        assert set(done) == self.due
        assert self.work.pending == 0

    def _lease_of(self, key: int) -> Lease[int, str] | None:
        return next((lease for lease in self.standing.values() if lease.key == key), None)

    def _answered(self, lease: Lease[int, str]) -> None:
        self.in_hand.get(lease.worker, set()).discard(lease.job_id)

    def _forget(self, worker: str) -> None:
        self._requeue(sorted(self.in_hand.pop(worker, set())))
        self.credit.pop(worker, None)

    def _requeue(self, job_ids: list[int]) -> None:
        self.queue[:0] = [self.standing.pop(job_id).key for job_id in job_ids if job_id in self.standing]


Workers.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestWorkersThatDoAsTheyLike = Workers.TestCase


def test_jobs_are_shared_out_among_the_workers_that_have_credit() -> None:
    work: EmbeddingWork[int, str] = EmbeddingWork()
    work.worker_ready("ann", IDENTITY, 3)
    work.worker_ready("bob", IDENTITY, 3)
    work.enqueue(range(4))
    handed = work.hand_out(0.0)
    assert sorted(len(leases) for leases in handed.values()) == [2, 2]
    work.worker_gone("ann")
    assert work.pending == 4
    assert len(work.hand_out(0.0)["bob"]) == 1, "its credit is 3, and it holds 2"


def test_job_numbers_begin_where_they_are_told_to() -> None:
    work: EmbeddingWork[int, str] = EmbeddingWork(900)
    work.worker_ready("ann", IDENTITY, 1)
    work.enqueue([1])
    assert work.hand_out(0.0)["ann"][0].job_id == 900
    assert work.finish("ann", 1) is None
