"""Runs the store's own search on whole data sets, in one process: `python -m bench.in_process --kept DIRECTORY FILE …`.

FILE has data in any format of `bench/datasets.py`. Records with their vectors are made once and kept in DIRECTORY.
After that, a set takes seconds, which is fast enough for tuning the ranking. It prints the figures of each set and,
with `--baselines`, those of words alone and vectors alone. The official figures are measured through the public tools
(`bench.retrieval`).
"""

import argparse
import asyncio
import functools
import hashlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import MappingProxyType
from typing import Final

import numpy as np

from bench.baselines import WordIndex, rank_all, read_passages
from bench.datasets import OWN_SETS, Haystack, Item, Question, load_sets
from bench.measures import NAMES, Answered, percentages
from remembrancer.actors.embedder.engine import Engine
from remembrancer.actors.embedder.workers import load_engine, passages_of
from remembrancer.actors.sqlite_file import SqliteFile
from remembrancer.actors.store.records.found_entities import find_names
from remembrancer.actors.store.records.memory_rows import digest_of
from remembrancer.actors.store.records.schema import MEMORY
from remembrancer.actors.store.records.sqlite_records import Records
from remembrancer.actors.store.records.types import EmbeddedMemory, Vectors
from remembrancer.actors.store.retrieval.candidates import find_words
from remembrancer.actors.store.retrieval.question import read_question
from remembrancer.actors.store.retrieval.recalls import columns, gather, recall
from remembrancer.actors.store.retrieval.view import Source, View
from remembrancer.actors.store.vectors.exact_vectors import ExactVectors
from remembrancer.config.settings import Settings
from remembrancer.memory.features import FEATURES, table
from remembrancer.memory.features import Column as Features
from remembrancer.protocol.ids import derive_memory_id
from remembrancer.protocol.kinds import kind_of_type, type_of_kind
from remembrancer.protocol.reads import Recall
from remembrancer.protocol.work import Passage
from remembrancer.protocol.writes import EntityRef, Operation, ProjectRef, StoreMemory
from tests.contracts.records_rig import apply

PROJECT: Final = ProjectRef("p_000000000000", "/project")
SESSION: Final = "s"
TOGETHER: Final = 50
"""The number of memories in a transaction."""
LATER_S: Final = 60.0
"""The time between the last memory and the questions."""


class Asking:
    """One haystack as a project with exact search of all passages. `labels` are its memories' labels by id."""

    def __init__(self, haystack: Haystack, directory: Path, engine: Engine, threads: ThreadPoolExecutor) -> None:
        self.haystack = haystack
        self.now = max(item.occurred_at for item in haystack.items) + LATER_S
        said = [each for each in (haystack.entities, haystack.supersedes) if each]
        made_of = repr((haystack.type, haystack.items, *said, MEMORY.steps, engine.identity)).encode()
        self.path = directory / f"{hashlib.sha256(made_of).hexdigest()[:24]}.db"
        is_kept = self.path.exists()
        making = self.path if is_kept else self.path.with_suffix(".part")
        self.records = Records(SqliteFile(making, MEMORY), PROJECT.id, lambda: self.now)
        self.model = engine.identity.key
        ids = [derive_memory_id(str(place), self.now) for place in range(len(haystack.items))]
        self.labels = {memory_id: item.label for memory_id, item in zip(ids, haystack.items, strict=True)}
        self._ids = {label: memory_id for memory_id, label in self.labels.items()}
        if not is_kept:
            for first in range(0, len(ids), TOGETHER):
                self._store(ids[first : first + TOGETHER], haystack.items[first : first + TOGETHER], engine)
            self.records.close()
            making.rename(self.path)
            self.records = Records(SqliteFile(self.path, MEMORY), PROJECT.id, lambda: self.now)
        while find_names(self.records.spaces.file, self.now):
            pass  # as the store does in the background
        vectors_of_all = ExactVectors(self.records, self.model)
        vectors_of_all.scale = engine.scale
        self._view = View([Source(self.records, vectors_of_all)])
        self._threads = threads
        vectors = engine.embed_questions([question.text for question in haystack.questions])
        self.vectors: dict[str, Vectors] = dict(
            zip((question.text for question in haystack.questions), vectors, strict=True)
        )

    def _store(self, ids: Sequence[str], items: Sequence[Item], engine: Engine) -> None:
        changes = [
            StoreMemory(
                memory_id=memory_id,
                content=item.text,
                kind=item.kind or kind_of_type(self.haystack.type),
                type=type_of_kind(item.kind) if item.kind else self.haystack.type,
                scope="project",
                session_id=SESSION,
                occurred_at=item.occurred_at,
                supersedes=self._ids.get(self.haystack.supersedes.get(item.label, "")),
                related_entities=tuple(
                    EntityRef(name, "thing", "about") for name in self.haystack.entities.get(item.label, ())
                ),
            )
            for memory_id, item in zip(ids, items, strict=True)
        ]
        made = []
        apply(self.records, [Operation(change.memory_id, PROJECT, SESSION, self.now, change) for change in changes])
        for memory_id, item in zip(ids, items, strict=True):
            number = self.records.number_of(memory_id)
            assert number is not None
            passages = [Passage(each.start, each.end) for each in passages_of(engine, item.text)]
            vectors = engine.embed_passages([item.text[each.start : each.end] for each in passages])
            made.append(EmbeddedMemory(number, digest_of(item.text), tuple(passages), vectors))
        self.records.save_embeddings(self.model, made)

    def _request(self, question: Question) -> Recall:
        return Recall(
            SESSION,
            project=PROJECT,
            query=question.text,
            reference_time=question.asked_at,
            before=question.asked_at if self.haystack.before else None,
        )

    def candidates(self, question: Question, *, by_words: bool = False) -> tuple[Features, list[str]]:
        """Return the features of a recall's candidates (candidates, features), and their labels. `by_words`: without
        vectors."""
        request = self._request(question)
        search = find_words(self._view, read_question(request, self.now))
        if not by_words:
            search = search._replace(vector=self.vectors[question.text])
        rows, _ = gather(search)
        if not len(rows):
            return np.zeros((0, len(FEATURES))), []
        labels = [item.label for item in self.haystack.items]  # numbered from 1 in this order
        return table(columns(search, rows), search.question.asked), [labels[number - 1] for number in rows.refs]

    async def ranking(self, question: Question) -> list[str]:
        """Return the labels of the memories in a recall of ten."""

        async def embed(_: str) -> Vectors:
            return self.vectors[question.text]

        answer = await recall(self._request(question), self._view, embed, self._threads, self.now)
        return [self.labels[each.id] for each in answer.memories]

    def baselines(self) -> dict[str, list[Answered]]:
        """Return, for each question, the results of words, of vectors, of their reciprocal ranks and of their mean."""
        labels = [item.label for item in self.haystack.items]
        words = WordIndex([item.text for item in self.haystack.items])
        places = {memory_id: place for place, memory_id in enumerate(self.labels)}
        dimensions = len(next(iter(self.vectors.values())))
        vectors = read_passages(self.path, self.model, dimensions, places, len(labels))
        found: dict[str, list[Answered]] = defaultdict(list)
        for question in self.haystack.questions:
            if not question.wanted:
                continue
            rankings = rank_all(
                question.text,
                self.vectors[question.text],
                words,
                vectors,
                functools.partial(self._may_answer, question),
            )
            for name, ranked in rankings.items():
                found[name].append(Answered(question.kind, tuple(labels[each] for each in ranked), question.wanted))
        words.close()
        return found

    def _may_answer(self, question: Question, place: int) -> bool:
        return not self.haystack.before or self.haystack.items[place].occurred_at <= question.asked_at


class Sets:
    """The sets of these files, those given by name, and with `own` those that come with the benchmark: `everyday`,
    `notes` and `advice`."""

    def __init__(
        self,
        files: Sequence[Path],
        kept: Path,
        *,
        own: bool = False,
        haystacks: Mapping[str, Sequence[Haystack]] = MappingProxyType({}),
        engine: Engine | None = None,
    ) -> None:
        self._haystacks = {
            name: each for file in (*files, *(OWN_SETS if own else ())) for name, each in load_sets(file).items()
        }
        self._haystacks |= {name: tuple(each) for name, each in haystacks.items()}
        self._kept = kept
        kept.mkdir(parents=True, exist_ok=True)
        self._engine = engine or load_engine(Settings(), 2)
        self._threads = ThreadPoolExecutor(2)

    def __iter__(self) -> Iterator[str]:
        return iter(self._haystacks)

    def questions(self, name: str) -> int:
        """Return the number of questions of a set."""
        return sum(len(each.questions) for each in self._haystacks[name])

    def of(self, name: str) -> Iterator[Asking]:
        """Yield the haystacks of a set; each is closed before the next one."""
        for haystack in self._haystacks[name]:
            asking = Asking(haystack, self._kept, self._engine, self._threads)
            try:
                yield asking
            finally:
                asking.records.close()


def arguments(description: str | None) -> argparse.ArgumentParser:
    """Return a parser with the common arguments of these benchmarks."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="*", metavar="FILE", help="JSON, or that packed by xz or gzip")
    parser.add_argument("--kept", type=Path, required=True, metavar="DIRECTORY", help="where records are kept")
    return parser


def _line(name: str, answers: Sequence[Answered]) -> str:
    figures = percentages(answers)
    return f"{name:24} {len(answers):5}  " + "  ".join(f"{each} {figures[each]:5.1f}" for each in NAMES)


def main() -> None:
    """Ask all questions, and print the figures."""
    parser = arguments(__doc__)
    parser.add_argument("--baselines", action="store_true", help="also of words and of vectors alone")
    given = parser.parse_args()
    sets = Sets(given.files, given.kept)
    for name in sets:
        answers: list[Answered] = []
        baselines: dict[str, list[Answered]] = {}
        for asking in sets.of(name):
            for question in asking.haystack.questions:
                if not question.wanted:
                    continue
                ranked = asyncio.run(asking.ranking(question))
                answers.append(Answered(question.kind, tuple(ranked), question.wanted))
            for system, found in asking.baselines().items() if given.baselines else ():
                baselines.setdefault(system, []).extend(found)
        print(_line(name, answers), flush=True)
        for label, its in baselines.items():
            print(_line(f"  {label}", its), flush=True)


if __name__ == "__main__":
    main()
