"""Every kind of case is run, gated and reported in the same way."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from offbook.evals import (
    PackBuilder,
    RunOptions,
    compare_runs,
    read_pack,
    report_json,
    run_pack,
)
from offbook.surfaces.cli import main
from tests.evals.conftest import RUN, RunPack

Write = Callable[[dict[str, Any]], Path]

MANIFEST = {
    "_type": "harn.context_eval.manifest.v1",
    "id": "contexts",
    "tasks": [{"id": "t", "objective": "Find the host", "expected": {"required_terms": ["host"]}}],
    "modes": [{"id": "cold"}, {"id": "full"}],
}
LADDER = {"id": "l", "backend": {"path": "t.jsonl"}, "timeout_tiers": [{"id": "t"}]}
EXAMPLES = [
    {"id": "1", "expected": "in_scope", "prompt": "Fix the parser of this repo"},
    {"id": "2", "expected": "out_of_scope", "prompt": "Update the mobile app"},
]


def failing(manifest: dict[str, Any]) -> dict[str, Any]:
    return json.loads(json.dumps(manifest).replace('"host"]', '"port"]'))


# the files, the case -> its status, and the files of its report
KINDS: dict[str, tuple[dict[str, Any], dict[str, Any], str, set[str]]] = {
    "a context eval": (
        {"m.json": MANIFEST},
        {"manifest": "m.json"},
        "pass",
        {"summary.json", "per_run.jsonl", "summary.md"},
    ),
    "a context eval that fails": (
        {"m.json": failing(MANIFEST)},
        {"manifest": "m.json"},
        "fail",
        {"summary.json", "per_run.jsonl", "summary.md"},
    ),
    "a classifier": (
        {"d.json": EXAMPLES},
        {"dataset": "d.json"},
        "pass",
        {"summary.json", "per_case.jsonl", "summary.md"},
    ),
    "a classifier that saves nothing": (
        {"d.json": EXAMPLES[:1]},
        {"dataset": "d.json"},
        "fail",
        {"summary.json", "per_case.jsonl", "summary.md"},
    ),
    "a classifier without examples": ({"d.json": []}, {"dataset": "d.json"}, "no_data", set()),
}


@pytest.mark.parametrize("name", KINDS)
def test_a_kind_of_case_has_a_verdict_a_gate_and_a_report(
    run_files: RunPack, tmp_path: Path, name: str
):
    files, case, status, reports = KINDS[name]
    run = run_files({"cases": [{"id": "c", **case}]}, files, output="out")
    assert run.cases[0].status == status
    assert run.summary.passed_gate is (status == "pass")
    assert bool(run.cases[0].failures) is (status != "pass")
    (reported,) = report_json(run)["cases"]
    assert (reported["status"], "report" in reported) == (status, True)
    written = {path.name for path in (tmp_path / "out/reports/c").glob("*")}
    assert written >= reports


@pytest.mark.parametrize("content, mode", [(MANIFEST, "context"), (EXAMPLES, "classifier")])
def test_the_file_of_a_kind_is_a_pack_with_one_case(write: Write, content: Any, mode: str):
    loaded = read_pack(write({"file.json": content}) / "file.json")
    assert [case.mode for case in loaded.cases] == [mode]


# the scores of the two judged rubrics, the lowest score of the case -> the failures
SCORES: dict[str, tuple[int, int, list[str]]] = {
    "the first is too low": (2, 5, ["score 0.25 is below the minimum 0.8"]),
    "the second is too low": (5, 2, ["score 0.25 is below the minimum 0.8"]),
    "both are high enough": (5, 5, []),
}


@pytest.mark.parametrize("name", SCORES)
def test_a_threshold_on_the_score_is_one_on_each_judged_rubric(run_files: RunPack, name: str):
    first, second, failures = SCORES[name]
    files = {
        f"{rubric}.jsonl": json.dumps({"text": json.dumps({"reasoning": "r", "score": score})})
        for rubric, score in (("safe", first), ("polite", second))
    }
    rubrics = [
        {
            "id": rubric,
            "kind": "llm-judge",
            "prompt": "Good?",
            "judge": {"source": f"{rubric}.jsonl"},
            "thresholds": {"min_score": 0.1},
        }
        for rubric in ("safe", "polite")
    ]
    limit = {"min-score": 0.8}
    case = {"id": "c", "run": "run.json", "rubrics": ["safe", "polite"], "thresholds": limit}
    run = run_files({"rubrics": rubrics, "cases": [case]}, files)
    assert len(run.cases[0].failures) == len(failures)
    for failure, text in zip(run.cases[0].failures, failures, strict=True):
        assert text in failure


def test_a_builder_takes_the_keys_of_a_file(tmp_path: Path):
    pack = PackBuilder("shop", **{"base-dir": "."})
    pack.rubric("r", [{"kind": "run_status", "expected": "completed"}])
    pack.case("c", **{"run-path": "run.json", "thresholds": {"max-tokens": 3}, "rubrics": ["r"]})
    case = pack.build().cases[0]
    assert (case.run, case.thresholds.max_tokens) == ("run.json", 3)


COMMAND = """
import json, os, sys, urllib.request
message = {"role": "user", "content": sys.argv[-1]}
request = urllib.request.Request(
    os.environ["OPENAI_BASE_URL"] + "/chat/completions",
    json.dumps({"model": "m", "messages": [message]}).encode(),
    {"Content-Type": "application/json", "Authorization": "Bearer x"},
)
print(json.load(urllib.request.urlopen(request))["choices"][0]["message"]["content"])
"""


def test_a_command_is_found_beside_its_pack(run_files: RunPack):
    files = {"cmd.py": COMMAND, "p.yaml": "- when: Hi\n  do:\n    - say: Hello!\n"}
    subject = [sys.executable, "cmd.py", "{prompt}"]
    case = {"id": "c", "subject": subject, "playbook": "p.yaml", "rubrics": ["r"]}
    rubric = {"id": "r", "assertions": [{"kind": "output", "contains": "Hello!"}]}
    run = run_files({"rubrics": [rubric], "cases": [case]}, files)
    assert run.cases[0].failures == ()


GOOD = {"cases": [{"id": "good", "run": "run.json", "thresholds": {"max_tokens": 100}}]}
PACK = '[[cases]]\nid = "{}"\nrun = "run.json"\nthresholds = {{ max_tokens = {} }}\n'


def test_a_folder_is_run_as_a_whole_and_what_is_skipped_is_named(
    write: Write, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    folder = write(
        {
            "evals/offbook.eval.toml": PACK.format("good", 100),
            "evals/shop.eval.toml": PACK.format("bad", 1),
            "evals/draft.toml": PACK.format("draft", 1),
            "evals/old.eval.json": GOOD,
            "evals/.venv/hidden.eval.toml": "not a pack",
            "evals/run.json": RUN,
            "evals/folder.toml/run.json": RUN,
            "evals/folder.eval.toml/run.json": RUN,
        }
    )
    monkeypatch.chdir(folder)
    Path("evals/gone.toml").symlink_to("nowhere")
    with pytest.raises(SystemExit) as end:
        main(["eval", "run", "evals"])
    out, err = capsys.readouterr()
    assert end.value.code == 1
    assert [word for word in ("good", "bad", "draft") if word in out] == ["good", "bad"]
    assert "skipped: evals/draft.toml" in err
    assert "skipped: evals/old.eval.json" in err
    assert "skipped: evals/gone.toml" in err
    assert "folder" not in err.replace("a folder is searched", "")


def test_a_comparison_keeps_the_cases_of_two_packs_apart(
    write: Write, monkeypatch: pytest.MonkeyPatch
):
    folder = write({"run.json": RUN})
    monkeypatch.chdir(folder)
    for output, limits in (("before", (100, 100)), ("after", (100, 1))):
        for name, limit in zip(("a", "b"), limits, strict=True):
            write({f"{name}.eval.toml": PACK.format("same", limit)})
        packs = [Path("a.eval.toml"), Path("b.eval.toml")]
        run_pack(packs, RunOptions(output=output))
    comparison = compare_runs(Path("before"), Path("after"))
    assert comparison.cases == 2
    assert [case.id for case in comparison.changed] == ["b.eval/same"]


def test_the_files_of_two_packs_with_the_same_names_are_apart(
    write: Write, monkeypatch: pytest.MonkeyPatch
):
    content = {"cases": [{"id": "c", "manifest": "m.json"}], "ladders": [LADDER]}
    names = ("first", "second")
    files: dict[str, Any] = {}
    for name in names:
        files[f"{name}/pack.json"] = content
        files[f"{name}/m.json"] = {**MANIFEST, "name": name}
        files[f"{name}/t.jsonl"] = json.dumps({"type": "model_call", "text": name})
    monkeypatch.chdir(write(files))
    run_pack([Path(name, "pack.json") for name in names], RunOptions(output="out"))
    reports = [path.read_text() for path in Path("out").rglob("summary.md")]
    assert sorted(text.split("\n")[0] for text in reports) == ["# first", "# second"]
    logs = " ".join(path.read_text() for path in Path("out").rglob("event_log.jsonl"))
    assert [name for name in names if name in logs] == [*names]


def test_ladders_with_similar_names_are_apart(run_files: RunPack, tmp_path: Path):
    ladders = [{**LADDER, "id": name} for name in ("a/b", "a_b", "a b")]
    run_files({"ladders": ladders}, {"t.jsonl": '{"type": "model_call"}'}, output="out")
    assert len([*(tmp_path / "out/ladders").iterdir()]) == len(ladders)


@pytest.mark.parametrize("scripted", [True, False])
def test_the_time_of_a_scripted_run_is_not_compared(
    run_files: RunPack, tmp_path: Path, *, scripted: bool
):
    source: dict[str, Any] = {"run": "run.json"}
    if scripted:
        source = {"subject": "a.py:f", "input": 1}
    checks = [{"kind": "run-status", "expected": "completed"}]
    content = {"cases": [{"id": "c", "assertions": checks, **source}]}
    for name in ("before", "after"):
        run_files(content, {"a.py": "def f(value): return value\n"}, output=name)
    metrics = compare_runs(tmp_path / "before", tmp_path / "after").metrics
    assert ("latency_ms" in metrics) is not scripted
