"""The store's decisions about background work: jobs, leases and models."""

from collections import Counter
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from remembrancer.actors.store.dispatcher import StoreParts
from remembrancer.actors.store.job_handlers import (
    ABANDONED_AFTER_S,
    RETRY_S,
    Attempts,
    JobHandlers,
    _Space,
    jobs_of,
    lost_sessions,
)
from remembrancer.actors.store.records.types import (
    MAX_ATTEMPTS,
    EmbeddedMemory,
    FailedText,
    TextToEmbed,
    Vectors,
    WaitingWork,
)
from remembrancer.actors.store.vectors.embedding_scheduler import _checked
from remembrancer.actors.store.vectors.leases import HAND_BYTES, EmbeddingJob, Leases
from remembrancer.actors.store.vectors.models import Model, ModelState
from remembrancer.config.settings import Settings
from remembrancer.protocol.consolidation import Job, Maintain, Promotable, PromoteAtOnce, SessionEnded
from remembrancer.protocol.errors import StorageFull
from remembrancer.protocol.session_life import EndSession, SessionEntry, SessionResult
from remembrancer.protocol.work import EmbeddedText, ModelChoice, ModelIdentity, Passage
from remembrancer.protocol.writes import Applied, Submit
from tests.operations import OTHER_SESSION, PROJECT, SESSION

NOW = 1_700_000_000.0
RUNNING = SessionEntry("session:running", NOW - 100, NOW)
ENDED = SessionEntry("session:ended", NOW - 100, NOW, ended_at=NOW)


def jobs(work: WaitingWork) -> list[object]:
    return [job.work for job in jobs_of(PROJECT, work, NOW)]


def maintained(days_ago: float | None, *, sessions: int = 0, oldest_days_ago: float | None = 100.0) -> WaitingWork:
    done_at = None if days_ago is None else NOW - days_ago * 86_400
    oldest_at = None if oldest_days_ago is None else NOW - oldest_days_ago * 86_400
    return WaitingWork((), (), done_at, sessions, oldest_at)


def test_a_session_that_has_ended_is_a_job_each_time_and_maintenance_goes_last() -> None:
    assert jobs(WaitingWork()) == []
    assert jobs(WaitingWork(sessions=(RUNNING, ENDED))) == [SessionEnded(ENDED)]
    again = SessionEntry("session:ended", NOW - 100, NOW, ended_at=NOW + 1)
    (first,) = jobs_of(PROJECT, WaitingWork(sessions=(ENDED,)), NOW)
    (second,) = jobs_of(PROJECT, WaitingWork(sessions=(again,)), NOW)
    assert first.key != second.key
    work = WaitingWork((ENDED,), (Promotable("a", 1),), 0.0, oldest_at=0.0)
    assert [type(each) for each in jobs(work)] == [SessionEnded, PromoteAtOnce, Maintain]
    (only,) = jobs_of(None, work, NOW)
    assert only == Job(None, Maintain(None))


def test_maintenance_is_due_after_ten_sessions_or_a_week() -> None:
    due = [maintained(7.0), maintained(1.0, sessions=10), maintained(None, oldest_days_ago=7.0), maintained(-400.0)]
    due.append(maintained(None, sessions=10, oldest_days_ago=1.0))
    early = [maintained(6.9), maintained(1.0, sessions=9), maintained(None, oldest_days_ago=6.9), maintained(-3.0)]
    early.append(maintained(None, sessions=10, oldest_days_ago=None))
    for works, is_due in ((due, True), (early, False)):
        for work in works:
            assert any(isinstance(job, Maintain) for job in jobs(work)) == is_due, work


# --- Attempts.
def session_end(name: str = "session:1") -> Job:
    return Job(PROJECT, SessionEnded(SessionEntry(name, 1.0, 2.0, ended_at=3.0)))


def test_the_first_due_job_of_a_sort_is_handed_out_and_attempts_at_others_are_forgotten() -> None:
    attempts, due = Attempts(), [session_end("1"), Job(PROJECT, Maintain(PROJECT), 1.0), session_end("2")]
    later = Job(PROJECT, Maintain(PROJECT), 2.0)
    assert attempts.take(due, "asked", 0.0) is None
    assert [attempts.take(due, "session", 0.0) for _ in "12"] == [due[0], due[0]], "it may have died with the first"
    assert attempts.take(due, "session", 0.0) == due[2]
    assert attempts.take(due, "long", 0.0) == due[1]
    attempts.finish(due[1], 0.0)
    assert attempts.take([later], "long", 1.0) is None, "the same job at another time of the lane"
    attempts.keep(due[:2])
    assert [attempts.made(each) for each in due] == [2, 1, 0]


@pytest.mark.parametrize("dies", [True, False])
def test_a_job_that_is_still_due_comes_again_after_longer_and_longer_pauses(dies: bool) -> None:
    attempts, job, now = Attempts(), session_end(), 0.0
    for made, (if_died_s, if_done_s) in enumerate(zip(RETRY_S, (*RETRY_S[1:], RETRY_S[-1]), strict=True)):
        assert attempts.made(job) == made
        assert attempts.take([job], "session", now) == job
        pause_s = if_died_s
        if not dies:
            now += 1000.0
            attempts.finish(job, now)
            pause_s = if_done_s
        if pause_s:
            assert attempts.take([job], "session", now + pause_s - 0.1) is None
        now += pause_s
    attempts.forget(job)
    assert attempts.take([job], "session", now - 0.1) == job


# --- Which sessions have been abandoned: by presence while the store runs, by the registry after a restart.
GRACE_S = 120.0
WALL = 1_700_000_000.0
KEY = (PROJECT.id, SESSION)
AGES_S = ABANDONED_AFTER_S * 2


@pytest.mark.parametrize(
    ("heard_at", "looked_at", "silent_s", "is_lost"),
    [
        pytest.param([1000.0], 1000.0 + GRACE_S, 0.0, False, id="its connection is gone"),
        pytest.param([1000.0], 1000.1 + GRACE_S, 0.0, True, id="for longer than the grace time"),
        pytest.param([0.0, 100.0], 150.0, 0.0, False, id="it came back in time"),
        pytest.param([0.0, 200.0], 201.0, AGES_S, False, id="it begins again after a silence"),
        pytest.param([0.0], 1.0, 100 * ABANDONED_AFTER_S, False, id="the clock of the wall jumps ahead"),
        pytest.param([], 0.0, ABANDONED_AFTER_S, False, id="never connected"),
        pytest.param([], 0.0, ABANDONED_AFTER_S + 1.0, True, id="never connected for more than a day"),
        pytest.param([], 0.0, -10 * ABANDONED_AFTER_S, False, id="the clock was set back"),
        pytest.param(range(0, 360_000, 3600), 356_405.0, AGES_S, False, id="connected, however long"),
    ],
)
def test_a_session_is_lost_after_the_grace_time_without_connection_or_a_day_without_activity(
    heard_at: Sequence[float], looked_at: float, silent_s: float, is_lost: bool
) -> None:
    seen: dict[tuple[str, str], float] = {}
    at_hand = {KEY: WALL - silent_s}
    for now in heard_at:
        seen[KEY] = now
        assert lost_sessions(seen, at_hand, GRACE_S, now + 1.0, WALL) == []
    assert lost_sessions(seen, at_hand, GRACE_S, looked_at, WALL) == ([KEY] if is_lost else [])


def test_a_session_heard_of_once_is_lost_after_the_grace_time_and_what_is_over_is_forgotten() -> None:
    seen = {KEY: 200.0} | {(PROJECT.id, f"session:{number}"): 0.0 for number in range(1000)}
    assert lost_sessions(seen, {}, GRACE_S, 201.0, WALL) == []
    assert seen == {KEY: 200.0}, "the registry may not have been read since"
    assert lost_sessions(seen, {KEY: WALL}, GRACE_S, 200.1 + GRACE_S, WALL) == [KEY]


async def test_an_end_that_is_refused_holds_up_no_other_and_is_tried_again_after_the_grace_time() -> None:
    ended: list[str] = []

    async def submit(request: Submit) -> Applied:
        end = request.operation.change
        assert isinstance(end, EndSession)
        ended.append(end.session_id)
        if end.session_id == SESSION:
            raise StorageFull("this file is full")
        return Applied(request.operation.operation_id, SessionResult())

    other: Any = None
    files: Any = SimpleNamespace(catalog=SimpleNamespace(path_of=lambda _: "/code"))
    finder = JobHandlers(StoreParts(other, Settings(session_grace_s=GRACE_S), files, *[other] * 4), submit, other)
    records: Any = type("Space", (), {"name": PROJECT.id, "is_shared": False, "is_users": False})
    sessions = tuple(SessionEntry(each, 0.0, 0.0) for each in (SESSION, OTHER_SESSION))
    finder._spaces = {records: _Space(work=WaitingWork(sessions=sessions))}
    await finder._end_lost_sessions()
    assert ended == [SESSION, OTHER_SESSION]
    await finder._end_lost_sessions()
    assert ended[2:] == [OTHER_SESSION], "it is not read as ended yet"


# --- Embedding leases: a machine that plays workers which take, answer, fail, leave and die in any order.
FILE = "p_0123456789ab"
MODEL = "small"
WORKERS = st.sampled_from(["ann", "bob", "cid"])
KEYS = st.integers(0, 12)


class Workers(RuleBasedStateMachine):
    """Workers, texts without vectors, and what the records know of failures."""

    def __init__(self) -> None:
        super().__init__()
        self.leases: Leases[str] = Leases()
        self.due: set[int] = set()
        self.attempts: Counter[int] = Counter()
        self.died: set[int] = set()
        self.size_of: Callable[[int], int] = lambda key: HAND_BYTES * key // 10  # the longest does not fit into a hand
        self.credit: dict[str, int] = {}
        self.in_hand: dict[str, list[int]] = {}

    @rule(keys=st.sets(KEYS, max_size=5))
    def come(self, keys: set[int]) -> None:
        self.due |= keys

    @rule(worker=WORKERS, credit=st.integers(0, 4))
    def arrive(self, worker: str, credit: int) -> None:
        self.leases.worker_ready(worker, MODEL, credit)
        self.credit[worker], self.in_hand[worker] = credit, []

    @rule(worker=WORKERS, dies=st.booleans())
    def go(self, worker: str, dies: bool) -> None:
        given_back = [job.number for job in self.leases.worker_gone(worker)]
        assert given_back == self.in_hand.pop(worker, [])
        self.credit.pop(worker, None)
        if dies:
            self.attempts.update(given_back)
            self.died.update(given_back)

    @rule(limit=st.sampled_from([99, 99, 0, 1, 3]))
    def hand_out(self, limit: int) -> None:
        """Hand out as the store does: the newest that are not leased, as many as there is room for."""
        leased, room = self.leases.leased_of(MODEL, FILE), min(limit, self.leases.room(MODEL))
        asked = [key for key in sorted(self.due, reverse=True) if key not in leased and self.is_alive(key)][:room]
        texts = [TextToEmbed(key, "x" * self.size_of(key), b"", key in self.died) for key in asked]
        for worker, text in self.leases.hand_out(MODEL, FILE, texts):
            hand, key = self.in_hand[worker], text.number
            assert all(key not in each for each in self.in_hand.values()), "in two hands at once"
            assert not (hand and text.is_alone), "a suspected text is handed out alone"
            hand.append(key)
            assert len(hand) == 1 or sum(map(self.size_of, hand)) <= HAND_BYTES
            assert len(hand) <= self.credit[worker]

    @precondition(lambda self: any(self.in_hand.values()))
    @rule(data=st.data(), well=st.booleans())
    def answer(self, data: st.DataObject, well: bool) -> None:
        worker = data.draw(st.sampled_from(sorted(each for each, hand in self.in_hand.items() if hand)))
        self.finish(worker, data.draw(st.sampled_from(self.in_hand[worker])), well)

    def finish(self, worker: str, key: int, well: bool = True) -> None:
        """A worker answers, and the result, which is not handed out before, is stored."""
        job, result = EmbeddingJob(MODEL, FILE, key), EmbeddedMemory(key, b"") if well else FailedText(key, "it failed")
        assert not self.leases.finish("somebody else", job, result)
        assert self.leases.finish(worker, job, result)
        assert key in self.leases.leased_of(MODEL, FILE)
        self.leases.finished.clear()
        self.in_hand[worker].remove(key)
        if well:
            self.due.remove(key)
        else:
            self.attempts[key] += 1

    def is_alive(self, key: int) -> bool:
        return self.attempts[key] < MAX_ATTEMPTS

    @invariant()
    def the_workers_are_those_that_came_and_did_not_go(self) -> None:
        assert self.leases.workers == dict.fromkeys(self.credit, MODEL)
        assert all(self.leases.count_held(worker) == len(hand) for worker, hand in self.in_hand.items())
        assert self.leases.workers_of(MODEL) == list(self.leases.workers)

    def teardown(self) -> None:
        """Whatever was done, a worker that works on gets everything done."""
        for worker in list(self.credit):
            self.go(worker, False)
        self.arrive("dora", 2)
        self.hand_out(99)
        while hand := self.in_hand["dora"]:
            self.finish("dora", hand[0])
            self.hand_out(99)
        assert not any(map(self.is_alive, self.due))


TestWorkersThatDoAsTheyLike = Workers.TestCase


def test_texts_are_shared_out_among_workers_with_credit_for_no_more_than_they_embed_soon() -> None:
    work = Workers()
    work.size_of = lambda key: HAND_BYTES // 4
    for worker in ("ann", "bob"):
        work.arrive(worker, 3)
    work.come(set(range(4)))
    work.hand_out(99)
    assert sorted(len(hand) for hand in work.in_hand.values()) == [2, 2]
    work.go("ann", False)
    work.hand_out(99)
    assert len(work.in_hand["bob"]) == 3, "which is its credit"
    work.go("bob", False)
    work.arrive("ann", 128)
    work.come(set(range(20)))
    for newest in ([19, 18, 17, 16], [18, 17, 16, 15]):
        work.hand_out(99)
        assert work.in_hand["ann"] == newest
        work.finish("ann", newest[0])
    work.go("ann", True)
    work.arrive("ann", 128)
    work.hand_out(99)
    assert work.in_hand["ann"] == [17], "alone, since it may have killed her"


# --- The answers of workers, which may be on other hosts: only what fits its model and its text is kept.
IDENTITY = ModelIdentity("onnx", "old", "1", "int8", 4, 256)
UNIT = np.eye(2, 4, dtype="<f4")
FITS = [(0, 4), (2, 9)]


@pytest.mark.parametrize(
    ("vectors", "passages", "fault"),
    [
        pytest.param(UNIT, FITS, "", id="honest"),
        pytest.param(UNIT[:, :2], FITS, "did not fit", id="too few dimensions"),
        pytest.param(np.tile(UNIT, (2, 1)), FITS, "did not fit", id="too many vectors"),
        pytest.param(UNIT[:0], [], "did not fit", id="no vector"),
        pytest.param(UNIT * np.float32("nan"), FITS, "did not fit", id="not a number"),
        pytest.param(UNIT * 3, FITS, "did not fit", id="so long that it is near everything"),
        pytest.param(UNIT / 2, FITS, "did not fit", id="too short"),
        pytest.param(UNIT, FITS[::-1], "does not have", id="out of order"),
        pytest.param(UNIT, [(0, 4), (0, 9)], "does not have", id="two at one place"),
        pytest.param(UNIT, [(0, 4), (2, 10)], "does not have", id="beyond the text"),
        pytest.param(UNIT, [(0, 4), (9, 2)], "does not have", id="backwards"),
    ],
)
def test_an_answer_that_lies_is_seen(vectors: Vectors, passages: list[tuple[int, int]], fault: str) -> None:
    answer = EmbeddedText(tuple(Passage(*each) for each in passages), vectors.tobytes())
    result = _checked(answer, IDENTITY, TextToEmbed(1, "x" * 9, b"", False))
    if isinstance(result, FailedText):
        assert fault
        assert fault in result.reason
    else:
        assert (fault, result.number, result.passages) == ("", 1, answer.passages)
        assert np.array_equal(result.vectors, vectors)


# --- The decisions about models, and those that a store which is started again goes on with.
OLD, NEW, LOCAL = ModelChoice("onnx", "old"), ModelChoice("voyage", "new"), ModelChoice("onnx", "local")


def known(choice: ModelChoice, revision: str = "1") -> Model:
    return Model(choice, msgspec.structs.replace(IDENTITY, engine=choice.engine, model=choice.model, revision=revision))


def changing() -> ModelState:
    """A store that answers by the old model and was told to change to the new one."""
    return ModelState(OLD, OLD).introduced(known(OLD)).swapped().choosing(NEW)


def test_the_old_model_is_kept_until_the_new_one_has_taken_over_unless_that_is_called_off() -> None:
    state = changing()
    assert state.models((LOCAL,)) == [known(OLD), Model(NEW), Model(LOCAL)]
    state = state.introduced(known(NEW))
    assert state.active == known(OLD)
    state = state.swapped()
    assert state.active == known(NEW)
    assert state.models(()) == [known(NEW)]
    assert changing().choosing(None).models(()) == [known(OLD)]
    assert ModelState(OLD, NEW).choosing(None).chosen == NEW, "nothing answers that one could stay with"
    state = ModelState(OLD, OLD).introduced(known(OLD)).swapped().introduced(known(OLD, "2"))
    assert state.models(()) == [known(OLD), known(OLD, "2")]
    assert state.swapped().models(()) == [known(OLD, "2")]


def test_a_change_goes_on_after_a_restart_and_what_the_settings_say_newly_counts_more() -> None:
    state = changing()
    assert ModelState.read(state.written(), OLD) == state, "the settings are those of before"
    other = ModelState.read(state.written(), LOCAL)
    assert (other.chosen, other.active) == (LOCAL, known(OLD))
    assert ModelState.read(b"\xc1", OLD) == ModelState.read(None, OLD) == ModelState(OLD, OLD)
