"""The bridge's small parts: lines, places, back-off, greeting, arguments."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ulid import ULID

from remembrancer.actors.bridge.bridge import _options, main, with_settings
from remembrancer.actors.bridge.places import hello_line, named_project, session_id
from remembrancer.actors.bridge.replay import LineBuffer
from remembrancer.config.reading import read_configuration
from remembrancer.config.settings import SETTABLE, Settings
from remembrancer.protocol.environment import is_secret_variable
from remembrancer.protocol.ulids import as_ulid, new_identity


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
    with pytest.raises(OverflowError, match="at most 12 bytes"):
        buffer.feed(b"67890123")


def test_a_bridge_names_itself_with_a_ulid_and_the_session_as_the_environment_does_or_anew() -> None:
    identity = new_identity(1_700_000_000.5)
    assert ULID.from_bytes(identity).milliseconds == 1_700_000_000_500
    assert as_ulid(identity) == str(ULID.from_bytes(identity))
    assert new_identity(1.0) != new_identity(1.0)
    assert session_id({"REMEMBRANCER_SESSION_ID": "a", "MEMORY_SESSION_ID": "b"}, 1.0) == "a"
    assert session_id({"MEMORY_SESSION_ID": "b"}, 1.0) == "b"
    made = session_id({}, 1.0)
    assert made.startswith("session:")
    assert made != session_id({}, 1.0)


def test_the_hello_carries_settings_but_no_keys_and_no_setting_has_the_name_of_one() -> None:
    environ = {"REMEMBRANCER_ENGINE": "onnx", "REMEMBRANCER_VOYAGE_API_KEY": "secret", "PATH": "/bin"}
    environ |= {f"REMEMBRANCER_{name}": "secret" for name in ("TOKEN", "DB_PASSWORD", "API_KEY_2", "APIKEY")}
    hello = json.loads(hello_line(bytes(16), "session:x", "/code", environ))
    assert hello["environment"] == {"REMEMBRANCER_ENGINE": "onnx"}
    assert hello["project"] == "/code"
    assert hello["directory"] == str(Path.cwd())
    assert hello["bridge"] == "0" * 32
    assert [name for name in SETTABLE if is_secret_variable(f"REMEMBRANCER_{name.upper()}")] == []


def test_options_of_another_server_are_settings_of_the_runtime() -> None:
    said = ["--model", "e5_multi", "--batch-size=8", "--timeout", "90", "--cache-size", "5", "--log-level", "debug"]
    variables = with_settings(_options(said), {"HOME": "/home/a"})
    hello = json.loads(hello_line(bytes(16), "session:x", None, variables))
    read_in = read_configuration(hello["environment"])
    assert read_in.settings == Settings(
        model="e5_multi", embedding_batch_texts=8, model_load_timeout_s=90, log_level="debug"
    )
    with pytest.raises(ValueError, match="--model is for a memory here"):
        _options(["--url", "https://a/mcp", "--model", "nomic"])


def test_options_are_read_with_a_space_or_an_equals_sign() -> None:
    assert _options([]) == {}
    assert _options(["--project", "/tmp"]) == _options(["--project=/tmp"]) == {"--project": "/tmp"}
    assert _options(["--url=https://a/mcp?b=c", "--token-file", "t"])["--url"] == "https://a/mcp?b=c"
    wants, unknown = "--project wants one directory", "unknown argument '--projet': did you mean --project?"
    for wrong, why in (
        (["--project"], wants),
        (["--project="], wants),
        (["--projet", "x"], re.escape(unknown)),
        (["--nonsense"], "unknown argument '--nonsense'$"),
        (["--project", "a", "b"], "unknown argument|too much"),
        (["--project", "a", "--project=b"], "'b' is too much"),
        (["--ca-file", "c"], "are for --url"),
    ):
        with pytest.raises(ValueError, match=why):
            _options(wrong)


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
