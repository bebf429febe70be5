"""The public API is the list in public_names.txt: a change of it shows in review."""

import ast
import re
from collections import Counter
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

offbook = import_module("offbook")
stubs = import_module("scripts.stubs")
GOLDEN = Path(__file__).with_name("public_names.txt")
NAMES = GOLDEN.read_text().split()
PACKAGE = Path(str(offbook.__file__)).parent
PUBLIC_MODULES = [
    *[
        "",
        "clis",
        "people",
        "types",
        "errors",
        "testing",
        "conformance",
        "contracts",
        "evals",
        "explore",
    ],
    *["goldens", "mcp", "patterns", "protocols", "sandbox", "viewer", "workflows"],
]
LAZY_MODULES = [
    ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix("__init__").rstrip(".")
    for path in stubs.find_lazy_modules()
]


def test_the_public_names_are_the_golden_list():
    assert sorted(offbook.__all__) == NAMES, f"if this is intended, change {GOLDEN.name} too"


def test_the_golden_list_is_sorted_and_names_nothing_twice():
    assert sorted(set(NAMES)) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_public_name_resolves_and_is_listed(name: str):
    assert hasattr(offbook, name)
    assert name in dir(offbook)


def test_there_are_forty_names_at_most():
    assert len(NAMES) <= 40


def _read_stub(module: ModuleType) -> ast.Module:
    return ast.parse(Path(str(module.__file__)).with_suffix(".pyi").read_text())


@pytest.mark.parametrize("name", LAZY_MODULES)
def test_the_stub_of_a_lazy_module_lists_the_names_of_the_module(name: str):
    module = import_module(f"offbook.{name}".rstrip("."))
    stub = _read_stub(module)
    written = ast.parse(stubs.write_stub(Path(str(module.__file__))))
    assert sorted(map(ast.dump, stub.body)) == sorted(map(ast.dump, written.body)), "run ./dev docs"


@pytest.mark.parametrize("name", LAZY_MODULES)
def test_an_unknown_name_of_a_lazy_module_is_reported_with_the_module(name: str):
    module = import_module(f"offbook.{name}".rstrip("."))
    with pytest.raises(AttributeError, match=f"module '{module.__name__}' has no attribute"):
        _ = module.no_such_name


@pytest.mark.parametrize("name", LAZY_MODULES)
def test_every_name_of_a_lazy_module_resolves(name: str):
    module = import_module(f"offbook.{name}".rstrip("."))
    listed = [
        alias.name
        for node in _read_stub(module).body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname
    ]
    assert [name for name in listed if not hasattr(module, name)] == []


def test_there_are_two_hundred_public_names_at_most():
    names = {"errors": _exceptions()} | {
        name: import_module(f"offbook.{name}".rstrip(".")).__all__
        for name in PUBLIC_MODULES
        if name != "errors"
    }
    # The same object in two modules, such as `offbook.Request` and `offbook.types.Request`, is one.
    found = {
        (name, id(getattr(import_module(f"offbook.{module}".rstrip(".")), name)))
        for module, listed in names.items()
        for name in listed
    }
    assert len(found) <= 200


def _exceptions() -> list[str]:
    errors = vars(import_module("offbook.errors"))
    return [
        name
        for name, value in errors.items()
        if isinstance(value, type) and issubclass(value, BaseException | Warning)
        if value.__module__ == "offbook.errors"
    ]


def test_a_deprecated_exception_is_the_class_that_replaces_it():
    errors = import_module("offbook.errors")
    for name, new in errors.DEPRECATED.items():
        with pytest.warns(DeprecationWarning, match=f"{name} is deprecated: use {new.__name__}"):
            assert getattr(errors, name) is new
    assert not {*errors.DEPRECATED} & {*_exceptions()}


# To parse all modules takes seconds of the processor.
CLASS = re.compile(r"(?ms)^(?P<indent> *)class (?P<name>\w+)(?:\((?P<bases>.*?)\))?:")


def test_every_offbook_error_is_defined_in_the_public_module():
    bases = {*_exceptions()}
    elsewhere = [
        f"{path.name}: {found['name']}"
        for path in SOURCE.rglob("*.py")
        if path.name != "errors.py"
        for found in CLASS.finditer(path.read_text("utf-8"))
        if any(base.strip() in bases for base in (found["bases"] or "").split(","))
    ]
    assert "OffbookError" in bases
    assert elsewhere == []


SOURCE = Path(__file__).parents[2] / "src"
MODULES = [path for path in SOURCE.rglob("*.py") if path.name != "__init__.py"]


def test_no_file_name_occurs_more_than_three_times():
    names = Counter(path.name for path in MODULES)
    assert {name: count for name, count in names.items() if count > 3} == {}


def test_no_public_class_name_is_defined_twice():
    names = Counter(
        found["name"]
        for path in SOURCE.rglob("*.py")
        for found in CLASS.finditer(path.read_text("utf-8"))
        if not found["indent"] and not found["name"].startswith("_")
    )
    assert {name: count for name, count in names.items() if count > 1} == {}
