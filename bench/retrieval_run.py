"""Runs a data set through the real system: stores, embeds and queries its memories, only by the public tools."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec

from bench import abstention
from bench.answers import is_whole, shown_places, told
from bench.baselines import PassageVectors, WordIndex, fused, read_passages
from bench.client import ClientError, Json, StdioClient
from bench.data_forms import Haystack, Question
from bench.datasets import Dataset
from bench.harness import Runtime, runtime, wait_until
from bench.measures import Answered
from remembrancer.actors.embedder.engine import Engine
from remembrancer.actors.embedder.workers import load_engine
from remembrancer.config.reading import load_settings
from remembrancer.config.settings import Settings
from remembrancer.protocol.errors import RemembrancerError
from remembrancer.protocol.paths import RuntimePaths

SYSTEMS: Final = ("remembrancer", "bm25", "vectors", "rrf")
TOGETHER: Final = 25
"""The number of haystacks in one runtime. Its home is removed with it, which limits the disk space used."""
ATTEMPTS: Final = 5
PAUSE_S: Final = 0.5
CONNECTED_S: Final = 120.0
CALL_S: Final = 300.0
"""The time after which a call is given up; the system's own deadlines are far shorter."""
FAILURES: Final = 3
"""The number of consecutive failing projects after which the run ends."""
STALLED_S: Final = 900.0
SLOWEST_BYTES_PER_S: Final = 2_000.0
"""Embedding is given up if no memory was finished within `STALLED_S` plus the time for the longest memory at this
speed."""
LONGEST_BYTES: Final = 16_777_216
"""The largest value of `content_limit_bytes`."""
POLL_S: Final = 0.25
SAID_EVERY_S: Final = 15.0
RECORD: Final = "the record of a session"
"""The label of the record that the system writes at the end of the storing session."""
Say = Callable[[str], None]


class Failed(Exception):
    """The system keeps failing to do what it is asked."""


class Measurement:
    """The results of a run so far."""

    def __init__(self) -> None:
        self.answers: dict[str, list[Answered]] = {system: [] for system in SYSTEMS}
        self.recall_ms: list[float] = []
        """The time of each question: all attempts together, without the pauses between them."""
        self.empty = 0
        self.evidence_absent: list[str] = []
        """Questions with evidence that is in no memory; the missing part counts as not found."""
        self.problems: list[str] = []
        self.memories = self.characters = self.passages = self.asked_again = 0
        self.seconds: dict[str, float] = {}
        self.abstention: dict[str, list[bool]] = {}
        """By kind of query, whether each got an empty answer."""
        self.short: list[tuple[bool, bool]] = []
        """For each short question, whether it got an empty answer, and whether its note was in the answer."""
        self.details: list[Json] = []

    @contextmanager
    def timed(self, part: str) -> Iterator[None]:
        """Add the time of the block to a part's total."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[part] = self.seconds.get(part, 0.0) + time.perf_counter() - began


class _Project(msgspec.Struct):
    """A haystack in progress: the directory that makes it a project, and each memory's index by its id."""

    haystack: Haystack
    directory: Path
    places: dict[str, int]


class Run:
    """One run over a data set. `limit` is the number of memories that a recall asks for."""

    def __init__(self, *, limit: int, with_abstention: bool, with_details: bool, say: Say) -> None:
        self.measurement = Measurement()
        self._limit = limit
        self._with_abstention = with_abstention
        self._with_details = with_details
        self._say = say
        self._engine: Engine | None = None
        self._failures = 0
        self._stalled_s = STALLED_S
        self._said_at = time.perf_counter()

    async def over(self, dataset: Dataset) -> Measurement:
        """Measure the data set. Single failures are added to the `problems`. Raises `Failed` if nothing is measured."""
        haystacks = dataset.haystacks
        limit_bytes = min(LONGEST_BYTES, max(dataset.longest_bytes, Settings().content_limit_bytes))
        self._stalled_s = STALLED_S + dataset.longest_bytes / SLOWEST_BYTES_PER_S
        try:
            with self.measurement.timed("in all"):
                for first in range(0, len(haystacks), TOGETHER):
                    together = haystacks[first : first + TOGETHER]
                    named = f"projects {first + 1} to {first + len(together)} of {len(haystacks)}"
                    self._say(f"{named}: storing and embedding")
                    with self._spared(named):
                        await self._measure_together(together, limit_bytes)
                if self._with_abstention:
                    with self._spared("the short questions"):
                        await self._measure_short()
        except Failed as error:
            if not self.measurement.recall_ms:
                raise
            self._trouble(str(error))
        return self.measurement

    @contextmanager
    def _spared(self, what: str) -> Iterator[None]:
        """Report a failure in the block, and let the run continue; several failures in a row end it."""
        try:
            yield
            self._failures = 0
        except (Failed, RemembrancerError, ClientError, OSError) as error:
            self._failures += 1
            self._trouble(f"{what}: {error!r}")
            if self._failures >= FAILURES:
                raise Failed(f"given up after {what}: {error!r}") from error

    async def _measure_together(self, haystacks: Sequence[Haystack], limit_bytes: int) -> None:
        """Measure haystacks in a runtime of their own, with no other questions and no consolidation.

        The next project is stored while the last one's memories are embedded, so that embedding never waits.
        """
        timed = self.measurement.timed
        async with runtime(
            consolidator="0", consolidate_in_background="0", content_limit_bytes=str(limit_bytes)
        ) as running:
            projects = []
            async with self._session(running, running.home) as watching:
                for number, haystack in enumerate(haystacks):
                    with timed("storing"), self._spared(f"{haystack.name} is not asked about"):
                        projects.append(await self._store(running, number, haystack))
                        self.measurement.memories += len(haystack.items)
                        self.measurement.characters += sum(len(item.text) for item in haystack.items)
                with timed("embedding"):
                    await self._wait_until_embedded(watching)
            self._say(f"asking {sum(len(each.haystack.questions) for each in projects)} questions")
            with timed("asking"):
                for project in projects:
                    with self._spared(f"{project.haystack.name} is not asked about to the end"):
                        await self._ask(running, project)

    async def _measure_short(self) -> None:
        """Ask the short questions about short notes, in a separate project that counts for nothing else."""
        notes, questions = abstention.short_haystack()
        self._say(f"asking {len(questions)} short questions about {len(notes.items)} notes")
        async with runtime(consolidator="0", consolidate_in_background="0") as running:
            project = await self._store(running, 0, notes)
            async with self._session(running, project.directory) as client:
                await self._wait_until_embedded(client)
                for text, note in questions:
                    answer = await self._call(client, "recall_memories", query=text, limit=self._limit)
                    if is_whole(answer):
                        found = shown_places(answer["memories"], project.places)
                        self.measurement.short.append((not answer["memories"], note in found))
                    else:
                        self._trouble(f"the query {text!r} is not answered as it should be: {told(answer)}")

    def _session(self, running: Runtime, directory: Path) -> StdioClient:
        return StdioClient(
            running.home, cwd=directory, environ={**running.environ, "REMEMBRANCER_PROJECT": str(directory)}
        )

    async def _store(self, running: Runtime, number: int, haystack: Haystack) -> _Project:
        """Store a haystack's memories in order of time."""
        directory = running.home / "projects-of-the-benchmark" / f"{number:03d}"
        (directory / ".git").mkdir(parents=True)
        (directory / ".git" / "HEAD").touch()  # makes the directory a project root, wherever the home is
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
                    self._trouble(f"{haystack.name}: {item.label} is not stored: {told(answer)}")
                self._say_at_times(f"{haystack.name}: {place + 1} of {len(haystack.items)} memories are stored")
        return _Project(haystack, directory, places)

    async def _wait_until_embedded(self, client: StdioClient) -> None:
        """Wait until all memories of the runtime, in all projects, have vectors, as long as there is progress."""
        least, progress_at = float("inf"), time.perf_counter()
        while True:
            status = await _answer(client, "get_memory_status")
            now = time.perf_counter()
            embedding = status.get("embedding") or {}
            connected = (status.get("connection") or {}).get("status") == "connected"
            if connected and embedding.get("workers"):
                waiting = embedding["pending"] + (status.get("write_queue") or {}).get("depth", 0)
                if not waiting:
                    return
                if waiting < least:
                    least, progress_at = waiting, now
            if now - progress_at > self._stalled_s:
                raise Failed(f"embedding does not get on: {status}")
            awaited = (
                "the embedder is awaited" if least == float("inf") else f"{least:.0f} memories wait for their vectors"
            )
            self._say_at_times(awaited)
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
        labels = [*(item.label for item in project.haystack.items), RECORD]
        with closing(words):
            async with self._session(running, project.directory) as client:
                await _connect(client)
                offered = await _arguments(client, "recall_memories")
                for number, question in enumerate(project.haystack.questions):
                    with measured.timed("recalling"):
                        found = await self._recall(client, project, question, offered)
                    with measured.timed("baselines"):
                        by_words = words.rank(question.text)
                        by_vectors = vectors.rank(engine.embed_questions([question.text])[0])
                    rankings = (found, by_words, by_vectors, fused((by_words, by_vectors)))
                    self._note(question, labels, dict(zip(SYSTEMS, rankings, strict=True)))
                    self._say_at_times(f"{project.haystack.name}: {number + 1} questions are asked")
                if self._with_abstention:
                    with measured.timed("abstention"):
                        await self._ask_nonsense(client)

    async def _recall(
        self, client: StdioClient, project: _Project, question: Question, offered: frozenset[str]
    ) -> list[int]:
        """Return the indexes of the recalled memories; if the system does not answer, report a problem and return
        none."""
        measured = self.measurement
        arguments: Json = {"query": question.text, "limit": self._limit}
        if "reference_time" in offered:
            arguments["reference_time"] = iso(question.asked_at)
        if self._with_details and "detail" in offered:
            arguments["detail"] = True
        answer = await self._call(client, "recall_memories", timed=measured.recall_ms, **arguments)
        if not is_whole(answer):
            self._trouble(f"question {question.id} is not answered as it should be: {told(answer)}")
        memories = answer.get("memories", [])
        measured.empty += not memories
        places = project.places
        for unknown in [memory["id"] for memory in memories if memory["id"] not in places]:
            self._trouble(f"question {question.id}: a memory was found that was not stored: {unknown}")
        if self._with_details:
            shown = [{key: value for key, value in memory.items() if key != "content"} for memory in memories]
            measured.details.append({"id": question.id, "memories": shown})
        return shown_places(memories, places)

    async def _ask_nonsense(self, client: StdioClient) -> None:
        for sort, queries in abstention.queries().items():
            for query in queries:
                answer = await self._call(client, "recall_memories", query=query, limit=self._limit)
                if is_whole(answer):
                    self.measurement.abstention.setdefault(sort, []).append(not answer["memories"])
                else:
                    self._trouble(f"the query {query!r} is not answered as it should be: {told(answer)}")

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
        """Call a tool, repeating it several times if it answers in part or suggests a retry.

        `timed` gets the milliseconds of all attempts together, without the pauses between them.
        """
        answer: Json = {}
        took_ms = 0.0
        for attempt in range(ATTEMPTS):
            if attempt:
                self.measurement.asked_again += 1
                await asyncio.sleep(PAUSE_S)
            began = time.perf_counter()
            answer = await _answer(client, tool, **arguments)
            took_ms += (time.perf_counter() - began) * 1000
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

    def _say_at_times(self, text: str) -> None:
        """Report the progress, but not too often."""
        now = time.perf_counter()
        if now - self._said_at > SAID_EVERY_S:
            self._said_at = now
            self._say(text)


def iso(seconds: float) -> str:
    """Return a moment in the form that the tools accept."""
    return datetime.fromtimestamp(seconds, UTC).isoformat()


async def _answer(client: StdioClient, tool: str, **arguments: Any) -> Json:
    """Like `call_or_error`. Raises `TimeoutError` if there is no answer."""
    async with asyncio.timeout(CALL_S):
        return await client.call_or_error(tool, **arguments)


async def _connect(client: StdioClient) -> None:
    """Wait until the store answers. Raises `Failed`."""

    async def connected() -> bool:
        status = await _answer(client, "get_memory_status")
        return bool((status.get("connection") or {}).get("status") == "connected")

    try:
        await wait_until(connected, CONNECTED_S)
    except TimeoutError as error:
        raise Failed(f"the store has not answered for {CONNECTED_S:.0f} s") from error


async def _arguments(client: StdioClient, tool: str) -> frozenset[str]:
    """Return the names of a tool's arguments."""
    listed = await client.request("tools/list")
    return frozenset(
        name for each in listed["tools"] if each["name"] == tool for name in each["inputSchema"]["properties"]
    )


def _baselines(home: Path, project: _Project, engine: Engine) -> tuple[WordIndex, PassageVectors]:
    """Build the baselines' indexes over the same memories, with the vectors that the system made."""
    database = RuntimePaths(home).database
    texts = [item.text for item in project.haystack.items]
    identity = engine.identity
    vectors = read_passages(database, identity.key, identity.dimensions, project.places, len(texts))
    return WordIndex(texts), vectors
