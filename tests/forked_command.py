"""Be the command of a forked process: `python -I -S forked_command.py SOCKET IMPORTS ARGS`.

It gives its streams, folder and environment to a server of tests/forked.py, and ends as the
process does that the server forks. It passes on the signals that ask for an end; if this one is
killed, so is the other. It imports the inner modules of `signal` and `socket`: with those
themselves, and with json, it would take more than twice as long.
"""

import _socket
import marshal
import os
import sys

TYPE_CHECKING = False  # as in typing, which takes long to import
if TYPE_CHECKING:
    import signal as _signal
else:
    import _signal

STREAMS = b"".join(number.to_bytes(4, sys.byteorder) for number in (0, 1, 2))


def main(path: str, imports: str, *args: str) -> None:
    channel = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    channel.connect(path)
    modules = [*filter(None, imports.split(","))]
    job = ([*args], os.getcwd(), dict(os.environ), modules)  # noqa: PTH109 - few imports
    data = marshal.dumps(job)
    rights = (_socket.SOL_SOCKET, _socket.SCM_RIGHTS, STREAMS)
    channel.sendmsg([len(data).to_bytes(8, "big")], [rights])
    channel.sendall(data)
    pid = receive(channel)
    for number in (_signal.SIGINT, _signal.SIGTERM, _signal.SIGHUP, _signal.SIGQUIT):
        _signal.signal(number, lambda number, _: os.kill(pid, number))
    code = receive(channel)
    if code < 0:
        _signal.signal(-code, _signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    sys.exit(code)


def receive(channel: "_socket.socket") -> int:
    """Return the next number that the server sends."""
    data = read(channel, int.from_bytes(read(channel, 8), "big"))
    return marshal.loads(data)  # noqa: S302 - of our own server


def read(channel: "_socket.socket", length: int) -> bytes:
    data = b""
    while len(data) < length:
        part = channel.recv(length - len(data))
        if not part:
            sys.exit("the server of forks has ended")
        data += part
    return data


if __name__ == "__main__":
    main(*sys.argv[1:])
