"""The forms of an agent: each makes a subject of the same agent, and a script for it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from offbook import Command, call, drive, say, session, when
from offbook.types import Api, Context
from tests.lies.agent import PROMPT, SCHEMA, SYSTEM, TOOLS, Agent, Call
from tests.lies.dialects import DIALECTS
from tests.lies.frameworks import FRAMEWORKS
from tests.lies.loops import LOOPS, make_loop

Open = Callable[[Agent], AbstractContextManager[Any]]
FOLDER = Path(__file__).parent
PROGRAMS = {"node": "agent.mjs", "perl": "agent.pl"}


class Form(NamedTuple):
    """How an agent is opened, and whether its last message is a call of `final_answer`."""

    name: str
    open: Open
    ends_with_a_call: bool = False
    missing: str = ""

    def script(self, agent: Agent) -> list[Any]:
        """Return what the model does in this form."""
        turns = [
            (PROMPT, agent.steps, agent.last),
            *((text, (), last) for text, last in agent.more),
        ]
        return [
            *agent.roles,
            *(when(text, [*steps, self._end(last)]) for text, steps, last in turns),
        ]

    def _end(self, text: str) -> Any:
        if self.ends_with_a_call:
            return call("final_answer", {"answer": text}, unanswered=True)
        return say(text)


def open_loop(name: str, agent: Agent) -> Any:
    loop = make_loop(agent, (LOOPS | DIALECTS)[name])
    return drive(loop, serve=name == "realtime")  # a WebSocket needs a server


def open_framework(name: str, agent: Agent) -> Any:
    return drive(FRAMEWORKS[name](agent))


def open_session(agent: Agent) -> Any:
    def extension(api: Api) -> None:
        def add(name: str, text: str) -> None:
            @api.tool(name, text, SCHEMA)
            def run(params: dict[str, Any], ctx: Context) -> str:
                return agent.inside(agent.shop.run, Call("", name, params))

        for name, text in TOOLS.items():
            add(name, text)
        agent.hooks(api)

    return session(extensions=[extension], system_prompt=SYSTEM)


def open_command(program: str, agent: Agent) -> Any:
    words = [program, str(FOLDER / "commands" / PROGRAMS[program]), agent.program, "{prompt}"]
    return drive(Command(words))


def missing(program: str) -> str:
    return "" if shutil.which(program) else f"{program} is not installed"


FORMS = {
    form.name: form
    for form in [
        *(Form(name, partial(open_loop, name)) for name in (*LOOPS, *DIALECTS)),
        *(Form(name, partial(open_framework, name), name == "smolagents") for name in FRAMEWORKS),
        Form("session", open_session),
        *(Form(name, partial(open_command, name), missing=missing(name)) for name in PROGRAMS),
    ]
}
