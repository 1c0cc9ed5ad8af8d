"""The names and addresses under which Remembrancer is published, and placeholders for those not chosen yet: `python -m
release check` refuses to publish if one is left anywhere."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

SERVER_NAME: Final = "io.github.remembrancer/remembrancer"
REPOSITORY: Final = "https://github.com/remembrancer/remembrancer"
AUTHOR: Final = "The Remembrancer authors"
PLACEHOLDERS: Final = {
    "io.github.remembrancer/": "the name in the MCP registry, of an account there",
    "github.com/remembrancer/": "the address of the repository",
    "The Remembrancer authors": "who publishes it",
    "The Remembrancer developers": "who holds the copyright",
}
"""The placeholders, each with the name it stands for. Remove a line when its name is final."""
PUBLISHED: Final = (
    *("README.md", "CHANGELOG.md", "LICENSE", "pyproject.toml", "Containerfile", ".claude-plugin", "docs", "examples"),
    *("release", "remembrancer"),
)
"""The published files and directories, and those that they are made from."""
TEXTS: Final = ("", ".md", ".toml", ".json", ".py", ".html", ".yaml", ".yml")


def placeholders(root: Path) -> list[str]:
    """Return the lines below `root` that have a placeholder, each with the name to fill in."""
    found = []
    for path in _texts(root):
        text = path.read_text(encoding="utf-8")
        if path == Path(__file__):  # the table here names them
            text = text.partition("PLACEHOLDERS: Final")[0]
        found += [
            f"{path.relative_to(root)}:{number}: {each!r} stands for {meant}"
            for number, line in enumerate(text.splitlines(), 1)
            for each, meant in PLACEHOLDERS.items()
            if each in line
        ]
    return found


def _texts(root: Path) -> Iterator[Path]:
    for name in PUBLISHED:
        for path in (root / name, *sorted((root / name).rglob("*"))):
            if path.is_file() and path.suffix in TEXTS:
                yield path
