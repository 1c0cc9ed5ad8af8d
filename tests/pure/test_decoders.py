"""Decoders are made when a module is imported: msgspec 0.22 prepares a type when it is first decoded, and two threads
that do so at once end the process (a segmentation fault)."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "remembrancer"
ONE_THREAD = {
    "actors/gateway/hello.py": "the event loop",
    "actors/gateway/hook_events.py": "the event loop",
    "toolsets/arguments.py": "the event loop",
    "actors/launcher/supervision.py": "the launcher",
    "config/reading.py": "the start of a process",
    "memory/export_format.py": "a command",
    "memory/markdown_files.py": "a command",
    "actors/store/code_handlers.py": "threads, but a decoder of its type is made when the module is imported",
}
"""The only ones that `convert`, and where."""


def calls(of: str) -> Iterator[tuple[str, ast.Call]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        file, text = path.relative_to(PACKAGE).as_posix(), path.read_text()
        if of in text and not file.startswith("commands/"):  # which have one thread
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.Call) and ast.unparse(node.func) == of:
                    yield file, node


def test_nothing_that_threads_decode_is_prepared_when_it_is_first_decoded() -> None:
    late = [
        f"{file}:{call.lineno}"
        for of in ("msgspec.json.decode", "msgspec.msgpack.decode")
        for file, call in calls(of)
        if any(keyword.arg == "type" for keyword in call.keywords)
    ]
    assert late == []


def test_types_are_converted_to_where_there_is_one_thread_or_they_are_prepared() -> None:
    assert {file for file, _ in calls("msgspec.convert")} == set(ONE_THREAD)
