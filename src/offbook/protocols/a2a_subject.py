"""Agents that speak A2A, the protocol between agents, as the subject of a test.

    with drive(A2a(["python", "agent.py", "--port", "{port}"])) as rehearsal:
        rehearsal.run(when("Pay the bill", [
            say("Which account?"),
            person("Which account?", "7"),
            say("Paid."),
        ]))

The agent card names where the agent is and whether it streams. A prompt is a message; what the
agent sends about its task is `process.event` in the trace. A task that requires input asks the
person of the script. All prompts of a rehearsal have one context.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Unpack
from urllib.parse import urlsplit

from offbook.errors import RunError, UsageError
from offbook.exchange.json_rpc import JsonObject, as_object
from offbook.exchange.people import PersonQuestion, require_value
from offbook.protocols.a2a_task import (
    CARD_PATH,
    RUNNING,
    VERSION,
    ReceivedTask,
    check_card,
    objects,
    read_text,
    to_part,
)
from offbook.protocols.served_agent import LOCAL, AsgiApp, ServedAgent
from offbook.subjects.clis.cli import PROCESS_EVENT

if TYPE_CHECKING:
    from offbook.subjects.clis.cli import CliOptions
    from offbook.subjects.subject import RunContext

POLL_SECONDS = 0.05


class A2a(ServedAgent):
    """An agent that speaks A2A 1.0: a command that serves it, an ASGI app, or a URL.

    A2a(["python", "agent.py", "--port", "{port}"])
    A2a(app)

    `{port}` is the port at which the command must listen; PORT has it, too. A command has the
    options of every client, such as `env` and `deadline`. The model of a command and of an app is
    that of the script; an agent that runs elsewhere has its own.

    `card` is the agent card. After a prompt, `task` is the state of its task.
    """

    protocol = "a2a"

    def __init__(self, agent: str | Sequence[str] | AsgiApp, **options: Unpack[CliOptions]) -> None:
        super().__init__(agent, **options)
        self.card: JsonObject = {}
        self.task = ReceivedTask(self.rules)
        self._endpoint = ""
        self._requests = self._messages = 0

    async def open(self, context: RunContext, /) -> None:
        """Start the agent, and read its card."""
        await super().open(context)
        self.task = ReceivedTask(self.rules)
        self._requests = self._messages = 0
        async with aclosing(self.exchange("GET", self.url + CARD_PATH)) as documents:
            self.card = as_object(await anext(documents))
        if "supportedInterfaces" not in self.card and "url" in self.card:
            version = self.card.get("protocolVersion", "0.3")
            raise UsageError(
                f"the agent speaks A2A {version}, expected {VERSION}",
                hint="update its SDK: a2a-sdk 1.0 or newer",
            )
        check_card(self.card, self.rules)
        self.raise_problems()
        self._endpoint = self._find_endpoint()
        self.raise_problems()
        context.hub.emit(PROCESS_EVENT, {"agentCard": self.card})

    def _find_endpoint(self) -> str:
        interfaces = objects(self.card.get("supportedInterfaces"))
        for each in interfaces:
            version = str(each.get("protocolVersion"))
            if each.get("protocolBinding") == "JSONRPC" and version.startswith("1."):
                own, named = urlsplit(self.url), urlsplit(str(each.get("url")))
                if self.app is not None:
                    return own._replace(path=named.path or "/").geturl()
                local = {own.hostname, named.hostname} <= LOCAL or own.hostname == named.hostname
                self.rules.expect(
                    local and own.port == named.port,
                    f"the agent card names {named.geturl()}, and the agent is at {self.url}",
                )
                return named._replace(netloc=own.netloc).geturl()
        found = [(each.get("protocolBinding"), each.get("protocolVersion")) for each in interfaces]
        raise UsageError(
            f"the agent offers no A2A {VERSION} over JSON-RPC, only {found}",
            hint='add an interface with the protocolBinding "JSONRPC" to its card',
        )

    # --- A prompt

    async def prompt(self, text: str, /) -> Any:
        """Send a message, and wait for the end of its task; return the answer of the agent."""
        # The deadline holds for each exchange, as a person may take any time.
        self.task = ReceivedTask(self.rules, context=self.task.context)
        task = self.task
        try:
            await self.within_deadline(self._send(text))
            while task.state == "INPUT_REQUIRED":
                question = read_text(task.status.get("parts"))
                answer = await self.context.ask(PersonQuestion(question))
                value = require_value(answer, repr(question))
                await self.within_deadline(self._send(value))
        finally:
            self.emit_updates(text=task.answer, session=task.context, stop=task.state or "MESSAGE")
        self.raise_problems()
        if task.state == "AUTH_REQUIRED":
            raise UsageError(
                f"the agent requires to sign in: {read_text(task.status.get('parts'))}",
                hint="set the key that it reads with env={…}",
            )
        if task.state and task.state != "COMPLETED":
            said = read_text(task.status.get("parts")) or "no reason"
            raise RunError(f"the agent ended its task as {task.state.lower()}: {said}")
        return task.answer

    async def _send(self, value: object) -> None:
        task = self.task
        self._messages += 1
        message: JsonObject = {
            "messageId": f"message-{self._messages}",
            "role": "ROLE_USER",
            "parts": [to_part(value)],
        }
        ids = {"contextId": task.context, "taskId": task.task}
        message |= {name: given for name, given in ids.items() if given}
        streams = as_object(self.card.get("capabilities")).get("streaming") is True
        method = "SendStreamingMessage" if streams else "SendMessage"
        async with aclosing(self._request(method, {"message": message})) as results:
            async for result in results:
                task.update(self.note(result))
        while not streams and task.state in RUNNING:
            await asyncio.sleep(POLL_SECONDS)
            async with aclosing(self._request("GetTask", {"id": task.task})) as results:
                async for result in results:
                    before = task.state
                    task.update({"task": result})
                    if task.state != before:
                        self.note({"task": result})
        task.end()

    async def _request(self, method: str, params: JsonObject) -> AsyncGenerator[Any]:
        """Yield the results of a JSON-RPC request."""
        self._requests += 1
        request = {"jsonrpc": "2.0", "id": self._requests, "method": method, "params": params}
        expect = self.rules.expect
        headers = {"a2a_version": VERSION}
        async with aclosing(self.exchange("POST", self._endpoint, request, **headers)) as answers:
            async for each in answers:
                answer = as_object(each)
                expect(answer.get("jsonrpc") == "2.0", 'a message must have "jsonrpc": "2.0"')
                expect(
                    answer.get("id") == request["id"], "a response must have the id of its request"
                )
                one = ("result" in answer) != ("error" in answer)
                expect(one, "a response must have a result or an error")
                if "error" in answer:
                    error = as_object(answer["error"])
                    said, code = error.get("message"), error.get("code")
                    raise RunError(f"the agent failed in {method}: {said} (code {code})")
                if "result" in answer:
                    yield answer["result"]
