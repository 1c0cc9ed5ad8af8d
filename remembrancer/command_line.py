"""The command `remembrancer`: which command it names, its help, and the one place where an error becomes a line on
stderr. For `mcp` and `hook` it imports those alone: a session waits for them, and often."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

SHELL = "remembrancer.commands.shell:commands"
COMMANDS = {
    "search": (SHELL, "find memories by meaning and words: search which database do we use"),
    "list": (SHELL, "list memories, the newest or the most important first"),
    "show": (SHELL, "show a memory whole"),
    "add": (SHELL, "remember something: add We deploy on Tuesdays"),
    "edit": (SHELL, "change a memory, its text in your editor"),
    "tag": (SHELL, "give a memory tags, and take tags away"),
    "promote": (SHELL, "give a memory to its project, or to the user"),
    "review": (SHELL, "what is proposed to go from a project to the user: accept or refuse it"),
    "forget": (SHELL, "hide a memory from search"),
    "restore": (
        "remembrancer.commands.shell:restore",
        "undo a forgetting or a change (restore ID), or put back a backup (restore FILE)",
    ),
    "log": (SHELL, "what was stored, changed and closed on a day"),
    "history": (SHELL, "what was done to a memory, and when"),
    "graph": (SHELL, "how an entity is related with others"),
    "stale": ("remembrancer.commands.stale", "the memories about code that has changed, moved or gone since"),
    "erase": (SHELL, "delete memories for good, with their history"),
    "shown": ("remembrancer.commands.shown", "which memories were shown to whom, when, and for which question"),
    "browse": ("remembrancer.commands.browse", "open the memory browser: see, correct and undo what is remembered"),
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
    "embedder": (
        "remembrancer.commands.embedder",
        "make vectors for the memory of another host, or invite one to do so",
    ),
    "model": ("remembrancer.commands.model", "which model makes the vectors, and a change of it: model use ENGINE"),
    "config": ("remembrancer.commands.config", "the settings that count, and where each comes from"),
    "setup": ("remembrancer.commands.setup", "have an assistant's client start it: setup claude-code"),
    "claude-plugin-path": (
        "remembrancer.commands.setup:print_plugin_path",
        "print the folder of the plugin for Claude Code, for claude plugin marketplace add",
    ),
    "doctor": ("remembrancer.commands.doctor", "look for what is wrong, and say what to do"),
    "token": ("remembrancer.commands.token", "who may come over HTTP: token create NAME --project DIR"),
    "share": ("remembrancer.commands.share", "one memory on several machines: server-config, start, invite, status"),
    "join": ("remembrancer.commands.share:join", "take part in what another machine shares: join FILE"),
    "projects": (
        "remembrancer.commands.projects",
        "which projects are remembered; that one lies elsewhere now: projects move OLD NEW",
    ),
    "backup": ("remembrancer.commands.backup", "write everything that cannot be made again into one file"),
    "export": ("remembrancer.commands.export", "write memories as JSON Lines"),
    "import": ("remembrancer.commands.import_", "take in what an export has written"),
    "hook": ("remembrancer.commands.hook", "record an event of an assistant's session: what its client's hooks run"),
    "maintain": ("remembrancer.commands.maintain", "archive, merge and sweep out what has become of no use"),
    "completion": ("remembrancer.command_line:completion", "print what completes these commands in bash, zsh or fish"),
    "help": ("remembrancer.command_line:help_", "what there is, or how a command is used: help search"),
}
"""Name: the module whose `main(argv)`, or the function (or the table of functions) named behind it, returns the exit
status; and a line of help."""
MEANT = {
    **{"recall": "search", "find": "search", "query": "search", "ls": "list", "get": "show", "cat": "show"},
    **{"remember": "add", "store": "add", "update": "edit", "rm": "forget", "remove": "forget"},
    "delete": "forget, or erase for good",
    **{"undo": "restore", "stop": "down", "start": "up", "settings": "config", "install": "setup"},
}
"""The words for commands in other programs, and our tools."""


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
        entry = getattr(importlib.import_module(module), function or "main")
        return int((entry[name] if isinstance(entry, dict) else entry)(arguments[1:]))
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

    near = difflib.get_close_matches(name, [*commands, *MEANT], n=1, cutoff=0.6)
    listed = f"known are {', '.join(commands)}"
    hint = f"did you mean {MEANT.get(near[0], near[0])}? ({listed})" if near else listed
    return f"unknown command {name[:60]!a}: {hint}"


def help_(argv: list[str]) -> int:
    """Say what there is, or how a command is used; returns the exit status."""
    return run(COMMANDS, [*argv[:1], "--help"])


def completion(argv: list[str]) -> int:
    """Print what completes the commands in a shell; returns the exit status."""
    import argparse

    parser = argparse.ArgumentParser(
        prog="remembrancer completion",
        description='Print what completes these commands. bash: eval "$(remembrancer completion bash)" in ~/.bashrc; '
        "zsh: the same in ~/.zshrc, after compinit; fish: remembrancer completion fish | source, in config.fish.",
    )
    parser.add_argument("shell", choices=("bash", "zsh", "fish"))
    shell = parser.parse_args(argv).shell
    import shtab

    from remembrancer.commands.shell import add_arguments, commands

    whole = argparse.ArgumentParser(prog="remembrancer")
    known = whole.add_subparsers()
    for name, (_, text) in COMMANDS.items():
        command = known.add_parser(name, help=text)
        if name in commands:
            add_arguments(name, command)
    print(shtab.complete(whole, shell), end="")
    return 0


def _parser(commands: Mapping[str, tuple[str, str]], statuses: Mapping[int, str]) -> argparse.ArgumentParser:
    import argparse
    import textwrap

    from remembrancer import __version__

    width = max(map(len, commands))
    rows = [(name, text) for name, (_, text) in commands.items()]

    def table(rows: list[tuple[str, str]]) -> str:
        below = " " * (width + 4)
        return "\n".join(textwrap.fill(f"  {name:{width}}  {text}", 80, subsequent_indent=below) for name, text in rows)

    listing, meanings = table(rows), table([(str(code), text) for code, text in statuses.items()])
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
