"""`remembrancer admin queue`: the writes that wait for the store, and those that it refused: list, export or drop
them."""

import json
from collections.abc import Sequence
from contextlib import closing
from typing import Any, Final

import click
import msgspec

from remembrancer.actors.gateway.write_queue import USER_LANE, QueuedRow, QueueFile, read_queue
from remembrancer.commands.backup import locked
from remembrancer.commands.report import Report, Rows, argument, command, flag
from remembrancer.commands.runtime_client import paths_here
from remembrancer.config.project import directory_of
from remembrancer.memory.limits import moment
from remembrancer.memory.sentences import excerpt
from remembrancer.memory.text import count
from remembrancer.protocol.errors import InvalidInput
from remembrancer.protocol.writes import Operation, StoreMemory

TEXT_CHARACTERS: Final = 60
_operation = msgspec.msgpack.Decoder(Operation)


@command(
    argument("what", required=False, default="list", type=click.Choice(("list", "export", "drop"))),
    argument("ids", nargs=-1, metavar="[ID]...", help="Rejected operations (default: all; drop needs ids or --all)."),
    flag("--all", "drops_all", help="With drop: all rejected operations."),
)
def queue(what: str, ids: Sequence[str], drops_all: bool) -> Report:
    """Manage the write queue. Writes that were acknowledged while the store was unavailable wait in it and are applied
    automatically; those that the store rejects stay here. `drop` works only while the runtime is down."""
    if what == "drop" and not (ids or drops_all):
        raise click.UsageError("drop deletes acknowledged writes: give their ids, or --all")
    paths = paths_here()
    if not paths.write_queue.exists():
        return Report({"queued": [], "set_aside": []}, "Nothing has ever been queued.")
    queued, aside = read_queue(paths.write_queue)
    chosen = [write for write in aside if not ids or write.operation_id in ids]
    unknown = set(ids) - {write.operation_id for write in chosen}
    if unknown:
        raise InvalidInput(f"no rejected write has the id {', '.join(sorted(unknown))}")
    if what == "list":
        return _listed(queued, aside)
    if what == "export":
        writes = list(map(_exported, chosen))
        return Report({"writes": writes}, [json.dumps(write, ensure_ascii=False) for write in writes])
    with locked(paths), closing(QueueFile(paths.write_queue)) as file:
        file.drop([write.operation_id for write in chosen])
    return Report({"writes": len(chosen)}, f"Deleted for good: {count(len(chosen), 'write')}.")


def _decoded(write: QueuedRow) -> Operation | None:
    try:
        return _operation.decode(write.operation)
    except msgspec.DecodeError:  # from a newer release
        return None


def _described(write: QueuedRow) -> tuple[str, str]:
    """The user, or the directory of the project to which a write belongs; the change."""
    operation = _decoded(write)
    if operation is None:
        return write.lane, "(of another release)"
    change = operation.change
    about = change.content if isinstance(change, StoreMemory) else write.memory_id
    place = write.lane if write.lane == USER_LANE else directory_of(operation.project.path)
    return place, excerpt(f"{type(change).__name__} {about}", TEXT_CHARACTERS)


def _listed(queued: Sequence[QueuedRow], aside: Sequence[QueuedRow]) -> Report:
    facts: dict[str, list[dict[str, Any]]] = {"queued": [], "set_aside": []}
    rows: dict[str, list[tuple[str, ...]]] = {"queued": [], "set_aside": []}
    for name, write in [*(("queued", write) for write in queued), *(("set_aside", write) for write in aside)]:
        fields, (place, about) = write._asdict(), _described(write)
        del fields["operation"]
        facts[name].append(fields | {"about": about})
        at = f"{moment(write.queued_at):%Y-%m-%d %H:%M}"
        rows[name].append((write.operation_id, place, at, about, write.message or ""))
    titles = {"queued": "Queued: applied when the store accepts them", "set_aside": "Set aside: refused"}
    columns = ("id", "for", "queued at (UTC)", "what", "why")
    tables = [Rows(columns, rows[name], title) for name, title in titles.items() if rows[name]]
    return Report(facts, tables or "The queue is empty, and nothing is set aside.")


def _exported(write: QueuedRow) -> dict[str, Any]:
    operation = _decoded(write)
    content = msgspec.to_builtins(operation) if operation is not None else {"raw": write.operation.hex()}
    return {"code": write.code, "message": write.message, "operation": content}
