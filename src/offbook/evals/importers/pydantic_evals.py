"""The data sets of pydantic-evals, in YAML or JSON.

An evaluator is a name, `{Name: value}` or `{Name: {argument: value}}`. Those of the data set are
those of each case.
"""

from __future__ import annotations

from typing import Any, cast

from offbook.evals.importers.suite import (
    COMPLETED,
    ImportedCase,
    PeerFile,
    Skipped,
    any_of,
    at_most,
    equals,
    matches,
    scalars,
    to_text,
)

# The first argument of each evaluator that is carried over.
FIRST = {
    "EqualsExpected": "evaluation_name",
    "Equals": "value",
    "Contains": "value",
    "MaxDuration": "seconds",
    "LLMJudge": "rubric",
}


class PydanticEvalsImporter:
    """Reads a data set that `Dataset.to_file` wrote."""

    name = "pydantic-evals"

    def recognizes(self, file: PeerFile) -> bool:
        cases = file.value.get("cases")
        return isinstance(cases, list) and all("inputs" in case for case in cast("Any", cases))

    def read(self, file: PeerFile, skipped: Skipped) -> list[ImportedCase]:
        for key in ("report_evaluators",):
            if file.value.get(key):
                skipped[key] += len(file.value[key])
        shared: list[Any] = file.value.get("evaluators") or []
        return [_read_case(case, shared) for case in file.value.get("cases") or ()]


def _read_case(case: dict[str, Any], shared: list[Any]) -> ImportedCase:
    expected = case.get("expected_output")
    read = ImportedCase(
        id=to_text(case.get("name") or ""),
        input=case.get("inputs"),
        reference=expected,
        assertions=[COMPLETED],  # a task that raises is a failure
        metadata=scalars(case.get("metadata")),
    )
    own: list[Any] = case.get("evaluators") or []
    for evaluator in [*shared, *own]:
        _add_evaluator(read, evaluator, expected)
    checks = len(read.assertions) - 1 + len(read.judged)
    if not checks and read.not_carried:
        read.assertions = []
    return read


def _add_evaluator(case: ImportedCase, evaluator: Any, expected: Any) -> None:
    name, arguments = _parse(evaluator)
    value: Any = arguments.get("value")
    made: list[dict[str, Any]] = []
    match name:
        case "EqualsExpected":
            made = [] if expected is None else [equals(expected)]
        case "Equals" if value is not None:
            made = [equals(value)]
        case "Contains" if value is not None and not arguments.get("as_strings"):
            made = _contains(value, ignore_case=arguments.get("case_sensitive") is False)
        case "MaxDuration" if isinstance(arguments.get("seconds"), (int, float)):
            made = [at_most("/usage/total_duration_ms", arguments["seconds"] * 1000)]
        case "LLMJudge" if arguments.get("assertion") is not False:
            case.judged = [*case.judged, arguments["rubric"]]
        case _:
            case.not_carried = [*case.not_carried, f"evaluator {name}"]
    case.assertions = [*case.assertions, *made]


def _parse(evaluator: Any) -> tuple[str, dict[str, Any]]:
    if isinstance(evaluator, str):
        return evaluator, {}
    ((name, given),) = cast("dict[str, Any]", evaluator).items()
    first = FIRST.get(name, "")
    # An object is the arguments, unless it lacks the one that the evaluator needs.
    if isinstance(given, dict) and (first in given or name == "EqualsExpected"):
        return name, cast("dict[str, Any]", given)
    return name, {first: given}


def _contains(value: Any, *, ignore_case: bool) -> list[dict[str, Any]]:
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        return [
            {"path": "/output/" + key.replace("~", "~0").replace("/", "~1"), "expected": item}
            for key, item in fields.items()
        ]
    if isinstance(value, str) and ignore_case:
        return [matches(any_of([value], ignore_case=True))]
    return [{"kind": "output", "op": "contains", "expected": value}]
