"""Be the command of a forked process: `python -I -S forked_command.py SOCKET IMPORTS ARGS`.

It gives its streams, folder and environment to the server of tests/forked.py, and ends as the
process does that the server forks. If this one is killed, so is the other.
"""

import json
import os
import signal
import socket
import struct
import sys


def main(path: str, imports: str, *args: str) -> None:
    with socket.socket(socket.AF_UNIX) as channel:
        channel.connect(path)
        job = (args, os.getcwd(), dict(os.environ), imports.split(","))  # noqa: PTH109 - few imports
        data = json.dumps(job).encode()
        socket.send_fds(channel, [struct.pack("!Q", len(data))], [0, 1, 2])
        channel.sendall(data)
        received = channel.makefile("rb")
        for _ in ("pid", "code"):
            (length,) = struct.unpack("!Q", received.read(8))
            code = json.loads(received.read(length))
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    sys.exit(code)


if __name__ == "__main__":
    main(*sys.argv[1:])
