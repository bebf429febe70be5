"""Loading extensions from every kind of location, and the errors when that fails."""

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from offbook import call, files, say, session, when
from offbook.errors import ExtensionError, OffbookError, UsageError
from offbook.subjects.session import Api, Context

JSON = dict[str, Any]

HELLO = """
def extension(api):
    @api.tool("hello")
    def hello(params, ctx):
        return GREETING
"""


def run_hello(extension: object) -> str:
    """Return the result of the tool `hello` of this extension."""
    with session(extensions=[extension]) as t:
        t.run(when("x", [call("hello"), say("ok")]))
        return t.events.tool_results[0].text


class Shop:
    """An extension that is an object."""

    def __call__(self, api: object) -> None:
        """Add nothing."""


def test_an_object_is_named_by_its_class():
    with session(extensions=[Shop()]) as t:
        t.run(when("x", [say("ok")]))
        assert [e.data["extension"] for e in t.events.named("session.extension")] == ["Shop"]


def add_to_path(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Make the modules in this folder importable."""
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
    importlib.invalidate_caches()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "greeter.py"
    path.write_text(HELLO.replace("GREETING", "'from a file'"))
    return path


def test_extension_from_a_file_path(file: Path):
    assert run_hello(str(file)) == "from a file"
    assert run_hello(file) == "from a file"


def test_relative_path_is_resolved_from_the_working_directory(
    file: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(file.parent)
    assert run_hello("greeter.py") == "from a file"
    assert run_hello("./greeter.py") == "from a file"


def test_extension_from_a_package_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    package = tmp_path / "greeter"
    package.mkdir()
    (package / "text.py").write_text("GREETING = 'from a package'\n")
    (package / "late.py").write_text("GREETING = 'imported late'\n")
    (package / "__init__.py").write_text(
        "from .text import GREETING\n"
        + HELLO
        + "    @api.tool('later')\n"
        + "    def later(params, ctx):\n"
        + "        from .late import GREETING\n"
        + "        return GREETING\n"
    )
    assert run_hello(str(package)) == "from a package"
    monkeypatch.chdir(tmp_path)
    assert run_hello("greeter") == "from a package"
    with session(extensions=[package]) as t:
        t.run(when("x", [call("later"), say("ok")]))
        assert t.events.tool_results[0].text == "imported late"


def test_extension_from_a_module_and_an_attribute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "offbook_test_module.py").write_text(
        HELLO.replace("GREETING", "'from a module'") + "other = extension\n"
    )
    add_to_path(monkeypatch, tmp_path)
    try:
        assert run_hello("offbook_test_module:other") == "from a module"
        assert run_hello("offbook_test_module:") == "from a module"
    finally:
        sys.modules.pop("offbook_test_module", None)


def install_package(tmp_path: Path, target: str) -> None:
    """Install a package with an entry point."""
    info = tmp_path / "greeter-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: greeter\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[offbook.extensions]\ngreeter = {target}\n")


def test_extension_from_an_entry_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "offbook_test_entry.py").write_text(
        HELLO.replace("GREETING", "'from an entry point'") + "nothing = 5\n"
    )
    install_package(tmp_path, "offbook_test_entry:extension")
    add_to_path(monkeypatch, tmp_path)
    try:
        assert run_hello("greeter") == "from an entry point"
        with pytest.raises(ExtensionError, match="did you mean 'greeter'"):
            session(extensions=["greter"])
    finally:
        sys.modules.pop("offbook_test_entry", None)


@pytest.mark.parametrize(
    "target, expected",
    [
        ("offbook_test_bad:nothing", "the entry point must be a function, got int"),
        ("no_such_module:x", "install 'no_"),
    ],
)
def test_broken_entry_point_is_an_error_with_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str, expected: str
):
    (tmp_path / "offbook_test_bad.py").write_text("nothing = 5\n")
    install_package(tmp_path, target)
    add_to_path(monkeypatch, tmp_path)
    try:
        with pytest.raises(ExtensionError) as caught:
            session(extensions=["greeter"])
        assert expected in str(caught.value)
        assert caught.value.where == "greeter"
    finally:
        sys.modules.pop("offbook_test_bad", None)


def test_extension_from_any_callable():
    def function(api: Api) -> None:
        @api.tool("hello")
        def hello(params: JSON, ctx: Context) -> str:
            return "from a function"

    async def coroutine(api: Api) -> None:
        function(api)

    class Object:
        def __call__(self, api: Api) -> None:
            function(api)

    for extension in (function, coroutine, Object()):
        assert run_hello(extension) == "from a function"


def test_each_session_reloads_a_file_and_its_siblings(tmp_path: Path):
    (tmp_path / "state.py").write_text("count = []\n")
    (tmp_path / "counting.py").write_text(
        "import state\nstate.count.append(1)\n" + HELLO.replace("GREETING", "str(state.count)")
    )
    assert [run_hello(tmp_path / "counting.py") for _ in range(2)] == ["[1]", "[1]"]
    assert "state" not in sys.modules


def test_no_module_of_a_loaded_file_remains(file: Path):
    before, path = set(sys.modules), list(sys.path)
    run_hello(file)
    assert {name for name in set(sys.modules) - before if "offbook_extension" in name} == set()
    assert sys.path == path


def test_a_loaded_file_is_a_regular_module_during_the_session(tmp_path: Path):
    file = tmp_path / "typed.py"
    file.write_text(
        "from __future__ import annotations\n"
        "import dataclasses, typing\n"
        "@dataclasses.dataclass\n"
        "class Point:\n    x: int\n"
        "def extension(api):\n"
        "    @api.tool('hello')\n"
        "    def hello(params, ctx):\n"
        "        return str(typing.get_type_hints(Point))\n"
    )
    assert "int" in run_hello(file)


# --------------------------------------------------------------------------------- load errors


def write_modules(tmp_path: Path, **files: str) -> Path:
    for name, text in files.items():
        (tmp_path / f"{name}.py").write_text(text)
    return tmp_path / "main.py"


@pytest.mark.parametrize(
    "files, expected",
    [
        (
            {"main": "x = 1\n"},
            ["no function 'extension' in the extension", "define `def extension(api)"],
        ),
        ({"main": "def extnsion(api): ...\n"}, ["did you mean 'extnsion'?"]),
        ({"main": "extension = 5\n"}, ["'extension' must be a function, got int"]),
        ({"main": "def extension(api:\n"}, ["SyntaxError", "main.py:1"]),
        ({"main": "import no_such_thing\n"}, ["main.py:1", "install 'no_such_thing'"]),
        ({"main": "\n1 / 0\n"}, ["ZeroDivisionError", "main.py:2"]),
        ({"main": "def extension(api):\n    {}['x']\n"}, ["KeyError: 'x'", "main.py:2"]),
        ({"main": "async def extension(api):\n    {}['x']\n"}, ["KeyError: 'x'", "main.py:2"]),
        ({"main": "def extension(): ...\n"}, ["takes 0 positional arguments but 1 was given"]),
        ({"main": "raise SystemExit(1)\n"}, ["SystemExit: 1", "must not exit"]),
        (
            {"main": "from other import a\nb = 1\n", "other": "from main import b\na = 1\n"},
            ["circular import", "main.py", "move the shared code into a third"],
        ),
    ],
    ids=[
        "no entry",
        "misspelled entry",
        "entry is not a function",
        "syntax error",
        "missing dependency",
        "raises on import",
        "raises in the entry",
        "raises in an async entry",
        "entry takes nothing",
        "exits",
        "circular import",
    ],
)
def test_a_file_that_fails_to_load_is_an_error_with_location_and_fix(
    tmp_path: Path, files: dict[str, str], expected: list[str]
):
    main = write_modules(tmp_path, **files)
    modules, path = set(sys.modules), list(sys.path)
    with pytest.raises(ExtensionError) as caught:
        session(extensions=[main])
    assert str(main) in str(caught.value)
    for text in expected:
        assert text in str(caught.value)
    left = {name for name in set(sys.modules) - modules if "offbook_extension" in name}
    assert (left, sys.path) == (set(), path)


def test_the_original_error_is_the_cause(tmp_path: Path):
    with pytest.raises(ExtensionError) as caught:
        session(extensions=[write_modules(tmp_path, main="1 / 0\n")])
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_a_missing_file_is_an_error_with_the_nearest_name(file: Path):
    with pytest.raises(ExtensionError) as caught:
        session(extensions=[str(file.with_name("greter.py"))])
    assert "file not found" in str(caught.value)
    assert "did you mean 'greeter.py'?" in str(caught.value)


def test_a_folder_without_an_init_is_an_error(tmp_path: Path):
    with pytest.raises(ExtensionError, match="file not found") as caught:
        session(extensions=[tmp_path])
    assert "__init__.py" in str(caught.value)


@pytest.mark.parametrize("spec", [5, None, b"x", ["a.py"]])
def test_other_values_are_not_extensions(spec: object):
    with pytest.raises(ExtensionError, match="expected an extension, got"):
        session(extensions=[spec])


# ------------------------------------------------------------------------- wrong registrations


def do_nothing(*_: object) -> None: ...


def new_tool(_params: JSON, _ctx: Context) -> str:
    return "I am new"


MISTAKES: list[tuple[Callable[[Any], object], str]] = [
    (lambda api: api.register_tool("", do_nothing), "a tool needs a name"),
    (lambda api: api.register_tool("a", 5), "tool 'a': expected a function, got int"),
    (
        lambda api: api.register_tool("a", do_nothing, parameters=[1]),
        "the parameters of the tool 'a': expected a mapping, got a list",
    ),
    (
        lambda api: api.register_tool("a", do_nothing, parameters={"type": "nope"}),
        "invalid parameter schema",
    ),
    (lambda api: api.register_tool("a", do_nothing, parameters={"x": object}), "is not JSON"),
    (lambda api: [api.register_tool("a", do_nothing) for _ in "ab"], "registered twice"),
    (lambda api: api.on("tool_cal")(do_nothing), "did you mean 'tool_call'"),
    (lambda api: api.on("tool_call")(5), "tool_call hook: expected a function, got int"),
    (lambda api: api.command(5), "a command needs a name"),
    (lambda api: api.command("/"), "a command needs a name"),
    (lambda api: api.command("a")(5), "command /a: expected a function, got int"),
    (lambda api: [api.command("a")(do_nothing) for _ in "ab"], "/a is registered twice"),
    (lambda api: api.set_active_tools(["bsh"]), "did you mean 'bash'"),
    (
        lambda api: api.set_active_tools("bash"),
        "set_active_tools: the names must be a list, got str",
    ),
]


@pytest.mark.parametrize("load, expected", MISTAKES)
def test_wrong_registrations_are_errors(load: Callable[[Any], object], expected: str):
    def extension(api: Api) -> None:
        load(api)

    with pytest.raises(OffbookError) as caught:
        session(extensions=[extension])
    assert expected in str(caught.value)


def test_two_extensions_cannot_register_the_same_tool():
    def one(api: Api) -> None:
        api.register_tool("plan", do_nothing)

    def two(api: Api) -> None:
        api.register_tool("plan", do_nothing)

    with pytest.raises(UsageError, match="'plan' is registered twice") as caught:
        session(extensions=[one, two])
    assert "already registered by" in str(caught.value)


def test_an_extension_can_replace_a_builtin_tool():
    def extension(api: Api) -> None:
        @api.tool("bash")
        def bash(params: JSON, ctx: Context) -> str:
            return "my own"

    with session(extensions=[extension]) as t:
        t.run(when("x", [call("bash", {"anything": 1}), say("ok")]))
        assert t.events.tool_results[0].text == "my own"


def test_an_extension_can_list_all_tools_and_register_more_later():
    def extension(api: Api) -> None:
        @api.tool("grow")
        def grow(params: JSON, ctx: Context) -> str:
            api.register_tool("grown", new_tool)
            return ", ".join(api.tools)

    with session(extensions=[extension]) as t:
        t.run(when("x", [call("grow"), say("ok")]))
        assert t.events.tool_results[0].text == "bash, edit, grow, grown, read, write"
        t.run(when("y", [call("grown"), say("ok")]))
        assert t.events.tool_results[1].text == "I am new"
        assert [e.data["extension"] for e in t.events.named("session.extension")] == [
            extension.__qualname__
        ]


def test_an_extension_is_compiled_once_for_each_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    compiled: list[object] = []
    builtin_compile: Any = compile

    def counting(source: Any, *args: Any) -> Any:
        compiled.append(source)
        return builtin_compile(source, *args)

    monkeypatch.setattr(files, "compile", counting, raising=False)
    path = tmp_path / "counted.py"
    for text in ["one", "one", "two"]:
        path.write_text(f'def extension(api):\n    api.tool("{text}")(lambda params, ctx: "ok")\n')
        with session(extensions=[path]) as t:
            t.run(when("x", [call(text), say("ok")]))
    assert len(compiled) == 2
