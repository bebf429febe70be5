"""Extensions: the `Api` they register with, and how they are loaded.

An extension is a function that receives the `Api` of a session:

    def extension(api):
        @api.tool("greet", "Greet a user.", {"type": "object", "properties": {"name": …}})
        async def greet(params, ctx):
            return f"Hello {params['name']}"

        @api.on("tool_call")
        def guard(event, ctx):
            if event.tool == "bash" and "rm -rf" in event.input["command"]:
                return {"block": True, "reason": "not allowed"}

It is loaded for real: from a file or a package folder, from `module:function`, from an entry point
of the group `offbook.extensions`, or given as a function.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from offbook.errors import ExtensionError, OffbookError, UsageError, did_you_mean
from offbook.exchange.model import Tool
from offbook.files import run_source
from offbook.options import Name, decode, require_function, require_list
from offbook.subjects.mock_tools import describe_exception
from offbook.subjects.session.tools import call_function

if TYPE_CHECKING:
    from collections.abc import Generator
    from types import ModuleType

    from offbook.subjects.session.tools import Hook, Hooks, ToolFunction, ToolRegistry

ENTRY_POINT_GROUP = "offbook.extensions"
DEFAULT_FUNCTION = "extension"
MODULE_PREFIX = "_offbook_extension_"
_loads = count(1)

ExtensionFactory = Callable[["Api"], object]
CommandHandler = Callable[..., object]


class Api:
    """The object with which an extension registers tools, hooks and commands.

        from offbook import Api, Context

        def extension(api: Api) -> None:
            @api.tool("weather", "Weather of a city.", {"type": "object"})
            def weather(params: dict[str, Any], ctx: Context) -> str:
                return "sunny"

            @api.on("session_start")
            def started(event: HookEvent, ctx: Context) -> None:
                ctx.ui.set_status("weather", "ready")

            @api.command("forecast")
            async def forecast(args: str, ctx: Context) -> None:
                ctx.ui.notify(f"forecast for {args}")

    An extension may keep the `Api` and register more while the session runs.
    """

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
        """Register the decorated function `(params, ctx)` as a tool.

        `parameters` is a JSON schema. The function, plain or async, returns a string, None, a
        `ToolOutcome`, or a dict such as `{"content": "…", "details": {…}, "is_error": False}`.
        """

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
        """Register a tool, as `tool` does without a decorator."""
        decode(name, Name, "a tool needs a name", where=self._owner)
        require_function(execute, f"tool {name!r}", where=self._owner)
        schema = decode(
            parameters or {},
            dict[str, Any],
            f"the parameters of the tool {name!r}",
            where=self._owner,
            hint='write a JSON schema: {"type": "object", "properties": {…}}',
        )
        # The registry compiles the schema, so a wrong one fails here, not at the first call.
        self._tools.add(Tool(name, description, schema), execute, self._owner)

    def command(self, name: str) -> Callable[[CommandHandler], CommandHandler]:
        """Register the decorated function `(args, ctx)` as the command `/name`.

        The prompt `/name some text` calls it with `"some text"`, without the model.
        """
        if not isinstance(name, str) or not name.removeprefix("/"):
            raise UsageError(f"a command needs a name, got {name!r}", where=self._owner)
        name = name.removeprefix("/")

        def register(handler: CommandHandler) -> CommandHandler:
            require_function(handler, f"command /{name}", where=self._owner)
            if name in self._commands:
                raise UsageError(
                    f"command /{name} is registered twice", where=self._owner, hint="rename one"
                )
            self._commands[name] = handler
            return handler

        return register

    def on(self, event: str) -> Callable[[Hook], Hook]:
        """Register the decorated function `(event, ctx)` as a hook.

        The events are `session_start`, `agent_start`, `turn_start`, `tool_call`, `tool_result`,
        `turn_end`, `agent_end` and `session_shutdown`. A `tool_call` hook can block a call or
        change its parameters, a `tool_result` hook can replace the result.
        """

        def register(hook: Hook) -> Hook:
            self._hooks.add(event, hook, self._owner)
            return hook

        return register

    @property
    def tools(self) -> list[str]:
        """The names of all tools of the session."""
        return sorted(self._tools.names())

    def set_active_tools(self, names: Iterable[str] | None) -> None:
        """Offer only these tools to the model in the following requests; None offers all."""
        active = None if names is None else set(require_list(names, "set_active_tools: the names"))
        self._tools.activate(cast("set[str] | None", active))


async def install_extension(
    spec: object, tools: ToolRegistry, hooks: Hooks, commands: dict[str, CommandHandler]
) -> tuple[str, ExtensionFactory]:
    """Load an extension and call its function; return its name and the function."""
    name, factory = resolve_extension(spec)
    try:
        with _explain_errors(name):
            await call_function(factory, Api(name, tools, hooks, commands))
    except BaseException:  # also when the run is cancelled
        unload_extension(factory)
        raise
    return name, factory


def resolve_extension(spec: object) -> tuple[str, ExtensionFactory]:
    """Return the name and the function of an extension: a path, a module, an entry point, …."""
    if isinstance(spec, Path):
        return str(spec), _load_file(spec)
    if callable(spec):
        name = getattr(spec, "__qualname__", type(spec).__qualname__)
        return name, cast("ExtensionFactory", spec)
    if not isinstance(spec, str):
        raise ExtensionError(
            f"expected an extension, got {type(spec).__name__}",
            hint="give a path, 'module:function', the name of an entry point, or a function",
        )
    # Anything that looks like a path is one, so that a missing file is reported as such.
    if spec.endswith(".py") or "/" in spec or "\\" in spec or Path(spec).is_dir():
        return spec, _load_file(Path(spec))
    module_name, colon, attribute = spec.partition(":")
    if colon:
        with _explain_errors(spec):
            module = importlib.import_module(module_name)
        return spec, _find_function(module, attribute or DEFAULT_FUNCTION, spec)

    from importlib.metadata import entry_points  # slow, and only needed here

    points = entry_points(group=ENTRY_POINT_GROUP)
    if spec not in points.names:
        hint = f"{did_you_mean(spec, points.names)}; " if points.names else ""
        raise ExtensionError(
            f"no installed package provides an extension {spec!r}",
            hint=f"{hint}write a file with its .py, a module as 'module:function'",
        )
    with _explain_errors(spec):
        function = points[spec].load()
    if not callable(function):
        kind = type(function).__name__
        raise ExtensionError(f"the entry point must be a function, got {kind}", where=spec)
    return spec, cast("ExtensionFactory", function)


def _load_file(path: Path) -> ExtensionFactory:
    """Execute a file or a package folder as a new module, and return its function."""
    resolved = path.resolve()
    file = resolved / "__init__.py" if resolved.is_dir() else resolved
    if not file.is_file():
        siblings = [sibling.name for sibling in resolved.parent.glob("*.py")]
        hint = f"; {did_you_mean(resolved.name, siblings)}" if siblings else ""
        raise ExtensionError("file not found", where=str(path), hint=f"looked for {file}{hint}")
    # Each load has its own module name, so that two sessions never share the state of a module.
    module_name = f"{MODULE_PREFIX}{next(_loads)}"
    package = [str(resolved)] if resolved.is_dir() else None
    spec = importlib.util.spec_from_file_location(
        module_name, file, submodule_search_locations=package
    )
    if spec is None or spec.loader is None:
        raise ExtensionError("not a Python file", where=str(path))
    module = importlib.util.module_from_spec(spec)
    root = resolved if resolved.is_dir() else resolved.parent
    try:
        with _import_siblings(root, module_name), _explain_errors(str(path)):
            # Registered before it runs, as dataclasses and relative imports require.
            sys.modules[module_name] = module
            run_source(module, file)
        return _find_function(module, DEFAULT_FUNCTION, str(path))
    except BaseException:
        _forget_modules(module_name)
        raise


@contextmanager
def _import_siblings(root: Path, module_name: str) -> Generator[None]:
    """Let a file import its siblings, and forget them afterwards: each session loads new ones."""
    before = set(sys.modules)
    sys.path.insert(0, str(root))
    try:
        yield
    finally:
        sys.path.remove(str(root))
        for name in set(sys.modules) - before:
            file = getattr(sys.modules[name], "__file__", None)
            own = name == module_name or name.startswith(f"{module_name}.")
            if not own and file and Path(file).is_relative_to(root):
                del sys.modules[name]


def _forget_modules(module_name: str) -> None:
    for name in list(sys.modules):
        if name == module_name or name.startswith(f"{module_name}."):
            del sys.modules[name]


def unload_extension(factory: ExtensionFactory) -> None:
    """Remove the module of an extension that was loaded from a file."""
    module_name = getattr(factory, "__module__", "")
    if isinstance(module_name, str) and module_name.startswith(MODULE_PREFIX):
        _forget_modules(module_name.partition(".")[0])


def _find_function(module: ModuleType, attribute: str, where: str) -> ExtensionFactory:
    function = getattr(module, attribute, None)
    if callable(function):
        return cast("ExtensionFactory", function)
    if function is not None:
        kind = type(function).__name__
        raise ExtensionError(f"{attribute!r} must be a function, got {kind}", where=where)
    functions = [n for n, v in vars(module).items() if callable(v) and not n.startswith("_")]
    hint = f"; {did_you_mean(attribute, functions)}" if functions else ""
    raise ExtensionError(
        f"no function {attribute!r} in the extension",
        where=where,
        hint=f"define `def {attribute}(api): …`{hint}",
    )


@contextmanager
def _explain_errors(where: str) -> Generator[None]:
    """Turn any exception into an ExtensionError with the line and, where possible, a fix."""
    try:
        yield
    except OffbookError:  # already explains itself
        raise
    except (Exception, SystemExit) as error:
        hints: list[str] = []
        if isinstance(error, SyntaxError):
            hints.append(f"at {error.filename}:{error.lineno}")
        else:
            # The innermost frame of the extension's code; our own frames and importlib's are
            # of no use to its author.
            trace, line = error.__traceback__, ""
            while trace is not None:
                file = trace.tb_frame.f_code.co_filename
                if not file.startswith("<frozen") and file != __file__:
                    line = f"at {file}:{trace.tb_lineno}"
                trace = trace.tb_next
            hints.append(line)
        if isinstance(error, ImportError) and "circular import" in str(error):
            hints.append("two modules import each other: move the shared code into a third")
        elif isinstance(error, ModuleNotFoundError):
            hints.append(f"install {error.name!r}, or put it next to the extension")
        elif isinstance(error, SystemExit):
            hints.append("an extension must not exit while it is loaded")
        raise ExtensionError(
            f"the extension cannot be loaded: {describe_exception(error)}",
            where=where,
            hint="\n".join(filter(None, hints)),
        ) from error
