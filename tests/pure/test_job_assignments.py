"""Handing out jobs: the order, one of each sort at a time, pauses after failures, and nothing is lost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from remembrancer.actors.store.job_assignments import RETRY_S, JobAssignments, WantedJob
from remembrancer.protocol.consolidation import (
    Job,
    JobSort,
    Maintain,
    PromoteAtOnce,
    Reflect,
    SessionEnded,
    Work,
)
from remembrancer.protocol.session_life import SessionEntry
from tests.operations import PROJECT, SESSION

SORTS: tuple[JobSort, ...] = get_args(JobSort)


def wanted(work: Work, *key: object, is_asked: bool = False) -> WantedJob:
    return WantedJob((type(work).__name__, *key), Job(0, PROJECT, work), is_asked=is_asked)


def session_end(name: str = "session:1") -> WantedJob:
    return wanted(SessionEnded(SessionEntry(name, 1.0, 2.0, ended_at=3.0)), name)


REFLECTION = wanted(Reflect(PROJECT, SESSION, SESSION), is_asked=True)
PROMOTION = wanted(PromoteAtOnce(("m",)))
OF_THE_USER = WantedJob(("maintain", "user"), Job(0, None, Maintain(None)))
MAINTENANCE = wanted(Maintain(PROJECT))


def taken(jobs: JobAssignments, offered: Sequence[WantedJob], sort: JobSort = "session", now: float = 10.0) -> Job:
    job = jobs.take(offered, sort, now)
    assert job is not None
    return job


def plain(job: Job | None) -> Job | None:
    """A job without its id."""
    return None if job is None else msgspec.structs.replace(job, job_id=0)


def test_one_job_of_each_sort_runs_at_a_time_the_first_that_is_wanted() -> None:
    jobs, offered = JobAssignments(), [REFLECTION, session_end(), PROMOTION, OF_THE_USER, MAINTENANCE]
    first = [plain(taken(jobs, offered, sort)) for sort in SORTS]
    assert first == [REFLECTION.job, session_end().job, OF_THE_USER.job]
    assert [jobs.is_assigned(each.key) for each in offered] == [True, True, False, True, False]


def test_who_asks_again_did_not_get_what_was_handed_out_and_gets_it_again() -> None:
    jobs, offered = JobAssignments(), [MAINTENANCE, session_end()]
    first, long = taken(jobs, offered), taken(jobs, offered, "long")
    second = taken(jobs, offered)
    assert plain(second) == plain(first)
    assert jobs.finish(first.job_id, 10.0) is None, "it is another turn"
    assert jobs.finish(second.job_id, 10.0) == session_end()
    assert jobs.finish(long.job_id, 10.0) == MAINTENANCE, "only the sort that was asked for was lost"


def test_what_is_not_wanted_any_more_is_not_handed_out_again() -> None:
    jobs = JobAssignments()
    taken(jobs, [session_end()])
    jobs.release(12.0)
    assert jobs.take([], "session", 100.0) is None
    assert jobs.returned(session_end().key) == 0


@pytest.mark.parametrize(
    ("pauses", "first"),
    [
        pytest.param(RETRY_S[1:], "finish", id="what is done and still to be done"),
        pytest.param(RETRY_S[:4], "release", id="what consolidators have died of"),
    ],
)
def test_what_comes_back_comes_again_after_longer_and_longer_pauses(pauses: Sequence[float], first: str) -> None:
    jobs, now = JobAssignments(), 0.0
    for turn, pause_s in enumerate(pauses):
        job = taken(jobs, [session_end()], now=now)
        if first == "release":
            jobs.release(now)
        else:
            assert jobs.finish(job.job_id, now) == session_end()
            if turn:
                pause_s = max(RETRY_S[1], RETRY_S[turn])
        if pause_s:
            assert jobs.take([session_end()], "session", now + pause_s - 0.1) is None
        now += pause_s
    assert jobs.returned(session_end().key) == len(pauses)


def test_the_ids_of_two_lives_of_the_store_differ() -> None:
    old, new = JobAssignments(first_id=1000), JobAssignments(first_id=2000)
    stale = taken(old, [session_end()]).job_id
    taken(new, [session_end()])
    assert new.finish(stale, 10.0) is None


def test_what_is_held_waits_and_what_somebody_waits_for_does_not() -> None:
    jobs, offered = JobAssignments(), [OF_THE_USER, MAINTENANCE]
    assert jobs.take(offered, "long", 10.0, held=True) is None
    asked = wanted(Maintain(PROJECT), 1, is_asked=True)
    assert plain(jobs.take([*offered, asked], "long", 10.0, held=True)) == asked.job
    assert plain(jobs.take(offered, "long", 20.0)) == OF_THE_USER.job


NAMES = [f"session:{number}" for number in range(4)]


class Consolidators(RuleBasedStateMachine):
    """A world of sessions that end and are dealt with, and of consolidators that come and go."""

    def __init__(self) -> None:
        super().__init__()
        self.jobs = JobAssignments()
        self.now = 0.0
        self.open: set[str] = set()
        self.held: Job | None = None

    @property
    def offered(self) -> list[WantedJob]:
        return [session_end(name) for name in sorted(self.open)]

    @rule(name=st.sampled_from(NAMES))
    def a_session_ends(self, name: str) -> None:
        self.open.add(name)

    @rule()
    def take(self) -> None:
        self.held = self.jobs.take(self.offered, "session", self.now)

    @rule(seconds=st.floats(0.0, 100.0))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule(well=st.booleans())
    def finish(self, well: bool) -> None:
        if self.held is not None:
            if well and isinstance(self.held.work, SessionEnded):
                self.open.discard(self.held.work.session.session_id)
            assert self.jobs.finish(self.held.job_id, self.now) is not None
            self.held = None

    @rule()
    def die(self) -> None:
        self.jobs.release(self.now)
        self.held = None

    @invariant()
    def the_job_that_was_handed_out_is_known(self) -> None:
        assigned = [name for name in NAMES if self.jobs.is_assigned(session_end(name).key)]
        work = None if self.held is None else self.held.work
        assert assigned == ([work.session.session_id] if isinstance(work, SessionEnded) else [])

    def teardown(self) -> None:
        """After all this one good consolidator does everything that is left: nothing is lost."""
        for _ in range(10):
            self.now += 10_000.0  # longer than any pause
            while (job := self.jobs.take(self.offered, "session", self.now)) is not None:
                assert isinstance(job.work, SessionEnded)
                self.open.discard(job.work.session.session_id)
                assert self.jobs.finish(job.job_id, self.now) is not None
        assert not self.open


TestConsolidators = Consolidators.TestCase
TestConsolidators.settings = settings(stateful_step_count=30)
