"""Reads eval packs strictly: TOML, JSON or YAML. Nothing runs before the whole pack is checked.

    loaded = read_pack(Path("offbook.eval.toml"))

An error names the file and the line. Also read: an eval suite (JSON with `_type`
"eval_suite_manifest") and the file of a single ladder.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, cast

import msgspec

from offbook.errors import FormatError, UsageError, did_you_mean
from offbook.evals.pack import (
    FRICTION_KINDS,
    METRIC_OF,
    EvalCase,
    LadderSpec,
    LoadedPack,
    Pack,
    Rubric,
)
from offbook.evals.run_record import ROLES, check_fixture
from offbook.files import (
    convert,
    find_line,
    find_own_files,
    parse_document,
    parse_toml,
    parser_limits,
    read_settings,
    read_text,
    require_kind,
)
from offbook.options import require_some

if TYPE_CHECKING:
    from offbook.evals.datasets import CaseOrigin

T = TypeVar("T")
PATTERN = "*.eval.toml"
OTHER_PATTERNS = ("*.eval.json", "*.eval.yaml", "*.eval.yml")
CONTEXT_TYPE = "harn.context_eval.manifest.v1"
_CASE = re.compile(r"\$\.cases\[(\d+)\]")
_CASES = re.compile(r"^\s*\[\[\s*(?:cases|ladders)\s*\]\]", re.MULTILINE)
SUFFIXES = (".toml", ".json", ".yaml", ".yml")
SUITE_TYPE = "eval_suite_manifest"
# Values of the user: their keys are kept as they are.
FREE_KEYS = {
    "axes",
    "criteria",
    "playbook",
    "reference",
    "scores",
    "metadata",
    "inline",
    "expected",
    "input",
    "output",
    "env",
    "split",
    "prices",
    "check",
    "tool_budgets",
}
ALIASES = {"run_path": "run", "fixture_path": "fixture", "type": "kind"}
LADDER_KEYS = {"timeout_tiers", "model_routes", "backend"}
# The keys that a case of each kind reads. A function is a subject without a model.
_OF_ALL = {
    *("id", "name", "description", "kind", "severity", "metadata", "trials", "timeout_seconds"),
    *("rubrics", "assertions", "thresholds"),
}
_OF_RUNS = {*_OF_ALL, "fixture", "compare_to", "prompt", "input", "reference"}
_OF_FUNCTIONS = {*_OF_RUNS, "subject", "env", "shared"}
KEYS_OF = {
    "run": {*_OF_RUNS, "run"},
    "trace": {*_OF_RUNS, "trace"},
    "friction": {*_OF_ALL, "friction_events"},
    "function": _OF_FUNCTIONS,
    "subject": {*_OF_FUNCTIONS, "playbook", "cassette", "live", "faults", "workspace"},
    "live-verify": {
        *(*_OF_RUNS, "task", "workspace", "project", "executor", "verify_command"),
        *("expected_output_paths", "required_output_snippets", "tool_budgets"),
    },
    "context": {*_OF_ALL, "manifest"},
    "classifier": {*_OF_ALL, "dataset", "settings", "model"},
}
_NO_KEYS = msgspec.structs.asdict(EvalCase())
_UNREAD_KEYS = {
    kind: [(name, default) for name, default in _NO_KEYS.items() if name not in keys]
    for kind, keys in KEYS_OF.items()
}
RUN_METRICS = {"latency_ms", "cost_usd", "tokens", "stage_count"}
JUDGE_METRICS = {"score", "confidence"}


def read_pack(path: Path) -> LoadedPack:
    """Return the pack of a file, with all references checked.

    A context manifest or the data set of a classifier is a pack with one case.
    """
    require_kind(path, "pack")
    text = read_text(path)
    with parser_limits(path):
        return _read_pack(path, text)


def _read_pack(path: Path, text: str) -> LoadedPack:
    value = _parse(text, path)
    if key := single_case_key(value):
        value = {"id": path.stem, "cases": [{"id": path.stem, key: path.name}]}
    if not isinstance(value, dict):
        raise FormatError(f"expected an eval pack, got {type(value).__name__}", path=path, line=1)
    reader = _PackReader(path, text)
    raw = normalize_keys(cast("dict[str, Any]", value), "$", reader.fail)
    if LADDER_KEYS & raw.keys() and "cases" not in raw and "ladders" not in raw:
        raw = {"id": raw.get("id", path.stem), "ladders": [raw]}
    elif raw.get("_type") == SUITE_TYPE:
        raw = reader.suite_to_pack(raw)
    digest = hashlib.sha256(text.encode())
    if "datasets" in raw or "axes" in raw:
        from offbook.evals.datasets import expand_cases  # most packs list their cases

        base = path.parent / str(raw.get("base_dir", ""))
        raw["cases"], reader.origins = expand_cases(raw, base, reader.fail)
        digest.update(msgspec.json.encode(raw["cases"], enc_hook=repr))
    pack = convert(raw, Pack, path=path, text=text, line_finder=reader.find_line)
    loaded = LoadedPack(_with_ids(pack), path, digest.hexdigest())
    reader.check(loaded)
    return loaded


def single_case_key(value: Any) -> str:
    """Return the key of a case that reads this file: of a context eval or of a classifier."""
    fields = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
    if fields.get("_type") == CONTEXT_TYPE or {"tasks", "modes"} & fields.keys():
        return "manifest"
    items = fields["cases"] if [*fields] == ["cases"] else cast("Any", value)
    first = cast("list[Any]", items)[0] if isinstance(items, list) and items else None
    if isinstance(first, dict) and {"prompt", "expected"} <= cast("dict[str, Any]", first).keys():
        return "dataset"
    return ""


def find_single_case(path: Path) -> str:
    """Return the key of the only case of a file; "" for a pack."""
    if not path.is_file() or path.suffix not in SUFFIXES:
        return ""
    return single_case_key(_parse(read_text(path), path))


def find_packs(paths: Iterable[Path]) -> list[Path]:
    """Return the pack files of these paths; of a folder, all `*.eval.toml` in it."""
    found: list[Path] = []
    for path in paths:
        if not path.is_dir():
            if not path.exists():
                raise FormatError("no such file", path=path, hint="offbook eval new writes a pack")
            found.append(path)
            continue
        packs = find_own_files(path, PATTERN)
        if not packs:
            raise FormatError(
                f"no eval pack in this folder: {PATTERN}",
                path=path,
                hint="name the file, or write one with: offbook eval new",
            )
        found += packs
    return [*{path.resolve(): path for path in reversed(found)}.values()][::-1]


def find_skipped_packs(folder: Path) -> list[Path]:
    """Return the packs of a folder that have another name than `*.eval.toml`."""
    skipped = [file for name in OTHER_PATTERNS for file in find_own_files(folder, name)]
    others = (file for file in find_own_files(folder, "*.toml") if not file.match(PATTERN))
    return sorted([*skipped, *filter(_may_have_cases, others)])


def _may_have_cases(file: Path) -> bool:
    """Return whether a TOML file is a pack; one that cannot be read may be one."""
    try:
        return _CASES.search(file.read_text("utf-8", "replace")) is not None
    except OSError:
        return True


def _parse(text: str, path: Path) -> Any:
    if path.suffix in SUFFIXES:
        return parse_document(text, path)
    raise FormatError(
        f"unsupported file type {path.suffix!r}",
        path=path,
        hint=f"an eval pack is a {', '.join(SUFFIXES[:-1])} file",
    )


def _with_ids(pack: Pack) -> Pack:
    """Return the pack with an id for each case, route and tier."""
    ladders = [
        msgspec.structs.replace(
            ladder,
            model_routes=number_ids(ladder.model_routes, "route"),
            timeout_tiers=number_ids(ladder.timeout_tiers, "tier"),
        )
        for ladder in number_ids(pack.ladders, "ladder")
    ]
    cases = number_ids(pack.cases, "case")
    return msgspec.structs.replace(pack, cases=cases, ladders=tuple(ladders))


def number_ids(items: Iterable[Any], name: str) -> tuple[Any, ...]:
    """Return items of a pack; one without an id is named by its number: `case_3`."""
    return tuple(
        item if item.id else msgspec.structs.replace(item, id=f"{name}_{number}")
        for number, item in enumerate(items, 1)
    )


def normalize_keys(
    raw: dict[str, Any], at: str, fail: Callable[[str, str], NoReturn]
) -> dict[str, Any]:
    """Return the keys with underscores, without aliases; a key that is there twice fails."""

    def normalize(value: Any, at: str) -> Any:
        if isinstance(value, dict):
            return normalize_keys(cast("dict[str, Any]", value), at, fail)
        if isinstance(value, list):
            items = cast("list[Any]", value)
            return [normalize(item, f"{at}[{number}]") for number, item in enumerate(items)]
        return value

    fields: dict[str, Any] = {}
    for key, value in raw.items():
        name = str(key).replace("-", "_")  # a key of YAML may be a number
        name = ALIASES.get(name, name) if at.startswith(("$.cases", "$.datasets")) else name
        if name in fields:
            fail(f"{name!r} is defined twice, as {key!r} as well", f"{at}.{key}")
        if name == "prices" and isinstance(value, dict):  # by the names of models
            prices = cast("dict[str, Any]", value)
            fields[name] = {k: normalize(v, f"{at}.{name}.{k}") for k, v in prices.items()}
        else:
            fields[name] = value if name in FREE_KEYS else normalize(value, f"{at}.{name}")
        # The severity and kinds may be written with underscores; so may values of the seed.
        if name == "kind" and isinstance(value, str) and value != "llm_as_judge":
            fields[name] = value.replace("_", "-")
    return fields


class _PackReader:
    """Checks one file; errors have its path and a line."""

    def __init__(self, path: Path, text: str) -> None:
        self.path = path
        self.text = text
        self.origins: list[CaseOrigin] = []  # of cases that were made of templates

    def fail(self, problem: str, at: str, hint: str = "") -> NoReturn:
        """Raise an error at a location."""
        row = self._origin(at)[1]
        problem = f"{problem} ({row})" if row else problem
        raise FormatError(problem, path=self.path, line=self.find_line("", at), hint=hint)

    def find_line(self, _text: str, at: str) -> int | None:
        """Return the line of a location; that of a template for a case that was made of one."""
        return line_of(self.text, self._origin(at)[0], self.path)

    def _origin(self, at: str) -> tuple[str, str]:
        made = _CASE.match(at) if self.origins else None
        if made is None or int(made[1]) >= len(self.origins):
            return at, ""
        origin = self.origins[int(made[1])]
        return at.replace(made[0], origin.at, 1), origin.row

    def suite_to_pack(self, raw: dict[str, Any]) -> dict[str, Any]:
        """Return an eval suite as a pack: its cases have a label instead of an id and a name."""
        if not isinstance(raw.get("cases"), list):
            return raw  # an error of its type
        cases: list[Any] = []
        for number, item in enumerate(raw["cases"], 1):
            if isinstance(item, dict):
                case = dict(cast("dict[str, Any]", item))
                label = case.pop("label", "")
                cases.append({"id": label or f"case_{number}", "name": label, **case})
            else:
                cases.append(item)
        return {**raw, "cases": cases}

    # --- Checks that the types cannot express

    def check(self, loaded: LoadedPack) -> None:
        """Raise an error for a pack that could not run as written."""
        pack = loaded.pack
        if pack.version > 1:
            self.fail(f"unsupported version {pack.version}", "$.version", "this Offbook reads 1")
        if not pack.cases and not pack.ladders:
            self.fail("the pack has no cases and no ladders", "$", "add a [[cases]] table")
        self._check_unique("fixtures", [fixture.id for fixture in pack.fixtures])
        self._check_unique("rubrics", [rubric.id for rubric in pack.rubrics])
        self._check_unique("cases", [case.id for case in pack.cases])
        self._check_unique("ladders", [ladder.id for ladder in pack.ladders])
        for number, fixture in enumerate(pack.fixtures):
            at = f"$.fixtures[{number}]"
            if bool(fixture.path) is (fixture.inline is not None):
                self.fail(f"the fixture {fixture.id!r} needs a path or an inline value", at)
            if fixture.path and not loaded.fixture_path(fixture).is_file():
                missing = loaded.fixture_path(fixture)
                self.fail(f"the file of the fixture {fixture.id!r} is missing: {missing}", at)
            check_fixture(loaded, fixture)
        for number, rubric in enumerate(pack.rubrics):
            self._check_rubric(rubric, number)
        for number, case in enumerate(pack.cases):
            self._check_case(loaded, case, f"$.cases[{number}]")
        self._check_split(pack)
        keys = {key for case in pack.cases for key in case.metadata}
        for number, limit in enumerate(pack.slices):
            if limit.by not in keys:
                problem = f"no case has {limit.by!r} in its metadata"
                self.fail(problem, f"$.slices[{number}].by", did_you_mean(limit.by, keys))
        self._check_metrics(loaded)
        self._check_ladders(pack)

    def _check_unique(self, section: str, ids: list[str]) -> None:
        if len(set(ids)) == len(ids):
            return
        twice = next(name for name, count in Counter(ids).items() if count > 1)
        second = [number for number, name in enumerate(ids) if name == twice][1]
        self.fail(f"the id {twice!r} is defined twice in {section}", f"$.{section}[{second}].id")

    def _check_rubric(self, rubric: Rubric, number: int) -> None:
        at = f"$.rubrics[{number}]"
        if not rubric.has_rule:
            hint = "add [[rubrics.assertions]] or [rubrics.thresholds]"
            if rubric.judged:
                hint = "add a prompt"
            self.fail(f"the rubric {rubric.id!r} has no rule and would check nothing", at, hint)

    def _check_case(self, loaded: LoadedPack, case: EvalCase, at: str) -> None:
        modes = [
            name
            for name, given in (
                ("run", case.run),
                ("trace", case.trace),
                ("friction_events", case.friction_events),
                ("subject", case.subject),
                ("manifest", case.manifest),
                ("dataset", case.dataset),
            )
            if given
        ]
        live_verify = case.mode == "live-verify"
        if len(modes) != 1 and not (live_verify and not modes):
            problem = "" if modes else "has neither run, trace, friction_events nor subject"
            problem = problem or f"has {' and '.join(modes)}: one of them is enough"
            self.fail(f"the case {case.id!r} {problem}", at)
        if live_verify and (not case.task or (case.executor or loaded.pack.executor) is None):
            self.fail(f"the live-verify case {case.id!r} needs a task and an executor", at)
        if live_verify and case.verify_command is None:
            self.fail(f"the live-verify case {case.id!r} needs a verify_command", at)
        self._check_keys(case, at)
        if sum(map(bool, (case.playbook, case.cassette, case.live))) > 1:
            self.fail(f"the case {case.id!r} has two models", at, "playbook, cassette or live")
        if case.faults is not None:
            from offbook.determinism.faults import parse_faults  # few packs have faults

            try:
                parse_faults(case.faults)
            except UsageError as error:
                self.fail(error.what, f"{at}.faults", error.hint)
        # Most cases have no rubrics by another name: the table is searched for the wrong ones.
        for rubric in case.rubrics:
            if rubric not in loaded.rubrics:
                hint = did_you_mean(rubric, loaded.rubrics)
                self.fail(f"unknown rubric {rubric!r}", f"{at}.rubrics", hint)
        for role, kinds in ROLES.items():
            reference = getattr(case, role)
            fixture = loaded.fixtures.get(reference) if isinstance(reference, str) else None
            if fixture is not None and fixture.kind not in kinds:
                self.fail(
                    f"the fixture {fixture.id!r} is a {fixture.kind}, and {role} needs"
                    f" {' or '.join(kinds)}",
                    f"{at}.{role}",
                )

    def _check_keys(self, case: EvalCase, at: str) -> None:
        """Refuse a key that a case of this kind does not read: it would check nothing."""
        kind = case.mode
        has_model = case.playbook or case.cassette or case.live or isinstance(case.subject, list)
        if kind == "subject" and not has_model:
            kind = "function"  # it is called with its input
        for name, default in _UNREAD_KEYS[kind]:
            if getattr(case, name) != default:
                takers = " and ".join(other for other, keys in KEYS_OF.items() if name in keys)
                hint = f"it is a key of {takers} cases"
                if kind == "function" and name in KEYS_OF["subject"]:
                    hint = "it needs a model: add a playbook, a cassette or live"
                self.fail(f"{name!r} has no effect on a {kind} case", f"{at}.{name}", hint)

    def _check_split(self, pack: Pack) -> None:
        if not pack.split:
            return
        ids = {case.id for case in pack.cases}
        seen: set[str] = set()
        for name, members in pack.split.items():
            for member in members:
                if member not in ids:
                    hint = did_you_mean(member, ids)
                    self.fail(f"unknown case {member!r} in the split", f"$.split.{name}", hint)
                if member in seen:
                    self.fail(f"the case {member!r} is twice in the split", f"$.split.{name}")
                seen.add(member)
        if missing := sorted(ids - seen):
            self.fail(f"the case {missing[0]!r} is in no part of the split", "$.split")

    def _check_metrics(self, loaded: LoadedPack) -> None:
        """Refuse a threshold on a metric that no case can have."""
        pack = loaded.pack
        every: set[str] = set()
        by_rubric: dict[str, set[str]] = {}
        for number, case in enumerate(pack.cases):
            rubrics = [loaded.rubrics[name] for name in case.rubrics]
            without_run = case.mode in {"friction", "context", "classifier"}
            metrics = set[str]() if without_run else set(RUN_METRICS)
            if any(rubric.judged for rubric in rubrics):
                metrics |= JUDGE_METRICS
            every |= metrics
            for rubric in rubrics:
                by_rubric.setdefault(rubric.id, set()).update(metrics)
            self._check_limits(case.thresholds.limits(), metrics, f"$.cases[{number}].thresholds")
        if pack.cases:
            self._check_limits(pack.defaults.thresholds.limits(), every, "$.defaults.thresholds")
        for number, rubric in enumerate(pack.rubrics):
            if rubric.id in by_rubric:
                at = f"$.rubrics[{number}].thresholds"
                self._check_limits(rubric.thresholds.limits(), by_rubric[rubric.id], at)
            if rubric.kind in FRICTION_KINDS and rubric.thresholds.limits():
                self.fail("a friction rubric has no thresholds", f"$.rubrics[{number}].thresholds")

    def _check_limits(self, limits: Iterable[str], metrics: set[str], at: str) -> None:
        for name in limits:
            if METRIC_OF[name] not in metrics:
                self.fail(
                    f"{name} is a threshold on {METRIC_OF[name]}, which no case has",
                    f"{at}.{name}",
                    "score and confidence need a rubric of the kind llm-judge"
                    if METRIC_OF[name] in JUDGE_METRICS
                    else "friction cases have no such metric",
                )

    def _check_ladders(self, pack: Pack) -> None:
        ladders = {ladder.id: ladder for ladder in pack.ladders}
        for number, ladder in enumerate(pack.ladders):
            at = f"$.ladders[{number}]"
            if not ladder.timeout_tiers:
                self.fail(f"the ladder {ladder.id!r} has no timeout tiers", at)
            backend = ladder.backend
            if backend.kind == "live" and backend.command is None:
                self.fail(f"the live ladder {ladder.id!r} needs a command", f"{at}.backend")
            if backend.kind != "live" and not backend.path:
                self.fail(f"the ladder {ladder.id!r} needs a path", f"{at}.backend")
            for other in ladder.after:
                if other not in ladders:
                    hint = did_you_mean(other, ladders)
                    self.fail(f"unknown ladder {other!r}", f"{at}.after", hint)
            names = [route.id for route in ladder.model_routes]
            self._check_unique(f"ladders[{number}].model_routes", names)
            names = [tier.id for tier in ladder.timeout_tiers]
            self._check_unique(f"ladders[{number}].timeout_tiers", names)
        try:
            order_ladders(pack.ladders)
        except ValueError as error:
            self.fail(str(error), "$.ladders[0].after")


def order_ladders(ladders: Iterable[LadderSpec]) -> list[LadderSpec]:
    """Return the ladders so that each follows those it runs after; a cycle is a ValueError."""
    by_id = {ladder.id: ladder for ladder in ladders}
    ordered: dict[str, LadderSpec] = {}

    def visit(name: str, path: tuple[str, ...]) -> None:
        if name in path:
            cycle = " → ".join([*path[path.index(name) :], name])
            raise ValueError(f"the ladders form a cycle: {cycle}")
        if name not in ordered:
            for other in by_id[name].after:
                visit(other, (*path, name))
            ordered[name] = by_id[name]

    for name in by_id:
        visit(name, ())
    return list(ordered.values())


GROUP = "offbook.evals"
HARN_PACK = "harn.eval.toml"


def find_package_packs(folder: Path | None = None) -> list[Path]:
    """Return the packs of the project and of all installed distributions; none is an error."""
    place = folder or Path()
    found = [*_project_packs(place), *_harn_packs(place), *_installed_packs()]
    hint = 'list them in pyproject.toml: [tool.offbook] evals = ["…"]'
    return require_some(found, "no package has eval packs", hint=hint)


def _project_packs(folder: Path) -> list[Path]:
    settings, path = read_settings(folder)
    return _listed_packs(settings.evals, path.parent, "[tool.offbook] evals", path)


class _HarnPackage(msgspec.Struct):
    evals: list[str] = []


def _harn_packs(folder: Path) -> list[Path]:
    """Return the packs of a package of Harn, and those that it has installed."""
    packs: list[Path] = []
    for place in (folder, *sorted((folder / ".harn" / "packages").glob("*"))):
        manifest, names = place / "harn.toml", list[str]()
        if manifest.is_file():
            package = parse_toml(read_text(manifest), manifest).get("package", {})
            try:
                names = msgspec.convert(package, _HarnPackage).evals
            except msgspec.ValidationError:
                raise FormatError("[package] evals is not a list of files", path=manifest) from None
        if not names and (place / HARN_PACK).is_file():
            names = [HARN_PACK]
        packs += _listed_packs(names, place, "[package] evals", manifest)
    return packs


def _listed_packs(names: Iterable[str], folder: Path, what: str, path: Path) -> list[Path]:
    """Return the packs that a file names: files, or folders with packs."""
    for name in names:
        if not (folder / name).exists():
            raise FormatError(f"{what} names a missing file: {name}", path=path)
    return find_packs(folder / name for name in names)


def _installed_packs() -> list[Path]:
    packs: list[Path] = []
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.name):
        spec = find_spec(entry.module)
        places = list(spec.submodule_search_locations or ()) if spec is not None else []
        found = sorted(file for place in places for file in Path(place).rglob(PATTERN))
        where = f"the entry point {entry.name!r} of {GROUP}"
        packs += require_some(found, f"no {PATTERN} in {entry.module}", where=where)
    return packs


_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]")
_HEADER = re.compile(r"^\s*(\[\[?)\s*([^\]]+?)\s*\]\]?\s*(?:#.*)?$")
_KEY = re.compile(r"^\s*((?:[\w-]+|\"[^\"]*\"|'[^']*')(?:\s*\.\s*(?:[\w-]+|\"[^\"]*\"))*)\s*=")
_SPACE = re.compile(r"\s*")


def read_part(path: Path, kind: type[T]) -> tuple[T, str]:
    """Return a file that a pack names, as a struct and as a text; an error has its line."""
    text = read_text(path)

    def find(text: str, location: str) -> int | None:
        return line_of(text, location, path)

    value = parse_document(text, path)
    return convert(value, kind, path=path, text=text, line_finder=find), text


def line_of(text: str, location: str, path: Path) -> int | None:
    """Return the line of a location in a document, or of the nearest part that was found."""
    if path.suffix == ".toml":
        return find_toml_line(text, location)
    return find_json_line(text, location) if path.suffix == ".json" else find_line(text, location)


def _steps(location: str) -> list[str]:
    return [key or index for key, index in _STEP.findall(location)]


def _normal(key: str) -> str:
    """Return a key as structs spell it: TOML files may write dashes."""
    return key.strip().strip("\"'").replace("-", "_")


def find_toml_line(text: str, location: str) -> int | None:
    """Return the line of a location in TOML."""
    wanted = [_normal(step) for step in _steps(location)]
    counts: dict[tuple[str, ...], int] = {}
    prefix: list[str] = []
    best, best_length = None, 0
    for number, line in enumerate(text.splitlines(), 1):
        if header := _HEADER.match(line):
            keys = [_normal(key) for key in header[2].split(".")]
            prefix = []
            for position, key in enumerate(keys):
                prefix.append(key)
                array = tuple(prefix)
                if header[1] == "[[" and position == len(keys) - 1:
                    counts[array] = counts.get(array, -1) + 1
                if array in counts:  # a table inside of an item belongs to the last item
                    prefix.append(str(counts[array]))
            found = prefix
        elif key := _KEY.match(line):
            found = [*prefix, *(_normal(part) for part in key[1].split("."))]
        else:
            continue
        length = _common(found, wanted)
        # The deepest part of the location that a line defines; the first such line.
        if length == len(found) and length > best_length:
            best, best_length = number, length
    return best


def _common(found: list[str], wanted: list[str]) -> int:
    length = 0
    for one, other in zip(found, wanted, strict=False):
        if one != other:
            break
        length += 1
    return length


def find_json_line(text: str, location: str) -> int | None:
    """Return the line of a location in JSON."""
    wanted = [_normal(step) for step in _steps(location)]
    decode = json.JSONDecoder().raw_decode
    best = [0, 0]  # the length of the deepest part found, and its offset

    def visit(position: int, path: list[str]) -> int:
        """Read the value at a position; return the position after it."""
        position = _skip(text, position)
        length = _common(path, wanted)
        if length == len(path) and length > best[0]:
            best[:] = [length, position]
        opening = text[position]
        if opening not in "{[":
            return decode(text, position)[1]
        position = _skip(text, position + 1)
        index = 0
        while text[position] not in "}]":
            key = str(index)
            if opening == "{":
                key, position = decode(text, position)
                position = _skip(text, position) + 1  # the colon
            position = _skip(text, visit(position, [*path, _normal(key)]))
            index += 1
            if text[position] == ",":
                position = _skip(text, position + 1)
        return position + 1

    # After an error of the syntax, the rest is unknown.
    with suppress(IndexError, ValueError, RecursionError):
        visit(0, [])
    return text.count("\n", 0, best[1]) + 1 if best[0] else None


def _skip(text: str, position: int) -> int:
    match = _SPACE.match(text, position)
    return position if match is None else match.end()
