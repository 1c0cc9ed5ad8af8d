"""`remembrancer projects`: which projects this home has memories of; `projects move`: one of them is elsewhere now."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from remembrancer.actors.gateway.queue_contents import read_queue
from remembrancer.commands import exit_codes
from remembrancer.commands.runtime_client import ask_home, ask_store, paths_here
from remembrancer.config.project import project_of, working_tree_of
from remembrancer.protocol.errors import InvalidInput, NotFound, from_failure
from remembrancer.protocol.home import DescribeProjects, KnownProject, ProjectsDescribed
from remembrancer.protocol.paths import RuntimePaths
from remembrancer.protocol.projects import MoveProject, ProjectMoved
from remembrancer.protocol.writes import ProjectRef

GIT_DIRECTORY: Final = ".git"
MOVE_S: Final = 60.0
"""The time that a move may take: it waits for what is being written."""


def main(argv: list[str]) -> int:
    """Print the projects, the last used first, or move one."""
    return move(argv[1:]) if argv[:1] == ["move"] else show(argv)


def move(argv: list[str]) -> int:
    """Give the memories of a project to the directory where it lies now."""
    parser = argparse.ArgumentParser(
        prog="remembrancer projects move",
        description="A project was moved: give its memories to the place where it is now. What was stored there since "
        "is kept and joined with them. Also while the runtime works; a session that still works in the old place has "
        "to end first.",
        epilog="exit status: 0 done, 2 one of the places cannot be meant, 8 refused, 9 the runtime does not answer, "
        "10 a file cannot be read",
    )
    parser.add_argument("old", metavar="OLD", help="where it was: a directory, or an id of 'remembrancer projects'")
    parser.add_argument("new", metavar="NEW", help="the directory where it is")
    parser.add_argument("--dry-run", action="store_true", help="say what would be done, and change nothing")
    parser.add_argument("--yes", action="store_true", help="also if a project is still at the old place")
    parser.add_argument("--json", action="store_true", help="for a program: one JSON object")
    asked = parser.parse_args(argv)
    paths = paths_here()
    new, directory = _new_place(asked.new)
    old = _old_place(asked.old, known_projects(paths), new)
    if not asked.yes and os.path.lexists(old.path):
        raise InvalidInput(
            f"{old.path} is still there: its memories would be gone from it. If that is meant, say --yes; to give a "
            f"copy of them to another clone, 'remembrancer export --project {old.id} FILE' and there 'remembrancer "
            "import FILE'"
        )
    _refuse_queued(paths, old)
    try:
        moved = ask_store(MoveProject(old, new, directory, asked.dry_run), ProjectMoved, answer_s=MOVE_S)
    except NotFound as error:
        raise InvalidInput(error.message) from error
    if asked.json:
        places = {"id": new.id, "former_id": old.id, "from": old.path, "to": new.path}
        print(json.dumps({"dry_run": asked.dry_run, **places, **msgspec.structs.asdict(moved)}))
    else:
        joined = f", and join the {moved.joined:,} that are there" if moved.joined else ""
        would = "would move" if asked.dry_run else "moved"
        print(f"{moved.memories:,} memories {would} from {old.path} to {new.path}{joined}.")
    return exit_codes.OK


def _new_place(named: str) -> tuple[ProjectRef, str]:
    place = Path(named).expanduser()
    if not place.is_dir():
        raise InvalidInput(f"{named} is no directory: name the one where the project is now")
    return project_of(place), str(working_tree_of(place))


def _old_place(named: str, described: ProjectsDescribed, new: ProjectRef) -> ProjectRef:
    """The project that is meant. It need not be there any more, and so its path is compared as it is written."""
    place = Path(named).expanduser().absolute()
    wanted = {str(each) for path in (place, Path(os.path.realpath(place))) for each in (path, path / GIT_DIRECTORY)}
    known = described.projects
    found = [each for each in known if named == each.id or each.path in wanted]
    if not found:
        found = [each for each in known if each.directory in wanted]
    if not found or found[0].path is None:
        for failure in described.unreadable:
            raise from_failure(failure)
        raise InvalidInput(f"nothing is remembered of {named}: 'remembrancer projects' lists what there is")
    if found[0].id == new.id:
        raise InvalidInput(f"{named} and {new.path} are one project already")
    return ProjectRef(found[0].id, found[0].path)


def _refuse_queued(paths: RuntimePaths, project: ProjectRef) -> None:
    if waiting := read_queue(paths.write_queue).waiting_for(project.id):
        raise InvalidInput(
            f"{waiting:,} writes to {project.path} still wait (see 'remembrancer queue'): move it after them"
        )


def show(argv: list[str]) -> int:
    """Print the projects, the last used first."""
    parser = argparse.ArgumentParser(
        prog="remembrancer projects",
        description="The projects of this home: where each is, when a session last began in it, and how much is "
        "remembered. Also while the runtime works, and without it. 'remembrancer projects move OLD NEW' gives the "
        "memories of a project that was moved to its new place.",
        epilog="exit status: 0 listed (or there are none yet), 10 a file cannot be read (the others are listed)",
    )
    parser.add_argument("--json", action="store_true", help="for a program: one JSON object")
    as_json = parser.parse_args(argv).json
    paths = paths_here()
    described = known_projects(paths)
    known, unreadable = described.projects, [failure.message for failure in described.unreadable]
    if as_json:
        listed = [msgspec.structs.asdict(each) for each in known]
        print(json.dumps({"home": str(paths.home), "projects": listed, "unreadable": unreadable}))
    elif not known:
        print(f"The home {paths.home} has no memories of a project yet.", file=sys.stderr)
    else:
        _print_table(known)
    for message in unreadable:
        print(f"remembrancer projects: {message}", file=sys.stderr)
    return exit_codes.FILE_UNUSABLE if unreadable else exit_codes.OK


def known_projects(paths: RuntimePaths) -> ProjectsDescribed:
    """The projects that have a file, the last used first, and the files that cannot be read."""
    return ask_home(paths, DescribeProjects(), ProjectsDescribed)


def _print_table(known: Sequence[KnownProject]) -> None:
    print(f"{'ID':<14}  {'LAST SESSION':<16}  {'MEMORIES':>8}  {'SESSIONS':>8}  PROJECT")
    for project in known:
        place = project.directory or project.path or "unknown"
        shown = "".join(each if each.isprintable() else "?" for each in place)
        used = _moment(project.last_used_at)
        shared = "" if project.lane is None else f"  (shared as {project.lane})"
        print(f"{project.id:<14}  {used:<16}  {project.memories:>8,}  {project.sessions:>8,}  {shown}{shared}")


def _moment(at: float | None) -> str:
    return "unknown" if at is None else time.strftime("%Y-%m-%d %H:%M", time.localtime(at))
