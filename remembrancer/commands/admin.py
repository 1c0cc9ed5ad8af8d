"""`remembrancer admin`: what is rarely wanted by hand."""

from __future__ import annotations

import click

from remembrancer.commands.embedder import embedder
from remembrancer.commands.maintain import maintain
from remembrancer.commands.projects import projects
from remembrancer.commands.queue import queue
from remembrancer.commands.report import Group, Report, argument, command
from remembrancer.commands.runtime_commands import scale


@command(argument("shell", type=click.Choice(("bash", "zsh", "fish"))))
def completion(shell: str) -> Report:
    """Print what completes these commands. bash: eval "$(remembrancer admin completion bash)" in ~/.bashrc; zsh: the
    same in ~/.zshrc, after compinit; fish: remembrancer admin completion fish | source, in config.fish."""
    from click.shell_completion import get_completion_class

    from remembrancer.command_line import group

    made = get_completion_class(shell)
    assert made is not None
    script = made(group(), {}, "remembrancer", "_REMEMBRANCER_COMPLETE").source()
    return Report({"script": script}, script)


hook = click.Command(
    "hook",
    help="Record an event of an assistant's session: what its client's hooks run (see 'remembrancer hook --help').",
)

COMMANDS = {
    "admin": Group(
        "admin", *(queue, maintain, scale, embedder, projects, hook, completion), help="Rarely wanted by hand."
    )
}
