"""The files of one test: its cassettes, replayed or recorded on request, and its expected requests.

The golden file of requests has one entry for each request: the model, the system prompt, the tools,
the parameters and the messages. What is the same as in the request before is left out, so that each
change shows once.
"""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

import msgspec

from offbook.checks.expected_files import diff_texts, update_hint, withdraw, write_or_propose
from offbook.errors import CheckFailed, FormatError, OffbookError, ScriptUnfinished, UsageError
from offbook.exchange.messages import Message, Text
from offbook.files import dump_yaml, parse_yaml, read_text
from offbook.secrets import hide_secrets
from offbook.sources.cassette.mismatch import format_numbers
from offbook.sources.cassette.recording import Recording
from offbook.sources.cassette.replay import Cassette
from offbook.sources.live import Live
from offbook.trace.redaction import (
    VOLATILE_OPTIONS,
    VOLATILE_PATTERNS,
    Redaction,
    RedactionRules,
    parse_redaction_rules,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import timedelta
    from pathlib import Path

    from offbook.exchange.model import ModelSource, Request
    from offbook.trace.redaction import RedactionRules


# --- Cassettes

CASSETTES = "cassettes"
SUFFIX = ".yaml"


class CassetteOptions(TypedDict, total=False):
    """The options of a cassette.

    `live` replaces the provider while recording; a recording older than `max_age` is refused.
    `tracks` are recorded and replayed.
    """

    strict: bool
    redactions: RedactionRules | Mapping[str, Any] | None
    roots: Mapping[str, Path] | None
    live: ModelSource | None
    max_age: timedelta | None
    tracks: str


class Cassettes:
    """Opens cassettes in the folder `cassettes` of a test file, each name once.

    With `recorded`, the set of cassettes that this test session has recorded so far, requests go
    to the real model. If the test fails, an existing cassette stays as it was; a new one is kept
    and marked as incomplete. With `extend`, an existing cassette is replayed and only new requests
    are recorded. Without `recorded`, cassettes are replayed, and all their interactions must be
    used.
    """

    def __init__(
        self, folder: Path, test: str, *, recorded: set[Path] | None = None, extend: bool = False
    ) -> None:
        self._folder = folder / CASSETTES
        self._test = test
        self._recorded = recorded
        self._extend = extend
        # Each recording, and whether its file existed before.
        self._recordings: dict[Path, tuple[Recording, bool]] = {}
        self._replays: dict[Path, Cassette] = {}

    def open(self, name: str = "", **options: Unpack[CassetteOptions]) -> ModelSource:
        """Return the cassette of this name as a source; the default is the name of the test."""
        name = name or self._test
        path = self._folder / (name if name.endswith(SUFFIX) else f"{name}{SUFFIX}")
        # Names come from tests, and a test id may contain `..` and slashes.
        if not path.resolve().is_relative_to(self._folder.resolve()):
            raise UsageError(
                f"the cassette {name!r} is outside of its folder", where=str(self._folder)
            )
        if path in self._recordings or path in self._replays:
            raise UsageError(
                "this cassette is open already", where=str(path), hint="give the second one a name"
            )
        redactions, roots = options.get("redactions"), options.get("roots")
        if self._recorded is not None:
            # Two tests that record one file would overwrite each other.
            if path in self._recorded:
                raise UsageError(
                    "another test has recorded this cassette already",
                    where=str(path),
                    hint="give each test its own, or record them one at a time",
                )
            self._recorded.add(path)
            existed = path.exists()
            model = options.get("live") or Live()
            append = existed and self._extend
            recording = Recording(
                model,
                path,
                redactions=redactions,
                roots=roots,
                append=append,
                replace=existed and not append,
                tracks=options.get("tracks", "model"),
            )
            self._recordings[path] = recording, existed
            return recording
        # pytest sets this variable to the id of the test, for a command that works when pasted.
        node_id = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" (")[0]
        record_command = shlex.join(["pytest", "--offbook-record", *filter(None, [node_id])])
        if not path.exists():
            raise FormatError(
                "this test has no cassette yet",
                path=path,
                hint=f"record it with the real model: {record_command}",
            )
        replay = Cassette(
            path,
            strict=options.get("strict", True),
            redactions=redactions,
            roots=roots,
            record_command=record_command,
            max_age=options.get("max_age"),
            tracks=options.get("tracks", "model"),
        )
        replay.continued = True  # it is checked at the end of the test
        self._replays[path] = replay
        return replay

    def close(self, *, failed: bool = False) -> list[Exception]:
        """Write the recordings and check that replays were used; return the errors."""
        errors: list[Exception] = []
        for recording, existed in self._recordings.values():
            if failed and existed:
                recording.discard()
                continue
            recording.interrupted = recording.interrupted or failed
            try:
                summary = recording.close()
                if unused := recording.unused:
                    file = shlex.quote(str(recording.path))
                    raise UsageError(
                        f"{len(unused)} recorded interactions were not used",
                        where=str(recording.path),
                        hint="find out why the agent did not ask for them, or remove them: "
                        f"offbook cassette edit {file} --trim {format_numbers(unused)}",
                    )
                if not summary.interactions + summary.replayed:
                    raise UsageError(
                        "no request was made, so nothing was recorded",
                        where=str(recording.path),
                        hint="write offbook.drive(agent, source=offbook.cassette())",
                    )
            except OffbookError as error:
                errors.append(error)
        for replay in self._replays.values():
            # Unused interactions of a failed test are a consequence of the failure.
            unused = None if failed or replay.failure else replay.unfinished()
            if unused is not None and replay.strict:
                errors.append(unused)
            elif not failed and (problem := replay.judge_tracks()) is not None:
                errors.append(ScriptUnfinished(problem, where=str(replay.file.path)))
            replay.close()
        self._recordings, self._replays = {}, {}
        return errors


# --- The requests of a test as a golden file

REQUESTS = "requests"


class RequestGoldens:
    """The goldens of one test, in the folder `requests` next to its file."""

    def __init__(self, folder: Path, test: str) -> None:
        self._folder = folder / REQUESTS
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
        # The file was written without the secrets in its text.
        if golden is not None and (
            actual == golden or hide_secrets(actual) == hide_secrets(golden)
        ):
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
