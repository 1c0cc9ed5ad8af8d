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
from remembrancer.memory.decay import DAY_S
from remembrancer.protocol.kinds import KINDS, SCOPES, STATUSES, Scope
from remembrancer.protocol.reads import Proposal
from remembrancer.protocol.runs import ChainLink
from remembrancer.protocol.writes import HistoryEntry, MemoryLink, MemoryVersion, PortableMemory

STORED = datetime(2026, 2, 1, 12, tzinfo=UTC).timestamp()
NOW = STORED + DAY_S
OTHER = "memory:01ARZ3NDEKTSV4RRFFQ69G5FAW"


def memory(scope: Scope = "session", **fields: Any) -> PortableMemory:
    values = {"kind": "fact", "created_at": STORED, "updated_at": STORED, **fields}
    return PortableMemory(id="memory:m", content="x", type="semantic", scope=scope, session_id="session:s", **values)


def said(shown: PortableMemory, proposal: Proposal | None = None) -> str:
    return " ".join(explain(shown, proposal))


SOURCES = tuple(MemoryLink(f"memory:{place}", "derived_from", 1.0, STORED) for place in range(3))


@pytest.mark.parametrize(
    ("shown", "why"),
    [
        (memory("user"), "Stored for the user by session session:s"),
        (memory("project", links=SOURCES), "Derived from 3 memories for the project on 2026-02-01."),
    ],
)
def test_where_a_memory_comes_from_is_told(shown: PortableMemory, why: str) -> None:
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


def test_a_proposal_is_told_with_its_reason_and_a_refusal_or_what_was_taken_back_with_its_day() -> None:
    proposal = Proposal("memory:m", "text", "preference", "it speaks of the user", 0.6, NOW)
    text = said(memory("project"), proposal=proposal)
    assert "Proposed to the user on" in text
    assert ": it speaks of the user. promote_memory accepts or refuses it." in text
    refused = msgspec.structs.replace(proposal, refused_at=NOW)
    assert "Not proposed to the user any more: that was refused on" in said(memory("project"), proposal=refused)
    refused = Proposal("memory:m", "text", "fact", "it was taken back from the user", None, NOW, refused_at=NOW)
    text = said(memory("project", history=(changed(3, "taken back"),)), proposal=refused)
    assert "Not proposed to the user any more: it was taken back from there on 2026-02-02." in text
    assert "refused" not in text


def changed(number: int, change: str, session_id: str = "", **details: str) -> HistoryEntry:
    snapshot = MemoryVersion(content="x", type="semantic", scope="project", session_id="session:s")
    return HistoryEntry(number, change, STORED, session_id, f"op {number}", snapshot, dict(details))


def test_a_forgotten_memory_is_said_to_be_restorable() -> None:
    text = said(memory("project", forgotten_at=NOW, forgotten_reason="outdated"))
    assert text.endswith("Forgotten on 2026-02-02 (outdated): recall leaves it out, and it can be restored.")


def test_a_day_is_one_of_the_zone_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "America/St_Johns")
    time.tzset()
    try:
        one_o_clock = datetime(2026, 2, 2, 1, tzinfo=UTC).timestamp()
        assert "Forgotten on 2026-02-01:" in said(memory("project", forgotten_at=one_o_clock))
        assert "Forgotten on 9999-12-31:" in said(memory("project", forgotten_at=253402300799.0))
    finally:
        monkeypatch.undo()
        time.tzset()


@given(scope=st.sampled_from(SCOPES), status=st.sampled_from(STATUSES), kind=st.sampled_from(KINDS))
def test_every_memory_has_sentences(scope: Scope, status: Any, kind: Any) -> None:
    sentences = explain(memory(scope, status=status, kind=kind), None)
    assert sentences
    assert all(sentence[0].isupper() or sentence.startswith("memory:") for sentence in sentences)
    assert all(sentence.endswith(".") for sentence in sentences)
