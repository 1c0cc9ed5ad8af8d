"""The benchmarks that ask the store's search in one process, with the real model."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from bench import fragments, in_process
from bench.datasets import DataUnusable, load_sets
from bench.in_process import Sets
from remembrancer.memory.features import NAMES

HARBOUR = "The harbour is closed on Sundays, as the keeper told all of us who asked for it last spring."
BREAD = "Bread is baked in the village before the sun comes up, and sold out long before noon each day."


@pytest.fixture
def file(tmp_path: Path) -> Path:
    items = [{"label": "h", "text": HARBOUR, "at": 300.0}, {"label": "b", "text": BREAD, "at": None}]
    question = {"id": "1", "text": "When is the harbour closed?", "kind": "plain", "at": 200.0, "wanted": ["h"]}
    haystack: dict[str, Any] = {"name": "one", "type": "semantic", "items": items, "questions": [question]}
    path = tmp_path / "sets.json"
    path.write_text(
        json.dumps({"first": {"haystacks": [haystack]}, "second": {"haystacks": [haystack], "before": True}})
    )
    return path


def test_a_file_of_named_sets_is_asked_about_and_what_was_made_is_used_again(file: Path, tmp_path: Path) -> None:
    for _ in range(2):
        sets = Sets([file], tmp_path / "kept")
        assert list(sets) == ["first", "second"]
        (asking,) = sets.of("first")
        (question,) = asking.haystack.questions
    assert len(list((tmp_path / "kept").glob("*.db"))) == 1, "both sets are of the same memories"
    for asking in sets.of("first"):
        assert asyncio.run(asking.ranking(question))[0] == "h"
        first, *others = asyncio.run(asking.ask(question))
        assert first.scores.relevance > 0.5 > max((each.scores.relevance for each in others), default=0.0)
        rows, labels = asking.candidates(question)
        assert rows.shape == (len(labels), len(NAMES))
        assert "h" in labels
        assert {name: found[0].ranked[0] for name, found in asking.baselines().items()} == dict.fromkeys(
            ("bm25", "vectors", "rrf", "mean"), "h"
        )


def test_a_file_of_another_form_is_said_to_be_unusable(tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    path.write_text('{"first": {"haystacks": [{"name": "x"}]}}')
    with pytest.raises(DataUnusable):
        load_sets(path)


def test_figures_and_fragments_are_printed(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["bench", "--kept", str(tmp_path / "kept"), str(file)])
    in_process.main()
    assert [line.split()[:4] for line in capsys.readouterr().out.splitlines()] == [
        ["first", "1", "any@1", "100.0"],
        ["second", "1", "any@1", "0.0"],
    ], "of the second set only what had happened by then is asked for"
    fragments.main()
    assert capsys.readouterr().out.count("of 2 fragments 2 bring their memory first") == 2
