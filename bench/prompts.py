"""Tests long working prompts against many memories: `python -m bench.prompts DIRECTORY`.

DIRECTORY has `memories.jsonl` (`{"id", "date", "content", "kind", "scope", "tags", "replaces"}` per line), `tasks.json`
(`[{"prompt", "needs": [id]}]`) and `idle.json` (`[prompt]`, which need no memory). Each prompt is sent in a new session
in the way the hook sends later prompts, and then as the query of a recall. Figures: the prompts for which the hook
gives a needed memory, or for which a recall returns one first, among the first three, or at all; the right and wrong
lines of the hook; the idle prompts that get any; the tokens; and the share of the needed memories that recalls show to
the end.
"""

import argparse
import asyncio
import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from bench.client import Json, StdioClient
from bench.harness import Figure, Runtime, answered, drained, play_in_projects, print_figures, wait_until
from remembrancer.commands.hook import LONGEST_TASK, SECTIONS_OF_A_PROMPT
from remembrancer.memory.tokens import estimate_tokens
from remembrancer.protocol.kinds import KINDS

EMBEDDED_S: Final = 600.0


@dataclass(frozen=True)
class Played:
    """A prompt, the memories that it needs, those that the hook gave, and those of a recall, best first. `ended` are
    those whose end the recall shows."""

    prompt: str
    needs: frozenset[str]
    given: tuple[str, ...]
    given_tokens: int
    recalled: tuple[str, ...]
    recalled_tokens: int
    ended: frozenset[str]


async def store(client: StdioClient, memories: Sequence[Json]) -> dict[str, str]:
    """Store memories in the order of their dates. Returns a mapping from ids in the store to ids in the file."""
    stored: dict[str, list[str]] = {}
    for each in sorted(memories, key=lambda each: str(each["date"])):
        day = datetime.fromisoformat(each["date"]).replace(tzinfo=UTC).isoformat()
        arguments: Json = {"content": each["content"], "scope": each["scope"], "occurred_at": day}
        arguments |= {"tags": each["tags"]} if each.get("tags") else {}
        arguments |= {"kind": each["kind"]} if each["kind"] in KINDS else {}
        arguments |= {"supersedes": stored[each["replaces"]][0]} if each.get("replaces") else {}
        answer = await answered(client, "store_memory", **arguments)
        stored[each["id"]] = answer.get("ids") or [answer["memory_id"]]  # several open ends are stored one by one
    await wait_until(lambda: drained(client), EMBEDDED_S, 0.5)
    ids = [(key, each) for key, several in stored.items() for each in several]
    return {(await client.call("get_memory", memory_id=each))["id"]: key for key, each in ids}


async def play(running: Runtime, directory: Path, data: Path) -> list[Played]:
    """Store the memories of a set, and send each of its prompts in a session of its own."""
    memories = [json.loads(line) for line in (data / "memories.jsonl").read_text().splitlines()]
    texts = {each["id"]: " ".join(each["content"].split()) for each in memories}
    prompts = [(each["prompt"], frozenset(each["needs"])) for each in json.loads((data / "tasks.json").read_text())]
    prompts += [(each, frozenset()) for each in json.loads((data / "idle.json").read_text())]
    async with running.client(directory) as client:
        keys = await store(client, memories)

    def named(memory_id: str) -> str:
        return next(key for whole, key in keys.items() if whole.endswith(memory_id))

    played = []
    for prompt, needs in prompts:
        async with running.client(directory) as client:
            later = {"task_description": prompt[:LONGEST_TASK], "sections": SECTIONS_OF_A_PROMPT, "unseen": True}
            context = await client.call("get_memory_context", detail=True, given=[], **later)
            answer = await answered(client, "recall_memories", query=prompt)
        given = tuple(map(named, context["memory_ids"]))
        recalled = {named(each["id"]): " ".join(each["content"].split()) for each in answer["memories"]}
        sent = json.dumps(answer, ensure_ascii=False, separators=(",", ":"))
        ended = frozenset(key for key, text in recalled.items() if text.endswith(texts[key][-20:]))
        tokens = estimate_tokens(context["context_block"]) if given else 0
        played.append(Played(prompt, needs, given, tokens, tuple(recalled), estimate_tokens(sent), ended))
    return played


def figures(played: Sequence[Played]) -> list[Figure]:
    """Return the figures of a set."""
    tasks, idle = [each for each in played if each.needs], [each for each in played if not each.needs]
    given = [(each.needs & set(each.given), set(each.given) - each.needs) for each in tasks]
    listed = sum(len(each.needs & set(each.recalled)) for each in tasks)
    ended = sum(len(each.needs & each.ended) for each in tasks)
    found = {
        first: sum(not each.needs.isdisjoint(each.recalled[:first]) for each in tasks) for first in (1, 3, len(played))
    }
    counted = {
        f"prompts given a needed memory, of {len(tasks)}": sum(bool(right) for right, _ in given),
        "right lines": sum(len(right) for right, _ in given),
        "wrong lines": sum(len(wrong) for _, wrong in given),
        f"idle prompts given any, of {len(idle)}": sum(bool(each.given) for each in idle),
        "tokens of what is given": statistics.fmean([each.given_tokens for each in played if each.given] or [0]),
        **{f"recall: among the first {first}": number for first, number in found.items()},
        "recall: tokens": statistics.fmean(each.recalled_tokens for each in tasks),
        "recall: needed ones, in per cent shown to the end": 100 * ended / max(1, listed),
    }
    return [Figure(name, value, "", 0) for name, value in counted.items()]


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, metavar="DIRECTORY")
    asked = parser.parse_args()
    [played] = asyncio.run(play_in_projects([asked.data], play))
    print_figures(figures(played))


if __name__ == "__main__":
    main()
