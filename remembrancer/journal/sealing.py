"""Encrypts everything that a host sends to the journal: its server sees only sizes, times, and the ids of operations.

AES-256-GCM with the key of the lane (NIST SP 800-38D). A seal consists of a version, the id of the key, a random nonce
of 96 bits and the ciphertext with its tag. The seal's context (the lane, and the id of the entry) is authenticated,
too, so a server cannot swap entries. A key can make 2^32 seals with random nonces: one per second for 136 years.
"""

import hashlib
import os
import secrets
import struct
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final, Self

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from remembrancer.journal.contract import Entry, EntryPage, Journal, LaneMark, LaneSnapshot, NewEntry
from remembrancer.protocol.errors import EntryDamaged, KeyMissing

KEY_BYTES: Final = 32
_VERSION: Final = b"\x01"
_KEY_ID_BYTES: Final = 8
_NONCE_BYTES: Final = 12
_TAG_BYTES: Final = 16
SEAL_BYTES: Final = len(_VERSION) + _KEY_ID_BYTES + _NONCE_BYTES + _TAG_BYTES
KEYS_FOR: Final = "keys-for-"
"""The prefix of notices that deliver a lane's new keys to a member, sealed with the member's secret."""


class Keyring(msgspec.Struct, frozen=True):
    """The keys of a lane by id, and the id of the key used for sealing."""

    keys: dict[str, bytes]
    current: str

    @classmethod
    def new(cls, older: Self | None = None) -> Self:
        key = secrets.token_bytes(KEY_BYTES)
        return cls({**(older.keys if older else {}), key_id(key): key}, key_id(key))


_decode_keys: Final = msgspec.msgpack.Decoder(Keyring).decode


def key_id(key: bytes) -> str:
    """Reveals nothing about the key."""
    return hashlib.sha256(b"remembrancer key id\0" + key).hexdigest()[: 2 * _KEY_ID_BYTES]


def seal(keyring: Keyring, plain: bytes, *belongs_to: str) -> bytes:
    """Encrypt bytes. They can be unsealed only with the same context `belongs_to`."""
    nonce = os.urandom(_NONCE_BYTES)
    header = _VERSION + bytes.fromhex(keyring.current)
    sealed = AESGCM(keyring.keys[keyring.current]).encrypt(nonce, plain, header + _joined(belongs_to))
    return header + nonce + sealed


def unseal(keyring: Keyring, sealed: bytes, *belongs_to: str) -> bytes:
    """Raises `EntryDamaged` or `KeyMissing`."""
    if len(sealed) < SEAL_BYTES or sealed[:1] != _VERSION:
        raise EntryDamaged("it is not sealed, or was sealed by a newer release")
    header, rest = sealed[: 1 + _KEY_ID_BYTES], sealed[1 + _KEY_ID_BYTES :]
    key = keyring.keys.get(header[1:].hex())
    if key is None:
        raise KeyMissing("its key has not reached this host: if it never arrives, join again with a new invitation")
    try:
        return AESGCM(key).decrypt(rest[:_NONCE_BYTES], rest[_NONCE_BYTES:], header + _joined(belongs_to))
    except InvalidTag as error:
        raise EntryDamaged("its seal is broken: it was changed, or belongs elsewhere") from error


def _joined(parts: Sequence[str]) -> bytes:
    """Join the parts unambiguously."""
    encoded = [part.encode() for part in parts]
    return b"".join(struct.pack(">I", len(part)) + part for part in encoded)


class Sealed:
    """`on_keys` saves new keys, which are delivered to this `member` sealed with its `secret`."""

    def __init__(
        self,
        journal: Journal,
        keyring: Keyring,
        *,
        member: str = "",
        secret: bytes = b"",
        on_keys: Callable[[Keyring], None] = lambda _: None,
    ) -> None:
        self._journal = journal
        self._keyring = keyring
        self._member = member
        self._secret = secret
        self._on_keys = on_keys
        self.create, self.head = journal.create, journal.head
        self.watch, self.purge = journal.watch, journal.purge
        self.snapshots, self.drop_snapshot, self.aclose = journal.snapshots, journal.drop_snapshot, journal.aclose

    async def append(self, lane: str, entries: Sequence[NewEntry], *, behind: LaneMark) -> LaneMark:
        sealed = [NewEntry(entry.id, seal(self._keyring, entry.body, "entry", lane, entry.id)) for entry in entries]
        return await self._journal.append(lane, sealed, behind=behind)

    async def read(self, lane: str, *, after: LaneMark, limit: int = 1000) -> EntryPage:
        page = await self._journal.read(lane, after=after, limit=limit)
        opened: list[Entry] = []
        for entry in page.entries:
            try:
                body = await self._open(lane, entry.body, "entry", lane, entry.id)
            except (EntryDamaged, KeyMissing) as error:
                if opened:
                    mark = LaneMark(page.mark.journal, opened[-1].position, opened[-1].id)
                    return EntryPage(tuple(opened), mark, page.head)
                raise type(error)(f"the entry at position {entry.position}: {error.message}") from error
            opened.append(Entry(entry.position, entry.id, body, entry.at))
        return EntryPage(tuple(opened), page.mark, page.head)

    async def put_snapshot(self, lane: str, mark: LaneMark, content: bytes) -> LaneSnapshot:
        sealed = seal(self._keyring, content, *_of_snapshot(lane, mark))
        return await self._journal.put_snapshot(lane, mark, sealed)

    async def get_snapshot(self, lane: str, snapshot: LaneSnapshot) -> bytes:
        sealed = await self._journal.get_snapshot(lane, snapshot)
        return await self._open(lane, sealed, *_of_snapshot(lane, snapshot.mark))

    async def notify(self, lane: str, host: str, body: bytes) -> None:
        await self._journal.notify(lane, host, seal(self._keyring, body, "notice", lane, host))

    async def notices(self, lane: str) -> Mapping[str, bytes]:
        """The notices that can be opened. The others are not meant for this host."""
        opened = {}
        for host, notice in (await self._journal.notices(lane)).items():
            if not host.startswith(KEYS_FOR):
                with suppress(EntryDamaged, KeyMissing):
                    opened[host] = await self._open(lane, notice, "notice", lane, host)
        return opened

    async def hand_keys(self, lane: str, keyring: Keyring, secrets_of: Mapping[str, bytes]) -> None:
        """Deliver a new keyring to members, sealed for each with its own secret, and use it from now on."""
        for member, secret in secrets_of.items():
            own = Keyring({key_id(secret): secret}, key_id(secret))
            body = seal(own, msgspec.msgpack.encode(keyring), "keys", lane, member)
            await self._journal.notify(lane, KEYS_FOR + member, body)
        self._keyring = keyring
        self._on_keys(keyring)

    async def _open(self, lane: str, sealed: bytes, *belongs_to: str) -> bytes:
        try:
            return unseal(self._keyring, sealed, *belongs_to)
        except KeyMissing:
            await self._fetch_keys(lane)
        return unseal(self._keyring, sealed, *belongs_to)

    async def _fetch_keys(self, lane: str) -> None:
        brought = (await self._journal.notices(lane)).get(KEYS_FOR + self._member) if self._secret else None
        if brought is None:
            return
        own = Keyring({key_id(self._secret): self._secret}, key_id(self._secret))
        try:
            keyring = _decode_keys(unseal(own, brought, "keys", lane, self._member))
        except (EntryDamaged, KeyMissing, msgspec.DecodeError):
            return  # they are for another host
        self._keyring = Keyring({**self._keyring.keys, **keyring.keys}, keyring.current)
        self._on_keys(self._keyring)


def _of_snapshot(lane: str, mark: LaneMark) -> tuple[str, ...]:
    return ("snapshot", lane, mark.journal, str(mark.position), mark.entry_id)
