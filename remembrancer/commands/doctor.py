"""`remembrancer doctor`: look for what is wrong, and say what to do. Changes nothing, but for modes with --fix."""

from __future__ import annotations

import argparse
import json
import logging
import os
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import msgspec

from remembrancer.commands import exit_codes
from remembrancer.commands.checking import checks, data_checks, running_checks
from remembrancer.commands.checking.checks import Check
from remembrancer.commands.checking.examination import clients, databases, model, places, running
from remembrancer.commands.clients import Surroundings
from remembrancer.commands.runtime_client import paths_here
from remembrancer.commands.status import find_problems
from remembrancer.config.reading import load_settings
from remembrancer.config.settings import Settings
from remembrancer.protocol.control import RuntimeStatus
from remembrancer.protocol.errors import ConfigurationError, DeadlineExceeded, InvalidInput, PeerLost, PeerUnavailable
from remembrancer.protocol.paths import RuntimePaths

logger = logging.getLogger(__name__)


def main(argv: list[str]) -> int:
    """Make every check and print what it found."""
    parser = argparse.ArgumentParser(
        prog="remembrancer doctor",
        description="Look for what is wrong with the memory of this home and what starts it, and say what to do.",
        epilog="exit status: 0 all is well, or there are warnings only; 3 there is a problem",
    )
    parser.add_argument("--json", action="store_true", help="for a program: one JSON object")
    parser.add_argument("--project", metavar="DIR", help="whose clients' files are looked at (default: this directory)")
    parser.add_argument("--fix", action="store_true", help="make this user's alone what others can get at")
    asked = parser.parse_args(argv)
    project = Path(asked.project or ".")
    if not project.is_dir():
        raise InvalidInput(f"{project} is not a directory")
    paths = paths_here()
    found = list(Examination(paths, Surroundings.here(os.environ, project), fix=asked.fix).run())
    status = checks.worst(found)
    if asked.json:
        print(json.dumps({"home": str(paths.home), "status": status, "checks": msgspec.to_builtins(found)}))
    else:
        from remembrancer.commands.doctor_table import print_checks

        print_checks(paths.home, found)
    return exit_codes.DEGRADED if status == "problem" else exit_codes.OK


class Examination:
    """One look at everything. A check that fails for a reason of its own says so, and the others go on."""

    def __init__(self, paths: RuntimePaths, around: Surroundings, *, fix: bool) -> None:
        self._paths = paths
        self._around = around
        self._fix = fix
        self._settings: Settings | None = None
        self._status: RuntimeStatus | None = None
        self._held = False

    def run(self) -> Iterator[Check]:
        """Every check, in the order in which one explains the next."""
        for name, look in (
            ("versions", self._versions),
            ("configuration", self._configuration),
            ("home", self._home),
            ("permissions", self._permissions),
            ("disk", self._disk),
            ("lock", self._lock),
            ("processes", self._processes),
            ("orphans", self._orphans),
            ("model", self._model),
            ("records", self._records),
            ("index", self._index),
            ("write queue", self._queue),
            ("clients", self._clients),
        ):
            yield self._make(name, look)

    def _make(self, name: str, look: Callable[[], Check]) -> Check:
        try:
            return look()
        except Exception as error:
            logger.warning("the check of %s failed", name, exc_info=True)
            return checks.check_failed(name, error)

    def _versions(self) -> Check:
        with closing(sqlite3.connect(":memory:")) as connection:
            options = {row[0] for row in connection.execute("PRAGMA compile_options")}
        return checks.check_versions(sys.version_info[:3], sqlite3.sqlite_version, has_fts5="ENABLE_FTS5" in options)

    def _configuration(self) -> Check:
        try:
            self._settings = load_settings(os.environ)
        except ConfigurationError as error:
            return checks.check_configuration(error.message)
        return checks.check_configuration(None)

    def _home(self) -> Check:
        return checks.check_home(places.home_facts(self._paths))

    def _permissions(self) -> Check:
        wide, looked_at = places.wide_places(self._paths)
        fixed = []
        if self._fix and wide:
            fixed = places.narrow(wide)
            wide, looked_at = places.wide_places(self._paths)
        return checks.check_permissions(wide, fixed, looked_at)

    def _disk(self) -> Check:
        return checks.check_disk(places.free_bytes(self._paths.home), places.used_bytes(self._paths.home))

    def _lock(self) -> Check:
        facts = running.lock_facts(self._paths)
        self._held = facts.held
        return running_checks.check_lock(facts)

    def _processes(self) -> Check:
        if not self._held:
            return Check("processes", "ok", "nothing runs")
        try:
            self._status = running.ask_status(self._paths)
        except (PeerUnavailable, PeerLost, DeadlineExceeded) as error:
            self._held = running.lock_facts(self._paths).held
            if not self._held:
                return Check("processes", "ok", "the runtime has just gone down")
            return running_checks.check_no_answer(running.lock_facts(self._paths).recorded, error.message)
        return running_checks.check_processes(self._status, find_problems(self._status))

    def _orphans(self) -> Check:
        return running_checks.check_orphans(running.orphans(self._paths, self._status, held=self._held))

    def _model(self) -> Check:
        if self._settings is None:
            return Check("model", "warning", "not looked at: the configuration has to be mended first")
        return data_checks.check_model(model.model_facts(self._settings, databases.last_model_key(self._paths)))

    def _records(self) -> Check:
        return data_checks.check_records(databases.record_files(self._paths))

    def _index(self) -> Check:
        if self._status is not None and self._status.store is not None:
            store = self._status.store
            return data_checks.check_index(store.indexes, store.embedding)
        if self._held:
            return Check("index", "warning", "not looked at: the store has it, and does not answer")
        return data_checks.check_index(databases.index_figures(self._paths), None)

    def _queue(self) -> Check:
        return data_checks.check_queue(databases.queue_facts(self._paths), running=self._held)

    def _clients(self) -> Check:
        return running_checks.check_clients(clients.client_facts(self._around), self._paths.home)
