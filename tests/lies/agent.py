"""An honest agent as points at which a lie can change it, independent of its form.

Every form (a loop over an SDK, an agent of a framework, a session) calls the same points: `edit`
before a request is sent, `around` each tool, `results` when the tools of a message have run,
`goes_on` after each reply, `answer` at the end and `whole` around everything. A lie replaces one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from offbook import call, say
from offbook.types import Api

JSON = dict[str, Any]
SYSTEM = "You refund orders."
MODEL = "model-one"
TEMPERATURE = 0.5
TOOLS = {"find_order": "Find an order.", "refund": "Refund an order."}
SCHEMA: JSON = {
    "type": "object",
    "properties": {"number": {"type": "integer", "description": "its number"}},
    "required": ["number"],
}
PROMPT = "Refund order 7"
LOOK = [say("I look first."), call("find_order", {"number": 7}), call("find_order", {"number": 8})]
REFUND = call("refund", {"number": 7})


@dataclass
class Call:
    """A call of a tool by the model."""

    id: str
    name: str
    arguments: JSON


@dataclass
class User:
    """A message of the user."""

    text: str


@dataclass
class Model:
    """A message of the model; `origin` is what the SDK returned, for fields that only it has.

    `items` are what the tools of the provider did, as the SDK returned it.
    """

    text: str
    calls: list[Call] = field(default_factory=list[Call])
    thinking: str = ""
    origin: Any = None
    items: list[JSON] = field(default_factory=list[JSON])


@dataclass
class Result:
    """The result of a call, as the agent sends it."""

    call_id: str
    name: str
    text: str
    failed: bool = False


Item = User | Model | Result


@dataclass
class Request:
    """A request as the agent is about to send it."""

    items: list[Item]
    system: str = SYSTEM
    model: str = MODEL
    temperature: float = TEMPERATURE
    tools: dict[str, str] = field(default_factory=lambda: dict(TOOLS))
    wire: Callable[[JSON], None] = lambda _: None  # changes what the SDK is given

    @property
    def models(self) -> list[Model]:
        return [item for item in self.items if isinstance(item, Model)]

    @property
    def calls(self) -> list[Call]:
        return [call for model in self.models for call in model.calls]

    @property
    def results(self) -> list[Result]:
        return [item for item in self.items if isinstance(item, Result)]


class ShopClosed(Exception):
    """The shop refuses to refund."""


class Shop:
    """The tools, and what they changed: the world of the test."""

    def __init__(self) -> None:
        self.closed = False
        self.looked_up: list[int] = []
        self.refunded: list[int] = []

    def run(self, made: Call) -> str:
        number = made.arguments["number"]
        if made.name == "find_order":
            self.looked_up.append(number)
            return f"order {number}: one lamp"
        if self.closed:
            raise ShopClosed("the till is closed")
        self.refunded.append(number)
        return f"refunded order {number}"


RunTool = Callable[[Call], str]
Steps = Generator[Call, str, str]


def run_steps(steps: Steps, run: RunTool) -> str:
    """Run the tools that a generator yields, send it their results, and return its own."""
    try:
        made = next(steps)
        while True:
            try:
                text = run(made)
            except Exception as error:  # noqa: BLE001 - the generator decides
                made = steps.throw(error)
            else:
                made = steps.send(text)
    except StopIteration as stop:
        return stop.value


async def run_steps_async(steps: Steps, run: Callable[[Call], Awaitable[str]]) -> str:
    """Do the same with tools that are awaited."""
    try:
        made = next(steps)
        while True:
            try:
                text = await run(made)
            except Exception as error:  # noqa: BLE001 - the generator decides
                made = steps.throw(error)
            else:
                made = steps.send(text)
    except StopIteration as stop:
        return stop.value


class Agent:
    """An honest agent. A lie replaces some of its methods.

    `steps` is what the model does before it ends with `last`; `more` are the prompts after it,
    each with the model's answer, and `roles` the scripts of its other conversations. `program` is
    what the commands of other languages do at their own points.
    """

    steps: Sequence[Any] = (LOOK, REFUND)
    last = "Refunded."
    more: Sequence[tuple[str, str]] = ()
    roles: Sequence[Any] = ()
    program = ""
    shows = ""  # the kind of change that a run of an honest one shows

    def __init__(self) -> None:
        self.shop = Shop()
        self.trace = Path()  # of the run
        self.send: Callable[[Request], Model] | None = None  # of a loop over an SDK
        self.notes: JSON = {}  # what a lie remembers

    def begin(self, prompt: str) -> list[Item]:
        """Return the history for this prompt; what follows is added to it."""
        return [User(prompt)]

    def edit(self, request: Request, number: int) -> None:
        """Change a request before it is sent; the first has the number 1."""

    def around(self, made: Call) -> Steps:
        """Between the loop and its tools: yield the call to run, return the result to send."""
        return (yield made)

    def inside(self, run: RunTool, made: Call) -> str:
        """Run a tool: in the tool itself, which the framework or the session calls."""
        return run(made)

    def results(self, results: list[Result]) -> list[Item]:
        """Return what is added to the history after the tools of a message ran."""
        return [*results]

    def goes_on(self, reply: Model) -> bool:
        """Return whether the loop goes on after this reply."""
        return bool(reply.calls)

    def answer(self, text: str) -> object:
        """Return the answer of the agent."""
        return text

    def hooks(self, api: Api) -> None:
        """Register the hooks of a session's extension."""

    def whole(self, loop: Callable[[str], object], prompt: str) -> object:
        """Run the whole loop."""
        return loop(prompt)
