"""The conversation of a command or a hook with the gateway."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from contextlib import closing

import pytest

from remembrancer.actors.bridge.places import Places
from remembrancer.commands.gateway_client import GatewayClient
from tests.patience import PATIENCE_S


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def say(gateway: socket.socket, number: int) -> None:
    answer = {"id": number, "result": {"structuredContent": {"said": number}}}
    gateway.sendall(json.dumps(answer).encode() + b"\n")


def test_an_answer_that_is_there_when_its_time_has_passed_is_not_taken(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    """So it is when this process had no processor between its question and the answer."""
    ours, gateway = ends
    there = Places("/h", "/h/run/gateway.sock")
    with closing(GatewayClient(ours, there, "session", "/somewhere", {}, "a hook")) as client:
        say(gateway, 1)
        assert client.call("get_memory_context", {}, time.monotonic() + PATIENCE_S) == {"said": 1}
        say(gateway, 2)
        with pytest.raises(TimeoutError, match="in time"):
            client.call("get_memory_context", {}, time.monotonic())


def test_nothing_is_asked_for_after_its_time(ends: tuple[socket.socket, socket.socket]) -> None:
    """Else the session would count as having been shown the answer."""
    ours, gateway = ends
    there = Places("/h", "/h/run/gateway.sock")
    with closing(GatewayClient(ours, there, "session", "/somewhere", {}, "a hook")) as client:
        with pytest.raises(TimeoutError, match="in time"):
            client.call("get_memory_context", {}, time.monotonic())
        assert b"tools/call" not in gateway.recv(65_536)
