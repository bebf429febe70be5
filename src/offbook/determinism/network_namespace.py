"""A network namespace for this process (Linux): it has loopback only, also for native code.

An audit hook sees Python code only. The kernel sees every library: gRPC, uvloop, psycopg, curl.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
from pathlib import Path

from offbook.errors import UsageError

CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
SIOCSIFFLAGS, IFF_UP = 0x8914, 0x1


def leave_network() -> None:
    """Move this process, and all that it starts, into a separate network. There is no way back.

    Call it before a second thread is started.
    """
    hint = "run it in a container without network, or on Linux: unshare --net --map-root-user …"
    if sys.platform != "linux":
        raise UsageError(f"no network namespaces on {sys.platform}", hint=hint)
    import ctypes
    import fcntl

    user, group = os.getuid(), os.getgid()
    unshare = ctypes.CDLL(None, use_errno=True).unshare
    if unshare(CLONE_NEWNET):  # not permitted: only in a user namespace
        if unshare(CLONE_NEWUSER | CLONE_NEWNET):
            reason = os.strerror(ctypes.get_errno())
            raise UsageError(f"cannot create a network namespace: {reason}", hint=hint)
        # without these the process would belong to `nobody`
        process = Path("/proc/self")
        (process / "setgroups").write_text("deny")
        (process / "uid_map").write_text(f"{user} {user} 1")
        (process / "gid_map").write_text(f"{group} {group} 1")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        fcntl.ioctl(sock, SIOCSIFFLAGS, struct.pack("16sH22x", b"lo", IFF_UP))
