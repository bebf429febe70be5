"""A rehearsal: one subject, a source in place of its model, and the trace of all runs.

    with Rehearsal(subject) as rehearsal:
        run = rehearsal.run(when("Hello", [say("Hi!")]))
        assert run.output == "Hi!"

All code inside is asynchronous. In a plain function, each call runs to its end in the event loop
of the rehearsal; in an `async def`, the caller awaits:

    async with Rehearsal(subject) as rehearsal:
        run = await rehearsal.run(when("Hello", [say("Hi!")]))
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Generator, Iterable, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast

import msgspec

from offbook.determinism.run_context import Clock, SystemClock, current_llm, is_library
from offbook.errors import (
    CheckFailed,
    DeadlineExceeded,
    IsolationError,
    OffbookWarning,
    PlaybookError,
    RunError,
    ToolFailed,
    UsageError,
    counted,
)
from offbook.exchange.people import SimulatedPerson
from offbook.files import ReusedFolder
from offbook.runs.run import (
    AwaitableResult,
    Run,
    RunFiles,
    RunTrace,
    SyncBridge,
    describe_left_behind,
    emit_failure,
    enter_run,
    in_event_loop,
    list_running,
    watch_termination,
)
from offbook.runs.wiring import Wiring, find_refusal, start_faults
from offbook.secrets import hide_secrets
from offbook.subjects.subject import (
    MOCKS_USED,
    Subject,
)
from offbook.trace.events import (
    FAULT,
    REQUEST,
    UNSET,
    FileLine,
    PersonSaidData,
    RunEndData,
    RunStartData,
    Verdict,
)
from offbook.trace.hub import Hub, run_watchers, use_hub

if TYPE_CHECKING:
    from offbook.determinism.faults import Faults
    from offbook.exchange.model import ModelSource, ToolAlias
    from offbook.sources.playbook.actions import Role, Turn
    from offbook.sources.playbook.playbook import Playbook
    from offbook.subjects.session.session import AgentSession
    from offbook.subjects.subject import RemoteAgent, ToolServer
    from offbook.trace.events import Event
    from offbook.trace.query import Events

    Script = Turn | Role | str | SimulatedPerson

T = TypeVar("T")

OWN_PACKAGES = {"offbook", "pytest_offbook"}


class RehearsalDefaults(msgspec.Struct, frozen=True):
    """Defaults of the rehearsals that code of the user opens inside `use_defaults`.

    A search plays hundreds of models against `drive(agent)` in a function of the user: each time
    with another source, in one event loop and one temporary folder, and without the automatic
    assertions. With `in_memory`, no trace is written, unless something in this process reads all
    traces. `place` is where the runs are written, if not at the caller.
    """

    source: ModelSource | None = None
    bridge: SyncBridge | None = None
    auto_assert: bool = True
    faults: Faults | None = None
    folder: ReusedFolder | None = None
    in_memory: bool = False
    trace: Path | None = None
    place: FileLine | None = None


_defaults: ContextVar[RehearsalDefaults | None] = ContextVar("offbook-defaults", default=None)


@contextmanager
def use_defaults(defaults: RehearsalDefaults) -> Generator[None]:
    """Apply these defaults to the rehearsals that are opened inside."""
    token = _defaults.set(defaults)
    try:
        yield
    finally:
        _defaults.reset(token)


class RunState:
    """The progress of a rehearsal. `failed` is of the last run, `ever_failed` of any.

    The agent of a run that was `interrupted` may go on in its thread. With `only_prompts`, the
    script was not given to `run`, but loaded before.
    """

    opened = disposed = ever_run = failed = ever_failed = interrupted = only_prompts = False

    @staticmethod
    def stop_watching(*, interrupted: bool) -> None:
        """Stop to watch for signals: set when the rehearsal is opened."""


class Rehearsal:
    """One subject with its source and its trace, for any number of runs.

    Use it as a context manager, or call `dispose()`: this closes the subject and removes the
    temporary folder. The parameters are those of `drive()`.
    """

    def __init__(  # noqa: PLR0913 - the options of drive()
        self,
        subject: Subject,
        *,
        source: ModelSource | None = None,
        cwd: Path | str | None = None,
        trace: Path | str | None = None,
        auto_assert: bool = True,
        allow_unused_mocks: bool = False,
        clock: Clock | None = None,
        urls: Iterable[str] = (),
        allow: Iterable[str] = (),
        tool_aliases: Mapping[str, str | ToolAlias] | None = None,
        lenient: Iterable[str] = (),
        serve: bool = False,
        sealed: bool = False,
        faults: Faults | Iterable[str] | Mapping[str, Any] | None = None,
        mcp: Iterable[ToolServer] = (),
        agents: Iterable[RemoteAgent] = (),
    ) -> None:
        self.subject = subject
        defaults = _defaults.get() or RehearsalDefaults()
        source = defaults.source if source is None else source
        auto_assert = auto_assert and defaults.auto_assert
        if source is not None and (
            isinstance(source, type) or not callable(getattr(source, "reply", None))
        ):
            raise UsageError(
                f"{type(source).__name__} does not implement ModelSource",
                hint="pass an object with `async def reply(self, request)`, such as a Playbook",
            )
        if source is None and (scope := current_llm.get()) is not None and scope.has_lines:
            source = scope
        if source is None:
            from offbook.sources.playbook.playbook import Playbook

            source = Playbook(strict=auto_assert)
        self._source = source
        self._playbook = _as_playbook(source)
        self._auto_assert = auto_assert
        self._allow_unused_mocks = allow_unused_mocks
        self._files = RunFiles(cwd, defaults.trace if trace is None else trace, defaults.folder)
        self._trace = RunTrace(clock or SystemClock(), in_memory=defaults.in_memory)
        self._hub = self._trace.hub
        if faults is not None or defaults.faults is not None:
            plan = defaults.faults if faults is None else faults
            self.hub.faults = start_faults(plan, self.hub)
        self._wiring = Wiring(
            subject,
            self._source,
            self.hub,
            urls=urls,
            allow=allow,
            tool_aliases=tool_aliases,
            lenient=lenient,
            serve=serve,
            sealed=sealed,
            servers=tuple(mcp),
            agents=tuple(agents),
        )
        self._bridge = defaults.bridge or SyncBridge()
        self._runs: list[Run] = []
        self._state = RunState()
        # In a plain function, errors of the subject are raised here, at the call. In an event
        # loop, opening has to wait for the first `await`.
        if not in_event_loop():
            try:
                self._bridge.run(self._open())
            except BaseException:
                self._bridge.close()
                raise

    # --- The public side

    @property
    def cwd(self) -> Path:
        """The working directory of the subject."""
        return self._files.cwd

    @property
    def trace(self) -> Path:
        """The file of the trace."""
        return self._files.trace

    @property
    def playbook(self) -> Playbook:
        """The playbook, if it is the model."""
        if self._playbook is None:
            kind = type(self._source).__name__
            raise UsageError(f"the model is not a playbook, but {kind}", hint="use your source=…")
        return self._playbook

    @property
    def events(self) -> Events:
        """The events of all runs so far."""
        from offbook.trace.query import Events  # most commands are never queried

        return Events(self.read_events)

    def read_events(self) -> list[Event]:
        """Return the events of all runs so far, as a list."""
        return self._trace.read()

    @property
    def latest_run(self) -> Run | None:
        """The run that was started last; after a failed one, its events can still be read."""
        return self._runs[-1] if self._runs else None

    @property
    def hub(self) -> Hub:
        """The live event hub: subscribe to receive events as they are emitted."""
        return self._trace.hub

    @property
    def session(self) -> AgentSession:
        """The subject, if it is a session."""
        from offbook.subjects.session.session import AgentSession

        if not isinstance(self.subject, AgentSession):
            raise UsageError(f"{self.subject.name} is not a session", hint="use .subject")
        return self.subject

    def run(self, *script: Script) -> Run:
        """Run these turns and roles (with another source than a playbook: these prompts).

        A `SimulatedPerson` in place of prompts writes them.

        The agent is prompted with the text of each turn. A turn whose text the agent sends itself
        is not prompted again.
        """
        self._raise_if_disposed()
        self._state.ever_run = True
        defaults = _defaults.get()
        self._hub.place = (defaults and defaults.place) or _caller_place()
        run = Run(lambda run: self._run(script, run), self._trace)
        # Runs that passed need no reminder at the end.
        others = [each for each in self._runs if not each.finished or each.error is not None]
        self._runs = [*others, run]
        if not in_event_loop():
            self._bridge.run(run.complete())
        return run

    def dispose(self, *, failed: bool = False) -> Awaitable[object]:
        """Close the subject and remove temporary files. In an `async def`, await it.

        It fails if nothing was run or if a mock was never used, unless the test has `failed`.
        """
        self._state.ever_failed |= failed
        work = self._dispose()
        if in_event_loop():
            return work
        try:
            self._bridge.run(work)
        finally:
            self._bridge.close()
        return AwaitableResult()

    def __await__(self) -> Generator[Any, None, Rehearsal]:
        return self.__aenter__().__await__()

    def __enter__(self) -> Self:
        if in_event_loop():
            raise UsageError(
                "`with` cannot be used in an `async def`", hint="write `async with … as rehearsal:`"
            )
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        self.dispose(failed=error is not None)

    async def __aenter__(self) -> Self:
        await self._open()
        return self

    async def __aexit__(self, error: type[BaseException] | None, *_: object) -> None:
        await self.dispose(failed=error is not None)

    # --- Opening

    async def _open(self) -> None:
        if self._state.opened:
            return
        self._raise_if_disposed()
        hub = self.hub
        try:
            self._trace.start(self._files, self.subject.name)
            self._state.stop_watching = watch_termination()
            with use_hub(hub):
                await self.subject.open(self._wiring.connect(self.cwd, self.trace))
            self._state.opened = True
        except BaseException as error:
            # A subject that failed to open may have started something: it is closed as well.
            self._state.disposed = True
            try:
                await self.subject.close()
            except Exception as other:  # noqa: BLE001 - the first error is the cause
                error.add_note(f"closing failed as well: {type(other).__name__}: {other}")
            finally:
                self._release()
            raise

    def _raise_if_disposed(self) -> None:
        if self._state.disposed:
            raise UsageError("the rehearsal is over", hint="create a new one for more runs")

    # --- Running

    async def _run(self, script: tuple[Script, ...], run: Run) -> None:
        """Run a script; note the range of its events, and the agent's last answer."""
        if not self._state.opened:
            await self._open()
        if self._state.failed:
            # The rest of a failed script does not belong to this run.
            if self._playbook is not None:
                self._playbook.discard()
            self._wiring.forget_history_error()
            self._state.failed = False
        self._wiring.refused.clear()
        playbook = self._playbook
        # A playbook that is loaded already answers prompts like any other source.
        if playbook is None or (
            playbook.remaining and all(isinstance(item, (str, SimulatedPerson)) for item in script)
        ):
            prompts: list[Turn | str | SimulatedPerson] = [*_check_prompts(script)]
            turns = len(prompts)
            if playbook is not None and (aliased := self._wiring.aliased) is not None:
                aliased.activate(playbook.called_tools)
            self._state.only_prompts = True
        else:
            # A program that sends all prompts itself is called once for the turns of the script.
            prompts, turns = self._load(playbook, script)
        hub = self._hub
        first = hub.seq
        output: object = None
        running = list_running() if self._auto_assert else set[object]()
        self._emit_start(turns)
        try:
            for prompt in prompts:
                if isinstance(prompt, str):
                    output = await self._prompt(prompt)
                elif isinstance(prompt, SimulatedPerson):
                    output = await self._converse(prompt, first)
                # The agent may have prompted itself with the text of this turn.
                elif playbook is not None and playbook.next_turn is prompt:
                    playbook.open(prompt)
                    output = await self._prompt(prompt.text)
                    # A turn that is not finished fails here, not after all the others.
                    if playbook.pending and self._auto_assert:
                        self._raise_if_failed(first, running)
            await hub.idle()
            self._raise_if_failed(first, running)
        except BaseException as error:
            self._state.failed = self._state.ever_failed = True
            if isinstance(error, DeadlineExceeded) or not isinstance(error, Exception):
                self._state.interrupted = True
            self._notify_watchers()
            emit_failure(hub, error, exit=getattr(self.subject, "exit_code", None))
            run.end(first, hub.seq, None)
            if hub.faults is not None:
                self._emit_fault_verdict(run)
            hub.release()
            raise
        # A value other than text may have an address in its `repr`: its type is enough.
        known = output is None or isinstance(output, str)
        shown = output if known else {"type": type(output).__name__}
        self._notify_watchers()
        code: int | None = getattr(self.subject, "exit_code", None)
        end = RunEndData(ok=True, output=shown)
        if code is not None:
            end = RunEndData(ok=True, exit=code, output=UNSET if shown is None else shown)
        hub.emit_data(end)
        hub.release()
        run.end(first, hub.seq, output)
        if hub.faults is not None:
            self._check_faults(run)

    async def _converse(self, person: SimulatedPerson, first: int) -> object:
        """Let a person prompt the agent until their goal is reached; return the last answer."""
        from offbook.trace.query import Events

        output: object = None
        reached = False
        while not reached and len(person.dialogue) < person.turns:
            text = await person.next_message()
            if text is None:
                break
            self.hub.emit_data(PersonSaidData(text, len(person.dialogue) + 1))
            output = await self._prompt(text)
            person.dialogue.append((text, "" if output is None else str(output)))
            reached = person.is_reached(Events(self._events_after(first)))
        reached = reached or person.is_reached(Events(self._events_after(first)))
        count = counted(len(person.dialogue), "turn")
        message = "" if reached else f"the goal was not reached after {count}: {person.goal}"
        status = "pass" if reached else "fail"
        self.hub.emit_verdict(Verdict("goal reached", status, message, person.goal, count))
        if not reached:
            raise CheckFailed(message, hint=person.describe())
        return output

    def _events_after(self, first: int) -> list[Event]:
        return [event for event in self._trace.read() if event.seq > first]

    def _emit_start(self, turns: int) -> None:
        hub, subject = self._hub, self.subject
        if getattr(subject, "releases_held", False):  # of a session
            hub.hold()
        words = getattr(subject, "command_line", None)
        if words is None:
            hub.emit_data(RunStartData(subject.name, turns))
        else:
            hub.emit_data(RunStartData(subject.name, command=words))
        if (tape := getattr(self._source, "tape", None)) is not None:  # of a cassette
            self.hub.emit_data(tape)
        self._notify_watchers()

    def _emit_fault_verdict(self, run: Run) -> Verdict:
        """Emit how the agent handled the faults; a test without assertions may have had none."""
        from offbook.checks.fault_outcomes import judge_faults

        verdict = judge_faults(run.events.all)
        if self._auto_assert or verdict.status != "no_data":
            self.hub.emit_verdict(verdict)
        return verdict

    def _check_faults(self, run: Run) -> None:
        """Emit the verdict on how the agent handled the faults; raise if it fails."""
        verdict = self._emit_fault_verdict(run)
        if not verdict.holds and verdict.status != "no_data" and self._auto_assert:
            self._state.failed = self._state.ever_failed = True
            raise CheckFailed(verdict.message)

    def _notify_watchers(self) -> None:
        for watcher in tuple(run_watchers) if run_watchers else ():
            self.hub.release()
            watcher(self.hub)

    def _load(
        self, playbook: Playbook, script: tuple[Script, ...]
    ) -> tuple[list[Turn | str | SimulatedPerson], int]:
        """Validate a script before anything runs; return its prompts, and how many turns."""
        words = _playbook_words()
        items = _expect(script, (words.Turn, words.Role), "turns and roles")
        turns = [item for item in items if isinstance(item, words.Turn)]
        takes_prompt = getattr(self.subject, "takes_prompt", True)
        if not turns and (takes_prompt or not items):
            raise PlaybookError(
                f"the script has no turn, and {self.subject.name} needs a prompt",
                hint='add when("the prompt", []) if the roles answer all requests',
            )
        tools, aliased = self.subject.tools(), self._wiring.aliased
        if tools is not None and aliased is not None:
            tools = {*tools, *aliased.aliases}
        called = words.validate(items, tools=tools, commands=self.subject.commands())
        if aliased is not None:
            aliased.activate(called)
        playbook.load(*items)
        # Without a parameter for the prompt the program runs once, and its own prompts open turns.
        return ([*turns] if takes_prompt else [""]), len(turns)

    def _explain(self, failure: BaseException) -> BaseException:
        if isinstance(failure, RunError):
            failure.add_hint(self._wiring.describe_servers())
        return failure

    async def _prompt(self, text: str) -> object:
        """Prompt the subject; raise the error of the source rather than a consequence of it."""
        try:
            hub = self._hub
            with enter_run(hub):
                if (guard := self._wiring.guard()) is None:
                    output = await self.subject.prompt(text)
                else:
                    with guard:
                        output = await self.subject.prompt(text)
        except Exception as error:
            failure = self._failure
            refused = self._wiring.refused
            # The connection whose refusal ended the agent; it may have survived others. The refusal
            # names the place, and the frames of the libraries would only hide it.
            if failure is None and (fatal := find_refusal(error, refused)) is not None:
                raise fatal.with_traceback(None) from None
            if failure is None or failure is error:
                if isinstance(error, RunError):
                    error.add_hint(self._wiring.describe_access())
                elif refused:
                    error.add_note(f"before, a connection was refused: {refused[-1]}")
                raise
            raise self._explain(failure) from error
        self._raise_tool_errors()
        # The agent may have swallowed the error of the source.
        if (failure := self._failure) is not None:
            raise self._explain(failure)
        if self._auto_assert:
            self._raise_end()
        return output

    def _raise_end(self) -> None:
        """Raise the exception with which an error of the provider ended the agent."""
        error: object = getattr(self.subject, "error", None)
        if not isinstance(error, Exception):
            return
        faulty = self.hub.faults is not None and self.hub.faults.failures
        if self._playbook is not None and not faulty and (rest := self._playbook.unfinished()):
            rest.add_note(hide_secrets(f"the agent ended with {type(error).__name__}: {error}"))
            raise rest from error
        reason = "an injected fault" if faulty else "an error of the provider"
        error.add_note(
            f"{reason} ended the agent; if that is intended, write"
            f" `with pytest.raises({type(error).__name__}): ….run(…)`"
        )
        raise error

    def _raise_tool_errors(self) -> None:
        """Raise an exception of a tool that the framework turned into a result for the model."""
        watch = self._wiring.tool_watch
        errors = [] if watch is None else watch.errors
        while errors:
            seen = errors.pop(0)
            # A recording contains the results: a replay compares them.
            playbook = self._playbook if self._auto_assert else None
            if playbook and not playbook.expects_error(seen.call_id, seen.tool, seen.error):
                kind = type(seen.error).__name__
                raise ToolFailed(
                    f"the tool {seen.tool} raised {kind}: {seen.error}",
                    hint="fix the tool, or expect the exception:"
                    f" call({seen.tool!r}, …, raises={kind})",
                ) from seen.error

    @property
    def _failure(self) -> BaseException | None:
        failure = None if self._playbook is None else self._playbook.failure
        # A changed conversation is often the reason why the script does not match.
        changed = self._wiring.history_error if self._auto_assert else None
        return changed or failure or self._wiring.failure

    def _raise_if_failed(self, first: int, running: set[object]) -> None:
        """Raise the first automatic assertion that fails, and emit verdicts for the others.

        `first` is the number of the event before the run; `running` are the threads and tasks that
        ran then.
        """
        self._raise_listener_errors()
        if self._playbook is None:
            self._raise_refusal()
            find_missing = getattr(self._source, "missing_result", None)
            if self._auto_assert and find_missing is not None and (missing := find_missing()):
                raise missing
            return
        unfinished = self._playbook.unfinished()
        gave_up = unfinished is not None and self._gave_up(first)
        if unfinished is None or gave_up or not self._auto_assert:
            self._raise_refusal()
        if unfinished is None:
            # It is part of the check of a script. Without one, a report of it would be green.
            if not (self._state.only_prompts and getattr(self.subject, "takes_prompt", True)):
                consumed = self._playbook.consumed
                self.hub.emit_verdict(Verdict("playbook consumed", "pass", actual=consumed))
        elif gave_up:
            self.hub.emit_verdict(Verdict("playbook consumed", "warn", unfinished.what))
        elif self._auto_assert:
            unfinished.add_hint(self._wiring.describe_access())
            if left := describe_left_behind(running, self._events_after(first)):
                unfinished.add_hint(f"  left running: {left}; wait for it in the agent")
            raise unfinished

    def _gave_up(self, first: int = 0) -> bool:
        """Return whether the agent ended because of a fault, and left the rest of the script."""
        if self.hub.faults is None or not self.hub.faults.injected:
            return False
        from offbook.checks.fault_outcomes import gave_up

        return gave_up(self._events_after(first))

    def _raise_refusal(self) -> None:
        """Raise if a connection was refused: an agent that goes on depends on what it missed."""
        refused = self._wiring.failing_refusals if self._wiring.refused else []
        if not refused:
            return
        if not self._auto_assert:
            message = f"a connection was refused and the agent continued: {refused[0]}"
            self._warn(Verdict("nothing leaves the machine", "warn", message))
            return
        others = dict.fromkeys(error.destination for error in refused[1:])
        others.pop(refused[0].destination, None)
        also = f"; also {', '.join(others)}" if others else ""
        raise IsolationError(
            f"a connection was refused and the agent continued: {refused[0].what}{also}",
            where=refused[0].where,
            hint=refused[0].hint,
        )

    def _warn(self, verdict: Verdict) -> None:
        """Emit a warning, and show it in the summary of pytest."""
        import warnings

        self.hub.emit_verdict(verdict)
        warnings.warn(verdict.message, OffbookWarning, stacklevel=2)

    def _raise_listener_errors(self) -> None:
        try:
            self.hub.raise_errors()
        except Exception:
            # Raised once: the next run, and dispose(), start without them.
            self.hub.errors.clear()
            raise

    # --- Closing

    async def _dispose(self) -> None:
        if self._state.disposed:
            return
        self._state.disposed = True
        unfinished = [run for run in self._runs if not run.finished]
        self._state.interrupted |= bool(unfinished)
        not_awaited = [run for run in unfinished if run.discard()]
        failed_verdicts: list[Verdict] = []
        try:
            if self._state.opened:
                try:
                    with use_hub(self.hub):
                        await self.subject.close()
                finally:
                    # After a failed or refused run an unused mock means nothing.
                    refused = any(run.error is not None for run in self._runs)
                    if self._state.ever_run and not self._state.ever_failed and not refused:
                        failed_verdicts = self._emit_last_verdicts()
                await self.hub.idle()
        finally:
            self.hub.close()
            self._release()
        self._raise_listener_errors()
        if self._trace.changed:
            raise RunError(
                "the trace was changed while the agent ran, so it proves nothing",
                where=str(self.trace),
                hint="fix: the agent must not write to this file or remove it",
            )
        if not_awaited:
            raise UsageError(
                "a run was never awaited, so nothing was tested",
                hint="in an `async def`, write `await ….run(…)`",
            )
        for run in self._runs:
            if run.lost_error is not None:
                run.lost_error.add_note("the error of a run whose task or thread was not awaited")
                raise run.lost_error
        if self._state.ever_failed or not self._auto_assert:
            return
        if unfinished:
            raise UsageError(
                "the rehearsal was closed while a run was in progress", hint="await its task first"
            )
        if not self._state.ever_run:
            raise UsageError(
                f"nothing was tested: {self.subject.name} was opened and never run",
                hint="call run(when(…)), or pass auto_assert=False",
            )
        for verdict in failed_verdicts:
            hint = "remove what is not used, or pass allow_unused_mocks=True"
            failed = CheckFailed(verdict.message, hint=hint if verdict.check == MOCKS_USED else "")
            failed.add_hint(self._wiring.describe_access())
            raise failed

    def _emit_last_verdicts(self) -> list[Verdict]:
        """Emit the verdicts of subject and source on all runs; return those that fail."""
        failed: list[Verdict] = []
        # A source has verdicts only if it has something to say at the end, as mocks do.
        of_source: tuple[Verdict, ...] = getattr(self._source, "verdicts", tuple)()
        own: list[Verdict] = []
        if self.hub.faults is not None and (missing := self.hub.faults.find_missing()):
            own.append(Verdict("faults injected", "fail", missing))
        # A script and mocks say it themselves, with what they expected.
        in_process = getattr(self.subject, "model_access", "") == "transport"
        if (
            in_process
            and self._playbook is None
            and not of_source
            and not any(event.event == REQUEST for event in self._trace.read())
        ):
            message = "nothing was tested: the agent never called the model"
            own.append(Verdict("model called", "fail", message))
        gave_up, broken = self._gave_up(), self._list_broken_tools()
        of_source = (*of_source, *self._wiring.server_verdicts())
        track = self.hub.tool_track
        for verdict in (*self.subject.verdicts(), *of_source, *own):
            if verdict.check == MOCKS_USED and track is not None and track.replays:
                continue  # the tape answered in place of the mocks
            if verdict.holds:
                self.hub.emit_verdict(verdict)
            elif (gave_up and verdict in of_source) or (
                verdict.check == MOCKS_USED
                and (self._allow_unused_mocks or _names_only(broken, verdict.actual))
            ):
                self.hub.emit_verdict(msgspec.structs.replace(verdict, status="warn"))
            elif not self._auto_assert:
                self._warn(msgspec.structs.replace(verdict, status="warn"))
            else:
                self.hub.emit_verdict(verdict)
                failed.append(verdict)
        return failed

    def _list_broken_tools(self) -> set[str]:
        """Return the tools that a fault broke: it may have answered in place of them."""
        if self.hub.faults is None:
            return set()
        faults = [event.data for event in self._trace.read() if event.event == FAULT]
        return {data["name"] for data in faults if data["place"] == "tool"}

    def _release(self) -> None:
        self._state.stop_watching(interrupted=self._state.interrupted)
        self._wiring.close()
        self._trace.close()
        self._files.release()


def _as_playbook(source: ModelSource) -> Playbook | None:
    """Return the source if it is a playbook."""
    # A process that has not imported playbooks has none, and a cassette needs none of their code.
    module: Any = sys.modules.get("offbook.sources.playbook.playbook")
    is_playbook = module is not None and isinstance(source, module.Playbook)
    return cast("Playbook", source) if is_playbook else None


@cache
def _playbook_words():  # noqa: ANN202 - the module itself, which a type checker knows
    from offbook.sources.playbook import actions  # a cassette needs none of them

    return actions


def _check_prompts(script: tuple[Script, ...]) -> list[str | SimulatedPerson]:
    """Return the prompts of a run whose replies come from another source than a playbook."""
    kinds: tuple[type[str | SimulatedPerson], ...] = (str, SimulatedPerson)
    prompts = _expect(script, kinds, "prompts")
    if not prompts:
        raise PlaybookError("run() needs a prompt", hint='write run("…")')
    return prompts


def _expect(script: Iterable[object], kinds: tuple[type[T], ...], names: str) -> list[T]:
    """Return the items of a script, or raise for one of another kind."""
    items: list[T] = []
    for item in script:
        if not isinstance(item, kinds):
            raise PlaybookError(
                f"run() expected {names}, got {type(item).__name__}",
                hint='write run(when("…", [call(…), say(…)]), …)',
            )
        items.append(item)
    return items


def _names_only(known: set[str], names: object) -> bool:
    return isinstance(names, list) and known.issuperset(cast("list[str]", names))


def _caller_place() -> FileLine | None:
    """Return the line that called this package; None if it has no file, or one of a library."""
    frame = sys._getframe(1)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage] - the only way to see the caller
    while frame.f_globals.get("__name__", "").partition(".")[0] in OWN_PACKAGES:
        if frame.f_back is None:
            return None
        frame = frame.f_back
    file = frame.f_code.co_filename
    return None if is_library(file) else FileLine(file, frame.f_lineno)
