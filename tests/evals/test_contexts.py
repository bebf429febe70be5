"""A context eval selects artifacts, messages and tools by its modes, without a model."""

import json
import re
from html import unescape
from pathlib import Path
from typing import Any

import msgspec
import pytest

from offbook.errors import FormatError
from offbook.evals import (
    MANIFEST_TYPE,
    ContextArtifact,
    ContextManifest,
    ContextMode,
    read_manifest,
    render_context_markdown,
    run_context_eval,
    select_artifacts,
)
from tests.evals.conftest import RunPack


def artifact(name: str, text: str = "", **fields: Any) -> ContextArtifact:
    return ContextArtifact(name, text=text or f"the text of {name}", **fields)


PORT = artifact("port", "The port is 8080", kind="fact", created_at="2026-01-02")
HOST = artifact("host", "The host is box", kind="note", created_at="2026-01-03")
TIERED = artifact("tier", kind="fact", metadata={"context_tier": "hot"}, created_at="2026-01-01")
ARTIFACTS = [PORT, HOST, TIERED]


def select(items: list[ContextArtifact], *, objective: str, **mode: Any) -> Any:
    return select_artifacts(items, objective, ContextMode(**mode))


# the options of a mode -> the artifacts that it selects
SELECTIONS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "all": ({}, ["host", "port", "tier"]),
    "a cold mode": ({"kind": "cold"}, []),
    "no budget": ({"budget_tokens": 0}, []),
    "the ones that fit": ({"budget_tokens": 9}, ["host", "port"]),
    "artifact_ids": ({"artifact_ids": ["host"]}, ["host"]),
    "a kind": ({"include_artifact_kinds": ["note"]}, ["host"]),
    "a tier": ({"include_artifact_kinds": ["hot"]}, ["tier"]),
    "not a kind": ({"exclude_artifact_kinds": ["fact"]}, ["host"]),
    "not a tier": ({"exclude_artifact_kinds": ["hot"]}, ["host", "port"]),
    "those with a tier": ({"kind": "scanned"}, ["tier"]),
    "ids of a mode with tiers": ({"kind": "enriched", "artifact_ids": ["port"]}, ["port"]),
}


@pytest.mark.parametrize("options, ids", SELECTIONS.values(), ids=SELECTIONS)
def test_a_mode_selects_its_artifacts(options: dict[str, Any], ids: list[str]):
    defaults: dict[str, Any] = {"objective": "Find the port", "kind": "full", "budget_tokens": 100}
    selection = select(ARTIFACTS, **{**defaults, **options})
    assert selection.ids == ids


def test_a_cold_context_has_and_drops_nothing():
    selection = select(ARTIFACTS, objective="Find the port", kind="cold", budget_tokens=100)
    assert (selection.ids, selection.dropped) == ([], [])


def test_an_artifact_that_does_not_fit_leaves_room_for_a_smaller_one():
    items = [artifact("large", "x" * 80), artifact("small", "y" * 8)]
    selection = select(items, objective="xxx", kind="full", budget_tokens=3)
    assert (selection.ids, selection.dropped) == (["small"], ["large"])


@pytest.mark.parametrize("budget, ids", [(None, ["a"]), (0, []), (3, ["a"])])
def test_a_mode_has_a_budget_of_its_own(budget: int | None, ids: list[str]):
    task = {"artifacts": [{"id": "a", "text": "twelve bytes"}]}
    found = run(task, kind="full", budget_tokens=budget)
    assert found["context"]["selected_artifact_ids"] == ids


# the strategy -> the order of the artifacts in the context
ORDERS = {
    "relevance": ["port", "host", "tier"],  # by the words of the objective, then by id
    "recency": ["host", "port", "tier"],
    "round_robin": ["host", "port", "tier"],
}


def titles(text: str) -> list[str]:
    return [line[7:-8] for line in text.splitlines() if line.startswith("<title>")]


@pytest.mark.parametrize("strategy, order", ORDERS.items())
def test_a_strategy_orders_the_artifacts(strategy: str, order: list[str]):
    items = [msgspec.structs.replace(item, title=item.id) for item in ARTIFACTS]
    selection = select(
        items, objective="8080 port", kind="full", budget_tokens=100, assemble_strategy=strategy
    )
    assert titles(selection.text) == order


def test_chunks_of_several_artifacts_alternate_in_round_robin():
    items = [artifact(name, name * 8, title=name) for name in "ab"]
    selection = select(
        items,
        objective="",
        kind="full",
        budget_tokens=9,
        assemble_strategy="round_robin",
        microcompact_threshold=1,
        dedup="none",
    )
    assert titles(selection.text) == ["a", "b", "a", "b"]
    assert "<chunk_index>2 of 2</chunk_index>" in selection.text


@pytest.mark.parametrize("text", ["a" * 9, "é" * 9, "界" * 9, "🙂" * 9, "a🙂é界" * 5])
def test_no_chunk_has_more_tokens_than_allowed(text: str):
    selection = select(
        [artifact("a", text)],
        objective="",
        kind="full",
        budget_tokens=1000,
        microcompact_threshold=2,
        dedup="none",
    )
    chunks = re.findall(r"<body>\n?(.*?)\n?</body>", selection.text, re.DOTALL)
    assert "".join(chunks) == text
    assert max(len(chunk.encode()) for chunk in chunks) <= 8


# the way to find duplicates -> the artifacts of four, of which two are equal and one is similar
DUPLICATES = {
    "none": ["copy", "first", "other", "similar"],
    "chunked": ["first", "other", "similar"],
    "semantic": ["first", "other"],
}


@pytest.mark.parametrize("dedup, ids", DUPLICATES.items())
def test_duplicates_are_left_out(dedup: str, ids: list[str]):
    items = [
        artifact("first", "one two three four five six seven"),
        artifact("copy", "one two  three four five six seven"),
        artifact("similar", "One two three four five six SEVEN"),
        artifact("other", "eight nine"),
    ]
    selection = select(items, objective="", kind="full", budget_tokens=100, dedup=dedup)
    assert selection.ids == ids


TASK: dict[str, Any] = {"objective": "Find the port"}
MANIFEST: dict[str, Any] = {"tasks": [TASK], "modes": [{"id": "full"}]}
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "a type": ({"_type": "x"}, f"unsupported _type 'x', expected {MANIFEST_TYPE}"),
    "a version": ({"version": 2}, "unsupported version 2, expected 1"),
    "no modes": ({"modes": []}, "the manifest has no modes"),
    "no tasks": ({"tasks": []}, "the manifest has no tasks"),
    "a mode twice": ({"modes": [{"id": "a"}, {"id": "a"}]}, "the id 'a' is defined twice in modes"),
    "an empty objective": ({"tasks": [{"objective": " "}]}, "the task 'task_1' has no objective"),
    "an unknown key": ({"mode": []}, "did you mean 'modes'"),
    "an empty term": (
        {"tasks": [{**TASK, "expected": {"required_terms": ["port", " "]}}]},
        "an empty text of `required_terms` is in every context",
    ),
    "the observation of no mode": (
        {"tasks": [{**TASK, "mode_observations": {"ful": {"final_response": "8080"}}}]},
        "unknown mode 'ful' in mode_observations\ndid you mean 'full'",
    ),
    "an unknown disclosure": (
        {"modes": [{"id": "full", "tool_disclosure": "fulll"}]},
        "did you mean 'full'",
    ),
    "an unknown projection": (
        {"modes": [{"id": "full", "projection_policy": "lastn"}]},
        "did you mean 'last_n'",
    ),
    "a negative limit": (
        {"tasks": [{**TASK, "expected": {"max_input_tokens": -1}}]},
        "`max_input_tokens` must not be negative",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_manifest_is_refused(tmp_path: Path, name: str):
    fields, message = WRONG[name]
    (tmp_path / "m.json").write_text(json.dumps({**MANIFEST, **fields}))
    with pytest.raises(FormatError, match=message) as caught:
        read_manifest(tmp_path / "m.json")
    assert str(caught.value.path) == str(tmp_path / "m.json")


def test_a_manifest_may_be_toml(tmp_path: Path):
    path = tmp_path / "m.toml"
    path.write_text('[[modes]]\nid = "full"\n[[tasks]]\nobjective = "Find the port"\n')
    assert read_manifest(path).tasks[0].id == "task_1"
    path.write_text("[[modes]\n")
    with pytest.raises(FormatError, match=r"m\.toml:1: invalid TOML"):
        read_manifest(path)


@pytest.mark.parametrize("field", ["semantic_overlap = nan", "semantic_overlap = inf"])
def test_a_number_of_a_manifest_is_finite(tmp_path: Path, field: str):
    path = tmp_path / "m.toml"
    path.write_text(f'[[modes]]\nid = "full"\n{field}\n[[tasks]]\nobjective = "Find the port"\n')
    with pytest.raises(FormatError, match="`semantic_overlap` must be a finite number"):
        read_manifest(path)


def test_the_observation_of_no_mode_has_its_line(tmp_path: Path):
    task: dict[str, Any] = {**TASK, "mode_observations": {"full": {}, "ful": {}}}
    (tmp_path / "m.json").write_text(json.dumps({**MANIFEST, "tasks": [task]}, indent=1))
    with pytest.raises(FormatError) as caught:
        read_manifest(tmp_path / "m.json")
    text = (tmp_path / "m.json").read_text()
    assert caught.value.line == text[: text.index('"ful":')].count("\n") + 1


def run(task: dict[str, Any], **mode: Any) -> dict[str, Any]:
    value = {"tasks": [{"id": "t", **TASK, **task}], "modes": [{"id": "m", **mode}]}
    return run_context_eval(msgspec.convert(value, ContextManifest))["runs"][0]


MESSAGES = [{"role": "user", "content": text} for text in ("one", "two", "three")]


@pytest.mark.parametrize(
    "mode, count",
    [
        ({"kind": "full"}, 3),
        ({"kind": "projected"}, 2),
        ({"kind": "compacted"}, 1),
        ({"kind": "projected", "transcript_keep_last": 1}, 1),
        ({"kind": "cold", "transcript_keep_last": 1}, 0),
        ({"projection_policy": "summary"}, 1),
    ],
)
def test_a_mode_keeps_the_last_messages(mode: dict[str, Any], count: int):
    projection = run({"transcript": MESSAGES}, **mode)["projection"]
    assert (projection["source_message_count"], projection["retained_message_count"]) == (3, count)


TOOLS = [{"name": "read"}, {"name": "write"}]


@pytest.mark.parametrize(
    "mode, names",
    [
        ({"kind": "cold"}, []),
        ({"kind": "full"}, ["read", "write"]),
        ({"kind": "other", "tool_allowlist": ["read", "rm"]}, ["read"]),
        ({"kind": "tool_search_limited", "tool_allowlist": ["read"]}, ["read", "tool_search"]),
    ],
)
def test_a_mode_shows_its_tools(mode: dict[str, Any], names: list[str]):
    assert run({"tools": TOOLS}, **mode)["context"]["exposed_tools"] == names


FAILURES: dict[str, tuple[dict[str, Any], list[str]]] = {
    "nothing expected": ({}, []),
    "a term of the objective": ({"expected": {"required_terms": ["PORT"]}}, []),
    "a term of the answer": (
        {"expected": {"required_terms": ["8080"]}, "observed": {"final_response": "It is 8080"}},
        [],
    ),
    "a term that only the objective has": (
        {"expected": {"required_terms": ["port"]}, "observed": {"final_response": "8080"}},
        ["missing required terms: port"],
    ),
    "an artifact": (
        {"expected": {"expected_artifact_ids": ["a"]}},
        ["missing expected artifacts: a"],
    ),
    "a tool": ({"expected": {"expected_tools": ["read"]}}, ["missing tools: read"]),
    "tokens at the maximum": (
        {"expected": {"max_input_tokens": 9}, "observed": {"input_tokens": 9}},
        [],
    ),
    "tokens above the maximum": (
        {"expected": {"max_input_tokens": 8}, "observed": {"input_tokens": 9}},
        ["input tokens 9 exceed the maximum 8"],
    ),
    "the tokens of this mode": (
        {
            "expected": {"max_input_tokens": 8},
            "observed": {"input_tokens": 9},
            "mode_observations": {"m": {"input_tokens": 8}},
        },
        [],
    ),
}


@pytest.mark.parametrize("task, failures", FAILURES.values(), ids=FAILURES)
def test_a_task_fails_with_what_is_missing(task: dict[str, Any], failures: list[str]):
    assert run(task, kind="cold")["failures"] == failures


EVENTS = [{"name": "edit_file"}, {"name": "search"}, {"name": "read", "order": 0, "recovery": True}]


def test_the_tools_before_the_first_edit_are_counted_in_their_order():
    found = run({"tool_events": EVENTS, "expected": {"expected_tools": ["read"]}}, kind="full")
    assert (found["reads_before_first_edit"], found["error_recovery_count"]) == (0, 1)
    quality = found["tool_call_quality"]
    assert (quality["score"], quality["unnecessary_tools"]) == (0.5, ["search"])
    last = [{**EVENTS[0], "order": 9}, *EVENTS[1:]]
    assert run({"tool_events": last}, kind="full")["reads_before_first_edit"] == 2


@pytest.mark.parametrize(
    "value, shown",
    [
        (None, {"mode": "deterministic", "llm_enabled": False}),
        ("summaries", {"mode": "summaries", "llm_enabled": False}),
        ({"mode": "x", "depth": 2}, {"mode": "x", "llm_enabled": False, "depth": 2}),
    ],
)
def test_the_preprocessing_of_a_mode_is_reported(value: Any, shown: dict[str, Any]):
    assert run({}, kind="cold", preprocessing=value)["preprocessing"] == shown


def test_a_failure_is_in_the_page():
    value = {**MANIFEST, "tasks": [{**TASK, "expected": {"required_terms": ["host"]}}]}
    report = run_context_eval(msgspec.convert(value, ContextManifest))
    assert "missing required terms: host" in unescape(render_context_markdown(report))


def test_the_table_of_the_page_has_a_row_for_each_run_and_no_other_line():
    expected = {"required_terms": ["host"]}
    tasks = [{**TASK, "id": name, "expected": expected} for name in ("a|b", "c\n\nd")]
    value = {**MANIFEST, "name": "x\n\ny", "tasks": tasks, "modes": [{"id": "cold"}]}
    report = run_context_eval(msgspec.convert(value, ContextManifest))
    _heading, _figures, table, failures = render_context_markdown(report).split("\n\n")
    rows = table.split("\n")
    assert [row.count("|") for row in rows] == [7] * (2 + len(tasks))
    assert [line[:2] for line in failures.strip().split("\n")] == ["- ", "- "]


@pytest.mark.parametrize(
    "expected, status",
    [
        ({}, "no_data"),
        ({"required_terms": ["port"]}, "pass"),
        ({"required_terms": ["zebra"]}, "fail"),
    ],
)
def test_a_task_that_expects_nothing_has_no_data(
    run_files: RunPack, expected: dict[str, Any], status: str
):
    manifest = {**MANIFEST, "tasks": [{**TASK, "expected": expected}]}
    case = {"id": "c", "kind": "context", "manifest": "m.json"}
    finished = run_files({"id": "p", "cases": [case]}, {"m.json": manifest})
    assert [case.status for case in finished.cases] == [status]
