"""`show --graph` says which filter found nothing."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from remembrancer.command_line import main
from remembrancer.commands import exit_codes
from remembrancer.commands.selection import Where

ALONE = {"name": "Ada", "type": "person", "relationships": [], "memory_count": 2}


@pytest.mark.parametrize(
    ("arguments", "entities", "says"),
    [
        ([], [], "No entities are known yet"),
        (["--relation", "uses"], [], "No entity has a relation 'uses'"),
        (["Ada", "--relation", "uses"], [ALONE], "Ada has no relation 'uses'"),
        (["Bob", "--relation", "uses"], [], "No entity 'Bob' is known"),
    ],
)
def test_a_filter_of_the_graph_that_finds_nothing_is_named(
    arguments: list[str],
    entities: list[Any],
    says: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    conversation = SimpleNamespace(call=lambda *_, **__: {"entities": entities})
    monkeypatch.setattr(Where, "first", lambda _: conversation)
    assert main(["show", "--graph", *arguments]) == exit_codes.OK
    assert capsys.readouterr().out.strip() == says
