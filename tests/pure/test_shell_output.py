"""What commands print: nothing that steers a terminal, and what was done, found or missing."""

import io
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest
from rich.table import Table

from remembrancer.actors.store.records.catalog import RememberedProject, former_project
from remembrancer.command_line import main
from remembrancer.commands import exit_codes, finding, home_reader, maintain, terminal
from remembrancer.commands.home_reader import KnownProject
from remembrancer.commands.projects import advice_on, missing_projects
from remembrancer.commands.selection import Place, Where
from remembrancer.config.project import project_of
from remembrancer.protocol.consolidation import Maintain, Maintained
from remembrancer.protocol.errors import ConsolidatorUnavailable, RemembrancerError
from remembrancer.protocol.writes import ProjectRef
from tests.cases import cases
from tests.git import git
from tests.patience import PATIENCE_S

HOSTILE = "a\x1b]0;title\x07b\x9b31mc\rd\u202ee\x00"
STEERS = set("\x1b\x07\x9b\r\u202e\x00")


def test_a_command_that_a_message_repeats_finds_the_same_memories() -> None:
    assert Where(project="a b").repeated == " --project 'a b'"
    assert Where(all_projects=True).repeated == " --all-projects"


def test_only_our_own_colours_pass(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", sys.stdout)
    monkeypatch.setattr(sys, "stderr", sys.stderr)
    assert main(["help"]) == exit_codes.OK
    table = Table("what")
    table.add_row(HOSTILE)
    out = terminal.Terminal(force_terminal=True, color_system="standard")
    out.print("[green]good[/green]", table)
    print(HOSTILE)
    print(HOSTILE, file=sys.stderr)
    said = capsys.readouterr()
    assert "\x1b[32mgood\x1b[0m" in said.out
    assert not STEERS & set(said.out.replace("\x1b[", "")) - {"\x1b"}
    assert "\x1b]" not in said.out
    assert not STEERS & set(said.err)


class Screen(io.StringIO):
    """Standard error, of a terminal or a pipe, that can be waited for."""

    def __init__(self, awaited: str, *, is_terminal: bool) -> None:
        super().__init__()
        self.awaited = awaited
        self.is_terminal = is_terminal
        self.is_there = Event()

    def isatty(self) -> bool:
        return self.is_terminal

    def write(self, text: str) -> int:
        written = super().write(text)
        if self.awaited in self.getvalue():
            self.is_there.set()
        return written


@pytest.mark.parametrize("is_terminal", [True, False], ids=["at a terminal", "in a pipe"])
def test_a_long_work_is_named_at_a_terminal(is_terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal, "SLOW_S", 0.0)
    line = Screen("Waiting …", is_terminal=is_terminal)
    monkeypatch.setattr(sys, "stderr", line)
    with terminal.notice_when_slow("Waiting"):
        assert not is_terminal or line.is_there.wait(PATIENCE_S)
    assert (line.getvalue() == "") is not is_terminal


@pytest.mark.parametrize("command", ["import FILE", "restore FILE --yes", "export - --project FILE"])
def test_no_command_passes_on_what_a_file_or_a_name_says(
    home: Path, tmp_path: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    named = tmp_path / HOSTILE.replace("\x00", "").replace("/", "")
    named.write_bytes(b'{"format":"' + HOSTILE.encode("unicode_escape").replace(b"\\x", b"\\u00") + b'"}')
    arguments = [str(named) if word == "FILE" else word for word in command.split()]
    assert main(["backup", *arguments]) not in (0, 1)
    said = capsys.readouterr()
    assert said.err
    assert not STEERS & set(said.err + said.out)


# --- The first search of a shell on a cold memory: it waits for the model a moment, and says when it did without.
FOUND = {
    "id": "memory:01M7YP99BXTF0BZR1D8J8GC5MJ",
    "content": "We deploy on Tuesdays",
    "kind": "fact",
    "scope": "project",
}
STARTING = {"code": "embedding_starting", "message": "Words were searched; meaning joins in a moment."}


class ColdMemory:
    """Has no worker with a model so many times that it is looked at; until then it answers by words alone."""

    def __init__(self, times: int, *, expects_worker: bool = True) -> None:
        self.times = times
        self.expects_worker = expects_worker
        self.looks = 0
        self.questions = 0

    def call(self, tool: str, **_arguments: Any) -> dict[str, Any]:
        is_cold = self.looks <= self.times
        if tool == "get_memory_status":
            self.looks += 1
            has_model = self.looks > self.times
            return {"embedding": {"workers": int(has_model), "is_starting": self.expects_worker and not has_model}}
        if tool == "memory_status":
            return {"totalFiles": 0, "staleFiles": 0}
        self.questions += tool == "recall_memories"
        warnings = [STARTING] if is_cold else []
        memory = {**FOUND, "created_at": "2026-02-20T10:00:00Z", "relevance_score": 0.9, "importance": 0.5}
        return {"memories": [memory], "warnings": warnings}


@pytest.mark.parametrize(("times", "says"), [(10**9, True), (2, False)])
def test_a_cold_search_says_that_it_was_by_words_alone_if_the_model_does_not_come(
    times: int, says: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    memory = ColdMemory(times)

    def conversations(_: Where) -> Iterator[tuple[Place, ColdMemory]]:
        yield Place("/app"), memory

    monkeypatch.setattr(Where, "conversations", conversations)
    pauses: list[float] = []
    monkeypatch.setattr(finding, "pause", pauses.append)
    monkeypatch.setattr(finding, "time", SimpleNamespace(time=lambda: 1e9, monotonic=lambda: sum(pauses)))
    assert main(["search", "when", "do", "we", "deploy"]) == exit_codes.OK
    said = capsys.readouterr()
    assert "We deploy on Tuesdays" in said.out
    assert (STARTING["message"] in said.err) == says
    assert memory.looks > 2
    assert memory.questions == 1, "each answer is a use of what it shows"


def test_a_search_waits_for_no_model_where_no_embedder_is_to_come(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = ColdMemory(10**9, expects_worker=False)
    monkeypatch.setattr(Where, "conversations", lambda _: iter([(Place("/app"), memory)]))
    pauses: list[float] = []
    monkeypatch.setattr(finding, "pause", pauses.append)
    monkeypatch.setattr(finding, "time", SimpleNamespace(time=lambda: 1e9, monotonic=lambda: sum(pauses)))
    assert main(["search", "when", "do", "we", "deploy"]) == exit_codes.OK
    assert sum(pauses) < finding.MEANING_S / 2


def test_a_hint_about_a_memory_stored_before_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    near = {"id": "OLDX", "content": "We deploy on Tuesdays", "replaced_by": "NEWX", "newer": "We deploy on Fridays"}
    answer = {"memory_id": FOUND["id"], "near": [near]}
    monkeypatch.setattr(Where, "first", lambda _: SimpleNamespace(call=lambda *_, **__: answer, embeds_soon=False))
    monkeypatch.setattr(Where, "ask", lambda *_, **__: FOUND)
    assert main(["add", "Bananas are yellow"]) == exit_codes.OK
    assert "Perhaps “We deploy on Fridays”, added earlier, replaces" in capsys.readouterr().err


ALONE = {"name": "Ada", "type": "person", "relationships": [], "memory_count": 2}


@pytest.mark.parametrize(("near", "advice"), [(["Bod"], "Did you mean Bod?"), ([], "Try 'remembrancer search Bob'.")])
def test_a_name_that_the_graph_does_not_know_gets_the_nearest_one_or_a_search(
    near: list[str], advice: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = {"entities": [], "suggestions": near}
    monkeypatch.setattr(Where, "first", lambda _: SimpleNamespace(call=lambda *_, **__: answer))
    assert main(["show", "--graph", "Bob"]) == exit_codes.OK
    assert capsys.readouterr().out == f"No entity matches. {advice}\n"


def test_an_overview_has_names_alone(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    names = ("Valkey", "custom"), ("SHOP-12", "custom"), ("legacy_id", "custom"), ("src/app.py", "file")
    entities = [ALONE, *({**ALONE, "name": name, "type": kind} for name, kind in names)]
    conversation = SimpleNamespace(call=lambda *_, **__: {"entities": entities})
    monkeypatch.setattr(Where, "first", lambda _: conversation)
    assert main(["show", "--graph"]) == exit_codes.OK
    overview = capsys.readouterr()
    assert [line.split()[0] for line in overview.out.splitlines()] == ["entity", "Ada", "Valkey"]
    assert overview.err == "Not listed: 3 identifiers. Run 'remembrancer show --graph NAME' to see one.\n"
    assert main(["show", "--graph", "SHOP-12"]) == exit_codes.OK
    assert "legacy_id" in capsys.readouterr().out


# --- `remembrancer admin maintain` says what was done, also where something of it was refused.
LANE = "l_0123456789ab"
SHOP, YARD = "p_0123456789ab", "p_ba9876543210"


@pytest.fixture
def refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, RemembrancerError]:
    """The refusals of a store, by the id of the project or the lane. Of two projects the first shares a lane."""
    monkeypatch.setenv("REMEMBRANCER_HOME", str(tmp_path))
    known = [
        KnownProject(each, f"/work/{name}", None, None, None, 1, 0, 0, lane)
        for each, name, lane in ((SHOP, "a", LANE), (YARD, "b", None))
    ]
    refusals: dict[str, RemembrancerError] = {}

    def answer(request: Maintain, **_: Any) -> Maintained:
        place = "user" if request.project is None else request.project.id
        if place in refusals:
            raise refusals[place]
        return Maintained("project", 12)

    for module in (home_reader, maintain):
        monkeypatch.setattr(module, "known_projects", lambda _: known)
    monkeypatch.setattr(maintain, "ask_store", answer)
    return refusals


def test_a_refusal_is_said_behind_what_was_done(
    refused: dict[str, RemembrancerError], capsys: pytest.CaptureFixture[str]
) -> None:
    refused[LANE] = ConsolidatorUnavailable("it is at work")
    assert main(["admin", "maintain", "--all"]) == exit_codes.REFUSED
    out, err = capsys.readouterr()
    assert [line for line in out.splitlines() if "examined" in line] == ["/work/a: 12 examined"]
    assert err == "remembrancer admin maintain: it is at work\n"


def test_the_run_of_a_submodule_is_undone_by_the_id_of_its_project(refused: dict[str, RemembrancerError]) -> None:
    submodule = ProjectRef(SHOP, "/work/shop/.git/modules/cart")  # in which no session works
    visit = maintain.Visit(submodule, False, Maintained("project", 12, run_ids=("run:1",)))
    lines = maintain._lines([visit], dry_run=False, is_whole=True)
    assert f"  to undo: remembrancer undo run:1 --project {SHOP}" in lines
    assert [place for place, _ in maintain.parts_of(Where(SHOP))] == [ProjectRef(SHOP, "/work/a")] * 2


# --- A directory that is another project since `git init` is told so there, and nowhere is it to be moved elsewhere.
def test_what_is_said_of_a_directory_that_became_part_of_a_repository_is_true(tmp_path: Path) -> None:
    (sub := tmp_path / "plain" / "sub").mkdir(parents=True)
    places = [project_of(place) for place in (tmp_path / "plain", sub)]
    known = [KnownProject(place.id, place.path, None, None, None, 1, 0, 0, None) for place in places]
    assert missing_projects(known) == ""
    git("init", at=tmp_path / "plain")
    remembered = [RememberedProject(place.id, place.path, 1.0, 5, 1.0, 1.0) for place in places]
    for place in (tmp_path / "plain", sub):
        former = former_project(remembered, project_of(place), place, 2.0)
        assert former
        said = f"or its repository was removed. Run 'remembrancer admin projects move {place} .' to bring"
        assert said in advice_on(former, place)
    said = missing_projects(known[1:])
    assert f"or part of another repository): {sub}." in said
    assert "move OLD NEW" in said
    for elsewhere in (Path("/"), tmp_path):
        assert former_project(remembered[1:], project_of(elsewhere), elsewhere, 2.0) is None
    sub.rename(new := tmp_path / "sub")
    former = former_project(remembered[1:], project_of(new), new, 2.0)
    assert former
    assert advice_on(former, new) == (
        f"sub had 5 memories and is no longer at {sub}. If this is that project, "
        f"run 'remembrancer admin projects move {sub} {new}' to bring them here."
    )


@pytest.mark.parametrize(("session_id", "member", "author"), cases("shell_output", "authors"))
def test_a_change_is_by_a_person_or_a_client_and_on_another_machine(session_id: str, member: str, author: str) -> None:
    change = {"session_id": session_id} | ({"member": member} if member else {})
    assert finding.author_of_change(change, {"session:a": "Codex"}) == author
