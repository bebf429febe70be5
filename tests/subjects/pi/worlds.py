"""The same extension in Python and in TypeScript, and how a test opens a session with it."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from offbook.runs import Rehearsal, drive, session
from offbook.subjects.clis.pi import Pi
from offbook.subjects.session import Api, Context, HookEvent
from tests.clients import PI
from tests.matrix.homes import HOMES
from tests.matrix.rows import WHOLE

JSON = dict[str, Any]
EXTENSION = Path(__file__).with_name("extension.ts")
PACKAGE = Path(__file__).with_name("package")  # with every part that a package of pi may have
PROGRAM = "node_modules/.bin/pi"
NAME = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


def extension(api: Api) -> None:
    """Do in Python what extension.ts does."""
    items: list[str] = []
    seen: list[str] = []

    @api.tool("greet", "Greet a user.", NAME)
    async def greet(params: JSON, ctx: Context) -> str:
        sure = await ctx.ui.confirm("Greet?", f"Really greet {params['name']}?")
        return f"Hello {params['name']}" if sure else "No greeting"

    @api.tool("ask", "Ask everything.")
    async def ask(params: JSON, ctx: Context) -> str:
        pick = await ctx.ui.select("Tone", ["formal", "casual"])
        line = await ctx.ui.input("Name", "your name")
        text = await ctx.ui.editor("Text", "draft")
        ctx.ui.notify("asked", "warning")
        ctx.ui.set_status("key", "value")
        ctx.ui.set_widget("box", ["one", "two"])
        return f"{pick} {line} {text}"

    @api.tool("create", "Create an item.")
    def create(params: JSON, ctx: Context) -> JSON:
        items.append(f"ITEM-{len(items) + 1}")
        return {"content": f"created {items[-1]}", "details": {"id": items[-1]}}

    @api.tool("open", "Open an item.", NAME)
    def open_item(params: JSON, ctx: Context) -> str:
        return f"opened {params['name']}: {params['name'] in items}"

    @api.tool("boom", "Fail.")
    def boom(params: JSON, ctx: Context) -> str:
        raise RuntimeError("kaput")

    @api.tool("seen", "List the calls that the hooks saw.")
    def list_seen(params: JSON, ctx: Context) -> str:
        return " ".join(seen)

    @api.on("tool_call")
    def guard(event: HookEvent, ctx: Context) -> JSON | None:
        if event.tool != "bash":
            return None
        seen.append(f"call:{event.input['command']}")
        if "rm" in event.input["command"]:
            return {"block": True, "reason": "too dangerous"}
        if event.input["command"] == "old":
            return {"input": {"command": "new"}}
        return None

    @api.on("tool_result")
    def edit(event: HookEvent, ctx: Context) -> JSON | None:
        if event.tool != "bash":
            return None
        seen.append(f"result:{event.result.text}")
        return {"content": "edited"} if event.result.text == "original" else None

    @api.on("agent_start")
    def started(event: HookEvent, ctx: Context) -> None:
        ctx.ui.notify("agent started")

    @api.command("hello")
    def hello(args: str, ctx: Context) -> None:
        ctx.ui.notify(f"hello {args}")

    @api.command("narrow")
    def narrow(args: str, ctx: Context) -> None:
        api.set_active_tools(["bash"])


@dataclass(frozen=True)
class World:
    """A runtime of extensions: the Python session, or a version of pi."""

    name: str
    open: Callable[..., Rehearsal]

    @property
    def is_pi(self) -> bool:
        return self.name != "python"


def open_python(*, has_ui: bool = True, **options: Any) -> Rehearsal:
    return session(extensions=[extension], has_ui=has_ui, **options)


def open_pi(home: str) -> Callable[..., Rehearsal]:
    """Return what opens a session of the pi of this home, or of `commands`."""

    def open_session(
        *,
        has_ui: bool = True,
        extension: Path = EXTENSION,
        auto_assert: bool = True,
        allow_unused_mocks: bool = False,
        **more: Any,
    ) -> Rehearsal:
        assert not home or HOMES[home].ready, HOMES[home].describe_missing()
        # One process serves all tests; without a user interface each prompt starts its own.
        mode: JSON = {"warm": True} if has_ui else {"mode": "json"}
        pi = Pi(extensions=[extension], program=pi_program(home), **{**mode, **more})
        return drive(pi, auto_assert=auto_assert, allow_unused_mocks=allow_unused_mocks)

    return open_session


def pi_marks(home: str) -> list[pytest.MarkDecorator]:
    """Return the marks of a test with the pi of this home, or of `commands`."""
    if not home:
        found = PI.client.find() is not None
        reason = "pi is not installed: run ./dev clients"
    else:
        found = False
        reason = f"{HOMES[home].name} is tested by ./dev clients only"
    # ./dev clients installs every pi: one that is missing fails there.
    return [pytest.mark.clients, pytest.mark.skipif(not (found or WHOLE), reason=reason)]


def pi_program(home: str) -> str | None:
    return str(HOMES[home].folder / PROGRAM) if home else None


VERSIONS = {"pi-0.74": "", "pi-0.73": "pi-0.73", "pi-0.87": "pi-0.87"}
PI_WORLDS = [
    pytest.param(World(name, open_pi(home)), id=name, marks=pi_marks(home))
    for name, home in VERSIONS.items()
]
WORLDS = [pytest.param(World("python", open_python), id="python"), *PI_WORLDS]
# For tests that take too long for CI.
whole = pytest.mark.skipif(not WHOLE, reason="run by ./dev clients only")
