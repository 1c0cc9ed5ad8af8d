"""`remembrancer doctor`: looks for problems and suggests fixes. Findings never contain the content of memories."""

import logging
import os
import shutil
import stat
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import msgspec
from rich.markup import escape

from remembrancer import __version__
from remembrancer.actors.migrations import COPY, daily_copies, drop_old_files, was_made
from remembrancer.actors.snapshots import SQLITE_RELEASE
from remembrancer.actors.store.daily_copies import DAY_S, LOOK_S, is_due, made_at
from remembrancer.actors.store.old_home_migration import is_old, old_files
from remembrancer.commands import exit_codes
from remembrancer.commands.clients import ClientEnvironment, FileRefused, clients, our_entries
from remembrancer.commands.home_reader import examine_files, has_later, read_models
from remembrancer.commands.report import Line, Report, command, flag
from remembrancer.commands.runtime_client import look, paths_here
from remembrancer.commands.setup import probe
from remembrancer.commands.status import duration
from remembrancer.commands.terminal import notice_when_slow, styled, table
from remembrancer.config.reading import load_configuration
from remembrancer.config.settings import REMOTE_ENGINES, Settings, model_choices
from remembrancer.memory.text import count
from remembrancer.protocol.control import RuntimeStatus
from remembrancer.protocol.environment import TOOLSETS_VARIABLE, unknown_toolsets
from remembrancer.protocol.errors import ConfigurationError, HomeUnusable, ModelUnusable, size_in_words
from remembrancer.protocol.paths import RuntimePaths, is_empty
from remembrancer.protocol.problems import Problem, find_problems

CheckStatus = Literal["ok", "warning", "problem"]
MARKS: Final[dict[CheckStatus, str]] = {
    "ok": "[green]ok[/green]     ",
    "warning": "[yellow]warning[/yellow]",
    "problem": "[red]problem[/red]",
}
"""From best to worst."""
LISTED: Final = 10
"""The number of details listed; the rest are only counted."""
MOVE: Final = "set REMEMBRANCER_HOME to a directory of your own"
LATE_S: Final = 2 * DAY_S
"""A daily copy that is this late is reported, if the store has been running long enough to have made it."""
logger = logging.getLogger(__name__)


class Finding(msgspec.Struct, frozen=True):
    """The result of a check. `advice` says what the user can do about it. `details` are shown on separate lines."""

    status: CheckStatus
    found: str
    advice: str = ""
    details: tuple[str, ...] = ()


@dataclass
class Examination:
    """One examination of a home, in which later checks can use the results of earlier ones."""

    paths: RuntimePaths
    around: ClientEnvironment
    settings: Settings | None = None
    runtime: RuntimeStatus | None = None

    def run(self) -> dict[str, Finding]:
        findings = {}
        for name, check in CHECKS.items():
            try:
                with notice_when_slow(f"Checking the {name}"):
                    findings[name] = check(self)
            except Exception as error:
                logger.warning("the check of %s failed", name, exc_info=True)
                reason = f"this could not be checked: {error}"
                findings[name] = Finding("problem", reason, "see the message, fix that, and run doctor again")
        return findings


@command(
    flag("--all", "shows_all", help="Show every check, not only those that found something."),
    flag(
        "--repair",
        help="Repair damaged memory files from their readable parts and the last daily copy, then check again.",
    ),
    flag("--delete-old-files", help="Delete the files of release 0.2.0 that were kept after the upgrade."),
)
def doctor(shows_all: bool, repair: bool, delete_old_files: bool) -> Report:
    """Look for problems with this home's memory and the clients that start it, and suggest fixes. Exit status 3:
    there is a problem."""
    paths = paths_here()
    facts: dict[str, Any] = {"home": str(paths.home)}
    lines: list[Line] = []
    if repair:
        from remembrancer.commands.backup import lines_of_repair, repair_home

        repaired = repair_home(paths)
        facts["repaired"] = [] if repaired is None else [repaired]
        lines += [] if repaired is None else lines_of_repair(repaired)
    if delete_old_files and paths.database.exists():
        drop_old_files(paths.home)
    findings = Examination(paths, ClientEnvironment.here(os.environ, Path())).run()
    status = worst(finding.status for finding in findings.values())
    checks = [{"name": name, **msgspec.to_builtins(finding)} for name, finding in findings.items()]
    outcome = exit_codes.DEGRADED if status == "problem" else exit_codes.OK
    lines += lines_of(paths.home, findings, shows_all=shows_all)
    return Report(facts | {"status": status, "checks": checks}, lines, outcome)


def worst(statuses: Iterable[CheckStatus]) -> CheckStatus:
    return max(statuses, key=list(MARKS).index, default="ok")


def lines_of(home: Path, findings: Mapping[str, Finding], *, shows_all: bool) -> list[Line]:
    python = ".".join(map(str, sys.version_info[:3]))
    lines: list[Line] = [f"Remembrancer {__version__}, Python {python}, SQLite {SQLITE_RELEASE}, home {home}"]
    selected = {
        name: finding for name, finding in findings.items() if shows_all or finding.advice or finding.status != "ok"
    }
    if not selected:
        return [styled(f"[green]Nothing is wrong.[/green] Checked: {', '.join(findings)} (--all shows each).")]
    listed = table("", "", "")
    listed.show_header = False
    for name, finding in selected.items():
        advice = [f"[bold]→[/bold] {escape(finding.advice)}"] if finding.advice else []
        details = [f"[dim]{escape(line)}[/dim]" for line in finding.details]
        listed.add_row(MARKS[finding.status], name, "\n".join([escape(finding.found), *details, *advice]))
    statuses = [finding.status for finding in findings.values()]
    problems, warnings = statuses.count("problem"), statuses.count("warning")
    totals = [f"[red]{problems} problem{'s' * (problems > 1)} to fix[/red]"] if problems else []
    totals += [f"[yellow]{warnings} warning{'s' * (warnings > 1)} to look at[/yellow]"] if warnings else []
    hidden = f"; {count(len(findings) - len(selected), 'check')} found nothing wrong (--all shows them)"
    last = "; ".join(totals) or "[green]All is well[/green]"
    return [*lines, listed, styled(last + (hidden if len(selected) < len(findings) else ""))]


def check_start(_: Examination) -> Finding:
    took_s, fault = probe((sys.executable, "-P", "-m", "remembrancer", "mcp"))
    if fault:
        return Finding("problem", f"a client cannot start it: {fault}", "fix that, or reinstall Remembrancer")
    return Finding("ok", f"a client gets its first response in {took_s:.1f} s")


def check_configuration(at: Examination) -> Finding:
    try:
        configuration = load_configuration(at.around.environ)
        at.settings = configuration.settings
    except ConfigurationError as error:
        return Finding("problem", error.message, "fix that setting: no runtime can start with it")
    if configuration.warnings:
        text = f"{count(len(configuration.warnings), 'setting')} without effect, or to check"
        return Finding("warning", text, "run 'remembrancer config' to see them", few(configuration.warnings))
    return Finding("ok", "all settings are valid")


def check_model(at: Examination) -> Finding:
    if at.settings is None:
        return Finding("warning", "not checked; fix the configuration first")
    # imports numpy, which the other checks do not need
    from remembrancer.actors.embedder.workers import load_engine
    from remembrancer.actors.store.vectors.models import ModelState

    choice = ModelState.read(read_models(at.paths), model_choices(at.settings)[0]).chosen
    if at.settings.embedder_listen is not None and not at.settings.embedders:
        return Finding("ok", f"{choice.model} by {choice.engine}, only on other hosts")
    if choice.engine in REMOTE_ENGINES:
        return Finding("ok", f"{choice.model} by {choice.engine}, not tried here: see 'remembrancer status'")
    try:
        model = load_engine(msgspec.structs.replace(at.settings, engine=choice.engine, model=choice.model), 1).identity
    except ModelUnusable as error:
        return Finding("problem", error.message, "until this is fixed, searches match words only")
    return Finding("ok", f"{model.model} by {model.engine}, {model.dimensions} dimensions, can be loaded")


def check_home(at: Examination) -> Finding:
    home = at.paths.home
    try:
        nearest = next(path for path in (home, *home.parents) if path.exists())
        about = home.stat() if os.path.lexists(home) else nearest.stat()
    except OSError as error:
        text = f"{home} cannot be checked: {error.strerror}"
        return Finding("problem", text, f"fix the owner and mode of its parents, or {MOVE}")
    if not stat.S_ISDIR(about.st_mode):
        return Finding("problem", f"{home} is not a directory", f"move it elsewhere, or {MOVE}")
    if home.exists() and about.st_uid != os.getuid():
        return Finding("problem", f"{home} belongs to another user", MOVE)
    if os.statvfs(nearest).f_flag & os.ST_RDONLY or not os.access(nearest, os.R_OK | os.W_OK | os.X_OK):
        return Finding("problem", f"{home} cannot be written", f"fix its owner and mode (0700), or {MOVE}")
    if home.exists() and about.st_mode & 0o077:
        worse: CheckStatus = "problem" if about.st_mode & stat.S_IWOTH else "warning"
        can = "write to" if worse == "problem" else "open"
        return Finding(worse, f"other users can {can} {home}", f"chmod 700 it, or {MOVE}")
    run = at.paths.run
    details = () if run.parent == home else (f"its path is too long for sockets, which are in {run} instead",)
    missing = "" if home.exists() else " does not exist yet: the first session creates it"
    return Finding("ok", f"{home}{missing}", details=details)


def check_files(at: Examination) -> Finding:
    aside = sorted(at.paths.home.rglob("*.damaged-*"))
    details = few([f"set aside: {path}" for path in aside])
    had_memories = was_made(at.paths.database) or at.paths.catalog.exists()
    is_lost = had_memories and is_empty(at.paths.database)
    if is_lost and not is_old(at.paths):  # the next start creates it for an old home
        text = f"{at.paths.database} is missing or empty, although it used to have memories"
        advice = "run 'remembrancer doctor --repair' for the last copy, or 'remembrancer backup restore' for a backup"
        return Finding("problem", text, advice, details)
    if aside:
        advice = "check what these files contain, restore lost memories from a backup, and delete the files"
        files = [path for path in aside if not path.name.endswith(("-wal", "-shm"))]  # parts of a listed database
        return Finding("warning", f"{count(len(files), 'damaged file')} set aside and replaced", advice, details)
    return Finding("ok", "no file is missing or was set aside")


def check_processes(at: Examination) -> Finding:
    try:
        state = look(at.paths)
    except HomeUnusable as error:
        return Finding("problem", error.message, f"fix the owner and mode of {at.paths.runtime_lock} (0600)")
    if isinstance(state, Problem):
        return Finding("problem", state.what, state.advice)
    at.runtime = state
    if at.runtime is None:
        return Finding("ok", "nothing is running: the first session starts everything")
    problems = find_problems(at.runtime)
    if not problems:
        return Finding("ok", f"{len(at.runtime.processes)} processes are ready")
    first, *others = problems
    return Finding(worst([problem.severity for problem in problems]), first.what, first.advice, tuple(map(str, others)))


def check_records(at: Examination) -> Finding:
    files = examine_files(at.paths)
    if not files:
        return Finding("ok", "nothing is stored yet")
    copies = sorted(at.paths.home.rglob(f"*.{COPY}-*"))
    faulty = sum(file.status != "ok" for file in files)
    total = size_in_words(sum(file.size_bytes for file in files))
    details = [f"{file.path}: {file.found}" for file in files if file.found]
    kept = "kept for going back to an older release; delete it when you no longer need it"
    details += [f"{kept}: {copy}" for copy in copies]
    advice = dict.fromkeys(file.advice for file in files if file.advice)
    old = list(old_files(at.paths).values()) if at.paths.database.exists() else []
    if is_old(at.paths) and not advice:
        waiting = count(len(files), "file")
        advice |= {f"nothing to do: the next start imports {waiting} of release 0.2.0 and keeps them": None}
    later = [path for path in old if has_later(path, at.paths.database)]
    details += [f"release 0.2.0 has stored memories in {path} since it was imported" for path in later]
    if later:
        advice |= {"export them with release 0.2.0, and run 'remembrancer backup import' with that file": None}
    elif old:
        size = size_in_words(sum(path.stat().st_size for path in old))
        files_of_old = f"{count(len(old), 'file')} of release 0.2.0, {size}"
        advice |= {f"run 'remembrancer doctor --delete-old-files' to delete {files_of_old}": None}
    status = worst([*(file.status for file in files), "warning" if later else "ok"])
    found = f"{count(len(files), 'file')} ({total}), {faulty or 'none'} with a problem"
    return Finding(status, found, "; ".join(advice), few(details))


def check_copies(at: Examination) -> Finding:
    kept = at.settings.backup_copies if at.settings is not None else None
    if kept == 0:
        return Finding("ok", "no copies are made")
    path, now = at.paths.database, time.time()
    copies = daily_copies(path)
    if not copies:
        return Finding("ok", "no copy yet: the runtime makes one per day")
    last = f"the last copy is {duration(now - made_at(copies[0]))} old"
    if is_due(path, now, DAY_S + LATE_S):
        processes = () if at.runtime is None else at.runtime.processes
        if not any(process.role == "store" and process.uptime_s > LOOK_S for process in processes):
            return Finding("ok", f"{last}: the runtime will soon make the next one")
        advice = f"see {at.paths.logs / 'store.log'} for the reason"
        return Finding("warning", f"{path} has changed since its last copy: {last}", advice)
    return Finding("ok", f"{last}; the copies take {size_in_words(sum(copy.stat().st_size for copy in copies))}")


def check_clients(at: Examination) -> Finding:
    # Each file is checked once: the project may be the user's home.
    places = {place.path: (client, place) for client in clients() for place in reversed(client.places(at.around))}
    checked: list[tuple[CheckStatus, str]] = []
    for client, place in places.values():
        try:
            entries = our_entries(client, place, at.around)
        except FileRefused as error:
            with suppress(OSError):
                if b"remembrancer" in place.path.read_bytes():
                    checked.append(("ok", f"{client.title}, {place.path}, was not checked: {error}"))
            continue
        for name, entry in entries:
            (command, *_), environ = client.started_by(entry)
            which, home = f"{client.title} ({name} in {place.path})", environ.get("REMEMBRANCER_HOME")
            path = Path(home if isinstance(home, str) else at.paths.home).expanduser()
            named = at.around.project / command if "/" in command else command
            is_found = shutil.which(named, path=at.around.environ.get("PATH", "")) is not None
            if not (is_found or "${" in command):  # a variable that the client expands
                checked.append(("problem", f"{which} starts {command}, which does not exist"))
            elif unknown := unknown_toolsets(str(environ.get(TOOLSETS_VARIABLE, ""))):
                checked.append(("warning", f"{which}: {TOOLSETS_VARIABLE}: {'; '.join(unknown)}"))
            elif "/" not in command and not client.has_path and place.scope == "user":  # a project's file is shared
                by_name = f"{which} starts {command} by name, and may not find it when started from an icon"
                checked.append(("warning", by_name))
            else:
                checked.append(("ok", which if path == at.paths.home else f"{which} uses the home {home}"))
    if not checked:
        names = sorted(client.title for client in clients() if client.is_found(at.around))
        known = f"found on this machine: {', '.join(names)}" if names else "none was found on this machine"
        text = f"no client is connected here; {known}"
        return Finding("ok", text, "run 'remembrancer setup CLIENT' to connect a client")
    checked.sort(key=lambda entry: -list(MARKS).index(entry[0]))
    status = checked[0][0]
    outcome, advice = {
        "problem": ("that cannot start Remembrancer", "run 'remembrancer setup' to write a correct entry"),
        "warning": ("to look at", "fix that file, or run 'remembrancer setup' to write absolute paths"),
        "ok": ("that can start Remembrancer", ""),
    }[status]
    number = sum(entry_status == status for entry_status, _ in checked)
    return Finding(status, f"{count(number, 'entry')} {outcome}", advice, few([text for _, text in checked]))


CHECKS: Final[dict[str, Callable[[Examination], Finding]]] = {
    "start": check_start,
    "configuration": check_configuration,
    "home": check_home,
    "files": check_files,
    "processes": check_processes,
    "model": check_model,
    "records": check_records,
    "copies": check_copies,
    "clients": check_clients,
}
"""Ordered so that causes come before their effects."""


def few(lines: Sequence[str]) -> tuple[str, ...]:
    return tuple(lines) if len(lines) <= LISTED else (*lines[:LISTED], f"and {len(lines) - LISTED} more")
