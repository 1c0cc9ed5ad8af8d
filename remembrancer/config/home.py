"""Finds the home and its configuration file, and reads that file. Imports little, since the bridge imports this module.
An error in a file raises a `ValueError` whose message names the file and never quotes it."""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from remembrancer.config.named_home import CONFIG_FILE, IN_MEMORY, MODE_VARIABLES, config_file, first_of, named_home
from remembrancer.protocol.paths import read_file
from remembrancer.protocol.system import memory_storage

MAX_FILE_BYTES: Final = 1024 * 1024


class Home(NamedTuple):
    directory: Path
    """Absolute, with symbolic links resolved."""
    on_disk: Path
    """The same directory or, for a memory in RAM, the directory that it would have on disk, which identifies it."""
    named_by: str
    """The name of a variable, `db_path in <file>`, or `default`."""
    file: Path | None = None

    @property
    def in_memory(self) -> bool:
        """True if the home disappears with the runtime."""
        return self.directory != self.on_disk


def locate(environ: Mapping[str, str]) -> Home:
    """Find the home from a variable, `db_path` in a file that can be read, or else the platform's data directory."""
    named_by, named = named_home(environ)
    on_disk, named_file = Path(named), config_file(environ, named)
    file = Path(named_file) if named_file is not None else None
    settings = _location_settings(file) if file is not None else {}
    if named_by == "default" and file is not None and "db_path" in settings:
        named_by, on_disk = f"db_path in {file}", beside(file, settings["db_path"])
    mode = first_of(environ, MODE_VARIABLES)[1] or settings.get("deployment_mode")
    return Home(memory_directory(on_disk) if mode == IN_MEMORY else on_disk, on_disk, named_by, file)


def memory_directory(on_disk: Path) -> Path:
    """A directory in RAM, the same for all of a user's sessions that name this home."""
    import hashlib

    digest = hashlib.sha256(os.fsencode(on_disk)).hexdigest()[:16]
    return Path(memory_storage(), f"remembrancer-memory-{os.getuid()}-{digest}")


def _location_settings(file: Path) -> dict[str, str]:
    try:
        content = read_settings_file(file)
    except ValueError:
        return {}
    values = {name: content.get(name) for name in ("db_path", "deployment_mode")}
    return {name: value for name, value in values.items() if isinstance(value, str) and value and "\0" not in value}


def beside(file: Path, named: str) -> Path:
    """Resolve a path relative to the file, so that it is the same for every session."""
    return Path(os.path.realpath(file.parent / os.path.expanduser(named)))  # noqa: PTH111


def read_settings_file(path: Path) -> dict[str, object]:
    """Raises `ValueError` if a file cannot be read, or must be imported first."""
    if path.suffix.lower() != ".toml":
        convert = f"run 'remembrancer config --import {path}' to convert it to {CONFIG_FILE}"
        raise ValueError(f"{path} is not read, since only TOML is supported; {convert}")
    import tomllib

    text = read_settings_text(path)
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        what = "the same name occurs twice" if str(error).startswith("Cannot overwrite a value") else "it is not TOML"
        where = re.search(r"\(at ([^()]*)\)$", str(error))  # the rest of the message may quote the file
        raise ValueError(f"{path}: {what}: {where[1] if where else 'it cannot be read'}") from None


def read_settings_text(path: Path) -> str:
    try:
        text = read_file(path, MAX_FILE_BYTES).decode("utf-8-sig")
    except FileNotFoundError:
        raise ValueError(f"{path} does not exist") from None
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not UTF-8") from None
    return text.replace("\r\n", "\n")
