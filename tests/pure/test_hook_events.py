"""A hook's input and the taking in of its file: bounded, understood, in order, once, with credentials blotted out."""

import json
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from remembrancer.actors.gateway.hook_events import (
    PRESENT_S,
    HookIntake,
    read_event,
    succeeded,
    summarized,
    to_operation,
)
from remembrancer.commands import hook
from remembrancer.config.project import project_of
from remembrancer.memory.credentials import masked, masked_value
from remembrancer.protocol.errors import InvalidInput, NotFound, QueueFull, StorageFull
from remembrancer.protocol.gateway_link import CONTEXT_GIVEN
from remembrancer.protocol.session_life import EndSession, RecordEvents, StartSession, ToolCall, Turn
from remembrancer.protocol.writes import Operation, SessionChange
from tests.cases import cases

TOKEN = "ghp_" + "a1B2c3D4e5" * 3 + "f6G7h8"


def content(event: str, given: dict[str, Any] | None = None, **about: Any) -> bytes:
    about = {"format": 2, "event": event, "at": 5.5, "session": "s", "directory": "/app", "given": given or {}} | about
    return json.dumps(about).encode()


def change(event: str, given: dict[str, Any] | None = None, **about: Any) -> SessionChange:
    done = to_operation("1-a.event", read_event(content(event, given, **about))).change
    assert isinstance(done, StartSession | EndSession | RecordEvents)
    return done


def recorded(change: SessionChange) -> dict[str, Any]:
    """The one turn or tool call of a change, without its time."""
    assert isinstance(change, RecordEvents)
    one: Turn | ToolCall = (change.turns or change.tool_calls)[0]
    about: dict[str, Any] = msgspec.to_builtins(one)
    assert about.pop("at") == 5.5
    return about


class Hook(hook.Hook):
    """An event of a session, whose memory knows nothing yet."""

    arguments: dict[str, Any] | None = None
    until = 0.0

    def __init__(self, home: Path, given: dict[str, Any], event: str = "UserPromptSubmit", **environ: str) -> None:
        environ = {"REMEMBRANCER_HOME": str(home), **environ}
        super().__init__(event, "codex", {"session_id": "s", "cwd": str(home), **given}, environ, time.monotonic())

    def _connection(self, until: float) -> None:
        self.until = until

    def _answer(self, link: object, arguments: dict[str, Any], until: float) -> dict[str, Any]:
        self.arguments, self.until = arguments, until
        return {"memory_ids": [], "context_block": "", "truncated": False}

    def asked(self) -> dict[str, Any]:
        """The arguments of the question to the memory; none if nothing was asked."""
        self.give()
        return self.arguments or {}


class Intake:
    """A home with hooks' files, and a place for the intake's writes: keeps them, or refuses them with `error`."""

    def __init__(self, home: Path) -> None:
        self.spool = home / "hooks"
        self.session = Hook(home, {})
        self.changes: list[Any] = []
        self.error: Exception | None = None
        self.given: list[tuple[str, Sequence[str], str, bool]] = []
        self.now = 6.0
        self.intake = HookIntake(self.spool, self.apply, self.shown, lambda: self.now)

    def shown(self, operation: Operation, memory_ids: Sequence[str], question: str, is_all: bool) -> None:
        self.given.append((operation.session_id, memory_ids, question, is_all))

    async def apply(self, operation: Operation, received_at: float) -> None:
        if self.error is not None:
            raise self.error
        self.changes.append(operation.change)

    @property
    def texts(self) -> list[str]:
        return [turn.content for each in self.changes if isinstance(each, RecordEvents) for turn in each.turns]

    def leave(self, *prompts: str) -> None:
        for prompt in prompts:
            self.session.leave("UserPromptSubmit", {"prompt": prompt})

    def put(self, data: bytes, name: str = "1-a.event") -> None:
        self.spool.mkdir(exist_ok=True)
        (self.spool / name).write_bytes(data)

    async def take_all(self) -> None:
        await self.intake.take_all()


@pytest.fixture
def hooks(tmp_path: Path) -> Intake:
    return Intake(tmp_path)


def test_each_clients_input_is_recorded() -> None:
    for client, name, sent, expected in cases("hook_input", "clients"):
        event = hook.EVENTS_BY_NAME.get(name, name)
        assert recorded(change(event, hook.bounded(sent), client=client)) == expected, (client, name)


@pytest.mark.parametrize(("event", "about", "expected"), cases("hook_input", "earlier"))
async def test_a_file_of_the_earlier_form_that_an_older_release_left_is_recorded(
    hooks: Intake, event: str, about: dict[str, Any], expected: dict[str, Any]
) -> None:
    earlier = {"format": 1, "event": event, "at": 5.5, "session": "s", "directory": "/app", **about}
    hooks.put(json.dumps(earlier).encode(), "1-a.json")
    await hooks.take_all()
    assert recorded(hooks.changes[0]) == expected


def test_a_session_starts_and_ends_and_an_event_has_the_id_of_its_file() -> None:
    assert change("SessionStart") == StartSession("s", "claude-code", "/app")
    assert change("SessionStart", client="codex") == StartSession("s", "codex", "/app")
    assert change("SessionEnd", {"reason": "logout"}) == EndSession("s")
    one = to_operation("1-a.event", read_event(content("SessionEnd")))
    assert one == to_operation("1-a.event", read_event(content("SessionEnd")))
    assert one.operation_id != to_operation("2-a.event", read_event(content("SessionEnd"))).operation_id
    assert one.project == project_of(Path("/app"))


def test_what_is_no_event_or_lacks_what_the_event_is_about_is_refused() -> None:
    raw = (b"", b"{", b"[]", b"\xff", b"[" * 100_000, content("Nonsense", {"prompt": "x"}), content("PreToolUse"))
    prompts = (content("UserPromptSubmit", each) for each in ({}, {"prompt": "  "}, {"prompt": 7}))
    wrong: dict[str, tuple[Any, ...]] = {"format": (3,), "session": ("", "a\nb"), "at": (-1,)}
    wrong["directory"] = ("/a\ud800", "/a\0")
    said = {"last_assistant_message": "x"}
    stops = (content("Stop", said, **{name: value}) for name, values in wrong.items() for value in values)
    calls = (content("PostToolUse", each) for each in ({}, {"tool_name": ""}, {"tool_name": 7}))
    for broken in (*raw, *prompts, content("Stop", {"transcript_path": "/t"}), *stops, *calls):
        with pytest.raises(InvalidInput):
            to_operation("1-a.event", read_event(broken))


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
    call = {"tool_name": "Bash", "tool_input": {"command": f"export T={TOKEN}"}, "tool_response": TOKEN}
    assert TOKEN not in repr(change("PostToolUse", call))
    assert TOKEN not in repr(change("UserPromptSubmit", {"prompt": TOKEN}))


async def test_a_session_is_present_until_its_end_or_for_a_while_after_its_last_event(hooks: Intake) -> None:
    async def take(**event: Any) -> None:
        hooks.put(content(**event))
        await hooks.take_all()

    await take(event="UserPromptSubmit", given={"prompt": "hi"})
    await take(event="SessionEnd", session="other")
    assert hooks.intake.present() == [(project_of(Path("/app")), "s")]
    await take(event="SessionEnd")
    assert hooks.intake.present() == []
    await take(event="UserPromptSubmit", given={"prompt": "hi"})
    hooks.now = 5.5 + PRESENT_S - 1
    assert len(hooks.intake.present()) == 1
    hooks.now += 1
    assert hooks.intake.present() == []


async def test_what_a_hook_has_printed_counts_as_shown_once_it_is_recorded(hooks: Intake) -> None:
    about = {"text": "1 memory given", "metadata": {"memories": ["memory:01"]}}
    hooks.session.leave(CONTEXT_GIVEN, {**about, "question": "which day?"})
    hooks.session.leave(CONTEXT_GIVEN, about)  # as release 0.2.0 leaves it
    for others in ({"truncated": False}, {"truncated": True}, {}):  # the last as before an edit
        hooks.session._give("given", [], {"memory_ids": ["memory:02"], "context_block": "", **others}, "")
    hooks.error = StorageFull("the disk is full")
    with pytest.raises(StorageFull):
        await hooks.take_all()
    assert hooks.given == []
    hooks.error = None
    await hooks.take_all()
    assert hooks.given == [
        ("s", ["memory:01"], "which day?", False),
        ("s", ["memory:01"], "", False),
        *(("s", ["memory:02"], "", is_all) for is_all in (True, False, False)),
    ]
    assert hooks.texts[2:] == ["1 memory given with UserPromptSubmit"] * 3


async def test_a_broken_file_is_deleted_and_the_rest_goes_on(hooks: Intake, caplog: pytest.LogCaptureFixture) -> None:
    hooks.leave("fine")
    hooks.put(b"{")
    (hooks.spool / "2-a.event").symlink_to("/etc/passwd")
    hooks.put(b" " * 1_000_000, "3-a.event")
    (hooks.spool / "4-a.event").mkdir()
    hooks.put(content("UserPromptSubmit", {"prompt": "not yet there"}), ".5-a.event")
    hooks.put(b"no event", "6-a.json")
    await hooks.take_all()
    assert hooks.texts == ["fine"]
    assert [vars(each)["file"] for each in caplog.records] == ["1-a.event", "3-a.event", "6-a.json"]
    assert sorted(path.name for path in hooks.spool.iterdir()) == [".5-a.event", "2-a.event", "4-a.event"]


async def test_an_event_that_can_be_written_nowhere_waits_and_one_that_never_can_is_deleted(hooks: Intake) -> None:
    hooks.leave("one", "two")
    hooks.error = QueueFull("later")
    with pytest.raises(QueueFull):
        await hooks.take_all()
    hooks.error = None
    await hooks.take_all()
    assert hooks.texts == ["one", "two"]
    for hooks.error in (NotFound("gone"), OverflowError("too large")):
        hooks.leave("three")
        await hooks.take_all()
        assert list(hooks.spool.iterdir()) == []


async def test_events_are_taken_in_in_their_order_and_too_many_and_an_open_spool_are_refused(
    hooks: Intake, monkeypatch: pytest.MonkeyPatch
) -> None:
    await hooks.take_all()
    monkeypatch.setattr(hook, "MAX_WAITING_EVENTS", 5)
    hooks.leave("0", "1", "2", "3", "4", "5")
    with pytest.raises(OSError, match="doctor"):
        hooks.leave("6")
    await hooks.take_all()
    assert hooks.texts == ["0", "1", "2", "3", "4", "5"]
    assert list(hooks.spool.iterdir()) == []
    hooks.spool.chmod(0o710)
    with pytest.raises(PermissionError):
        hooks.leave("x")


def test_notes_on_sessions_do_not_pile_up(hooks: Intake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hook, "MAX_NOTES", 10)
    for number in range(50):
        hooks.session.note(f"{number}", b"%d" % number)
    assert hooks.session.noted("49") == b"49"
    assert len(list((hooks.spool / "running").iterdir())) <= 10


# --- The input of a client's hook: cut, and of the right session.
TEXTS = st.text(max_size=20) | st.text(max_size=20).map(lambda text: text * 100)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=20), inner, max_size=4),
    max_leaves=8,
)


def test_a_tools_answer_says_whether_it_went_well_and_is_summarized_by_its_texts() -> None:
    for good in (None, "all right", {"stdout": "x"}, {"exitCode": 0}, [{"type": "text", "text": "x"}]):
        assert succeeded(good)
    failed = ({"interrupted": True}, {"is_error": True}, {"success": False}, {"error": "no"}, {"exitCode": 1})
    for bad in ("Error: no such file", *failed):
        assert not succeeded(bad)
    assert summarized([{"type": "text", "text": "a"}, {"type": "image"}, {"type": "text", "text": "b"}]) == "a\nb"
    assert summarized({"content": [{"type": "text", "text": "a"}]}) == "a"
    assert summarized({"filePath": "/x"}) == '{"filePath": "/x"}'
    assert summarized(None) == ""


def test_long_texts_are_cut_and_say_so() -> None:
    assert hook.bounded({"prompt": "é" * hook.LONG_MEMBER_BYTES})["prompt"].endswith(
        f"… ({hook.LONG_MEMBER_BYTES} bytes more)"
    )
    assert hook.cut("aé", 2) == "a… (1 bytes more)"
    assert hook.cut("aé", 3) == "aé"
    short = hook.bounded({"tool_input": {"file_path": "/app/x.py", "content": "y" * 100_000}})["tool_input"]
    assert short["file_path"] == "/app/x.py"
    assert short["content"].endswith("(100000 characters)")
    assert hook.bounded({"half": "a\ud800", "nul": {"s": "a\0"}}) == {"half": "a?", "nul": {"s": "a?"}}
    assert hook.bounded({"n": 2**70, "m": -5, "b": True}) == {"n": hex(2**70), "m": -5, "b": True}


@given(st.dictionaries(st.text(max_size=20), JSON | st.lists(st.just("é" * 200), max_size=40), max_size=4))
def test_each_member_is_kept_within_its_limit_in_a_form_that_can_be_sent(members: dict[str, Any]) -> None:
    short = hook.bounded({"tool_input": members})["tool_input"]
    text = short["cut"] if set(short) == {"cut"} else None
    encoded = text if isinstance(text, str) else json.dumps(short, ensure_ascii=False)
    assert len(encoded.encode()) <= hook.MEMBER_BYTES + len("… (1000000 bytes more)")
    msgspec.msgpack.encode(hook.bounded(members))


def test_the_session_the_client_and_the_directory_are_known_by_the_input_unless_named(tmp_path: Path) -> None:
    for environ, sent, session in cases("hook_input", "sessions"):
        assert hook.session_of(sent, environ) == session
    with pytest.raises(ValueError, match="session_id"):
        hook.session_of({"session_id": 3}, {})
    here, deep = str(Path.cwd()), str(tmp_path / "deep")
    (tmp_path / "deep").mkdir()
    for project, event, directory in (
        (str(tmp_path), {"cwd": deep}, str(tmp_path)),
        (str(tmp_path / "gone"), {"cwd": deep}, deep),
        ("", {"cwd": "a\0b"}, here),
        ("", {"workspace_roots": [deep, "/other"], "cwd": "/"}, deep),
        ("", {"workspace_roots": []}, here),
    ):
        assert hook.directory_of(event, {"CLAUDE_PROJECT_DIR": project}) == directory
    assert hook.directory_of({"cwd": deep}, {"REMEMBRANCER_PROJECT": "~"}) == str(Path.home())
    assert hook.directory_of({"cwd": deep}, {"REMEMBRANCER_PROJECT": "."}) == here, "the gateway has another directory"
    inputs = {"cursor": {"cursor_version": "3"}, "vscode": {"hookEventName": "Stop"}, "claude-code": {}}
    assert [hook.client_of("", given) for given in inputs.values()] == list(inputs)
    assert hook.client_of("codex", inputs["cursor"]) == "codex"


def test_the_first_prompt_asks_for_all_that_a_session_should_know_and_a_later_one_for_what_is_about_it(
    tmp_path: Path,
) -> None:
    prompt = {"prompt": "x" * 9000}
    first = Hook(tmp_path, prompt).asked()
    assert first == {"detail": True, "given": [], "unseen": True, "task_description": "x" * 4000}
    Hook(tmp_path, {}).note("given", b"memory:01 memory:02")
    later = Hook(tmp_path, prompt).asked()
    assert later["given"] == ["memory:01", "memory:02"]
    assert "session_history" not in later["sections"]
    assert later["unseen"]
    compacted = Hook(tmp_path, {"source": "compact"}, "SessionStart")
    Hook(tmp_path, {}, "PreCompact").record()
    assert compacted.asked() == {"detail": True, "given": []}
    assert "unseen" in compacted.asked(), "an empty memory is reported once"


def test_nothing_is_asked_without_a_prompt_but_a_start_starts_a_runtime(tmp_path: Path) -> None:
    start, blank = Hook(tmp_path, {}, "SessionStart"), Hook(tmp_path, {"prompt": " "})
    assert (start.asked(), blank.asked()) == ({}, {})
    assert start.until > blank.until == 0
    assert Hook(tmp_path, {"prompt": "x"}, REMEMBRANCER_HOOK_CONTEXT_LENGTH="0").asked() == {}


@pytest.mark.parametrize("degraded", [True, False])
def test_an_empty_memory_is_reported_only_if_the_store_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], degraded: bool
) -> None:
    first = Hook(tmp_path, {"prompt": "x"})
    answer = {"memory_ids": [], "context_block": "Nothing is remembered.", "truncated": False, "degraded": degraded}
    monkeypatch.setattr(first, "_answer", lambda *_: answer)
    first.give()
    assert ("Nothing is remembered." in capfd.readouterr().out, first.noted("given") is None) == (
        not degraded,
        degraded,
    )


@pytest.mark.parametrize("client", ["codex", hook.CURSOR])
def test_a_pair_in_doubt_is_told_with_a_later_prompt_in_the_form_of_the_client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], client: str
) -> None:
    later = Hook(tmp_path, {"prompt": "x"})
    later.note("given", b"memory:01")
    later.client, told = client, "1 may replace 2"
    answer = {"memory_ids": [], "context_block": "", "truncated": False, "in_doubt": told}
    monkeypatch.setattr(later, "_answer", lambda *_: answer)
    later.give()
    output: Any = {"hookSpecificOutput": {"hookEventName": "UserPromptSubmit", "additionalContext": told}}
    if client == hook.CURSOR:
        output = {"continue": True, "additional_context": told}
    assert json.loads(capfd.readouterr().out) == output


@pytest.mark.parametrize(("text", "length", "wait", "tokens", "waits"), cases("hook_input", "limits"))
def test_the_wanted_tokens_and_time_come_from_variables_the_file_or_the_defaults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, length: str, wait: str, tokens: int, waits: list[float]
) -> None:
    monkeypatch.setattr(hook, "time", SimpleNamespace(monotonic=lambda: 50.0))
    (tmp_path / "config.toml").write_text(text)
    named = {"REMEMBRANCER_HOOK_CONTEXT_LENGTH": length, "REMEMBRANCER_HOOK_WAIT_S": wait}
    environ = {name: value for name, value in named.items() if value}
    for before, wait_s in zip((hook.CONTEXT_LOST, b"memory:01"), waits, strict=True):
        asking = Hook(tmp_path, {"prompt": "x"}, **environ)
        asking.began = 50.0
        asking.note("given", before)
        assert asking.asked().get("max_tokens", hook.DEFAULT_TOKENS) == tokens
        assert asking.until == 50.0 + wait_s
