"""Cases as data: a TOML file for a module of tests, with a table for a test, a row for a case."""

import tomllib
from functools import cache
from pathlib import Path
from typing import Any


@cache
def _tables(module: str) -> dict[str, Any]:
    return tomllib.loads(Path(__file__).with_name(f"{module}.toml").read_text(encoding="utf-8"))


def cases(module: str, table: str | None = None) -> Any:
    """The rows of a table of `<module>.toml`; of a table of tables, or of all of them, by their names."""
    return _tables(module) if table is None else _tables(module)[table]
