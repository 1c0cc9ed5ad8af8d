"""`remembrancer config`: the settings that count here, where each comes from, and what is wrong with them."""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import Any

import msgspec

from remembrancer.commands import exit_codes
from remembrancer.config.home import CONFIG_FILES, Home, locate
from remembrancer.config.reading import HIDDEN, Configuration, Origin, read_configuration, shown


def main(argv: list[str]) -> int:
    """Print what a runtime that is started now would be set to."""
    parser = argparse.ArgumentParser(
        prog="remembrancer config",
        description="The settings with which a runtime would be started now, and where each comes from.",
        epilog="exit status: 0 they can be used, 7 something is wrong with them",
    )
    parser.add_argument("--json", action="store_true", help="for a program: one JSON object")
    as_json = parser.parse_args(argv).json
    home = locate(os.environ)
    configuration = read_configuration(os.environ, home.files)
    if as_json:
        print(json.dumps(as_object(home, configuration)))
    else:
        print("\n".join(as_lines(home, configuration)))
        for problem in configuration.problems:
            print(f"remembrancer config: {problem}", file=sys.stderr)
    return exit_codes.CONFIGURATION if configuration.problems else exit_codes.OK


def as_object(home: Home, configuration: Configuration) -> dict[str, Any]:
    """The object that `--json` prints. The keys are always there; what is not known is null, what is secret is
    `***`."""
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
            for name, value in msgspec.structs.asdict(configuration.settings).items()
        },
        "without_effect": [{"value": unused.value, **_source(unused.origin)} for unused in configuration.unused],
        "warnings": list(configuration.warnings),
        "problems": list(configuration.problems),
    }


def as_lines(home: Home, configuration: Configuration) -> list[str]:
    """The lines that a person reads."""
    lines = [f"home    {home.directory}  ({home.named_by})"]
    if home.in_memory:
        lines.append(f"        in memory, in place of {home.on_disk}: it is deleted when the runtime ends")
    if home.files:
        lines += [f"file    {path}" for path in home.files]
    else:
        lines.append(f"file    none (looked for {', '.join(CONFIG_FILES)} in {home.on_disk})")
    rows = [
        (name, written(_plain(name, value)), str(configuration.origins.get(name, "default")))
        for name, value in msgspec.structs.asdict(configuration.settings).items()
    ]
    lines += ["", *_aligned([("setting", "value", "from"), *rows])]
    if configuration.unused:
        unused = [(each.origin.name, each.value, str(each.origin)) for each in configuration.unused]
        lines += ["", "without effect in this release:", *_aligned(unused)]
    if configuration.warnings:
        lines += ["", *(f"! {warning}" for warning in configuration.warnings)]
    return lines


def written(value: object) -> str:
    """A value as one writes it in a variable."""
    if value is None or isinstance(value, bool):
        return {None: "none", True: "true", False: "false"}[value]
    if isinstance(value, tuple):
        return ",".join(value) or "none"
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _plain(name: str, value: object) -> object:
    """A value as JSON has it, if it may be shown."""
    text = shown(name, value)
    return text if isinstance(value, str) or HIDDEN in text else value


def _source(origin: Origin | None) -> dict[str, str | None]:
    if origin is None:
        return {"from": "default", "name": None, "file": None}
    if origin.file is None:
        return {"from": "environment", "name": origin.name, "file": None}
    return {"from": "file", "name": origin.name, "file": str(origin.file)}


def _aligned(rows: list[tuple[str, str, str]]) -> list[str]:
    first, second = (max(len(row[column]) for row in rows) for column in (0, 1))
    return [f"{name:{first}}  {value:{second}}  {source}" for name, value, source in rows]
