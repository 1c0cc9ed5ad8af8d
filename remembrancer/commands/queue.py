"""`remembrancer queue`: the writes that wait for the store, and those that it refused; retried, exported or dropped."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from typing import Final

import msgspec
from rich.table import Table
from rich.text import Text

from remembrancer.actors.gateway.queue_contents import QueuedWrite, read_queue
from remembrancer.actors.gateway.write_queue import QueueFile
from remembrancer.commands import exit_codes
from remembrancer.commands.runtime_client import ask, is_up, paths_here, refusal
from remembrancer.commands.terminal import Terminal
from remembrancer.memory.limits import moment
from remembrancer.protocol.control import ChangeQueue, QueueChanged
from remembrancer.protocol.errors import PeerUnavailable
from remembrancer.protocol.file_locks import FileLock
from remembrancer.protocol.paths import RuntimePaths
from remembrancer.protocol.writes import Operation, StoreMemory

SHOWN: Final = 60
"""Characters of a content that a line shows."""
DONE: Final = {
    "retry": "are queued again. They are applied within seconds, or at the next start of the runtime.",
    "drop": "that were set aside are deleted.",
}
_operation = msgspec.msgpack.Decoder(Operation)
_json = msgspec.json.Encoder()


def main(argv: list[str]) -> int:
    """List what is queued or set aside, or do something about what is set aside."""
    parser = argparse.ArgumentParser(
        prog="remembrancer queue",
        description="Writes that were acknowledged while the store was away wait in the queue and are applied by "
        "themselves. What the store refuses for good is set aside here. Can be used while the runtime is up.",
        epilog="exit status: 0 done, 2 no write of that id is set aside",
    )
    parser.add_argument("what", nargs="?", choices=("list", "retry", "export", "drop"), default="list")
    parser.add_argument("id", nargs="*", help="operations that are set aside (default: all; `drop` needs ids or --all)")
    parser.add_argument("--all", action="store_true", help="with drop: all that is set aside")
    parser.add_argument("--json", action="store_true", help="for a program: one JSON object")
    asked = parser.parse_args(argv)
    if asked.what == "drop" and not (asked.id or asked.all):
        parser.error("drop deletes acknowledged writes: name their ids, or give --all")
    paths = paths_here()
    if not paths.write_queue.exists():
        print(json.dumps({"queued": [], "set_aside": []}) if asked.json else "Nothing has ever been queued.")
        return exit_codes.OK
    queued, aside = read_queue(paths.write_queue)
    chosen = [write for write in aside if not asked.id or write.operation_id in asked.id]
    unknown = set(asked.id) - {write.operation_id for write in chosen}
    if unknown:
        print(f"remembrancer queue: nothing is set aside as {', '.join(sorted(unknown))}", file=sys.stderr)
        return exit_codes.USAGE
    if asked.what == "list":
        _show(queued, aside, as_json=asked.json)
    elif asked.what == "export":
        _export(chosen)
    else:
        change = ChangeQueue(tuple(write.operation_id for write in chosen), deletes=asked.what == "drop")
        print(f"{_change(paths, change)} writes {DONE[asked.what]}")
    return exit_codes.OK


def _change(paths: RuntimePaths, change: ChangeQueue) -> int:
    """The number of writes that the gateway has changed; or this process in its stead, while none runs."""
    with FileLock(paths.gateway_lock) as own:
        if not is_up(paths) and own.try_acquire():
            with closing(QueueFile(paths.write_queue)) as file:
                return file.do(
                    lambda each: each.take_back(change.operation_ids, time.time(), deletes=change.deletes)[1]
                )
    answer = ask(paths, change)
    if not isinstance(answer, QueueChanged):
        raise PeerUnavailable(refusal(answer))
    return answer.writes


def _decoded(write: QueuedWrite) -> Operation | None:
    try:
        return _operation.decode(write.operation)
    except msgspec.DecodeError:  # a newer release's
        return None


def _about(write: QueuedWrite) -> str:
    operation = _decoded(write)
    if operation is None:
        return "(of another release)"
    change = operation.change
    name = type(change).__name__
    about = change.content if isinstance(change, StoreMemory) else write.memory_id
    text = " ".join("".join(each if each.isprintable() else " " for each in f"{name} {about}").split())
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…"


def _when(seconds: float) -> str:
    return moment(seconds).strftime("%Y-%m-%d %H:%M")


def _show(queued: Sequence[QueuedWrite], aside: Sequence[QueuedWrite], *, as_json: bool) -> None:
    if as_json:
        shown = [
            [
                {name: value for name, value in write._asdict().items() if name != "operation"}
                | {"about": _about(write)}
                for write in writes
            ]
            for writes in (queued, aside)
        ]
        print(json.dumps({"queued": shown[0], "set_aside": shown[1]}))
        return
    if not queued and not aside:
        print("The queue is empty, and nothing is set aside.")
        return
    console = Terminal(soft_wrap=False)
    for title, writes in (("Queued: applied when the store takes them", queued), ("Set aside: refused", aside)):
        if writes:
            table = Table(title=title, title_justify="left")
            for column in ("id", "for", "queued at (UTC)", "what", "why"):
                table.add_column(column, overflow="fold")
            for write in writes:
                cells = (
                    *(write.operation_id, write.lane, _when(write.queued_at)),
                    *(_about(write), write.message or ""),
                )
                table.add_row(*(Text(cell) for cell in cells))
            console.print(table)


def _export(writes: Sequence[QueuedWrite]) -> None:
    """A JSON line for each, with all that it says."""
    for write in writes:
        operation = _decoded(write)
        whole = msgspec.to_builtins(operation) if operation is not None else {"raw": write.operation.hex()}
        print(_json.encode({"code": write.code, "message": write.message, "operation": whole}).decode())
