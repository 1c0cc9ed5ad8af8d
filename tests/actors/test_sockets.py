import asyncio
import random
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path

import anyio
import msgspec
import pytest
import zmq
import zmq.asyncio

from remembrancer.protocol import sockets
from remembrancer.protocol.control import AskScale, AskStatus, EmbedderHealth, Ping, Stop, from_launcher, to_launcher
from remembrancer.protocol.errors import (
    ConfigurationError,
    DeadlineExceeded,
    Failure,
    PeerLost,
    PeerUnavailable,
    StorageFull,
    VersionMismatch,
)
from remembrancer.protocol.sockets import YIELD_AFTER, Dealer, Peer, Router, Speaker
from remembrancer.protocol.wire import PROTOCOL_VERSION, Envelope, encoder
from tests.patience import PATIENCE_S, until

ToService = EmbedderHealth | Failure | AskStatus | AskScale
ToClient = Ping | Stop | AskScale | Failure
to_client = msgspec.msgpack.Decoder(ToClient)


@pytest.fixture
def endpoint(tmp_path: Path) -> str:
    return f"ipc://{tmp_path / 's'}"


class Service:
    """Answers `AskScale` with the same number, never answers `AskStatus`, and breaks on a negative number."""

    def __init__(self, endpoint: str) -> None:
        self.heard: list[ToService] = []
        self.peers: list[Peer] = []
        self.router: Router[ToService] = Router(
            endpoint, Speaker("service", "01S"), msgspec.msgpack.Decoder(ToService), self._hear
        )

    def _hear(self, peer: Peer, envelope: Envelope, message: ToService) -> None:
        self.heard.append(message)
        self.peers.append(peer)
        if isinstance(message, AskScale):
            if message.embedders < 0:
                raise ZeroDivisionError("a fault in the service")
            self.router.send(peer, message.embedders, in_reply_to=envelope.message_id)


@asynccontextmanager
async def serving(endpoint: str) -> AsyncIterator[Service]:
    service = Service(endpoint)
    async with service.router:
        yield service


def client(endpoint: str, name: str = "client", **options: object) -> Dealer[ToClient]:
    return Dealer(endpoint, Speaker(name, "01C"), to_client, **options)  # type: ignore[arg-type]


async def test_a_request_is_answered_and_many_at_once_get_each_their_own(endpoint: str) -> None:
    async with serving(endpoint) as service, client(endpoint) as dealer:
        assert await dealer.wait_connected(PATIENCE_S)
        answers = await asyncio.gather(
            *(dealer.request(AskScale(number), timeout_s=PATIENCE_S) for number in range(200))
        )
        assert answers == list(range(200))
        assert {peer.name for peer in service.peers} == {"client"}
        assert {peer.incarnation for peer in service.peers} == {"01C"}


async def test_the_router_asks_and_gets_each_its_own_answer_or_the_refusal(endpoint: str) -> None:
    asked: list[tuple[int, ToClient]] = []
    dealer: Dealer[ToClient]
    async with serving(endpoint) as service:
        dealer = client(endpoint, on_message=lambda body: asked.append((dealer.heard.message_id, body)))
        async with dealer:
            assert await dealer.wait_connected(PATIENCE_S)
            dealer.send(EmbedderHealth())
            await until(lambda: bool(service.peers))
            questions = [AskScale(number) for number in range(3)]
            answers = [
                asyncio.ensure_future(service.router.ask(service.peers[0], each, timeout_s=PATIENCE_S))
                for each in questions
            ]
            await until(lambda: len(asked) == 3)
            for number, (message_id, question) in reversed(list(enumerate(asked))):
                refusal = Failure("storage_full", "no room")
                dealer.send(refusal if question == questions[1] else number, in_reply_to=message_id)
            assert (await answers[0], await answers[2]) == (0, 2)
            with pytest.raises(StorageFull, match="no room"):
                await answers[1]
            with pytest.raises(DeadlineExceeded):
                await service.router.ask(service.peers[0], questions[0], timeout_s=0.05)
        with pytest.raises(PeerUnavailable):
            await service.router.ask(Peer(b"never seen", "x", "x"), questions[0], timeout_s=PATIENCE_S)


async def test_a_request_to_nobody_fails_at_once(endpoint: str) -> None:
    async with client(endpoint) as dealer:
        with anyio.fail_after(PATIENCE_S), pytest.raises(PeerUnavailable):
            await dealer.request(AskScale(1), timeout_s=2 * PATIENCE_S)
        assert not dealer.send(EmbedderHealth())
        assert not dealer.connected
        assert not await dealer.wait_connected(0.01)
    assert not dealer.send(EmbedderHealth())


async def test_requests_in_flight_are_lost_when_the_router_closes_and_the_dealer_mends_itself(endpoint: str) -> None:
    connections: list[bool] = []
    async with client(endpoint, on_connection=connections.append) as dealer:
        for incarnation in range(3):
            async with serving(endpoint) as service:
                assert await dealer.wait_connected(PATIENCE_S)
                assert await dealer.request(AskScale(incarnation), timeout_s=PATIENCE_S) == incarnation
                hanging = asyncio.ensure_future(dealer.request(AskStatus(), timeout_s=2 * PATIENCE_S))
                await until(partial(service.heard.__contains__, AskStatus()))
            with anyio.fail_after(PATIENCE_S), pytest.raises(PeerLost):
                await hanging
            await until(lambda: not dealer.connected)
    assert connections == [True, False] * 3


async def test_closing_the_dealer_ends_its_requests_and_may_be_done_twice(endpoint: str) -> None:
    async with serving(endpoint) as service:
        dealer = client(endpoint)
        async with dealer:
            await dealer.wait_connected(PATIENCE_S)
            hanging = asyncio.ensure_future(dealer.request(AskStatus(), timeout_s=2 * PATIENCE_S))
            await until(lambda: AskStatus() in service.heard)
            await dealer.aclose()
            with anyio.fail_after(PATIENCE_S), pytest.raises(PeerLost):
                await hanging
        await dealer.aclose()
        await service.router.aclose()
        assert not service.router.send(Peer(b"x", "x", "x"), Ping())


def dropped(caplog: pytest.LogCaptureFixture) -> int:
    return sum(record.message == "frame dropped" for record in caplog.records)


async def test_what_is_past_its_deadline_is_not_done(endpoint: str, caplog: pytest.LogCaptureFixture) -> None:
    async with serving(endpoint) as service:
        with raw_dealer(endpoint) as raw:
            late = Envelope(PROTOCOL_VERSION, 1, "late", "01L", deadline=time.time() - 1)
            await send_raw(raw, [encoder.encode(late), encoder.encode(AskScale(1))])
            soon = Envelope(PROTOCOL_VERSION, 2, "soon", "01L", deadline=time.time() + PATIENCE_S)
            await send_raw(raw, [encoder.encode(soon), encoder.encode(AskScale(2))])
            await until(lambda: service.heard)
        assert service.heard == [AskScale(2)]
        assert dropped(caplog) == 0


async def test_a_peer_of_another_version_is_named_with_both(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(endpoint), client(endpoint) as dealer:
        assert await dealer.wait_connected(PATIENCE_S)
        monkeypatch.setattr(sockets, "PROTOCOL_VERSION", PROTOCOL_VERSION - 1)  # of all that is sent
        with pytest.raises(VersionMismatch, match=rf"version {PROTOCOL_VERSION - 1} .* version {PROTOCOL_VERSION}:"):
            await dealer.request(AskScale(1), timeout_s=PATIENCE_S)


def malformed(rng: random.Random) -> list[bytes]:
    envelope = encoder.encode(Envelope(PROTOCOL_VERSION, rng.randrange(100), "mad", "01M"))
    body = encoder.encode(AskScale(1))
    noise = rng.randbytes(rng.randrange(1, 60))
    at = rng.randrange(len(body))
    return rng.choice(
        [
            [noise],
            [noise, noise],
            [envelope],
            [envelope, noise],
            [noise, body],
            [envelope, body, body],
            [envelope] * rng.randrange(3, 9),
            [b"", b""],
            [envelope, b"\x81\xa1a" * 50_000],
            [b"\x91" * 50_000, body],
            [envelope, body[:at]],
            [envelope, encoder.encode({"type": "AskScale", "embedders": "\ud7ff many"})],
            [envelope, encoder.encode({"type": "AskScal\x00", "embedders": 1})],
            [envelope, b"\x81\xa4type\xa8\xff\xfe\xfd\xfcaaaa"],
            [envelope, encoder.encode({"type": "Recalled"})],
        ]
    )


async def test_the_router_drops_what_is_malformed(endpoint: str, caplog: pytest.LogCaptureFixture) -> None:
    rng = random.Random(5)
    async with serving(endpoint) as service:
        with raw_dealer(endpoint) as raw:
            for _ in range(300):
                await send_raw(raw, malformed(rng))
            good = [encoder.encode(Envelope(PROTOCOL_VERSION, 1, "d", "01D")), encoder.encode(AskScale(1))]
            await send_raw(raw, good)
            await until(lambda: service.heard)
        assert (service.heard, dropped(caplog)) == ([AskScale(1)], 300)


async def test_what_breaks_its_handler_makes_neither_side_deaf(endpoint: str, caplog: pytest.LogCaptureFixture) -> None:
    said: list[ToClient] = []

    def hear(message: ToClient) -> None:
        said.append(message)
        if len(said) == 1:
            raise ZeroDivisionError("a fault in the client")

    async with serving(endpoint) as service, client(endpoint, on_message=hear) as dealer:
        assert await dealer.wait_connected(PATIENCE_S)
        dealer.send(AskScale(-1))
        assert await dealer.request(AskScale(2), timeout_s=PATIENCE_S) == 2
        assert service.router.send(service.peers[0], Ping())
        assert service.router.send(service.peers[0], Ping())
        await until(lambda: len(said) == 2)
    assert sum(record.message == "a message failed" for record in caplog.records) == 2


async def test_a_flood_leaves_time_for_other_work(endpoint: str) -> None:
    heard = [0]
    """The messages at each turn of something else."""
    async with serving(endpoint) as service:
        with raw_dealer(endpoint) as raw:
            frames = [encoder.encode(Envelope(PROTOCOL_VERSION, 1, "x", "01X")), encoder.encode(EmbedderHealth())]
            for _ in range(4000):
                raw.send_multipart(frames)
            while heard[-1] < 4000:
                await asyncio.sleep(0)
                heard.append(len(service.heard))
    assert max(later - earlier for earlier, later in pairwise(heard)) <= 2 * YIELD_AFTER


LAST_WORDS = """
import os, sys, anyio
from remembrancer.protocol.control import from_launcher
from remembrancer.protocol.errors import Failure
from remembrancer.protocol.sockets import Dealer, Speaker, let_messages_leave

async def say() -> None:
    async with Dealer(sys.argv[1], Speaker("dying", "01D"), from_launcher) as dealer:
        await dealer.wait_connected(60)
        for _ in range(20):
            dealer.send(Failure("", "x" * 10_000))

anyio.run(say)
let_messages_leave()
os._exit(0)
"""


async def test_what_a_process_says_last_leaves_before_it_ends(endpoint: str) -> None:
    async with serving(endpoint) as service:
        await anyio.run_process([sys.executable, "-c", LAST_WORDS, endpoint], stderr=None)
        await until(lambda: len(service.heard) == 20)


async def test_nothing_crosses_a_network_in_the_clear() -> None:
    speaker = Speaker("a", "01A")
    with pytest.raises(ConfigurationError, match="in the clear"):
        async with Dealer("tcp://127.0.0.1:1", speaker, from_launcher):
            pass
    with pytest.raises(ConfigurationError, match="in the clear"):
        async with Router("tcp://127.0.0.1:*", speaker, to_launcher, lambda *_: None):
            pass


@contextmanager
def raw_dealer(endpoint: str) -> Iterator[zmq.Socket[bytes]]:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    raw = context.socket(zmq.DEALER)
    raw.setsockopt(zmq.SNDHWM, 0)
    raw.connect(endpoint)
    try:
        yield raw
    finally:
        context.destroy(linger=0)


async def send_raw(raw: zmq.Socket[bytes], frames: list[bytes]) -> None:
    raw.send_multipart(frames)
    await asyncio.sleep(0)
