"""Write the `.pyi` file of each lazy module in src/, from the table in the module itself.

A lazy module imports its names on first use (`offbook.capability.lazy_names`), so a type checker
reads them from the stub. `./dev docs` runs this; tests/architecture compares the result.
"""

import ast
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "offbook"


def find_lazy_modules() -> list[Path]:
    """Return the modules that call `lazy_names` or `lazy_getattr`."""
    return sorted(path for path in SOURCE.rglob("*.py") if _find_call(path) is not None)


def write_stub(path: Path) -> str:
    """Return the stub of the module at `path`."""
    call = _find_call(path)
    assert call is not None, path  # noqa: S101 - checked by find_lazy_modules
    options = {word.arg: ast.literal_eval(word.value) for word in call.keywords}
    package = options.get("package") or _module_name(path)
    lines: list[str] = []
    for table in [ast.literal_eval(call.args[1]), options.get("internal", {})]:
        for home, names in table.items():
            lines += [f"from {package}.{home} import {name} as {name}" for name in names.split()]
    lines.sort(key=_import_order)
    defined = [ast.literal_eval(name) for name in call.args[2:]]
    if defined:
        lines.append("")
    if "CAPABILITY" in defined:
        lines.insert(0, "from offbook.capability import Capability")
        lines.append("CAPABILITY: Capability")
    if "__version__" in defined:
        lines.append("__version__: str")
    constants = _string_constants(path)
    if constants:
        lines += ["", *(f"{name}: str" for name in constants)]
    return "\n".join(lines) + "\n"


def _import_order(line: str) -> tuple[str, int, str]:
    """Return the order of the linter: constants, classes, functions."""
    _, module, _, name, *_ = line.split()
    kind = 0 if name.isupper() else 1 if name[0].isupper() else 2
    return module, kind, name


def _find_call(path: Path) -> ast.Call | None:
    text = path.read_text()
    if "lazy_" not in text:  # to parse all modules takes a second
        return None
    for node in ast.parse(text).body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            function = node.value.func
            if isinstance(function, ast.Name) and function.id in ("lazy_names", "lazy_getattr"):
                return node.value
    return None


def _string_constants(path: Path) -> list[str]:
    return [
        target.id
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for target in node.targets
        if isinstance(target, ast.Name)
    ]


def _module_name(path: Path) -> str:
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


if __name__ == "__main__":
    for path in find_lazy_modules():
        path.with_suffix(".pyi").write_text(write_stub(path))
