"""A model that plays against the agent: it looks at the tools of each request and makes a move.

The moves are random because nothing that was tried finds bugs in fewer runs. Guidance by new
states needs more of them: `bench/explore_ablation.py`, with the table in
`docs/reference/explore.md`. What matters is which moves there are.
"""

from __future__ import annotations

from collections import deque
from random import Random
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec

from offbook.errors import ModelError, RunError
from offbook.exchange.messages import RAW_ARGUMENTS
from offbook.exchange.people import Answer, PersonQuestion, allow, deny
from offbook.explore.argument_values import (
    NOTHING,
    ArgumentValues,
    Draw,
    find_ranges,
    learn_request,
    list_near_texts,
    list_neighbours,
    move_value,
    takes_any_text,
)
from offbook.explore.moves import (
    END,
    MAX_VALUE_LENGTH,
    SOON,
    GeneratedCall,
    Move,
    build_reply,
    find_values,
)
from offbook.sources.playbook.actions import Person
from offbook.sources.playbook.playbook import Playbook
from offbook.trace.hub import release_held

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from offbook.exchange.messages import JSON
    from offbook.exchange.model import Reply, Request, Tool
    from offbook.explore.attack import Attack


UNKNOWN_TOOLS = ("no_such_tool", "multi_tool_use.parallel", "bash ")
LONG_TEXT = "and so on " * 2_000
QUESTION = "I am not sure. What should I do?"
MARK = "Done, ticket REF-4711."
REFUSED = Move(text="I cannot help with that.", stop="refusal")
# How a model ends in some of the behaviours, in place of "Done.": with nothing, with a refusal, in
# several alphabets, and with what looks like data.
ALPHABETS = "Fertig \u2013 12 \u20ac \u2713 \u65e5\u672c\u8a9e \U0001f389"
LAST_MOVES = (Move(), Move(), REFUSED, Move(text=ALPHABETS), Move(text='{"answer": null}'))
CUT_SHORT = Move(text="Let me", stop="length")
ALWAYS_CUT = 0.5  # of the replies that are cut short: so is every later one
OTHER_ENDS = 0.15  # of the behaviours
SKIPPED = 0.6  # of the behaviours: without the built-in tools of a session
DENIALS = 0.4  # of the behaviours: people deny what the agent asks
MAX_QUESTION = 80  # characters by which a dialog is known again
NO_END = "the agent does not end"
SECOND_CALLS = 1000  # the first number of the calls in a conversation beside another one
MARKED = 0.05  # of the calls in the first conversation: a text that a later one must not know
NEARLY = 0.3  # of the repeated calls: with an argument that is nearly the same
OTHER_RANGES = 0.6  # of the calls with a range that are repeated nearly the same
RANGE_STEPS = ((-1, 1), (1, -1), (1, 1), (-1, -1), (0, 1), (-1, 0))  # of its begin and its end
PATIENCE = 20  # requests after the last move, before the agent counts as endless

# How often each kind of move is made. Several calls in one message are an everyday move: agents
# that are right for one call after the other often are not for two at once.
MOVES = {
    "call": 40,
    "several calls": 14,
    "odd arguments": 12,
    "repeat": 8,
    "same call twice": 7,
    "wrong arguments": 6,
    "text": 4,
    "unknown tool": 3,
    "provider error": 2,
    "empty": 2,
    "refusal": 2,
    "cut short": 3,
    "long text": 1,
}
STREAM_MOVES = {**MOVES, "cut stream": 6}  # only a stream can be cut
# Each kind as often as its weight: one draw from a tuple is the fastest weighted choice.
DRAWS, STREAM_DRAWS = (
    tuple(kind for kind, weight in moves.items() for _ in range(weight))
    for moves in (MOVES, STREAM_MOVES)
)


def raise_endless() -> NoReturn:
    """Raise the error for an agent that goes on after the model has ended the conversation."""
    raise RunError(f"{NO_END}: it sent {PATIENCE} requests after the last move of the model")


class PatientPlaybook(Playbook):
    """A playbook that says its last words again to a limited number of further requests."""

    def __init__(self, first_call: int = 0) -> None:
        super().__init__(strict=False)
        self._call_count = first_call
        self._extra = 0
        self._last: Reply | None = None
        self.before_reply: Callable[[Request], object] | None = None

    async def answer(self, question: PersonQuestion, /) -> Answer:
        """Return the answer of the script; without one, allow it."""
        steps = self._queue.steps
        if steps and isinstance(action := steps[0].actions[0], Person) and action.matches(question):
            return await super().answer(question)
        return allow if question.default is None else question.default

    async def reply(self, request: Request, /) -> Reply:
        """Return the next step; after the last one, the same words again."""
        # Another agent may not ask.
        while self._queue.steps and isinstance(self._queue.steps[0].actions[0], Person):
            self._queue.steps.popleft()
        self._extra = self._extra + 1 if self.consumed and not self._queue.steps else 0
        if self._extra > PATIENCE:
            raise_endless()
        if self.before_reply is not None:
            self.before_reply(request)
        if self._extra:
            return self._last or build_reply(END, request, (), 0)
        self._last = None
        reply = await super().reply(request)
        self._last = None if reply.calls or reply.fault else reply
        return reply


class GeneratedModel:
    """A source that makes up to `steps` moves, those of the `opening` first, then ends.

    The same seed gives the same moves for the same requests. `moves` are those made so far, and
    `tools` the tools that the agent has offered; `own` are those that every session has, which some
    behaviours do not call. `begin` starts the moves for another prompt. With
    an `attack`, it obeys the text of a tool, if the agent has the tools for it.
    """

    releases_held = True  # before it calls a function of the search
    has_people = True

    def __init__(
        self, values: ArgumentValues, *, seed: str, steps: int, opening: Sequence[Move] = ()
    ) -> None:
        self._values = values
        self._opening = deque(opening)
        self._random = Random(seed)  # noqa: S311 - not for secrets
        self._steps = steps
        self._known = NOTHING
        self._favourites_of_values: dict[str, Any] | None = (
            {} if self._random.random() < 0.5 else None  # noqa: PLR2004 - in half of the behaviours
        )
        self._denies = self._random.random() < DENIALS
        # A separate generator: the moves before the end are as ever. It may come early.
        chance = Random(f"{seed}:end")  # noqa: S311 - not for secrets
        self._end = END
        if chance.random() < OTHER_ENDS:
            self._end, self._steps = chance.choice(LAST_MOVES), chance.randint(0, steps)
        self._skips_own = chance.random() < SKIPPED
        self._session = 0
        self._calls = 0
        self._seen: list[Any] = []
        self._noted: set[str] = set()
        # In most behaviours only a few of the tools are called: what goes wrong needs some of them
        # in some order, and each other tool makes that order rarer.
        self._favourites = self._random.choice([0, 2, 3, 4])
        self._chosen: tuple[str, ...] = ()
        self._offered: tuple[Tool, ...] = ()
        self._narrowed: list[Tool] = []
        self._narrowed_from: tuple[Tool, ...] | None = None
        self.requests = 0
        self.own: Collection[str] = ()
        self.announce: Callable[[Move], object] | None = None
        self.attack: Attack | None = None
        self.before_reply: Callable[[Request], object] | None = None
        self.moves: list[Move] = []
        self.tools: dict[str, Tool] = {}

    def follow(self, other: GeneratedModel) -> None:
        """Begin after another conversation: its results are known here, too."""
        self._session += 1
        self._calls = SECOND_CALLS
        self._seen = other._seen

    def begin(self, prompt: str, *, fresh: bool) -> None:
        """Start the moves for another prompt of the user."""
        self.requests = 0
        self._session += 1
        self._add(Move(prompt=prompt, fresh=fresh))

    async def answer(self, question: PersonQuestion, /) -> Answer:
        """Allow what the agent asks, or deny it in some behaviours."""
        made = next((move for move in reversed(self.moves) if move.calls), None)
        if not self._denies or made is None:
            return allow if question.default is None else question.default
        changed = msgspec.structs.replace(made, denied=True)
        if question.text and not question.tool:
            changed = msgspec.structs.replace(made, declined=question.text[:MAX_QUESTION])
        self.moves[self.moves.index(made)] = changed
        return deny

    def _add(self, move: Move) -> None:
        self.moves.append(move)
        if self.announce is not None:
            self.announce(move)

    async def reply(self, request: Request, /) -> Reply:
        """Return the next move."""
        if not self.requests:
            self._known = learn_request(request)
        self.requests += 1
        if self.requests > self._steps + PATIENCE:
            raise_endless()
        for result in request.results:
            if result.call_id not in self._noted:
                self._noted.add(result.call_id)
                self._seen += find_values(result)
        if request.tools is not self._offered:
            self._offered = request.tools
            self.tools.update({tool.name: tool for tool in request.tools})
        ended = self.requests > self._steps
        if self.attack is not None and not (ended or self.moves or self._starts_attack(request)):
            self.attack = self.before_reply = None
        if self.before_reply is not None:
            release_held()
            self.before_reply(request)
        if ended:
            if self.requests == self._steps + 1 and self._end != END:
                self._add(self._end)
            return build_reply(self._end, request, (), 0)
        if self.attack is not None:
            *faults, move = self.attack.next_moves(request, self._draw())
            for fault in faults:
                self._add(fault)
        else:
            move = self._choose(request.tools, STREAM_DRAWS if request.stream else DRAWS)
        self._add(move)
        if move.status:
            raise ModelError("the model is overloaded", status=move.status, retry_after=SOON)
        reply = build_reply(move, request, self._seen, self._calls + 1)
        self._calls += len(move.calls)
        return reply

    def _starts_attack(self, request: Request) -> bool:
        return self.attack is not None and self.attack.begin(request.tools, self._draw())

    def _draw(self) -> Draw:
        return Draw(self._random, self._seen, self._known, self._favourites_of_values)

    def _choose(  # noqa: PLR0911 - one for each kind
        self, offered: tuple[Tool, ...], kinds: tuple[str, ...]
    ) -> Move:
        if self._opening:
            return self._opening.popleft()
        random = self._random
        draw = self._draw()
        kind = random.choice(kinds)
        functions = self._narrow(offered)
        made = [one for move in self.moves for one in move.calls] if kind == "repeat" else ()
        if not functions and kind not in {"text", "empty", "refusal", "long text", "cut short"}:
            kind = "text"
        match kind:
            case "several calls":
                count = random.choice([2, 2, 3])
                # The same id for two tools is what a race needs.
                shared: JSON | None = {} if draw.happens(0.5) else None
                return Move(tuple(self._call(functions, draw, shared) for _ in range(count)))
            case "odd arguments":
                return Move((self._call(functions, draw, odd=True),))
            case "repeat" if made:
                again = random.choice(made)
                return Move((_vary(again, random) if draw.happens(NEARLY) else again,))
            case "same call twice":
                return Move((self._call(functions, draw),) * 2)
            case "wrong arguments":
                tool = random.choice(functions)
                arguments = self._values.invalid_arguments(tool.schema, draw, tool.name)
                return Move((GeneratedCall(tool.name, arguments),))
            case "unknown tool":
                names = {tool.name for tool in offered}
                unknown = [name for name in UNKNOWN_TOOLS if name not in names]
                return Move((GeneratedCall(random.choice(unknown), {}, unknown=True),))
            case "provider error":
                return Move(status=random.choice([429, 500, 529]))
            case "text":
                # The first conversation says what a later one should not know.
                mark = END.text if self._session else MARK
                return Move(text=random.choice([END.text, QUESTION, mark]))
            case "empty":
                return Move()
            case "refusal":
                return REFUSED
            case "cut stream":
                return Move((self._call(functions, draw),), stop="cut")
            case "cut short":
                return self._cut_short(functions, draw)
            case "long text":
                return Move(text=LONG_TEXT)
            case _:
                return Move((self._call(functions, draw),))

    def _cut_short(self, functions: list[Tool], draw: Draw) -> Move:
        if draw.happens(ALWAYS_CUT):  # an agent that goes on each time never ends
            self._end, self._steps = CUT_SHORT, self.requests
            return CUT_SHORT
        calls = (self._call(functions, draw),) if functions else ()
        return Move(calls, "Let me", "length")

    def _narrow(self, offered: tuple[Tool, ...]) -> list[Tool]:
        """Return the tools that this behaviour calls; most requests offer the same as the last."""
        if offered is not self._narrowed_from:
            functions = [tool for tool in offered if tool.kind == "function"]
            self._narrowed, self._narrowed_from = self._select(functions), offered
        return self._narrowed

    def _select(self, functions: list[Tool]) -> list[Tool]:
        if self._skips_own and self.own:
            functions = [tool for tool in functions if tool.name not in self.own] or functions
        if not self._favourites or len(functions) <= self._favourites:
            return functions
        if not self._chosen:
            names = [tool.name for tool in functions]
            self._chosen = tuple(self._random.sample(names, self._favourites))
        # The tools may change during a run.
        return [tool for tool in functions if tool.name in self._chosen] or functions

    def _call(
        self,
        functions: list[Tool],
        draw: Draw,
        shared: JSON | None = None,
        *,
        odd: bool = False,
    ) -> GeneratedCall:
        """Return a call; parameters with the name of a shared value get that value."""
        tool = draw.choose(functions)
        arguments = self._values.arguments(tool.schema, draw, tool.name, odd=odd)
        if shared is not None:
            arguments = {name: shared.setdefault(name, arguments[name]) for name in arguments}
        if not self._session and draw.happens(MARKED):
            properties: dict[str, Any] = tool.schema.get("properties") or {}
            free = [name for name in arguments if takes_any_text(properties.get(name))]
            arguments = {**arguments, **dict.fromkeys(free[:1], MARK)}
        return GeneratedCall(tool.name, arguments)


def _vary(made: GeneratedCall, random: Random) -> GeneratedCall:
    """Return a call with one of its arguments a little changed: another case, the next number.

    A range is also made wider, narrower, or moved.
    """
    if RAW_ARGUMENTS in made.arguments:
        return made
    plain = [
        name
        for name, value in made.arguments.items()
        if isinstance(value, (str, int, float))
        and not isinstance(value, bool)
        and len(str(value)) <= MAX_VALUE_LENGTH
    ]
    if not plain:
        return made
    if (ranges := find_ranges(made.arguments)) and random.random() < OTHER_RANGES:
        first, last = random.choice(ranges)
        before, after = random.choice(RANGE_STEPS)
        moved = {
            first: move_value(made.arguments[first], before),
            last: move_value(made.arguments[last], after),
        }
        if all(value != "" for value in moved.values()):
            return GeneratedCall(made.tool, {**made.arguments, **moved}, made.unknown)
    name = random.choice(plain)
    value = made.arguments[name]
    near = list_near_texts(value) if isinstance(value, str) else list_neighbours(value)
    return GeneratedCall(made.tool, {**made.arguments, name: random.choice(near)}, made.unknown)
