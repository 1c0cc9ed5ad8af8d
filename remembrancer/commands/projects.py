"""`remembrancer projects`: which projects this home has memories of."""

from __future__ import annotations

import argparse
import json
import sqlite3
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import PurePath

import msgspec

from remembrancer.commands import exit_codes
from remembrancer.commands.home_files import CATALOG, QUEUE, USER_RECORDS, HomeFile, moment, unreadable
from remembrancer.commands.runtime_client import paths_here

GIT_DIRECTORY = ".git"


class KnownProject(msgspec.Struct, frozen=True):
    """A project. Times are seconds since the epoch, None where the catalogue does not know them.

    `path` is what its id was made from (its git common directory, or else its directory), `directory` the working tree
    in which a session began last. `memories` leaves out the forgotten ones.
    """

    id: str
    path: str | None
    directory: str | None
    created_at: float | None
    last_used_at: float | None
    memories: int
    forgotten: int
    sessions: int


def main(argv: list[str]) -> int:
    """Print the projects, the last used first."""
    parser = argparse.ArgumentParser(
        prog="remembrancer projects",
        description="The projects of this home: where each is, when a session last began in it, and how much is "
        "remembered. Also while the runtime works, and without it.",
        epilog="exit status: 0 listed (or there are none yet), 10 a file cannot be read",
    )
    parser.add_argument("--json", action="store_true", help="for a program: one JSON object")
    as_json = parser.parse_args(argv).json
    paths = paths_here()
    with moment(paths, lambda name: name not in (QUEUE, USER_RECORDS)) as files:
        known = known_projects(files)
    if as_json:
        print(json.dumps({"home": str(paths.home), "projects": [msgspec.structs.asdict(each) for each in known]}))
    elif not known:
        print(f"The home {paths.home} has no memories of a project yet.", file=sys.stderr)
    else:
        _print_table(known)
    return exit_codes.OK


def known_projects(files: Sequence[HomeFile]) -> list[KnownProject]:
    """The projects that have a file, the last used first. Raises `RecordsUnusable`: a file is damaged."""
    catalogued = next((_catalogued(file) for file in files if file.name == CATALOG), {})
    known = [_project(file, file.project_id, catalogued) for file in files if file.project_id]
    return sorted(known, key=lambda project: (-(project.last_used_at or 0.0), project.id))


Entry = tuple[str, str | None, float, float]
"""Of the catalogue: path, directory, when it was made and last used."""


def _catalogued(file: HomeFile) -> Mapping[str, Entry]:
    try:
        rows = file.connection.execute("SELECT id, path, directory, created_at, last_used_at FROM projects").fetchall()
    except sqlite3.Error as error:
        raise unreadable(file.name, error) from error
    return {project_id: tuple(entry) for project_id, *entry in rows}


def _project(file: HomeFile, project_id: str, catalogued: Mapping[str, Entry]) -> KnownProject:
    path, directory, created_at, last_used_at = catalogued.get(project_id, (None, None, None, None))
    try:
        ((memories, forgotten),) = file.connection.execute(
            "SELECT count(*) FILTER (WHERE forgotten_at IS NULL), count(forgotten_at) FROM memories"
        ).fetchall()
        ((sessions,),) = file.connection.execute("SELECT count(*) FROM sessions").fetchall()
    except sqlite3.Error as error:
        raise unreadable(file.name, error) from error
    if directory is None and path is not None:
        directory = _working_tree(path)
    return KnownProject(project_id, path, directory, created_at, last_used_at, memories, forgotten, sessions)


def _working_tree(path: str) -> str | None:
    """Where a project most likely is that no session has named since: beside its git directory. None: it has none
    (a bare repository with worktrees)."""
    place = PurePath(path)
    if place.name == GIT_DIRECTORY:
        return str(place.parent)
    return None if place.suffix == GIT_DIRECTORY else path


def _print_table(known: Sequence[KnownProject]) -> None:
    print(f"{'ID':<14}  {'LAST SESSION':<16}  {'MEMORIES':>8}  {'SESSIONS':>8}  PROJECT")
    for project in known:
        place = project.directory or project.path or "unknown"
        shown = "".join(each if each.isprintable() else "?" for each in place)
        used = _moment(project.last_used_at)
        print(f"{project.id:<14}  {used:<16}  {project.memories:>8,}  {project.sessions:>8,}  {shown}")


def _moment(at: float | None) -> str:
    return "unknown" if at is None else time.strftime("%Y-%m-%d %H:%M", time.localtime(at))
