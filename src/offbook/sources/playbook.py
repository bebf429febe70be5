"""A playbook scripts what the model does: `when` it is told this, it `call`s that and `say`s so.

    when("Refund order 7", [
        call("find_order", {"id": 7}),
        [call("refund", {"id": 7}), call("notify", {"id": 7})],    # two calls in one message
        say("Done."),
    ])

A turn is a prompt and its steps; a step is one message of the model. A `role` is a script of its
own for requests that look different: a subagent, a title generator, a router.
"""

from __future__ import annotations

import re
from asyncio import CancelledError
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from inspect import isawaitable, signature
from typing import TYPE_CHECKING, Any, cast, get_args

import msgspec

from offbook.errors import (
    ModelError,
    PlaybookError,
    ScriptExhausted,
    ScriptMismatch,
    ScriptUnfinished,
    nearest,
)
from offbook.exchange.messages import AnyBlock, Text, Thinking, ToolCall, ToolResult
from offbook.exchange.reply import Reply, Stop, Usage
from offbook.sources.auxiliary import stand_in

if TYPE_CHECKING:
    from offbook.exchange.messages import Message
    from offbook.exchange.request import Request

Params = Mapping[str, Any]
LateParams = Callable[[], "Params | Awaitable[Params]"]
Callback = Callable[[ToolResult], object]

SHOWN = 5
SAID = 60
GIVEN = 80


class Call(msgspec.Struct, frozen=True):
    """The model calls a tool."""

    tool: str
    params: Params | LateParams
    callbacks: tuple[Callback, ...] = ()

    def then(self, callback: Callback) -> Call:
        """Hand the tool's result to `callback` once it is there; what it raises fails the run.

        Several callbacks are asked in the order in which they were added.
        """
        if not callable(callback) or not _takes(callback, 1):
            raise PlaybookError(
                f"call({self.tool!r}, …).then() takes a function of the result",
                hint=f"write call({self.tool!r}, …).then(lambda result: …)",
            )
        return msgspec.structs.replace(self, callbacks=(*self.callbacks, callback))


class Say(msgspec.Struct, frozen=True):
    """The model says something; on its own, that ends the turn."""

    text: str
    stop: Stop = "stop"


class Think(msgspec.Struct, frozen=True):
    """The model thinks before whatever comes next in the same message."""

    text: str


class Fail(msgspec.Struct, frozen=True):
    """The provider answers with an error."""

    message: str
    status: int
    category: str
    retry_after: float | None


Action = Call | Say | Think | Fail
Actions = Sequence["Action | Sequence[Action]"]


class Turn(msgspec.Struct, frozen=True):
    """A prompt, and what the model does about it."""

    text: str
    actions: Actions


Match = str | re.Pattern[str]


class Role(msgspec.Struct, frozen=True):
    """A part in the cast: what it does, and by what its requests are known."""

    name: str
    actions: Actions
    system: Match | None = None
    model: Match | None = None
    tools: tuple[str, ...] | None = None
    first: Match | None = None

    def plays(self, request: Request) -> bool:
        """Whether this request is one of this role's."""
        return (
            _fits(self.system, request.system)
            and _fits(self.model, request.model)
            and _fits(self.first, request.first)
            and (self.tools is None or set(self.tools) <= set(request.offered))
        )

    def misfits(self, request: Request) -> list[tuple[str, object, object]]:
        """What this request would need to be one of this role's: by what, wanted, came."""
        asked: list[tuple[str, Any, Any]] = [
            (name, getattr(self, name), getattr(request, name))
            for name in ("system", "model", "first")
        ]
        found = [(by, wanted, came) for by, wanted, came in asked if not _fits(wanted, came)]
        if self.tools is not None and not set(self.tools) <= set(request.offered):
            found.append(("tools", self.tools, request.offered))
        return found


def _fits(match: Match | None, text: str) -> bool:
    if match is None:
        return True
    return match in text if isinstance(match, str) else match.search(text) is not None


def _takes(function: Callable[..., object], count: int) -> bool:
    """Whether a function can be called with so many arguments; one that hides it can."""
    try:
        signature(function).bind(*range(count))
    except TypeError:
        return False
    except ValueError:  # a function of C that does not tell
        return True
    return True


def when(text: str, actions: Actions) -> Turn:
    """On this prompt, the model does these things, one after the other."""
    if not isinstance(text, str):
        raise PlaybookError(
            f"when() takes the prompt first, a string, not {type(text).__name__}",
            hint='write when("what the user says", [call(…), say(…)])',
        )
    return Turn(text, _listed(actions, f"when({text!r}, …)"))


def call(tool: str, params: Params | LateParams | None = None) -> Call:
    """The model calls `tool`; a function gives the parameters when the call's turn comes."""
    if not isinstance(tool, str) or not tool:
        raise PlaybookError("call() takes the tool's name first", hint='write call("bash", {…})')
    if params is not None and not callable(params) and not isinstance(params, Mapping):
        raise PlaybookError(
            f"call({tool!r}, …) takes a dict or a function, not {type(params).__name__}",
            hint=f'write call({tool!r}, {{"name": value}}) or call({tool!r}, lambda: {{…}})',
        )
    if callable(params) and not _takes(params, 0):
        raise PlaybookError(
            f"the function of call({tool!r}, …) takes arguments, but is given none",
            hint=f"write call({tool!r}, lambda: {{…}}); it can see what .then() has kept",
        )
    if params is None or callable(params):
        return Call(tool, params or {})
    return Call(tool, _named(params, tool))


def _named(params: Mapping[Any, Any], tool: str) -> Params:
    odd = next((key for key in params if not isinstance(key, str)), None)
    if odd is not None:
        raise PlaybookError(
            f"a parameter of call({tool!r}, …) is named {odd!r}, a {type(odd).__name__}",
            hint="parameters are named by strings",
        )
    return params


def say(text: str, *, stop: Stop = "stop") -> Say:
    """The model says `text`, and the turn ends."""
    if not isinstance(text, str):
        raise PlaybookError(f"say() takes a string, not {type(text).__name__}", hint='say("Done.")')
    if stop not in get_args(Stop):
        raise PlaybookError(f"say(stop={stop!r})", hint=nearest(str(stop), get_args(Stop)))
    return Say(text, stop)


def think(text: str) -> Think:
    """The model thinks `text` before the next step."""
    if not isinstance(text, str):
        raise PlaybookError(
            f"think() takes a string, not {type(text).__name__}", hint='think("Let me see.")'
        )
    return Think(text)


def fail(
    message: str = "the model is overloaded",
    *,
    status: int = 529,
    category: str = "",
    retry_after: float | None = None,
) -> Fail:
    """The provider answers this request with an error."""
    if not isinstance(message, str) or not isinstance(status, int):
        raise PlaybookError(
            f"fail() takes a message and a status, not {type(message).__name__} and {status!r}",
            hint='write fail("overloaded", status=529)',
        )
    return Fail(message, status, category, retry_after)


def role(
    name: str,
    actions: Actions,
    *,
    system: Match | None = None,
    model: Match | None = None,
    tools: Iterable[str] | None = None,
    first: Match | None = None,
) -> Role:
    """A part for requests known by their system prompt, model, tools or first user message.

    Strings match when they are contained, patterns when they are found, tools when all of them
    are offered. Each `say` ends one conversation of the role; the next one goes on from there.
    """
    place = f"role({name!r}, …)"
    if not isinstance(name, str) or not name:
        raise PlaybookError(
            "role() takes its name first", hint='write role("researcher", […], system="…")'
        )
    if system is None and model is None and tools is None and first is None:
        raise PlaybookError(
            f"{place} has nothing to be known by", hint="give it system=, model=, tools= or first="
        )
    for by, match in (("system", system), ("model", model), ("first", first)):
        if match is not None and not isinstance(match, (str, re.Pattern)):
            raise PlaybookError(
                f"{place}: {by} is a {type(match).__name__}", hint=f'give {by}="…" or re.compile(…)'
            )
    steps = _listed(actions, place)
    if not steps:
        raise PlaybookError(f"{place} has no actions", hint="let it end with say(…)")
    return Role(name, steps, system, model, _names(tools, place), first)


def _names(tools: Iterable[str] | None, place: str) -> tuple[str, ...] | None:
    if tools is None:
        return None
    if isinstance(tools, (str, Mapping)) or not isinstance(tools, Iterable):
        kind = type(cast("object", tools)).__name__
        raise PlaybookError(f"{place}: tools is a {kind}", hint='give tools=["…"]')
    return tuple(tools)


def _listed(actions: object, where: str) -> Actions:
    if isinstance(actions, (Call, Say, Think, Fail)) or not isinstance(actions, Sequence):
        raise PlaybookError(
            f"{where} takes a list of actions, not {type(actions).__name__}",
            hint="put the actions into [ … ]",
        )
    checked: list[Action | tuple[Action, ...]] = []
    for at, action in enumerate(cast("Sequence[object]", actions), 1):
        group = isinstance(action, (list, tuple))
        if group:
            _check_group(cast("Sequence[object]", action), f"action {at} of {where}")
        for part in cast("Sequence[object]", action) if group else (action,):
            if not isinstance(part, (Call, Say, Think, Fail)):
                raise PlaybookError(
                    f"action {at} of {where} is a {type(part).__name__}",
                    hint="actions are call(…), say(…), think(…), fail(…), or a list of them",
                )
        checked.append(cast("Any", tuple(cast("list[Action]", action)) if group else action))
    return tuple(checked)


def _check_group(group: Sequence[object], where: str) -> None:
    if not group:
        raise PlaybookError(f"{where} is an empty list", hint="a list is one message: fill it")
    if len(group) > 1 and any(isinstance(part, Fail) for part in group):
        raise PlaybookError(
            f"{where} fails and says something", hint="let fail(…) stand alone: it is no message"
        )


class Step(msgspec.Struct, frozen=True):
    """One message of the model, with its place in the whole playbook (counted from 1)."""

    number: int
    actions: tuple[Action, ...]
    place: str

    @property
    def calls(self) -> list[Call]:
        """The tools that it calls."""
        return [action for action in self.actions if isinstance(action, Call)]

    def __str__(self) -> str:
        return f"{self.number}. {' + '.join(map(describe, self.actions))}"


def describe(action: Action) -> str:
    """An action as its author wrote it, cut to fit a line."""
    match action:
        case Call(tool, params):
            shown = "<late-bound>" if callable(params) else _cut(_dump(params), GIVEN)
            return f'call("{tool}", {shown})'
        case Say(text):
            return f'say("{_cut(text, SAID)}")'
        case Think(text):
            return f'think("{_cut(text, SAID)}")'
        case Fail(message, status):
            return f'fail("{_cut(message, SAID)}", status={status})'


def _dump(value: object) -> str:
    return msgspec.json.encode(value, enc_hook=repr).decode()


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}…"


class _Part:
    """One script and how far it has come."""

    __slots__ = ("last", "name", "opening", "queue")

    def __init__(self, name: str) -> None:
        self.name = name
        self.queue: deque[Step] = deque()
        self.last: Step | None = None
        self.opening = ""

    @property
    def failed(self) -> bool:
        """Whether its last step was an error of the provider, after which a client asks again."""
        return self.last is not None and isinstance(self.last.actions[-1], Fail)


class Playbook:
    """The scripted model: a `ModelSource` that answers with the steps, in their order.

    What the agent did with a step comes back in its next request, whatever way that came: so
    `.then()` and late-bound parameters work alike in this process and over a wire.

    An agent that asks for more than was scripted fails the run; with `strict=False` it is told
    "[PLAYBOOK EXHAUSTED]" instead.

    Turns are opened by whoever prompts the agent. Where nobody does, over a wire, the playbook is
    `following`: a new user message opens the next turn if the turn's text is in it.
    """

    def __init__(self, *, strict: bool = True, following: bool = False) -> None:
        self._strict = strict
        self._following = following
        self._owners: dict[str, _Part] = {}
        self._roles: list[tuple[Role, _Part]] = []
        self._turns: deque[tuple[Turn, _Part]] = deque()
        self._turn: Turn | None = None
        self._part = _Part("main")
        self._spent: list[_Part] = []
        self._waiting: dict[str, tuple[Step, Call]] = {}
        self._steps = 0
        self._calls = 0
        self._system: str | None = None
        self.consumed = 0
        self.failure: BaseException | None = None

    def load(self, *script: Turn | Role) -> None:
        """Put turns and roles behind what is there already."""
        for item in cast("tuple[object, ...]", script):
            if isinstance(item, Turn):
                part = _Part("main")
                part.queue.extend(self._number(item.actions, f"when({_cut(item.text, SAID)!r})"))
                self._turns.append((item, part))
            elif isinstance(item, Role):
                part = _Part(item.name)
                part.queue.extend(self._number(item.actions, f"role({item.name!r})"))
                self._roles.append((item, part))
            else:
                raise PlaybookError(
                    f"a playbook has turns and roles, not {type(item).__name__}",
                    hint='write run(when("…", […]), …)',
                )

    def drop(self) -> None:
        """Forget what is left of a run that failed; the numbers go on."""
        self._turns.clear()
        self._spent.clear()
        self._waiting.clear()
        self._part = _Part("main")
        for _, part in self._roles:
            part.queue.clear()
        self.failure = None

    def _number(self, actions: Actions, place: str) -> list[Step]:
        steps: list[Step] = []
        thoughts: tuple[Action, ...] = ()
        for action in actions:
            group = (action,) if isinstance(action, (Call, Say, Think, Fail)) else tuple(action)
            if all(isinstance(part, Think) for part in group):
                thoughts += group
                continue
            self._steps += 1
            steps.append(Step(self._steps, thoughts + group, place))
            thoughts = ()
        if thoughts:
            raise PlaybookError(f"{place} ends in a thought", hint="let a say(…) or call(…) follow")
        return steps

    def open(self, turn: Turn) -> None:
        """Begin the next turn, which must be this one."""
        if not self._turns or self._turns[0][0] is not turn:
            raise PlaybookError(f"when({turn.text!r}) is not the next turn")
        self._open()

    def _open(self) -> _Part:
        self._turn, part = self._turns.popleft()
        if self._part.queue:
            self._spent.append(self._part)
        self._part = part
        return part

    @property
    def left(self) -> list[Step]:
        """The steps that nobody has asked for yet, in the script's order."""
        parts = [*self._spent, self._part, *(part for _, part in self._turns)]
        steps = [step for part in parts for step in part.queue]
        steps += [step for _, part in self._roles for step in part.queue]
        return sorted(steps, key=lambda step: step.number)

    @property
    def remaining(self) -> int:
        """How many steps nobody has asked for yet."""
        return len(self.left)

    async def reply(self, request: Request, /) -> Reply:
        """The next step of whichever part this request belongs to."""
        try:
            await self._hear(request)
            part = self._cast(request)
            if part is None and (aside := stand_in(request)) is not None:
                return aside
            part = part or self._choose(request)
            if not part.queue:
                return self._run_dry(part, request)
            step = part.queue.popleft()
            part.last = step
            self.consumed += 1
            return await self._perform(step, part, request)
        except ModelError:  # what the script wanted: no failure of its own
            raise
        except Exception as error:  # an agent may swallow it; the run must not
            self.failure = self.failure or error
            raise

    async def _hear(self, request: Request) -> None:
        """Give the tool results that came back to the callbacks that wait for them.

        They hear them in the order of the calls: some clients report whichever ended first.
        """
        fresh = (found for message in request.fresh for found in message.results)
        results = {found.call_id: found for found in fresh if found.call_id in self._waiting}
        for call_id in [waiting for waiting in self._waiting if waiting in results]:
            step, action = self._waiting.pop(call_id)
            result = results[call_id]
            try:
                for callback in action.callbacks:
                    answer = callback(result)
                    if isawaitable(answer):
                        await answer
            except CancelledError:
                raise
            except BaseException as error:  # pytest.fail() is no Exception
                error.add_note(f"in .then() of step {step}")
                self.failure = self.failure or error
                raise

    def _cast(self, request: Request) -> _Part | None:
        if not self._roles:
            return None
        fitting = [part for role_, part in self._roles if role_.plays(request)]
        return next((part for part in fitting if part.queue), fitting[0] if fitting else None)

    def _choose(self, request: Request) -> _Part:
        if self._following:
            return self._follow(request)
        if self._turn is None or (self._roles and self._is_strange(request, self._turn)):
            raise self._uncast(request)
        if self._system is None:
            self._system = request.system
        return self._part

    def _is_strange(self, request: Request, turn: Turn) -> bool:
        """Whether a request is not the main part's: another system prompt, and not its prompt."""
        if self._system is None or request.system == self._system:
            return False
        return not any(turn.text in m.text for m in request.messages if m.role == "user")

    def _uncast(self, request: Request) -> ScriptMismatch:
        return ScriptMismatch(
            f"nobody in the playbook answers this request: {came(request)}",
            hint="\n".join(
                (
                    f'  system: "{_cut(request.system, SAID)}"',
                    *_nearest_role([role_ for role_, _ in self._roles], request),
                    "  do: let a role(…) match it, or mend what it is known by",
                )
            ),
        )

    def _follow(self, request: Request) -> _Part:
        """The part whose tool results these are, or the turn that this prompt opens or goes on."""
        fresh = request.fresh
        for result in (found for message in fresh for found in message.results):
            owner = self._owners.pop(result.call_id, None)
            if owner is not None:
                return owner
        said = "\n".join(message.text for message in fresh if message.role == "user")
        part = self._part
        if part.queue and not self._interrupts(part, said, request):
            return part
        if self._turns and self._turns[0][0].text in said:
            part = self._open()
            part.opening = request.messages.digest()
        elif self._turn is None or (said and self._turns):
            raise self._unexpected(said, request)
        return part

    def _interrupts(self, part: _Part, said: str, request: Request) -> bool:
        """Whether a prompt begins the next turn although this one has steps left.

        A flattened tool result or a reminder is a user message too, so only the very prompt does;
        and after an error of the provider, the same prompt is asked again.
        """
        return (
            bool(self._turns)
            and not part.failed
            and part.opening != request.messages.digest()
            and said.strip() == self._turns[0][0].text.strip()
        )

    def _unexpected(self, said: str, request: Request) -> ScriptMismatch:
        if not self._turns:
            return self._uncast(request)
        texts = [turn.text for turn, _ in self._turns]
        later = next((text for text in texts if text in said), None)
        known = f"when({_cut(later, SAID)!r}) comes later" if later else nearest(said, texts)
        return ScriptMismatch(
            "the agent was told something else than the next turn",
            where=f"when({_cut(texts[0], SAID)!r})",
            hint="\n".join(
                (
                    f"  expected: a user message with {_cut(texts[0], GIVEN)!r} in it",
                    f"  came: {came(request)}",
                    f"  nearest: {known}",
                    "  do: mend the prompt or the playbook; a call beside it needs a role(…)",
                )
            ),
        )

    async def _perform(self, step: Step, part: _Part, request: Request) -> Reply:
        blocks: list[AnyBlock] = []
        stop: Stop = "stop"
        for action in step.actions:
            match action:
                case Call(tool, params):
                    given = await self._resolve(step, action, params)
                    made = self._call(step, action, tool, given, request)
                    if self._following:
                        self._owners[made.id] = part
                    blocks.append(made)
                    stop = "tool_use"
                case Say(text, why):
                    blocks.append(Text(text))
                    stop = stop if stop == "tool_use" else why
                case Think(text):
                    blocks.append(Thinking(text))
                case Fail(message, status, category, retry_after):
                    raise ModelError(
                        message, status=status, category=category, retry_after=retry_after
                    )
        usage = Usage(output=sum(_weigh(block) for block in blocks))
        name = "" if part.name == "main" else part.name
        return Reply(tuple(blocks), stop, usage, request.model, step=step.number, role=name)

    def _call(
        self, step: Step, action: Call, tool: str, params: Params, request: Request
    ) -> ToolCall:
        if request.tools and tool not in request.offered:
            raise ScriptMismatch(
                f"step {step} calls a tool that the agent does not offer: {tool!r}",
                where=step.place,
                hint=nearest(tool, request.offered),
            )
        self._calls += 1
        made = ToolCall(f"playbook-tc-{self._calls}", tool, dict(params))
        if action.callbacks:
            self._waiting[made.id] = (step, action)
        return made

    async def _resolve(self, step: Step, action: Call, params: Params | LateParams) -> Params:
        if not callable(params):
            return params
        try:
            answer = params()
            given = await answer if isawaitable(answer) else answer
        except Exception as error:
            error.add_note(f"in the late-bound parameters of step {step}")
            raise
        if not isinstance(given, Mapping):
            raise PlaybookError(
                f"the late-bound parameters of step {step} are a {type(given).__name__}",
                where=step.place,
                hint=f"let the function of call({action.tool!r}, …) return a dict",
            )
        return _named(given, action.tool)

    def _run_dry(self, part: _Part, request: Request) -> Reply:
        error = self._exhausted(part, request)
        if self._strict:
            raise error
        return Reply((Text(f"[PLAYBOOK EXHAUSTED] {error}"),), model=request.model)

    def _exhausted(self, part: _Part, request: Request) -> ScriptExhausted:
        after = f"after step {part.last}" if part.last else "before any step"
        place = part.last.place if part.last else part.name
        return ScriptExhausted(
            f"playbook exhausted: the agent asked the model again {after}",
            where=place,
            hint="\n".join(
                (
                    f"  expected: nothing more in {place}",
                    f"  came: {came(request)}",
                    *_list_steps(self.left),
                    "  do: end the turn with say(…), or script what the model does next",
                )
            ),
        )

    @property
    def pending(self) -> bool:
        """Whether the open turn has something left: a step, or a result that never came."""
        return bool(self._part.queue or self._waiting)

    def unfinished(self) -> ScriptUnfinished | None:
        """Why the script is not played to its end, or nothing."""
        left = self.left
        if not left and not self._waiting:
            return None
        if not left:
            step, _ = next(iter(self._waiting.values()))
            return ScriptUnfinished(
                f"the result of step {step} never came back, so its .then() did not run",
                where=step.place,
                hint="  do: end the turn with say(…), so that the agent reports its results",
            )
        number = len(left)
        return ScriptUnfinished(
            f"playbook not fully consumed: {number} action{'s' * (number != 1)} remaining",
            where=left[0].place,
            hint="\n".join(
                (
                    f"  consumed: {self.consumed} of {self.consumed + number}",
                    f"  expected: the agent to ask for step {left[0]}",
                    f"  came: it stopped {self._stopped()}",
                    *_list_steps(left),
                    "  do: remove what is never reached, or find out why the agent stopped",
                )
            ),
        )

    def _stopped(self) -> str:
        last = self._part.last
        return f"after step {last}" if last else "before the first step"


def _list_steps(steps: Sequence[Step]) -> list[str]:
    if not steps:
        return ["  remaining: nothing"]
    lines = ["  remaining:", *(f"    {step}" for step in steps[:SHOWN])]
    more = len(steps) - SHOWN
    return [*lines, f"    ... +{more} more"] if more > 0 else lines


def _nearest_role(roles: list[Role], request: Request) -> list[str]:
    """The role that lacks least of being this request's, and what it lacks."""
    if not roles:
        return ["  roles: none"]
    nearest_ = min(roles, key=lambda role_: _distance(role_.misfits(request)))
    lines = [f"  nearest role: {nearest_.name!r}"]
    for by, wanted, came_ in nearest_.misfits(request):
        lines.append(f"    its {by} {_cut(repr(wanted), SAID)} is not in {_cut(repr(came_), SAID)}")
    return lines


def _distance(misfits: list[tuple[str, object, object]]) -> float:
    from difflib import SequenceMatcher

    ratios = (SequenceMatcher(None, str(w), str(c)[:500]).ratio() for _, w, c in misfits)
    return sum(1 - ratio for ratio in ratios)


def came(request: Request) -> str:
    """What a request brought, in one line."""
    fresh = request.fresh
    return _tell(fresh[-1]) if fresh else "a request with nothing new in it"


def _tell(message: Message) -> str:
    results = message.results
    if results:
        kind = "an error" if results[-1].is_error else "a result"
        return f'{kind} of {results[-1].name or "a tool"}: "{_cut(results[-1].text, SAID)}"'
    return f'a {message.role} message: "{_cut(message.text, SAID)}"'


def _weigh(block: AnyBlock) -> int:
    """Tokens, as a rule of thumb: four characters each."""
    match block:
        case Text(text) | Thinking(text):
            return len(text) // 4 + 1
        case ToolCall(_, name, arguments):
            return (len(name) + len(_dump(arguments))) // 4 + 1
        case _:
            return 0


def validate(
    script: Iterable[Turn | Role],
    *,
    tools: Iterable[str] | None = None,
    commands: Iterable[str] = (),
) -> None:
    """Refuse a playbook that could never run: an empty turn, a word after the last, no such tool.

    `tools` are those the subject has, when it knows them beforehand; `commands` those that it
    answers without asking the model.
    """
    known = None if tools is None else set(tools)
    for item in script:
        if isinstance(item, Turn):
            _check_turn(item, set(commands))
            _check_tools(item.actions, f"when({_cut(item.text, SAID)!r})", known)


def list_called(script: Iterable[Turn | Role]) -> set[str]:
    """The tools that a script calls."""
    return {
        part.tool
        for item in script
        for action in item.actions
        for part in ((action,) if isinstance(action, (Call, Say, Think, Fail)) else action)
        if isinstance(part, Call)
    }


def _check_turn(turn: Turn, commands: set[str]) -> None:
    place = f"when({_cut(turn.text, SAID)!r})"
    command = turn.text.startswith("/") and turn.text[1:].partition(" ")[0] in commands
    if not turn.actions and not command:
        slash = turn.text.startswith("/")
        hint = f"no command has this name: {nearest(turn.text[1:], commands)}" if slash else ""
        raise PlaybookError(
            "a turn with no actions", where=place, hint=hint or "end it with say(…)"
        )
    for at, action in enumerate(turn.actions[:-1], 1):
        if _ends(action):
            raise PlaybookError(
                f"{_show(turn.actions[at])} comes after {_show(action)}, which ends the turn",
                where=f"{place}, action {at + 1}",
                hint="put it before the say(…), into one list with it, or into its own when(…)",
            )


def _ends(action: Action | Sequence[Action]) -> bool:
    """Whether the agent stops after this message: it says something and calls nothing."""
    group = (action,) if isinstance(action, (Call, Say, Think, Fail)) else action
    spoken = any(isinstance(part, Say) for part in group)
    return spoken and not any(isinstance(part, Call) for part in group)


def _show(action: Action | Sequence[Action]) -> str:
    group = (action,) if isinstance(action, (Call, Say, Think, Fail)) else action
    return " + ".join(map(describe, group))


def _check_tools(actions: Actions, place: str, known: set[str] | None) -> None:
    for at, action in enumerate(actions, 1):
        for part in action if isinstance(action, tuple) else (action,):
            if known is not None and isinstance(part, Call) and part.tool not in known:
                raise PlaybookError(
                    f"the agent has no tool {part.tool!r}",
                    where=f"{place}, action {at}",
                    hint=nearest(part.tool, known),
                )
