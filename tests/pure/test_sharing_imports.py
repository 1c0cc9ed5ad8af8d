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
        "print(*(name for name in sys.modules if name.startswith(('nats.', 'psycopg', 'remembrancer.journal'))))"
    )
    ran = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == []


def test_who_shares_by_a_nats_server_imports_nothing_of_a_database() -> None:
    asked = "import sys, remembrancer.journal.sharing\nprint(*(name for name in sys.modules if 'psycopg' in name))"
    ran = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == []
