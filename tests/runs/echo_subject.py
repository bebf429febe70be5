"""A subject that makes plain requests, and a source that always answers."""

from __future__ import annotations

from collections.abc import Iterable

from offbook import say, when
from offbook.errors import ModelError
from offbook.exchange import History, Reply, Request, user
from offbook.subjects import ModelAccess, RunContext
from offbook.trace import Verdict
from offbook.types import Text

HELLO = when("Hello", [say("Hi!")])


class Echo:
    """A subject that makes one request per prompt; a patient one repeats it after an error."""

    name = "echo"
    model_access: ModelAccess = "call"
    emits_tool_calls = False

    def __init__(self, *verdicts: Verdict, requests: int = 1, patient: bool = False) -> None:
        self._verdicts = verdicts
        self._patient = patient
        self._requests = requests
        self.closed = 0

    async def open(self, context: RunContext, /) -> None:
        self._context = context

    async def prompt(self, text: str, /) -> object:
        output = ""
        for _ in range(self._requests):
            output = await self.ask(text)
        return output

    async def ask(self, text: str) -> str:
        request = Request(History([user(text)]))
        try:
            return (await self._context.source.reply(request)).text
        except ModelError:
            if not self._patient:
                raise
            return (await self._context.source.reply(request)).text

    async def close(self) -> None:
        self.closed += 1

    def tools(self) -> None: ...

    def commands(self) -> tuple[str, ...]:
        return ()

    def verdicts(self) -> Iterable[Verdict]:
        return self._verdicts


class Always:
    """A source with the same answer to each request."""

    text = "from a source"

    async def reply(self, _: Request, /) -> Reply:
        return Reply((Text(self.text),))
