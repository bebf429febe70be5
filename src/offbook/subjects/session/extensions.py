"""Extensions are loaded for real: from a file, a module, an entry point, or a function.

An extension is a function that is given the `Api` and registers what it brings:

    def extension(api):
        @api.tool("greet", "Greet somebody.", {"type": "object", …})
        async def greet(params, ctx): ...

        @api.on("tool_call")
        def guard(moment, ctx): ...
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import contextmanager
from inspect import isawaitable
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from offbook.errors import ExtensionError, OffbookError, UsageError, did_you_mean
from offbook.exchange.model import Tool
from offbook.files import run_source
from offbook.subjects.session.tools import describe_exception

if TYPE_CHECKING:
    from collections.abc import Generator
    from types import ModuleType

    from offbook.subjects.session.hooks import Hook, Hooks
    from offbook.subjects.session.tools import ToolFunction, ToolRegistry

GROUP = "offbook.extensions"
ENTRY = "extension"
TITLE = "_offbook_extension_"
_loads = count(1)

ExtensionFactory = Callable[["Api"], object]
CommandHandler = Callable[..., object]


class Api:
    """What an extension may do while it is loaded, and later through what it registered."""

    def __init__(
        self, owner: str, tools: ToolRegistry, hooks: Hooks, commands: dict[str, CommandHandler]
    ) -> None:
        self._owner = owner
        self._tools = tools
        self._hooks = hooks
        self._commands = commands

    def tool(
        self, name: str, description: str = "", parameters: Mapping[str, Any] | None = None
    ) -> Callable[[ToolFunction], ToolFunction]:
        """Register the decorated function `(params, ctx)` as a tool."""

        def register(execute: ToolFunction) -> ToolFunction:
            self.register_tool(name, execute, description=description, parameters=parameters)
            return execute

        return register

    def register_tool(
        self,
        name: str,
        execute: ToolFunction,
        *,
        description: str = "",
        parameters: Mapping[str, Any] | None = None,
    ) -> None:
        """Register a tool."""
        if not isinstance(name, str) or not name:
            raise UsageError("a tool needs a name", where=self._owner)
        if not callable(execute):
            raise UsageError(f"the tool {name!r} is no function", where=self._owner)
        if parameters is not None and not isinstance(parameters, Mapping):
            raise UsageError(
                f"the parameters of {name!r} are a {type(parameters).__name__}",
                where=self._owner,
                hint='give a JSON schema: {"type": "object", "properties": {…}}',
            )
        self._tools.add(Tool(name, description, dict(parameters or {})), execute, self._owner)

    def command(self, name: str) -> Callable[[CommandHandler], CommandHandler]:
        """Register the decorated function `(args, ctx)` as the command `/name`."""
        if not isinstance(name, str) or not name.removeprefix("/"):
            raise UsageError("a command needs a name", where=self._owner)
        bare = name.removeprefix("/")

        def register(handler: CommandHandler) -> CommandHandler:
            if not callable(handler):
                raise UsageError(f"the command /{bare} is no function", where=self._owner)
            if bare in self._commands:
                raise UsageError(
                    f"the command /{bare} is registered twice", where=self._owner, hint="rename one"
                )
            self._commands[bare] = handler
            return handler

        return register

    def on(self, moment: str) -> Callable[[Hook], Hook]:
        """Register the decorated function `(moment, ctx)` as a hook."""

        def register(hook: Hook) -> Hook:
            self._hooks.add(moment, hook, self._owner)
            return hook

        return register

    @property
    def tools(self) -> list[str]:
        """The names of all tools there are."""
        return sorted(self._tools.names())

    def set_active_tools(self, names: Iterable[str] | None) -> None:
        """Offer only these tools to the model from now on; None offers all."""
        if isinstance(names, str):
            raise UsageError("set_active_tools takes a list of names", where=self._owner)
        self._tools.activate(None if names is None else set(names))


def resolve_extension(spec: object) -> tuple[str, ExtensionFactory]:
    """The name and the entry function of an extension, wherever it lives."""
    if isinstance(spec, Path):
        return _from_file(spec)
    if callable(spec):
        return getattr(spec, "__qualname__", repr(spec)), cast("ExtensionFactory", spec)
    if not isinstance(spec, str):
        raise ExtensionError(
            f"an extension is a path, 'module:attr', an entry point or a function, "
            f"not {type(spec).__name__}"
        )
    if spec.endswith(".py") or "/" in spec or "\\" in spec or Path(spec).is_dir():
        return _from_file(Path(spec))
    module, colon, attribute = spec.partition(":")
    return _from_module(spec, module, attribute) if colon else _from_entry(spec)


def _from_file(path: Path) -> tuple[str, ExtensionFactory]:
    name = str(path)
    place = path.resolve()
    file = place / "__init__.py" if place.is_dir() else place
    if not file.is_file():
        siblings = [str(p.relative_to(place.parent)) for p in place.parent.glob("*.py")]
        raise ExtensionError(
            "there is no such file",
            where=name,
            hint=f"looked for {file}; {did_you_mean(place.name, siblings)}",
        )
    root = place if place.is_dir() else place.parent
    title = f"{TITLE}{next(_loads)}"
    package = [str(place)] if place.is_dir() else None
    spec = importlib.util.spec_from_file_location(title, file, submodule_search_locations=package)
    if spec is None or spec.loader is None:
        raise ExtensionError("this is not a Python file", where=name)
    module = importlib.util.module_from_spec(spec)
    try:
        with _neighbours(root, title), _reported(name):
            sys.modules[title] = module
            run_source(module, file)
        return name, _entry(module, ENTRY, name)
    except BaseException:
        _forget(title)
        raise


@contextmanager
def _neighbours(root: Path, title: str) -> Generator[None]:
    """Let a file import its neighbours, and forget them again: each session gets fresh ones."""
    before = set(sys.modules)
    sys.path.insert(0, str(root))
    try:
        yield
    finally:
        sys.path.remove(str(root))
        for name in set(sys.modules) - before:
            file = getattr(sys.modules[name], "__file__", None)
            if not _belongs(name, title) and file and Path(file).is_relative_to(root):
                del sys.modules[name]


def _belongs(name: str, title: str) -> bool:
    return name == title or name.startswith(f"{title}.")


def _forget(title: str) -> None:
    for name in [name for name in sys.modules if _belongs(name, title)]:
        del sys.modules[name]


def unload_extension(factory: ExtensionFactory) -> None:
    """Forget the module that was made for an extension, once its session is over."""
    title = getattr(factory, "__module__", "")
    if isinstance(title, str) and title.startswith(TITLE):
        _forget(title.partition(".")[0])


def _from_module(spec: str, module: str, attribute: str) -> tuple[str, ExtensionFactory]:
    with _reported(spec):
        found = importlib.import_module(module)
    return spec, _entry(found, attribute or ENTRY, spec)


def _from_entry(name: str) -> tuple[str, ExtensionFactory]:
    from importlib.metadata import entry_points

    points = entry_points(group=GROUP)
    if name not in points.names:
        raise ExtensionError(
            f"no installed package offers an extension {name!r}",
            hint=f"{did_you_mean(name, points.names)}; a file needs its .py, a module its ':attr'",
        )
    with _reported(name):
        found = points[name].load()
    if not callable(found):
        raise ExtensionError(f"the entry point is a {type(found).__name__}", where=name)
    return name, cast("ExtensionFactory", found)


def _entry(module: ModuleType, attribute: str, where: str) -> ExtensionFactory:
    found = getattr(module, attribute, None)
    if callable(found):
        return cast("ExtensionFactory", found)
    functions = [n for n, v in vars(module).items() if callable(v) and not n.startswith("_")]
    if found is not None:
        raise ExtensionError(f"{attribute!r} is a {type(found).__name__}, no function", where=where)
    raise ExtensionError(
        f"there is no function {attribute!r}",
        where=where,
        hint=f"define `def {attribute}(api): …`; {did_you_mean(attribute, functions)}",
    )


@contextmanager
def _reported(where: str) -> Generator[None]:
    try:
        yield
    except OffbookError:
        raise
    except (Exception, SystemExit) as error:
        raise ExtensionError(
            f"the extension cannot be loaded: {describe_exception(error)}",
            where=where,
            hint="\n".join(filter(None, (_spot(error), _mend(error)))),
        ) from error


def _mend(error: BaseException) -> str:
    """What to do about it, where that can be told from the error."""
    if isinstance(error, ImportError) and "circular import" in str(error):
        return "two of its modules import each other: move what both need into a third"
    if isinstance(error, ModuleNotFoundError):
        return f"install {error.name!r}, or put it beside the extension"
    if isinstance(error, SystemExit):
        return "an extension must not exit while it is loaded"
    return ""


def _spot(error: BaseException) -> str:
    """Where in the extension's own code it happened."""
    if isinstance(error, SyntaxError):
        return f"at {error.filename}:{error.lineno}"
    trace = error.__traceback__
    spot = ""
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if not file.startswith("<frozen") and file != __file__:
            spot = f"at {file}:{trace.tb_lineno}"
        trace = trace.tb_next
    return spot


async def install_extension(
    spec: object, tools: ToolRegistry, hooks: Hooks, commands: dict[str, CommandHandler]
) -> tuple[str, ExtensionFactory]:
    """Load an extension and let it register what it brings; its name and entry come back."""
    name, factory = resolve_extension(spec)
    try:
        with _reported(name):
            answer = factory(Api(name, tools, hooks, commands))
            if isawaitable(answer):
                await answer
    except BaseException:
        unload_extension(factory)
        raise
    return name, factory
