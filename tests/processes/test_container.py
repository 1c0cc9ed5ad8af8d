"""The Containerfile, followed without a container engine: what it names is there, and what it starts is healthy."""

import asyncio
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.request import urlopen

from bench.client import StdioClient
from remembrancer.command_line import COMMANDS
from tests.conftest import PATIENT_ENVIRONMENT
from tests.patience import PATIENCE_S, wait_until
from tests.ports import free_port
from tests.runtime import done

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "remembrancer"


def of(name: str) -> list[str]:
    text = re.sub(r"\\\n\s*", "", (ROOT / "Containerfile").read_text())
    return [line.partition(" ")[2].strip() for line in text.splitlines() if line.startswith(f"{name} ")]


def environment() -> dict[str, str]:
    return dict(word.split("=", 1) for line in of("ENV") for word in shlex.split(line))


def test_every_step_names_what_is_there() -> None:
    for line in of("COPY"):
        *sources, _ = line.split()
        assert all((ROOT / each).exists() for each in sources), line
    needed = (ROOT / "pyproject.toml").read_text()
    copied = " ".join(of("COPY"))
    for name in re.findall(r'(?:readme|license-files) = \[?"([^"]+)"', needed):
        assert name in copied, f"the build needs {name}"
    (user,) = of("USER")
    assert f"--uid {user.partition(':')[0]} " in " ".join(of("RUN"))
    assert user.partition(":")[0] != "0"
    (volume,) = of("VOLUME")
    assert environment()["REMEMBRANCER_HOME"] == environment()["HOME"] == environment()["TMPDIR"] == volume


def test_what_it_starts_is_healthy_with_nothing_writable_but_its_volume(home: Path) -> None:
    (home / "token").write_text(done("token", "create", "ana", "--project", str(home), home=home))
    port = str(free_port())
    (entry,), (arguments,), (check,) = of("ENTRYPOINT"), of("CMD"), of("HEALTHCHECK")
    program = [*json.loads(entry), *json.loads(arguments)]
    assert program[0] == "remembrancer"
    assert program[1] in COMMANDS
    started = [sys.executable, "-P", "-m", *(each.replace("8080", port) for each in program)]
    environ = {name: value.replace("/data", str(home)) for name, value in environment().items()}
    environ |= {"PATH": os.environ["PATH"], "REMEMBRANCER_EMBEDDERS": "0", "REMEMBRANCER_CONSOLIDATOR": "0"}
    environ |= {"PYTHONPATH": str(ROOT), **PATIENT_ENVIRONMENT}
    command = [*read_only(home), *started]
    runtime = subprocess.Popen(command, env=environ, cwd=home, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT)
    try:
        url = f"http://127.0.0.1:{port}"

        def is_healthy() -> bool:
            assert runtime.poll() is None, "it has ended"
            try:
                with urlopen(f"{url}/health", timeout=PATIENCE_S) as answer:
                    return bool(answer.status == 200)
            except OSError:  # nobody listens yet, or it goes down again
                return False

        wait_until(is_healthy)
        looks = [each.replace("8080", port) for each in json.loads(check[check.index("[") :])]
        looks[0] = sys.executable
        wait_until(lambda: subprocess.run(looks, check=False, capture_output=True).returncode == 0)

        async def store() -> None:
            async with StdioClient(home, arguments=("--url", f"{url}/mcp", "--token-file", str(home / "token"))) as box:
                assert "memory_id" in await box.store("It is in a box")

        asyncio.run(store())
        wait_until((home / "memory.db").is_file)  # what was stored may be queued first
    finally:
        runtime.terminate()
        runtime.wait(PATIENCE_S)
    looks_again = subprocess.run(looks, check=False, capture_output=True)
    assert looks_again.returncode != 0, "a check that cannot fail says nothing"


def read_only(home: Path) -> list[str]:
    """The words before a command that let it write only in its home; none where that takes more rights."""
    keep = 'mount --bind "$0" "$0" && mount -o remount,ro,bind / && mount --bind "$1" "$1"'
    script = f'{keep} && mount -o remount,ro,bind "$1" && shift && exec "$@"'
    before = ["unshare", "--mount", "sh", "-c", script, str(home), str(PACKAGE)]
    if shutil.which("unshare") is None:
        return []
    tried = subprocess.run([*before, "true"], capture_output=True, check=False)
    return before if tried.returncode == 0 else []


def test_the_snippets_for_clients_can_be_read_and_name_what_is_there() -> None:
    text = (ROOT / "docs" / "http.md").read_text()
    snippets = [json.loads(each) for each in re.findall(r"```json\n(.*?)```", text, re.DOTALL)]
    assert len(snippets) == 2
    for snippet in snippets:
        ((entry, *others),) = (list(servers.values()) for servers in snippet.values())
        assert not others
        assert entry["url"].endswith("/mcp")
        assert entry["headers"]["Authorization"].startswith("Bearer ")
