"""`remembrancer admin queue`: the writes waiting for the store, and the writes that it refused."""

from typing import Any, Final

import msgspec

from remembrancer.actors.gateway.write_queue import USER_LANE, QueuedRow, read_queue
from remembrancer.commands.report import Report, Rows, command
from remembrancer.commands.runtime_client import paths_here
from remembrancer.config.project import directory_of
from remembrancer.memory.limits import moment
from remembrancer.memory.sentences import excerpt
from remembrancer.protocol.writes import Operation, StoreMemory

TEXT_CHARACTERS: Final = 60
_operation = msgspec.msgpack.Decoder(Operation)


@command()
def queue() -> Report:
    """Show the write queue. Writes acknowledged while the store was unavailable wait in the queue and are applied
    automatically; writes that the store rejects are kept for 90 days, and --json shows them in full."""
    queued, aside = read_queue(paths_here().write_queue)
    facts: dict[str, list[dict[str, Any]]] = {"queued": [], "set_aside": []}
    rows: dict[str, list[tuple[str, ...]]] = {"queued": [], "set_aside": []}
    for name, write in [*(("queued", write) for write in queued), *(("set_aside", write) for write in aside)]:
        place, about, operation = _described(write)
        facts[name].append(write._asdict() | {"about": about, "operation": operation})
        at = f"{moment(write.queued_at):%Y-%m-%d %H:%M}"
        rows[name].append((write.operation_id, place, at, about, write.message or ""))
    titles = {"queued": "Queued: applied when the store accepts them", "set_aside": "Set aside: refused"}
    columns = ("id", "for", "queued at (UTC)", "what", "why")
    tables = [Rows(columns, rows[name], title) for name, title in titles.items() if rows[name]]
    return Report(facts, tables or "The queue is empty, and nothing is set aside.")


def _described(write: QueuedRow) -> tuple[str, str, Any]:
    try:
        operation = _operation.decode(write.operation)
    except msgspec.DecodeError:  # from a newer release
        return write.lane, "(from another release)", {"raw": write.operation.hex()}
    change = operation.change
    about = change.content if isinstance(change, StoreMemory) else write.memory_id
    place = write.lane if write.lane == USER_LANE else directory_of(operation.project.path)
    return place, excerpt(f"{type(change).__name__} {about}", TEXT_CHARACTERS), msgspec.to_builtins(operation)
