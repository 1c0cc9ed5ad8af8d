"""The bridge: its replays, what it swallows, when it gives up, and its small parts."""

import json
import math
import socket
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp.shared.inbound import decode_header_value
from ulid import ULID

from remembrancer.actors.bridge.bridge import (
    DEFAULT_BUDGET_S,
    PREPARED_FILE,
    _budget,
    _options,
    main,
    with_settings,
)
from remembrancer.actors.bridge.places import Places, hello_line, named_project, session_id
from remembrancer.actors.bridge.remote import VERSION_KEY, RemoteGateway, _FarEnd
from remembrancer.actors.bridge.replay import (
    LONG_BUDGET_S,
    MAX_OPEN_REQUESTS,
    PREPARED_AFTER_S,
    RETRY_S,
    START_S,
    Conversation,
    LineBuffer,
    PreparedAnswers,
)
from remembrancer.commands.gateway_client import GatewayClient
from remembrancer.commands.selection import GatewayConnection
from remembrancer.config.reading import read_configuration
from remembrancer.config.settings import SETTABLE, Settings
from remembrancer.protocol.environment import is_secret_variable
from remembrancer.protocol.errors import MemoryUnavailable
from remembrancer.protocol.gateway_link import BYE, END, INVALID, REFUSED, WELCOME, split_stamp
from remembrancer.protocol.ulids import as_ulid, new_identity
from tests.cases import cases
from tests.patience import PATIENCE_S

BUDGET_S = 4.5


def line(**message: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **message}).encode()


def answer(request_id: Any, **result: Any) -> bytes:
    return line(id=request_id, result=result)


class Client:
    """A client's side of a conversation, with a clock that stands where it is put."""

    def __init__(
        self, *, connected: bool = True, budget_s: float = BUDGET_S, prepared: PreparedAnswers | None = None
    ) -> None:
        self.conversation = Conversation(budget_s, prepared, b"hello\n")
        self.now = 100.0
        self.stamp_ms = 1_700_000_000_000
        if connected:
            assert self.connect() == []

    def connect(self, control: bytes = WELCOME + b"{}") -> list[tuple[int, dict[str, Any]]]:
        """A gateway comes, is told what the last one knew, and says something."""
        self.conversation.connect(self.stamp_ms)
        hello, *replayed = self.sent()
        assert hello == b"hello"
        self.conversation.from_gateway(control, self.now)
        return [(stamp, json.loads(text)) for stamp, text in map(split_stamp, replayed)]

    def sent(self) -> list[bytes]:
        """The lines for the gateway, which are sent now."""
        lines = bytes(self.conversation.to_gateway).splitlines()
        self.conversation.to_gateway.clear()
        return lines

    def told(self) -> list[dict[str, Any]]:
        """The messages for the client, which are sent now."""
        messages = [json.loads(text) for text in bytes(self.conversation.to_client).splitlines()]
        self.conversation.to_client.clear()
        return messages

    def say(self, data: bytes) -> list[dict[str, Any]]:
        self.conversation.from_client(data, self.now, self.stamp_ms)
        return self.told()

    def request(self, request_id: Any, method: str = "tools/call", **params: Any) -> None:
        assert self.say(line(id=request_id, method=method, params=params)) == []

    def hears(self, data: bytes) -> bool:
        self.conversation.from_gateway(data, self.now)
        return self.told() == [json.loads(data)]

    def done(self, request_id: Any, method: str, **params: Any) -> None:
        self.request(request_id, method, **params)
        assert self.hears(answer(request_id))

    def lose(self) -> None:
        self.conversation.disconnect(self.now)

    def reconnect(self) -> list[tuple[int, dict[str, Any]]]:
        self.lose()
        self.stamp_ms += 5000
        return self.connect()

    def expired(self, after_s: float) -> list[dict[str, Any]]:
        """The answers that a client gets once so much time has passed."""
        self.conversation.expire(self.now + after_s)
        return self.told()


def test_a_new_gateway_is_told_handshake_subscriptions_and_open_requests_in_this_order() -> None:
    client = Client()
    client.done(0, "initialize")
    client.say(line(method="notifications/initialized"))
    client.done(1, "resources/subscribe", uri="memory://a")
    client.done(2, "resources/subscribe", uri="memory://b")
    client.request("5")
    client.request(6)
    assert len(client.sent()) == 6
    replayed = client.reconnect()
    assert [message.get("method") for _, message in replayed] == [
        "initialize",
        "notifications/initialized",
        "resources/subscribe",
        "resources/subscribe",
        "tools/call",
        "tools/call",
    ]
    sent_ms = 1_700_000_000_000
    assert [(stamp_ms, message["id"]) for stamp_ms, message in replayed[4:]] == [(sent_ms, "5"), (sent_ms, 6)]


def test_ids_are_told_apart_by_their_type_and_one_in_use_is_refused() -> None:
    client = Client()
    client.request(1)
    client.request("1")
    assert client.hears(answer("1"))
    assert not client.hears(answer("1"))
    assert [message["id"] for _, message in client.reconnect()] == [1]
    (refusal,) = client.say(line(id=1, method="tools/list"))
    assert refusal["id"] is None
    assert client.sent() == []
    assert client.hears(answer(1))


def test_a_subscription_that_was_refused_or_ended_is_not_renewed_nor_a_cancelled_request_asked_again() -> None:
    client = Client()
    client.request(1, "resources/subscribe", uri="memory://refused")
    assert client.hears(line(id=1, error={"code": -32602, "message": "no"}))
    client.done(2, "resources/subscribe", uri="memory://ended")
    client.done(3, "resources/unsubscribe", uri="memory://ended")
    client.request(4)
    client.sent()
    client.say(line(method="notifications/cancelled", params={"requestId": 4}))
    assert len(client.sent()) == 1
    assert not client.hears(answer(4))
    assert client.reconnect() == []
    assert not client.conversation.has_open


def test_an_answer_to_the_gateway_and_notifications_pass_and_a_stream_holds_nobody_up() -> None:
    client = Client()
    assert client.hears(line(id="roots-1", method="roots/list"))
    assert client.say(answer("roots-1")) == []
    assert len(client.sent()) == 1
    assert client.hears(line(method="notifications/progress", params={"progressToken": 1, "progress": 1}))
    client.request(1, "subscriptions/listen")
    assert client.conversation.next_expiry() == math.inf
    assert not client.conversation.has_open


def test_a_gateway_that_hangs_is_not_waited_for_longer_and_its_late_answer_is_swallowed() -> None:
    client = Client()
    client.request(1)
    assert client.expired(BUDGET_S - 0.01) == []
    (late,) = client.expired(BUDGET_S)
    assert late["error"]["code"] == -32000
    assert "did not answer in time" in late["error"]["message"]
    assert not client.hears(answer(1))


def test_a_gateway_is_told_of_the_clients_end_and_the_next_one_too() -> None:
    client = Client()
    for _ in range(2):
        client.conversation.end()
    assert client.sent() == [END]
    client.lose()
    client.conversation.connect(client.stamp_ms)
    assert client.sent() == [b"hello", END]


@pytest.mark.parametrize(
    ("control", "error"),
    [
        (REFUSED, {"code": -32000, "data": {"error": "memory_unavailable", "retry_possible": True}}),
        (INVALID, {"code": -32602, "data": {"error": "invalid_input", "retry_possible": False}}),
        (BYE, None),
    ],
)
def test_after_a_refusal_or_an_ordered_stop_there_is_no_connection_until_the_next_request(
    control: bytes, error: dict[str, Any] | None
) -> None:
    client = Client(connected=False)
    client.request(1)
    if error is None:
        assert client.connect() != []
        assert client.hears(answer(1))
        client.conversation.from_gateway(control + b"idle", client.now)
        client.request("crossing")
        client.lose()
        assert client.conversation.connect_at == client.now, "the gateway may not have read it"
        client.connect()
        assert client.hears(answer("crossing"))
        client.conversation.from_gateway(control + b"idle", client.now)
    else:
        client.connect(control + b"run remembrancer down")
        assert client.told() == [json.loads(line(id=1, error={**error, "message": "run remembrancer down"}))]
    client.lose()
    assert client.conversation.connect_at == math.inf
    client.say(line(method="notifications/progress", params={}))
    assert client.conversation.connect_at == math.inf
    client.request(2)
    assert client.conversation.connect_at == client.now


def test_who_hangs_up_without_a_welcome_is_dialled_more_and_more_rarely() -> None:
    client = Client()
    client.lose()
    assert client.conversation.connect_at == client.now, "who has welcomed is expected back"
    pauses = []
    for _ in range(8):
        client.conversation.connect(client.stamp_ms)
        client.lose()
        pauses.append(client.conversation.connect_at - client.now)
    assert pauses == pytest.approx([RETRY_S * 2 ** min(number, 5) for number in range(8)])
    client.request(1)
    assert client.conversation.connect_at > client.now, "a request does not hurry it"


def test_what_waits_for_the_first_gateway_waits_at_least_as_long_as_others() -> None:
    client = Client(connected=False, budget_s=90.0)
    client.request("first")
    assert client.conversation.next_expiry() == client.now + 90.0


def test_what_every_session_asks_first_is_answered_without_a_gateway() -> None:
    prepared = PreparedAnswers(PREPARED_FILE)
    client = Client(connected=False, prepared=prepared)
    client.request(0, "initialize", protocolVersion="2025-06-18")
    assert client.expired(PREPARED_AFTER_S / 2) == []
    (greeting,) = client.expired(PREPARED_AFTER_S)
    assert greeting["result"]["protocolVersion"] == "2025-06-18"
    client.say(line(method="notifications/initialized"))
    client.request(1, "tools/list", _meta={"progressToken": 0})
    client.request(2, "tools/list", cursor="more")
    client.request(3, "tools/call", name="get_memory_status")
    assert client.expired(0.0) == [json.loads(answer(1, **prepared.result({"method": "tools/list"})))]
    assert client.conversation.next_expiry() == client.now + START_S, "the first gateway may take its time"
    replayed = [message for _, message in client.connect()]
    assert [message["method"] for message in replayed][:2] == ["initialize", "notifications/initialized"]
    assert not client.hears(answer(replayed[0]["id"]))
    assert not client.hears(answer(1, tools=[])), "the gateway's answer is late"
    assert [message["id"] for message in replayed[2:]] == [2, 3]


def test_what_is_open_when_the_gateway_goes_away_waits_as_long_as_the_next_one_may_take_to_start() -> None:
    client = Client()
    began = client.now
    client.request(1)
    assert client.conversation.next_expiry() == began + BUDGET_S
    client.now = began + 1.0
    client.lose()
    client.now = began
    client.request(2)
    client.conversation.connect(client.stamp_ms)
    assert client.conversation.next_expiry() == began + START_S, "it may still load something"
    client.conversation.from_gateway(WELCOME, began + 12.0)
    assert client.conversation.next_expiry() == began + 12.0 + BUDGET_S, "and then as long as any other"
    client.conversation.disconnect(began + 13.0)
    assert client.conversation.next_expiry() == began + START_S, "but not for ever"
    late = client.expired(START_S)
    assert [each["id"] for each in late] == [1, 2]
    assert all("could not be reached in time" in each["error"]["message"] for each in late)


@pytest.mark.parametrize("long_tool", ["reflect_and_consolidate", "memory_sync"])
def test_a_long_tool_may_take_its_time_but_waits_for_no_gateway_longer_than_others(long_tool: str) -> None:
    client = Client()
    client.request(1, name=long_tool)
    client.done(2, "resources/read", name=long_tool)
    longest = client.now + LONG_BUDGET_S
    assert client.conversation.next_expiry() == longest
    client.now += 60.0
    client.lose()
    for _ in range(2):  # an attempt that fails changes nothing
        assert client.conversation.next_expiry() == client.now + BUDGET_S
        client.conversation.connect(client.stamp_ms)
        client.conversation.disconnect(client.now + 1.0)
    client.connect()
    assert client.conversation.next_expiry() == longest


@pytest.mark.parametrize(
    ("data", "code", "request_id"),
    [
        *((text.encode(), *row) for text, *row in cases("bridge_replay", "no_messages")),
        (b"[" * 100_000, -32700, 0),
        (b'{"id":7,"method":"tools/call","params":' + b"[" * 100_000 + b"]" * 100_000 + b"}", -32700, 0),
        (b'{"jsonrpc":"2.0","id":7,"method":"\xff"}', -32700, 0),
    ],
)
def test_what_is_no_message_is_answered_under_its_id_if_readable(data: bytes, code: int, request_id: int) -> None:
    client = Client()
    client.request(9)
    client.sent()
    (refusal,) = client.say(data)
    assert client.sent() == []
    assert (refusal["error"]["code"], refusal["id"]) == (code, request_id or None)


def test_so_many_requests_are_open_at_most() -> None:
    client = Client()
    for number in range(MAX_OPEN_REQUESTS):
        client.request(number)
    (refusal,) = client.say(line(id="more", method="tools/call"))
    assert refusal["error"]["data"]["retry_possible"] is True
    assert client.hears(answer(0))
    client.request("more")


@pytest.mark.parametrize("data", [b"", b"Traceback", b"3", b'{"jsonrpc":"2.0","id":'])
def test_what_is_no_message_never_reaches_the_client(data: bytes) -> None:
    client = Client()
    client.conversation.from_gateway(data, client.now)
    assert client.told() == []


# --- The bridge's small parts: lines, places, back-off, greeting, arguments.
@given(st.lists(st.binary(max_size=20), max_size=20))
def test_lines_are_the_same_however_the_bytes_are_cut(pieces: list[bytes]) -> None:
    buffer = LineBuffer(1000)
    lines = [line for piece in pieces for line in buffer.feed(piece)]
    *whole, rest = b"".join(pieces).split(b"\n")
    assert lines == whole
    assert buffer.finish() == ([rest] if rest else [])


def test_an_overlong_line_is_refused() -> None:
    buffer = LineBuffer(12)
    assert buffer.feed(b"short\n12345") == [b"short"]
    assert buffer.feed(b"6789012\nabcdefghijkl") == [b"123456789012"], "one line, and not what came with it"
    with pytest.raises(OverflowError, match="at most 12 bytes"):
        buffer.feed(b"m")
    with pytest.raises(OverflowError, match="at most 12 bytes"):
        LineBuffer(12).feed(b"1234567890123\n")


def test_the_hello_names_bridge_session_settings_and_their_file_but_no_secrets() -> None:
    identity = new_identity(1_700_000_000.5)
    assert ULID.from_bytes(identity).milliseconds == 1_700_000_000_500
    assert as_ulid(identity) == str(ULID.from_bytes(identity))
    assert new_identity(1.0) != new_identity(1.0)
    assert session_id({"REMEMBRANCER_SESSION_ID": "a", "MEMORY_SESSION_ID": "b"}, 1.0) == "a"
    assert session_id({"MEMORY_SESSION_ID": "b"}, 1.0) == "b"
    made = session_id({}, 1.0)
    assert made.startswith("session:")
    assert made != session_id({}, 1.0)
    environ = {"REMEMBRANCER_ENGINE": "onnx", "REMEMBRANCER_VOYAGE_API_KEY": "secret", "PATH": "/bin"}
    environ |= {f"REMEMBRANCER_{name}": "secret" for name in ("TOKEN", "DB_PASSWORD", "API_KEY_2", "APIKEY")}
    hello = json.loads(hello_line(bytes(16), "session:x", "/code", environ))
    assert hello["environment"] == {"REMEMBRANCER_ENGINE": "onnx"}
    assert hello["project"] == "/code"
    assert hello["directory"] == str(Path.cwd())
    assert hello["bridge"] == "0" * 32
    seeds = {"MEMORY_LOG_LEVEL": "warn", "MEMORY_REMOTE_URL": "ws://root:secret@host", "MEMORY_CONFIG_PATH": "c.md"}
    seeds["REMEMBRANCER_CONFIG"] = "relative.toml"
    for file, names in ((None, {}), ("/absolute/relative.toml", {"REMEMBRANCER_CONFIG": "/absolute/relative.toml"})):
        hello = json.loads(hello_line(bytes(16), "session:x", None, seeds, file))
        assert hello["environment"] == {"MEMORY_LOG_LEVEL": "warn"} | names
    assert [name for name in SETTABLE if is_secret_variable(f"REMEMBRANCER_{name.upper()}")] == []


def test_options_are_read_with_a_space_or_an_equals_sign_also_those_of_another_server() -> None:
    assert _options([]) == {}
    assert _options(["--project", "/tmp"]) == _options(["--project=/tmp"]) == {"project": "/tmp"}
    assert _options(["--url=https://a/mcp?b=c", "--token-file", "t"])["url"] == "https://a/mcp?b=c"
    for wrong, why in cases("bridge_replay", "wrong_options").items():
        with pytest.raises(ValueError, match=why):
            _options(wrong.split())
    said = ["--model", "e5_multi", "--batch-size=8", "--timeout", "90", "--cache-size", "5", "--log-level", "debug"]
    variables = with_settings(_options(said), {"HOME": "/home/a"})
    hello = json.loads(hello_line(bytes(16), "session:x", None, variables))
    read_in = read_configuration(hello["environment"])
    assert read_in.settings == Settings(
        model="e5_multi", embedding_batch_texts=8, model_load_timeout_s=90, log_level="debug"
    )
    with pytest.raises(ValueError, match="--model cannot be combined with --url"):
        _options(["--url", "https://a/mcp", "--model", "nomic"])


def test_a_variable_says_how_long_a_request_waits() -> None:
    for said, budget_s in {
        "1.5": 1.5,
        "0": DEFAULT_BUDGET_S,
        "inf": DEFAULT_BUDGET_S,
        "soon": DEFAULT_BUDGET_S,
    }.items():
        assert _budget({"REMEMBRANCER_BRIDGE_BUDGET_S": said}) == budget_s


def test_help_is_asked_for_and_no_error(capsys: pytest.CaptureFixture[str]) -> None:
    for option in ("--help", "-h"):
        assert main([option]) == 0
        said = capsys.readouterr()
        assert said.out.startswith("usage: remembrancer mcp")
        assert said.err == ""


def test_the_project_is_named_by_the_option_our_variable_or_claude_code_in_turn(tmp_path: Path) -> None:
    claude = {"CLAUDE_PROJECT_DIR": str(tmp_path)}
    assert named_project(None, claude) == str(tmp_path)
    assert named_project("/", claude) == "/"
    assert named_project(None, {**claude, "REMEMBRANCER_PROJECT": "/"}) is None, "which the hello has"
    assert named_project(None, {"CLAUDE_PROJECT_DIR": str(tmp_path / "gone")}) is None
    with pytest.raises(ValueError, match="is not a directory"):
        named_project(str(tmp_path / "gone"), claude)


# --- The conversation of a command or a hook with the gateway.
def test_after_its_time_nothing_is_asked_for_and_an_answer_that_is_there_is_not_taken() -> None:
    ours, gateway = socket.socketpair()
    there = Places("/h", "/h", None)
    with ours, gateway, closing(GatewayClient(ours, there, "session", "/somewhere", {}, "a hook")) as client:
        for number in (1, 2):
            said = {"id": number, "result": {"structuredContent": {"said": number}}}
            gateway.sendall(json.dumps(said).encode() + b"\n")
        assert client.call("get_memory_context", {}, time.monotonic() + PATIENCE_S) == {"said": 1}
        assert b"tools/call" in gateway.recv(65_536)
        with pytest.raises(TimeoutError, match="too long"):
            client.call("get_memory_context", {}, time.monotonic())
        with pytest.raises(BlockingIOError):  # else the session would count as having been shown the answer
            gateway.recv(65_536, socket.MSG_DONTWAIT)


def test_a_command_that_loses_the_gateway_says_whether_it_may_be_given_again() -> None:
    ours, gateway = socket.socketpair()
    with ours, closing(GatewayClient(ours, Places("/h", "/h", None), "session", "/somewhere", {}, "shell")) as client:
        connection = object.__new__(GatewayConnection)
        connection._gateway = client
        gateway.close()
        for tool, again in (("store_memory", "it is not stored twice"), ("search_memories", "try again in a moment")):
            with pytest.raises(MemoryUnavailable, match=f"answer: the connection was lost; .*{again}"):
                connection._asked(tool, {})


@pytest.mark.parametrize(
    "uri", ["memory://status", "memory://file/Küche", "memory://file/台所", "a\nb: c", " x", "=?base64?"]
)
def test_any_name_comes_through_a_header(uri: str) -> None:
    """Or the other requests that are open would be refused with it."""
    gateway = RemoteGateway("http://localhost/mcp", "b", token_file=None, ca_file=None, project="", toolsets="")
    end, other = socket.socketpair()
    with closing(end), closing(other):
        params = {"uri": uri, "_meta": {VERSION_KEY: "2026-07-28"}}
        name = _FarEnd(gateway, end)._headers({"method": "resources/read", "params": params})["Mcp-Name"]
    assert (name.isascii(), name.isprintable(), decode_header_value(name)) == (True, True, uri)
