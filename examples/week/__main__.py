"""`python -m examples.week`: plays the week in its own home; exit status 0 if every prediction came true."""

from __future__ import annotations

import sys

import anyio
from rich.console import Console

from examples.sessions import in_a_home_of_its_own
from examples.week.showing import show_week

if __name__ == "__main__":
    sys.exit(0 if anyio.run(in_a_home_of_its_own, show_week, Console()) else 1)
