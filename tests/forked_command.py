"""Be the command of a forked process: `python -I -S forked_command.py SOCKET IMPORTS ARGS`.

It gives its streams, folder and environment to a server of tests/forked.py, and ends as the
process does that the server forks. It passes on the signals that ask for an end; if this one is
killed, so is the other.
"""

import json
import os
import signal
import socket
import struct
import sys
from io import BufferedReader


def main(path: str, imports: str, *args: str) -> None:
    with socket.socket(socket.AF_UNIX) as channel:
        channel.connect(path)
        modules = [*filter(None, imports.split(","))]
        job = (args, os.getcwd(), dict(os.environ), modules)  # noqa: PTH109 - few imports
        data = json.dumps(job).encode()
        socket.send_fds(channel, [struct.pack("!Q", len(data))], [0, 1, 2])
        channel.sendall(data)
        received = channel.makefile("rb")
        pid = receive(received)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda number, _: os.kill(pid, number))
        code = receive(received)
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    sys.exit(code)


def receive(stream: BufferedReader) -> int:
    """Return the next number that the server sends."""
    (length,) = struct.unpack("!Q", stream.read(8))
    return json.loads(stream.read(length))


if __name__ == "__main__":
    main(*sys.argv[1:])
