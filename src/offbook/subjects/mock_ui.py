"""The user interface of a session, mocked by the test.

Extensions ask questions (`confirm`, `select`, `input`, `editor`) and show things (`notify`,
`set_status`, `set_widget`) through `ctx.ui`. The answers come from `mock_ui`; every call is an
event `ui.*` in the trace.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine, Generator, Mapping, Sequence
from functools import wraps
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, cast

from offbook.errors import ToolFailed, UsageError, did_you_mean
from offbook.subjects.mock_tools import fit_arity

if TYPE_CHECKING:
    from offbook.trace.hub import Hub

P = ParamSpec("P")
T = TypeVar("T")

DISPLAYS = ("notify", "set_status", "set_widget")
# Extensions ported from TypeScript use these names.
ALIASES = {"setStatus": "set_status", "setWidget": "set_widget"}
DEFAULTS: dict[str, Any] = {"confirm": True, "select": 0, "input": "", "editor": ""}
# Without a user interface every question is declined, as in pi's print mode.
DECLINED: dict[str, Any] = {"confirm": False, "select": None, "input": None, "editor": None}
METHODS = (*DEFAULTS, *DISPLAYS)
ANSWER_TYPES: dict[str, tuple[type, ...]] = {
    "confirm": (bool,),
    "select": (int, str),
    "input": (str,),
    "editor": (str,),
}


class Question(Coroutine[Any, Any, T]):
    """A question to the user, to be awaited.

    As a condition it raises an error: `if ctx.ui.confirm("Delete?"):` would always be true.
    """

    def __init__(self, answer: Coroutine[Any, Any, T], method: str, title: object) -> None:
        self._answer = answer
        self._name = f"ctx.ui.{method}({title!r})"
        self._method = method
        self.awaited = False

    def error(self) -> ToolFailed:
        """Return the error for a question that is not awaited."""
        return ToolFailed(
            f"{self._name} was not awaited", hint=f"write `await ctx.ui.{self._method}(…)`"
        )

    def __bool__(self) -> bool:
        raise self.error()

    def __await__(self) -> Generator[Any, Any, T]:
        self.awaited = True
        return self._answer.__await__()

    def send(self, value: Any, /) -> Any:
        """Continue the question, as a coroutine does."""
        self.awaited = True
        return self._answer.send(value)

    def throw(self, *error: Any) -> Any:
        """Raise an exception inside, as a coroutine does."""
        return self._answer.throw(*error)

    def close(self) -> None:
        """Close the question, as a coroutine does."""
        self._answer.close()


def _question(
    method: Callable[Concatenate[UI, str, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[UI, str, P], Question[T]]:
    """Let a method return a `Question` that the session can check."""

    @wraps(method)
    def ask(ui: UI, title: str, *args: P.args, **kwargs: P.kwargs) -> Question[T]:
        question = Question(method(ui, title, *args, **kwargs), method.__name__, title)
        ui.questions.append(question)
        return question

    return ask


class UI:
    """The mocked `ctx.ui`.

    An answer in `mock_ui` is a value, a list of values for one question after the other, or a
    function of the question's arguments. The defaults: `confirm` returns True, `select` the first
    item, `input` and `editor` an empty string.
    """

    def __init__(self, answers: dict[str, Any], hub: Hub, *, has_ui: bool = True) -> None:
        self._answers = (DEFAULTS if has_ui else DECLINED) | answers
        self._given = set(answers)
        # Lists are copied: the answers of a test may serve several sessions.
        self._queues: dict[str, deque[Any]] = {
            method: deque(cast("list[Any]", answer))
            for method, answer in answers.items()
            if isinstance(answer, list)
        }
        self._hub = hub
        self.questions: list[Question[Any]] = []
        self.error: BaseException | None = None

    @_question
    async def confirm(self, title: str, message: str = "") -> bool:
        """Ask a yes-or-no question."""
        return await self._ask("confirm", title, message)

    @_question
    async def select(self, title: str, items: Sequence[str]) -> str | None:
        """Ask the user to choose one of the items. None means that the user cancelled."""
        return await self._ask("select", title, list(items))

    @_question
    async def input(self, title: str, placeholder: str | None = None) -> str | None:
        """Ask for a line of text. None means that the user cancelled."""
        return await self._ask("input", title, *(() if placeholder is None else (placeholder,)))

    @_question
    async def editor(self, title: str, prefilled: str | None = None) -> str | None:
        """Ask for a longer text. None means that the user cancelled."""
        return await self._ask("editor", title, *(() if prefilled is None else (prefilled,)))

    def notify(self, message: str, level: str = "info") -> None:
        """Show a message."""
        self._show("notify", message, level)

    def set_status(self, key: str, value: str | None) -> None:
        """Show a value in the status line; None removes it."""
        self._show("set_status", key, value)

    def set_widget(self, key: str, lines: Sequence[str] | None) -> None:
        """Show a block of lines; None removes it."""
        self._show("set_widget", key, None if lines is None else list(lines))

    async def answer_other(self, method: str, args: Sequence[Any]) -> Any:
        """Record a call of a method that only some agents have; return the answer of the test."""
        answer = self._answers.get(method)
        try:
            if (queue := self._queues.get(method)) is not None:
                answer = queue.popleft() if queue else None
            if callable(answer):
                answer = answer(*args)
                if isawaitable(answer):
                    answer = await answer
        except Exception as error:
            self.error = self.error or error
            raise
        self._emit(method, *args, **({} if method not in self._answers else {"answer": answer}))
        return answer

    def raise_errors(self) -> None:
        """Raise the error of an answer, which an extension may have caught, or of a question."""
        questions, self.questions = self.questions, []
        forgotten = [question for question in questions if not question.awaited]
        for question in forgotten:
            question.close()
        if self.error is not None:
            error, self.error = self.error, None
            raise error
        if forgotten:
            raise forgotten[0].error()

    def unused_answers(self) -> dict[str, int]:
        """Return the number of answers left in each list."""
        return {method: len(queue) for method, queue in self._queues.items() if queue}

    async def _ask(self, method: str, *args: Any) -> Any:
        """Return the answer of the test, or raise for one that no user could give."""
        try:
            answer: Any = self._answers[method]
            if (queue := self._queues.get(method)) is not None:
                if not queue:
                    raise UsageError(  # noqa: TRY301 - kept below, as all errors of the test
                        f"no answer left for {args[0]!r}: {len(answer)} given",
                        where=f"mock_ui[{method!r}]",
                        hint="add an answer to the list",
                    )
                answer = queue.popleft()
            if callable(answer):
                answer = answer(*args)
                if isawaitable(answer):
                    answer = await answer
            if not _fits(method, answer):
                raise UsageError(  # noqa: TRY301 - as above
                    f"expected {_expected(method)} as answer to {args[0]!r},"
                    f" got {type(answer).__name__}",
                    where=f"mock_ui[{method!r}]",
                )
            if method == "select" and answer is not None:
                answer = self._choose(answer, *args)
        except Exception as error:
            # Kept, because an extension may catch it.
            self.error = self.error or error
            raise
        self._emit(method, *args, answer=answer)
        return answer

    def _choose(self, answer: str | int, title: str, items: list[str]) -> str | None:
        if not items and "select" not in self._given:
            return None  # the first item is only the default
        if isinstance(answer, int):
            if answer in range(len(items)):
                return items[answer]
        elif answer in items:
            return answer
        raise UsageError(
            f"answer {answer!r} is not an item of {title!r}",
            where="mock_ui['select']",
            hint=did_you_mean(str(answer), items),
        )

    def _show(self, method: str, *args: object) -> None:
        handler = self._answers.get(method)
        if callable(handler):
            try:
                handler(*args)
            except Exception as error:
                self.error = self.error or error
                raise
        self._emit(method, *args)

    def _emit(self, method: str, *args: Any, **answer: Any) -> None:
        self._hub.emit(f"ui.{method}", {"method": method, "args": list(args), **answer})


def _fits(method: str, answer: object) -> bool:
    """Return whether a user could give this answer."""
    if method == "confirm":
        return isinstance(answer, bool)
    # True is an int, but not an index of `select`; every question but `confirm` can be cancelled.
    return answer is None or (
        isinstance(answer, ANSWER_TYPES[method]) and not isinstance(answer, bool)
    )


def _expected(method: str) -> str:
    names = ", ".join(kind.__name__ for kind in ANSWER_TYPES[method])
    return names if method == "confirm" else f"{names} or None"


def validate_mock_ui(answers: Mapping[str, Any], others: Sequence[str] = ()) -> dict[str, Any]:
    """Return the answers by Python method name, or raise a UsageError for a wrong one.

    `others` are methods that only some agents have; their answers can be of any type.
    """
    validated: dict[str, Any] = {}
    for key, answer in answers.items():
        method = ALIASES.get(key, key)
        if method not in (*METHODS, *others):
            raise UsageError(
                f"mock_ui: unknown method {key!r}",
                hint=did_you_mean(str(key), (*METHODS, *others)),
            )
        if method in others:
            pass
        elif method in DISPLAYS:
            if not callable(answer) and answer != "collect":
                raise UsageError(
                    f'mock_ui[{key!r}]: expected "collect" or a function,'
                    f" got {type(answer).__name__}"
                )
        else:
            for value in cast("list[object]", answer) if isinstance(answer, list) else [answer]:
                if not callable(value) and not _fits(method, value):
                    raise UsageError(
                        f"mock_ui[{key!r}]: expected {_expected(method)}, a list of them"
                        f" or a function, got {type(value).__name__}"
                    )
        if isinstance(answer, list):
            values = cast("list[Any]", answer)
            validated[method] = [fit_arity(v) if callable(v) else v for v in values]
        else:
            validated[method] = fit_arity(answer) if callable(answer) else answer
    return validated
