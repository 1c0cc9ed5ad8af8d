"""Which later memory may have replaced an earlier one: `python -m bench.superseded [FILE …] [--json] [--show]`.

`superseded.txt` and `replaced.json` have pairs of sentences as they are stored one after the other: half of them such
that the second replaces the first, and half that both hold (another subject or environment, one more fact, another part
of it). FILE are more pairs: `{"pairs": [{"old", "new", "replaces": bool}]}`. It prints how many of each are marked by
the rule that a recall follows (`marked` in `retrieval/once.py`), and with `--show` those that are marked falsely.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Final

from remembrancer.actors.embedder.workers import load_engine
from remembrancer.config.settings import Settings
from remembrancer.memory.names import is_same_subject

PAIRS: Final = Path(__file__).parent / "superseded.txt"
MORE_PAIRS: Final = Path(__file__).parent / "replaced.json"


def main() -> int:
    """Print how many pairs are marked of how many."""
    parser = argparse.ArgumentParser(prog="bench.superseded", description=__doc__)
    parser.add_argument("files", type=Path, nargs="*", metavar="FILE")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.add_argument("--show", action="store_true", help="print the pairs that are marked falsely")
    given = parser.parse_args()
    pairs: list[tuple[str, str, str, bool]] = []
    for line in PAIRS.read_text(encoding="utf-8").splitlines():
        truth, old, new = line.split(" | ")
        pairs.append((PAIRS.name, old, new, truth == "replaces"))
    for file in (MORE_PAIRS, *given.files):
        read = json.loads(file.read_text(encoding="utf-8"))["pairs"]
        pairs += [(file.name, each["old"], each["new"], bool(each["replaces"])) for each in read]
    engine = load_engine(Settings(), 2)
    older = engine.embed_passages([old for _, old, _, _ in pairs])
    newer = engine.embed_passages([new for _, _, new, _ in pairs])
    figures: dict[str, dict[str, list[int]]] = {}
    for (name, old, new, replaces), cosine in zip(pairs, (older * newer).sum(axis=1).tolist(), strict=True):
        marked = is_same_subject(old, new, cosine)
        counts = figures.setdefault(name, {}).setdefault("replaces" if replaces else "only looks so", [0, 0])
        counts[0] += marked
        counts[1] += 1
        if given.show and marked and not replaces:
            print(f"wrong ({cosine:.2f}): {old} | {new}", file=sys.stderr)
    if given.json:
        print(json.dumps(figures, indent=2))
    else:
        for name, of in figures.items():
            print(name, ", ".join(f"{truth}: {marked} of {all_} marked" for truth, (marked, all_) in of.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
