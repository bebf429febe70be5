# ruff: noqa: INP001 - Python imports it from its folder, which is no package
"""Directs the connections of a Python process to the proxy of its run: see `proxy.py`.

Not every client reads HTTPS_PROXY; aiohttp does not. Each name of another machine is resolved to
the proxy, which finds the host in the first message of TLS, or in the Host header. An address
without a name is refused. Python imports this file when it starts, and `socket` later: a process
without connections does not wait for it.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

LOCAL = ("", "localhost", "0.0.0.0", "::", "::1")  # noqa: S104 - a connection to these is local
HTTPS = (443, "443", b"443", "https")


class SocketFinder:
    """Finds the module `socket`, and changes it once it is loaded."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Return the spec of `socket`, found by the other finders."""
        if name != "socket":
            return None
        sys.meta_path.remove(self)  # pyright: ignore[reportArgumentType] - a finder by its method
        finders = [finder.find_spec for finder in sys.meta_path]
        spec: Any = next(filter(None, (find(name, path, target) for find in finders)), None)
        if spec is not None:
            load = spec.loader.exec_module

            def load_and_change(module: Any) -> None:
                load(module)
                direct(module, *os.environ["OFFBOOK_PROXY"].split(","))

            spec.loader.exec_module = load_and_change
        return spec


def direct(socket: Any, port: str, tls_port: str, *allowed: str) -> None:
    """Let the functions of `socket` find the proxy in place of other machines."""
    look_up, by_name = socket.getaddrinfo, socket.gethostbyname
    connect, connect_ex = socket.socket.connect, socket.socket.connect_ex
    opened = {*allowed}  # with the addresses of their names

    def is_open(host: Any, to: Any) -> bool:
        name = host.decode() if isinstance(host, (bytes, bytearray)) else str(host or "")
        name = name.rstrip(".").lower()
        here = name in LOCAL or name.endswith(".localhost") or name.startswith("127.")
        return here or name in opened or f"{name}:{to}" in opened

    def is_address(host: Any) -> bool:
        for family in (socket.AF_INET, socket.AF_INET6):
            try:
                socket.inet_pton(family, host)
            except (OSError, TypeError, UnicodeError):
                continue
            return True
        return False

    def report(host: Any, to: Any) -> None:
        """Let the proxy refuse an address, and note it."""
        with socket.socket() as reported:
            connect(reported, ("127.0.0.1", int(port)))
            reported.sendall(f"CONNECT {host}:{to} HTTP/1.1\r\n\r\n".encode())
            reported.recv(1)

    def getaddrinfo(
        host: Any,
        to: Any,
        family: int = 0,
        type: int = 0,  # noqa: A002 - the name of the original
        proto: int = 0,
        flags: int = 0,
    ) -> Any:
        if is_open(host, to) or is_address(host):
            found = look_up(host, to, family, type, proto, flags)
            if is_open(host, to):
                opened.update(f"{entry[4][0]}:{entry[4][1]}" for entry in found)
            return found
        sys.audit("socket.getaddrinfo", host, to, family, type, proto)  # a guard may refuse it
        way = tls_port if to in HTTPS else port
        return look_up("127.0.0.1", int(way), socket.AF_INET, type, proto)

    def gethostbyname(host: Any) -> Any:
        if is_open(host, "") or is_address(host):
            return by_name(host)
        report(host, 0)
        raise socket.gaierror(socket.EAI_NONAME, "refused by Offbook")

    def check(sock: Any, address: Any) -> None:
        if sock.family in {socket.AF_INET, socket.AF_INET6} and not is_open(*address[:2]):
            report(*address[:2])
            raise ConnectionRefusedError(111, f"refused by Offbook: {address[0]}:{address[1]}")

    def checked_connect(sock: Any, address: Any) -> Any:
        check(sock, address)
        return connect(sock, address)

    def checked_connect_ex(sock: Any, address: Any) -> Any:
        check(sock, address)
        return connect_ex(sock, address)

    socket.getaddrinfo, socket.gethostbyname = getaddrinfo, gethostbyname
    socket.socket.connect, socket.socket.connect_ex = checked_connect, checked_connect_ex


if os.environ.get("OFFBOOK_PROXY"):
    if "socket" in sys.modules:
        direct(sys.modules["socket"], *os.environ["OFFBOOK_PROXY"].split(","))
    else:
        sys.meta_path.insert(0, SocketFinder())  # pyright: ignore[reportArgumentType] - as above
# Then import the `sitecustomize` that this one hides, if there is one.
here = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - pathlib takes 8 ms
sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != here]  # noqa: PTH100
ours = sys.modules.pop("sitecustomize", None)
try:
    __import__("sitecustomize")
except ImportError:
    if ours is not None:
        sys.modules["sitecustomize"] = ours
