"""The sentences that say why a memory is where it is, and what would move it."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from remembrancer.actors.store.explaining import explain
from remembrancer.actors.store.records.types import Surroundings
from remembrancer.memory.decay import DAY_S
from remembrancer.protocol.kinds import KINDS, SCOPES, STATUSES, Scope
from remembrancer.protocol.reads import Proposal
from remembrancer.protocol.runs import ChainLink, LoggedPromotion
from remembrancer.protocol.writes import HistoryEntry, MemoryLink, MemoryVersion, PortableMemory

STORED = datetime(2026, 2, 1, 12, tzinfo=UTC).timestamp()
NOW = STORED + DAY_S
OTHER = "memory:01ARZ3NDEKTSV4RRFFQ69G5FAW"


def memory(scope: Scope = "session", **fields: Any) -> PortableMemory:
    values = {"kind": "fact", "created_at": STORED, "updated_at": STORED, **fields}
    return PortableMemory(id="memory:m", content="x", type="semantic", scope=scope, session_id="session:s", **values)


def said(shown: PortableMemory, now: float = NOW, **around: Any) -> str:
    return " ".join(explain(shown, Surroundings(**around), now, is_embedded=True))


def test_a_session_s_memory_says_its_score_and_what_it_needs() -> None:
    text = said(memory())
    assert text.startswith("Stored by session session:s on 2026-02-01.")
    assert text.endswith(
        "Its score is 0.46: from 0.6 on it is promoted to the project at its session's end, from 0.85 on at once."
    )


SOURCES = tuple(MemoryLink(f"memory:{place}", "derived_from", 1.0, STORED) for place in range(3))


@pytest.mark.parametrize(
    ("shown", "why"),
    [
        (memory(kind="scratchpad", importance=1.0, confidence=1.0), "a scratchpad is for its session alone"),
        (memory("user"), "Stored for the user by session session:s"),
        (memory("project", links=SOURCES), "Derived from 3 memories for the project on 2026-02-01."),
    ],
)
def test_where_a_memory_comes_from_and_what_keeps_it_there_is_told(shown: PortableMemory, why: str) -> None:
    assert why in said(shown)


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
    text = said(memory("project"), proposal=proposal)
    assert "Proposed to the user on" in text
    assert ": it speaks of the user. promote_memory accepts or refuses it." in text
    refused = msgspec.structs.replace(proposal, refused_at=NOW)
    assert "Not proposed to the user any more: that was refused on" in said(memory("project"), proposal=refused)


def test_a_memory_that_was_taken_back_from_the_user_is_not_said_to_be_refused() -> None:
    refused = Proposal("memory:m", "text", "fact", "it was taken back from the user", None, NOW, refused_at=NOW)
    text = said(memory("project", history=(changed(3, "taken back"),)), proposal=refused)
    assert "Not proposed to the user any more: it was taken back from there on 2026-02-02." in text
    assert "refused" not in text


def test_each_status_says_how_the_memory_is_found() -> None:
    text = said(memory("project", status="consolidated"), summed_up_in=(OTHER,))
    assert f"Consolidated: {OTHER} stands for it. It is still found, ranked a little lower." in text
    entry = LoggedPromotion("memory:m", "fact", "session", "project", "importance", 0.7, "session:s", OTHER, None, NOW)
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


def test_a_forgotten_memory_is_said_to_be_restorable() -> None:
    text = said(memory("project", forgotten_at=NOW, forgotten_reason="outdated"))
    assert text.endswith("Forgotten on 2026-02-02 (outdated): recall leaves it out, and it can be restored.")


def test_a_day_is_one_of_the_zone_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "America/St_Johns")
    time.tzset()
    try:
        one_o_clock = datetime(2026, 2, 2, 1, tzinfo=UTC).timestamp()
        assert "Forgotten on 2026-02-01:" in said(memory("project", forgotten_at=one_o_clock))
        assert "Valid until 9999-12-31." in said(memory("project", valid_until=253402300799.0))
    finally:
        monkeypatch.undo()
        time.tzset()


@given(
    scope=st.sampled_from(SCOPES),
    status=st.sampled_from(STATUSES),
    kind=st.sampled_from(KINDS),
    importance=st.floats(0, 1),
    confidence=st.floats(0, 1),
    uses=st.integers(0, 100),
    later=st.floats(-DAY_S, 10_000 * DAY_S),
)
def test_every_memory_has_sentences(
    scope: Scope, status: Any, kind: Any, importance: float, confidence: float, uses: int, later: float
) -> None:
    fields = {"status": status, "kind": kind, "importance": importance, "confidence": confidence}
    used = tuple(f"session:{number}" for number in range(uses))
    sentences = explain(memory(scope, accessed_in=used, **fields), Surroundings(), STORED + later, is_embedded=False)
    assert sentences
    assert all(sentence[0].isupper() or sentence.startswith("memory:") for sentence in sentences)
    assert all(sentence.endswith(".") for sentence in sentences)
