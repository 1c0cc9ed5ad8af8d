"""What the doctor makes of what it finds."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from remembrancer.commands.checks import (
    GIB,
    MIB,
    Check,
    ClientFacts,
    EntryFacts,
    FileFacts,
    HomeFacts,
    LockFacts,
    ModelFacts,
    QueueFacts,
    Wide,
    check_clients,
    check_configuration,
    check_disk,
    check_failed,
    check_home,
    check_index,
    check_lock,
    check_model,
    check_no_answer,
    check_orphans,
    check_permissions,
    check_processes,
    check_queue,
    check_records,
    check_versions,
    worst,
)
from remembrancer.commands.status import find_problems
from remembrancer.protocol.control import (
    GatewayHealth,
    IndexFigures,
    ProcessState,
    ProcessStatus,
    RuntimeStatus,
    StoreHealth,
)
from remembrancer.protocol.reads import Counts, EmbeddingSummary

HOME = Path("/home/ana/.local/share/remembrancer")


def test_the_worst_finding_decides() -> None:
    ok, warning, problem = (Check("x", status, "") for status in ("ok", "warning", "problem"))
    assert worst([]) == "ok"
    assert worst([ok, warning, ok]) == "warning"
    assert worst([warning, problem, ok]) == "problem"


@pytest.mark.parametrize(
    ("facts", "status", "word"),
    [
        (HomeFacts(HOME, "directory", writable=True, file_system="ext4"), "ok", str(HOME)),
        (HomeFacts(HOME, "directory", writable=True, half_restored=True), "problem", "interrupted"),
        (HomeFacts(HOME, "missing", writable=True, file_system="ext4"), "ok", "first session"),
        (HomeFacts(HOME, "missing", writable=False), "problem", "written"),
        (HomeFacts(HOME, "other", writable=False), "problem", "not a directory"),
        (HomeFacts(HOME, "unreachable", writable=False), "problem", "looked at"),
        (HomeFacts(HOME, "directory", writable=False), "problem", "written"),
        (HomeFacts(HOME, "directory", writable=True, owned=False), "problem", "another user"),
        (HomeFacts(HOME, "directory", writable=True, open_to_all=True), "problem", "everyone"),
        (HomeFacts(HOME, "directory", writable=True, file_system="nfs4"), "warning", "nfs4"),
        (HomeFacts(HOME, "directory", writable=True, file_system="9p"), "warning", "9p"),
        (HomeFacts(HOME, "directory", writable=True, file_system="fuse.sshfs"), "warning", "sshfs"),
        (HomeFacts(HOME, "directory", writable=True, file_system="overlay"), "warning", "container"),
        (HomeFacts(HOME, "directory", writable=True, file_system="tmpfs"), "warning", "memory"),
        (HomeFacts(HOME, "directory", writable=True, file_system="tmpfs", meant_to_pass=True), "ok", str(HOME)),
    ],
)
def test_a_home_that_is_no_good_place_is_said(facts: HomeFacts, status: str, word: str) -> None:
    check = check_home(facts)
    assert check.status == status
    assert word in check.found
    assert (check.advice == "") == (status == "ok")


def test_sockets_that_lie_elsewhere_are_mentioned() -> None:
    check = check_home(HomeFacts(HOME, "directory", writable=True, sockets=Path("/tmp/remembrancer-1000-ab")))
    assert check.status == "ok"
    assert "/tmp/remembrancer-1000-ab" in check.details[0]


def test_what_others_can_get_at_is_listed_and_then_counted() -> None:
    wide = [Wide(HOME / f"{number}.db", 0o644, 0o600) for number in range(12)]
    check = check_permissions(wide, [], 20)
    assert check.status == "warning"
    assert "12 of 20" in check.found
    assert "--fix" in check.advice
    assert len(check.details) == 11
    assert check.details[0].endswith("mode 0644, should be 0600")
    assert check.details[-1] == "and 2 more"


def test_what_was_narrowed_is_said_and_what_is_anothers_stays_a_problem() -> None:
    narrowed = Wide(HOME / "logs", 0o755, 0o700)
    check = check_permissions([], [narrowed], 5)
    assert check.status == "ok"
    assert check.details == (f"{HOME}/logs: 0755 is now 0700",)
    foreign = check_permissions([Wide(HOME / "x", 0o600, 0o600, owned=False)], [], 5)
    assert foreign.status == "problem"
    assert "chown" in foreign.advice
    assert "--fix" not in foreign.advice


@pytest.mark.parametrize(
    ("free", "used", "status"),
    [
        (10 * GIB, GIB, "ok"),
        (GIB - 1, 0, "warning"),
        (3 * GIB, 2 * GIB, "warning"),
        (MIB, MIB, "problem"),
    ],
)
def test_room_is_wanted_for_twice_what_is_stored(free: int, used: int, status: str) -> None:
    assert check_disk(free, used).status == status


def test_an_old_python_and_a_sqlite_without_fts5_are_problems() -> None:
    assert check_versions((3, 11, 0), "3.40.1", has_fts5=True).status == "ok"
    assert check_versions((3, 10, 9), "3.40.1", has_fts5=True).status == "problem"
    assert check_versions((3, 12, 0), "3.40.1", has_fts5=False).status == "problem"


def test_a_wrong_setting_is_a_problem_in_its_own_words() -> None:
    assert check_configuration(None).status == "ok"
    assert check_configuration("unknown name X: did you mean Y?").found == "unknown name X: did you mean Y?"


@pytest.mark.parametrize(
    ("facts", "status", "word"),
    [
        (LockFacts(held=False), "ok", "nothing runs"),
        (LockFacts(held=False, recorded=7), "ok", "left of process 7"),
        (LockFacts(held=True, recorded=7, recorded_lives=True), "ok", "process 7"),
        (LockFacts(held=True), "ok", "starting"),
        (LockFacts(held=True, recorded=7), "warning", "dead"),
        (LockFacts(held=False, unreadable="Permission denied"), "problem", "Permission denied"),
    ],
)
def test_the_lock_says_who_has_the_home(facts: LockFacts, status: str, word: str) -> None:
    check = check_lock(facts)
    assert check.status == status
    assert word in check.found


EMBEDDING = EmbeddingSummary("onnx", "m", 384, pending=0, workers=1, vectors_ready=True)


def status_of(state: ProcessState = "ready", *, error: str | None = None, queued: int = 0) -> RuntimeStatus:
    return RuntimeStatus(
        home=str(HOME),
        processes=(ProcessStatus("store", 7, state, 0, 1.0, 1), ProcessStatus("embedder", 8, "ready", 0, 1.0, 1)),
        gateway=GatewayHealth(sessions=1, queue_depth=queued, queue_rejected=0, store="connected"),
        store=StoreHealth(Counts(), msgspec.structs.replace(EMBEDDING, error=error)),
    )


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (status_of(), "ok"),
        (status_of("restarting"), "warning"),
        (status_of(queued=3), "warning"),
        (status_of("failed"), "problem"),
        (status_of("unresponsive"), "problem"),
        (status_of(error="no weights"), "problem"),
    ],
)
def test_what_passes_by_itself_is_a_warning_and_the_rest_a_problem(status: RuntimeStatus, expected: str) -> None:
    check = check_processes(status, find_problems(status))
    assert check.status == expected
    assert (check.advice == "") == (expected == "ok")


def test_a_launcher_that_hangs_and_processes_without_one_are_named_with_what_to_do() -> None:
    hangs = check_no_answer(42, "no answer in 3 s")
    assert hangs.status == "problem"
    assert "42" in hangs.found
    left = check_orphans([(7, "store"), (8, "gateway")])
    assert left.status == "problem"
    assert "kill -9 7 8" in left.advice
    assert check_orphans([]).status == "ok"


def test_a_model_is_held_to_what_made_the_vectors() -> None:
    assert check_model(ModelFacts("m", 384, "a", "a")).status == "ok"
    assert check_model(ModelFacts("m", 384, "a", None)).status == "ok"
    assert check_model(ModelFacts("m", 384, "b", "a")).status == "warning"
    broken = check_model(ModelFacts("m", error="weights are missing"))
    assert broken.status == "problem"
    assert "keyword" in broken.advice


@pytest.mark.parametrize(
    ("facts", "status", "word"),
    [
        (FileFacts(HOME / "a.db", version=2, known=2), "ok", ""),
        (FileFacts(HOME / "a.db", version=1, known=2), "ok", "migrates"),
        (FileFacts(HOME / "a.db", version=3, known=2), "problem", "newer release"),
        (FileFacts(HOME / "a.db", version=2, known=2, faults=("row 3 missing from index",)), "problem", "row 3"),
        (FileFacts(HOME / "a.db", version=2, known=2, broken_references=4), "problem", "4 rows"),
        (FileFacts(HOME / "a.db", error="file is not a database"), "problem", "not a database"),
        (FileFacts(HOME / "a.db", known=2, unfinished=True), "warning", "too large"),
    ],
)
def test_a_file_that_is_not_whole_is_said(facts: FileFacts, status: str, word: str) -> None:
    check = check_records([FileFacts(HOME / "b.db", version=2, known=2), facts])
    assert check.status == status
    assert word in " ".join(check.details)
    assert (check.advice == "") == (status == "ok")


def test_no_file_is_no_trouble() -> None:
    assert check_records([]).status == "ok"


def test_an_index_that_differs_is_a_problem() -> None:
    same, less = IndexFigures("user", 3, 3, ready=True), IndexFigures("p_1", 5, 4, ready=True)
    assert check_index([same], EMBEDDING).status == "ok"
    running = check_index([same, less], EMBEDDING)
    assert running.status == "problem"
    assert running.details == ("p_1: 5 passages recorded, 4 indexed",)


def test_an_index_that_is_being_filled_is_no_trouble() -> None:
    assert check_index([IndexFigures("user", 0, 0, ready=False)], EMBEDDING).status == "ok"
    assert (
        check_index([IndexFigures("user", 5, 4, ready=True)], msgspec.structs.replace(EMBEDDING, pending=9)).status
        == "ok"
    )
    assert check_index([], EMBEDDING).status == "ok"
    assert "next start" in check_index([], None).found


def test_memories_that_cannot_be_embedded_are_told_with_the_reason() -> None:
    lacking = msgspec.structs.replace(EMBEDDING, dead_letters=2, dead_letter_error="the worker will not")
    check = check_index([IndexFigures("user", 3, 3, ready=True)], lacking)
    assert check.status == "warning"
    assert check.found.endswith("2 (the worker will not)")
    assert check_index([IndexFigures("user", 5, 4, ready=True)], lacking).status == "problem", "that is worse"


def test_queued_writes_are_a_warning_when_they_should_have_gone() -> None:
    assert check_queue(QueueFacts(), running=True).status == "ok"
    assert check_queue(QueueFacts(3, 5.0), running=True).status == "ok"
    assert check_queue(QueueFacts(3, 90.0), running=True).status == "warning"
    assert check_queue(QueueFacts(3, 9000.0), running=False).status == "ok"
    assert check_queue(QueueFacts(error="not a database"), running=False).status == "problem"


def test_rejected_writes_and_damaged_queues_are_named() -> None:
    facts = QueueFacts(0, 0.0, (("schema_too_new", "of a newer release", 2),), (HOME / "queue.damaged-1",))
    check = check_queue(facts, running=True)
    assert check.status == "warning"
    assert check.found == "2 were rejected"
    assert check.details[0] == "2 rejected as schema_too_new: of a newer release"
    assert "queue.damaged-1" in check.details[1]
    assert "remembrancer queue" in check.advice
    damaged = check_queue(QueueFacts(damaged=facts.damaged), running=True)
    assert damaged.status == "warning"
    assert "delete it" in damaged.advice
    assert "store it again" not in damaged.advice


def file_of(*entries: EntryFacts, has_path: bool = True, error: str | None = None) -> ClientFacts:
    return ClientFacts("Cursor", found=True, path=Path("/x"), has_path=has_path, entries=entries, error=error)


@pytest.mark.parametrize(
    ("facts", "status", "word"),
    [
        (file_of(EntryFacts("r", "/b/remembrancer", reachable=True)), "ok", "r in /x"),
        (file_of(EntryFacts("r", "/b/remembrancer", reachable=True, home="/other")), "ok", "/other"),
        (file_of(EntryFacts("r", "/b/remembrancer", reachable=False)), "problem", "does not exist"),
        (file_of(EntryFacts("r", "remembrancer", reachable=True, bare=True)), "ok", "r in /x"),
        (file_of(EntryFacts("r", "remembrancer", reachable=True, bare=True), has_path=False), "warning", "by name"),
        (file_of(error="is not valid JSON"), "warning", "not valid JSON"),
    ],
)
def test_what_a_client_starts_has_to_be_there(facts: ClientFacts, status: str, word: str) -> None:
    check = check_clients([file_of(), facts], HOME)
    assert check.status == status
    assert word in " ".join(check.details)


def test_without_any_entry_the_clients_that_were_found_are_named() -> None:
    check = check_clients([file_of()], HOME)
    assert check.status == "warning"
    assert "Cursor" in check.found
    assert "setup" in check.advice


def test_a_check_that_failed_is_a_problem_of_its_own() -> None:
    assert check_failed("disk", OSError("gone")).status == "problem"
