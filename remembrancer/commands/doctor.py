"""`remembrancer doctor`: look for what is wrong, and say what to do. Changes nothing, but for modes with --fix.

Here the facts are gathered, read only; `checks.py` judges them.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import shutil
import sqlite3
import stat
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

import msgspec
import psutil

from remembrancer.actors.gateway.write_queue import SCHEMA_VERSION as QUEUE_VERSION
from remembrancer.actors.launcher.home import SAME_START_S, Record, read_record
from remembrancer.actors.store.catalog import CATALOG_VERSION
from remembrancer.actors.store.records.schema import SCHEMA_VERSION
from remembrancer.commands import checks, exit_codes
from remembrancer.commands.checks import (
    Check,
    ClientFacts,
    EntryFacts,
    FileFacts,
    HomeFacts,
    LockFacts,
    ModelFacts,
    QueueFacts,
    Status,
    Wide,
)
from remembrancer.commands.clients import (
    CLIENTS,
    Client,
    FileRefused,
    Place,
    Surroundings,
    is_ours,
    parse_with_comments,
    read_text,
)
from remembrancer.commands.home_files import opened
from remembrancer.commands.runtime_client import ask_status, paths_here
from remembrancer.commands.status import find_problems
from remembrancer.config.reading import load_settings
from remembrancer.config.settings import Settings
from remembrancer.protocol.control import RuntimeStatus
from remembrancer.protocol.errors import (
    ConfigurationError,
    DeadlineExceeded,
    InvalidInput,
    ModelUnusable,
    PeerLost,
    PeerUnavailable,
)
from remembrancer.protocol.paths import FileLock, RuntimePaths

IN_MEMORY: Final = "remembrancer-memory-"
"""How the name of a home begins that is meant to be kept in memory."""
OURS: Final = (
    *("logs", "run", "user", "projects", "vectors", "keys", "hooks"),
    *("*.lock", "*.db", "*.db-*", "queue.damaged-*", "runtime.*", "config.*", "restore.*", "before-restore-*"),
)
"""What lies in a home. Anything else there is a person's, and is not ours to judge or to narrow."""
CHECK_LIMIT_S: Final = 30.0
"""For one file: quick_check reads all of it."""
FAULTS: Final = 5
SHOWN_CHARACTERS: Final = 160
LEAVING_S: Final = 2.5
"""How long a process whose launcher has just died may take to leave by itself."""
ACTORS: Final = "remembrancer.actors."
MARKS: Final[dict[Status, str]] = {
    "ok": "[green]ok[/green]     ",
    "warning": "[yellow]warning[/yellow]",
    "problem": "[red]problem[/red]",
}

logger = logging.getLogger(__name__)


def main(argv: list[str]) -> int:
    """Make every check and print what it found."""
    parser = argparse.ArgumentParser(
        prog="remembrancer doctor",
        description="Look for what is wrong with the memory of this home and what starts it, and say what to do.",
        epilog="exit status: 0 all is well, or there are warnings only; 3 there is a problem",
    )
    parser.add_argument("--json", action="store_true", help="for a program: one JSON object")
    parser.add_argument("--project", metavar="DIR", help="whose clients' files are looked at (default: this directory)")
    parser.add_argument("--fix", action="store_true", help="make this user's alone what others can get at")
    asked = parser.parse_args(argv)
    project = Path(asked.project or ".")
    if not project.is_dir():
        raise InvalidInput(f"{project} is not a directory")
    paths = paths_here()
    found = Examination(paths, Surroundings.here(os.environ, project), fix=asked.fix).run()
    status = checks.worst(found)
    if asked.json:
        print(json.dumps({"home": str(paths.home), "status": status, "checks": msgspec.to_builtins(found)}))
    else:
        print_checks(paths.home, found)
    return exit_codes.DEGRADED if status == "problem" else exit_codes.OK


def print_checks(home: Path, found: Sequence[Check]) -> None:
    """Print each finding with its advice, and a last line that counts them."""
    from rich.console import Console
    from rich.markup import escape

    out = Console(highlight=False, soft_wrap=True)
    out.print(f"[bold]Remembrancer[/bold], home {escape(str(home))}")
    width = max(len(check.name) for check in found)
    for check in found:
        out.print(f"{MARKS[check.status]}  {check.name:<{width}}  {escape(check.found)}")
        for line in check.details:
            out.print(f"[dim]{'':{width + 11}}{escape(line)}[/dim]")
        if check.advice:
            out.print(f"{'':{width + 11}}[bold]→[/bold] {escape(check.advice)}")
    problems = sum(check.status == "problem" for check in found)
    warnings = sum(check.status == "warning" for check in found)
    said = [f"[red]{problems} problem{'s' * (problems > 1)} to mend[/red]"] if problems else []
    said += [f"[yellow]{warnings} warning{'s' * (warnings > 1)} to look at[/yellow]"] if warnings else []
    out.print("; ".join(said) or "[green]All is well.[/green]")


class Examination:
    """One look at everything. A check that fails for a reason of its own says so, and the others go on."""

    def __init__(self, paths: RuntimePaths, around: Surroundings, *, fix: bool) -> None:
        self._paths = paths
        self._around = around
        self._fix = fix
        self._settings: Settings | None = None
        self._status: RuntimeStatus | None = None
        self._held = False

    def run(self) -> list[Check]:
        """Every check, in the order in which one explains the next."""
        looks: dict[str, Callable[[], Check]] = {
            "versions": self._versions,
            "configuration": self._configuration,
            "home": lambda: checks.check_home(home_facts(self._paths)),
            "permissions": self._permissions,
            "disk": self._disk,
            "lock": self._lock,
            "processes": self._processes,
            "orphans": self._orphans,
            "model": self._model,
            "records": lambda: checks.check_records(record_files(self._paths)),
            "index": self._index,
            "write queue": lambda: checks.check_queue(queue_facts(self._paths), running=self._held),
            "clients": lambda: checks.check_clients(client_facts(self._around), self._paths.home),
        }
        found = []
        for name, look in looks.items():
            try:
                found.append(look())
            except Exception as error:
                logger.warning("the check of %s failed", name, exc_info=True)
                found.append(checks.check_failed(name, error))
        return found

    def _versions(self) -> Check:
        with closing(sqlite3.connect(":memory:")) as connection:
            options = {row[0] for row in connection.execute("PRAGMA compile_options")}
        return checks.check_versions(sys.version_info[:3], sqlite3.sqlite_version, has_fts5="ENABLE_FTS5" in options)

    def _configuration(self) -> Check:
        try:
            self._settings = load_settings(os.environ)
        except ConfigurationError as error:
            return checks.check_configuration(error.message)
        return checks.check_configuration(None)

    def _permissions(self) -> Check:
        wide, looked_at = wide_places(self._paths)
        fixed = []
        if self._fix and wide:
            fixed = narrow(wide)
            wide, looked_at = wide_places(self._paths)
        return checks.check_permissions(wide, fixed, looked_at)

    def _disk(self) -> Check:
        home = self._paths.home
        used = sum(about.st_size for _, about in everything(home) if stat.S_ISREG(about.st_mode))
        return checks.check_disk(shutil.disk_usage(nearest_directory(home)).free, used)

    def _lock(self) -> Check:
        facts = lock_facts(self._paths)
        self._held = facts.held
        return checks.check_lock(facts)

    def _processes(self) -> Check:
        if not self._held:
            return Check("processes", "ok", "nothing runs")
        try:
            self._status = ask_status(self._paths)
        except (PeerUnavailable, PeerLost, DeadlineExceeded) as error:
            facts = lock_facts(self._paths)
            self._held = facts.held
            if not self._held:
                return Check("processes", "ok", "the runtime has just gone down")
            return checks.check_no_answer(facts.recorded, error.message)
        return checks.check_processes(self._status, find_problems(self._status))

    def _orphans(self) -> Check:
        return checks.check_orphans(orphans(self._paths, self._status, held=self._held))

    def _model(self) -> Check:
        if self._settings is None:
            return Check("model", "warning", "not looked at: the configuration has to be mended first")
        return checks.check_model(model_facts(self._settings, self._paths))

    def _index(self) -> Check:
        if self._status is not None and self._status.store is not None:
            return checks.check_index(self._status.store.indexes, self._status.store.embedding)
        if self._held:
            return Check("index", "warning", "not looked at: the store has it, and does not answer")
        return checks.check_index((), None)


def home_facts(paths: RuntimePaths) -> HomeFacts:
    """See `HomeFacts`. A home that is missing is judged by the nearest directory that is there."""
    home = paths.home
    try:
        about = home.stat()
    except FileNotFoundError:
        about = None
    except OSError:
        is_behind_a_file = any(parent.is_file() for parent in home.parents)
        return HomeFacts(home, "other" if is_behind_a_file else "unreachable", writable=False)
    if about is not None and not stat.S_ISDIR(about.st_mode):
        return HomeFacts(home, "other", writable=False)
    nearest = nearest_directory(home)
    read_only = bool(os.statvfs(nearest).f_flag & os.ST_RDONLY)
    return HomeFacts(
        home,
        "missing" if about is None else "directory",
        writable=not read_only and os.access(nearest, os.R_OK | os.W_OK | os.X_OK),
        owned=about is None or about.st_uid == os.getuid(),
        open_to_all=about is not None and bool(about.st_mode & stat.S_IWOTH),
        file_system=file_system(nearest),
        sockets=None if paths.run.parent == home else paths.run,
        meant_to_pass=home.name.startswith(IN_MEMORY),
        half_restored=about is not None and paths.restore_mark.exists(),
    )


def nearest_directory(path: Path) -> Path:
    """The path, or the nearest of its parents, that is there."""
    return next((each for each in (path, *path.parents) if each.exists()), Path("/"))


def file_system(path: Path) -> str | None:
    """The type of the file system that holds a path, as the system names it."""
    real = Path(os.path.realpath(path))
    holding = [each for each in psutil.disk_partitions(all=True) if real.is_relative_to(each.mountpoint)]
    # Of two mounts at one place the later one is what is seen.
    best = max(enumerate(holding), key=lambda each: (len(Path(each[1].mountpoint).parts), each[0]), default=None)
    return best[1].fstype if best is not None else None


def everything(home: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """The home and all of ours in it, with what the system says of each. Symbolic links are not followed."""
    if not home.is_dir():
        return
    yield home, home.stat()
    for top in sorted({path for pattern in OURS for path in home.glob(pattern)}):
        yield from _below(top)


def _below(top: Path) -> Iterator[tuple[Path, os.stat_result]]:
    try:
        about = top.lstat()
    except OSError:
        return  # gone meanwhile
    yield top, about
    try:
        children = sorted(top.iterdir()) if stat.S_ISDIR(about.st_mode) else []
    except OSError:
        return
    for child in children:
        yield from _below(child)


def wide_places(paths: RuntimePaths) -> tuple[list[Wide], int]:
    """What others can get at, or what is another user's; and how much was looked at."""
    places = list(everything(paths.home))
    if paths.run.parent != paths.home and paths.run.is_dir():
        places += _below(paths.run)
    found = []
    for path, about in places:
        mode = stat.S_IMODE(about.st_mode)
        owned = about.st_uid == os.getuid()
        if not stat.S_ISLNK(about.st_mode) and (not owned or mode & 0o077):
            found.append(Wide(path, mode, mode & 0o700, owned))
    return found, len(places)


def narrow(wide: list[Wide]) -> list[Wide]:
    """Take from others what they may do with each; returns those with which that was done."""
    done = []
    for each in wide:
        if each.owned and not each.path.is_symlink():
            try:
                each.path.chmod(each.wanted)
            except OSError:
                continue  # it is still wide when it is looked at again
            done.append(each)
    return done


def lock_facts(paths: RuntimePaths) -> LockFacts:
    """See `LockFacts`."""
    try:
        held = FileLock(paths.runtime_lock).is_held_elsewhere()
    except OSError as error:
        return LockFacts(held=False, unreadable=error.strerror or str(error))
    record = read_record(paths)
    if record is None:
        return LockFacts(held)
    return LockFacts(held, record.pid, recorded_lives=psutil.pid_exists(record.pid))


def orphans(paths: RuntimePaths, status: RuntimeStatus | None, *, held: bool) -> list[tuple[int, str]]:
    """Actors of this home that no launcher has: pid and name. One that is about to leave is waited for.

    While a launcher holds the lock, what it lists (or recorded, when it does not answer) is its own.
    """
    give_up_at = time.monotonic() + LEAVING_S
    while True:
        record = read_record(paths)
        known: set[int] = set()
        if held and status is not None:
            known |= {process.pid for process in status.processes}
        if held and record is not None:
            known |= {record.pid, *(child.pid for child in record.children)}
        left = [each for each in _actors(paths, record) if each[0] not in known]
        if not left or time.monotonic() > give_up_at:
            return left
        time.sleep(0.1)  # they are not our children: there is nothing to wait on


def _actors(paths: RuntimePaths, record: Record | None) -> list[tuple[int, str]]:
    found: dict[int, str] = {}
    started = {child.pid: child for child in record.children} if record is not None else {}
    for process in psutil.process_iter(["pid", "cmdline", "environ", "status", "create_time"]):
        about = process.info
        if about["status"] == psutil.STATUS_ZOMBIE:
            continue
        module = next((word for word in about["cmdline"] or () if word.startswith(ACTORS)), None)
        child = started.get(process.pid)
        if module and (about["environ"] or {}).get("REMEMBRANCER_HOME") == str(paths.home):
            found[process.pid] = module.removeprefix(ACTORS)
        elif child is not None and abs((about["create_time"] or 0.0) - child.created_at) <= SAME_START_S:
            found[process.pid] = child.name
    return sorted(found.items())


def model_facts(settings: Settings, paths: RuntimePaths) -> ModelFacts:
    """See `ModelFacts`. Loading holds the weights to their pinned checksum, where there is one, and runs them once."""
    from remembrancer.actors.embedder.workers import load_engine  # numpy, which the other checks do without

    last_key = None
    if paths.catalog.exists():
        try:
            with opened(paths.catalog) as connection:
                row = connection.execute("SELECT key FROM models ORDER BY last_used_at DESC LIMIT 1").fetchone()
                last_key = None if row is None else str(row[0])
        except sqlite3.Error:
            last_key = None  # the records' own check says what is wrong with the catalogue
    try:
        identity = load_engine(settings, 1).identity
    except ModelUnusable as error:
        return ModelFacts(settings.model, last_key=last_key, error=error.message)
    return ModelFacts(f"{identity.model} by {identity.engine}", identity.dimensions, identity.key, last_key)


def record_files(paths: RuntimePaths) -> list[FileFacts]:
    """Every file of records, and the catalogue, each checked whole."""
    files = [(path, SCHEMA_VERSION) for path in (paths.user_database, *sorted(paths.projects.glob("p_*/memory.db")))]
    found = []
    for path, known in [*files, (paths.catalog, CATALOG_VERSION)]:
        if path.exists():
            facts = file_facts(path, known)
            # A store may have moved the pages while they were being read: bad news is looked at again.
            found.append(file_facts(path, known) if facts.faults or facts.error else facts)
    return found


def file_facts(path: Path, known: int) -> FileFacts:
    """See `FileFacts`. What SQLite says of damage names pages and rows, never what is in them."""
    size_bytes = 0
    try:
        size_bytes = path.stat().st_size
        with opened(path, limit_s=CHECK_LIMIT_S) as connection:
            version = connection.execute("PRAGMA user_version").fetchone()[0]
            if version > known:
                return FileFacts(path, size_bytes, version, known)
            said = [str(row[0]) for row in connection.execute(f"PRAGMA quick_check({FAULTS})")]
            broken = sum(1 for _ in connection.execute("PRAGMA foreign_key_check"))
    except (sqlite3.Error, OSError) as error:
        if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_INTERRUPT:
            return FileFacts(path, size_bytes, known=known, unfinished=True)
        return FileFacts(path, size_bytes, known=known, error=f"cannot be read: {error}")
    return FileFacts(path, size_bytes, version, known, tuple(each for each in said if each != "ok"), broken)


def queue_facts(paths: RuntimePaths) -> QueueFacts:
    """See `QueueFacts`. The operations themselves are not read."""
    damaged = tuple(sorted(paths.home.glob("queue.damaged-*")))
    if not paths.write_queue.exists():
        return QueueFacts(damaged=damaged)
    try:
        with opened(paths.write_queue) as connection:
            version = connection.execute("PRAGMA user_version").fetchone()[0]
            if version > QUEUE_VERSION:
                return QueueFacts(error=f"{paths.write_queue} is of a newer release (version {version})")
            if version == 0:
                return QueueFacts(damaged=damaged)
            depth, oldest = connection.execute("SELECT count(*), min(queued_at) FROM queued").fetchone()
            rejected = connection.execute("SELECT code, message, count(*) FROM rejected GROUP BY 1, 2").fetchall()
    except sqlite3.Error as error:
        return QueueFacts(error=f"{paths.write_queue} cannot be read: {error}", damaged=damaged)
    age_s = max(0.0, time.time() - oldest) if oldest is not None else 0.0
    return QueueFacts(
        depth, age_s, tuple((code, why[:SHOWN_CHARACTERS], count) for code, why, count in rejected), damaged
    )


def client_facts(around: Surroundings) -> list[ClientFacts]:
    """Each file of each known client, once: a project may be the user's home itself."""
    places = {place.path: (client, place) for client in CLIENTS for place in reversed(client.places(around))}
    return [_client_facts(client, place, around) for client, place in places.values()]


def _client_facts(client: Client, place: Place, around: Surroundings) -> ClientFacts:
    found = client.is_found(around)
    try:
        whole = parse_with_comments(read_text(place.path) or "")
    except FileRefused as error:
        return ClientFacts(client.title, found, place.path, client.has_path, error=error.reason)
    lists = [whole.get(place.key)]
    projects = whole.get("projects")
    if client.name == "claude-code" and place.scope == "user" and isinstance(projects, Mapping):
        own = projects.get(str(around.project))  # those of one user in one project
        lists.append(own.get(place.key) if isinstance(own, Mapping) else None)
    entries = tuple(
        _entry_facts(name, entry, around)
        for servers in lists
        if isinstance(servers, Mapping)
        for name, entry in servers.items()
        if isinstance(entry, Mapping) and is_ours(entry)
    )
    return ClientFacts(client.title, found, place.path, client.has_path, entries)


def _entry_facts(name: str, entry: Mapping[str, object], around: Surroundings) -> EntryFacts:
    command = str(entry.get("command") or "")
    environ = entry.get("env")
    home = environ.get("REMEMBRANCER_HOME") if isinstance(environ, Mapping) else None
    bare = "/" not in command
    path = around.project / command
    # One with a variable of the client's own in it is taken at its word.
    reachable = (
        "${" in command
        or (bare and shutil.which(command, path=around.environ.get("PATH", "")) is not None)
        or (not bare and path.is_file() and os.access(path, os.X_OK))
    )
    return EntryFacts(name, command, reachable, bare, home if isinstance(home, str) else None)
