"""The imports of JavaScript and TypeScript, read from the source."""

from pathlib import Path

import pytest

from offbook.sandbox.js_imports import find_undeclared, list_imports
from tests.sandbox.packages import write_package

FOUND = {
    'import a from "x";': "x",
    "import { a, type B } from 'x/part';": "x/part",
    'import "x";': "x",
    'export * from "@scope/x";': "@scope/x",
    'export { a } from "x";': "x",
    'async function f() { await import("x"); }': "x",
    "function f() { return require('x'); }": "x",
    'try { f(); } finally { require("x"); }': "x",
    "await import(`x`);": "x",
    'import("x").then((a, b) => { f(a, b); }).finally(g);': "x",
    'const half = a / 2; const b = require("x"); // /': "x",
}


@pytest.mark.parametrize("source", FOUND)
def test_an_import_is_found(source: str):
    assert list(list_imports(f"\n{source}\n")) == [(FOUND[source], 2)]


@pytest.mark.parametrize(
    "source",
    [
        'import type { A } from "x";',
        'export type { A } from "x";',
        '// import "x";',
        '/* require("x") */',
        "const text = \"import('x')\";",
        'const text = `require("x")`;',
        'const pattern = /require("x")/;',
        'try { require("x"); } catch {}',
        'try { if (a) { await import("x"); } } catch (error) { log(error); }',
        'import("x").catch(() => null);',
        'import("x").then((a) => a).catch(() => null);',
        'import("x").then((a) => a, () => null);',
        "await import(`./${name}`);",
        'thing.require("x");',
        'const from = "x"; const b = { import: "x" };',
        "import(name);",
    ],
)
def test_what_is_no_import_or_may_fail_is_not_found(source: str):
    assert list(list_imports(source)) == []


def test_an_import_of_typescript_that_only_types_use_is_not_found():
    source = 'import { A, run } from "x";\nconst a: A = {};\n'
    assert list(list_imports(source, typed=True)) == []
    assert list(list_imports(source + "run(a);\n", typed=True)) == [("x", 1)]


def test_only_files_that_the_entries_reach_are_read(tmp_path: Path):
    files = {
        "index.ts": 'import "./lib/names.js"; import "node:fs"; import "fs"; import "declared";',
        "lib/names.ts": 'export * from "../more"; require("#internal"); require("@/alias");',
        "more/index.js": 'require("missing/part"); require("installed");',
        "examples/demo.js": 'require("not-reached");',
        "node_modules/installed/package.json": "{}",
    }
    folder = write_package(tmp_path, files, {})
    found = find_undeclared(folder, [folder / "index.ts"], {"declared"})
    assert found == {"missing": "more/index.js:1"}
