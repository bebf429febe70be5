"""Steps of a persona: functions whose calls are events `step.pre` and `step.post` of the trace.

    @persona("merge_captain")
    class MergeCaptain:
        @step
        async def verify(self, number: int) -> bool: ...

    with step_assertions("merge_*"):
        await MergeCaptain().verify(42)
        assert_steps_ran(["verify"])

A step costs next to nothing where neither a run nor `step_assertions` records it. The nodes of a
LangGraph and the agents of the OpenAI Agents SDK are recorded as steps, too.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial, wraps
from inspect import iscoroutinefunction, signature
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast, overload

from offbook.determinism.run_context import thread_variable, use_variable
from offbook.errors import UsageError
from offbook.options import Name, decode, require_function
from offbook.trace.events import STEP_POST, STEP_PRE
from offbook.trace.globs import Glob
from offbook.trace.hub import current_hub

if TYPE_CHECKING:
    from contextvars import ContextVar, Token

    from offbook.trace.hub import Hub

P = ParamSpec("P")
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
StepRecord = dict[str, Any]


class StepLog:
    """The steps of the personas that match a pattern, in which `*` matches any text."""

    def __init__(self, pattern: str = "*") -> None:
        decode(pattern, Name, "pattern of personas", hint='write "*"')
        self._glob = Glob(pattern)
        self.events: list[StepRecord] = []
        self.active = True

    def add(self, record: StepRecord) -> None:
        """Keep a record, if it is of a matching persona."""
        if self.active and self._glob.matches(record["persona"]):
            self.events.append(record)


current_step_log: ContextVar[StepLog | None] = thread_variable("offbook_steps")
_current_persona: ContextVar[str | None] = thread_variable("offbook_persona")


class persona:  # noqa: N801 - used as a decorator and in `with`, as contextlib's own are
    """The persona of the steps in a class, in a function, or in a `with` block."""

    def __init__(self, name: str) -> None:
        decode(name, Name, "name of a persona", hint='write persona("name")')
        self.name = name
        self._tokens: list[Token[str | None]] = []

    def __enter__(self) -> str:
        self._tokens.append(_current_persona.set(self.name))
        return self.name

    def __exit__(self, *_: object) -> None:
        _current_persona.reset(self._tokens.pop())

    @overload
    def __call__(self, target: type[T]) -> type[T]: ...
    @overload
    def __call__(self, target: F) -> F: ...
    def __call__(self, target: Any) -> Any:
        """Give a class, or the calls of a function, this persona."""
        if isinstance(target, type):
            cast("Any", target).__persona__ = self.name
            return target
        if iscoroutinefunction(target):

            @wraps(target)
            async def call_async(*args: Any, **kwargs: Any) -> Any:
                with use_variable(_current_persona, self.name):
                    return await target(*args, **kwargs)

            return call_async

        @wraps(target)
        def call(*args: Any, **kwargs: Any) -> Any:
            with use_variable(_current_persona, self.name):
                return target(*args, **kwargs)

        return call


@overload
def step(function: Callable[P, T], /) -> Callable[P, T]: ...
@overload
def step(*, name: str = "") -> Callable[[Callable[P, T]], Callable[P, T]]: ...
def step(function: Any = None, /, *, name: str = "") -> Any:
    """Record the calls of a function or method, plain or async, as steps.

    The name of the step is that of the function, unless another one is given.
    """
    return partial(step_of, name=name) if function is None else step_of(function, name)


def step_of(function: Callable[..., Any], name: str = "") -> Callable[..., Any]:
    """Return the function with its calls recorded."""
    require_function(function, "step", hint="put @step below others")
    step_name = name or function.__name__
    # A method gets its object first: that is no argument of the step.
    is_method = next(iter(signature(function).parameters), "") in {"self", "cls"}

    def begin(args: tuple[Any, ...], kwargs: dict[str, Any]) -> StepRecord | None:
        if current_hub.get() is None and current_step_log.get() is None:
            return None
        owner = getattr(args[0], "__persona__", None) if is_method and args else None
        record = make_record(
            owner or _current_persona.get() or "",
            step_name,
            function=function.__qualname__,
            args=_copy(args[1:] if is_method else args),
        )
        if kwargs:
            record["kwargs"] = _copy(kwargs)
        emit_step(STEP_PRE, record)
        return record

    def end(record: StepRecord | None, **outcome: Any) -> None:
        if record is not None:
            emit_step(STEP_POST, {**record, **_copy(outcome)})

    if iscoroutinefunction(function):

        @wraps(function)
        async def call_async(*args: Any, **kwargs: Any) -> Any:
            record = begin(args, kwargs)
            try:
                output = await function(*args, **kwargs)
            except BaseException as error:
                end(record, error=f"{type(error).__name__}: {error}")
                raise
            end(record, output=output)
            return output

        return call_async

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        record = begin(args, kwargs)
        try:
            output = function(*args, **kwargs)
        except BaseException as error:
            end(record, error=f"{type(error).__name__}: {error}")
            raise
        end(record, output=output)
        return output

    return call


def _copy(value: Any) -> Any:
    """Return copies of containers, which the function may change; other objects are kept."""
    if isinstance(value, dict):
        return {key: _copy(item) for key, item in cast("dict[Any, Any]", value).items()}
    if isinstance(value, (list, tuple)):
        return [_copy(item) for item in cast("list[Any]", value)]
    return value


def make_record(persona_name: str, step_name: str, **fields: Any) -> StepRecord:
    """Return the data of a step: its target, persona, name, and what else is known."""
    target = f"{persona_name}.{step_name}" if persona_name else step_name
    return {"target": target, "persona": persona_name, "step_name": step_name, **fields}


def emit_step(event: str, record: StepRecord, hub: Hub | None = None) -> None:
    """Record a step in the trace of the run and in the current `step_assertions`."""
    hub = hub or current_hub.get()
    if hub is not None:
        hub.emit(event, record)
    if (log := current_step_log.get()) is not None:
        log.add({"event": event, **record})


# --- Recording, for tests


@contextmanager
def step_assertions(pattern: str = "*") -> Generator[StepLog]:
    """Record the steps of matching personas in a block, and in the tasks started in it.

    After the block the steps can still be asserted; no further ones are recorded.
    """
    outer = current_step_log.get()
    log = step_assertions_begin(pattern)
    try:
        yield log
    finally:
        log.active = False
        if outer is not None and outer.active:
            current_step_log.set(outer)


def step_assertions_begin(pattern: str = "*") -> StepLog:
    """Record the steps of matching personas from now on, without those before."""
    log = StepLog(pattern)
    current_step_log.set(log)
    return log


def step_assertions_end() -> None:
    """Stop recording; the steps so far can still be read."""
    current_log().active = False


def step_events() -> list[StepRecord]:
    """Return the recorded steps: one record before, and one after each."""
    return list(current_log().events)


def step_events_clear() -> None:
    """Forget the steps so far."""
    current_log().events.clear()


def current_log() -> StepLog:
    """Return the log of the current task, or raise: without one no step is recorded."""
    log = current_step_log.get()
    if log is None:
        raise UsageError(
            "steps are not recorded here",
            hint="use `with step_assertions():`, or pass the events of a run",
        )
    return log
