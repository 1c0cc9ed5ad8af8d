"""Files that a command makes for a person: where they lie, and that what a killed one left is cleared away."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from remembrancer.commands import output_files
from remembrancer.commands.output_files import new_directory, target_of


def test_what_a_killed_backup_left_is_removed_by_a_later_one_and_what_a_living_one_has_is_not(tmp_path: Path) -> None:
    target = tmp_path / "backup.tar"
    with new_directory(target) as left:
        (left / "part").write_text("x")
        with new_directory(target):
            assert left.is_dir()
        yesterday = time.time() - output_files.ABANDONED_S - 1
        os.utime(left, (yesterday, yesterday))
        with new_directory(target) as mine:
            assert list(tmp_path.iterdir()) == [mine]
    assert list(tmp_path.iterdir()) == []


# --- The place of a backup or an export that is given no name.


def test_a_file_for_a_person_stays_out_of_a_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    below = tmp_path / "repository" / "src"
    below.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(tmp_path / "person"))
    (tmp_path / "person").mkdir()
    monkeypatch.chdir(below)
    assert target_of(None, "made.tar", force=False) == below / "made.tar"
    (tmp_path / "repository" / ".git").mkdir()
    assert target_of(None, "made.tar", force=False) == tmp_path / "person" / "made.tar"
    assert target_of("named.tar", "made.tar", force=False) == below / "named.tar"
