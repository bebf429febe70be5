# ruff: noqa: INP001 - Python imports it from its folder, which is no package
"""Directs the connections of a Python process to the proxy of its run: see `proxy.py`.

Not every client reads HTTPS_PROXY; aiohttp and uvloop do not. Each name of another machine is
resolved to the proxy, which finds the host in the first message of TLS, or in the Host header. An
address without a name is refused. Python imports this file when it starts, and `socket` later: a
process without connections does not wait for it.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

LOCAL = ("", "localhost", "0.0.0.0", "::", "::1")  # noqa: S104 - a connection to these is local
HTTPS = (443, "443", b"443", "https")


class HookFinder:
    """Finds the modules that make connections, and changes each once it is loaded."""

    def __init__(self) -> None:
        self._changes = {"socket": direct_sockets, "uvloop": direct_uvloop}

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Return the spec of such a module, found by the other finders."""
        if name not in self._changes:
            return None
        change = self._changes.pop(name)
        finders = [finder.find_spec for finder in sys.meta_path]
        spec: Any = next(filter(None, (find(name, path, target) for find in finders)), None)
        if spec is not None:
            load = spec.loader.exec_module

            def load_and_change(module: Any) -> None:
                load(module)
                change(module)

            spec.loader.exec_module = load_and_change
        return spec


def direct_uvloop(uvloop: Any) -> None:
    """Let the loop of uvloop, which has its own sockets, find the proxy as well."""
    import socket

    redirect: Any = vars(socket)["offbook_redirect"]
    connect, connect_socket = uvloop.Loop.create_connection, uvloop.Loop.sock_connect

    async def getaddrinfo(_: Any, host: Any, port: Any, **options: Any) -> Any:
        return socket.getaddrinfo(host, port, **options)

    async def create_connection(
        loop: Any, factory: Any, host: Any = None, port: Any = None, **options: Any
    ) -> Any:
        if host is not None:
            if options.get("ssl"):
                options["server_hostname"] = options.get("server_hostname") or host
            host, port = redirect(host, port)
        return await connect(loop, factory, host, port, **options)

    async def sock_connect(loop: Any, sock: Any, address: Any) -> Any:
        if sock.family in {socket.AF_INET, socket.AF_INET6}:
            address = (*redirect(*address[:2]), *address[2:])
        return await connect_socket(loop, sock, address)

    uvloop.Loop.getaddrinfo, uvloop.Loop.sock_connect = getaddrinfo, sock_connect
    uvloop.Loop.create_connection = create_connection


def direct_sockets(socket: Any) -> None:  # noqa: C901, PLR0915 - the functions of one module
    """Let the functions of `socket` find the proxy in place of other machines."""
    port, tls_port, *allowed = os.environ["OFFBOOK_PROXY"].split(",")
    look_up, plain_socket = socket.getaddrinfo, socket.socket
    connect, connect_ex = plain_socket.connect, plain_socket.connect_ex
    sendto, sendmsg = plain_socket.sendto, plain_socket.sendmsg
    opened = {*allowed}  # with the addresses of their names

    def is_open(host: Any, to: Any) -> bool:
        name = host.decode() if isinstance(host, (bytes, bytearray)) else str(host or "")
        name = name.rstrip(".").lower()
        number = name.startswith("127.") and name.replace(".", "").isdigit()
        here = number or name in LOCAL or name.endswith(".localhost")
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

    def refuse(host: Any, to: Any) -> None:
        if not is_open(host, to):
            report(host, to)
            raise ConnectionRefusedError(111, f"refused by Offbook: {host}:{to}")

    def redirect(host: Any, to: Any) -> tuple[Any, Any]:
        """Return where to connect in place of an address."""
        if is_open(host, to):
            return host, to
        if is_address(host):
            refuse(host, to)
        return "127.0.0.1", int(tls_port if to in HTTPS else port)

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
        return look_up(*redirect(host, to), socket.AF_INET, type, proto)

    def guard_lookup(name: str) -> None:
        """Let a function that resolves a name, or an address, do so for this machine only."""
        original = getattr(socket, name)

        def resolve(host: Any) -> Any:
            here = is_open(host, "") or host == socket.gethostname()
            if here or (is_address(host) and name != "gethostbyaddr"):
                return original(host)
            report(host, 0)
            raise socket.gaierror(socket.EAI_NONAME, "refused by Offbook")

        setattr(socket, name, resolve)

    look_up_address = socket.getnameinfo

    def getnameinfo(address: Any, flags: int) -> Any:
        numeric = flags & socket.NI_NUMERICHOST
        if not numeric and not is_open(address[0], address[1]):
            report(address[0], 0)
            raise socket.gaierror(socket.EAI_NONAME, "refused by Offbook")
        return look_up_address(address, flags)

    def redirect_address(sock: Any, address: Any) -> Any:
        if sock.family not in {socket.AF_INET, socket.AF_INET6}:
            return address
        if sock.type != socket.SOCK_STREAM:  # the proxy receives no datagrams
            refuse(*address[:2])
            return address
        host, to = redirect(*address[:2])
        mapped = sock.family == socket.AF_INET6 and host == "127.0.0.1"
        return (f"::ffff:{host}" if mapped else host, to, *address[2:])

    def redirected_connect(sock: Any, address: Any) -> Any:
        return connect(sock, redirect_address(sock, address))

    def redirected_connect_ex(sock: Any, address: Any) -> Any:
        return connect_ex(sock, redirect_address(sock, address))

    def guarded_sendto(sock: Any, data: Any, *rest: Any) -> Any:
        if rest and isinstance(rest[-1], tuple):
            redirect_address(sock, rest[-1])
        return sendto(sock, data, *rest)

    def guarded_sendmsg(
        sock: Any, buffers: Any, ancdata: Any = (), flags: int = 0, address: Any = None
    ) -> Any:
        if isinstance(address, tuple):
            redirect_address(sock, address)
        return sendmsg(sock, buffers, ancdata, flags, address)

    socket.offbook_redirect, socket.getaddrinfo = redirect, getaddrinfo
    socket.getnameinfo = getnameinfo
    for name in ("gethostbyname", "gethostbyname_ex", "gethostbyaddr"):
        guard_lookup(name)
    plain_socket.connect, plain_socket.connect_ex = redirected_connect, redirected_connect_ex
    plain_socket.sendto, plain_socket.sendmsg = guarded_sendto, guarded_sendmsg


if os.environ.get("OFFBOOK_PROXY"):
    sys.meta_path.insert(0, HookFinder())  # pyright: ignore[reportArgumentType] - by its method
    if "socket" in sys.modules:
        direct_sockets(sys.modules["socket"])
# Then import the `sitecustomize` that this one hides, if there is one.
here = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - pathlib takes 8 ms
sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != here]  # noqa: PTH100
ours = sys.modules.pop("sitecustomize", None)
try:
    __import__("sitecustomize")
except ImportError:
    if ours is not None:
        sys.modules["sitecustomize"] = ours
