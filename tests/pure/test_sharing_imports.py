"""Who shares nothing pays nothing: no process imports a module for it."""

from __future__ import annotations

import subprocess
import sys

PROCESSES = (
    "remembrancer.actors.bridge.bridge",
    "remembrancer.actors.consolidator.actor",
    "remembrancer.actors.gateway.actor",
    "remembrancer.actors.launcher.runtime",
    "remembrancer.actors.store.actor",
)


def test_no_process_imports_a_module_of_the_journal_by_itself() -> None:
    asked = (
        f"import sys, {', '.join(PROCESSES)}\n"
        "print(*(name for name in sys.modules if name.startswith(('nats.', 'remembrancer.journal'))))"
    )
    ran = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == []
