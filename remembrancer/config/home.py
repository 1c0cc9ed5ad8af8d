"""Where the home is, and which configuration file counts.

Standard library only, and not even that where it is not needed: the bridge imports this. Nothing here fails because a
configuration is wrong; `settings.load_settings` says what is.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

CONFIG_FILES: Final = ("config.toml", "config.md", "config.json")
"""What is looked for in the home, when no variable names a file."""
CONFIG_VARIABLES: Final = ("REMEMBRANCER_CONFIG", "MEMORY_CONFIG_PATH")
HOME_VARIABLES: Final = ("REMEMBRANCER_HOME", "MEMORY_DB_PATH")
MODE_VARIABLES: Final = ("REMEMBRANCER_DEPLOYMENT_MODE", "MEMORY_DEPLOYMENT_MODE")
"""Of each pair the first one counts."""
IN_MEMORY: Final = "embedded-memory"
MEMORY_STORAGE: Final = Path("/dev/shm")  # noqa: S108 - private: owner and mode are checked


class Home(NamedTuple):
    """Where everything of one memory is kept."""

    directory: Path
    """Absolute, symbolic links resolved."""
    on_disk: Path
    """The same, unless the memory is kept in memory: then what it would be on disk, which is how sessions find it."""
    named_by: str
    """What says where it is: a variable, `db_path in <file>`, or `default`."""
    files: tuple[Path, ...] = ()
    """The configuration file. None: there is none. Several: it is not clear which one is meant."""

    @property
    def in_memory(self) -> bool:
        """Whether the home ends with the runtime."""
        return self.directory != self.on_disk


def find_home(environ: Mapping[str, str]) -> Path:
    """The directory in which everything is kept. Absolute, symbolic links resolved."""
    return locate(environ).directory


def locate(environ: Mapping[str, str]) -> Home:
    """The home: `REMEMBRANCER_HOME`, `MEMORY_DB_PATH`, `db_path` in a file, or the platform's directory for data.

    A configuration file that cannot be read says nothing here.
    """
    named_by, on_disk = _named_home(environ)
    files = _config_files(environ, on_disk)
    said = _said_in(files[0]) if len(files) == 1 else {}
    if named_by == "default" and "db_path" in said:
        named_by, on_disk = f"db_path in {files[0]}", _beside(files[0], said["db_path"])
    mode = _first(environ, MODE_VARIABLES)[1] or said.get("deployment_mode")
    return Home(memory_directory(on_disk) if mode == IN_MEMORY else on_disk, on_disk, named_by, files)


def memory_directory(on_disk: Path) -> Path:
    """Where the home is in `embedded-memory` mode: the same for all sessions of a user that name the same home.

    In storage that is memory, where there is such a thing (Linux). Not TMPDIR: two sessions may differ in it.
    """
    import hashlib

    shared = MEMORY_STORAGE if os.access(MEMORY_STORAGE, os.W_OK | os.X_OK) else Path("/tmp")  # noqa: S108
    digest = hashlib.sha256(os.fsencode(on_disk)).hexdigest()[:16]
    return shared.resolve() / f"remembrancer-memory-{os.getuid()}-{digest}"


def _named_home(environ: Mapping[str, str]) -> tuple[str, Path]:
    variable, named = _first(environ, HOME_VARIABLES)
    if named:
        return variable, Path(named).expanduser().resolve()
    import platformdirs  # costs a few milliseconds, which a bridge with a named home need not pay

    return "default", Path(platformdirs.user_data_dir("remembrancer", appauthor=False)).resolve()


def _config_files(environ: Mapping[str, str], home: Path) -> tuple[Path, ...]:
    _, named = _first(environ, CONFIG_VARIABLES)
    if named:
        file = Path(os.path.expanduser(named))  # noqa: PTH111 - unlike Path's, it never fails
        try:
            return (file.absolute(),)
        except FileNotFoundError:  # the working directory is gone
            return (file,)
    return tuple(path for path in (home / name for name in CONFIG_FILES) if os.path.lexists(path))


def _said_in(file: Path) -> dict[str, str]:
    """What a file says of the place of the home, as far as it can be read."""
    from remembrancer.config.files import read_settings_file

    try:
        content = read_settings_file(file)
    except ValueError:
        return {}
    said = {name: content.get(name) for name in ("db_path", "deployment_mode")}
    return {name: value for name, value in said.items() if isinstance(value, str) and value and "\0" not in value}


def _beside(file: Path, named: str) -> Path:
    """A path in a configuration file: relative to the file, so that it is the same for every session."""
    return Path(os.path.realpath(file.parent / os.path.expanduser(named)))  # noqa: PTH111


def _first(environ: Mapping[str, str], variables: tuple[str, ...]) -> tuple[str, str | None]:
    """The first of the variables that is set to something, and its value."""
    for variable in variables:
        if environ.get(variable):
            return variable, environ[variable]
    return variables[0], None
