import asyncio
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from remembrancer.command_line import COMMANDS, main
from remembrancer.commands import changing, exit_codes
from remembrancer.config.project import project_of
from remembrancer.memory.decay import DAY_S
from remembrancer.protocol.paths import RuntimePaths
from remembrancer.toolsets.memory.store_memory import SPLIT
from tests.cases import cases
from tests.conftest import empty_home
from tests.forked import run_at_terminal
from tests.git import git
from tests.patience import until
from tests.runtime import Runtime, Session, command, embedded, files_with, stop_runtime
from tests.spaces import connect_space, write_rows


class Shell:
    def __init__(self, home: Path, directory: Path) -> None:
        self.home = home
        self.directory = directory

    def run(self, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return command(*arguments, home=self.home, stdin=stdin, directory=self.directory)

    def __call__(self, *arguments: str, stdin: str = "", status: int = 0) -> str:
        done = self.run(*arguments, stdin=stdin)
        assert done.returncode == status, done.stderr
        assert "Traceback" not in done.stderr
        assert "\x1b" not in done.stdout + done.stderr
        return done.stdout if status == 0 else done.stderr

    def json(self, *arguments: str, **options: Any) -> Any:
        return json.loads(self(*arguments, "--json", **options))

    def play(self, table: str) -> None:
        ids: dict[str, str] = {}
        for line, says, *status in cases("shell_transcripts", table):
            name, _, given = line.rpartition(" = ")
            place = Shell(self.home, self.directory.parent / "other") if given.startswith("other: ") else self
            done = place.run(*(ids.get(word, word) for word in shlex.split(given.removeprefix("other: "))))
            said = " ".join(f"{done.stdout} {done.stderr}".split())
            assert (done.returncode, "Traceback" in said) == (*(status or [0]), False), (line, said)
            ids |= {name: done.stdout.partition("\nIt replaces ")[0].split()[-1]} if name else {}
            for known, memory_id in ids.items():
                said = said.replace(memory_id, known)
            assert (says.removeprefix("!") in said) is not says.startswith("!"), (line, said)

    def at_a_terminal(self, *arguments: str, says: str = "", **environ: str) -> tuple[int, str]:
        environ = {**os.environ, "REMEMBRANCER_HOME": str(self.home), "TERM": "xterm", **environ}
        return run_at_terminal(*arguments, environ=environ, directory=self.directory, says=says)

    def until_drained(self) -> None:
        asyncio.run(until(Runtime(self.home).is_drained))

    def pairs(self) -> list[tuple[str, str]]:
        return [(each["older_id"], each["newer_id"]) for each in self.json("list", "--review")["contradictions"]]


pytestmark = pytest.mark.usefixtures("at_noon")


@pytest.fixture(scope="module")
def shared_home(at_noon: None) -> Iterator[Path]:
    with empty_home() as directory:
        yield directory


@pytest.fixture
def own_home(home: Path) -> None:
    """A home of the test's own: for what is about the user, whom all projects share, or about all projects."""


alone = pytest.mark.usefixtures("own_home")


@pytest.fixture
def shell(
    request: pytest.FixtureRequest, home: Path, shared_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Shell:
    """In a project of the test's own; in the home of all tests of this module, unless it is `alone`."""
    (tmp_path / "app").mkdir()
    (tmp_path / "other").mkdir()
    if "own_home" in request.fixturenames:
        return Shell(home, tmp_path / "app")
    monkeypatch.setenv("REMEMBRANCER_HOME", str(shared_home))
    return Shell(shared_home, tmp_path / "app")


@alone
def test_a_memory_is_stored_found_corrected_and_the_correction_undone(shell: Shell, tmp_path: Path) -> None:
    memory_id = shell.json("add", "We", "deploy on Tuesdays", "--kind", "convention", "--tag", "ops")["memory_id"]
    shell("add", "-", "--user", stdin="I prefer short answers\n")
    assert shell.json("search", "deploy", "when")["memories"][0]["id"] == memory_id
    assert len(shell("list").splitlines()) == 2
    assert shell("list", "--kind", "convention", "--since", "1d").split("\t")[0] == memory_id.removeprefix("memory:")
    assert shell("list", "--tag", "nothing") == ""
    assert len(shell("list", "--since", "yesterday", "--until", "today").splitlines()) == 2
    assert shell("list", "--until", "vorgestern") == ""
    assert len(shell("list", "--since", f"{date.today()}", "--until", f"{date.today()}").splitlines()) == 2
    assert [memory["scope"] for memory in shell.json("list", "--user")["memories"]] == ["user"]

    editor = tmp_path / "editor"
    editor.write_text('#!/bin/sh\nsed -i s/Tuesdays/Wednesdays/ "$1"\n')
    editor.chmod(0o755)
    status, shown = shell.at_a_terminal("edit", memory_id, EDITOR=str(editor), VISUAL="")
    assert status == 0, shown
    assert f"remembrancer undo {memory_id}" in " ".join(shown.split())
    assert "We deploy on Wednesdays" in shell("show", memory_id)
    assert "Restored: " in shell("restore", memory_id, "--version", "1")
    assert "already has these values" in shell("restore", memory_id, "--version", "1")
    assert "We deploy on Tuesdays" in shell("show", memory_id)
    shell("edit", memory_id, "We deploy\n\non Mondays")
    assert "content: We deploy on Tuesdays → We deploy on Mondays" in shell("show", memory_id, "--history")
    shell("undo", memory_id)
    shell("restore", memory_id, "--version", "1")
    assert shell("show", memory_id).startswith("We deploy on Tuesdays\n"), "the text comes first"
    assert "by you, in the shell" in shell("show", memory_id)
    assert "session:shell" not in shell("show", memory_id)


OF_THE_USER = {name for name, lines in cases("shell_transcripts").items() if "user" in str(lines)}


@alone
@pytest.mark.parametrize("table", sorted(OF_THE_USER))
def test_a_transcript_about_the_user(shell: Shell, table: str) -> None:
    shell.play(table)


@pytest.mark.parametrize("table", sorted(cases("shell_transcripts").keys() - OF_THE_USER))
def test_a_transcript(shell: Shell, table: str) -> None:
    shell.play(table)


def test_an_undo_in_a_log_at_a_terminal_is_no_markup(shell: Shell) -> None:
    shell("add", "sed 's/a/b/' notes | sort")
    _, shown = shell.at_a_terminal("log", COLUMNS="200", PAGER="cat")
    assert "notes | sort" in shown


def test_what_one_command_did_is_one_line_of_the_log(shell: Shell) -> None:
    one, two = (shell.json("add", text)["memory_id"] for text in ("We have a boat", "An oar is broken"))
    shell("forget", one, two)
    _, shown = shell.at_a_terminal("log", COLUMNS="200", PAGER="cat")
    assert (shown.count(" forgotten "), f"An oar is broken  {two}" in shown) == (1, True), shown


@pytest.mark.parametrize("changed", ["We have a boat", "An oar is broken"])
def test_an_undo_names_what_it_leaves_alone_since_it_has_changed_meanwhile(
    changed: str, shell: Shell, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ids = {text: shell.json("add", text)["memory_id"] for text in ("We have a boat", "An oar is broken")}
    shell("forget", *ids.values())
    one = ids[changed]
    monkeypatch.chdir(shell.directory)
    monkeypatch.setattr(changing, "confirm", lambda *_, **__: shell("restore", one))  # while the person thinks
    assert main(["undo"]) == exit_codes.OK
    left = f"“{changed}” was not changed: {one} has been changed since ('remembrancer undo {one}' undoes its last"
    assert left in capsys.readouterr().out


def test_a_program_gets_an_error_as_an_object(shell: Shell) -> None:
    for arguments, code in ((("show", "ZZZZ"), "not_found"), (("list", "--kind", "nope"), "invalid_input")):
        done = shell.run(*arguments, "--json")
        assert done.returncode != 0
        assert json.loads(done.stdout)["error"] == code
        assert json.loads(done.stdout)["message"] in done.stderr


def test_contradicting_options_change_nothing(shell: Shell) -> None:
    memory_id = shell.json("add", "Paint the boat", "--kind", "open_end")["memory_id"]
    for line, error in cases("shell", "refused"):
        assert error.replace("ID", memory_id) in shell(
            *line.replace("ID", memory_id).split(), status=exit_codes.USAGE
        ), line
    assert shell.json("show", memory_id)["version"] == 1


@alone
def test_memories_that_cannot_be_read_are_not_said_to_be_none(shell: Shell, home: Path) -> None:
    shell("add", "We deploy on Tuesdays")
    stop_runtime(home)
    write_rows(Runtime(home).database, "UPDATE memories SET tags = char(1)")
    for command_line in (("list", "--open"), ("list", "--all-projects"), ("search", "deploy")):
        refused = shell(*command_line, status=exit_codes.FILE_UNUSABLE)
        assert f"{Runtime(home).database} cannot be read" in refused
        assert refused.count("doctor") == 1


def test_a_list_says_what_is_forgotten_and_a_search_how_surely_each_answers(shell: Shell) -> None:
    memory_id = shell.json("add", "We deploy on Tuesdays")["memory_id"]
    shell.until_drained()  # words alone do not make it as likely
    assert shell("search", "on which day do we deploy").endswith("\tlikely\n")
    done = shell.run("search", "purple elephants")
    assert done.returncode == exit_codes.OK, "something was found"
    assert done.stdout.endswith("\tWe deploy on Tuesdays\t\n")
    assert done.stderr == (nearest := "None of these surely answers. The closest results:\n")
    open_end = shell.json("add", "Paint the boat", "--kind", "open_end")["memory_id"]
    shell.until_drained()
    assert shell.run("search", "--open", "purple elephants").stderr == nearest
    assert shell.run("search", "--open", "the boat to paint").stderr == ""
    shell("forget", "--yes", open_end)
    shell("add", "From January I charge Kruste 98 euros an hour")
    shell("forget", memory_id)
    assert re.search(r"\tforgotten 20..-..-..\n$", shell("list", "--forgotten"))
    assert [each["id"] for each in shell.json("list", "--forgotten")["memories"]] == [memory_id, open_end]
    _, narrow = shell.at_a_terminal("list", "--forgotten", "-n", "1", COLUMNS="80", NO_COLOR="1")
    assert re.search(r"forgotten 20..-..-.. · .*20..-..-.. · project", narrow)
    assert "There are more. Use -n N" in narrow
    assert shell("list", "--kind", "session_record") == ""
    assert "Nothing was found" in shell("search", "deploy", "--kind", "session_record", status=exit_codes.FAILED)
    refused = shell("add", "password: hunter2-Xk9!qq", status=exit_codes.USAGE)
    assert "--allow-secrets" in refused
    assert "allow_secrets" not in refused


def test_a_log_names_its_dates_and_shows_the_owner_what_was_forgotten(shell: Shell) -> None:
    def days(*ago: int) -> str:
        return " to ".join(f"{datetime.now().astimezone() - timedelta(days=each):%A %Y-%m-%d}" for each in ago)

    memory_id = shell.json("add", "We deploy on Tuesdays")["memory_id"]
    shell("forget", memory_id)
    for day in ("today", f"{datetime.now().astimezone():%A}"):
        lines = [line.split("\t") for line in shell("log", day).splitlines()]
        assert [(line[0], line[2], line[3], line[4]) for line in lines] == [
            (memory_id.removeprefix("memory:"), did, "We deploy on Tuesdays", "forgotten")
            for did in ("stored", "forgotten")
        ]
    shell("restore", memory_id)
    assert [each["did"] for each in shell.json("log")["changes"]] == ["stored", "forgotten", "restored"]
    shell("forget", memory_id)
    _, output = shell.at_a_terminal("log", COLUMNS="120", PAGER="cat")
    assert days(0) in output
    assert "We deploy on Tuesdays (forgotten)" in output
    for day, dates in (
        ("yesterday", f"on {days(1)}"),
        ("last week", "from " + days(*(datetime.now().weekday() + 7 - each for each in (0, 6)))),
    ):
        done = shell.run("log", day)
        assert (done.stdout, done.stderr) == ("", f"Nothing was stored or changed {dates}.\n")


def test_pairs_that_wait_for_a_decision_are_reviewed(shell: Shell) -> None:
    for older, newer, decision in (
        ("the lantern service listens on port 8080", "the lantern service listens on port 9090 now", "--both"),
        ("The staging port is 5433", "The staging port is 5434 now", "--replaced"),
    ):
        old = shell.json("add", older)["memory_id"]
        shell.until_drained()  # else the answer does not wait for the vector
        asked = shell.run("add", newer).stderr
        waiting = asyncio.run(until(lambda: shell.json("list", "--review")["contradictions"]))
        assert "1 pair waits for a decision" in shell.run("log").stderr
        command = f"'remembrancer edit {waiting[0]['newer_id']} --supersedes {old}'"
        part = f"'remembrancer edit {old}'"
        assert f"replaces “{older}”. If so, run {command}. If only part of it has changed, run {part}." in asked
        assert [(each["older"], each["newer"]) for each in waiting] == [(older, newer)]
        [line] = shell("list", "--review").splitlines()
        new = waiting[0]["newer_id"]
        assert line.split("\t") == [old, older, f"replaced by “{newer}” ({new})?"]
        assert "Nothing is waiting" in shell("list", "--review", "--user")
        at_terminal = " ".join(shell.at_a_terminal("list", "--review")[1].split())
        assert "If only part of a memory has changed, 'remembrancer edit ID' opens it." in at_terminal
        assert f"outdated by “{newer}” ({new})?" in shell("search", older)
        assert "is neither forgotten nor replaced" in shell("restore", old, status=exit_codes.USAGE)
        assert f"'remembrancer undo {new if decision == '--both' else old}' undoes that" in shell("edit", old, decision)
        assert shell.pairs() == []
        assert shell.run("log").stderr == ""
        assert "similar_to" not in shell("show", old), "it says nearly the same, once"
    mine = shell.json("add", "My desk is in room 4", "--user")["memory_id"]
    shell.until_drained()
    now = shell.json("add", "My desk is in room 7 now", "--user")["memory_id"]
    assert asyncio.run(until(lambda: shell("list", "--review", "--user").startswith(f"{mine}\t")))
    shell("edit", mine, "--replaced")
    shell("forget", "--for-good", "--yes", mine, now)  # other tests of this home list the user's memories
    long = "The backups run at 02:00 to the NAS in the cellar, are kept for 30 days and are encrypted with age"
    old = shell.json("add", long)["memory_id"]
    shell.until_drained()
    asked = shell.run("add", "Backups to the NAS are kept for 60 days now").stderr
    assert (
        f"now” changes part of “{long}”. If so, run 'remembrancer edit {old}'. If it replaces all of it, run " in asked
    )
    assert f"--supersedes {old}'." in asked
    assert "\tchanged in part by “Backups to the NAS are kept for 60 days" in shell("list", "--review")
    shell("edit", old, "--both")
    older, newer = "Anna reviews the database migrations", "Database migrations are reviewed by Piotr now"
    old = shell.json("add", older)["memory_id"]
    shell.until_drained()
    assert "Perhaps “Database migrations are reviewed" in shell.run("add", newer).stderr, "of itself, not of the next"
    [(_, new)] = shell.pairs()
    assert "possibly_superseded_by" not in shell.json("search", older)["memories"][0], "it is only doubtful"
    assert f"outdated by “{newer}” ({new})?" in shell("search", older)
    assert f"\nIt replaces its earlier copy {old}\n" in shell("add", older), "it was in doubt"
    shell("undo", "--yes")
    shell("edit", old, "--both")
    older, newer = "Karl bakes rye bread", "Karl bakes cakes"
    old, new = (shell.json("add", text)["memory_id"] for text in (older, newer))
    assert asyncio.run(until(shell.pairs)) == [(old, new)]
    review = shell.run("list", "--review")
    assert (review.stdout, review.stderr) == ("", "1 less likely pair: --all shows it\n")
    assert shell.run("log").stderr == ""
    assert shell("list", "--review", "--all") == f"{old}\t{older}\treplaced by “{newer}” ({new})?\n"
    assert "--all goes with --review" in shell("list", "--all", status=exit_codes.USAGE)
    shell("edit", old, "--both")
    older, newer = "The back gate is shut at night", "The Back Gate is shut at night"
    old, new = (shell.json("add", text)["memory_id"] for text in (older, newer))
    alike = asyncio.run(until(lambda: shell.json("list", "--review")["alike"]))
    days = dict.fromkeys(("newer_day", "older_day"), f"{datetime.now():%Y-%m-%d}")
    assert alike == [{"newer_id": new, "newer": newer, "older_id": old, "older": older} | days]
    assert shell("list", "--review").split("\t")[2].strip() == f"nearly the same as “{newer}” ({new})"
    shell("edit", old, "--both")
    assert "Nothing is waiting for a decision" in shell("list", "--review")
    # An import is stored last, and is as old as its file.
    new = shell.json("add", "Build timeout is 45 minutes", "--kind", "decision")["memory_id"]
    notes = shell.directory / "MEMORY.md"
    notes.write_text("## Decisions\n- Build timeout is 10 minutes\n")
    os.utime(notes, (day := time.time() - 60 * DAY_S, day))
    assert "\nAfter that, run 'remembrancer list --review' to see memories that" in shell(
        "backup", "import", "MEMORY.md"
    )
    [(imported, newer)] = asyncio.run(until(shell.pairs))
    assert (newer, "10 minutes" in shell("show", imported)) == (new, True)
    listed = {each["id"]: each.get("possibly_superseded_by") for each in shell.json("list")["memories"]}
    assert (listed[new], listed[imported]) == (None, [new])
    assert f"outdated by “Build timeout is 45 minutes” ({new})?" in shell("list", "--until", "30d"), "also by itself"
    shown = shell("show", imported)
    assert f"imported {datetime.now():%Y-%m}" in shown
    assert f", dated {datetime.fromtimestamp(day):%Y-%m-%d}" in shown


def test_a_text_that_reports_an_open_end_as_done_offers_to_close_it(shell: Shell) -> None:
    end = shell.json("add", "Order a new dome seal from Baader", "--kind", "open_end")["memory_id"]
    shell.until_drained()
    asked = shell.run("add", "The new dome seal has been ordered from Baader").stderr
    assert f"closes “Order a new dome seal from Baader”. If so, run 'remembrancer edit {end} --done'." in asked
    assert re.search(rf"If it replaces all of it, run 'remembrancer edit \w+ --supersedes {end}'", asked)
    [[newer, line]] = [(newer, shell("list", "--review")) for older, newer in shell.pairs() if older == end]
    assert f"closed by “The new dome seal has been ordered from Baader” ({newer})?" in line
    found = [each["id"] for each in shell.json("search", "is the dome seal from Baader ordered")["memories"]]
    assert found == [newer, end]
    assert "Both are true: “Order a new dome seal from Baader” and “The new" in shell("edit", newer, "--both")


def test_of_several_pairs_of_a_memory_the_named_one_is_settled(shell: Shell) -> None:
    texts = (
        "The shop is open on Mondays, with Ana at the till",
        "The shop is open on Fridays now, not on Mondays",
        "The shop has Ben at the till now, not Ana",
    )
    old, day, person = (shell.json("add", text)["memory_id"] for text in texts)

    def newer_of_old() -> list[str]:
        return sorted(newer for older, newer in shell.pairs() if older == old)

    asyncio.run(until(lambda: newer_of_old() == sorted((day, person))))
    for decision in ("--both", "--replaced"):
        refused = shell("edit", old, decision, status=exit_codes.USAGE)
        assert f"'{decision} {day}' (“{texts[1]}”)" in refused
        assert f"'{decision} {person}' (“{texts[2]}”)" in refused
    assert f"Both are true: “{texts[0]}” and “{texts[1]}”; " in shell("edit", old, "--both", day)
    assert newer_of_old() == [person]
    shell("undo", day)
    assert newer_of_old() == sorted((day, person)), "one is accepted though the other may replace the same"
    assert f"“{texts[0]}” is replaced by: “{texts[2]}”" in shell("edit", old, "--replaced", person)
    assert newer_of_old() == []


def test_a_pair_that_review_leaves_out_is_in_no_search_and_can_be_settled(shell: Shell) -> None:
    texts = [f"the build of main takes {minutes} minutes" for minutes in (10, 18, 20)]
    days = "2024-01-05", "2024-02-05", "2024-03-05"
    hidden, asked, new = (
        shell.json("add", text, "--on", day)["memory_id"] for text, day in zip(texts, days, strict=True)
    )
    asyncio.run(until(lambda: [older for older, newer in shell.pairs() if newer == new] == [asked]))
    [line] = (line for line in shell("search", texts[0]).splitlines() if line.startswith(hidden))
    assert f"({new})?" not in line
    assert f"'remembrancer undo {asked}' undoes that" in shell("edit", hidden, "--both"), "Review showed that pair"
    assert f"'remembrancer undo {new}' undoes that" in shell("edit", hidden, "--both")
    shell("undo", new)
    shell("edit", asked, "--both")
    assert shell.pairs() == [(hidden, new)]
    [line] = (line for line in shell("search", texts[0]).splitlines() if line.startswith(hidden))
    assert f"({new})?" in line


@alone
def test_an_embedder_that_hangs_is_waited_for_in_silence(shell: Shell) -> None:
    shell("add", "The buoy is red")
    # While the model loads, the exit status of `status` is not 0.
    asyncio.run(until(lambda: embedded(json.loads(shell.run("status", "--json").stdout)["embedding"])))
    [pid] = [each["pid"] for each in shell.json("status")["processes"] if each["name"].startswith("embedder")]
    os.kill(pid, signal.SIGSTOP)
    added = shell.run("add", "Next: paint the boat; sand the oars; fold the sails")
    assert (added.returncode, added.stderr, added.stdout.count("Remembered")) == (0, f"{SPLIT}\n", 3)


def test_what_is_to_be_copied_is_not_broken_at_the_edge_of_a_terminal(shell: Shell) -> None:
    _, shown = shell.at_a_terminal("ui", "--print", COLUMNS="60")
    assert re.search(r"/enter\?link=rmb_\S{43}\r\n", shown), shown
    _, shown = shell.at_a_terminal("setup", "claude-code", "--hooks", "--print", COLUMNS="60", PAGER="cat")
    documents = re.split(r"(?m)^(?=\{)", shown)[1:]
    assert [next(iter(json.loads(each))) for each in documents] == ["mcpServers", "hooks"]


def test_a_pair_that_was_settled_waits_again_after_an_undo(shell: Shell) -> None:
    old, new = (shell.json("add", f"the lantern listens on port {port}")["memory_id"] for port in ("8080", "9090 now"))
    asyncio.run(until(shell.pairs))
    again = "Undid the last change (kept alongside another): “the lantern listens on port 9090 now”"
    for settled, undo, undone in (
        (("edit", old, "--both"), ("undo", "--yes"), again),
        (("edit", old, "--both"), ("undo", new), again),
        (("edit", old, "--supersedes", new), ("undo", "--yes"), "listens on port 9090 now”; it is valid again"),
    ):
        assert ("undo " in shell(*settled), "Nothing is waiting" in shell("list", "--review")) == (True, True)
        assert undone in shell(*undo)
        assert shell.pairs() == [(old, new)]
    assert "undid: kept alongside another" in shell("log")
    assert "related_to" not in shell("show", new)
    assert "is neither forgotten nor replaced" in shell("restore", old, status=exit_codes.USAGE)


@alone
def test_what_is_erased_is_nowhere_in_the_home_any_more(shell: Shell, home: Path) -> None:
    memory_id = shell.json("add", "the vault opens with marigold")["memory_id"]
    shell("add", "the vault is in the cellar")
    shell("edit", memory_id, "--content", "the vault opens with marigold and lavender")
    shell("search", "vault")
    shell("edit", memory_id, "--to", "user")
    erase = ("forget", "--for-good", memory_id)
    assert "Nothing was changed: confirm with --yes, or at a terminal" in shell(*erase, status=exit_codes.USAGE)
    status, shown = shell.at_a_terminal(*erase, says="n\n")
    assert status == exit_codes.FAILED
    assert "marigold" in shown, "what is about to go is shown"
    shell("forget", memory_id)
    assert shell.json("show", memory_id)["status"] == "forgotten"
    assert shell.json(*erase, "--yes")["erased"][0]["status"] == "erased"
    also = shell.json("add", "a marigold in a pot")["memory_id"]
    erased = shell.json(*erase, also, "--yes")["erased"]
    assert [each.get("already_erased") for each in erased] == [True, None], "one that is gone holds up no other"
    assert [memory["content"] for memory in shell.json("list")["memories"]] == ["the vault is in the cellar"]
    assert "marigold" not in shell("search", "vault")
    shell("show", memory_id, status=exit_codes.FAILED)
    assert files_with(home, b"marigold") == []


@alone
def test_projects_are_apart_unless_all_are_asked(shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = shell.json("add", "the port is 5433")["memory_id"]
    theirs = shell.json("add", "the port is 6000", "--project", str(tmp_path / "other"))["memory_id"]
    assert [memory["id"] for memory in shell.json("list")["memories"]] == [mine]
    assert {memory["id"] for memory in shell.json("list", "--all-projects")["memories"]} == {mine, theirs}
    found = shell.json("search", "port", "--all-projects")["memories"]
    assert {memory["id"] for memory in found} == {mine, theirs}
    assert len({memory["project"] for memory in found}) == 2
    _, shown = shell.at_a_terminal("list", "--all-projects")
    assert "project other" in shown
    ends = {line.split("\t")[4]: line.split("\t")[-1] for line in shell("list", "--all-projects").splitlines()}
    assert ends == {"the port is 5433": shell.directory.name, "the port is 6000": "other"}
    assert shell("list").endswith("\tthe port is 5433\t\n"), "it is the only project"
    assert "--all-projects" in shell("show", theirs, status=exit_codes.FAILED)
    assert shell.json("show", theirs, "--all-projects")["content"] == "the port is 6000"
    assert shell.json("list", "--project", str(tmp_path / "other"))["memories"][0]["id"] == theirs
    assert shell.json("list", "--project", "other")["memories"][0]["id"] == theirs
    assert "not a directory" in shell("list", "--project", "nowhere", status=exit_codes.USAGE)
    here, other = project_of(shell.directory), project_of(tmp_path / "other")
    exported = shell("backup", "export", "-", "--project", here.path).replace(here.id, other.id)
    shell("backup", "import", "-", stdin=exported.replace(here.path, other.path))  # two memories with one id
    shell("edit", mine, "the port is 5434")
    shell("edit", mine, "the port is 5435", "--project", other.path)
    assert {"the port is 5434", "the port is 5435"} <= {*re.split("[\t\n]", shell("log", "--all-projects"))}
    monkeypatch.setenv("REMEMBRANCER_PROJECT", other.path)
    shell("forget", "--yes", "--for-good", mine)
    assert [memory["id"] for memory in shell.json("list")["memories"]] == [theirs]
    assert [memory["id"] for memory in shell.json("list", "--project", here.path)["memories"]] == [mine], (
        "the option first"
    )


@alone
def test_a_directory_that_is_gone_is_no_part_of_the_repository_around_it(shell: Shell) -> None:
    gone = shell.directory / "gone"
    for repository in (gone, shell.directory):
        repository.mkdir(exist_ok=True)
        git("init", at=repository)
    around = shell.json("add", "the port is 5433")["memory_id"]
    lost = shell.json("add", "the port is 7000", "--project", str(gone))["memory_id"]
    shutil.rmtree(gone)
    memories = shell.json("list", "--all-projects")["memories"]
    projects = {memory["id"]: memory["project"] for memory in memories}
    assert projects.keys() == {around, lost}
    for memory_id, project in projects.items():
        assert [each["id"] for each in shell.json("list", "--project", project)["memories"]] == [memory_id]
    shell("add", "the host is blue", "--project", projects[lost])
    assert len(shell.json("list", "--project", projects[lost])["memories"]) == 2
    inner = shell.directory / "docs"
    inner.mkdir()
    assert "for the project app: the host is red" in Shell(shell.home, inner)("add", "the host is red")


def test_a_change_that_is_queued_is_said_to_be_so(shell: Shell) -> None:
    memory_id = shell.json("add", "We deploy on Tuesdays")["memory_id"]
    with closing(connect_space(RuntimePaths(shell.home), project_of(shell.directory).id)) as other:
        other.execute("BEGIN IMMEDIATE")  # as another program that has the file locked
        done = shell.run("edit", memory_id, "--kind", "decision")
        undone = shell.run("undo", "--yes")
    assert (done.returncode, done.stdout[:7], done.stderr) == (0, "Queued ", ""), "said once"
    assert undone.returncode == exit_codes.NO_ANSWER, undone.stdout
    assert "1 queued write is not searched yet" in undone.stderr, "it would undo the change before that"


def test_no_memory_steers_a_terminal_and_colours_are_for_terminals_alone(shell: Shell) -> None:
    hostile = "danger \x1b]0;title\x07 \x1b[31m red [bold]markup[/bold]"
    memory_id = shell.json("add", "-", stdin=hostile)["memory_id"]
    assert "[bold]markup[/bold]" in shell("list")
    shell("edit", memory_id, "--reason", "typo", "It lies behind <system>")
    assert "[bold]markup[/bold] → It lies behind ‹system>" in shell("show", "--history", memory_id)
    for shows in (("list",), ("show", memory_id), ("show", "--history", memory_id)):
        shown = shell.at_a_terminal(*shows, PAGER="cat", LINES="5")[1]
        assert not [each for each in ("\x1b]", "\x07", "\x1b[31m red") if each in shown]
    assert "\x1b[" in shell.at_a_terminal("list")[1], "our own colours are there"


def test_the_log_has_the_run_of_a_sessions_end_and_an_undo_takes_it_back_as_a_whole(shell: Shell) -> None:
    texts = (
        "The queue of the mail workers was full at noon",
        "Mails were late this morning since the mail queue was full",
        "A mail worker died because its queue was full",
    )

    async def session() -> None:
        async with Session(shell.home, cwd=shell.directory) as client:
            for text in texts:
                await client.call("store_memory", content=text, kind="observation", wait_for_embedding=True)

    asyncio.run(session())
    asyncio.run(until(lambda: "\tsession end\t4 memories\t" in shell("log")))
    assert "made of 3 memories" in shell("list")
    refused = shell("undo", status=exit_codes.USAGE)
    assert re.search(r"Undo the session end of .*\(4 memories, summarised or promoted\)", refused)
    (run_id,) = re.findall(r"^run:\w+", shell("log"), re.MULTILINE)
    assert "4 memories restored" in shell("undo", "--yes")
    assert "made of" not in shell("list")
    assert "it had already been undone" in shell("undo", run_id)
    assert "no run with the id run:unknown" in shell("undo", "run:unknown", status=exit_codes.USAGE)
    assert f"(stored): “{texts[-1]}”, an observation; it is forgotten now" in shell("undo", "--yes")


def test_the_end_and_the_day_that_an_assistant_gave_are_told_as_they_are(shell: Shell) -> None:
    async def session() -> list[str]:
        async with Session(shell.home, cwd=shell.directory) as client:
            given: tuple[dict[str, str], ...] = (
                {"content": "The permit is valid", "valid_until": "2020-03-01", "occurred_at": "0001-01-01T00:30:00Z"},
                {"content": "The hall is ours until spring", "valid_until": "2199-03-01"},
            )
            stored = [(await client.call("store_memory", **each))["memory_id"] for each in given]
            await client.call("update_memory", memory_id=stored[1], valid_until="2199-06-01")
            return stored

    permit, hall = asyncio.run(session())
    shell("forget", permit)
    assert "(still expired)" in shell("restore", permit), "no second restore would make it valid"
    began = time.time()
    assert "Undid the last change (its end): “The hall" in shell("undo", hall)
    assert shell.json("admin", "projects")["projects"][0]["last_used_at"] > began, "the shell came after the session"
    for zone in ("UTC", "America/New_York"):
        assert "0001-01-01" in shell.at_a_terminal("list", TZ=zone)[1]


def test_an_undo_at_a_terminal_asks_once_before_it_forgets(shell: Shell) -> None:
    memory_id = shell.json("add", "The lantern is lit at nine")["memory_id"]
    status, shown = shell.at_a_terminal("undo", memory_id, says="n\n")
    assert (status, shown.count("[y/N]")) == (exit_codes.FAILED, 1)
    assert "This forgets: The lantern is lit at nine" in " ".join(shown.split())
    assert len(shell("list").splitlines()) == 1
    status, shown = shell.at_a_terminal("undo", says="y\n")
    assert (status, shown.count("[y/N]")) == (exit_codes.OK, 1), shown
    assert "; it is forgotten now" in " ".join(shown.split())


def test_a_terminal_shows_the_beginning_of_a_long_memory_and_a_pipe_all_of_it(shell: Shell) -> None:
    long = "The quay wall was measured. " * 200
    added = shell("add", "-", stdin=long)
    assert added.endswith(" …  " + shell.json("list", "-n", "1")["memories"][0]["id"][-4:] + "\n")
    for shows in (("list", "-n", "1"), ("search", "quay wall", "-n", "1"), ("log",)):
        _, shown = shell.at_a_terminal(*shows, PAGER="cat")
        assert (shown.count("…"), shown.count("measured") < 20) == (1, True), shown
        assert shell(*shows).count("measured") > 50
    assert " …\t" in shell("log"), "it has only the beginning of so long a text, and says so"
    _, asked = shell.at_a_terminal("undo", says="n\n")
    assert len(asked) < 500
    wall = shell.json("list", "-n", "1")["memories"][0]["id"]
    shell("edit", wall, "--summary", "The quay wall is straight")
    shell("add", "A storm damaged it. " * 9, "--summary", "The storm", "--on", "2024-02-03")
    assert [line.split("\t")[3] for line in shell("log").splitlines()][1:] == ["The quay wall is straight", "The storm"]
    assert shell("log", "2024-02-03").split("\t")[3] == "The storm"
    assert re.fullmatch(r"Undid the last change \(summary\): “The quay.*", shell("undo", wall).strip())


def test_a_search_at_a_terminal_shows_the_best_five_and_how_many_are_weaker(shell: Shell) -> None:
    for number in range(8):
        shell("add", f"The ferry number {number} leaves the harbour at {number} o'clock")
    shell.until_drained()  # a search that waits in vain for the model says so
    _, shown = shell.at_a_terminal("search", "ferry", "harbour")
    assert (shown.count("o'clock"), "3 weaker results (--all" in shown) == (5, True)
    _, shown = shell.at_a_terminal("search", "ferry", "harbour", "--all")
    assert (shown.count("o'clock"), "weaker" in shown) == (8, False)
    _, shown = shell.at_a_terminal("search", "ferry", "harbour", "--all", "-n", "6")
    assert (shown.count("o'clock"), "2 weaker results (-n N" in shown) == (6, True)
    assert len(shell("search", "ferry", "harbour").splitlines()) == 5
    printed = shell.run("search", "ferry", "harbour", "--json")
    assert (len(json.loads(printed.stdout)["memories"]), printed.stderr) == (8, ""), "none is left out"
    assert len(shell("search", "ferry", "harbour", "--all").splitlines()) == 8
    _, shown = shell.at_a_terminal("search", "purple elephants in a bathtub")
    assert "None of these surely answers. The closest results:" in shown
    for thing in ("the pager", "a mooring", "the tide table", "her opinion", "a rope", "the invoice", "two lanterns"):
        shell("add", f"Ask Lucia for {thing}", "--kind", "open_end")
    assert len(shell("search", "--open", "Lucia").splitlines()) == 7, "of what is open, all is shown"


def test_a_due_date_may_be_a_word_and_so_may_the_day_of_an_event(shell: Shell) -> None:
    today = datetime.now().astimezone()
    words = {"tomorrow": 1, "next friday": 11 - today.weekday()}
    for word, days in words.items():
        memory_id = shell.json("add", f"paint the boat {word}", "--due", word)["memory_id"]
        assert shell.json("show", memory_id)["due"].startswith(f"{today + timedelta(days=days):%Y-%m-%d}")
    at = datetime(2030, 12, 10, 14, 30).astimezone().astimezone(UTC)
    timed = shell.json("add", "paint the mast", "--due", "2030-12-10 14:30")["memory_id"]
    assert shell.json("show", timed)["due"].startswith(f"{at:%Y-%m-%dT%H:%M}")
    due = shell("search", "what is due by tomorrow?")
    assert "boat tomorrow" in due
    assert "mast" not in due, "that is due later"
    assert "2026-02-20 or '4 December'" in shell("edit", memory_id, "--due", "soon", status=exit_codes.USAGE)
    assert ", which has passed; " in shell("edit", memory_id, "--due", "yesterday")
    memory_id = shell.json("add", "sand the boat", "--kind", "open_end", "--due", "none")["memory_id"]
    assert "due" not in shell.json("show", memory_id)
    shell("add", "the gate jammed", "--on", "yesterday")
    assert f"\t{today - timedelta(days=1):%Y-%m-%d}\t" in shell("list")
    assert "is not a past day; give today" in shell("add", "the gate jams", "--on", "tomorrow", status=exit_codes.USAGE)


def test_days_and_times_are_those_of_the_zone_here(shell: Shell) -> None:
    hours = 14 if datetime.now(UTC).hour >= 10 else -12  # where it is another day than in UTC, for two hours or more
    here = {"TZ": f"Etc/GMT{-hours:+}", "COLUMNS": "200", "NO_COLOR": "1"}
    day = f"{datetime.now(UTC) + timedelta(hours=hours):%Y-%m-%d}"
    added = shell.at_a_terminal("add", "Paint the boat", "--due", "2030-12-01T15:30", **here)[1]
    assert ", an open end due 2030-12-01 15:30: Paint the boat" in added
    (memory,) = shell.json("list")["memories"]
    assert memory["due"] == f"{datetime(2030, 12, 1, 15, 30) - timedelta(hours=hours):%Y-%m-%dT%H:%M:%SZ}"
    edited = shell.at_a_terminal("edit", memory["id"], "--due", "2030-12-02T00:30", **here)[1]
    assert "an open end due 2030-12-02 00:30; " in edited
    assert "an open end due 2030-12-01 15:30  " in shell.at_a_terminal("undo", memory["id"], **here)[1]
    shell("tag", memory["id"], "sea")
    for looks in (("list",), ("search", "boat"), ("list", "--since", f"{day}T00:00")):
        shown = " ".join(shell.at_a_terminal(*looks, **here)[1].split())
        assert "due 2030-12-01 15:30" in shown
        assert day in shown
    none = f"There is no memory here dated until {day}"
    assert none in shell.at_a_terminal("list", "--until", f"{day}T00:00", **here)[1]
    logged = shell.at_a_terminal("log", "today", PAGER="cat", **here)[1]
    assert (logged.startswith(f"{date.fromisoformat(day):%A} {day}\r\n"), "Paint the boat" in logged) == (True, True)
    event = shell.json("add", "The mast broke", "--on", "2024-02-03")["memory_id"]
    logged = " ".join(shell.at_a_terminal("log", "2024-02-03", PAGER="cat", **here)[1].split())
    assert " 2024-02-03 happened The mast broke " in logged
    assert "Nothing was stored" in shell.at_a_terminal("log", "2024-02-04", **here)[1]
    assert "occurred at: 2024-02-03\r\n" in shell.at_a_terminal("show", event, **here)[1]
    shell("forget", memory["id"])
    assert f"forgotten at: {day}" in shell.at_a_terminal("show", memory["id"], **here)[1]


def test_a_command_is_understood_by_its_name_of_release_0_2_0_and_says_the_present_one(shell: Shell) -> None:
    memory_id = shell.json("add", "We deploy on Tuesdays")["memory_id"]
    for former, present in cases("shell", "former_names"):
        done = shell.run(*former.replace("ID", memory_id).split())
        assert done.returncode == exit_codes.OK, done.stderr
        assert f"'remembrancer {former.split()[0]}' is now called 'remembrancer {present}'" in done.stderr


def test_help_knows_every_command_in_its_group_and_breaks_no_word(shell: Shell) -> None:
    told = shell("help")
    assert len(COMMANDS) == 23, "22 for everybody, and those under admin"
    assert [name for name in COMMANDS if f"\n  {name} " not in told] == []
    assert re.findall(r"^(\w+):$", told, flags=re.MULTILINE)[1:4] == ["Memories", "Setup", "More"]
    words = {word for _, _, text in COMMANDS.values() for word in text.split()}
    assert words <= set(told.split())
    assert max(map(len, told.splitlines())) <= 80
    assert "--all-projects" in shell("help", "search")


def test_bash_completes_commands_options_and_choices(shell: Shell) -> None:
    for name in ("zsh", "fish", "bash"):
        assert "_REMEMBRANCER_COMPLETE" in shell("admin", "completion", name)
    for typed, meant in cases("shell", "completed"):
        words = {"COMP_WORDS": f"remembrancer {typed}", "COMP_CWORD": str(typed.count(" ") + 1)}
        done = command(home=shell.home, variables={"_REMEMBRANCER_COMPLETE": "bash_complete", **words})
        assert [line.partition(",")[2] for line in done.stdout.split()] == [meant]
