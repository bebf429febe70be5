"""The user interface of a session, mocked by the test.

Extensions ask questions (`confirm`, `select`, `input`, `editor`) and show things (`notify`,
`set_status`, `set_widget`) through `ctx.ui`. The answers come from `mock_ui`; every call is an
event `ui.*` in the trace.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from inspect import isawaitable
from typing import TYPE_CHECKING, Any

from offbook.errors import UsageError, did_you_mean
from offbook.subjects.session.tools import fit_arity

if TYPE_CHECKING:
    from offbook.trace.hub import Hub

DISPLAYS = ("notify", "set_status", "set_widget")
# Extensions ported from TypeScript use these names.
ALIASES = {"setStatus": "set_status", "setWidget": "set_widget"}
DEFAULTS: dict[str, Any] = {"confirm": True, "select": 0, "input": "", "editor": ""}
METHODS = (*DEFAULTS, *DISPLAYS)
ANSWER_TYPES: dict[str, tuple[type, ...]] = {
    "confirm": (bool,),
    "select": (int, str),
    "input": (str,),
    "editor": (str,),
}


class UI:
    """The mocked `ctx.ui`.

    An answer in `mock_ui` is a value or a function of the question's arguments. The defaults:
    `confirm` returns True, `select` the first item, `input` and `editor` an empty string.
    """

    def __init__(self, answers: dict[str, Any], hub: Hub) -> None:
        self._answers = DEFAULTS | answers
        self._hub = hub

    async def confirm(self, title: str, message: str = "") -> bool:
        """Ask a yes-or-no question."""
        answer = bool(await self._answer("confirm", title, message))
        self._emit("confirm", title, message, answer=answer)
        return answer

    async def select(self, title: str, items: Sequence[str]) -> str | None:
        """Ask the user to choose one of the items. None means that the user cancelled."""
        choice = await self._answer("select", title, list(items))
        fallback: dict[str, bool] = {}
        if callable(self._answers["select"]):
            # A function knows the items, so a wrong answer is a mistake in the test.
            if choice is not None and choice not in items:
                raise UsageError(
                    f"answer {choice!r} is not an item of {title!r}",
                    where="mock_ui['select']",
                    hint=did_you_mean(str(choice), items),
                )
        elif not items:
            choice = None
        elif isinstance(choice, int):
            choice = items[choice] if 0 <= choice < len(items) else None
        elif choice is not None and choice not in items:
            # A constant answers every question of a test: where it does not fit, the first item
            # is chosen and the event says so.
            choice, fallback = items[0], {"fallback": True}
        self._emit("select", title, list(items), answer=choice, **fallback)
        return choice

    async def input(self, title: str, placeholder: str | None = None) -> str | None:
        """Ask for a line of text. None means that the user cancelled."""
        return await self._ask_text("input", title, placeholder)

    async def editor(self, title: str, prefilled: str | None = None) -> str | None:
        """Ask for a longer text. None means that the user cancelled."""
        return await self._ask_text("editor", title, prefilled)

    def notify(self, message: str, level: str = "info") -> None:
        """Show a message."""
        self._show("notify", message, level)

    def set_status(self, key: str, value: str | None) -> None:
        """Show a value in the status line; None removes it."""
        self._show("set_status", key, value)

    def set_widget(self, key: str, lines: Sequence[str] | None) -> None:
        """Show a block of lines; None removes it."""
        self._show("set_widget", key, None if lines is None else list(lines))

    async def _ask_text(self, method: str, title: str, preset: str | None) -> str | None:
        args = (title,) if preset is None else (title, preset)
        answer = await self._answer(method, *args)
        if answer is not None and not isinstance(answer, str):
            raise UsageError(
                f"expected a string or None as answer, got {type(answer).__name__}",
                where=f"mock_ui[{method!r}]",
            )
        self._emit(method, *args, answer=answer)
        return answer

    async def _answer(self, method: str, *args: Any) -> Any:
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
        self._emit(method, *args)

    def _emit(self, method: str, *args: Any, **answer: Any) -> None:
        self._hub.emit(f"ui.{method}", {"method": method, "args": list(args), **answer})


def validate_mock_ui(answers: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answers by Python method name, or raise a UsageError for a wrong one."""
    validated: dict[str, Any] = {}
    for key, answer in answers.items():
        method = ALIASES.get(key, key)
        if method not in METHODS:
            raise UsageError(
                f"mock_ui: unknown method {key!r}", hint=did_you_mean(str(key), METHODS)
            )
        if callable(answer):
            validated[method] = fit_arity(answer)
            continue
        if method in DISPLAYS:
            fits, expected = answer == "collect", '"collect"'
        else:
            kinds = ANSWER_TYPES[method]
            expected = ", ".join(kind.__name__ for kind in kinds)
            # True is an int, but not an index of `select`; every question but `confirm` can be
            # cancelled.
            fits = isinstance(answer, kinds) and (
                method == "confirm" or not isinstance(answer, bool)
            )
            fits = fits or (answer is None and method != "confirm")
        if not fits:
            raise UsageError(
                f"mock_ui[{key!r}]: expected {expected} or a function, got {type(answer).__name__}"
            )
        validated[method] = answer
    return validated
