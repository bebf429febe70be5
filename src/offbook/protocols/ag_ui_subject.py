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

`ReceivedRun` holds the events of a run against the rules of their order, and builds messages, tool
calls and a state from them, as a front end does.

https://docs.ag-ui.com/concepts/events
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from contextlib import aclosing
from copy import deepcopy
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack, cast

import msgspec

from offbook.errors import RunError, UsageError
from offbook.exchange.json_rpc import JsonObject, as_object, as_objects
from offbook.exchange.model import compile_validator
from offbook.exchange.people import Allow, Deny, PersonQuestion, require_value
from offbook.protocols.served_agent import AsgiApp, ServedAgent

if TYPE_CHECKING:
    from collections.abc import Callable

    from offbook.exchange.model import Tool
    from offbook.subjects.clis.cli import CliOptions
    from offbook.subjects.rpc_process import ProtocolRules
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

    name = "ag-ui"

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
        answer, stop = "", ""
        resume: list[JsonObject] = []
        try:
            while True:
                run = await self.within_deadline(self._run(resume))
                answer, stop = run.text or answer, str(run.end.get("type"))
                self.raise_problems()
                if stop == "RUN_ERROR":
                    code = f" (code {run.end['code']})" if run.end.get("code") else ""
                    raise RunError(f"the agent failed: {run.end.get('message')}{code}")
                resume = [await self._answer(run, each) for each in run.interrupts]
                if not resume and not await self._answer_calls(run):
                    break
        finally:
            self._updates = join_deltas(self._updates)
            self.emit_updates(text=answer, session=THREAD, stop=stop, state=self.state)
        return answer or None

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
        run = ReceivedRun(self.rules, THREAD, name, self.messages, self.state)
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
        call = run.calls.get(str(interrupt.get("toolCallId") or ""))
        if call is not None:
            function = call["function"]
            question = PersonQuestion(text, function["name"], _read_arguments(function))
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


# ---------------------------------------------------------------------------- the rules of a run

# Events that open something, and those that need it open or close it, by the field of its id.
SPANS = {
    "TEXT_MESSAGE": ("messageId", "START", ("CONTENT",), ("END",)),
    "TOOL_CALL": ("toolCallId", "START", ("ARGS",), ("END",)),
    "STEP": ("stepName", "STARTED", (), ("FINISHED",)),
    "REASONING_MESSAGE": ("messageId", "START", ("CONTENT",), ("END",)),
    "REASONING": ("messageId", "START", (), ("END",)),
    "SUBAGENT": ("subagentRunId", "STARTED", (), ("FINISHED", "ERROR")),
}
OTHERS = {
    *("RUN_STARTED", "RUN_FINISHED", "RUN_ERROR"),
    *("TEXT_MESSAGE_CHUNK", "TOOL_CALL_CHUNK", "REASONING_MESSAGE_CHUNK", "TOOL_CALL_RESULT"),
    *("STATE_SNAPSHOT", "STATE_DELTA", "MESSAGES_SNAPSHOT"),
    *("ACTIVITY_SNAPSHOT", "ACTIVITY_DELTA", "RAW", "CUSTOM", "REASONING_ENCRYPTED_VALUE"),
}
# The fields that an event must have, besides the id of its span, as the SDKs have them.
CONTENT = "a text or a list"
RUN_IDS = {"threadId": "a text", "runId": "a text"}
ACTIVITY = {"messageId": "a text", "activityType": "a text"}
FIELDS = {
    "RUN_STARTED": RUN_IDS,
    "RUN_FINISHED": RUN_IDS,
    "RUN_ERROR": {"message": "a text"},
    "TOOL_CALL_START": {"toolCallName": "a text"},
    "TOOL_CALL_RESULT": {"messageId": "a text", "toolCallId": "a text", "content": CONTENT},
    "STATE_DELTA": {"delta": "a list"},
    "MESSAGES_SNAPSHOT": {"messages": "a list"},
    "ACTIVITY_SNAPSHOT": {**ACTIVITY, "content": "an object"},
    "ACTIVITY_DELTA": {**ACTIVITY, "patch": "a list"},
    "CUSTOM": {"name": "a text"},
    "REASONING_ENCRYPTED_VALUE": dict.fromkeys(("subtype", "entityId", "encryptedValue"), "a text"),
    "SUBAGENT_STARTED": {"name": "a text"},
    "SUBAGENT_ERROR": {"message": "a text"},
}
KINDS: dict[str, tuple[type, ...]] = {
    "a text": (str,),
    CONTENT: (str, list),
    "a list": (list,),
    "an object": (dict,),
}
THINKING = ("START", "TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END", "END")
# The earlier names of reasoning, which SDKs still send.
EARLIER = {f"THINKING_{n}": f"REASONING_{n.removeprefix('TEXT_')}" for n in THINKING}
ENDS = ("RUN_FINISHED", "RUN_ERROR")
DELTAS = (
    *("TEXT_MESSAGE_CONTENT", "TOOL_CALL_ARGS", "REASONING_MESSAGE_CONTENT"),
    "THINKING_TEXT_MESSAGE_CONTENT",
)
INDEX = re.compile(r"0|[1-9][0-9]*")


def _event_spans() -> dict[str, tuple[str, str]]:
    """Return the span of each event, and whether it opens, uses or closes it."""
    found: dict[str, tuple[str, str]] = {}
    for span, (_, opens, uses, closes) in SPANS.items():
        found[f"{span}_{opens}"] = (span, "open")
        found |= {f"{span}_{each}": (span, "use") for each in uses}
        found |= {f"{span}_{each}": (span, "close") for each in closes}
    return found


EVENT_SPANS = _event_spans()


class ReceivedRun:
    """One run of the agent, updated by each event.

    `messages` are those of the conversation, with what the run added. `calls` are the tool calls
    of the run by their id, `unanswered` the ids of those without a result.
    """

    def __init__(
        self, rules: ProtocolRules, thread: str, run: str, messages: list[JsonObject], state: Any
    ) -> None:
        self.messages = [*messages]
        self.state = state
        self.calls: dict[str, JsonObject] = {}
        self.unanswered: list[str] = []
        self.end: JsonObject = {}
        self.text = ""  # of the last message
        self._thread, self._run = thread, run
        self._started = False
        self._open: dict[tuple[str, str], JsonObject] = {}
        self._seen: set[tuple[str, str]] = set()
        self._chunk = ""  # the last message or call that came in chunks
        self._chunked_calls: list[JsonObject] = []
        self._answered: set[str] = set()  # the calls that got a result in this run
        self._thoughts = Counter[str]()
        self._rules = rules
        self._handlers: dict[str, Callable[[JsonObject], None]] = {
            "RUN_STARTED": self._on_run_started,
            "RUN_FINISHED": self._on_run_finished,
            "TEXT_MESSAGE_CHUNK": partial(self._add_chunk, "TEXT_MESSAGE"),
            "TOOL_CALL_CHUNK": partial(self._add_chunk, "TOOL_CALL"),
            "TOOL_CALL_RESULT": self._on_tool_call_result,
            "MESSAGES_SNAPSHOT": self._on_messages_snapshot,
            "STATE_SNAPSHOT": self._on_state_snapshot,
            "STATE_DELTA": self._on_state_delta,
        }

    @property
    def interrupts(self) -> list[JsonObject]:
        """The interrupts that the run waits for."""
        outcome = as_object(self.end.get("outcome"))
        return as_objects(outcome.get("interrupts")) if outcome.get("type") == "interrupt" else []

    def update(self, event: JsonObject) -> None:
        """Apply an event."""
        expect = self._rules.expect
        kind = str(event.get("type"))
        if kind in EARLIER:
            event = self._rename_thought(kind, event)
            kind = EARLIER[kind]
        known = kind in EVENT_SPANS or kind in OTHERS
        expect(known, f"unknown event {event.get('type')!r}")
        expect(not self.end, f"{kind} after {self.end.get('type')}")
        first = kind in {"RUN_STARTED", "RUN_ERROR"}
        expect(self._started or first, f"{kind} before RUN_STARTED")
        for name, expected in FIELDS.get(kind, {}).items():
            value = event.get(name)
            fits = isinstance(value, KINDS[expected]) and (expected != "a text" or value)
            expect(fits, f"{kind} must have {expected} as {name}")
        if kind in ENDS:
            self.end = event
        if kind in EVENT_SPANS:
            self._update_span(kind, event)
        elif kind in self._handlers:
            self._handlers[kind](event)

    def _rename_thought(self, kind: str, event: JsonObject) -> JsonObject:
        """Return an earlier event of reasoning with an id: it has none."""
        span, _, action = kind.rpartition("_")
        self._thoughts[span] += action == "START"
        return {"messageId": f"thinking-{self._thoughts[span]}", **event}

    def _update_span(self, kind: str, event: JsonObject) -> None:
        expect = self._rules.expect
        span, action = EVENT_SPANS[kind]
        field = SPANS[span][0]
        key = (span, str(event.get(field) or ""))
        expect(key[1], f"{kind} must have {field}")
        what = f"{kind} of {key[1]!r}"
        if action == "open":
            expect(key not in self._open, f"{what}, which is open")
            again = key in self._seen and span != "STEP"
            expect(not again, f"{what}, which has ended")
            self._open[key] = self._begin(span, event)
            self._seen.add(key)
            return
        expect(key in self._open, f"{what}, which is not open")
        begun = self._open.get(key)
        if begun is None:
            return
        if action == "use":
            delta = event.get("delta")
            empty_ok = span == "TOOL_CALL"
            expect(isinstance(delta, str) and (delta or empty_ok), f"{kind} must have a delta")
            self._append(span, begun, str(delta or ""))
        else:
            del self._open[key]
            if span == "TOOL_CALL":
                self._check_arguments(begun)

    # --- Messages and tool calls

    def _begin(self, span: str, event: JsonObject) -> JsonObject:
        if span == "TEXT_MESSAGE":
            role = event.get("role") or "assistant"
            message = {"id": event.get("messageId"), "role": role, "content": ""}
            self.messages.append(message)
            self.text = ""
            return message
        if span != "TOOL_CALL":
            return {}
        name = event.get("toolCallName")
        call_id = str(event.get("toolCallId"))
        function = {"name": name, "arguments": ""}
        call: JsonObject = {"id": call_id, "type": "function", "function": function}
        self.calls[call_id] = call
        self.unanswered.append(call_id)
        # The calls of one reply of the model are one message.
        parent = event.get("parentMessageId")
        owner = next((m for m in self.messages if parent and m.get("id") == parent), None)
        last: JsonObject = self.messages[-1] if self.messages else {}
        if owner is None and not parent and last.get("toolCalls"):
            owner = last
        if owner is None:
            owner = JsonObject(id=parent or f"message-of-{call_id}", role="assistant")
            self.messages.append(owner)
        owner["toolCalls"] = [*as_objects(owner.get("toolCalls")), call]
        return call

    def _append(self, span: str, begun: JsonObject, delta: str) -> None:
        if span == "TEXT_MESSAGE":
            begun["content"] += delta
            if begun["role"] == "assistant":
                self.text = begun["content"]
        elif span == "TOOL_CALL":
            begun["function"]["arguments"] += delta

    def _check_arguments(self, call: JsonObject) -> None:
        function = call["function"]
        try:
            msgspec.json.decode(function["arguments"] or "{}")
        except msgspec.DecodeError:
            self._rules.broken.append(f"the arguments of {function['name']} must be JSON")

    def _on_tool_call_result(self, event: JsonObject) -> None:
        call_id = str(event.get("toolCallId"))
        earlier = [
            call for message in self.messages for call in as_objects(message.get("toolCalls"))
        ]
        known = any(call.get("id") == call_id for call in earlier)
        what = f"TOOL_CALL_RESULT of {call_id!r}"
        self._rules.expect(known, f"{what}, which was not called")
        self._rules.expect(
            ("TOOL_CALL", call_id) not in self._open, f"{what} before its TOOL_CALL_END"
        )
        self._rules.expect(call_id not in self._answered, f"{what}, which has a result")
        self._answered.add(call_id)
        if call_id in self.unanswered:
            self.unanswered.remove(call_id)
        content = event.get("content")
        self.messages.append(
            {
                "id": event.get("messageId") or f"result-of-{call_id}",
                "role": "tool",
                "toolCallId": call_id,
                "content": content,
            }
        )

    def _add_chunk(self, span: str, event: JsonObject) -> None:
        """Apply a chunk: the first has the id, and the next ones may omit it."""
        name = str(event.get(SPANS[span][0]) or self._chunk)
        self._rules.expect(name, f"the first {span}_CHUNK must have {SPANS[span][0]}")
        key = (span, name)
        if name != self._chunk or key not in self._seen:
            self._chunk = name
            self._seen.add(key)
            self._chunked = self._begin(span, {**event, SPANS[span][0]: name})
            if span == "TOOL_CALL":
                called = event.get("toolCallName")
                self._rules.expect(called, "the first TOOL_CALL_CHUNK must have toolCallName")
                self._chunked_calls.append(self._chunked)
        self._append(span, self._chunked, str(event.get("delta") or ""))

    def _on_messages_snapshot(self, event: JsonObject) -> None:
        self.messages = as_objects(event.get("messages"))
        for message in self.messages:
            has_role = isinstance(message.get("role"), str)
            self._rules.expect(has_role, "a message of MESSAGES_SNAPSHOT must have a role")

    # --- The state

    def _on_state_snapshot(self, event: JsonObject) -> None:
        self._rules.expect("snapshot" in event, "STATE_SNAPSHOT must have a snapshot")
        self.state = event.get("snapshot")

    def _on_state_delta(self, event: JsonObject) -> None:
        try:
            self.state = apply_patch(self.state, as_objects(event.get("delta")))
        except (LookupError, TypeError, ValueError) as error:
            self._rules.broken.append(f"STATE_DELTA does not fit the state: {error}")

    # --- The run

    def _on_run_started(self, event: JsonObject) -> None:
        self._rules.expect(not self._started, "RUN_STARTED twice")
        self._started = True
        self._check_run(event)

    def _check_run(self, event: JsonObject) -> None:
        for name, expected in (("threadId", self._thread), ("runId", self._run)):
            got = event.get(name)
            own = got is None or got == expected  # it may be any value of JSON
            self._rules.expect(own, f"{event['type']} of another {name}: {got!r}")

    def _on_run_finished(self, event: JsonObject) -> None:
        self._check_run(event)
        for call in self._chunked_calls:
            self._check_arguments(call)
        for span, name in self._open:
            self._rules.broken.append(f"RUN_FINISHED while {span} {name!r} is open")

    def close(self) -> None:
        """Note that the stream has ended."""
        self._rules.expect(self.end, f"the stream ended without {' or '.join(ENDS)}")


def join_deltas(events: list[JsonObject]) -> list[JsonObject]:
    """Return the events with one delta for each message and call: their number is random."""
    joined: list[JsonObject] = []
    for event in events:
        last = joined[-1] if joined else {}
        same = all(event.get(key) == last.get(key) for key in ("type", "messageId", "toolCallId"))
        if same and event.get("type") in DELTAS:
            joined[-1] = {**last, "delta": f"{last.get('delta')}{event.get('delta')}"}
        else:
            joined.append(event)
    return joined


def apply_patch(document: Any, operations: list[JsonObject]) -> Any:
    """Return the document after these operations of JSON Patch (RFC 6902)."""
    root: JsonObject = {"": deepcopy(document)}
    for operation in operations:
        kind, path = operation.get("op"), operation.get("path")
        if kind in {"move", "copy"}:
            source, key = _resolve(root, operation.get("from"))
            value = deepcopy(source[key])
            if kind == "move":
                del source[key]
        elif kind != "remove" and "value" not in operation:
            raise ValueError(f"{kind} {path} has no value")
        else:
            value = deepcopy(operation.get("value"))
        parent, key = _resolve(root, path)
        if kind == "test":
            if not _is_equal(parent[key], value):
                raise ValueError(f"{path} is not {value!r}")
        elif kind == "remove":
            del parent[key]
        elif kind == "replace":
            _ = parent[key]  # it must exist
            parent[key] = value
        elif kind in {"add", "move", "copy"}:
            if isinstance(parent, list) and key <= len(cast("list[Any]", parent)):
                cast("list[Any]", parent).insert(key, value)
            else:
                parent[key] = value
        else:
            raise ValueError(f"unknown operation {kind!r}")
    return root[""]


def _is_equal(one: Any, other: Any) -> bool:
    """Return whether two values of JSON are equal; Python takes true for 1."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        left, right = cast("JsonObject", one), cast("JsonObject", other)
        return left.keys() == right.keys() and all(_is_equal(left[k], right[k]) for k in left)
    if isinstance(one, list) and isinstance(other, list):
        items, others = cast("list[Any]", one), cast("list[Any]", other)
        return len(items) == len(others) and all(map(_is_equal, items, others))
    return one == other


def _resolve(root: JsonObject, path: object) -> tuple[Any, Any]:
    """Return the object or list that a JSON pointer names, and the key in it."""
    if not isinstance(path, str) or (path and not path.startswith("/")):
        raise ValueError(f"expected a JSON pointer such as /name, got {path!r}")
    parent: Any = root
    *names, last = path.split("/") if path else [""]
    for name in names:
        parent = parent[_to_key(parent, name)]
    if not isinstance(parent, (dict, list)):
        raise TypeError(f"{path} is not in an object or a list")
    return cast("Any", parent), _to_key(parent, last)


def _to_key(parent: Any, name: str) -> Any:
    if isinstance(parent, list):
        if name == "-":
            return len(cast("list[Any]", parent))
        if INDEX.fullmatch(name) is None:
            raise ValueError(f"invalid index of a list: {name!r}")
        return int(name)
    return name.replace("~1", "/").replace("~0", "~")
