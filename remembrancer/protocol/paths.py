"""The paths of a runtime's files. Standard library only."""

import os
import stat
from pathlib import Path

from remembrancer.protocol.system import run_directory


class RuntimePaths:
    """All paths of one home. Nothing is created here: the launcher creates directories and files."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.logs = home / "logs"
        self.run = Path(run_directory(str(home)))
        self.runtime_lock = home / "runtime.lock"
        """Held by the launcher while it runs; the kernel releases it after a crash."""
        self.start_lock = home / "start.lock"
        """Held by the one process that is starting a runtime, and by that runtime."""
        self.runtime_record = home / "runtime.json"
        """The process id of the launcher while it runs."""
        self.store_lock = home / "store.lock"
        """Held by the store while it runs: the data has one owner."""
        self.gateway_lock = home / "gateway.lock"
        """Held by the gateway while it runs: the write queue has one owner."""
        self.catalog = home / "catalog.db"
        """The projects of a 0.2.0 home, and the model in use."""
        self.database = home / "memory.db"
        """The records of the user, of every project, and of shared lanes."""
        self.projects = home / "projects"
        self.lanes = home / "lanes"
        """Files of the lanes that are shared with other machines: snapshots in transfer, and damaged entries."""
        self.shares = self.lanes / "projects.json"
        """In a 0.2.0 home: the lane that each project shares, and under `user` the user's lane."""
        self.vectors = home / "vectors"
        self.write_queue = home / "queue.db"
        self.hooks = home / "hooks"
        """Session events, written by hooks for the gateway."""
        self.keys = home / "keys"
        self.gateway_socket = self.run / "gateway.sock"
        self.control_endpoint = f"ipc://{self.run / 'control.sock'}"
        self.store_endpoint = f"ipc://{self.run / 'store.sock'}"

    def project_database(self, project_id: str) -> Path:
        """The records of one project in a 0.2.0 home; its indexes are stored beside it."""
        return self.projects / project_id / "memory.db"


def problem_of(path: Path, access: int = os.R_OK | os.W_OK) -> str | None:
    """The reason why a SQLite file, or a file beside it, cannot be used because of its type or mode; None if it can be
    used or is missing. Call this before opening the file: opening a pipe may block forever."""
    for each in database_files(path):
        if os.path.lexists(each) and not os.path.isfile(each):  # noqa: PTH113 - never raises
            return f"{each} is not a file; move it elsewhere"
        if os.path.lexists(each) and not os.access(each, access):
            return f"{each} cannot be read and written; fix its owner and mode"
    return None


def reason_of(error: OSError) -> str:
    """The reason, in words, why a directory cannot be created or used."""
    return "it is a file" if isinstance(error, FileExistsError) else error.strerror or str(error)


def is_empty(path: Path) -> bool:
    """True if a SQLite file is missing or has no content; False if it is not a usable file."""
    return problem_of(path) is None and not (path.exists() and path.stat().st_size)


def database_files(path: Path) -> tuple[Path, ...]:
    return path, path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-shm")


def delete_database(path: Path) -> None:
    for each in database_files(path):
        each.unlink(missing_ok=True)


def read_file(path: Path | str, limit_bytes: int = 16 * 1024 * 1024) -> bytes:
    """Never blocks on a pipe or a terminal. Raises `OSError` for anything but a regular file within the limit."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    with os.fdopen(descriptor, "rb") as file:  # raises for a directory
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode):
            raise OSError(f"{path} is not a file")
        if about.st_size > limit_bytes:
            raise OSError(f"{path} has more than {limit_bytes} bytes")
        return file.read(limit_bytes + 1)


def write_whole(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Write a file atomically and durably: after a crash, it is either complete or unchanged."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, mode)
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(descriptor, mode)
            file.write(data)
        move_into_place(fresh, path)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise


def move_into_place(fresh: Path, target: Path) -> None:
    """Give a complete file its name durably: after a crash, the target is either the old file or the new one."""
    with fresh.open("rb") as written:
        os.fsync(written.fileno())
    fresh.replace(target)
    sync_directory(target.parent)


def sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
