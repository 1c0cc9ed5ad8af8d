"""Receiving on a plain ZeroMQ socket from the event loop: nothing is missed, nobody is starved, nothing outlives it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import anyio
import pytest
import zmq

from remembrancer.protocol.sockets import BREATHE_AFTER, SocketReader
from tests.patience import until

Pair = tuple[zmq.Socket[bytes], zmq.Socket[bytes]]


@pytest.fixture
def pair() -> Iterator[Pair]:
    """Two sockets that are connected with each other."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    left, right = context.socket(zmq.PAIR), context.socket(zmq.PAIR)
    left.bind("inproc://pair")
    right.connect("inproc://pair")
    yield left, right
    left.close(0)
    right.close(0)
    context.term()


async def test_what_was_there_before_and_what_comes_later_is_taken_in_order(pair: Pair) -> None:
    taken: list[list[bytes]] = []
    pair[1].send_multipart([b"before", b"1"])
    reader = SocketReader(pair[0], taken.append)
    await until(lambda: len(taken) == 1)
    for number in range(3 * BREATHE_AFTER):
        pair[1].send(b"%d" % number)
    await until(lambda: len(taken) == 1 + 3 * BREATHE_AFTER)
    reader.close()
    assert taken == [[b"before", b"1"], *([b"%d" % number] for number in range(3 * BREATHE_AFTER))]


async def test_what_arrives_while_the_socket_is_asked_for_something_else_is_taken_after_a_look(pair: Pair) -> None:
    taken: list[list[bytes]] = []
    reader = SocketReader(pair[0], taken.append)
    await asyncio.sleep(0)
    for number in range(100):
        pair[1].send(b"%d" % number)
        pair[0].send(b"answer", zmq.NOBLOCK)  # which takes the news of the arrival away
        reader.look()
    await until(lambda: len(taken) == 100)
    reader.close()


async def test_after_its_end_nothing_is_taken_also_when_it_ends_in_the_middle(pair: Pair) -> None:
    taken: list[list[bytes]] = []

    def take(frames: list[bytes]) -> None:
        taken.append(frames)
        reader.close()
        reader.close()

    for _ in range(5):
        pair[1].send(b"x")
    reader = SocketReader(pair[0], take)
    await until(lambda: bool(taken))
    pair[1].send(b"late")
    reader.look()
    with anyio.move_on_after(0.05):
        await until(lambda: len(taken) > 1)
    assert len(taken) == 1
