"""One run of pi as the witness inside it reports it: tool calls, mocks and the user interface.

    seen ─▶ [hooks of the extensions] ─▶ allowed ─▶ mock or tool ─▶ ran ─▶ [hooks] ─▶ results

A call that is seen and never allowed was blocked. One that is never seen has an unknown tool or
wrong parameters. The requests to the model have the rest: each call, and its result.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from offbook.errors import ToolFailed
from offbook.exchange.messages import to_json
from offbook.subjects.mock_tools import (
    DEFAULTS,
    DISPLAYS,
    UI,
    ToolMocks,
    check_mocks_used,
)
from offbook.subjects.subject import ToolError
from offbook.trace.events import (
    AGENT_END,
    AGENT_START,
    TOOL_CALL,
    UNSET,
    Event,
    ToolBlockedData,
    ToolCallData,
    ToolEndData,
    ToolInputData,
    ToolStartData,
    Verdict,
)
from offbook.trace.instrument import SeenTool

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from offbook.subjects.subject import RunContext
    from offbook.trace.hub import Hub

BUILTIN = "<builtin:"


class PiTools:
    """The tools of pi: mocks in Python, and what the witness saw of each call.

    `failed`, `errors` and `results` complete the tool results that the requests to the model
    carry.
    """

    def __init__(
        self, mocks: Mapping[str, Any], *, mock_extensions: bool, propagate_errors: bool
    ) -> None:
        self.mocks = ToolMocks(mocks, mock_extensions=mock_extensions)
        self._propagate_errors = propagate_errors
        self._owners: dict[str, str] = {}  # of the tools that extensions registered
        self._inputs: dict[str, Any] = {}
        self._allowed: dict[str, tuple[ToolStartData, float]] = {}  # and since when
        self._mocked: dict[str, bool] = {}  # the mocked calls: whether their result is an error
        self._calls: dict[str, ToolCallData] = {}  # as the script has them
        self.names: set[str] = set()
        self.failed: dict[str, bool] = {}
        self.errors: list[ToolError] = []
        self.results: dict[str, SeenTool] = {}

    @property
    def watched(self) -> Collection[str]:
        """The tools whose executions the witness reports: all."""
        return self.names

    def start(self, owners: list[list[str]], witness: Path) -> list[str]:
        """Note the tools of a new session; return those to mock."""
        self.names = {name for name, _ in owners} | set(self.mocks.by_name)
        self._owners = {
            name: owner
            for name, owner in owners
            if owner and not owner.startswith(BUILTIN) and Path(owner).parent != witness
        }
        return [
            name for name in self.mocks.by_name if self.mocks.find(name, self._owners.get(name, ""))
        ]

    def note_call(self, event: Event) -> None:
        """Note a call of the model, under the name and with the step of the script."""
        data = ToolCallData.read(event)
        self._calls[data.call_id] = data

    def see(self, call: str, tool: str, arguments: Any) -> None:
        """Note a call before the hooks of the extensions."""
        self._inputs[call] = arguments
        if self.mocks.find(tool, self._owners.get(tool, "")):
            self.mocks.note_use(tool)

    def allow(self, call: str, tool: str, arguments: Any, hub: Hub) -> None:
        """Note a call that no hook blocked, which runs now; emit its input if a hook changed it."""
        data = self._calls.get(call)
        changed = to_json(arguments) != to_json(self._inputs.get(call))
        if changed and data is not None:
            hub.emit_data(ToolInputData(call, data.tool, arguments, data.step))
        # The trace has the names of the script.
        given = arguments if changed or data is None else data.input
        started = ToolStartData(call, tool if data is None else data.tool, given)
        hub.emit_data(started)
        self._allowed[call] = started, hub.timer()

    async def run_mock(self, call: str, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the result of a mock, as pi expects it."""
        outcome = await self.mocks.by_name[tool].run(arguments, None)
        self._mocked[call] = outcome.is_error
        return {"content": outcome.content, "details": outcome.details}

    def finish(
        self, call: str, tool: str, content: list[dict[str, Any]], hub: Hub, *, is_error: bool
    ) -> dict[str, Any] | None:
        """Note the end of a tool that ran; return the changes of its result."""
        if call in self._allowed:
            started, began = self._allowed[call]
            hub.emit_data(
                ToolEndData(
                    call,
                    started.tool,
                    round(hub.timer() - began, 3),
                    self._mocked.get(call, is_error),
                    content=content,
                    mocked=call in self._mocked or UNSET,
                )
            )
        if call in self._mocked:
            return {"isError": True} if self._mocked[call] else None
        if is_error and tool in self._owners and self._propagate_errors:
            text = "\n".join(block.get("text", "") for block in content)
            self.errors.append(ToolError(call, tool, ToolFailed(text)))
        return None

    def end(self, result: dict[str, Any], hub: Hub) -> None:
        """Note the final result of a call; emit that it was blocked."""
        call = result["toolCallId"]
        self.failed[call] = bool(result.get("isError"))
        allowed = call in self._allowed
        self.results[call] = SeenTool(result.get("details"), call in self._mocked, allowed)
        if call in self._inputs and not allowed and call in self._calls:
            reason = "\n".join(block.get("text", "") for block in result["content"])
            data = self._calls[call]
            hub.emit_data(ToolBlockedData(call, data.tool, reason, data.step))

    def unused_mocks(self) -> dict[str, str]:
        """Return the mocks of tools that were never called, with the extension that won."""
        owners = {name: Path(owner).name for name, owner in self._owners.items()}
        return self.mocks.list_unused(owners)


class PiRun:
    """The answers to the witness during one rehearsal. `fail` receives errors of the test."""

    def __init__(
        self,
        tools: PiTools,
        mock_ui: dict[str, Any],
        context: RunContext,
        *,
        has_ui: bool,
        witness: Path,
        fail: Callable[[BaseException], None],
    ) -> None:
        self.tools = tools
        self.ui = UI(mock_ui, context, has_ui=has_ui)
        self._hub = hub = context.hub
        hub.subscribe(tools.note_call, TOOL_CALL)
        self._witness = witness
        self._fail = fail
        self.preparing = False  # a prompt has arrived, and the agent has not started with it
        self.working = False  # the agent has started, and not all hooks have seen its end

    async def answer(self, kind: str, question: dict[str, Any]) -> Any:
        """Answer a question of the witness."""
        try:
            return await self._answer(kind, question)
        except BaseException as error:
            self._fail(error)
            raise

    async def _answer(self, kind: str, question: dict[str, Any]) -> Any:
        tools, hub = self.tools, self._hub
        match kind:
            case "session":
                return tools.start(question["owners"], self._witness)
            case "input":
                self.preparing = True
            case "agent_start":
                self.preparing, self.working = False, True
                hub.emit(AGENT_START)
            case "agent_end":
                self.working = False
                hub.emit(AGENT_END)
            case "seen":
                tools.see(question["call"], question["tool"], question["input"])
            case "allowed":
                tools.allow(question["call"], question["tool"], question["input"], hub)
            case "mock":
                return await tools.run_mock(question["call"], question["tool"], question["input"])
            case "ran":
                return tools.finish(
                    question["call"],
                    question["tool"],
                    question["content"],
                    hub,
                    is_error=question["is_error"],
                )
            case "results":
                self.preparing = False  # a request to the model follows, or the agent has ended
                for result in question["results"]:
                    tools.end(result, hub)
            case "ui":
                return await self._show(to_snake_case(question["method"]), question["args"])
            case _:
                pass
        return None

    async def _show(self, method: str, args: list[Any]) -> Any:
        """Record a call of the user interface that pi does not send to its client."""
        if method in DEFAULTS:  # a dialog without a user interface: pi declines it
            return await getattr(self.ui, method)(*args[:2])
        if method in DISPLAYS:
            return getattr(self.ui, method)(*args[:2])
        return await self.ui.answer_other(method, args)

    async def answer_dialog(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return the answer to a dialog of pi's RPC protocol."""
        method = request["method"]
        try:
            match method:
                case "confirm":
                    ok = await self.ui.confirm(request["title"], request.get("message") or "")
                    return {"confirmed": ok}
                case "select":
                    value = await self.ui.select(request["title"], request["options"])
                case "input":
                    value = await self.ui.input(request["title"], request.get("placeholder"))
                case _:
                    value = await self.ui.editor(request["title"], request.get("prefill"))
        except BaseException as error:
            self._fail(error)
            raise
        return {"cancelled": True} if value is None else {"value": value}

    def verdicts(self) -> list[Verdict]:
        """Return a failed verdict if mocks or answers were never used."""
        return check_mocks_used(self.tools.unused_mocks(), self.ui.unused_answers())


def to_snake_case(name: str) -> str:
    """Return `set_status` for `setStatus`."""
    return re.sub(r"(?<=[a-z])([A-Z])", r"_\1", name).lower()
