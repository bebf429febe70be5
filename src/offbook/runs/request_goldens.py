"""The requests of a test as a golden file, so that a changed prompt or tool fails the test.

The file has one entry for each request: the model, the system prompt, the tools, the parameters and
the messages. What is the same as in the request before is left out, so that each change shows once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from offbook.checks.expected_files import update_hint, withdraw, write_or_propose
from offbook.checks.snapshot import diff_texts
from offbook.errors import CheckFailed, UsageError
from offbook.exchange.messages import Message, Text
from offbook.files import dump_yaml, parse_yaml, read_text
from offbook.trace.redaction import (
    VOLATILE_OPTIONS,
    VOLATILE_PATTERNS,
    Redaction,
    RedactionRules,
    parse_redaction_rules,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from offbook.exchange.model import Request

FOLDER = "requests"
SUFFIX = ".yaml"


class RequestGoldens:
    """The goldens of one test, in the folder `requests` next to its file."""

    def __init__(self, folder: Path, test: str) -> None:
        self._folder = folder / FOLDER
        self._test = test
        self._checked: set[Path] = set()

    def check(
        self,
        requests: Iterable[Request],
        name: str = "",
        *,
        redactions: RedactionRules | Mapping[str, Any] | None = None,
        roots: Mapping[str, Path] | None = None,
    ) -> None:
        """Compare requests with the golden of this name, or write it if it is to be updated."""
        path = self._folder / f"{name or self._test}{SUFFIX}"
        if not path.resolve().is_relative_to(self._folder.resolve()):
            raise UsageError(
                f"the golden {name!r} is outside of its folder", where=str(path.parent)
            )
        if path in self._checked:
            raise UsageError(
                "this golden was compared already",
                where=str(path),
                hint='give the second one a name: check_requests(run, "second")',
            )
        self._checked.add(path)
        rules = parse_redaction_rules(redactions)
        patterns = {**VOLATILE_PATTERNS, **rules.patterns}
        redaction = Redaction(msgspec.structs.replace(rules, patterns=patterns), roots=roots)
        entries = redaction.value(describe_requests(requests))
        if not entries:
            raise CheckFailed("the run made no request, so there is nothing to compare")
        actual = dump_yaml({"requests": entries})
        golden = read_text(path) if path.is_file() else None
        if golden is not None:
            # An older version wrote more of what differs in every run.
            golden = dump_yaml(redaction.value(_without_volatile(parse_yaml(golden, path))))
        if actual == golden:
            withdraw(path)
            return
        missing = "this test has no golden of its requests yet"
        if write_or_propose(path, actual, missing=missing):
            return
        hunks = diff_texts(golden or "", actual).hunks
        raise CheckFailed(
            "the requests of the agent differ from the golden",
            where=f"{path}:{hunks[0].start}",
            hint="\n".join([*(hunk.content for hunk in hunks), update_hint()]),
        )


def describe_requests(requests: Iterable[Request]) -> list[dict[str, Any]]:
    """Return each request as JSON values, without what the request before it has as well."""
    entries: list[dict[str, Any]] = []
    before: dict[str, Any] = {"model": "", "system": "", "tools": [], "parameters": {}}
    messages: list[Any] = []
    for request in requests:
        head = {
            "model": request.model,
            "system": request.system,
            "tools": msgspec.to_builtins(request.tools, enc_hook=repr),
            "parameters": {
                name: msgspec.to_builtins(value, enc_hook=repr)
                for name, value in request.parameters.items()
                if name not in VOLATILE_OPTIONS
            },
        }
        sent = [_describe_message(message) for message in request.messages]
        continues = bool(messages) and sent[: len(messages)] == messages
        entry = {name: value for name, value in head.items() if value != before[name]}
        entry["more" if continues else "messages"] = sent[len(messages) :] if continues else sent
        entries.append(entry)
        before, messages = head, sent
    return entries


def _without_volatile(golden: Any) -> Any:
    """Return a golden without the options that differ in every run."""
    try:
        entries = msgspec.convert(golden, _Golden).requests
    except msgspec.ValidationError:
        return golden  # edited: it differs
    before: dict[str, Any] = {}
    for entry in entries:
        if "parameters" in entry:
            options = {k: v for k, v in entry["parameters"].items() if k not in VOLATILE_OPTIONS}
            if options == before:
                del entry["parameters"]
            else:
                entry["parameters"] = before = options  # in its place
    return {"requests": entries}


class _Golden(msgspec.Struct, forbid_unknown_fields=True):
    requests: list[dict[str, Any]]


def _describe_message(message: Message) -> dict[str, Any]:
    if all(isinstance(block, Text) for block in message.blocks):
        return {message.role: message.text}
    return {message.role: msgspec.to_builtins(message.blocks, enc_hook=repr)}
