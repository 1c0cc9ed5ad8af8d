"""`python -m examples.week`: play the week in a home of its own; exit status 0 when every prediction came about."""

from __future__ import annotations

import sys

import anyio
from rich.console import Console

from examples.sessions import in_a_home_of_its_own
from examples.week.showing import show_week

if __name__ == "__main__":
    sys.exit(0 if anyio.run(in_a_home_of_its_own, show_week, Console()) else 1)
