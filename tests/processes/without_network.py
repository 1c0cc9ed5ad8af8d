"""Run a command that dies at once, with all that it starts, when it asks the kernel for an internet socket.

A seccomp filter (seccomp(2), Linux) is installed before the command is executed; every process and thread that comes of
it inherits the filter, whatever language it is written in. `socket(AF_INET | AF_INET6, ...)` ends the process that
calls it with SIGSYS.

Usage: python without_network.py COMMAND [ARGUMENT ...]. Exit status 77: this kernel has no such filter.
"""

import ctypes
import os
import platform
import socket
import struct
import sys

NOT_HERE = 77
# linux/prctl.h, linux/seccomp.h, linux/filter.h, linux/audit.h
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
KILL_PROCESS, ALLOW = 0x80000000, 0x7FFF0000
LOAD, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06
NUMBER_AT, MACHINE_AT, FIRST_ARGUMENT_AT = 0, 4, 16
SOCKET_CALL = {"x86_64": (0xC000003E, 41), "aarch64": (0xC00000B7, 198)}
"""The machine as audit names it, and the number of socket(2)."""


def program(machine: int, number: int) -> bytes:
    """The filter: struct sock_filter is (code, jump if true, jump if false, value)."""
    steps = [
        (LOAD, 0, 0, MACHINE_AT),
        (JUMP_IF_EQUAL, 0, 5, machine),
        (LOAD, 0, 0, NUMBER_AT),
        (JUMP_IF_EQUAL, 0, 3, number),
        (LOAD, 0, 0, FIRST_ARGUMENT_AT),
        (JUMP_IF_EQUAL, 2, 0, int(socket.AF_INET)),
        (JUMP_IF_EQUAL, 1, 0, int(socket.AF_INET6)),
        (RETURN, 0, 0, ALLOW),
        (RETURN, 0, 0, KILL_PROCESS),
    ]
    return b"".join(struct.pack("HBBI", *step) for step in steps)


class Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("steps", ctypes.c_char_p))


def install() -> bool:
    """Install the filter in this process, for good. False when it cannot be."""
    call = SOCKET_CALL.get(platform.machine())
    if sys.platform != "linux" or call is None:
        return False
    steps = program(*call)
    # Not ctypes.c_char_p's own buffer: a zero byte would end it.
    buffer = ctypes.create_string_buffer(steps, len(steps))
    described = Program(len(steps) // 8, ctypes.cast(buffer, ctypes.c_char_p))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        return False
    return bool(libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(described), 0, 0) == 0)


if __name__ == "__main__":
    if not install():
        sys.exit(NOT_HERE)
    os.execv(sys.argv[1], sys.argv[1:])
