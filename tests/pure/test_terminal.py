"""Nothing that a memory says steers the terminal of a person."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from rich.table import Table

from remembrancer.commands import terminal
from remembrancer.memory.text import printable
from tests.patience import PATIENCE_S

HOSTILE = "a\x1b]0;title\x07b\x9b31mc\rd\u202ee\x00"
STEERS = set("\x1b\x07\x9b\r\u202e\x00")


def test_a_text_keeps_its_lines_and_loses_what_steers() -> None:
    assert printable("one\n\ttwo – größe 👩‍👩‍👧") == "one\n\ttwo – größe 👩‍👩‍👧"
    assert not STEERS & set(printable(HOSTILE))
    assert printable(HOSTILE).startswith("a")
    assert printable(HOSTILE).endswith("e\ufffd")


def test_colours_of_our_own_pass_and_those_of_a_memory_do_not(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdout", sys.stdout)
    monkeypatch.setattr(sys, "stderr", sys.stderr)
    terminal.clean_output()
    table = Table("what")
    table.add_row(HOSTILE)
    out = terminal.Terminal(force_terminal=True, color_system="standard")
    out.print("[green]good[/green]", table)
    print(HOSTILE)
    print(HOSTILE, file=sys.stderr)
    said = capsys.readouterr()
    assert "\x1b[32mgood\x1b[0m" in said.out
    assert not STEERS & set(said.out.replace("\x1b[", "")) - {"\x1b"}
    assert "\x1b]" not in said.out
    assert not STEERS & set(said.err)


@pytest.mark.parametrize(
    "arguments",
    [["backup", "import", "file"], ["backup", "restore", "file", "--yes"], ["backup", "export", "-", "--project", "x"]],
)
def test_no_command_passes_on_what_a_file_or_a_name_says(home: Path, tmp_path: Path, arguments: list[str]) -> None:
    named = tmp_path / HOSTILE.replace("\x00", "").replace("/", "")
    named.write_bytes(b'{"format":"' + HOSTILE.encode("unicode_escape").replace(b"\\x", b"\\u00") + b'"}')
    command = [
        sys.executable,
        "-m",
        "remembrancer",
        *[str(named) if word in ("file", "x") else word for word in arguments],
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert done.returncode not in (0, 1)
    assert done.stderr
    assert not STEERS & set(done.stderr + done.stdout)
