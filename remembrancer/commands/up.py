"""`remembrancer up`: the runtime in the foreground, or, started by a session, without anybody who watches."""

from __future__ import annotations

import argparse
import contextlib
import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from remembrancer.actors.launcher.children import Command, actor_command
from remembrancer.actors.launcher.runtime import Runtime
from remembrancer.commands import exit_codes
from remembrancer.config.home import HOME_VARIABLES, Home, locate
from remembrancer.protocol.paths import RuntimePaths

if TYPE_CHECKING:
    from remembrancer.actors.launcher.lifecycle import Changed
    from remembrancer.config.reading import Configuration


def main(argv: list[str], command: Command = actor_command) -> int:
    """Run the runtime until it is told to stop. Errors are the command line's to report."""
    arguments = _parser().parse_args(argv)
    home = locate(os.environ)
    paths = RuntimePaths(home.directory)
    runtime = Runtime(
        paths,
        lambda: _load_configuration(arguments.embedders),
        environ=os.environ,
        command=command,
        for_sessions=arguments.for_sessions,
        in_memory=home.in_memory,
        observe=None if arguments.for_sessions else lambda: _watch(home),
    )
    reason = runtime.run()
    if not arguments.for_sessions:
        with contextlib.suppress(OSError):  # the terminal may have been closed, which was the reason
            print(f"Stopped ({reason}).", flush=True)
    return exit_codes.OK


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="remembrancer up",
        description="Run the runtime in the foreground until Ctrl-C. Sessions that start share it.",
        epilog="exit status: 0 stopped in order, 5 up already, 6 the home cannot be used, 7 a setting is wrong",
    )
    parser.add_argument("--embedders", type=int, metavar="N", help="embedding workers at the start (0 to 64)")
    parser.add_argument("--for-sessions", action="store_true", help=argparse.SUPPRESS)
    return parser


def _load_configuration(embedders: int | None) -> Configuration:
    import msgspec

    from remembrancer.actors.launcher.supervision import check_embedders
    from remembrancer.config.reading import load_configuration

    configuration = load_configuration(os.environ)
    if embedders is None:
        return configuration
    settings = msgspec.structs.replace(configuration.settings, embedders=check_embedders(embedders))
    return configuration._replace(settings=settings)


def _watch(home: Home) -> Callable[[Changed], None]:
    from remembrancer.commands.progress import Progress

    return Progress(home.on_disk, named=home.named_by in HOME_VARIABLES).show
