"""What becomes of a lie in a test without an assertion, and the run that finds out."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple, cast

from offbook.determinism import block_network
from offbook.errors import OffbookError, OffbookWarning
from tests.lies.agent import Agent
from tests.lies.forms import FORMS, Form

GROUPS = {
    "red": "the run fails, and the message names the lie",
    "shown": "the run passes; `run.changes`, the trace and the reports show the lie",
    "assertion": "the run passes; one line in the test catches the lie",
    "unseen": "nothing that a test can reach is different",
}


class Expected(NamedTuple):
    """The group of a lie; the words of its message, its assertion, or why it cannot be seen."""

    group: str
    words: tuple[str, ...] = ()
    text: str = ""


def red(*words: str) -> Expected:
    """The run fails; its message has these words."""
    return Expected("red", words)


def shown(*words: str) -> Expected:
    """The run passes; a change has these words."""
    return Expected("shown", words)


def needs(assertion: str) -> Expected:
    """Only this assertion fails; it may use `run`, `shop` and the folder `cwd`."""
    return Expected("assertion", text=assertion)


def unseen(reason: str) -> Expected:
    """No assertion on the run and on the world of the test can fail."""
    return Expected("unseen", text=reason)


class Lie(NamedTuple):
    """A lying agent in one form."""

    agent: type[Agent]
    form: Form
    expected: Expected

    @property
    def name(self) -> str:
        return self.agent.__name__

    @property
    def does(self) -> str:
        return (self.agent.__doc__ or "").strip().splitlines()[0]

    def __str__(self) -> str:
        return f"{self.form.name}-{self.name}"


LIES: list[Lie] = []


def lie(forms: Iterable[str], expected: Expected) -> Any:
    """Register a class of lying agents in these forms."""

    def register(agent: type[Agent]) -> type[Agent]:
        LIES.extend(Lie(agent, FORMS[form], expected) for form in forms)
        return agent

    return register


class Outcome(NamedTuple):
    """What a run of an agent showed."""

    group: str  # red, shown, or green
    message: str
    failed: tuple[str, ...] = ()  # the assertions that did not hold
    seen: Any = None  # everything that an assertion could read


def rehearse(agent: Agent, form: Form, assertions: Iterable[str] = ()) -> Outcome:
    """Drive an agent by an otherwise empty test, then evaluate the assertions."""
    failed: list[str] = []
    with warnings.catch_warnings(record=True) as caught, block_network() as guard:  # as in pytest
        warnings.simplefilter("always", OffbookWarning)
        try:
            with form.open(agent) as rehearsal:
                agent.trace = rehearsal.trace
                run = rehearsal.run(*form.script(agent))
                names = {"run": run, "shop": agent.shop, "cwd": Path(rehearsal.cwd)}
                failed += [text for text in assertions if not _holds(text, names)]
                seen = _read_everything(run, agent)
                changes = [str(change) for change in getattr(run, "changes", ())]
        except OffbookError as error:
            return Outcome("red", str(error), tuple(failed))
    changes += [str(error) for error in guard.refused]
    changes += [str(one.message) for one in caught if one.category is OffbookWarning]
    group = "shown" if changes else "green"
    return Outcome(group, "\n".join(changes), tuple(failed), seen)


def _holds(assertion: str, names: dict[str, Any]) -> bool:
    try:
        return bool(eval(assertion, {}, names))  # noqa: S307 - our own table
    except OffbookError:  # such as UnknownOutcome
        return False


def _read_everything(run: Any, agent: Agent) -> Any:
    executed = [(one.name, one.input, one.result.text) for one in run.executed]
    requests = [
        (request.system, request.model, [message.text for message in request.messages])
        for request in run.requests
    ]
    # parallel calls end in any order
    return executed, requests, run.output, sorted(agent.shop.looked_up), agent.shop.refunded


def try_lie(one: Lie) -> Outcome:
    """Drive a lying agent, and return the group in which it belongs."""
    text = one.expected.text
    outcome = rehearse(one.agent(), one.form, [text] if one.expected.group == "assertion" else [])
    if outcome.group != "green":
        return outcome
    if outcome.failed:
        return outcome._replace(group="assertion", message=outcome.failed[0])
    same = outcome.seen == honest_twin(one).seen
    return outcome._replace(group="unseen" if same else "green")


TWINS: dict[tuple[str, str, str], Outcome] = {}


def honest_twin(one: Lie) -> Outcome:
    """Drive the same agent without the lie, with the assertions of all lies of its form.

    It is the class that the lie changes, with the script of the lie.
    """
    honest = one.agent.__base__ or Agent
    key = one.form.name, honest.__name__, repr((one.agent.steps, one.agent.last))
    if key not in TWINS:
        changed = {"steps": one.agent.steps, "last": one.agent.last}
        same = [
            other
            for other in LIES
            if other.form == one.form
            and other.agent.steps is one.agent.steps
            and other.agent.__base__ is one.agent.__base__
        ]
        texts = {lie.expected.text for lie in same if lie.expected.group == "assertion"}
        twin = cast("type[Agent]", type("Twin", (honest,), changed))
        TWINS[key] = rehearse(twin(), one.form, texts)
    return TWINS[key]
