"""Files that a command makes for a person: where they lie, and that what a killed one left is cleared away."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from remembrancer.commands import output_files
from remembrancer.commands.output_files import new_directory, target_of


def test_what_a_killed_backup_left_is_removed_by_the_next_one_and_what_a_living_one_has_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = (
        "import sys, time; from pathlib import Path; from remembrancer.commands.output_files import new_directory\n"
        "with new_directory(Path(sys.argv[1])) as made:\n"
        "    (made / 'part').write_text('x'); print(made, flush=True); time.sleep(60)"
    )
    target = tmp_path / "backup.tar"
    with subprocess.Popen([sys.executable, "-c", program, target], stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        left = Path(other.stdout.readline().strip())
        monkeypatch.setattr(output_files, "YOUNG_S", 0.0)
        with new_directory(target):
            assert left.is_dir()
        other.send_signal(signal.SIGKILL)
    with new_directory(target) as mine:
        assert not left.exists()
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
