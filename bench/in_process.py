"""The store's own search over whole data sets, in one process: `python -m bench.in_process --kept DIRECTORY FILE …`.

FILE holds LongMemEval, LoCoMo or several named sets (`bench/data_forms.py`). Records and vectors are made once and kept
in DIRECTORY; then a set takes seconds to be asked, which is what the ranking is tuned with. It prints the figures of
each set, with `--baselines` those of plain words and plain vectors beside them. What counts is measured through
the public tools (`bench.retrieval`, `bench.everyday`).
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from bench.abstention import queries, short_haystack
from bench.baselines import DEPTH, WordIndex, fused, read_passages
from bench.data_forms import UNDATED, Haystack, Item, Question
from bench.datasets import load_sets
from bench.everyday import read_everyday
from bench.measures import NAMES, Answered, by_kind, percentages
from remembrancer.actors.embedder.engine import Engine, scale_of
from remembrancer.actors.embedder.passages import PASSAGE_TOKENS, split_passages
from remembrancer.actors.embedder.workers import load_engine
from remembrancer.actors.store.records.contract import EmbeddedMemory, Vectors
from remembrancer.actors.store.records.memory_rows import digest_of
from remembrancer.actors.store.records.schema import MIGRATIONS
from remembrancer.actors.store.records.sqlite_records import SqliteRecords
from remembrancer.actors.store.retrieval.candidates import Source
from remembrancer.actors.store.retrieval.recalls import RunningRecall, recall
from remembrancer.actors.store.vectors.passage_index import ExactCollection, PassageIndex
from remembrancer.config.settings import Settings
from remembrancer.memory.ranking import DEFAULT_WEIGHTS
from remembrancer.memory.relevance import Evidence
from remembrancer.protocol.ids import derive_memory_id
from remembrancer.protocol.reads import Recall, RecalledMemory
from remembrancer.protocol.work import CosineScale, Passage
from remembrancer.protocol.writes import EntityRef, Operation, ProjectRef, StoreMemory

PROJECT: Final = ProjectRef("p_000000000000", "/project")
SESSION: Final = "s"
TOGETHER: Final = 50
"""Memories of a transaction."""
LATER_S: Final = 60.0
"""After the last memory happened."""


class Asking:
    """One haystack as a project whose every passage is searched exactly. `labels` are its memories' by their ids."""

    def __init__(
        self,
        haystack: Haystack,
        directory: Path,
        engine: Engine,
        threads: ThreadPoolExecutor,
        scale: CosineScale | None = None,
    ) -> None:
        self.haystack = haystack
        self.now = max(item.occurred_at for item in haystack.items) + LATER_S
        said = (haystack.entities,) if haystack.entities else ()
        made_of = repr((haystack.type, haystack.items, *said, MIGRATIONS, engine.identity)).encode()
        self.path = directory / f"{hashlib.sha256(made_of).hexdigest()[:24]}.db"
        is_kept = self.path.exists()
        making = self.path if is_kept else self.path.with_suffix(".part")
        self.records = SqliteRecords(making, PROJECT.id, lambda: self.now)
        self.model = engine.identity.key
        ids = [derive_memory_id(str(place), self.now) for place in range(len(haystack.items))]
        self.labels = {memory_id: item.label for memory_id, item in zip(ids, haystack.items, strict=True)}
        if not is_kept:
            for first in range(0, len(ids), TOGETHER):
                self._store(ids[first : first + TOGETHER], haystack.items[first : first + TOGETHER], engine)
            self.records.close()
            making.rename(self.path)
            self.records = SqliteRecords(self.path, PROJECT.id, lambda: self.now)
        index = PassageIndex(self.records, self.model, scale or scale_of(engine))
        index.reconcile(ExactCollection())
        self._source = Source(self.records, index)
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
                type=self.haystack.type,
                scope="project",
                session_id=SESSION,
                occurred_at=item.occurred_at,
                related_entities=tuple(
                    EntityRef(name, "thing", "about") for name in self.haystack.entities.get(item.label, ())
                ),
            )
            for memory_id, item in zip(ids, items, strict=True)
        ]
        made = []
        outcomes = self.records.apply(
            [Operation(change.memory_id, PROJECT, SESSION, self.now, change) for change in changes]
        )
        for outcome, item in zip(outcomes, items, strict=True):
            assert outcome.to_embed is not None
            budget = min(engine.passage_budget, PASSAGE_TOKENS)
            passages = [Passage(each.start, each.end) for each in split_passages(item.text, engine.tokenizer, budget)]
            vectors = engine.embed_passages([item.text[each.start : each.end] for each in passages])
            made.append(EmbeddedMemory(outcome.to_embed, digest_of(item.text), tuple(passages), vectors))
        self.records.save_embeddings(self.model, made)

    def _request(self, question: Question, **fields: Any) -> Recall:
        return Recall(
            SESSION,
            project=PROJECT,
            query=question.text,
            reference_time=question.asked_at,
            utc_offset_s=0.0,
            before=question.asked_at if self.haystack.before else None,
            **fields,
        )

    async def ask(self, question: Question, **fields: Any) -> tuple[RecalledMemory, ...]:
        """What a recall of ten answers. `fields` are further ones of the request."""

        async def embed(_: str) -> Vectors:
            return self.vectors[question.text]

        answer, _ = await recall(self._request(question, **fields), [self._source], embed, self._threads, self.now)
        return answer.memories

    def evidence(self, question: Question) -> list[tuple[Evidence, bool]]:
        """What speaks for each candidate of a recall, best first, and whether it answers."""
        running = RunningRecall(self._request(question), [self._source], self._threads, self.now, DEFAULT_WEIGHTS)
        running.vector = self.vectors[question.text]
        running.find_words()
        labels = [item.label for item in self.haystack.items]  # numbered from 1 in this order
        ranked = [key for key, _ in running.candidates()]
        return [
            (running.evidence[key], labels[key[1] - 1] in question.wanted) for key in ranked if key in running.evidence
        ]

    async def ranking(self, question: Question, **fields: Any) -> list[str]:
        """The labels of what a recall answers."""
        return [self.labels[each.id] for each in await self.ask(question, **fields)]

    def baselines(self) -> dict[str, list[Answered]]:
        """What plain words, plain vectors and their reciprocal ranks find for each question."""
        labels = [item.label for item in self.haystack.items]
        words = WordIndex([item.text for item in self.haystack.items])
        places = {memory_id: place for place, memory_id in enumerate(self.labels)}
        dimensions = len(next(iter(self.vectors.values())))
        vectors = read_passages(self.path, self.model, dimensions, places, len(labels))
        found: dict[str, list[Answered]] = {"bm25": [], "vectors": [], "rrf": []}
        for question in self.haystack.questions:
            deep = words.rank(question.text, len(labels)), vectors.rank(self.vectors[question.text], len(labels))
            both = [[place for place in ranked if self._may_answer(question, place)][:DEPTH] for ranked in deep]
            for name, ranked in zip(found, (*both, fused(both)), strict=True):
                found[name].append(Answered(question.kind, tuple(labels[each] for each in ranked), question.wanted))
        words.close()
        return found

    def _may_answer(self, question: Question, place: int) -> bool:
        return not self.haystack.before or self.haystack.items[place].occurred_at <= question.asked_at


class Sets:
    """The sets of these files, these haystacks, and with `own` those that come with the benchmark: `everyday` and
    `notes`."""

    def __init__(
        self,
        files: Sequence[Path],
        kept: Path,
        *,
        own: bool = False,
        haystacks: Sequence[Haystack] = (),
        engine: Engine | None = None,
        scale: CosineScale | None = None,
    ) -> None:
        self._haystacks = {name: each for file in files for name, each in load_sets(file).items()}
        self._haystacks |= {each.name: (each,) for each in haystacks}
        if own:
            self._haystacks |= {"everyday": (everyday_haystack(),), "notes": (notes_haystack(),)}
        self._kept = kept
        kept.mkdir(parents=True, exist_ok=True)
        self._engine, self._scale = engine or load_engine(Settings(), 2), scale
        self._threads = ThreadPoolExecutor(2)

    def __iter__(self) -> Iterator[str]:
        return iter(self._haystacks)

    def of(self, name: str) -> Iterator[Asking]:
        """The haystacks of a set, one after the other: each is closed when the next is asked for."""
        for haystack in self._haystacks[name]:
            asking = Asking(haystack, self._kept, self._engine, self._threads, self._scale)
            try:
                yield asking
            finally:
                asking.records.close()

    def embed(self, text: str) -> Vectors:
        """The vector of another question."""
        vector: Vectors = self._engine.embed_questions([text])[0]
        return vector


def everyday_haystack() -> Haystack:
    """The memories and questions of `bench.everyday`."""
    memories, asked = read_everyday()
    items = tuple(Item(label, text, UNDATED) for text, label in memories.items())
    questions = (Question(str(place), text, "", UNDATED, wanted) for place, (text, wanted) in enumerate(asked))
    return Haystack("everyday", items, tuple(questions), "semantic")


def notes_haystack() -> Haystack:
    """The short notes as facts, with the short questions about them and queries about nothing."""
    notes, short = short_haystack()
    asked = [(text, frozenset({notes.items[place].label})) for text, place in short]
    asked += [(text, frozenset()) for texts in queries().values() for text in texts]
    questions = (Question(str(place), text, "", UNDATED, wanted) for place, (text, wanted) in enumerate(asked))
    return Haystack("notes", notes.items, tuple(questions), "semantic")


def arguments(description: str | None) -> argparse.ArgumentParser:
    """What all benchmarks of this sort take."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="*", metavar="FILE", help="JSON, or that packed by xz or gzip")
    parser.add_argument("--kept", type=Path, required=True, metavar="DIRECTORY", help="where records are kept")
    return parser


def _line(name: str, answers: Sequence[Answered]) -> str:
    figures = percentages(answers)
    return f"{name:24} {len(answers):5}  " + "  ".join(f"{each} {figures[each]:5.1f}" for each in NAMES)


def main() -> None:
    """Ask all of it, and print the figures."""
    parser = arguments(__doc__)
    parser.add_argument("--kinds", action="store_true", help="also by the kind of question")
    parser.add_argument("--baselines", action="store_true", help="also of words and of vectors alone")
    given = parser.parse_args()
    sets = Sets(given.files, given.kept)
    for name in sets:
        answers: list[Answered] = []
        baselines: dict[str, list[Answered]] = {}
        for asking in sets.of(name):
            for question in asking.haystack.questions:
                ranked = asyncio.run(asking.ranking(question))
                answers.append(Answered(question.kind, tuple(ranked), question.wanted))
            for system, found in asking.baselines().items() if given.baselines else ():
                baselines.setdefault(system, []).extend(found)
        print(_line(name, answers), flush=True)
        for label, its in {**baselines, **(by_kind(answers) if given.kinds else {})}.items():
            print(_line(f"  {label}", its), flush=True)


if __name__ == "__main__":
    main()
