"""The tools of an agent without a framework: functions of the user's code with a tool's name.

A loop over an SDK calls them itself, so nothing else sees them. They are found through the function
that is driven: its closure, its module, and the objects and tables there. The code of such a
function is exchanged while a behaviour runs, so that every reference to it has the other code.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from inspect import CO_COROUTINE, Signature, signature
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import msgspec

from offbook.determinism.run_context import is_library
from offbook.exchange.tool_effects import classify, split_words
from offbook.subjects.faulty_results import finish_call
from offbook.trace.hub import current_faults

if TYPE_CHECKING:
    from offbook.exchange.messages import ToolCall
    from offbook.exchange.model import Request, Tool

ReadCall = Callable[[dict[str, Any]], "tuple[str, dict[str, Any]] | None"]
Replies = Sequence[Sequence["ToolCall"] | None]
# In the name of a function that gets the name of a tool and its arguments.
DISPATCH_WORDS = frozenset(
    {"tool", "tools", "call", "run", "execute", "dispatch", "invoke", "handle"}
)
MAX_OBJECTS = 3000
NO_DATA = {"role", "parameters", "input_schema", "properties", "description"}
MIN_WORDS = 3  # of a text that may be data
KEY_WORDS = {
    "key",
    "idempotency",
    "nonce",
    "token",
}  # of a parameter by which repetitions are known
PLACEHOLDER = "offbook: the function to call"


# The code that a function gets. It has other globals there: the function to call is a constant.
def _call(*args: Any, **named: Any) -> Any:
    function: Any = "offbook: the function to call"
    return function(*args, **named)


async def _call_async(*args: Any, **named: Any) -> Any:
    function: Any = "offbook: the function to call"
    return await function(*args, **named)


def _unchanged(value: Any) -> Any:
    return value


class FinishedTool(NamedTuple):
    """What a function received and returned, and the state of the world after it."""

    given: dict[str, Any]
    state: str
    value: Any


class PlainTools:
    """Watches functions by the names of tools. `inputs` are what each one received.

    `describe` returns the state of the world as a text; `finished` are the runs that returned
    something.
    """

    def __init__(self, agent: object, describe: Callable[[], str] = str) -> None:
        self._agent = agent
        self._describe = describe
        self._undo: list[tuple[FunctionType, CodeType]] = []
        self._originals: dict[int, FunctionType] = {}
        self.inputs: dict[str, list[Any]] = {}
        self.finished: dict[str, list[FinishedTool]] = {}

    def watch(self, tools: Collection[str]) -> None:
        """Exchange the code of the functions with these names.

        If there is none, that of the functions that get the name of a tool and its arguments.
        """
        for name, function in find_functions(self._agent, tools):
            if all(function is not other for other, _ in self._undo):
                self._exchange(function, lambda given, name=name: (name, given))
        if not self._undo:
            for _, function in _walk(self._agent):
                if isinstance(function, FunctionType) and _may_dispatch(function):
                    self._exchange(function, lambda given: _read_dispatch(given, tools))

    def original(self, function: FunctionType) -> FunctionType:
        """Return the function with the code of the user."""
        return self._originals.get(id(function), function)

    def close(self) -> None:
        """Restore the code."""
        while self._undo:
            function, code = self._undo.pop()
            function.__code__ = code
            vars(function).pop("__signature__", None)

    def _exchange(self, function: FunctionType, read: ReadCall) -> None:
        """Exchange the code; `read` returns the tool of a call and its input, None of any other."""
        code = function.__code__
        original = FunctionType(
            code,
            function.__globals__,
            function.__name__,
            function.__defaults__,
            function.__closure__,
        )
        original.__kwdefaults__ = function.__kwdefaults__
        original.__annotations__ = function.__annotations__
        declared = _read_signature(original)

        def begin(args: Any, named: Any) -> Any:
            try:
                given = dict(declared.bind(*args, **named).arguments)
            except TypeError:
                given = dict(named)
            given.pop("self", None)
            if (found := read(given)) is None:
                return _unchanged
            name, given = found
            faults = current_faults()
            fault = None if faults is None else faults.call_blocking("tool", name)
            self.inputs.setdefault(name, []).append(given)
            finished = self.finished.setdefault(name, [])

            def finish(value: Any) -> Any:
                finished.append(FinishedTool(given, self._describe(), value))
                return value if faults is None else finish_call(fault, value, faults)

            return finish

        def run(*args: Any, **named: Any) -> Any:
            finish = begin(args, named)
            return finish(original(*args, **named))

        async def run_async(*args: Any, **named: Any) -> Any:
            finish = begin(args, named)
            return finish(await original(*args, **named))

        is_async = bool(code.co_flags & CO_COROUTINE)
        template = (_call_async if is_async else _call).__code__
        runner = run_async if is_async else run
        constants = tuple(runner if c == PLACEHOLDER else c for c in template.co_consts)
        # The closure of a function cannot be exchanged, so its code names the same variables.
        function.__code__ = template.replace(
            co_consts=constants,
            co_freevars=code.co_freevars,
            co_name=code.co_name,
            co_filename=code.co_filename,
            co_firstlineno=code.co_firstlineno,
        )
        # An agent may make the schema of a tool from its signature.
        vars(function).setdefault("__signature__", declared)
        self._originals[id(function)] = original
        self._undo.append((function, code))


class LoopWatch:
    """Lets the faults of a run reach the tools of a loop, and notes what they did."""

    def __init__(self, agent: object, describe: Callable[[], str] | None) -> None:
        self._has_state = describe is not None
        self._tools = PlainTools(agent, describe or str)
        self._offered: dict[str, Tool] = {}
        self._before: list[dict[str, int]] = []  # the runs of each tool until each request

    def note_request(self, request: Request) -> None:
        """Find the functions of the tools, and note what has run so far."""
        if not self._offered:
            self._offered = {tool.name: tool for tool in request.tools}
            self._tools.watch(self._offered)
        self._before.append(self._count())

    def close(self) -> None:
        """Restore the functions."""
        self._tools.close()

    def find_repeated(self, replies: Replies) -> Iterator[tuple[str, str]]:
        """Yield each powerful tool that ran more often than the reply before had calls of it.

        `replies` are the calls of each reply; None of an error of the provider. Only equal inputs
        count: a tool may use another one. Runs after the first that leave the state of the world
        as it was repeat no effect; without a state, those with an idempotency key.
        """
        for calls, ran in self._split(replies):
            names = [made.name for made in calls]
            for name in {*names} & {*ran}:
                if not classify(self._offered[name]).sink:
                    continue
                given = ran[name][0].given if ran[name] else {}
                states = [one.state for one in ran[name] if one.given == given]
                harmless = len({*states}) == 1 if self._has_state else has_key(given)
                if not harmless and len(states) > names.count(name):
                    times = f"{name} ran {len(states)} times with {given}"
                    yield name, f"one call of the model: {times}"

    def find_exchanged(
        self, replies: Replies, sent: Mapping[str, str]
    ) -> Iterator[tuple[str, str]]:
        """Yield each call whose result is that of another call of the same reply.

        `sent` are the texts of the results by the ids of the calls.
        """
        for calls, ran in self._split(replies):
            returned: dict[str, str] = {}
            for made in calls:
                runs = [r for r in ran.get(made.name, ()) if r.given == made.arguments]
                # Two equal calls cannot be told apart.
                if len(runs) == 1 and isinstance(runs[0].value, str):
                    returned[made.id] = runs[0].value
            for call_id, own in returned.items():
                got = sent.get(call_id, own)
                if got != own and got in returned.values():
                    name = next(made.name for made in calls if made.id == call_id)
                    # One cause, whichever tools were called.
                    yield "exchanged", describe_exchange(name, own, got)

    def _split(
        self, replies: Replies
    ) -> Iterator[tuple[Sequence[ToolCall], dict[str, list[FinishedTool]]]]:
        """Yield the calls of each reply with what ran after it, also after an error that followed.

        An agent that asks again may run the same calls again.
        """
        paired = zip(self._before, replies, strict=False)
        known = [(before, calls) for before, calls in paired if calls is not None]
        ends = [*(before for before, _ in known[1:]), self._count()]
        finished = self._tools.finished
        for (before, calls), after in zip(known, ends, strict=False):
            yield calls, {n: finished[n][before.get(n, 0) : end] for n, end in after.items()}

    def _count(self) -> dict[str, int]:
        return {name: len(runs) for name, runs in self._tools.finished.items()}


def _may_dispatch(function: FunctionType) -> bool:
    """Return whether a function of the user may run a tool of which it gets the name."""
    code = function.__code__
    is_own = not is_library(code.co_filename)
    return is_own and code.co_argcount >= 2 and bool(DISPATCH_WORDS & {*split_words(code.co_name)})  # noqa: PLR2004


def _read_dispatch(
    given: Mapping[str, Any], tools: Collection[str]
) -> tuple[str, dict[str, Any]] | None:
    """Return the tool that a function was asked to run, and its input, which may be JSON."""
    values = [*given.values()]
    name = next((value for value in values if isinstance(value, str) and value in tools), None)
    if name is None:
        return None
    for value in values:
        if isinstance(value, dict):
            return name, dict(cast("dict[str, Any]", value))
        if isinstance(value, str) and value.startswith("{"):
            with suppress(msgspec.DecodeError, UnicodeEncodeError):
                return name, msgspec.json.decode(value, type=dict[str, Any])
    return None


def describe_exchange(tool: str, own: str, got: str) -> str:
    """Return how the result of one call became that of another."""
    return f"{tool} returned {own!r}, and the model got {got!r} of another call"


def has_key(given: Mapping[str, Any]) -> bool:
    """Return whether an input has a key by which a tool knows a repeated call."""
    return any(KEY_WORDS & {*split_words(name)} for name in given)


def _read_signature(function: FunctionType) -> Signature:
    try:
        return signature(function, eval_str=True)
    except (NameError, SyntaxError):  # an annotation of another module
        return signature(function)


def find_functions(root: object, names: Collection[str]) -> Iterator[tuple[str, FunctionType]]:
    """Yield the functions of the user with these names, or under these keys, in an object."""
    for key, value in _walk(root):
        if isinstance(value, FunctionType) and not is_library(value.__code__.co_filename):
            name = value.__name__ if value.__name__ in names else key
            if name in names:
                yield name, value


def _walk(root: object) -> Iterator[tuple[str, Any]]:
    """Yield what an object can reach, each with the name or key under which it was found."""
    waiting: deque[tuple[str, Any]] = deque([("", root)])
    visited: set[int] = set()
    while waiting and len(visited) < MAX_OBJECTS:
        key, value = waiting.popleft()
        if id(value) in visited or isinstance(value, (str, bytes, int, float, type, ModuleType)):
            continue
        visited.add(id(value))
        yield key, value
        waiting.extend(_list_parts(key, value))


def _list_parts(key: str, value: Any) -> Iterator[tuple[str, Any]]:
    match value:
        case FunctionType():
            yield from _list_variables(value)
        case MethodType():
            yield key, value.__func__
            yield "", value.__self__
        case partial():
            yield key, cast("partial[Any]", value).func
        case dict():
            items = cast("dict[Any, Any]", value).items()
            yield from ((name if isinstance(name, str) else "", item) for name, item in items)
        case list() | tuple() | set():
            yield from (("", item) for item in cast("list[Any]", value))
        case msgspec.Struct():
            yield from ((name, getattr(value, name)) for name in value.__struct_fields__)
        case _:
            kind = cast("type[object]", type(value))
            if kind.__module__.split(".")[:2] in (["offbook", "trace"], ["offbook", "runs"]):
                return
            yield from getattr(value, "__dict__", {}).items()
            if any(_is_own(method) for method in vars(kind).values()):
                yield from vars(kind).items()


def _list_variables(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """Yield the variables of a function: defaults, its closure, and its module if it is ours."""
    defaults = function.__defaults__ or ()
    names = function.__code__.co_varnames[: function.__code__.co_argcount]
    # A function whose code is exchanged has no names for them.
    names = ("",) * (len(defaults) - len(names)) + names[max(0, len(names) - len(defaults)) :]
    yield from zip(names, defaults, strict=True)
    yield from (function.__kwdefaults__ or {}).items()
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:  # it is empty so far
            continue
    if is_library(function.__code__.co_filename):
        return
    for code in _list_codes(function.__code__):
        for name in code.co_names:
            if name in function.__globals__:
                yield name, function.__globals__[name]


def _list_codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _list_codes(constant)


def _is_own(value: object) -> bool:
    return isinstance(value, FunctionType) and not is_library(value.__code__.co_filename)


# --- The data of a tool


class ToolData:
    """The texts from which a tool makes its results: in its tables, and in its own code.

    A tool may filter what others wrote before it returns it. An instruction in these texts goes
    through the filter; one in the result would not.
    """

    def __init__(self) -> None:
        self._undo: list[Callable[[], object]] = []
        self._texts: list[str] = []

    def add(self, function: FunctionType, change: Callable[[str], str]) -> None:
        """Change the texts of a function until `close`."""
        for _, value in _walk(function):
            # Not the messages of a conversation, and not the schema of a tool.
            table: Any = value
            if isinstance(table, dict) and not NO_DATA & {*cast("dict[Any, Any]", table)}:
                self._change_items(table, [*cast("dict[Any, Any]", table)], change)
            elif isinstance(table, list):
                self._change_items(table, [*range(len(cast("list[Any]", table)))], change)
        code = function.__code__
        changed = tuple(
            change(constant) if _is_prose(constant) and constant != function.__doc__ else constant
            for constant in code.co_consts
        )
        if changed != code.co_consts:
            self._texts += [c for c in (*code.co_consts, *changed) if _is_prose(c)]
            function.__code__ = code.replace(co_consts=changed)
            self._undo.append(lambda: setattr(function, "__code__", code))

    def _change_items(self, table: Any, keys: list[Any], change: Callable[[str], str]) -> None:
        for key in keys:
            item: Any = table[key]
            if _is_prose(item):
                table[key] = changed = change(item)
                self._texts += [item, changed]
                self._undo.append(partial(_put_back, table, changed, item))

    def is_source_of(self, result: object) -> bool:
        """Return whether a result has half of one of these texts, or half of it is from one."""
        words = {*str(result).split()}
        return any(
            len(own := {*text.split()})
            and len(own & words) >= max(MIN_WORDS, min(len(own), len(words)) / 2)
            for text in self._texts
        )

    def close(self) -> None:
        """Restore the texts."""
        while self._undo:
            self._undo.pop()()


def _put_back(table: Any, changed: str, item: str) -> None:
    """Replace a changed text where it is now: the agent may have moved or removed it."""
    keys: list[Any] = [*table] if isinstance(table, dict) else [*range(len(table))]
    for key in keys:
        if table[key] is changed:
            table[key] = item


def _is_prose(value: object) -> bool:
    return isinstance(value, str) and value.count(" ") >= MIN_WORDS - 1
