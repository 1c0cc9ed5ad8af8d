"""What travels between processes: envelopes, errors, decoders, and the gateway's view of the store."""

import ast
from collections.abc import Iterator
from pathlib import Path

import anyio
import anyio.lowlevel
import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from remembrancer.protocol import errors
from remembrancer.protocol.errors import (
    DeadlineExceeded,
    Failure,
    FrameRejected,
    InternalError,
    RemembrancerError,
    VersionMismatch,
    from_failure,
)
from remembrancer.protocol.sockets import Dealer, Reply, Speaker
from remembrancer.protocol.store_client import DEGRADED_S, StoreAvailability, StoreClient, StoreState
from remembrancer.protocol.wire import PROTOCOL_VERSION, Envelope, answer_decoder, decode_envelope, encoder
from remembrancer.protocol.work import EmbedQuery
from remembrancer.protocol.writes import BatchApplied, SubmitBatch
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


@given(st.integers(-(2**63), 2**64 - 1).filter(lambda version: version != PROTOCOL_VERSION), st.lists(st.text()))
def test_any_other_version_is_refused_by_name_whatever_follows_it(version: int, rest: list[str]) -> None:
    with pytest.raises(VersionMismatch, match=rf"version {version} .* version {PROTOCOL_VERSION}"):
        decode_envelope(msgspec.msgpack.encode([version, *rest]))


def test_fields_of_a_later_release_are_passed_over_and_its_codes_are_internal_errors() -> None:
    frame = msgspec.msgpack.encode([PROTOCOL_VERSION, 7, "gateway", "01A", None, None, [], "something new"])
    assert decode_envelope(frame).message_id == 7
    returned = from_failure(Failure("code_of_tomorrow", "what happened"))
    assert type(returned) is InternalError
    assert returned.message == "what happened"


def test_each_question_takes_its_own_answer_or_a_refusal_and_nothing_else() -> None:
    refusal = Failure("not_found", "there is none")
    for question in questions:
        assert answer_decoder(question).decode(encoder.encode(refusal)) == refusal, question
        for other in ({"type": "NoSuchAnswer"}, 0.5, "text" if question is EmbedQuery else b"bytes"):
            with pytest.raises(msgspec.ValidationError):
                answer_decoder(question).decode(encoder.encode(other))


# --- Errors: one tree, one code each, and the same thing on both sides of the wire.
ALL = [kind for kind in vars(errors).values() if isinstance(kind, type) and RemembrancerError in kind.__mro__[1:]]


def test_an_error_is_the_same_after_its_journey() -> None:
    for kind in ALL:
        failure = kind("what to do", field="content", details={"limit_bytes": 5}).to_failure()
        travelled = msgspec.msgpack.decode(msgspec.msgpack.encode(failure), type=Failure)
        returned = from_failure(travelled)
        assert type(returned) is kind
        assert (returned.message, returned.field, returned.code) == ("what to do", "content", kind.code)
        assert returned.details == {"limit_bytes": 5}
        assert returned.to_failure() == failure
        assert str(returned) == "what to do"


# --- Decoders are made when a module is imported: msgspec 0.22 prepares a type when it is first decoded, and two
# threads that do so at once end the process (a segmentation fault).
PACKAGE = Path(__file__).parents[2] / "remembrancer"
ONE_THREAD = {
    "actors/gateway/conversations.py": "the event loop",
    "actors/gateway/hook_events.py": "the intake, in one thread at a time",
    "toolsets/arguments.py": "the event loop",
    "config/reading.py": "the start of a process",
    "memory/export_format.py": "a command",
    "memory/fields.py": "a command",
    "memory/markdown_files.py": "a command",
}
"""The only ones that `convert`, and where."""


def calls(of: str) -> Iterator[tuple[str, ast.Call]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        file, text = path.relative_to(PACKAGE).as_posix(), path.read_text()
        if of in text and not file.startswith("commands/"):  # which have one thread
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.Call) and ast.unparse(node.func) == of:
                    yield file, node


def test_types_are_decoded_and_converted_to_by_one_thread_or_prepared() -> None:
    late = [
        f"{file}:{call.lineno}"
        for of in ("msgspec.json.decode", "msgspec.msgpack.decode")
        for file, call in calls(of)
        if any(keyword.arg == "type" for keyword in call.keywords)
    ]
    assert late == []
    assert {file for file, _ in calls("msgspec.convert")} <= ONE_THREAD.keys()


# --- The gateway's view of the store, and its attempts to reach it again.
def test_a_new_connection_is_trusted_once_it_has_answered_and_a_lost_store_given_up_after_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 100.0
    monkeypatch.setattr("remembrancer.protocol.store_client.time.monotonic", lambda: now)
    health = StoreAvailability()
    states: list[tuple[StoreState, bool]] = []
    for event in (health.note_connection, health.note_answer, health.note_connection, health.note_answer):
        event()
        states.append((health.state, health.is_reconnecting))
    assert states == [("reconnecting", True), ("connected", False)] * 2
    states.clear()
    for event, after_s in (
        (health.note_silence, 0.0),
        (health.note_silence, DEGRADED_S),
        (health.note_connection, 0.0),
        (health.note_silence, DEGRADED_S),
        (health.note_answer, 0.0),
        (health.note_silence, 0.0),
    ):
        event()
        now += after_s
        states.append((health.state, health.is_reconnecting))
    away: tuple[StoreState, bool] = ("away", True)
    gone: tuple[StoreState, bool] = ("degraded", False)
    assert states == [away, gone, ("reconnecting", True), gone, ("connected", False), away]


class Played:
    """A connection whose other end answers at once, or not in time: as `slow` says."""

    def __init__(self) -> None:
        self.slow = False

    async def exchange(self, _: object, *, timeout_s: float) -> Reply[BatchApplied]:
        if self.slow:
            await anyio.sleep(timeout_s)
            raise DeadlineExceeded("not in time")
        return Reply(BatchApplied(()))


async def test_a_store_that_answers_others_is_not_away_for_one_slow_file(monkeypatch: pytest.MonkeyPatch) -> None:
    client, played = StoreClient("ipc:///nowhere", Speaker("gateway", "one")), Played()
    monkeypatch.setattr(Dealer, "exchange", played.exchange)
    await client.request(SubmitBatch(()), 1.0)

    async def ask_in_vain() -> None:
        with pytest.raises(DeadlineExceeded):
            await client.request(SubmitBatch(()), 0.05)

    async with anyio.create_task_group() as tasks:
        played.slow = True
        tasks.start_soon(ask_in_vain)
        await anyio.lowlevel.checkpoint()
        await anyio.lowlevel.checkpoint()
        played.slow = False
        await client.request(SubmitBatch(()), 1.0)
    assert client.health.usable
    played.slow = True
    await ask_in_vain()
    assert not client.health.usable, "nothing has been heard of it since it was asked"
