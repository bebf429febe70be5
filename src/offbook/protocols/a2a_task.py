"""The messages of A2A 1.0: what an agent sends about one task, held against the rules.

https://a2a-protocol.org/latest/specification
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import msgspec

from offbook.exchange.json_rpc import JsonObject, as_object

if TYPE_CHECKING:
    from offbook.subjects.rpc_process import ProtocolRules

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


def objects(value: object) -> list[JsonObject]:
    """Return the objects of a list; anything else has none."""
    return (
        [as_object(each) for each in cast("list[object]", value)] if isinstance(value, list) else []
    )


def read_text(parts: object) -> str:
    """Return the text of a message or an artifact."""
    return "".join(str(part["text"]) for part in objects(parts) if "text" in part)


def read_parts(parts: object) -> Any:
    """Return the text of these parts, otherwise their data: that of the only one, or a list."""
    if text := read_text(parts):
        return text
    found = [part["data"] for part in objects(parts) if "data" in part]
    return found[0] if len(found) == 1 else found or None


def to_part(value: object) -> JsonObject:
    """Return a text or any other value as a part of a message."""
    return {"text": value} if isinstance(value, str) else {"data": msgspec.to_builtins(value)}


def check_card(card: JsonObject, rules: ProtocolRules) -> None:
    """Hold an agent card against the rules."""
    for name in CARD_FIELDS:
        rules.expect(name in card, f"the agent card must have {name}")
    for skill in objects(card.get("skills")):
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
        """What a caller of the agent gets: its message, the artifacts, or the last status."""
        if self.message is not None:
            return read_parts(self.message.get("parts"))
        parts = [part for artifact in self.artifacts.values() for part in artifact]
        found = read_parts(parts)
        if found is None:
            found = read_parts(self.status.get("parts"))
        if found is None:
            said = [m for m in self._history if m.get("role") == "ROLE_AGENT"]
            found = read_parts(said[-1].get("parts")) if said else None
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
            self._history = objects(content.get("history"))
            self.artifacts = {}
            for artifact in objects(content.get("artifacts")):
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
        parts = objects(artifact.get("parts"))
        self.artifacts[name] = [*self.artifacts.get(name, ()), *parts] if append else parts

    def _check_parts(self, content: JsonObject, what: str) -> None:
        parts = objects(content.get("parts"))
        self._rules.expect(parts, f"{what} must have parts")
        for part in parts:
            one = sum(field in part for field in PART_FIELDS) == 1
            self._rules.expect(one, f"a part must have one of {', '.join(PART_FIELDS)}")

    def end(self) -> None:
        """Note that the response has ended."""
        done = self.message is not None or self.state in WAITING | ENDED
        what = f"the task is {self.state}" if self.state else "there is neither task nor message"
        self._rules.expect(done, f"the stream ended while {what}")
