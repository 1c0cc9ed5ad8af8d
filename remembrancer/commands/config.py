"""`remembrancer config`: the settings in force, the origin of each, and problems with them."""

from __future__ import annotations

import ast
import inspect
import os
import re
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import tomlkit

from remembrancer.commands import exit_codes
from remembrancer.commands.report import Report, Rows, command, option
from remembrancer.config.home import Home, locate
from remembrancer.config.named_home import CONFIG_FILES
from remembrancer.config.reading import HIDDEN, Configuration, SettingOrigin, read_configuration, shown
from remembrancer.config.settings import SETTABLE, Settings, unknown_name
from remembrancer.protocol.errors import ConfigurationError
from remembrancer.protocol.paths import write_whole

if TYPE_CHECKING:
    from remembrancer.commands.report import Line


@command(
    option(
        "--set",
        "assignment",
        metavar="NAME=VALUE",
        help="Write a setting to the home's config.toml; NAME= removes it.",
    ),
)
def config(assignment: str | None) -> Report:
    """Show the settings that a runtime would start with now, and where each comes from. Exit status 7: something is
    wrong with them."""
    home = locate(os.environ)
    if assignment is not None:
        try:
            return Report({"set": assignment}, write_setting(home, assignment))
        except ValueError as error:
            raise ConfigurationError(str(error)) from error
    configuration = read_configuration(os.environ, home.files)
    problems = [f"remembrancer config: {problem}" for problem in configuration.problems]
    status = exit_codes.CONFIGURATION if problems else exit_codes.OK
    return Report(as_object(home, configuration), as_lines(home, configuration), status, problems)


def write_setting(home: Home, assignment: str) -> str:
    """Write a setting to the home's `config.toml`, or remove it. Returns a sentence for the user.

    Raises:
        ValueError: the setting does not exist, the value is not allowed, or the settings are in a file of another
        format.
    """
    name, _, text = assignment.partition("=")
    name = name.strip().lower().removeprefix("remembrancer_")
    if name not in SETTABLE:
        raise ValueError(unknown_name(name, sorted(SETTABLE)))
    file = home.files[0] if home.files else home.on_disk / CONFIG_FILES[0]
    if len(home.files) > 1 or file.suffix != ".toml":
        raise ValueError(f"only {CONFIG_FILES[0]} can be written: change {' and '.join(map(str, home.files))}")
    document = tomlkit.parse(file.read_text()) if file.exists() else tomlkit.document()
    document.pop(name, None)
    if text:
        checked = read_configuration({f"REMEMBRANCER_{name.upper()}": text})
        if checked.problems:
            raise ValueError(checked.problems[0])
        value = getattr(checked.settings, name)
        document[name] = list(value) if isinstance(value, tuple) else value
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_whole(file, tomlkit.dumps(document).encode(), 0o600)
    return f"{name} is now {text or 'the default'} in {file}; 'remembrancer down' makes the next start use it"


def as_object(home: Home, configuration: Configuration) -> dict[str, Any]:
    """The object that `--json` prints. All keys are always there; unknown values are null, and secrets are `***`."""
    return {
        "home": {
            "directory": str(home.directory),
            "on_disk": str(home.on_disk),
            "in_memory": home.in_memory,
            "from": home.named_by,
        },
        "files": [str(path) for path in home.files],
        "settings": {
            name: {"value": _plain(name, value), **_source(configuration.origins.get(name))}
            for name, value in _listed(configuration)
        },
        "without_effect": [{"value": unused.value, **_source(unused.origin)} for unused in configuration.unused],
        "warnings": list(configuration.warnings),
        "problems": list(configuration.problems),
    }


def as_lines(home: Home, configuration: Configuration) -> list[Line]:
    """The lines for a person."""
    lines: list[Line] = [f"home    {home.directory}  ({home.named_by})"]
    if home.in_memory:
        lines.append(f"        in RAM, instead of {home.on_disk}: it is deleted when the runtime ends")
    if home.files:
        lines += [f"file    {path}" for path in home.files]
    else:
        lines.append(f"file    none (looked for {', '.join(CONFIG_FILES)} in {home.on_disk})")
    meanings = _meanings()
    rows = [
        (name, written(_plain(name, value)), str(configuration.origins.get(name, "default")), meanings.get(name, ""))
        for name, value in _listed(configuration)
    ]
    lines += ["", Rows(("setting", "value", "from", "meaning"), rows)]
    if configuration.unused:
        unused = [(each.origin.name, each.value, str(each.origin)) for each in configuration.unused]
        lines += ["", "Without effect in this release:", Rows(("name", "value", "from"), unused)]
    if configuration.warnings:
        lines += ["", *(f"! {warning}" for warning in configuration.warnings)]
    return lines


def _listed(configuration: Configuration) -> list[tuple[str, object]]:
    """All settings, and the constants that were given by another server's name."""
    names = [name for name in Settings.__struct_fields__ if name in SETTABLE or name in configuration.origins]
    return [(name, getattr(configuration.settings, name)) for name in names]


def written(value: object) -> str:
    """A value as it is written in an environment variable."""
    if value is None or isinstance(value, bool):
        return {None: "none", True: "true", False: "false"}[value]
    if isinstance(value, tuple):
        return ",".join(value) or "none"
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _plain(name: str, value: object) -> object:
    """A value as JSON, if it may be shown."""
    text = shown(name, value)
    return text if isinstance(value, str) or HIDDEN in text else value


def _source(origin: SettingOrigin | None) -> dict[str, str | None]:
    if origin is None:
        return {"from": "default", "name": None, "file": None}
    if origin.file is None:
        return {"from": "environment", "name": origin.name, "file": None}
    return {"from": "file", "name": origin.name, "file": str(origin.file)}


def _meanings() -> dict[str, str]:
    """The first words of each setting's docstring."""
    (definition,) = ast.parse(inspect.getsource(Settings)).body
    meanings = {}
    for field, text in pairwise(getattr(definition, "body", ())):
        match field, text:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(words))):
                meanings[name] = re.split(r"[.;] ", " ".join(words.split()).removesuffix("."))[0]
    return meanings


COMMANDS = {"config": config}
