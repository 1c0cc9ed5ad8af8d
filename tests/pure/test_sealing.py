"""Seals and statements: who has the key reads, in its place alone, and who is let in."""

import base64
import itertools
import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remembrancer.journal.contract import START, NewEntry
from remembrancer.journal.nats_accounts import USER, Authority, KeyPair
from remembrancer.journal.sealing import SEAL_BYTES, Keyring, Sealed, seal, unseal
from remembrancer.protocol.errors import EntryDamaged, KeyMissing
from tests.in_process_journal import InProcessJournal, InProcessServer

KEYS = Keyring.new()


@given(plain=st.binary(max_size=200), place=st.lists(st.text(max_size=5), max_size=3))
def test_a_seal_opens_to_the_same_bytes_and_tells_nothing(plain: bytes, place: list[str]) -> None:
    sealed = seal(KEYS, plain, *place)
    assert unseal(KEYS, sealed, *place) == plain
    assert len(sealed) == len(plain) + SEAL_BYTES
    assert len(plain) < 4 or plain not in sealed
    assert seal(KEYS, plain, *place) != sealed


@given(plain=st.binary(max_size=50), at=st.integers(min_value=0), bit=st.integers(0, 7))
def test_no_bit_of_a_seal_can_be_changed(plain: bytes, at: int, bit: int) -> None:
    sealed = bytearray(seal(KEYS, plain, "entry", "lane", "id"))
    sealed[at % len(sealed)] ^= 1 << bit
    with pytest.raises((EntryDamaged, KeyMissing)):
        unseal(KEYS, bytes(sealed), "entry", "lane", "id")


@pytest.mark.parametrize(
    "elsewhere",
    [("entry", "other", "id"), ("entry", "lane", "other"), ("entry", "lanei", "d"), ("notice", "lane", "id")],
)
def test_a_seal_opens_in_its_own_place_alone(elsewhere: tuple[str, ...]) -> None:
    with pytest.raises(EntryDamaged):
        unseal(KEYS, seal(KEYS, b"body", "entry", "lane", "id"), *elsewhere)


def test_a_key_that_is_missing_is_told_from_damage() -> None:
    newer = Keyring.new(KEYS)
    assert unseal(newer, seal(KEYS, b"body")) == b"body"
    with pytest.raises(KeyMissing):
        unseal(KEYS, seal(newer, b"body"))
    for damaged in (b"", seal(KEYS, b"body")[: SEAL_BYTES - 1], b"plain text that was never sealed by anybody"):
        with pytest.raises(EntryDamaged):
            unseal(KEYS, damaged)


async def test_the_server_sees_nothing_of_what_is_said() -> None:
    server = InProcessServer()
    journal = Sealed(InProcessJournal(server), KEYS)
    mark = await journal.append("shop", [NewEntry("op-1", b"the secret")], behind=await journal.create("shop"))
    await journal.notify("shop", "desk", b"the secret")
    snapshot = await journal.put_snapshot("shop", mark, b"the secret")
    stored = server.lanes["shop"]
    bodies = stored.entries[1].body, stored.notices["desk"], stored.snapshots[snapshot.name][1]
    assert all(b"secret" not in body for body in bodies)
    assert await journal.get_snapshot("shop", snapshot) == b"the secret"
    stored.snapshots[snapshot.name] = snapshot, seal(KEYS, b"another lane's", "snapshot", "lane")
    with pytest.raises(EntryDamaged):
        await journal.get_snapshot("shop", snapshot)
    assert (await journal.read("shop", after=START)).mark == mark


# --- The statements by which a NATS server knows who is let in.
def claims(jwt: str) -> dict[str, Any]:
    part = jwt.split(".")[1]
    said: dict[str, Any] = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    return said


def test_a_statement_with_one_more_revoked_is_newer_also_in_one_second(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: 1_800_000_000.5)
    authorities = [Authority.new()]
    users = [KeyPair.new(USER) for _ in range(3)]
    signed_at = [claims(authorities[0].user("a", [], [], key=user))["iat"] for user in users]
    for user in users:
        authorities.append(authorities[-1].revoking(user.public))
    said = [claims(authority.account_jwt()) for authority in authorities]
    assert all(older["iat"] < newer["iat"] for older, newer in itertools.pairwise(said))
    revocations = said[-1]["nats"]["revocations"]
    assert all(revocations[user.public] >= at for user, at in zip(users, signed_at, strict=True))
