"""`remembrancer up` says where a client finds it."""

from __future__ import annotations

from pathlib import Path

import pytest

from remembrancer.actors.launcher.lifecycle import Changed
from remembrancer.commands.runtime_commands import _observer
from remembrancer.config.home import locate


@pytest.mark.parametrize(("address", "is_said"), [(("127.0.0.1", 8080), True), (None, False)])
def test_the_address_that_was_asked_for_is_said_when_clients_can_come(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], address: tuple[str, int] | None, is_said: bool
) -> None:
    observe = _observer(locate({"REMEMBRANCER_HOME": str(tmp_path)}), address)
    observe(Changed("store", "ready", None, 1.0))
    assert "Ready." not in capsys.readouterr().out
    observe(Changed("gateway", "ready", None, 1.0))
    said = capsys.readouterr().out
    assert "Ready." in said
    assert ("HTTP at 127.0.0.1:8080: /mcp" in said) == is_said
