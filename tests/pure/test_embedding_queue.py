"""Who embeds what: a machine that plays workers which take, answer, fail, fall silent, leave and die in any order.

The model of the test is the workers' own: what each has in hand and has not answered.
"""

from __future__ import annotations

from collections import Counter

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from remembrancer.actors.store.vectors.embedding_queue import (
    DEADLY_S,
    HAND_BYTES,
    MAX_ATTEMPTS,
    MAX_DEATHS,
    REMEMBERED,
    SILENCE_S,
    SLOWEST_BYTES_PER_S,
    SUSPECTS,
    DeadLetters,
    EmbeddingQueue,
    Lease,
)

WORKERS = st.sampled_from(["ann", "bob", "cid"])
KEYS = st.integers(0, 12)
Job = tuple[int, int]
"""A key, and how often it had been queued anew when it was handed out."""


def size_of(key: int) -> int:
    """Some memories are far longer than others; the longest does not fit into a hand."""
    return HAND_BYTES * key // 10


def deliver(
    work: EmbeddingQueue[int, str],
    now: float,
    limit: int | None = None,
    hand_bytes: int = HAND_BYTES,
    sizes: dict[int, int] | None = None,
) -> dict[str, list[Lease[int]]]:
    """Hand out as the actor does: the texts of what is next are read, and go to whoever can take them."""
    tickets = work.next_up(now, limit, hand_bytes)
    weighed = [(each, size_of(each.key) if sizes is None else sizes[each.key]) for each in tickets]
    return work.hand_out(weighed, now, hand_bytes)


class Workers(RuleBasedStateMachine):
    """Jobs are keys 0 to 12; a job is due from when it is queued until it is finished or a dead letter."""

    def __init__(self) -> None:
        super().__init__()
        self.work: EmbeddingQueue[int, str] = EmbeddingQueue()
        self.now = 1000.0
        self.credit: dict[str, int] = {}
        self.in_hand: dict[str, dict[int, Job]] = {}
        self.heard_at: dict[str, float] = {}
        self.version: Counter[int] = Counter()
        self.due: set[int] = set()
        self.failures: Counter[Job] = Counter()
        self.deaths: Counter[Job] = Counter()
        self.suspected: set[Job] = set()

    @rule(keys=st.lists(KEYS, max_size=5), backlog=st.booleans())
    def enqueue(self, keys: list[int], *, backlog: bool) -> None:
        self.work.enqueue(keys, backlog=backlog)
        self.version.update(keys)
        self.due.update(keys)

    @rule(keys=st.lists(KEYS, max_size=5))
    def enqueue_missing(self, keys: list[int]) -> None:
        self.work.enqueue_missing(keys)
        self.version.update(set(keys) - self.due)
        self.due.update(keys)

    @rule(key=KEYS)
    def discard(self, key: int) -> None:
        self.work.discard(key)
        self.due.discard(key)
        self.version[key] += 1

    @rule(worker=WORKERS, credit=st.integers(0, 4))
    def arrive(self, worker: str, credit: int) -> None:
        self.work.worker_ready(worker, credit)
        self.credit[worker], self.in_hand[worker] = credit, {}

    @rule(worker=WORKERS)
    def leave(self, worker: str) -> None:
        self.work.worker_gone(worker)
        self.credit.pop(worker, None)
        self.in_hand.pop(worker, None)

    @rule(worker=WORKERS)
    def die(self, worker: str) -> None:
        exposed = [job for job in self.in_hand.pop(worker, {}).values() if self._is_due(job)]
        self.suspected.update(exposed)
        self.deaths.update(exposed if len(exposed) == 1 else ())
        letters = self.work.worker_died(worker)
        assert letters == [key for key, version in exposed[:1] if self.deaths[key, version] >= MAX_DEATHS]
        self.credit.pop(worker, None)
        self.due.difference_update(letters)

    @rule(
        seconds=st.sampled_from([0.0, 1.0, SILENCE_S / 2, 3 * SILENCE_S]),
        limit=st.sampled_from([None, None, 0, 1, 3]),
        hand_bytes=st.sampled_from([HAND_BYTES, HAND_BYTES // 10]),
    )
    def hand_out(self, seconds: float, limit: int | None, hand_bytes: int) -> None:
        self.now += seconds
        silent = {worker for worker in self.in_hand if self._is_silent(worker)}
        sent = deliver(self.work, self.now, limit, hand_bytes)
        assert limit is None or sum(map(len, sent.values())) <= limit
        for worker, leases in sent.items():
            assert worker not in silent
            hand = self.in_hand[worker]
            if not hand:
                self.heard_at[worker] = self.now
            for lease in leases:
                job = (lease.key, self.version[lease.key])
                assert lease.key in self.due
                assert job not in self._held_by_living(silent), "in two hands at once"
                assert not (hand and job in self.suspected), "a suspected job is handed out alone"
                assert not self.suspected & set(hand.values()) & self._jobs_due()
                assert not hand or sum(size_of(key) for key, _ in [*hand.values(), job]) <= hand_bytes
                hand[lease.job_id] = job
            assert len(hand) <= self.credit[worker]

    @precondition(lambda self: any(self.in_hand.values()))
    @rule(data=st.data(), well=st.booleans())
    def answer(self, data: st.DataObject, well: bool) -> None:
        worker = data.draw(st.sampled_from(sorted(each for each, hand in self.in_hand.items() if hand)))
        job_id = data.draw(st.sampled_from(sorted(self.in_hand[worker])))
        job = self.in_hand[worker].pop(job_id)
        stands = self._is_due(job)
        self.heard_at[worker] = self.now
        if well:
            assert self.work.finish("somebody else", job_id, self.now) is None
            assert self.work.finish(worker, job_id, self.now) == (job[0] if stands else None)
            self.due.discard(job[0] if stands else -1)
            self.version[job[0]] += stands
            return
        self.failures[job] += 1
        self.suspected.discard(job)
        final = self.failures[job] >= MAX_ATTEMPTS
        assert self.work.fail(worker, job_id, self.now) == ((job[0], final) if stands else None)
        if stands and final:
            self.due.discard(job[0])
            self.version[job[0]] += 1

    @invariant()
    def no_job_is_lost(self) -> None:
        assert self.work.pending == len(self.due)

    @invariant()
    def the_workers_are_those_that_came_and_did_not_go(self) -> None:
        assert set(self.work.workers) == set(self.credit)
        assert all(self.work.knows(worker) for worker in self.credit)
        assert all(self.work.held_by(worker) == list(hand) for worker, hand in self.in_hand.items())
        assert self.work.has_workers == bool(self.credit)

    def teardown(self) -> None:
        """Whatever was done, a worker that works on gets everything done."""
        for worker in list(self.credit):
            self.work.worker_gone(worker)
        self.work.worker_ready("dora", 2)
        done: list[int] = []
        while handed := deliver(self.work, self.now).get("dora"):
            for lease in handed:
                key = self.work.finish("dora", lease.job_id, self.now)
                assert key is not None
                done.append(key)
        assert sorted(done) == sorted(self.due)
        assert self.work.pending == 0
        assert not self.work.has_queued

    def _is_due(self, job: Job) -> bool:
        return job[0] in self.due and self.version[job[0]] == job[1]

    def _jobs_due(self) -> set[Job]:
        return {(key, self.version[key]) for key in self.due}

    def _is_silent(self, worker: str) -> bool:
        held_bytes = sum(size_of(key) for key, _ in self.in_hand[worker].values())
        patience_s = SILENCE_S + held_bytes / SLOWEST_BYTES_PER_S
        return bool(self.in_hand[worker]) and self.now - self.heard_at[worker] >= patience_s

    def _held_by_living(self, silent: set[str]) -> set[Job]:
        return {job for worker, hand in self.in_hand.items() if worker not in silent for job in hand.values()}


TestWorkersThatDoAsTheyLike = Workers.TestCase


def working(*workers: str, credit: int = 128, keys: int = 10) -> EmbeddingQueue[int, str]:
    work: EmbeddingQueue[int, str] = EmbeddingQueue()
    for worker in workers:
        work.worker_ready(worker, credit)
    work.enqueue(range(keys))
    return work


def keys_of(leases: list[Lease[int]]) -> list[int]:
    return [each.key for each in leases]


def handed(
    work: EmbeddingQueue[int, str], worker: str, *, now: float = 0.0, size: int = 100, hand_bytes: int = HAND_BYTES
) -> list[Lease[int]]:
    """The leases that a worker is sent next, of memories that are all of one size."""
    return deliver(work, now, hand_bytes=hand_bytes, sizes=dict.fromkeys(range(200), size)).get(worker, [])


def test_jobs_are_shared_out_among_the_workers_that_have_credit() -> None:
    work = working("ann", "bob", credit=3, keys=4)
    shared = deliver(work, 0.0, sizes=dict.fromkeys(range(4), 100))
    assert sorted(len(leases) for leases in shared.values()) == [2, 2]
    work.worker_gone("ann")
    assert work.pending == 4
    assert len(handed(work, "bob")) == 1, "its credit is 3, and it holds 2"


def test_job_numbers_begin_where_they_are_told_to() -> None:
    work: EmbeddingQueue[int, str] = EmbeddingQueue(900)
    work.worker_ready("ann", 1)
    work.enqueue([1])
    assert handed(work, "ann")[0].job_id == 900
    assert work.finish("ann", 1, 0.0) is None


def test_a_worker_holds_no_more_text_than_it_can_embed_soon_and_the_rest_keeps_its_place() -> None:
    work = working("ann", keys=20)
    size = HAND_BYTES // 4
    first = handed(work, "ann", size=size)
    assert keys_of(first) == [0, 1, 2, 3]
    assert handed(work, "ann", size=size) == []
    work.finish("ann", first[0].job_id, 1.0)
    assert keys_of(handed(work, "ann", size=size)) == [4]
    assert work.pending == 19


def test_a_text_that_is_longer_than_a_hand_is_handed_out_beside_nothing_else() -> None:
    work = working("ann", keys=2)
    first = handed(work, "ann", size=3 * HAND_BYTES)
    assert keys_of(first) == [0]
    assert handed(work, "ann", size=3 * HAND_BYTES) == []
    work.finish("ann", first[0].job_id, 1.0)
    assert keys_of(handed(work, "ann", size=3 * HAND_BYTES)) == [1]


def test_the_sizes_of_what_was_weighed_are_known_when_it_is_its_turn_again() -> None:
    work = working("ann", keys=50)
    deliver(work, 0.0, sizes=dict.fromkeys(range(50), HAND_BYTES // 2))
    assert work.next_up(0.0) == [], "nothing is read a second time before there is room for it"


def test_a_worker_that_answers_now_and_then_keeps_what_it_holds_however_long_it_takes() -> None:
    work = working("ann", "bob", credit=8, keys=16)
    held = deliver(work, 0.0, sizes=dict.fromkeys(range(16), 100))
    for step, lease in enumerate(held["ann"], start=1):
        now = step * (SILENCE_S - 1)
        work.finish("bob", held["bob"][step - 1].job_id, now)
        assert handed(work, "bob", now=now) == []
        assert work.finish("ann", lease.job_id, now) == lease.key


def test_what_a_silent_worker_holds_goes_to_another_and_either_ones_answer_will_do() -> None:
    work = working("ann", credit=4, keys=4)
    slow = handed(work, "ann")
    later = SILENCE_S + 1
    assert handed(work, "ann", now=later) == [], "a silent worker is given no more, least of all what it has"
    work.worker_ready("bob", 2)
    quick = handed(work, "bob", now=later)
    assert keys_of(quick) == [0, 1]
    assert work.finish("ann", slow[0].job_id, later) == 0, "made of the same text, it is as good"
    assert work.finish("bob", quick[0].job_id, later) is None
    assert work.finish("bob", quick[1].job_id, later) == 1
    assert work.finish("ann", slow[1].job_id, later) is None
    assert handed(work, "bob", now=later) == [], "the others are in the hands of the one that has spoken again"
    assert [work.finish("ann", each.job_id, later) for each in slow[2:]] == [2, 3]
    assert work.pending == 0


def test_an_answer_made_of_an_older_text_is_dropped() -> None:
    work = working("ann", keys=1)
    (old,) = handed(work, "ann")
    work.enqueue([0])
    assert work.finish("ann", old.job_id, 1.0) is None
    assert keys_of(handed(work, "ann")) == [0]


def test_a_text_that_is_gone_when_it_is_read_ends_its_job() -> None:
    work = working("ann", keys=1)
    assert work.hand_out([(each, None) for each in work.next_up(0.0)], 0.0) == {}
    assert (work.pending, work.held_by("ann")) == (0, [])


def test_a_text_that_changes_while_it_is_read_is_handed_out_again() -> None:
    work = working("ann", keys=1)
    tickets = work.next_up(0.0)
    work.enqueue([0])
    assert work.hand_out([(each, 100) for each in tickets], 0.0) == {}
    assert keys_of(handed(work, "ann")) == [0]


def lives_of_workers(deadly: set[int], keys: int, *, most: int = 100) -> tuple[list[int], list[int], int]:
    """Workers that die of certain texts, one after another: what they finished, the dead letters, and their number."""
    work = working("worker-0", keys=keys)
    finished: list[int] = []
    letters: list[int] = []
    for number in range(most):
        worker = f"worker-{number}"
        work.worker_ready(worker, 128)
        while leases := handed(work, worker):
            dies = False
            for lease in leases:
                if dies := lease.key in deadly:
                    letters += work.worker_died(worker)
                    break
                key = work.finish(worker, lease.job_id, 0.0)
                assert key is not None
                finished.append(key)
            if dies:
                break
        else:
            return finished, letters, number
    raise AssertionError("the workers die for ever")


def test_a_text_that_kills_its_workers_is_dead_and_all_others_are_embedded() -> None:
    finished, letters, dead = lives_of_workers({7}, keys=SUSPECTS + 20)
    assert letters == [7]
    assert sorted(finished) == sorted(set(range(SUSPECTS + 20)) - {7})
    assert dead == MAX_DEATHS + 1


def test_a_deadly_text_that_comes_alone_costs_no_worker_more_than_it_has_to() -> None:
    assert lives_of_workers({0}, keys=1) == ([], [0], MAX_DEATHS)


def test_several_deadly_texts_are_found_one_by_one() -> None:
    finished, letters, dead = lives_of_workers({0, 3, 40}, keys=60)
    assert sorted(letters) == [0, 3, 40]
    assert len(finished) == 57
    assert dead <= 3 * (MAX_DEATHS + 1)


def test_nothing_is_suspected_because_a_worker_leaves() -> None:
    work = working("ann", keys=10)
    for _ in range(3 * MAX_DEATHS):
        work.worker_ready("ann", 128)
        assert keys_of(handed(work, "ann")) == list(range(10))
        work.worker_gone("ann")
    assert work.pending == 10


def test_a_text_that_changes_is_under_suspicion_no_more() -> None:
    work = working("ann", keys=1)
    for _ in range(MAX_DEATHS - 1):
        work.worker_ready("ann", 128)
        assert handed(work, "ann")
        assert work.worker_died("ann") == []
    work.enqueue([0])
    work.worker_ready("ann", 128)
    assert handed(work, "ann")
    assert work.worker_died("ann") == []
    assert work.pending == 1


def test_what_has_just_been_stored_goes_before_a_backlog() -> None:
    work = working("ann", keys=0, credit=3)
    work.enqueue(range(100, 110), backlog=True)
    work.enqueue([1, 101])
    assert keys_of(handed(work, "ann")) == [1, 101, 100]
    work.worker_gone("ann")
    work.worker_ready("bob", 200)
    work.enqueue([1], backlog=True)
    assert keys_of(handed(work, "bob")) == [1, 101, 100, *range(102, 110)]
    assert work.pending == 11
    assert not work.has_queued


# --- Texts that could not be embedded are remembered with the reason, until they have another chance.


def test_a_memory_that_could_not_be_embedded_is_tried_again_when_another_worker_comes() -> None:
    letters = DeadLetters()
    letters.add(("p", 1), "the worker will not", 1, now=10.0)
    assert letters.reason_of(("p", 1)) == letters.last_reason == "the worker will not"
    assert not letters.try_again(("p", 1), 1, 10.0), "whoever looks, it is nobody else who would be asked"
    assert letters.try_again(("p", 1), 2, 10.0)
    assert len(letters) == 0
    assert ("p", 1) not in letters


def test_what_workers_have_died_of_is_kept_from_the_next_ones_for_a_while() -> None:
    letters = DeadLetters()
    letters.add(("p", 1), "four have died", 4, now=10.0, deadly=True)
    assert not letters.try_again(("p", 1), 5, 10.0 + DEADLY_S - 1)
    assert ("p", 1) in letters
    assert letters.try_again(("p", 1), 5, 10.0 + DEADLY_S)
    assert ("p", 1) not in letters


def test_a_memory_whose_text_is_another_is_no_dead_letter() -> None:
    letters = DeadLetters()
    letters.add(("p", 1), "four have died", 4, now=10.0, deadly=True)
    letters.remove(("p", 1))
    assert letters.try_again(("p", 1), 4, 11.0)


def test_of_very_many_the_oldest_are_forgotten() -> None:
    letters = DeadLetters()
    for number in range(REMEMBERED + 5):
        letters.add(("p", number), f"reason {number}", 1, now=0.0)
    assert len(letters) == REMEMBERED
    assert ("p", 4) not in letters
    assert letters.last_reason == f"reason {REMEMBERED + 4}"
