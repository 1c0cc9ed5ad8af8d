"""The command `remembrancer`. For `mcp` and `hook` it imports these alone: a session waits for them, and often."""

from __future__ import annotations

import sys

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
    from remembrancer.commands import command_line

    return command_line.run(COMMANDS, arguments)
