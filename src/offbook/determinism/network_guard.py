"""No request leaves the machine unless the test allows it.

    with block_network(allow=("registry.example:443",)) as guard:
        ...                     # a connection raises ConnectionBlocked with the user's line
    guard.refused               # the same errors, also if the agent swallowed them

The guard applies to the task that opened it: to what it awaits, and to the tasks and threads that
it starts, also after the block. In the block, it applies to every other context of its thread and
of threads that are new, except for tasks that were there before: an empty one is no way out. A
proxy on this machine is not this machine: what is sent to it leaves. The processes of a run get an
environment with its proxy.

The guard sees Python's own sockets. A library that opens connections in native code (gRPC, uvloop,
curl) must be answered at its transport.
"""

from __future__ import annotations

import _posixsubprocess
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import ExitStack, contextmanager
from contextvars import Context
from errno import ECONNREFUSED
from functools import cache, wraps
from importlib import import_module
from ipaddress import ip_address
from threading import get_ident
from typing import Any, cast
from urllib.parse import urlsplit
from weakref import WeakSet

from offbook.determinism.run_context import (
    apply_patch,
    call_origin,
    current_task,
    propagate_to_threads,
    thread_variable,
    watch_audit_events,
)
from offbook.errors import ConnectionBlocked

# --- The guard

LOOKUPS = {"socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr"}
REVERSE_LOOKUPS = {"socket.gethostbyaddr", "socket.getnameinfo"}  # of addresses, at a name server
SENDINGS = {"socket.connect", "socket.sendto", "socket.sendmsg"}
INTERNET = {socket.AF_INET, socket.AF_INET6}
# Sockets that send without a connection, or to a host of this machine: whole packets, its host.
RAW_FAMILIES = {
    getattr(socket, name): name for name in ("AF_PACKET", "AF_VSOCK") if hasattr(socket, name)
}
LOCAL_NAMES = {"", "localhost", "0.0.0.0", "::"}  # noqa: S104 - a connection to these is local

# Functions of the C library that reach out, or start a process, behind Python's back.
NATIVE = {
    *("connect", "sendto", "sendmsg", "getaddrinfo", "gethostbyname", "system", "popen", "fork"),
    *("vfork", "posix_spawn", "posix_spawnp", "execv", "execve", "execvp", "syscall", "sendmmsg"),
    *("gethostbyname2", "gethostbyname_r", "gethostbyaddr", "getaddrinfo_a", "getnameinfo"),
    *("res_query", "res_search", "__res_query", "__res_search", "execl", "execlp", "execle"),
    *("execvpe", "fexecve", "execveat", "clone", "forkpty", "dlsym"),
}

_current_guard = thread_variable("offbook_border")
_open_guards: list[NetworkGuard] = []  # in the order in which they were opened


ChildEnv = Callable[[Mapping[str, str]], Mapping[str, str]]
"""Returns the environment of a process that the run starts, in place of this one."""

Explain = Callable[[str, int | None], str]
"""Returns how to allow a host and a port, or what else to do, for the error that refuses it."""


def _allow_it(host: str, port: int | None) -> str:
    return f"allow it: allow=({join_address(host, port)!r},)"


class NetworkGuard:
    """The allowed addresses, and the connections that were refused.

    The connections of this process are checked inside of `block_network`, those of commands by
    the proxy of their run. A connection that a thread tries after the end of the block belongs to
    the block around it; after the end of that one, `on_late` is called.
    """

    def __init__(
        self,
        allow: tuple[str, ...] = (),
        outer: NetworkGuard | None = None,
        on_late: Callable[[ConnectionBlocked], None] | None = None,
        explain: Explain = _allow_it,
        child_env: ChildEnv | None = None,
    ) -> None:
        self._explain = explain
        self._child_env = child_env
        self._thread = get_ident()
        self._other_tasks = WeakSet(_other_tasks())
        self._other_threads = frozenset(sys._current_frames()) - {self._thread}  # noqa: SLF001  # pyright: ignore[reportPrivateUsage] - documented; `threading` does not know all
        self.allowed = allow
        self._allow = {_split_address(address) for address in allow}
        self._proxy_ports = _local_proxy_ports()
        self._outer = outer
        self._on_late = on_late
        self.open = True
        self.refused: list[ConnectionBlocked] = []

    def allows(self, host: str, port: int | None) -> bool:
        """Return whether an address is allowed here and in all guards around this one."""
        named = any(h == host and (port is None or p in {None, port}) for h, p in self._allow)
        # The guard around a whole test leaves it to the runs in the test what they allow.
        outer = None if self._outer is None or self._outer.is_of_test else self._outer
        return named and (outer is None or outer.allows(host, port))

    @property
    def local_ports(self) -> dict[int, str]:
        """The allowed ports of this machine, each with its host."""
        return {port: host for host, port in self._allow if port and is_this_machine(host)}

    def covers(self, thread: int) -> bool:
        """Return whether it applies to a context without a guard in this thread."""
        task = current_task()
        return thread not in self._other_threads and (task is None or task not in self._other_tasks)

    def child_env(self, environment: Mapping[str, str] | None) -> Mapping[str, str]:
        """Return the environment for a process, in place of the given or the current one."""
        given = os.environ if environment is None else environment
        return given if self._child_env is None else self._child_env(given)

    @property
    def is_of_test(self) -> bool:
        """True for the guard around a whole test."""
        return self._on_late is not None

    def add_addresses(self, host: str, port: int | None, addresses: Iterable[str]) -> None:
        """Allow the IP addresses of an allowed host: a connection has only these."""
        if self.allows(host, port):
            self._allow |= {(address, port) for address in addresses}
            if self._outer is not None:
                self._outer.add_addresses(host, port, addresses)

    def check(self, host: str, port: int | None, action: str) -> None:
        """Raise ConnectionBlocked unless the address is this machine or allowed."""
        local = is_this_machine(host)
        if (local and port not in self._proxy_ports) or self.allows(host, port):
            return
        address = join_address(host, port)
        error = ConnectionBlocked(
            f"{action} the proxy {address}, and through it another machine"
            if local
            else f"{action} {address}, which is not this machine",
            where=call_origin(),
            hint=self._explain(host, port),
        )
        error.errno = ECONNREFUSED
        error.destination = address
        self.note(error)
        raise error

    def note(self, error: ConnectionBlocked) -> None:
        """Keep a refusal here, or where it belongs after the end of the block."""
        if self.open or (self._outer is None and self._on_late is None):
            self.refused.append(error)
        elif self._outer is not None:
            self._outer.note(error)
        elif self._on_late is not None:
            self._on_late(error)


def _other_tasks() -> set[Any]:
    """Return the tasks of the event loop except the one that is running."""
    task = current_task()
    if task is None:
        return set()
    import asyncio  # loaded already, where a task runs

    return asyncio.all_tasks() - {task}


def join_address(host: str, port: int | None) -> str:
    """Return `example.org:443`, or the host alone."""
    name = f"[{host}]" if ":" in host else host
    return name if port is None else f"{name}:{port}"


def _split_address(address: str) -> tuple[str, int | None]:
    """Return the host and the port of `example.org:443`, `[::1]:80` or `example.org`."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or (":" in host and not host.endswith("]")):
        return address.strip("[]"), None
    return host.strip("[]"), int(port)


def _local_proxy_ports() -> set[int]:
    """Return the ports of this machine that lead elsewhere, by the environment."""
    ports: set[int] = set()
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        for value in (os.environ.get(name), os.environ.get(name.lower())):
            if value:
                parts = urlsplit(value if "//" in value else f"//{value}")
                if is_this_machine(parts.hostname or "") and parts.port:
                    ports.add(parts.port)
    return ports


def _find_guard() -> NetworkGuard | None:
    """Return the guard of the code that is running, or None if it may connect."""
    guard: NetworkGuard | None = _current_guard.get()
    if guard is None and _open_guards:
        thread = get_ident()
        return next((open_ for open_ in reversed(_open_guards) if open_.covers(thread)), None)
    return None if guard is PERMITTED else guard


PERMITTED: Any = object()  # in the place of a guard


def permit_connections() -> Context:
    """Return an empty context to which no guard applies: for requests that the user wants."""
    context = Context()
    context.run(_current_guard.set, PERMITTED)
    return context


@cache
def _watch_connections() -> None:
    """Watch from the first block to the end of the process: threads outlive their block."""
    watch_audit_events(LOOKUPS, _on_lookup)
    watch_audit_events(REVERSE_LOOKUPS, _on_reverse_lookup)
    watch_audit_events({"socket.__new__"}, _on_socket)
    _watch_interpreters()
    watch_audit_events(SENDINGS, _on_send)
    watch_audit_events({"ctypes.dlsym"}, _on_native)
    watch_audit_events({"os.fork", "os.forkpty"}, _on_fork)


@contextmanager
def block_network(
    *,
    allow: tuple[str, ...] = (),
    on_late: Callable[[ConnectionBlocked], None] | None = None,
    explain: Explain = _allow_it,
    child_env: ChildEnv | None = None,
) -> Generator[NetworkGuard]:
    """Refuse every connection from this block to another machine, except to `allow`ed addresses.

    An address is a host, or a host and a port: `"example.org"`, `"example.org:443"`. With
    `on_late` it is the guard around a whole test. `explain` returns the fix of an error,
    `child_env` the environment of a process.
    """
    outer = _current_guard.get()
    guard = NetworkGuard(allow, None if outer is PERMITTED else outer, on_late, explain, child_env)
    _watch_connections()
    with ExitStack() as stack:
        stack.callback(setattr, guard, "open", False)
        for name in ("connect", "connect_ex", "sendto"):
            # Python looks up the host of an address before it announces the connection
            stack.callback(apply_patch(socket.socket, name, _check_before))
        if allow:
            stack.callback(apply_patch(socket, "getaddrinfo", _note_addresses))
        for owner, name, wrapper in PROCESS_STARTS:
            if hasattr(owner, name):
                stack.callback(apply_patch(owner, name, wrapper))
        stack.enter_context(propagate_to_threads())
        stack.callback(_current_guard.reset, _current_guard.set(guard))
        _open_guards.append(guard)
        stack.callback(_open_guards.remove, guard)
        yield guard


# --- Processes: each way to start one ends in a function with an environment


def _start_popen(original: Callable[..., None], popen: Any, *args: Any, **named: Any) -> None:
    guard, position = _find_guard(), 10  # of the environment among the arguments
    if guard is not None:
        if len(args) > position:
            args = (*args[:position], guard.child_env(args[position]), *args[position + 1 :])
        else:
            named["env"] = guard.child_env(named.get("env"))
    original(popen, *args, **named)


def _start_with_env(
    original: Callable[..., Any], path: Any, args: Any, *rest: Any, **named: Any
) -> Any:
    guard = _find_guard()
    if guard is not None:
        rest = (guard.child_env(rest[0]), *rest[1:])
    return original(path, args, *rest, **named)


def _start_without_env(original: Callable[..., Any], path: Any, args: Any) -> Any:
    guard = _find_guard()
    if guard is None:
        return original(path, args)
    return os.execve(path, args, os.environ)  # noqa: S606 - the call of the agent


def _start_shell(original: Callable[[Any], int], command: Any) -> int:
    if _find_guard() is None:
        return original(command)
    code = subprocess.call(command, shell=True)  # noqa: S602 - the call of the agent
    return code << 8 if code >= 0 else -code  # as `os.system` returns it


def _start_worker(original: Callable[..., int], *args: Any) -> int:
    """Start a process of `multiprocessing`; its environment is a list of bytes."""
    guard, position = _find_guard(), 5
    if guard is not None and args[position] is None:
        env = guard.child_env(None).items()
        listed = [os.fsencode(f"{name}={value}") for name, value in env]
        args = (*args[:position], listed, *args[position + 1 :])
    return original(*args)


PROCESS_STARTS: tuple[tuple[Any, str, Callable[..., Any]], ...] = (
    (subprocess.Popen, "__init__", _start_popen),
    (os, "posix_spawn", _start_with_env),
    (os, "posix_spawnp", _start_with_env),
    (os, "execve", _start_with_env),
    (os, "execv", _start_without_env),
    (os, "system", _start_shell),
    (_posixsubprocess, "fork_exec", _start_worker),
)


def is_this_machine(host: str) -> bool:
    """Return whether a name or an address is this machine's."""
    name = host.rstrip(".").lower()
    if name in LOCAL_NAMES or name.endswith(".localhost"):
        return True
    try:
        address = ip_address(name)
    except ValueError:
        return False
    # Python 3.13 counts ::ffff:127.0.0.1 as loopback, earlier versions do not.
    return address.is_loopback and getattr(address, "ipv4_mapped", None) is None


def is_ip_address(host: str) -> bool:
    """Return whether this is an IP address and not a name."""
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _on_lookup(event: str, args: tuple[Any, ...]) -> None:
    guard = _find_guard()
    if guard is None:
        return
    host = _host_text(args[0])
    if not is_ip_address(host):  # an IP address needs no request to a name server
        port = args[1] if event == "socket.getaddrinfo" else None
        guard.check(host, _port_number(port), "tried to look up")


def _on_reverse_lookup(_event: str, args: tuple[Any, ...]) -> None:
    guard = _find_guard()
    if guard is None:
        return
    given = args[0]  # an address with a port, or a host
    host = _host_text(cast("tuple[object]", given)[0] if isinstance(given, tuple) else given)
    if is_ip_address(host):  # else it is looked up as a name
        guard.check(host, None, "tried to look up")


def _on_socket(_event: str, args: tuple[Any, ...]) -> None:
    if args[1] in RAW_FAMILIES:
        _refuse_unwatched(f"opened a socket of {RAW_FAMILIES[args[1]]}")


def _watch_interpreters() -> None:
    """Refuse other interpreters. From Python 3.13 on, no audit event reports a new one."""
    if sys.version_info < (3, 13):
        watch_audit_events({"cpython.PyInterpreterState_New"}, _on_interpreter)
        return
    module: Any = import_module("_interpreters")
    create = module.create

    @wraps(create)
    def create_if_allowed(*args: Any, **options: Any) -> Any:
        _on_interpreter("", ())
        return create(*args, **options)

    module.create = create_if_allowed


def _on_interpreter(_event: str, _args: tuple[Any, ...]) -> None:
    _refuse_unwatched("started another interpreter")


def _refuse_unwatched(action: str) -> None:
    """Refuse a way out on which connections cannot be watched."""
    guard = _find_guard()
    if guard is not None:
        hint = "use sockets of this interpreter"
        error = ConnectionBlocked(
            f"{action}, which cannot be watched", where=call_origin(), hint=hint
        )
        error.destination = action
        guard.note(error)
        raise error


def _on_send(_event: str, args: tuple[Any, ...]) -> None:
    guard = _find_guard()
    if guard is not None:
        _check_address(guard, args[0], args[1])


def _on_fork(_event: str, _args: tuple[Any, ...]) -> None:
    # The proxy is started here: a fork could not start it for the program that it becomes.
    guard = _find_guard()
    if guard is not None:
        guard.child_env(None)


def _on_native(_event: str, args: tuple[Any, ...]) -> None:
    guard = _find_guard()
    if guard is not None and args[1] in NATIVE:
        error = ConnectionBlocked(
            f"called {args[1]} of the C library, which cannot be watched",
            where=call_origin(),
            hint="use the functions of Python",
        )
        error.destination = f"{args[1]}()"
        guard.note(error)
        raise error


def _check_before(original: Callable[..., Any], sock: socket.socket, *args: Any) -> Any:
    guard = _find_guard()
    if guard is not None and args:
        _check_address(guard, sock, args[-1])
    return original(sock, *args)


def _note_addresses(
    original: Callable[..., Any], host: object, port: object, *args: Any, **named: Any
) -> Any:
    entries = original(host, port, *args, **named)
    guard = _find_guard()
    if guard is not None:
        addresses = [entry[4][0] for entry in entries]
        guard.add_addresses(_host_text(host), _port_number(port), addresses)
    return entries


def _check_address(guard: NetworkGuard, sock: socket.socket, address: object) -> None:
    if sock.family in INTERNET and isinstance(address, tuple):
        host, port = cast("tuple[object, object]", address[:2])
        guard.check(_host_text(host), _port_number(port), "tried to reach")


def _host_text(host: object) -> str:
    if isinstance(host, (bytes, bytearray)):
        return host.decode("ascii", "replace")
    return "" if host is None else str(host)


def _port_number(port: object) -> int | None:
    if isinstance(port, (str, bytes)):
        return int(port) if port.isdigit() else None
    return port if isinstance(port, int) else None
