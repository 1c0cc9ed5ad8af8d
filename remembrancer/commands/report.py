"""Declares commands with `click`, and prints their reports for people or, with `--json`, for programs."""

from __future__ import annotations

import errno
import importlib
import json
import os
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import click
from click.shell_completion import CompletionItem

from remembrancer.commands import exit_codes
from remembrancer.config.named_home import RelativeHome

if TYPE_CHECKING:
    from msgspec import Struct
    from rich.console import RenderableType

Facts: TypeAlias = "Mapping[str, Any] | Sequence[Any] | Struct"
Line: TypeAlias = "str | RenderableType"
Table = Mapping[str, tuple[str, str, str]]
DISK_ERRORS = frozenset({errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""Errors in reading or writing an open file, which do not name the file."""


class Rows:
    """A table of plain texts. A column whose heading begins with > is aligned to the right."""

    def __init__(self, headings: Sequence[str], rows: Sequence[Sequence[str]], title: str | None = None) -> None:
        self.headings, self.rows, self.title = headings, rows, title

    def __rich__(self) -> RenderableType:
        from rich.text import Text

        from remembrancer.commands.terminal import table

        made = table(*self.headings, overflow="fold")
        made.title, made.title_justify = self.title, "left"
        for row in self.rows:
            made.add_row(*map(Text, row))
        return made


class Report(NamedTuple):
    facts: Facts
    lines: Line | Sequence[Line] = ()
    status: int = exit_codes.OK
    notes: Sequence[str] = ()
    """Lines for standard error."""
    piped: Sequence[str] | None = None
    """Replaces `lines` when the output is not a terminal."""


def option(*names: str, **settings: Any) -> click.Option:
    return click.Option(names, **settings)


def flag(*names: str, help: str, **settings: Any) -> click.Option:  # noqa: A002 - as click calls it
    return click.Option(names, is_flag=True, help=help, **settings)


def argument(name: str, **settings: Any) -> click.Argument:
    return click.Argument([name], **settings)


JSON = flag("--json", "as_json", help="Print one JSON object, for programs.")
YES = flag("--yes", help="Do not ask.")
DRY_RUN = flag("--dry-run", help="Show what would be done without changing anything.")


class Command(click.Command):
    """A command that rejects two options for the same parameter."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        given: dict[str | None, click.Parameter] = {}
        for each in self.make_parser(ctx).parse_args(list(args))[2]:
            if (other := given.setdefault(each.name, each)) is not each and not ctx.resilient_parsing:
                raise click.UsageError(f"{other.opts[0]} and {each.opts[0]} cannot be combined", ctx)
        return super().parse_args(ctx, args)


def command(*params: click.Parameter, name: str | None = None) -> Callable[[Callable[..., Any]], click.Command]:
    """The function, which may be async, returns a `Report` or an exit status. Its docstring is the help text."""

    def declare(function: Callable[..., Any]) -> click.Command:
        def callback(*, as_json: bool = False, **given: Any) -> int:
            try:
                outcome = function(**given)
                if isinstance(outcome, Coroutine):
                    import asyncio  # takes 50 ms, and a client may be waiting

                    outcome = asyncio.run(outcome)
                status = _show(outcome, as_json=as_json) if isinstance(outcome, Report) else int(outcome)
                sys.stdout.flush()
                return status
            except BrokenPipeError:  # `| head`
                os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
                return exit_codes.OK

        named = name or function.__name__.rstrip("_").replace("_", "-")
        return Command(named, callback=callback, params=[*params, JSON], help=function.__doc__)

    return declare


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


class Group(click.Group):
    """A group of commands, one of which can be the default."""

    def __init__(self, name: str, *commands: click.Command, help: str, default: str | None = None) -> None:  # noqa: A002
        super().__init__(name, commands, help=help, no_args_is_help=default is None)
        self.default = default

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        is_named = args and args[0] in ("-h", "--help", *self.commands)
        if self.default is not None and not ctx.resilient_parsing and not is_named:
            takes_text = any(isinstance(each, click.Argument) for each in self.commands[self.default].params)
            args = [self.default, *args] if takes_text or not args or args[0].startswith("-") else args
        return super().parse_args(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            rows = [(name, item.get_short_help_str(limit=300)) for name, item in sorted(self.commands.items())]
            formatter.write_dl(rows)


class LazyGroup(click.Group):
    """Commands that are imported only when needed. `table` maps each name to its section in the help, its module in
    `remembrancer.commands` (empty if it runs without `click`), and a line of help."""

    def __init__(self, name: str, table: Table, **settings: Any) -> None:
        super().__init__(name, [click.Command(name, help=text) for name, (*_, text) in table.items()], **settings)
        self.table = table

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.table or not (module := self.table[cmd_name][1]):
            return self.commands.get(cmd_name)
        commands = importlib.import_module(f"remembrancer.commands.{module}")
        found: click.Command = getattr(commands, cmd_name, None) or getattr(commands, f"{cmd_name}_")
        return found

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        return [CompletionItem(name, help=row[2]) for name, row in self.table.items() if name.startswith(incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for section in dict.fromkeys(section for section, *_ in self.table.values()):
            with formatter.section(section.capitalize()):
                rows = [(name, text) for name, (of, _, text) in self.table.items() if of == section]
                formatter.write_dl(rows, col_max=10)


def run(group: click.Command, arguments: list[str], name: str = "remembrancer") -> int:
    named = 0 if not isinstance(group, click.Group) else 2 if arguments[:1] == ["admin"] else 1
    label = " ".join([name, *arguments[:named]])
    try:
        asked = group.main(arguments, prog_name=name, standalone_mode=False, help_option_names=["-h", "--help"])
        return int(asked or exit_codes.OK)
    except click.UsageError as error:
        param = getattr(error, "param", None)
        if param and param.type.name.startswith("integer"):
            value = error.message.partition(" is not ")[0]
            error = click.BadParameter(f"type a whole number ({param.metavar}), not {value}", error.ctx, param)
        if isinstance(error, click.NoSuchOption) and error.possibilities:
            error.possibilities[:] = get_close_matches(error.option_name, error.possibilities, 1, 0.75)
        error.show()
        if isinstance(error, click.NoSuchOption) and not error.possibilities:
            known = [each.opts[0] for each in error.ctx.command.params if "--" in each.opts[-1]] if error.ctx else []
            print("Options come after the command. Text that begins with a dash must come after '--'.", file=sys.stderr)
            print(f"The command's options: {', '.join(known)}", file=sys.stderr)
        _show_error(arguments, "invalid_input", error.format_message())
        return exit_codes.USAGE
    except click.Abort as error:
        if isinstance(error.__cause__, KeyboardInterrupt):
            print(f"{label}: interrupted", file=sys.stderr)
            return exit_codes.INTERRUPTED
        print("Nothing was changed.", file=sys.stderr)
        return exit_codes.FAILED
    except Exception as error:
        from remembrancer.protocol import errors  # takes 20 ms; a client may be waiting

        if isinstance(error, OSError) and (error.filename is not None or error.errno in DISK_ERRORS):
            error = errors.FileUnusable(f"{error.filename or 'a file'} cannot be used: {error.strerror}")
        if isinstance(error, RelativeHome):
            error = errors.ConfigurationError(str(error))
        if not isinstance(error, errors.RemembrancerError):
            raise  # a bug of ours: show the traceback
        from remembrancer.commands.terminal import clean_output

        clean_output()
        print(f"{label}: {error.message}", file=sys.stderr)
        _show_error(arguments, error.code, error.message)
        return exit_codes.OF_ERRORS.get(error.code, exit_codes.REFUSED)


def _show_error(arguments: Sequence[str], code: str, message: str) -> None:
    if "--json" in arguments:
        print(json.dumps({"error": code, "message": message}, ensure_ascii=False))


def confirm(question: str, *, yes: bool) -> None:
    """Raises `Abort` if the answer is no, and `InvalidInput` if there is nobody to ask."""
    from remembrancer.protocol.errors import InvalidInput

    if yes:
        return
    if not sys.stdin.isatty():
        raise InvalidInput(f"{question} Nothing was changed: confirm with --yes, or at a terminal")
    click.confirm(question, err=True, abort=True)


def _show(report: Report, *, as_json: bool) -> int:
    for note in report.notes:
        print(note, file=sys.stderr)
    if as_json:
        import msgspec

        print(json.dumps(msgspec.to_builtins(report.facts), ensure_ascii=False))
    elif report.piped is not None and not sys.stdout.isatty():
        print(*report.piped, sep="\n")
    else:
        from remembrancer.commands.terminal import print_lines

        lines: Any = report.lines
        print_lines(lines if isinstance(lines, list | tuple) else [lines])
    return report.status
