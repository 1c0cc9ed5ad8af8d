"""`remembrancer admin maintain`: runs maintenance now instead of when it is due."""

from typing import Final, get_args

import msgspec

from remembrancer.commands import exit_codes
from remembrancer.commands.home_reader import first_words, known_projects
from remembrancer.commands.report import DRY_RUN, Report, command, flag
from remembrancer.commands.runtime_client import ask_store, paths_here
from remembrancer.commands.selection import WHERE, Where, short
from remembrancer.config.project import directory_of
from remembrancer.protocol.consolidation import Maintain, Maintained, Upkeep
from remembrancer.protocol.errors import InvalidInput, RemembrancerError
from remembrancer.protocol.writes import ProjectRef

ANSWER_S: Final = 900.0
"""The time limit for one place: a hundred thousand memories take minutes at low priority."""
SORTS: Final[tuple[Upkeep, ...]] = get_args(Upkeep)
USER: Final = "the user"

Owner = ProjectRef | None
OwnedPart = tuple[Owner, Owner]
"""A place, and the part to maintain: its own memories, or those that it shares (by the lane's id)."""


class Visit(msgspec.Struct, frozen=True):
    project: Owner
    shared: bool
    outcome: Maintained


@command(
    *WHERE[:2],
    flag("--all-projects", "--all", "everywhere", help="The memories of all projects and of the user."),
    DRY_RUN,
)
def maintain(project: str | None, user: bool, everywhere: bool, dry_run: bool) -> Report:
    """Archive memories that have not been used for a long time, delete memories archived long ago, summarise related
    memories and delete old session details and logs. This also happens automatically in the background. 'remembrancer
    undo' reverses a run within 90 days, except for deletions. For the rules, see docs/memory-model.md."""
    visits: list[Visit] = []
    status, notes = exit_codes.OK, []
    for place, part in parts_of(Where(project, user, everywhere)):
        try:
            outcome = ask_store(Maintain(part, dry_run), answer_s=ANSWER_S, slow="Looking through the memories")
        except RemembrancerError as error:
            status = exit_codes.OF_ERRORS.get(error.code, exit_codes.REFUSED)
            notes.append(f"remembrancer admin maintain: {error.message}")
            break
        visits.append(Visit(place, part != place, outcome))
    return Report(
        {"dry_run": dry_run, "places": visits}, _lines(visits, dry_run=dry_run, is_whole=not notes), status, notes
    )


def parts_of(where: Where) -> list[OwnedPart]:
    """The selected projects, each followed by its shared part, and the user."""
    lanes = {project.id: project.lane for project in known_projects(paths_here())}
    parts: list[OwnedPart] = []
    for project in () if where.user else (place.project for place in where.places):
        if project.id in lanes:
            lane = lanes[project.id]
            parts += [(project, project), *([(project, ProjectRef(lane, project.path))] if lane else [])]
        elif not where.all_projects:
            raise InvalidInput(f"the project {project.path} has no memories; use --user or --all-projects")
    return [*parts, (None, None)] if where.user or where.all_projects else parts


def _lines(visits: list[Visit], *, dry_run: bool, is_whole: bool) -> list[str]:
    """A line for each place with its non-zero counts. `is_whole` is True if nothing was refused."""
    lines: list[str] = []
    for visit in visits:
        place, report = visit.project, visit.outcome
        counts = [f"{report.examined:,} examined"]
        done = [(report.of(sort).count, sort) for sort in SORTS if sort in report.done]
        counts += [f"{number:,} {sort if number != 1 else sort.removesuffix('s')}" for number, sort in done]
        what = ", its shared memories" if visit.shared else ""
        name = USER if place is None else directory_of(place.path)
        lines.append(f"{name}{what}: {', '.join(counts)}")
        named = [(sort.removesuffix("s"), memory_id) for sort in SORTS for memory_id in report.of(sort).ids]
        words = first_words(paths_here(), [] if place is None else [place.id], [memory_id for _, memory_id in named])
        lines += [f"  {sort}: {words.get(memory_id, 'gone')}  {short(memory_id)}" for sort, memory_id in named]
        where = "--user" if place is None else f"--project {place.id}"
        lines += [f"  to undo: remembrancer undo {run_id} {where}" for run_id in report.run_ids]
    if dry_run:
        lines.append("Nothing was changed: this is what would be done.")
    elif is_whole and not any(visit.outcome.done for visit in visits):
        lines.append("There was nothing to do.")
    return lines
