"""`remembrancer up`, `down` and `admin scale`: start, stop and resize the runtime."""

import contextlib
import errno
import functools
import json
import os
import socket
import sys
import time
from collections.abc import Callable
from typing import Final

import click

from remembrancer import __version__
from remembrancer.actors.launcher.runtime import Runtime
from remembrancer.commands import exit_codes
from remembrancer.commands.report import Report, argument, command, flag, option
from remembrancer.commands.runtime_client import ask, end_runtime, is_up, nothing_runs, paths_here
from remembrancer.config.home import Home, locate
from remembrancer.config.named_home import HOME_VARIABLES
from remembrancer.config.reading import load_configuration
from remembrancer.config.settings import MOST_EMBEDDERS
from remembrancer.config.tokens import LOOPBACK, Tokens
from remembrancer.memory.text import count
from remembrancer.protocol.control import AskScale
from remembrancer.protocol.errors import InvalidInput
from remembrancer.protocol.paths import RuntimePaths

STOP_LIMIT_S: Final = 15.0
"""The time limit for stopping, which takes 9 s if every process has to be killed."""


@command(
    option(
        "--http",
        is_flag=False,
        flag_value="",
        metavar="[HOST:]PORT",
        help="Serve MCP over HTTP as well (default: 127.0.0.1:8080).",
    ),
    flag("--no-token", help="For this run, let every program and user on this machine use HTTP."),
    flag("--for-sessions", help="Set when a session starts the runtime.", hidden=True),
    flag("--secrets-on-stdin", help="Set when a session starts the runtime.", hidden=True),
)
def up(http: str | None, no_token: bool, for_sessions: bool, secrets_on_stdin: bool) -> int:
    """Run the runtime in the foreground until Ctrl-C. New sessions share it."""
    when_started = _detach() if for_sessions else None
    home = locate(os.environ)
    address = None if http is None else _address(http)
    if no_token and address is None and not load_configuration(os.environ).settings.http_port:
        raise InvalidInput("--no-token is for HTTP, which is not served here; add --http")
    if address is not None:
        _prepare_tokens(home, address[0], os.environ.get("FLOOD_MEMORY_AUTH_TOKEN"), is_none_needed=no_token)
        if not is_up(RuntimePaths(home.directory)):
            _check_free(*address)
    names = ("REMEMBRANCER_HTTP_HOST", "REMEMBRANCER_HTTP_PORT")
    given = dict(zip(names, map(str, address or ()), strict=False))
    runtime = Runtime(
        RuntimePaths(home.directory),
        lambda: load_configuration({**os.environ, **given}),
        environ=os.environ,
        secrets=json.load(sys.stdin.buffer) if secrets_on_stdin else os.environ,
        for_sessions=for_sessions,
        in_memory=home.in_memory,
        no_token=no_token,
        when_started=when_started or functools.partial(_say_how_to_connect, home, address),
    )
    reason = runtime.run()
    if not for_sessions:
        with contextlib.suppress(OSError):  # the closed terminal may have been the reason
            print(f"Stopped ({reason}).", flush=True)
    return exit_codes.OK


def _detach() -> Callable[[], None]:
    """Continue in a detached process, so that the runtime outlives the process tree of the first session. The original
    process waits until the returned function is called, or exits with the status of the new process."""
    reader, writer = os.pipe()
    child = os.fork()
    if child:
        os.close(writer)
        if os.read(reader, 1):
            os._exit(exit_codes.OK)
        os._exit(max(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), exit_codes.OK))  # if killed, it is retried
    os.close(reader)
    os.setsid()

    def started() -> None:
        os.write(writer, b"+")
        os.close(writer)

    return started


def _address(text: str) -> tuple[str, int]:
    text = text or f"{os.environ.get('FLOOD_MEMORY_HOST', '')}:{os.environ.get('FLOOD_MEMORY_PORT', '8080')}"
    host, _, port = text.rpartition(":")
    if not port.isdigit() or not 0 < int(port) < 65_536:
        raise InvalidInput(f"--http needs [HOST:]PORT with a port from 1 to 65535, not {text[:60]!r}")
    return host.strip("[]") or "127.0.0.1", int(port)


def _check_free(host: str, port: int) -> None:
    """Raises `InvalidInput` if the runtime cannot listen there, since it would start without HTTP."""
    try:
        socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET).close()
    except OSError as error:
        reason = "the port is in use" if error.errno == errno.EADDRINUSE else error.strerror or error
        raise InvalidInput(f"HTTP cannot be served at {host}, port {port}: {reason}. Choose another --http") from error


def _prepare_tokens(home: Home, host: str, token: str | None, *, is_none_needed: bool) -> None:
    """Raises `InvalidInput` if nobody could connect, or if anybody could."""
    tokens = Tokens(home.directory)
    if token:
        tokens.create("FLOOD_MEMORY_AUTH_TOKEN", (str(home.directory),), time.time(), token=token, replace=True)
    if is_none_needed and host not in LOOPBACK:
        raise InvalidInput(f"--no-token is only allowed with a loopback address (127.0.0.1), not with {host}")
    if is_none_needed:
        print("Every program and user on this machine can use HTTP (--no-token).", file=sys.stderr)
    elif not tokens.all():
        raise InvalidInput(
            "HTTP needs a token, and there is none. Run 'remembrancer token create NAME' to make one "
            "(or add --no-token, which lets every program on this machine use HTTP)"
        )


def _say_how_to_connect(home: Home, address: tuple[str, int] | None) -> None:
    is_named = home.named_by in HOME_VARIABLES
    setting = f"-e REMEMBRANCER_HOME={home.on_disk} " if is_named else ""
    where = "" if address is None else f"{address[0]}:{address[1]}"
    http = f"HTTP at {where}: /mcp for clients, /browser for you (sign in with 'remembrancer ui').\n" if where else ""
    with contextlib.suppress(OSError):  # a closed terminal must not stop the runtime
        print(
            f"Remembrancer {__version__} is running, home {home.on_disk}\n{http}"
            f"Connect a client, for example: claude mcp add remembrancer {setting}-- remembrancer mcp\n"
            "'remembrancer status' shows its state; Ctrl-C stops it.",
            flush=True,
        )


@command()
def down() -> Report:
    """Stop the runtime of this home cleanly. Acknowledged writes are kept."""
    from remembrancer.commands.terminal import notice_when_slow  # takes 50 ms, and `up` does not need it

    paths = paths_here()
    if not is_up(paths):
        return Report({"stopped": False}, (), exit_codes.NOT_RUNNING, (nothing_runs(paths.home),))
    began = time.monotonic()
    with notice_when_slow("Stopping the memory"):
        is_down = end_runtime(paths, STOP_LIMIT_S)
    if not is_down:
        why = (
            f"remembrancer down: the runtime has not ended after {STOP_LIMIT_S:.0f} s; look at "
            f"{paths.logs / 'launcher.log'}, or kill the process that holds {paths.runtime_lock}; the others then end "
            "by themselves"
        )
        return Report({"stopped": False}, (), exit_codes.NO_ANSWER, (why,))
    took_s = time.monotonic() - began
    line = f"Stopped the runtime of {paths.home} in {took_s:.1f} s."
    return Report({"stopped": True, "took_s": round(took_s, 3)}, line)


def _wanted(text: str) -> int:
    name, _, number = text.partition("=")
    if name != "embedder" or not number.isdecimal() or int(number) > MOST_EMBEDDERS:
        raise click.BadParameter(f"write embedder=N with N from 0 to {MOST_EMBEDDERS}, such as embedder=2")
    return int(number)


@command(argument("number", type=_wanted, metavar="embedder=N", help=f"N workers, 0 to {MOST_EMBEDDERS}."))
def scale(number: int) -> Report:
    """Change the number of embedding workers of the running runtime, until it restarts: scale embedder=2."""
    paths = paths_here()
    if not is_up(paths):
        return Report({"embedders": None}, (), exit_codes.NOT_RUNNING, (nothing_runs(paths.home),))
    embedders = ask(paths, AskScale(number))
    line = f"Scaling to {count(embedders, 'embedder')}; 'remembrancer status' shows when they are ready."
    return Report({"embedders": embedders}, line)
