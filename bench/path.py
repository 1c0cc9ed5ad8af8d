"""Measures how much of the project's code a call runs through: `python -m bench.path [--list]`.

Every process of a runtime records which of our functions it calls during several calls, one after the other. Functions
called at least once for each of them are on the path; the files are counted as well. For a store, those up to its row
are also counted separately: the answer and some of the embedding come after it. Functions that encode or decode JSON or
MessagePack are counted as well.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

from bench.client import StdioClient
from bench.harness import Runtime, drained, fill, wait_until
from bench.varied_text import varied

CALLS: Final = 20
MEMORIES: Final = 200
COUNTER: Final = '''
"""Notes calls and their times between two SIGUSR1, and writes them down at the second."""
import json, os, pathlib, signal, sys, threading, time

CODERS = {"msgspec.json", "msgspec.msgpack", "pydantic_core._pydantic_core"}
CODINGS = {"encode", "decode", "validate_json"}
calls = []
recording = False


def note(frame, event, called):
    if not recording:
        return
    is_text = event == "call" and frame.f_code.co_qualname in ("JSONDecoder.decode", "JSONEncoder.encode")
    coder = type(getattr(called, "__self__", None)).__module__
    if is_text or (event == "c_call" and coder in CODERS and called.__name__ in CODINGS):
        while frame is not None and "/remembrancer/" not in frame.f_code.co_filename:
            frame = frame.f_back
        if frame is not None:
            where = frame.f_code.co_filename.rpartition("/remembrancer/")[2] + ":" + frame.f_code.co_qualname
            calls.append((f"{where} <{'json' if is_text else coder + ' ' + called.__name__}>", time.monotonic()))
    elif event == "call" and "/remembrancer/" in frame.f_code.co_filename:
        name = frame.f_code.co_filename.rpartition("/remembrancer/")[2] + ":" + frame.f_code.co_qualname
        calls.append((name, time.monotonic()))


def toggle(*_):
    global recording
    recording = not recording
    if recording:
        calls.clear()
        sys.setprofile(note)
    else:
        sys.setprofile(None)
        path = pathlib.Path(__file__).with_name(str(os.getpid()))
        path.with_suffix(".part").write_text(json.dumps(calls))
        path.with_suffix(".part").rename(path)


threading.setprofile(note)
signal.signal(signal.SIGUSR1, toggle)
'''


ROW: Final = "actors/store/records/sqlite_edits.py:SqliteEdits.note_applied"
"""This call has written the row; after it come the commit and the answer."""
Functions = set[str]


class CountingRuntime(Runtime):
    """A runtime whose processes record their calls."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp(prefix="rmb-path-", dir="/tmp"))
        (self.directory / "sitecustomize.py").write_text(COUNTER)
        path = os.pathsep.join(filter(None, (str(self.directory), os.environ.get("PYTHONPATH"))))
        self.codings: list[str] = []
        """The places where data was encoded or decoded, process by process."""
        self.environ["PYTHONPATH"] = path  # one of the few variables that a runtime inherits

    async def calls_of(self, client: StdioClient, call: Callable[[int], Awaitable[Any]]) -> tuple[Functions, Functions]:
        """Return the functions called in each of `CALLS` calls, and those before the row was written, if there was
        one."""
        pids = [each["pid"] for each in (await self.status())["processes"] if each["role"] != "launcher"]
        pids.append(client.process.pid)
        for pid in pids:
            os.kill(pid, signal.SIGUSR1)
        await asyncio.sleep(0.2)  # signals are not acknowledged
        begun = []
        for number in range(CALLS):
            begun.append(time.monotonic())  # one clock for all processes
            await call(number)
        for pid in pids:
            os.kill(pid, signal.SIGUSR1)
        noted: list[tuple[str, float]] = []
        for pid in pids:
            file = self.directory / str(pid)

            async def written(file: Path = file) -> bool:
                return file.exists()  # noqa: ASYNC240  # the loop has nothing else to do

            await wait_until(written, 10)
            found = json.loads(file.read_text())
            self.codings += [name for name, _ in found if name.endswith(">") and " <" in name]
            noted += [(name, at) for name, at in found if "<" not in name]
            file.unlink()
        counted = Counter(name for name, _ in noted)
        rows = sorted(at for name, at in noted if name == ROW)
        before = Counter(
            name
            for start, row in zip(begun, rows, strict=False)
            for name in {name for name, at in noted if start <= at <= row}
        )
        return {name for name, n in counted.items() if n >= CALLS}, {name for name, n in before.items() if n == CALLS}


async def measure() -> dict[str, Functions]:
    """Return the functions on the path of a store, of a store up to its row, those of a store that encode or decode,
    and those on the path of a hybrid recall."""
    running = CountingRuntime()
    try:
        async with running.client() as client:
            texts = varied(MEMORIES + 2 * CALLS)
            await fill(client, texts[:MEMORIES])
            await wait_until(lambda: drained(client), 120)
            store, row = await running.calls_of(client, lambda n: client.store(texts[MEMORIES + n]))
            codings = {name for name, n in Counter(running.codings).items() if n >= CALLS}
            await wait_until(lambda: drained(client), 120)
            recall, _ = await running.calls_of(
                client, lambda n: client.call("recall_memories", query=texts[n][:60], strategy="hybrid")
            )
    finally:
        await running.aclose()
        shutil.rmtree(running.directory)
    return {"store": store, "store, up to the row": row, "store, encoding or decoding": codings, "recall": recall}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="name the functions")
    options = parser.parse_args()
    for name, functions in asyncio.run(measure()).items():
        files = {function.partition(":")[0] for function in functions}
        print(f"{name}: {len(functions)} functions in {len(files)} files")
        for function in sorted(functions) if options.list else ():
            print(f"  {function}")


if __name__ == "__main__":
    main()
