"""The statements by which a NATS server knows who is let in."""

from __future__ import annotations

import base64
import itertools
import json
import time
from typing import Any

import pytest

from remembrancer.journal.nats_accounts import USER, Authority, KeyPair


def claims(jwt: str) -> dict[str, Any]:
    """The content of a statement."""
    part = jwt.split(".")[1]
    said: dict[str, Any] = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    return said


def test_a_statement_with_one_more_who_is_revoked_is_newer_also_within_one_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
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
