"""Where the home is. Standard library only, unless the platform has to be asked: the bridge imports this."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def find_home(environ: Mapping[str, str]) -> Path:
    """`REMEMBRANCER_HOME`, else the platform's directory for a user's data. Absolute, symbolic links resolved."""
    named = environ.get("REMEMBRANCER_HOME")
    if named:
        return Path(named).expanduser().resolve()
    import platformdirs  # costs a few milliseconds, which a bridge with a named home need not pay

    return Path(platformdirs.user_data_dir("remembrancer", appauthor=False)).resolve()
