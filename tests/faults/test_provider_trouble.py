"""A provider that fails under a running runtime: the local model answers, nothing is lost, its key is nowhere else."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import psutil
import pytest

from bench.client import StdioClient
from remembrancer.actors.store.records.types import MAX_ATTEMPTS
from tests.patience import PATIENCE_S, until
from tests.providers import HANGS, KEY, WELL, FakeProvider, Trouble, fake_provider
from tests.runtime import Runtime, Session, command, embedded, files_with, patiently
from tests.spaces import rows_of

LOCAL, REMOTE = "all-MiniLM-L6-v2", "voyage-3-large"


@pytest.fixture
def provider() -> Iterator[FakeProvider]:
    with fake_provider() as made:
        yield made


def settings(provider: FakeProvider) -> dict[str, str]:
    return {
        "REMEMBRANCER_ENGINE": "voyage",
        "REMEMBRANCER_VOYAGE_URL": provider.url,
        "REMEMBRANCER_VOYAGE_KEY_FROM": "${MY_VOYAGE}",
        "REMEMBRANCER_PROVIDER_TIMEOUT_S": "3",
        "MY_VOYAGE": KEY,
    }


async def models(home: Path) -> dict[str, dict[str, Any]]:
    """The answer of `remembrancer model`, by the model's name."""
    done = await anyio.to_thread.run_sync(lambda: patiently("model", "--json", home=home))
    assert done.returncode == 0, done.stderr
    return {model["choice"]["model"]: model for model in json.loads(done.stdout)["models"]}


def passages_by_model(home: Path) -> Counter[str]:
    found: Counter[str] = Counter()
    for path in home.glob("**/memory.db"):
        found.update(row[0].split(".")[0] for row in rows_of(path, "SELECT model FROM passages"))
    return found


def environ_of(process: psutil.Process) -> bytes:
    return Path(f"/proc/{process.pid}/environ").read_bytes()


def assert_key_is_with_embedders_alone(runtime: Runtime) -> None:
    embedders = {pid for role, pid in runtime.recorded() if role == "embedder"}
    holders = {process.pid for process in runtime.processes() if KEY.encode() in environ_of(process)}
    assert len(holders) == 1
    assert holders < embedders, "and not with the one that has the local model"


async def test_the_local_model_answers_for_a_provider_and_nothing_is_lost(home: Path, provider: FakeProvider) -> None:
    runtime = Runtime(home)
    async with StdioClient(home, environ=settings(provider)) as client:
        ids = {"how often is the deploy key rotated?": await stored(client, "The deploy key is rotated every 90 days.")}

        async def answers(model: str) -> bool:
            """True if that model answers, and everything has its vectors of it."""
            found = await models(home)
            return model in found and found[model]["answers"] and found[model]["pending"] == 0

        async def assert_found() -> None:
            for query, memory_id in ids.items():
                answer = await client.call("recall_memories", query=query, strategy="vector")
                assert [memory["id"] for memory in answer["memories"]][:1] == [memory_id], answer
                assert not answer.get("warnings")

        await until(lambda: answers(REMOTE))
        await assert_found()
        assert provider.requests[-1]["input"] == ["how often is the deploy key rotated?"]

        found = await until(partial(models, home), lambda found: LOCAL in found and embedded(found[LOCAL]))
        assert found[REMOTE]["role"] == "active"
        await anyio.to_thread.run_sync(assert_key_is_with_embedders_alone, runtime)
        topics = {
            Trouble(401): ("Submarine cables are inspected by divers.", "do divers inspect submarine cables?", "401"),
            HANGS: ("The payroll run happens on the 25th.", "on which day does the payroll run happen?", "within 3 s"),
        }
        for trouble, (text, query, reason) in topics.items():
            provider.trouble = trouble
            await client.call("recall_memories", query="a question that nobody has asked before", strategy="vector")
            await until(lambda: answers(LOCAL))
            ids[query] = await stored(client, text)
            await until(lambda: answers(LOCAL))
            await assert_found()
            status = await runtime.status()
            said = "\n".join(status["warnings"])
            assert reason in said
            assert f"{LOCAL} answers questions" in said
            provider.trouble = WELL
            await until(lambda: answers(REMOTE))
            await assert_found()
        assert passages_by_model(home) == {"voyage-3-large": len(ids), "all-minilm-l6-v2": len(ids)}
        runtime.kill("embedder")
        await until(lambda: answers(REMOTE))
        await anyio.to_thread.run_sync(assert_key_is_with_embedders_alone, runtime)
        assert provider.keys == {f"Bearer {KEY}"}
        for done in (command(each, home=home) for each in ("status", "config", "model")):
            assert KEY not in done.stdout + done.stderr
    await runtime.down()
    assert list((home / "logs").iterdir())
    assert files_with(home, KEY.encode()) == []


async def stored(client: StdioClient, text: str) -> str:
    memory_id: str = (await client.store(text))["memory_id"]
    return memory_id


async def test_a_change_to_a_provider_completes_though_it_refuses_a_text(home: Path, provider: FakeProvider) -> None:
    runtime = Runtime(home)
    async with Session(home, environ={**settings(provider), "REMEMBRANCER_ENGINE": "onnx"}) as client:
        for text in ("The deploy key is rotated every 90 days.", "What is forbidden by the provider.", "Payroll runs."):
            await stored(client, text)
        await until(runtime.is_drained)
        await anyio.to_thread.run_sync(lambda: patiently("model", "use", "voyage", home=home))
        await until(partial(models, home), lambda found: found.get(REMOTE, {}).get("role") == "active")
        refused = [request for request in provider.requests if any("forbidden" in text for text in request["input"])]
        assert len(refused) <= 2 * MAX_ATTEMPTS, "in a batch, and alone"
        status = await runtime.status()
        assert status["embedding"]["dead_letters"] == 1
    await runtime.down()


@pytest.mark.skipif(sys.platform != "linux", reason="/proc")
async def test_a_runtime_that_a_person_starts_hides_the_key_of_its_start(home: Path, provider: FakeProvider) -> None:
    runtime = Runtime(home)
    environ = {**os.environ, **settings(provider), "REMEMBRANCER_HOME": str(home)}
    launcher = subprocess.Popen(
        [sys.executable, "-m", "remembrancer", "up"], env=environ, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL
    )
    try:

        async def is_answered() -> bool:
            if not (home / "runtime.json").exists():
                return False
            status = await runtime.status()
            return any(each["choice"]["model"] == REMOTE and each["workers"] for each in _models(status))

        await until(is_answered)
        assert KEY.encode() not in environ_of(psutil.Process(launcher.pid))
        assert [role for role, pid in runtime.recorded() if KEY.encode() in environ_of(psutil.Process(pid))] == [
            "embedder"
        ]
    finally:
        launcher.send_signal(signal.SIGINT)
        await anyio.to_thread.run_sync(lambda: launcher.wait(PATIENCE_S))


def _models(status: dict[str, Any]) -> list[dict[str, Any]]:
    return list((status.get("embedding") or {}).get("models") or ())
