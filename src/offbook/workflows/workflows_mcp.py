"""The tools on one page: their names, what they take and give, and how they are called.

What a tool takes is read off the function itself, so the two cannot disagree.
"""

from __future__ import annotations

import asyncio
import inspect as signatures
from collections.abc import Callable, Mapping
from typing import Any, Union, get_type_hints

import msgspec

from offbook.checks.judge import Evaluation
from offbook.checks.registry import ASSERTIONS
from offbook.errors import OffbookError
from offbook.files import convert
from offbook.runs.backends import MockResponse
from offbook.trace.inspection import EventFilter
from offbook.trace.redaction import RedactionRules
from offbook.workflows.evaluation import evaluate
from offbook.workflows.loop_cassette import record, replay
from offbook.workflows.loop_run import Progress, run
from offbook.workflows.snapshots import diff, snapshot
from offbook.workflows.tools import check, cleanup, inspect, report, setup

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "test_setup": setup,
    "test_run": run,
    "test_record": record,
    "test_replay": replay,
    "test_assert": check,
    "test_inspect": inspect,
    "test_report": report,
    "test_evaluate": evaluate,
    "test_snapshot": snapshot,
    "test_diff": diff,
    "test_cleanup": cleanup,
}
READ_ONLY = {"test_diff", "test_inspect"}
DESTRUCTIVE = {"test_cleanup"}
PARAMETERS = {
    "assertions": "What must be true of the run; all are judged, none stops the others.",
    "allow_passthrough": "Let the real agent answer what is not recorded.",
    "backend": "Who does the work: mock (scripted answers), replay (a cassette), playbook (the "
    "model alone), command, or a client: claude, codex, gemini, kiro, pi.",
    "baseline": "A snapshot, or `initial`: how the workspace was set up.",
    "command": "The command of the backend `command`; the prompt comes in at its stdin.",
    "cassette": "The cassette of the backend `replay`, in cassettes/ of the workspace.",
    "cassette_name": "The name of the cassette, in cassettes/ of the workspace.",
    "compare_to": "A snapshot, or `current`: how the workspace is.",
    "config": "Hats and limits of the loop, as in a preset file.",
    "env": "Environment variables for the agent; it gets no others of yours. A client without a "
    "playbook asks its real model: its key has to be here.",
    "evaluations": "What is to be judged, and by what.",
    "exclude_patterns": "Globs of files to leave out.",
    "filter": "Which events to show.",
    "fixtures": "Files to write into the workspace: texts by their relative paths.",
    "force": "Let a model judge itself.",
    "format": "How to tell it.",
    "include_patterns": "Globs of files to take; all by default.",
    "include_traces": "Tell where the session file is.",
    "chain_of_thought": "The judge has to give its reasoning before its score.",
    "judge": "Who judges: the path of a playbook, mocks or a cassette, the name of a cassette in "
    "the workspace, or a provider: anthropic, openai-chat, openai-responses, gemini.",
    "judge_backend": "A client that judges: claude, codex, gemini, kiro, pi; `judge` is its model.",
    "judge_command": "Or a command: the question comes in at its stdin.",
    "judge_model": "What the judge's model is called.",
    "judge_preset": "A preset file whose hat `judge` has instructions for it.",
    "limit": "How many records at most.",
    "max_iterations": "How often the agent is called at most.",
    "max_runtime_secs": "How long the run may take at most.",
    "mock_responses": "The scripted answers; each iteration takes the first that fits.",
    "output_path": "Where in the workspace the report goes.",
    "orchestrator": "Whose loop it is: ours, or that of `ralph`, if it is installed.",
    "playbook": "The model of the agent: the path of a playbook, mocks or a cassette.",
    "preserve_session": "Keep session.jsonl, and nothing else.",
    "record": "Keep what the judge is asked and answers in a cassette of this name.",
    "redactions": "What may differ: patterns by name, JSON paths such as $.files['a.txt'].",
    "replace": "Begin a cassette that is there already anew.",
    "scratchpad": "What .agent/scratchpad.md says at first.",
    "snapshot_id": "What to call the snapshot.",
    "strict": "Fail if a prompt is not the recorded one; else only its turn counts.",
    "task": "What the loop works on.",
    "tested_model": "What the model under test is called; it may not judge itself.",
    "test_name": "The name of the suite.",
    "workspace_id": "The name of the workspace.",
}
# What the schema tells of values that the tool reads itself, with errors of its own.
TYPES: dict[str, Any] = {
    "assertions": list[Union[tuple(ASSERTIONS.values())]],  # type: ignore[misc] # noqa: UP007 - made while running
    "evaluations": list[Evaluation],
    "filter": EventFilter | None,
    "mock_responses": list[MockResponse] | None,
    "redactions": RedactionRules | None,
}
HIDDEN = {"approved", "history", "progress", "trace_path"}


class McpTool:
    """One tool: its schema, and its call."""

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        self.name = name
        self._function = function
        hints = get_type_hints(function)
        self._gives = hints.pop("return")
        self._takes = _arguments_struct(name, function, hints)
        self._shown = _arguments_struct(name, function, hints | TYPES)

    def describe(self) -> dict[str, Any]:
        """What a client is told of it."""
        told = {
            "name": self.name,
            "description": signatures.getdoc(self._function) or "",
            "inputSchema": _schema(self._shown),
            "annotations": {
                "readOnlyHint": self.name in READ_ONLY,
                "destructiveHint": self.name in DESTRUCTIVE,
                "openWorldHint": False,
            },
        }
        if isinstance(self._gives, type) and issubclass(self._gives, msgspec.Struct):
            told["outputSchema"] = _schema(self._gives)
        return told

    async def call(
        self, arguments: Mapping[str, Any], progress: Progress | None = None
    ) -> dict[str, Any]:
        """What the tool answers, as a result of the protocol: an error is told, not raised.

        A tool that takes time tells how far it is, to whoever wants to hear it.
        """
        try:
            taken = convert(dict(arguments), self._takes, path=self.name)
            value = msgspec.to_builtins(await self._work(taken, progress), enc_hook=repr)
        except OffbookError as error:
            return _result(str(error), failed=True)
        except Exception as error:  # noqa: BLE001 - a caller is told, and the server lives on
            return _result(f"{type(error).__name__}: {error}", failed=True)
        return _result(msgspec.json.encode(value).decode()) | {"structuredContent": value}

    async def _work(self, taken: msgspec.Struct, progress: Progress | None) -> Any:
        fields = {name: getattr(taken, name) for name in taken.__struct_fields__}
        if "progress" in signatures.signature(self._function).parameters:
            fields["progress"] = progress
        if signatures.iscoroutinefunction(signatures.unwrap(self._function)):
            return await self._function(**fields)
        return await asyncio.to_thread(self._function, **fields)


def _arguments_struct(
    name: str, function: Callable[..., Any], hints: Mapping[str, Any]
) -> type[msgspec.Struct]:
    fields: list[Any] = []
    for parameter in signatures.signature(function).parameters.values():
        if parameter.name in HIDDEN:
            continue
        kind = hints[parameter.name]
        if parameter.default is parameter.empty:
            fields.append((parameter.name, kind))
        else:
            fields.append((parameter.name, kind, parameter.default))
    return msgspec.defstruct(name, fields, kw_only=True, forbid_unknown_fields=True)


def _schema(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """The JSON schema, with its root where clients look for it."""
    (root,), parts = msgspec.json.schema_components([kind], ref_template="#/$defs/{name}")
    schema: dict[str, Any] = dict(parts.pop(root["$ref"].rpartition("/")[2]))
    schema.pop("title", None)
    for name, described in schema["properties"].items():
        if name in PARAMETERS:
            schema["properties"][name] = {"description": PARAMETERS[name], **described}
    return schema | ({"$defs": parts} if parts else {})


def _result(text: str, *, failed: bool = False) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}], "isError": failed}


TOOLS = {name: McpTool(name, function) for name, function in FUNCTIONS.items()}
