"""A week of use, played through real sessions and asked in one process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench.weeks import CONTEXT

ROOT = Path(__file__).parents[2]


def said(memory_id: str, project: str, text: str, **more: Any) -> dict[str, Any]:
    return {"id": memory_id, "project": project, "day": 1, "session": f"s-{project}", "text": text, **more}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    week = {
        "persona": "nobody",
        "projects": ["harbour", "bakery"],
        "memories": [
            said("m1", "harbour", "The harbour is closed on Sundays.", kind="fact"),
            said("m2", "harbour", "The harbour is closed on Mondays now.", kind="fact", supersedes="m1", day=2),
            said("m3", "bakery", "Bread is baked before the sun comes up.", kind="context"),
            said("m4", "bakery", "Olga prefers short answers.", kind="preference", about_user=True),
        ],
        "questions": [
            {"text": "When is the harbour closed?", "project": "harbour", "day": 3, "wanted": ["m2"], "stale": ["m1"]},
            {"text": "What sort of answers does Olga prefer?", "project": "harbour", "day": 3, "wanted": ["m4"]},
            {"text": "When is bread baked?", "project": "bakery", "day": 3, "wanted": ["m3"], "sort": "when"},
        ],
        "unanswerable": [{"text": "Which rope did the cutter lose?", "project": "bakery"}],
    }
    path = tmp_path / "week.json"
    path.write_text(json.dumps(week))
    return path


@pytest.mark.parametrize("way", ["sessions", "in process"])
def test_a_week_is_asked_and_its_baselines_beside_it(way: str, file: Path, tmp_path: Path, home: Path) -> None:
    options = ["--in-process", "--kept", str(tmp_path / "kept")] if way == "in process" else []
    finished = subprocess.run(
        [sys.executable, "-m", "bench.weeks", str(file), "--json", *options],
        cwd=ROOT,
        capture_output=True,
        timeout=300,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr.decode()
    week = json.loads(finished.stdout)["week"]
    contexts = [] if way == "in process" else [CONTEXT]
    assert list(week["systems"]) == ["remembrancer", *contexts, "cosine", "bm25", "rrf", "mean"]
    for system, figures in week["systems"].items():
        assert (figures["questions"], figures["changed"], figures["unanswerable"]) == (3, 1, 1)
        assert figures["five"] == 3, f"{system} has every answer among the few memories"
    ours = week["systems"]["remembrancer"]
    assert (ours["first"], ours["stale first"]) == (3, 0)
    assert week["leaks"] == 0
    counted = ("promoted", "rightly promoted", "proposed", "rightly proposed")
    assert week["to the user"] == ({} if way == "in process" else dict.fromkeys(counted, 0))


def test_a_week_leaves_no_scope_by_itself(file: Path, home: Path) -> None:
    finished = subprocess.run(
        [sys.executable, "-m", "bench.leaks", str(file), "--json"],
        cwd=ROOT,
        capture_output=True,
        timeout=300,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr.decode()
    found = json.loads(finished.stdout)
    assert found["week"] == found["all"]
    week = found["week"]
    assert (week["promoted"], week["elsewhere"], week["session_words"], week["prompt_words"]) == (0, 0, 0, 0)
    assert (week["about_user"], week["kept"] + week["handed_on"], week["told"]) == (1, 6, 8)
    assert week["asked"] == 3 * 4 + 4 + 3 * 2, "answers, contexts of the first round and of each session"
