"""The first search of a shell on a cold memory: it waits for the model a moment, and says when it did without."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from remembrancer.command_line import main
from remembrancer.commands import exit_codes, shell
from remembrancer.commands.selection import Place, Where

FOUND = {
    "id": "memory:01M7YP99BXTF0BZR1D8J8GC5MJ",
    "content": "We deploy on Tuesdays",
    "kind": "fact",
    "scope": "project",
}
STARTING = {"code": "embedding_starting", "message": "Words were searched; meaning joins in a moment."}


class ColdMemory:
    """Has no worker with a model so many times that it is looked at; until then it answers by words alone."""

    def __init__(self, times: int) -> None:
        self.times = times
        self.looks = 0
        self.questions = 0

    def call(self, tool: str, **_arguments: Any) -> dict[str, Any]:
        is_cold = self.looks <= self.times
        if tool == "get_memory_status":
            self.looks += 1
            return {"embedding": {"workers": int(self.looks > self.times)}}
        if tool == "memory_status":
            return {"totalFiles": 0, "staleFiles": 0}
        self.questions += 1
        warnings = [STARTING] if is_cold else []
        memory = {**FOUND, "created_at": "2026-02-20T10:00:00Z", "relevance_score": 0.9, "importance": 0.5}
        return {"memories": [memory], "warnings": warnings}


@pytest.mark.parametrize(("times", "says"), [(10**9, True), (2, False)])
def test_a_cold_search_says_that_it_was_by_words_alone_if_the_model_does_not_come(
    times: int, says: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    memory = ColdMemory(times)

    def conversations(_: Where) -> Iterator[tuple[Place, ColdMemory]]:
        yield Place("/app"), memory

    monkeypatch.setattr(Where, "conversations", conversations)
    monkeypatch.setattr(shell, "MEANING_S", 0.3 if says else 60.0)
    assert main(["search", "when", "do", "we", "deploy"]) == exit_codes.OK
    said = capsys.readouterr()
    assert "We deploy on Tuesdays" in said.out
    assert (STARTING["message"] in said.err) == says
    assert memory.looks > 2
    assert memory.questions == 2, "each answer is a use of what it shows"
