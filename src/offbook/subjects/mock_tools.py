"""Tool results, and the mocks of tools.

A tool returns a string, None, a dict or a `ToolOutcome`; all are converted to the last one. A mock
is a constant result, or a function of the parameters.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine, Generator, Mapping, Sequence
from functools import wraps
from inspect import Parameter, isawaitable, signature
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, cast

import msgspec

from offbook.errors import ToolFailed, UsageError, did_you_mean, require_known
from offbook.exchange.messages import Content, Image, RawBlock, Text, join_text
from offbook.exchange.people import Allow, Deny, PersonQuestion
from offbook.options import Name, decode
from offbook.subjects.subject import MOCKS_USED
from offbook.trace.events import Verdict

if TYPE_CHECKING:
    from offbook.subjects.subject import RunContext


OUTCOME_SHAPES = (
    'return a string, a ToolOutcome, or {"content": [{"type": "text", "text": …}], "details": …}'
)
POSITIONAL = {Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD}


class ToolOutcome(msgspec.Struct, frozen=True):
    """The result of a tool: content for the model, and details for hooks, tests and the trace.

        return ToolOutcome((Text("3 orders"),), details={"ids": [1, 2, 3]})

    A tool may also return a string, None, or a dict with the same fields.
    """

    content: tuple[Content, ...] = ()
    details: Any = None
    is_error: bool = False

    @property
    def text(self) -> str:
        """The text of the content."""
        return join_text(self.content)


def error_outcome(text: str, details: Any = None) -> ToolOutcome:
    """Return an error result with this text."""
    return ToolOutcome((Text(text),), details, is_error=True)


class OutcomeFields(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A tool result as a dict; `isError` is the spelling of MCP and of TypeScript extensions."""

    content: str | list[Any]
    details: Any = {}
    is_error: bool | None = None
    isError: bool | None = None  # noqa: N815 - as above


def to_tool_outcome(value: object, where: str) -> ToolOutcome:
    """Convert a tool's return value: a string, None, a `ToolOutcome`, or a dict of its fields."""
    if isinstance(value, str):  # by far the most frequent, so it is tested first
        return ToolOutcome((Text(value),), {})
    if isinstance(value, ToolOutcome):
        return value
    if value is None:
        return ToolOutcome((), {})
    fields = decode(value, OutcomeFields, "tool result", where=where, hint=OUTCOME_SHAPES)
    blocks = [fields.content] if isinstance(fields.content, str) else fields.content
    content: list[Content] = []
    for block in blocks:
        if isinstance(block, (Text, Image, RawBlock)):
            content.append(block)
        elif isinstance(block, str):
            content.append(Text(block))
        else:
            kind: Any = Content  # msgspec takes unions
            name = "content block of a tool result"
            content.append(decode(block, kind, name, where=where, hint=OUTCOME_SHAPES))
    is_error = bool(fields.is_error or fields.isError)
    return ToolOutcome(tuple(content), fields.details, is_error)


def describe_exception(error: BaseException) -> str:
    """Return an exception as one line: its type, and its message if it has one."""
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def fit_arity(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that drops the trailing arguments that `function` does not accept.

    A mock may be written `lambda: "ok"` where it is called with the parameters.
    """
    try:
        parameters = signature(function).parameters.values()
    except (TypeError, ValueError):  # functions written in C may have no signature
        return function
    if any(parameter.kind is Parameter.VAR_POSITIONAL for parameter in parameters):
        return function
    accepted = sum(parameter.kind in POSITIONAL for parameter in parameters)

    def fitted(*args: Any) -> Any:
        return function(*args[:accepted])

    return fitted


async def evaluate(value: Any, *args: Any) -> Any:
    """Return a value, or what a function returns for these arguments, plain or async."""
    answer = value(*args) if callable(value) else value
    return await answer if isawaitable(answer) else answer


class MockTool:
    """The replacement of a tool: a constant result, or a function of the parameters.

    An exception as the result is a tool that fails: `{"bash": TimeoutError("no shell")}`.
    """

    def __init__(self, name: str, handler: object) -> None:
        self._where = f"mock_tools[{name!r}]"
        self._handler = fit_arity(handler) if callable(handler) else None
        # A wrong constant is reported before the run, a wrong return value when it is returned.
        self._constant = ToolOutcome() if callable(handler) else self._to_outcome(handler)

    async def run(self, params: dict[str, Any], _context: object) -> ToolOutcome:
        """Return the mocked result. An exception of the test's function is raised as it is."""
        if self._handler is None:
            return self._constant
        try:
            answer = await evaluate(self._handler, params)
        except BaseException as error:
            error.add_note(f"in {self._where}")
            raise
        return self._to_outcome(answer)

    def _to_outcome(self, answer: object) -> ToolOutcome:
        if isinstance(answer, Exception):
            return error_outcome(describe_exception(answer), {})
        return to_tool_outcome(answer, self._where)


class ToolMocks:
    """The mocks of an agent's tools by name: which of them answer, and which were never used.

    The tools of extensions are usually under test: they win over mocks, unless the test has
    `mock_extensions`.
    """

    def __init__(self, mocks: Mapping[str, Any], *, mock_extensions: bool) -> None:
        decode(mocks, dict[Name, Any], "mock_tools", hint='write mock_tools={"bash": "ok"}')
        self.by_name = {name: MockTool(name, handler) for name, handler in mocks.items()}
        self._mock_extensions = mock_extensions
        self._unused = set(self.by_name)

    def find(self, name: str, owner: str) -> MockTool | None:
        """Return the mock of a tool that this extension registered; an empty one is none."""
        return None if owner and not self._mock_extensions else self.by_name.get(name)

    def note_use(self, name: str) -> None:
        """Note that a mock was called, even if a hook blocks it: it protects the machine."""
        self._unused.discard(name)

    def list_unused(self, owners: Mapping[str, str]) -> dict[str, str]:
        """Return the mocks that were never used, each with the extension that won over it."""
        return {
            name: "" if self._mock_extensions else owners.get(name, "")
            for name in self.by_name
            if name in self._unused
        }


def check_mocks_used(
    unused: Mapping[str, str], answers: Mapping[str, int], host: Sequence[str] = ()
) -> list[Verdict]:
    """Return a failed verdict if mocks were never used.

    `unused` are mocks of tools, each with the extension whose tool ran instead; `answers` is the
    number of answers left in `mock_ui`; `host` are mocks of the host.
    """
    names = [
        f"{name} (the tool of {owner} ran instead; mock_extension_tools=True mocks it)"
        if owner
        else name
        for name, owner in unused.items()
    ]
    problems = [f"mock_tools {', '.join(names)}"] if names else []
    problems += [f"{n} answer{'s' * (n > 1)} of mock_ui[{m!r}]" for m, n in answers.items()]
    problems += [f"mock_host {', '.join(host)}"] if host else []
    if not problems:
        return []
    message = f"never used: {'; '.join(problems)}"
    return [Verdict(MOCKS_USED, "fail", message, actual=[*unused, *answers, *host])]


# ------------------------------------------------------------------------------ mock ui
# The user interface of a session, mocked by the test.
#
# Extensions ask questions (`confirm`, `select`, `input`, `editor`) and show things (`notify`,
# `set_status`, `set_widget`) through `ctx.ui`. The answers come from `mock_ui`; every call is an
# event `ui.*` in the trace.

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
    function of the question's arguments. In a script with people, `person("Delete?", allow)`
    answers the other questions. The defaults: `confirm` returns True, `select` the first item,
    `input` and `editor` an empty string.
    """

    def __init__(self, answers: dict[str, Any], context: RunContext, *, has_ui: bool) -> None:
        self._answers = (DEFAULTS if has_ui else DECLINED) | answers
        self._context = context
        self._has_ui = has_ui
        self._given = set(answers)
        # Lists are copied: the answers of a test may serve several sessions.
        self._queues: dict[str, deque[Any]] = {
            method: deque(cast("list[Any]", answer))
            for method, answer in answers.items()
            if isinstance(answer, list)
        }
        self._hub = context.hub
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
            answer = await evaluate(answer, *args)
        except Exception as error:
            self.error = self.error or error
            raise
        self._emit(method, *args, **({} if method not in self._answers else {"answer": answer}))
        return answer

    def raise_errors(self) -> None:
        """Raise the error of an answer, which an extension may have caught, or of a question."""
        if self.error is None and not self.questions:
            return
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
        where = f"mock_ui[{method!r}]"
        try:
            answer: Any = self._answers[method]
            if self._has_ui and method not in self._given and self._context.has_people():
                where = f"person({args[0]!r}, …)"
                answer = await self._ask_person(method, *args)
            elif (queue := self._queues.get(method)) is not None:
                if not queue:
                    raise UsageError(  # noqa: TRY301 - kept below, as all errors of the test
                        f"no answer left for {args[0]!r}: {len(answer)} given",
                        where=where,
                        hint="add an answer to the list",
                    )
                answer = queue.popleft()
            answer = await evaluate(answer, *args)
            if not _fits(method, answer):
                raise UsageError(  # noqa: TRY301 - as above
                    f"expected {_expected(method)} as answer to {args[0]!r},"
                    f" got {type(answer).__name__}",
                    where=where,
                )
            if method == "select" and answer is not None:
                answer = self._choose(answer, where, *args)
        except Exception as error:
            # Kept, because an extension may catch it.
            self.error = self.error or error
            raise
        self._emit(method, *args, answer=answer)
        return answer

    async def _ask_person(self, method: str, *args: Any) -> Any:
        """Return the answer of the script: to confirm is to allow, to cancel is to deny."""
        texts = [each for each in args if isinstance(each, str) and each]
        asked = PersonQuestion(" ".join(texts), default=DEFAULTS[method])
        answer = await self._context.ask(asked)
        if isinstance(answer, Deny):
            return False if method == "confirm" else None
        if not isinstance(answer, Allow):
            return answer
        if method == "confirm" and answer.params is None:
            return True
        raise UsageError(
            f"the dialog {args[0]!r} has no parameters to change"
            if method == "confirm"
            else f"expected {_expected(method)} as answer to {args[0]!r}, got allow",
            where=f"person({args[0]!r}, …)",
        )

    def _choose(self, answer: str | int, where: str, title: str, items: list[str]) -> str | None:
        if not items and "select" not in self._given:
            return None  # the first item is only the default
        if isinstance(answer, int):
            if answer in range(len(items)):
                return items[answer]
        elif answer in items:
            return answer
        raise UsageError(
            f"answer {answer!r} is not an item of {title!r}",
            where=where,
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
        require_known("mock_ui: unknown method", method, (*METHODS, *others))
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
