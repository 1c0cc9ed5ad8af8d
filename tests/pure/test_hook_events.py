"""A hook's input and the taking in of its file: whole, bounded, in order, once, with credentials blotted out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from remembrancer.actors.bridge.places import find_places
from remembrancer.actors.gateway.hook_events import PRESENT_S, HookIntake, to_operation
from remembrancer.commands import hook_files
from remembrancer.commands.hook import (
    EVENTS_BY_NAME,
    NoEvent,
    client_of,
    cut,
    directory_of,
    in_our_words,
    last_said,
    session_of,
    shortened,
    succeeded,
    summarized,
    to_event,
)
from remembrancer.commands.hook_context import DEFAULT_TOKENS, DEFAULT_WAIT_S, LATER_WAIT_S, question, wanted
from remembrancer.commands.hook_files import leave, note
from remembrancer.config.project import project_of
from remembrancer.memory.credentials import masked, masked_value
from remembrancer.protocol.errors import InvalidInput, NotFound, QueueFull, RemembrancerError
from remembrancer.protocol.gateway_link import MAX_TOOL_BYTES, MAX_TURN_BYTES
from remembrancer.protocol.session_life import EndSession, RecordEvents, StartSession, ToolCall, Turn
from remembrancer.protocol.writes import Operation, SessionChange
from tests.cases import cases

TOKEN = "ghp_" + "a1B2c3D4e5" * 3 + "f6G7h8"


def content(event: str, **more: Any) -> bytes:
    return json.dumps({"format": 1, "event": event, "at": 5.5, "session": "s", "directory": "/app", **more}).encode()


def change(event: str, **more: Any) -> SessionChange:
    done = to_operation("1-a.json", content(event, **more)).change
    assert isinstance(done, StartSession | EndSession | RecordEvents)
    return done


class Recorder:
    """A place for the intake's writes: keeps them, or refuses them with `error`."""

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self.error: Exception | None = None

    async def apply(self, operation: Operation, received_at: float) -> None:
        if self.error is not None:
            raise self.error
        self.operations.append(operation)

    @property
    def texts(self) -> list[str]:
        changes = [operation.change for operation in self.operations]
        return [turn.content for each in changes if isinstance(each, RecordEvents) for turn in each.turns]


def intake_of(spool: Path, writes: Recorder) -> HookIntake:
    return HookIntake(spool, writes.apply)


def prompt(text: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(content("UserPromptSubmit", text=text))
    return found


def test_each_event_is_recorded_as_what_it_is_and_by_the_id_of_its_file() -> None:
    assert change("SessionStart") == StartSession("s", "claude-code", "/app")
    assert change("SessionStart", client="codex") == StartSession("s", "codex", "/app")
    assert change("SessionEnd") == EndSession("s")
    assert change("PostCompact", text="so far") == RecordEvents("s", turns=(Turn("system", "so far", 5.5),))
    given = {"memories": ["memory:01"]}
    assert change("ContextGiven", text="1 from memory", metadata=given) == RecordEvents(
        "s", turns=(Turn("system", "1 from memory", 5.5, metadata=given),)
    )
    assert change("UserPromptSubmit", text="hi") == RecordEvents("s", turns=(Turn("user", "hi", 5.5),))
    assert change("Stop", text="ho") == RecordEvents("s", turns=(Turn("assistant", "ho", 5.5),))
    assert change("SubagentStop", text="x", metadata={"agent_type": "Explore"}) == RecordEvents(
        "s", turns=(Turn("tool", "x", 5.5, metadata={"agent_type": "Explore", "subagent": True}),)
    )
    assert change("PostToolUse", tool="Bash", arguments={"c": "ls"}, result="x", duration_ms=7) == RecordEvents(
        "s", tool_calls=(ToolCall("Bash", 5.5, {"c": "ls"}, "x", duration_ms=7),)
    )
    one = to_operation("1-a.json", content("SessionEnd"))
    assert one == to_operation("1-a.json", content("SessionEnd"))
    assert one.operation_id != to_operation("2-a.json", content("SessionEnd")).operation_id
    assert one.project == project_of(Path("/app"))


def test_what_is_no_event_is_refused() -> None:
    raw = (b"", b"{", b"[]", b"\xff", b"[" * 100_000, content("Nonsense"), content("PreToolUse"))
    wrong: dict[str, tuple[Any, ...]] = {"format": (2,), "text": ("  ",), "session": ("", "a\nb"), "at": (-1,)}
    wrong["directory"] = ("/a\ud800", "/a\0")
    stops = (content("Stop", **{"text": "x", name: value}) for name, values in wrong.items() for value in values)
    calls = (content("PostToolUse", tool=""), content("PostToolUse", tool="x", duration_ms="long"))
    for broken in (*raw, *stops, *calls):
        with pytest.raises(InvalidInput):
            to_operation("1-a.json", broken)


def test_a_credential_is_blotted_out_wherever_it_is_and_a_block_to_its_end() -> None:
    text = f"use {TOKEN} and postgres://me:hunter2hunter2@db/x please"
    assert masked(text) == "use [GitHub token hidden] and postgres://me:[password in a URL hidden]@db/x please"
    assert masked("nothing to hide") == "nothing to hide"
    block = "-----BEGIN PRIVATE KEY-----\nMIIE\nvQIB\n-----END PRIVATE KEY-----"
    assert masked(f"a\n{block}\nb") == "a\n[private key hidden]\n\n\n\nb", "the lines stay"
    assert masked(f"a\n{block[:40]}") == "a\n[private key hidden]\n\n\n"
    assert masked_value({"env": [{"api_key": "Zx9Yw8Vu7Ts6Rq5Po4Nm3"}], "n": 3}) == {
        "env": [{"api_key": "[key, token or password hidden]"}],
        "n": 3,
    }
    recorded = change("PostToolUse", tool="Bash", arguments={"command": f"export T={TOKEN}"}, result=TOKEN)
    assert TOKEN not in repr(recorded)
    assert TOKEN not in repr(change("UserPromptSubmit", text=TOKEN))


async def test_a_session_is_present_until_its_end_or_for_a_while_after_its_last_event(tmp_path: Path) -> None:
    now = 6.0
    intake = HookIntake(tmp_path, Recorder().apply, lambda: now)

    async def take(**event: Any) -> None:
        leave(str(tmp_path), json.loads(content(**event)), 1)
        assert await intake.take_all() == 1

    await take(event="UserPromptSubmit", text="hi")
    await take(event="SessionEnd", session="other")
    assert intake.present() == [(project_of(Path("/app")), "s")]
    await take(event="SessionEnd")
    assert intake.present() == []
    await take(event="UserPromptSubmit", text="hi")
    now = 5.5 + PRESENT_S - 1
    assert len(intake.present()) == 1
    now += 1
    assert intake.present() == []


async def test_events_are_taken_in_in_their_order_and_are_gone(tmp_path: Path) -> None:
    spool = tmp_path / "home" / "hooks"
    writes = Recorder()
    intake = intake_of(spool, writes)
    assert await intake.take_all() == 0
    for number in range(5):
        leave(str(spool), prompt(f"{number}"), 1000 + number)
    assert spool.stat().st_mode & 0o777 == spool.parent.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in spool.iterdir()} == {0o600}
    assert await intake.take_all() == 5
    assert writes.texts == ["0", "1", "2", "3", "4"]
    assert list(spool.iterdir()) == []


async def test_a_broken_file_is_deleted_and_the_rest_goes_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    writes = Recorder()
    (tmp_path / "1-a.json").write_bytes(b"{")
    (tmp_path / "2-a.json").symlink_to("/etc/passwd")
    (tmp_path / "3-a.json").write_bytes(b" " * 1_000_000)
    (tmp_path / "4-a.json").mkdir()
    (tmp_path / ".5-a.json").write_bytes(content("UserPromptSubmit", text="not yet there"))
    leave(str(tmp_path), prompt("fine"), 6)
    assert await intake_of(tmp_path, writes).take_all() == 1
    assert writes.texts == ["fine"]
    assert [vars(each)["file"] for each in caplog.records] == ["1-a.json", "3-a.json"]
    assert sorted(path.name for path in tmp_path.iterdir()) == [".5-a.json", "2-a.json", "4-a.json"]


async def test_an_event_that_can_be_written_nowhere_waits(tmp_path: Path) -> None:
    writes = Recorder()
    leave(str(tmp_path), prompt("one"), 1)
    leave(str(tmp_path), prompt("two"), 2)
    writes.error = QueueFull("later")
    with pytest.raises(QueueFull):
        await intake_of(tmp_path, writes).take_all()
    writes.error = None
    assert await intake_of(tmp_path, writes).take_all() == 2
    assert writes.texts == ["one", "two"]


@pytest.mark.parametrize("error", [NotFound("gone"), OverflowError("too large")])
async def test_an_event_that_can_never_be_written_is_deleted(tmp_path: Path, error: Exception) -> None:
    assert not isinstance(error, RemembrancerError) or not error.retry_possible
    writes = Recorder()
    writes.error = error
    leave(str(tmp_path), prompt("one"), 1)
    assert await intake_of(tmp_path, writes).take_all() == 0
    assert list(tmp_path.iterdir()) == []


async def test_of_too_many_events_the_later_ones_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hook_files, "MAX_WAITING_EVENTS", 3)
    for number in range(4):
        leave(str(tmp_path), prompt(f"{number}"), number)
    with pytest.raises(OSError, match="doctor"):
        leave(str(tmp_path), prompt("4"), 4)
    writes = Recorder()
    await intake_of(tmp_path, writes).take_all()
    assert writes.texts == ["0", "1", "2", "3"]


def test_notes_on_sessions_do_not_pile_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spool = str(tmp_path / "hooks")
    monkeypatch.setattr(hook_files, "MAX_NOTES", 10)
    for number in range(50):
        note(spool, f"{number}", b"%d" % number)
    assert len(list((tmp_path / "hooks" / "running").iterdir())) <= 10


def test_nothing_is_left_where_others_may_write(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    (tmp_path / "hooks").mkdir(mode=0o700)
    (tmp_path / "hooks").chmod(0o777)
    with pytest.raises(PermissionError):
        leave(str(tmp_path / "hooks"), prompt("x"), 1)


# --- The input of a client's hook, made into the event that is kept: whole, bounded, and of the right session.
NOW = 1_700_000_000.5
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(max_size=20), inner, max_size=6),
    max_leaves=30,
)


def event(name: str, *, tail: bytes = b"", **given: Any) -> dict[str, Any]:
    """The event without what all of them have."""
    kept = to_event(name, given, "s", "/app", NOW, lambda _: tail)
    assert (kept.pop("format"), kept.pop("event"), kept.pop("at")) == (1, name, NOW)
    assert (kept.pop("session"), kept.pop("directory")) == ("s", "/app")
    return kept


def line(text: str, kind: str = "assistant", **more: Any) -> bytes:
    entry = {"type": kind, "message": {"role": kind, "content": [{"type": "text", "text": text}]}, **more}
    return json.dumps(entry).encode() + b"\n"


@pytest.mark.parametrize(("name", "given", "kept"), cases("hook_input", "kept"))
def test_of_an_event_what_it_is_about_is_kept(name: str, given: dict[str, Any], kept: dict[str, Any]) -> None:
    assert event(name, tail=line("Older"), **given) == kept


def test_the_last_words_of_the_assistant_or_a_subagent_come_from_the_transcript() -> None:
    silent = json.dumps({"type": "assistant", "message": {"content": [{"type": "tool_use", "name": "Bash"}]}}).encode()
    tail = b'f of a line"}\n' + line("First") + line("Second") + line("A tool's answer", kind="user") + b"\n"
    assert event("Stop", transcript_path="/t", tail=tail) == {"text": "Second"}
    assert last_said(line("Words") + silent + b"\n", sidechain=False) == "Words"
    tail = line("I look", isSidechain=True) + line("It said so")
    assert event("Stop", transcript_path="/t", tail=tail) == {"text": "It said so"}
    found = event("SubagentStop", transcript_path="/t", tail=tail, agent_type="Explore")
    assert found == {"text": "I look", "metadata": {"agent_type": "Explore"}}


def test_an_input_or_a_transcript_without_what_the_event_is_about_is_no_event() -> None:
    prompts: tuple[dict[str, Any], ...] = ({}, {"prompt": "  "}, {"prompt": 7})
    inputs = [*(("UserPromptSubmit", each) for each in prompts), ("PostToolUse", {}), ("Stop", {})]
    for name, given_input in (*inputs, ("Nonsense", {"prompt": "x"})):
        with pytest.raises(NoEvent):
            event(name, **given_input)
    for tail in (b"", b"\xff\xfe", b'{"type":"assistant"}\n', b'["assistant"]\n', b'{"type":"assistant"'):
        with pytest.raises(NoEvent):
            event("Stop", transcript_path="/t", tail=tail)


def test_a_tools_answer_says_whether_it_went_well() -> None:
    for good in (None, "all right", {"stdout": "x"}, {"exitCode": 0}, [{"type": "text", "text": "x"}]):
        assert succeeded(good)
    failed = ({"interrupted": True}, {"is_error": True}, {"success": False}, {"error": "no"}, {"exitCode": 1})
    for bad in ("Error: no such file", *failed):
        assert not succeeded(bad)


def test_a_tools_answer_is_told_by_its_texts_and_long_texts_are_cut_and_say_so() -> None:
    assert summarized([{"type": "text", "text": "a"}, {"type": "image"}, {"type": "text", "text": "b"}]) == "a\nb"
    assert summarized({"content": [{"type": "text", "text": "a"}]}) == "a"
    assert summarized({"filePath": "/x"}) == '{"filePath": "/x"}'
    assert summarized(None) == ""
    assert event("UserPromptSubmit", prompt="é" * MAX_TURN_BYTES)["text"].endswith(f"… ({MAX_TURN_BYTES} bytes more)")
    assert cut("aé", 2) == "a… (1 bytes more)"
    assert cut("aé", 3) == "aé"
    short = shortened({"file_path": "/app/x.py", "content": "y" * 100_000})
    assert short["file_path"] == "/app/x.py"
    assert short["content"].endswith("(100000 characters)")
    assert shortened({"halves": "a\ud800", "nul": "a\0"}) == {"halves": "a?", "nul": "a?"}
    assert shortened({"n": 2**70, "m": -5, "b": True}) == {"n": hex(2**70), "m": -5, "b": True}


@given(st.dictionaries(st.text(max_size=20), JSON, max_size=8))
def test_arguments_are_kept_within_their_limit_in_a_form_that_can_be_sent(arguments: dict[str, Any]) -> None:
    short = shortened(arguments)
    said = short["cut"] if set(short) == {"cut"} else json.dumps(short, ensure_ascii=False)
    assert len(said.encode()) <= MAX_TOOL_BYTES + len("… (1000000 bytes more)")
    msgspec.msgpack.encode(short)


def test_the_client_the_session_and_the_directory_are_known_by_the_input_unless_named() -> None:
    for name in ("session_id", "sessionId", "conversation_id"):
        assert session_of(in_our_words({name: "c"}), {}) == "c"
    assert session_of(in_our_words({"session_id": "c", "conversation_id": "d"}), {}) == "c"
    assert session_of({"session_id": "c"}, {"REMEMBRANCER_SESSION_ID": "mine"}) == "mine"
    assert session_of({}, {"CLAUDE_CODE_SESSION_ID": "c"}) == "c"
    with pytest.raises(NoEvent):
        session_of({"session_id": 3}, {})
    assert directory_of({"cwd": "/app/deep"}, {"CLAUDE_PROJECT_DIR": "/app"}, "/here") == "/app"
    assert directory_of({"cwd": "/app/deep"}, {}, "/here") == "/app/deep"
    assert directory_of({"cwd": "a\0b"}, {}, "/here") == "/here"
    assert directory_of({"workspace_roots": ["/app", "/other"]}, {}, "/here") == "/app"
    assert directory_of({"workspace_roots": []}, {}, "/here") == "/here"
    assert client_of("codex", {}) == "codex"
    assert client_of(None, {"cursor_version": "3"}) == "cursor"
    assert client_of(None, {"hookEventName": "Stop"}) == "vscode"
    assert client_of(None, {"hook_event_name": "Stop"}) == "claude-code"


def test_the_first_prompt_asks_for_all_that_a_session_should_know_and_a_later_one_for_what_is_about_it() -> None:
    first = question("x" * 9000, 500, is_first=True, is_again=False)
    assert (first["max_tokens"], len(first["task_description"]), first["unseen"]) == (500, 4000, True)
    assert "sections" not in first
    later = question("x", 500, is_first=False, is_again=False)
    assert "session_history" not in later["sections"]
    assert later["unseen"]
    again = question("", 500, is_first=True, is_again=True)
    assert {"task_description", "unseen"}.isdisjoint(again)


def test_how_much_is_wanted_and_by_when_comes_from_variables_the_file_or_the_defaults(tmp_path: Path) -> None:
    environ = {"REMEMBRANCER_HOME": str(tmp_path)}
    assert wanted(find_places(environ), environ) == (DEFAULT_TOKENS, DEFAULT_WAIT_S, LATER_WAIT_S)
    (tmp_path / "config.toml").write_text("hook_context_length = 250\nhook_wait_s = 0.5\n")
    assert wanted(find_places(environ), environ) == (250, 0.5, 0.3)
    for said, tokens in {"0": 0, "5": 100, "700": 700, "many": DEFAULT_TOKENS}.items():
        named = {**environ, "REMEMBRANCER_HOOK_CONTEXT_LENGTH": said, "REMEMBRANCER_HOOK_WAIT_S": "0.2"}
        assert wanted(find_places(named), named) == (tokens, 0.2, 0.2)


@pytest.mark.parametrize(("client", "name", "given", "event", "kept"), cases("hook_input", "other_clients"))
def test_other_clients_have_the_same_events(
    client: str, name: str, given: dict[str, Any], event: str, kept: dict[str, Any]
) -> None:
    assert EVENTS_BY_NAME[name] == event, client
    found = to_event(event, in_our_words(given), "s", "/app", NOW, lambda _: b"")
    assert kept.items() <= found.items()
