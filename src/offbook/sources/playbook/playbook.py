"""The scripted model: a source that answers each request with the next step of a playbook."""

from __future__ import annotations

from asyncio import CancelledError
from collections import deque
from collections.abc import Mapping
from inspect import isawaitable
from itertools import takewhile
from typing import TYPE_CHECKING, NamedTuple, cast

import msgspec

from offbook.errors import (
    CheckFailed,
    ModelError,
    PlaybookError,
    ScriptUnfinished,
    UsageError,
)
from offbook.exchange.messages import (
    AnyBlock,
    History,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    to_json,
    written_text,
)
from offbook.exchange.model import Reply, StopReason, Usage, argument_checker
from offbook.options import decide
from offbook.secrets import hide_secrets
from offbook.sources.matching import (
    AwaitedResults,
    answer_side_request,
    make_call_id,
    refuse_unscripted,
    run_at_provider,
)
from offbook.sources.playbook.actions import (
    Action,
    Actions,
    Call,
    Fail,
    Params,
    Person,
    Role,
    RoleConditions,
    Say,
    Step,
    Think,
    Turn,
    check_params,
    group_actions,
    list_called_tools,
    read_head,
    turn_location,
)
from offbook.trace.hub import release_held

if TYPE_CHECKING:
    from collections.abc import Callable

    from offbook.determinism.faults import Fault
    from offbook.exchange.model import Request, Tool
    from offbook.exchange.people import Answer, PersonQuestion

MAX_HEADS = 100  # kinds of requests that are remembered, for the role that a message suggests


class _ScriptQueue:
    """The remaining steps of one turn or role, and the last one that was used."""

    __slots__ = ("last", "location", "opening", "role", "steps")

    def __init__(self, location: str, role: str = "") -> None:
        self.location = location
        self.role = role  # empty for a turn
        self.steps: deque[Step] = deque()
        self.last: Step | None = None
        self.opening = ""  # digest of the conversation that opened the turn

    @property
    def failed(self) -> bool:
        """Return whether the last step was a provider error, which clients answer by a retry."""
        return self.last is not None and isinstance(self.last.actions[-1], Fail)


class _AwaitedResult(NamedTuple):
    """A call whose result has not come back yet."""

    step: Step
    action: Call
    queue: _ScriptQueue


class _Conversation(msgspec.Struct):
    """The latest conversation, so that of the next request only what is new is read.

    `kind` has the system prompt, the tools and the model; it is None until a prompt was seen.
    """

    messages: History
    tokens: int = 0
    kind: tuple[str, tuple[Tool, ...], str] | None = None


class Playbook:
    """The scripted model: a `ModelSource` that answers requests with its steps, in order.

        playbook = Playbook()
        turn = when("Refund order 7", [call("refund", {"id": 7}), say("Done.")])
        playbook.load(turn)
        playbook.open(turn)
        reply = await playbook.reply(request)       # the call of `refund`

    The result of a tool call arrives in the agent's next request, in process and over the wire
    alike. `.then()` callbacks and late-bound parameters therefore work the same in both. A call
    whose result never arrives leaves the script unfinished.

    A request after the last step raises `ScriptExhausted`; with `strict=False` it is answered
    with "[PLAYBOOK EXHAUSTED]" instead.

    Turns follow the prompts: a new user message that contains the text of the next turn opens it.
    A rehearsal also opens each turn that it prompts the agent with, by `open`. A server needs no
    `open`: its client sends the prompts.
    """

    releases_held = True  # before it calls a function of the test

    def __init__(self, *, strict: bool = True) -> None:
        self.consumed = 0
        self.failure: BaseException | None = None
        self.has_people = False  # a person of the script answers questions of the agent
        self._strict = strict
        self._roles: list[tuple[Role, _ScriptQueue]] = []
        self._turns: deque[tuple[Turn, _ScriptQueue]] = deque()
        self._turn: Turn | None = None
        self._queue = _ScriptQueue("")  # of the open turn
        self._prompted = False  # the open turn was opened by `open`
        # Turns that a later prompt ended early: their steps are still reported as remaining.
        self._abandoned: list[_ScriptQueue] = []
        # The queue that made each tool call.
        self._call_queues: dict[str, _ScriptQueue] = {}
        self._awaited_results: AwaitedResults[_AwaitedResult] = AwaitedResults()
        self._awaited_errors: dict[str, tuple[Step, Call]] = {}
        self._unanswered: dict[
            str, Step
        ] = {}  # the calls whose results must not come in their turn
        self._main_system: str | None = None
        # the different kinds of requests so far, without values: a set that keeps their order
        self._heads: dict[RoleConditions, None] = {}
        self._step_count = 0
        self._latest = _Conversation(History())
        self._said: tuple[tuple[AnyBlock, ...], int] = ((), 0)  # the last reply, and its tokens
        self._counted_tools: tuple[tuple[Tool, ...], int] = ((), 0)
        self._call_count = 0
        self._checked: tuple[Tool | None, Callable[[Params], str]] = (None, str)

    def load(self, *script: Turn | Role) -> None:
        """Append turns and roles to the script."""
        for entry in cast("tuple[object, ...]", script):
            if isinstance(entry, Turn):
                queue = _ScriptQueue(turn_location(entry))
                queue.steps.extend(self._number_steps(entry.actions, queue.location))
                self._turns.append((entry, queue))
            elif isinstance(entry, Role):
                queue = _ScriptQueue(f"role({entry.name!r})", entry.name)
                queue.steps.extend(self._number_steps(entry.actions, queue.location))
                self._roles.append((entry, queue))
            else:
                raise PlaybookError(
                    f"a playbook has turns and roles, not {type(entry).__name__}",
                    hint='write run(when("…", […]), …)',
                )

    def _number_steps(self, actions: Actions, location: str) -> list[Step]:
        """Turn actions into numbered steps; thoughts join the message that follows them."""
        steps: list[Step] = []
        thoughts: tuple[Action, ...] = ()
        for message in actions:
            group = tuple(group_actions(message))
            for action in group:
                if type(action) is Call:
                    action.raise_if_then_was_dropped(location)
            # Most messages have one action, of which no list is made.
            kinds = (type(group[0]),) if len(group) == 1 else tuple(map(type, group))
            if kinds and kinds.count(Think) == len(kinds):
                thoughts += group
                continue
            self._step_count += 1
            if Person in kinds:  # not a message of the model
                self.has_people = True
                steps.append(Step(self._step_count, group, location))
                continue
            steps.append(Step(self._step_count, thoughts + group, location))
            thoughts = ()
        if thoughts:
            raise PlaybookError(
                f"{location} ends in a thought", hint="add say(…) or call(…) after it"
            )
        return steps

    @property
    def next_turn(self) -> Turn | None:
        """The first turn that is not open yet."""
        return self._turns[0][0] if self._turns else None

    def open(self, turn: Turn) -> None:
        """Open the next turn, which must be this one."""
        if self.next_turn is not turn:
            raise PlaybookError(f"when({turn.text!r}) is not the next turn")
        self._open_next()
        self._prompted = True

    def join(self, request: Request) -> None:
        """Open the turn of a conversation that another source has begun."""
        turn = self._find_upcoming(request.latest_prompt) if self._turn is None else None
        while turn is not None and self._turn is not turn:
            self._open_next()

    def _open_next(self) -> None:
        if self._queue.steps:
            self._abandoned.append(self._queue)
        self._turn, self._queue = self._turns.popleft()
        self._prompted = False

    def discard(self) -> None:
        """Discard the remaining steps after a failed run; the numbering continues."""
        self._turns.clear()
        self._abandoned.clear()
        self._awaited_results.clear()
        self._awaited_errors.clear()
        self._call_queues.clear()
        self._queue = _ScriptQueue(self._queue.location)
        for _, queue in self._roles:
            queue.steps.clear()
        self.failure = None

    @property
    def called_tools(self) -> set[str]:
        """The tools that the turns and roles to come will call."""
        return list_called_tools(entry for entry, _ in (*self._turns, *self._roles))

    @property
    def remaining_steps(self) -> list[Step]:
        """The steps that no request has used yet, in the order of the script."""
        if not (self._abandoned or self._turns or self._roles):
            return [*self._queue.steps]
        queues = [*self._abandoned, self._queue]
        for others in (self._turns, self._roles):
            queues += [queue for _, queue in others]
        steps = [step for queue in queues for step in queue.steps]
        return sorted(steps, key=lambda step: step.number) if len(steps) > 1 else steps

    @property
    def remaining(self) -> int:
        """The number of steps that no request has used yet."""
        return len(self.remaining_steps)

    @property
    def pending(self) -> bool:
        """True while the open turn has a step left or waits for a tool result."""
        if self._queue.steps or not self._awaited_results:
            return bool(self._queue.steps)
        return any(awaited.queue is self._queue for _, awaited in self._awaited_results.values())

    def unfinished(self) -> ScriptUnfinished | None:
        """Return the error for a script that was not played to its end, or None."""
        if remaining := self.remaining_steps:
            awaited = self._awaited_results.values()
            tools = dict.fromkeys(tool for tool, a in awaited if a.step is self._queue.last)
            return _errors().unfinished_error(remaining, self.consumed, self._queue.last, [*tools])
        for tool, (step, action, _) in self._awaited_results.values():
            fix = f"write call({tool!r}, …, unanswered=True)"
            lost = ", so its .then() did not run" if action.callbacks else ""
            return self._awaited_results.error(step.location, f"step {step}", fix, lost=lost)
        for step, action in self._awaited_errors.values():
            return _errors().missing_exception_error(step, action)
        return None

    def expects_error(self, call_id: str, tool: str, error: Exception) -> bool:
        """Return whether the script expects this exception of a tool, and note that it came."""
        for key, (_, action) in self._awaited_errors.items():
            # Without an id, the tool's name identifies the call.
            is_call = key == call_id if call_id else action.tool == tool
            if is_call and action.raises is not None and isinstance(error, action.raises):
                del self._awaited_errors[key]
                return True
        return False

    async def reply(self, request: Request, /) -> Reply:
        """Return the next step of the turn or role that this request belongs to."""
        try:
            awaits = self._awaited_results or self._call_queues or self._unanswered
            results = request.results if awaits else ()
            if results and self._awaited_results:
                for (step, action, _), result in self._awaited_results.receive(results):
                    if action.callbacks:
                        await self._run_callbacks(step, action, result)
            queue = self._choose_queue(request, results)
            if isinstance(queue, Reply):
                return queue
            if queue.steps and type(queue.steps[0].actions[0]) is Person:
                raise _errors().person_not_asked_error(queue.steps[0], request)  # noqa: TRY301 - as below
            if not queue.steps:
                remaining = self.remaining_steps
                error = _errors().exhausted_error(
                    queue.last, queue.location, remaining, request, self._heads
                )
                if self._strict:
                    raise error  # noqa: TRY301 - recorded as the failure of the run below
                return Reply((Text(f"[PLAYBOOK EXHAUSTED] {error}"),), model=request.model)
            for result in results if self._unanswered else ():
                if queue.last is not None and self._unanswered.get(result.call_id) is queue.last:
                    raise _errors().answered_error(queue.last, result.name or "the tool", request)  # noqa: TRY301 - as above
            tokens = self._count_input(request)
            if queue.last is None:
                queue.opening = request.messages.digest()
            queue.last = queue.steps.popleft()
            self.consumed += 1
            return await self._perform(queue.last, queue, request, tokens)
        except ModelError:  # scripted by fail(): not a failure of the run
            raise
        except Exception as error:
            # The agent may catch and ignore the error, so the run must know it too.
            self.failure = self.failure or error
            raise

    async def answer(self, question: PersonQuestion, /) -> Answer:
        """Return the answer of the person who is next in the script.

        Several questions at once may come in any order.
        """
        waiting: list[Step] = []
        for queue in (self._queue, *(queue for _, queue in self._roles)):
            people = takewhile(lambda step: isinstance(step.actions[0], Person), queue.steps)
            for step in list(people):
                action = cast("Person", step.actions[0])
                if action.matches(question):
                    queue.steps.remove(step)
                    self.consumed += 1
                    return action.answer
                waiting.append(step)
        error = _errors().unanswered_question_error(question, waiting, self._queue.location)
        self.failure = self.failure or error
        raise error

    def _choose_queue(
        self, request: Request, results: tuple[ToolResult, ...]
    ) -> _ScriptQueue | Reply:
        """Choose the turn or role that answers a request; a side request is answered at once."""
        # 1. The first matching role that has steps left. A used-up role leaves its requests to the
        #    turns.
        matching: list[_ScriptQueue] = []
        if self._roles:
            matching = [queue for role, queue in self._roles if role.matches(request)]
        if matching and (with_steps := next((q for q in matching if q.steps), None)) is not None:
            return with_steps

        # 2. A title, probe or prewarm of a known client takes no step. The requests of a session
        #    have no metadata, and need no table of clients.
        if request.metadata and (side_reply := answer_side_request(request)) is not None:
            return side_reply

        # 3. A tool result belongs to the turn that made the call, so that conversations in parallel
        #    get their own steps. The results of an aborted turn come with the next prompt.
        if results and self._call_queues:
            new_messages = request.new_messages
            prompted = bool(new_messages) and new_messages[-1].role == "user"
            for result in results:
                owner = self._call_queues.pop(result.call_id, None)
                if owner is not None and not owner.role and (owner.steps or not prompted):
                    return owner

        # 4. The prompt opens the next turn, if the open one is used up. While it has steps left,
        #    only the exact prompt of the next turn ends it early: a flattened tool result or a
        #    reminder is a user message too. Not after an error, as clients then repeat the same
        #    prompt, nor in the conversation that opened the turn.
        turn, queue = self._turn, self._queue
        prompt, upcoming = "", None
        if self._turns:  # else no turn is left that it could open
            new = request.new_messages
            written = (written_text(message) for message in new if message.role == "user")
            prompt = "\n".join(filter(None, written))
            upcoming = self._find_upcoming(prompt)
        if upcoming is not None and (
            not queue.steps
            or (
                prompt.strip() == upcoming.text.strip()
                and not queue.failed
                and queue.opening != request.messages.digest()
            )
        ):
            while self._turn is not upcoming:
                self._open_next()
            if self._main_system is None:
                self._main_system = request.system
            return self._queue

        # 5. The open turn. With roles in the script, a request with another system prompt is a
        #    subagent that lacks a role, unless it carries the turn's prompt.
        if turn is not None and self._is_main(turn, request, matched=bool(matching)):
            # Clients send the prompts, and this one belongs to no turn.
            if prompt and self._turns and not queue.steps and not self._prompted:
                turns = [entry for entry, _ in self._turns]
                raise _errors().unexpected_prompt_error(prompt, turns, request, self._heads)
            if self._main_system is None:
                self._main_system = request.system
            return queue

        # 6. Nothing answers it. Used-up roles that match report that they are exhausted.
        if matching:
            return matching[0]
        if turn is None and self._turns:
            turns = [entry for entry, _ in self._turns]
            raise _errors().unexpected_prompt_error(prompt, turns, request, self._heads)
        raise _errors().no_matching_role_error(
            [role for role, _ in self._roles], request, self._heads
        )

    def _find_upcoming(self, prompt: str) -> Turn | None:
        """Return the turn that this prompt opens, or None."""
        for turn, queue in self._turns:
            if turn.text in prompt:
                # The test sends the prompts: what repeats the open one does not open another turn.
                repeats = self._prompted and self._turn is not None and turn.text in self._turn.text
                return None if repeats else turn
            # A turn without actions leaves all requests to roles, so its prompt may not be seen. If
            # the test sends the prompts, it sends this one before those of the turns that follow.
            if queue.steps or self._prompted:
                return None
        return None

    def _is_main(self, turn: Turn, request: Request, *, matched: bool) -> bool:
        """Return whether a request is one of the conversation of the open turn."""
        if not self._roles or self._main_system == request.system:
            return True
        if self._main_system is None and not matched:
            return True
        return any(turn.text in written_text(m) for m in request.messages if m.role == "user")

    async def _run_callbacks(self, step: Step, action: Call, result: ToolResult) -> None:
        """Pass the result of a call to its `.then()` callbacks."""
        try:
            for callback in action.callbacks:
                release_held()
                outcome = callback(result)
                if isawaitable(outcome):
                    outcome = await outcome
                what = f"call({action.tool!r}, …).then()"
                holds, reason = decide(outcome, what)
                if holds is False:
                    raise CheckFailed(f"{what}: {reason}")  # noqa: TRY301 - noted below
        except CancelledError:
            raise
        except BaseException as error:  # pytest.fail() raises a BaseException
            error.add_note(hide_secrets(f"in .then() of step {step}"))
            self.failure = self.failure or error
            raise

    async def _perform(
        self, step: Step, queue: _ScriptQueue, request: Request, tokens: int
    ) -> Reply:
        """Build the reply of a step to a request of so many tokens."""
        blocks: list[AnyBlock] = []
        stop: StopReason = "stop"
        given: StopReason = "stop"  # a message with calls can be cut short, too
        cut: Fault | None = None
        for action in step.actions:
            # Not `match`, which asks `isinstance`: see `find_calls`.
            if type(action) is Call:
                tool, params = action.tool, action.params
                if callable(params):
                    params = await self._late_params(step, action)
                offered = self._find_tool(step, action, params, request)
                self._call_count += 1
                call = ToolCall(make_call_id(request, self._call_count), tool, dict(params))
                if offered is not None and offered.kind != "function":
                    done = _run_at_provider(request, call, step, action)
                    if done:
                        blocks += done
                        continue
                if not action.unanswered:
                    self._awaited_results[call.id] = tool, _AwaitedResult(step, action, queue)
                    self._call_queues[call.id] = queue
                else:
                    self._unanswered[call.id] = step
                if action.raises is not None:
                    self._awaited_errors[call.id] = (step, action)
                blocks.append(call)
                stop = "tool_use"
            elif type(action) is Say:
                blocks.append(Text(action.text))
                if action.stop == "cut":
                    from offbook.determinism.faults import Fault  # few scripts have a cut

                    cut = Fault("cut", step.number)
                elif action.stop != "stop":
                    given = action.stop
            elif type(action) is Think:
                blocks.append(Thinking(action.text))
            elif type(action) is Fail:
                raise ModelError(
                    action.message,
                    status=action.status,
                    category=action.category,
                    retry_after=action.retry_after,
                )
            # `answer` uses the steps of a person
        if cut is not None and "dialect" not in request.metadata:
            # The agent called the source itself: there is no stream to cut.
            raise ModelError("the stream was cut", status=502, category="connection")
        refuse_unscripted(request)
        said = tuple(blocks)
        self._said = (said, sum(map(_estimate_tokens, said)))
        usage = Usage(tokens, self._said[1])
        stop = stop if given == "stop" else given
        return Reply(said, stop, usage, request.model, step=step.number, role=queue.role, fault=cut)

    def _count_input(self, request: Request) -> int:
        """Return the tokens of a request, and note its kind."""
        messages, latest = request.messages, self._latest
        count, tokens = len(latest.messages), latest.tokens
        if not messages.continues(latest.messages):
            count, tokens = 0, 0
        kind = (request.system, request.tools, request.model)
        if not count or kind != latest.kind:
            head = read_head(request)
            if len(self._heads) < MAX_HEADS:
                self._heads[head] = None
            kind = kind if head.first else None
            if request.tools != self._counted_tools[0]:
                size = len(to_json(request.tools).decode()) // 4 + 1
                self._counted_tools = (request.tools, size if request.tools else 0)
        said, said_tokens = self._said
        for message in messages.after(count):
            blocks = message.blocks
            tokens += said_tokens if blocks is said else sum(map(_estimate_tokens, blocks))
        self._latest = _Conversation(messages, tokens, kind)
        return tokens + len(request.system) // 4 + self._counted_tools[1]

    def _find_tool(self, step: Step, action: Call, params: Params, request: Request) -> Tool | None:
        """Return the tool of a call that the request offers; check that the call is as expected."""
        offered = None
        for tool in request.tools:
            if tool.name == action.tool:
                offered = tool
                break
        if (offered is not None) == action.unknown:
            raise _errors().unknown_tool_error(step, action, request, self._heads)
        if self._strict and offered is not None and action.invalid is not None:
            if offered is not self._checked[0]:  # a session offers the same object each time
                self._checked = (offered, argument_checker(offered))
            problem = self._checked[1](params)
            if bool(problem) != action.invalid:
                raise _errors().invalid_arguments_error(step, action, problem)
        return offered

    async def _late_params(self, step: Step, action: Call) -> Params:
        """Call the function that was given as the parameters of a call."""
        try:
            release_held()
            params = action.params() if callable(action.params) else action.params
            params = await params if isawaitable(params) else params
        except Exception as error:
            error.add_note(hide_secrets(f"in the late-bound parameters of step {step}"))
            raise
        if not isinstance(params, Mapping):
            raise PlaybookError(
                f"the late-bound parameters of step {step} must be a dict, "
                f"got {type(params).__name__}",
                where=step.location,
                hint=f"return a dict from the function in call({action.tool!r}, …)",
            )
        return check_params(params, action.tool)


def _errors():  # noqa: ANN202 - the module itself, which a type checker knows
    from offbook.sources.playbook import diagnostics  # of a run that fails

    return diagnostics


def _estimate_tokens(block: AnyBlock) -> int:
    """Return the tokens of a block by the rule of thumb of four characters each."""
    # Not `isinstance`, as in `find_calls`.
    if type(block) is Text or type(block) is ToolResult or type(block) is Thinking:
        return len(block.text) // 4 + 1
    if type(block) is ToolCall:
        return (len(block.name) + len(to_json(block.arguments).decode())) // 4 + 1
    return 0


def _run_at_provider(
    request: Request, call: ToolCall, step: Step, action: Call
) -> tuple[AnyBlock, ...]:
    """Return the blocks of a call that the provider runs; the agent sends no result of it."""
    try:
        blocks = run_at_provider(request, call)
    except UsageError as error:
        raise PlaybookError(error.what, where=step.location, hint=error.hint) from error
    if blocks and (action.callbacks or action.raises is not None):
        raise PlaybookError(
            f"the provider runs {action.tool}, and the agent sends no result of it: step {step}",
            where=step.location,
            hint="remove .then(…) and raises=; the arguments of the call have its result",
        )
    return blocks
