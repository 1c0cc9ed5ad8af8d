"""Tests rules that a mentor states and changes: `python -m bench.memorycode FILE [--every N] [--from N] [--baselines]`.

FILE contains MemoryCode's dialogues as JSON, perhaps compressed (`.xz`): `[{"name", "mentor", "sessions": [{"type",
"topic", "text", "session_regex", "history_regex", "history_eval_query"}]}]` (arXiv 2502.13791). Each history is a
project. Each rule is stored as a `convention`, in the mentor's own sentence; no replacement is declared. Then new
sessions ask for the last session's tasks. Figures, in percent: the shares of rules in force and of replaced rules in
the first prompt's context, and the tokens of that context; the share of the rules in force among the ten results of a
recall for their own task; and, in a session that writes the code for one task after the other, the share of the rules
in force that were given before or at the edit of their task, and of the replaced rules given before any edit. With
`--baselines`, it prints only plain rankings of the same sentences: the shares of the rules in force and of the replaced
rules among ten results for a task, and the shares in a MEMORY.md with all of them, cut at 200 lines.
"""

import argparse
import asyncio
import json
import re
import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
from rich.console import Console
from rich.table import Table

from bench.baselines import PassageVectors, WordIndex, rank_all
from bench.client import Json, StdioClient
from bench.datasets import read_json
from bench.harness import Runtime, drained, play_in_projects, wait_until
from remembrancer.actors.embedder.engine import Engine
from remembrancer.actors.embedder.workers import load_engine
from remembrancer.config.settings import Settings
from remembrancer.memory.tokens import estimate_tokens

LIMIT: Final = 10
LINES: Final = 200
"""The number of lines of a MEMORY.md that an assistant reads."""
EMBEDDED_S: Final = 300.0
QUIET_S: Final = 3.0
"""The pause between two checks of what the store has compared."""
SIZES: Final = (1, 2, 5, 15, 50, 100)
"""The bounds, in sessions, by which histories are grouped."""
_SENTENCE_END: Final = re.compile(r"(?<=[.!?])\s+|\n+")
_WORD: Final = re.compile(r"\w+")
_FUNCTION: Final = """import math


def {name}(values, other):
    result = 0
    for value in values:
        result += value * math.sqrt(len(other))
    return result
"""
_CLASS: Final = """import math


class {title}:
    def __init__(self, size):
        self.size = size

    def {name}(self, value):
        result = math.sqrt(value)
        return result + self.size
"""
_OF_TASKS: Final = frozenset(
    ["a", "an", "and", "class", "function", "given", "in", "method", "methods", "of", "that", "the", "to"]
)
Rule = tuple[str, str]
"""The object of a rule, and its required pattern: a "regex" in the data."""


@dataclass
class Outcome:
    """The figures of one history."""

    sessions: int
    in_force: int = 0
    given: int = 0
    replaced: int = 0
    still_given: int = 0
    tokens: int = 0
    recalled: int = 0
    recall_tokens: list[int] = field(default_factory=list)
    before_edit: int = 0
    replaced_before_edits: int = 0


@dataclass
class Stated:
    """The rules of a history: each statement with its rule, in order; the rules in force; and a task for each of those,
    if the data contain one."""

    statements: list[tuple[Rule, str]] = field(default_factory=list)
    in_force: frozenset[Rule] = frozenset()
    tasks: dict[Rule, str] = field(default_factory=dict)

    @property
    def replaced(self) -> set[Rule]:
        """The rules that are no longer in force, with the same object as one in force."""
        objects = {rule[0] for rule in self.in_force}
        return {rule for rule, _ in self.statements if rule[0] in objects} - self.in_force


def rules_of(history: Json) -> Stated:
    """Return the statements of a history's rules, and the rules in force after the last session."""
    stated = Stated()
    for session in history["sessions"]:
        topics = [
            topic
            for kind, topic in zip(session["type"], session["topic"], strict=True)
            if kind.startswith("instruction")
        ]
        said = list(_sentences(session["text"], history["mentor"]))
        for regex, topic in zip(session["session_regex"], topics, strict=False):
            stated.statements.append((_rule(regex), _stating(topic, said)))
    last = history["sessions"][-1]
    known = {rule for rule, _ in stated.statements}
    in_force = [_rule(regex) for regex in last["history_regex"]]
    stated.in_force = frozenset(known.intersection(in_force))
    pairs = zip(in_force, last["history_eval_query"], strict=False)
    stated.tasks = {rule: task for rule, task in pairs if rule in known}
    return stated


def _rule(regex: Sequence[Any]) -> Rule:
    return str(regex[0]), str(regex[1])


def _sentences(text: str, mentor: str) -> Iterator[str]:
    """Yield the mentor's sentences."""
    for turn in text.split("\n\n"):
        speaker, _, words = turn.partition(":")
        if speaker.strip() == mentor:
            yield from (each.strip() for each in _SENTENCE_END.split(words) if each.strip())


def _stating(topic: str, said: Sequence[str]) -> str:
    """Return the sentence with the most words of a topic (the shortest of several), or the topic if none has half."""
    wanted = set(_WORD.findall(topic.casefold()))
    shares = [(len(wanted & set(_WORD.findall(each.casefold()))) / len(wanted), -len(each), each) for each in said]
    share, _, best = max(shares, default=(0.0, 0, ""))
    return best if share >= 0.5 else topic


async def play(running: Runtime, directory: Path, history: Json) -> Outcome:
    """Store a history's rules in one session, and ask in others."""
    stated = rules_of(history)
    outcome = Outcome(len(history["sessions"]), in_force=len(stated.tasks))
    rules: defaultdict[str, set[Rule]] = defaultdict(set)
    async with running.client(directory) as client:
        for rule, text in stated.statements:
            said = f"{history['mentor']}: {text}"
            answer = await client.call("store_memory", content=said, kind="convention")
            rules[(await client.call("get_memory", memory_id=answer["memory_id"]))["id"]].add(rule)
        await wait_until(lambda: drained(client), EMBEDDED_S, 0.2)
        await compared(client)
    replaced = stated.replaced
    outcome.replaced = len(replaced)
    task = next(iter(stated.tasks.values()), "")
    async with running.client(directory) as client:
        context = await client.call("get_memory_context", task_description=task, detail=True)
        given = set().union(*(rules[each] for each in context["memory_ids"]))
        outcome.given, outcome.still_given = len(given & set(stated.tasks)), len(given & replaced)
        outcome.tokens = context["tokens_used"]
        outcome.before_edit, outcome.replaced_before_edits = await play_edits(client, stated, rules, replaced)
    for rule, asked in stated.tasks.items():
        async with running.client(directory) as client:
            answer = await client.call("recall_memories", query=asked, limit=LIMIT)
        short = [each["id"] for each in answer["memories"]]
        outcome.recalled += any(rule in its for whole, its in rules.items() if whole.endswith(tuple(short)))
        outcome.recall_tokens.append(estimate_tokens(json.dumps(answer, ensure_ascii=False, separators=(",", ":"))))
    return outcome


async def compared(client: StdioClient) -> None:
    """Wait until no more replaced memories are found, since an idle store continues to compare memories."""
    context, before = "", None
    while context != before:
        await asyncio.sleep(QUIET_S)
        before, context = context, (await client.call("get_memory_context"))["context_block"]


def code_for(task: str, about: str) -> dict[str, str]:
    """Return the file that somebody without the rules would write for a task: a class, if the rule is about a part."""
    said = [word for word in re.findall("[a-z]+", task.lower()) if word not in _OF_TASKS]
    is_class = about.split()[0] in ("class", "method", "attribute") or "class" in task.lower().split()
    name = "_".join(said[-2:] if is_class else said[:3])
    code = (_CLASS if is_class else _FUNCTION).format(name=name, title="".join(map(str.title, said[:2])))
    return {"path": f"src/{'_'.join(said[:3])}.py", "new": code}


async def play_edits(client: Any, stated: Stated, rules: dict[str, set[Rule]], replaced: set[Rule]) -> tuple[int, int]:
    """Return how many rules in force were given before or at the edit of their task, and how many replaced rules were
    given at all, in one session."""
    ids: list[str] = []
    told: set[Rule] = set()
    in_time = 0
    for rule, task in stated.tasks.items():
        answer = await client.call("get_memory_context", action=code_for(task, rule[0]), given=ids)
        ids += answer["memory_ids"]
        told = set().union(*(its for whole, its in rules.items() if whole.endswith(tuple(ids))))
        in_time += rule in told
    return in_time, len(told & replaced)


def baselines(histories: Sequence[Json], engine: Engine) -> dict[str, dict[str, float]]:
    """Return the shares, in percent, of rules in force for their own task and of replaced rules for any task, and the
    tokens."""
    counts: dict[str, list[int]] = {name: [0, 0, 0] for name in ("bm25", "vectors", "mean", "rrf", "MEMORY.md")}
    in_force = all_replaced = 0
    for stated in map(rules_of, histories):
        if not stated.tasks:
            continue
        rules, texts = [rule for rule, _ in stated.statements], [text for _, text in stated.statements]
        replaced = stated.replaced
        in_force, all_replaced = in_force + len(stated.tasks), all_replaced + len(replaced)
        words = WordIndex(texts)
        vectors = PassageVectors(engine.embed_passages(texts), np.arange(len(texts)), len(texts))
        shown: dict[str, set[Rule]] = {name: set() for name in counts}
        for rule, task in stated.tasks.items():
            rankings = rank_all(task, engine.embed_questions([task])[0], words, vectors)
            for name, ranking in {**rankings, "MEMORY.md": range(min(LINES, len(texts)))}.items():
                places = list(ranking) if name == "MEMORY.md" else list(ranking)[:LIMIT]
                given = {rules[place] for place in places}
                shown[name] |= given
                counts[name][0] += rule in given
                counts[name][2] += sum(estimate_tokens(texts[place]) for place in places)
        for name, given in shown.items():
            counts[name][1] += len(given & replaced)
        words.close()
    return {
        name: {
            "in force, percent": round(100 * told / in_force, 1),
            "replaced, percent": round(100 * old / max(1, all_replaced), 1),
            "tokens a task": round(tokens / in_force, 1),
        }
        for name, (told, old, tokens) in counts.items()
    }


def report(outcomes: Sequence[Outcome]) -> dict[str, dict[str, float]]:
    """Return the figures by the number of sessions, and in total."""
    groups = {
        f"up to {most} sessions": [each for each in outcomes if least < each.sessions <= most]
        for least, most in zip((0, *SIZES), SIZES, strict=False)
    }
    return {name: _figures(group) for name, group in {**groups, "all": list(outcomes)}.items() if group}


def _figures(outcomes: Sequence[Outcome]) -> dict[str, float]:
    in_force, replaced = sum(each.in_force for each in outcomes), sum(each.replaced for each in outcomes)
    values = {
        "histories": len(outcomes),
        "in force": in_force,
        "given": 100 * sum(each.given for each in outcomes) / in_force,
        "replaced": replaced,
        "still given": 100 * sum(each.still_given for each in outcomes) / max(1, replaced),
        "tokens": statistics.median(each.tokens for each in outcomes),
        "recalled": 100 * sum(each.recalled for each in outcomes) / in_force,
        "tokens of a recall": statistics.median([tokens for each in outcomes for tokens in each.recall_tokens]),
        "before its edit": 100 * sum(each.before_edit for each in outcomes) / in_force,
        "replaced before edits": 100 * sum(each.replaced_before_edits for each in outcomes) / max(1, replaced),
    }
    return {name: round(value, 1) for name, value in values.items()}


def main() -> int:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, metavar="FILE")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="play every Nth history alone")
    parser.add_argument("--from", type=int, default=0, dest="first", metavar="N", help="the first history, from 0")
    parser.add_argument("--baselines", action="store_true", help="play nothing: the figures of plain rankings")
    given = parser.parse_args()
    histories = read_json(given.file)[given.first :: given.every]
    if given.baselines:
        print(json.dumps(baselines(histories, load_engine(Settings(), 2)), indent=2))
        return 0
    played = asyncio.run(play_in_projects(histories, play))
    reported = report([each for each in played if each.in_force])
    table = Table("", *reported["all"])
    for name, figures in reported.items():
        table.add_row(name, *map(str, figures.values()))
    Console().print(table)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
