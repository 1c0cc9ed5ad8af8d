"""`remembrancer embedder`: make vectors here for the memory of another host; and there, invite those that may."""

from __future__ import annotations

import argparse
import asyncio
import json
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
import msgspec

from remembrancer.actors.shell import LaunchSpec
from remembrancer.commands import exit_codes
from remembrancer.commands.runtime_client import paths_here
from remembrancer.config.reading import load_settings
from remembrancer.config.settings import Settings, model_choices, threads_per_worker
from remembrancer.config.worker_keys import Invitation, WorkerKeys
from remembrancer.memory.limits import MAX_NAME
from remembrancer.memory.text import clean_name
from remembrancer.protocol.errors import FileUnusable, InvalidInput
from remembrancer.protocol.ids import new_ulid
from remembrancer.protocol.work import ModelChoice

if TYPE_CHECKING:
    from remembrancer.actors.embedder.remote import RemoteEmbedder

DEFAULT_LISTEN: Final = "tcp://0.0.0.0:7411"
"""An example for a person; nothing listens unless it is told to."""
EVERYWHERE: Final = frozenset({"0.0.0.0", "*", "[::]"})  # noqa: S104 - to know such an address is not to listen there
LEAVE_S: Final = 5.0
"""The time that what is under way may take when this host's worker is told to stop."""


def main(argv: list[str]) -> int:
    """Work for another host's memory, or make, list and revoke the keys of those that work for this one."""
    parser = argparse.ArgumentParser(
        prog="remembrancer embedder",
        description="Make vectors here for the memory of another host, over TCP under CURVE; or say which hosts may do "
        "so for the memory here. What is embedded is sent to them: invite none that may not read it.",
        epilog="exit status: 0 done, or stopped in order, 2 a name is taken or unknown, 8 the store refuses this "
        "embedder, 10 the key file cannot be used",
    )
    does = parser.add_mutually_exclusive_group(required=True)
    does.add_argument("--connect", metavar="tcp://HOST:PORT", help="work for the memory of that host, until Ctrl-C")
    does.add_argument("--invite", metavar="FILE", help="let one more host work for this memory: write its key file")
    does.add_argument("--list", action="store_true", help="which hosts may work for this memory")
    does.add_argument("--revoke", metavar="NAME", help="let a host in no more")
    parser.add_argument("--key-file", metavar="FILE", help="with --connect: the file that --invite has made there")
    parser.add_argument("--threads", type=int, metavar="N", help="with --connect: threads (default: one a core)")
    parser.add_argument("--name", metavar="NAME", help="with --invite: what you call the host (default: the file's)")
    parser.add_argument("--json", action="store_true", help="for programs: one JSON object")
    asked = parser.parse_args(argv)
    if asked.connect is not None:
        if asked.key_file is None:
            parser.error("--connect needs --key-file FILE, which 'remembrancer embedder --invite FILE' makes there")
        return _work(_endpoint(asked.connect), Invitation.read(Path(asked.key_file)), asked.threads)
    keys = WorkerKeys(paths_here().keys)
    if asked.invite is not None:
        _invite(keys, Path(asked.invite), asked.name, as_json=asked.json)
    elif asked.revoke is not None:
        keys.revoke(asked.revoke)
        done = f"Revoked {asked.revoke}: it is given no more texts."
        print(json.dumps({"revoked": asked.revoke}) if asked.json else done)
    else:
        _list(keys, as_json=asked.json)
    return exit_codes.OK


def _endpoint(text: str) -> str:
    """The address to connect to. Raises `InvalidInput`."""
    try:
        msgspec.convert({"embedder_listen": text}, Settings)
    except msgspec.ValidationError:
        raise InvalidInput(f"--connect wants tcp://HOST:PORT, not {text[:80]!r}", field="connect") from None
    return text


def _invite(keys: WorkerKeys, file: Path, name: str | None, *, as_json: bool) -> None:
    settings = load_settings(os.environ)
    name = clean_name(name or file.stem, field="NAME", longest=MAX_NAME)
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise FileUnusable(f"{file} cannot be made: {error.strerror}") from error
    with os.fdopen(descriptor, "wb") as stream:
        try:
            invitation = keys.invite(name, model_choices(settings)[0], time.time())
        except BaseException:
            file.unlink()
            raise
        stream.write(msgspec.json.format(msgspec.json.encode(invitation), indent=2) + b"\n")
    listen = settings.embedder_listen
    host, _, port = (listen or DEFAULT_LISTEN).removeprefix("tcp://").rpartition(":")
    reached = socket.gethostname() if host in EVERYWHERE else host
    line = f"remembrancer embedder --connect tcp://{reached}:{port} --key-file {file.name}"
    if as_json:
        print(json.dumps({"name": name, "file": str(file), "line": line, "listens": listen}))
        return
    print(f"{file} is the key of {name}: whoever has it is sent texts of this memory. Move it there (scp), and run")
    print(f"  {line}")
    if listen is None:
        print(
            f"The store does not listen yet: set REMEMBRANCER_EMBEDDER_LISTEN={DEFAULT_LISTEN} here, run "
            "'remembrancer down', and the next session starts it anew."
        )


def _list(keys: WorkerKeys, *, as_json: bool) -> None:
    members = keys.all()
    if as_json:
        print(json.dumps({"embedders": [{"name": each.name, "created_at": each.created_at} for each in members]}))
        return
    if not members:
        print("No other host may work for this memory: 'remembrancer embedder --invite FILE' lets one in.")
    for each in members:
        print(f"{each.name}: since {datetime.fromtimestamp(each.created_at):%Y-%m-%d %H:%M}")


def _work(endpoint: str, invitation: Invitation, threads: int | None) -> int:
    """Work until told to stop. The model is the one of the key file, then the one that the store asks for."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # the worker's threads are counted
    logging.basicConfig(level=logging.ERROR, format="%(levelname)s %(message)s", stream=sys.stderr)
    settings = load_settings(os.environ)
    choice: ModelChoice | None = invitation.choice
    while choice is not None:
        wanted = msgspec.structs.replace(settings, engine=choice.engine, model=choice.model)
        choice = anyio.run(_work_by, endpoint, invitation, wanted, threads or threads_per_worker(settings, 1))
    return exit_codes.OK


async def _work_by(endpoint: str, invitation: Invitation, settings: Settings, threads: int) -> ModelChoice | None:
    """Work with one model; the next one, or None after a signal. Raises `WorkerRefused`."""
    from remembrancer.actors.embedder.remote import RemoteEmbedder

    home = str(paths_here().home)
    spec = LaunchSpec("embedder", invitation.name, new_ulid(), home, settings, threads)
    worker = RemoteEmbedder(spec, endpoint, invitation.keys, _say)
    _say(f"{settings.model} by {settings.engine}, {threads} threads, for {endpoint}")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_stop_on_signal, worker)
        await tasks.start(lambda *, task_status: worker.run(task_status=task_status))
        await asyncio.wait([worker.ended])
        with anyio.move_on_after(LEAVE_S, shield=True):
            await worker.drain("this embedder ends")
        tasks.cancel_scope.cancel()
    return worker.ended.result()


def _say(text: str) -> None:
    print(f"{datetime.now():%H:%M:%S} {text}", flush=True)


async def _stop_on_signal(worker: RemoteEmbedder) -> None:
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async for _ in signals:
            worker.stop()
