import io
import json
import os
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing, redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from rich.console import Console

from remembrancer.actors import snapshots
from remembrancer.actors.migrations import Schema, Step
from remembrancer.commands import doctor
from remembrancer.commands.clients import ClientEnvironment
from remembrancer.commands.doctor import Examination, Finding, worst
from remembrancer.commands.home_reader import examine_file
from remembrancer.commands.status import duration, lines_of, report
from remembrancer.commands.terminal import print_lines
from remembrancer.protocol.control import GatewayHealth, ProcessState, ProcessStatus, RuntimeStatus, StoreHealth
from remembrancer.protocol.errors import FileLocked
from remembrancer.protocol.paths import RuntimePaths
from remembrancer.protocol.problems import ADVICE, find_problems
from remembrancer.protocol.reads import Counts, EmbeddingSummary
from remembrancer.protocol.sharing import LaneState
from remembrancer.protocol.work import ModelChoice, ModelProgress
from remembrancer.protocol.writes import ProjectRef
from tests.cases import cases
from tests.spaces import write_rows


@pytest.fixture
def at(tmp_path: Path) -> Examination:
    home, user, project = tmp_path / "memory", tmp_path / "ana", tmp_path / "ana" / "app"
    project.mkdir(parents=True)
    home.mkdir(mode=0o700)
    return Examination(RuntimePaths(home), ClientEnvironment(user, {"PATH": str(user / "bin")}, "linux", project))


def test_only_findings_that_ask_for_something_are_listed_and_the_worst_decides(at: Examination) -> None:
    found = {
        "home": Finding("ok", "/home"),
        "model": Finding("ok", "3 memories wait", "nothing to do"),
        "clients": Finding("warning", "no assistant uses it", "setup connects one"),
    }

    def printed(found: dict[str, Finding], *, shows_all: bool) -> str:
        console = Console(width=1000)
        with console.capture() as captured:
            console.print(*doctor.lines_of(at.paths.home, found, shows_all=shows_all), sep="\n")
        return captured.get()

    few = printed(found, shows_all=False)
    assert "/home" not in few.partition("\n")[2]
    assert "nothing to do" in few
    assert "1 warning to look at; 1 check found nothing wrong (--all shows them)" in few
    assert "--all" not in printed(found, shows_all=True)
    well = printed({"home": found["home"]}, shows_all=False)
    assert well.splitlines() == ["Nothing is wrong. Checked: home (--all shows each)."]
    assert worst([]) == "ok"
    assert worst(["ok", "warning", "ok"]) == "warning"
    assert worst(["warning", "problem", "ok"]) == "problem"


@pytest.mark.parametrize(
    ("spoil", "status", "word"),
    [
        (lambda paths: paths.home.chmod(0o707), "problem", "other users can write"),
        (lambda paths: paths.home.chmod(0o755), "warning", "other users can open"),
        (lambda paths: (paths.home.rmdir(), paths.home.touch()), "problem", "not a directory"),
        (lambda paths: (paths.home.rmdir(), paths.home.symlink_to("/dev/null/inside")), "problem", "cannot be checked"),
        (lambda paths: paths.home.rmdir(), "ok", "first session"),
    ],
)
def test_a_home_out_of_use_is_said(
    at: Examination, spoil: Callable[[RuntimePaths], object], status: str, word: str
) -> None:
    spoil(at.paths)
    finding = doctor.check_home(at)
    assert (finding.status, word in finding.found) == (status, True), finding


@pytest.mark.parametrize(("environ", "status", "words"), cases("doctor", "variables"))
def test_a_wrong_setting_is_said_in_its_words(
    at: Examination, environ: dict[str, str], status: str, words: str
) -> None:
    around = ClientEnvironment(at.around.home, environ, "linux", at.around.project)
    finding = doctor.check_configuration(Examination(at.paths, around))
    assert finding.status == status
    assert words in " ".join([finding.found, *finding.details])


@pytest.mark.parametrize(("up_s", "status"), [(None, "ok"), (5.0, "ok"), (3600.0, "warning")])
def test_a_late_daily_copy_is_reported_if_the_store_had_time_to_make_it(
    at: Examination, up_s: float | None, status: str
) -> None:
    at.paths.database.write_bytes(b"changed")
    copy = at.paths.home / "backups" / "memory.db.20260101T120000Z"
    copy.parent.mkdir()
    copy.touch()
    if up_s is not None:
        at.runtime = replace(runtime(), processes=(replace(process("store"), uptime_s=up_s),))
    finding = doctor.check_copies(at)
    assert finding.status == status
    assert "disk" not in finding.advice


WELL = EmbeddingSummary("onnx", "all-MiniLM-L6-v2", 384, pending=0, workers=1)
NOTHING: Mapping[str, Any] = {}
GATEWAY = GatewayHealth(sessions=2, queue_depth=0, queue_rejected=0, store="connected")


def process(role: str, state: ProcessState = "ready", error: str | None = None) -> ProcessStatus:
    return ProcessStatus(role, 42, state, 0, 12.5, 1024, error, name=role)


def runtime(
    store: ProcessState = "ready", *, gateway: Mapping[str, Any] | None = NOTHING, **embedding: Any
) -> RuntimeStatus:
    """The status of a runtime that is well but for what is given of its gateway (None: unheard of) and its engine."""
    rows = (process("launcher"), process("gateway"), process("store", store), process("embedder"))
    heard = None if gateway is None else replace(GATEWAY, **gateway)
    return RuntimeStatus("/home", rows, heard, StoreHealth(Counts(total=3), replace(WELL, **embedding)))


def cut_off(code: str) -> RuntimeStatus:
    lane = LaneState("l_0123456789ab", "/srv/shop/.git", problem="nobody answers", code=code)
    return replace(runtime(), store=StoreHealth(Counts(), WELL, cut_off=(lane,)))


MODELS = (
    ModelProgress(ModelChoice("onnx", "large"), "active", 384, 0, 0, 0, answers=False, error="no weights"),
    ModelProgress(ModelChoice("onnx", "small"), "fallback", 384, 1, 0, 0, answers=True),
)
OPENING = StoreHealth(None, WELL, opening=True)
FULL = StoreHealth(Counts(), WELL, limit_reached_bytes=3 * 2**20)
UNUSABLE = StoreHealth(Counts(), WELL, unusable=("p_1/memory.db cannot be read",))


def processes_of(at: Examination, status: RuntimeStatus, monkeypatch: pytest.MonkeyPatch) -> Finding:
    monkeypatch.setattr(doctor, "look", lambda _: status)
    return doctor.check_processes(at)


@pytest.mark.parametrize(
    ("status", "expected", "says"),
    [
        *((runtime(**differs), expected, says) for differs, expected, says in cases("doctor", "runtimes")),
        (runtime(gateway=None), "warning", "gateway has not reported"),
        (replace(runtime(), store=None), "warning", "store has not reported"),
        (replace(runtime("starting"), store=None), "warning", "store is starting"),
        (runtime(models=MODELS), "warning", "large with onnx cannot be used: no weights"),
        (replace(runtime(), store=OPENING), "warning", "older release are being upgraded"),
        (replace(runtime(), store=UNUSABLE), "warning", "p_1/memory.db cannot be read"),
        (replace(runtime(), store=FULL), "problem", "have reached the limit of 3.0 MiB"),
        (cut_off("journal_away"), "warning", "the project /srv/shop are not exchanged with the other machines"),
        (cut_off("journal_refused"), "problem", "nobody answers"),
    ],
)
def test_what_passes_by_itself_is_a_warning_and_the_rest_a_problem(
    at: Examination, monkeypatch: pytest.MonkeyPatch, status: RuntimeStatus, expected: str, says: str
) -> None:
    finding = processes_of(at, status, monkeypatch)
    assert (finding.status, bool(finding.advice), says in finding.found) == (expected, True, True)
    assert [says in problem.what for problem in find_problems(status)] == [True]


def test_a_project_is_told_no_problem_of_another_one() -> None:
    stuck = runtime(gateway={"queue_stuck": {"p_1": "locked"}, "queue_stuck_at": {"p_1": "/srv/shop/.git"}})
    for status in (stuck, cut_off("journal_away")):
        seen = [
            find_problems(status, ProjectRef(name, path)) for name, path in (("p_1", "/srv/shop/.git"), ("p_2", "/"))
        ]
        assert seen == [find_problems(status), ()]


def database(path: Path, version: int, *statements: str) -> Path:
    write_rows(path, *statements, f"PRAGMA user_version = {version}")
    return path


def test_a_file_that_is_not_whole_is_said(at: Examination, monkeypatch: pytest.MonkeyPatch) -> None:
    home = at.paths.home
    two = Schema(Step("0.2.0", ""), Step("0.3.0", ""))
    assert examine_file(database(home / "a.db", 30000), two).status == "ok"
    of_old = database(home / "g.db", 20000, "CREATE TABLE memories (id TEXT)")
    older = examine_file(of_old, two)
    assert (older.status, "from release 0.2.0" in older.found) == ("ok", True)
    too_old = examine_file(database(home / "b.db", 1), two)
    assert (too_old.status, "a release older than 0.2.0" in too_old.found) == ("problem", True)
    newer = examine_file(database(home / "c.db", 1230400), two)
    assert (newer.status, "newer release (1.23.4 or later" in newer.found) == ("problem", True)
    tables = ("CREATE TABLE a (x PRIMARY KEY)", "CREATE TABLE b (y REFERENCES a)", "INSERT INTO b VALUES (1)")
    assert "1 rows refer" in examine_file(database(home / "d.db", 30000, *tables), two).found
    (home / "e.db").write_bytes(b"no database" * 100)
    assert "not a database" in examine_file(home / "e.db", two).found
    with closing(sqlite3.connect(database(home / "f.db", 30000), isolation_level=None)) as other:
        for statement in ("journal_mode = WAL", "locking_mode = EXCLUSIVE", "user_version = 30000"):
            other.execute(f"PRAGMA {statement}")
        monkeypatch.setattr(snapshots, "BUSY_S", 0.05)
        assert "locked" in examine_file(home / "f.db", two).found
        monkeypatch.setattr(snapshots, "BUSY_MOMENT_S", 0.05)
        with pytest.raises(FileLocked, match="another program"), snapshots.snapshot_of(home / "f.db", two):
            pass


def test_no_file_is_no_trouble_and_a_damaged_one_that_was_set_aside_is_named(at: Examination) -> None:
    assert doctor.check_records(at).status == doctor.check_files(at).status == "ok"
    (at.paths.home / "queue.damaged-1").touch()
    damaged = doctor.check_files(at)
    assert (damaged.status, "queue.damaged-1" in damaged.details[0]) == ("warning", True)


@pytest.mark.parametrize(("client", "entry", "status", "word"), cases("doctor", "entries"))
def test_what_a_client_starts_has_to_be_there(
    at: Examination, client: str, entry: dict[str, object] | str, status: str, word: str
) -> None:
    bin_directory = at.around.home / "bin"
    bin_directory.mkdir()
    (bin_directory / "remembrancer").write_text("#!/bin/sh\n")
    (bin_directory / "remembrancer").chmod(0o755)
    file = at.around.home / client
    file.parent.mkdir(exist_ok=True)
    text = entry if isinstance(entry, str) else json.dumps({"mcpServers": {"r": entry}})
    file.write_text(text.replace("{bin}", str(bin_directory)))
    finding = doctor.check_clients(at)
    assert finding.status == status
    assert word in " ".join(finding.details)


def test_without_any_entry_the_clients_that_were_found_are_named(at: Examination) -> None:
    (at.around.home / ".cursor/extensions").mkdir(parents=True)
    finding = doctor.check_clients(at)
    assert finding.status == "ok"
    assert "Cursor" in finding.found
    assert "setup" in finding.advice


def test_a_check_that_failed_is_a_problem_and_others_go_on(at: Examination, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: Examination) -> doctor.Finding:
        raise OSError("gone")

    monkeypatch.setattr(doctor, "CHECKS", {"home": fail, "files": doctor.check_files})
    found = at.run()
    assert found["home"].status == "problem"
    assert "gone" in found["home"].found
    assert found["files"].status == "ok"


def test_a_home_of_another_user_is_said(at: Examination, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 4711)
    assert "another user" in doctor.check_home(at).found


# --- The status of a runtime for a program and for a person.
def test_a_runtime_is_well_or_not_and_its_table_says_what_is_wrong_and_what_to_do(
    at: Examination, monkeypatch: pytest.MonkeyPatch
) -> None:
    well = processes_of(at, runtime(), monkeypatch)
    assert (well.status, well.advice, find_problems(runtime())) == ("ok", "", ())
    status = runtime(workers=0)
    assert find_problems(replace(status, processes=status.processes[:3])) == ()
    status = runtime()
    old = replace(status.processes[0], role="launcher", uptime_s=1e9)
    (problem,) = find_problems(replace(status, processes=(old, *status.processes[1:])))
    assert "before this release was installed" in problem.what
    assert "remembrancer down" in problem.advice
    text = printed(
        replace(status, processes=(*status.processes[:3], process("embedder", "failed", "no [weights] here")))
    )
    assert "no [weights] here" in text
    assert ADVICE["failed"] in text
    status = runtime(dead_letters=1, dead_letter_error="it will not")
    assert "embedders crashed on them or refused them: it will not" in printed(status)
    assert report(Path("/h"), status, ())["embedding"]["dead_letters"] == 1


def test_the_object_for_programs_says_what_the_runtime_said_under_the_same_keys_as_when_nothing_runs() -> None:
    said = json.loads(json.dumps(report(Path("/home"), runtime(), find_problems(runtime()))))
    nothing = report(Path("/home"), None, ())
    assert said.keys() == nothing.keys()
    assert nothing["processes"] == []
    for key in ("write_queue", "embedding", "gateway"):
        assert said[key].keys() == nothing[key].keys()
    store = {"role": "store", "name": "store", "pid": 42, "state": "ready", "error": None}
    assert said["processes"][2] == store | {"restarts": 0, "uptime_s": 12.5, "rss_bytes": 1024}
    assert said["write_queue"]["depth"] == 0
    assert said["embedding"]["model"] == "all-MiniLM-L6-v2"
    assert said["counts"]["total"] == 3
    assert said["warnings"] == []


def printed(status: RuntimeStatus) -> str:
    out = io.StringIO()
    with redirect_stdout(out):
        print_lines(lines_of(status, find_problems(status)))
    return out.getvalue()


def test_a_time_span_is_said_as_a_person_says_it() -> None:
    assert [duration(seconds) for seconds, _ in cases("doctor", "time_spans")] == [
        text for _, text in cases("doctor", "time_spans")
    ]
