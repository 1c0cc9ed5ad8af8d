"""Names that become entities by themselves: `python -m bench.names FILE … [--json]`.

FILE is a week of memories, each of which is stored in its project. Printed is, for each week, how many names become
entities, how many memories have one, how many of these are joined to another by one, and the share that are names, by
the verdicts in `found_names.txt`: every name that was found in three weeks, looked at by a person (`+` a name of
something, `-` none, or a part of one). What has no verdict is printed, and does not count.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Final

from bench.harness import Figure, print_figures
from remembrancer.actors.store.records.sqlite_records import SqliteRecords
from remembrancer.memory.names import name_key
from remembrancer.protocol.ids import derive_memory_id
from remembrancer.protocol.writes import Operation, ProjectRef, StoreMemory

VERDICTS: Final = Path(__file__).with_name("found_names.txt")
PROJECT: Final = ProjectRef("p_000000000000", "/project")
NOW: Final = 1_700_000_000.0
LEAST: Final = 95.0


def verdicts() -> dict[str, bool]:
    """By key whether a name is one."""
    lines = VERDICTS.read_text(encoding="utf-8").splitlines()
    return {name_key(line[2:]): line[0] == "+" for line in lines if line}


def found_in(path: Path) -> tuple[list[str], list[tuple[str, ...]]]:
    """The entities of the projects of a week, and those of each of its memories."""
    week = json.loads(path.read_text(encoding="utf-8"))
    entities: list[str] = []
    of_memories: list[tuple[str, ...]] = []
    for project in week["projects"]:
        with tempfile.TemporaryDirectory() as directory:
            records = SqliteRecords(Path(directory) / "memory.db", project, lambda: NOW)
            ids = []
            for each in week["memories"]:
                if each["project"] == project:
                    ids.append(derive_memory_id(each["id"], NOW))
                    change = StoreMemory(
                        memory_id=ids[-1],
                        content=each["text"],
                        type="semantic",
                        scope="project",
                        session_id="s",
                        kind=each["kind"],
                    )
                    records.apply([Operation(each["id"], PROJECT, "s", NOW, change)])
            while records.tidy():
                pass
            named = [records.surroundings(each, "", None).found_entities for each in ids]
            records.close()
        entities += dict.fromkeys(name for names in named for name in names)
        of_memories += named
    return entities, of_memories


def figures_of(path: Path) -> list[Figure]:
    """Find the names of a week, and hold them against the verdicts."""
    known = verdicts()
    entities, of_memories = found_in(path)
    judged = [known[name_key(each)] for each in entities if name_key(each) in known]
    for each in entities:
        if name_key(each) not in known:
            print(f"{path.stem}: no verdict on {each}", file=sys.stderr)
    having = Counter(name for names in of_memories for name in names)
    joined = sum(any(having[name] > 1 for name in names) for names in of_memories)
    return [
        Figure(f"{path.stem}: entities found", len(entities), "", 0),
        Figure(f"{path.stem}: of those with a verdict", len(judged), "", 0),
        Figure(f"{path.stem}: that are names", 100 * sum(judged) / max(1, len(judged)), "%", LEAST, True),
        Figure(f"{path.stem}: memories with one, of {len(of_memories)}", sum(map(bool, of_memories)), "", 0),
        Figure(f"{path.stem}: memories that one joins to another", joined, "", 0),
    ]


def main() -> None:
    """Print the table, or with `--json` the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    print_figures([figure for path in given.files for figure in figures_of(path)], as_json=given.json)


if __name__ == "__main__":
    main()
