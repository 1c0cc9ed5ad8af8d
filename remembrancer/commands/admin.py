"""`remembrancer admin`: rarely used commands, and shell completion."""

import click

from remembrancer.commands.report import LazyGroup, Report, argument, command


@command(argument("shell", type=click.Choice(("bash", "zsh", "fish"))))
def completion(shell: str) -> Report:
    """Print the shell's completion script. bash: eval "$(remembrancer admin completion bash)" in ~/.bashrc; zsh: the
    same in ~/.zshrc, after compinit; fish: remembrancer admin completion fish | source, in config.fish."""
    from click.shell_completion import get_completion_class

    made = get_completion_class(shell)
    assert made is not None
    group = click.get_current_context().find_root().command
    script = made(group, {}, "remembrancer", "_REMEMBRANCER_COMPLETE").source()
    return Report({"script": script}, script)


TABLE = {
    "queue": ("commands", "queue", "list waiting and rejected writes; export or drop the rejected ones"),
    "maintain": ("commands", "maintain", "run maintenance now"),
    "scale": ("commands", "runtime_commands", "change the number of embedders: scale embedder=2"),
    "embedder": ("commands", "embedder", "make vectors for another host, or invite one"),
    "projects": ("commands", "projects", "list the projects; move OLD NEW"),
    "hook": ("commands", "", "record an event of a session (clients' hooks run this)"),
    "completion": ("commands", "admin", "print the completion script for bash, zsh or fish"),
}
admin = LazyGroup("admin", TABLE, help="Commands that are rarely needed by hand.")
