"""The user interface of a session: every call is answered by the test, and told to the trace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from inspect import isawaitable
from typing import TYPE_CHECKING, Any

from offbook.errors import UsageError, did_you_mean
from offbook.subjects.session.tools import fit_arity

if TYPE_CHECKING:
    from offbook.trace.hub import Hub

ASKED = ("confirm", "select", "input", "editor")
SHOWN = ("notify", "set_status", "set_widget")
ALIASES = {"setStatus": "set_status", "setWidget": "set_widget"}
DEFAULTS: dict[str, Any] = {"confirm": True, "select": 0, "input": "", "editor": ""}
SHAPES: dict[str, tuple[type, ...]] = {
    "confirm": (bool,),
    "select": (int, str),
    "input": (str,),
    "editor": (str,),
}


class UI:
    """What `ctx.ui` is under test.

    Answers come from `mock_ui`: a value, or a function of what was asked. Without one, `confirm`
    says yes, `select` takes the first item, `input` and `editor` give "".
    """

    def __init__(self, answers: dict[str, Any], hub: Hub) -> None:
        self._answers = DEFAULTS | answers
        self._hub = hub

    async def confirm(self, title: str, message: str = "") -> bool:
        """Ask yes or no."""
        answer = await self._answer("confirm", (title, message))
        return self._tell("confirm", (title, message), bool(answer))

    async def select(self, title: str, items: Sequence[str]) -> str | None:
        """Ask for one of these."""
        answer = self._answers["select"]
        args = (title, list(items))
        if callable(answer):
            picked = await self._answer("select", args)
            if picked is not None and picked not in items:
                raise UsageError(
                    f"the answer {picked!r} is not offered by {title!r}",
                    where="mock_ui['select']",
                    hint=did_you_mean(str(picked), items),
                )
            return self._tell("select", args, picked)
        fallback = isinstance(answer, str) and answer not in items
        return self._tell("select", args, pick(answer, items), fallback=fallback)

    async def input(self, title: str, placeholder: str | None = None) -> str | None:
        """Ask for a line of text."""
        return await self._ask("input", title, *given(placeholder))

    async def editor(self, title: str, prefilled: str | None = None) -> str | None:
        """Ask for a longer text."""
        return await self._ask("editor", title, *given(prefilled))

    def notify(self, message: str, level: str = "info") -> None:
        """Show a message."""
        self._show("notify", message, level)

    def set_status(self, key: str, value: str | None) -> None:
        """Show a value in the status line."""
        self._show("set_status", key, value)

    def set_widget(self, key: str, lines: Sequence[str] | None) -> None:
        """Show some lines of one's own."""
        self._show("set_widget", key, None if lines is None else list(lines))

    async def _ask(self, method: str, *args: Any) -> str | None:
        answer = await self._answer(method, args)
        if answer is not None and not isinstance(answer, str):
            raise UsageError(
                f"the answer is a {type(answer).__name__}",
                where=f"mock_ui[{method!r}]",
                hint="answer with a string, or None for no answer",
            )
        return self._tell(method, args, answer)

    async def _answer(self, method: str, args: tuple[Any, ...]) -> Any:
        answer = self._answers[method]
        if callable(answer):
            answer = answer(*args)
            if isawaitable(answer):
                answer = await answer
        return answer

    def _show(self, method: str, *args: object) -> None:
        handler = self._answers.get(method)
        if callable(handler):
            handler(*args)
        self._hub.emit(f"ui.{method}", {"method": method, "args": list(args)})

    def _tell(
        self, method: str, args: tuple[Any, ...], answer: Any, *, fallback: bool = False
    ) -> Any:
        """Tell what was asked and answered; `fallback` says that the wanted item was not there."""
        data = {"method": method, "args": list(args), "answer": answer}
        self._hub.emit(f"ui.{method}", {**data, "fallback": True} if fallback else data)
        return answer


def given(value: str | None) -> tuple[str, ...]:
    """An optional argument, as arguments."""
    return () if value is None else (value,)


def pick(choice: int | str | None, items: Sequence[str]) -> str | None:
    """An item by its number or its text; no such number is no answer, no such text the first."""
    if not items or choice is None:
        return None
    if isinstance(choice, int):
        return items[choice] if 0 <= choice < len(items) else None
    return choice if choice in items else items[0]


def validate_mock_ui(answers: Mapping[str, Any]) -> dict[str, Any]:
    """The answers under their Python names, each of a type that its question can take."""
    checked: dict[str, Any] = {}
    for key, answer in answers.items():
        name = ALIASES.get(key, key)
        if name not in ASKED + SHOWN:
            raise UsageError(f"mock_ui has no {key!r}", hint=did_you_mean(str(key), ASKED + SHOWN))
        if not _fits(name, answer):
            raise UsageError(
                f"mock_ui[{key!r}] is a {type(answer).__name__}", hint=f"give {_wanted(name)}"
            )
        checked[name] = fit_arity(answer) if callable(answer) else answer
    return checked


def _fits(name: str, answer: object) -> bool:
    if callable(answer):
        return True
    if name in SHOWN:
        return answer == "collect"
    if isinstance(answer, bool) and name != "confirm":
        return False
    return isinstance(answer, SHAPES[name]) or (answer is None and name != "confirm")


def _wanted(name: str) -> str:
    if name in SHOWN:
        return '"collect" or a function'
    kinds = " or ".join(kind.__name__ for kind in SHAPES[name])
    return f"a {kinds}, or a function"
