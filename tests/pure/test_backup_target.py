"""The place of a backup or an export that is given no name."""

from __future__ import annotations

from pathlib import Path

import pytest

from remembrancer.commands.output_files import target_of


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
