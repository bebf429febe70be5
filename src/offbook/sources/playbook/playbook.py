"""The scripted model: the source that plays a playbook, step by step."""

from __future__ import annotations

from asyncio import CancelledError
from collections import deque
from collections.abc import Mapping
from inspect import isawaitable
from typing import TYPE_CHECKING, cast

from offbook.errors import ModelError, PlaybookError, ScriptMismatch, ScriptUnfinished, did_you_mean
from offbook.exchange.messages import AnyBlock, Text, Thinking, ToolCall
from offbook.exchange.model import Reply, StopReason, Usage
from offbook.secrets import hide_secrets
from offbook.sources.playbook.actions import (
    Action,
    Actions,
    Call,
    Fail,
    LateParams,
    Params,
    Role,
    Say,
    Think,
    Turn,
    check_names,
)
from offbook.sources.playbook.diagnostics import (
    TEXT_LIMIT,
    Step,
    cut_text,
    estimate_tokens,
    exhausted_error,
    list_called_tools,
    missing_result_error,
    no_matching_role_error,
    unexpected_prompt_error,
    unfinished_error,
)
from offbook.sources.side_requests import answer_side_request

if TYPE_CHECKING:
    from offbook.exchange.model import Request


class _ScriptQueue:
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
        self._owners: dict[str, _ScriptQueue] = {}
        self._roles: list[tuple[Role, _ScriptQueue]] = []
        self._turns: deque[tuple[Turn, _ScriptQueue]] = deque()
        self._turn: Turn | None = None
        self._part = _ScriptQueue("main")
        self._spent: list[_ScriptQueue] = []
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
                part = _ScriptQueue("main")
                part.queue.extend(
                    self._number(item.actions, f"when({cut_text(item.text, TEXT_LIMIT)!r})")
                )
                self._turns.append((item, part))
            elif isinstance(item, Role):
                part = _ScriptQueue(item.name)
                part.queue.extend(self._number(item.actions, f"role({item.name!r})"))
                self._roles.append((item, part))
            else:
                raise PlaybookError(
                    f"a playbook has turns and roles, not {type(item).__name__}",
                    hint='write run(when("…", […]), …)',
                )

    @property
    def called(self) -> set[str]:
        """The tools that are still to be called."""
        parts = [item for item, _ in (*self._turns, *self._roles)]
        return list_called_tools(parts)

    def drop(self) -> None:
        """Forget what is left of a run that failed; the numbers go on."""
        self._turns.clear()
        self._spent.clear()
        self._waiting.clear()
        self._part = _ScriptQueue("main")
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

    def _open(self) -> _ScriptQueue:
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
            if self._waiting:
                await self._hear(request)
            part = self._cast(request) if self._roles else None
            if part is None and (side_response := answer_side_request(request)) is not None:
                return side_response
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
        fresh = (found for message in request.new_messages for found in message.results)
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
                error.add_note(hide_secrets(f"in .then() of step {step}"))
                self.failure = self.failure or error
                raise

    def _cast(self, request: Request) -> _ScriptQueue | None:
        fitting = [part for role_, part in self._roles if role_.plays(request)]
        return next((part for part in fitting if part.queue), fitting[0] if fitting else None)

    def _choose(self, request: Request) -> _ScriptQueue:
        if self._following:
            return self._follow(request)
        if self._turn is None or (self._roles and self._is_strange(request, self._turn)):
            raise no_matching_role_error([role_ for role_, _ in self._roles], request)
        if self._system is None:
            self._system = request.system
        return self._part

    def _is_strange(self, request: Request, turn: Turn) -> bool:
        """Whether a request is not the main part's: another system prompt, and not its prompt."""
        if self._system is None or request.system == self._system:
            return False
        return not any(turn.text in m.text for m in request.messages if m.role == "user")

    def _follow(self, request: Request) -> _ScriptQueue:
        """The part whose tool results these are, or the turn that this prompt opens or goes on."""
        fresh = request.new_messages
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

    def _interrupts(self, part: _ScriptQueue, said: str, request: Request) -> bool:
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
            return no_matching_role_error([role_ for role_, _ in self._roles], request)
        return unexpected_prompt_error(said, [turn.text for turn, _ in self._turns], request)

    async def _perform(self, step: Step, part: _ScriptQueue, request: Request) -> Reply:
        blocks: list[AnyBlock] = []
        stop: StopReason = "stop"
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
        usage = Usage(output=sum(map(estimate_tokens, blocks)))
        name = "" if part.name == "main" else part.name
        return Reply(tuple(blocks), stop, usage, request.model, step=step.number, role=name)

    def _call(
        self, step: Step, action: Call, tool: str, params: Params, request: Request
    ) -> ToolCall:
        if request.tools and tool not in request.tool_names:
            raise ScriptMismatch(
                f"step {step} calls a tool that the agent does not offer: {tool!r}",
                where=step.place,
                hint=did_you_mean(tool, request.tool_names),
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
            error.add_note(hide_secrets(f"in the late-bound parameters of step {step}"))
            raise
        if not isinstance(given, Mapping):
            raise PlaybookError(
                f"the late-bound parameters of step {step} are a {type(given).__name__}",
                where=step.place,
                hint=f"let the function of call({action.tool!r}, …) return a dict",
            )
        return check_names(given, action.tool)

    def _run_dry(self, part: _ScriptQueue, request: Request) -> Reply:
        error = exhausted_error(part.last, part.name, self.left, request)
        if self._strict:
            raise error
        return Reply((Text(f"[PLAYBOOK EXHAUSTED] {error}"),), model=request.model)

    @property
    def pending(self) -> bool:
        """Whether the open turn has something left: a step, or a result that never came."""
        return bool(self._part.queue or self._waiting)

    def unfinished(self) -> ScriptUnfinished | None:
        """Why the script is not played to its end, or nothing."""
        left = self.left
        if left:
            return unfinished_error(left, self.consumed, self._part.last)
        waiting = next(iter(self._waiting.values()), None)
        return missing_result_error(waiting[0]) if waiting else None
