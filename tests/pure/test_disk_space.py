"""What the error of a full disk says: sizes that are true, also of a small file."""

from __future__ import annotations

from pathlib import Path

from remembrancer.protocol.errors import StorageFull, disk_full


def test_a_full_disk_is_told_with_its_place_what_is_free_and_the_size_of_file_and_log(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    path.write_bytes(bytes(2048))
    path.with_name("memory.db-wal").write_bytes(bytes(1024))
    error = disk_full("the disk has no room", path)
    assert str(path) in error.message
    assert "free" in error.message
    assert error.details["current_size_bytes"] == 3072
    assert error.details["current_size"] == "3.0 KiB"


def test_sizes_are_told_in_units_that_fit() -> None:
    details = StorageFull.at_limit("full", current_bytes=24 * 2**10, limit_bytes=3 * 2**20).details
    assert (details["current_size"], details["limit"]) == ("24.0 KiB", "3.0 MiB")
