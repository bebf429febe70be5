"""The packages that the code of an npm package imports: found by reading it, so lazy ones count.

Only files that the extensions reach by relative imports are read: a package may ship examples and
benchmarks that need more. An import that may fail (in a `try`, or with a `.catch`) does not count,
nor does one of types alone.
"""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

SUFFIXES = (".ts", ".mts", ".cts", ".tsx", ".js", ".mjs", ".cjs", ".jsx")
TYPED = (".ts", ".mts", ".cts", ".tsx")
# TypeScript names the compiled file of a module: './names.js' is names.ts.
COMPILED = {".js": (".ts", ".tsx"), ".mjs": (".mts",), ".cjs": (".cts",), ".jsx": (".tsx",)}
PACKAGE_NAME = re.compile(r"(?:@[a-z0-9~-][a-z0-9._~-]*/)?[a-z0-9~-][a-z0-9._~-]*", re.IGNORECASE)
# fmt: off
BUILT_IN = frozenset({
    "_http_agent", "_http_client", "_http_common", "_http_incoming", "_http_outgoing",
    "_http_server", "_stream_duplex", "_stream_passthrough", "_stream_readable",
    "_stream_transform", "_stream_wrap", "_stream_writable", "_tls_common", "_tls_wrap",
    "assert", "async_hooks", "buffer", "bun", "child_process", "cluster", "console",
    "constants", "crypto", "dgram", "diagnostics_channel", "dns", "domain", "electron",
    "events", "fs", "http", "http2", "https", "inspector", "module", "net", "os", "path",
    "perf_hooks", "process", "punycode", "querystring", "readline", "repl", "stream",
    "string_decoder", "sys", "timers", "tls", "trace_events", "tty", "url", "util", "v8", "vm",
    "wasi", "worker_threads", "zlib",
})
# fmt: on
MAX_CHAIN = 500  # tokens after an import in which its failure is handled
# A comment, a text, a regular expression where a value may begin, or a bracket.
TOKEN = re.compile(
    r"""(?P<comment>//[^\n]*|/\*.*?\*/)
    |(?P<text>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')
    |(?P<template>`(?:\\.|[^`\\])*`)
    |(?P<regex>(?<=[=(,:\[!&|?{};\n])[ \t]*/(?![*/])(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\\n])+/[a-z]*)
    |(?P<brace>[{}])
    |(?P<word>[A-Za-z_$][\w$]*)
    |(?P<sign>[().;=*,])""",
    re.VERBOSE | re.DOTALL,
)


def find_undeclared(folder: Path, entries: Iterable[Path], allowed: set[str]) -> dict[str, str]:
    """Return the packages that are imported, not allowed and not installed, each with its place."""
    waiting = [entry for entry in entries if entry.is_file()]
    seen = set(waiting)
    missing: dict[str, str] = {}
    while waiting:
        file = waiting.pop()
        source = file.read_text(encoding="utf-8", errors="replace")
        for module, line in list_imports(source, typed=file.suffix in TYPED):
            if module.startswith("."):
                target = _resolve(file.parent / module)
                if target is not None and target not in seen and target.is_relative_to(folder):
                    seen.add(target)
                    waiting.append(target)
                continue
            name = _package_of(module)
            if name and name not in allowed and not _is_installed(name, file.parent):
                missing.setdefault(name, f"{file.relative_to(folder)}:{line}")
    return missing


def list_imports(source: str, *, typed: bool = False) -> Iterator[tuple[str, int]]:
    """Yield the modules that a source imports and that must exist, with their lines.

    `import "x"`, `import … from "x"`, `export … from "x"`, `import("x")` and `require("x")`. From
    TypeScript an import is removed if nothing but types uses its names.
    """
    tokens = [
        (match.lastgroup or "", match[0].strip(), match.start(), match.end())
        for match in TOKEN.finditer(source)
        if match.lastgroup not in {"comment", "regex"}
    ]
    guarded = _list_guarded(tokens)
    values = {
        token[1]
        for token, after in pairwise(tokens)
        if token[0] == "word" and after[1] in {"(", "."}
    }
    begin = 0
    statement = ""  # the import or export that a `from` belongs to
    for n, (kind, text, start, end) in enumerate(tokens):
        following = [token[1] for token in tokens[n + 1 : n + 4]]
        before = tokens[n - 1][1] if n else ""
        if kind != "word" or before == ".":
            continue
        if text in {"import", "export"} and following[:1] != ["("]:
            only_types = following[:1] == ["type"] and following[1:2] not in (["from"], [","])
            begin, statement = n, "" if only_types else text
        module = ""
        if text in {"import", "require"} and following[:1] == ["("] and following[2:3] == [")"]:
            caught = n in guarded or _catches([token[1] for token in tokens[n + 4 : n + MAX_CHAIN]])
            module = "" if caught or "${" in following[1] else following[1]
        elif (text == "import" and following[:1] != ["("]) or (text == "from" and statement):
            module = following[0] if following else ""
            gap = source[end : tokens[n + 1][2]] if following else ""
            names = {token[1] for token in tokens[begin + 1 : n]}
            removed = typed and statement == "import" and text == "from" and not names & values
            module = "" if gap.strip() or removed else module
        if module[:1] in {"'", '"', "`"}:
            statement = ""
            yield module[1:-1], source.count("\n", 0, start) + 1


def _catches(words: list[str]) -> bool:
    """Return whether the calls on a promise handle its failure: `.catch(…)`, `.then(…, …)`."""
    at = 0
    while words[at : at + 1] == ["."] and words[at + 2 : at + 3] == ["("]:
        method, depth, commas = words[at + 1], 0, 0
        for at in range(at + 2, len(words)):  # noqa: B020 - up to the closing bracket
            depth += (words[at] in {"(", "{"}) - (words[at] in {")", "}"})
            commas += words[at] == "," and depth == 1
            if not depth:
                break
        if method == "catch" or (method == "then" and commas):
            return True
        at += 1
    return False


def _list_guarded(tokens: list[tuple[str, str, int, int]]) -> set[int]:
    """Return the positions of the tokens in a `try` that has a `catch`."""
    guarded: set[int] = set()
    opened: list[int] = []
    for n, (kind, text, _, _) in enumerate(tokens):
        if kind != "brace":
            continue
        if text == "{":
            opened.append(n)
        elif opened:
            start = opened.pop()
            is_try = start > 0 and tokens[start - 1][1] == "try"
            if is_try and n + 1 < len(tokens) and tokens[n + 1][1] == "catch":
                guarded.update(range(start, n))
    return guarded


def _resolve(path: Path) -> Path | None:
    """Return the file that a relative import leads to, as Node and TypeScript find it."""
    path = path.resolve()
    names = [path, *(path.with_suffix(other) for other in COMPILED.get(path.suffix, ()))]
    names += [path.with_name(path.name + suffix) for suffix in SUFFIXES]
    names += [path / f"index{suffix}" for suffix in SUFFIXES]
    return next((name for name in names if name.suffix in SUFFIXES and name.is_file()), None)


def _package_of(module: str) -> str:
    """Return the package of a module, or "" for a built-in one, a file, an address or an alias."""
    parts = module.split("/")
    name = "/".join(parts[: 2 if module.startswith("@") else 1])
    return name if PACKAGE_NAME.fullmatch(name) and name not in BUILT_IN else ""


def _is_installed(name: str, folder: Path) -> bool:
    return any((parent / "node_modules" / name).exists() for parent in (folder, *folder.parents))
