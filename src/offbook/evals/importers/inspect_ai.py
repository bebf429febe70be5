"""The logs of Inspect (`.eval`, or `.json`), and the data sets of its tasks.

A log has the outputs, and the scorers with their options. A data set has no scorer: the output
must include the target, as the scorer `includes` demands.
"""

from __future__ import annotations

import string
from typing import Any, cast

from offbook.evals.importers.suite import (
    ImportedCase,
    PeerFile,
    Skipped,
    any_of,
    last_user_text,
    matches,
    scalars,
    text_of,
)

_EDGE = r"[\s!-/:-@\[-`{-~]*"  # what `match` strips from both ends
# The last answer counts: what follows it, by the kind that the scorer `answer` reads.
_ANSWERS = {
    "letter": r"(?:\W|\Z)(?![\s\S]*ANSWER\s*:)",
    "word": r"(?=[.,;:!?]?\s*(?:\n|\Z))(?![\s\S]*ANSWER\s*:)",
    "line": r"(?:\n\s*)?\Z",
}
# What is before and after the target, by the location that `match` looks at.
PLACES = {
    "begin": (rf"\A{_EDGE}", ""),
    "end": ("", rf"{_EDGE}\Z"),
    "exact": (rf"\A{_EDGE}", rf"{_EDGE}\Z"),
    "any": ("", ""),
}
PASSED = ("C", 1, 1.0, True)


class InspectImporter:
    """Reads a log, or a data set."""

    name = "inspect"

    def recognizes(self, file: PeerFile) -> bool:
        return {"input", "target"} <= file.columns or {"eval", "samples"} <= file.value.keys()

    def read(self, file: PeerFile, _skipped: Skipped, /) -> list[ImportedCase]:
        if file.rows:
            return [_read_sample(row, {"includes": {}}, stored=False) for row in file.rows]
        spec: dict[str, Any] = file.value.get("eval") or {}
        listed = cast("list[dict[str, Any]]", spec.get("scorers") or [])
        scorers = {
            str(each["name"]).rpartition("/")[2]: cast("dict[str, Any]", each.get("options") or {})
            for each in listed
        }
        samples = cast("list[dict[str, Any]]", file.value["samples"] or [])
        if not scorers and samples:  # of an older version: by the scores alone
            names = cast("dict[str, Any]", samples[0].get("scores") or {})
            scorers = {name: dict[str, Any]() for name in names}
        epochs = len({sample.get("epoch") for sample in samples}) > 1
        cases = [_read_sample(sample, scorers, stored=True) for sample in samples]
        for case, sample in zip(cases, samples, strict=True):
            case.id += f"-epoch-{sample['epoch']}" if epochs else ""
        return cases


def _read_sample(
    sample: dict[str, Any], scorers: dict[str, dict[str, Any]], *, stored: bool
) -> ImportedCase:
    target: Any = sample.get("target") or ""
    targets = [str(t) for t in cast("list[Any]", target)] if isinstance(target, list) else [target]
    case = ImportedCase(
        id=str(sample.get("id") or ""),
        input=last_user_text(sample.get("input")),
        reference=target,
        metadata=scalars(sample.get("metadata")),
    )
    for what in ("sandbox", "files", "setup"):
        if sample.get(what):
            case.not_carried = [*case.not_carried, f"{what} of a sample"]
    for name, options in scorers.items():
        pattern = _pattern(name, options, targets)
        if pattern:
            case.assertions = [*case.assertions, matches(pattern)]
        else:
            case.not_carried = [*case.not_carried, f"scorer {name}"]
    if stored:
        case.run = _read_run(sample)
        scores = cast("dict[str, dict[str, Any]]", sample.get("scores") or {})
        case.passed = bool(scores) and all(s.get("value") in PASSED for s in scores.values())
    return case


def _read_run(sample: dict[str, Any]) -> dict[str, Any]:
    messages = cast("list[dict[str, Any]]", sample.get("messages") or [])
    calls = [call for message in messages for call in message.get("tool_calls") or ()]
    usage = list(cast("Any", sample.get("model_usage") or {}).values())
    return {
        "output": _completion(sample.get("output") or {}),
        "status": "failed" if sample.get("error") else "completed",
        "tool_recordings": [{"tool_name": call["function"]} for call in calls],
        "usage": {
            "input_tokens": sum(used.get("input_tokens", 0) for used in usage),
            "output_tokens": sum(used.get("output_tokens", 0) for used in usage),
            "total_duration_ms": (sample.get("total_time") or 0) * 1000,
        },
    }


def _completion(output: dict[str, Any]) -> str:
    if isinstance(output.get("completion"), str):
        return output["completion"]
    choices = cast("list[dict[str, Any]]", output.get("choices") or [])
    return text_of(choices[0]["message"].get("content")) if choices else ""


def _pattern(name: str, options: dict[str, Any], targets: list[str]) -> str:
    """Return the pattern of the outputs that a scorer accepts; empty if it is not carried over."""
    ignore_case = bool(options.get("ignore_case", True))
    found = ""
    if name == "includes":
        return any_of(targets, ignore_case=ignore_case)
    if name == "match" and not options.get("numeric"):
        edge = string.whitespace + string.punctuation
        before, after = PLACES[str(options.get("location", "end"))]
        found = before + any_of([target.strip(edge) for target in targets]) + after
    elif name in {"answer", "choice"}:
        kind = str(options.get("pattern", "letter"))
        if kind in _ANSWERS and (name == "answer" or all(len(t) == 1 for t in targets)):
            found = rf"ANSWER\s*:\s*{any_of(targets)}{_ANSWERS[kind]}"
    return f"(?i:{found})" if found and ignore_case else found
