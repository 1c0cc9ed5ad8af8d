"""CURVE keys for sockets that leave this host, and the allow-list of the peers that may connect (ZMTP CURVE, RFC 27).

Sockets on one host are Unix sockets in a private directory and need no keys.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import zmq
import zmq.asyncio
import zmq.auth
from zmq.auth.asyncio import AsyncioAuthenticator

from remembrancer.protocol.errors import ConfigurationError

KEY_CHARACTERS: Final = 40
ZAP_DOMAIN: Final = "remembrancer"
ZAP_ENDPOINT: Final = "inproc://zeromq.zap.01"


class CurveKeys:
    """One key pair, in Z85 text as ZeroMQ writes it (40 characters each)."""

    def __init__(self, public: bytes, secret: bytes) -> None:
        self.public = public
        self._secret = secret

    def __repr__(self) -> str:
        return f"CurveKeys(public={self.public!r})"

    @classmethod
    def load_or_create(cls, directory: Path, name: str) -> CurveKeys:
        """The pair `name` of a directory, made on first use. The secret's file has mode 0600.

        Raises:
            ConfigurationError: the secret's file can be read by others, or holds no key.
        """
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        secret_file = directory / f"{name}.key_secret"
        if not secret_file.exists():
            previous = os.umask(0o077)
            try:
                zmq.auth.create_certificates(directory, name)
            finally:
                os.umask(previous)
        if secret_file.stat().st_mode & 0o077:
            raise ConfigurationError(f"others can read {secret_file}: chmod 600 it, or delete it to make a new key")
        broken = ConfigurationError(f"{secret_file} holds no key pair: delete it to make a new one")
        try:
            public, secret = zmq.auth.load_certificate(secret_file)
        except ValueError as error:
            raise broken from error
        if secret is None or not len(public) == len(secret) == KEY_CHARACTERS:
            raise broken
        return cls(public, secret)

    def configure_server(self, socket: zmq.Socket[bytes]) -> None:
        """Make `socket` accept CURVE clients only. Whom it lets in is the `AllowList`'s to say; without one, nobody."""
        socket.curve_secretkey = self._secret
        socket.curve_publickey = self.public
        socket.curve_server = True
        socket.zap_domain = ZAP_DOMAIN.encode()
        socket.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)  # libzmq lets everyone in when no authenticator runs, but for this

    def configure_client(self, socket: zmq.Socket[bytes], server_key: bytes) -> None:
        """Make `socket` connect to the one server that has `server_key`."""
        socket.curve_secretkey = self._secret
        socket.curve_publickey = self.public
        socket.curve_serverkey = server_key


class AllowList:
    """The ZAP authenticator (RFC 27): only clients whose public key has a file in `directory` may connect.

    Use as a context manager around the servers' lifetime; start it before they bind.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._authenticator = AsyncioAuthenticator(zmq.asyncio.Context.instance())

    def __enter__(self) -> AllowList:
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            self._authenticator.start()
        except zmq.ZMQError:
            self._authenticator.stop()
            raise
        self.reload()
        return self

    def __exit__(self, *_: object) -> None:
        # A closed socket gives its address back some time later; this one, at once.
        self._authenticator.zap_socket.unbind(ZAP_ENDPOINT)
        self._authenticator.stop()

    def reload(self) -> None:
        """Read the directory again, after a key was added or taken away."""
        self._authenticator.configure_curve(domain=ZAP_DOMAIN, location=str(self._directory))
