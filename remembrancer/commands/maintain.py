"""`remembrancer maintain`: archive, delete, merge and sweep now instead of when it is due, and take that back."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import anyio
import msgspec
from rich.markup import escape

from remembrancer.actors.store.home_reader import SHARED, lanes_of_projects
from remembrancer.commands import exit_codes
from remembrancer.commands.runtime_client import ask_home, connected_store, directory_here, paths_here
from remembrancer.commands.terminal import Terminal
from remembrancer.config.project import project_of
from remembrancer.protocol.consolidation import Maintain, Maintained
from remembrancer.protocol.errors import InvalidInput, RemembrancerError
from remembrancer.protocol.home import DescribeProjects, FindMemories, MemoriesFound, ProjectsDescribed
from remembrancer.protocol.ids import new_ulid
from remembrancer.protocol.paths import RuntimePaths
from remembrancer.protocol.runs import Place as RunPlace
from remembrancer.protocol.runs import UndoneResult, UndoRun
from remembrancer.protocol.writes import Applied, Operation, ProjectRef, Submit

ANSWER_S: Final = 900.0
"""The time that one place may take: a hundred thousand memories at low priority take minutes."""
EXAMINED: Final = "examined"
COUNTS: Final = (
    *(EXAMINED, "archived", "deleted", "duplicates"),
    *("orphans", "proposed", "promoted", "notes", "pruned"),
)
NAMED: Final = ("archived", "deleted", "duplicate", "proposed", "promoted", "note")
USER: Final = "the user"

Place = ProjectRef | None
"""A project, or the user's own memories."""


class Report(NamedTuple):
    """The maintenance of a place; `is_shared`: of what a project shares."""

    place: Place
    is_shared: bool
    said: Maintained


def main(argv: list[str]) -> int:
    """Have it done, and say what was."""
    parser = argparse.ArgumentParser(
        prog="remembrancer maintain",
        description="Archive memories that nobody needed for long, delete those that were archived long ago, link "
        "duplicates and sweep out what hangs loose. Happens by itself in the background. What "
        "was done to memories is named as a run, which --undo takes back for 90 days; what was swept out or removed is "
        "gone. docs/memory-model.md has the rules.",
        epilog="exit status: 0 done, 2 nothing is remembered there, 8 refused, 9 the runtime does not answer",
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--project", metavar="DIR", help="the memories of this project (default: of this directory)")
    where.add_argument("--user", action="store_true", help="the user's own memories")
    where.add_argument("--all", action="store_true", help="every project's, and the user's")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--dry-run", action="store_true", help="say what would be done, and change nothing")
    what.add_argument("--undo", metavar="RUN", help="undo a run, in its project and in the user's memories")
    parser.add_argument("--json", action="store_true", help="for a program: one JSON object")
    asked = parser.parse_args(argv)
    places = _places(asked, paths_here())
    reports: list[Report] = []
    refusals: list[RemembrancerError] = []
    try:
        if asked.undo:
            return _report_undone(asked.undo, anyio.run(_undo, places, asked.undo), as_json=asked.json)
        anyio.run(_maintain, places, asked.dry_run, reports, refusals)
    except RemembrancerError as error:
        refusals.append(error)
    if reports and asked.json:
        print(json.dumps({"dry_run": asked.dry_run, "places": [_as_json(*report) for report in reports]}))
    elif reports:
        _print(reports, dry_run=asked.dry_run, is_whole=not refusals)
    for refusal in refusals:
        if refusal.code in exit_codes.OF_ERRORS:
            raise refusal
        print(f"remembrancer maintain: {refusal.message}", file=sys.stderr)
    return exit_codes.REFUSED if refusals else exit_codes.OK


def _places(asked: argparse.Namespace, paths: RuntimePaths) -> list[Place]:
    """The places where there is something to do. Raises `InvalidInput`: nothing is remembered there."""
    described = ask_home(paths, DescribeProjects(), ProjectsDescribed)
    by_path = sorted((each.path, each.id) for each in described.projects if each.path is not None)
    known = [ProjectRef(project_id, path) for path, project_id in by_path]
    if asked.user or asked.all:
        if not described.has_user and not known:
            raise InvalidInput(f"nothing is remembered in {paths.home}")
        return [*(known if asked.all else ()), None]
    directory = directory_here(asked.project)
    if not directory.is_dir():
        raise InvalidInput(f"{directory} is not a directory")
    project = project_of(directory)
    if project.id not in {each.id for each in known}:
        raise InvalidInput(f"nothing is remembered of the project {project.path}: --user and --all are other choices")
    return [project]


async def _maintain(
    places: list[Place], dry_run: bool, reports: list[Report], refusals: list[RemembrancerError]
) -> None:
    """Maintain the places one by one, and after what a project has for itself what it shares: where that is refused, as
    another machine is at work there, the others are done all the same."""
    lanes = lanes_of_projects(paths_here().home / SHARED)
    async with connected_store() as ask_store:
        for place in places:
            said = await ask_store(Maintain(place, dry_run), Maintained, answer_s=ANSWER_S)
            reports.append(Report(place, False, said))
            lane = None if place is None else lanes.get(place.id)
            if place is None or lane is None:
                continue
            try:
                of_lane = Maintain(ProjectRef(lane, place.path), dry_run)
                reports.append(Report(place, True, await ask_store(of_lane, Maintained, answer_s=ANSWER_S)))
            except RemembrancerError as error:
                refusals.append(error)


async def _undo(places: list[Place], run_id: str) -> list[tuple[Place, UndoneResult]]:
    """Undo a run wherever it has parts: in the projects, and in the user's file on behalf of each of them.

    Raises:
        InvalidInput: there is no such run.
    """
    found: list[tuple[Place, UndoneResult]] = []
    async with connected_store() as ask_store:
        for place in places:
            parts: tuple[RunPlace, ...] = ("user",) if place is None else ("project", "user")
            for part in parts:
                where = place or ProjectRef("", "")
                change = UndoRun(run_id, part, if_there=True)
                reply = await ask_store(Submit(Operation(new_ulid(), where, "", time.time(), change)), Applied)
                assert isinstance(reply.result, UndoneResult)
                if reply.result.found:
                    found.append((place if part == "project" else None, reply.result))
    if not found:
        raise InvalidInput(
            f"there is no run {run_id} here, or it is too old to be undone; --project, --user and --all say where it is"
        )
    return found


def _report_undone(run_id: str, undone: list[tuple[Place, UndoneResult]], *, as_json: bool) -> int:
    """Say what was undone, and what was left alone."""
    if as_json:
        places = [
            {
                "project": None if place is None else msgspec.to_builtins(place),
                "memories": result.memories,
                "skipped": msgspec.to_builtins(result.skipped),
                "already": result.already,
            }
            for place, result in undone
        ]
        print(json.dumps({"run_id": run_id, "places": places}))
        return exit_codes.OK
    out = Terminal()
    for place, result in undone:
        said = "it was undone before" if result.already else _as_they_were(len(result.memories))
        out.print(f"[bold]{escape(_name(place))}[/bold]: {said}")
        for skipped in result.skipped:
            out.print(f"  {skipped.memory_id} is left alone: {escape(skipped.reason)}")
    return exit_codes.OK


def _as_they_were(number: int) -> str:
    return "1 memory is as it was" if number == 1 else f"{number:,} memories are as they were"


def _as_json(place: Place, is_shared: bool, report: Maintained) -> dict[str, Any]:
    """A report for a program: every key is there, also what did not happen."""
    said: dict[str, Any] = {"project": None if place is None else msgspec.to_builtins(place), "shared": is_shared}
    for name in report.__struct_fields__:
        if name not in ("place", "dry_run"):
            said[name] = msgspec.to_builtins(getattr(report, name))
    return said


def _print(reports: list[Report], *, dry_run: bool, is_whole: bool) -> None:
    """A line for each place; of the counts, those that are not 0. `is_whole`: nothing was refused."""
    out = Terminal()
    for place, is_shared, report in reports:
        counts = [f"{getattr(report, name):,} {name}" for name in COUNTS if getattr(report, name) or name == EXAMINED]
        what = ", what is shared" if is_shared else ""
        out.print(f"[bold]{escape(_name(place))}[/bold]{what}: {', '.join(counts)}")
        for line in _named(place, report):
            out.print(f"  {escape(line)}")
        for run_id in report.run_ids:
            where = "--user" if place is None else f"--project {shlex.quote(_name(place))}"
            out.print(f"  to undo: remembrancer maintain --undo {run_id} {escape(where)}")
    if dry_run:
        out.print("[dim]Nothing was changed: this is what would be done.[/dim]")
    elif is_whole and not any(getattr(report, name) for _, _, report in reports for name in COUNTS if name != EXAMINED):
        out.print("There was nothing to do.")


def _named(place: Place, report: Maintained) -> Iterator[str]:
    """Which memories it is about, each with what becomes of it and its first words."""
    named = [(what, each) for what in NAMED for each in getattr(report, f"{what}_ids")]
    request = FindMemories(None if place is None else place.id, tuple(memory_id for _, memory_id in named))
    found = ask_home(paths_here(), request, MemoriesFound).words if named else {}
    for what, memory_id in named:
        yield f"{what}: {memory_id}  {found.get(memory_id, 'not here any more')}"


def _name(place: Place) -> str:
    if place is None:
        return USER
    path = Path(place.path)
    return str(path.parent if path.name == ".git" else path)
