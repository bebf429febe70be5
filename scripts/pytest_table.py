"""Write `pytest_offbook/__init__.py`: what the capabilities add to pytest, as plain data.

Their modules declare it as `offbook/surfaces/capabilities.py` explains. pytest starts with the
table alone. `./dev docs` runs this; tests/architecture compares the result.
"""

import inspect
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import pytest_offbook
from offbook.surfaces.capabilities import CAPABILITIES

TABLE = Path(pytest_offbook.__file__)
START = '''\
"""The pytest plugin of Offbook. It stays outside the package, so that pytest starts without it.

This is the table of what the plugin and the capabilities add, in the one file that is imported
before the plugin. `./dev docs` writes it from the modules that it names: each is loaded when an
option, a setting, a marker, a file or a fixture needs it.
"""

# ruff: noqa: E501 - the help of an option is one line

from importlib import import_module
from typing import Any

import pytest
'''


def write_table() -> str:
    """Return the source of the package with the table."""
    tables: dict[str, dict[str, str]] = {
        name: {} for name in ("OPTIONS", "SETTINGS", "MARKERS", "FILES")
    }
    imports: dict[str, str] = {}
    fixtures: dict[str, str] = {}
    plugins = [f"offbook.{folder}.{plugin}" for folder, plugin in CAPABILITIES.items() if plugin]
    for name in ["pytest_offbook.options", *plugins]:
        module = import_module(name)
        setting = getattr(module, "MARKERS_SETTING", "")
        for table, rows in tables.items():
            for key, value in getattr(module, table, {}).items():
                row = (name, value, setting) if table == "MARKERS" else (name, value)
                rows[key] = _write(row)
        imports |= dict.fromkeys(getattr(module, "IMPORTS", ()), name)
        for fixture in getattr(module, "FIXTURES", ()):
            fixtures[fixture.__name__] = _write_fixture(fixture)
    lines = [START]
    for table, rows in tables.items():
        lines.append(f"{table}: dict[str, Any] = {{")
        lines += [f"    {key!r}: {row}," for key, row in rows.items()]
        lines.append("}")
    lines.append(f"IMPORTS = {imports!r}")
    names = ", ".join(f"{name!r}: {name}" for name in fixtures)
    lines += [*fixtures.values(), f"FIXTURES: dict[str, Any] = {{{names}}}"]
    return "\n".join(lines) + "\n"


def _write(value: Any) -> str:
    """Return the source of a value: as `repr`, and types by their names."""
    if isinstance(value, type):
        return value.__name__
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        return f"{{{', '.join(f'{key!r}: {_write(each)}' for key, each in fields.items())}}}"
    if isinstance(value, tuple):
        return f"({', '.join(map(_write, cast('tuple[Any, ...]', value)))},)"
    return repr(value)


def _write_fixture(function: Any) -> str:
    """Return a fixture that imports the function when a test needs it."""
    name, module = function.__name__, function.__module__
    parameters = list(inspect.signature(function).parameters)
    result = "yield from" if inspect.isgeneratorfunction(function) else "return"
    return "\n".join(
        [
            "@pytest.fixture",
            f"def {name}({', '.join(f'{each}: Any' for each in parameters)}) -> Any:",
            f'    """{function.__doc__ or name}"""',
            f"    {result} import_module({module!r}).{name}({', '.join(parameters)})",
        ]
    )


if __name__ == "__main__":
    TABLE.write_text(write_table(), encoding="utf-8")
