"""The input of a client's hook, made into the event that is kept: whole, bounded, and of the right session."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from remembrancer.actors.bridge.places import find_places
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
from remembrancer.protocol.gateway_link import MAX_TOOL_BYTES, MAX_TURN_BYTES
from tests.cases import cases

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
    """A line of a transcript."""
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


@pytest.mark.parametrize(
    "tail", [b"", b"\xff\xfe", b'{"type":"assistant"}\n', b'["assistant"]\n', b'{"type":"assistant"']
)
def test_a_transcript_that_says_nothing_is_no_event(tail: bytes) -> None:
    with pytest.raises(NoEvent):
        event("Stop", transcript_path="/t", tail=tail)


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("UserPromptSubmit", {}),
        ("UserPromptSubmit", {"prompt": "  "}),
        ("UserPromptSubmit", {"prompt": 7}),
        ("PostToolUse", {}),
        ("Stop", {}),
        ("Nonsense", {"prompt": "x"}),
    ],
)
def test_an_input_without_what_the_event_is_about_is_no_event(name: str, given: dict[str, Any]) -> None:
    with pytest.raises(NoEvent):
        event(name, **given)


@pytest.mark.parametrize(
    ("response", "good"),
    [
        (None, True),
        ("all right", True),
        ("Error: no such file", False),
        ({"stdout": "x"}, True),
        ({"interrupted": True}, False),
        ({"is_error": True}, False),
        ({"success": False}, False),
        ({"error": "no"}, False),
        ({"exitCode": 1}, False),
        ({"exitCode": 0}, True),
        ([{"type": "text", "text": "x"}], True),
    ],
)
def test_a_tools_answer_says_whether_it_went_well(response: object, good: bool) -> None:
    assert succeeded(response) is good


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


def test_the_session_and_the_directory_are_the_clients_unless_a_variable_names_others() -> None:
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
def test_the_events_of_other_clients_are_the_same_events(
    client: str, name: str, given: dict[str, Any], event: str, kept: dict[str, Any]
) -> None:
    assert EVENTS_BY_NAME[name] == event, client
    found = to_event(event, in_our_words(given), "s", "/app", NOW, lambda _: b"")
    assert kept.items() <= found.items()


def test_the_client_is_the_one_that_the_command_names_or_the_one_of_such_an_input() -> None:
    assert client_of("codex", {}) == "codex"
    assert client_of(None, {"cursor_version": "3"}) == "cursor"
    assert client_of(None, {"hookEventName": "Stop"}) == "vscode"
    assert client_of(None, {"hook_event_name": "Stop"}) == "claude-code"
