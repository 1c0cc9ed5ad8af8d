"""By default no process of the runtime opens an internet socket: held by the kernel, and watched from outside."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import psutil
import pytest

from bench.client import StdioClient, command_line
from remembrancer.commands import exit_codes
from tests.patience import until
from tests.processes.without_network import NOT_HERE
from tests.runtime import Runtime, command

PAUSE_S = 0.02
"""Between two looks, which cost the processes that are looked at their time."""
WRAPPER = [sys.executable, str(Path(__file__).with_name("without_network.py"))]


class Watch:
    """Looks again and again at the internet sockets of every process of a home; `seen` is what it found."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._ended = threading.Event()
        self.seen: set[str] = set()
        self.processes: set[int] = set()
        self.rounds = 0

    def look(self) -> None:
        """One look."""
        for process in psutil.process_iter(["environ"]):
            if (process.info["environ"] or {}).get("REMEMBRANCER_HOME") != str(self._home):
                continue
            if process.pid == os.getpid():
                continue
            try:
                found = process.net_connections(kind="inet")
                name = " ".join(process.cmdline()[-3:])
            except psutil.Error:
                continue
            self.processes.add(process.pid)
            self.seen |= {f"{name}: {each.laddr} {each.raddr} {each.status}" for each in found}
        self.rounds += 1

    def run(self) -> None:
        """Look until ended."""
        while not self._ended.wait(PAUSE_S):
            self.look()

    def end(self) -> None:
        """Look no more."""
        self._ended.set()


@contextmanager
def watched(home: Path) -> Iterator[Watch]:
    """A watch on a thread of its own."""
    watch = Watch(home)
    thread = threading.Thread(target=watch.run, daemon=True)
    thread.start()
    try:
        yield watch
    finally:
        watch.end()
        thread.join()


async def is_scaled(home: Path) -> bool:
    """True if the launcher has heard that there are to be two embedders."""
    done = await asyncio.to_thread(command, "scale", "embedder=2", home=home)
    assert done.returncode in (exit_codes.OK, exit_codes.NO_ANSWER), done.stderr
    return done.returncode == exit_codes.OK


async def use_it(home: Path, project: Path) -> Runtime:
    """A whole life: start, every tool, the resources, scale, down."""
    runtime = Runtime(home)
    async with StdioClient(home, cwd=project) as client:
        entities = [{"name": "Ana", "type": "person", "relationship": "is about"}]
        memory = (await client.store("Ana prefers tabs.", related_entities=entities))["memory_id"]
        await client.store("Ana prefers short answers.", scope="user")
        await until(runtime.is_drained)
        answer = await client.call("recall_memories", query="does she like long replies?")
        assert answer["memories"]
        assert (await client.call("search_knowledge_graph", entity="Ana"))["entities"]
        assert (await client.call("get_memory_context", task_description="write to Ana"))["tokens_used"]
        for tool, arguments in (
            ("update_memory", {"content": "Ana prefers spaces."}),
            ("tag_memory", {"add": ["style"]}),
            ("promote_memory", {"target_scope": "user"}),
            ("forget_memory", {}),
            ("restore_memory", {}),
            ("get_memory", {}),
        ):
            assert "error" not in await client.call(tool, memory_id=memory, **arguments)
        await client.call("get_memory_status")
        for resource in (await client.request("resources/list"))["resources"]:
            await client.request("resources/read", {"uri": resource["uri"]})
        await until(partial(is_scaled, home))
        await until(runtime.is_ready)
        status = await runtime.status()
        while not status["processes"]:  # the launcher did not answer in time
            status = await runtime.status()
        assert {process["restarts"] for process in status["processes"]} == {0}
        assert status["embedding"]["vectors_ready"]
    await runtime.down()
    return runtime


async def test_a_whole_life_goes_by_where_asking_for_an_internet_socket_is_death(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The filter is inherited by the bridge's runtime: a process that asked would be restarted, and that is seen."""
    need_filter()
    monkeypatch.setattr("bench.client.command_line", lambda: [*WRAPPER, *command_line()])
    await use_it(home, tmp_path)


async def test_a_process_of_the_runtime_that_asked_would_be_seen_to_die(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need_filter()
    (tmp_path / "sitecustomize.py").write_text(
        f"import sys\nif 'remembrancer.actors.embedder' in sys.orig_argv:\n    {open_one('AF_INET')}\n"
    )
    monkeypatch.setattr("bench.client.command_line", lambda: [*WRAPPER, *command_line()])
    runtime = Runtime(home)

    async def an_embedder_has_died() -> bool:
        processes = (await runtime.status())["processes"]
        return any(each["role"] == "embedder" and each["restarts"] for each in processes)

    async with StdioClient(home, cwd=tmp_path, environ={"PYTHONPATH": str(tmp_path)}):
        await until(an_embedder_has_died)
    await runtime.down()


def open_one(family: str) -> str:
    """A program that asks for a socket."""
    return f"import socket; socket.socket(socket.{family})"


def need_filter() -> None:
    """Skip where the kernel has no such filter."""
    if subprocess.run([*WRAPPER, sys.executable, "-c", ""], check=False).returncode == NOT_HERE:
        pytest.skip("seccomp filters are Linux's, and this kernel or machine has none that is known here")
