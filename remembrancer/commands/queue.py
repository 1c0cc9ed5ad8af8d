"""`remembrancer queue`: the writes that wait for the store, and those that it refused; retried, exported or dropped."""

from __future__ import annotations

import argparse
import json
import sqlite3
import sys
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any, Final

import msgspec
from rich.table import Table
from rich.text import Text

from remembrancer.commands import exit_codes
from remembrancer.commands.runtime_client import paths_here
from remembrancer.commands.terminal import Terminal
from remembrancer.memory.limits import moment
from remembrancer.protocol.writes import Operation, StoreMemory

SHOWN: Final = 60
"""Characters of a content that a line shows."""
_ALL: Final = "SELECT operation_id, lane, memory_id, operation, queued_at, {} FROM {} ORDER BY queued_at"
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
    path = paths_here().write_queue
    if not path.exists():
        print(json.dumps({"queued": [], "set_aside": []}) if asked.json else "Nothing has ever been queued.")
        return 0
    with closing(sqlite3.connect(path, isolation_level=None, timeout=10)) as database:
        queued = _rows(database, "queued", "NULL, NULL")
        aside = _rows(database, "rejected", "code, message")
        chosen = [row for row in aside if not asked.id or row["operation_id"] in asked.id]
        unknown = set(asked.id) - {row["operation_id"] for row in chosen}
        if unknown:
            print(f"remembrancer queue: nothing is set aside as {', '.join(sorted(unknown))}", file=sys.stderr)
            return exit_codes.USAGE
        act: dict[str, Callable[[], None]] = {
            "list": lambda: _show(queued, aside, as_json=asked.json),
            "export": lambda: _export(chosen),
            "retry": lambda: _retry(database, chosen),
            "drop": lambda: _drop(database, chosen),
        }
        act[asked.what]()
    return 0


def _rows(database: sqlite3.Connection, table: str, reason: str) -> list[dict[str, Any]]:
    names = ("operation_id", "lane", "memory_id", "operation", "queued_at", "code", "message")
    return [dict(zip(names, row, strict=True)) for row in database.execute(_ALL.format(reason, table))]


def _decoded(row: dict[str, Any]) -> Operation | None:
    try:
        return _operation.decode(row["operation"])
    except msgspec.DecodeError:  # a newer release's
        return None


def _about(row: dict[str, Any]) -> str:
    operation = _decoded(row)
    if operation is None:
        return "(of another release)"
    change = operation.change
    name = type(change).__name__
    about = change.content if isinstance(change, StoreMemory) else row["memory_id"]
    text = " ".join("".join(each if each.isprintable() else " " for each in f"{name} {about}").split())
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…"


def _when(seconds: float) -> str:
    return moment(seconds).strftime("%Y-%m-%d %H:%M")


def _show(queued: list[dict[str, Any]], aside: list[dict[str, Any]], *, as_json: bool) -> None:
    if as_json:
        shown = [
            [{name: row[name] for name in row if name != "operation"} | {"about": _about(row)} for row in rows]
            for rows in (queued, aside)
        ]
        print(json.dumps({"queued": shown[0], "set_aside": shown[1]}))
        return
    if not queued and not aside:
        print("The queue is empty, and nothing is set aside.")
        return
    console = Terminal(soft_wrap=False)
    for title, rows in (("Queued: applied when the store takes them", queued), ("Set aside: refused", aside)):
        if rows:
            table = Table(title=title, title_justify="left")
            for column in ("id", "for", "queued at (UTC)", "what", "why"):
                table.add_column(column, overflow="fold")
            for row in rows:
                cells = (row["operation_id"], row["lane"], _when(row["queued_at"]), _about(row), row["message"] or "")
                table.add_row(*(Text(cell) for cell in cells))
            console.print(table)


def _export(rows: list[dict[str, Any]]) -> None:
    """A JSON line for each, with all that it says."""
    for row in rows:
        operation = _decoded(row)
        whole = msgspec.to_builtins(operation) if operation is not None else {"raw": row["operation"].hex()}
        print(_json.encode({"code": row["code"], "message": row["message"], "operation": whole}).decode())


def _retry(database: sqlite3.Connection, rows: list[dict[str, Any]]) -> None:
    with database:
        database.execute("BEGIN IMMEDIATE")
        for row in rows:
            database.execute(
                "INSERT OR IGNORE INTO queued (operation_id, operation, lane, memory_id, queued_at)"
                " VALUES (?, ?, ?, ?, ?)",
                (row["operation_id"], row["operation"], row["lane"], row["memory_id"], time.time()),
            )
            database.execute("DELETE FROM rejected WHERE operation_id = ?", (row["operation_id"],))
    print(f"{len(rows)} writes are queued again. They are applied within seconds, or at the next start of the runtime.")


def _drop(database: sqlite3.Connection, rows: list[dict[str, Any]]) -> None:
    database.executemany("DELETE FROM rejected WHERE operation_id = ?", [(row["operation_id"],) for row in rows])
    print(f"{len(rows)} writes that were set aside are deleted.")
