"""The memories that an answer to a store names, and those that it replaces: `python -m bench.near FILE … [--json]`.

FILE is a week of memories with the questions that are asked about them. A memory replaces an earlier one where it says
so (`supersedes`), or where a question about what has changed has it as the answer and the earlier one as `stale`. The
memories of a week are stored one after the other; printed is of how many that replace one an earlier one is among the
at most three that the answer names: by words, and together with the nearest by meaning, as for who waits for the
embedding. `named` is how many an answer names on average.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.harness import Figure, print_figures
from remembrancer.actors.embedder.engine import Engine, scale_of
from remembrancer.actors.embedder.workers import load_engine
from remembrancer.actors.store.near_memories import NAMED, near_by_meaning, near_by_words
from remembrancer.actors.store.records.contract import EmbeddedMemory
from remembrancer.actors.store.records.memory_rows import digest_of
from remembrancer.actors.store.records.sqlite_records import SqliteRecords
from remembrancer.actors.store.vectors.exact_vectors import ExactVectors
from remembrancer.config.settings import Settings
from remembrancer.protocol.ids import derive_memory_id
from remembrancer.protocol.work import Passage
from remembrancer.protocol.writes import NearMemory, Operation, ProjectRef, StoreMemory
from remembrancer.toolsets.memory.answers import near_of

SESSION = "s"


def replaced_in(week: dict[str, Any]) -> dict[str, set[str]]:
    """By memory the earlier ones that it replaces."""
    order = [each["id"] for each in week["memories"]]
    replaced: defaultdict[str, set[str]] = defaultdict(set)
    for each in week["memories"]:
        if each["supersedes"]:
            replaced[each["id"]].add(each["supersedes"])
    for question in week["questions"]:
        for wanted in question["wanted"]:
            replaced[wanted].update(each for each in question["stale"] if order.index(each) < order.index(wanted))
    return {memory: earlier for memory, earlier in replaced.items() if earlier}


class StoredWeek:
    """The projects of a week as files of records, which are filled memory by memory."""

    def __init__(self, directory: Path, engine: Engine) -> None:
        self._directory = directory
        self._engine = engine
        self._files: dict[str, tuple[SqliteRecords, ExactVectors]] = {}

    def store(self, memory_id: str, project: str, text: str) -> tuple[Sequence[NearMemory], Sequence[NearMemory]]:
        """Store a memory: what is near it by words and by meaning."""
        if project not in self._files:
            records = SqliteRecords(self._directory / f"{project}.db", project, time.time)
            index = ExactVectors(records, self._engine.identity.key, scale_of(self._engine))
            self._files[project] = records, index
        records, index = self._files[project]
        by_words = near_by_words(records, text, SESSION)
        change = StoreMemory(memory_id=memory_id, content=text, type="semantic", scope="project", session_id=SESSION)
        ref = ProjectRef("p_000000000000", "/project")
        (outcome,) = records.apply([Operation(memory_id, ref, SESSION, time.time(), change)])
        assert outcome.to_embed is not None
        vectors = self._engine.embed_passages([text])
        embedded = EmbeddedMemory(outcome.to_embed, digest_of(text), (Passage(0, len(text)),), vectors)
        records.save_embeddings(index.model, [embedded])
        return by_words, near_by_meaning(records, index, index.model, outcome.to_embed, SESSION)


def figures_of(path: Path, engine: Engine) -> list[Figure]:
    """Play the stores of a week."""
    week = json.loads(path.read_text(encoding="utf-8"))
    replaced = replaced_in(week)
    ids = {each["id"]: derive_memory_id(each["id"], time.time()) for each in week["memories"]}
    found = {"by words": 0, "with vectors": 0}
    named: dict[str, list[int]] = {way: [] for way in found}
    with tempfile.TemporaryDirectory() as directory:
        stored = StoredWeek(Path(directory), engine)
        for each in week["memories"]:
            by_words, by_meaning = stored.store(ids[each["id"]], each["project"], each["text"])
            wanted = {ids[other] for other in replaced.get(each["id"], ())}
            for way, near in (("by words", near_of(by_words)), ("with vectors", near_of(by_meaning, by_words))):
                shown = {one["id"] for one in near.get("near", ())}
                named[way].append(len(shown))
                found[way] += bool(wanted & shown)
    return [
        Figure(f"{path.stem}: memories that replace one", len(replaced), "", 0),
        *(Figure(f"{path.stem}: of those, named {way}", hits, "", 0) for way, hits in found.items()),
        *(Figure(f"{path.stem}: named {way}, of {NAMED}", statistics.mean(each), "", 0) for way, each in named.items()),
    ]


def main() -> None:
    """Print the table, or with `--json` the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    engine = load_engine(Settings(), 2)
    print_figures([figure for path in given.files for figure in figures_of(path, engine)], as_json=given.json)


if __name__ == "__main__":
    main()
