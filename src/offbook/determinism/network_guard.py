"""What this process does to the world outside, told before it happens.

Python announces every connection, look-up and opened file as an audit event. A hook for these can
never be taken out again, so there is one for the process, put in when it is first needed; whoever
wants to watch some events is asked about those alone, and may leave again. A handler that raises
keeps the thing from happening.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable, Generator, Iterable
from contextlib import ExitStack, contextmanager
from ipaddress import ip_address
from threading import Lock
from typing import Any, cast

from offbook.determinism.patch import apply_patch
from offbook.determinism.thread_context import call_origin, propagate_to_threads, thread_variable
from offbook.errors import IsolationError

# --- What this process does to the world outside, told before it happens.

AuditHandler = Callable[[str, tuple[Any, ...]], None]


class AuditHook:
    """The hook, and who watches which events."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._installed = False
        # replaced, never changed: the hook reads it in any thread, without the lock
        self._watchers: dict[str, tuple[AuditHandler, ...]] = {}

    def watch(self, events: Iterable[str], handler: AuditHandler) -> Callable[[], None]:
        """Ask `handler` before each of these events; call the answer to stop."""
        names = frozenset(events)
        with self._lock:
            self._watchers = self._watchers | {
                name: (*self._watchers.get(name, ()), handler) for name in names
            }
            if not self._installed:
                self._installed = True
                sys.addaudithook(self._make_hook())

        def stop() -> None:
            with self._lock:
                self._watchers = {
                    name: left
                    for name, handlers in self._watchers.items()
                    if (left := _without(handlers, handler) if name in names else handlers)
                }

        return stop

    def _make_hook(self) -> AuditHandler:
        """The hook. It is called for much that nobody watches: a method would take twice as long.

        Python asks it each time whether it may be traced, which a method denies by an exception.
        """

        def hear(event: str, args: tuple[Any, ...]) -> None:
            for handler in self._watchers.get(event, ()):
                handler(event, args)

        return hear


def _without(handlers: tuple[AuditHandler, ...], handler: AuditHandler) -> tuple[AuditHandler, ...]:
    """All but one of these: whoever watches twice, stops twice."""
    at = handlers.index(handler) if handler in handlers else len(handlers)
    return handlers[:at] + handlers[at + 1 :]


watch_audit_events = AuditHook().watch


# --- Nothing leaves the machine unless the test said so.

LOOKUPS = {"socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr"}
SENDINGS = {"socket.connect", "socket.sendto", "socket.sendmsg"}
INTERNET = {socket.AF_INET, socket.AF_INET6}
LOCAL_NAMES = {"", "localhost", "0.0.0.0", "::"}  # noqa: S104 - to connect to these is to stay here

_current_guard = thread_variable("offbook_border")


class NetworkGuard:
    """What may pass, and what was refused."""

    def __init__(self, allow: tuple[str, ...] = (), outer: NetworkGuard | None = None) -> None:
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
        if is_this_machine(host) or self.admits(host, port):
            return
        shown = host if port is None else f"{host}:{port}"
        error = IsolationError(
            f"{doing} {shown}, which is not this machine",
            where=call_origin(),
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
def block_network(*, allow: tuple[str, ...] = ()) -> Generator[NetworkGuard]:
    """Refuse everything from in here that would leave the machine, but for `allow`ed addresses.

    An address is a host, or a host and a port: `"example.org"`, `"example.org:443"`.
    """
    border = NetworkGuard(allow, _current_guard.get())
    with ExitStack() as stack:
        stack.callback(watch_audit_events(LOOKUPS, _look_up))
        stack.callback(watch_audit_events(SENDINGS, _send))
        for name in ("connect", "connect_ex", "sendto"):
            # Python looks up the name in an address before it announces the connection
            stack.callback(apply_patch(socket.socket, name, _resolve))
        if allow:
            stack.callback(apply_patch(socket, "getaddrinfo", _find))
        stack.enter_context(propagate_to_threads())
        stack.callback(_current_guard.reset, _current_guard.set(border))
        yield border


def is_this_machine(host: str) -> bool:
    """Whether this is an address, or a name, of this very machine."""
    name = host.rstrip(".").lower()
    if name in LOCAL_NAMES or name.endswith(".localhost"):
        return True
    try:
        return ip_address(name.partition("%")[0]).is_loopback
    except ValueError:
        return False


def _look_up(event: str, args: tuple[Any, ...]) -> None:
    border: NetworkGuard | None = _current_guard.get()
    if border is None:
        return
    host = _text(args[0])
    if not is_ip_address(host):  # which needs no look-up, and so goes nowhere
        port = args[1] if event == "socket.getaddrinfo" else None
        border.check(host, _number(port), "tried to look up")


def _find(
    original: Callable[..., Any], host: object, port: object, *args: Any, **named: Any
) -> Any:
    found = original(host, port, *args, **named)
    border: NetworkGuard | None = _current_guard.get()
    if border is not None:
        border.learn(_text(host), _number(port), [entry[4][0] for entry in found])
    return found


def _send(_event: str, args: tuple[Any, ...]) -> None:
    border: NetworkGuard | None = _current_guard.get()
    if border is not None:
        _check_address(border, args[0], args[1])


def _resolve(original: Callable[..., Any], sock: socket.socket, *args: Any) -> Any:
    border: NetworkGuard | None = _current_guard.get()
    if border is not None and args:
        _check_address(border, sock, args[-1])
    return original(sock, *args)


def _check_address(border: NetworkGuard, sock: socket.socket, address: object) -> None:
    if sock.family in INTERNET and isinstance(address, tuple):
        host, port = cast("tuple[object, object]", address[:2])
        border.check(_text(host), _number(port), "tried to reach")


def is_ip_address(host: str) -> bool:
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
