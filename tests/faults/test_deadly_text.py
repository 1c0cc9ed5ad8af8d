"""A text that ends every embedder that reads it costs some restarts, and neither other vectors nor its words."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

from remembrancer.actors.store.records.types import MAX_ATTEMPTS
from tests.patience import until
from tests.runtime import Runtime, Session, embedded

MORTAL = """
import os, signal, sys

if "remembrancer.actors.embedder" in sys.orig_argv:
    from remembrancer.actors.embedder import workers

    split = workers.split_passages

    def split_or_die(text, *others):
        if "poison" in text:
            os.kill(os.getpid(), signal.SIGKILL)
        return split(text, *others)

    workers.split_passages = split_or_die
"""
"""Run by every process of the runtime that finds it on its path: a real embedder, with a text that it dies of."""


async def test_a_text_that_embedders_die_of_is_a_dead_letter_and_found_by_its_words(home: Path, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(MORTAL)
    path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")]))
    async with Session(home, environ={"PYTHONPATH": path}) as client:
        for number in range(10):
            await client.store(f"Note {number} about cranes in the harbour.")
        deadly = await client.store("The poison cupboard is in the laboratory.")
        for number in range(10):
            await client.store(f"Remark {number} about boats on the lake.")
        await until(partial(client.call, "get_memory_status"), lambda status: embedded(status["embedding"]))
        status = await Runtime(home).status()
        assert status["embedding"]["dead_letters"] == 1
        assert "embedders that died" in status["embedding"]["dead_letter_error"]
        restarts = {process["role"]: process["restarts"] for process in status["processes"]}
        assert restarts.pop("embedder") <= MAX_ATTEMPTS
        assert set(restarts.values()) == {0}
        by_words = await client.call("recall_memories", query="poison cupboard", strategy="keyword")
        assert by_words["memories"][0]["id"] == deadly["memory_id"]
        by_meaning = await client.call("recall_memories", query="harbour cranes", strategy="vector")
        assert "cranes" in by_meaning["memories"][0]["content"]
    await Runtime(home).down()
