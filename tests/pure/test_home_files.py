"""How a database of a home is opened for reading where nothing can be written beside it."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from remembrancer.commands import home_files
from remembrancer.commands.home_files import USER_RECORDS, new_directory, open_file
from remembrancer.protocol.errors import RecordsUnusable
from tests.contracts.records_factories import leave_half_made


def make_database(path: Path) -> None:
    """One in WAL mode that nobody has open, and beside which no log can be made."""
    with closing(sqlite3.connect(path)) as made:
        made.executescript("PRAGMA journal_mode = WAL; CREATE TABLE memories (id TEXT); PRAGMA user_version = 1;")
        made.execute("INSERT INTO memories VALUES ('one')")
        made.commit()
    nowhere = path.parent / "no such directory"
    for beside in ("-wal", "-shm"):
        path.with_name(path.name + beside).symlink_to(nowhere / "file")


def test_a_database_on_a_disk_that_cannot_be_written_is_read(tmp_path: Path) -> None:
    make_database(tmp_path / "memory.db")
    file = open_file(tmp_path / "memory.db", USER_RECORDS)
    with closing(file.connection) as connection:
        assert connection.execute("SELECT id FROM memories").fetchall() == [("one",)]
    assert file.version == 1


def test_a_database_whose_log_has_more_than_it_is_not_read_without_it(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    make_database(path)
    log = path.with_name("memory.db-wal")
    log.unlink()
    log.write_bytes(b"what was committed last")
    with pytest.raises(RecordsUnusable):
        open_file(path, USER_RECORDS)


def test_a_database_whose_making_was_killed_has_nothing_in_it(tmp_path: Path) -> None:
    leave_half_made(tmp_path / "memory.db")
    file = open_file(tmp_path / "memory.db", USER_RECORDS)
    with closing(file.connection):
        assert file.version == 0


def test_what_a_killed_backup_left_is_removed_by_the_next_one_and_what_a_living_one_has_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = (
        "import sys, time; from pathlib import Path; from remembrancer.commands.home_files import new_directory\n"
        "with new_directory(Path(sys.argv[1])) as made:\n"
        "    (made / 'part').write_text('x'); print(made, flush=True); time.sleep(60)"
    )
    target = tmp_path / "backup.tar"
    with subprocess.Popen([sys.executable, "-c", program, target], stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        left = Path(other.stdout.readline().strip())
        monkeypatch.setattr(home_files, "YOUNG_S", 0.0)
        with new_directory(target):
            assert left.is_dir()
        other.send_signal(signal.SIGKILL)
    with new_directory(target) as mine:
        assert not left.exists()
        assert list(tmp_path.iterdir()) == [mine]
    assert list(tmp_path.iterdir()) == []
