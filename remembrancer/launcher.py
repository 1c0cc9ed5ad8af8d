"""The command `remembrancer`: which command it names, its help, and the one place where an error becomes a line on
stderr. For `mcp` and `hook` it imports those alone: a session waits for them, and often."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

COMMANDS = {
    "mcp": (
        "remembrancer.actors.bridge.bridge",
        "speak MCP on standard input and output: what a client's setup starts",
    ),
    "up": (
        "remembrancer.commands.runtime_commands:up",
        "run the runtime here until Ctrl-C (sessions start one by themselves)",
    ),
    "down": ("remembrancer.commands.runtime_commands:down", "stop the runtime, in order"),
    "status": ("remembrancer.commands.status", "how each process, the write queue and the embedding are"),
    "queue": ("remembrancer.commands.queue", "the writes that wait or were refused: list, retry, export, drop"),
    "scale": ("remembrancer.commands.runtime_commands:scale", "run another number of embedders: scale embedder=2"),
    "config": ("remembrancer.commands.config", "the settings that count, and where each comes from"),
    "setup": ("remembrancer.commands.setup", "have an assistant's client start it: setup claude-code"),
    "doctor": ("remembrancer.commands.doctor", "look for what is wrong, and say what to do"),
    "projects": ("remembrancer.commands.projects", "which projects are remembered, and when each was last used"),
    "backup": ("remembrancer.commands.backup", "write everything that cannot be made again into one file"),
    "restore": (
        "remembrancer.commands.backup:restore_main",
        "put a backup in the place of what is there, which is kept",
    ),
    "export": ("remembrancer.commands.export", "write memories as JSON Lines"),
    "import": ("remembrancer.commands.import_", "take in what an export has written"),
    "hook": ("remembrancer.commands.hook", "record an event of an assistant's session: what its client's hooks run"),
    "maintain": ("remembrancer.commands.maintain", "archive, merge and sweep out what has become of no use"),
    "demo": ("remembrancer.commands.demo", "show what it does, on a memory of its own"),
}
"""Name: the module whose `main(argv)`, or the function named behind it, returns the exit status; and a line of help."""


def main(argv: list[str] | None = None) -> int:
    """Run the command that `argv` (default: the arguments of this process) names; returns its exit status."""
    arguments = sys.argv[1:] if argv is None else argv
    if arguments[:1] == ["mcp"]:
        from remembrancer.actors.bridge import bridge

        return bridge.main(arguments[1:])
    if arguments[:1] == ["hook"]:
        from remembrancer.commands import hook

        return hook.main(arguments[1:])
    return run(COMMANDS, arguments)


def run(commands: Mapping[str, tuple[str, str]], arguments: list[str]) -> int:
    """Run the command that the arguments name; returns its exit status. `commands`: see `COMMANDS`."""
    import importlib

    from remembrancer.commands import exit_codes

    if arguments[:1] != ["up"]:  # which a session waits for; it prints through a `Terminal` alone
        _clean_output()
    parser = _parser(commands, exit_codes.MEANINGS)
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
        _clean_output()
        print(f"remembrancer {name}: {error.message}", file=sys.stderr)
        return exit_codes.OF_ERRORS[error.code]


def _clean_output() -> None:
    from remembrancer.commands.terminal import clean_output

    clean_output()


def _unknown(name: str, commands: list[str]) -> str:
    import difflib  # for who has mistyped alone

    near = difflib.get_close_matches(name, commands, n=1, cutoff=0.5)
    listed = f"known are {', '.join(commands)}"
    return f"unknown command {name[:60]!a}: {f'did you mean {near[0]}? ({listed})' if near else listed}"


def _parser(commands: Mapping[str, tuple[str, str]], statuses: Mapping[int, str]) -> argparse.ArgumentParser:
    import argparse

    from remembrancer import __version__

    width = max(map(len, commands))
    listing = "\n".join(f"  {name:{width}}  {text}" for name, (_, text) in commands.items())
    meanings = "\n".join(f"  {code:<{width}}  {text}" for code, text in statuses.items())
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
