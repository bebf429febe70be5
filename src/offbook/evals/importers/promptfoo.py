"""The configurations of promptfoo (`promptfooconfig.yaml`), and its results in JSON.

A case is a prompt with the variables of a test. Results (`promptfoo eval -o results.json`) have
outputs as well. Assertions that run code are not carried over; `llm-rubric` becomes a judged
rubric.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any, cast

import msgspec

from offbook.evals.datasets import read_rows
from offbook.evals.importers.suite import (
    COMPLETED,
    ImportedCase,
    PeerFile,
    Skipped,
    any_of,
    at_most,
    contains,
    equals,
    matches,
    matches_not,
    quote,
    scalars,
    to_text,
)
from offbook.files import read_text

_VARIABLE = re.compile(r"\{\{-?\s*([\w.\[\]]+)\s*-?\}\}")
_LOGIC = re.compile(r"\{%|\{#|\{\{")
_EXPECTED = re.compile(r"^(not-)?([a-z][a-z-]*)(?:\(([\d.]+)\))?(?::([\s\S]*))?$")
PROMPT_FILES = (".txt", ".md", ".j2", ".json", ".yaml", ".yml")
IGNORED = {"tests", "prompts", "providers", "targets", "defaultTest", "description", "scenarios"}
SETTINGS = {"env", "outputPath", "evaluateOptions", "commandLineOptions", "sharing", "tags"}
CODE = "file://"


class PromptfooImporter:
    """Reads a configuration, or the results of an evaluation."""

    name = "promptfoo"

    def recognizes(self, file: PeerFile) -> bool:
        config = "prompts" in file.value and {"tests", "providers", "targets"} & file.value.keys()
        return bool(config) or _results_of(file) is not None

    def read(self, file: PeerFile, skipped: Skipped) -> list[ImportedCase]:
        results = _results_of(file)
        if results is not None:
            return [_read_result(row) for row in results]
        return list(_read_config(file, skipped))


# --- Results


def _results_of(file: PeerFile) -> list[dict[str, Any]] | None:
    results: Any = file.value.get("results")
    rows = cast("dict[str, Any]", results).get("results") if isinstance(results, dict) else None
    return cast("list[dict[str, Any]]", rows) if isinstance(rows, list) else None


def _read_result(row: dict[str, Any]) -> ImportedCase:
    test: dict[str, Any] = row.get("testCase") or {}
    response: dict[str, Any] = row.get("response") or {}
    prompt: dict[str, Any] = row.get("prompt") or {}
    output = response.get("output")
    failed = bool(response.get("error")) or output is None
    case = ImportedCase(
        id=str(test.get("description") or ""),
        input=prompt.get("raw"),
        metadata={**_labels(row), **scalars(test.get("metadata"))},
        run={
            "output": output if output is None else to_text(output),
            "status": "failed" if failed else "completed",
            "usage": {"total_duration_ms": row.get("latencyMs"), "total_cost": row.get("cost")},
        },
    )
    _add_assertions(case, test, row.get("vars") or {})
    case.passed = bool(row.get("success"))
    return case


def _labels(row: dict[str, Any]) -> dict[str, Any]:
    provider: Any = row.get("provider") or {}
    name = provider if isinstance(provider, str) else provider.get("label") or provider.get("id")
    return {"provider": name} if name else {}


# --- Configurations


def _read_config(file: PeerFile, skipped: Skipped) -> Iterator[ImportedCase]:
    config, folder = file.value, file.path.parent
    for key in config.keys() - IGNORED - SETTINGS - {"$schema"}:
        skipped[f"`{key}` of the configuration"] += 1
    if config.get("scenarios"):
        skipped["scenario"] += len(config["scenarios"])
    providers: Any = config.get("providers") or config.get("targets") or []
    skipped["provider (the agent takes its place)"] += (
        len(cast("list[Any]", providers)) if isinstance(providers, list) else 1
    )
    given: Any = config.get("defaultTest") or {}
    default = cast("dict[str, Any]", given) if isinstance(given, dict) else dict[str, Any]()
    if given and not default:
        skipped["`defaultTest` of another file"] += 1
    prompts = list(_read_prompts(config.get("prompts"), folder, skipped))
    for test in _read_tests(config.get("tests"), folder, skipped):
        variables: dict[str, Any] = {**(default.get("vars") or {}), **(test.get("vars") or {})}
        merged = {**default, **test, "assert": [*_asserts(default), *_asserts(test)]}
        for label, template in prompts:
            for values in _combinations(variables, folder, skipped):
                case = ImportedCase(
                    id=str(test.get("description") or ""),
                    metadata={"prompt": label} if len(prompts) > 1 else {},
                )
                case.metadata |= scalars(merged.get("metadata"))
                case.input = render(template, values)
                if case.input is None:
                    skipped["case whose prompt has filters or logic"] += 1
                    continue
                _add_assertions(case, merged, values)
                yield case


def _asserts(test: dict[str, Any]) -> list[dict[str, Any]]:
    return list(test.get("assert") or ())


def _read_prompts(given: Any, folder: Path, skipped: Skipped) -> Iterator[tuple[str, str]]:
    prompts = cast("list[Any]", given) if isinstance(given, list) else [given]
    for number, prompt in enumerate(prompts, 1):
        fields = cast("dict[str, Any]", prompt) if isinstance(prompt, dict) else {"raw": prompt}
        raw: Any = fields.get("raw", fields.get("id"))
        label = str(fields.get("label") or f"prompt-{number}")
        if not isinstance(raw, str):
            skipped["prompt that is no text"] += 1
            continue
        path = folder / raw.removeprefix(CODE)
        if not raw.startswith(CODE) and not ("\n" not in raw and path.suffix in PROMPT_FILES):
            yield label, raw
        elif path.suffix in PROMPT_FILES and path.is_file():
            parts = re.split(r"^---\s*$", read_text(path), flags=re.MULTILINE)
            for part in parts if path.suffix in {".txt", ".md"} else ["".join(parts)]:
                yield label if len(parts) == 1 else f"{label} {part.strip()[:20]}", part.strip()
        elif raw.startswith(CODE):
            skipped["prompt of code or of several files"] += 1
        else:
            yield label, raw


def _read_tests(given: Any, folder: Path, skipped: Skipped) -> Iterator[dict[str, Any]]:
    tests: list[Any] = cast("list[Any]", given) if isinstance(given, list) else [given or {}]
    for test in tests:
        if isinstance(test, dict):
            yield cast("dict[str, Any]", test)
            continue
        path = folder / str(test).removeprefix(CODE)
        if path.suffix not in {".csv", ".json", ".jsonl", ".yaml", ".yml"}:
            skipped[f"tests of {path.suffix or 'another'} file"] += 1
            continue
        rows = read_rows(path)
        yield from map(_read_row, rows) if path.suffix == ".csv" else rows


def _read_row(row: dict[str, Any]) -> dict[str, Any]:
    """Return the test of a row of CSV: variables, and expectations in columns `__expected…`."""
    test: dict[str, Any] = {"vars": {}, "assert": [], "metadata": {}}
    for key, cell in row.items():
        if key.startswith("__expected"):
            if cell:
                test["assert"].append(_parse_expected(cell))
        elif key == "__description":
            test["description"] = cell
        elif key.startswith("__metadata:"):
            test["metadata"][key.partition(":")[2]] = cell
        elif key == "__threshold":
            test["threshold"] = float(cell) if cell else None
        else:
            test["vars"][key] = cell
    return test


def _parse_expected(cell: str) -> dict[str, Any]:
    """Return the assertion of a cell: `contains: text`, or a text that the output equals."""
    for prefix, kind in (("grade:", "llm-rubric"), ("fn:", "javascript"), ("eval:", "javascript")):
        if cell.startswith(prefix):
            return {"type": kind, "value": cell.removeprefix(prefix).strip()}
    found = _EXPECTED.match(cell)
    if found is None or found[2] not in {*KINDS, *LIMITS, *NOT_CARRIED}:
        return {"type": "equals", "value": cell}
    value: Any = (found[4] or "").strip()
    made = {"type": (found[1] or "") + found[2], "value": value}
    return {**made, "threshold": float(found[3])} if found[3] else made


def _combinations(
    variables: dict[str, Any], folder: Path, skipped: Skipped
) -> Iterator[dict[str, Any]]:
    """Yield the variables; a list of values is one test for each of them."""
    read: dict[str, list[Any]] = {}
    for name, value in variables.items():
        items = cast("list[Any]", value) if isinstance(value, list) else [value]
        read[name] = [_read_value(item, folder, skipped) for item in items]
    for values in product(*read.values()):
        yield dict(zip(read, values, strict=True))


def _read_value(value: Any, folder: Path, skipped: Skipped) -> Any:
    if not isinstance(value, str) or not value.startswith(CODE):
        return value
    path = folder / value.removeprefix(CODE)
    if path.suffix in {".txt", ".md"}:
        return read_text(path).strip()
    skipped[f"variable of {path.suffix or 'another'} file"] += 1
    return value


def render(template: str, values: dict[str, Any]) -> str | None:
    """Return a template with its variables; None if it has filters or logic of Nunjucks."""

    def replace(match: re.Match[str]) -> str:
        value: Any = values
        for part in re.split(r"[.\[\]]+", match[1].rstrip("]")):
            fields = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
            value = fields.get(part, "")
        return to_text(value)

    rest = _VARIABLE.sub("", template)
    return None if _LOGIC.search(rest) else _VARIABLE.sub(replace, template)


# --- Assertions


def _add_assertions(case: ImportedCase, test: dict[str, Any], values: dict[str, Any]) -> None:
    given = list(_flatten(case, _asserts(test)))
    options: dict[str, Any] = test.get("options") or {}
    if options.get("transform") or options.get("postprocess"):
        case.not_carried = [*case.not_carried, "transform of the output"]
        given = [{"type": "transform"} for _ in given]
    if test.get("threshold") is not None:
        case.not_carried = [*case.not_carried, "threshold of a test (all assertions must hold)"]
    made: list[dict[str, Any]] = []
    for assertion in given:
        made += _convert(case, assertion, values)
    # Without assertions, a test passes if the provider has answered.
    case.assertions = [COMPLETED, *made] if made or case.judged or not given else []


def _flatten(case: ImportedCase, given: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for assertion in given:
        if assertion.get("type") != "assert-set":
            yield assertion
        elif assertion.get("threshold") is not None:
            case.not_carried = [*case.not_carried, "assert-set with a threshold"]
        else:
            yield from _flatten(case, _asserts(assertion))


def _convert(
    case: ImportedCase, assertion: dict[str, Any], values: dict[str, Any]
) -> list[dict[str, Any]]:
    full = str(assertion.get("type"))
    negated, kind = full.startswith("not-"), full.removeprefix("not-")
    value: Any = assertion.get("value")
    if isinstance(value, str):
        value = render(value, values)
    elif isinstance(value, list):
        items = [render(str(item), values) for item in cast("list[Any]", value)]
        value = None if None in items else items
    elif kind == "is-json" and value is None:
        value = True
    own = {"transform", "contextTransform"} & assertion.keys()
    code = isinstance(value, str) and value.startswith(CODE)
    if assertion.get("weight") == 0:
        case.not_carried = [*case.not_carried, f"{full} of weight 0, which decides nothing"]
    elif kind == "llm-rubric" and not negated and isinstance(value, str) and not code:
        case.judged = [*case.judged, value]
    elif kind in LIMITS and not negated and "threshold" in assertion:
        return [at_most(LIMITS[kind], assertion["threshold"])]
    elif kind in KINDS and value is not None and not own and not code:
        try:
            return KINDS[kind](value, negated)
        except (re.error, ValueError):  # also JSON that cannot be decoded
            case.not_carried = [*case.not_carried, f"assertion {full} of this value"]
    else:
        case.not_carried = [*case.not_carried, f"assertion {full}"]
    return []


def _texts(value: Any) -> list[str]:
    """Return several texts: a list, or separated by commas."""
    if isinstance(value, list):
        return [str(item) for item in cast("list[Any]", value)]
    return [text.strip() for text in str(value).split(",")]


def _pattern(pattern: str, negated: bool) -> list[dict[str, Any]]:  # noqa: FBT001 - as in KINDS
    return [matches_not(pattern) if negated else matches(pattern)]


def _equals(value: Any, negated: bool) -> list[dict[str, Any]]:  # noqa: FBT001 - as in KINDS
    if isinstance(value, (dict, list)):
        raise ValueError("the output is parsed as JSON")  # noqa: TRY004 - of this value
    text = str(value)
    return [{"kind": "output", "op": "ne", "expected": text} if negated else equals(text)]


def _contains(value: Any, negated: bool) -> list[dict[str, Any]]:  # noqa: FBT001 - as in KINDS
    text = str(value)
    no = {"kind": "output", "op": "not-contains", "expected": text}
    return [no] if negated else [contains(text)]


def _all(*, ignore_case: bool) -> Callable[[Any, bool], list[dict[str, Any]]]:
    def convert(value: Any, negated: bool) -> list[dict[str, Any]]:  # noqa: FBT001 - as in KINDS
        patterns = [any_of([text], ignore_case=ignore_case) for text in _texts(value)]
        if negated:
            every = "".join(rf"(?=[\s\S]*{each})" for each in patterns)
            return _pattern(rf"\A{every}", negated=True)
        return [matches(each) for each in patterns]

    return convert


def _translate(pattern: str) -> str:
    """Return a regular expression of JavaScript as one of Python."""
    made: list[str] = []
    inside = False
    position = 0
    while position < len(pattern):
        char = pattern[position]
        if char == "\\":
            made.append(pattern[position : position + 2])
            position += 2
            continue
        if char in "[]":
            inside = char == "["
        if pattern.startswith("(?<", position) and pattern[position + 3 : position + 4] not in "=!":
            made.append("(?P<")
            position += 3
            continue
        # In Python, $ also matches before a last line end.
        made.append(r"\Z" if char == "$" and not inside else char)
        position += 1
    translated = "(?a)" + "".join(made)
    re.compile(translated)
    return translated.removeprefix("(?a)")


def _is_json(value: Any, negated: bool) -> list[dict[str, Any]]:  # noqa: FBT001 - as in KINDS
    """Return the check of a schema, which may be written as JSON in a text."""
    schema: Any = msgspec.json.decode(value) if isinstance(value, str) else value
    if negated and schema is not True:
        raise ValueError("a schema that the output does not have")
    return [{"kind": "output", "op": "is-json", "expected": False if negated else schema or True}]


Converter = Callable[[Any, bool], list[dict[str, Any]]]
KINDS: dict[str, Converter] = {
    "equals": _equals,
    "contains": _contains,
    "icontains": lambda value, no: _pattern(any_of([str(value)], ignore_case=True), no),
    "contains-any": lambda value, no: _pattern(any_of(_texts(value)), no),
    "icontains-any": lambda value, no: _pattern(any_of(_texts(value), ignore_case=True), no),
    "contains-all": _all(ignore_case=False),
    "icontains-all": _all(ignore_case=True),
    "is-json": _is_json,
    "starts-with": lambda value, no: _pattern(rf"\A{quote(str(value))}", no),
    "regex": lambda value, no: _pattern(_translate(str(value)), no),
}
LIMITS = {"latency": "/usage/total_duration_ms", "cost": "/usage/total_cost"}
NOT_CARRIED = {"javascript", "python", "contains-json", "similar", "llm-rubric"}
