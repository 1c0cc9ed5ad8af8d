"""`remembrancer config`: the settings in force, where each comes from, and problems with them."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import tomlkit

from remembrancer.commands import exit_codes
from remembrancer.commands.report import Line, Report, Rows, command, flag, option
from remembrancer.config.home import Home, beside, locate, read_settings_file, read_settings_text
from remembrancer.config.named_home import CONFIG_FILE
from remembrancer.config.other_formats import read_other_format
from remembrancer.config.reading import DB_PATH, Configuration, SettingOrigin, read_configuration
from remembrancer.config.settings import SETTABLE, Settings, unknown_name
from remembrancer.memory.text import count
from remembrancer.protocol.errors import ConfigurationError
from remembrancer.protocol.paths import write_whole


@command(
    option("--set", "assignment", metavar="NAME=VALUE", help="Write a setting to config.toml; NAME= removes it."),
    option(
        "--import",
        "imported",
        metavar="FILE",
        help="Create config.toml from the file (JSON or Markdown) of another memory server or of release 0.2.0.",
    ),
    flag("--all", "shows_all", help="Also show the settings with default values."),
)
def config(assignment: str | None, imported: str | None, shows_all: bool) -> Report:
    """Show the settings that differ from the defaults, as a runtime started now would use them, and where each comes
    from. Exit status 7: there is a problem with the settings."""
    if assignment is not None and imported is not None:
        raise click.UsageError("give either --set or --import")
    home = locate(os.environ)
    try:
        if imported is not None:
            return import_settings(home.on_disk / CONFIG_FILE, Path(imported).expanduser())
        if assignment is not None:
            return Report({"set": assignment}, write_setting(home, assignment))
    except ValueError as error:
        raise ConfigurationError(str(error)) from error
    configuration = read_configuration(os.environ, home.file)
    problems = [f"remembrancer config: {problem}" for problem in configuration.problems]
    status = exit_codes.CONFIGURATION if problems else exit_codes.OK
    return Report(as_object(home, configuration), as_lines(home, configuration, shows_all=shows_all), status, problems)


def write_setting(home: Home, assignment: str) -> str:
    """Returns a sentence for the user. Raises `ValueError` for a setting or value that is not allowed."""
    name, equals, text = assignment.partition("=")
    if not (name.strip() and equals):
        raise ValueError(f"{assignment!r} does not have the form NAME=VALUE; NAME= restores the default")
    name = name.strip().lower().removeprefix("remembrancer_")
    if name not in SETTABLE:
        raise ValueError(unknown_name(name, sorted(SETTABLE)))
    file = home.file or home.on_disk / CONFIG_FILE
    if file.exists():
        read_settings_file(file)
    document = tomlkit.parse(file.read_text()) if file.exists() else tomlkit.document()
    document.pop(name, None)
    if text:
        variable = f"REMEMBRANCER_{name.upper()}"
        checked = read_configuration({variable: text})
        if checked.problems:
            raise ValueError(checked.problems[0].replace(variable, name))
        value = getattr(checked.settings, name)
        document[name] = list(value) if isinstance(value, tuple) else value
    _write(file, document)
    change = f"is now {text}" if text else "has its default again"
    return f"{name} {change} in {file}; run 'remembrancer down' to make the next start use it"


def import_settings(file: Path, other: Path) -> Report:
    if file.exists():
        raise ValueError(f"{file} already exists; move it elsewhere, or change it with --set")
    settings, unused = read_other_format(other, read_settings_text(other))
    if isinstance(named := settings.get(DB_PATH), str):
        settings[DB_PATH] = str(beside(other, named))
    problems = read_configuration({}, other, settings).problems
    if problems:
        raise ValueError("; ".join(problems))
    _write(file, tomlkit.item(settings))
    number = count(len(settings), "setting")
    lines = [f"Wrote {number} from {other} to {file}, which is used unless a variable names a different file."]
    lines += [f"Without effect here: {', '.join(unused)}"] if unused else []
    return Report({"file": str(file), "settings": sorted(settings), "without_effect": unused}, lines)


def _write(file: Path, document: Mapping[str, Any]) -> None:
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_whole(file, tomlkit.dumps(document).encode(), 0o600)


def as_object(home: Home, configuration: Configuration) -> dict[str, Any]:
    """The object that `--json` prints. All keys are always present."""
    return {
        "home": {
            "directory": str(home.directory),
            "on_disk": str(home.on_disk),
            "in_memory": home.in_memory,
            "from": home.named_by,
        },
        "files": [str(home.file)] if home.file else [],
        "settings": {
            name: {"value": value, **_source(configuration.origins.get(name))} for name, value in _listed(configuration)
        },
        "warnings": list(configuration.warnings),
        "problems": list(configuration.problems),
    }


def as_lines(home: Home, configuration: Configuration, *, shows_all: bool) -> list[Line]:
    lines: list[Line] = [f"home    {home.directory}  ({home.named_by})"]
    if home.in_memory:
        lines.append(f"        in RAM, instead of {home.on_disk}: it is deleted when the runtime ends")
    lines.append(f"file    {home.file or f'none (looked for {CONFIG_FILE} in {home.on_disk})'}")
    origins, listed = configuration.origins, _listed(configuration)
    rows = [
        (name, written(value), str(origins.get(name, "default")))
        for name, value in listed
        if shows_all or name in origins
    ]
    lines += ["", Rows(("setting", "value", "from"), rows)] if rows else []
    if len(rows) < len(listed):
        lines += ["", f"{count(len(listed) - len(rows), 'setting')} with the default value: --all shows them"]
    lines += ["", "docs/settings.md says what each setting means."]
    if configuration.warnings:
        lines += ["", *(f"! {warning}" for warning in configuration.warnings)]
    return lines


def _listed(configuration: Configuration) -> list[tuple[str, object]]:
    names = [name for name in Settings.__struct_fields__ if name in SETTABLE or name in configuration.origins]
    return [(name, getattr(configuration.settings, name)) for name in names]


def written(value: object) -> str:
    """A value as written in an environment variable."""
    if value is None or isinstance(value, bool):
        return {None: "none", True: "true", False: "false"}[value]
    if isinstance(value, tuple):
        return ",".join(value) or "none"
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _source(origin: SettingOrigin | None) -> dict[str, str | None]:
    if origin is None:
        return {"from": "default", "name": None, "file": None}
    file = str(origin.file) if origin.file else None
    return {"from": "file" if file else "environment", "name": origin.name, "file": file}
