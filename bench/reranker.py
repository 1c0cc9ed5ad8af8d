"""What a reranker costs a recall: `python -m bench.reranker [--model DIRECTORY] [--memories N] [--samples N] [--json]`.

The same questions through a real client, first without and then with a cross-encoder in an embedder process. Without
--model a cross-encoder of MiniLM-L6's size is built with random weights: it is as slow as a real one, but its order
means nothing, so this measures speed only.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
from pathlib import Path
from typing import Final

import msgspec

from bench.client import StdioClient
from bench.harness import Figure, Runtime, drained, fill, latencies, print_table, runtime, wait_until
from bench.random_cross_encoder import build_cross_encoder
from remembrancer.commands.sample_text import memories

MEMORIES: Final = 1000
SAMPLES: Final = 60
CANDIDATES: Final = 20
BUDGET_S: Final = 20.0
"""Far more than a user would wait: what is measured is not to be cut off."""
PATIENT: Final = {
    "write_budget_s": "10",
    "read_budget_s": str(1.5 * BUDGET_S),
    "call_budget_s": str(2 * BUDGET_S),
    "bridge_budget_s": str(2 * BUDGET_S),
    "heartbeat_timeout_s": "20",
}
"""Nothing is queued or answered in part because the machine has other things to do as well."""
READY_S: Final = 180.0


async def reranker_figures(model: Path, count: int, samples: int, candidates: int) -> list[Figure]:
    """Both measurements, each in a runtime of its own."""
    texts = memories(count)
    async with runtime(**PATIENT) as running, running.client() as client:
        without = await _recalls(running, client, texts, samples, reranked=False)
    asked = {
        "reranker": "cross-encoder",
        "reranker_model": str(model),
        "reranker_candidates": str(candidates),
        "reranker_budget_s": str(BUDGET_S),
    }
    async with runtime(**PATIENT, **asked) as running, running.client() as client:
        reranked = await _recalls(running, client, texts, samples, reranked=True)
        status = await running.status()
    inside = status["reranker"]["median_ms"]
    return [
        Figure("`recall_memories` without a reranker, p50", without[0], "ms", 0),
        Figure("`recall_memories` without a reranker, p95", without[1], "ms", 0),
        Figure(f"`recall_memories` with {candidates} candidates reranked, p50", reranked[0], "ms", 0),
        Figure(f"`recall_memories` with {candidates} candidates reranked, p95", reranked[1], "ms", 0),
        Figure("of that the wait for the reranker, median", inside, "ms", 0),
    ]


async def _recalls(
    running: Runtime, client: StdioClient, texts: list[str], samples: int, *, reranked: bool
) -> tuple[float, float]:
    async def is_ready() -> bool:
        reranker = (await running.status())["reranker"]
        return bool(reranker and reranker["state"] == "ready")

    await fill(client, texts)
    await wait_until(lambda: drained(client), 300, 0.5)
    if reranked:
        await wait_until(is_ready, READY_S, 0.5)
    asked = texts[:: max(1, len(texts) // samples)][:samples]
    questions = [f"how does {text.partition(': ')[2][:60].lower()} work?" for text in asked]

    async def ask(number: int) -> None:
        answer = await client.call("recall_memories", query=questions[number])
        if answer.get("warnings"):
            raise RuntimeError(f"not answered as it should be: {answer['warnings']}")

    return await latencies(ask, len(questions))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, help="a directory with a cross-encoder of sentence-transformers")
    parser.add_argument("--memories", type=int, default=MEMORIES)
    parser.add_argument("--samples", type=int, default=SAMPLES, help="recalls of each sort")
    parser.add_argument("--candidates", type=int, default=CANDIDATES, help="candidates that are reranked")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        model = options.model or build_cross_encoder(Path(directory))
        coroutine = reranker_figures(model.resolve(), options.memories, options.samples, options.candidates)
        measured = asyncio.run(coroutine)
    name = str(options.model) if options.model else "random weights of MiniLM-L6's shape: speed only, no quality"
    if options.json:
        print(json.dumps({"model": name, "figures": [msgspec.to_builtins(each) for each in measured]}, indent=2))
    else:
        print(f"the model: {name}")
        print_table(measured)


if __name__ == "__main__":
    main()
