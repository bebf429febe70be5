"""Exports of LangSmith: examples with `inputs` and `outputs`, of which some are trajectories.

A trajectory is a list of messages with tool calls. It becomes the script of the model: the agent
is driven by it, and must run the same tools with the same inputs in the same order, as the strict
match of trajectories demands. A list of the names of tools is a check without a script.
"""

from __future__ import annotations

from typing import Any, cast

import msgspec

from offbook.evals.importers.suite import (
    ImportedCase,
    PeerFile,
    Skipped,
    equals,
    scalars,
)

ROLES = {"human": "user", "ai": "assistant"}
TRAJECTORIES = ("messages", "trajectory", "expected_trajectory", "steps")


class LangSmithImporter:
    """Reads the examples of a data set."""

    name = "langsmith"

    def recognizes(self, file: PeerFile) -> bool:
        return {"inputs", "outputs"} <= file.columns or isinstance(file.value.get("examples"), list)

    def read(self, file: PeerFile, skipped: Skipped) -> list[ImportedCase]:
        rows = file.rows or cast("list[dict[str, Any]]", file.value.get("examples") or [])
        for row in rows:
            if row.get("attachments"):
                skipped["attachments of an example"] += 1
        return [_read_example(row) for row in rows]


def _read_example(row: dict[str, Any]) -> ImportedCase:
    inputs, outputs = _parse(row.get("inputs")), _parse(row.get("outputs"))
    case = ImportedCase(
        id=str(row.get("name") or ""),
        input=_read_input(inputs),
        metadata=scalars(row.get("metadata")),
    )
    rest = dict(outputs)
    for key in TRAJECTORIES:
        found = rest.pop(key, None)
        if isinstance(found, list):
            _add_trajectory(case, cast("list[Any]", found))
    answer: Any = next(iter(rest.values())) if len(rest) == 1 else rest or None
    if answer is not None:
        case.reference = answer
        case.assertions = [*case.assertions, equals(answer)]
    return case


def _add_trajectory(case: ImportedCase, steps: list[Any]) -> None:
    """Add the tools of a trajectory, and its last text as the reference."""
    tools: list[Any] = []
    turns: list[dict[str, Any]] = []
    for step in steps:
        if isinstance(step, str):
            tools.append(step)
            continue
        message = _message(step)
        if message["role"] == "user":
            turns.append({"when": message.get("content"), "do": []})
        elif not turns:
            turns.append({"when": case.input, "do": []})
        actions: list[dict[str, Any]] = []
        if message["role"] == "assistant" and message.get("content"):
            case.reference = message["content"]
            actions.append({"say": message["content"]})
        for call in message.get("tool_calls") or ():
            function = call.get("function") or call
            arguments = function.get("arguments", function.get("args", {}))
            given = _parse(arguments)
            tools.append({"tool": function["name"], "input": given})
            actions.append({"call": function["name"], "with": given})
        if actions:  # a list in the list is one message: a text with calls, or parallel calls
            turns[-1]["do"].append(actions[0] if len(actions) == 1 else actions)
    case.playbook = [turn for turn in turns if turn["do"]]
    if tools:
        check = {"type": "tool_sequence", "tools": tools, "args": "exact"}
        case.assertions = [*case.assertions, {"kind": "check", "check": check}]
    else:
        case.not_carried = [*case.not_carried, "trajectory without tools"]


def _message(step: Any) -> dict[str, Any]:
    """Return a message with its role; LangChain writes `type`, or the class and its arguments."""
    fields = cast("dict[str, Any]", step) if isinstance(step, dict) else {}
    if isinstance(fields.get("kwargs"), dict):
        fields = cast("dict[str, Any]", fields["kwargs"])
    role = fields.get("role") or ROLES.get(str(fields.get("type")), fields.get("type"))
    return {**fields, "role": role}


def _read_input(inputs: dict[str, Any]) -> Any:
    messages = inputs.get("messages")
    if isinstance(messages, list):
        users = [
            message
            for step in cast("list[Any]", messages)
            if (message := _message(step))["role"] == "user"
        ]
        if users:
            return users[-1].get("content")
    return next(iter(inputs.values())) if len(inputs) == 1 else inputs


def _parse(value: Any) -> dict[str, Any]:
    """Return an object, also one that is JSON in a text, as in CSV files."""
    if isinstance(value, str):
        try:
            value = msgspec.json.decode(value)
        except msgspec.DecodeError:
            return {"output": value}
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}
