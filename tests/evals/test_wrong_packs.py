"""A pack, a run or a model that cannot be used is refused with a message that names it."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from offbook.errors import FormatError, UsageError
from offbook.evals import (
    PackBuilder,
    RunOptions,
    compare_runs,
    find_packs,
    open_model,
    query_results,
    read_pack,
    read_summary,
    run_pack,
)
from tests.evals.conftest import RUN, Files

Write = Callable[[Files], Path]
RULE = {"kind": "run-status", "expected": "completed"}
PACK: dict[str, Any] = {
    "id": "p",
    "rubrics": [{"id": "done", "assertions": [RULE]}],
    "cases": [{"id": "one", "run": "run.json", "rubrics": ["done"]}],
}


def with_case(**fields: Any) -> dict[str, Any]:
    return {**PACK, "cases": [{**PACK["cases"][0], **fields}]}


def of_subject(**fields: Any) -> dict[str, Any]:
    return {**PACK, "cases": [{"id": "one", "subject": "shop.py:answer", **fields}]}


def with_ladder(**fields: Any) -> dict[str, Any]:
    ladder = {"id": "l", "backend": {"path": "run.json"}, "timeout-tiers": [{"id": "t"}], **fields}
    return {**PACK, "ladders": [ladder]}


def with_fixture(**fields: str) -> dict[str, Any]:
    return {**PACK, "fixtures": [{"id": "f", **fields}]}


def with_rule(**fields: Any) -> dict[str, Any]:
    return {**PACK, "rubrics": [{"id": "done", "assertions": [fields]}]}


@pytest.mark.parametrize(
    "pack, message",
    [
        (with_rule(path="stages.0", expected=1), "pointer must be empty or start with '/'"),
        (with_rule(kind="run-status", expected="completed", stage="plan"), "`stage` has no effect"),
        (with_rule(kind="run-status", expected="completed", op="ne"), "`op` has no effect"),
        (with_rule(kind="tool-called", expected="read", op="ne"), "`op` has no effect"),
        (with_rule(kind="output", contains="a", expected="b"), "`expected` has no effect"),
        (with_rule(kind="output", contains=""), "`contains` is empty"),
        (with_rule(path="/a", op="ne"), "`expected` for the operator ne"),
        (with_rule(path="/a", op="matches", expected=""), "`expected` is empty"),
        (with_rule(kind="check", check={}), "an assertion needs a type"),
        (with_rule(kind="check", check={"type": "exit_cod"}), "did you mean 'exit_code'"),
        (with_rule(kind="suggestion", expected={"min_sugestions": 1}), "min_sugestions"),
        (with_rule(kind="suggestion", expected={"min_suggestions": 0}), "would always pass"),
        (with_case(thresholds={"max_cost_usd": -1}), "`max_cost_usd` must not be negative"),
        (with_case(trials=0), "expected an integer >= 1"),
        ({**PACK, "trials": 0}, "expected an integer >= 1"),
        (with_case(expected_output_paths=["."]), "which always exists"),
        (with_case(required_output_snippets=[""]), "is in every output"),
        (with_fixture(kind="cassette", inline="x"), "the cassette 'f' needs a path"),
        (
            with_fixture(kind="jsonl-trace", path="trace.jsonl", trace_id="t2"),
            "no record has the trace_id 't2'",
        ),
        (with_fixture(kind="trace"), "the fixture 'f' needs a path or an inline value"),
        (["a list"], "expected an eval pack, got list"),
        ({"_type": "eval_suite_manifest", "cases": None}, "expected a list, got nothing"),
        ({"_type": "eval_suite_manifest", "cases": 5}, "expected a list, got an integer"),
        ({"_type": "eval_suite_manifest"}, "the pack has no cases and no ladders"),
        (of_subject(playbook="a", cassette="b"), "the case 'one' has two models"),
        (of_subject(playbook="a", faults=["rset"]), "unknown fault"),
        (with_case(run="", kind="live-verify"), "'one' needs a task and an executor"),
        (
            with_case(run="", kind="live-verify", task="x", executor=["true"]),
            "the live-verify case 'one' needs a verify_command",
        ),
        ({**PACK, "split": {"train": ["oen"]}}, "unknown case 'oen' in the split"),
        (with_ladder(after=["x"]), "unknown ladder 'x'"),
        (with_ladder(backend={"kind": "live"}), "the live ladder 'l' needs a command"),
        (with_ladder(backend={}), "the ladder 'l' needs a path"),
        (
            {**PACK, "rubrics": [{"id": "done", "kind": "llm-judge"}]},
            "the rubric 'done' has no rule and would check nothing",
        ),
    ],
)
def test_a_wrong_part_of_a_pack_is_named(pack: Any, message: str, write: Write):
    folder = write(
        {"pack.json": pack, "run.json": RUN, "trace.jsonl": '{"event": "x", "trace_id": "t1"}\n'}
    )
    with pytest.raises(FormatError) as caught:
        read_pack(folder / "pack.json")
    assert message in str(caught.value)


VERIFIED = {"kind": "live-verify", "task": "x", "executor": ["true"], "verify_command": ["true"]}
# a case with a key that its kind does not read -> the problem
UNREAD: dict[str, tuple[dict[str, Any], str]] = {
    "outputs of a function": (
        {"subject": "shop.py:answer", "expected_output_paths": ["report.md"]},
        "'expected_output_paths' has no effect on a function case",
    ),
    "snippets of an agent": (
        {
            "subject": "shop.py:agent",
            "playbook": [],
            "live": True,
            "required_output_snippets": ["x"],
        },
        "'required_output_snippets' has no effect on a subject case",
    ),
    "a budget of a stored run": (
        {"run": "run.json", "tool_budgets": {"bash": 0}},
        "'tool_budgets' has no effect on a run case",
    ),
    "a script of a stored run": (
        {"run": "run.json", "playbook": "missing.yaml"},
        "'playbook' has no effect on a run case",
    ),
    "faults of a trace": (
        {"trace": "trace.jsonl", "faults": ["reset"]},
        "'faults' has no effect on a trace case",
    ),
    "faults without a model": (
        {"subject": "shop.py:answer", "faults": ["reset"]},
        "'faults' has no effect on a function case",
    ),
    "a subject that is not run": (
        {**VERIFIED, "subject": "shop.py:answer"},
        "'subject' has no effect on a live-verify case",
    ),
    "a baseline of friction events": (
        {"friction_events": "events.json", "compare_to": "run.json"},
        "'compare_to' has no effect on a friction case",
    ),
    "the model of a manifest": (
        {"manifest": "contexts.json", "model": "ollama:x"},
        "'model' has no effect on a context case",
    ),
    "the verification of a data set": (
        {"dataset": "prompts.json", "task": "x", "executor": ["true"], "verify_command": ["true"]},
        "'task' has no effect on a classifier case",
    ),
    "a run of another kind": (
        {"kind": "friction", "run": "run.json"},
        "'run' has no effect on a friction case",
    ),
}


@pytest.mark.parametrize("case, message", UNREAD.values(), ids=UNREAD)
def test_a_key_that_a_kind_of_case_does_not_read_is_refused(
    case: dict[str, Any], message: str, write: Write
):
    pack = {"id": "p", "cases": [{"id": "one", **case}]}
    with pytest.raises(FormatError) as caught:
        read_pack(write({"pack.json": pack}) / "pack.json")
    assert message in str(caught.value)


def test_a_key_without_effect_has_its_line_and_its_kinds(write: Write):
    case = (
        '[[cases]]\nid = "one"\nrun = "run.json"\nprompt = "Refund"\ntool-budgets = { bash = 0 }\n'
    )
    with pytest.raises(FormatError) as caught:
        read_pack(write({"pack.toml": case}) / "pack.toml")
    assert (caught.value.line, caught.value.hint) == (5, "it is a key of live-verify cases")


@pytest.mark.parametrize("limit", ["inf", "nan", "-inf"])
def test_a_limit_that_is_no_number_is_refused(limit: str, write: Write):
    case = f'[[cases]]\nid = "one"\nrun = "run.json"\n[cases.thresholds]\nmax-cost-usd = {limit}\n'
    folder = write({"pack.toml": case, "run.json": RUN})
    with pytest.raises(FormatError, match="`max_cost_usd` must be a finite number"):
        read_pack(folder / "pack.toml")


def test_a_folder_without_a_pack_is_refused(tmp_path: Path):
    with pytest.raises(FormatError, match="no eval pack in this folder"):
        find_packs([tmp_path])


def test_a_pack_of_another_file_type_is_refused(write: Write):
    with pytest.raises(FormatError, match=r"unsupported file type '\.txt'"):
        read_pack(write({"pack.txt": "x"}) / "pack.txt")


@pytest.mark.parametrize(
    "packs, options, message",
    [
        ([], {}, "no eval pack"),
        (["pack.json"], {"shard": (1, 2)}, "no case is selected"),
        (["pack.json"], {"output": "runs", "resume": True}, "nothing to resume"),
    ],
)
def test_a_run_of_nothing_is_refused(
    packs: list[str],
    options: dict[str, Any],
    message: str,
    write: Write,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.chdir(write({"pack.json": PACK, "run.json": RUN}))
    with pytest.raises(UsageError, match=message):
        run_pack([Path(name) for name in packs], RunOptions(**options))


def test_runs_without_a_common_case_are_not_compared(write: Write):
    folder = write({f"{name}/results.jsonl": f'{{"id": "{name}"}}\n' for name in ("one", "two")})
    with pytest.raises(UsageError, match="the runs have no case in common"):
        compare_runs(folder / "one", folder / "two")


@pytest.mark.parametrize(
    "files, message",
    [
        ({"run/summary.json": "{}"}, "invalid summary"),
        ({"run/results.jsonl": ""}, "the run did not end"),
        ({"run/other": ""}, "not the directory of a run"),
    ],
)
def test_a_directory_without_a_summary_says_why(files: Files, message: str, write: Write):
    with pytest.raises(FormatError, match=message):
        read_summary(write(files) / "run")


def test_a_null_is_refused_in_a_toml_pack():
    builder = PackBuilder("p").case("one", input={"a": None})
    with pytest.raises(UsageError, match="TOML has no null"):
        builder.render_toml()


def test_a_query_needs_duckdb(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(UsageError, match="queries need the package duckdb"):
        query_results("select 1")


def test_the_provider_of_a_live_model_is_checked():
    with pytest.raises(UsageError, match="unknown provider 'opnai'"):
        open_model("opnai:gpt-5", Path(), live=True)
    with pytest.raises(UsageError, match="cannot use the model 'gpt-5'"):
        open_model("gpt-5", Path(), live=True)


@pytest.mark.parametrize(
    "host, url",
    [("box:1", "http://box:1/v1"), ("https://box", "https://box/v1")],
)
def test_ollama_is_reached_at_its_host(host: str, url: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OLLAMA_HOST", host)
    source, _, name = open_model("ollama:qwen3:1.7b", Path(), live=True)
    assert (vars(source)["_urls"], name) == ({"": url}, "qwen3:1.7b")
