"""Agents that speak AG-UI, the protocol of front ends, as the subject of a test.

    with drive(AgUi(app)) as rehearsal:
        run = rehearsal.run(when("Refund order 7", [
            call("refund", {"order": 7}),
            person("refund", allow),
            say("Refunded."),
        ]))

A prompt is a run: one POST, answered by a stream of events. The subject keeps the conversation and
the state, as a front end does. An interrupt asks the person of the script, and so does a call of a
tool of the front end; the answer starts the next run of the same prompt.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Unpack

import msgspec

from offbook.errors import RunError, UsageError
from offbook.exchange.json_rpc import JsonObject, as_object
from offbook.exchange.model import compile_validator
from offbook.exchange.people import Allow, Deny, PersonQuestion, require_value
from offbook.protocols.ag_ui_run import ReceivedRun, join_deltas
from offbook.protocols.served_agent import AsgiApp, ServedAgent

if TYPE_CHECKING:
    from offbook.exchange.model import Tool
    from offbook.subjects.clis.cli import CliOptions
    from offbook.subjects.subject import RunContext

THREAD = "thread-1"


class AgUi(ServedAgent):
    """An agent that speaks AG-UI: a command that serves it, an ASGI app, or a URL.

    AgUi(app)
    AgUi(["python", "agent.py", "--port", "{port}"], path="/agent")

    `{port}` is the port at which the command must listen; PORT has it, too. `path` is the path of
    the agent. `tools` are those of the front end: the person of the script answers their calls.
    `state` is the state with which the first run starts; after a prompt it is the agent's.

    A command has the options of every client, such as `env` and `deadline`.
    """

    protocol = "ag-ui"

    def __init__(
        self,
        agent: str | Sequence[str] | AsgiApp,
        *,
        path: str = "",
        tools: Sequence[Tool] = (),
        state: Any = None,
        **options: Unpack[CliOptions],
    ) -> None:
        super().__init__(agent, **options)
        self._path = path
        self._tools = {tool.name: tool for tool in tools}
        self._first_state: Any = JsonObject() if state is None else state
        self.state: Any = self._first_state
        self.messages: list[JsonObject] = []
        self._runs = self._prompts = 0

    async def open(self, context: RunContext, /) -> None:
        """Start the agent, with an empty conversation."""
        await super().open(context)
        self.state, self.messages = self._first_state, []
        self._runs = self._prompts = 0

    async def prompt(self, text: str, /) -> str | None:
        """Start a run, and those that continue it; return the last message of the agent."""
        self._prompts += 1
        self.messages.append({"id": f"user-{self._prompts}", "role": "user", "content": text})
        said, stop = "", ""
        resume: list[JsonObject] = []
        try:
            while True:
                run = await self.within_deadline(self._run(resume))
                said, stop = run.text or said, str(run.end.get("type"))
                self.raise_problems()
                if stop == "RUN_ERROR":
                    code = f" (code {run.end['code']})" if run.end.get("code") else ""
                    raise RunError(f"the agent failed: {run.end.get('message')}{code}")
                resume = [await self._answer(run, each) for each in run.interrupts]
                if not resume and not await self._answer_calls(run):
                    break
        finally:
            self._updates = join_deltas(self._updates)
            self.emit_updates(text=said, session=THREAD, stop=stop, state=self.state)
        return said or None

    async def _run(self, resume: list[JsonObject]) -> ReceivedRun:
        self._runs += 1
        name = f"run-{self._runs}"
        tools = [
            {"name": tool.name, "description": tool.description, "parameters": tool.schema}
            for tool in self._tools.values()
        ]
        body: JsonObject = {
            "threadId": THREAD,
            "runId": name,
            "state": self.state,
            "messages": self.messages,
            "tools": tools,
            "context": [],
            "forwardedProps": {},
        }
        if resume:
            body |= {"resume": resume, "parentRunId": f"run-{self._runs - 1}"}
        run = ReceivedRun(self.problems, THREAD, name, self.messages, self.state)
        async with aclosing(self.exchange("POST", self.url + self._path, body)) as events:
            async for event in events:
                run.update(self.note(event))
        run.close()
        self.messages, self.state = run.messages, run.state
        return run

    # --- People

    async def _answer(self, run: ReceivedRun, interrupt: JsonObject) -> JsonObject:
        """Return the answer of the person to an interrupt."""
        text = str(interrupt.get("message") or interrupt.get("reason") or "")
        question = PersonQuestion(text)
        call = self._find_call(run, str(interrupt.get("toolCallId") or ""))
        if call is not None:
            question = PersonQuestion(text, call["name"], _read_arguments(call))
        answer = await self.context.ask(question)
        entry: JsonObject = {"interruptId": interrupt.get("id"), "status": "resolved"}
        if isinstance(answer, Allow):
            changed = {} if answer.params is None else {"editedArgs": dict(answer.params)}
            entry["payload"] = {"approved": True, **changed}
        elif isinstance(answer, Deny):
            reason = {"reason": answer.reason} if answer.reason else {}
            entry["payload"] = {"approved": False, **reason}
        else:
            entry["payload"] = answer
        schema = interrupt.get("responseSchema")
        if isinstance(schema, dict):
            problems = compile_validator(as_object(interrupt["responseSchema"]), "the answer")(
                entry["payload"]
            )
            if problems:
                given = msgspec.json.encode(entry["payload"]).decode()
                raise UsageError(
                    f"the answer to {question} does not match the schema of the interrupt: "
                    f"{problems[0].message}, got {given}",
                    hint=f"the schema: {msgspec.json.encode(schema).decode()}",
                )
        return entry

    def _find_call(self, run: ReceivedRun, call_id: str) -> JsonObject | None:
        call = run.calls.get(call_id)
        return None if call is None else call["function"]

    async def _answer_calls(self, run: ReceivedRun) -> bool:
        """Let the person answer the calls of the front end; return whether there are any."""
        for call_id in run.unanswered:
            function = run.calls[call_id]["function"]
            name = function["name"]
            if name not in self._tools:
                raise RunError(
                    f"the call of {name} has no result, and the front end has no such tool",
                    hint=f"emit TOOL_CALL_RESULT, or write AgUi(…, tools=[Tool({name!r})])",
                )
            answer = await self.context.ask(PersonQuestion("", name, _read_arguments(function)))
            value = require_value(answer, name)
            text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
            self.messages.append(
                {
                    "id": f"result-of-{call_id}",
                    "role": "tool",
                    "toolCallId": call_id,
                    "content": text,
                }
            )
        return bool(run.unanswered)


def _read_arguments(function: JsonObject) -> Any:
    return msgspec.json.decode(function["arguments"] or "{}")
