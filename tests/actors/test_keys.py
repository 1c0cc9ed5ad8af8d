"""Sockets that leave the host: CURVE over TCP, and only the listed ones get in."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
import zmq
import zmq.auth

from remembrancer.protocol.control import AskScale, AskStatus, Scaled, ToCommand, ToLauncher
from remembrancer.protocol.errors import ConfigurationError, PeerUnavailable
from remembrancer.protocol.sockets import AllowList, CurveKeys, Dealer, Peer, Router, Speaker
from remembrancer.protocol.wire import Envelope, to_command, to_launcher
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def serving(keys: CurveKeys, port: int) -> AsyncIterator[str]:
    """A service on the loopback that answers everything with `Scaled(1)`; its endpoint."""

    def hear(peer: Peer, envelope: Envelope, message: ToLauncher) -> None:
        router.send(peer, Scaled(1), in_reply_to=envelope.message_id)

    endpoint = f"tcp://127.0.0.1:{port}"
    router: Router[ToLauncher] = Router(endpoint, Speaker("service", "01S"), to_launcher, hear, keys=keys)
    async with router:
        yield endpoint


def client(endpoint: str, keys: CurveKeys, server: CurveKeys) -> Dealer[ToCommand]:
    return Dealer(endpoint, Speaker("client", "01C"), to_command, keys=keys, server_key=server.public)


@pytest.fixture
def port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        number: int = probe.getsockname()[1]
        return number


@pytest.fixture
def server(tmp_path: Path) -> CurveKeys:
    return CurveKeys.load_or_create(tmp_path / "server", "server")


async def test_a_listed_client_gets_through_and_an_unlisted_one_does_not(
    tmp_path: Path, server: CurveKeys, port: int
) -> None:
    listed = CurveKeys.load_or_create(tmp_path / "allowed", "friend")
    stranger = CurveKeys.load_or_create(tmp_path / "elsewhere", "stranger")
    with AllowList(tmp_path / "allowed"):
        async with serving(server, port) as endpoint:
            async with client(endpoint, listed, server) as dealer:
                assert await dealer.wait_connected(PATIENCE_S)
                assert await dealer.request(AskScale(1), timeout_s=PATIENCE_S) == Scaled(1)
            async with client(endpoint, stranger, server) as dealer:
                assert not await dealer.wait_connected(0.5)
                with pytest.raises(PeerUnavailable):
                    await dealer.request(AskStatus(), timeout_s=1)


async def test_a_key_that_is_added_or_taken_away_counts_after_a_reload(
    tmp_path: Path, server: CurveKeys, port: int
) -> None:
    keys = CurveKeys.load_or_create(tmp_path / "mine", "me")
    with AllowList(tmp_path / "allowed") as allowed:
        async with serving(server, port) as endpoint:
            public = tmp_path / "allowed" / "me.key"
            public.write_bytes((tmp_path / "mine" / "me.key").read_bytes())
            allowed.reload()
            async with client(endpoint, keys, server) as dealer:
                assert await dealer.wait_connected(PATIENCE_S)
            public.unlink()
            allowed.reload()
            async with client(endpoint, keys, server) as dealer:
                assert not await dealer.wait_connected(0.5)


async def test_one_allow_list_may_follow_another_at_once_and_two_do_not_stand_side_by_side(tmp_path: Path) -> None:
    for _ in range(50):
        with AllowList(tmp_path / "allowed"):
            pass
    with AllowList(tmp_path / "allowed"), pytest.raises(zmq.ZMQError), AllowList(tmp_path / "allowed"):
        pass


async def test_without_an_allow_list_nobody_gets_in(tmp_path: Path, server: CurveKeys, port: int) -> None:
    keys = CurveKeys.load_or_create(tmp_path / "mine", "me")
    async with serving(server, port) as endpoint, client(endpoint, keys, server) as dealer:
        assert not await dealer.wait_connected(0.5)


async def test_a_client_that_takes_another_for_the_server_does_not_talk_to_it(
    tmp_path: Path, server: CurveKeys, port: int
) -> None:
    keys = CurveKeys.load_or_create(tmp_path / "allowed", "friend")
    impostor = CurveKeys.load_or_create(tmp_path / "impostor", "server")
    with AllowList(tmp_path / "allowed"):
        async with serving(impostor, port) as endpoint, client(endpoint, keys, server) as dealer:
            assert not await dealer.wait_connected(0.5)


async def test_a_client_without_curve_is_not_heard(tmp_path: Path, server: CurveKeys, port: int) -> None:
    with AllowList(tmp_path / "allowed"), zmq.Context() as context:
        async with serving(server, port) as endpoint:
            with context.socket(zmq.DEALER) as plain:
                plain.setsockopt(zmq.LINGER, 0)
                plain.connect(endpoint)
                plain.send_multipart([b"a", b"b"])
                assert not await anyio.to_thread.run_sync(plain.poll, 300)


async def test_a_curve_client_needs_the_servers_key(server: CurveKeys) -> None:
    dealer: Dealer[ToCommand] = Dealer("tcp://127.0.0.1:1", Speaker("c", "01C"), to_command, keys=server)
    with pytest.raises(ConfigurationError, match="public key"):
        async with dealer:
            pass


def test_a_pair_is_made_once_with_a_secret_that_only_its_owner_reads(tmp_path: Path) -> None:
    keys = CurveKeys.load_or_create(tmp_path / "keys", "me")
    again = CurveKeys.load_or_create(tmp_path / "keys", "me")
    assert again.public == keys.public
    assert (tmp_path / "keys").stat().st_mode & 0o777 == 0o700
    secret_file = tmp_path / "keys" / "me.key_secret"
    assert secret_file.stat().st_mode & 0o777 == 0o600
    _, secret = zmq.auth.load_certificate(secret_file)
    assert secret is not None
    assert secret.decode() not in repr(keys)
    assert secret.decode() not in str(keys)
    assert secret.decode() not in (tmp_path / "keys" / "me.key").read_text()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"garbage \xff\xfe",
        b'curve\n    public-key = "short"\n    secret-key = "short"\n',
        b'curve\n    public-key = "' + b"a" * 40 + b'"\n',
    ],
)
def test_a_secret_that_is_no_key_pair_is_an_error_that_says_what_to_do(tmp_path: Path, content: bytes) -> None:
    secret_file = tmp_path / "me.key_secret"
    secret_file.write_bytes(content)
    secret_file.chmod(0o600)
    with pytest.raises(ConfigurationError, match="delete it"):
        CurveKeys.load_or_create(tmp_path, "me")
    assert secret_file.read_bytes() == content


def test_a_secret_that_others_can_read_is_refused(tmp_path: Path) -> None:
    CurveKeys.load_or_create(tmp_path, "me")
    (tmp_path / "me.key_secret").chmod(0o640)
    with pytest.raises(ConfigurationError, match="chmod 600"):
        CurveKeys.load_or_create(tmp_path, "me")
