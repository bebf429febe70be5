"""Nothing leaves the machine unless the test said so.

    with closed(allow=("registry.example:443",)) as border:
        ...                     # whatever reaches out in here raises, with the line that did it
    border.refused              # the same errors, also when somebody swallowed them

The border belongs to the task that opened it: to what it awaits, to the tasks and threads that it
starts, and to nobody else. It sees what goes through Python's own sockets; a library that opens
connections in native code of its own (gRPC, uvloop, curl) has to be answered at its transport.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Generator, Iterable
from contextlib import ExitStack, contextmanager
from ipaddress import ip_address
from typing import Any, cast

from offbook.determinism import audit
from offbook.determinism.following import follower, following, origin
from offbook.determinism.patches import lay
from offbook.errors import IsolationError

LOOKUPS = {"socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr"}
SENDINGS = {"socket.connect", "socket.sendto", "socket.sendmsg"}
INTERNET = {socket.AF_INET, socket.AF_INET6}
NOWHERE = {"", "localhost", "0.0.0.0", "::"}  # noqa: S104 - to connect to these is to stay here

_border = follower("offbook_border")


class Border:
    """What may pass, and what was refused."""

    def __init__(self, allow: tuple[str, ...] = (), outer: Border | None = None) -> None:
        self._allow = {_split(address) for address in allow}
        self._outer = outer
        self.refused: list[IsolationError] = []

    def admits(self, host: str, port: int | None) -> bool:
        """Whether this address may be reached: it was allowed, by everybody around us."""
        named = any(h == host and (port is None or p in {None, port}) for h, p in self._allow)
        return named and (self._outer is None or self._outer.admits(host, port))

    def learn(self, host: str, port: int | None, addresses: Iterable[str]) -> None:
        """Remember that an allowed host is to be found at these addresses."""
        if self.admits(host, port):
            self._allow |= {(address, port) for address in addresses}
            if self._outer is not None:
                self._outer.learn(host, port, addresses)

    def check(self, host: str, port: int | None, doing: str) -> None:
        """Refuse what may not pass."""
        if is_here(host) or self.admits(host, port):
            return
        shown = host if port is None else f"{host}:{port}"
        error = IsolationError(
            f"{doing} {shown}, which is not this machine",
            where=origin(),
            hint=f"let the source answer it, or allow it: allow=({shown!r},)",
        )
        self.refused.append(error)
        raise error


def _split(address: str) -> tuple[str, int | None]:
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or (":" in host and not host.endswith("]")):
        return address.strip("[]"), None
    return host.strip("[]"), int(port)


@contextmanager
def closed(*, allow: tuple[str, ...] = ()) -> Generator[Border]:
    """Refuse everything from in here that would leave the machine, but for `allow`ed addresses.

    An address is a host, or a host and a port: `"example.org"`, `"example.org:443"`.
    """
    border = Border(allow, _border.get())
    with ExitStack() as stack:
        stack.callback(audit.watch(LOOKUPS, _look_up))
        stack.callback(audit.watch(SENDINGS, _send))
        for name in ("connect", "connect_ex", "sendto"):
            # Python looks up the name in an address before it announces the connection
            stack.callback(lay(socket.socket, name, _resolve))
        if allow:
            stack.callback(lay(socket, "getaddrinfo", _find))
        stack.enter_context(following())
        stack.callback(_border.reset, _border.set(border))
        yield border


def is_here(host: str) -> bool:
    """Whether this is an address, or a name, of this very machine."""
    name = host.rstrip(".").lower()
    if name in NOWHERE or name.endswith(".localhost"):
        return True
    try:
        return ip_address(name.partition("%")[0]).is_loopback
    except ValueError:
        return False


def _look_up(event: str, args: tuple[Any, ...]) -> None:
    border: Border | None = _border.get()
    if border is None:
        return
    host = _text(args[0])
    if not is_numeric(host):  # which needs no look-up, and so goes nowhere
        port = args[1] if event == "socket.getaddrinfo" else None
        border.check(host, _number(port), "tried to look up")


def _find(
    original: Callable[..., Any], host: object, port: object, *args: Any, **named: Any
) -> Any:
    found = original(host, port, *args, **named)
    border: Border | None = _border.get()
    if border is not None:
        border.learn(_text(host), _number(port), [entry[4][0] for entry in found])
    return found


def _send(_event: str, args: tuple[Any, ...]) -> None:
    border: Border | None = _border.get()
    if border is not None:
        _check_address(border, args[0], args[1])


def _resolve(original: Callable[..., Any], sock: socket.socket, *args: Any) -> Any:
    border: Border | None = _border.get()
    if border is not None and args:
        _check_address(border, sock, args[-1])
    return original(sock, *args)


def _check_address(border: Border, sock: socket.socket, address: object) -> None:
    if sock.family in INTERNET and isinstance(address, tuple):
        host, port = cast("tuple[object, object]", address[:2])
        border.check(_text(host), _number(port), "tried to reach")


def is_numeric(host: str) -> bool:
    """Whether this is an address already."""
    try:
        ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True


def _text(host: object) -> str:
    if isinstance(host, (bytes, bytearray)):
        return host.decode("ascii", "replace")
    return "" if host is None else str(host)


def _number(port: object) -> int | None:
    if isinstance(port, (str, bytes)):
        return int(port) if port.isdigit() else None
    return port if isinstance(port, int) else None
