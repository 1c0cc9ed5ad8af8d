"""The gateway's view of the store, and its attempts to reach it again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from remembrancer.protocol.errors import DeadlineExceeded, RemembrancerError
from remembrancer.protocol.sockets import Dealer, Peer, Reply, Router, Speaker
from remembrancer.protocol.store_client import StoreAvailability, StoreClient, StoreState
from remembrancer.protocol.wire import Envelope, encoder
from remembrancer.protocol.writes import BatchApplied, SubmitBatch
from tests.operations import to_store
from tests.patience import PATIENCE_S


def try_in_vain(health: StoreAvailability, times: int) -> tuple[list[float], list[StoreState]]:
    """The pauses before so many attempts without an answer, and the state after each."""
    pauses, states = [], []
    for _ in range(times):
        pauses.append(health.plan_attempt())
        health.note_attempt()
        health.note_silence()
        states.append(health.state)
    return pauses, states


def test_a_new_connection_is_trusted_once_it_has_answered_and_a_silent_store_tried_more_rarely() -> None:
    health = StoreAvailability()
    states: list[StoreState] = [health.state]
    for event in (health.note_connection, health.note_answer, health.note_connection):
        event()
        states.append(health.state)
    assert states == ["reconnecting", "reconnecting", "connected", "reconnecting"]
    health = StoreAvailability()
    health.note_answer()
    health.note_silence()
    assert health.state == "away"
    pauses, states = try_in_vain(health, 7)
    assert pauses == [0.0, 1.0, 2.0, 4.0, 8.0, 30.0, 30.0]
    assert states == ["away"] * 4 + ["degraded"] * 3
    health = StoreAvailability()
    try_in_vain(health, 6)
    health.note_connection()
    assert (health.state, health.plan_attempt(), health.attempts) == ("reconnecting", 0.0, 0)
    health = StoreAvailability()
    try_in_vain(health, 6)
    health.note_answer()
    assert (health.state, health.attempts, health.has_answered) == ("connected", 0, True)
    health.note_silence()
    assert (health.state, health.plan_attempt()) == ("away", 0.0)


async def test_a_request_knows_its_sizes_and_builds_no_error_in_case_it_is_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[RemembrancerError] = []
    make = RemembrancerError.__init__

    def noting(error: RemembrancerError, *arguments: Any, **named: Any) -> None:
        built.append(error)
        make(error, *arguments, **named)

    monkeypatch.setattr(RemembrancerError, "__init__", noting)
    endpoint = f"ipc://{tmp_path}/store"

    def answer(peer: Peer, envelope: Envelope, _: Any) -> None:
        store.send(peer, BatchApplied(()), in_reply_to=envelope.message_id)

    store = Router(endpoint, Speaker("store", "one"), to_store, answer)
    async with store, StoreClient(endpoint, Speaker("gateway", "one")) as client:
        assert await client.wait_connected(PATIENCE_S)
        size_bytes = len(encoder.encode(BatchApplied(())))
        assert await client.fetch(SubmitBatch(()), PATIENCE_S) == (BatchApplied(()), size_bytes, ())
    assert built == []


class Played:
    """A connection whose other end answers at once, or not in time: as `slow` says."""

    def __init__(self) -> None:
        self.slow = False

    async def exchange(self, _: object, *, timeout_s: float) -> Reply[BatchApplied]:
        if self.slow:
            await anyio.sleep(timeout_s)
            raise DeadlineExceeded("not in time")
        return Reply(BatchApplied(()), 1)


async def test_a_store_that_answers_others_meanwhile_is_not_away_for_one_slow_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client, played = StoreClient("ipc:///nowhere", Speaker("gateway", "one")), Played()
    monkeypatch.setattr(Dealer, "exchange", played.exchange)
    await client.request(SubmitBatch(()), 1.0)

    async def ask_in_vain() -> None:
        with pytest.raises(DeadlineExceeded):
            await client.request(SubmitBatch(()), 0.05)

    async with anyio.create_task_group() as tasks:
        played.slow = True
        tasks.start_soon(ask_in_vain)
        await anyio.lowlevel.checkpoint()
        await anyio.lowlevel.checkpoint()
        played.slow = False
        await client.request(SubmitBatch(()), 1.0)
    assert client.health.usable
    played.slow = True
    await ask_in_vain()
    assert not client.health.usable, "nothing has been heard of it since it was asked"
