"""`remembrancer admin embedder`: makes vectors for another host's memory, or manages hosts that do so for this one."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio
import click
import msgspec

from remembrancer.actors.actor_process import LaunchSpec
from remembrancer.commands import exit_codes
from remembrancer.commands.output_files import new_file
from remembrancer.commands.report import Report, command, flag, option
from remembrancer.commands.runtime_client import paths_here
from remembrancer.config.reading import load_settings
from remembrancer.config.settings import Settings, model_choices, threads_per_worker
from remembrancer.config.worker_keys import Invitation, WorkerKeys
from remembrancer.memory.limits import MAX_NAME
from remembrancer.memory.text import clean_name
from remembrancer.protocol.errors import InvalidInput
from remembrancer.protocol.ids import new_ulid

if TYPE_CHECKING:
    from remembrancer.actors.embedder.actor import RemoteEmbedderActor

DEFAULT_LISTEN: Final = "tcp://0.0.0.0:7411"
"""An example for help texts; nothing listens by default."""
EVERYWHERE: Final = frozenset({"0.0.0.0", "*", "[::]"})  # noqa: S104 - to know such an address is not to listen there
LEAVE_S: Final = 5.0
"""The time to finish the current work when this host's worker is stopped."""


@command(
    option("--connect", metavar="tcp://HOST:PORT", help="Work for that host's memory until Ctrl-C."),
    option("--invite", metavar="FILE", help="Allow another host to work for this memory, and write its key file."),
    flag("--list", "lists", help="List the hosts that may work for this memory."),
    option("--revoke", metavar="NAME", help="Revoke a host's access."),
    option("--key-file", metavar="FILE", help="With --connect: the key file that --invite wrote on that host."),
    option("--threads", type=int, metavar="N", help="With --connect: threads (default: one per core)."),
)
def embedder(
    connect: str | None,
    invite: str | None,
    lists: bool,
    revoke: str | None,
    key_file: str | None,
    threads: int | None,
) -> Report | int:
    """Make vectors here for another host's memory, over TCP with CURVE, or manage the hosts that may do so for this
    memory. Invited hosts receive the texts that they embed: invite only hosts that may read them."""
    if sum((connect is not None, invite is not None, lists, revoke is not None)) != 1:
        raise click.UsageError("give one of --connect, --invite, --list and --revoke")
    if connect is not None:
        if key_file is None:
            made = "'remembrancer admin embedder --invite FILE' creates on that host"
            raise click.UsageError(f"--connect needs --key-file FILE, which {made}")
        return _work(_endpoint(connect), Invitation.read(Path(key_file)), threads)
    keys = WorkerKeys(paths_here().keys)
    if invite is not None:
        return _invite(keys, Path(invite))
    if revoke is not None:
        keys.revoke(revoke)
        return Report({"revoked": revoke}, f"Revoked {revoke}: it will receive no more texts.")
    members = keys.all()
    lines = [f"{member.name}: since {datetime.fromtimestamp(member.created_at):%Y-%m-%d %H:%M}" for member in members]
    nobody = "No other host may work for this memory. Run 'remembrancer admin embedder --invite FILE' to invite one."
    facts = [{"name": member.name, "created_at": member.created_at} for member in members]
    return Report({"embedders": facts}, lines or nobody)


def _endpoint(text: str) -> str:
    try:
        msgspec.convert({"embedder_listen": text}, Settings)
    except msgspec.ValidationError:
        raise InvalidInput(f"--connect needs tcp://HOST:PORT, not {text[:80]!r}", field="connect") from None
    return text


def _invite(keys: WorkerKeys, file: Path) -> Report:
    settings = load_settings(os.environ)
    name = clean_name(file.stem, field="FILE", longest=MAX_NAME)
    with new_file(file.absolute(), force=False) as stream:
        invitation = keys.invite(name, model_choices(settings)[0], time.time())
        stream.write(msgspec.json.format(msgspec.json.encode(invitation), indent=2) + b"\n")
    listen = settings.embedder_listen
    host, _, port = (listen or DEFAULT_LISTEN).removeprefix("tcp://").rpartition(":")
    reached = socket.gethostname() if host in EVERYWHERE else host
    line = f"remembrancer admin embedder --connect tcp://{reached}:{port} --key-file {file.name}"
    secret = f"{file} is the key of {name}: anyone who has it can receive texts of this memory."
    lines = [f"{secret} Copy it there (scp), and run", f"  {line}"]
    if listen is None:
        setting = f"REMEMBRANCER_EMBEDDER_LISTEN={DEFAULT_LISTEN}"
        lines.append(f"The store does not listen for other hosts yet; set {setting} here, and run 'remembrancer down'.")
    return Report({"name": name, "file": str(file), "line": line, "listens": listen}, lines)


def _work(endpoint: str, invitation: Invitation, threads: int | None) -> int:
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # or the tokenizer ignores the number of threads
    logging.basicConfig(level=logging.ERROR, format="%(levelname)s %(message)s", stream=sys.stderr)
    choice = invitation.choice
    settings = msgspec.structs.replace(load_settings(os.environ), engine=choice.engine, model=choice.model)
    anyio.run(_work_by, endpoint, invitation, settings, threads or threads_per_worker(1))
    return exit_codes.OK


async def _work_by(endpoint: str, invitation: Invitation, settings: Settings, threads: int) -> None:
    from remembrancer.actors.embedder.actor import RemoteEmbedderActor

    home = str(paths_here().home)
    spec = LaunchSpec("embedder", invitation.name, new_ulid(), home, settings, threads)
    worker = RemoteEmbedderActor(spec, endpoint, invitation.keys, _say)
    _say(f"{settings.model} by {settings.engine}, {threads} threads, for {endpoint}")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_stop_on_signal, worker)
        await tasks.start(lambda *, task_status: worker.run(task_status=task_status))
        await asyncio.wait([worker.ended])
        with anyio.move_on_after(LEAVE_S, shield=True):
            await worker.drain("this embedder ends")
        tasks.cancel_scope.cancel()
    worker.ended.result()


def _say(text: str) -> None:
    print(f"{datetime.now():%H:%M:%S} {text}", flush=True)


async def _stop_on_signal(worker: RemoteEmbedderActor) -> None:
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async for _ in signals:
            worker.stop()
