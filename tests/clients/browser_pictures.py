"""Takes the pictures of the README and docs/browser.md: `python -m tests.clients.browser_pictures docs`."""

import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.clients.test_browser_walk import walk
from tests.processes.http_door import http_door

Facts = tuple[tuple[str, str, dict[str, Any]], ...]

MORNING: Facts = (
    ("The cache is Redis 7, one instance, without persistence", "fact", {"tags": ["cache"]}),
    ("We deploy the shop from `main` on Tuesdays and Thursdays, with two approvals", "decision", {"tags": ["deploy"]}),
    ("We never deploy on Fridays: nobody is there on Saturday to roll back", "convention", {"tags": ["deploy"]}),
    ("A rollback is `make rollback`: it takes four minutes and keeps the last five images", "procedure", {}),
    ("Anna Lindqvist owns the payment gateway; ask her before you touch retries", "fact", {"tags": ["people"]}),
    ("Write a runbook for webhook retries", "open_end", {}),
    ("Turn the flag checkout_v2 off for accounts in Switzerland until rounding is right", "open_end", {}),
)
NOON: Facts = (
    (
        "We also deploy on Fridays until noon since the on-call rota covers Saturdays",
        "convention",
        {"tags": ["deploy"]},
    ),
    ("Integration tests need Docker Compose: `make up` starts PostgreSQL, Valkey and a fake Stripe", "procedure", {}),
)
ASKED = ("how do we deploy the shop?", "who knows about payments?")


def main(folder: Path) -> None:
    """A home with a few memories, and pictures of three of its pages."""
    with tempfile.TemporaryDirectory(prefix="rmb-", dir="/tmp") as name, pytest.MonkeyPatch.context() as patch:
        home = Path(name) / "shop"
        home.mkdir()
        patch.setenv("REMEMBRANCER_HOME", str(home))
        with http_door(home, patch) as door:
            door.start()
            for client_name, facts in (("claude-code", MORNING), ("cursor", NOON)):
                session = door.open_session(client_name=client_name)
                call = partial(door.call, headers=session)
                for number, (content, kind, more) in enumerate(facts):
                    call("store_memory", number=number, content=content, kind=kind, wait_for_embedding=True, **more)
                for number, question in enumerate(ASKED, 100):
                    call("recall_memories", number=number, query=question)
                if facts is NOON:
                    news = "The cache is Valkey 8, two instances with a replica, because of Redis' licence"
                    redis = call("recall_memories", number=110, query="which cache do we have?")["memories"][0]["id"]
                    pair = call("recall_memories", number=112, query="may I deploy on Fridays?")["memories"][:2]
                    link = {"relation": "contradicts", "target": pair[1]["id"]}
                    call("update_memory", number=113, memory_id=pair[0]["id"], add_links=[link])
                    call("store_memory", number=111, content=news, kind="decision", tags=["cache"], supersedes=redis)
            walk(door, "pictures", folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
