"""The turns of a request become messages, and are held to the rules."""

from __future__ import annotations

from typing import TYPE_CHECKING

from offbook.exchange.messages import AnyBlock, Foreign, Message, ToolCall, ToolResult
from offbook.exchange.rules import reject

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from offbook.exchange.dialects.gemini import forms
    from offbook.exchange.foreign import Verbatim
    from offbook.exchange.threads import Threads
from offbook.exchange.dialects.gemini.decode import Place, read_part, read_response, sign_thought


class Walk:
    """Goes through the turns of a request, makes messages of them and holds them to the rules.

    A call that comes without its id has the one that it was given in this run, if it was.
    """

    def __init__(
        self, rules: frozenset[str], seen: Verbatim, threads: Threads | None = None
    ) -> None:
        self._rules = rules
        self._seen = seen
        self._threads = threads
        self._met: set[str] = set()
        self._messages: list[Message] = []
        self._waiting: dict[str, str] = {}
        self._count = 0
        self._model = False

    def read(self, turns: Iterable[forms.Turn], *root: str | int) -> list[Message]:
        """The messages; `root` is where the turns stand in the body."""
        for at, turn in enumerate(turns):
            place = (*root, at, "parts")
            match turn.role:
                case "model":
                    self._hear_model(turn.listed, place)
                case "user" | "function" | "" | None:
                    self._hear_user(turn.listed, place)
                case _ if "unknown_role" in self._rules:
                    raise reject("unknown_role", "Please use a valid role: user, model.")
                case _:
                    self._hear_user(turn.listed, place)
        self._settle()
        return self._messages

    def _hear_user(self, parts: Sequence[forms.Part], place: Place) -> None:
        said: list[AnyBlock] = []
        answered = False
        for at, part in enumerate(parts):
            response = part.functionResponse or part.function_response
            if response is not None:
                name = "functionResponse" if part.functionResponse else "function_response"
                result = self._answer(response, (*place, at, name))
                self._messages.append(Message("tool", (result,)))
                answered = True
            else:
                said.append(read_part(part, self._seen, (*place, at)))
        if said:
            self._settle()
        if said or not answered:
            self._messages.append(Message("user", tuple(said)))
        self._model = False

    def _hear_model(self, parts: Sequence[forms.Part], place: Place) -> None:
        if not self._model:
            self._settle()
        self._model = True
        blocks: list[AnyBlock] = []
        for at, part in enumerate(parts):
            call = part.functionCall or part.function_call
            if call is not None:
                blocks.append(self._expect(call))
            else:
                blocks.append(read_part(part, self._seen, (*place, at)))
            if not isinstance(blocks[-1], Foreign):  # that has its signature with it
                sign_thought(blocks, part.thoughtSignature or part.thought_signature)
        self._messages.append(Message("assistant", tuple(blocks)))

    def _expect(self, call: forms.Call) -> ToolCall:
        self._count += 1
        call_id = call.id or self._recall(call) or f"call-{self._count}"
        self._met.add(call_id)
        if call_id in self._waiting and "duplicate_id" in self._rules:
            raise reject("duplicate_id", f"Duplicate function call id found: {call_id}")
        self._waiting[call_id] = call.name
        return ToolCall(call_id, call.name, call.args or {})

    def _recall(self, call: forms.Call) -> str | None:
        if self._threads is None:
            return None
        return self._threads.find_call(call.name, call.args or {}, self._met)

    def _answer(self, response: forms.Response, place: Place) -> ToolResult:
        call_id = self._find(response)
        if call_id is None and "orphan_result" in self._rules:
            raise reject(
                "orphan_result",
                _MISCOUNTED
                if self._messages and self._messages[-1].role in {"assistant", "tool"}
                else "Please ensure that function response turn comes immediately after a function"
                " call turn.",
            )
        found = call_id or response.id or ""
        name = self._waiting.pop(found, response.name)
        return read_response(response, found, name, self._seen, place)

    def _find(self, response: forms.Response) -> str | None:
        """The call that this answers: by its id, else the first of its name."""
        if response.id:
            return response.id if response.id in self._waiting else None
        return next((i for i, name in self._waiting.items() if name == response.name), None)

    def _settle(self) -> None:
        if self._waiting and "missing_result" in self._rules:
            raise reject("missing_result", _MISCOUNTED)
        self._waiting.clear()


_MISCOUNTED = (
    "Please ensure that the number of function response parts is equal to the number of function"
    " call parts of the function call turn."
)
