"""The story of the week and its predictions agree with the rules: the numbers are computed anew from the story."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from examples.week.fates import (
    ARCHIVED,
    AT_ONCE,
    AT_THE_END,
    MERGED,
    MERGED_TO_USER,
    SCRATCHPADS,
    STAY_IN_PROJECT,
    SUMMED_UP,
    TO_USER,
    TOO_LOW,
)
from examples.week.steps import Ask, ReadContext, Session, Step
from examples.week.story import HOLIDAY_DAYS, WEEK, memories
from remembrancer.memory.decay import DAY_S, DEFAULT_MAINTENANCE, memory_strength
from remembrancer.memory.promotion import at_once, at_session_end, promotion_score, to_user
from remembrancer.memory.wording import same_in_words
from remembrancer.protocol.consolidation import Material
from remembrancer.protocol.kinds import Scope
from remembrancer.protocol.writes import EntityRef
from tests.pure.reflection_world import memory

LAST_DAY = WEEK[-1].day + HOLIDAY_DAYS


def accesses(name: str, *, until: int = len(WEEK)) -> list[Session]:
    """The sessions in which a memory is shown, in their order, up to a session's number."""
    return [session for session in WEEK if session.number <= until for step in session.steps if name in shown_by(step)]


def shown_by(step: Step) -> tuple[str, ...]:
    match step:
        case Ask(finds=names) | ReadContext(shows=names):
            return names
        case _:
            return ()


def candidate(name: str, until: int, scope: Scope = "session") -> Material:
    """A memory as it stands at the end of a session."""
    _, kept = memories()[name]
    shown = accesses(name, until=until)
    made = memory(
        0,
        kept.content,
        id=name,
        kind=kept.kind,
        scope=scope,
        importance=kept.importance,
        confidence=kept.confidence,
        access_count=len(shown),
        sessions_accessed=len({session.number for session in shown}),
        vector=bytes(4),
    )
    return replace(made, entities=tuple(EntityRef(*each, "about") for each in kept.about))


def own_session(name: str) -> Session:
    return memories()[name][0]


def third_reading(name: str) -> int:
    """The number of the session in which a memory is shown for the third time."""
    return accesses(name)[2].number


@pytest.mark.parametrize("name", [*AT_THE_END, MERGED[0]])
def test_what_is_promoted_at_the_end_has_the_score_for_it(name: str) -> None:
    verdict = at_session_end(candidate(name, own_session(name).number))
    assert verdict.promote
    assert not at_once(candidate(name, own_session(name).number)).promote
    if name in AT_THE_END:
        assert round(verdict.score, 3) == AT_THE_END[name]


@pytest.mark.parametrize("name", AT_ONCE)
def test_what_is_promoted_at_once_has_the_score_for_it_as_it_is_stored(name: str) -> None:
    verdict = at_once(candidate(name, 0))
    assert (verdict.promote, verdict.score) == (True, AT_ONCE[name])


@pytest.mark.parametrize("name", TOO_LOW)
def test_what_stays_with_its_session_has_too_low_a_score(name: str) -> None:
    verdict = at_session_end(candidate(name, own_session(name).number))
    assert (verdict.promote, round(verdict.score, 3)) == (False, TOO_LOW[name])


@pytest.mark.parametrize("name", SCRATCHPADS)
def test_a_scratchpad_stays_though_its_score_would_do(name: str) -> None:
    it = candidate(name, own_session(name).number)
    assert promotion_score(it.importance, it.confidence, 0, it.kind, has_vectors=True) >= 0.6
    assert not at_session_end(it).promote


@pytest.mark.parametrize("name", [*TO_USER, MERGED_TO_USER[0]])
def test_what_goes_to_the_user_has_been_read_in_three_sessions(name: str) -> None:
    number = third_reading(name)
    project = own_session(name).project
    verdict = to_user(candidate(name, number, "project"), project_name=project)
    assert verdict.promote
    assert not to_user(candidate(name, number - 1, "project"), project_name=project).promote
    assert round(verdict.score, 3) == TO_USER.get(name, verdict.score)


@pytest.mark.parametrize("name", STAY_IN_PROJECT)
def test_what_stays_in_its_project_has_been_read_as_often(name: str) -> None:
    number = third_reading(name)
    assert not to_user(candidate(name, number, "project"), project_name=own_session(name).project).promote


@pytest.mark.parametrize(("name", "into", "cosine"), [(*MERGED[:2], 0.94), (*MERGED_TO_USER[:2], 0.878)])
def test_what_is_merged_says_the_same_in_other_words(name: str, into: str, cosine: float) -> None:
    """The cosines are the default model's."""
    assert same_in_words(memories()[name][1].content, memories()[into][1].content, cosine)


def test_every_memory_of_the_story_has_one_fate() -> None:
    fates = [*AT_THE_END, *AT_ONCE, MERGED[0], *TOO_LOW, *SCRATCHPADS, *SUMMED_UP, *ARCHIVED]
    assert sorted(fates) == sorted(memories())


def test_after_the_holiday_one_memory_is_weak_and_old_and_hardly_used() -> None:
    """Of those in a project: what was promoted away, merged or summed up is no matter of maintenance any more."""
    in_project = [*AT_THE_END, *AT_ONCE, *ARCHIVED]
    gone = {*TO_USER, MERGED_TO_USER[0]}
    assert {name for name in in_project if name not in gone and would_be_archived(name)} == set(ARCHIVED)


def would_be_archived(name: str) -> bool:
    session, kept = memories()[name]
    shown = accesses(name)
    last = max([session.day, *(each.day for each in shown)])
    now = LAST_DAY * DAY_S
    strength = memory_strength(kept.importance, kept.confidence, len(shown), last * DAY_S, "project", now)
    rule = DEFAULT_MAINTENANCE.project
    is_old = session.day * DAY_S < now - rule.older_than_s
    return strength < rule.strength_below and is_old and len(shown) < rule.accessed_below


def test_ten_sessions_in_two_projects_over_seven_days() -> None:
    assert [session.number for session in WEEK] == list(range(1, 11))
    assert {session.project for session in WEEK} == {"tidewatch", "slipway"}
    assert sorted({session.day for session in WEEK}) == [1, 2, 3, 4, 5, 6, 7]
    assert all(len({other.project for other in WEEK if other.day == session.day}) in (1, 2) for session in WEEK)
