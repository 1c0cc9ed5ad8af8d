"""Calls that only Linux or only macOS provides, each with a fallback. `REMEMBRANCER_PORTABLE` in the environment
disables the Linux ones, for one run of the tests. Hooks and the bridge import this module: keep it small."""

# ruff: noqa: PTH118
import os
import stat
import sys
from contextlib import suppress

IS_PORTABLE = "REMEMBRANCER_PORTABLE" in os.environ
IS_POLLED = IS_PORTABLE or "microsoft" in os.uname().release.lower()
"""True where changes to files are found by polling: WSL does not report changes on Windows disks."""
DATA_DIRECTORY = "~/Library/Application Support" if sys.platform == "darwin" else "~/.local/share"
MEMORY_STORAGE = "/dev/shm"  # noqa: S108 - private: owner and mode are checked
LONGEST_SOCKET_PATH = 103
"""The longest path of a Unix socket on macOS in bytes, without its terminating NUL. Linux allows 107 (unix(7))."""
_LONGEST_SOCKET_NAME = len("/gateway-control.sock") + 4
NICENESS = 10
"""Below the maximum of 19: clients' requests go first, but background work still gets done on a busy machine."""
_PR_SET_PDEATHSIG = 1


def real_path(path: str | os.PathLike[str]) -> str:
    """The absolute path without links, as the file system stores it: macOS ignores case and Unicode composition when it
    finds a file. Unlike `Path.resolve`, it accepts a loop of links."""
    return _as_stored(os.path.realpath(path))


def _as_stored(path: str) -> str:
    if sys.platform == "darwin":
        import fcntl

        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # does not block on a pipe
        except FileNotFoundError:
            above, name = os.path.split(path)
            return os.path.join(_as_stored(above), name) if name else path
        except OSError:
            return path
        try:
            path = os.fsdecode(fcntl.fcntl(descriptor, fcntl.F_GETPATH, bytes(1024)).rstrip(b"\0"))
        finally:
            os.close(descriptor)
    return path


def run_directory(home: str) -> str:
    """`run` in a home, or a short private directory if a socket's path in the home would be too long."""
    inside = os.path.join(home, "run")
    if len(os.fsencode(inside)) + _LONGEST_SOCKET_NAME <= LONGEST_SOCKET_PATH:
        return inside
    import hashlib

    # Not XDG_RUNTIME_DIR or TMPDIR: these may differ between two sessions of one user, which would then miss each
    # other.
    digest = hashlib.sha256(os.fsencode(home)).hexdigest()[:16]
    return f"/tmp/remembrancer-{os.getuid()}-{digest}"  # noqa: S108 - private: owner and mode are checked


def is_private(directory: str | os.PathLike[str]) -> bool:
    """True for a directory (not a link) that only this user can access. Raises `OSError` if it does not exist."""
    about = os.lstat(directory)
    return stat.S_ISDIR(about.st_mode) and about.st_uid == os.getuid() and not about.st_mode & 0o077


def memory_storage() -> str:
    """A directory in RAM that all processes can see, or else `/tmp`. Not TMPDIR, which may differ between sessions."""
    is_there = not IS_PORTABLE and os.access(MEMORY_STORAGE, os.W_OK | os.X_OK)
    return os.path.realpath(MEMORY_STORAGE if is_there else "/tmp")  # noqa: S108


def end_with_parent() -> None:
    """Have the kernel kill this process when its parent exits. Other systems rely on the end of its input."""
    if sys.platform == "linux" and not IS_PORTABLE:
        import ctypes
        import signal

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def limit_memory(limit_bytes: int) -> None:
    """Limit the address space of this process. macOS refuses such a limit."""
    if sys.platform != "darwin" and not IS_PORTABLE:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (limit_bytes, limit_bytes))


def give_back_memory() -> None:
    """Return freed memory to the system, if the C library is glibc. Loading a model frees about 80 MB."""
    if sys.platform == "linux" and not IS_PORTABLE:
        import ctypes

        with suppress(AttributeError):
            ctypes.CDLL(None).malloc_trim(0)


def lower_priority() -> None:
    _set_niceness(0)
    if sys.platform == "linux" and not IS_PORTABLE:
        import psutil  # urgent processes do not need this module

        with suppress(psutil.Error, OSError):
            psutil.Process().ionice(psutil.IOPRIO_CLASS_IDLE)


def lower_thread_priority() -> None:
    """Lower the priority of this thread and of those it starts. Only Linux has per-thread niceness (sched(7))."""
    if sys.platform == "linux" and not IS_PORTABLE:
        import threading

        _set_niceness(threading.get_native_id())


def _set_niceness(which: int) -> None:
    with suppress(OSError):  # it is lower already
        os.setpriority(os.PRIO_PROCESS, which, NICENESS)
