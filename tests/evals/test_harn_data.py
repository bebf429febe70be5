"""The shared packs, suites, ladders, manifests and datasets give the results in `expected/`.

Where Offbook is stricter, the difference is in a test of its own.
"""

import json
import shutil
from pathlib import Path
from typing import Any, cast

import jsonschema
import msgspec
import pytest

from offbook.errors import CheckFailed, FormatError
from offbook.evals import (
    ClassifierSettings,
    RunOptions,
    check_replay,
    classify_by_rules,
    load_friction_events,
    parse_friction_events,
    parse_replay_fixture,
    read_examples,
    read_manifest,
    read_pack,
    read_run_record,
    report_files,
    report_json,
    run_classifier,
    run_context_eval,
    run_pack,
    suggest,
)
from offbook.testing import assert_golden_transcript, assert_receipt_field
from tests.evals.conftest import RUN

pytestmark = pytest.mark.external


@pytest.fixture
def harn(shared_data: Path) -> Path:
    """The shared data of this capability."""
    return shared_data / "harn"


def expected(harn: Path, name: str) -> dict[str, Any]:
    return json.loads((harn / "expected" / f"{name}.json").read_text())


def missing_runs(path: Path) -> bool:
    """Return whether a suite names a run that is not part of the shared data."""
    pack = read_pack(path)
    return any(case.run and not pack.resolve(case.run).is_file() for case in pack.pack.cases)


def assert_subset(expected: Any, actual: Any, at: str = "$") -> None:
    """Assert that every expected value is in the actual one."""
    if isinstance(expected, dict):
        for key, value in cast("dict[str, Any]", expected).items():
            assert key in actual, f"{at}.{key}"
            assert_subset(value, actual[key], f"{at}.{key}")
    elif isinstance(expected, list):
        items = cast("list[Any]", expected)
        assert len(items) == len(actual), at
        for number, (one, other) in enumerate(zip(items, actual, strict=True)):
            assert_subset(one, other, f"{at}[{number}]")
    else:
        assert actual == expected, at


def test_every_pack_and_suite_gives_the_expected_report(harn: Path, tmp_path: Path):
    checked = 0
    for name, wanted in expected(harn, "eval_packs").items():
        if "kind" not in wanted or "error" in wanted or missing_runs(harn / name):
            continue
        run = run_pack([harn / name], RunOptions(output=str(tmp_path / str(checked))))
        report = report_json(run)
        ladders = wanted.pop("ladders", [])
        code = wanted.pop("exit_code")
        wanted.pop("kind")
        for case, actual in zip(wanted.pop("cases", []), report["cases"], strict=False):
            if contained := case.pop("failure_contains", None):
                assert contained in "; ".join(actual["failures"])
            assert_subset(case, actual, name)
        for ladder, actual in zip(ladders, report["ladders"], strict=True):
            outcomes = ladder.pop("tiers")
            assert [tier["outcome"] for tier in actual["tiers"]] == outcomes
            assert_subset(ladder, actual, name)
        assert_subset(wanted, report, name)
        assert run.summary.passed_gate is (code == 0)
        checked += 1
    assert checked >= 6


def test_a_pack_whose_fixtures_are_missing_is_refused_with_the_line(harn: Path):
    with pytest.raises(FormatError, match="url-verification-run") as error:
        read_pack(harn / "derived/eval_pack_spec_slack/harn.eval.toml")
    assert error.value.line == 9


def test_the_pack_of_the_specification_runs_with_its_two_fixtures(harn: Path, tmp_path: Path):
    shutil.copy(harn / "derived/eval_pack_spec_slack/harn.eval.toml", tmp_path)
    record = RUN | {"usage": {"total_duration_ms": 20, "total_cost": 0.0}}
    expectation = {"_type": "replay_fixture", "expected_status": "completed"}
    (tmp_path / "fixtures").mkdir()
    for name, content in (("run", record), ("replay", expectation)):
        path = tmp_path / "fixtures" / f"url-verification.{name}.json"
        path.write_text(json.dumps(content))
    run = run_pack([tmp_path / "harn.eval.toml"], RunOptions(output=str(tmp_path / "out")))
    assert [(case.id, case.status) for case in run.cases] == [("url-verification", "pass")]
    assert run.summary.passed_gate


def test_every_ladder_gives_the_expected_cells(harn: Path, tmp_path: Path):
    for number, (name, wanted) in enumerate(expected(harn, "ladder").items()):
        run = run_pack([harn / name], RunOptions(output=str(tmp_path / str(number))))
        (ladder,) = report_json(run)["ladders"]
        assert_subset(wanted, ladder, name)
        for cell in ladder["tiers"]:
            root = Path(ladder["artifact_root"])
            for part in ("transcript_path", "receipt_path", "summary_path"):
                assert (root / cell[part]).is_file()


def test_friction_events_give_the_expected_suggestions(harn: Path):
    for name, wanted in expected(harn, "friction_suggestions").items():
        path = harn / name
        suggestions = suggest(parse_friction_events(json.loads(path.read_text()), path))
        actual = msgspec.to_builtins(suggestions)
        for suggestion in wanted:
            # The queries of the reference are the `included_queries` of the manifest.
            manifest = suggestion["candidate_manifest"]
            manifest["included_queries"] = manifest.pop("queries")
        assert_subset(wanted, actual, name)
        text = json.dumps(actual)
        assert "sk-live-secret" not in text
        assert "token=secret" not in text


def test_the_friction_events_of_a_pack_are_found_by_id(harn: Path):
    loaded = read_pack(harn / "derived/eval_pack_friction/harn.eval.toml")
    assert len(load_friction_events(loaded, "incident-friction")) == 2


def test_the_clarifying_question_passes(harn: Path):
    folder = harn / "derived/clarifying_question"
    fixture = folder / "fixture.json"
    rules = parse_replay_fixture(json.loads(fixture.read_text()), fixture)
    record = read_run_record(folder / "run.json").record
    assert {verdict.status for verdict in check_replay(rules, record)} == {"pass"}


def test_a_live_verify_pack_is_read_with_its_split(harn: Path):
    pack = read_pack(harn / "evals/completion_claim/harn.eval.toml").pack
    assert (len(pack.cases), pack.trials, len(pack.split)) == (8, 5, 2)
    assert {case.mode for case in pack.cases} == {"live-verify"}


def test_the_context_manifest_gives_the_expected_report(harn: Path):
    for name, wanted in expected(harn, "context_eval").items():
        assert_subset(wanted, run_context_eval(read_manifest(harn / name)), name)


def test_the_context_report_is_valid_and_the_same_twice(harn: Path):
    manifest = harn / "examples/evals/context-engineering-smoke.json"
    schema = json.loads((harn / "spec/schemas/context-eval-report.v1.schema.json").read_text())
    first, second = (report_files(run_context_eval(read_manifest(manifest))) for _ in range(2))
    assert first == second
    assert [*first] == ["summary.json", "per_run.jsonl", "summary.md"]
    report = json.loads(first["summary.json"])
    jsonschema.Draft202012Validator(schema).validate(report)  # pyright: ignore[reportUnknownMemberType]


def test_the_scope_dataset_gives_the_expected_figures(harn: Path):
    settings = ClassifierSettings()
    examples = read_examples(harn / "evals/scope_triage/dataset.json", settings)
    report, _ = run_classifier(examples, classify_by_rules(settings), settings)
    assert_subset(expected(harn, "scope_triage"), msgspec.to_builtins(report))


# --- Files that runs and evals of personas refer to

FILES = {
    "examples/personas/fixtures/merge_captain/event.json": "/failing_checks/0",
    "examples/personas/fixtures/review_captain/handoff.json": "/changed_files/1",
    "experiments/burin-mini/evals/fixtures/rate_limit_auth-report.json": "/plan/ready",
}


def find_leaves(value: Any, at: str = "") -> list[tuple[str, Any]]:
    """Return the JSON pointers of all values that are not containers."""
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value).items()
        items = [(key.replace("~", "~0").replace("/", "~1"), each) for key, each in fields]
    elif isinstance(value, list):
        items = [(str(number), each) for number, each in enumerate(cast("list[Any]", value))]
    else:
        return [(at, value)]
    return [leaf for key, each in items for leaf in find_leaves(each, f"{at}/{key}")]


@pytest.mark.parametrize("name", FILES)
def test_every_field_of_a_file_of_a_persona_is_found_by_its_pointer(harn: Path, name: str):
    record: Any = json.loads((harn / name).read_text())
    leaves = find_leaves(record)
    assert FILES[name] in dict(leaves)
    for pointer, value in leaves:
        assert_receipt_field(record, pointer, value)
        with pytest.raises(CheckFailed):
            assert_receipt_field(record, pointer, [value])


@pytest.mark.parametrize("name", FILES)
def test_a_file_of_a_persona_is_a_golden_of_itself_only(harn: Path, name: str, tmp_path: Path):
    record: dict[str, Any] = json.loads((harn / name).read_text())
    golden = tmp_path / "golden.json"
    golden.write_text(json.dumps(record))
    assert_golden_transcript(golden, record)
    key = next(iter(record))
    with pytest.raises(CheckFailed, match=key):
        assert_golden_transcript(golden, {**record, key: "another"})


@pytest.mark.parametrize("name", ["merge_captain_smoke", "review_captain_smoke"])
def test_the_fixture_of_a_stored_run_is_part_of_the_data(harn: Path, name: str):
    personas = harn / "examples" / "personas"
    text = (personas / "runs" / f"{name}.run.json").read_text()
    fixtures = [value for at, value in find_leaves(json.loads(text)) if at.endswith("/fixture")]
    assert fixtures
    assert all((personas / fixture).is_file() for fixture in fixtures)
    assert read_run_record(personas / "runs" / f"{name}.run.json")
