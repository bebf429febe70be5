"""Sets a subject on its stage: where it finds its model, what its tools are called, what it may."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from offbook.errors import UsageError
from offbook.exchange.names import Name, Names, Translated, read_names
from offbook.exchange.rules import ALL, without
from offbook.runs.rehearsals.endpoints import answer_clients, serve
from offbook.subjects.subject import Mocked, Named, Stage, Subject
from offbook.trace.observe import Observed

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Mapping
    from pathlib import Path

    from offbook.errors import IsolationError
    from offbook.exchange.source import ModelSource
    from offbook.sources.server.endpoint import Endpoint
    from offbook.trace.hub import Hub

REFUSED = "isolation.refused"


class Staging:
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
        names: Mapping[str, str | Name] | None,
        lenient: Iterable[str],
    ) -> None:
        self._subject = subject
        self._source = source
        self._hub = hub
        self._urls = tuple(urls)
        self._allow = tuple(allow)
        self._lenient = _rules_to_drop(lenient, subject)
        self._known: Names = subject.names if isinstance(subject, Named) else {}
        self._given = read_names(names, self._known)
        self._endpoint: Endpoint | None = None
        self.words: Translated | None = None
        self.refused: list[IsolationError] = []

    def set(self, cwd: Path) -> Stage:
        """The stage for a subject that works in this folder."""
        tools = not self._subject.tells
        if self._subject.reach == "call":
            words = self._translate(Observed(self._source, self._hub, tools=tools))
            return Stage(words, self._hub, cwd, told=words.told)
        self._endpoint = self._make_endpoint(tools=tools)
        self._endpoint.source = words = self._translate(self._endpoint.source)
        return Stage(words, self._hub, cwd, self._endpoint.url, words.told)

    def _make_endpoint(self, *, tools: bool) -> Endpoint:
        source, hub, lenient = self._source, self._hub, self._lenient
        if self._subject.reach == "endpoint":
            return serve(source, hub, tools=tools, lenient=lenient)
        mocked = self._list_mocked()
        return answer_clients(source, hub, tools=tools, lenient=lenient, mocked=mocked)

    def _list_mocked(self) -> set[str]:
        """The tools that somebody stands in for, as the agent and as the script call them."""
        own = set(self._subject.mocked if isinstance(self._subject, Mocked) else ())
        names = {**self._known, **self._given}
        return own | {word for word, name in names.items() if name.tool in own}

    def _translate(self, source: ModelSource) -> Translated:
        """The script's names on this side of the source, the agent's on that."""
        self.words = Translated(source, given=self._given, known=self._known)
        return self.words

    @property
    def failure(self) -> BaseException | None:
        """What went wrong at the endpoint."""
        return None if self._endpoint is None else self._endpoint.failure

    @contextmanager
    def walls(self) -> Generator[None]:
        """Inside, the clients of this process find the model, and nothing leaves the machine."""
        if self._endpoint is None or self._subject.reach != "transport":
            yield
            return
        from offbook.determinism.isolation import closed
        from offbook.sources.inprocess.interception import intercepted

        with closed(allow=self._allow) as border:
            try:
                endpoint = self._endpoint
                with intercepted(endpoint.answer, urls=self._urls, relay=endpoint.relays):
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
    dropped = tuple(ALL - without(lenient))
    if dropped and subject.reach == "call":
        raise UsageError(
            f"a {subject.name} has no provider that could be lenient", hint="leave lenient= out"
        )
    return dropped
