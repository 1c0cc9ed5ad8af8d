"""Errors: one tree, one code each, and the same thing on both sides of the wire."""

from __future__ import annotations

import msgspec
import pytest

from remembrancer.protocol import errors
from remembrancer.protocol.errors import Failure, InternalError, RemembrancerError, from_failure


def every_kind() -> list[type[RemembrancerError]]:
    found: list[type[RemembrancerError]] = []
    kinds = [RemembrancerError]
    while kinds:
        kind = kinds.pop()
        found.append(kind)
        kinds.extend(kind.__subclasses__())
    return [kind for kind in found if kind is not RemembrancerError and kind.__module__ == errors.__name__]


@pytest.mark.parametrize("kind", every_kind(), ids=lambda kind: kind.__name__)
def test_an_error_is_the_same_after_its_journey(kind: type[RemembrancerError]) -> None:
    failure = kind("what to do", field="content", details={"limit_bytes": 5}).to_failure()
    travelled = msgspec.msgpack.decode(msgspec.msgpack.encode(failure), type=Failure)
    returned = from_failure(travelled)
    assert type(returned) is kind
    assert (returned.message, returned.field, returned.code) == ("what to do", "content", kind.code)
    assert returned.details == {"limit_bytes": 5}
    assert returned.to_failure() == failure
    assert str(returned) == "what to do"


def test_a_code_of_another_release_becomes_an_internal_error_with_its_message() -> None:
    returned = from_failure(Failure("code_of_tomorrow", "what happened"))
    assert type(returned) is InternalError
    assert returned.message == "what happened"
