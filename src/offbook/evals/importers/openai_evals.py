"""The samples of OpenAI's evals: `{"input": …, "ideal": …}` a line, or the YAML that names them.

The class of an eval is in its YAML. Samples alone are read as those of `Match`, the basic one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from offbook.errors import FormatError
from offbook.evals.datasets import read_rows
from offbook.evals.importers.suite import (
    ImportedCase,
    PeerFile,
    Skipped,
    any_of,
    last_user_text,
    matches,
    scalars,
)

CLASSES = {"Match", "Includes"}


class OpenAIEvalsImporter:
    """Reads samples, or a YAML file of the registry."""

    name = "openai-evals"

    def recognizes(self, file: PeerFile) -> bool:
        return {"input", "ideal"} <= file.columns or bool(_evals_of(file))

    def read(self, file: PeerFile, skipped: Skipped) -> list[ImportedCase]:
        if file.rows:
            return [_read_sample(row, "Match", {}) for row in file.rows]
        cases: list[ImportedCase] = []
        for name, spec in _evals_of(file).items():
            kind = str(spec["class"]).rpartition(":")[2]
            arguments: dict[str, Any] = spec.get("args") or {}
            if kind not in CLASSES:
                skipped[f"eval class {kind}"] += 1
                continue
            for row in read_rows(_find_samples(file.path, arguments)):
                case = _read_sample(row, kind, arguments)
                case.metadata = {"eval": name, **case.metadata}
                cases.append(case)
        return cases


def _evals_of(file: PeerFile) -> dict[str, dict[str, Any]]:
    return {
        name: cast("dict[str, Any]", spec)
        for name, spec in file.value.items()
        if isinstance(spec, dict) and str(cast("Any", spec).get("class", "")).startswith("evals.")
    }


def _find_samples(path: Path, arguments: dict[str, Any]) -> Path:
    """Return the file of samples: next to the YAML, or in `data` of its registry."""
    name = str(arguments.get("samples_jsonl", ""))
    for place in (path.parent / name, path.parents[1] / "data" / name if name else path):
        if name and place.is_file():
            return place
    raise FormatError(f"samples_jsonl names a missing file: {name!r}", path=path)


def _read_sample(row: dict[str, Any], kind: str, arguments: dict[str, Any]) -> ImportedCase:
    ideal: Any = row["ideal"]
    answers = cast("list[Any]", ideal) if isinstance(ideal, list) else [ideal]
    texts = ["" if answer is None else str(answer) for answer in answers]
    given: Any = row["input"]
    case = ImportedCase(
        input=last_user_text(given).rstrip() if isinstance(given, list) else given,
        reference=ideal,
        metadata=scalars(row.get("metadata")),
    )
    if isinstance(given, list) and len(cast("list[Any]", given)) > 1:
        case.not_carried = ["messages before the last one of the user"]
    if not all(texts) or not texts:  # every output begins with an empty text, none with no text
        case.not_carried = [*case.not_carried, "ideal without a text, which decides nothing"]
    elif kind == "Includes":
        ignore = bool(arguments.get("ignore_case"))
        case.assertions = [matches(any_of(texts, ignore_case=ignore))]
    else:
        case.assertions = [matches(rf"\A{any_of(texts)}")]
    if arguments.get("num_few_shot"):
        case.not_carried = [*case.not_carried, "few-shot examples"]
    return case
