"""The envelope: what goes in comes out, and bytes that are no envelope are refused and nothing worse."""

from __future__ import annotations

import contextlib

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from remembrancer.protocol.errors import Failure, FrameRejected, VersionMismatch
from remembrancer.protocol.wire import PROTOCOL_VERSION, Envelope, Request, answer_decoder, decode_envelope, encoder
from remembrancer.protocol.work import EmbedQuery
from tests.operations import questions

envelopes = st.builds(
    Envelope,
    version=st.just(PROTOCOL_VERSION),
    message_id=st.integers(0, 2**63),
    sender=st.text(max_size=20),
    incarnation=st.text(max_size=26),
    deadline=st.none() | st.floats(allow_nan=False),
    in_reply_to=st.none() | st.integers(0, 2**63),
)


@given(envelopes)
def test_an_envelope_survives_its_journey(envelope: Envelope) -> None:
    assert decode_envelope(encoder.encode(envelope)) == envelope


@given(st.binary(max_size=200))
@example(b"")
@example(b"\x91" * 100_000)  # nested deeper than a decoder goes
@example(b"\xdd\xff\xff\xff\xff")  # says that four thousand million elements follow
@example(msgspec.msgpack.encode([PROTOCOL_VERSION, 1, "name", "x"]).replace(b"name", b"\xff\xfe\xfd\xfc"))
def test_any_bytes_are_an_envelope_or_are_refused(frame: bytes) -> None:
    try:
        envelope = decode_envelope(frame)
    except (FrameRejected, VersionMismatch):
        return
    assert envelope.version == PROTOCOL_VERSION


@given(envelopes, st.binary(min_size=1, max_size=8), st.integers(0, 60))
def test_damage_to_an_envelope_is_refused_and_nothing_worse(envelope: Envelope, damage: bytes, place: int) -> None:
    frame = encoder.encode(envelope)
    at = place % len(frame)
    damaged = frame[:at] + damage + frame[at + len(damage) :]
    with contextlib.suppress(FrameRejected, VersionMismatch):
        decode_envelope(damaged)


@given(st.integers(-(2**63), 2**64 - 1).filter(lambda version: version != PROTOCOL_VERSION), st.lists(st.text()))
def test_any_other_version_is_refused_by_name_whatever_follows_it(version: int, rest: list[str]) -> None:
    with pytest.raises(VersionMismatch, match=rf"version {version} .* version {PROTOCOL_VERSION}"):
        decode_envelope(msgspec.msgpack.encode([version, *rest]))


def test_fields_that_a_later_release_appends_are_passed_over() -> None:
    frame = msgspec.msgpack.encode([PROTOCOL_VERSION, 7, "gateway", "01A", None, None, [], "something new"])
    assert decode_envelope(frame).message_id == 7


@given(st.floats(0, 1e12), st.floats(0, 1e12))
def test_a_message_expires_after_its_deadline_and_never_without_one(deadline: float, now: float) -> None:
    envelope = Envelope(PROTOCOL_VERSION, 1, "a", "b", deadline)
    assert envelope.expired(now) == (now > deadline)
    remaining = envelope.remaining_s(now)
    assert remaining is not None
    assert remaining == max(0.0, deadline - now)
    eternal = Envelope(PROTOCOL_VERSION, 1, "a", "b")
    assert not eternal.expired(now)
    assert eternal.remaining_s(now) is None


@pytest.mark.parametrize("question", questions, ids=lambda kind: kind.__name__)
def test_each_question_takes_its_own_answer_or_a_refusal_and_nothing_else(question: type[Request[object]]) -> None:
    refusal = Failure("not_found", "there is none")
    assert answer_decoder(question).decode(encoder.encode(refusal)) == refusal
    for other in ({"type": "NoSuchAnswer"}, 0.5, "text" if question is EmbedQuery else b"bytes"):
        with pytest.raises(msgspec.ValidationError):
            answer_decoder(question).decode(encoder.encode(other))
