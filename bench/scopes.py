"""The cost of a recall over three scopes: `python -m bench.scopes [--samples N] [--json]`, through a real client.

10,000 memories of the project, 10,000 of the user and 1,000 of the session that asks.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Iterator
from typing import Any, Final

from bench.client import StdioClient
from bench.harness import Figure, drained, fill, latencies, print_figures, runtime, wait_until
from examples.real_text import memories

PROJECT: Final = 10_000
USER: Final = 10_000
SESSION: Final = 1_000
SAMPLES: Final = 300
REACH_MS: Final = 18.0
SETTLE_S: Final = 6.0
"""Time for the index to be tidied, which happens when nobody asks anything."""
SCOPES: Final = (("all three scopes", None), ("the session alone", "session"), ("the project alone", "project"))


def in_three_scopes(texts: list[str], project: int, user: int) -> Iterator[dict[str, Any]]:
    """The arguments of `store_memory`: so many of the project, so many of the user, the rest of the session."""
    for number, text in enumerate(texts):
        scope = "project" if number < project else "user" if number < project + user else "session"
        yield {"content": text, "type": "semantic", "scope": scope, "importance": number % 10 / 10}


async def scope_figures(client: StdioClient, texts: list[str], samples: int) -> list[Figure]:
    """Latencies of hybrid recalls, one after the other; each question is asked for the first time."""
    figures = []
    for place, (name, scope) in enumerate(SCOPES):
        asked = texts[place :: max(len(SCOPES), len(texts) // samples)][:samples]
        questions = [f"how does {text.partition(': ')[2][:60].lower()} work?" for text in asked]
        chosen = {} if scope is None else {"scope": scope}

        async def ask(number: int, questions: list[str] = questions, chosen: dict[str, str] = chosen) -> None:
            answer = await client.call("recall_memories", query=questions[number], **chosen)
            if answer.get("warnings"):
                raise RuntimeError(f"not answered as it should be: {answer['warnings']}")

        p50, p95 = await latencies(ask, len(questions))
        figures.append(Figure(f"`recall_memories` over {name}, p50", p50, "ms", 0.0 if scope else REACH_MS))
        figures.append(Figure(f"`recall_memories` over {name}, p95", p95, "ms", 0))
    return figures


async def measure_scopes(
    project: int = PROJECT, user: int = USER, session: int = SESSION, samples: int = SAMPLES
) -> list[Figure]:
    """Fill a runtime of its own, wait for its vectors, and measure."""
    texts = memories(project + user + session)
    async with runtime() as running, running.client() as client:
        await fill(client, in_three_scopes(texts, project, user))
        await wait_until(lambda: drained(client), 300, 0.5)
        await asyncio.sleep(SETTLE_S)
        return await scope_figures(client, texts, samples)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--project", type=int, default=PROJECT, help="memories of the project")
    parser.add_argument("--user", type=int, default=USER, help="memories of the user")
    parser.add_argument("--session", type=int, default=SESSION, help="memories of the session")
    parser.add_argument("--samples", type=int, default=SAMPLES, help="calls of each sort")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    options = parser.parse_args()
    measured = asyncio.run(measure_scopes(options.project, options.user, options.session, options.samples))
    print_figures(measured, as_json=options.json)
