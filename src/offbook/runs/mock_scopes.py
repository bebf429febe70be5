"""Scopes of mocks: `with_host_mocks`, `with_llm_mocks` and `with_mocks`.

    with with_host_mocks([{"capability": "clock", "operation": "now_ms", "result": 7}]):
        run_code_under_test()

    @with_llm_mocks([{"match": "*refund*", "text": "Refunded."}])
    async def test_refund(): ...

A scope starts without mocks and without calls: it replaces the outer one until it ends, and then
the outer one is back as it was, also after an exception. It applies to the current task, and to
the tasks and threads that are started in it. At its end, a mock that was never used fails, and so
does a call without a mock that the code under test swallowed.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import ExitStack, contextmanager
from functools import wraps
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar, cast

from offbook.determinism.run_context import (
    current_host,
    current_llm,
    propagate_to_threads,
    use_variable,
)
from offbook.errors import (
    CheckFailed,
    ModelError,
    ScriptMismatch,
    UsageError,
    require_known,
)
from offbook.exchange.messages import History, Message, user
from offbook.exchange.model import Reply, Request
from offbook.host.host_scope import HostScope
from offbook.options import decode, require_list
from offbook.secrets import excerpt
from offbook.trace.hub import current_hub

if TYPE_CHECKING:
    from offbook.sources.mocks.mocks import Mocks
    from offbook.sources.server.endpoint import Endpoint

S = TypeVar("S")
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
CONFIG_KEYS = ("host_mocks", "llm_mocks")


class LlmScope:
    """Mocked replies of the model, and the log of every request. It is a `ModelSource`."""

    def __init__(self, lines: Iterable[Mapping[str, Any]] = (), *, where: str = "") -> None:
        self._where = where
        self._mocks: Mocks | None = None
        self.requests: list[Request] = []
        self.endpoint: Endpoint | None = None  # where HTTP clients are answered
        self._failure: BaseException | None = None
        for line in lines:
            self.add(line)

    def add(self, line: Mapping[str, Any]) -> None:
        """Register a line with the fields of a mock file: `text`, `match`, `tool_calls`, …."""
        decode(line, dict, "LLM mock", where=self._where)
        if self._mocks is None:
            from offbook.sources.mocks.mocks import Mocks  # most scopes mock the host only

            self._mocks = Mocks([line])
        else:
            self._mocks.add(line)

    @property
    def has_lines(self) -> bool:
        """True if there is a line that could answer."""
        return self._mocks is not None

    async def reply(self, request: Request, /) -> Reply:
        """Return the reply of the line that answers; every request is logged, also a miss."""
        self.requests.append(request)
        try:
            if self._mocks is None:
                raise ScriptMismatch(  # noqa: TRY301 - kept below, as every other miss
                    f'no mock matched prompt: "{excerpt(request.prompt, 200)}"',
                    where=self._where,
                    hint='the scope has no line: add one, such as {"text": "…"}',
                )
            return await self._mocks.reply(request)
        except ModelError:  # the line is an error response
            raise
        except Exception as error:
            self._failure = self._failure or error
            raise

    def clear(self) -> None:
        """Remove all lines of this scope, and empty its log."""
        self._mocks = self._failure = None
        self.requests.clear()
        if self.endpoint is not None:
            self.endpoint.failure = None

    def close(self, *, allow_unused: bool = False) -> None:
        """Fail for a request without a line that was swallowed, and for a line never used."""
        failure = self._failure or (None if self.endpoint is None else self.endpoint.failure)
        if failure is not None:
            raise failure
        unused = [] if self._mocks is None else self._mocks.unused
        if unused and not allow_unused:
            raise CheckFailed(
                f"never used: LLM mock {'; '.join(mock.label for mock in unused)}",
                where=self._where,
                hint="remove it, or pass allow_unused_mocks=True",
            )


class MockScopes(NamedTuple):
    """The two scopes of `with_mocks`."""

    host: HostScope
    llm: LlmScope


class ScopeManager(Generic[S]):
    """A scope that is entered by `with`, by a decorated function, or by `run(body)`.

    `open_scopes` makes new scopes: a decorated function gets a new one at each call.
    """

    def __init__(
        self,
        open_scopes: Callable[[], tuple[S, HostScope | None, LlmScope | None]],
        *,
        allow_unused_mocks: bool = False,
        allow: Iterable[str] = (),
    ) -> None:
        self._open_scopes = open_scopes
        self._allow_unused = allow_unused_mocks
        self._allow = tuple(allow)
        self._entered: list[tuple[ExitStack, HostScope | None, LlmScope | None]] = []

    def __enter__(self) -> S:
        # Mocks are checked before anything is replaced: a wrong one leaves the outer scope intact.
        value, host, llm = self._open_scopes()
        with ExitStack() as stack:
            stack.enter_context(propagate_to_threads())
            if host is not None:
                stack.enter_context(use_variable(current_host, host))
            if llm is not None:
                stack.enter_context(use_variable(current_llm, llm))
                stack.enter_context(_answer_clients(llm, self._allow))
            self._entered.append((stack.pop_all(), host, llm))
        return value

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        scopes = self.restore()
        # An exception of the body is the reason why mocks are unused: it alone is reported.
        if kind is None:
            for scope in reversed(scopes):
                if scope is not None:
                    scope.close(allow_unused=self._allow_unused)

    def restore(self) -> tuple[HostScope | None, LlmScope | None]:
        """Bring the outer scope back, and return the scopes that ended."""
        if not self._entered:
            raise UsageError("this scope of mocks is not open", hint="write `with … as scope:`")
        stack, host, llm = self._entered.pop()
        stack.close()
        return host, llm

    def __call__(self, function: F) -> F:
        """Run a function, plain or async, in a new scope at each call."""
        if iscoroutinefunction(function):

            @wraps(function)
            async def call_async(*args: Any, **kwargs: Any) -> Any:
                with self._copy():
                    return await function(*args, **kwargs)

            return cast("F", call_async)

        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            with self._copy():
                return function(*args, **kwargs)

        return cast("F", call)

    def run(self, body: Callable[[], T] | None) -> Any:
        """Run a body in the scope and return its value; without one return the scope itself."""
        return self if body is None else self(body)()

    def _copy(self) -> ScopeManager[S]:
        return ScopeManager(
            self._open_scopes, allow_unused_mocks=self._allow_unused, allow=self._allow
        )


def with_host_mocks(
    mocks: Iterable[Mapping[str, Any]] = (),
    body: Callable[[], Any] | None = None,
    *,
    allow: Iterable[str] = (),
    allow_unused_mocks: bool = False,
) -> Any:
    """Open a scope of host mocks: a context manager and a decorator.

    A mock is a dict such as `{"capability": "clock", "operation": "now_ms", "result": 7}`, with
    `error`, `results`, `params` or `times` as in `mock_host_response`. `allow` names operations
    that reach the real provider. With a `body`, call it in the scope and return its value.
    """
    entries, allowed = _require_lines(mocks, "with_host_mocks"), tuple(allow)

    def open_scopes() -> tuple[HostScope, HostScope, None]:
        scope = _open_host(entries, "with_host_mocks", allowed)
        return scope, scope, None

    return ScopeManager(open_scopes, allow_unused_mocks=allow_unused_mocks).run(body)


def with_llm_mocks(
    mocks: Iterable[Mapping[str, Any]] = (),
    body: Callable[[], Any] | None = None,
    *,
    allow: Iterable[str] = (),
    allow_unused_mocks: bool = False,
) -> Any:
    """Open a scope in which the requests to a model are answered by these lines.

    A line has the fields of a mock file. The HTTP clients of this process are answered without a
    network, and so are `llm_call` and a `session()` without another source. Connections elsewhere
    are refused, except for the addresses in `allow`.
    """
    lines = _require_lines(mocks, "with_llm_mocks")

    def open_scopes() -> tuple[LlmScope, None, LlmScope]:
        scope = LlmScope(lines, where="with_llm_mocks")
        return scope, None, scope

    return ScopeManager(open_scopes, allow_unused_mocks=allow_unused_mocks, allow=allow).run(body)


def with_mocks(
    config: Mapping[str, Iterable[Mapping[str, Any]]],
    body: Callable[[], Any] | None = None,
    *,
    allow: Iterable[str] = (),
    allow_unused_mocks: bool = False,
) -> Any:
    """Open both scopes: `with_mocks({"host_mocks": […], "llm_mocks": […]})`.

    A missing key is an empty scope: a call of that kind is refused. `allow` names operations of
    the host that reach the real provider.
    """
    decode(config, dict, "with_mocks", hint='write {"host_mocks": […]}')
    for key in config:
        require_known("with_mocks has no key", key, CONFIG_KEYS)
    host_entries, lines = (_require_lines(config.get(key, ()), "with_mocks") for key in CONFIG_KEYS)
    allowed = tuple(allow)

    def open_scopes() -> tuple[MockScopes, HostScope, LlmScope]:
        host = _open_host(host_entries, "with_mocks", allowed)
        llm = LlmScope(lines, where="with_mocks")
        return MockScopes(host, llm), host, llm

    return ScopeManager(open_scopes, allow_unused_mocks=allow_unused_mocks).run(body)


def _open_host(entries: list[Mapping[str, Any]], name: str, allow: tuple[str, ...]) -> HostScope:
    scope = HostScope(allow=allow, where=name)
    for number, entry in enumerate(entries, 1):
        scope.add(entry, f"{name}, mock {number}")
    return scope


def _require_lines(mocks: object, name: str) -> list[Mapping[str, Any]]:
    return cast(
        "list[Mapping[str, Any]]", require_list(mocks, f"{name}: the mocks", f"write {name}([…])")
    )


@contextmanager
def _answer_clients(llm: LlmScope, allow: tuple[str, ...]) -> Generator[None]:
    """Answer the HTTP clients of this process, and refuse their other connections."""
    # Imported here: a scope of host mocks needs none of them.
    from offbook.determinism.network_guard import block_network
    from offbook.exchange.providers import detect_dialect
    from offbook.sources.inprocess.patching import intercept
    from offbook.sources.server.endpoint import Endpoint

    hub = current_hub.get()
    llm.endpoint = Endpoint(llm, url="", detect_dialect=detect_dialect, hub=hub)
    with block_network(allow=allow), intercept(llm.endpoint.answer):
        yield


# --- The functions of tests, on the scope of the current task


def _current_llm() -> LlmScope:
    scope = current_llm.get()
    if scope is None:
        raise UsageError(
            "there is no scope of LLM mocks here",
            hint="write `with with_llm_mocks([…]):`, or use the fixture llm_mocks",
        )
    return scope


def llm_mock(line: Mapping[str, Any]) -> None:
    """Add a reply to the current scope: `llm_mock({"text": "The answer is 42"})`."""
    _current_llm().add(line)


def clear_llm_mocks() -> None:
    """Remove the LLM mocks of the current scope, and empty its log of requests."""
    _current_llm().clear()


def llm_calls() -> list[Request]:
    """Return every request to the model in the current scope, also one without a reply."""
    return list(_current_llm().requests)


def llm_call_count() -> int:
    """Return the number of requests to the model in the current scope."""
    return len(_current_llm().requests)


def llm_call(
    prompt: str | Iterable[Message], *, system: str = "", model: str = "offbook/mock"
) -> Reply:
    """Send a request to the mocked model, as code without an SDK of a provider does. It blocks."""
    messages = [user(prompt)] if isinstance(prompt, str) else list(prompt)
    work = _current_llm().reply(Request(History(messages), system, model=model))
    # Mocks never wait, so their coroutine ends at once: no event loop is needed to run it.
    try:
        work.send(None)
    except StopIteration as end:
        return end.value
    raise UsageError("llm_call needs mocks that do not wait")
