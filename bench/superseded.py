"""What replaces an earlier memory, and what only looks so: `python -m bench.superseded [--json] [--show]`.

`superseded.txt` has pairs of sentences as they are stored one after the other: 60 of which the second replaces the
first, and 60 that both hold (another subject or environment, one more fact, another part of it). Every other pair was
looked at while the rule was written (`tuned`); the rest is only reported (`held out`). `--show` prints what went wrong
in the tuned half.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Final

from remembrancer.memory.slots import replaces

PAIRS: Final = Path(__file__).parent / "superseded.txt"


def main() -> int:
    """Print the shares that are right, in per cent."""
    parser = argparse.ArgumentParser(prog="bench.superseded", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.add_argument("--show", action="store_true", help="print the pairs of the tuned half that went wrong")
    given = parser.parse_args()
    right: dict[str, list[bool]] = {}
    for number, line in enumerate(PAIRS.read_text(encoding="utf-8").splitlines()):
        truth, earlier, later = line.split(" | ")
        half = "held out" if number % 2 else "tuned"
        is_right = replaces(later, earlier) == (truth == "replaces")
        right.setdefault(f"{truth}, {half}", []).append(is_right)
        if given.show and half == "tuned" and not is_right:
            print(f"wrong: {line}", file=sys.stderr)
    figures = {name: round(100 * sum(each) / len(each), 1) for name, each in sorted(right.items())}
    print(json.dumps(figures, indent=2) if given.json else "\n".join(f"{k}: {v} %" for k, v in figures.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
