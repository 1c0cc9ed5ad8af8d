"""A data set through the real system: its memories stored, embedded and asked about, by the public tools alone."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec

from bench import abstention
from bench.baselines import PassageVectors, WordIndex, fused, read_passages
from bench.client import Json, StdioClient
from bench.datasets import Dataset, Haystack, Question
from bench.harness import Runtime, runtime, wait_until
from bench.measures import Answered
from remembrancer.actors.embedder.engine import Engine, load_engine
from remembrancer.config.project import project_of
from remembrancer.config.settings import load_settings
from remembrancer.protocol.paths import RuntimePaths

SYSTEMS: Final = ("remembrancer", "bm25", "vectors", "rrf")
TOGETHER: Final = 25
"""Haystacks in one runtime. Its home is removed with it, so that the disk holds no more than so many."""
AHEAD: Final = 48
"""Memories that still wait for their vectors when the next haystack is stored: enough that embedding never pauses."""
ATTEMPTS: Final = 5
PAUSE_S: Final = 0.5
CONNECTED_S: Final = 60.0
STALLED_S: Final = 900.0
"""Embedding that has got no further in so long is not going to. Long memories are finished many at a time."""
POLL_S: Final = 0.25
SAID_EVERY_S: Final = 15.0
IN_PART: Final = frozenset({"partial_results", "embedding_failed", "query_timeout", "memory_unavailable"})
"""Warnings of an answer that was not searched for as it should be."""

Say = Callable[[str], None]


class Failed(Exception):
    """The system does not do what it is asked, however often."""


class Measurement:
    """What a run has found out so far."""

    def __init__(self) -> None:
        self.answers: dict[str, list[Answered]] = {system: [] for system in SYSTEMS}
        self.recall_ms: list[float] = []
        self.empty = 0
        self.evidence_absent: list[str] = []
        """Questions of whose evidence some is in no memory: what of it is missing counts as not found."""
        self.problems: list[str] = []
        self.memories = self.characters = self.passages = self.asked_again = 0
        self.seconds: dict[str, float] = {}
        self.abstention: dict[str, list[bool]] = {}
        """By the sort of query, whether each was answered by nothing."""
        self.details: list[Json] = []

    @contextmanager
    def timed(self, part: str) -> Iterator[None]:
        """Count the time of what is done in here."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[part] = self.seconds.get(part, 0.0) + time.perf_counter() - began


class _Project(msgspec.Struct):
    """A haystack on its way: the directory that makes it a project of its own, and each memory's place by its id."""

    haystack: Haystack
    directory: Path
    places: dict[str, int]


class Run:
    """One run over a data set. `limit` is how many memories a recall asks for."""

    def __init__(self, *, limit: int, with_abstention: bool, with_details: bool, say: Say) -> None:
        self.measurement = Measurement()
        self._limit = limit
        self._with_abstention = with_abstention
        self._with_details = with_details
        self._say = say
        self._engine: Engine | None = None

    async def over(self, dataset: Dataset) -> Measurement:
        """Measure. Raises `Failed` when nothing can be measured any more; lesser trouble is among the `problems`."""
        haystacks = dataset.haystacks
        for first in range(0, len(haystacks), TOGETHER):
            together = haystacks[first : first + TOGETHER]
            self._say(f"projects {first + 1} to {first + len(together)} of {len(haystacks)}: storing and embedding")
            with self.measurement.timed("in all"):
                await self._measure_together(together)
        return self.measurement

    async def _measure_together(self, haystacks: Sequence[Haystack]) -> None:
        """A runtime of their own: nothing but their questions is asked meanwhile, and nothing consolidates."""
        timed = self.measurement.timed
        async with runtime(consolidator="0", consolidate_in_background="0") as running:
            projects = []
            async with self._session(running, running.home) as watching:
                for number, haystack in enumerate(haystacks):
                    with timed("storing"):
                        projects.append(await self._store(running, number, haystack))
                    with timed("embedding"):
                        await self._wait_until_embedded(watching, AHEAD)
                with timed("embedding"):
                    await self._wait_until_embedded(watching, 0)
            self._say(f"asking {sum(len(each.questions) for each in haystacks)} questions")
            with timed("asking"):
                for project in projects:
                    await self._ask(running, project)

    def _session(self, running: Runtime, directory: Path) -> StdioClient:
        return StdioClient(
            running.home, cwd=directory, environ={**running.environ, "REMEMBRANCER_PROJECT": str(directory)}
        )

    async def _store(self, running: Runtime, number: int, haystack: Haystack) -> _Project:
        """Store a haystack's memories, one after the other, as they happened."""
        directory = running.home / "projects-of-the-benchmark" / f"{number:03d}"
        (directory / ".git").mkdir(parents=True)
        (directory / ".git" / "HEAD").touch()  # a root of its own, wherever the home may be
        places: dict[str, int] = {}
        async with self._session(running, directory) as client:
            await _connect(client)
            dated = "occurred_at" in await _arguments(client, "store_memory")
            for place, item in enumerate(haystack.items):
                memory: Json = {"content": item.text, "type": "episodic", "scope": "project", "allow_secrets": True}
                if dated:
                    memory["occurred_at"] = iso(item.occurred_at)
                answer = await self._call(client, "store_memory", **memory)
                if "memory_id" in answer:
                    places[answer["memory_id"]] = place
                else:
                    self._trouble(f"{haystack.name}: {item.label} is not stored: {answer}")
                self.measurement.characters += len(item.text)
        self.measurement.memories += len(haystack.items)
        return _Project(haystack, directory, places)

    async def _wait_until_embedded(self, client: StdioClient, but_for: int) -> None:
        """Wait until all memories of the runtime have their vectors but so many at the most."""
        least, progress_at = float("inf"), time.perf_counter()
        said_at = progress_at
        while True:
            status = await client.call_or_error("get_memory_status")
            now = time.perf_counter()
            embedding = status.get("embedding") or {}
            waiting = float(embedding.get("pending", 0) + (status.get("write_queue") or {}).get("depth", 0))
            if waiting <= but_for and embedding.get("workers") and status["connection"]["status"] == "connected":
                return
            if waiting < least:
                least, progress_at = waiting, now
            if now - progress_at > STALLED_S:
                raise Failed(f"embedding does not get on: {status}")
            if now - said_at > SAID_EVERY_S:
                self._say(f"{waiting:.0f} memories that are stored are still to be embedded")
                said_at = now
            await asyncio.sleep(POLL_S)

    async def _ask(self, running: Runtime, project: _Project) -> None:
        """Ask a haystack's questions, and the baselines after each."""
        measured = self.measurement
        if self._engine is None:
            settings = load_settings({**os.environ, **running.environ, "REMEMBRANCER_HOME": str(running.home)})
            self._engine = await asyncio.to_thread(load_engine, settings, 1)
        engine = self._engine
        with measured.timed("baselines"):
            words, vectors = await asyncio.to_thread(_baselines, running.home, project, engine)
        measured.passages += len(vectors.rows)
        if vectors.texts_without:
            self._trouble(f"{project.haystack.name}: {vectors.texts_without} memories have no vectors")
        labels = [item.label for item in project.haystack.items]
        async with self._session(running, project.directory) as client:
            await _connect(client)
            offered = await _arguments(client, "recall_memories")
            for question in project.haystack.questions:
                with measured.timed("recalling"):
                    found = await self._recall(client, project, question, offered)
                with measured.timed("baselines"):
                    by_words = words.rank(question.text)
                    by_vectors = vectors.rank(engine.embed_questions([question.text])[0])
                rankings = (found, by_words, by_vectors, fused((by_words, by_vectors)))
                self._note(question, labels, dict(zip(SYSTEMS, rankings, strict=True)))
            if self._with_abstention:
                with measured.timed("abstention"):
                    await self._ask_nonsense(client)
        words.close()

    async def _recall(
        self, client: StdioClient, project: _Project, question: Question, offered: frozenset[str]
    ) -> list[int]:
        """The places of what is recalled; nothing, and a problem that is told, when the system does not answer."""
        measured = self.measurement
        arguments: Json = {"query": question.text, "limit": self._limit}
        if "reference_time" in offered:
            arguments["reference_time"] = iso(question.asked_at)
        if self._with_details and "scores" in offered:
            arguments["scores"] = True
        answer = await self._call(client, "recall_memories", timed=measured.recall_ms, **arguments)
        if not is_whole(answer):
            self._trouble(f"question {question.id} is not answered as it should be: {answer}")
        memories = answer.get("memories", [])
        measured.empty += not memories
        unknown = [memory["id"] for memory in memories if memory["id"] not in project.places]
        if unknown:
            self._trouble(f"question {question.id}: memories were found that were not stored: {unknown}")
        if self._with_details:
            shown = [{key: value for key, value in memory.items() if key != "content"} for memory in memories]
            measured.details.append({"id": question.id, "memories": shown})
        return [project.places[memory["id"]] for memory in memories if memory["id"] in project.places]

    async def _ask_nonsense(self, client: StdioClient) -> None:
        for sort, queries in abstention.queries().items():
            for query in queries:
                answer = await self._call(client, "recall_memories", query=query, limit=self._limit)
                if is_whole(answer):
                    self.measurement.abstention.setdefault(sort, []).append(not answer["memories"])
                else:
                    self._trouble(f"the query {query!r} is not answered as it should be: {answer}")

    def _note(self, question: Question, labels: Sequence[str], rankings: dict[str, list[int]]) -> None:
        measured = self.measurement
        if not question.wanted <= set(labels):
            measured.evidence_absent.append(question.id)
        ranked = {system: tuple(labels[place] for place in places) for system, places in rankings.items()}
        for system, found in ranked.items():
            measured.answers[system].append(Answered(question.kind, found, question.wanted))
        if self._with_details:
            measured.details[-1] |= {
                "kind": question.kind,
                "question": question.text,
                "wanted": sorted(question.wanted),
                "ranked": ranked,
            }

    async def _call(
        self, client: StdioClient, tool: str, *, timed: list[float] | None = None, **arguments: Any
    ) -> Json:
        """Call a tool; again, some times, where it answers in part or says that to try again may help."""
        answer: Json = {}
        for attempt in range(ATTEMPTS):
            if attempt:
                self.measurement.asked_again += 1
                await asyncio.sleep(PAUSE_S)
            began = time.perf_counter()
            answer = await client.call_or_error(tool, **arguments)
            took_ms = (time.perf_counter() - began) * 1000
            if "error" not in answer and (tool != "recall_memories" or is_whole(answer)):
                break
            if "error" in answer and not answer.get("retry_possible"):
                break
        if timed is not None:
            timed.append(took_ms)
        return answer

    def _trouble(self, problem: str) -> None:
        self.measurement.problems.append(problem)
        self._say(problem)


def is_whole(answer: Json) -> bool:
    """Whether a recall searched all that there is."""
    codes = {warning.get("code") for warning in answer.get("warnings", ())}
    return "memories" in answer and not answer.get("degraded") and not codes & IN_PART


def iso(seconds: float) -> str:
    """A moment as the tools take it."""
    return datetime.fromtimestamp(seconds, UTC).isoformat()


async def _connect(client: StdioClient) -> None:
    """Wait until the store answers. Raises `Failed`."""

    async def connected() -> bool:
        status = await client.call_or_error("get_memory_status")
        return bool((status.get("connection") or {}).get("status") == "connected")

    try:
        await wait_until(connected, CONNECTED_S)
    except TimeoutError as error:
        raise Failed(f"the store has not answered for {CONNECTED_S:.0f} s") from error


async def _arguments(client: StdioClient, tool: str) -> frozenset[str]:
    """What a tool offers to be told."""
    listed = await client.request("tools/list")
    return frozenset(
        name for each in listed["tools"] if each["name"] == tool for name in each["inputSchema"]["properties"]
    )


def _baselines(home: Path, project: _Project, engine: Engine) -> tuple[WordIndex, PassageVectors]:
    """The baselines' indexes over the same memories; the vectors are those that the system has made of them."""
    database = RuntimePaths(home).project_database(project_of(project.directory).id)
    texts = [item.text for item in project.haystack.items]
    identity = engine.identity
    vectors = read_passages(database, identity.key, identity.dimensions, project.places, len(texts))
    return WordIndex(texts), vectors
