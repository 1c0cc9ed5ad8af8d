"""The leases of jobs: what is next, who has it, and that nothing is lost or handed out twice at once."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from remembrancer.actors.store.job_leases import LEASE_S, RETRY_S, JobLeases, Rank, WantedJob
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
from tests.operations import PROJECT, SESSION

ONE, TWO, THREE = "incarnation-1", "incarnation-2", "incarnation-3"


def session_end(name: str = "session:1", ended_at: float = 3.0) -> WantedJob:
    job = SessionEndJob(0, PROJECT, SessionEntry(name, 1.0, 2.0, ended_at=ended_at))
    return WantedJob(("session", PROJECT.id, name, ended_at), Rank.SESSION_END, job, PROJECT.id, ended_at)


def request(number: int = 1, job: ReflectJob | MaintainJob | None = None) -> WantedJob:
    asked = job or ReflectJob(0, Reflect(PROJECT, SESSION, SESSION))
    return WantedJob(("asked", number), Rank.REQUEST, asked, PROJECT.id, float(number))


PROMOTION = WantedJob(("promote",), Rank.PROMOTION, PromoteJob(0, PROJECT, ("m",)), PROJECT.id)
CONSOLIDATION = WantedJob(("consolidate", 1), Rank.CONSOLIDATION, ConsolidateJob(0, PROJECT, 1), PROJECT.id)
MAINTENANCE = WantedJob(("maintain",), Rank.MAINTENANCE, MaintainJob(0, Maintain(PROJECT)), PROJECT.id)


def taken(leases: JobLeases, wanted: Sequence[WantedJob], holder: str = ONE, now: float = 10.0) -> Work:
    job = leases.take(wanted, holder, now)
    assert job is not None
    return job


def plain(job: Work | None) -> Work | None:
    """A job without its id."""
    return None if job is None else msgspec.structs.replace(job, job_id=0)


def test_a_consolidator_may_have_a_job_of_each_sort_and_loses_none_by_asking_for_another() -> None:
    leases, wanted = JobLeases(), [MAINTENANCE, session_end()]
    long = leases.take(wanted, ONE, 10.0, "long")
    assert isinstance(long, MaintainJob)
    assert leases.take(wanted, ONE, 11.0, "asked") is None
    assert isinstance(leases.take(wanted, ONE, 11.0, "session"), SessionEndJob)
    assert leases.take(wanted, TWO, 12.0, "session") is None
    assert plain(leases.take(wanted, ONE, 12.0, "long")) == plain(long), "only its own sort was lost on the way"


def test_requests_go_first_then_ends_of_sessions_promotions_consolidation_and_maintenance() -> None:
    leases, order = JobLeases(), []
    wanted = [MAINTENANCE, CONSOLIDATION, PROMOTION, session_end("late", 5.0), session_end("early", 4.0), request()]
    while wanted:
        job = taken(leases, wanted)
        done = leases.finish(ONE, job.job_id, 10.0)
        assert done is not None
        wanted.remove(done)
        order.append(done)
    assert order == [request(), session_end("early", 4.0), session_end("late", 5.0), PROMOTION, *order[4:]]
    assert order[4:] == [CONSOLIDATION, MAINTENANCE]


def test_what_is_not_wanted_any_more_is_not_handed_out_again() -> None:
    leases = JobLeases()
    taken(leases, [session_end()])
    leases.release(ONE, 12.0)
    assert leases.take([], TWO, 100.0) is None


@pytest.mark.parametrize(
    ("pauses", "first"),
    [
        pytest.param(RETRY_S[1:], "finish", id="what is done and still to be done"),
        pytest.param(RETRY_S[:4], "release", id="what consolidators have died of"),
    ],
)
def test_what_comes_back_comes_again_after_longer_and_longer_pauses(pauses: Sequence[float], first: str) -> None:
    leases, now = JobLeases(), 0.0
    for turn, pause_s in enumerate(pauses):
        job = taken(leases, [session_end()], now=now)
        if first == "release":
            leases.release(ONE, now)
        else:
            assert leases.finish(ONE, job.job_id, now) == session_end()
            if turn:
                pause_s = max(RETRY_S[1], RETRY_S[turn])
        if pause_s:
            assert leases.take([session_end()], ONE, now + pause_s - 0.1) is None
        now += pause_s
    assert leases.returned(session_end().key) == len(pauses)


def test_others_go_before_a_job_that_failed_and_one_that_has_gone_meanwhile_does_not_rest() -> None:
    leases, wanted = JobLeases(), [session_end(), MAINTENANCE]
    leases.finish(ONE, taken(leases, wanted).job_id, 10.0)
    assert plain(taken(leases, wanted)) == MAINTENANCE.job
    assert leases.take([MAINTENANCE], TWO, 10.0) is None
    assert plain(taken(leases, wanted, TWO)) == session_end().job, "it is another occasion"


def test_a_job_without_a_sign_of_life_is_handed_out_again() -> None:
    leases, wanted = JobLeases(), [session_end()]
    first = taken(leases, wanted, ONE, 0.0)
    leases.heard(ONE, 30.0)
    assert leases.take(wanted, TWO, LEASE_S + 1) is None
    second = taken(leases, wanted, TWO, 30.0 + LEASE_S)
    assert leases.finish(ONE, first.job_id, 100.0) is None
    assert leases.finish(TWO, second.job_id, 101.0) == session_end()


def test_a_consolidator_that_asks_again_has_not_got_what_it_was_handed() -> None:
    leases, wanted = JobLeases(), [session_end()]
    assert plain(taken(leases, wanted, ONE, 0.0)) == plain(taken(leases, wanted, ONE, 10.0))


def test_a_request_does_not_rest_and_its_returns_are_counted() -> None:
    leases = JobLeases()
    for attempt in range(3):
        assert leases.returned(request().key) == attempt
        taken(leases, [request()], f"incarnation-{attempt}")
        assert leases.is_leased(request().key)
        leases.release(f"incarnation-{attempt}", 10.0)
    assert leases.returned(request().key) == 3


def test_the_ids_of_two_lives_of_the_store_differ() -> None:
    old, new = JobLeases(first_id=1000), JobLeases(first_id=2000)
    stale = taken(old, [request()]).job_id
    taken(new, [request()])
    assert new.finish(ONE, stale, 10.0) is None


def test_work_on_a_whole_space_is_held_and_what_somebody_waits_for_is_not() -> None:
    leases, wanted = JobLeases(), [MAINTENANCE, CONSOLIDATION, session_end()]
    assert plain(leases.take(wanted, ONE, 10.0, held=True)) == session_end().job
    assert leases.take(wanted, TWO, 10.0, held=True) is None
    awaited = request(1, MaintainJob(0, Maintain(PROJECT)))
    assert plain(leases.take([*wanted, awaited], TWO, 10.0, held=True)) == awaited.job
    assert plain(leases.take(wanted, THREE, 20.0)) == CONSOLIDATION.job


HOLDERS = st.sampled_from([ONE, TWO, THREE])
NAMES = [f"session:{number}" for number in range(4)]


class Consolidators(RuleBasedStateMachine):
    """A world of sessions that end and are dealt with, and of consolidators that come and go."""

    def __init__(self) -> None:
        super().__init__()
        self.leases = JobLeases()
        self.now = 0.0
        self.open: set[str] = set()
        self.held: dict[str, Work] = {}
        """By consolidator, what it was handed last and has not given back; each knows when it was heard of last."""
        self.heard_at: dict[str, float] = {}

    @property
    def wanted(self) -> list[WantedJob]:
        return [session_end(name) for name in sorted(self.open)]

    @rule(name=st.sampled_from(NAMES))
    def a_session_ends(self, name: str) -> None:
        self.open.add(name)

    @rule(holder=HOLDERS)
    def take(self, holder: str) -> None:
        self.held.pop(holder, None)
        job = self.leases.take(self.wanted, holder, self.now)
        if not isinstance(job, SessionEndJob):
            return
        for other, theirs in list(self.held.items()):
            if plain(theirs) == plain(job):
                assert self.now - self.heard_at[other] >= LEASE_S - 1e-6, "handed out twice at once"
                del self.held[other]
        self.held[holder], self.heard_at[holder] = job, self.now

    @rule(holder=HOLDERS, seconds=st.floats(0.0, 100.0))
    def time_passes(self, holder: str, seconds: float) -> None:
        self.now += seconds
        self.leases.heard(holder, self.now)
        if self.now - self.heard_at.get(holder, self.now) < LEASE_S:  # or else its lease may have ended already
            self.heard_at[holder] = self.now

    @precondition(lambda self: self.held)
    @rule(data=st.data(), well=st.booleans())
    def finish(self, data: st.DataObject, well: bool) -> None:
        holder = data.draw(st.sampled_from(sorted(self.held)))
        job = self.held.pop(holder)
        if well and isinstance(job, SessionEndJob):
            self.open.discard(job.session.session_id)
        self.leases.finish(holder, job.job_id, self.now)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def die(self, data: st.DataObject) -> None:
        holder = data.draw(st.sampled_from(sorted(self.held)))
        del self.held[holder]
        self.leases.release(holder, self.now)

    @invariant()
    def no_job_has_two_holders(self) -> None:
        ids = [job.job_id for job in self.held.values()]
        assert len(ids) == len(set(ids))

    def teardown(self) -> None:
        """After all this one good consolidator does everything that is left: nothing is lost."""
        for _ in range(10):
            self.now += 10_000.0  # longer than any pause and any lease
            while (job := self.leases.take(self.wanted, "the last", self.now)) is not None:
                assert isinstance(job, SessionEndJob)
                self.open.discard(job.session.session_id)
                assert self.leases.finish("the last", job.job_id, self.now) is not None
        assert not self.open


TestConsolidators = Consolidators.TestCase
TestConsolidators.settings = settings(stateful_step_count=30)
