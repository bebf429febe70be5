"""The protocol of importers of eval suites, and the pack that is written of one.

An importer reads the cases of another tool: their inputs, what they expect, and the outputs if the
file has them. A case with an output is a stored run; any other case runs an agent. Checks that a
pack cannot express are counted by name, and a case without any other check is left out: it would
pass without being checked.
"""

from __future__ import annotations

import io
import os
import re
import struct
import sys
import zipfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol, cast

import msgspec

from offbook.capability import load
from offbook.errors import FormatError, OffbookError, UsageError, counted, require_known
from offbook.evals.builders import PackBuilder
from offbook.evals.case_evaluation import evaluate_case
from offbook.evals.case_kind import EvalOptions
from offbook.evals.datasets import read_rows
from offbook.evals.pack import LoadedPack, PackAssertion
from offbook.evals.pack_file import read_pack
from offbook.files import convert, parse_document, parse_json, read_text, require_new

Skipped = Counter[str]  # what was not carried over, by name
IMPORTERS = (
    "promptfoo:PromptfooImporter",
    "inspect_ai:InspectImporter",
    "pydantic_evals:PydanticEvalsImporter",
    "openai_evals:OpenAIEvalsImporter",
    "langsmith:LangSmithImporter",
    "deepeval:DeepEvalImporter",
)
COMPLETED = {"kind": "run-status", "expected": "completed"}
_UNSAFE = re.compile(r"[^A-Za-z0-9_.-]+")
MAX_ID = 60
ZSTANDARD = 93  # the number of this compression in archives


class ImportedCase(msgspec.Struct):
    """A case of a suite. `run` is its record, if the file has its output.

    `passed` is the verdict of the other tool on it. `playbook` is the model of the case.
    """

    id: str = ""
    input: Any = None
    reference: Any = None
    assertions: list[dict[str, Any]] = []
    judged: list[str] = []  # questions for a judge
    run: dict[str, Any] | None = None
    passed: bool | None = None
    playbook: list[dict[str, Any]] = []
    metadata: dict[str, Any] = {}
    not_carried: list[str] = []


class PeerFile:
    """A file of another tool: one `value`, or the `rows` of a file of lines."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows: list[dict[str, Any]] = []
        self.value: dict[str, Any] = {}
        if path.suffix == ".eval":
            self.value = _read_archive(path)
        elif path.suffix in {".csv", ".jsonl"}:
            self.rows = read_rows(path)
        elif path.suffix in {".json", ".yaml", ".yml"}:
            value = parse_document(read_text(path), path)
            if isinstance(value, list):
                self.rows = read_rows(path)
            elif isinstance(value, dict):
                self.value = cast("dict[str, Any]", value)
        else:
            raise FormatError(
                f"unsupported file type {path.suffix!r}",
                path=path,
                hint="an eval suite is a .json, .jsonl, .yaml, .csv or .eval file",
            )

    @property
    def columns(self) -> set[str]:
        """The keys of the first row."""
        return set(self.rows[0]) if self.rows else set()


def _read_archive(path: Path) -> dict[str, Any]:
    """Return the log in an `.eval` file of Inspect: its header, and all samples."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            if "header.json" not in names:
                raise FormatError("the log has no header: its run did not end", path=path)
            log = parse_json(_read_member(archive, "header.json", path), path)
            samples = sorted(name for name in names if name.startswith("samples/"))
            log["samples"] = [
                parse_json(_read_member(archive, name, path), path) for name in samples
            ]
    except (zipfile.BadZipFile, UnicodeDecodeError) as error:
        raise FormatError(f"not a log of Inspect: {error}", path=path) from error
    return log


def _read_member(archive: zipfile.ZipFile, name: str, path: Path) -> str:
    """Return a file of an archive. Inspect uses Zstandard, which Python has from 3.14 on."""
    info = archive.getinfo(name)
    if info.compress_type != ZSTANDARD or sys.version_info >= (3, 14):
        return archive.read(name).decode()
    try:
        import zstandard  # few suites are such logs, and Inspect has installed it
    except ImportError as error:
        raise UsageError(
            "the log is compressed with Zstandard",
            where=str(path),
            hint=f"pip install zstandard, or: inspect log convert {path} --to json",
        ) from error
    with path.open("rb") as file:
        file.seek(info.header_offset)
        header = file.read(30)
        skipped = sum(struct.unpack("<HH", header[26:30]))  # the name and the extra fields
        file.seek(skipped, os.SEEK_CUR)
        packed = io.BytesIO(file.read(info.compress_size))
    reader = zstandard.ZstdDecompressor().stream_reader(packed, read_across_frames=True)
    return reader.read().decode()


class SuiteImporter(Protocol):
    """One format of eval suites."""

    name: str

    def recognizes(self, file: PeerFile, /) -> bool:
        """Return whether the file is in this format."""
        ...

    def read(self, file: PeerFile, skipped: Skipped, /) -> list[ImportedCase]:
        """Return the cases; count what is not carried over."""
        ...


def import_suite(
    path: Path, output: Path, *, kind: str = "", agent: str = "", replace: bool = False
) -> tuple[str, list[str]]:
    """Write the pack of a suite. Return a line for the user, and what was not carried over."""
    if not replace:
        require_new(output, hint="use --replace")
    skipped = Skipped()
    cases = read_suite(path, kind, skipped)
    if not agent and any(case.run is None for case in cases):
        raise UsageError(
            "the suite has no outputs, so its cases need an agent",
            where=str(path),
            hint=f"offbook import {path} -o {output} --agent shop.py:answer",
        )
    verdicts: dict[str, bool] = {}
    builder = PackBuilder(_slug(path.name.split(".")[0]) or "imported")
    rubrics: dict[str, str] = {}
    ids: Counter[str] = Counter()
    for number, case in enumerate(cases, 1):
        name = _slug(case.id) or f"case-{number}"
        ids[name] += 1
        name = f"{name}-{ids[name]}" if ids[name] > 1 else name
        for question in case.judged:
            if question not in rubrics:
                rubrics[question] = f"judged-{len(rubrics) + 1}"
                builder.rubric(rubrics[question], kind="llm-judge", prompt=question)
        _add_case(builder, name, case, agent, [rubrics[question] for question in case.judged])
        if case.passed is not None and not (agent or case.judged or case.not_carried):
            verdicts[name] = case.passed
    output.parent.mkdir(parents=True, exist_ok=True)
    builder.write(output)
    notes = [f"{count} x {what}" for what, count in sorted(skipped.items())]
    notes += _differences(read_pack(output), verdicts)
    them = "it" if len(cases) == 1 else "them"
    return f"{counted(len(cases), 'case')}; run {them}: offbook eval run {output}", notes


def read_suite(path: Path, kind: str, skipped: Skipped) -> list[ImportedCase]:
    """Return the cases of a suite that check anything; without a `kind` its format is detected."""
    importers: dict[str, SuiteImporter] = {}
    for entry in IMPORTERS:
        importer = load(f"offbook.evals.importers.{entry}")()
        importers[importer.name] = importer
    if kind:
        require_known("unknown format of an eval suite", kind, importers)
    file = PeerFile(path)
    detected = (each for each in importers.values() if each.recognizes(file))
    importer = importers.get(kind) or next(detected, None)
    if importer is None:
        raise FormatError(
            "unknown format of an eval suite",
            path=path,
            hint=f"if it is one of these, name it with --kind: {', '.join(importers)}",
        )
    cases: list[ImportedCase] = []
    for case in importer.read(file, skipped):
        case.assertions = [each for each in case.assertions if _is_possible(each, case)]
        for what in case.not_carried:
            skipped[what] += 1
        if case.assertions or case.judged:
            cases.append(case)
        else:
            skipped["case without a check that can be carried over"] += 1
    if not cases:
        listed = ", ".join(sorted(skipped)) or "the file has none"
        raise FormatError(
            f"no case to import: {listed}", path=path, hint=f"read as {importer.name}"
        )
    return cases


def _is_possible(assertion: dict[str, Any], case: ImportedCase) -> bool:
    """Return whether a pack takes this assertion: it refuses those that check nothing."""
    try:
        convert(assertion, PackAssertion, path="import")
    except OffbookError as error:
        case.not_carried = [*case.not_carried, f"check that a pack refuses ({error.what})"]
        return False
    return True


def _add_case(
    builder: PackBuilder, name: str, case: ImportedCase, agent: str, rubrics: list[str]
) -> None:
    metadata = {**case.metadata}
    if case.not_carried:
        metadata["not_carried"] = sorted(set(case.not_carried))
    fields: dict[str, Any] = {"assertions": case.assertions, "rubrics": rubrics}
    fields |= {"reference": case.reference, "metadata": metadata}
    if agent:
        fields |= {"subject": agent, "playbook": case.playbook}
        fields |= {} if case.playbook else {"input": case.input}
    elif case.run is not None:
        run = {"task": to_text(case.input), "status": "completed", **case.run}
        builder.fixture(f"run-of-{name}", "run-record", inline=drop_nulls(run))
        fields["run"] = f"run-of-{name}"
    used = {key: drop_nulls(value) for key, value in fields.items()}
    builder.case(name, **{key: value for key, value in used.items() if value not in (None, [], {})})


def _differences(loaded: LoadedPack, verdicts: dict[str, bool]) -> Iterator[str]:
    """Yield a line for each stored run whose verdict is not that of the other tool."""
    for case in loaded.pack.cases:
        if case.id in verdicts:
            result = evaluate_case(loaded, case, EvalOptions())
            if (result.status == "pass") != verdicts[case.id]:
                theirs = "pass" if verdicts[case.id] else "fail"
                yield f"verdict of {case.id}: it was {theirs}, and is {result.status} here"


def _slug(text: str) -> str:
    return _UNSAFE.sub("-", text).strip("-")[:MAX_ID]


# --- What all importers use


def drop_nulls(value: Any) -> Any:
    """Return a value without the keys of objects that are null: TOML has no null."""
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        return {key: drop_nulls(item) for key, item in fields.items() if item is not None}
    if isinstance(value, list):
        return [drop_nulls(item) for item in cast("list[Any]", value)]
    return value


def to_text(value: Any) -> str:
    """Return a text as it is, and another value as JSON."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def text_of(content: Any) -> str:
    """Return the text of a message: of its parts, if it has several."""
    if isinstance(content, str):
        return content
    parts = cast("list[dict[str, Any]]", content or [])
    return "".join(str(part.get("text", "")) for part in parts)


def last_user_text(given: Any) -> Any:
    """Return the text of the last message of the user: the prompt of an agent."""
    if not isinstance(given, list):
        return given
    messages = cast("list[dict[str, Any]]", given)
    users = [each for each in messages if each.get("role") == "user"] or messages
    return text_of(users[-1].get("content")) if users else ""


def scalars(value: Any) -> dict[str, Any]:
    """Return the texts, numbers and truth values of an object, for metadata."""
    fields = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
    return {key: item for key, item in fields.items() if isinstance(item, (str, int, float))}


def equals(value: Any) -> dict[str, Any]:
    """Return the assertion that the output is a value."""
    return {"kind": "output", "expected": value}


def contains(text: str) -> dict[str, Any]:
    """Return the assertion that the output contains a text."""
    return {"kind": "output", "contains": text}


def matches(pattern: str) -> dict[str, Any]:
    """Return the assertion that a pattern is found in the output."""
    return {"kind": "output", "op": "matches", "expected": pattern}


def matches_not(pattern: str) -> dict[str, Any]:
    """Return the assertion that a pattern is not found in the output."""
    return {"kind": "output", "op": "not-matches", "expected": pattern}


def quote(text: str) -> str:
    """Return the pattern of a text, readable: only what would be special is escaped."""
    return re.sub(r"[.^$*+?{}\[\]\\|()]", r"\\\g<0>", text)


def any_of(texts: list[str], *, ignore_case: bool = False) -> str:
    """Return the pattern of any of these texts."""
    escaped = "|".join(map(quote, texts))
    return f"(?i:{escaped})" if ignore_case else f"(?:{escaped})"


def at_most(path: str, limit: float) -> dict[str, Any]:
    """Return the assertion that a number of the record is at most a limit."""
    return {"path": path, "op": "le", "expected": limit}
