"""Takes the pictures of the README and docs/browser.md: `python -m tests.clients.browser_pictures docs`."""

import sys
import tempfile
from functools import partial
from pathlib import Path

import pytest

from tests.cases import cases
from tests.clients.test_browser_walk import walk
from tests.processes.http_door import http_door

ASKED = ("how do we deploy the shop?", "who knows about payments?")


def main(folder: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="rmb-", dir="/tmp") as name, pytest.MonkeyPatch.context() as patch:
        home = Path(name) / "shop"
        home.mkdir()
        patch.setenv("REMEMBRANCER_HOME", str(home))
        with http_door(home, patch) as door:
            door.start()
            for client_name, when in (("claude-code", "morning"), ("cursor", "noon")):
                session = door.open_session(client_name=client_name)
                call = partial(door.call, headers=session)
                for number, (content, kind, more) in enumerate(cases("pictures", when)):
                    call("store_memory", number=number, content=content, kind=kind, wait_for_embedding=True, **more)
                for number, question in enumerate(ASKED, 100):
                    call("recall_memories", number=number, query=question)
                if when == "noon":
                    news = "The cache is Valkey 8, two instances with a replica, because of Redis' licence"
                    redis = call("recall_memories", number=110, query="which cache do we have?")["memories"][0]["id"]
                    call("recall_memories", number=112, query="may I deploy on Fridays?")
                    call("store_memory", number=111, content=news, kind="decision", tags=["cache"], supersedes=redis)
            walk(door, "pictures", folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
