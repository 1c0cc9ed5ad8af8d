"""`remembrancer admin projects`: the projects in this home; `move` assigns a project a new directory."""

import os
import shlex
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from remembrancer.actors.gateway.shown_log import ShownLog
from remembrancer.actors.gateway.write_queue import NOTES, read_queue
from remembrancer.actors.store.records.catalog import RememberedProject
from remembrancer.commands.home_reader import KnownProject, known_projects, moved_project
from remembrancer.commands.report import DRY_RUN, Group, Report, Rows, argument, command, confirm, flag
from remembrancer.commands.runtime_client import ask_store, paths_here
from remembrancer.config.project import directory_of, is_gone, project_of, working_tree_of
from remembrancer.memory.text import count
from remembrancer.protocol.errors import InvalidInput, RemembrancerError
from remembrancer.protocol.sharing import MoveProject
from remembrancer.protocol.writes import ProjectRef

MOST_NAMED: Final = 3
MOVE_S: Final = 60.0
"""The time limit of a move, which waits for running writes."""


@command(
    argument("old", metavar="OLD", help="The old directory, or an id from 'remembrancer admin projects'."),
    argument("new", metavar="NEW", help="The new directory."),
    DRY_RUN,
    flag("--yes", help="Do not ask, even if a project is still in the old place or the new place has memories."),
)
def move(old: str, new: str, dry_run: bool, yes: bool) -> Report:
    """Move a project's memories after its directory has moved. Memories stored in the new place since then are kept
    along with the moved memories. Works while the runtime is up; sessions in the old place must end first."""
    paths = paths_here()
    place = Path(new).expanduser()
    if not place.is_dir():
        raise InvalidInput(f"{new} is not a directory; give the directory where the project is now")
    target = project_of(place)
    source = _old_place(old, known_projects(paths), target)
    if not yes and not is_gone(source):
        raise InvalidInput(
            f"{source.path} is still there: this project would lose its memories. Use --yes if that is intended; "
            "memories that both projects need can be moved to the user instead ('remembrancer edit ID --to user')"
        )
    queued, _ = read_queue(paths.write_queue)
    if waiting := sum(write.lane in (source.id, source.id + NOTES) for write in queued):
        raise InvalidInput(
            f"the queue still has {count(waiting, 'write')} for {source.path} (see 'remembrancer admin queue'); "
            "move it once the queued writes are applied"
        )
    request = MoveProject(source, target, str(working_tree_of(place)), dry_run)
    if not (yes or dry_run) and (own := ask_store(msgspec.structs.replace(request, dry_run=True)).joined):
        mixed = f"{directory_of(target.path)} has {count(own, 'memory')} of its own"
        confirm(f"{mixed}: this mixes both projects, which cannot be undone. Continue?", yes=False)
    moved = ask_store(request, answer_s=MOVE_S)
    if not dry_run:
        with suppress(RemembrancerError):  # the log of shown memories would still name the old place
            ShownLog(paths.home, kept_s=0.0).move(source.id, target.id)
    facts = {"id": target.id, "former_id": source.id, "from": source.path, "to": target.path}
    joined = f", which already had {moved.joined:,}" if moved.joined else ""
    would = "would move" if dry_run else "moved"
    places = [directory_of(source.path), directory_of(target.path)]
    places = places if len(set(places)) > 1 else [source.path, target.path]  # it has become a repository
    line = f"{count(moved.memories, 'memory')} {would} from {' to '.join(places)}{joined}."
    return Report({"dry_run": dry_run, **facts, **msgspec.structs.asdict(moved)}, line)


def _old_place(named: str, known: Sequence[KnownProject], new: ProjectRef) -> ProjectRef:
    place = Path(named).expanduser().absolute()
    wanted = {str(parent) for path in (place, Path(os.path.realpath(place))) for parent in (path, path / ".git")}
    matching = [project for project in known if named == project.id or project.path in wanted]
    if not matching:
        matching = [project for project in known if project.directory in wanted]
    if not matching or matching[0].path is None:
        raise InvalidInput(f"there are no memories of {named}; run 'remembrancer admin projects' to list the projects")
    for project in matching:
        if project.id != new.id and project.path is not None:
            return ProjectRef(project.id, project.path)
    raise InvalidInput(f"{named} and {new.path} are already the same project")


@command(name="list")
def list_projects() -> Report:
    """List the projects of this home: where each is, when its last session began or you last changed a memory, and its
    number of memories. Works with and without a runtime."""
    paths = paths_here()
    known = known_projects(paths)
    nothing = f"The home {paths.home} has no project memories yet."
    gone = missing_projects(known)
    facts = {"home": str(paths.home), "projects": known}
    return Report(facts, _table(known) if known else nothing, notes=[gone] if gone else [])


def notice_of_move(directory: Path) -> str:
    """Advice if this is probably the new place of a project. Empty if it is not, or if the records cannot be read."""
    with suppress(RemembrancerError):
        here = directory.resolve()
        if former := moved_project(paths_here(), here):
            return advice_on(former, here)
    return ""


def advice_on(former: RememberedProject, here: Path) -> str:
    place = shlex.quote(str(former.directory))
    if here.is_relative_to(former.directory):
        return (
            "This directory became a different project when 'git init' was run or its repository was removed. "
            f"Run 'remembrancer admin projects move {place} .' to bring its earlier memories here."
        )
    return (
        f"{former.directory.name} had {count(former.memories, 'memory')} and is no longer at {place}. If this "
        f"is that project, run 'remembrancer admin projects move {place} {shlex.quote(str(here))}' to bring them here."
    )


def missing_projects(known: Sequence[KnownProject]) -> str:
    remembered = [ProjectRef(project.id, project.path) for project in known if project.memories and project.path]
    gone = list(dict.fromkeys(directory_of(project.path) for project in filter(is_gone, remembered)))
    if not gone:
        return ""
    named = ", ".join(map(shlex.quote, gone[:MOST_NAMED]))
    more = f" and {len(gone) - MOST_NAMED} more" if len(gone) > MOST_NAMED else ""
    return (
        f"These projects have memories, but are gone (moved, deleted or part of another repository): "
        f"{named}{more}. Run 'remembrancer admin projects move OLD NEW' to move their memories to the new place."
    )


def _table(known: Sequence[KnownProject]) -> Rows:
    rows = []
    for project in known:
        shared = "" if project.lane is None else f"  (shared as {project.lane})"
        place = f"{project.directory or project.path or 'unknown'}{shared}"
        counts, at = (f"{project.memories:,}", f"{project.sessions:,}"), project.last_used_at
        last = "unknown" if at is None else time.strftime("%Y-%m-%d %H:%M", time.localtime(at))
        rows.append((place, *counts, last, project.id))
    return Rows(("project", ">memories", ">sessions", "last used", "id"), rows)


projects = Group(
    "projects",
    *(list_projects, move),
    default="list",
    help="List the projects of this home; 'move OLD NEW' moves a project's memories to its new place.",
)
