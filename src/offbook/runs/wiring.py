"""Where a subject finds its model: at a base URL, or at whichever its own clients ask."""

from __future__ import annotations

import atexit
import os
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING

from offbook.errors import UsageError
from offbook.exchange.dialects.validation import ALL_RULES, rules_except
from offbook.exchange.tool_aliases import AliasedSource, ToolAlias, ToolAliases, parse_tool_aliases
from offbook.subjects.subject import HasMockedTools, HasToolAliases, RunContext, Subject
from offbook.trace.instrument import TracedSource

if TYPE_CHECKING:
    from collections.abc import Container, Generator, Iterable, Mapping
    from pathlib import Path

    from offbook.errors import IsolationError
    from offbook.exchange.model import ModelSource
    from offbook.sources.server.endpoint import Endpoint
    from offbook.sources.server.server import Server
    from offbook.trace.hub import Hub


# --- Where a subject finds its model: at a base URL, or at whichever its own clients ask.


def serve_source(
    source: ModelSource, hub: Hub, *, tools: bool, lenient: Iterable[str] = ()
) -> Endpoint:
    """A base URL for this source, on the server that all runs of this process share."""
    return _server(os.getpid()).mount(source, hub=hub, tools=tools, lenient=lenient)


def make_inprocess_endpoint(
    source: ModelSource,
    hub: Hub,
    *,
    tools: bool,
    lenient: Iterable[str] = (),
    mocked: Container[str] = (),
) -> Endpoint:
    """The same answers as over the wire, for clients that need no address."""
    from offbook.exchange.dialects.validation import rules_except
    from offbook.exchange.providers import dialect_detector
    from offbook.sources.server.endpoint import Endpoint

    detect_dialect = dialect_detector(rules_except(lenient))
    return Endpoint(
        source, url="", detect_dialect=detect_dialect, hub=hub, tools=tools, mocked=mocked
    )


@cache
def _server(process: int) -> Server:
    """The one server of this process."""
    from offbook.sources.server.server import Server

    server = Server().launch()

    def close() -> None:
        if os.getpid() == process:  # a fork has no thread to end
            server.close()

    atexit.register(close)
    return server


# --- Sets a subject on its stage: where it finds its model, what its tools are called, what it may.

REFUSED = "isolation.refused"


class Wiring:
    """The stage of one subject, and the walls around it.

    `urls` are where its clients expect a model besides the providers' own, `allow` whom it may
    reach all the same; `refused` is what it tried to reach and may not.
    """

    def __init__(
        self,
        subject: Subject,
        source: ModelSource,
        hub: Hub,
        *,
        urls: Iterable[str],
        allow: Iterable[str],
        names: Mapping[str, str | ToolAlias] | None,
        lenient: Iterable[str],
    ) -> None:
        self._subject = subject
        self._source = source
        self._hub = hub
        self._urls = tuple(urls)
        self._allow = tuple(allow)
        self._lenient = _rules_to_drop(lenient, subject)
        self._known: ToolAliases = (
            subject.tool_aliases if isinstance(subject, HasToolAliases) else {}
        )
        self._given = parse_tool_aliases(names, self._known)
        self._endpoint: Endpoint | None = None
        self.words: AliasedSource | None = None
        self.refused: list[IsolationError] = []

    def set(self, cwd: Path) -> RunContext:
        """The stage for a subject that works in this folder."""
        tools = not self._subject.emits_tool_calls
        if self._subject.model_access == "call":
            words = self._translate(TracedSource(self._source, self._hub, tools=tools))
            return RunContext(words, self._hub, cwd, to_script_call=words.original_call)
        self._endpoint = self._make_endpoint(tools=tools)
        self._endpoint.source = words = self._translate(self._endpoint.source)
        return RunContext(words, self._hub, cwd, self._endpoint.url, words.original_call)

    def _make_endpoint(self, *, tools: bool) -> Endpoint:
        source, hub, lenient = self._source, self._hub, self._lenient
        if self._subject.model_access == "endpoint":
            return serve_source(source, hub, tools=tools, lenient=lenient)
        mocked = self._list_mocked()
        return make_inprocess_endpoint(source, hub, tools=tools, lenient=lenient, mocked=mocked)

    def _list_mocked(self) -> set[str]:
        """The tools that somebody stands in for, as the agent and as the script call them."""
        own = set(self._subject.mocked if isinstance(self._subject, HasMockedTools) else ())
        names = {**self._known, **self._given}
        return own | {word for word, name in names.items() if name.tool in own}

    def _translate(self, source: ModelSource) -> AliasedSource:
        """The script's names on this side of the source, the agent's on that."""
        self.words = AliasedSource(source, given=self._given, known=self._known)
        return self.words

    @property
    def failure(self) -> BaseException | None:
        """What went wrong at the endpoint."""
        return None if self._endpoint is None else self._endpoint.failure

    @contextmanager
    def walls(self) -> Generator[None]:
        """Inside, the clients of this process find the model, and nothing leaves the machine."""
        if self._endpoint is None or self._subject.model_access != "transport":
            yield
            return
        from offbook.determinism.network_guard import block_network
        from offbook.sources.inprocess.patching import intercept

        with block_network(allow=self._allow) as border:
            try:
                endpoint = self._endpoint
                with intercept(endpoint.answer, urls=self._urls, relay=endpoint.relays):
                    yield
            finally:
                for error in border.refused:
                    self._hub.emit(REFUSED, {"error": error.what, "where": error.where})
                self.refused += border.refused

    def close(self) -> None:
        """Let the model be found no more."""
        if self._endpoint is not None:
            self._endpoint.close()


def _rules_to_drop(lenient: Iterable[str], subject: Subject) -> tuple[str, ...]:
    """What the providers refuse is refused on the wire, so only there it can be let through."""
    dropped = tuple(ALL_RULES - rules_except(lenient))
    if dropped and subject.model_access == "call":
        raise UsageError(
            f"a {subject.name} has no provider that could be lenient", hint="leave lenient= out"
        )
    return dropped
