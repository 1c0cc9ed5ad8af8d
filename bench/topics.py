"""The effect of summing up: `python -m bench.topics [--only HALF …] [--json]`.

Two hundred memories of forty topics (`topics.txt`) are stored shuffled and consolidated by `reflect_and_consolidate`.
Thresholds may be chosen on the half `tuned`; `held out` is only reported, as are `both` halves in one project.

- purity: the share of the memories behind a summary that are of its commonest topic;
- statements lost: memories behind a summary of which a sentence is neither in an active memory, nor said by one that
  the data calls the same;
- each topic is asked for before and after: the statements of the topic in an answer, and the sources beside a summary
  that has them;
- with `--weeks FILE …`, weeks of memories as `bench.weeks` takes them: the summaries and patterns that are planned for
  their projects (`--show` prints them);
- small projects: the purity over projects of 20 of these memories, half of which have no topic that could be summed up
  (at most two memories of each), and half of which have three.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from bench.client import Json, StdioClient
from bench.harness import Figure, drained, fill, print_figures, runtime, wait_until
from remembrancer.actors.consolidator.derived_memories import plan_patterns, plan_summaries
from remembrancer.actors.embedder.engine import Engine
from remembrancer.actors.embedder.passages import split_passages
from remembrancer.actors.embedder.workers import load_engine
from remembrancer.config.settings import Settings
from remembrancer.protocol.consolidation import Material
from remembrancer.protocol.kinds import KINDS, Kind, type_of_kind

DATA: Final = Path(__file__).with_name("topics.txt")
HALVES: Final = ("tuned", "held out", "both")
SHOWN: Final = 5
"""Results of an answer."""
LEAST: Final = 3
"""Memories of a topic that can be summed up."""
SMALL: Final = 20
"""Memories of a small project."""
PROJECTS: Final = 100
"""Small projects of each sort."""


class Statement(msgspec.Struct, frozen=True):
    """A memory and its topic. `same_as` is the text of another one that says the same."""

    text: str
    topic: str
    same_as: str | None = None


class Topics(msgspec.Struct, frozen=True):
    """The statements of a half, and a question about each topic."""

    statements: tuple[Statement, ...]
    questions: dict[str, str]


def load_topics(half: str) -> Topics:
    """A half of the data, or both."""
    statements: list[Statement] = []
    questions: dict[str, str] = {}
    wanted, topic = False, ""
    for line in DATA.read_text().splitlines():
        mark, _, rest = line.partition(" ")
        if mark == "#":
            wanted = half in (rest, "both")
        elif mark == "@" and wanted:
            topic, _, questions_text = rest.partition(" | ")
            questions[topic] = questions_text
        elif mark in ("-", "=") and wanted:
            first = next((each.text for each in statements if each.topic == topic), None)
            statements.append(Statement(rest, topic, first if mark == "=" else None))
    return Topics(tuple(statements), questions)


def is_said(statement: Statement, by: Iterable[str], statements: Sequence[Statement]) -> bool:
    """True if the texts have every sentence of a statement, or of one that says the same."""
    told = [_plain(text) for text in by]
    wordings = {statement.text, statement.same_as} | {
        each.text for each in statements if each.same_as in (statement.text, statement.same_as) and each.same_as
    }
    return any(
        all(any(_plain(sentence) in text for text in told) for sentence in re.split(r"(?<=[.!?])\s+", wording))
        for wording in wordings
        if wording
    )


def purity(clusters: Sequence[Sequence[str]]) -> float:
    """Of the topics of some clusters' members: the share that is the commonest of its cluster. 1 without clusters."""
    members = sum(map(len, clusters))
    return sum(max(Counter(each).values()) for each in clusters) / members if members else 1.0


def small_projects(statements: Sequence[Statement], numbers: random.Random) -> Iterator[list[Statement]]:
    """Projects of `SMALL` statements: of topics of which there are one or two, and the same with three of four."""
    topics: dict[str, list[Statement]] = {}
    for each in statements:
        topics.setdefault(each.topic, []).append(each)
    large = [each for each in topics.values() if len(each) >= LEAST + 1]
    for together in (0, LEAST):
        for _ in range(PROJECTS):
            drawn = [each for topic in numbers.sample(large, together) for each in numbers.sample(topic, LEAST + 1)]
            taken = {each.topic for each in drawn}
            rest = [topic for name, topic in topics.items() if name not in taken]
            for topic in numbers.sample(rest, len(rest)):
                drawn += numbers.sample(topic, min(len(topic), numbers.choice((1, 1, 2))))
            yield numbers.sample(drawn[:SMALL], min(SMALL, len(drawn)))


def small_figures(half: str, statements: Sequence[Statement]) -> list[Figure]:
    """The summaries that are planned for small projects."""
    vectors = load_engine(Settings(), 2).embed_passages([each.text for each in statements])
    memories = {each.text: _material(number, each.text, vectors[number]) for number, each in enumerate(statements)}
    topics = {memories[each.text].id: each.topic for each in statements}
    clusters = [
        [topics[source.id] for source in made.sources]
        for project in small_projects(statements, random.Random(half))
        for made in plan_summaries([memories[each.text] for each in project], float(len(statements)))
    ]
    mixed = sum(len(set(each)) > 1 for each in clusters)
    return [
        Figure(f"{half}, {2 * PROJECTS} small projects: summaries", len(clusters), "", 0),
        Figure(f"{half}, small projects: of more than one topic", mixed, "", 0),
        Figure(f"{half}, small projects: purity of the clusters", purity(clusters), "", 0.98, True),
    ]


def _material(
    number: int, text: str, vector: NDArray[np.float32], kind: Kind = "observation", session: str = "session:1"
) -> Material:
    return Material(
        number=number,
        id=f"memory:{number:04}",
        kind=kind,
        type=type_of_kind(kind),
        scope="project",
        session_id=session,
        version=1,
        created_at=float(number),
        happened_at=float(number),
        updated_at=float(number),
        last_accessed_at=float(number),
        content=text,
        vector=vector.astype("<f4").tobytes(),
    )


def week_figures(path: Path, engine: Engine, *, show: bool) -> list[Figure]:
    """The summaries and patterns that are planned for the projects of a week."""
    week = json.loads(path.read_text(encoding="utf-8"))
    made: Counter[str] = Counter()
    for project in week["projects"]:
        memories = []
        for number, each in enumerate(week["memories"]):
            if each["project"] == project:
                pieces = split_passages(each["text"], engine.tokenizer, engine.passage_tokens)
                mean = engine.embed_passages([each["text"][piece.start : piece.end] for piece in pieces]).mean(axis=0)
                kind: Kind = each["kind"] if each["kind"] in KINDS else "observation"
                memories.append(_material(number, each["text"], mean, kind, each["session"]))
        summaries = plan_summaries(memories, float(len(week["memories"])))
        patterns = plan_patterns(memories, float(len(week["memories"])), project)
        made += Counter(summaries=len(summaries), patterns=len(patterns))
        if show:
            contents = [one.memory.content for one in summaries] + [one.pattern.pattern for one in patterns]
            print(f"{path.stem}, {project}:", *contents, sep="\n  ")
    return [
        Figure(f"{path.stem}: summaries", made["summaries"], "", 0),
        Figure(f"{path.stem}: patterns", made["patterns"], "", 0),
    ]


async def figures_of(half: str) -> list[Figure]:
    """Store a half, ask, consolidate, ask again."""
    data = load_topics(half)
    statements = list(data.statements)
    random.Random(half).shuffle(statements)
    async with runtime() as running, running.client() as client:
        await fill(client, [{"content": each.text, "type": "episodic", "scope": "project"} for each in statements])
        await wait_until(lambda: drained(client), 600, 0.5)
        before = {topic: await _recalled(client, question) for topic, question in data.questions.items()}
        answer = await client.call("reflect_and_consolidate", strategy="summarize")
        await wait_until(lambda: drained(client), 600, 0.5)
        after = {topic: await _recalled(client, question) for topic, question in data.questions.items()}
        made = answer["consolidated_memories"]
        ids = {memory_id for each in made for memory_id in each["derived_from"]}
        shown = {each: await client.call("get_memory", memory_id=each) for each in ids}
    by_text = {each.text: each for each in statements}
    clusters = [[by_text[shown[each]["content"]].topic for each in one["derived_from"]] for one in made]
    behind = {shown[each]["content"] for each in ids if shown[each]["status"] != "active"}
    active = [each["content"] for each in made] + [each.text for each in statements if each.text not in behind]
    lost = [each for each in statements if not is_said(each, active, statements)]
    sizes = Counter(each.topic for each in statements)
    large = [each for each in statements if sizes[each.topic] >= LEAST]
    beside = sum(
        source in {each["id"] for each in recalled}
        for recalled in after.values()
        for one in made
        if one["id"] in {each["id"] for each in recalled}
        for source in one["derived_from"]
    )

    without = sum(
        len({each["id"] for each in recalled}.intersection(one["derived_from"])) > 1
        for recalled in after.values()
        for one in made
        if one["id"] not in {each["id"] for each in recalled}
    )

    def told(answers: dict[str, list[Json]]) -> float:
        """Statements of the topic in an answer, on average."""
        return statistics.mean(
            sum(
                is_said(each, [got["content"] for got in answers[topic]], ())
                for each in statements
                if each.topic == topic
            )
            for topic in answers
        )

    def length(answers: dict[str, list[Json]]) -> float:
        return statistics.mean(sum(len(each["content"]) for each in recalled) for recalled in answers.values())

    return [
        Figure(f"{half}: memories", len(statements), "", 0),
        Figure(f"{half}: summaries made", len(made), "", 0),
        Figure(f"{half}: memories behind them", len(behind), "", 0),
        Figure(f"{half}: of those that could be", 100 * len(behind) / len(large), "%", 0),
        Figure(f"{half}: purity of the clusters", purity(clusters), "", 0.98, True),
        Figure(f"{half}: statements lost", len(lost), "", 0.5),
        Figure(f"{half}: sources shown beside their summary", beside, "", 0.5),
        Figure(f"{half}: several sources shown without their summary", without, "", 0.5),
        Figure(f"{half}: statements of the topic in an answer of {SHOWN}, before", told(before), "", 0),
        Figure(f"{half}: … and after", told(after), "", told(before), True),
        Figure(f"{half}: characters of an answer, before", length(before), "", 0),
        Figure(f"{half}: … and after", length(after), "", 0),
        *small_figures(half, data.statements),
    ]


async def _recalled(client: StdioClient, question: str) -> list[Json]:
    answer: dict[str, Any] = await client.call("recall_memories", query=question, limit=SHOWN)
    return list(answer["memories"])


def _plain(text: str) -> str:
    return " ".join(text.split()).rstrip(".").casefold()


def main() -> None:
    """Print the table, or with `--json` the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=HALVES, default=HALVES)
    parser.add_argument("--weeks", nargs="+", type=Path, metavar="FILE")
    parser.add_argument("--show", action="store_true")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    if given.weeks:
        engine = load_engine(Settings(), 2)
        found = [figure for path in given.weeks for figure in week_figures(path, engine, show=given.show)]
        print_figures(found, as_json=given.json)
        return
    figures = [figure for half in given.only for figure in asyncio.run(figures_of(half))]
    print_figures(figures, as_json=given.json)


if __name__ == "__main__":
    main()
