"""The proxy of one run: the only way out for the commands whose model is scripted.

    proxy = open_proxy(server, endpoint, guard)
    subprocess.run(command, env={**os.environ, **proxy.variables(os.environ)})
    guard.refused               # each destination that was tried and is not allowed

Clients find it in their environment. A request to the host of a model is answered by the endpoint,
if there is a certificate for that host (`offbook[proxy]`); an allowed address is reached; every
other one is refused. With an HTTP track, the requests to other hosts are recorded or answered.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

import msgspec

from offbook.determinism.network_guard import (
    NetworkGuard,
    is_this_machine,
    join_address,
    permit_connections,
)
from offbook.errors import ConnectionBlocked, ReplayMismatch
from offbook.exchange.dialects.dialect import TO_HOST
from offbook.exchange.providers import DEFAULT_PORTS, ModelHosts, all_providers
from offbook.files import make_temp_folder, remove_temp_folder
from offbook.sources.http_destination import HttpDestination
from offbook.sources.server.certificates import (
    find_authority,
    java_options,
    trust_variables,
    write_certificates,
)
from offbook.sources.server.connection import (
    END_OF_HEAD,
    HEADERS_LIMIT,
    Connection,
    HeadCache,
    error_response,
    render_pieces,
)

if TYPE_CHECKING:
    from collections.abc import Coroutine, Mapping
    from contextvars import Context

    from offbook.exchange.tool_track import HttpTrack
    from offbook.sources.server.connection import Handler, RequestHead
    from offbook.sources.server.endpoint import Endpoint
    from offbook.sources.server.server import Server

HOST = "127.0.0.1"
HTTPS = 443
NODE_HOOK = Path(__file__).with_name("node_hook.cjs")
PYTHON_HOOK = Path(__file__).with_name("python_hook")
RUBY_HOOK = Path(__file__).with_name("ruby_hook")
NO_PROXY = "127.0.0.1,localhost,::1"
ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"


def open_proxy(
    server: Server,
    endpoint: Endpoint | None,
    guard: NetworkGuard,
    track: HttpTrack | None = None,
) -> Proxy:
    """Start a proxy on the loop of a server that runs in another thread.

    Without an endpoint, the hosts of models are refused as well. A `track` records the requests to
    other hosts, or answers them.
    """
    proxy = Proxy(server, endpoint, guard, track)
    asyncio.run_coroutine_threadsafe(proxy.start(), server.loop).result()
    return proxy


class Proxy:
    """The ports of one run, and its certificates.

    `port` is for clients that use a proxy: they name the host in their first line. A connection
    that was directed here without its knowledge, as by `node_hook.cjs`, `python_hook/` and
    `ruby_hook/`, names it in its Host header there, or, at the `tls_port`, in the first message of
    TLS.
    """

    def __init__(
        self,
        server: Server,
        endpoint: Endpoint | None,
        guard: NetworkGuard,
        track: HttpTrack | None = None,
    ) -> None:
        self.server = server
        self.endpoint = endpoint
        self.track = track
        self.guard = guard
        self.hosts = ModelHosts()
        self.authority = None if endpoint is None else find_authority()
        self.port = self.tls_port = 0
        self.connections: set[asyncio.Transport] = set()
        self._folder: Path | None = None
        self._listeners: list[asyncio.Server] = []

    # --- its environment

    def variables(self, environment: Mapping[str, str]) -> dict[str, str]:
        """Return the variables by which the clients of a process find the proxy."""
        url = f"http://{HOST}:{self.port}"
        names = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "WS_PROXY", "WSS_PROXY")
        env = {form: url for name in names for form in (name, name.lower())}
        env |= {"NO_PROXY": NO_PROXY, "no_proxy": NO_PROXY, "NODE_USE_ENV_PROXY": "1"}
        env["PERL_LWP_ENV_PROXY"] = "1"
        # Not every client reads them: `fetch` in Node does from version 24 on, aiohttp never.
        env |= {
            "OFFBOOK_PROXY": ",".join([str(self.port), str(self.tls_port), *self._direct]),
            "NODE_OPTIONS": _join(environment.get("NODE_OPTIONS"), f'--require "{NODE_HOOK}"'),
            "RUBYOPT": _join(environment.get("RUBYOPT"), "-roffbook_hook"),
        }
        for name, folder in (("PYTHONPATH", PYTHON_HOOK), ("RUBYLIB", RUBY_HOOK)):
            path = environment.get(name)
            env[name] = f"{folder}{os.pathsep}{path}" if path else str(folder)
        java = [
            f"-D{kind}.proxy{part}={value}"
            for kind in ("http", "https")
            for part, value in (("Host", HOST), ("Port", self.port))
        ]
        java.append("-Dhttp.nonProxyHosts=localhost|127.*|[::1]")
        if self.authority is not None:
            if self._folder is None:
                self._folder = make_temp_folder()
                write_certificates(self.authority, self._folder, environment)
            env |= trust_variables(self._folder, environment)
            java += java_options(self._folder)
        return {**env, "JAVA_TOOL_OPTIONS": _join(environment.get("JAVA_TOOL_OPTIONS"), *java)}

    @property
    def _direct(self) -> list[str]:
        """The allowed addresses that a client reaches without the proxy; a track needs HTTP."""
        if self.track is None:
            return [*self.guard.allowed]
        web = tuple(f":{port}" for port in DEFAULT_PORTS.values())
        return [each for each in self.guard.allowed if ":" in each and not each.endswith(web)]

    # --- its life, in the loop of the server

    async def start(self) -> None:
        """Listen on both ports."""
        loop = self.server.loop
        plain = await loop.create_server(lambda: ProxyConnection(self), HOST, 0)
        tls = await loop.create_server(lambda: _Directed(self), HOST, 0, ssl=self._tls_by_name())
        self._listeners = [plain, tls]
        self.port, self.tls_port = (s.sockets[0].getsockname()[1] for s in self._listeners)

    def _tls_by_name(self) -> ssl.SSLContext:
        """Return the settings that give each connection the certificate of the host it names."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)

        def choose(tls: Any, host: str | None, _: ssl.SSLContext) -> int | None:
            name = host or "an address without a name"
            with suppress(ConnectionBlocked):
                known = self.answers(name, HTTPS) or self.tracks(name, HTTPS)
                certificate = self.certificate(name) if known else None
                if certificate is not None:
                    tls.context, tls.named_host = certificate, name
                    return None
                self.check(name, HTTPS)
            return ssl.ALERT_DESCRIPTION_ACCESS_DENIED

        context.sni_callback = choose
        return context

    async def stop(self) -> None:
        """Close the ports and all connections."""
        for listener in self._listeners:
            listener.close()
        for transport in list(self.connections):
            transport.abort()

    def close(self) -> None:
        """Stop, and delete the certificates; for the thread of the run."""
        future = asyncio.run_coroutine_threadsafe(self.stop(), self.server.loop)
        future.result()
        if self._folder is not None:
            remove_temp_folder(self._folder)
            self._folder = None

    # --- its ports in a network namespace, where all names and addresses lead to them

    @property
    def ports(self) -> tuple[int, ...]:
        """The ports of a namespace: ours by the same numbers, those of HTTP and HTTPS, and allowed.

        An allowed port of this machine, such as that of a database, leads out of the namespace.
        """
        own = (self.server.port, self.port, self.tls_port, DEFAULT_PORTS["http"], HTTPS)
        return (*own, *(port for port in self.guard.local_ports if port not in own))

    def adopt(self, sockets: list[socket.socket]) -> None:
        """Answer at the ports of a namespace: a socket for names, and one for each of `ports`."""
        future = asyncio.run_coroutine_threadsafe(self._adopt(*sockets), self.server.loop)
        future.result()

    async def _adopt(self, names: socket.socket, *listeners: socket.socket) -> None:
        loop, tls = self.server.loop, self._tls_by_name()
        transport, _ = await loop.create_datagram_endpoint(lambda: _Names(self), sock=names)
        self.connections.add(cast("asyncio.Transport", transport))
        factories: list[tuple[Any, ssl.SSLContext | None]] = [
            (lambda: Connection(self.server), None),
            *((lambda: ProxyConnection(self), None), (lambda: _Directed(self), tls)) * 2,
        ]
        opened = len(listeners) - len(factories)
        factories += [(lambda: _LocalConnection(self), None)] * opened
        for listener, (factory, context) in zip(listeners, factories, strict=True):
            self._listeners.append(await loop.create_server(factory, sock=listener, ssl=context))

    # --- its decisions

    def answers(self, host: str, port: int) -> bool:
        """Return whether the endpoint answers requests to this address."""
        if self.endpoint is None or is_this_machine(host):
            return False
        return (host, port) in self.hosts

    def tracks(self, host: str, port: int) -> bool:
        """Return whether the track answers requests to this address, or records them."""
        if self.track is None or self.endpoint is None or (host, port) in self.hosts:
            return False
        if not self.track.replays:
            self.check(host, port)
        return True

    def check(self, host: str, port: int) -> None:
        """Raise ConnectionBlocked if this address must not be reached."""
        self.guard.check(host, port, "tried to reach")

    def certificate(self, host: str) -> ssl.SSLContext | None:
        """Return the certificate of a host, if there is an authority that can sign it."""
        return None if self.authority is None else self.authority.context(host)


class ModelState:
    """What the connections to a model need of the server: all requests are the endpoint's."""

    def __init__(self, proxy: Proxy, host: str, handler: object = None) -> None:
        server = proxy.server
        self.limit, self.loop, self.connections = server.limit, server.loop, server.connections
        self.head_cache = HeadCache()
        self.refuses_pages = False  # only clients of the run know the proxy, such as its browser
        self._server = server
        self._handler = handler or _HostHandler(cast("Endpoint", proxy.endpoint), host)

    def route(self, _: RequestHead, /) -> Handler:
        return cast("Handler", self._handler)

    def start_task(self, work: Coroutine[Any, Any, None], context: Context) -> asyncio.Task[None]:
        return self._server.start_task(work, context)


class _HostHandler:
    """The endpoint, which gets the host in the path of a request unless it is the provider's."""

    def __init__(self, endpoint: Endpoint, host: str) -> None:
        self._endpoint = endpoint
        self._prefix = "" if host in _own_hosts() else f"{TO_HOST}{host}"

    def __getattr__(self, name: str) -> Any:
        return getattr(self._endpoint, name)

    async def answer(self, request: Any, /) -> Any:
        return await self._endpoint.answer(self._name_host(request))

    def converse(self, request: Any, message: bytes, /) -> Any:
        return self._endpoint.converse(self._name_host(request), message)

    def _name_host(self, request: Any) -> Any:
        if not self._prefix:
            return request
        return msgspec.structs.replace(request, path=self._prefix + request.path)


class _TrackHandler(_HostHandler):
    """The HTTP track in place of the endpoint, for requests to one other server."""

    at_once = False

    def __init__(self, proxy: Proxy, scheme: str, host: str, port: int) -> None:
        super().__init__(cast("Endpoint", proxy.endpoint), host)
        self._destination = HttpDestination(cast("HttpTrack", proxy.track), scheme, host, port)

    async def answer(self, request: Any, /) -> Any:
        try:
            return await self._destination.answer(request)
        except ReplayMismatch as error:
            return error_response(400, str(error))
        except OSError as error:
            return error_response(502, f"cannot connect: {error}")


@cache
def _own_hosts() -> frozenset[str]:
    """Return the hosts that speak one dialect, which is enough to know where a request goes."""
    providers = all_providers().values()
    shared = {host for provider in providers for host in provider.host_clients}
    return frozenset(urlsplit(provider.url).hostname or "" for provider in providers) - shared


class _Directed(asyncio.Protocol):
    """A connection whose host is known once TLS is set up: then the endpoint answers it."""

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        host = transport.get_extra_info("ssl_object").named_host
        is_model = self._proxy.answers(host, HTTPS)
        handler = None if is_model else _TrackHandler(self._proxy, "https", host, HTTPS)
        connection = Connection(ModelState(self._proxy, host, handler))
        cast("asyncio.Transport", transport).set_protocol(connection)
        connection.connection_made(transport)


class ProxyConnection(asyncio.Protocol):
    """One connection to the proxy. After its first head it is answered, passed on or refused."""

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy
        self._data = b""
        self._transport = cast("asyncio.Transport", None)
        self._next: asyncio.Protocol | None = None  # what the connection has become
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._proxy.connections.add(self._transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._proxy.connections.discard(self._transport)
        if self._next is not None:
            self._next.connection_lost(exc)

    def pause_writing(self) -> None:
        if self._next is not None:
            self._next.pause_writing()

    def resume_writing(self) -> None:
        if self._next is not None:
            self._next.resume_writing()

    def eof_received(self) -> bool:
        return bool(self._next.eof_received()) if self._next is not None else False

    def data_received(self, data: bytes) -> None:
        if self._next is not None:
            self._next.data_received(data)
            return
        self._data += data
        if self._task is not None:
            return  # until the way is open
        head, end, _ = self._data.partition(END_OF_HEAD)
        if end:
            loop = self._proxy.server.loop
            self._task = loop.create_task(self._begin(head), context=permit_connections())
        elif len(self._data) > HEADERS_LIMIT:
            self._transport.abort()

    async def _begin(self, head: bytes) -> None:
        """Find out which host is meant, and open the way to it, or refuse it."""
        line, _, headers = head.partition(b"\r\n")
        try:
            method, target, _ = line.decode("latin-1").split(" ")
            if method == "CONNECT":
                # Python's http.client writes an address of IPv6 without brackets.
                name, _, number = target.rpartition(":")
                scheme, address = "", f"//{join_address(name.strip('[]'), int(number))}"
            elif "://" in target:
                scheme, address = target.partition("://")[0], target
            else:  # a client that was directed here does not know that this is a proxy
                scheme, address = "http", f"//{_find_host(headers)}"
            parts = urlsplit(address)
            host = (parts.hostname or "").rstrip(".")
            port = parts.port or DEFAULT_PORTS.get(scheme, HTTPS)
        except ValueError:
            host = method = target = ""
            port = 0
        if not host or (is_this_machine(host) and "://" not in target and method != "CONNECT"):
            self._send_error(400, "this is a proxy: send CONNECT, or a request with a whole URL")
            return
        try:
            if self._proxy.answers(host, port):
                await self._answer(method, host, port, ModelState(self._proxy, host))
            elif self._proxy.tracks(host, port):
                secured = method == "CONNECT" and port != DEFAULT_PORTS["http"]
                scheme = "https" if secured else "http"
                handler = _TrackHandler(self._proxy, scheme, host, port)
                await self._answer(method, host, port, ModelState(self._proxy, host, handler))
            else:
                self._proxy.check(host, port)
                await self._pass_on(method, host, port)
        except ConnectionBlocked as error:
            self._send_error(403, str(error))
        except OSError as error:
            self._send_error(502, f"cannot connect to {join_address(host, port)}: {error}")

    async def _answer(self, method: str, host: str, port: int, state: ModelState) -> None:
        """Let the endpoint answer: as plain HTTP, or with the certificate of the host."""
        connection = Connection(state)
        if method != "CONNECT":
            data = self._data
            self._next = connection
            connection.connection_made(self._transport)
            connection.data_received(_to_origin_form(data))
            return
        context = self._proxy.certificate(host)
        if context is None:
            self._proxy.check(host, port)  # it may be allowed
            await self._pass_on(method, host, port)
            return
        self._transport.write(ESTABLISHED)
        loop = self._proxy.server.loop
        self._proxy.connections.discard(self._transport)
        with suppress(OSError, ssl.SSLError):  # a client that does not trust us hangs up
            secured = await loop.start_tls(self._transport, connection, context, server_side=True)
            if secured is not None:
                connection.connection_made(secured)

    async def _pass_on(self, method: str, host: str, port: int) -> None:
        """Connect to the host, and pass everything on."""
        loop = self._proxy.server.loop
        transport, _ = await loop.create_connection(lambda: _Pipe(self._transport), host, port)
        self._proxy.connections.add(transport)
        data, self._data = self._data, b""
        self._next = _Pipe(transport)
        if method == "CONNECT":
            self._transport.write(ESTABLISHED)
            data = data.partition(END_OF_HEAD)[2]
        else:
            data = _to_origin_form(data)
        transport.write(data)

    def _send_error(self, status: int, message: str) -> None:
        response = error_response(status, message)
        self._transport.write(b"".join(render_pieces(response, "")))
        self._transport.close()


class _Names(asyncio.DatagramProtocol):
    """Resolves every name to loopback, in a namespace; a name that is not a model's is noted."""

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy
        self._transport = cast("asyncio.DatagramTransport", None)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, addr: Any) -> None:
        # A header of 12 bytes; the labels, each with its length, to an empty one; type and class.
        end = data.find(b"\0", 12)
        labels, position = list[str](), 12
        while position < end:
            size = data[position]
            labels.append(data[position + 1 : position + 1 + size].decode("latin-1"))
            position += 1 + size
        question, host = data[12 : end + 5], ".".join(labels)
        if not self._proxy.answers(host, HTTPS):
            with suppress(ConnectionBlocked):
                self._proxy.guard.check(host, None, "tried to look up")
        is_ipv4 = question[-4:] == b"\0\1\0\1"
        found = b"\xc0\x0c\0\1\0\1\0\0\0\0\0\4\x7f\0\0\1" if is_ipv4 else b""
        counts = b"\0\1" + (b"\0\1" if is_ipv4 else b"\0\0") + b"\0\0\0\0"
        self._transport.sendto(data[:2] + b"\x81\x80" + counts + question + found, addr)


class _LocalConnection(asyncio.Protocol):
    """A connection in a namespace to an allowed port of this machine: it is passed on."""

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy
        self._data, self._ended = b"", False  # until the way is open
        self._other: asyncio.Transport | None = None
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        here = cast("asyncio.Transport", transport)
        self._proxy.connections.add(here)
        self._task = self._proxy.server.loop.create_task(
            self._pass_on(here), context=permit_connections()
        )

    async def _pass_on(self, here: asyncio.Transport) -> None:
        # Every address of a namespace is this machine: one of another machine is refused.
        host, port = here.get_extra_info("sockname")[:2]
        loop, address = self._proxy.server.loop, self._proxy.guard.local_ports[port]
        try:
            self._proxy.check(host, port)
            other, _ = await loop.create_connection(lambda: _Pipe(here), address, port)
        except OSError:
            here.abort()
            return
        self._proxy.connections.add(other)
        other.write(self._data)
        self._other = other
        if self._ended:
            self.eof_received()
        if here.is_closing():
            other.close()

    def data_received(self, data: bytes) -> None:
        if self._other is None:
            self._data += data
        else:
            self._other.write(data)

    def eof_received(self) -> bool:
        self._ended = True
        if self._other is not None and self._other.can_write_eof():
            self._other.write_eof()
        return True

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        if self._other is not None:
            self._other.close()


class _Pipe(asyncio.Protocol):
    """Passes what it receives on to the other side of a connection."""

    def __init__(self, other: asyncio.Transport) -> None:
        self._other = other

    def data_received(self, data: bytes) -> None:
        self._other.write(data)

    def eof_received(self) -> bool:
        if self._other.can_write_eof() and not self._other.is_closing():
            self._other.write_eof()
        return True

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        self._other.close()


def _join(*options: str | None) -> str:
    return " ".join(option for option in options if option)


def _find_host(headers: bytes) -> str:
    for line in headers.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"host":
            return value.strip().decode("latin-1")
    return ""


def _to_origin_form(data: bytes) -> bytes:
    """Return a request to a proxy as the server of its host expects it."""
    line, end, rest = data.partition(b"\r\n")
    method, target, version = line.split(b" ")
    path = target.partition(b"://")[2].partition(b"/")[2] if b"://" in target else target[1:]
    # One request for each connection: another may be for another host.
    head, separator, body = rest.partition(END_OF_HEAD)
    kept = [
        header
        for header in head.split(b"\r\n")
        if not header.lower().startswith((b"proxy-", b"connection:"))
    ]
    head = b"\r\n".join([*kept, b"connection: close"])
    return b"%b /%b %b%b%b%b%b" % (method, path, version, end, head, separator, body)
