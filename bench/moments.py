"""Tests memory at the moment of action: `python -m bench.moments [FILE …]`.

FILE (default: `bench/moments.jsonl`, the days of two projects) has one array per line: `["project", name, about]`
begins a project, `["m", id, kind, text]` is one of its memories, and `["$", command, id…]` and `[">", path, old, new,
id…]` are a command and an edit with their relevant memories. All memories are stored in one session. Another session
then announces each action in random order, as the `PreToolUse` hook does, as if nothing had been given before. Figures:
the share of actions with relevant memories that are given them, and the share of other actions that are given any.
"""

import argparse
import asyncio
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from bench.client import Json
from bench.harness import Figure, Runtime, drained, play_in_projects, print_figures, wait_until
from remembrancer.commands.hook import action_of
from remembrancer.protocol.kinds import KINDS

OWN: Final = Path(__file__).with_name("moments.jsonl")
EMBEDDED_S: Final = 300.0
LEAST_TOLD: Final = 100 * 40 / 60
MOST_TOLD_WRONGLY: Final = 100 * 6 / 300


@dataclass
class Day:
    """A project: its memories by their ids in the file, and the actions with their relevant memories."""

    name: str
    memories: dict[str, tuple[str, str]] = field(default_factory=dict)
    actions: list[tuple[Json, frozenset[str]]] = field(default_factory=list)


@dataclass(frozen=True)
class Played:
    """An action, its relevant memories, and those given for it."""

    project: str
    action: Json
    bearing: frozenset[str]
    told: tuple[str, ...]


def read(path: Path) -> list[Day]:
    """Read the days of a file."""
    days: list[Day] = []
    for line in path.read_text().splitlines():
        match json.loads(line):
            case ["project", name, *_]:
                days.append(Day(name))
            case ["m", key, kind, text]:
                days[-1].memories[key] = (kind, text)
            case ["$", command, *bearing]:
                days[-1].actions.append(({"command": command}, frozenset(bearing)))
            case [">", file, old, new, *bearing]:
                edit = {"file_path": file, "old_string": old, "new_string": new}
                days[-1].actions.append((edit, frozenset(bearing)))
    return days


async def play(running: Runtime, directory: Path, day: Day) -> list[Played]:
    """Store a day's memories, and ask before each of its actions."""
    keys: dict[str, str] = {}
    async with running.client(directory) as client:
        for key, (kind, text) in day.memories.items():
            told: dict[str, Any] = {"kind": kind} if kind in KINDS else {}
            answer = await client.call("store_memory", content=text, scope="project", **told)
            keys[(await client.call("get_memory", memory_id=answer["memory_id"]))["id"]] = key
        await wait_until(lambda: drained(client), EMBEDDED_S, 0.2)
    played = []
    async with running.client(directory) as client:
        for called, bearing in random.Random(day.name).sample(day.actions, len(day.actions)):
            action = action_of(called)
            answer = {"memory_ids": []}
            if action is not None:
                answer = await client.call("get_memory_context", action=action)
            names = [key for whole, key in keys.items() for each in answer["memory_ids"] if whole.endswith(each)]
            played.append(Played(day.name, called, bearing, tuple(names)))
    return played


def figures(played: Sequence[Played], name: str) -> list[Figure]:
    """Return the figures of a project, or of all."""
    bearing = [each for each in played if each.bearing]
    others = [each for each in played if not each.bearing]
    told = sum(not each.bearing.isdisjoint(each.told) for each in bearing)
    wrongly = sum(bool(each.told) for each in others)
    return [
        Figure(f"{name}: told, of {len(bearing)}", 100 * told / max(1, len(bearing)), "%", LEAST_TOLD, True),
        Figure(f"{name}: told wrongly, of {len(others)}", 100 * wrongly / max(1, len(others)), "%", MOST_TOLD_WRONGLY),
    ]


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="*", metavar="FILE", default=[OWN])
    asked = parser.parse_args()
    played = [
        each
        for day in asyncio.run(play_in_projects([day for file in asked.files for day in read(file)], play))
        for each in day
    ]
    projects = list(dict.fromkeys(each.project for each in played))
    rows = [row for name in projects for row in figures([each for each in played if each.project == name], name)]
    print_figures([*rows, *figures(played, "all")])


if __name__ == "__main__":
    main()
