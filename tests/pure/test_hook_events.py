"""The taking in of hooks' files: in their order, once, with credentials blotted out, and nothing in the way of the
rest."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from remembrancer.actors.gateway.hook_events import PRESENT_S, HookIntake, to_operation
from remembrancer.commands import hook_files
from remembrancer.commands.hook_files import leave, note
from remembrancer.config.project import project_of
from remembrancer.memory.credentials import masked, masked_value
from remembrancer.protocol.errors import InvalidInput, NotFound, QueueFull, RemembrancerError
from remembrancer.protocol.session_life import EndSession, RecordEvents, StartSession, ToolCall, Turn
from remembrancer.protocol.writes import Operation, SessionChange

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


@pytest.mark.parametrize(
    "broken",
    [
        b"",
        b"{",
        b"[]",
        b"\xff",
        b"[" * 100_000,
        content("Nonsense"),
        content("PreToolUse"),
        content("Stop", format=2, text="x"),
        content("Stop", text="  "),
        content("Stop", text="x", session=""),
        content("Stop", text="x", session="a\nb"),
        content("Stop", text="x", directory="/a\ud800"),
        content("Stop", text="x", directory="/a\0"),
        content("Stop", text="x", at=-1),
        content("PostToolUse", tool=""),
        content("PostToolUse", tool="x", duration_ms="long"),
    ],
)
def test_what_is_no_event_is_refused(broken: bytes) -> None:
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
