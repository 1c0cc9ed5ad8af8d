"""NATS keys and signed permissions: an operator signs accounts, and an account signs users. A server knows only the
operator's public key, so adding and removing members does not change its configuration. Formats: docs.nats.io, "JWT
authentication" (JWT version 2) and "NKeys" (Ed25519, base32 with a CRC-16)."""

import base64
import binascii
import json
import secrets
import time
from collections.abc import Mapping, Sequence
from typing import Final, Self

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from remembrancer.protocol.errors import InvalidInput

OPERATOR: Final = 14 << 3
ACCOUNT: Final = 0
USER: Final = 20 << 3
_SEED: Final = 18 << 3
_SEED_BYTES: Final = 32
_UNLIMITED: Final = -1
_LIMITS: Final[Mapping[str, object]] = {
    "wildcards": True,
    **dict.fromkeys(("subs", "data", "payload", "imports", "exports", "conn", "leaf"), _UNLIMITED),
}


class KeyPair:
    """An Ed25519 key of a given kind."""

    def __init__(self, seed: str) -> None:
        try:
            raw = base64.b32decode(seed + "=" * (-len(seed) % 8))
            self._private = Ed25519PrivateKey.from_private_bytes(raw[2:-2])
        except ValueError as error:
            raise InvalidInput("the key of the invitation is damaged; copy the whole invitation again") from error
        self.seed, kind = seed, (raw[0] & 7) << 5 | raw[1] >> 3
        public = self._private.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
        self.public = _encoded(bytes([kind]) + public)

    @classmethod
    def new(cls, kind: int) -> Self:
        return cls(_encoded(bytes([_SEED | kind >> 5, (kind & 31) << 3]) + secrets.token_bytes(_SEED_BYTES)))

    @property
    def inbox(self) -> str:
        """Only this user may subscribe to it."""
        return f"_INBOX_{self.public}"

    def answer(self, challenge: str) -> bytes:
        """Sign a server's challenge in the form that clients send."""
        return base64.b64encode(self._private.sign(challenge.encode()))

    def claim(self, subject: str, name: str, rights: Mapping[str, object], *, at: int | None = None) -> str:
        """A signed statement (JWT) about the holder of a public key."""
        claims = {
            "jti": secrets.token_hex(16),
            "iat": int(time.time()) if at is None else at,
            "iss": self.public,
            "name": name,
            "sub": subject,
            "nats": {"version": 2, **rights},
        }
        unsigned = f"{_part({'typ': 'JWT', 'alg': 'ed25519-nkey'})}.{_part(claims)}"
        return f"{unsigned}.{_url(self._private.sign(unsigned.encode()))}"


class Revocation(msgspec.Struct, frozen=True):
    """Statements issued before `at` (seconds since the epoch) are invalid."""

    user: str
    at: int


class Authority(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A server administrator's keys: for the operator, the account of all lanes, and the server's own account."""

    operator_seed: str
    account_seed: str
    system_seed: str
    revoked: tuple[Revocation, ...] = ()

    @classmethod
    def new(cls) -> Self:
        return cls(KeyPair.new(OPERATOR).seed, KeyPair.new(ACCOUNT).seed, KeyPair.new(ACCOUNT).seed)

    def operator_jwt(self) -> str:
        operator = KeyPair(self.operator_seed)
        rights = {"type": "operator", "system_account": self.system_account}
        return operator.claim(operator.public, "remembrancer", rights)

    @property
    def system_account(self) -> str:
        return KeyPair(self.system_seed).public

    def account_jwt(self) -> str:
        """Dated later than one with fewer revoked users: of two from the same second, servers may keep either."""
        limits = {**_LIMITS, "disk_storage": _UNLIMITED, "streams": _UNLIMITED, "consumer": _UNLIMITED}
        rights = {"type": "account", "limits": limits, "revocations": {each.user: each.at for each in self.revoked}}
        account = KeyPair(self.account_seed).public
        return KeyPair(self.operator_seed).claim(account, "lanes", rights, at=self._newest())

    def revoking(self, user: str) -> Self:
        return msgspec.structs.replace(self, revoked=(*self.revoked, Revocation(user, self._newest() + 1)))

    def _newest(self) -> int:
        return max([int(time.time()), *(each.at for each in self.revoked)])

    def system_jwt(self) -> str:
        rights = {"type": "account", "limits": _LIMITS}
        return KeyPair(self.operator_seed).claim(self.system_account, "system", rights)

    def user(
        self, name: str, publishes: Sequence[str], hears: Sequence[str], *, key: KeyPair, of_system: bool = False
    ) -> str:
        """A statement about a user, by the account of all lanes or by the server's own account."""
        unlimited = dict.fromkeys(("subs", "data", "payload"), _UNLIMITED)
        rights = {"type": "user", "pub": {"allow": list(publishes)}, "sub": {"allow": list(hears)}, **unlimited}
        return KeyPair(self.system_seed if of_system else self.account_seed).claim(key.public, name, rights)


def _encoded(raw: bytes) -> str:
    return base64.b32encode(raw + binascii.crc_hqx(raw, 0).to_bytes(2, "little")).decode().rstrip("=")


def _part(content: Mapping[str, object]) -> str:
    return _url(json.dumps(content, separators=(",", ":")).encode())


def _url(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")
