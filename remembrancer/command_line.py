"""The `remembrancer` command: its subcommands in groups, and their former names. `mcp` and `hook` import only the
modules they need, since sessions start them often and wait for them."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import click

MEMORIES, SETUP, MORE = "memories", "setup", "more"
COMMANDS = {
    "search": (MEMORIES, "finding", "find memories by meaning and words: search which database do we use"),
    "list": (MEMORIES, "finding", "list memories; --open, --important, --stale, --review"),
    "show": (MEMORIES, "finding", "show a memory in full; --history, --shown, --graph ENTITY"),
    "log": (MEMORIES, "finding", "list the changes of a day"),
    "add": (MEMORIES, "changing", "remember something: add We deploy on Tuesdays"),
    "edit": (MEMORIES, "changing", 'change a memory: edit ID "new text"; --done, --to user'),
    "tag": (MEMORIES, "changing", "add or remove tags"),
    "forget": (MEMORIES, "changing", "hide a memory from search, or delete it (--for-good)"),
    "restore": (MEMORIES, "changing", "bring back a forgotten memory, or an earlier version"),
    "undo": (MEMORIES, "changing", "undo the last change, a memory's last change, or a maintenance run"),
    "ui": (MEMORIES, "token", "open the memory browser"),
    "setup": (SETUP, "setup", "connect an assistant: setup claude-code"),
    "status": (SETUP, "status", "show the state of the processes, the write queue and the embedding"),
    "doctor": (SETUP, "doctor", "look for problems and suggest fixes"),
    "config": (SETUP, "config", "show the settings and where each comes from"),
    "down": (SETUP, "runtime_commands", "stop the runtime cleanly"),
    "share": (MORE, "share", "share memories between machines"),
    "backup": (MORE, "backup", "back up and restore; export and import"),
    "token": (MORE, "token", "manage access over HTTP"),
    "model": (MORE, "model", "show or change the embedding model"),
    "up": (MORE, "runtime_commands", "run the runtime here until Ctrl-C (sessions start one automatically)"),
    "mcp": (MORE, "", "serve MCP on standard input and output (clients run this)"),
    "admin": (MORE, "", "queue, maintain, scale, embedder, projects, hook, completion"),
}
"""Maps each command to its section in the help, its module in `remembrancer.commands`, and its one-line help."""
ADMIN = {
    "queue": ("commands", "status", "list waiting and rejected writes"),
    "maintain": ("commands", "maintain", "run maintenance now"),
    "scale": ("commands", "runtime_commands", "change the number of embedders: scale embedder=2"),
    "embedder": ("commands", "embedder", "make vectors for another host, or invite a host to do so"),
    "projects": ("commands", "projects", "list the projects; move OLD NEW"),
    "hook": ("commands", "", "record an event of a session (clients' hooks run this)"),
    "completion": ("commands", "report", "print the completion script for bash, zsh or fish"),
}
"""The `admin` commands, in the same format."""
FORMER = {
    "history": "show --history",
    "shown": "show --shown",
    "graph": "show --graph",
    "stale": "list --stale",
    "review": "list --review",
    "promote": "edit --to",
    "erase": "forget --for-good",
    "browse": "ui",
    "export": "backup export",
    "import": "backup import",
    "join": "share join",
    "claude-plugin-path": "setup --plugin-path",
    **{name: f"admin {name}" for name in ("queue", "maintain", "scale", "embedder", "projects", "completion")},
}
"""Maps the command names of 0.2.0, which are accepted for one more release, to their replacements."""


def main(argv: list[str] | None = None) -> int:
    """Run the command in `argv` (default: `sys.argv[1:]`) and return its exit status."""
    arguments = sys.argv[1:] if argv is None else argv
    if arguments[:2] == ["admin", "hook"]:
        arguments = arguments[1:]
    match arguments:
        case ["mcp", *rest]:
            from remembrancer.actors.bridge import bridge

            return bridge.main(rest)
        case ["hook", *rest]:
            from remembrancer.commands import hook

            return hook.main(rest)
        case ["up", "--for-sessions", *rest]:
            from remembrancer.commands import report
            from remembrancer.commands.runtime_commands import up

            return report.run(up, ["--for-sessions", *rest], "remembrancer up")
    from remembrancer.commands import report

    if arguments[:1] != ["up"]:  # clients may be waiting
        from remembrancer.commands.terminal import clean_output

        clean_output()
    if arguments[:1] == ["help"]:
        arguments = [*arguments[1:2], "--help"]
    is_backup = arguments[:1] == ["restore"] and any(map(os.path.isfile, arguments[1:]))
    if is_backup or (arguments[:1] and arguments[0] in FORMER):
        arguments = _renamed(arguments)
    return report.run(group(), arguments)


def group() -> click.Group:
    """Define the command group. A command's module is imported only when the command runs or its help is requested."""
    import click

    from remembrancer import __version__
    from remembrancer.commands import exit_codes
    from remembrancer.commands.report import LazyGroup

    class Commands(LazyGroup):
        def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
            with formatter.section("Exit status"):
                formatter.write_dl([(str(code), text) for code, text in exit_codes.MEANINGS.items()])

    commands = Commands(
        "remembrancer",
        COMMANDS,
        help="Long-term memory for AI assistants, served over MCP from this machine. Each command has its own --help.",
        no_args_is_help=True,
    )
    commands.add_command(LazyGroup("admin", ADMIN, help="Commands that are rarely needed."))
    return click.version_option(__version__, message="remembrancer %(version)s", help="Print the version.")(commands)


def _renamed(arguments: list[str]) -> list[str]:
    """Replace a former command name, and print a note about it. `restore` with a file is now `backup restore`."""
    former, rest = arguments[0], arguments[1:]
    present = FORMER.get(former, "backup restore")
    if former == "promote":
        present = "edit --to user" if "--to" not in rest else "edit"
    print(f"'remembrancer {former}' is now called 'remembrancer {present}'", file=sys.stderr)
    return [*present.split(), *rest]
