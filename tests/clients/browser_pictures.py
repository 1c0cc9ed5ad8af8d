"""Takes the pictures of docs/browser.md: `python -m tests.clients.browser_pictures docs`."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import pytest

from tests.clients.test_browser_walk import walk
from tests.processes.http_door import http_door

MEMORIES = (
    (
        "We deploy the billing service on Tuesdays, from `main`, with **two** approvals",
        ["deploy", "billing"],
        "decision",
    ),
    ("Anna knows the payment gateway best; ask her before touching retries", ["billing", "people"], "fact"),
    ("The staging database is refreshed every night from an anonymised copy", ["database"], "fact"),
    ("A deployment is rolled back by `make rollback`, which takes four minutes", ["deploy"], "procedure"),
    ("Prefers small pull requests, with the test in the first commit", ["habits"], "preference"),
)


def main(folder: Path) -> None:
    """A home with a few memories, and pictures of three of its pages."""
    with tempfile.TemporaryDirectory(prefix="rmb-", dir="/tmp") as name, pytest.MonkeyPatch.context() as patch:
        home = Path(name) / "shop"
        home.mkdir()
        patch.setenv("REMEMBRANCER_HOME", str(home))
        with http_door(home, patch) as door:
            door.start()
            for content, tags, kind in MEMORIES:
                door.call("store_memory", content=content, tags=tags, kind=kind)
            first = door.call("recall_memories", query="how do we deploy the billing service?")["memories"][0]["id"]
            door.call("update_memory", memory_id=first, content=MEMORIES[0][0].replace("Tuesdays", "Wednesdays"))
            walk(door, "pictures", folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
