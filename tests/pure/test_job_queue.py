"""The queue of jobs: what is next, who has it, and that nothing is lost or handed out twice at once."""

from __future__ import annotations

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from remembrancer.actors.store.job_queue import (
    BACKLOG,
    LEASE_S,
    LONGEST_HOLD_S,
    REQUEST_ATTEMPTS,
    RETRY_S,
    STANDSTILL_S,
    Backlog,
    FoundJob,
    JobQueue,
    Rank,
)
from remembrancer.actors.store.records.contract import Promotable
from remembrancer.protocol.consolidation import (
    ConsolidateJob,
    Maintain,
    MaintainJob,
    PromoteJob,
    Reflect,
    ReflectJob,
    SessionEndJob,
    Work,
)
from remembrancer.protocol.session_life import SessionEntry
from tests.operations import OTHER_PROJECT, PROJECT, SESSION

ONE, TWO = "incarnation-1", "incarnation-2"
REFLECT = ReflectJob(0, Reflect(PROJECT, SESSION, SESSION))


def session_end(name: str = "session:1", *, place: str = PROJECT.id) -> FoundJob:
    job = SessionEndJob(0, PROJECT, SessionEntry(name, 1.0, 2.0, ended_at=3.0))
    return FoundJob(("session", place, name), Rank.SESSION_END, job)


def promotion(*versions: tuple[str, int]) -> FoundJob:
    job = PromoteJob(0, PROJECT, tuple(memory_id for memory_id, _ in versions))
    return FoundJob(
        ("promote", PROJECT.id), Rank.PROMOTION, job, tuple(Promotable(*version, uses=0) for version in versions)
    )


def consolidation(number: int = 1) -> FoundJob:
    job = ConsolidateJob(0, PROJECT, number, "too many")
    return FoundJob(("consolidate", PROJECT.id, str(number)), Rank.CONSOLIDATION, job)


def maintenance() -> FoundJob:
    return FoundJob(("maintain", PROJECT.id), Rank.MAINTENANCE, MaintainJob(0, Maintain(PROJECT)))


def queue_of(*jobs: FoundJob) -> JobQueue:
    """A queue that saw these jobs of the project at the time 0."""
    queue = JobQueue()
    queue.observe(PROJECT.id, jobs, 0.0)
    return queue


def taken(queue: JobQueue, holder: str = ONE, now: float = 10.0) -> Work:
    job = queue.take(holder, now)
    assert job is not None
    return job


def plain(job: Work) -> Work:
    """A job without its id."""
    return msgspec.structs.replace(job, job_id=0)


def test_an_empty_queue_has_nothing_to_do() -> None:
    queue = JobQueue()
    assert queue.take(ONE, 0.0) is None
    assert queue.next_at() is None


def test_a_consolidator_may_have_a_job_of_each_sort_and_loses_none_by_asking_for_another() -> None:
    queue = queue_of(maintenance(), session_end())
    long = queue.take(ONE, 10.0, "long")
    assert isinstance(long, MaintainJob)
    assert queue.next_at("asked") is None, "what is free for another sort is no reason to look again"
    assert queue.take(ONE, 11.0, "asked") is None
    assert isinstance(queue.take(ONE, 11.0, "session"), SessionEndJob)
    assert queue.take(ONE, 12.0, "long") == long, "only its own sort was lost on the way"
    assert queue.take(TWO, 12.0, "session") is None


def test_requests_go_first_then_ends_of_sessions_promotions_consolidation_and_maintenance() -> None:
    standing = [maintenance(), consolidation(), promotion(("m", 1)), session_end()]
    queue = queue_of(*standing)
    queue.add_request(REFLECT)
    order = []
    while (job := queue.take(ONE, 10.0)) is not None:
        order.append(plain(job))
        queue.finish(ONE, job.job_id, 10.0)
    assert order == [REFLECT, *(each.job for each in reversed(standing))]


def test_of_two_sessions_the_one_that_was_found_first_goes_first() -> None:
    queue = JobQueue()
    first, second = session_end("session:1"), session_end("session:2", place=OTHER_PROJECT.id)
    queue.observe(PROJECT.id, [first], 0.0)
    queue.observe(OTHER_PROJECT.id, [second], 0.0)
    assert plain(taken(queue, ONE)) == first.job
    assert plain(taken(queue, TWO)) == second.job
    assert queue.take("incarnation-3", 10.0) is None


def test_a_job_that_is_found_again_is_one_job() -> None:
    queue = queue_of(session_end())
    queue.observe(PROJECT.id, [session_end()], 1.0)
    taken(queue)
    queue.observe(PROJECT.id, [session_end()], 11.0)
    assert queue.take(TWO, 12.0) is None


def test_a_job_that_is_not_found_any_more_is_gone_but_not_by_a_look_at_another_file() -> None:
    queue = queue_of(session_end())
    queue.observe(OTHER_PROJECT.id, [], 1.0)
    assert plain(taken(queue)) == session_end().job
    queue.observe(PROJECT.id, [], 11.0)
    queue.release(ONE, 12.0)
    assert queue.take(TWO, 100.0) is None, "its reason has gone while it was done"
    queue = queue_of(session_end())
    queue.observe(PROJECT.id, [], 1.0)
    assert queue.take(ONE, 2.0) is None


def test_a_look_that_was_begun_before_the_end_of_a_job_does_not_bring_it_back() -> None:
    queue = queue_of(session_end())
    queue.finish(ONE, taken(queue).job_id, 20.0)
    queue.observe(PROJECT.id, [], 18.0)
    queue.observe(PROJECT.id, [session_end()], 19.0)
    assert queue.take(ONE, 1000.0) is None
    queue.observe(PROJECT.id, [], 21.0)
    assert len(queue) == 0


def test_what_is_done_and_still_to_be_done_comes_again_after_longer_and_longer_pauses() -> None:
    queue = JobQueue()
    now = 0.0
    queue.observe(PROJECT.id, [session_end()], now)
    for pause_s in (*RETRY_S[1:], RETRY_S[-1]):
        queue.finish(ONE, taken(queue, now=now).job_id, now)
        queue.observe(PROJECT.id, [session_end()], now + 0.1)
        assert queue.next_at() == now + pause_s
        assert queue.take(ONE, now + pause_s - 0.1) is None
        now += pause_s


def test_what_has_changed_before_or_since_it_was_done_comes_at_once_as_it_is_now() -> None:
    queue = queue_of(promotion(("m", 1)))
    queue.observe(PROJECT.id, [promotion(("m", 1), ("n", 1))], 1.0)
    job = taken(queue)
    assert plain(job) == promotion(("m", 1), ("n", 1)).job
    queue.finish(ONE, job.job_id, 20.0)
    queue.observe(PROJECT.id, [promotion(("m", 2))], 21.0)
    assert plain(taken(queue, now=21.0)) == promotion(("m", 2)).job


def test_a_failed_job_comes_again_after_a_pause_and_others_go_before_it() -> None:
    queue = queue_of(session_end(), maintenance())
    queue.fail(ONE, taken(queue).job_id, 10.0)
    assert plain(taken(queue, now=10.0)) == maintenance().job
    assert plain(taken(queue, TWO, now=10.0 + RETRY_S[1])) == session_end().job


def test_the_job_of_a_consolidator_that_died_goes_to_the_next_one_at_once_and_then_with_pauses() -> None:
    queue = queue_of(session_end())
    taken(queue, ONE)
    queue.release(ONE, 11.0)
    taken(queue, TWO, now=11.0)
    queue.release(TWO, 12.0)
    assert queue.take("incarnation-3", 12.0) is None
    assert queue.next_at() == 12.0 + RETRY_S[1]


def test_a_job_without_a_sign_of_life_is_handed_out_again() -> None:
    queue = queue_of(session_end())
    first = taken(queue, ONE, now=0.0)
    queue.heard(ONE, 30.0)
    assert queue.take(TWO, LEASE_S + 1) is None
    assert queue.take(TWO, 30.0 + LEASE_S) == first
    assert queue.finish(ONE, first.job_id, 100.0) is None
    assert queue.finish(TWO, first.job_id, 101.0) == session_end()


def test_a_consolidator_that_asks_again_has_not_got_what_it_was_handed() -> None:
    queue = queue_of(session_end())
    assert taken(queue, ONE, now=0.0) == taken(queue, ONE, now=10.0)


def test_a_request_that_fails_or_for_which_nobody_waits_any_more_does_not_come_again() -> None:
    queue = JobQueue()
    waiting = queue.add_request(REFLECT)
    queue.withdraw(waiting)
    assert queue.take(ONE, 0.0) is None
    begun = queue.add_request(REFLECT)
    taken(queue)
    assert queue.has_begun(begun)
    queue.withdraw(begun)
    queue.release(ONE, 11.0)
    assert len(queue) == 0
    queue.add_request(REFLECT)
    queue.fail(ONE, taken(queue, now=20.0).job_id, 30.0)
    assert len(queue) == 0


def test_a_request_of_which_consolidators_die_fails() -> None:
    queue = JobQueue()
    job_id = queue.add_request(REFLECT)
    for attempt in range(REQUEST_ATTEMPTS):
        taken(queue, f"incarnation-{attempt}")
        assert queue.take_failed_requests() == []
        queue.release(f"incarnation-{attempt}", 10.0)
    assert queue.take_failed_requests() == [job_id]
    assert queue.take_failed_requests() == []
    assert len(queue) == 0


def test_the_ids_of_two_lives_of_the_store_differ() -> None:
    old, new = JobQueue(first_id=1000), JobQueue(first_id=2000)
    old.add_request(REFLECT)
    new.add_request(REFLECT)
    stale = taken(old).job_id
    taken(new)
    assert new.finish(ONE, stale, 10.0) is None
    assert len(new) == 1


def test_work_on_a_whole_file_is_held_and_what_somebody_waits_for_is_not() -> None:
    queue = queue_of(maintenance(), consolidation(), session_end())
    queue.hold_long(20.0)
    assert plain(taken(queue, now=10.0)) == session_end().job
    assert queue.take(TWO, 10.0) is None
    assert queue.next_at("long") == 20.0, "whoever waits looks again then, and not before"
    awaited = MaintainJob(0, Maintain(PROJECT))
    queue.add_request(awaited)
    assert plain(taken(queue, TWO, now=10.0)) == awaited
    assert plain(taken(queue, "incarnation-3", now=20.0)) == consolidation().job


HOLDERS = st.sampled_from([ONE, TWO, "incarnation-3"])
NAMES = [f"session:{number}" for number in range(4)]


class Queue(RuleBasedStateMachine):
    """A world of sessions that end and are dealt with, and of consolidators that come and go."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = JobQueue()
        self.now = 0.0
        self.open: set[str] = set()
        self.requests: set[int] = set()
        self.held: dict[str, Work] = {}
        """By consolidator, what it was handed last and has not given back; each knows when it was heard of last."""
        self.heard_at: dict[str, float] = {}

    @rule(name=st.sampled_from(NAMES))
    def a_session_ends(self, name: str) -> None:
        self.open.add(name)

    @rule()
    def look(self) -> None:
        self.now += 0.01
        self.queue.observe(PROJECT.id, [session_end(name) for name in sorted(self.open)], self.now)

    @rule()
    def ask(self) -> None:
        self.requests.add(self.queue.add_request(REFLECT))

    @rule(holder=HOLDERS)
    def take(self, holder: str) -> None:
        self.held.pop(holder, None)
        job = self.queue.take(holder, self.now)
        if job is None:
            return
        for other, theirs in list(self.held.items()):
            if theirs.job_id == job.job_id:
                assert self.now - self.heard_at[other] >= LEASE_S - 1e-6, "handed out twice at once"
                del self.held[other]
        self.held[holder], self.heard_at[holder] = job, self.now

    @rule(holder=HOLDERS, seconds=st.floats(0.0, 100.0))
    def time_passes(self, holder: str, seconds: float) -> None:
        self.now += seconds
        self.queue.heard(holder, self.now)
        if self.now - self.heard_at.get(holder, self.now) < LEASE_S:  # or else its lease may have ended already
            self.heard_at[holder] = self.now

    @precondition(lambda self: self.held)
    @rule(data=st.data(), well=st.booleans())
    def finish(self, data: st.DataObject, well: bool) -> None:
        holder = data.draw(st.sampled_from(sorted(self.held)))
        job = self.held.pop(holder)
        self.now += 0.01
        if well and isinstance(job, SessionEndJob):
            self.open.discard(job.session.session_id)
        ended = (self.queue.finish if well else self.queue.fail)(holder, job.job_id, self.now)
        if ended is not None:
            self.requests.discard(job.job_id)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def die(self, data: st.DataObject) -> None:
        holder = data.draw(st.sampled_from(sorted(self.held)))
        del self.held[holder]
        self.queue.release(holder, self.now)

    @invariant()
    def no_job_has_two_holders(self) -> None:
        ids = [job.job_id for job in self.held.values()]
        assert len(ids) == len(set(ids))

    def teardown(self) -> None:
        """After all this one good consolidator does everything that is left: nothing is lost."""
        for _ in range(50):
            for holder in (ONE, TWO, "incarnation-3"):
                self.queue.release(holder, self.now)
            self.now += 10_000.0  # longer than any pause after a release
            self.look()
            job = self.queue.take("the last", self.now)
            if job is None:
                break
            if isinstance(job, SessionEndJob):
                self.open.discard(job.session.session_id)
            assert self.queue.finish("the last", job.job_id, self.now) is not None
            self.requests.discard(job.job_id)
        assert not self.open
        assert self.requests == set(self.queue.take_failed_requests())


TestQueue = Queue.TestCase
TestQueue.settings = settings(stateful_step_count=30)


# --- The work on a whole file waits while many memories are being embedded, and never for ever.


def test_a_few_memories_without_vectors_are_not_waited_for() -> None:
    assert Backlog().held_until(BACKLOG, 5.0) == 5.0


def test_a_backlog_that_shrinks_is_waited_for_until_it_is_small() -> None:
    backlog = Backlog()
    now = 0.0
    for pending in range(10_000, BACKLOG, -50):
        assert backlog.held_until(pending, now) > now
        now += STANDSTILL_S / 3
        if now >= LONGEST_HOLD_S - STANDSTILL_S:
            break
    assert backlog.held_until(BACKLOG, now) == now


def test_a_backlog_that_nobody_works_on_is_not_waited_for() -> None:
    backlog = Backlog()
    assert backlog.held_until(5000, 0.0) > 0.0
    assert backlog.held_until(5000, STANDSTILL_S - 0.5) == STANDSTILL_S
    assert backlog.held_until(5000, STANDSTILL_S) == STANDSTILL_S


@given(pending=st.lists(st.integers(BACKLOG + 1, 10_000), min_size=1), step_s=st.floats(0.1, 100.0))
def test_no_backlog_holds_anything_for_longer_than_its_bound(pending: list[int], step_s: float) -> None:
    backlog = Backlog()
    now = 100.0
    for count in pending:
        until = backlog.held_until(count, now)
        assert now <= until <= max(now, 100.0 + LONGEST_HOLD_S)
        now += step_s
