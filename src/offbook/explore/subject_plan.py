"""The Python that makes a candidate the subject of a test: its imports and one expression."""

from __future__ import annotations

import ast
import dataclasses
import enum
import inspect
import json
import re
import sys
import types
import typing
from collections.abc import Callable as CallableType
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from offbook.errors import UsageError, did_you_mean
from offbook.exchange.python_source import literal
from offbook.exchange.schema_values import (
    list_plausible,
    make_arguments,
    properties_of,
    resolve_schema,
)
from offbook.explore.candidates import (
    MESSAGE_PARAMETERS,
    PROMPT_PARAMETERS,
    Candidate,
    source_files,
)
from offbook.explore.candidates import module_name as name_module

if TYPE_CHECKING:
    from collections.abc import Sequence

# A test has these names: those of the project are imported as others.
NAMES_OF_TESTS = frozenset("call offbook prompt rehearsal run say send_prompt when".split())  # noqa: SIM905
APPLICATION = re.compile(r"\b(?:FastAPI|Starlette|Flask|Quart)\(")


class SubjectPlan(msgspec.Struct):
    """The Python that makes the subject: import lines, the expression, and options of `drive`."""

    imports: list[str] = []
    expression: str = ""
    options: dict[str, str] = {}

    def build(self) -> tuple[Any, dict[str, Any]]:
        """Return the subject and its options, as the test makes them."""
        names: dict[str, Any] = {}
        exec("\n".join(self.imports), names)  # noqa: S102 - the lines of the test
        options = {name: eval(text, names) for name, text in self.options.items()}  # noqa: S307 - as above
        return eval(self.expression, names), options  # noqa: S307 - as above


class Planner:
    """Writes the expression for a candidate, after its module was imported."""

    def __init__(self, candidate: Candidate, given: dict[str, str]) -> None:
        self._candidate = candidate
        self._given = given
        self._plan = SubjectPlan()
        self._module: Any = None

    def plan(self) -> SubjectPlan:
        """Return the plan; raise an error for a value that is not known."""
        self._write()
        for line in [*self._plan.imports]:
            module, _, name = line.removeprefix("from ").partition(" import ")
            if name in NAMES_OF_TESTS:
                self._rename(module, name, f"{module.rpartition('.')[2]}_{name}")
        return self._plan

    def _rename(self, module: str, name: str, alias: str) -> None:
        """Import a name as another one: the test has this name itself."""
        plan = self._plan
        plan.imports[plan.imports.index(f"from {module} import {name}")] += f" as {alias}"

        def rename(expression: str) -> str:
            tree = ast.parse(expression, mode="eval")
            for node in ast.walk(tree):
                if isinstance(node, ast.Name) and node.id == name:
                    node.id = alias
            return ast.unparse(tree)

        plan.expression = rename(plan.expression)
        plan.options = {option: rename(text) for option, text in plan.options.items()}

    def _write(self) -> None:
        candidate = self._candidate
        module_name, _, label = candidate.target.partition(":")
        module = import_module(module_name)
        head, _, method = label.partition(".")
        if candidate.kind == "route":  # its function may be inside of another one
            self._route(module_name)
            return
        if not hasattr(module, head):
            names = [name for name in vars(module) if not name.startswith("_")]
            raise UsageError(f"{module_name} has no {head!r}", hint=did_you_mean(head, names))
        owner = getattr(module, head)
        target = getattr(owner, method) if method else owner
        self._module = module
        if candidate.kind == "cli":
            self._cli(module_name, head, target)
        else:
            self._import(module_name, head)
            self._object(owner, target, label, method, is_factory=candidate.kind == "factory")

    def _import(self, module: str, name: str) -> None:
        if (
            module != "builtins"
            and (line := f"from {module} import {name}") not in self._plan.imports
        ):
            self._plan.imports.append(line)

    def _object(
        self, owner: Any, target: Any, label: str, method: str, *, is_factory: bool
    ) -> None:
        plan = self._plan
        bound = False
        if inspect.isclass(owner) and method:
            bound = not isinstance(
                inspect.getattr_static(owner, method), (staticmethod, classmethod)
            )
            if bound:
                label = f"{owner.__name__}({self._call(owner)}).{method}"
                if not is_factory:
                    self._function(target, label, skip_self=True)
                    return
        if inspect.isclass(target):
            plan.expression = f"{label}({self._call(target)})"
        elif is_factory or (inspect.isroutine(target) and self._prompt_of(target) is None):
            made = f"{label}({self._call(target, skip=bound)})"
            plan.expression = made
            if inspect.iscoroutinefunction(target):
                self._plan.imports.insert(0, "import asyncio\n")
                plan.expression = f"asyncio.run({made})"
        elif inspect.isroutine(target):
            self._function(target, label)
            return
        else:
            plan.expression = label
        agent = plan.build()[0]
        self._options_of(agent)

    def _options_of(self, agent: Any) -> None:
        """Add the dependencies that a run of the agent needs."""
        name, kind = "deps", getattr(agent, "deps_type", None)
        if kind is None and type(agent).__module__.startswith("agents."):
            made = getattr(agent, "__orig_class__", None)
            name, kind = "context", next(iter(typing.get_args(made)), None)
        elif type(agent).__module__.startswith("langgraph."):
            name, kind = "context", getattr(agent, "context_schema", None)
        if kind in {None, type(None), object, Any} or isinstance(kind, typing.TypeVar):
            return
        self._plan.options[name] = self._value(name, kind, inspect.Parameter.empty, 0)

    def _prompt_of(self, function: Any) -> str | None:
        """Return the parameter of a function that takes the prompt."""
        parameters = list(inspect.signature(function).parameters.values())
        names = [p.name for p in parameters if p.name not in {"self", "cls"}]
        for name in names:
            if name in PROMPT_PARAMETERS | MESSAGE_PARAMETERS:
                return name
        required = [
            p
            for p in parameters
            if p.default is p.empty
            and p.kind in {p.POSITIONAL_OR_KEYWORD, p.POSITIONAL_ONLY}
            and p.name not in {"self", "cls"}
        ]
        return required[0].name if len(required) == 1 and _is_text(required[0]) else None

    def _function(self, function: Any, label: str, *, skip_self: bool = False) -> None:
        """Write a function of the prompt: itself, or a lambda that adds the other arguments."""
        prompt = self._prompt_of(function)
        parameters = [*inspect.signature(function).parameters.values()][skip_self:]
        required = [p for p in parameters if _is_required(p)]
        if prompt is not None and all(p.name == prompt for p in required):
            first = next(iter(parameters)).name == prompt
            streams = inspect.isgeneratorfunction(function)
            if first and prompt not in MESSAGE_PARAMETERS and not streams:
                self._plan.expression = label
                return
        inner = {} if prompt is None else {prompt: "prompt"}
        if prompt in MESSAGE_PARAMETERS:
            inner = {str(prompt): '[{"role": "user", "content": prompt}]'}
        arguments = self._call(function, skip=skip_self, fixed=inner)
        called = f"{label}({arguments})"
        if inspect.isgeneratorfunction(function):  # it yields the parts of its answer
            called = f'"".join(map(str, {called}))'
        self._plan.expression = f"lambda prompt: {called}"

    def _call(
        self, function: Any, *, skip: bool = False, fixed: dict[str, str] | None = None
    ) -> str:
        """Return the arguments of a call: the fixed ones, and values for those required."""
        try:
            parameters = [*inspect.signature(function).parameters.values()][skip:]
        except (TypeError, ValueError):
            return ""
        source: Any = function.__init__ if inspect.isclass(function) else function
        try:
            hints = typing.get_type_hints(source)
        except Exception:  # noqa: BLE001 - annotations of the user may name what is not imported
            hints = {}
        if dataclasses.is_dataclass(function) or hasattr(function, "model_fields"):
            hints = _class_hints(function) or hints
        written: list[str] = []
        for parameter in parameters:
            name = parameter.name
            if fixed and name in fixed:
                value = fixed[name]
            elif name in self._given:
                value = self._given[name]
            elif _is_required(parameter):
                value = self._value(name, hints.get(name, parameter.annotation), parameter.empty, 1)
            else:
                continue
            only = parameter.kind is parameter.POSITIONAL_ONLY
            written.append(value if only else f"{name}={value}")
        if len(written) == 1 and fixed and not any(_is_keyword_only(p) for p in parameters):
            written = [written[0].partition("=")[2] or written[0]]
        return ", ".join(written)

    def _value(  # noqa: C901, PLR0911 - one for each kind
        self, name: str, annotation: Any, empty: Any, depth: int
    ) -> str:
        """Return an expression for a value of this type."""
        if name in self._given:
            return self._given[name]
        origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
        if origin is typing.Annotated:
            return self._value(name, arguments[0], empty, depth)
        if origin in {typing.Union, types.UnionType}:
            if type(None) in arguments:
                return "None"
            return self._value(name, arguments[0], empty, depth)
        if origin is typing.Literal:
            return literal(arguments[0])
        kind = origin or annotation
        if name in {"model", "model_name", "model_id"} and kind in {str, empty}:
            return literal(self._model_name(name))
        plausible = next(iter(list_plausible(name, "")), None)
        if kind is str or (annotation is empty and plausible is not None):
            return literal(str(plausible if plausible is not None else "test"))
        simple = {int: "1", float: "1.0", bool: "False", list: "[]", dict: "{}", set: "set()"}
        simple |= {tuple: "()", bytes: 'b""', type(None): "None"}
        if kind in simple:
            return simple[kind]
        if kind is CallableType:
            return "lambda *args, **kwargs: None"
        if kind is Path:
            self._import("pathlib", "Path")
            return 'Path(".")'
        if inspect.isclass(kind) and not inspect.isabstract(kind) and depth < 4:  # noqa: PLR2004 - deep enough
            if issubclass(kind, enum.Enum):
                self._import(kind.__module__, kind.__qualname__.partition(".")[0])
                return f"{kind.__qualname__}.{next(iter(kind)).name}"
            if "." not in kind.__qualname__ and not getattr(kind, "_is_protocol", False):
                if getattr(kind, "__total__", None) is not None:  # a TypedDict
                    fields = typing.get_type_hints(kind).items()
                    items = [
                        f"{literal(k)}: {self._value(k, v, empty, depth + 1)}" for k, v in fields
                    ]
                    return "{" + ", ".join(items) + "}"
                try:
                    inspect.signature(kind)
                except (TypeError, ValueError):
                    pass
                else:
                    if kind is not object:
                        arguments_text = self._written_arguments(kind) or self._call(kind)
                        self._import(kind.__module__, kind.__qualname__)
                        return f"{kind.__qualname__}({arguments_text})"
        shown = getattr(annotation, "__name__", None) or str(annotation)
        what = "" if annotation is empty else f" ({shown})"
        raise UsageError(
            f"{self._candidate.target} needs {name}{what}, and no value of it can be made up",
            hint=f"offbook init {self._candidate.target} --with {name}=EXPRESSION",
        )

    def _written_arguments(self, kind: Any) -> str:
        """Return the arguments with which the project makes an object of a class, if literals."""
        names = dict.fromkeys([self._candidate.target.partition(":")[0], kind.__module__])
        for module in [sys.modules[name] for name in names if name in sys.modules]:
            try:
                tree = ast.parse(inspect.getsource(module))
            except (OSError, TypeError, SyntaxError):  # no source, as of a module in C
                continue
            for node in ast.walk(tree):
                if isinstance(node, ast.Call) and ast.unparse(node.func) == kind.__name__:
                    try:
                        words = [literal(ast.literal_eval(value)) for value in node.args]
                        words += [
                            f"{k.arg}={literal(ast.literal_eval(k.value))}" for k in node.keywords
                        ]
                    except ValueError:  # a name, or a call
                        continue
                    return ", ".join(words)
        return ""

    def _model_name(self, name: str) -> str:
        """Return the model that the module uses elsewhere, or one that its library knows."""
        text = inspect.getsource(self._module)
        if found := re.search(rf"""\b{name}(?:: ?str)? ?= ?["']([^"']+)["']""", text):
            return found[1]
        prefixed = re.search(r"pydantic_ai|init_chat_model|langchain.agents", text)
        return "openai:gpt-5" if prefixed else "gpt-5"

    # --- Web applications and command lines

    def _route(self, module_name: str) -> None:
        method, path = self._candidate.route
        found = _find_application(module_name, path)
        if found is None:
            raise UsageError(
                f"no application was found for the route {path}",
                hint="offbook init MODULE:FUNCTION, for a function of the prompt",
            )
        place, name, application, factory = found
        self._import(place, name)
        shown = f"{name}()" if factory else name
        kind = _framework_of(application)
        if kind == "flask":
            client, answer = f"{shown}.test_client()", ".get_data(as_text=True)"
            # A blueprint may have a prefix.
            path = next((p for p in _route_paths(application) if p.endswith(path)), path)
            fields = dict.fromkeys(self._candidate.fields, "prompt") or {"message": "prompt"}
            fields = {f: "prompt" if _is_prompt(f, fields) else '"1"' for f in fields}
            keyword = self._candidate.form
            body = "{" + ", ".join(f"{literal(f)}: {v}" for f, v in fields.items()) + "}"
        else:
            package = "fastapi" if kind == "fastapi" else "starlette"
            self._import(f"{package}.testclient", "TestClient")
            client, answer = f"TestClient({shown})", ".json()"
            path, keyword, body = self._body(application, path, method)
        path = re.sub(r"[{<](?:\w+:)?(\w+)[}>]", "1", path)
        sent = f", {keyword}={body}" if body else ""
        self._plan.expression = f"lambda prompt: {client}.{method}({literal(path)}{sent}){answer}"

    def _body(self, application: Any, path: str, method: str) -> tuple[str, str, str]:
        """Return the path, the keyword and the body of a request, from the OpenAPI schema."""
        describe = getattr(application, "openapi", None)
        document: dict[str, Any] = describe() if describe else {}
        paths: dict[str, Any] = document.get("paths", {})
        full = next((p for p in paths if p.endswith(path) and method in paths[p]), path)
        operation: dict[str, Any] = paths.get(full, {}).get(method, {})
        content: dict[str, Any] = operation.get("requestBody", {}).get("content", {})
        if content:
            kind, media = next(iter(content.items()))
            schema = {**media["schema"], "$defs": document.get("components", {}).get("schemas", {})}
            text = json.dumps(schema).replace("#/components/schemas/", "#/$defs/")
            marker = "offbook-prompt"
            schema = json.loads(text)
            resolved = resolve_schema(schema, schema)
            properties = properties_of(resolved)
            texts = [n for n, rules in properties.items() if rules.get("type") == "string"]
            chosen = next((n for n in texts if _is_prompt(n, texts)), None)
            given: dict[str, Any] = {chosen: marker} if chosen else {}
            if chosen:
                schema = {
                    **resolved,
                    "required": [*resolved.get("required", ()), chosen],
                    "$defs": schema["$defs"],
                }
            elif "messages" in properties:
                given = {"messages": [{"role": "user", "content": marker}]}
            body = make_arguments(schema, given=given)
            keyword = "json" if "json" in kind else "data"
            return full, keyword, literal(body).replace(f'"{marker}"', "prompt")
        queries = [p["name"] for p in operation.get("parameters", ()) if p.get("in") == "query"]
        items = [
            f"{literal(q)}: {'prompt' if _is_prompt(q, queries) else literal('1')}" for q in queries
        ]
        return full, "params", "{" + ", ".join(items) + "}" if items else ""

    def _cli(self, module_name: str, name: str, target: Any) -> None:
        """Write the invocation of a click command or a Typer application by its test runner."""
        self._import(module_name, name)
        typer = type(target).__module__.startswith("typer")
        command = target
        if typer:
            self._import("typer.testing", "CliRunner")
            command = import_module("typer.main").get_command(target)
        else:
            self._import("click.testing", "CliRunner")
        words: list[str] = []
        if commands := getattr(command, "commands", None):
            wanted = self._candidate.fields[0].replace("_", "-") if self._candidate.fields else ""
            chosen = wanted if wanted in commands else next(iter(commands))
            words, command = [literal(chosen)], commands[chosen]
        parameters = [p for p in command.params if p.required or p.param_type_name == "argument"]
        texts = [p.name for p in command.params]
        used = False
        for parameter in command.params:
            prompt = _is_prompt(parameter.name, texts) and not used
            if parameter not in parameters and not prompt:
                continue
            value = "prompt" if prompt else literal("1")
            used = used or prompt
            words += (
                [value]
                if parameter.param_type_name == "argument"
                else [
                    literal(parameter.opts[0]),
                    value,
                ]
            )
        stdin = "" if used else ", input=prompt"
        arguments = f"[{', '.join(words)}]"
        self._plan.expression = (
            f"lambda prompt: CliRunner().invoke({name}, {arguments}{stdin},"
            " catch_exceptions=False).output"
        )


def _is_required(parameter: inspect.Parameter) -> bool:
    variable = {parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD}
    return parameter.default is parameter.empty and parameter.kind not in variable


def _is_keyword_only(parameter: inspect.Parameter) -> bool:
    return parameter.kind is parameter.KEYWORD_ONLY


def _is_text(parameter: inspect.Parameter) -> bool:
    return parameter.annotation in {parameter.empty, str, "str"}


def _is_prompt(name: str, names: Sequence[str] | dict[str, str]) -> bool:
    """Return whether a field of a form is the prompt: by its name, or as the only one."""
    known = [other for other in names if other in PROMPT_PARAMETERS]
    return name == known[0] if known else len(names) == 1


def _class_hints(kind: Any) -> dict[str, Any]:
    try:
        return typing.get_type_hints(kind)
    except Exception:  # noqa: BLE001 - as above
        return {}


def _framework_of(application: Any) -> str:
    modules = {kind.__module__.partition(".")[0] for kind in type(application).__mro__}
    return next(
        (name for name in ("fastapi", "starlette", "flask", "quart") if name in modules), ""
    )


def _is_application(value: Any) -> bool:
    """Return whether an object is an application: a router or a blueprint is a part of one."""
    served = "test_client" if _framework_of(value) in {"flask", "quart"} else "add_middleware"
    return bool(_framework_of(value)) and not isinstance(value, type) and hasattr(value, served)


def _route_paths(application: Any) -> list[str]:
    rules = getattr(application, "url_map", None)
    if rules is not None:
        return [str(rule) for rule in rules.iter_rules()]
    return [str(getattr(route, "path", "")) for route in application.routes]


def _find_application(module_name: str, path: str) -> tuple[str, str, Any, bool] | None:
    """Return the module and name of the application with a route, itself, and whether it is made.

    The route may be of a router or a blueprint: then the application is in another module.
    """
    here = Path()
    making = [
        name_module(file, here)
        for file in source_files(here, ".py")
        if APPLICATION.search(file.read_text(encoding="utf-8", errors="replace"))
    ]
    found: list[tuple[str, str, Any, bool]] = []
    for name in dict.fromkeys([module_name, *making]):
        try:
            module = import_module(name)
        except ImportError:
            continue
        for attribute, value in [*vars(module).items()]:
            if _is_application(value):
                found.append((name, attribute, value, False))
            elif (
                inspect.isfunction(value)
                and value.__module__ == name
                and APPLICATION.search(inspect.getsource(value))
                and not any(_is_application(other) for other in vars(module).values())
            ):
                try:
                    found.append((name, attribute, value(), True))
                except TypeError:  # it needs arguments
                    continue
    with_route = [f for f in found if any(p.endswith(path) for p in _route_paths(f[2]))]
    return next(iter(with_route or found), None)
