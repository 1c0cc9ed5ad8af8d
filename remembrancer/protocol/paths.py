"""Where a runtime keeps its things, and the locks on them. Standard library only: the bridge imports this."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

_SOCKET_PATH_LIMIT: Final = 107
"""Bytes of a Unix socket's path on Linux, less its terminating NUL (unix(7)); macOS allows 103."""
_LONGEST_SOCKET_NAME: Final = len("/gateway-control.sock") + 4


_INHERITED: Final = frozenset(
    {
        *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR", "TEMP", "TMP"),
        *("VIRTUAL_ENV", "CONDA_PREFIX", "LD_LIBRARY_PATH", "LD_PRELOAD", "GLIBC_TUNABLES", "CUDA_VISIBLE_DEVICES"),
        *("HF_HOME", "HF_HUB_CACHE", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "TOKENIZERS_PARALLELISM", "TORCH_HOME"),
    }
)
_INHERITED_PREFIXES: Final = (
    *("REMEMBRANCER_", "MEMORY_", "PYTHON", "LC_", "XDG_", "DYLD_", "MALLOC_", "COVERAGE_", "NIX_"),
    *("OMP_", "OPENBLAS_", "MKL_", "ORT_", "KMP_", "SENTENCE_TRANSFORMERS_"),
)
_SECRET_ENDINGS: Final = ("KEY", "TOKEN", "SECRET", "PASSWORD", "PASS")


_NETWORK: Final = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR")
NETWORK_VARIABLES: Final = frozenset([*_NETWORK, *map(str.lower, _NETWORK)])
"""How a provider is reached. A proxy's address may have a password in it."""
PROVIDER_KEYS: Final = frozenset({"VOYAGE_API_KEY", "OPENAI_API_KEY"})


def runtime_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """What a runtime is given of the environment of the session that starts it: what it knows, and nobody's secrets.

    It outlives that session and serves others: an assistant's keys have no business there.
    """
    return {
        name: value
        for name, value in environ.items()
        if name in _INHERITED or (name.startswith(_INHERITED_PREFIXES) and not name.endswith(_SECRET_ENDINGS))
    }


class RuntimePaths:
    """Every path of one home. Nothing is created here: the launcher does that."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.logs = home / "logs"
        self.run = _run_directory(home)
        self.runtime_lock = home / "runtime.lock"
        """Held by the launcher as long as it lives; the kernel releases it at a crash."""
        self.start_lock = home / "start.lock"
        """Held by the one bridge that is starting a runtime."""
        self.runtime_record = home / "runtime.json"
        """What the launcher started, so that the next one can clear away what a crash left."""
        self.store_lock = home / "store.lock"
        """Held by the store as long as it lives: one owner for the data."""
        self.gateway_lock = home / "gateway.lock"
        """Held by the gateway as long as it lives: one owner for the write queue."""
        self.catalog = home / "catalog.db"
        self.user_database = home / "user" / "memory.db"
        self.projects = home / "projects"
        self.vectors = home / "vectors"
        self.write_queue = home / "queue.db"
        self.hooks = home / "hooks"
        """Events of sessions, which hooks leave there for the gateway."""
        self.keys = home / "keys"
        self.restore_mark = home / "restore.unfinished"
        """In a home whose files a restore is replacing, or was when it was killed."""
        self.gateway_socket = self.run / "gateway.sock"

    def project_database(self, project_id: str) -> Path:
        """The records of one project."""
        return self.projects / project_id / "memory.db"

    @property
    def control_endpoint(self) -> str:
        """Where the launcher listens for its actors and for commands."""
        return f"ipc://{self.run / 'control.sock'}"

    @property
    def store_endpoint(self) -> str:
        """Where the store listens for the gateway and the workers."""
        return f"ipc://{self.run / 'store.sock'}"


def _run_directory(home: Path) -> Path:
    """`run` in the home, or a short private directory when a socket's path in there would be too long."""
    inside = home / "run"
    if len(os.fsencode(inside)) + _LONGEST_SOCKET_NAME <= _SOCKET_PATH_LIMIT - 4:
        return inside
    import hashlib

    # Not XDG_RUNTIME_DIR or TMPDIR: two sessions of one user may differ in those, and would miss each other.
    digest = hashlib.sha256(os.fsencode(home)).hexdigest()[:16]
    return Path("/tmp") / f"remembrancer-{os.getuid()}-{digest}"  # noqa: S108 - private: owner and mode are checked


def write_whole(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Write a file, durably: it is there whole, or as it was before."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, mode)
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(descriptor, mode)
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        fresh.replace(path)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def sync_directory(directory: Path) -> None:
    """Make the names in a directory durable."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class FileLock:
    """An exclusive lock on a file, which is made with mode 0600 and never deleted.

    `flock` (2) belongs to the open file: the kernel releases it when the process dies, however it dies.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor: int | None = None

    def try_acquire(self) -> bool:
        """Take the lock if nobody holds it. True when it is ours (also when it was already)."""
        if self._descriptor is not None:
            return True
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return False
        self._descriptor = descriptor
        return True

    def release(self) -> None:
        """Give the lock back. May be called twice."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    def is_held_elsewhere(self) -> bool:
        """Whether another holder has the lock now. Nobody has it where its directory is gone."""
        if self._descriptor is not None or not self.path.exists():
            return False
        try:
            if self.try_acquire():
                self.release()
                return False
        except FileNotFoundError:
            return False
        return True

    def __enter__(self) -> FileLock:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
