"""One run of a script, and the end of a rehearsal: both happen at once, or when awaited."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, cast

from offbook.determinism.clock import Clock, SystemClock
from offbook.errors import PlaybookError, ScriptError, UsageError
from offbook.exchange.model import ModelSource
from offbook.exchange.tool_aliases import ToolAlias
from offbook.runs.run_files import make_temp_folder, remove_temp_folder
from offbook.runs.sync_bridge import SyncBridge, in_event_loop
from offbook.runs.wiring import Wiring
from offbook.sources.playbook import Playbook, Role, Turn, list_called_tools, validate
from offbook.subjects.subject import Subject
from offbook.trace.events import RUN_END, RUN_START, Verdict
from offbook.trace.hub import Hub
from offbook.trace.query import Events
from offbook.trace.reader import Trace
from offbook.trace.recorder import Recorder

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from offbook.subjects.session.session import AgentSession
    from offbook.trace.query import ToolCallRecord, ToolResultRecord


# --- One run of a script, and the end of a rehearsal: both happen at once, or when awaited.


class Run:
    """One run of a script. In an `async def`, await it; elsewhere it has happened already."""

    def __init__(
        self, work: Coroutine[Any, Any, tuple[int, int]], told: Callable[[], Events]
    ) -> None:
        self._work = work
        self._told = told
        self._span: tuple[int, int] | None = None
        self._found: Events | None = None
        self.awaited = False

    def __await__(self) -> Generator[Any, None, Run]:
        return self.perform().__await__()

    async def perform(self) -> Run:
        """Do the run; once."""
        if not self.awaited:
            self.awaited = True
            self._span = await self._work
        return self

    def abandon(self) -> bool:
        """Give up a run that nobody awaited; tells whether it was one."""
        self._work.close()
        return not self.awaited

    @property
    def events(self) -> Events:
        """What happened in this run alone."""
        if self._span is None:
            raise UsageError("this run has not finished", hint="write `run = await ….run(…)`")
        if self._found is None:
            first, last = self._span
            found = [event for event in self._told().all if first < event.seq <= last]
            self._found = Events(found)
        return self._found

    @property
    def tools(self) -> list[str]:
        """The tools called, in order."""
        return self.events.tool_sequence()

    def calls(self, tool: str) -> list[ToolCallRecord]:
        """The calls of this tool."""
        return self.events.tool_calls_for(tool)

    def results(self, tool: str) -> list[ToolResultRecord]:
        """The results of this tool."""
        return self.events.tool_results_for(tool)

    @property
    def text(self) -> str:
        """What the model said last."""
        said = (m.text for m in reversed(self.events.messages) if m.role == "assistant")
        return next(said, "")


class Disposal:
    """The end of a rehearsal. In an `async def`, await it; elsewhere it has happened already."""

    def __init__(self, work: Coroutine[Any, Any, None]) -> None:
        self._work = work

    def __await__(self) -> Generator[Any, None, None]:
        return self.perform().__await__()

    async def perform(self) -> None:
        """Do it."""
        await self._work


# --- A rehearsal: one subject on its stage, a script for its model, and the trace of it all.

Script = Turn | Role | str


class Rehearsal:
    """One subject with its source and its trace, for any number of runs.

    Use it as a context manager, or call `dispose()`: then the subject is closed and the
    temporary folder removed.
    """

    def __init__(  # noqa: PLR0913 - as drive() takes them
        self,
        subject: Subject,
        *,
        source: ModelSource | None = None,
        cwd: Path | str | None = None,
        trace: Path | str | None = None,
        auto_assert: bool = True,
        clock: Clock | None = None,
        urls: Iterable[str] = (),
        allow: Iterable[str] = (),
        names: Mapping[str, str | ToolAlias] | None = None,
        lenient: Iterable[str] = (),
    ) -> None:
        self.subject = subject
        given = isinstance(source, Playbook)
        self.playbook = source if given else Playbook(strict=auto_assert)
        self._source = self.playbook if source is None else _source(source)
        self._auto_assert = auto_assert
        self._clock = clock or SystemClock()
        self._folder: Path | None = None
        self._cwd = _existing(cwd)
        self._trace = None if trace is None else _path(trace, "trace")
        self._recorder: Recorder | None = None
        self._hub = Hub(self._clock)
        self._events: Events | None = None
        self._bridge = SyncBridge()
        self._staging = Wiring(
            subject, self._source, self._hub, urls=urls, allow=allow, names=names, lenient=lenient
        )
        self._runs: list[Run] = []
        self._opened = False
        self._failed = False
        self._disposed = False
        self._last = 0
        if not in_event_loop():
            try:
                self._bridge.run(self._open())
            except BaseException:
                self._bridge.close()
                raise

    def __await__(self) -> Generator[Any, None, Rehearsal]:
        return self._ready().__await__()

    async def _ready(self) -> Rehearsal:
        await self._open()
        return self

    @property
    def cwd(self) -> Path:
        """Where the subject works."""
        if self._cwd is None:
            self._cwd = self._own_folder() / "cwd"
            self._cwd.mkdir()
        return self._cwd

    @property
    def trace(self) -> Path:
        """The file that tells what happened."""
        if self._trace is None:
            self._trace = self._own_folder() / "trace.jsonl"
        return self._trace

    @property
    def events(self) -> Events:
        """All that happened so far, in all runs."""
        if self._events is None:
            self._events = Events(Trace(self.trace))
        return self._events

    @property
    def hub(self) -> Hub:
        """The live bus: subscribe to hear events as they happen."""
        return self._hub

    @property
    def session(self) -> AgentSession:
        """The real session underneath, where the subject is one."""
        from offbook.subjects.session.session import AgentSession

        if not isinstance(self.subject, AgentSession):
            raise UsageError(f"{self.subject.name} is not a session", hint="use .subject")
        return self.subject

    def run(self, *script: Script) -> Run:
        """Play these turns. In an `async def`, await what comes back."""
        self._refuse_late()
        run = Run(self._run(script), lambda: self.events)
        self._runs = [other for other in self._runs if not other.awaited]
        self._runs.append(run)
        if not in_event_loop():
            self._bridge.run(run.perform())
        return run

    def dispose(self) -> Disposal:
        """Close the subject and remove what is temporary. In an `async def`, await it."""
        done = Disposal(self._dispose())
        if not in_event_loop():
            try:
                self._bridge.run(done.perform())
            finally:
                self._bridge.close()
        return done

    def __enter__(self) -> Self:
        if in_event_loop():
            raise UsageError(
                "`with` cannot wait in an `async def`", hint="write `async with … as rehearsal:`"
            )
        return self

    def __exit__(self, *_: object) -> None:
        self.dispose()

    async def __aenter__(self) -> Self:
        await self._open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._dispose()

    async def _open(self) -> None:
        if self._opened:
            return
        self._refuse_late()
        try:
            self._recorder = Recorder(
                self.trace, ts=self._clock.millis(), subject=self.subject.name
            )
            self._hub.subscribe(self._recorder.record)
            self._hub.subscribe(self._count)
            await self.subject.open(self._staging.set(self.cwd))
            self._opened = True
        except BaseException as error:
            self._disposed = True
            await self._give_up(error)
            raise

    def _refuse_late(self) -> None:
        if self._disposed:
            raise UsageError("the rehearsal is over", hint="make a new one for more runs")

    async def _give_up(self, error: BaseException) -> None:
        """Leave nothing behind of a subject that could not be opened."""
        try:
            await self.subject.close()
        except Exception as other:  # noqa: BLE001 - the first error is the one to tell
            error.add_note(f"and it could not be closed: {type(other).__name__}: {other}")
        finally:
            self._clear()

    def _count(self, event: Any) -> None:
        self._last = event.seq

    async def _run(self, script: tuple[Script, ...]) -> tuple[int, int]:
        await self._open()
        if self._failed:
            self.playbook.discard()
            self._failed = False
        prompts = self._load(script)
        first = self._last
        self._hub.emit(RUN_START, {"subject": self.subject.name, "turns": len(prompts)})
        try:
            for prompt in prompts:
                await self._play(prompt)
            await self._hub.idle()
            self._judge()
        except BaseException as error:
            self._failed = True
            self._report(error)
            raise
        self._hub.emit(RUN_END, {"ok": True})
        return first, self._last

    def _report(self, error: BaseException) -> None:
        what = f"{type(error).__name__}: {error}"
        if isinstance(error, ScriptError):
            self._hub.emit_verdict(Verdict("playbook consumed", "fail", str(error)))
        else:
            self._hub.emit_verdict(Verdict("run finished", "error", what))
        self._hub.emit(RUN_END, {"ok": False, "error": what})

    def _load(self, script: tuple[Script, ...]) -> list[Turn | str]:
        if self._source is not self.playbook:
            return list(_only(script, str, "prompts"))
        turns = _only(script, (Turn, Role), "turns and roles")
        if not any(isinstance(item, Turn) for item in turns):
            raise PlaybookError("there is nothing to run", hint='write run(when("…", […]))')
        tools = self.subject.tools()
        if (words := self._staging.words) is not None:
            words.activate(list_called_tools(turns))
            tools = None if tools is None else {*tools, *words.aliases}
        validate(turns, tools=tools, commands=self.subject.commands())
        self.playbook.load(*turns)
        return [item for item in turns if isinstance(item, Turn)]

    async def _play(self, prompt: Turn | str) -> None:
        if isinstance(prompt, str):
            await self._prompt(prompt)
            return
        self.playbook.open(prompt)
        await self._prompt(prompt.text)
        if self.playbook.pending and self._auto_assert:
            self._judge()

    async def _prompt(self, text: str) -> None:
        """Prompt the subject; what its source raised says more than what it made of it."""
        try:
            with self._staging.walls():
                await self.subject.prompt(text)
        except Exception as error:
            if self._failure is None and self._staging.refused:
                raise self._staging.refused[0]  # noqa: B904 - the agent's error is made of it
            if self._failure is None or self._failure is error:
                raise
            raise self._failure from error
        if self._failure is not None:
            raise self._failure

    @property
    def _failure(self) -> BaseException | None:
        return self.playbook.failure or self._staging.failure

    def _judge(self) -> None:
        """The automatic assertions: the first that does not hold is raised."""
        self._hear_listeners()
        if refused := self._staging.refused:
            told = f"refused, and the agent went on: {refused[0]}"
            self._hub.emit_verdict(Verdict("nothing leaves the machine", "warn", told))
        if self._source is not self.playbook:
            return
        unfinished = self.playbook.unfinished()
        if unfinished is None:
            self._hub.emit_verdict(
                Verdict("playbook consumed", "pass", actual=self.playbook.consumed)
            )
        elif self._auto_assert:
            raise unfinished

    def _hear_listeners(self) -> None:
        """Fail with what a listener of the hub raised: once."""
        try:
            self._hub.raise_errors()
        except Exception:
            self._hub.errors.clear()
            raise

    async def _dispose(self) -> None:
        if self._disposed:
            return
        self._disposed = True
        forgotten = [run for run in self._runs if run.abandon()]
        try:
            if self._opened:
                await self._close()
                await self._hub.idle()
        finally:
            self._hub.close()
            self._clear()
        self._hear_listeners()
        if forgotten:
            raise UsageError(
                "a run was never awaited, so nothing was tested",
                hint="in an `async def`, write `await ….run(…)`",
            )

    async def _close(self) -> None:
        try:
            await self.subject.close()
        finally:
            for verdict in self.subject.verdicts():
                self._hub.emit_verdict(verdict)

    def _clear(self) -> None:
        self._staging.close()
        if self._recorder is not None:
            self._recorder.close()
        if self._folder is not None:
            self.events.keep()
            remove_temp_folder(self._folder)

    def _own_folder(self) -> Path:
        if self._folder is None:
            self._folder = make_temp_folder()
        return self._folder


def _only(script: tuple[object, ...], kinds: Any, what: str) -> list[Any]:
    for item in script:
        if not isinstance(item, kinds):
            raise PlaybookError(
                f"run() takes {what} here, not {type(item).__name__}",
                hint='write run(when("…", [call(…), say(…)]), …)',
            )
    return list(cast("tuple[Any, ...]", script))


def _path(value: object, name: str) -> Path:
    if isinstance(value, (str, Path)) and str(value):
        return Path(value)
    raise UsageError(f"{name} is a path, not {value!r}", hint=f'write {name}="…"')


def _source(source: object) -> ModelSource:
    if isinstance(source, ModelSource) and not isinstance(source, type):
        return source
    raise UsageError(
        f"a {type(source).__name__} is no source of replies",
        hint="give something with `async def reply(self, request)`: a Playbook, say",
    )


def _existing(cwd: Path | str | None) -> Path | None:
    if cwd is None:
        return None
    path = _path(cwd, "cwd")
    if not path.is_dir():
        raise UsageError("cwd is not a folder", where=str(path), hint="make it first")
    return path.resolve()
