"""The sentences that say why a memory is where it is, and what would move it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from remembrancer.actors.store.explaining import Circumstances, explain
from remembrancer.memory.decay import DAY_S, falls_below_at, memory_strength
from remembrancer.memory.promotion import promotion_score
from remembrancer.protocol.kinds import KINDS, SCOPES, STANDING, STATUSES, Scope
from remembrancer.protocol.reads import Promotion, Proposal
from remembrancer.protocol.runs import ChainLink
from remembrancer.protocol.session_life import SessionEntry
from remembrancer.protocol.writes import HistoryEntry, MemoryLink, MemoryVersion, PortableMemory

STORED = datetime(2026, 2, 1, 12, tzinfo=UTC).timestamp()
NOW = STORED + DAY_S
OTHER = "memory:01ARZ3NDEKTSV4RRFFQ69G5FAW"


def memory(scope: Scope = "session", **fields: Any) -> PortableMemory:
    values = {"kind": "fact", "created_at": STORED, "updated_at": STORED, **fields}
    return PortableMemory(id="memory:m", content="x", type="semantic", scope=scope, session_id="session:s", **values)


def said(shown: PortableMemory, now: float = NOW, **around: Any) -> str:
    return " ".join(explain(shown, Circumstances(embedded=True, **around), now))


def test_a_session_s_memory_below_the_threshold_is_not_promoted_and_its_score_says_why() -> None:
    text = said(memory())
    assert text.startswith("Stored by session session:s on 2026-02-01.")
    assert "Not promoted to the project: its score 0.46 is below 0.6." in text


OVER = SessionEntry("session:s", 0.0, 1.0, status="completed")
FULL = SessionEntry("session:s", 0.0, 1.0, status="completed", memories_promoted=50)
STRONG: dict[str, Any] = {"importance": 0.9, "confidence": 0.9}
USED: dict[str, Any] = {"importance": 0.8, "accessed_in": ("a", "b", "c")}
SOURCES = tuple(MemoryLink(f"memory:{place}", "derived_from", 1.0, STORED) for place in range(3))


@pytest.mark.parametrize(
    ("shown", "session", "why"),
    [
        (
            memory(importance=0.9, confidence=0.8),
            None,
            "Promoted to the project at its session's end: its score 0.71 reaches 0.6 (at once from 0.85).",
        ),
        (memory(kind="scratchpad", importance=1.0, confidence=1.0), None, "a scratchpad is for its session alone"),
        (memory(**STRONG), OVER, "when its session's end was dealt with, it did not"),
        (memory(**STRONG), FULL, "its session's end promotes the 50 strongest memories alone"),
        (memory("user"), None, "Stored for the user by session session:s"),
        (memory("project", links=SOURCES), None, "Derived from 3 memories for the project on 2026-02-01."),
        (memory("project", **USED, kind="decision"), None, "a decision stays in its project"),
        (memory("project", **USED | {"importance": 0.65}), None, "its importance 0.65 is below 0.7"),
        (memory("project", **USED | {"accessed_in": ("a", "b")}), None, "used in 2 sessions, and 3 are needed"),
        (memory("project", **USED, confidence=0.1), None, "its score 0.66 is below 0.7"),
        (memory("project", **USED, confidence=0.9), None, "unless it names something of this project: its score 0.9"),
    ],
)
def test_the_way_of_a_memory_is_told_with_what_it_depends_on(
    shown: PortableMemory, session: SessionEntry | None, why: str
) -> None:
    assert why in said(shown, session=session)


def test_the_chain_tells_each_step_with_its_score_and_reason() -> None:
    chain = (
        ChainLink("session", "memory:m", STORED + 60, score=0.719, reason="its score 0.719 reaches 0.6"),
        ChainLink("session", OTHER, STORED + DAY_S, action="merged"),
        ChainLink("project", "memory:m", STORED + 2 * DAY_S, reason="of use everywhere."),
    )
    text = said(memory("user", promotion_chain=chain))
    assert (
        "Stored by session session:s on 2026-02-01. "
        "Promoted from the session to the project on 2026-02-01 with the score 0.71: its score 0.719 reaches 0.6. "
        f"{OTHER} of the session says the same and was merged into it on 2026-02-02. "
        "Promoted from the project to the user on 2026-02-03: of use everywhere."
    ) in text


def test_a_proposal_is_told_with_its_reason_and_a_refusal_with_its_day() -> None:
    proposal = Proposal("memory:m", "text", "preference", "it speaks of the user", 0.6, NOW)
    assert "Proposed to the user on" in said(memory("project"), proposal=proposal)
    assert ": it speaks of the user. promote_memory accepts or refuses it." in said(
        memory("project"), proposal=proposal
    )
    refused = msgspec.structs.replace(proposal, refused_at=NOW)
    assert "Not proposed to the user any more: that was refused on" in said(memory("project"), proposal=refused)


def test_a_memory_that_was_taken_back_from_the_user_is_not_said_to_be_refused() -> None:
    refused = Proposal("memory:m", "text", "fact", "it was taken back from the user", None, NOW, refused_at=NOW)
    text = said(memory("project", history=(changed(3, "taken back"),)), proposal=refused)
    assert "Not proposed to the user any more: it was taken back from there on 2026-02-02." in text
    assert "refused" not in text


def test_archiving_is_foretold_with_the_date_on_which_the_strength_has_sunk() -> None:
    weak = memory("project", importance=0.2)
    text = said(weak)
    at = falls_below_at(0.05, 0.2, 0.5, 0, STORED, "project")
    assert at == STORED + 7 * DAY_S
    assert memory_strength(0.2, 0.5, 0, STORED, "project", at) == 0.05
    assert (
        "Archived around 2026-02-15, when its strength falls below 0.05, unless it is used before." in text
    )  # 14 days
    assert "Not archived: it was accessed 2 times." in said(memory("project", access_count=2))
    end = memory("project", importance=0.2, kind="open_end")
    assert "Not archived: it is not done." in said(end)
    assert "Archived around" in said(msgspec.structs.replace(end, done=True))


@pytest.mark.parametrize("kind", STANDING)
@pytest.mark.parametrize("scope", ["project", "user"])
def test_no_archiving_is_foretold_of_a_kind_that_is_never_archived(scope: Scope, kind: Any) -> None:
    weak = memory(scope, importance=0.1, kind=kind)
    assert f"Not archived: a {kind} does not fade." in said(weak)
    assert "Archived around" not in said(weak)


def test_each_status_says_how_the_memory_is_found() -> None:
    text = said(memory("project", status="consolidated"), summed_up_in=(OTHER,))
    assert f"Consolidated: {OTHER} stands for it. It is still found, ranked a little lower." in text
    entry = Promotion("memory:m", "session", "project", NOW, "importance", "session:s", 0.7, OTHER)
    assert f"Merged into {OTHER}," in said(memory(status="promoted"), promotions=(entry,))
    archived = said(memory("project", status="archived"))
    assert "ranked a little lower" in archived
    assert "forgotten around 2026-05-02; it can be restored" in archived
    assert "forgotten around" not in said(memory("user", status="archived"))


def test_what_contradicts_or_supersedes_a_memory_and_when_it_ends_is_said_once() -> None:
    third = "memory:01ARZ3NDEKTSV4RRFFQ69G5FAX"
    links = ((OTHER, "contradicts"), (OTHER, "supersedes"), (third, "contradicts"))
    incoming = [MemoryLink(target, relation, 1.0, STORED) for target, relation in links]
    text = said(memory("project", valid_until=STORED), incoming=incoming[:1])
    assert f"Possibly superseded by {OTHER}. No longer valid since 2026-02-01." in text
    assert "Valid until 2026-02-01." in said(memory("project", valid_until=STORED), now=STORED - 1)
    text = said(memory("project"), incoming=incoming)
    assert f" Superseded by {OTHER}. Possibly superseded by {third}." in text
    unlikely = MemoryLink(third, "contradicts", 0.1, STORED)  # it waits in Review
    assert "Possibly superseded" not in said(memory("project"), incoming=[unlikely])


def changed(number: int, change: str, session_id: str = "", **details: str) -> HistoryEntry:
    snapshot = MemoryVersion(content="x", type="semantic", scope="project", session_id="session:s")
    return HistoryEntry(number, change, STORED, session_id, f"op {number}", snapshot, dict(details))


def test_a_copy_says_which_memory_stays() -> None:
    reason = f"{OTHER} says the same in the same words"
    copy = memory("project", status="consolidated", history=(changed(2, "deduplicated", reason=reason),))
    assert f"Consolidated: {reason}. It is still found" in said(copy)


@pytest.mark.parametrize("undid", [{}, {"undid": "promoted"}])
def test_a_promotion_that_was_undone_is_not_promised_again(undid: dict[str, str]) -> None:
    history = changed(1, "stored", "session:s"), changed(2, "promoted", "session:s"), changed(3, "undone", **undid)
    text = said(memory(importance=1.0, confidence=1.0, history=history))
    assert text.endswith("its promotion was undone, and it is left alone until something else changes it.")
    assert "Promoted to the project at" in said(memory(importance=1.0, confidence=1.0, history=history[:2]))


def test_an_archiving_that_was_undone_is_not_announced_again() -> None:
    undone = memory("project", importance=0.1, history=(changed(3, "undone", undid="archived"),))
    assert "Not archived: that was undone" in said(undone)
    assert "Archived around" in said(memory("project", importance=0.1))


def test_a_forgotten_memory_is_said_to_be_restorable_and_nothing_is_foretold() -> None:
    text = said(memory("project", forgotten_at=NOW, forgotten_reason="outdated"))
    assert text.endswith("Forgotten on 2026-02-02 (outdated): recall leaves it out, and it can be restored.")


@given(
    scope=st.sampled_from(SCOPES),
    status=st.sampled_from(STATUSES),
    kind=st.sampled_from(KINDS),
    importance=st.floats(0, 1),
    confidence=st.floats(0, 1),
    uses=st.integers(0, 100),
    later=st.floats(-DAY_S, 10_000 * DAY_S),
)
def test_every_memory_has_sentences_and_no_score_contradicts_its_threshold(
    scope: Scope, status: Any, kind: Any, importance: float, confidence: float, uses: int, later: float
) -> None:
    fields = {"status": status, "kind": kind, "importance": importance, "confidence": confidence}
    used = tuple(f"session:{number}" for number in range(uses))
    sentences = explain(memory(scope, accessed_in=used, **fields), Circumstances(embedded=False), STORED + later)
    assert sentences
    assert all(sentence[0].isupper() or sentence.startswith("memory:") for sentence in sentences)
    assert all(sentence.endswith(".") for sentence in sentences)
    if scope == "session" and status == "active" and kind not in ("scratchpad", "tool_outcome"):
        score = promotion_score(importance, confidence, uses, kind, has_vectors=False)
        assert ("Not promoted" in sentences[-1]) == (score < 0.6)
