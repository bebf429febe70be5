"""Fake programs on the PATH, for code under test that starts a command-line agent.

    with fake_cli("claude", [{"output": "Reviewed."}]) as claude:
        review("main.py")                       # it runs `claude -p …`
        assert claude.calls[0].args == ("-p", "Review main.py")

A fake is a real executable, so the caller may be written in any language. Its answers are used one
after the other; an answer that is left over fails at the end, and so does a call without one, or
one that could not give its answer.
"""

from __future__ import annotations

import os
import shlex
import sys
import tempfile
from collections.abc import Iterable, Mapping
from contextlib import contextmanager
from fcntl import LOCK_EX, flock
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NotRequired, Self, TypedDict, cast
from weakref import WeakSet

import msgspec

from offbook.errors import CheckFailed, UnmockedCall, UsageError, require_known
from offbook.options import decode, require_list
from offbook.secrets import excerpt
from offbook.trace.events import PROCESS_EXIT, REQUEST, TOOL_RESULT, UNSET, CliCallData
from offbook.trace.hub import current_hub, run_watchers

if TYPE_CHECKING:
    from collections.abc import Generator

    from offbook.trace.events import Event
    from offbook.trace.hub import Hub

PROGRAM = Path(__file__).with_name("fake_program.py")


class CliAnswer(TypedDict):
    """The answer to one call of a fake program.

    `jsonl` are lines after `output`, each a text or an object. `write_files` are paths, relative to
    the folder of the call, with their texts. `delay` is in seconds. `match` is a glob for the
    arguments, joined by spaces: only such a call gets this answer.
    """

    output: NotRequired[str]
    stderr: NotRequired[str]
    exit_code: NotRequired[Annotated[int, msgspec.Meta(ge=0, le=255)]]
    jsonl: NotRequired[list[Any]]
    write_files: NotRequired[dict[str, str]]
    delay: NotRequired[Annotated[float, msgspec.Meta(ge=0)]]
    match: NotRequired[str]


class CliCall(msgspec.Struct, frozen=True):
    """A call of a fake program.

    `exit_code` is None if the call did not end: it is running, or was killed. `answered` is False
    if the script had no answer for it. `error` says why the answer was not given.
    """

    number: int
    args: tuple[str, ...]
    cwd: str = ""
    stdin: str = ""
    exit_code: int | None = 0
    answered: bool = True
    error: str = ""


class FakeCli:
    """A fake program, on the PATH from `install` to `uninstall`, or in a `with` block."""

    def __init__(
        self,
        program: str,
        answers: Iterable[Mapping[str, Any] | str] = (),
        *,
        style: Literal["plain", "pi"] = "plain",
        repeat_last: bool = False,
        stdin: bool = False,
        allow_unused_mocks: bool = False,
    ) -> None:
        if not program or "/" in program:
            raise UsageError(f"expected the name of a program, got {program!r}", hint="'claude'")
        self.program = program
        self._options = {"style": style, "repeat_last": repeat_last}
        self._stdin = stdin
        self._allow_unused = allow_unused_mocks
        self._answers = [
            _check_answer(answer, program) for answer in require_list(answers, "answers")
        ]
        self._temp: tempfile.TemporaryDirectory[str] | None = None
        self._hubs: WeakSet[Hub] = WeakSet()
        self._emitted = 0
        self._kept: list[CliCall] = []  # the calls, after `uninstall`
        self._used: set[str] = set()  # the numbers of their answers

    # --- on the PATH

    @property
    def folder(self) -> Path:
        """The folder on the PATH that has the program."""
        if self._temp is None:
            raise UsageError(f"the fake {self.program!r} is not installed", hint="write `with …:`")
        return Path(self._temp.name) / "bin"

    def install(self) -> Self:
        """Put the program in front of the PATH; idempotent."""
        if self._temp is None:
            self._temp = tempfile.TemporaryDirectory(prefix="offbook-fake-")
            self._forget_calls()
            for name in ("bin", "calls"):
                (self.state / name).mkdir()
            if self._stdin:
                (self.state / "reads-stdin").touch()
            self._write_script()
            # `sh` rather than a first line with the path of Python: that is limited in length, and
            # may not have a space.
            command = [sys.executable, "-I", "-S", "-X", "utf8", str(PROGRAM), str(self.state)]
            executable = self.folder / self.program
            executable.write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n', encoding="utf-8")
            executable.chmod(0o755)
            os.environ["PATH"] = os.pathsep.join([str(self.folder), os.environ.get("PATH", "")])
            run_watchers.append(self.record_calls)
            if (hub := current_hub.get()) is not None:  # installed in a run
                self.record_calls(hub)
        return self

    def uninstall(self) -> None:
        """Take the program off the PATH, and remove its files; idempotent."""
        if self._temp is not None:
            self._kept, self._used = self.calls, self._used_answers()
            for hub in self._hubs:
                self.record_calls(hub)
            run_watchers.remove(self.record_calls)
            folders = os.environ.get("PATH", "").split(os.pathsep)
            os.environ["PATH"] = os.pathsep.join(f for f in folders if f != str(self.folder))
            self._temp.cleanup()
            self._temp = None

    def __enter__(self) -> Self:
        return self.install()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.uninstall()
        if kind is None:  # an exception of the body is the reason why answers are unused
            self.check()

    # --- the script

    def add(self, answer: Mapping[str, Any] | str) -> None:
        """Add an answer at the end of the script; a text is its `output`."""
        self._answers.append(_check_answer(answer, self.program))
        if self._temp is not None:
            with self._locked():
                self._write_script()

    def reset(self) -> None:
        """Remove all answers, and forget all calls."""
        self._answers.clear()
        self._forget_calls()
        if self._temp is not None:
            with self._locked():
                for path in self._call_files():
                    path.unlink()
                self._write_script()

    # --- its calls

    @property
    def state(self) -> Path:
        """The folder with the script and the calls."""
        return self.folder.parent

    @property
    def calls(self) -> list[CliCall]:
        """The calls so far, in order, also those without an answer."""
        if self._temp is None:
            return list(self._kept)
        return [msgspec.json.decode(path.read_bytes(), type=CliCall) for path in self._call_files()]

    @property
    def call_count(self) -> int:
        """The number of calls so far."""
        return len(self._kept) if self._temp is None else len(self._call_files())

    @property
    def unused(self) -> list[CliAnswer]:
        """The answers that no call got."""
        used = self._used if self._temp is None else self._used_answers()
        return [answer for i, answer in enumerate(self._answers) if str(i) not in used]

    def check(self) -> None:
        """Fail for a call without an answer, one that failed, and an answer that was not used."""
        unused = self.unused
        for call in self.calls:
            if not call.answered:
                words = shlex.join([self.program, *call.args])
                raise UnmockedCall(
                    f"no answer for call {call.number} of the fake program: {excerpt(words, 300)}",
                    where=self.program,
                    hint=self._explain_miss(),
                )
            if call.error:
                raise CheckFailed(
                    f"call {call.number} of the fake program did not give its answer: {call.error}",
                    where=self.program,
                    hint="correct the answer, or give it a 'delay' if the caller is to kill it",
                )
        if unused and not self._allow_unused:
            shown = "; ".join(
                excerpt(msgspec.json.encode(answer).decode(), 120) for answer in unused
            )
            raise CheckFailed(
                f"never used: {len(unused)} of {len(self._answers)} answers of the fake program"
                f" {self.program!r}: {shown}",
                where=self.program,
                hint="remove it, or pass allow_unused_mocks=True",
            )

    def record_calls(self, hub: Hub) -> None:
        """Emit the calls since the last time into a trace, now and as long as its run goes on."""
        if hub not in self._hubs:
            self._hubs.add(hub)

            # Between two requests the agent works: its calls belong before the next request.
            def emit(_event: Event) -> None:
                self.record_calls(hub)

            hub.subscribe(emit, (REQUEST, TOOL_RESULT, PROCESS_EXIT))
            self._emitted = self.call_count  # what was called before the run is not part of it
        if hub.closed:
            return
        calls = self.calls
        for call in calls[self._emitted :]:
            code = UNSET if call.exit_code is None else call.exit_code
            answered = UNSET if call.answered else False
            hub.emit_data(CliCallData(self.program, list(call.args), code, answered))
        self._emitted = len(calls)

    def _explain_miss(self) -> str:
        patterns = [answer["match"] for answer in self._answers if "match" in answer]
        if patterns:
            return f"the answers match: {', '.join(map(repr, patterns))}"
        return f"the script has {len(self._answers)} answers; add one: {{'output': '…'}}"

    def _forget_calls(self) -> None:
        self._kept, self._used, self._emitted = [], set(), 0

    def _used_answers(self) -> set[str]:
        return {path.name.partition("-")[2] for path in self._call_files()}

    def _call_files(self) -> list[Path]:
        return sorted(p for p in (self.state / "calls").iterdir() if p.suffix != ".new")

    def _write_script(self) -> None:
        script = {"program": self.program, "answers": self._answers, **self._options}
        (self.state / "script.json").write_bytes(msgspec.json.encode(script))

    @contextmanager
    def _locked(self) -> Generator[None]:
        with (self.state / "lock").open("w") as lock:
            flock(lock, LOCK_EX)
            yield


def fake_cli(
    program: str,
    answers: Iterable[Mapping[str, Any] | str] = (),
    *,
    stdin: bool = False,
    allow_unused_mocks: bool = False,
) -> FakeCli:
    """Make a fake program, on the PATH in a `with` block.

    An answer is a text, or a dict with `output`, `stderr`, `exit_code`, `jsonl`, `write_files`,
    `delay` and `match`. With `stdin`, a call reads its standard input to the end and records it.
    """
    return FakeCli(program, answers, stdin=stdin, allow_unused_mocks=allow_unused_mocks)


def mock_pi(
    answers: Iterable[Mapping[str, Any] | str] = (), *, allow_unused_mocks: bool = False
) -> FakeCli:
    """Return a fake `pi` that prints its `output` as pi's JSON events.

    Without answers it repeats its task; after the last answer it repeats that one. It reads the
    command line of pi: `@file`, `--session-dir`, `-p`.
    """
    return FakeCli(
        "pi", answers, style="pi", repeat_last=True, allow_unused_mocks=allow_unused_mocks
    )


def _check_answer(answer: object, program: str) -> CliAnswer:
    """Return an answer as a dict; an error names what is wrong in it."""
    if isinstance(answer, str):
        return {"output": answer}
    entry = decode(answer, CliAnswer, "invalid answer", where=program, hint="{'output': '…'}")
    for key in cast("Mapping[str, Any]", answer):
        require_known("an answer has no key", key, CliAnswer.__annotations__, where=program)
    return entry
