"""The files that a session has open, as words to search for and as names to be found in memories. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

MAX_FILES: Final = 20
"""Files that are looked for; the first ones given."""
SEARCHED_FILES: Final = 8
"""Files whose names are searched for."""
NEAREST_DIRECTORIES: Final = 2
"""Directories above a file whose names say something of what the file is about."""
COMMON_DIRECTORIES: Final = frozenset(
    {"app", "bin", "dist", "docs", "home", "lib", "node_modules", "packages", "pkg", "src", "test", "tests", "users"}
)
"""Names that every project has: to search for them finds everything."""

MENTIONS: Final = 20
"""Places in a text that are looked at for one name."""
LONGEST_PREFIX: Final = 200

_SEPARATORS: Final = re.compile(r"[/\\]+")


@dataclass(frozen=True, slots=True)
class OpenFiles:
    """Files by their paths' parts, the file's own name last."""

    parts: tuple[tuple[str, ...], ...]

    def names(self) -> tuple[str, ...]:
        """The files' own names."""
        return tuple(dict.fromkeys(path[-1] for path in self.parts))

    def query(self, task: str) -> str:
        """What to search for: the names of the first files without their suffixes, the task, and the directories.

        A search looks at the first words alone: neither many files nor a long task may take all of them.
        """
        stems = [name.partition(".")[0] or name for name in self.names()[:SEARCHED_FILES]]
        directories = [
            directory
            for path in self.parts
            for directory in path[:-1][-NEAREST_DIRECTORIES:]
            if directory.lower() not in COMMON_DIRECTORIES
        ]
        return " ".join(part for part in (*stems, task, *dict.fromkeys(directories)) if part)

    def is_source(self, file: str | None) -> bool:
        """Whether a memory's source is one of the files."""
        return file is not None and self._has(path_parts(file))

    def are_named_in(self, content: str) -> bool:
        """Whether a text names one of the files, by its name alone or with directories that agree."""
        return any(self._has(path_parts(mention)) for name in self.names() for mention in _mentions(content, name))

    def _has(self, parts: tuple[str, ...]) -> bool:
        """Whether one path is the end of the other, as `auth/service.py` is of `/home/me/src/auth/service.py`."""
        return bool(parts) and any(path[-len(parts) :] == parts or parts[-len(path) :] == path for path in self.parts)


def _mentions(content: str, name: str) -> Iterator[str]:
    """The first paths in a text that end in a file's name, each with the directories before it."""
    end = 0
    for _ in range(MENTIONS):
        start = content.find(name, end)
        if start < 0:
            return
        end = start + len(name)
        first = start
        while first > 0 and start - first < LONGEST_PREFIX and _in_path(content[first - 1]):
            first -= 1
        is_whole = first == start or content[start - 1] in "/\\"
        if is_whole and not (end < len(content) and (content[end].isalnum() or content[end] in "_-")):
            yield content[first:end]


def _in_path(character: str) -> bool:
    return character.isalnum() or character in "_.-/\\"


def open_files(paths: Sequence[str]) -> OpenFiles:
    """The files of these paths, whose separators may be of any system."""
    parts = dict.fromkeys(path_parts(path) for path in paths[:MAX_FILES])
    return OpenFiles(tuple(each for each in parts if each))


def path_parts(path: str) -> tuple[str, ...]:
    """The names in a path, without `.` and blanks at its ends."""
    return tuple(part for part in _SEPARATORS.split(path.strip()) if part not in ("", "."))
