"""The location of the home, its configuration file, and the content of that file.

Uses only the standard library, and imports even that on demand, since the bridge imports this module. The home is found
even if the configuration is wrong. A file is TOML, JSON, or Markdown with YAML front matter; an error in it is a
`ValueError` whose message never quotes the file, since it may contain a password.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from remembrancer.config.named_home import IN_MEMORY, MODE_VARIABLES, config_files, first_of, named_home
from remembrancer.protocol.paths import look_at, read_file

MEMORY_STORAGE: Final = Path("/dev/shm")  # noqa: S108 - private: owner and mode are checked
MAX_FILE_BYTES: Final = 1024 * 1024
REMOTE: Final = "remote_"
"""The prefix of names that may also stand in a block of the text."""
_FRONT_MATTER: Final = re.compile(r"---[ \t]*\n(.*?)^(?:---|\.\.\.)[ \t]*$(.*)", re.DOTALL | re.MULTILINE)
_YAML_BLOCK: Final = re.compile(r"^```ya?ml[ \t]*\n(.*?)^```[ \t]*$", re.DOTALL | re.MULTILINE | re.IGNORECASE)

Content = dict[str, object]


class Home(NamedTuple):
    """The directory with all data of one memory."""

    directory: Path
    """Absolute, with symbolic links resolved."""
    on_disk: Path
    """The same, unless the memory is kept in RAM: then the directory it would have on disk, by which sessions find
    it."""
    named_by: str
    """The setting that determined the home: a variable, `db_path in <file>`, or `default`."""
    files: tuple[Path, ...] = ()
    """The configuration file. Empty: there is none. Several: it is ambiguous which one is meant."""

    @property
    def in_memory(self) -> bool:
        """True if the home disappears with the runtime."""
        return self.directory != self.on_disk


def find_home(environ: Mapping[str, str]) -> Path:
    """The directory with all data. Absolute, with symbolic links resolved."""
    return locate(environ).directory


def locate(environ: Mapping[str, str]) -> Home:
    """The home: `REMEMBRANCER_HOME`, `MEMORY_DB_PATH`, `db_path` in a file, or the platform's data directory.

    A configuration file that cannot be read is ignored here.
    """
    named_by, named = named_home(environ)
    on_disk = _data_directory() if named is None else Path(named)
    files = tuple(map(Path, config_files(environ, str(on_disk))))
    settings = _location_settings(files[0]) if len(files) == 1 else {}
    if named_by == "default" and "db_path" in settings:
        named_by, on_disk = f"db_path in {files[0]}", _beside(files[0], settings["db_path"])
    mode = first_of(environ, MODE_VARIABLES)[1] or settings.get("deployment_mode")
    return Home(memory_directory(on_disk) if mode == IN_MEMORY else on_disk, on_disk, named_by, files)


def memory_directory(on_disk: Path) -> Path:
    """The home in `embedded-memory` mode, the same for all sessions of a user that name the same home.

    It lies in a RAM file system where there is one (Linux). TMPDIR is not used, since it may differ between sessions.
    """
    import hashlib

    shared = MEMORY_STORAGE if os.access(MEMORY_STORAGE, os.W_OK | os.X_OK) else Path("/tmp")  # noqa: S108
    digest = hashlib.sha256(os.fsencode(on_disk)).hexdigest()[:16]
    return shared.resolve() / f"remembrancer-memory-{os.getuid()}-{digest}"


def _data_directory() -> Path:
    import platformdirs  # takes some milliseconds, so only if the home is unknown

    return Path(platformdirs.user_data_dir("remembrancer", appauthor=False)).resolve()


def _location_settings(file: Path) -> dict[str, str]:
    """The values in a file that determine the home, as far as it can be read."""
    try:
        content = read_settings_file(file)
    except ValueError:
        return {}
    values = {name: content.get(name) for name in ("db_path", "deployment_mode")}
    return {name: value for name, value in values.items() if isinstance(value, str) and value and "\0" not in value}


def _beside(file: Path, named: str) -> Path:
    """A path in a configuration file, relative to that file, so that it is the same for every session."""
    return Path(os.path.realpath(file.parent / os.path.expanduser(named)))  # noqa: PTH111


def read_settings_file(path: Path) -> Content:
    """The names and values in a file; its suffix determines its format.

    Raises:
        ValueError: it cannot be read or has another format. The message does not name the file.
    """
    parse = {".toml": _parse_toml, ".md": _parse_markdown, ".json": _parse_json}.get(path.suffix.lower())
    if parse is None:
        raise ValueError("a configuration file is named *.toml, *.md, *.json")
    return parse(_read(path))


def _read(path: Path) -> str:
    try:
        look = look_at(path, "file", 0)
        if look.kind not in ("file", "missing", "unreachable"):
            raise ValueError("it is not a file")
        if look.size_bytes > MAX_FILE_BYTES:
            raise ValueError(f"it has more than {MAX_FILE_BYTES} bytes")
        text = read_file(path, MAX_FILE_BYTES).decode("utf-8-sig")
    except FileNotFoundError:
        raise ValueError("there is no such file") from None
    except OSError as error:
        raise ValueError(f"it cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ValueError("it is not UTF-8") from None
    return text.replace("\r\n", "\n")


def _parse_toml(text: str) -> Content:
    import tomllib

    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        what = "a name is in it twice" if str(error).startswith("Cannot overwrite a value") else "it is not TOML"
        raise ValueError(f"{what}: {_place(error)}") from None


def _parse_json(text: str) -> Content:
    import json

    try:
        return _mapping(json.loads(text, object_pairs_hook=_named_once))
    except json.JSONDecodeError as error:
        raise ValueError(f"it is not JSON: line {error.lineno}, column {error.colno}") from None
    except RecursionError:
        raise ValueError("it is not JSON: too deep") from None


def _parse_markdown(text: str) -> Content:
    front = _FRONT_MATTER.match(text)
    if front is None:
        raise ValueError("it has no front matter: settings between two lines of ---, at the top")
    content = _parse_yaml(front[1], first_line=2)
    block = _YAML_BLOCK.search(front[2])
    if block is None or REMOTE not in block[1]:
        return content
    first_line = text[: front.start(2) + block.start(1)].count("\n") + 1
    beside = _parse_yaml(block[1], first_line=first_line)
    for name in beside:
        if not name.startswith(REMOTE):
            raise ValueError(f"{name} belongs into the front matter: in the text, only {REMOTE}* is read")
    return _named_once([*content.items(), *beside.items()])


def _parse_yaml(text: str, *, first_line: int) -> Content:
    import yaml

    try:
        tree = yaml.compose(text, yaml.SafeLoader)
        content = yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = "" if mark is None else f": line {first_line + mark.line}"
        raise ValueError(f"it is not YAML{line}") from None
    except (yaml.YAMLError, ValueError, RecursionError):  # an invalid date is a ValueError
        raise ValueError("it is not YAML") from None
    if isinstance(tree, yaml.MappingNode):
        _named_once([(key.value, None) for key, _ in tree.value if isinstance(key, yaml.ScalarNode)])
    return {} if content is None else _mapping(content)


def _mapping(content: object) -> Content:
    if not isinstance(content, dict) or not all(isinstance(name, str) for name in content):
        raise ValueError("it must hold names and their values")
    return content


def _named_once(pairs: list[tuple[str, object]]) -> Content:
    content: Content = {}
    for name, value in pairs:
        if name in content:
            raise ValueError(f"{name} is in it twice")
        content[name] = value
    return content


def _place(error: BaseException) -> str:
    """The position of a TOML error: the rest of its message may quote the file."""
    where = re.search(r"\(at ([^()]*)\)$", str(error))
    return where[1] if where else "it cannot be read"
