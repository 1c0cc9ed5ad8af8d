"""Promotion: the score at its edges, its thresholds and conditions, and reasons that a person can read."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from remembrancer.memory import promotion
from remembrancer.memory.decay import DAY_S
from remembrancer.memory.project_specifics import is_project_specific
from remembrancer.memory.promotion import (
    at_once,
    at_session_end,
    promoted_at_session_end,
    promotion_score,
    proposed_to_user,
    to_user,
    used_in,
)
from remembrancer.protocol.consolidation import Material
from remembrancer.protocol.kinds import KINDS, STATUSES, FileSource, Kind, Scope, Status
from remembrancer.protocol.reads import RecalledMemory, Scores
from tests.cases import cases
from tests.pure.recalled import recalled
from tests.pure.reflection_world import memory

NOW = 1_800_000_000.0
VECTOR = bytes(4)

shares = st.floats(0.0, 1.0)
counts = st.integers(0, 1_000)
kinds: st.SearchStrategy[Kind] = st.sampled_from(KINDS)
candidates = st.builds(
    memory,
    st.integers(0, 9),
    id=st.uuids().map(str),
    kind=kinds,
    content=st.sampled_from(["Short commits are easier to review.", "The token is read in src/auth/token.py."]),
    scope=st.sampled_from(["session", "project", "user"]),
    last_accessed_at=st.floats(NOW - 100 * DAY_S, NOW),
    importance=shares,
    confidence=shares,
    access_count=counts,
    sessions_used=st.integers(0, 6),
    vector=st.sampled_from([b"", VECTOR]),
    status=st.sampled_from(STATUSES),
)


def candidate(kind: Kind = "convention", scope: Scope = "project", **changes: Any) -> Material:
    """A memory that is worth promoting from its scope, with what is to be different."""
    fields: dict[str, Any] = {
        "kind": kind,
        "scope": scope,
        "last_accessed_at": NOW,
        "importance": 0.9,
        "confidence": 0.8,
        "access_count": 4,
        "sessions_used": 3,
        "vector": VECTOR,
        "content": "Commits say why and not what.",
    }
    return memory(1, **{**fields, **changes})


# --- The score.


@given(shares, shares, counts, kinds, st.booleans())
def test_the_score_lies_between_0_and_1(
    importance: float, confidence: float, count: int, kind: Kind, has_vectors: bool
) -> None:
    assert 0.0 <= promotion_score(importance, confidence, count, kind, has_vectors) <= 1.0


@given(shares, shares, shares, counts, counts, kinds)
def test_more_of_anything_never_scores_less(
    less: float, more: float, other: float, fewer: int, often: int, kind: Kind
) -> None:
    less, more = sorted((less, more))
    fewer, often = sorted((fewer, often))
    base = promotion_score(less, other, fewer, kind, False)
    assert base <= promotion_score(more, other, fewer, kind, False)
    assert base <= promotion_score(less, other, often, kind, False)
    assert base <= promotion_score(less, other, fewer, kind, True)
    assert promotion_score(other, less, fewer, kind, False) <= promotion_score(other, more, fewer, kind, False)


# --- From a session into its project.


def scoring(score: float, scope: Scope = "session", kind: Kind = "observation") -> Material:
    """A memory of that score, which its importance and confidence alone make (at most 0.7)."""
    return candidate(kind, scope, importance=score / 0.7, confidence=score / 0.7, sessions_used=0, vector=b"")


def test_a_sessions_memory_is_promoted_at_its_end_from_0_6_on_and_at_once_from_0_85_on() -> None:
    assert at_session_end(scoring(0.6)).promote
    assert at_session_end(scoring(0.6)).score == 0.6
    assert at_session_end(scoring(0.6)).reason == "its score 0.6 reaches 0.6"
    assert not at_session_end(scoring(0.59996)).promote
    assert at_session_end(scoring(0.59996)).reason == "its score 0.599 is below 0.6", "which is not rounded up"
    sure = candidate("pattern", "session", importance=1.0, confidence=1.0, sessions_used=0)
    assert at_once(sure).score == 0.85
    assert at_once(sure).promote
    assert not at_once(replace(sure, confidence=0.99)).promote
    assert at_session_end(replace(sure, confidence=0.99)).promote
    assert not at_session_end(candidate(scope="session", undone="promoted")).promote
    assert not at_session_end(candidate(scope="project")).promote


@pytest.mark.parametrize("kind", ["scratchpad", "tool_outcome"])
def test_scratchpads_and_tool_outcomes_stay_in_their_session(kind: Kind) -> None:
    best = candidate(kind, "session", importance=1.0, confidence=1.0, access_count=50)
    for verdict in (at_session_end(best), at_once(best)):
        assert not verdict.promote
        assert verdict.score == 0.95
        assert verdict.reason == f"a {kind.replace('_', ' ')} is for its session alone"


@pytest.mark.parametrize("status", [each for each in STATUSES if each != "active"])
def test_only_what_is_active_is_promoted_or_was_summed_up_in_its_session(status: Status) -> None:
    from_session = [decide(candidate(scope="session", status=status)).promote for decide in (at_session_end, at_once)]
    assert from_session == [status == "consolidated"] * 2, "its summary does not say all that it said"
    assert not to_user(candidate(status=status)).promote
    assert to_user(candidate(status=status)).reason == f"it is {status}"


@given(candidates)
def test_what_is_promoted_at_once_would_be_at_the_end_as_well(given_memory: Material) -> None:
    assert at_session_end(given_memory).promote or not at_once(given_memory).promote


# --- From a project to the user.


@pytest.mark.parametrize(("changes", "promotes", "reason"), cases("promotion", "users"))
def test_what_was_of_use_in_three_sessions_is_proposed_to_the_user(
    changes: dict[str, Any], promotes: bool, reason: str
) -> None:
    verdict = to_user(candidate(**changes))
    assert verdict.promote is promotes
    assert reason in verdict.reason


def test_to_the_user_goes_what_speaks_of_him_at_once_and_else_what_has_a_score_of_0_7() -> None:
    weak = candidate(importance=0.7, confidence=0.4, sessions_used=3)
    assert to_user(weak).promote
    assert not to_user(replace(weak, confidence=0.2)).promote
    assert to_user(replace(weak, confidence=0.2)).reason == "its score 0.69 is below 0.7"
    assert to_user(candidate(access_count=40)).score == to_user(candidate(access_count=0)).score
    assert not to_user(candidate(sessions_used=0, access_count=40)).promote
    new = candidate("preference", content="Wants short answers", importance=0.2, confidence=0.2, sessions_used=0)
    assert to_user(new).reason == "it speaks of the user, and names nothing of the project"
    assert to_user(new).promote
    assert not to_user(replace(new, kind="fact")).promote
    assert not to_user(replace(new, content="Wants short answers in docs/api.md")).promote


@pytest.mark.parametrize("kind", KINDS)
def test_patterns_conventions_preferences_procedures_and_facts_go_to_the_user(kind: Kind) -> None:
    allowed = {"pattern", "convention", "preference", "procedure", "fact"}
    assert to_user(candidate(kind)).promote is (kind in allowed)
    if kind == "architecture":
        assert to_user(candidate(kind)).reason == "an architecture stays in its project"


def test_the_wish_of_a_named_person_is_not_the_users() -> None:
    for kind in ("preference", "fact"):
        verdict = to_user(candidate(kind, content="Ilse wants short answers"))
        assert (verdict.promote, verdict.reason) == (False, "it speaks of Ilse, not of the user")
    for content in ("The user wants short answers", "User likes tea", "We want short answers", "Everyone likes tea"):
        assert to_user(candidate("preference", content=content)).promote


def test_the_first_three_that_surely_answer_are_used() -> None:
    def found(name: str, probability: float, origin: FileSource | None = None) -> RecalledMemory:
        return recalled(name, id=name, scores=Scores(1.0, probability, 0.5, 1.0), origin=origin)

    shown = [found("note", 0.9, "notes"), found("a", 0.9), found("b", 0.5), found("c", 0.51), found("d", 0.9)]
    assert used_in(shown) == ["a", "c"]


# --- Which of many.


def test_the_strongest_twenty_are_proposed_and_what_cannot_be_or_names_its_project_takes_no_place() -> None:
    stuck = [candidate("architecture", id=f"memory:stuck{n}", importance=1.0) for n in range(30)]
    faded = [candidate(id=f"memory:{n:02}", last_accessed_at=NOW - n * DAY_S) for n in range(30)]
    promoted = proposed_to_user([*stuck, *faded], NOW)
    assert [memory.id for memory, _ in promoted] == [f"memory:{n:02}" for n in range(20)]
    named = candidate(content="Engram keeps tokens in memory.")
    assert not to_user(named, project_name="engram").promote
    assert len(proposed_to_user([named], NOW)) == 1
    assert proposed_to_user([named], NOW, project_name="engram") == []


@given(st.lists(candidates, max_size=12, unique_by=lambda each: each.id), st.randoms(use_true_random=False))
def test_which_are_promoted_does_not_depend_on_their_order(memories: list[Material], random: Random) -> None:
    shuffled = list(memories)
    random.shuffle(shuffled)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(promotion, "SESSION_END_LIMIT", 3)
        patch.setattr(promotion, "USER_LIMIT", 2)
        assert promoted_at_session_end(shuffled, NOW) == promoted_at_session_end(memories, NOW)
        assert proposed_to_user(shuffled, NOW) == proposed_to_user(memories, NOW)


# --- Is it about one project?


@pytest.mark.parametrize(("content", "sign"), cases("promotion", "signs"))
def test_a_sign_that_a_memory_is_about_one_project_is_named(content: str, sign: str) -> None:
    assert is_project_specific(content, (), "my-api") == sign


@pytest.mark.parametrize("content", cases("promotion", "no_signs"))
def test_what_is_true_of_any_project_has_no_sign(content: str) -> None:
    assert is_project_specific(content, (("Git", "tool"), ("package.json", "file")), "my-api") is None


@pytest.mark.parametrize("given_type", ["function", "class", "module", "file", "Method", "source_file"])
def test_an_entity_that_is_code_is_a_sign(given_type: str) -> None:
    sign = is_project_specific("It is slow.", (("Python", "language"), ("parse_all", given_type)), "engram")
    assert sign is not None
    assert sign.endswith("parse_all")


def test_an_entity_that_is_the_project_is_a_sign_and_a_name_of_two_letters_none() -> None:
    assert is_project_specific("It is slow.", (("Engram", "project"),), "engram") == "it is about the project engram"
    assert is_project_specific("It is slow.", (("Django", "project"),), "engram") is None
    assert is_project_specific("We go on.", (), "go") is None
    assert is_project_specific("We go on.", (), "") is None


@given(st.text(max_size=300), st.text(max_size=20))
def test_no_text_and_no_name_is_too_strange_to_be_looked_at(content: str, name: str) -> None:
    sign = is_project_specific(content, ((name, content[:10]),), name)
    assert sign is None or sign.startswith("it ")


@pytest.mark.parametrize("piece", ["a", "a.", "a/", "/", "a-", "./", "1.", "A", "#", "a:", "a\\"])
def test_a_long_text_without_a_blank_is_looked_at_in_one_pass(piece: str) -> None:
    """A search that goes back to the start at each letter would run into the time limit of all tests here."""
    sign = is_project_specific(piece * 100_000, (), "engram")
    assert sign is None or len(sign) < 100
