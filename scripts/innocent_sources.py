"""Search secrets in the sources of large packages, where there are none: ./dev innocent [NAME …].

It downloads packages that the lock does not have, sends every text in them through the gate, and
prints each line that changes. In a Python file it says what changes: a comment or docstring, a
quoted text of the program, or its code. The exit code is 1 if code changes.
"""

from __future__ import annotations

import ast
import difflib
import subprocess
import sys
import tarfile
import tempfile
import warnings
import zipfile
from collections.abc import Iterator
from pathlib import Path

from offbook.secrets import hide_bytes

PACKAGES = (
    *("ansible-core", "apache-airflow-core", "celery", "django", "django-allauth", "matplotlib"),
    *("mypy", "networkx", "nltk", "numpy", "pandas", "paramiko", "pylint", "salt", "scikit-learn"),
    *("scrapy", "sphinx", "sqlalchemy", "sympy", "tornado", "twisted", "wagtail"),
)
TEXTS = (
    *(".py", ".pyi", ".pyx", ".c", ".h", ".js", ".css", ".html", ".xml", ".json", ".yaml", ".yml"),
    *(".toml", ".ini", ".cfg", ".md", ".rst", ".txt", ".sh", ".sql", ".csv", ".j2", ".conf"),
)
MAX_SIZE = 3_000_000


def download(name: str, folder: Path) -> Path:
    """Return the downloaded archive of a package."""
    (target := folder / name).mkdir(parents=True, exist_ok=True)
    if not any(target.iterdir()):
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        subprocess.run([*command, "--dest", target, name], check=True)  # noqa: S603 - a name of the table
    return next(target.iterdir())


def read_texts(archive: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the path and the content of each text in an archive."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            for entry in wheel.infolist():
                if entry.filename.endswith(TEXTS) and entry.file_size < MAX_SIZE:
                    yield entry.filename, wheel.read(entry)
        return
    with tarfile.open(archive) as source:
        for entry in source:
            file = source.extractfile(entry) if entry.isfile() else None
            if file and entry.name.endswith(TEXTS) and entry.size < MAX_SIZE:
                yield entry.name, file.read()


def describe_change(path: str, before: bytes, after: bytes) -> str:
    """Return what a change concerns: `text`, or what of a Python program."""
    if not path.endswith(".py"):
        return "text"
    try:
        old = parse(before)
    except (SyntaxError, ValueError, RecursionError):  # a program of Python 2, or a template
        return "text"
    try:
        new = parse(after)
    except (SyntaxError, ValueError, RecursionError):
        return "code"
    if dump_tree(old, without_texts=False) == dump_tree(new, without_texts=False):
        return "comment or docstring"
    same = dump_tree(old, without_texts=True) == dump_tree(new, without_texts=True)
    return "quoted text" if same else "code"


def parse(code: bytes) -> ast.Module:
    """Return the syntax tree of a program."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # invalid escapes in the code of others
        return ast.parse(code)


def dump_tree(tree: ast.Module, *, without_texts: bool) -> str:
    """Return a syntax tree as text: without docstrings, or with all texts blanked."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            node.value = ast.Constant(None)
        elif without_texts and isinstance(node, ast.Constant):
            node.value = "" if isinstance(node.value, (str, bytes)) else node.value
    return ast.dump(tree)


def changed_lines(before: bytes, after: bytes) -> Iterator[tuple[int, str, str]]:
    """Yield the number of each changed line, and what it was and is."""
    old, new = (raw.decode(errors="replace").splitlines() for raw in (before, after))
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    for kind, first, last, start, end in matcher.get_opcodes():
        if kind != "equal":
            yield first + 1, " ⏎ ".join(old[first:last]), " ⏎ ".join(new[start:end])


def main(names: list[str]) -> int:
    """Search the packages, print every change and the figures; return the exit code."""
    lock = (Path(__file__).parents[1] / "requirements.lock").read_text()
    chosen = names or PACKAGES
    if used := [name for name in chosen if f"\n{name}==" in f"\n{lock}"]:
        print(f"{', '.join(used)}: in requirements.lock; name other packages", file=sys.stderr)
        return 2
    broken = 0
    folder = Path(tempfile.gettempdir()) / "offbook-innocent"
    for name in chosen:
        files = size = 0
        kinds: dict[str, int] = {}
        for path, raw in read_texts(download(name, folder)):
            files, size = files + 1, size + len(raw)
            hidden = hide_bytes(raw)
            if hidden is raw:
                continue
            kind = describe_change(path, raw, hidden)
            for number, old, new in changed_lines(raw, hidden):
                kinds[kind] = kinds.get(kind, 0) + 1
                print(f"{path}:{number}: {kind}\n  - {old.strip()[:200]}\n  + {new.strip()[:200]}")
                broken += kind == "code"
        shown = ", ".join(f"{count} in a {kind}" for kind, count in kinds.items()) or "no change"
        print(f"{name}: {files} files, {size / 1e6:.1f} MB: {shown}", file=sys.stderr)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
