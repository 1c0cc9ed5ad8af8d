"""Promotion and decay: scores at their edges, thresholds and conditions, and reasons that a person can read."""

from datetime import UTC, datetime
from functools import partial
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from remembrancer.memory.decay import DAY_S, is_stale, should_archive, should_delete, strength_of
from remembrancer.memory.fields import FIELDS
from remembrancer.memory.project_specifics import is_project_specific
from remembrancer.memory.promotion import (
    AT_ONCE_SCORE,
    SESSION_END_SCORE,
    USER_LIMIT,
    explain,
    strongest,
    to_project,
    to_user,
    used_in,
)
from remembrancer.protocol.consolidation import Material
from remembrancer.protocol.kinds import KINDS, STATUSES, FileSource, Kind, Scope, Status
from remembrancer.protocol.reads import Proposal, RecalledMemory, Scores
from remembrancer.protocol.runs import ChainLink
from remembrancer.protocol.writes import MemoryLink, MemoryVersion, PortableMemory
from tests.cases import cases
from tests.pure.memories import memory, recalled
from tests.zones import in_zone

NOW = 1_800_000_000.0
at_session_end, at_once = (partial(to_project, least=least) for least in (SESSION_END_SCORE, AT_ONCE_SCORE))
VECTOR = bytes(4)


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


# --- From a session into its project.
def scoring(score: float) -> Material:
    """A memory of that score, which its importance and confidence alone make (at most 0.7)."""
    known = {"importance": score / 0.7, "confidence": score / 0.7, "sessions_used": 0, "vector": b""}
    return candidate("observation", "session", **known)


def test_a_sessions_memory_is_promoted_at_its_end_from_0_6_on_and_at_once_from_0_85_on_unless_it_is_scratch() -> None:
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
    for kind in ("scratchpad", "tool_outcome"):
        best = candidate(kind, "session", importance=1.0, confidence=1.0, access_count=50)
        for verdict in (at_session_end(best), at_once(best)):
            reason = f"a {kind.replace('_', ' ')} belongs only to its session"
            assert (verdict.promote, verdict.score, verdict.reason) == (False, 0.95, reason)


@pytest.mark.parametrize("status", [each for each in STATUSES if each != "active"])
def test_only_what_is_active_is_promoted_or_was_summed_up_in_its_session(status: Status) -> None:
    from_session = [decide(candidate(scope="session", status=status)).promote for decide in (at_session_end, at_once)]
    assert from_session == [status == "consolidated"] * 2, "its summary does not say all that it said"
    assert not to_user(candidate(status=status)).promote
    assert to_user(candidate(status=status)).reason == f"it is {status}"


# --- From a project to the user.
def test_what_was_of_use_in_three_sessions_or_speaks_of_the_user_is_proposed() -> None:
    for changes, promotes, reason in cases("promotion", "users"):
        verdict = to_user(candidate(**changes))
        assert (verdict.promote, reason in verdict.reason) == (promotes, True), (changes, verdict)


def test_five_kinds_go_to_the_user_and_no_read_adds_to_the_score() -> None:
    allowed = {"pattern", "convention", "preference", "procedure", "fact"}
    assert {kind for kind in KINDS if to_user(candidate(kind)).promote} == allowed
    assert to_user(candidate(access_count=40)).score == to_user(candidate(access_count=0)).score
    scores = [to_user(candidate(importance=1.0, sessions_used=uses)).score for uses in (0, 1, 2, 50)]
    assert scores == [0.79, 0.940514998, 0.99, 0.99], "of use, 0.2 at most"


def test_the_strongest_twenty_are_proposed_and_the_first_three_that_surely_answer_are_used() -> None:
    def found(name: str, probability: float, origin: FileSource | None = None) -> RecalledMemory:
        return recalled(name, id=name, scores=Scores(1.0, probability), origin=origin)

    shown = [found("note", 0.9, "notes"), found("a", 0.9), found("b", 0.5), found("c", 0.51), found("d", 0.9)]
    assert used_in(shown) == ["a", "c"]
    stuck = [candidate("architecture", id=f"memory:stuck{n}", importance=1.0) for n in range(30)]
    faded = [candidate(id=f"memory:{n:02}", last_accessed_at=NOW - n * DAY_S) for n in range(30)]
    promoted = strongest([*stuck, *faded], to_user, NOW, USER_LIMIT)
    assert [memory.id for memory, _ in promoted] == [f"memory:{n:02}" for n in range(20)]
    alike = [candidate(id=f"memory:{n:02}") for n in range(30)]
    assert strongest(alike[::-1], to_user, NOW, 3) == strongest(alike, to_user, NOW, 3), "whatever their order"
    assert to_user(candidate(importance=1.0, confidence=1.0, sessions_used=50)).score == 1.0, "and no more"
    named = candidate(content="Engram keeps tokens in memory.")
    assert not to_user(named, project_name="engram").promote
    assert to_user(named).promote


# --- Is it about one project?
def test_a_sign_that_a_memory_is_about_one_project_is_named() -> None:
    entities = (("Git", "tool"), ("package.json", "file"))
    for content, sign in cases("promotion", "signs"):
        assert is_project_specific(content, entities, "my-api") == (sign or None), content


def test_an_entity_that_is_code_or_the_project_is_a_sign_and_a_name_of_two_letters_none() -> None:
    for given_type in ("function", "class", "module", "file", "Method", "source_file"):
        sign = is_project_specific("It is slow.", (("Python", "language"), ("parse_all", given_type)), "engram")
        assert (sign or "").endswith("parse_all")
    assert is_project_specific("It is slow.", (("Engram", "project"),), "engram") == "it is about the project engram"
    assert is_project_specific("It is slow.", (("Django", "project"),), "engram") is None
    assert is_project_specific("We go on.", (), "go") is None
    assert is_project_specific("We go on.", (), "") is None


@given(st.text(max_size=300), st.text(max_size=20))
def test_no_text_and_no_name_is_too_strange_to_be_looked_at(content: str, name: str) -> None:
    sign = is_project_specific(content, ((name, content[:10]),), name)
    assert sign is None or sign.startswith("it ")


def test_a_long_text_without_a_blank_is_looked_at_in_one_pass() -> None:
    """A search that goes back to the start at each letter would run into the time limit of all tests here."""
    for piece in ("a", "a.", "a/", "/", "a-", "./", "1.", "A", "#", "a:", "a\\"):
        sign = is_project_specific(piece * 30_000, (), "engram")
        assert sign is None or len(sign) < 100, piece


# --- Strength and staleness: bounded, fading, and kept up by use; and the rules of maintenance that follow from them.
def strength(scope: Scope, days: float = 0.0, *, importance: float = 1.0, **fields: Any) -> float:
    known = {"confidence": 1.0, "importance": importance, "last_accessed_at": NOW - days * DAY_S, **fields}
    return strength_of(memory(0, scope=scope, **known), NOW)


def test_strength_halves_with_each_half_life() -> None:
    for scope, days, access_count, expected in cases("dynamics", "halves"):
        assert strength(scope, days=days, access_count=access_count) == expected, (scope, days)
    assert strength("session", importance=0.5, confidence=0.125) == 0.063, "half a thousandth is rounded up"
    assert strength("session", importance=0.499, confidence=0.125) == 0.062
    assert strength("project", -5, importance=0.5) == 0.5, "an access in the future counts as now"
    assert (strength("project", 300, kind="open_end"), strength("project", 300, kind="open_end", done=True)) == (
        1.0,
        0.0,
    )


def test_what_is_rarely_used_goes_stale() -> None:
    for status, days, access_count, expected in cases("dynamics", "stale"):
        known: dict[str, Any] = {"last_accessed_at": NOW - days * DAY_S, "access_count": access_count}
        assert is_stale(memory(0, status=status, **known), NOW) is expected, (status, days)
        assert not is_stale(memory(0, status=status, kind="open_end", **known), NOW)


# --- The rules of archiving and deleting: at the numbers exactly, and never more than they say.
def weak(scope: Scope = "project", /, days: float | None = None, **changes: Any) -> Material:
    """A memory that is just weak, old and unused enough to be archived, with what is to be different."""
    strength, just_old = {"project": (0.049, 14.01), "user": (0.019, 90.01), "session": (0.0, 400.0)}[scope]
    created = NOW - (days or just_old) * DAY_S
    given = {"scope": scope, "importance": strength, "confidence": 1.0, "last_accessed_at": NOW, "access_count": 1}
    return memory(0, **{**given, "created_at": created, "updated_at": created, **changes})


def archived(scope: Scope, days: float) -> Material:
    return weak(scope, status="archived", created_at=NOW - 500 * DAY_S, updated_at=NOW - days * DAY_S)


def test_what_is_weak_old_and_unused_is_archived() -> None:
    for scope, changes, is_archived in cases("promotion", "archived"):
        assert should_archive(weak(scope, **changes), NOW) is is_archived, (scope, changes)


def test_what_was_archived_is_deleted_after_ninety_days_without_a_change() -> None:
    assert should_delete(archived("project", 90.01), NOW)
    assert not should_delete(archived("project", 90), NOW)
    assert not should_delete(replace(archived("project", 90), archived_at=NOW - 400 * DAY_S), NOW), "restored since"
    assert not any(should_delete(archived(scope, 400), NOW) for scope in ("session", "user"))
    assert not should_delete(replace(archived("project", 200), type="semantic"), NOW)
    assert not should_delete(replace(archived("project", 200), kind="error_fix"), NOW)
    for status in ("active", "consolidated"):
        assert not should_delete(replace(archived("project", 200), status=status), NOW)


# --- The sentences that say why a portable is where it is, and what would move it.
STORED = datetime(2026, 2, 1, 12).timestamp()  # noon in the zone here, whose days the sentences name
DAY_AFTER = STORED + DAY_S
OTHER = "memory:01ARZ3NDEKTSV4RRFFQ69G5FAW"


def portable(scope: Scope = "session", **fields: Any) -> PortableMemory:
    values = {"kind": "fact", "created_at": STORED, "updated_at": STORED, **fields}
    return PortableMemory(id="memory:m", content="x", type="semantic", scope=scope, session_id="session:s", **values)


def said(shown: PortableMemory, proposal: Proposal | None = None) -> str:
    return " ".join(explain(shown, proposal))


def test_the_origin_and_each_step_are_told_and_a_forgotten_memory_is_said_to_be_restorable() -> None:
    assert "Stored for the user by session session:s" in said(portable("user"))
    sources = tuple(MemoryLink(f"memory:{place}", "derived_from", 1.0, STORED) for place in range(3))
    assert "Derived from 3 memories for the project on 2026-02-01." in said(portable("project", links=sources))
    chain = (
        ChainLink("session", "memory:m", STORED + 60, score=0.719, reason="its score 0.719 reaches 0.6"),
        ChainLink("session", OTHER, STORED + DAY_S, action="merged"),
        ChainLink("project", "memory:m", STORED + 2 * DAY_S, reason="of use everywhere."),
    )
    text = said(portable("user", promotion_chain=chain))
    assert (
        "Stored by session session:s on 2026-02-01. "
        "Promoted from the session to the project on 2026-02-01: its score 0.719 reaches 0.6. "
        f"{OTHER} of the session says the same and was merged into it on 2026-02-02. "
        "Promoted from the project to the user on 2026-02-03: of use everywhere."
    ) in text
    text = said(portable("project", forgotten_at=DAY_AFTER, forgotten_reason="outdated"))
    assert text.endswith("Forgotten on 2026-02-02 (outdated): recall leaves it out, and it can be restored.")


def test_a_proposal_is_told_with_its_reason_and_a_refusal_with_its_day() -> None:
    proposal = Proposal("memory:m", "text", "preference", "it is about the user", 0.6, DAY_AFTER)
    text = said(portable("project"), proposal=proposal)
    assert "Proposed to the user on" in text
    assert ": it is about the user. promote_memory accepts or refuses it." in text
    refused = msgspec.structs.replace(proposal, refused_at=DAY_AFTER)
    assert "Kept in the project on 2026-02-02: it is not proposed for all projects." in said(
        portable("project"), proposal=refused
    )


def test_a_day_is_one_of_the_zone_here() -> None:
    with in_zone("America/St_Johns"):
        one_o_clock = datetime(2026, 2, 2, 1, tzinfo=UTC).timestamp()
        assert "Forgotten on 2026-02-01:" in said(portable("project", forgotten_at=one_o_clock))
        assert "Forgotten on 9999-12-31:" in said(portable("project", forgotten_at=253402300799.0))


# --- The words of the model: complete, and consistent with each other.
def test_each_field_of_a_memory_has_one_row_in_the_table_of_fields() -> None:
    assert sorted(each.name for each in FIELDS) == sorted(MemoryVersion.__struct_fields__)
