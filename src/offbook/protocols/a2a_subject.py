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

What the agent sends about a task is held against the rules (`ReceivedTask`):
https://a2a-protocol.org/latest/specification
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Unpack
from urllib.parse import urlsplit

import msgspec

from offbook.errors import RunError, UsageError
from offbook.exchange.json_rpc import JsonObject, as_object, as_objects
from offbook.exchange.people import PersonQuestion, require_value
from offbook.protocols.served_agent import LOCAL, AsgiApp, ServedAgent
from offbook.subjects.clis.cli import PROCESS_EVENT

if TYPE_CHECKING:
    from offbook.subjects.clis.cli import CliOptions
    from offbook.subjects.rpc_process import ProtocolRules
    from offbook.subjects.subject import RunContext

VERSION = "1.0"
CARD_PATH = "/.well-known/agent-card.json"
STATE = "TASK_STATE_"
RUNNING = {"SUBMITTED", "WORKING"}
WAITING = {"INPUT_REQUIRED", "AUTH_REQUIRED"}
ENDED = {"COMPLETED", "FAILED", "CANCELED", "REJECTED"}
KINDS = ("task", "message", "statusUpdate", "artifactUpdate")
PART_FIELDS = ("text", "raw", "url", "data")
CARD_FIELDS = ("name", "description", "version", "supportedInterfaces", "capabilities", "skills")
SKILL_FIELDS = ("id", "name", "description", "tags")
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

    name = "a2a"

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
        interfaces = as_objects(self.card.get("supportedInterfaces"))
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
            reason = read_text(task.status.get("parts")) or "no reason"
            raise RunError(f"the agent ended its task as {task.state.lower()}: {reason}")
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
        headers = {"a2a_version": VERSION}
        async with aclosing(self.exchange("POST", self._endpoint, request, **headers)) as answers:
            async for each in answers:
                answer = as_object(each)
                self.rules.check_message(answer)
                own = answer.get("id") == request["id"]
                self.rules.expect(own, "a response must have the id of its request")
                if "error" in answer:
                    error = as_object(answer["error"])
                    reason, code = error.get("message"), error.get("code")
                    raise RunError(f"the agent failed in {method}: {reason} (code {code})")
                if "result" in answer:
                    yield answer["result"]


# --- The messages of an agent


def read_text(parts: object) -> str:
    """Return the text of a message or an artifact."""
    return "".join(str(part["text"]) for part in as_objects(parts) if "text" in part)


def read_parts(parts: object) -> Any:
    """Return the text of these parts, otherwise their data: that of the only one, or a list."""
    if text := read_text(parts):
        return text
    found = [part["data"] for part in as_objects(parts) if "data" in part]
    return found[0] if len(found) == 1 else found or None


def to_part(value: object) -> JsonObject:
    """Return a text or any other value as a part of a message."""
    return {"text": value} if isinstance(value, str) else {"data": msgspec.to_builtins(value)}


def check_card(card: JsonObject, rules: ProtocolRules) -> None:
    """Hold an agent card against the rules."""
    for name in CARD_FIELDS:
        rules.expect(name in card, f"the agent card must have {name}")
    for skill in as_objects(card.get("skills")):
        for name in SKILL_FIELDS:
            rules.expect(name in skill, f"the skill {skill.get('id')!r} must have {name}")


class ReceivedTask:
    """One task of the agent, or its single message: updated by each message of a stream.

    `task` is the id of the task, if the agent made one. `state` is without its prefix.
    """

    def __init__(self, rules: ProtocolRules, task: str = "", context: str = "") -> None:
        self.task, self.context = task, context
        self.state = ""
        self.status: JsonObject = {}
        self.message: JsonObject | None = None
        self.artifacts: dict[str, list[JsonObject]] = {}
        self._history: list[JsonObject] = []
        self._known = bool(task)  # a task that goes on is not announced again
        self._rules = rules

    @property
    def answer(self) -> Any:
        """The answer for a caller of the agent: its message, the artifacts, or the last status."""
        if self.message is not None:
            return read_parts(self.message.get("parts"))
        parts = [part for artifact in self.artifacts.values() for part in artifact]
        found = read_parts(parts)
        if found is None:
            found = read_parts(self.status.get("parts"))
        if found is None:
            own = [m for m in self._history if m.get("role") == "ROLE_AGENT"]
            found = read_parts(own[-1].get("parts")) if own else None
        return found

    def update(self, response: JsonObject) -> None:
        """Apply a message of the agent."""
        expect = self._rules.expect
        kinds = [kind for kind in KINDS if kind in response]
        expect(len(kinds) == 1, f"a response must have one of {', '.join(KINDS)}, got {kinds}")
        if len(kinds) != 1:
            return
        kind = kinds[0]
        content = as_object(response[kind])
        expect(self.message is None, f"{kind} after the message that ends the exchange")
        expect(self.state not in ENDED, f"{kind} after the task is {self.state}")
        if kind == "message":
            expect(not self._known, "a message after the task has begun: send it in a status")
            expect(content.get("role") == "ROLE_AGENT", "a message must have the role ROLE_AGENT")
            expect(content.get("messageId"), "a message must have a messageId")
            self._check_parts(content, "a message")
            self.message = content
            self.context = str(content.get("contextId") or self.context)
            return
        self._check_ids(kind, content)
        if kind == "artifactUpdate":
            self._add_artifact(
                as_object(content.get("artifact")), append=bool(content.get("append"))
            )
            return
        self._set_status(as_object(content.get("status")))
        if kind == "task":
            self._history = as_objects(content.get("history"))
            self.artifacts = {}
            for artifact in as_objects(content.get("artifacts")):
                self._add_artifact(artifact, append=False)

    def _check_ids(self, kind: str, content: JsonObject) -> None:
        expect = self._rules.expect
        task = str(content.get("id" if kind == "task" else "taskId") or "")
        context = str(content.get("contextId") or "")
        expect(task, f"{kind} must have the id of the task")
        expect(context, f"{kind} must have a contextId")
        if kind == "task" and not self._known:
            self._known, self.task = True, task
        expect(self._known, f"{kind} before the task")
        expect(task == (self.task or task), f"{kind} of another task: {task!r}, not {self.task!r}")
        same = not self.context or not context or context == self.context
        expect(same, f"{kind} of another context: {context!r}, not {self.context!r}")
        self.context = self.context or context

    def _set_status(self, status: JsonObject) -> None:
        name = str(status.get("state"))
        state = name.removeprefix(STATE)
        known = name.startswith(STATE) and state in RUNNING | WAITING | ENDED
        self._rules.expect(known, f"unknown state of a task {status.get('state')!r}")
        self.state = state
        self.status = as_object(status.get("message"))
        if self.status:
            self._check_parts(self.status, "the message of a status")

    def _add_artifact(self, artifact: JsonObject, *, append: bool) -> None:
        name = str(artifact.get("artifactId") or "")
        self._rules.expect(name, "an artifact must have an artifactId")
        self._rules.expect(
            not append or name in self.artifacts, f"an addition to the unknown artifact {name!r}"
        )
        self._check_parts(artifact, "an artifact")
        parts = as_objects(artifact.get("parts"))
        self.artifacts[name] = [*self.artifacts.get(name, ()), *parts] if append else parts

    def _check_parts(self, content: JsonObject, what: str) -> None:
        parts = as_objects(content.get("parts"))
        self._rules.expect(parts, f"{what} must have parts")
        for part in parts:
            one = sum(field in part for field in PART_FIELDS) == 1
            self._rules.expect(one, f"a part must have one of {', '.join(PART_FIELDS)}")

    def end(self) -> None:
        """Note that the response has ended."""
        done = self.message is not None or self.state in WAITING | ENDED
        what = f"the task is {self.state}" if self.state else "there is neither task nor message"
        self._rules.expect(done, f"the stream ended while {what}")
