"""A configuration file as a mapping: TOML, JSON, or Markdown with YAML in front.

Standard library only, unless there is YAML to be read: a bridge may have to look into the file. What is wrong with a
file is a `ValueError` whose message never quotes it: the file may hold a password.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Final

MAX_FILE_BYTES: Final = 1024 * 1024
REMOTE: Final = "remote_"
"""How the names begin that may also stand in a block of the text."""
_FRONT_MATTER: Final = re.compile(r"---[ \t]*\n(.*?)^(?:---|\.\.\.)[ \t]*$(.*)", re.DOTALL | re.MULTILINE)
_YAML_BLOCK: Final = re.compile(r"^```ya?ml[ \t]*\n(.*?)^```[ \t]*$", re.DOTALL | re.MULTILINE | re.IGNORECASE)

Content = dict[str, object]


def read_settings_file(path: Path) -> Content:
    """The names and values in a file; its form follows from its suffix.

    Raises:
        ValueError: it cannot be read, or it is not of that form. The message does not name the file.
    """
    parse = _PARSERS.get(path.suffix.lower())
    if parse is None:
        raise ValueError(f"a configuration file is named {', '.join(f'*{suffix}' for suffix in _PARSERS)}")
    return parse(_read(path))


def _read(path: Path) -> str:
    try:
        about = os.stat(path)  # noqa: PTH116 - before anything is opened: reading a pipe would wait
        if not stat.S_ISREG(about.st_mode):
            raise ValueError("it is not a file")
        if about.st_size > MAX_FILE_BYTES:
            raise ValueError(f"it has more than {MAX_FILE_BYTES} bytes")
        text = path.read_bytes().decode("utf-8-sig")
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
    except (yaml.YAMLError, ValueError, RecursionError):  # a date that is none is a ValueError
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
    """Where a TOML error is: the rest of its message may quote the file."""
    where = re.search(r"\(at ([^()]*)\)$", str(error))
    return where[1] if where else "it cannot be read"


_PARSERS: Final[dict[str, Callable[[str], Content]]] = {
    ".toml": _parse_toml,
    ".md": _parse_markdown,
    ".json": _parse_json,
}
