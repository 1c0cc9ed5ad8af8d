"""The command line: which command it names, its help, and the one place where an error becomes a line on stderr."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Mapping

from remembrancer import __version__
from remembrancer.commands import exit_codes


def run(commands: Mapping[str, tuple[str, str]], arguments: list[str]) -> int:
    """Run the command that the arguments name; returns its exit status. `commands`: see `COMMANDS`."""
    parser = _parser(commands)
    if arguments and not arguments[0].startswith("-") and arguments[0] not in commands:
        parser.error(_unknown(arguments[0], list(commands)))
    if not arguments:
        parser.print_help(sys.stderr)
        return exit_codes.USAGE
    name = parser.parse_args(arguments[:1]).command  # what follows is for the command's own parser
    try:
        module, _, function = commands[name][0].partition(":")
        return int(getattr(importlib.import_module(module), function or "main")(arguments[1:]))
    except KeyboardInterrupt:
        print(f"remembrancer {name}: interrupted", file=sys.stderr)
        return exit_codes.INTERRUPTED
    except Exception as error:
        from remembrancer.protocol.errors import RemembrancerError  # costs 20 ms, which a client would wait for

        if not isinstance(error, RemembrancerError) or error.code not in exit_codes.OF_ERRORS:
            raise  # a fault of ours: its traceback is what helps
        print(f"remembrancer {name}: {error.message}", file=sys.stderr)
        return exit_codes.OF_ERRORS[error.code]


def _unknown(name: str, commands: list[str]) -> str:
    import difflib  # for who has mistyped alone

    near = difflib.get_close_matches(name, commands, n=1, cutoff=0.5)
    listed = f"known are {', '.join(commands)}"
    return f"unknown command {name[:60]!a}: {f'did you mean {near[0]}? ({listed})' if near else listed}"


def _parser(commands: Mapping[str, tuple[str, str]]) -> argparse.ArgumentParser:
    width = max(map(len, commands))
    listing = "\n".join(f"  {name:{width}}  {text}" for name, (_, text) in commands.items())
    meanings = "\n".join(f"  {code:<{width}}  {text}" for code, text in exit_codes.MEANINGS.items())
    parser = argparse.ArgumentParser(
        prog="remembrancer",
        usage="remembrancer [--version] [--help] <command> [<argument> ...]",
        description="Long-term memory for AI assistants, served over MCP from this machine.",
        epilog=f"commands (each has its own --help):\n{listing}\n\nexit status:\n{meanings}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"remembrancer {__version__}")
    parser.add_argument("command", choices=tuple(commands), metavar="command", help=argparse.SUPPRESS)
    return parser
